/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/predict.h"

#include "advise/adjustments.h"
#include "advise/measurements.h"
#include "advise/timings.h"
#include "advise/uncertainty.h"
#include "advise/workspaces.h"
#include "planner/base/error.h"
#include "planner/case/hazards.h"
#include "planner/lower/lower.h"
#include "planner/plan/stages.h"
#include "planner/schedule/step-ops.h"
#include "sim/fast/measure.h"
#include "sim/sim.h"

static void
clear_stage (gpointer data)
{
  plan_trace_free (((AdviseStage *)data)->totals);
}

static void
clear_view (gpointer data)
{
  const PlanTraceView *view = data;
  plan_trace_free ((PlanTrace *)(guintptr)view->trace);
  plan_schedule_free ((PlanSchedule *)(guintptr)view->schedule);
}

void
advise_prediction_clear (AdvisePrediction *self)
{
  if (self->expanded && self->expanded->len > 0)
    {
      self->trace = NULL; /* it belongs to one of the stages */
      self->schedule = NULL;
    }
  g_clear_pointer (&self->expanded, g_array_unref);
  g_clear_pointer (&self->of, plan_case_free);
  g_clear_pointer (&self->schedule, plan_schedule_free);
  g_clear_pointer (&self->trace, plan_trace_free);
  g_clear_pointer (&self->hazards, g_ptr_array_unref);
  g_clear_pointer (&self->unlike, g_free);
  g_clear_pointer (&self->stages, g_array_unref);
}

double
advise_mib (guint64 bytes)
{
  return (double)bytes / 1048576.0;
}

/* Adds up the times of ops, as they ran beside others, by kind of work and by provenance. */
static void
take_times (AdvisePrediction *self, const PlanSchedule *schedule, const SimCost *cost,
            const gint64 *node_ns)
{
  const SimCostInput costs = sim_cost_input (self->of, schedule);
  g_autofree gint64 *times = plan_schedule_step_times (schedule);
  gint64 of[SIM_N_PROVENANCES] = { 0 }, total = 0, slowed = 0;
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      if (times[node] == 0)
        continue;
      of[sim_cost_provenance (cost, node)] += node_ns[node];
      total += node_ns[node];
      if (plan_schedule_node (schedule, node)->stream == PLAN_STREAM_COMPUTE)
        slowed += node_ns[node] - times[node] * sim_cost_ns (cost, node);
    }
  for (guint p = 0; p < SIM_N_PROVENANCES && total > 0; p++)
    self->provenance_pct[p] = 100.0 * (double)of[p] / (double)total;
  self->slowed_ms = 1e-6 * (double)slowed;
  advise_split_init (&self->split, &costs, cost, node_ns);
}

/* The times of the ops of an interleaved stage, of which only the sum on the compute stream is
 * known: each op takes its time alone, and those on the compute stream are slowed by one factor so
 * that they add up to that sum. The caller frees. */
static gint64 *
share_out (const PlanSchedule *schedule, const SimCost *cost, gint64 compute_ns)
{
  const guint n = plan_schedule_n_nodes (schedule);
  g_autofree gint64 *times = plan_schedule_step_times (schedule);
  gint64 *node_ns = g_new (gint64, n), alone_ns = 0;
  for (guint node = 0; node < n; node++)
    {
      node_ns[node] = times[node] * sim_cost_ns (cost, node);
      if (plan_schedule_node (schedule, node)->stream == PLAN_STREAM_COMPUTE)
        alone_ns += node_ns[node];
    }
  for (guint node = 0; node < n && alone_ns > 0; node++)
    if (plan_schedule_node (schedule, node)->stream == PLAN_STREAM_COMPUTE)
      node_ns[node] = (gint64)((double)node_ns[node] * (double)compute_ns / (double)alone_ns);
  return node_ns;
}

