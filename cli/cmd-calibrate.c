/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/adjustments.h"
#include "advise/measurements.h"
#include "advise/timings.h"
#include "advise/uncertainty-fit.h"
#include "advise/validate.h"
#include "cli/calibrate-parts.h"
#include "cli/import.h"
#include "cli/io/commands.h"
#include "cli/io/context.h"
#include "cli/io/output.h"
#include "cli/validate-report.h"
#include "db/catalogue.h"
#include "db/transfer.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/lower/lower.h"
#include "planner/runs/accuracy.h"
#include "sim/fit/calibrate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct
{
  char *id, *base, *out, *db, *format, *folds, *stack, *leave_out;
  char **where;
  gboolean is_dry, is_published, finds_distances;
  const char *path; /* a table of runs; NULL: the store, or the published runs */
} Question;

static void
question_clear (Question *self)
{
  char **const texts[] = { &self->id,     &self->base,  &self->out,   &self->db,
                           &self->format, &self->folds, &self->stack, &self->leave_out };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_free (*texts[i]);
  g_strfreev (self->where);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Question, question_clear)

/* The runs that a set is fitted to, lowered once for many simulations. */
typedef struct
{
  GArray *rows;         /* SimObservation */
  GPtrArray *runs;      /* AdviseRun *, one for each row */
  GPtrArray *schedules; /* PlanSchedule * by stage, one array for each row */
} Fitted;

static void
free_schedules (gpointer schedules)
{
  for (PlanSchedule **at = schedules; *at; at++)
    plan_schedule_free (*at);
  g_free (schedules);
}

