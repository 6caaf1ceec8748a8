/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/predict.h"
#include "advise/training.h"
#include "advise/uncertainty.h"
#include "advise/workspaces.h"
#include "cli/io/commands.h"
#include "cli/io/compare.h"
#include "cli/io/config.h"
#include "cli/io/options.h"
#include "cli/io/output.h"
#include "cli/io/prediction-json.h"
#include "cli/io/prediction-tables.h"
#include "cli/io/sweep.h"
#include "cli/sim-explain.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <stdio.h>
#include <string.h>

static const CliColumn sweep_columns[] = {
  { "strategy", FALSE },       { "mbs", TRUE },
  { "step_ms", TRUE },         { "tokens_per_s_per_gpu", TRUE },
  { "tflops_per_gpu", TRUE },  { "mfu", TRUE },
  { "allocated_mib", TRUE },   { "max_allocated_mib", TRUE },
  { "reserved_mib", TRUE },    { "device_mib", TRUE },
  { "fits", FALSE },           { "note", FALSE },
  { "uncertainty_pct", TRUE }, { "uncertainty_runs", TRUE },
  { "p_fits", TRUE },
};

static void
add_sweep_row (CliTable *table, const Plan *asked, const AdvisePrediction *p, const char *note)
{
  const Plan *plan = p ? &p->of->plan : asked;
  g_autofree char *strategy = plan_field_print (PLAN_STRATEGY, plan->value[PLAN_STRATEGY]);
  cli_table_add (table, strategy);
  if (plan->value[PLAN_MBS] == PLAN_UNSET)
    cli_table_add (table, NULL);
  else
    cli_table_add_int (table, plan->value[PLAN_MBS]);
  if (p)
    {
      const PlanMemory *m = &p->trace->memory;
      cli_table_add_real (table, p->step_ms, 1);
      cli_table_add_real (table, p->tokens_per_s_per_gpu, 1);
      cli_table_add_real (table, p->tflops_per_gpu, 1);
      cli_table_add_real (table, p->mfu, 3);
      cli_table_add_real (table, advise_mib (m->allocated), 1);
      cli_table_add_real (table, advise_mib (m->max_allocated), 1);
      cli_table_add_real (table, advise_mib (m->reserved), 1);
      cli_table_add_real (table, advise_mib (m->device), 1);
      cli_table_add (table, p->fits ? "yes" : "no");
    }
  else
    for (guint i = 0; i < 9; i++)
      cli_table_add (table, NULL);
  cli_table_add (table, note);
  cli_add_uncertainty (table, p);
}

/* The fastest plan so far, of those of a sweep that fit. */
typedef struct
{
  char *label; /* NULL: none fits so far */
  double tokens_per_s_per_gpu, p_fits;
  guint64 device_bytes;
} Best;

static void
best_clear (Best *self)
{
  g_free (self->label);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Best, best_clear)

static void
best_consider (Best *self, const AdvisePrediction *p, const char *note)
{
  if (self->label && p->tokens_per_s_per_gpu <= self->tokens_per_s_per_gpu)
    return;
  g_autofree char *label = advise_plan_label (&p->of->plan);
  g_free (self->label);
  self->label = g_strjoin (" ", label, *note ? note : NULL, NULL);
  self->tokens_per_s_per_gpu = p->tokens_per_s_per_gpu;
  self->device_bytes = p->trace->memory.device;
  self->p_fits = p->p_fits;
}

static void
best_print (const Best *self, const char *title, double limit)
{
  const double device = advise_mib (self->device_bytes);
  printf ("%s: %s\n%.1f tokens/s/GPU in %.1f of %.1f MiB, %.1f %% to spare", title, self->label,
          self->tokens_per_s_per_gpu, device, limit, 100.0 * (1.0 - device / limit));
  if (self->p_fits >= 0)
    printf (": fits with a probability of %.3f", self->p_fits);
  putchar ('\n');
}

/* Prints the fastest plan. `sure` is the best of those that fit with probability `p`, `likely` the
 * best of all that are predicted to fit. */
static void
print_best (const Best *sure, const Best *likely, double p, const AdviseInput *input)
{
  const double limit = advise_mib (input->cluster->memory_bytes);
  g_autofree char *title
      = g_strdup_printf ("fastest that fits with a probability of at least %g", p);
  putchar ('\n');
  if (sure->label)
    best_print (sure, title, limit);
  else if (likely->label)
    printf ("none of them fits with a probability of at least %g\n", p);
  else
    printf ("none of them fits into %.1f MiB\n", limit);
  if (likely->tokens_per_s_per_gpu > sure->tokens_per_s_per_gpu)
    best_print (likely, sure->label ? "faster, and less sure to fit" : "fastest that may fit",
                limit);
}

