/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/runs/run-table.h"

#include "planner/base/csv.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/runs/run-private.h"

#include <string.h>

typedef enum
{
  TYPE_TEXT,
  TYPE_NAME,
  TYPE_SWITCH,
  TYPE_COUNT,
  TYPE_INT,
  TYPE_REAL,
  TYPE_USE,
} Type;

static const struct
{
  const char *name;
  Type type;
  gboolean is_needed;
} columns[] = {
#define X(id, name, type, needed) { name, TYPE_##type, needed },
  PLAN_RUN_COLUMN_LIST (X)
#undef X
};

struct _PlanRunTable
{
  char *origin;
  PlanRunFunc func;
  gpointer user_data;
  PlanCsv *csv;
  GArray *header; /* PlanRunColumn; NULL until the first line was read */
  GError *error;  /* what is wrong with that line */
  PlanRunParts parts;
  GHashTable *names; /* the row_id of every row so far */
};

const char *
plan_run_quantity_name (PlanRunQuantity quantity)
{
  static const char *const names[] = {
#define X(id, name) name,
    PLAN_RUN_QUANTITY_LIST (X)
#undef X
  };
  g_return_val_if_fail ((guint)quantity < PLAN_N_RUN_QUANTITIES, NULL);
  return names[quantity];
}

const char *
plan_run_column_name (PlanRunColumn column)
{
  g_return_val_if_fail ((guint)column < PLAN_N_RUN_COLUMNS, NULL);
  return columns[column].name;
}

gboolean
plan_run_column_parse (const char *name, PlanRunColumn *out_column, GError **error)
{
  const char *names[PLAN_N_RUN_COLUMNS + 1] = { NULL };
  for (PlanRunColumn c = 0; c < PLAN_N_RUN_COLUMNS; c++)
    {
      names[c] = columns[c].name;
      if (g_str_equal (name, names[c]))
        {
          *out_column = c;
          return TRUE;
        }
    }
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_text_suggest (name, names);
  const gboolean is_close = g_str_has_prefix (hint, "did");
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is no column of a table of runs%s%s",
               shown, is_close ? ": " : "", is_close ? hint : "");
  return FALSE;
}

void
plan_run_row_clear (PlanRunRow *self)
{
  for (PlanRunColumn c = 0; c < PLAN_N_RUN_COLUMNS; c++)
    g_free (self->cell[c]);
  g_free (self->skipped);
  g_free (self->remarks);
  *self = (PlanRunRow){ 0 };
}

char *
plan_run_row_note (const PlanRunRow *self, const char *key)
{
  const gsize length = strlen (key);
  for (const char *at = self->cell[PLAN_RUN_NOTES]; at; at = strchr (at, ';'))
    {
      while (*at == ';' || *at == ' ')
        at++;
      if (*at == *key && strncmp (at, key, length) == 0 && at[length] == '=')
        return g_strchomp (g_strndup (at + length + 1, strcspn (at + length + 1, ";")));
    }
  return NULL;
}

void
plan_run_row_skip (PlanRunRow *self, const char *format, ...)
{
  va_list args;
  if (self->skipped)
    return;
  va_start (args, format);
  self->skipped = g_strdup_vprintf (format, args);
  va_end (args);
}

void
plan_run_row_remark (PlanRunRow *self, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *more = g_strdup_vprintf (format, args);
  va_end (args);
  char *all
      = g_strjoin ("; ", self->remarks ? self->remarks : more, self->remarks ? more : NULL, NULL);
  g_free (self->remarks);
  self->remarks = all;
}

gint64
plan_run_row_int (const PlanRunRow *self, PlanRunColumn column)
{
  return self->cell[column] ? g_ascii_strtoll (self->cell[column], NULL, 10) : 0;
}

gboolean
plan_run_row_is (const PlanRunRow *self, PlanRunColumn column, const char *value)
{
  return self->cell[column] && g_str_equal (self->cell[column], value);
}

static gboolean
check_word (const char *text, const char *name, const char *a, const char *b, GError **error)
{
  if (g_str_equal (text, a) || g_str_equal (text, b))
    return TRUE;
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s must be %s, %s or empty", name, shown,
               a, b);
  return FALSE;
}