static void
fitted_clear (Fitted *self)
{
  g_clear_pointer (&self->rows, g_array_unref);
  g_clear_pointer (&self->runs, g_ptr_array_unref);
  g_clear_pointer (&self->schedules, g_ptr_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Fitted, fitted_clear)

/* Whether a run is fit for fitting. If it did something that is not modelled, the factors of what
 * is modelled would absorb that. */
static gboolean
can_fit (const AdviseRun *run)
{
  return run->is_selected && run->is_predicted && run->row.is_for_fitting && !run->row.is_partial
         && run->row.time_ok && run->row.measured[PLAN_RUN_QUANTITY_TIME] > 0;
}

/* Lowers the schedule of one rank of every stage. NULL-terminated. Cannot fail for a run that was
 * predicted. */
static PlanSchedule **
lower_stages (const PlanCase *of, GError **error)
{
  const guint n = (guint)of->plan.value[PLAN_PP];
  const guint of_stage = (guint)plan_cluster_devices (of->cluster) / n;
  PlanSchedule **schedules = g_new0 (PlanSchedule *, n + 1);
  for (guint s = 0; s < n; s++)
    if (!(schedules[s] = plan_lower (of, s * of_stage, error)))
      {
        free_schedules (schedules);
        return NULL;
      }
  return schedules;
}

static gboolean
add_run (Fitted *self, AdviseRun *run, const char *db, double weight, guint n_parts, GError **error)
{
  const PlanCluster *cluster = run->row.cluster;
  const char *stack = run->of->stack->name;
  const guint n_stages = (guint)run->of->plan.value[PLAN_PP];
  PlanSchedule **schedules = lower_stages (run->of, error);
  if (!schedules)
    return FALSE;
  SimCostInput input = sim_cost_input (run->of, schedules[0]);
  input.measurements = advise_measurements (cluster);
  input.timings = advise_timings (cluster, run->of->stack, db, NULL);
  g_ptr_array_add (self->schedules, schedules);
  g_ptr_array_add (self->runs, run);
  const SimObservation row
      = { .input = input,
          .stages = { (const PlanSchedule *const *)schedules, n_stages > 1 ? n_stages : 0 },
          .gpu = cluster->device_name,
          .stack = stack,
          .site = cluster->site,
          .has_experts = run->of->model->experts > 0,
          .step_ns = 1e6 * run->row.measured[PLAN_RUN_QUANTITY_TIME],
          .weight = weight,
          .part = n_parts > 1 ? run->group % n_parts : 0 };
  g_array_append_val (self->rows, row);
  return TRUE;
}

/* Collects the runs for the fit. A group of close variants weighs as much as one run, and all of it
 * goes into the same part. */
static gboolean
collect (const AdviseValidation *validation, guint n_parts, Fitted *out, GError **error)
{
  g_autoptr (GHashTable) sizes = g_hash_table_new (NULL, NULL);
  for (guint i = 0; i < validation->runs->len; i++)
    {
      const AdviseRun *run = &g_array_index (validation->runs, AdviseRun, i);
      const gpointer key = GUINT_TO_POINTER (run->group);
      if (can_fit (run))
        g_hash_table_insert (
            sizes, key, GUINT_TO_POINTER (GPOINTER_TO_UINT (g_hash_table_lookup (sizes, key)) + 1));
    }
  out->rows = g_array_new (FALSE, FALSE, sizeof (SimObservation));
  out->runs = g_ptr_array_new ();
  out->schedules = g_ptr_array_new_with_free_func (free_schedules);
  for (guint i = 0; i < validation->runs->len; i++)
    {
      AdviseRun *run = &g_array_index (validation->runs, AdviseRun, i);
      const guint n = GPOINTER_TO_UINT (g_hash_table_lookup (sizes, GUINT_TO_POINTER (run->group)));
      if (can_fit (run) && !add_run (out, run, validation->db, 1.0 / n, n_parts, error))
        return FALSE;
    }
  return TRUE;
}

/* Which errors of step times are shown: of runs for fitting, before the fit, after it, and when
 * they were left out; of runs for reporting only, before and after. */
typedef enum
{
  FIT_BEFORE,
  FIT_AFTER,
  FIT_LEFT_OUT,
  REPORT_BEFORE,
  REPORT_AFTER,
  N_COLUMNS
} Column;

typedef struct
{
  const char *gpu, *stack; /* NULL: any */
  GArray *samples[N_COLUMNS];
} Scope;

static void
add_sample (Scope *scope, Column column, const AdviseRun *run, double predicted_ms)
{
  const PlanSample sample
      = { run->group, run->configuration, predicted_ms, run->row.measured[PLAN_RUN_QUANTITY_TIME] };
  g_array_append_val (scope->samples[column], sample);
}

static gboolean
is_in (const Scope *scope, const AdviseRun *run)
{
  const char *stack = run->row.cell[PLAN_RUN_STACK];
  return (!scope->gpu || g_str_equal (scope->gpu, run->row.cluster->device_name))
         && (!scope->stack || g_strcmp0 (scope->stack, stack) == 0);
}

static Scope
scope_new (const char *gpu, const char *stack, const Fitted *fitted, const AdviseValidation *before,
           const AdviseValidation *after)
{
  Scope self = { .gpu = gpu, .stack = stack };
  for (Column c = 0; c < N_COLUMNS; c++)
    self.samples[c] = g_array_new (FALSE, FALSE, sizeof (PlanSample));
  for (guint i = 0; i < fitted->rows->len; i++)
    {
      const SimObservation *row = &g_array_index (fitted->rows, SimObservation, i);
      const AdviseRun *run = fitted->runs->pdata[i];
      if (!is_in (&self, run))
        continue;
      add_sample (&self, FIT_BEFORE, run, 1e-6 * row->before_ns);
      add_sample (&self, FIT_AFTER, run, 1e-6 * row->after_ns);
      add_sample (&self, FIT_LEFT_OUT, run, 1e-6 * row->without_part_ns);
    }
  for (guint i = 0; i < before->runs->len; i++)
    {
      const AdviseRun *was = &g_array_index (before->runs, AdviseRun, i);
      const AdviseRun *is = &g_array_index (after->runs, AdviseRun, i);
      if (!was->is_predicted || !was->is_selected || was->row.is_for_fitting || !was->row.time_ok
          || was->row.measured[PLAN_RUN_QUANTITY_TIME] <= 0 || !is_in (&self, was))
        continue;
      add_sample (&self, REPORT_BEFORE, was, was->predicted[PLAN_RUN_QUANTITY_TIME]);
      add_sample (&self, REPORT_AFTER, is, is->predicted[PLAN_RUN_QUANTITY_TIME]);
    }
  return self;
}

static double
mean_abs_pct (const Scope *scope, Column column, guint *out_n)
{
  PlanAccuracy accuracy;
  const GArray *samples = scope->samples[column];
  plan_accuracy_measure ((const PlanSample *)(gpointer)samples->data, samples->len, &accuracy);
  *out_n = accuracy.n;
  return accuracy.mean_abs_pct;
}

static void
add_scope (CliTable *table, Scope scope)
{
  guint n[N_COLUMNS];
  double error[N_COLUMNS];
  for (Column c = 0; c < N_COLUMNS; c++)
    error[c] = mean_abs_pct (&scope, c, &n[c]);
  cli_table_add (table, scope.stack ? scope.stack : "all");
  cli_table_add (table, scope.gpu ? scope.gpu : "all");
  for (Column c = 0; c < N_COLUMNS; c++)
    {
      if (c == FIT_BEFORE || c == REPORT_BEFORE)
        cli_table_add_int (table, n[c]);
      if (n[c] > 0)
        cli_table_add_real (table, error[c], 2);
      else
        cli_table_add (table, NULL);
    }
  for (Column c = 0; c < N_COLUMNS; c++)
    g_array_unref (scope.samples[c]);
}

static void
print_errors (const Fitted *fitted, const AdviseValidation *before, const AdviseValidation *after,
              CliFormat format)
{
  static const CliColumn columns[]
      = { { "stack", FALSE },        { "gpu", FALSE },          { "fit_groups", TRUE },
          { "fit_before", TRUE },    { "fit_after", TRUE },     { "left_out", TRUE },
          { "report_groups", TRUE }, { "report_before", TRUE }, { "report_after", TRUE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  add_scope (table, scope_new (NULL, NULL, fitted, before, after));
  for (guint i = 0; i < before->runs->len; i++)
    {
      const AdviseRun *run = &g_array_index (before->runs, AdviseRun, i);
      const char *stack = run->row.cell[PLAN_RUN_STACK];
      if (!run->is_predicted || !run->is_selected || !run->row.time_ok)
        continue;
      if (g_hash_table_add (seen, g_strdup_printf ("%s/%s", stack, run->row.cluster->device_name)))
        add_scope (table, scope_new (run->row.cluster->device_name, stack, fitted, before, after));
    }
  cli_table_print (table, format);
}

/* Prints the factors that the set has beyond those of its base. */
static void
print_factors (const SimAdjustments *set, const SimAdjustments *base)
{
  static const CliColumn columns[]
      = { { "effect", FALSE }, { "gpu", FALSE },  { "stack", FALSE },  { "site", FALSE },
          { "factor", TRUE },  { "error", TRUE }, { "meaning", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = base ? base->factors->len : 0; i < set->factors->len; i++)
    {
      const SimFactor *f = &g_array_index (set->factors, SimFactor, i);
      cli_table_add (table, sim_effect_name (f->effect));
      cli_table_add (table, f->scope.gpu);
      cli_table_add (table, f->scope.stack);
      cli_table_add (table, f->scope.site);
      cli_table_add_real (table, f->factor, 3);
      cli_table_add_real (table, f->error, 3);
      cli_table_add (table, sim_effect_meaning (f->effect));
    }
  cli_table_print (table, CLI_FORMAT_TABLE);
}

/* Appends a cell to a CSV table that the store imports; NULL is a missing cell. */
static void
append_cell (GString *csv, const char *text, char end)
{
  if (!text)
    {
      g_string_append_c (csv, end);
      return;
    }
  g_auto (GStrv) halves = g_strsplit (text, "\"", -1);
  g_autofree char *escaped = g_strjoinv ("\"\"", halves);
  g_string_append_printf (csv, "\"%s\"%c", escaped, end);
}

static char *
set_as_table (const SimAdjustments *set, const char *validation, double error_pct)
{
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *created = g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ");
  g_autofree char *text = sim_adjustments_print (set);
  g_autoptr (GString) csv = g_string_new ("id,created,program_version,text,validation,error_pct\n");
  const char *const cells[] = { set->id, created, PACKAGE_VERSION, text, validation };
  for (guint i = 0; i < G_N_ELEMENTS (cells); i++)
    append_cell (csv, cells[i], ',');
  g_string_append_printf (csv, "%.4f\n", error_pct);
  return g_string_free (g_steal_pointer (&csv), FALSE);
}

static char *
fitted_as_table (const SimAdjustments *set, const Fitted *fitted)
{
  GString *csv = g_string_new ("params,run,source,row_id,op\n");
  for (guint i = 0; i < fitted->runs->len; i++)
    {
      const AdviseRun *run = fitted->runs->pdata[i];
      const char *source = run->row.cell[PLAN_RUN_SOURCE], *id = run->row.cell[PLAN_RUN_ROW_ID];
      const gboolean is_own = g_str_equal (source, ADVISE_OWN_RUNS);
      append_cell (csv, set->id, ',');
      append_cell (csv, is_own ? id : NULL, ',');
      append_cell (csv, is_own ? NULL : source, ',');
      append_cell (csv, is_own ? NULL : id, ',');
      g_string_append_c (csv, '\n');
    }
  return g_string_free (csv, FALSE);
}

/* Stores the set together with the runs it was fitted to, or nothing if that fails. */
static gboolean
keep (const SimAdjustments *set, const Question *question, const Fitted *fitted,
      const char *validation, double error_pct, GError **error)
{
  const CliOptions options = { .db = question->db };
  const CliImportRequest request = { .options = &options };
  g_auto (CliImport) runs = { 0 };
  g_autofree char *published = question->is_published ? db_catalogue_runs_path () : NULL;
  const char *const path = published ? published : question->path;
  if (path && !cli_import_read (path, &request, &runs, error))
    return FALSE;
  g_autofree char *sets = set_as_table (set, validation, error_pct);
  g_autofree char *rows = fitted_as_table (set, fitted);
  const DbSource sources[]
      = { { .text = runs.text, .tables = runs.tables, .origin = path ? path : "" },
          { .text = sets, .origin = "calibrate" },
          { .text = rows, .origin = "calibrate" } };
  DbImport done;
  g_autoptr (DbStore) store = db_store_open (question->db, error);
  const guint first = path ? 0 : 1;
  return store
         && db_store_import (store, sources + first, G_N_ELEMENTS (sources) - first, FALSE, &done,
                             error);
}

static void
show_progress (guint evaluations, void *user)
{
  (void)user;
  fprintf (stderr, "\rcalibrate: %u evaluations of all runs", evaluations);
}

/* Numbers the sources of runs from 0; returns how many there are. */
static guint
number_sources (Fitted *fitted)
{
  g_autoptr (GHashTable) names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < fitted->rows->len; i++)
    {
      const AdviseRun *run = fitted->runs->pdata[i];
      g_autofree char *source = advise_run_source (run);
      g_array_index (fitted->rows, SimObservation, i).source = advise_part_of (source, names) - 1;
    }
  return g_hash_table_size (names);
}

/* Runs that are not published are the user's own: those to come are of the same source. */
static SimAdjustments *
fit (Fitted *fitted, const Question *question, const SimAdjustments *base, guint n_parts,
     GError **error)
{
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *id
      = question->id ? g_strdup (question->id) : g_date_time_format (now, "own-%Y%m%d-%H%M%S");
  const gboolean is_shown = isatty (STDERR_FILENO);
  const SimCalibration request
      = { .id = id,
          .base = base,
          .n_parts = n_parts,
          .n_sources = question->is_published ? number_sources (fitted) : 0,
          .n_threads = g_get_num_processors (),
          .progress = is_shown ? show_progress : NULL };
  if (!plan_text_is_name (id))
    {
      g_autofree char *shown = plan_text_quote (id);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--id: %s is not letters, digits and . _ + - only", shown);
      return NULL;
    }
  if (question->id && !question->is_dry && !question->out
      && advise_adjustments (id, question->db, NULL))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--id: there is a set %s: choose another name, or delete it with fsdplan db "
                   "delete --kind=params %s",
                   id, id);
      return NULL;
    }
  SimAdjustments *set = sim_calibrate (&request, (SimObservation *)(gpointer)fitted->rows->data,
                                       fitted->rows->len, error);
  if (is_shown)
    fprintf (stderr, "\r\033[K");
  return set;
}

/* Finds the uncertainty of times: that of the base set, extended by these runs. */
static gboolean
find_uncertainties (const Fitted *fitted, const Question *question, const SimAdjustments *base,
                    SimAdjustments *set, GError **error)
{
  g_autofree double *weights = g_new (double, fitted->rows->len + 1);
  for (guint i = 0; i < fitted->rows->len; i++)
    weights[i] = g_array_index (fitted->rows, SimObservation, i).weight;
  const SimAdjustments *shipped = advise_adjustments_shipped ();
  for (SimDistance d = 0; d < SIM_N_DISTANCES; d++)
    if (!base && shipped && set->distances[d].runs == 0)
      set->distances[d] = shipped->distances[d];
  advise_uncertainty_note_runs (fitted->runs, weights, base, set);
  return !question->finds_distances
         || advise_uncertainty_fit_distances (
             fitted->runs, (const SimObservation *)(gpointer)fitted->rows->data, base, set, error);
}

static gboolean
select_runs (const Question *question, AdviseValidation *out, GError **error)
{
  g_autofree char *stack = question->stack ? g_strconcat ("stack=", question->stack, NULL) : NULL;
  const gboolean is_stored = !question->path && !question->is_published;
  if (!(is_stored ? advise_validation_read_store (question->db, out, error)
                  : advise_validation_read (question->path, out, error))
      || (stack && !advise_validation_where (out, stack, error)))
    return FALSE;
  for (char **where = question->where; where && *where; where++)
    if (!advise_validation_where (out, *where, error))
      return FALSE;
  return TRUE;
}

static gboolean
read_runs (const Question *question, const SimAdjustments *set, AdviseValidation *out,
           GError **error)
{
  if (!select_runs (question, out, error))
    return FALSE;
  advise_validation_predict (out, set);
  return TRUE;
}

/* Fits a set, with its uncertainty, to the runs of all parts but one. NULL with an error. */
static SimAdjustments *
fit_without (const CliPart *part, const Fitted *all, const Question *question,
             const SimAdjustments *base, guint n_parts, GError **error)
{
  g_auto (Fitted) others
      = { .rows = g_array_new (FALSE, FALSE, sizeof (SimObservation)), .runs = g_ptr_array_new () };
  for (guint i = 0; i < all->rows->len; i++)
    if (!cli_part_has (part, all->runs->pdata[i]))
      {
        g_array_append_vals (others.rows, &g_array_index (all->rows, SimObservation, i), 1);
        g_ptr_array_add (others.runs, all->runs->pdata[i]);
      }
  if (others.rows->len == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--leave-out=%s: all runs are of one part, %s: nothing is left without it",
                   part->way, part->name);
      return NULL;
    }
  g_autoptr (SimAdjustments) set = fit (&others, question, base, n_parts, error);
  return set && find_uncertainties (&others, question, base, set, error) ? g_steal_pointer (&set)
                                                                         : NULL;
}

