/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/validate-report.h"

#include <string.h>

#define NEAR_MIN_MIB (70e9 / 1048576)
#define NEAR_MAX_MIB (100e9 / 1048576)

/* The index after all quantities: max allocated, or reserved where only that was measured. */
#define PEAK PLAN_N_RUN_QUANTITIES

/* The value of the property by which runs are grouped; the caller frees. */
typedef char *(*KeyFunc) (const AdviseRun *run);

static char *
cell_or_unknown (const AdviseRun *run, PlanRunColumn column)
{
  const char *cell = run->row.cell[column];
  return g_strdup (cell ? cell : "unknown");
}

static char *
gpu_of (const AdviseRun *run)
{
  return cell_or_unknown (run, PLAN_RUN_GPU);
}

static char *
stack_of (const AdviseRun *run)
{
  return cell_or_unknown (run, PLAN_RUN_STACK);
}

static char *
strategy_of (const AdviseRun *run)
{
  return cell_or_unknown (run, PLAN_RUN_STRATEGY);
}

static char *
recompute_of (const AdviseRun *run)
{
  return cell_or_unknown (run, PLAN_RUN_RECOMPUTE);
}

static char *
size_of (const AdviseRun *run)
{
  if (!run->row.model)
    return g_strdup ("unknown");
  const double billions = 1e-9 * (double)plan_model_parameters (run->row.model);
  return g_strdup (billions < 1     ? "below 1 B"
                   : billions < 10  ? "1 to 10 B"
                   : billions < 100 ? "10 to 100 B"
                                    : "100 B and more");
}

static const struct
{
  const char *by;
  KeyFunc key;
} properties[] = {
  { "source", advise_run_source }, { "gpu_type", gpu_of },        { "stack", stack_of },
  { "strategy", strategy_of },     { "recompute", recompute_of }, { "size", size_of },
};

static void
section_clear (gpointer data)
{
  g_free (((CliSection *)data)->value);
}

static gboolean
is_scored (const AdviseRun *run, PlanRunQuantity quantity)
{
  const gboolean ok = quantity == PLAN_RUN_QUANTITY_TIME ? run->row.time_ok : run->row.memory_ok;
  return run->is_predicted && ok && run->row.measured[quantity] > 0;
}

static PlanRunQuantity
quantity_of (const AdviseRun *run, PlanRunQuantity asked)
{
  return asked != PEAK                                            ? asked
         : run->row.measured[PLAN_RUN_QUANTITY_MAX_ALLOCATED] > 0 ? PLAN_RUN_QUANTITY_MAX_ALLOCATED
                                                                  : PLAN_RUN_QUANTITY_RESERVED;
}

static GArray *
samples_of (const GPtrArray *runs, PlanRunQuantity asked, gboolean is_tiny, gboolean is_naive)
{
  GArray *samples = g_array_new (FALSE, FALSE, sizeof (PlanSample));
  for (guint i = 0; i < runs->len; i++)
    {
      const AdviseRun *run = runs->pdata[i];
      const PlanRunQuantity quantity = quantity_of (run, asked);
      const double predicted = is_naive ? run->naive[quantity] : run->predicted[quantity];
      const PlanSample sample
          = { run->group, run->configuration, predicted, run->row.measured[quantity] };
      if (is_scored (run, quantity) && predicted > 0 && run->row.is_tiny == is_tiny)
        g_array_append_val (samples, sample);
    }
  return samples;
}

static void
measure (const GPtrArray *runs, PlanRunQuantity quantity, gboolean is_tiny, gboolean is_naive,
         PlanAccuracy *out)
{
  g_autoptr (GArray) samples = samples_of (runs, quantity, is_tiny, is_naive);
  plan_accuracy_measure ((const PlanSample *)(gpointer)samples->data, samples->len, out);
}

static void
judge (const AdviseRun *run, CliVerdicts *verdicts)
{
  const gboolean ran_out = run->row.ran_out == PLAN_ANSWER_YES;
  verdicts->n++;
  verdicts->n_oom += ran_out;
  verdicts->n_correct += run->fits != ran_out;
  verdicts->false_fits += run->fits && ran_out;
  verdicts->false_ooms += !run->fits && !ran_out;
}

