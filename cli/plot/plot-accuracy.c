/* SPDX-License-Identifier: Apache-2.0 */
/* Draws predicted against measured values: step times of stored runs, or columns of a table. */
#include "config.h"

#include "cli/io/output.h"
#include "cli/plot/plot-kinds.h"
#include "db/runs.h"
#include "planner/base/csv.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/model/model.h"
#include "plots/plot.h"

#include <string.h>

/* The quantities that can be drawn: name of the columns predicted_NAME and measured_NAME, and the
 * column that says whether a row is fit for comparing them. */
static const struct
{
  const char *name, *words, *unit, *fitness;
} quantities[] = {
  { "step_ms", "step time", "ms", "time_ok" },
  { "allocated_mib", "allocated memory", "MiB", "memory_ok" },
  { "max_allocated_mib", "max allocated memory", "MiB", "memory_ok" },
  { "reserved_mib", "reserved memory", "MiB", "memory_ok" },
  { "device_mib", "memory of the device", "MiB", "memory_ok" },
};

/* Columns to group points by; the first one that the table has is used. */
static const char *const groupings[] = { "stack", "source", "group" };

/* The points to draw and the names of their groups. */
typedef struct
{
  GArray *points;    /* PlotAccuracyPoint */
  GPtrArray *groups; /* owns the names */
} Pairs;

