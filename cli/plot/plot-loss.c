/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/plot/plot-kinds.h"

#include "db/runs.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/runs/step-log.h"
#include "plots/plot.h"

#include <math.h>
#include <string.h>

/* The runs to draw; owns their labels and steps. */
typedef struct
{
  GArray *runs;      /* PlotLossRun */
  GPtrArray *labels; /* char * */
  GPtrArray *steps;  /* GArray * of PlotLossStep */
} Losses;

static void
losses_clear (Losses *self)
{
  g_clear_pointer (&self->runs, g_array_unref);
  g_clear_pointer (&self->labels, g_ptr_array_unref);
  g_clear_pointer (&self->steps, g_ptr_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Losses, losses_clear)

/* Adds a run; takes ownership of the label and the steps. */
static void
add_run (Losses *self, char *label, GArray *steps)
{
  const PlotLossRun run = { label, (const PlotLossStep *)(gconstpointer)steps->data, steps->len };
  g_ptr_array_add (self->labels, label);
  g_ptr_array_add (self->steps, steps);
  g_array_append_val (self->runs, run);
}

static gboolean
add_stored (Losses *self, const char *id_text, const char *db, GError **error)
{
  g_auto (DbRun) row = { 0 };
  GArray *steps = g_array_new (FALSE, FALSE, sizeof (PlotLossStep));
  gint64 id;
  if (!plan_units_parse_int (id_text, "--run", 1, G_MAXINT64, &id, error))
    return FALSE;
  g_autoptr (DbStore) store = db_store_open_readonly (db, error);
  if (!store || !db_store_load_run (store, id, &row, error))
    return FALSE;
  g_autoptr (GArray) stored = db_store_list_steps (store, id, error);
  for (guint i = 0; stored && i < stored->len; i++)
    {
      const DbStep *from = &g_array_index (stored, DbStep, i);
      const PlotLossStep step = { from->step, from->loss, from->eval_loss };
      g_array_append_val (steps, step);
    }
  add_run (self, g_strdup_printf ("run %" G_GINT64_FORMAT, id), steps);
  return stored != NULL;
}

/* Joins the runs of one log into one line, since each resumes the one before. Of a step that was
 * done twice the last time counts. */
static GArray *
join_runs (const GPtrArray *runs)
{
  GArray *steps = g_array_new (FALSE, FALSE, sizeof (PlotLossStep));
  for (guint r = 0; r < runs->len; r++)
    {
      const PlanLoggedRun *run = runs->pdata[r];
      for (guint i = 0; i < run->steps->len; i++)
        {
          const PlanLoggedStep *from = &g_array_index (run->steps, PlanLoggedStep, i);
          const PlotLossStep step = { from->step, from->loss, from->eval_loss };
          while (steps->len > 0
                 && g_array_index (steps, PlotLossStep, steps->len - 1).step >= step.step)
            g_array_set_size (steps, steps->len - 1);
          g_array_append_val (steps, step);
        }
    }
  return steps;
}

static gboolean
add_log (Losses *self, const char *path, GError **error)
{
  g_autofree char *text = NULL;
  gsize length;
  if (!plan_text_read_file (path, &text, &length, error))
    return FALSE;
  if (!plan_step_log_is (text))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: is no log of fsdplan run --log: such a one begins with {\"run\":{", path);
      return FALSE;
    }
  g_autoptr (GPtrArray) runs = plan_step_log_read (text, path, error);
  if (!runs)
    return FALSE;
  add_run (self, g_strdup (path), join_runs (runs));
  return TRUE;
}

gboolean
cli_plot_loss (CliPlot *self, char **out_text, GError **error)
{
  g_auto (Losses) losses
      = { .runs = g_array_new (FALSE, FALSE, sizeof (PlotLossRun)),
          .labels = g_ptr_array_new_with_free_func (g_free),
          .steps = g_ptr_array_new_with_free_func ((GDestroyNotify)g_array_unref) };
  if (!self->run && !*self->plans)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "loss: name logs of fsdplan run --log, or a stored run with --run ID");
      return FALSE;
    }
  if (self->run && !add_stored (&losses, self->run, self->options.db, error))
    return FALSE;
  for (char *const *path = self->plans; *path; path++)
    if (g_str_has_prefix (*path, "@run") ? !add_stored (&losses, *path + 4, self->options.db, error)
                                         : !add_log (&losses, *path, error))
      return FALSE;
  return plot_loss ((const PlotLossRun *)(gconstpointer)losses.runs->data, losses.runs->len,
                    "loss by step", self->path, out_text, error);
}