/* Of one use: how many groups of runs there are, the sum of their errors in per cent, and how many
 * lie within their uncertainty; every group weighs 1. */
typedef struct
{
  double groups, error, uncertain, within;
} Coverage;

static const char *const uses[] = { "use=fit", "use=report" };

/* Predicts a part's runs by `set`. */
static gboolean
cover (const CliPart *part, const Question *question, const SimAdjustments *set,
       Coverage out[G_N_ELEMENTS (uses)], GError **error)
{
  for (guint u = 0; u < G_N_ELEMENTS (uses); u++)
    {
      g_auto (AdviseValidation) runs = { 0 };
      if (!select_runs (question, &runs, error))
        return FALSE;
      for (guint i = 0; i < runs.runs->len; i++)
        {
          AdviseRun *run = &g_array_index (runs.runs, AdviseRun, i);
          run->is_selected = run->is_selected && cli_part_has (part, run);
        }
      out[u] = (Coverage){ 0 };
      if (!advise_validation_where (&runs, uses[u], NULL))
        continue;
      advise_validation_predict (&runs, set);
      g_autoptr (GArray) sections = cli_sections_new (&runs);
      const CliSection *section = &g_array_index (sections, CliSection, 0);
      const PlanAccuracy *time = &section->of[PLAN_RUN_QUANTITY_TIME];
      out[u] = (Coverage){ time->n, time->n * time->mean_abs_pct, section->groups_uncertain,
                           section->groups_within };
    }
  return TRUE;
}

