/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/predict.h"

#include "advise/adjustments.h"
#include "advise/measurements.h"
#include "advise/timings.h"
#include "advise/uncertainty.h"
#include "advise/workspaces.h"
#include "planner/base/error.h"
#include "planner/lower/hazards.h"
#include "planner/schedule/step-ops.h"
#include "sim/fast/measure.h"
#include "sim/sim.h"

void
advise_prediction_clear (AdvisePrediction *self)
{
  g_clear_pointer (&self->schedule, plan_schedule_free);
  g_clear_pointer (&self->trace, plan_trace_free);
  g_clear_pointer (&self->hazards, g_ptr_array_unref);
}

double
advise_mib (guint64 bytes)
{
  return (double)bytes / 1048576.0;
}

/* What the time of each op tells, as it ran beside others. */
static void
take_times (AdvisePrediction *self, const AdviseInput *input, const SimCost *cost,
            const gint64 *node_ns)
{
  const SimCostInput costs
      = { .schedule = self->schedule, .cluster = input->cluster, .stack = self->stack };
  g_autofree gint64 *times = plan_schedule_step_times (self->schedule);
  gint64 of[SIM_N_PROVENANCES] = { 0 }, total = 0, slowed = 0;
  for (guint node = 0; node < plan_schedule_n_nodes (self->schedule); node++)
    {
      if (times[node] == 0)
        continue;
      of[sim_cost_provenance (cost, node)] += node_ns[node];
      total += node_ns[node];
      if (plan_schedule_node (self->schedule, node)->stream == PLAN_STREAM_COMPUTE)
        slowed += node_ns[node] - times[node] * sim_cost_ns (cost, node);
    }
  for (guint p = 0; p < SIM_N_PROVENANCES && total > 0; p++)
    self->provenance_pct[p] = 100.0 * (double)of[p] / (double)total;
  self->slowed_ms = 1e-6 * (double)slowed;
  advise_split_init (&self->split, &costs, cost, node_ns);
}

SimCost *
advise_cost_of (const AdviseInput *input, const Plan *resolved, const PlanSchedule *schedule,
                const PlanStack *stack, GError **error)
{
  const SimParams params = advise_params (input->adjustments, input->cluster, stack);
  const SimCostInput costs
      = { .schedule = schedule,
          .cluster = input->cluster,
          .stack = stack,
          .plan = resolved,
          .params = &params,
          .measurements = advise_measurements (input->cluster),
          .timings = advise_timings (input->cluster, stack, input->db, input->comm) };
  return sim_cost_new (&costs, error);
}

static void
free_workspace (gpointer workspace)
{
  sim_workspace_free (workspace);
}

SimWorkspace *
advise_workspace (void)
{
  static GPrivate workspaces = G_PRIVATE_INIT (free_workspace);
  if (!g_private_get (&workspaces))
    g_private_set (&workspaces, sim_workspace_new ());
  return g_private_get (&workspaces);
}

gboolean
advise_measure_plan (const AdviseInput *input, const Plan *resolved, SimSummary *out_summary,
                     GError **error)
{
  const PlanStack *stack = plan_stack_of (resolved, input->cluster->kind, error);
  g_autoptr (PlanSchedule) schedule = stack ? advise_lower (input, resolved, 0, error) : NULL;
  g_autoptr (SimCost) cost
      = schedule ? advise_cost_of (input, resolved, schedule, stack, error) : NULL;
  return cost && sim_measure (schedule, cost, stack, advise_workspace (), out_summary, error);
}

/* The totals of a trace, and what its ops took. */
static PlanTrace *
measure (AdvisePrediction *self, const AdviseInput *input, const SimCost *cost, GError **error)
{
  SimSummary summary;
  if (!sim_measure (self->schedule, cost, self->stack, advise_workspace (), &summary, error))
    return NULL;
  PlanTrace *trace = plan_trace_new ("sim");
  trace->step_ns = summary.step_ns;
  trace->compute_ns = summary.compute_ns;
  trace->exposed_tensor_ns = summary.exposed_tensor_ns;
  trace->exposed_gather_ns = summary.exposed_gather_ns;
  trace->exposed_reduce_ns = summary.exposed_reduce_ns;
  trace->exposed_copy_ns = summary.exposed_copy_ns;
  trace->host_ns = summary.host_ns;
  trace->idle_ns = summary.idle_ns;
  trace->memory = summary.memory;
  take_times (self, input, cost, sim_measure_node_ns (advise_workspace ()));
  return trace;
}