SimCost *
advise_cost_of (const AdviseInput *input, const PlanCase *of, const PlanSchedule *schedule,
                GError **error)
{
  const SimParams params = advise_params (input->adjustments, of->cluster, of->stack);
  SimCostInput costs = sim_cost_input (of, schedule);
  costs.params = &params;
  costs.measurements = advise_measurements (of->cluster);
  costs.timings = advise_timings (of->cluster, of->stack, input->db, input->comm);
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
advise_measure_case (const AdviseInput *input, const PlanCase *of, SimSummary *out_summaries,
                     GError **error)
{
  if (of->plan.value[PLAN_PP] > 1)
    {
      g_auto (AdviseStages) stages = { 0 };
      return advise_stages_init (&stages, input, of, error)
             && advise_stages_measure (&stages, of, out_summaries, NULL, error);
    }
  g_autoptr (PlanSchedule) schedule = plan_lower (of, 0, error);
  g_autoptr (SimCost) cost = schedule ? advise_cost_of (input, of, schedule, error) : NULL;
  return cost && sim_measure (schedule, cost, of->stack, advise_workspace (), out_summaries, error);
}

static PlanTrace *
trace_of (const SimSummary *summary)
{
  PlanTrace *trace = plan_trace_new ("sim");
  trace->step_ns = summary->step_ns;
  trace->compute_ns = summary->compute_ns;
  trace->exposed_tensor_ns = summary->exposed_tensor_ns;
  trace->exposed_gather_ns = summary->exposed_gather_ns;
  trace->exposed_reduce_ns = summary->exposed_reduce_ns;
  trace->exposed_copy_ns = summary->exposed_copy_ns;
  trace->host_ns = summary->host_ns;
  trace->idle_ns = summary->idle_ns;
  trace->memory = summary->memory;
  return trace;
}

/* Measures a case without a pipeline: totals, and the times of its ops. */
static gboolean
measure (const AdviseInput *input, AdvisePrediction *self, GError **error)
{
  SimSummary summary;
  if (!(self->schedule = plan_lower (self->of, 0, error)))
    return FALSE;
  g_autoptr (SimCost) cost = advise_cost_of (input, self->of, self->schedule, error);
  if (!cost
      || !sim_measure (self->schedule, cost, self->of->stack, advise_workspace (), &summary, error))
    return FALSE;
  self->trace = trace_of (&summary);
  take_times (self, self->schedule, cost, sim_measure_node_ns (advise_workspace ()));
  return TRUE;
}

/* Measures a pipeline: the figures of its fullest stage, and those that concern all stages. */
static gboolean
measure_stages (const AdviseInput *input, AdvisePrediction *self, GError **error)
{
  g_auto (AdviseStages) stages = { 0 };
  SimSummary summaries[SIM_MAX_STAGES];
  if (!advise_stages_init (&stages, input, self->of, error))
    return FALSE;
  g_autoptr (SimStages) sim = NULL;
  if (!advise_stages_measure (&stages, self->of, summaries, &sim, error))
    return FALSE;
  for (guint i = 0; i < stages.n; i++)
    {
      const AdviseStage stage
          = { plan_stage_of (self->of->model, self->of->stack, &self->of->plan, i),
              trace_of (&summaries[i]) };
      g_array_append_val (self->stages, stage);
    }
  const guint fullest = self->fullest = advise_stages_fullest (summaries, stages.n);
  self->trace = trace_of (&summaries[fullest]);
  const PlanSchedule *const schedule = stages.schedules[fullest];
  const SimCost *const cost = stages.costs[fullest];
  g_autofree gint64 *shared = sim ? NULL : share_out (schedule, cost, self->trace->compute_ns);
  take_times (self, schedule, cost, sim ? sim_stages_node_ns (sim, fullest) : shared);
  self->schedule = g_steal_pointer (&stages.schedules[fullest]);
  return TRUE;
}

/* Notes that measurements of real machines hold for altered ones (--hw) only in part. */
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

/* Notes where ranks, each a thread, have to share cores. */
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
  const PlanCase *of = self->of;
  const double exposed = advise_exposed_share (t->step_ns, t->exposed_tensor_ns,
                                               t->exposed_gather_ns, t->exposed_reduce_ns);
  const AdviseMemoryError error = advise_memory_error (input->adjustments, of->cluster, of->stack);
  self->error_range
      = advise_time_uncertainty (input->adjustments, of, NULL, exposed, &self->unlike);
  if (of->cluster->kind == PLAN_DEVICE_CPU && self->error_range.sources > 0)
    {
      self->error_range = (SimErrorRange){ .pct = -1 }; /* all published runs are of GPUs */
      g_clear_pointer (&self->unlike, g_free);
    }
  self->p_fits
      = advise_p_fits (&error, t->memory.device, t->memory.allocated, of->cluster->memory_bytes);
}

static gboolean
predict (const AdviseInput *input, AdvisePrediction *self, GError **error)
{
  self->stages = g_array_new (FALSE, FALSE, sizeof (AdviseStage));
  g_array_set_clear_func (self->stages, clear_stage);
  self->expanded = g_array_new (FALSE, FALSE, sizeof (PlanTraceView));
  g_array_set_clear_func (self->expanded, clear_view);
  if (!(self->of = advise_case (input, &input->plan, error)))
    return FALSE;
  const PlanCase *of = self->of;
  const gint64 *value = of->plan.value;
  if (value[PLAN_PP] > 1 ? !measure_stages (input, self, error) : !measure (input, self, error))
    return FALSE;
  self->params_id = advise_params (input->adjustments, of->cluster, of->stack).id;
  find_error_range (self, input);
  self->hazards = plan_hazards_of (of);
  note_shared_cores (self, of->cluster);
  note_other_hardware (self, of->cluster);

  const gint64 vocab = plan_stack_padded_vocab (of->stack, of->model->vocab, value[PLAN_TP]);
  const double tokens = (double)(value[PLAN_GBS] * value[PLAN_SEQ]);
  const double devices = (double)plan_cluster_devices (of->cluster);
  const double seconds = 1e-9 * (double)self->trace->step_ns;
  const double peak = of->cluster->peak_flops[plan_field_dtype (&of->plan, PLAN_COMPUTE)] * 1e-12;
  self->step_ms = 1e3 * seconds;
  self->tokens_per_s_per_gpu = tokens / seconds / devices;
  /* a backward pass takes twice as much as a forward pass */
  const double passes = value[PLAN_TASK] == PLAN_TASK_EVAL ? 1.0 / 3 : 1;
  self->tflops_per_gpu
      = 1e-12 * passes * self->tokens_per_s_per_gpu
        * plan_model_flops_per_token (of->model, plan_attended_tokens (&of->plan), vocab);
  self->mfu = peak > 0 ? self->tflops_per_gpu / peak : 0;
  self->fits = self->trace->memory.device <= of->cluster->memory_bytes;
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
  return n * MAX (self->stages->len, 1);
}

