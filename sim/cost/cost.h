/* SimCost: how long each op of a schedule takes, what it occupies meanwhile, and how we know.
 *
 * Made for one schedule on one cluster; durations are integers, rounded once. Best source first:
 * measured at this shape, interpolated between measured shapes, the parameter set's curves. */
#pragma once
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include "sim/cost/cost-params.h"
#include "sim/cost/measurements.h"
#include "sim/cost/timings.h"
#include <glib.h>
G_BEGIN_DECLS

/* Best source first. */
typedef enum
{
  SIM_PROVENANCE_MEASURED,
  SIM_PROVENANCE_INTERPOLATED,
  SIM_PROVENANCE_FITTED,
  SIM_PROVENANCE_DATASHEET,
  SIM_N_PROVENANCES
} SimProvenance;

/* What ops that run side by side share on a device. */
typedef enum
{
  SIM_SHARED_PROCESSORS,
  SIM_SHARED_MEMORY,  /* bandwidth */
  SIM_SHARED_LINK,    /* to devices near by */
  SIM_SHARED_NETWORK, /* to the others */
  SIM_N_SHARED
} SimShared;

/* Per mille of each that an op uses while it runs alone. */
typedef struct
{
  guint16 permille[SIM_N_SHARED];
} SimLoad;

/* What costs are made of; all of it must outlive what is made. */
typedef struct
{
  const PlanSchedule *schedule;
  const PlanCluster *cluster;
  const PlanStack *stack;
  const Plan *plan;                    /* resolved: NCCL's version, registration, SHARP */
  const SimParams *params;             /* NULL: the cluster's default */
  const SimMeasurements *measurements; /* of the kind of device; NULL: none */
  const SimTimings *timings;           /* of the very machine; NULL: none */
} SimCostInput;

/* Of a case's schedule, by the cluster's default parameters and no measurements. */
SimCostInput sim_cost_input (const PlanCase *of, const PlanSchedule *schedule);

typedef struct _SimCost SimCost;

/* UNSUPPORTED when the cluster lacks a rate that an op needs. */
SimCost *sim_cost_new (const SimCostInput *input, GError **error);

/* Every op takes `op_ns`, issuing takes `launch_ns`: for hand-computed tests. */
SimCost *sim_cost_new_constant (const PlanSchedule *schedule, gint64 op_ns, gint64 launch_ns);

void sim_cost_set_load (SimCost *self, guint node, SimLoad load); /* likewise */

void sim_cost_free (SimCost *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimCost, sim_cost_free)

gint64 sim_cost_ns (const SimCost *self, guint node);
SimProvenance sim_cost_provenance (const SimCost *self, guint node);
gint64 sim_cost_launch_ns (const SimCost *self, guint node); /* host time to issue it */
guint sim_cost_launches (const SimCost *self, guint node);   /* kernels and events of it */

/* What a collective takes from compute beside it: processors it keeps busy, bytes of memory it
 * moves. Compute itself keeps no fixed number: it takes the processors that are left. */
guint sim_cost_sms (const SimCost *self, guint node);
guint64 sim_cost_memory_bytes (const SimCost *self, guint node);

SimLoad sim_cost_load (const SimCost *self, guint node);

/* The rate at which a device multiplies in the format of a product or of attention, by its data
 * sheet; 0 where that has none. */
double sim_cost_peak_flops (const SimCostInput *input, const PlanOp *op);

gboolean sim_cost_is_serial (const SimCost *self); /* a CPU: streams do not overlap */

G_END_DECLS
