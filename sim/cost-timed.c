/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that were timed on this machine, as a step has them: among others, which they share caches
 * with. */
#include "config.h"

#include "sim/cost-private.h"

/* Of the rate an op reached alone, what is left of it in a step. */
static SimParam
kept_of (PlanOpKind kind)
{
  switch ((int)kind)
    {
    case PLAN_OP_GEMM:
    case PLAN_OP_GEMM_ADD:
      return SIM_PARAM_PRODUCT_SUSTAINED;
    case PLAN_OP_ATTENTION:
    case PLAN_OP_ATTENTION_BWD:
      return SIM_PARAM_TIMED_ATTENTION;
    default:
      return plan_op_class (kind) == PLAN_CLASS_COLLECTIVE ? SIM_PARAM_TIMED_COLLECTIVE
                                                           : SIM_PARAM_TIMED_TRAFFIC;
    }
}

gboolean
sim_cost_timed (const SimCostInput *input, const PlanOp *op, SimTime *out_time)
{
  static const SimProvenance provenance[] = { [SIM_TIMED_AS_IS] = SIM_PROVENANCE_MEASURED,
                                              [SIM_TIMED_BETWEEN] = SIM_PROVENANCE_INTERPOLATED,
                                              [SIM_TIMED_BEYOND] = SIM_PROVENANCE_FITTED };
  double ns;
  SimTimed how;
  if (!input->timings)
    return FALSE;
  SimTiming timing = sim_timing_of (input->schedule, op);
  if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
    timing.nodes = (guint)sim_cost_nodes (input->cluster,
                                          plan_schedule_group (input->schedule, (guint)op->group));
  if (!sim_timings_find (input->timings, &timing, input->cluster->host_cores, &ns, &how))
    return FALSE;
  *out_time = (SimTime){ .seconds = 1e-9 * ns / sim_cost_param (input, kept_of (op->kind)),
                         .memory = sim_cost_traffic (input, op),
                         .provenance = provenance[how] };
  return TRUE;
}