/* Adds a mean; nothing, of nothing. */
static void
add_mean (CliTable *table, double sum, double n, guint digits)
{
  if (n > 0)
    cli_table_add_real (table, sum / n, digits);
  else
    cli_table_add (table, NULL);
}

static void
add_coverage (CliTable *table, const char *name, const Coverage *of)
{
  cli_table_add (table, name);
  for (guint u = 0; u < G_N_ELEMENTS (uses); u++)
    {
      cli_table_add_int (table, (gint64)of[u].groups);
      add_mean (table, of[u].error, of[u].groups, 2);
      add_mean (table, 100 * of[u].within, of[u].uncertain, 1);
    }
}

/* Leaves out each part of the runs in turn, and prints how far off its runs are that way, and how
 * many of them lie within the uncertainty that is said of them: eight of ten should. */
static gboolean
print_left_out (const Fitted *fitted, const Question *question, const SimAdjustments *base,
                guint n_parts, CliFormat format, GError **error)
{
  const char *const way = question->leave_out;
  const CliColumn columns[] = { { way, FALSE },
                                { "fit_groups", TRUE },
                                { "fit_error_pct", TRUE },
                                { "fit_within_pct", TRUE },
                                { "report_groups", TRUE },
                                { "report_error_pct", TRUE },
                                { "report_within_pct", TRUE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  Coverage all[G_N_ELEMENTS (uses)] = { 0 };
  if (fitted->rows->len == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--leave-out: no run to fit to");
      return FALSE;
    }
  CliPart part = { .way = way, .middle = cli_part_middle (fitted->runs) };
  for (guint i = 0; i < fitted->runs->len; i++)
    {
      char *name = cli_part_of (&part, fitted->runs->pdata[i]);
      Coverage of[G_N_ELEMENTS (uses)];
      if (!name || !g_hash_table_add (seen, name))
        continue;
      part.name = name;
      g_autoptr (SimAdjustments) set = fit_without (&part, fitted, question, base, n_parts, error);
      if (!set || !cover (&part, question, set, of, error))
        return FALSE;
      add_coverage (table, name, of);
      for (guint u = 0; u < G_N_ELEMENTS (uses); u++)
        all[u] = (Coverage){ all[u].groups + of[u].groups, all[u].error + of[u].error,
                             all[u].uncertain + of[u].uncertain, all[u].within + of[u].within };
    }
  if (g_hash_table_size (seen) == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--leave-out=%s: none of the %u runs to fit to would be left out", way,
                   fitted->runs->len);
      return FALSE;
    }
  add_coverage (table, "all", all);
  cli_table_print (table, format);
  if (format == CLI_FORMAT_TABLE)
    printf ("\ntimes of groups of runs, each part predicted by what was fitted to the others: mean "
            "error, and how many lie within\nthe uncertainty that is said of them; four fifths are "
            "meant to\n");
  return TRUE;
}

/* Stores the fitted set, or writes it to a file, unless told not to. */
static gboolean
finish (const SimAdjustments *set, const Question *question, const Fitted *fitted, guint n_parts,
        GError **error)
{
  g_autofree char *text = sim_adjustments_print (set);
  g_autofree char *validation = g_strdup_printf (
      n_parts > 1 ? "groups of runs left out in %u parts" : "none was left out", n_parts);
  guint n;
  Scope all = { 0 };
  all.samples[FIT_LEFT_OUT] = g_array_new (FALSE, FALSE, sizeof (PlanSample));
  for (guint i = 0; i < fitted->rows->len; i++)
    add_sample (&all, FIT_LEFT_OUT, fitted->runs->pdata[i],
                1e-6 * g_array_index (fitted->rows, SimObservation, i).without_part_ns);
  const double error_pct = mean_abs_pct (&all, FIT_LEFT_OUT, &n);
  g_array_unref (all.samples[FIT_LEFT_OUT]);
  if (question->is_dry)
    return TRUE;
  if (question->out)
    return cli_write (question->out, text, error);
  if (!keep (set, question, fitted, validation, error_pct, error))
    return FALSE;
  fprintf (stderr,
           "kept as %s, and in force from now on; fsdplan db delete --kind=params %s forgets it\n",
           set->id, set->id);
  return TRUE;
}

static gboolean
calibrate (const Question *question, CliFormat format, GError **error)
{
  g_auto (AdviseValidation) before = { 0 };
  g_auto (AdviseValidation) after = { 0 };
  g_auto (Fitted) fitted = { 0 };
  g_autoptr (GError) cause = NULL;
  gint64 n_parts = 5;
  /* Held-out runs must not have shaped the set that a fit begins with. The newest set has seen
   * them. */
  const char *base_id
      = question->leave_out && !question->base ? ADVISE_NO_ADJUSTMENTS : question->base;
  const SimAdjustments *base = advise_adjustments (base_id, question->db, &cause);
  if (cause)
    {
      g_propagate_error (error, g_steal_pointer (&cause));
      return FALSE;
    }
  if ((question->folds
       && !plan_units_parse_int (question->folds, "--folds", 0, 1000, &n_parts, error))
      || !read_runs (question, base, &before, error)
      || !collect (&before, (guint)n_parts, &fitted, error))
    return FALSE;
  if (question->leave_out)
    return print_left_out (&fitted, question, base, (guint)n_parts, format, error);
  g_autoptr (SimAdjustments) set = fit (&fitted, question, base, (guint)n_parts, error);
  if (!set || !read_runs (question, set, &after, error)
      || !find_uncertainties (&fitted, question, base, set, error))
    return FALSE;
  if (!base)
    {
      advise_uncertainty_fit_memory (&after, set);
      advise_uncertainty_fit_choices (&after, set);
    }
  print_errors (&fitted, &before, &after, format);
  if (format == CLI_FORMAT_TABLE)
    {
      printf ("\nmean errors of step times in per cent, groups of runs alike; left_out: predicted "
              "by what was fitted to the others;\nreport: runs that nothing is ever fitted to\n\n");
      print_factors (set, base);
    }
  return finish (set, question, &fitted, (guint)n_parts, error);
}

static gboolean
check_words (int argc, char **argv, const Question *question, GError **error)
{
  if (argc > 2)
    {
      g_autofree char *shown = plan_text_quote (argv[2]);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "calibrate: one table at a time, and not %s too", shown);
      return FALSE;
    }
  if (argc == 2 && g_str_equal (argv[1], "-"))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "calibrate: the table is read twice, so it must be a file");
      return FALSE;
    }
  if (argc == 2 && question->is_published)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "calibrate: --published or a table: use one");
      return FALSE;
    }
  if (question->leave_out && !cli_part_check_way (question->leave_out, error))
    return FALSE;
  if (question->leave_out && (question->id || question->out))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "calibrate: --leave-out keeps nothing, so it takes no --%s",
                   question->id ? "id" : "out");
      return FALSE;
    }
  return TRUE;
}

