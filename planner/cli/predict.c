/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/predict.h"

#include "planner/base/error.h"
#include "planner/cli/adjustments.h"
#include "planner/cli/doubt.h"
#include "planner/cli/measurements.h"
#include "planner/cli/timings.h"
#include "planner/cli/workspaces.h"
#include "planner/lower/step-ops.h"
#include "planner/plan/rules.h"
#include "sim/fast/measure.h"
#include "sim/sim.h"

#define MAX_SWEEP 10000

void
cli_prediction_clear (CliPrediction *self)
{
  g_clear_pointer (&self->schedule, plan_schedule_free);
  g_clear_pointer (&self->trace, plan_trace_free);
  g_clear_pointer (&self->hazards, g_ptr_array_unref);
}

double
cli_mib (guint64 bytes)
{
  return (double)bytes / 1048576.0;
}

/* What the time of each op tells, as it ran beside others. */
static void
take_times (CliPrediction *self, const CliInput *input, const SimCost *cost, const gint64 *node_ns)
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
  cli_split_init (&self->split, &costs, cost, node_ns);
}

SimCost *
cli_cost_of (const CliInput *input, const Plan *resolved, const PlanSchedule *schedule,
             const PlanStack *stack, GError **error)
{
  const SimParams params = cli_params (input->adjustments, input->cluster, stack);
  const SimCostInput costs
      = { .schedule = schedule,
          .cluster = input->cluster,
          .stack = stack,
          .plan = resolved,
          .params = &params,
          .measurements = cli_measurements (input->cluster),
          .timings = cli_timings (input->cluster, stack, input->db, input->comm) };
  return sim_cost_new (&costs, error);
}

static void
free_workspace (gpointer workspace)
{
  sim_workspace_free (workspace);
}

SimWorkspace *
cli_workspace (void)
{
  static GPrivate workspaces = G_PRIVATE_INIT (free_workspace);
  if (!g_private_get (&workspaces))
    g_private_set (&workspaces, sim_workspace_new ());
  return g_private_get (&workspaces);
}

gboolean
cli_measure_plan (const CliInput *input, const Plan *resolved, SimSummary *out_summary,
                  GError **error)
{
  const PlanStack *stack = plan_stack_of (resolved, input->cluster->kind, error);
  g_autoptr (PlanSchedule) schedule = stack ? cli_lower (input, resolved, 0, error) : NULL;
  g_autoptr (SimCost) cost
      = schedule ? cli_cost_of (input, resolved, schedule, stack, error) : NULL;
  return cost && sim_measure (schedule, cost, stack, cli_workspace (), out_summary, error);
}

/* The totals of a trace, and what its ops took. */
static PlanTrace *
measure (CliPrediction *self, const CliInput *input, const SimCost *cost, GError **error)
{
  SimSummary summary;
  if (!sim_measure (self->schedule, cost, self->stack, cli_workspace (), &summary, error))
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
  take_times (self, input, cost, sim_measure_node_ns (cli_workspace ()));
  return trace;
}

/* Measurements of real machines hold for altered ones (--hw) only in part. */
static void
note_other_hardware (CliPrediction *self, const PlanCluster *cluster)
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
note_shared_cores (CliPrediction *self, const PlanCluster *cluster)
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
find_doubt (CliPrediction *self, const CliInput *input)
{
  const PlanTrace *t = self->trace;
  const double exposed = cli_exposed_share (t->step_ns, t->exposed_tensor_ns, t->exposed_gather_ns,
                                            t->exposed_reduce_ns);
  const CliMemoryError error = cli_memory_error (input->adjustments, input->cluster, self->stack);
  self->doubt
      = cli_time_doubt (input->adjustments, input->cluster, self->stack, &self->plan, exposed);
  self->p_fits
      = cli_p_fits (&error, t->memory.device, t->memory.allocated, input->cluster->memory_bytes);
}