gboolean
advise_prediction_can_expand (const AdvisePrediction *self)
{
  return advise_prediction_n_ops (self) <= ADVISE_MAX_SPANS;
}

/* Checks that a step has few enough ops. Fewer micro batches show the same, since those between the
 * first and the last are alike. */
static gboolean
check_expansion (const AdvisePrediction *self, GError **error)
{
  if (advise_prediction_can_expand (self))
    return TRUE;
  const Plan *plan = &self->of->plan;
  const gint64 at_once = plan->value[PLAN_MBS] * plan_data_parallel (plan, self->of->cluster);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "a step of %" G_GINT64_FORMAT " micro batches has %" G_GUINT64_FORMAT
               " ops, and at most %d are listed one by one: gbs=%" G_GINT64_FORMAT
               " has few micro batches, and those between the first and the last are alike",
               plan->value[PLAN_GBS] / at_once, advise_prediction_n_ops (self), ADVISE_MAX_SPANS,
               MAX (8, 2 * plan->value[PLAN_PP]) * at_once);
  return FALSE;
}

/* Records the spans of every stage of a pipeline. */
static gboolean
expand_stages (AdvisePrediction *self, const AdviseInput *input, GError **error)
{
  g_auto (AdviseStages) stages = { 0 };
  PlanTrace *traces[SIM_MAX_STAGES];
  gint64 offsets[SIM_MAX_STAGES];
  if (!advise_stages_init (&stages, input, self->of, error)
      || !advise_stages_run (&stages, self->of, traces, offsets, error))
    return FALSE;
  for (guint i = 0; i < stages.n; i++)
    {
      const PlanTraceView view = { traces[i], g_steal_pointer (&stages.schedules[i]), offsets[i] };
      g_array_append_val (self->expanded, view);
    }
  plan_trace_free (self->trace);
  plan_schedule_free (self->schedule);
  const PlanTraceView *fullest = &g_array_index (self->expanded, PlanTraceView, self->fullest);
  self->trace = traces[self->fullest];
  self->schedule = (PlanSchedule *)(guintptr)fullest->schedule;
  return TRUE;
}

gboolean
advise_prediction_expand (AdvisePrediction *self, const AdviseInput *input, GError **error)
{
  if (!check_expansion (self, error))
    return FALSE;
  if (self->stages->len > 0)
    return expand_stages (self, input, error);
  g_autoptr (SimCost) cost = advise_cost_of (input, self->of, self->schedule, error);
  PlanTrace *trace = cost ? sim_run (self->schedule, cost, self->of->stack, error) : NULL;
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
  const char *name
      = plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_ALLOC_buf].array)->name;
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
advise_describe_uncertainty (const AdvisePrediction *self)
{
  const double timed_pct = self->provenance_pct[SIM_PROVENANCE_MEASURED]
                           + self->provenance_pct[SIM_PROVENANCE_INTERPOLATED];
  if (self->of->cluster->kind == PLAN_DEVICE_CPU && self->error_range.pct < 0 && timed_pct < 50)
    return g_strdup_printf ("a guess: %.0f %% of it are ops that were timed on these processors, "
                            "which fsdplan bench does",
                            timed_pct);
  if (self->error_range.pct < 0)
    return g_strdup ("how far off is unknown: nothing like it was measured");
  g_autofree char *sources = self->error_range.sources > 0
                                 ? g_strdup_printf (" of %u source%s", self->error_range.sources,
                                                    self->error_range.sources > 1 ? "s" : "")
                                 : g_strdup ("");
  return g_strdup_printf ("of 10 such predictions%s 8 lie within %.1f %%, from %u groups of "
                          "runs%s%s%s",
                          self->error_range.sources > 0 ? " for clusters without runs" : "",
                          self->error_range.pct, self->error_range.runs, sources,
                          self->unlike ? "; wider as few or none had " : "",
                          self->unlike ? self->unlike : "");
}