static gboolean
check_cell (PlanRunColumn column, const char *text, GError **error)
{
  const char *const name = columns[column].name;
  gint64 whole;
  double real;
  if (!g_utf8_validate (text, -1, NULL))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: this is not UTF-8 text", name);
      return FALSE;
    }
  switch (columns[column].type)
    {
    case TYPE_TEXT:
    case TYPE_NAME:
      return TRUE;
    case TYPE_SWITCH:
      return check_word (text, name, "yes", "no", error);
    case TYPE_USE:
      return check_word (text, name, "fit", "report", error);
    case TYPE_COUNT:
      return plan_units_parse_int (text, name, 0, G_MAXINT32, &whole, error);
    case TYPE_INT:
      return plan_units_parse_int (text, name, 1, G_MAXINT32, &whole, error);
    case TYPE_REAL:
      return plan_units_parse_amount (text, name, &real, error);
    }
  g_return_val_if_reached (FALSE);
}

/* Moves the cells of a line into a row, one for each column of the header. An empty cell counts as
 * not given. */
static gboolean
fill_row (PlanRunTable *self, GPtrArray *cells, PlanRunRow *row, GError **error)
{
  if (cells->len != self->header->len)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%u cells instead of %u", cells->len,
                   self->header->len);
      return FALSE;
    }
  for (guint i = 0; i < cells->len; i++)
    {
      const PlanRunColumn column = g_array_index (self->header, PlanRunColumn, i);
      g_autofree char *text = g_steal_pointer (&g_ptr_array_index (cells, i));
      if (!text || !*g_strstrip (text))
        continue;
      if (!check_cell (column, text, error))
        return FALSE;
      row->cell[column] = g_steal_pointer (&text);
    }
  for (PlanRunColumn c = PLAN_RUN_ROW_ID; c <= PLAN_RUN_SOURCE; c++)
    if (columns[c].is_needed && !row->cell[c])
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: it may not be empty",
                     columns[c].name);
        return FALSE;
      }
  return TRUE;
}

static gboolean
check_is_new (PlanRunTable *self, const PlanRunRow *row, GError **error)
{
  const char *const name = row->cell[PLAN_RUN_ROW_ID];
  const guint64 *before = g_hash_table_lookup (self->names, name);
  if (before)
    {
      g_autofree char *shown = plan_text_quote (name);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "row_id: %s is that of line %" G_GUINT64_FORMAT " already", shown, *before);
      return FALSE;
    }
  g_hash_table_insert (self->names, g_strdup (name), g_memdup2 (&row->line, sizeof row->line));
  return TRUE;
}

static double
real_of (const PlanRunRow *row, PlanRunColumn column)
{
  return row->cell[column] ? g_ascii_strtod (row->cell[column], NULL) : 0;
}

/* The time of a step: as measured, or from its tokens and their measured rate; 0: unknown. */
static double
step_ms_of (const PlanRunRow *row)
{
  const double rate = real_of (row, PLAN_RUN_TOKENS_PER_S_PER_GPU)
                      * (double)plan_run_row_int (row, PLAN_RUN_GPUS);
  const double tokens
      = (double)plan_run_row_int (row, PLAN_RUN_GBS) * (double)plan_run_row_int (row, PLAN_RUN_SEQ);
  const double ms = real_of (row, PLAN_RUN_STEP_MS);
  return ms > 0 ? ms : rate > 0 ? 1e3 * tokens / rate : 0;
}

static void
take_measured (PlanRunRow *row)
{
  row->measured[PLAN_RUN_QUANTITY_TIME] = step_ms_of (row);
  for (guint i = 0; i < 4; i++)
    row->measured[PLAN_RUN_QUANTITY_ALLOCATED + i] = real_of (row, PLAN_RUN_ALLOCATED_MIB + i);
  row->ran_out = plan_run_row_is (row, PLAN_RUN_OOM, "yes")  ? PLAN_ANSWER_YES
                 : plan_run_row_is (row, PLAN_RUN_OOM, "no") ? PLAN_ANSWER_NO
                                                             : PLAN_ANSWER_UNKNOWN;
  row->is_for_fitting = plan_run_row_is (row, PLAN_RUN_USE, "fit");
  row->time_ok
      = !plan_run_row_is (row, PLAN_RUN_TIME_OK, "no") && row->measured[PLAN_RUN_QUANTITY_TIME] > 0;
  row->memory_ok = !plan_run_row_is (row, PLAN_RUN_MEMORY_OK, "no");
  row->is_tiny
      = row->cell[PLAN_RUN_QUALITY] && g_str_has_suffix (row->cell[PLAN_RUN_QUALITY], "-tiny");
}

static void
tell_wrong (PlanRunTable *self, guint64 line, const char *what)
{
  g_autofree char *text
      = g_strdup_printf ("%s:%" G_GUINT64_FORMAT ": %s", self->origin, line, what);
  self->func (NULL, text, self->user_data);
}