/* Measurements of real machines hold for altered ones (--hw) only in part. */
static void
note_other_hardware (AdvisePrediction *self, const PlanCluster *cluster)
{
  g_auto (GStrv) overrides = plan_cluster_overrides (cluster);
  g_autofree char *said = g_strjoinv (", ", overrides);
  if (*overrides)
    g_ptr_array_add (
        self->hazards,
        g_strdup_printf (
            "other hardware (--hw %s): taken to reach the same shares of its rates as %s, and what "
            "was timed on that is left out",
            said, cluster->device_name));
}

/* Threads of one rank each, that have to share. */
static void
note_shared_cores (AdvisePrediction *self, const PlanCluster *cluster)
{
  const gint64 ranks = plan_cluster_devices (cluster), cores = cluster->host_cores;
  if (cluster->kind == PLAN_DEVICE_CPU && cores > 0 && ranks > cores * cluster->nodes)
    g_ptr_array_add (self->hazards,
                     g_strdup_printf ("%" G_GINT64_FORMAT " ranks on %" G_GINT64_FORMAT
                                      " cores: taken to share them evenly, and no rank to wait for "
                                      "one that is not running; fsdplan bench --ranks "
                                      "%" G_GINT64_FORMAT " measures what it is",
                                      ranks, cores * cluster->nodes, ranks));
}

static void
find_error_range (AdvisePrediction *self, const AdviseInput *input)
{
  const PlanTrace *t = self->trace;
  const double exposed = advise_exposed_share (t->step_ns, t->exposed_tensor_ns,
                                               t->exposed_gather_ns, t->exposed_reduce_ns);
  const AdviseMemoryError error
      = advise_memory_error (input->adjustments, input->cluster, self->stack);
  self->error_range = advise_time_uncertainty (input->adjustments, input->cluster, self->stack,
                                               &self->plan, exposed);
  self->p_fits
      = advise_p_fits (&error, t->memory.device, t->memory.allocated, input->cluster->memory_bytes);
}

static gboolean
predict (const AdviseInput *input, AdvisePrediction *self, GError **error)
{
  if (!plan_resolve (&input->plan, input->model, input->cluster, &self->plan, error)
      || !(self->stack = plan_stack_of (&self->plan, input->cluster->kind, error))
      || !(self->schedule = advise_lower (input, &self->plan, 0, error)))
    return FALSE;
  g_autoptr (SimCost) cost
      = advise_cost_of (input, &self->plan, self->schedule, self->stack, error);
  if (!cost || !(self->trace = measure (self, input, cost, error)))
    return FALSE;
  self->params_id = advise_params (input->adjustments, input->cluster, self->stack).id;
  find_error_range (self, input);
  self->hazards = plan_hazards_of (&self->plan, input->model, input->cluster);
  note_shared_cores (self, input->cluster);
  note_other_hardware (self, input->cluster);

  const gint64 seq = self->plan.value[PLAN_SEQ];
  const gint64 vocab
      = plan_stack_padded_vocab (self->stack, input->model->vocab, self->plan.value[PLAN_TP]);
  const double tokens = (double)(self->plan.value[PLAN_GBS] * seq);
  const double devices = (double)plan_cluster_devices (input->cluster);
  const double seconds = 1e-9 * (double)self->trace->step_ns;
  const double peak
      = input->cluster->peak_flops[plan_field_dtype (&self->plan, PLAN_COMPUTE)] * 1e-12;
  self->step_ms = 1e3 * seconds;
  self->tokens_per_s_per_gpu = tokens / seconds / devices;
  /* A backward pass is twice a forward pass. */
  const double passes = self->plan.value[PLAN_TASK] == PLAN_TASK_EVAL ? 1.0 / 3 : 1;
  self->tflops_per_gpu = 1e-12 * passes * self->tokens_per_s_per_gpu
                         * plan_model_flops_per_token (input->model, seq, vocab);
  self->mfu = peak > 0 ? self->tflops_per_gpu / peak : 0;
  self->fits = self->trace->memory.device <= input->cluster->memory_bytes;
  return TRUE;
}

