/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/runs.h"
#include "db/traces.h"
#include "planner/cli/commands.h"
#include "planner/cli/output.h"
#include "planner/cli/predict.h"
#include "planner/error.h"
#include "planner/lower.h"
#include "planner/units.h"
#include "plots/plot.h"

#include <stdio.h>
#include <string.h>

/* What a picture of one plan is drawn from: a prediction, or a stored run with its measurement. */
typedef struct
{
  PlanSchedule *schedule;
  PlanTrace *simulated, *measured;
  char *title;
} Subject;

static void
subject_clear (Subject *self)
{
  g_clear_pointer (&self->schedule, plan_schedule_free);
  g_clear_pointer (&self->simulated, plan_trace_free);
  g_clear_pointer (&self->measured, plan_trace_free);
  g_clear_pointer (&self->title, g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Subject, subject_clear)

static char *
title_of (const CliInput *input, const Plan *resolved)
{
  g_autofree char *label = cli_plan_label (resolved);
  return g_strdup_printf ("%s on %s: %s", input->model->name, input->cluster->name, label);
}

static gboolean
predict_subject (const CliOptions *options, Subject *subject, GError **error)
{
  g_auto (CliInput) input = { 0 };
  g_auto (CliPrediction) prediction = { 0 };
  if (!cli_input_read (options, NULL, &input, error) || !cli_predict (&input, &prediction, error))
    return FALSE;
  subject->title = title_of (&input, &prediction.plan);
  subject->schedule = g_steal_pointer (&prediction.schedule);
  subject->simulated = g_steal_pointer (&prediction.trace);
  return TRUE;
}

/* A stored trace names ops by their place in the schedule: another version's are other ops. */
static gboolean
is_same_schedule (const PlanSchedule *schedule, const DbRun *run, GError **error)
{
  g_autofree char *hash = plan_schedule_hash (schedule);
  if (strcmp (hash, run->schedule_hash) == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "run %" G_GINT64_FORMAT " was made by version %s, whose schedule for this plan was "
               "another: run it again to draw it",
               run->id, run->program_version);
  return FALSE;
}

static gboolean
load_subject (CliOptions *options, const char *run, Subject *subject, GError **error)
{
  g_auto (CliInput) input = { 0 };
  g_auto (DbRun) row = { 0 };
  gint64 id;
  Plan plan;
  if (!plan_units_parse_int (run, "--run", 1, G_MAXINT64, &id, error))
    return FALSE;
  g_autoptr (DbStore) store = db_store_open_readonly (options->db, error);
  if (!store || !db_store_load_run (store, id, &row, error))
    return FALSE;
  g_free (options->plan);
  options->plan = g_strdup_printf ("@%" G_GINT64_FORMAT, id);
  if (!cli_input_read (options, NULL, &input, error)
      || !plan_resolve (&input.plan, input.model, input.cluster, &plan, error)
      || !(subject->schedule = plan_lower (input.model, input.cluster, &plan, 0, error))
      || !is_same_schedule (subject->schedule, &row, error)
      || !(subject->simulated = db_store_load_trace (store, id, "sim", 0, error))
      || !(subject->measured = db_store_load_trace (store, id, row.backend, 0, error)))
    return FALSE;
  subject->title = title_of (&input, &plan);
  return TRUE;
}

/* Memory against throughput of every combination of the swept fields. */
static gboolean
plot_sweep (const CliOptions *options, char *const *sweeps, const char *path, char **out_text,
            GError **error)
{
  g_auto (CliInput) input = { 0 };
  g_autoptr (GArray) points = g_array_new (FALSE, FALSE, sizeof (PlotPoint));
  g_autoptr (GPtrArray) labels = g_ptr_array_new_with_free_func (g_free);
  const char *const standard[] = { "strategy", "mbs=1,2,4", NULL };
  char *const *asked = sweeps ? sweeps : (char *const *)standard;
  if (!cli_input_read (options, NULL, &input, error))
    return FALSE;
  g_autoptr (GArray) plans = cli_sweep (&input.plan, asked, error);
  if (!plans)
    return FALSE;
  for (guint i = 0; i < plans->len; i++)
    {
      g_auto (CliPrediction) p = { 0 };
      g_autoptr (GError) why = NULL;
      input.plan = g_array_index (plans, Plan, i);
      if (!cli_predict (&input, &p, &why)) /* the rules forbid it: sim --sweep says why */
        continue;
      g_autofree char *swept = cli_describe_swept (&input.plan, asked);
      char *label = g_strdup_printf ("%s mbs=%" G_GINT64_FORMAT "%s%s",
                                     plan_field_names (PLAN_STRATEGY)[p.plan.value[PLAN_STRATEGY]],
                                     p.plan.value[PLAN_MBS], *swept ? " " : "", swept);
      g_ptr_array_add (labels, label);
      const PlotPoint point = { .label = label,
                                .memory_gib = cli_mib (p.trace->memory.device) / 1024.0,
                                .tokens_per_s = p.tokens_per_s_per_gpu,
                                .fits = p.fits };
      g_array_append_val (points, point);
    }
  if (points->len == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "none of these plans is allowed; fsdplan sim --sweep says why");
      return FALSE;
    }
  g_autofree char *title = g_strdup_printf ("%s on %s", input.model->name, input.cluster->name);
  return plot_pareto ((const PlotPoint *)(gpointer)points->data, points->len,
                      cli_mib (input.cluster->memory_bytes) / 1024.0, title, path, out_text, error);
}

