/* Timings of ops on a machine, which "fsdplan bench" stored, for the simulator. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/plan/stack.h"
#include "sim/cost/timings.h"
G_BEGIN_DECLS

/* The name of a machine in the store: its processor and GEMM library, and for collectives between
 * nodes also the network, as far as it is known. The caller frees. */
char *advise_timings_machine (const PlanCluster *cluster, const char *library, gboolean crosses);

/* Ops that were timed on a cluster's devices by our own runtime, which the stack must be.
 * Collectives are those of the backend `comm` (NULL: nccl on GPUs, threads on processors; between
 * nodes nccl or mpi) over the same network. Read from the store `db` once; NULL where there are
 * none. Owned by this module. Any thread may ask. */
const SimTimings *advise_timings (const PlanCluster *cluster, const PlanStack *stack,
                                  const char *db, const char *comm);

/* Makes timings be read from stores again, after more ops were timed. None that was returned
 * earlier may be in use. */
void advise_timings_forget (void);

G_END_DECLS