static int
run_sweep (AdviseInput *input, char *const *sweeps, double p, CliFormat format, GError **error)
{
  g_autoptr (GArray) plans = cli_sweep (&input->plan, sweeps, error);
  g_autoptr (CliTable) table = cli_table_new (sweep_columns, G_N_ELEMENTS (sweep_columns));
  g_auto (Best) sure = { 0 };
  g_auto (Best) likely = { 0 };
  if (!plans)
    return CLI_FAILED;
  for (guint i = 0; i < plans->len; i++)
    {
      g_auto (AdvisePrediction) prediction = { 0 };
      g_autoptr (GError) why = NULL;
      input->plan = g_array_index (plans, Plan, i);
      g_autofree char *note = cli_describe_swept (&input->plan, sweeps);
      if (!advise_predict (input, &prediction, &why))
        {
          add_sweep_row (table, &input->plan, NULL, why->message);
          continue;
        }
      add_sweep_row (table, &input->plan, &prediction, note);
      if (prediction.fits)
        best_consider (&likely, &prediction, note);
      if (prediction.fits && (prediction.p_fits < 0 || prediction.p_fits >= p))
        best_consider (&sure, &prediction, note);
    }
  cli_table_print (table, format);
  if (format == CLI_FORMAT_TABLE)
    print_best (&sure, &likely, p, input);
  return likely.label ? CLI_DONE : CLI_NOT_FEASIBLE;
}

/* Prints a table and frees it. */
static void
print_table (CliTable *table)
{
  cli_table_print (table, CLI_FORMAT_TABLE);
  cli_table_free (table);
}

/* Prints the peak of memory in each part of the step: once the highest peak is lowered, the next
 * one decides. */
static void
print_peaks (const AdvisePrediction *p)
{
  guint64 peaks[PLAN_N_PHASES];
  plan_memory_phase_peaks (&p->trace->memory, p->schedule, p->of->stack->memory.allocation_bytes,
                           peaks);
  printf ("most in each part of the step:");
  const char *comma = "";
  for (guint i = 0; i < PLAN_N_PHASES; i++)
    if (peaks[i] > 0)
      {
        printf ("%s %s %.1f", comma, plan_phase_name (i),
                advise_mib (peaks[i] + p->of->stack->memory.fixed_bytes));
        comma = ",";
      }
  printf (" MiB\n");
}

