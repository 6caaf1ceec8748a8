/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/compute-split.h"

#include "planner/schedule/step-ops.h"

static void
add_op (AdviseWork *work, const SimCostInput *costs, const SimCost *cost, guint node, gint64 ns,
        gint64 times)
{
  const PlanOp *op = plan_schedule_node (costs->schedule, node);
  const double flops = (double)times * plan_op_flops (op);
  const double peak = flops > 0 ? sim_cost_peak_flops (costs, op) : 0;
  work->ns += ns;
  work->flops += flops;
  work->bytes += (double)times * (double)sim_cost_memory_bytes (cost, node);
  work->peak_flop_ns += peak > 0 ? 1e9 * flops / peak : 0;
}

void
advise_split_init (AdviseSplit *self, const SimCostInput *costs, const SimCost *cost,
                   const gint64 *node_ns)
{
  const PlanSchedule *schedule = costs->schedule;
  g_autofree gint64 *times = plan_schedule_step_times (schedule);
  g_autofree gboolean *is_again = plan_schedule_recomputed (schedule);
  *self = (AdviseSplit){ .memory_bytes_per_s = costs->cluster->memory_bytes_per_s };
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      if (times[node] > 0 && op->stream == PLAN_STREAM_COMPUTE)
        add_op (is_again[node] ? &self->recomputed : &self->work[plan_op_work (op->kind)], costs,
                cost, node, node_ns[node], times[node]);
    }
}

AdvisePace
advise_split_pace (const AdviseSplit *self, const AdviseWork *work)
{
  const double ns = (double)work->ns;
  const double memory_ns
      = self->memory_bytes_per_s > 0 ? 1e9 * work->bytes / self->memory_bytes_per_s : 0;
  if (work->ns <= 0)
    return (AdvisePace){ .of_peak_pct = -1 };
  if (work->flops > 0 && work->peak_flop_ns >= memory_ns)
    return (AdvisePace){ .is_arithmetic = TRUE,
                         .per_s = 1e9 * work->flops / ns,
                         .of_peak_pct
                         = work->peak_flop_ns > 0 ? 100.0 * work->peak_flop_ns / ns : -1 };
  return (AdvisePace){ .per_s = 1e9 * work->bytes / ns,
                       .of_peak_pct = memory_ns > 0 ? 100.0 * memory_ns / ns : -1 };
}

const AdviseWork *
advise_split_next (const AdviseSplit *self, guint *index, const char **out_key,
                   const char **out_name)
{
  while (*index <= PLAN_N_WORKS)
    {
      const guint i = (*index)++;
      const AdviseWork *work = i < PLAN_N_WORKS ? &self->work[i] : &self->recomputed;
      *out_key = i < PLAN_N_WORKS ? plan_work_key ((PlanWork)i) : "recompute";
      *out_name = i < PLAN_N_WORKS ? plan_work_name ((PlanWork)i) : "recompute";
      if (work->ns > 0)
        return work;
    }
  return NULL;
}
