/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/plot/plot-run.h"

#include "advise/predict.h"
#include "advise/workspaces.h"
#include "cli/plot/plot-kinds.h"
#include "db/traces.h"
#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/lower/lower.h"
#include "plots/plot.h"

#include <string.h>

static void
clear_view (gpointer data)
{
  PlanTraceView *view = data;
  plan_trace_free ((PlanTrace *)(guintptr)view->trace);
  plan_schedule_free ((PlanSchedule *)(guintptr)view->schedule);
}

static void
clear_trace (gpointer data)
{
  plan_trace_free ((PlanTrace *)(guintptr)((PlanTraceView *)data)->trace);
}

void
cli_stored_run_clear (CliStoredRun *self)
{
  db_run_clear (&self->row);
  advise_input_clear (&self->input);
  g_clear_pointer (&self->steps, g_array_unref);
  g_clear_pointer (&self->schedule, plan_schedule_free);
  g_clear_pointer (&self->simulated, plan_trace_free);
  g_clear_pointer (&self->measured, plan_trace_free);
  g_clear_pointer (&self->simulated_stages, g_array_unref);
  g_clear_pointer (&self->stages, g_array_unref);
  g_clear_pointer (&self->title, g_free);
}

/* Checks that the schedule is the run's. A stored trace names ops by their place in it, so with the
 * schedule of another version it would mean other ops. */
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

/* Loads the simulated and the measured traces of a pipeline, one of the lowest rank of each stage.
 */
static gboolean
load_stages (DbStore *store, const PlanCase *of, CliStoredRun *self, GError **error)
{
  const gint64 n = of->plan.value[PLAN_PP], all = plan_cluster_devices (of->cluster);
  if (n == 1)
    return TRUE;
  self->stages = g_array_new (FALSE, FALSE, sizeof (PlanTraceView));
  self->simulated_stages = g_array_new (FALSE, FALSE, sizeof (PlanTraceView));
  g_array_set_clear_func (self->stages, clear_view);
  g_array_set_clear_func (self->simulated_stages, clear_trace);
  for (gint64 stage = 0; stage < n; stage++)
    {
      const gint64 rank = stage * all / n;
      PlanTraceView view = { NULL, plan_lower (of, (guint)rank, error), 0 };
      PlanTraceView simulated = { NULL, view.schedule, 0 };
      if (view.schedule)
        view.trace = db_store_load_trace (store, self->row.id, self->row.backend, rank, error);
      if (view.trace)
        simulated.trace = db_store_load_trace (store, self->row.id, "sim", rank, error);
      g_array_append_val (self->stages, view);
      g_array_append_val (self->simulated_stages, simulated);
      if (!simulated.trace)
        return FALSE;
    }
  plot_pipeline_align ((PlanTraceView *)(gpointer)self->simulated_stages->data, (guint)n);
  return TRUE;
}

gboolean
cli_stored_run_load (CliOptions *options, const char *id_text, CliStoredRun *out, GError **error)
{
  gint64 id;
  if (!plan_units_parse_int (id_text, "--run", 1, G_MAXINT64, &id, error))
    return FALSE;
  g_autoptr (DbStore) store = db_store_open_readonly (options->db, error);
  if (!store || !db_store_load_run (store, id, &out->row, error)
      || !(out->steps = db_store_list_steps (store, id, error)))
    return FALSE;
  g_free (options->plan);
  options->plan = g_strdup_printf ("@run%" G_GINT64_FORMAT, id);
  return cli_input_read (options, NULL, &out->input, error);
}

gboolean
cli_stored_run_load_traces (const CliOptions *options, CliStoredRun *self, GError **error)
{
  g_autoptr (PlanCase) of = advise_case (&self->input, &self->input.plan, error);
  g_autoptr (DbStore) store = of ? db_store_open_readonly (options->db, error) : NULL;
  g_autoptr (PlanSchedule) schedule = store ? plan_lower (of, 0, error) : NULL;
  const gint64 id = self->row.id;
  if (!schedule || !is_same_schedule (schedule, &self->row, error))
    return FALSE;
  g_autoptr (PlanTrace) simulated = db_store_load_trace (store, id, "sim", 0, error);
  g_autoptr (PlanTrace) measured
      = simulated ? db_store_load_trace (store, id, self->row.backend, 0, error) : NULL;
  if (!measured || !load_stages (store, of, self, error))
    return FALSE;
  g_autofree char *label = advise_plan_label (&of->plan);
  self->title = cli_plot_title (&self->input, label, NULL);
  self->schedule = g_steal_pointer (&schedule);
  self->simulated = g_steal_pointer (&simulated);
  self->measured = g_steal_pointer (&measured);
  return TRUE;
}

gboolean
cli_stored_run_plot_timeline (const CliStoredRun *self, const char *path, char **out_text,
                              GError **error)
{
  if (!self->stages)
    return plot_timeline (self->simulated, self->measured, self->schedule, self->title, path,
                          out_text, error);
  return plot_pipeline ((const PlanTraceView *)(gconstpointer)self->simulated_stages->data,
                        (const PlanTraceView *)(gconstpointer)self->stages->data, self->stages->len,
                        self->title, path, out_text, error);
}
