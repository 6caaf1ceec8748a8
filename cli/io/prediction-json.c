/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/prediction-json.h"

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
cli_memory_to_json (const PlanMemory *memory, const PlanSchedule *schedule, JsonBuilder *builder)
{
  g_autofree char *peak = advise_peak_name (memory, schedule);
  json_builder_begin_object (builder);
  add_number (builder, "allocated_mib", advise_mib (memory->allocated));
  add_number (builder, "max_allocated_mib", advise_mib (memory->max_allocated));
  add_number (builder, "reserved_mib", advise_mib (memory->reserved));
  add_number (builder, "device_mib", advise_mib (memory->device));
  if (memory->host > 0)
    add_number (builder, "host_mib", advise_mib (memory->host));
  add_text (builder, "peak_op", peak);
  json_builder_set_member_name (builder, "by_category");
  json_builder_begin_object (builder);
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    add_number (builder, plan_category_name (c), advise_mib (memory->by_category[c]));
  json_builder_end_object (builder);
  json_builder_end_object (builder);
}

/* Adds "peaks_mib": peak memory by part of the step; null for a part that the step does not
 * have. */
static void
add_peaks (const AdvisePrediction *self, JsonBuilder *builder)
{
  static const char *const names[PLAN_N_PHASES]
      = { "loss", "backward", "backward_end", "optimizer" };
  guint64 peaks[PLAN_N_PHASES];
  plan_memory_phase_peaks (&self->trace->memory, self->schedule,
                           self->of->stack->memory.allocation_bytes, peaks);
  json_builder_set_member_name (builder, "peaks_mib");
  json_builder_begin_object (builder);
  for (guint p = 0; p < PLAN_N_PHASES; p++)
    if (peaks[p] > 0)
      add_number (builder, names[p], advise_mib (peaks[p] + self->of->stack->memory.fixed_bytes));
    else
      {
        json_builder_set_member_name (builder, names[p]);
        json_builder_add_null_value (builder);
      }
  json_builder_end_object (builder);
}

static double
share_pct (const AdviseWork *work, gint64 step_ns)
{
  return 100.0 * (double)work->ns / (double)step_ns;
}

/* Adds "compute", an array of kinds of work; shares are of `step_ns`. */
static void
add_split (const AdviseSplit *self, gint64 step_ns, JsonBuilder *builder)
{
  const char *key, *name;
  guint i = 0;
  json_builder_set_member_name (builder, "compute");
  json_builder_begin_array (builder);
  for (const AdviseWork *work; (work = advise_split_next (self, &i, &key, &name));)
    {
      const AdvisePace pace = advise_split_pace (self, work);
      const gboolean moves = pace.per_s > 0;
      json_builder_begin_object (builder);
      json_builder_set_member_name (builder, "work");
      json_builder_add_string_value (builder, key);
      add_number (builder, "ms", 1e-6 * (double)work->ns);
      add_number (builder, "share_pct", share_pct (work, step_ns));
      add_known (builder, "tflops", 1e-12 * pace.per_s, moves && pace.is_arithmetic);
      add_known (builder, "gb_per_s", 1e-9 * pace.per_s, moves && !pace.is_arithmetic);
      add_known (builder, "of_peak_pct", pace.of_peak_pct, moves && pace.of_peak_pct >= 0);
      json_builder_end_object (builder);
    }
  json_builder_end_array (builder);
}

static void
add_time (const AdvisePrediction *self, JsonBuilder *builder)
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
  add_split (&self->split, t->step_ns, builder);
  json_builder_end_object (builder);
}

/* Adds "virtual_stages" of an interleaved stage; layers are numbered as in the whole model. */
static void
add_virtual_stages (const PlanStage *stage, JsonBuilder *builder)
{
  json_builder_set_member_name (builder, "virtual_stages");
  json_builder_begin_array (builder);
  for (gint64 i = 0; i < stage->n_virtual; i++)
    {
      const PlanStage part = plan_stage_virtual (stage, i);
      json_builder_begin_object (builder);
      json_builder_set_member_name (builder, "first_layer");
      json_builder_add_int_value (builder, plan_stage_layer (stage, part.first));
      json_builder_set_member_name (builder, "layers");
      json_builder_add_int_value (builder, part.layers - part.modules);
      json_builder_end_object (builder);
    }
  json_builder_end_array (builder);
}