static void
pairs_clear (Pairs *self)
{
  g_clear_pointer (&self->points, g_array_unref);
  g_clear_pointer (&self->groups, g_ptr_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Pairs, pairs_clear)

/* Adds a point; takes ownership of the name. */
static void
add_pair (Pairs *self, char *group, double predicted, double measured)
{
  const PlotAccuracyPoint point = { .group = group, .predicted = predicted, .measured = measured };
  g_ptr_array_add (self->groups, group);
  g_array_append_val (self->points, point);
}

/* The group of a stored run, its model and backend, as "llama-tiny, cpu". The caller frees. */
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

/* A table while it is read, and the numbers of its columns; -1: the table lacks it. */
typedef struct
{
  const char *path, *by; /* as given; `by` may be NULL */
  guint quantity;
  gboolean has_head;
  int predicted, measured, group, fitness;
  Pairs *pairs;
  GError *error; /* the first error; rows after it are skipped */
} Table;

static int
find_column (const GPtrArray *head, const char *start, const char *name)
{
  g_autofree char *whole = g_strconcat (start, name, NULL);
  for (guint i = 0; i < head->len; i++)
    if (g_strcmp0 (head->pdata[i], whole) == 0)
      return (int)i;
  return -1;
}

static gboolean
require_column (const Table *self, int column, const char *start, const char *name, GError **error)
{
  if (column < 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: its first line has no column %s%s; that of validate --rows --format=csv has "
                 "all that can be drawn",
                 self->path, start, name);
  return column >= 0;
}

static gboolean
read_head (Table *self, const GPtrArray *head, GError **error)
{
  const char *const name = quantities[self->quantity].name;
  self->has_head = TRUE;
  self->predicted = find_column (head, "predicted_", name);
  self->measured = find_column (head, "measured_", name);
  self->fitness = find_column (head, "", quantities[self->quantity].fitness);
  self->group = self->by ? find_column (head, "", self->by) : -1;
  for (guint i = 0; i < G_N_ELEMENTS (groupings) && !self->by && self->group < 0; i++)
    self->group = find_column (head, "", groupings[i]);
  return require_column (self, self->predicted, "predicted_", name, error)
         && require_column (self, self->measured, "measured_", name, error)
         && (!self->by || require_column (self, self->group, "", self->by, error));
}

static const char *
cell_at (const GPtrArray *cells, int column)
{
  const char *const cell = column >= 0 && (guint)column < cells->len ? cells->pdata[column] : NULL;
  return cell ? cell : "";
}

/* Reads a number; 0 for an empty cell. */
static gboolean
read_number (const GPtrArray *cells, int column, const char *start, const char *name,
             double *out_value, GError **error)
{
  g_autofree char *whole = g_strconcat (start, name, NULL);
  *out_value = 0;
  return *cell_at (cells, column) == '\0'
         || plan_units_parse_real (cell_at (cells, column), whole, 1e-9, 1e15, out_value, error);
}

/* Reads a row. It gives no point if a number is missing or if the row is marked as unfit. */
static gboolean
read_row (Table *self, const GPtrArray *cells, GError **error)
{
  const char *const name = quantities[self->quantity].name;
  double predicted, measured;
  if (!read_number (cells, self->predicted, "predicted_", name, &predicted, error)
      || !read_number (cells, self->measured, "measured_", name, &measured, error))
    return FALSE;
  if (predicted > 0 && measured > 0 && strcmp (cell_at (cells, self->fitness), "no") != 0)
    add_pair (self->pairs, g_strdup (cell_at (cells, self->group)), predicted, measured);
  return TRUE;
}

static void
read_record (guint64 line, GPtrArray *cells, const char *broken, gpointer user_data)
{
  Table *self = user_data;
  if (self->error)
    return;
  if (broken)
    g_set_error_literal (&self->error, PLAN_ERROR, PLAN_ERROR_INVALID, broken);
  else if (!self->has_head)
    {
      read_head (self, cells, &self->error);
      return; /* the error names the table, without a line */
    }
  else
    read_row (self, cells, &self->error);
  g_prefix_error (&self->error, "%s:%" G_GUINT64_FORMAT ": ", self->path, line);
}

static gboolean
read_table (Table *self, GError **error)
{
  g_autofree char *text = NULL;
  g_autoptr (PlanCsv) csv = plan_csv_new (read_record, self);
  if (!cli_read (self->path, &text, error))
    return FALSE;
  plan_csv_feed (csv, text, strlen (text));
  plan_csv_end (csv);
  if (!self->error && self->pairs->points->len == 0)
    g_set_error (&self->error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: no row has both a predicted and a measured %s that is fit for comparison",
                 self->path, quantities[self->quantity].name);
  if (!self->error)
    return TRUE;
  g_propagate_error (error, g_steal_pointer (&self->error));
  return FALSE;
}

/* Finds the quantity that --of names; the first one where it is absent. */
static gboolean
find_quantity (const char *name, guint *out_quantity, GError **error)
{
  const char *names[G_N_ELEMENTS (quantities) + 1] = { NULL };
  *out_quantity = 0;
  for (guint i = 0; i < G_N_ELEMENTS (quantities); i++)
    {
      names[i] = quantities[i].name;
      if (!name || strcmp (name, names[i]) != 0)
        continue;
      *out_quantity = i;
      return TRUE;
    }
  if (!name)
    return TRUE;
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_text_suggest (name, names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--of: %s is not predicted: %s", shown, hint);
  return FALSE;
}

gboolean
cli_plot_accuracy (CliPlot *self, char **out_text, GError **error)
{
  g_auto (Pairs) pairs = { .points = g_array_new (FALSE, FALSE, sizeof (PlotAccuracyPoint)),
                           .groups = g_ptr_array_new_with_free_func (g_free) };
  Table table = { .path = self->from, .by = self->by, .pairs = &pairs };
  if (!find_quantity (self->of, &table.quantity, error))
    return FALSE;
  if (!self->from && (table.quantity > 0 || self->by))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "accuracy: --of and --by are for tables: of stored runs the step time is drawn");
      return FALSE;
    }
  if (self->from ? !read_table (&table, error) : !read_runs (self->options.db, &pairs, error))
    return FALSE;
  const char *const words = quantities[table.quantity].words;
  g_autofree char *name = self->from ? g_path_get_basename (self->from) : g_strdup ("stored runs");
  g_autofree char *title
      = strcmp (name, "-") == 0 ? g_strdup (words) : g_strdup_printf ("%s of %s", words, name);
  return plot_accuracy ((const PlotAccuracyPoint *)(gpointer)pairs.points->data, pairs.points->len,
                        words, quantities[table.quantity].unit, title, self->path, out_text, error);
}