static const double chances[CLI_N_CHANCES] = { 0, 0.05, 0.5, 0.8, 0.9, 0.95, 0.99 };

static void
judge_chance (const AdviseRun *run, CliSection *section)
{
  guint bin = 0;
  if (run->p_fits < 0)
    return;
  while (bin + 1 < CLI_N_CHANCES && run->p_fits >= chances[bin + 1])
    bin++;
  CliChance *chance = &section->chances[bin];
  chance->n++;
  chance->n_fit += run->row.ran_out == PLAN_ANSWER_NO;
  chance->expected += run->p_fits;
}

static void
judge_all (const GPtrArray *runs, CliSection *section)
{
  for (guint i = 0; i < runs->len; i++)
    {
      const AdviseRun *run = runs->pdata[i];
      const double device = run->predicted[PLAN_RUN_QUANTITY_DEVICE];
      if (!run->is_predicted || !run->row.memory_ok || run->row.ran_out == PLAN_ANSWER_UNKNOWN)
        continue;
      judge_chance (run, section);
      judge (run, &section->verdicts);
      if (device >= NEAR_MIN_MIB && device <= NEAR_MAX_MIB)
        judge (run, &section->near);
    }
}

static void
compare_choices (const GPtrArray *runs, PlanRegret *out)
{
  g_autoptr (GArray) choices = g_array_new (FALSE, FALSE, sizeof (PlanCandidate));
  for (guint i = 0; i < runs->len; i++)
    {
      const AdviseRun *run = runs->pdata[i];
      const PlanCandidate choice
          = { run->question, run->configuration, run->fits, run->predicted[PLAN_RUN_QUANTITY_TIME],
              run->row.measured[PLAN_RUN_QUANTITY_TIME] };
      if (is_scored (run, PLAN_RUN_QUANTITY_TIME))
        g_array_append_val (choices, choice);
    }
  plan_accuracy_regret ((const PlanCandidate *)(gpointer)choices->data, choices->len, out);
}

static gboolean
is_uncertain (const AdviseRun *run)
{
  return is_scored (run, PLAN_RUN_QUANTITY_TIME) && run->error_range.pct >= 0;
}

/* Counts the step times that lie within the uncertainty of their predictions. */
static void
judge_uncertainty (const GPtrArray *runs, CliSection *section)
{
  g_autoptr (GHashTable) sizes = g_hash_table_new (NULL, NULL);
  for (guint i = 0; i < runs->len; i++)
    {
      const AdviseRun *run = runs->pdata[i];
      const gpointer key = GUINT_TO_POINTER (run->group);
      if (is_uncertain (run))
        g_hash_table_insert (
            sizes, key, GUINT_TO_POINTER (GPOINTER_TO_UINT (g_hash_table_lookup (sizes, key)) + 1));
    }
  section->groups_uncertain = g_hash_table_size (sizes);
  for (guint i = 0; i < runs->len; i++)
    {
      const AdviseRun *run = runs->pdata[i];
      if (!is_uncertain (run))
        continue;
      const double ratio = run->predicted[PLAN_RUN_QUANTITY_TIME]
                           / MAX (run->row.measured[PLAN_RUN_QUANTITY_TIME], 1e-9);
      const gboolean is_within = ABS (100 * (ratio - 1)) <= run->error_range.pct;
      const gpointer size = g_hash_table_lookup (sizes, GUINT_TO_POINTER (run->group));
      section->n_uncertain++;
      section->n_within += is_within;
      section->groups_within += (double)is_within / GPOINTER_TO_UINT (size);
      if (run->error_range.sources > 0)
        {
          section->groups_unseen += 1.0 / GPOINTER_TO_UINT (size);
          section->unseen_within += (double)is_within / GPOINTER_TO_UINT (size);
        }
    }
}