static gboolean
predict (const CliInput *input, CliPrediction *self, GError **error)
{
  if (!plan_resolve (&input->plan, input->model, input->cluster, &self->plan, error)
      || !(self->stack = plan_stack_of (&self->plan, input->cluster->kind, error))
      || !(self->schedule = cli_lower (input, &self->plan, 0, error)))
    return FALSE;
  g_autoptr (SimCost) cost = cli_cost_of (input, &self->plan, self->schedule, self->stack, error);
  if (!cost || !(self->trace = measure (self, input, cost, error)))
    return FALSE;
  self->params_id = cli_params (input->adjustments, input->cluster, self->stack).id;
  find_doubt (self, input);
  self->hazards = plan_rules_hazards (&self->plan, input->model, input->cluster);
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
cli_predict (const CliInput *input, CliPrediction *out_prediction, GError **error)
{
  g_auto (CliPrediction) self = { 0 };
  if (!predict (input, &self, error))
    return FALSE;
  *out_prediction = self;
  self = (CliPrediction){ 0 };
  return TRUE;
}

guint64
cli_prediction_n_ops (const CliPrediction *self)
{
  g_autofree gint64 *times = plan_schedule_step_times (self->schedule);
  guint64 n = 0;
  for (guint node = 0; node < plan_schedule_n_nodes (self->schedule); node++)
    n += (guint64)times[node];
  return n;
}

gboolean
cli_prediction_can_expand (const CliPrediction *self)
{
  return cli_prediction_n_ops (self) <= CLI_MAX_SPANS;
}

/* The micro batches between the first and the last are alike. */
static gboolean
check_expansion (const CliPrediction *self, const CliInput *input, GError **error)
{
  if (cli_prediction_can_expand (self))
    return TRUE;
  const gint64 at_once
      = self->plan.value[PLAN_MBS] * plan_data_parallel (&self->plan, input->cluster);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "a step of %" G_GINT64_FORMAT " micro batches has %" G_GUINT64_FORMAT
               " ops, and at most %d are listed one by one: gbs=%" G_GINT64_FORMAT
               " has 8 micro batches, and those between the first and the last are alike",
               self->plan.value[PLAN_GBS] / at_once, cli_prediction_n_ops (self), CLI_MAX_SPANS,
               8 * at_once);
  return FALSE;
}

gboolean
cli_prediction_expand (CliPrediction *self, const CliInput *input, GError **error)
{
  if (!check_expansion (self, input, error))
    return FALSE;
  g_autoptr (SimCost) cost = cli_cost_of (input, &self->plan, self->schedule, self->stack, error);
  PlanTrace *trace = cost ? sim_run (self->schedule, cost, self->stack, error) : NULL;
  if (!trace)
    return FALSE;
  plan_trace_free (self->trace);
  self->trace = trace;
  return TRUE;
}

char *
cli_peak_name (const PlanMemory *memory, const PlanSchedule *schedule)
{
  const PlanOp *op = plan_schedule_node (schedule, memory->peak_node);
  if (op->kind != PLAN_OP_ALLOC)
    return g_strdup ("between steps");
  const char *name = plan_schedule_buffer (schedule, (guint)op->refs[0].array)->name;
  return memory->peak_unit < 0 ? g_strdup (name)
                               : g_strdup_printf ("%s[%d]", name, memory->peak_unit);
}

static void
add_number (JsonBuilder *builder, const char *name, double value)
{
  json_builder_set_member_name (builder, name);
  json_builder_add_double_value (builder, value);
}

static void
add_text (JsonBuilder *builder, const char *name, const char *value)
{
  json_builder_set_member_name (builder, name);
  json_builder_add_string_value (builder, value);
}

void
cli_memory_to_json (const PlanMemory *memory, const PlanSchedule *schedule, JsonBuilder *builder)
{
  g_autofree char *peak = cli_peak_name (memory, schedule);
  json_builder_begin_object (builder);
  add_number (builder, "allocated_mib", cli_mib (memory->allocated));
  add_number (builder, "max_allocated_mib", cli_mib (memory->max_allocated));
  add_number (builder, "reserved_mib", cli_mib (memory->reserved));
  add_number (builder, "device_mib", cli_mib (memory->device));
  add_text (builder, "peak_op", peak);
  json_builder_set_member_name (builder, "by_category");
  json_builder_begin_object (builder);
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    add_number (builder, plan_category_name (c), cli_mib (memory->by_category[c]));
  json_builder_end_object (builder);
  json_builder_end_object (builder);
}