static void
read_row (PlanRunTable *self, guint64 line, GPtrArray *cells)
{
  g_auto (PlanRunRow) row = { .line = line };
  g_autoptr (GError) error = NULL;
  if (!fill_row (self, cells, &row, &error))
    {
      tell_wrong (self, line, error->message);
      return;
    }
  take_measured (&row);
  if (check_is_new (self, &row, &error) && plan_run_row_interpret (&row, &self->parts, &error))
    self->func (&row, NULL, self->user_data);
  else
    tell_wrong (self, line, error->message);
}

void
plan_run_table_add (PlanRunTable *self, PlanRunRow *row, const char *model, const char *cluster,
                    const char *plan)
{
  g_auto (PlanRunRow) own = *row;
  g_autoptr (GError) error = NULL;
  *row = (PlanRunRow){ 0 };
  take_measured (&own);
  if (plan_run_row_read_texts (&own, &self->parts, model, cluster, plan, &error))
    self->func (&own, NULL, self->user_data);
  else
    tell_wrong (self, own.line, error->message);
}

/* Reads the first line, which names the columns. Nothing can be read where it is wrong. */
static gboolean
read_header (GPtrArray *cells, GArray *header, GError **error)
{
  gboolean seen[PLAN_N_RUN_COLUMNS] = { FALSE };
  for (guint i = 0; i < cells->len; i++)
    {
      const char *const name = g_ptr_array_index (cells, i);
      PlanRunColumn column;
      if (!plan_run_column_parse (name ? name : "", &column, error))
        return FALSE;
      if (seen[column])
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "column %s is there twice", name);
          return FALSE;
        }
      seen[column] = TRUE;
      g_array_append_val (header, column);
    }
  for (PlanRunColumn c = 0; c < PLAN_N_RUN_COLUMNS; c++)
    if (columns[c].is_needed && !seen[c])
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "a table of runs needs the column %s, which is not here", columns[c].name);
        return FALSE;
      }
  return TRUE;
}

static void
take_record (guint64 line, GPtrArray *cells, const char *broken, gpointer user_data)
{
  PlanRunTable *self = user_data;
  if (self->error)
    return;
  if (self->header && broken)
    tell_wrong (self, line, broken);
  else if (self->header)
    read_row (self, line, cells);
  else
    {
      self->header = g_array_new (FALSE, FALSE, sizeof (PlanRunColumn));
      if (broken)
        g_set_error_literal (&self->error, PLAN_ERROR, PLAN_ERROR_INVALID, broken);
      else
        read_header (cells, self->header, &self->error);
      if (self->error)
        g_prefix_error (&self->error, "%s:%" G_GUINT64_FORMAT ": ", self->origin, line);
    }
}

static void
free_model (gpointer model)
{
  plan_model_free (model);
}

static void
free_cluster (gpointer cluster)
{
  plan_cluster_free (cluster);
}

PlanRunTable *
plan_run_table_new (const char *origin, PlanRunFunc func, gpointer user_data)
{
  PlanRunTable *self = g_new0 (PlanRunTable, 1);
  self->origin = g_strdup (origin);
  self->func = func;
  self->user_data = user_data;
  self->csv = plan_csv_new (take_record, self);
  self->parts.models = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, free_model);
  self->parts.clusters = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, free_cluster);
  self->names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  return self;
}

void
plan_run_table_free (PlanRunTable *self)
{
  if (!self)
    return;
  plan_csv_free (self->csv);
  g_clear_pointer (&self->header, g_array_unref);
  g_clear_error (&self->error);
  g_hash_table_unref (self->parts.models);
  g_hash_table_unref (self->parts.clusters);
  g_hash_table_unref (self->names);
  g_free (self->origin);
  g_free (self);
}

static gboolean
check_header (PlanRunTable *self, GError **error)
{
  if (self->error)
    g_propagate_error (error, g_error_copy (self->error));
  return !self->error;
}

gboolean
plan_run_table_feed (PlanRunTable *self, const char *text, gsize length, GError **error)
{
  plan_csv_feed (self->csv, text, length);
  return check_header (self, error);
}

gboolean
plan_run_table_end (PlanRunTable *self, GError **error)
{
  plan_csv_end (self->csv);
  if (!self->header && !self->error)
    g_set_error (&self->error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: this is empty; the first line of a table of runs names its columns",
                 self->origin);
  return check_header (self, error);
}