/* Prints the stages of a pipeline. */
static void
print_stages (const AdvisePrediction *p)
{
  static const CliColumn columns[]
      = { { "stage", TRUE },      { "layers", FALSE },           { "compute_ms", TRUE },
          { "exposed_ms", TRUE }, { "host_ms", TRUE },           { "idle_ms", TRUE },
          { "idle_pct", TRUE },   { "max_allocated_mib", TRUE }, { "device_mib", TRUE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  if (p->stages->len == 0)
    return;
  for (guint i = 0; i < p->stages->len; i++)
    {
      const AdviseStage *s = &g_array_index (p->stages, AdviseStage, i);
      const PlanTrace *t = s->totals;
      g_autofree char *layers = advise_stage_describe (s);
      cli_table_add_int (table, i);
      cli_table_add (table, layers);
      cli_table_add_real (table, 1e-6 * (double)t->compute_ns, 2);
      cli_table_add_real (table, 1e-6 * (double)advise_stage_exposed_ns (s), 2);
      cli_table_add_real (table, 1e-6 * (double)t->host_ns, 2);
      cli_table_add_real (table, 1e-6 * (double)t->idle_ns, 2);
      cli_table_add_real (table, 100.0 * (double)t->idle_ns / (double)t->step_ns, 1);
      cli_table_add_real (table, advise_mib (t->memory.max_allocated), 1);
      cli_table_add_real (table, advise_mib (t->memory.device), 1);
    }
  cli_table_print (table, CLI_FORMAT_TABLE);
  printf ("all other figures are of stage %u, which takes most memory\n\n", p->fullest);
}

static void
print_details (const AdvisePrediction *p, const AdviseInput *input)
{
  g_autofree char *label = advise_plan_label (&p->of->plan);
  g_autofree char *peak = advise_peak_name (&p->trace->memory, p->schedule);
  const PlanMemory *m = &p->trace->memory;
  printf ("%s on %s (%" G_GINT64_FORMAT " x %s), stack %s: %s\n%s gbs=%" G_GINT64_FORMAT
          " seq=%" G_GINT64_FORMAT "\n\n",
          input->model->name, input->cluster->name, plan_cluster_devices (input->cluster),
          input->cluster->device_name, p->of->stack->name, p->of->stack->source, label,
          p->of->plan.value[PLAN_GBS], p->of->plan.value[PLAN_SEQ]);
  print_stages (p);
  print_table (cli_table_of_time (p));
  g_autofree char *uncertainty = advise_describe_uncertainty (p);
  g_autofree char *costs = advise_describe_costs (p);
  g_autofree char *flops = plan_units_format_flops (1e12 * p->tflops_per_gpu);
  printf ("%.1f tokens/s/GPU, %s/GPU, MFU %.1f %%; %s\n%s\n\n", p->tokens_per_s_per_gpu, flops,
          100.0 * p->mfu, uncertainty, costs);
  print_table (cli_table_of_compute (p));
  putchar ('\n');
  print_table (cli_table_of_memory (p));
  print_peaks (p);
  g_autofree char *not_fit = g_strconcat (cli_colour_begin (CLI_ERROR, STDOUT_FILENO),
                                          "does not fit", cli_colour_end (STDOUT_FILENO), NULL);
  printf ("peak when taking %s; reserved %.1f MiB, device %.1f MiB of %.1f: %s\n", peak,
          advise_mib (m->reserved), advise_mib (m->device),
          advise_mib (input->cluster->memory_bytes), p->fits ? "fits" : not_fit);
  if (m->host > 0)
    printf ("offloaded to the host: %.1f MiB by each rank\n", advise_mib (m->host));
  if (p->p_fits >= 0)
    printf ("probability that it fits: %.3f\n", p->p_fits);
  g_autofree char *workspace = advise_describe_workspace (p->of, p->schedule);
  if (workspace)
    printf ("%s\n", workspace);
  for (guint i = 0; i < p->hazards->len; i++)
    {
      if (i == 0)
        putchar ('\n');
      cli_print_note (p->hazards->pdata[i]);
    }
}

static void
print_training (const AdviseTraining *training)
{
  if (training->tokens <= 0)
    return;
  printf ("%.4g tokens: %.2f days, %.0f GPU-hours", training->tokens, training->days,
          training->gpu_hours);
  if (training->price > 0)
    printf (", %.0f USD", training->cost);
  g_autofree char *description = advise_training_describe (training->goodput);
  printf ("\n%s\n", description);
}

static void
training_to_json (const AdviseTraining *training, JsonBuilder *builder)
{
  const struct
  {
    const char *name;
    double value;
  } members[] = { { "tokens", training->tokens },
                  { "days", training->days },
                  { "gpu_hours", training->gpu_hours },
                  { "goodput", training->goodput },
                  { "cost_usd", training->cost } };
  if (training->tokens <= 0)
    return;
  json_builder_set_member_name (builder, "training");
  json_builder_begin_object (builder);
  for (guint i = 0; i < G_N_ELEMENTS (members) - (training->price > 0 ? 0 : 1); i++)
    {
      json_builder_set_member_name (builder, members[i].name);
      json_builder_add_double_value (builder, members[i].value);
    }
  json_builder_set_member_name (builder, training->goodput < 1 ? "goodput_is_for" : "leaves_out");
  json_builder_begin_array (builder);
  for (const char *const *left_out = advise_training_left_out (); *left_out; left_out++)
    json_builder_add_string_value (builder, *left_out);
  json_builder_end_array (builder);
  json_builder_end_object (builder);
}

static int
run_one (const AdviseInput *input, AdviseTraining *training, const char *trace_path,
         const char *explain, CliFormat format, GError **error)
{
  g_auto (AdvisePrediction) prediction = { 0 };
  if (!advise_predict (input, &prediction, error)
      || (trace_path && !advise_prediction_expand (&prediction, input, error)))
    return CLI_FAILED;
  cli_tell ("simulated a step");
  advise_training_take (training, prediction.tokens_per_s_per_gpu,
                        plan_cluster_devices (input->cluster));
  if (trace_path)
    {
      const PlanTraceView one = { prediction.trace, prediction.schedule, 0 };
      const guint n = prediction.expanded->len;
      g_autofree char *json = plan_trace_print_chrome (
          n > 0 ? (const PlanTraceView *)(gconstpointer)prediction.expanded->data : &one,
          MAX (n, 1));
      if (!cli_write (trace_path, json, error))
        return CLI_FAILED;
    }
  if (explain && strcmp (explain, "time") == 0)
    {
      if (!cli_explain_time (input, &prediction, format, error))
        return CLI_FAILED;
    }
  else if (explain)
    cli_explain_memory (&prediction, format);
  else if (format == CLI_FORMAT_JSON)
    {
      g_autoptr (JsonBuilder) builder = json_builder_new ();
      json_builder_begin_object (builder);
      cli_prediction_to_json (&prediction, input, builder);
      training_to_json (training, builder);
      json_builder_end_object (builder);
      g_autoptr (JsonNode) root = json_builder_get_root (builder);
      cli_print_json (root);
    }
  else if (format == CLI_FORMAT_CSV)
    {
      g_autoptr (CliTable) table = cli_table_new (sweep_columns, G_N_ELEMENTS (sweep_columns));
      add_sweep_row (table, &prediction.of->plan, &prediction, NULL);
      cli_table_print (table, format);
    }
  else if (!trace_path || strcmp (trace_path, "-") != 0)
    {
      print_details (&prediction, input);
      print_training (training);
    }
  return prediction.fits ? CLI_DONE : CLI_NOT_FEASIBLE;
}

/* Checks options. `of_one`: names and values of options that are for one plan and no sweep. */
static gboolean
check_options (const char *explain, gboolean sweeps, gboolean says_p_fits,
               const char *const (*of_one)[2], guint n, GError **error)
{
  if (!cli_check_explain (explain, error))
    return FALSE;
  for (guint i = 0; sweeps && i < n; i++)
    if (of_one[i][1])
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--%s is for one plan, not a sweep",
                     of_one[i][0]);
        return FALSE;
      }
  if (!says_p_fits || sweeps)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--p-fits is for a sweep (--sweep): for one plan the probability is printed");
  return FALSE;
}