gboolean
advise_predict (const AdviseInput *input, AdvisePrediction *out_prediction, GError **error)
{
  g_auto (AdvisePrediction) self = { 0 };
  if (!predict (input, &self, error))
    return FALSE;
  *out_prediction = self;
  self = (AdvisePrediction){ 0 };
  return TRUE;
}

guint64
advise_prediction_n_ops (const AdvisePrediction *self)
{
  g_autofree gint64 *times = plan_schedule_step_times (self->schedule);
  guint64 n = 0;
  for (guint node = 0; node < plan_schedule_n_nodes (self->schedule); node++)
    n += (guint64)times[node];
  return n;
}

gboolean
advise_prediction_can_expand (const AdvisePrediction *self)
{
  return advise_prediction_n_ops (self) <= ADVISE_MAX_SPANS;
}

/* The micro batches between the first and the last are alike. */
static gboolean
check_expansion (const AdvisePrediction *self, const AdviseInput *input, GError **error)
{
  if (advise_prediction_can_expand (self))
    return TRUE;
  const gint64 at_once
      = self->plan.value[PLAN_MBS] * plan_data_parallel (&self->plan, input->cluster);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "a step of %" G_GINT64_FORMAT " micro batches has %" G_GUINT64_FORMAT
               " ops, and at most %d are listed one by one: gbs=%" G_GINT64_FORMAT
               " has 8 micro batches, and those between the first and the last are alike",
               self->plan.value[PLAN_GBS] / at_once, advise_prediction_n_ops (self),
               ADVISE_MAX_SPANS, 8 * at_once);
  return FALSE;
}

gboolean
advise_prediction_expand (AdvisePrediction *self, const AdviseInput *input, GError **error)
{
  if (!check_expansion (self, input, error))
    return FALSE;
  g_autoptr (SimCost) cost
      = advise_cost_of (input, &self->plan, self->schedule, self->stack, error);
  PlanTrace *trace = cost ? sim_run (self->schedule, cost, self->stack, error) : NULL;
  if (!trace)
    return FALSE;
  plan_trace_free (self->trace);
  self->trace = trace;
  return TRUE;
}

char *
advise_peak_name (const PlanMemory *memory, const PlanSchedule *schedule)
{
  const PlanOp *op = plan_schedule_node (schedule, memory->peak_node);
  if (op->kind != PLAN_OP_ALLOC)
    return g_strdup ("between steps");
  const char *name = plan_schedule_buffer (schedule, (guint)op->refs[0].array)->name;
  return memory->peak_unit < 0 ? g_strdup (name)
                               : g_strdup_printf ("%s[%d]", name, memory->peak_unit);
}

char *
advise_describe_costs (const AdvisePrediction *self)
{
  return g_strdup_printf ("costs: %s; %.0f %% of the time measured, %.0f %% interpolated, "
                          "%.0f %% fitted, %.0f %% from data sheets",
                          self->params_id, self->provenance_pct[SIM_PROVENANCE_MEASURED],
                          self->provenance_pct[SIM_PROVENANCE_INTERPOLATED],
                          self->provenance_pct[SIM_PROVENANCE_FITTED],
                          self->provenance_pct[SIM_PROVENANCE_DATASHEET]);
}

char *
advise_describe_uncertainty (SimErrorRange error_range)
{
  return error_range.pct < 0
             ? g_strdup ("how far off is unknown: nothing like it was measured")
             : g_strdup_printf (
                 "of 10 such predictions 8 lie within %.1f %%, from %u groups of runs",
                 error_range.pct, error_range.runs);
}
