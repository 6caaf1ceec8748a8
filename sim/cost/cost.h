/* SimCost: how long each op of a schedule takes, what it occupies meanwhile, and how that is known.
 *
 * It is made for one schedule on one cluster. Durations are integers, rounded once. The best source
 * is used: measured at this size, interpolated between measured sizes, or the curves of a parameter
 * set. */
#pragma once
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include "sim/cost/cost-params.h"
#include "sim/cost/measurements.h"
#include "sim/cost/timings.h"
#include <glib.h>
G_BEGIN_DECLS

/* Where a cost comes from; the best source first. */
typedef enum
{
  SIM_PROVENANCE_MEASURED,
  SIM_PROVENANCE_INTERPOLATED,
  SIM_PROVENANCE_FITTED,
  SIM_PROVENANCE_DATASHEET,
  SIM_N_PROVENANCES
} SimProvenance;

/* Resources of a device that ops side by side share. */
typedef enum
{
  SIM_SHARED_PROCESSORS,
  SIM_SHARED_MEMORY,  /* bandwidth */
  SIM_SHARED_LINK,    /* to devices in the same node or NVLink domain */
  SIM_SHARED_NETWORK, /* to other devices */
  SIM_N_SHARED
} SimShared;

/* How much of each resource an op uses while it runs alone, per mille. */
typedef struct
{
  guint16 permille[SIM_N_SHARED];
} SimLoad;

/* What costs are made from; all of it must outlive the SimCost. */
typedef struct
{
  const PlanSchedule *schedule;
  const PlanCluster *cluster;
  const PlanStack *stack;
  const PlanModel *model;  /* says which router there is; NULL: a router takes no ops but its own */
  const Plan *plan;        /* resolved plan: NCCL's version, registration of buffers, SHARP */
  const SimParams *params; /* NULL: the cluster's default */
  const SimMeasurements *measurements; /* of this kind of device; NULL: none */
  const SimTimings *timings;           /* of this very machine; NULL: none */
} SimCostInput;

/* The input for a case's schedule, with the cluster's default parameters and no measurements. */
SimCostInput sim_cost_input (const PlanCase *of, const PlanSchedule *schedule);

typedef struct _SimCost SimCost;

/* Finds the costs of all ops. UNSUPPORTED when the cluster lacks a rate that an op needs. */
SimCost *sim_cost_new (const SimCostInput *input, GError **error);

/* Refuses for want of a rate that the cluster does not state, and says how to state it. */
void sim_cost_refuse (const PlanCluster *cluster, PlanFact unknown, GError **error);

/* Makes constant costs for tests computed by hand: every op takes `op_ns`, and the host `launch_ns`
 * to issue it. sim_cost_set_load sets the load of one op. */
SimCost *sim_cost_new_constant (const PlanSchedule *schedule, gint64 op_ns, gint64 launch_ns);

void sim_cost_set_load (SimCost *self, guint node, SimLoad load);

void sim_cost_free (SimCost *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimCost, sim_cost_free)

gint64 sim_cost_ns (const SimCost *self, guint node);
SimProvenance sim_cost_provenance (const SimCost *self, guint node);
gint64 sim_cost_launch_ns (const SimCost *self, guint node); /* the host's time to issue it */
guint sim_cost_launches (const SimCost *self,
                         guint node); /* kernels and events that it puts into queues */

/* What a collective takes from compute beside it: processors that it keeps busy, and bytes of
 * memory that it moves. Compute has no fixed number of processors but takes those that are left. */
guint sim_cost_sms (const SimCost *self, guint node);
guint64 sim_cost_memory_bytes (const SimCost *self, guint node);

SimLoad sim_cost_load (const SimCost *self, guint node);

/* The data sheet's rate for the format of a GEMM or of attention; 0 where it has none. */
double sim_cost_peak_flops (const SimCostInput *input, const PlanOp *op);

gboolean sim_cost_is_serial (const SimCost *self); /* a CPU, whose streams do not overlap */

G_END_DECLS