int
cmd_calibrate (int argc, char **argv, GError **error)
{
  g_auto (Question) question = { 0 };
  CliFormat format;
  const GOptionEntry entries[] = {
    { "base", 0, 0, G_OPTION_ARG_STRING, &question.base,
      "the set to begin with, the newest by default: what it knows of other GPUs and stacks "
      "stays; " ADVISE_NO_ADJUSTMENTS ": everything is fitted anew",
      "ID" },
    { "published", 0, 0, G_OPTION_ARG_NONE, &question.is_published,
      "fit to the published runs that come with the program", NULL },
    { "stack", 0, 0, G_OPTION_ARG_STRING, &question.stack, "only runs of that framework", "STACK" },
    { "where", 0, 0, G_OPTION_ARG_STRING_ARRAY, &question.where,
      "only runs with that value in that column, or with any but 0, no and none; may be repeated",
      "COLUMN[=VALUE]" },
    { "folds", 0, 0, G_OPTION_ARG_STRING, &question.folds,
      "parts in which groups of runs are left out in turn, to see how well they are predicted by "
      "the others; 5 by default, 0 for none",
      "N" },
    { "distances", 0, 0, G_OPTION_ARG_NONE, &question.finds_distances,
      "also leave out whole GPUs, then stacks, then modes, in turn, to see how far off predictions "
      "of one without runs are; takes minutes",
      NULL },
    { "leave-out", 0, 0, G_OPTION_ARG_STRING, &question.leave_out,
      "instead hold out each source or gpu in turn, by scale the runs on more than 64 devices, by "
      "time "
      "the newer half, and show how far off they are and how many lie within the uncertainty that "
      "is "
      "said; begins with defaults, keeps nothing, takes minutes, with --distances an hour",
      "source|gpu|scale|time" },
    { "id", 0, 0, G_OPTION_ARG_STRING, &question.id, "what to call the set", "ID" },
    { "out", 'o', 0, G_OPTION_ARG_STRING, &question.out,
      "write the set to a file, and not to the store; - is standard output", "FILE" },
    { "dry-run", 0, 0, G_OPTION_ARG_NONE, &question.is_dry, "only show what would change", NULL },
    { "db", 0, 0, G_OPTION_ARG_STRING, &question.db,
      "the store; $XDG_DATA_HOME/fsdplan/fsdplan.db by default", "FILE" },
    { "format", 0, 0, G_OPTION_ARG_STRING, &question.format, "how to print it", "table|csv|json" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new ("[RUNS.csv]", "fit the cost model to measured runs");
  cli_context_add (context, entries);
  cli_context_describe (
      context, "Without a file the runs are those in the store: imported, or done by fsdplan run.\n"
               "Only rows with use=fit are fitted to; the others are reported on.");
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (!check_words (argc, argv, &question, error))
    return CLI_FAILED;
  question.path = argc > 1 ? argv[1] : NULL;
  return cli_format_parse (question.format, &format, error) && calibrate (&question, format, error)
             ? CLI_DONE
             : CLI_FAILED;
}
