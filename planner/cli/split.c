/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/split.h"

#include "planner/lower/step-ops.h"

static void
add_op (CliWork *work, const SimCostInput *costs, const SimCost *cost, guint node, gint64 ns,
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
cli_split_init (CliSplit *self, const SimCostInput *costs, const SimCost *cost,
                const gint64 *node_ns)
{
  const PlanSchedule *schedule = costs->schedule;
  g_autofree gint64 *times = plan_schedule_step_times (schedule);
  g_autofree gboolean *is_again = plan_schedule_recomputed (schedule);
  *self = (CliSplit){ .memory_bytes_per_s = costs->cluster->memory_bytes_per_s };
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      if (times[node] > 0 && op->stream == PLAN_STREAM_COMPUTE)
        add_op (is_again[node] ? &self->recomputed : &self->work[plan_op_work (op->kind)], costs,
                cost, node, node_ns[node], times[node]);
    }
}

CliPace
cli_split_pace (const CliSplit *self, const CliWork *work)
{
  const double ns = (double)work->ns;
  const double memory_ns
      = self->memory_bytes_per_s > 0 ? 1e9 * work->bytes / self->memory_bytes_per_s : 0;
  if (work->ns <= 0)
    return (CliPace){ .of_peak_pct = -1 };
  if (work->flops > 0 && work->peak_flop_ns >= memory_ns)
    return (CliPace){ .is_arithmetic = TRUE,
                      .per_s = 1e9 * work->flops / ns,
                      .of_peak_pct
                      = work->peak_flop_ns > 0 ? 100.0 * work->peak_flop_ns / ns : -1 };
  return (CliPace){ .per_s = 1e9 * work->bytes / ns,
                    .of_peak_pct = memory_ns > 0 ? 100.0 * memory_ns / ns : -1 };
}

const CliWork *
cli_split_next (const CliSplit *self, guint *index, const char **out_key, const char **out_name)
{
  while (*index <= PLAN_N_WORKS)
    {
      const guint i = (*index)++;
      const CliWork *work = i < PLAN_N_WORKS ? &self->work[i] : &self->recomputed;
      *out_key = i < PLAN_N_WORKS ? plan_work_key ((PlanWork)i) : "recompute";
      *out_name = i < PLAN_N_WORKS ? plan_work_name ((PlanWork)i) : "recompute";
      if (work->ns > 0)
        return work;
    }
  return NULL;
}

static double
share_pct (const CliWork *work, gint64 step_ns)
{
  return 100.0 * (double)work->ns / (double)step_ns;
}

static void
add_number (JsonBuilder *builder, const char *name, gboolean is_known, double value)
{
  json_builder_set_member_name (builder, name);
  if (is_known)
    json_builder_add_double_value (builder, value);
  else
    json_builder_add_null_value (builder);
}

void
cli_split_to_json (const CliSplit *self, gint64 step_ns, JsonBuilder *builder)
{
  const char *key, *name;
  guint i = 0;
  json_builder_set_member_name (builder, "compute");
  json_builder_begin_array (builder);
  for (const CliWork *work; (work = cli_split_next (self, &i, &key, &name));)
    {
      const CliPace pace = cli_split_pace (self, work);
      const gboolean moves = pace.per_s > 0;
      json_builder_begin_object (builder);
      json_builder_set_member_name (builder, "work");
      json_builder_add_string_value (builder, key);
      add_number (builder, "ms", TRUE, 1e-6 * (double)work->ns);
      add_number (builder, "share_pct", TRUE, share_pct (work, step_ns));
      add_number (builder, "tflops", moves && pace.is_arithmetic, 1e-12 * pace.per_s);
      add_number (builder, "gb_per_s", moves && !pace.is_arithmetic, 1e-9 * pace.per_s);
      add_number (builder, "of_peak_pct", moves && pace.of_peak_pct >= 0, pace.of_peak_pct);
      json_builder_end_object (builder);
    }
  json_builder_end_array (builder);
}
