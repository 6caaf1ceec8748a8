/* Timings that "fsdplan bench" stored of a machine, as the simulator takes them. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/plan/stack.h"
#include "sim/cost/timings.h"
G_BEGIN_DECLS

/* The name of a machine in the store: the processor and the GEMM library; for collectives between
 * nodes the network, too, as far as it is known. The caller frees. */
char *advise_timings_machine (const PlanCluster *cluster, const char *library, gboolean crosses);

/* Ops timed on a cluster's devices by our own runtime, which the stack has to be, with collectives
 * carried by `comm` (NULL: of GPUs nccl, of processors threads; between nodes nccl or mpi) and over
 * such a network, read from the store `db` once; NULL where there are none. Owned by this module.
 * Any thread may ask. */
const SimTimings *advise_timings (const PlanCluster *cluster, const PlanStack *stack,
                                  const char *db, const char *comm);

/* Timings are read from stores again, because more ops were timed since. None that was given out
 * may be in use. */
void advise_timings_forget (void);

G_END_DECLS