/* Adds the section of these runs (AdviseRun). */
static void
add_section (GArray *sections, const char *by, const char *value, const GPtrArray *runs)
{
  CliSection section = { .by = by, .value = g_strdup (value), .n_rows = runs->len };
  for (guint i = 0; i < runs->len; i++)
    section.n_predicted += ((const AdviseRun *)runs->pdata[i])->is_predicted;
  for (PlanRunQuantity q = 0; q < PLAN_N_RUN_QUANTITIES; q++)
    {
      measure (runs, q, FALSE, FALSE, &section.of[q]);
      measure (runs, q, FALSE, TRUE, &section.naive[q]);
      measure (runs, q, TRUE, FALSE, &section.tiny[q]);
    }
  measure (runs, PEAK, FALSE, FALSE, &section.peak);
  measure (runs, PEAK, FALSE, TRUE, &section.naive_peak);
  judge_all (runs, &section);
  judge_uncertainty (runs, &section);
  compare_choices (runs, &section.regret);
  g_array_append_val (sections, section);
}

static int
compare_texts (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *)a, *(const char *const *)b);
}

static void
add_sections (GArray *sections, guint property, const GPtrArray *runs)
{
  g_autoptr (GHashTable) parts
      = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_ptr_array_unref);
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  for (guint i = 0; i < runs->len; i++)
    {
      char *name = properties[property].key (runs->pdata[i]);
      GPtrArray *part = g_hash_table_lookup (parts, name);
      if (part)
        g_free (name);
      else
        {
          g_ptr_array_add (names, name);
          g_hash_table_insert (parts, name, part = g_ptr_array_new ());
        }
      g_ptr_array_add (part, runs->pdata[i]);
    }
  g_ptr_array_sort (names, compare_texts);
  for (guint i = 0; i < names->len; i++)
    add_section (sections, properties[property].by, names->pdata[i],
                 g_hash_table_lookup (parts, names->pdata[i]));
}

GArray *
cli_sections_new (const AdviseValidation *validation)
{
  GArray *sections = g_array_new (FALSE, FALSE, sizeof (CliSection));
  g_autoptr (GPtrArray) runs = g_ptr_array_new ();
  g_array_set_clear_func (sections, section_clear);
  for (guint i = 0; i < validation->runs->len; i++)
    {
      AdviseRun *run = &g_array_index (validation->runs, AdviseRun, i);
      if (run->is_selected)
        g_ptr_array_add (runs, run);
    }
  add_section (sections, "all", "all", runs);
  for (guint property = 0; property < G_N_ELEMENTS (properties); property++)
    add_sections (sections, property, runs);
  return sections;
}

static void
add_accuracy_row (CliTable *table, const CliSection *section, const char *quantity,
                  const PlanAccuracy *a, const PlanAccuracy *naive)
{
  cli_table_add (table, section->by);
  cli_table_add (table, section->value);
  cli_table_add (table, quantity);
  cli_table_add_int (table, a->n);
  cli_table_add_int (table, a->n_rows);
  cli_table_add_real (table, a->mean_abs_pct, 2);
  cli_table_add_real (table, a->median_abs_pct, 2);
  cli_table_add_real (table, a->p90_abs_pct, 2);
  cli_table_add_real (table, a->max_abs_pct, 2);
  cli_table_add_real (table, a->bias_pct, 2);
  if (a->n_repeated > 0)
    cli_table_add_real (table, a->noise_pct, 2);
  else
    cli_table_add (table, NULL);
  if (naive && naive->n > 0)
    cli_table_add_real (table, naive->mean_abs_pct, 2);
  else
    cli_table_add (table, NULL);
  cli_table_add_real (table, a->mean_abs, 1);
  if (naive)
    cli_table_add (table, NULL);
  else
    cli_table_add_real (table, a->within_pct, 1);
}