/* In MiB, by part of the step; null for a part that it does not have. */
static void
add_peaks (const CliPrediction *self, JsonBuilder *builder)
{
  static const char *const names[PLAN_N_PHASES]
      = { "loss", "backward", "backward_end", "optimizer" };
  guint64 peaks[PLAN_N_PHASES];
  plan_memory_phase_peaks (&self->trace->memory, self->schedule, self->stack->allocation_bytes,
                           peaks);
  json_builder_set_member_name (builder, "peaks_mib");
  json_builder_begin_object (builder);
  for (guint p = 0; p < PLAN_N_PHASES; p++)
    if (peaks[p] > 0)
      add_number (builder, names[p], cli_mib (peaks[p] + self->stack->fixed_bytes));
    else
      {
        json_builder_set_member_name (builder, names[p]);
        json_builder_add_null_value (builder);
      }
  json_builder_end_object (builder);
}

static void
add_time (const CliPrediction *self, JsonBuilder *builder)
{
  const PlanTrace *t = self->trace;
  json_builder_set_member_name (builder, "time");
  json_builder_begin_object (builder);
  add_number (builder, "compute_ms", 1e-6 * (double)t->compute_ns);
  add_number (builder, "slowed_ms", self->slowed_ms);
  json_builder_set_member_name (builder, "exposed_ms");
  json_builder_begin_object (builder);
  add_number (builder, "gather", 1e-6 * (double)t->exposed_gather_ns);
  add_number (builder, "reduce", 1e-6 * (double)t->exposed_reduce_ns);
  add_number (builder, "tensor", 1e-6 * (double)t->exposed_tensor_ns);
  add_number (builder, "copy", 1e-6 * (double)t->exposed_copy_ns);
  json_builder_end_object (builder);
  add_number (builder, "host_ms", 1e-6 * (double)t->host_ns);
  add_number (builder, "idle_ms", 1e-6 * (double)t->idle_ns);
  cli_split_to_json (&self->split, t->step_ns, builder);
  json_builder_end_object (builder);
}

void
cli_plan_to_json (const Plan *plan, JsonBuilder *builder)
{
  json_builder_set_member_name (builder, "plan");
  json_builder_begin_object (builder);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    {
      g_autofree char *value = plan_field_print (f, plan->value[f]);
      add_text (builder, plan_field_name (f), value);
    }
  json_builder_end_object (builder);
}

void
cli_hazards_to_json (GPtrArray *hazards, JsonBuilder *builder)
{
  json_builder_set_member_name (builder, "hazards");
  json_builder_begin_array (builder);
  for (guint i = 0; i < hazards->len; i++)
    json_builder_add_string_value (builder, hazards->pdata[i]);
  json_builder_end_array (builder);
}

void
cli_provenance_to_json (const CliPrediction *self, JsonBuilder *builder)
{
  static const char *const names[SIM_N_PROVENANCES]
      = { "measured_pct", "interpolated_pct", "fitted_pct", "datasheet_pct" };
  json_builder_set_member_name (builder, "provenance");
  json_builder_begin_object (builder);
  for (guint p = 0; p < SIM_N_PROVENANCES; p++)
    add_number (builder, names[p], self->provenance_pct[p]);
  json_builder_end_object (builder);
}

char *
cli_describe_costs (const CliPrediction *self)
{
  return g_strdup_printf ("costs: %s; %.0f %% of the time measured, %.0f %% interpolated, "
                          "%.0f %% fitted, %.0f %% from data sheets",
                          self->params_id, self->provenance_pct[SIM_PROVENANCE_MEASURED],
                          self->provenance_pct[SIM_PROVENANCE_INTERPOLATED],
                          self->provenance_pct[SIM_PROVENANCE_FITTED],
                          self->provenance_pct[SIM_PROVENANCE_DATASHEET]);
}

static void
add_known (JsonBuilder *builder, const char *name, double value, gboolean is_known)
{
  json_builder_set_member_name (builder, name);
  if (is_known)
    json_builder_add_double_value (builder, value);
  else
    json_builder_add_null_value (builder);
}