/* Adds "stages" of a pipeline. */
static void
add_stages (const AdvisePrediction *self, JsonBuilder *builder)
{
  json_builder_set_member_name (builder, "stages");
  json_builder_begin_array (builder);
  for (guint i = 0; i < self->stages->len; i++)
    {
      const AdviseStage *s = &g_array_index (self->stages, AdviseStage, i);
      const PlanTrace *t = s->totals;
      json_builder_begin_object (builder);
      json_builder_set_member_name (builder, "first_layer");
      json_builder_add_int_value (builder, s->part.first);
      json_builder_set_member_name (builder, "layers");
      json_builder_add_int_value (builder, s->part.layers - s->part.modules);
      if (s->part.modules > 0)
        {
          json_builder_set_member_name (builder, "prediction_modules");
          json_builder_add_int_value (builder, s->part.modules);
        }
      if (s->part.n_virtual > 1)
        add_virtual_stages (&s->part, builder);
      add_number (builder, "compute_ms", 1e-6 * (double)t->compute_ns);
      add_number (builder, "exposed_ms", 1e-6 * (double)advise_stage_exposed_ns (s));
      add_number (builder, "host_ms", 1e-6 * (double)t->host_ns);
      add_number (builder, "idle_ms", 1e-6 * (double)t->idle_ns);
      add_number (builder, "max_allocated_mib", advise_mib (t->memory.max_allocated));
      add_number (builder, "reserved_mib", advise_mib (t->memory.reserved));
      add_number (builder, "device_mib", advise_mib (t->memory.device));
      json_builder_end_object (builder);
    }
  json_builder_end_array (builder);
}

void
cli_plan_to_json (const Plan *plan, const PlanModel *model, JsonBuilder *builder)
{
  json_builder_set_member_name (builder, "plan");
  json_builder_begin_object (builder);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    {
      if (!plan_field_is_of (f, model))
        continue;
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
cli_provenance_to_json (const AdvisePrediction *self, JsonBuilder *builder)
{
  static const char *const names[SIM_N_PROVENANCES]
      = { "measured_pct", "interpolated_pct", "fitted_pct", "datasheet_pct" };
  json_builder_set_member_name (builder, "provenance");
  json_builder_begin_object (builder);
  for (guint p = 0; p < SIM_N_PROVENANCES; p++)
    add_number (builder, names[p], self->provenance_pct[p]);
  json_builder_end_object (builder);
}

void
cli_uncertainty_to_json (const AdvisePrediction *self, JsonBuilder *builder)
{
  const gboolean is_known = self->error_range.pct >= 0;
  add_known (builder, "uncertainty_pct", self->error_range.pct, is_known);
  json_builder_set_member_name (builder, "uncertainty_runs");
  if (is_known)
    json_builder_add_int_value (builder, self->error_range.runs);
  else
    json_builder_add_null_value (builder);
  add_known (builder, "p_fits", self->p_fits, self->p_fits >= 0);
}

void
cli_prediction_to_json (const AdvisePrediction *self, const AdviseInput *input,
                        JsonBuilder *builder)
{
  cli_plan_to_json (&self->of->plan, self->of->model, builder);
  add_number (builder, "step_ms", self->step_ms);
  add_number (builder, "tokens_per_s_per_gpu", self->tokens_per_s_per_gpu);
  add_number (builder, "tflops_per_gpu", self->tflops_per_gpu);
  add_number (builder, "mfu", self->mfu);
  cli_uncertainty_to_json (self, builder);
  add_text (builder, "params_id", self->params_id);
  json_builder_set_member_name (builder, "fits");
  json_builder_add_boolean_value (builder, self->fits);
  add_number (builder, "memory_limit_mib", advise_mib (input->cluster->memory_bytes));
  json_builder_set_member_name (builder, "memory");
  cli_memory_to_json (&self->trace->memory, self->schedule, builder);
  add_peaks (self, builder);
  add_time (self, builder);
  if (self->stages->len > 0)
    add_stages (self, builder);
  cli_provenance_to_json (self, builder);
  cli_hazards_to_json (self->hazards, builder);
}