CliTable *
cli_chances_table (const CliSection *section)
{
  static const CliColumn columns[] = { { "p_fits_from", TRUE },
                                       { "p_fits_to", TRUE },
                                       { "rows", TRUE },
                                       { "fit", TRUE },
                                       { "expected_to_fit", TRUE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < CLI_N_CHANCES; i++)
    {
      const CliChance *chance = &section->chances[i];
      cli_table_add_real (table, chances[i], 2);
      cli_table_add_real (table, i + 1 < CLI_N_CHANCES ? chances[i + 1] : 1, 2);
      cli_table_add_int (table, chance->n);
      cli_table_add_int (table, chance->n_fit);
      cli_table_add_real (table, chance->expected, 1);
    }
  return table;
}

CliTable *
cli_sections_table (const GArray *sections, gboolean leaves_out)
{
  static const CliColumn columns[] = { { "by", FALSE },
                                       { "value", FALSE },
                                       { "quantity", FALSE },
                                       { "n", TRUE },
                                       { "rows", TRUE },
                                       { "mean_abs_pct", TRUE },
                                       { "median_abs_pct", TRUE },
                                       { "p90_abs_pct", TRUE },
                                       { "max_abs_pct", TRUE },
                                       { "bias_pct", TRUE },
                                       { "noise_pct", TRUE },
                                       { "naive_abs_pct", TRUE },
                                       { "mean_abs", TRUE },
                                       { "within_pct", TRUE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < sections->len; i++)
    {
      const CliSection *section = &g_array_index (sections, CliSection, i);
      if (leaves_out && i > 0
          && section->n_predicted == g_array_index (sections, CliSection, 0).n_predicted)
        continue;
      for (PlanRunQuantity q = 0; q < PLAN_N_RUN_QUANTITIES; q++)
        if (section->of[q].n > 0)
          add_accuracy_row (table, section, plan_run_quantity_name (q), &section->of[q],
                            &section->naive[q]);
      const guint n_allocated = section->of[PLAN_RUN_QUANTITY_MAX_ALLOCATED].n_rows;
      /* If reserved was never taken in place of max allocated, the two are the same. */
      if (n_allocated > 0 && section->peak.n_rows > n_allocated)
        add_accuracy_row (table, section, "peak", &section->peak, &section->naive_peak);
      for (PlanRunQuantity q = PLAN_RUN_QUANTITY_ALLOCATED; q < PLAN_N_RUN_QUANTITIES; q++)
        if (section->tiny[q].n > 0)
          {
            g_autofree char *name = g_strconcat ("tiny ", plan_run_quantity_name (q), NULL);
            add_accuracy_row (table, section, name, &section->tiny[q], NULL);
          }
    }
  return table;
}

static double
error_pct (const AdviseRun *run, PlanRunQuantity quantity)
{
  return 100 * (run->predicted[quantity] / run->row.measured[quantity] - 1);
}

static void
add_known (CliTable *table, double value, gboolean is_known, int decimals)
{
  if (is_known)
    cli_table_add_real (table, value, decimals);
  else
    cli_table_add (table, NULL);
}

static const char *
measured_fits (const AdviseRun *run)
{
  return run->row.ran_out == PLAN_ANSWER_YES  ? "no"
         : run->row.ran_out == PLAN_ANSWER_NO ? "yes"
                                              : NULL;
}

static void
add_run_row (CliTable *table, const AdviseRun *run)
{
  static const PlanRunColumn shown[] = { PLAN_RUN_ROW_ID, PLAN_RUN_GROUP,   PLAN_RUN_USE,
                                         PLAN_RUN_STACK,  PLAN_RUN_TIME_OK, PLAN_RUN_MEMORY_OK };
  for (guint i = 0; i < G_N_ELEMENTS (shown); i++)
    cli_table_add (table, run->row.cell[shown[i]]);
  for (PlanRunQuantity q = 0; q < PLAN_N_RUN_QUANTITIES; q++)
    {
      const gboolean is_measured = run->row.measured[q] > 0;
      add_known (table, run->predicted[q], run->is_predicted, 1);
      add_known (table, run->row.measured[q], is_measured, 1);
      add_known (table, run->is_predicted && is_measured ? error_pct (run, q) : 0,
                 run->is_predicted && is_measured, 2);
    }
  cli_table_add (table, run->is_predicted ? run->fits ? "yes" : "no" : NULL);
  cli_table_add (table, measured_fits (run));
  cli_table_add (table, run->row.skipped);
  cli_table_add (table, run->row.remarks);
  add_known (table, run->error_range.pct, run->is_predicted && run->error_range.pct >= 0, 1);
  add_known (table, run->error_range.runs, run->is_predicted && run->error_range.pct >= 0, 0);
  add_known (table, 100 * run->exposed, run->is_predicted, 1);
  add_known (table, run->p_fits, run->is_predicted && run->p_fits >= 0, 3);
}

CliTable *
cli_validation_table (const AdviseValidation *validation)
{
  static const CliColumn columns[] = {
    { "row_id", FALSE },
    { "group", FALSE },
    { "use", FALSE },
    { "stack", FALSE },
    { "time_ok", FALSE },
    { "memory_ok", FALSE },
    { "predicted_step_ms", TRUE },
    { "measured_step_ms", TRUE },
    { "time_error_pct", TRUE },
#define X(name) \
  { "predicted_" name "_mib", TRUE }, { "measured_" name "_mib", TRUE }, \
      { name "_error_pct", TRUE },
    X ("allocated") X ("max_allocated") X ("reserved") X ("device")
#undef X
        { "predicted_fits", FALSE },
    { "measured_fits", FALSE },
    { "skipped", FALSE },
    { "remarks", FALSE },
    { "uncertainty_pct", TRUE },
    { "uncertainty_runs", TRUE },
    { "exposed_pct", TRUE },
    { "p_fits", TRUE },
  };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < validation->runs->len; i++)
    {
      const AdviseRun *run = &g_array_index (validation->runs, AdviseRun, i);
      if (run->is_selected)
        add_run_row (table, run);
    }
  return table;
}

typedef struct
{
  const char *reason;
  guint n;
} Count;

static int
compare_counts (gconstpointer a, gconstpointer b)
{
  const Count *x = a, *y = b;
  return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : strcmp (x->reason, y->reason);
}

/* The reason why a run was skipped, for counting: of a rule only its name, because its text differs
 * between plans. The caller frees. */
static char *
reason_of (const char *skipped)
{
  const char *colon = strchr (skipped, ':');
  return g_str_has_prefix (skipped, "rule ") && colon
             ? g_strndup (skipped, (gsize)(colon - skipped))
             : g_strdup (skipped);
}

CliTable *
cli_skipped_table (const AdviseValidation *validation)
{
  static const CliColumn columns[] = { { "skipped", TRUE }, { "reason", FALSE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  g_autoptr (GHashTable) places = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GArray) counts = g_array_new (FALSE, FALSE, sizeof (Count));
  for (guint i = 0; i < validation->runs->len; i++)
    {
      const AdviseRun *run = &g_array_index (validation->runs, AdviseRun, i);
      if (!run->is_selected || !run->row.skipped)
        continue;
      char *reason = reason_of (run->row.skipped);
      gpointer place;
      if (g_hash_table_lookup_extended (places, reason, NULL, &place))
        {
          g_array_index (counts, Count, GPOINTER_TO_UINT (place)).n++;
          g_free (reason);
          continue;
        }
      const Count count = { reason, 1 };
      g_hash_table_insert (places, reason, GUINT_TO_POINTER (counts->len));
      g_array_append_val (counts, count);
    }
  g_array_sort (counts, compare_counts);
  for (guint i = 0; i < counts->len; i++)
    {
      cli_table_add_int (table, g_array_index (counts, Count, i).n);
      cli_table_add (table, g_array_index (counts, Count, i).reason);
    }
  return table;
}

static void
add_number (JsonBuilder *b, const char *name, double value, gboolean is_known)
{
  json_builder_set_member_name (b, name);
  if (is_known)
    json_builder_add_double_value (b, value);
  else
    json_builder_add_null_value (b);
}

static void
add_count (JsonBuilder *b, const char *name, guint value)
{
  json_builder_set_member_name (b, name);
  json_builder_add_int_value (b, value);
}

static void
add_text (JsonBuilder *b, const char *name, const char *value)
{
  json_builder_set_member_name (b, name);
  if (value)
    json_builder_add_string_value (b, value);
  else
    json_builder_add_null_value (b);
}

static void
add_accuracy (JsonBuilder *b, const char *name, const PlanAccuracy *a)
{
  json_builder_set_member_name (b, name);
  json_builder_begin_object (b);
  add_count (b, "n", a->n);
  add_count (b, "configurations", a->n_configurations);
  add_count (b, "rows", a->n_rows);
  add_number (b, "mean_abs_pct", a->mean_abs_pct, a->n > 0);
  add_number (b, "median_abs_pct", a->median_abs_pct, a->n > 0);
  add_number (b, "p90_abs_pct", a->p90_abs_pct, a->n > 0);
  add_number (b, "max_abs_pct", a->max_abs_pct, a->n > 0);
  add_number (b, "bias_pct", a->bias_pct, a->n > 0);
  add_number (b, "noise_pct", a->noise_pct, a->n_repeated > 0);
  add_number (b, "mean_abs", a->mean_abs, a->n > 0);
  add_number (b, "within_pct", a->within_pct, a->n > 0);
  json_builder_end_object (b);
}

static void
add_verdict_members (JsonBuilder *b, const CliVerdicts *v)
{
  add_count (b, "n", v->n);
  add_count (b, "n_oom", v->n_oom);
  add_number (b, "correct_pct", v->n > 0 ? 100.0 * v->n_correct / v->n : 0, v->n > 0);
  add_count (b, "false_fits", v->false_fits);
  add_count (b, "false_ooms", v->false_ooms);
}

/* Adds the members of a summary to the open object. */
static void
add_summary (JsonBuilder *b, const CliSection *section)
{
  add_count (b, "rows", section->n_rows);
  add_count (b, "predicted", section->n_predicted);
  for (PlanRunQuantity q = 0; q < PLAN_N_RUN_QUANTITIES; q++)
    add_accuracy (b, plan_run_quantity_name (q), &section->of[q]);
  add_accuracy (b, "peak", &section->peak);
  json_builder_set_member_name (b, "naive");
  json_builder_begin_object (b);
  for (PlanRunQuantity q = 0; q < PLAN_N_RUN_QUANTITIES; q++)
    add_accuracy (b, plan_run_quantity_name (q), &section->naive[q]);
  add_accuracy (b, "peak", &section->naive_peak);
  json_builder_end_object (b);
  json_builder_set_member_name (b, "tiny");
  json_builder_begin_object (b);
  for (PlanRunQuantity q = PLAN_RUN_QUANTITY_ALLOCATED; q < PLAN_N_RUN_QUANTITIES; q++)
    add_accuracy (b, plan_run_quantity_name (q), &section->tiny[q]);
  json_builder_end_object (b);
  json_builder_set_member_name (b, "oom");
  json_builder_begin_object (b);
  add_verdict_members (b, &section->verdicts);
  json_builder_set_member_name (b, "near");
  json_builder_begin_object (b);
  add_verdict_members (b, &section->near);
  json_builder_end_object (b);
  json_builder_end_object (b);
  const PlanRegret *regret = &section->regret;
  add_number (b, "regret_pct", regret->mean_pct, regret->n > 0);
  json_builder_set_member_name (b, "regret");
  json_builder_begin_object (b);
  add_count (b, "n", regret->n);
  add_count (b, "n_best", regret->n_best);
  add_number (b, "max_pct", regret->max_pct, regret->n > 0);
  add_number (b, "blind_pct", regret->blind_pct, regret->n > 0);
  json_builder_end_object (b);
  json_builder_set_member_name (b, "uncertainty");
  json_builder_begin_object (b);
  add_count (b, "n", section->n_uncertain);
  add_number (b, "within_pct", 100.0 * section->n_within / MAX (section->n_uncertain, 1),
              section->n_uncertain > 0);
  add_number (b, "groups_within_pct", 100 * section->groups_within / section->groups_uncertain,
              section->n_uncertain > 0);
  json_builder_end_object (b);
  g_autoptr (CliTable) chances_table = cli_chances_table (section);
  json_builder_set_member_name (b, "reliability");
  json_builder_add_value (b, cli_table_to_json (chances_table));
}

static void
add_fits (JsonBuilder *b, const char *name, gboolean fits, gboolean is_known)
{
  json_builder_set_member_name (b, name);
  if (is_known)
    json_builder_add_boolean_value (b, fits);
  else
    json_builder_add_null_value (b);
}

static void
add_run (JsonBuilder *b, const AdviseRun *run)
{
  json_builder_begin_object (b);
  add_text (b, "row_id", run->row.cell[PLAN_RUN_ROW_ID]);
  add_text (b, "group", run->row.cell[PLAN_RUN_GROUP]);
  add_text (b, "use", run->row.cell[PLAN_RUN_USE]);
  for (PlanRunQuantity q = 0; q < PLAN_N_RUN_QUANTITIES; q++)
    {
      const gboolean is_time = q == PLAN_RUN_QUANTITY_TIME, is_measured = run->row.measured[q] > 0;
      const char *name = plan_run_quantity_name (q);
      const char *stem = is_time ? "step" : name, *unit = is_time ? "ms" : "mib";
      g_autofree char *predicted = g_strdup_printf ("predicted_%s_%s", stem, unit);
      g_autofree char *measured = g_strdup_printf ("measured_%s_%s", stem, unit);
      g_autofree char *error = g_strdup_printf ("%s_error_pct", name);
      add_number (b, predicted, run->predicted[q], run->is_predicted);
      add_number (b, measured, run->row.measured[q], is_measured);
      add_number (b, error, run->is_predicted && is_measured ? error_pct (run, q) : 0,
                  run->is_predicted && is_measured);
    }
  json_builder_set_member_name (b, "time_ok");
  json_builder_add_boolean_value (b, run->row.time_ok);
  json_builder_set_member_name (b, "memory_ok");
  json_builder_add_boolean_value (b, run->row.memory_ok);
  json_builder_set_member_name (b, "tiny");
  json_builder_add_boolean_value (b, run->row.is_tiny);
  add_fits (b, "predicted_fits", run->fits, run->is_predicted);
  add_fits (b, "measured_fits", run->row.ran_out == PLAN_ANSWER_NO,
            run->row.ran_out != PLAN_ANSWER_UNKNOWN);
  add_text (b, "skipped", run->row.skipped);
  add_text (b, "remarks", run->row.remarks);
  add_number (b, "uncertainty_pct", run->error_range.pct,
              run->is_predicted && run->error_range.pct >= 0);
  add_count (b, "uncertainty_runs", run->error_range.runs);
  add_number (b, "exposed_pct", 100 * run->exposed, run->is_predicted);
  add_number (b, "p_fits", run->p_fits, run->is_predicted && run->p_fits >= 0);
  json_builder_end_object (b);
}

static void
add_sections_to_json (JsonBuilder *b, const GArray *sections)
{
  json_builder_set_member_name (b, "summary");
  json_builder_begin_object (b);
  add_summary (b, &g_array_index (sections, CliSection, 0));
  json_builder_end_object (b);
  json_builder_set_member_name (b, "groups");
  json_builder_begin_array (b);
  for (guint i = 1; i < sections->len; i++)
    {
      const CliSection *section = &g_array_index (sections, CliSection, i);
      json_builder_begin_object (b);
      add_text (b, "by", section->by);
      add_text (b, "value", section->value);
      add_summary (b, section);
      json_builder_end_object (b);
    }
  json_builder_end_array (b);
}

JsonNode *
cli_validation_to_json (const AdviseValidation *validation, const GArray *sections)
{
  g_autoptr (CliTable) skipped = cli_skipped_table (validation);
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "rows");
  json_builder_begin_array (b);
  for (guint i = 0; i < validation->runs->len; i++)
    {
      const AdviseRun *run = &g_array_index (validation->runs, AdviseRun, i);
      if (run->is_selected)
        add_run (b, run);
    }
  json_builder_end_array (b);
  add_sections_to_json (b, sections);
  json_builder_set_member_name (b, "skipped");
  json_builder_add_value (b, cli_table_to_json (skipped));
  json_builder_set_member_name (b, "wrong");
  json_builder_begin_array (b);
  for (guint i = 0; i < validation->wrong->len; i++)
    json_builder_add_string_value (b, validation->wrong->pdata[i]);
  json_builder_end_array (b);
  json_builder_end_object (b);
  return json_builder_get_root (b);
}
