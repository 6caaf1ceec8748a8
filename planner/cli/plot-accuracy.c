/* SPDX-License-Identifier: Apache-2.0 */
/* Step times that were predicted and measured: of stored runs, or of rows of a table. */
#include "config.h"

#include "db/runs.h"
#include "planner/cli/output.h"
#include "planner/cli/plot-kinds.h"
#include "planner/error.h"
#include "planner/model.h"
#include "planner/text.h"
#include "planner/units.h"
#include "plots/plot.h"

#include <string.h>

#define PREDICTED "predicted_step_ms"
#define MEASURED "measured_step_ms"

/* Columns that say what rows have in common; the first that there is counts. */
static const char *const groupings[] = { "group", "stack", "gpu_type", "source" };

/* What is drawn, and the names of its groups. */
typedef struct
{
  GArray *points;    /* PlotAccuracyPoint */
  GPtrArray *groups; /* owns */
} Pairs;

static void
pairs_clear (Pairs *self)
{
  g_clear_pointer (&self->points, g_array_unref);
  g_clear_pointer (&self->groups, g_ptr_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Pairs, pairs_clear)

/* Takes the name. */
static void
add_pair (Pairs *self, char *group, double predicted, double measured)
{
  const PlotAccuracyPoint point = { .group = group, .predicted = predicted, .measured = measured };
  g_ptr_array_add (self->groups, group);
  g_array_append_val (self->points, point);
}

/* "llama-tiny, cpu": what a stored run trained, and on what. */
static char *
group_of (const DbRun *run)
{
  g_autoptr (PlanModel) model = plan_model_new (run->model_text, NULL);
  return g_strdup_printf ("%s, %s", model ? model->name : "a model", run->backend);
}

static gboolean
read_runs (const char *db, Pairs *pairs, GError **error)
{
  g_autoptr (DbStore) store = db_store_open_readonly (db, error);
  g_autoptr (GArray) runs = store ? db_store_list_runs (store, error) : NULL;
  if (!runs)
    return FALSE;
  for (guint i = 0; i < runs->len; i++)
    {
      const DbRun *run = &g_array_index (runs, DbRun, i);
      if (run->predicted_step_ns > 0 && run->measured_step_ns > 0)
        add_pair (pairs, group_of (run), 1e-6 * (double)run->predicted_step_ns,
                  1e-6 * (double)run->measured_step_ns);
    }
  if (pairs->points->len > 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: none of %u runs has a predicted and a measured step", db_store_path (store),
               runs->len);
  return FALSE;
}

/* The cells of a line, in quotes where they hold commas. */
static GPtrArray *
split_line (const char *line)
{
  GPtrArray *cells = g_ptr_array_new_with_free_func (g_free);
  GString *cell = g_string_new (NULL);
  gboolean is_quoted = FALSE;
  for (const char *c = line; *c; c++)
    if (*c == '"' && is_quoted && c[1] == '"')
      g_string_append_c (cell, *c++);
    else if (*c == '"')
      is_quoted = !is_quoted;
    else if (*c == ',' && !is_quoted)
      g_ptr_array_add (cells, g_strdup (cell->str)), g_string_truncate (cell, 0);
    else
      g_string_append_c (cell, *c);
  g_ptr_array_add (cells, g_string_free (cell, FALSE));
  return cells;
}

static int
find_column (const GPtrArray *head, const char *name)
{
  for (guint i = 0; i < head->len; i++)
    if (strcmp (head->pdata[i], name) == 0)
      return (int)i;
  return -1;
}

static gboolean
read_time (const GPtrArray *cells, int column, const char *name, double *out_ms, GError **error)
{
  const char *text = (guint)column < cells->len ? cells->pdata[column] : "";
  if (*text == '\0')
    {
      *out_ms = 0;
      return TRUE;
    }
  return plan_units_parse_real (text, name, 1e-9, 1e15, out_ms, error);
}

/* One row; without one of the times it is none to draw. */
static gboolean
read_row (const GPtrArray *cells, int predicted, int measured, int group, Pairs *pairs,
          GError **error)
{
  double predicted_ms, measured_ms;
  if (!read_time (cells, predicted, PREDICTED, &predicted_ms, error)
      || !read_time (cells, measured, MEASURED, &measured_ms, error))
    return FALSE;
  if (predicted_ms > 0 && measured_ms > 0)
    add_pair (pairs, g_strdup (group >= 0 && (guint)group < cells->len ? cells->pdata[group] : ""),
              predicted_ms, measured_ms);
  return TRUE;
}

/* A table with a line of names, as validate --format=csv prints it. */
static gboolean
read_table (const char *path, Pairs *pairs, GError **error)
{
  g_autofree char *text = NULL;
  if (!cli_read (path, &text, error))
    return FALSE;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  g_autoptr (GPtrArray) head = split_line (lines[0] ? g_strchomp (lines[0]) : "");
  const int predicted = find_column (head, PREDICTED), measured = find_column (head, MEASURED);
  int group = -1;
  for (guint i = 0; i < G_N_ELEMENTS (groupings) && group < 0; i++)
    group = find_column (head, groupings[i]);
  if (predicted < 0 || measured < 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: its first line has no column %s, as that of validate --format=csv has",
                   path, predicted < 0 ? PREDICTED : MEASURED);
      return FALSE;
    }
  for (guint i = 1; lines[i]; i++)
    {
      g_autoptr (GPtrArray) cells = split_line (g_strchomp (lines[i]));
      if (!read_row (cells, predicted, measured, group, pairs, error))
        {
          g_prefix_error (error, "%s:%u: ", path, i + 1);
          return FALSE;
        }
    }
  if (pairs->points->len > 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: no row has both %s and %s", path,
               PREDICTED, MEASURED);
  return FALSE;
}

gboolean
cli_plot_accuracy (CliPlot *self, char **out_text, GError **error)
{
  g_auto (Pairs) pairs = { .points = g_array_new (FALSE, FALSE, sizeof (PlotAccuracyPoint)),
                           .groups = g_ptr_array_new_with_free_func (g_free) };
  if (self->from ? !read_table (self->from, &pairs, error)
                 : !read_runs (self->options.db, &pairs, error))
    return FALSE;
  g_autofree char *title
      = self->from ? g_strdup_printf ("step times of %s", self->from) : g_strdup ("stored runs");
  return plot_accuracy ((const PlotAccuracyPoint *)(gpointer)pairs.points->data, pairs.points->len,
                        "step time", "ms", title, self->path, out_text, error);
}