int
cmd_sim (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (AdviseInput) input = { 0 };
  g_auto (GStrv) sweeps = NULL;
  g_autofree char *trace = NULL, *tokens = NULL, *price = NULL, *goodput = NULL, *p_fits = NULL;
  g_autofree char *explain = NULL;
  AdviseTraining training;
  double p;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "sweep", 0, 0, G_OPTION_ARG_STRING_ARRAY, &sweeps,
      "simulate every combination of these values, a row each; a field alone takes all of its "
      "values",
      "FIELD[=V1,V2,…]" },
    { "p-fits", 0, 0, G_OPTION_ARG_STRING, &p_fits,
      "probability of fitting that the fastest of a sweep is to have; 0.95 by default",
      "P|PERCENT" },
    { "explain", 0, 0, G_OPTION_ARG_STRING, &explain,
      "why so much: the usual arithmetic beside the plan, line by line, and every buffer that is "
      "live at the peak; or every op with its rate",
      "memory|time" },
    { "trace", 0, 0, G_OPTION_ARG_FILENAME, &trace,
      "write the timeline for the Perfetto or Chrome viewer; - is standard output", "FILE" },
    { "tokens", 0, 0, G_OPTION_ARG_STRING, &tokens,
      "tokens of a whole run, as in 15T: prints how long it takes and what it costs", "N" },
    { "price", 0, 0, G_OPTION_ARG_STRING, &price, "USD per GPU and hour", "USD" },
    { "goodput", 0, 0, G_OPTION_ARG_STRING, &goodput,
      "share of the time of --tokens in which it trains; 1 by default: steps alone", "SHARE" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new (NULL, "predict memory and time of a plan, or of several side by side");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  const char *const of_one[][2] = { { "explain", explain },
                                    { "trace", trace },
                                    { "tokens", tokens },
                                    { "price", price },
                                    { "goodput", goodput } };
  if (!check_options (explain, sweeps != NULL, p_fits != NULL, of_one, G_N_ELEMENTS (of_one), error)
      || !cli_format_parse (options.format, &format, error)
      || !advise_p_fits_parse (p_fits, &p, error) || !cli_input_read (&options, NULL, &input, error)
      || (tokens && !cli_config_default (CLI_CONFIG_PRICE, &price, error))
      || !advise_training_init (&training, tokens, price, goodput, &input, error))
    return CLI_FAILED;
  return sweeps ? run_sweep (&input, sweeps, p, format, error)
                : run_one (&input, &training, trace, explain, format, error);
}
