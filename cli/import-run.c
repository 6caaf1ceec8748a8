/* SPDX-License-Identifier: Apache-2.0 */
/* Imports logs of fsdplan run --log: runs and their steps. Importing a log again adds what is new
 * in it. */
#include "config.h"

#include "cli/import.h"

#include "db/tables.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/runs/step-log.h"

#include <math.h>

static gboolean
is_column (const char *name)
{
  for (guint c = 0; c < db_kind_n_columns (DB_KIND_RUNS); c++)
    if (g_str_equal (name, db_kind_column_name (DB_KIND_RUNS, c)))
      return TRUE;
  return FALSE;
}

/* Cells that the store requires of a run, and that every such log has; see db/schema.sql. */
static const char *const needed[] = { "uid",
                                      "created",
                                      "program_version",
                                      "backend",
                                      "comm",
                                      "device",
                                      "host",
                                      "plan_hash",
                                      "model_text",
                                      "cluster_text",
                                      "plan_text",
                                      "schedule_hash",
                                      "ranks",
                                      "steps",
                                      "seed",
                                      "predicted_step_ns" };

static gboolean
check_cells (const PlanLoggedRun *run, const char *origin, GError **error)
{
  for (guint i = 0; i < run->cells->len; i += 2)
    if (!is_column (run->cells->pdata[i]))
      {
        g_autofree char *shown = plan_text_quote (run->cells->pdata[i]);
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "%s:%" G_GUINT64_FORMAT ": run.%s is nothing that is known of runs", origin,
                     run->line, shown);
        return FALSE;
      }
  for (guint i = 0; i < G_N_ELEMENTS (needed); i++)
    if (!plan_logged_run_cell (run, needed[i]))
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "%s:%" G_GUINT64_FORMAT ": run.%s is missing", origin, run->line, needed[i]);
        return FALSE;
      }
  return TRUE;
}

static void
add_run (CliImport *import, DbTable *table, const PlanLoggedRun *run)
{
  g_autofree char *measured = g_strdup_printf ("%" G_GINT64_FORMAT, run->measured_ns);
  g_autoptr (GArray) cells = g_array_new (FALSE, FALSE, 2 * sizeof (char *));
  for (guint i = 0; i < run->cells->len; i += 2)
    g_array_append_vals (cells, &run->cells->pdata[i], 1);
  const char *const more[][2] = { { "state", run->state ? run->state : "running" },
                                  { "message", run->message },
                                  { "measured_step_ns", measured } };
  g_array_append_vals (cells, more, G_N_ELEMENTS (more));
  db_table_add (table, (const char *const(*)[2]) (gconstpointer)cells->data, cells->len,
                (guint)run->line);
  import->n_rows++;
}

/* Prints a number; NULL, an empty cell, for one that is not finite. */
static char *
print_real (double value)
{
  return isfinite (value) ? plan_units_format_real (value) : NULL;
}

static void
add_step (CliImport *import, DbTable *table, const char *uid, const PlanLoggedStep *step,
          guint64 line)
{
  g_autofree char *number = g_strdup_printf ("%" G_GINT64_FORMAT, step->step);
  g_autofree char *loss = print_real (step->loss), *norm = print_real (step->grad_norm);
  g_autofree char *ns = g_strdup_printf ("%" G_GINT64_FORMAT, step->step_ns);
  g_autofree char *eval = print_real (step->eval_loss);
  const char *const cells[][2]
      = { { "run", uid },        { "step", number }, { "loss", loss },
          { "grad_norm", norm }, { "step_ns", ns },  { "eval_loss", eval } };
  db_table_add (table, cells, G_N_ELEMENTS (cells), (guint)line);
  import->n_rows++;
}

gboolean
cli_import_take_steps (CliImport *self, const char *text, GError **error)
{
  g_autoptr (GPtrArray) runs = plan_step_log_read (text, self->origin, error);
  DbTable *const run_table = db_table_new (DB_KIND_RUNS);
  DbTable *const step_table = db_table_new (DB_KIND_STEPS);
  g_ptr_array_add (self->tables, run_table);
  g_ptr_array_add (self->tables, step_table);
  for (guint i = 0; runs && i < runs->len; i++)
    {
      const PlanLoggedRun *run = runs->pdata[i];
      if (!check_cells (run, self->origin, error))
        return FALSE;
      add_run (self, run_table, run);
      for (guint s = 0; s < run->steps->len; s++)
        add_step (self, step_table, plan_logged_run_cell (run, "uid"),
                  &g_array_index (run->steps, PlanLoggedStep, s), run->line + 1 + s);
    }
  return runs != NULL;
}