static gboolean
plot_subject (const char *kind, CliOptions *options, const char *run, const char *path,
              char **out_text, GError **error)
{
  g_auto (Subject) s = { 0 };
  if (run ? !load_subject (options, run, &s, error) : !predict_subject (options, &s, error))
    return FALSE;
  return strcmp (kind, "timeline") == 0
             ? plot_timeline (s.simulated, s.measured, s.schedule, s.title, path, out_text, error)
             : plot_memory (s.simulated, s.measured, s.schedule, s.title, path, out_text, error);
}

static gboolean
draw (const char *kind, CliOptions *options, const char *run, char *const *sweeps, const char *path,
      char **out_text, GError **error)
{
  if (strcmp (kind, "pareto") == 0)
    {
      if (run)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--run is for timeline and memory");
          return FALSE;
        }
      return plot_sweep (options, sweeps, path, out_text, error);
    }
  if (strcmp (kind, "timeline") != 0 && strcmp (kind, "memory") != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "there is no picture '%s': timeline, memory or pareto", kind);
      return FALSE;
    }
  if (sweeps)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--sweep is for pareto");
      return FALSE;
    }
  return plot_subject (kind, options, run, path, out_text, error);
}

int
cmd_plot (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (GStrv) sweeps = NULL;
  g_autofree char *path = NULL, *run = NULL, *text = NULL;
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &path,
      "the picture, by its extension svg, png, pdf or txt; without it, text on the terminal",
      "FILE" },
    { "run", 0, 0, G_OPTION_ARG_STRING, &run,
      "a stored run in place of a plan, simulated beside measured; for timeline and memory", "ID" },
    { "sweep", 0, 0, G_OPTION_ARG_STRING_ARRAY, &sweeps,
      "what pareto varies; a field alone takes all of its values; strategy and mbs=1,2,4 unless "
      "said",
      "FIELD[=V1,V2,…]" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new ("timeline|memory|pareto", "draw a picture: timeline, memory or pareto");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (argc != 2)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "plot: one picture is needed: timeline, memory or pareto");
      return CLI_FAILED;
    }
  if (!draw (argv[1], &options, run, sweeps, path, &text, error))
    return CLI_FAILED;
  if (text)
    fputs (text, stdout);
  return CLI_DONE;
}