void
cli_doubt_to_json (const CliPrediction *self, JsonBuilder *builder)
{
  const gboolean is_known = self->doubt.pct >= 0;
  add_known (builder, "uncertainty_pct", self->doubt.pct, is_known);
  json_builder_set_member_name (builder, "uncertainty_runs");
  if (is_known)
    json_builder_add_int_value (builder, self->doubt.runs);
  else
    json_builder_add_null_value (builder);
  add_known (builder, "p_fits", self->p_fits, self->p_fits >= 0);
}

char *
cli_describe_doubt (SimDoubt doubt)
{
  return doubt.pct < 0 ? g_strdup ("how far off is unknown: nothing like it was measured")
                       : g_strdup_printf (
                           "of 10 such predictions 8 lie within %.1f %%, from %u groups of runs",
                           doubt.pct, doubt.runs);
}

void
cli_prediction_to_json (const CliPrediction *self, const CliInput *input, JsonBuilder *builder)
{
  cli_plan_to_json (&self->plan, builder);
  add_number (builder, "step_ms", self->step_ms);
  add_number (builder, "tokens_per_s_per_gpu", self->tokens_per_s_per_gpu);
  add_number (builder, "tflops_per_gpu", self->tflops_per_gpu);
  add_number (builder, "mfu", self->mfu);
  cli_doubt_to_json (self, builder);
  add_text (builder, "params_id", self->params_id);
  json_builder_set_member_name (builder, "fits");
  json_builder_add_boolean_value (builder, self->fits);
  add_number (builder, "memory_limit_mib", cli_mib (input->cluster->memory_bytes));
  json_builder_set_member_name (builder, "memory");
  cli_memory_to_json (&self->trace->memory, self->schedule, builder);
  add_peaks (self, builder);
  add_time (self, builder);
  cli_provenance_to_json (self, builder);
  cli_hazards_to_json (self->hazards, builder);
}

/* The values one --sweep names: its list, or all of the field's. */
static char **
sweep_values (const char *sweep, PlanField *out_field, GError **error)
{
  g_auto (GStrv) halves = g_strsplit (sweep, "=", 2);
  if (!halves[0] || !plan_field_parse (halves[0], out_field, error))
    return NULL;
  if (halves[1])
    return g_strsplit (halves[1], ",", -1);
  const char *const *names = plan_field_names (*out_field);
  if (!names)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--sweep %s: give the values, %s=V1,V2,…",
                   halves[0], halves[0]);
      return NULL;
    }
  return g_strdupv ((char **)names);
}

GArray *
cli_sweep (const Plan *plan, char *const *sweeps, GError **error)
{
  g_autoptr (GArray) plans = g_array_new (FALSE, FALSE, sizeof (Plan));
  g_array_append_vals (plans, plan, 1);
  for (; sweeps && *sweeps; sweeps++)
    {
      PlanField field = 0;
      g_auto (GStrv) values = sweep_values (*sweeps, &field, error);
      if (!values)
        return NULL;
      g_autoptr (GArray) wider = g_array_new (FALSE, FALSE, sizeof (Plan));
      for (guint i = 0; i < plans->len; i++)
        for (char **v = values; *v; v++)
          {
            Plan copy = g_array_index (plans, Plan, i);
            if (!plan_set (&copy, plan_field_name (field), *v, error))
              return NULL;
            g_array_append_val (wider, copy);
          }
      if (wider->len > MAX_SWEEP)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--sweep: more than %d combinations",
                       MAX_SWEEP);
          return NULL;
        }
      g_array_unref (plans);
      plans = g_steal_pointer (&wider);
    }
  return g_steal_pointer (&plans);
}

char *
cli_describe_swept (const Plan *plan, char *const *sweeps)
{
  GString *text = g_string_new (NULL);
  for (; *sweeps; sweeps++)
    {
      g_auto (GStrv) halves = g_strsplit (*sweeps, "=", 2);
      PlanField field = 0;
      if (!plan_field_parse (halves[0], &field, NULL) || field == PLAN_STRATEGY
          || field == PLAN_MBS)
        continue;
      g_autofree char *value = plan_field_print (field, plan->value[field]);
      g_string_append_printf (text, "%s%s=%s", text->len ? " " : "", halves[0], value);
    }
  return g_string_free (text, FALSE);
}
