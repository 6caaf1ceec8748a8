/* SPDX-License-Identifier: Apache-2.0 */
/* Times of ops that were timed on this machine, scaled to what they take within a step, where other
 * ops use the caches as well. */
#include "config.h"

#include "sim/cost/cost-private.h"

/* The parameter for the share of its stand-alone rate that an op keeps within a step. */
static SimParam
kept_of (PlanOpKind kind)
{
  switch (plan_op_cost (kind))
    {
    case PLAN_COST_PRODUCT:
      return SIM_PARAM_PRODUCT_SUSTAINED;
    case PLAN_COST_ATTENTION:
    case PLAN_COST_DELTA:
    case PLAN_COST_SSM:
      return SIM_PARAM_TIMED_ATTENTION;
    case PLAN_COST_COLLECTIVE:
      return SIM_PARAM_TIMED_COLLECTIVE;
#define X(id, name) case PLAN_COST_##id:
      PLAN_TRAFFIC_LIST (X)
#undef X
    case PLAN_COST_HOST_COPY:
    case PLAN_COST_HOST_OPTIMIZER:
      return SIM_PARAM_TIMED_TRAFFIC;
    case PLAN_COST_NONE:
    case PLAN_N_COSTS:
      break;
    }
  g_assert_not_reached ();
}

/* What an op occupies beside others; the time is filled in by the caller. */
static SimTime
occupancy_of (const SimCostInput *input, const PlanOp *op, double calls)
{
  if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE && input->cluster->kind == PLAN_DEVICE_GPU)
    return sim_cost_collective (input, op, calls);
  return (SimTime){ .memory = sim_cost_traffic (input, op) };
}

/* Ranks on a CPU share its cores where there are fewer cores than ranks. On a GPU each rank has a
 * device, or the share of one on which it was timed. */
gboolean
sim_cost_timed (const SimCostInput *input, const PlanOp *op, double calls, SimTime *out_time)
{
  static const SimProvenance provenance[] = { [SIM_TIMED_AS_IS] = SIM_PROVENANCE_MEASURED,
                                              [SIM_TIMED_BETWEEN] = SIM_PROVENANCE_INTERPOLATED,
                                              [SIM_TIMED_BEYOND] = SIM_PROVENANCE_FITTED };
  const gint64 cores = input->cluster->kind == PLAN_DEVICE_CPU ? input->cluster->host_cores : 0;
  double ns;
  SimTimed how;
  if (!input->timings)
    return FALSE;
  SimTiming timing = sim_timing_of (input->schedule, op);
  if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
    timing.nodes = (guint)sim_cost_nodes (input->cluster,
                                          plan_schedule_group (input->schedule, (guint)op->group));
  if (!sim_timings_find (input->timings, &timing, cores, &ns, &how))
    return FALSE;
  *out_time = occupancy_of (input, op, calls);
  out_time->seconds = 1e-9 * ns / sim_cost_param (input, kept_of (op->kind));
  out_time->provenance = provenance[how];
  return TRUE;
}
