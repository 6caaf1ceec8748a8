/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/tables-private.h"

#include "planner/base/csv.h"
#include "planner/base/error.h"
#include "planner/base/json.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>

/* The index of a column; the number of columns where there is none of that name. */
static guint
find_column (DbKind kind, const char *name)
{
  guint c = 0;

  while (c < db_kind_n_columns (kind) && strcmp (db_kind_column_name (kind, c), name) != 0)
    c++;
  return c;
}

static void
add_row (DbTable *table, char **cells, guint line)
{
  for (guint c = 0; c < db_kind_n_columns (table->kind); c++)
    g_ptr_array_add (table->cells, g_steal_pointer (&cells[c]));
  g_array_append_val (table->lines, line);
}

static GPtrArray *
tables_new (void)
{
  return g_ptr_array_new_with_free_func ((GDestroyNotify)db_table_free);
}

static gboolean
has_name (const GPtrArray *header, const char *name)
{
  for (guint i = 0; i < header->len; i++)
    if (g_strcmp0 (g_ptr_array_index (header, i), name) == 0)
      return TRUE;
  return FALSE;
}

/* Whether exports of older versions may lack a column. */
static gboolean
may_lack (DbKind kind, const char *name)
{
  return kind == DB_KIND_STEPS && strcmp (name, "eval_loss") == 0; /* until version 4 */
}

/* The kind with exactly these columns, each once; DB_N_KINDS: none. */
static DbKind
kind_of_header (const GPtrArray *header)
{
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    {
      guint n_found = 0;
      gboolean has_all = TRUE;

      for (guint c = 0; c < db_kind_n_columns (kind); c++)
        {
          const char *name = db_kind_column_name (kind, c);
          const gboolean is_there = has_name (header, name);

          n_found += is_there;
          has_all = has_all && (is_there || may_lack (kind, name));
        }
      if (n_found == header->len && has_all)
        return kind;
    }
  return DB_N_KINDS;
}

/* A CSV table while it is read. */
typedef struct
{
  const char *origin;
  GArray *columns; /* guint: the column of each cell; NULL until the first line was read */
  DbTable *table;
  GError *error; /* the first error; nothing is read after it */
} CsvReader;

static void
take_header (CsvReader *self, guint64 line, GPtrArray *cells)
{
  const DbKind kind = kind_of_header (cells);

  if (kind == DB_N_KINDS)
    {
      g_set_error (&self->error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s:%" G_GUINT64_FORMAT
                   ": these are the columns of nothing that db export writes",
                   self->origin, line);
      return;
    }
  self->table = db_table_new (kind);
  self->columns = g_array_new (FALSE, FALSE, sizeof (guint));
  for (guint i = 0; i < cells->len; i++)
    {
      const guint column = find_column (kind, g_ptr_array_index (cells, i));

      g_array_append_val (self->columns, column);
    }
}

static void
take_record (guint64 line, GPtrArray *cells, const char *broken, gpointer user_data)
{
  CsvReader *self = user_data;

  if (self->error)
    return;
  if (broken)
    g_set_error (&self->error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%" G_GUINT64_FORMAT ": %s",
                 self->origin, line, broken);
  else if (!self->table)
    take_header (self, line, cells);
  else if (cells->len != self->columns->len)
    g_set_error (&self->error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s:%" G_GUINT64_FORMAT ": %u cells instead of %u", self->origin, line, cells->len,
                 self->columns->len);
  else
    {
      g_autofree char **row = g_new0 (char *, db_kind_n_columns (self->table->kind));

      for (guint i = 0; i < cells->len; i++)
        row[g_array_index (self->columns, guint, i)]
            = g_steal_pointer (&g_ptr_array_index (cells, i));
      add_row (self->table, row, (guint)line);
    }
}

GPtrArray *
db_tables_parse_csv (const char *text, const char *origin, GError **error)
{
  CsvReader reader = { .origin = origin };
  g_autoptr (PlanCsv) csv = plan_csv_new (take_record, &reader);
  g_autoptr (GPtrArray) tables = tables_new ();

  plan_csv_feed (csv, text, strlen (text));
  plan_csv_end (csv);
  if (!reader.table && !reader.error)
    g_set_error (&reader.error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s:1: these are the columns of nothing that db export writes", origin);
  g_clear_pointer (&reader.columns, g_array_unref);
  if (reader.table)
    g_ptr_array_add (tables, reader.table);
  if (!reader.error)
    return g_steal_pointer (&tables);
  g_propagate_error (error, reader.error);
  return NULL;
}

/* The lines on which JSON objects begin. Objects do not know their line, but the parser does when
 * it has just read one. */
typedef struct
{
  GHashTable *lines; /* JsonObject -> line on which it begins */
  GArray *open;      /* lines on which the open objects begin */
} JsonLines;

static void
object_begins (JsonParser *parser, gpointer user_data)
{
  const JsonLines *self = user_data;
  const guint line = json_parser_get_current_line (parser);

  g_array_append_val (self->open, line);
}

static void
object_ends (JsonParser *parser, JsonObject *object, gpointer user_data)
{
  const JsonLines *self = user_data;
  const guint line = g_array_index (self->open, guint, self->open->len - 1);

  g_array_set_size (self->open, self->open->len - 1);
  g_hash_table_insert (self->lines, object, GUINT_TO_POINTER (line));
}

/* Converts a JSON value to a cell; FALSE where that is not possible. */
static gboolean
cell_of_node (JsonNode *node, char **out_cell)
{
  double real;

  *out_cell = NULL;
  if (JSON_NODE_HOLDS_NULL (node))
    return TRUE;
  if (!JSON_NODE_HOLDS_VALUE (node) || json_node_get_value_type (node) == G_TYPE_BOOLEAN)
    return FALSE;
  if (json_node_get_value_type (node) == G_TYPE_STRING)
    *out_cell = g_strdup (json_node_get_string (node));
  else if (json_node_get_value_type (node) == G_TYPE_INT64)
    *out_cell = g_strdup_printf ("%" G_GINT64_FORMAT, json_node_get_int (node));
  else
    {
      real = json_node_get_double (node);
      *out_cell = isfinite (real) ? plan_units_format_real (real) : g_strdup ("inf");
    }
  return TRUE;
}

static gboolean
read_object (DbTable *table, JsonObject *object, guint line, const char *origin, GError **error)
{
  const guint n_columns = db_kind_n_columns (table->kind);
  g_autofree char **row = g_new0 (char *, n_columns);
  JsonObjectIter iter;
  const char *name;
  JsonNode *node;
  gboolean ok = TRUE;

  json_object_iter_init (&iter, object);
  while (ok && json_object_iter_next (&iter, &name, &node))
    {
      const guint c = find_column (table->kind, name);

      ok = c < n_columns && cell_of_node (node, &row[c]);
      if (!ok)
        {
          g_autofree char *shown = plan_text_quote (name);

          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       c < n_columns ? "%s:%u: %s is neither a number nor a text"
                                     : "%s:%u: %s is no column here",
                       origin, line, c < n_columns ? name : shown);
        }
    }
  if (ok)
    add_row (table, row, line);
  for (guint c = 0; c < n_columns; c++)
    g_free (row[c]);
  return ok;
}

static DbTable *
read_member (const char *name, JsonNode *node, const JsonLines *lines, const char *origin,
             GError **error)
{
  g_autoptr (DbTable) table = NULL;
  DbKind kind;

  if (!db_kind_parse (name, &kind, error))
    {
      g_prefix_error (error, "%s: ", origin);
      return NULL;
    }
  table = db_table_new (kind);
  for (guint i = 0;
       JSON_NODE_HOLDS_ARRAY (node) && i < json_array_get_length (json_node_get_array (node)); i++)
    {
      JsonNode *element = json_array_get_element (json_node_get_array (node), i);
      JsonObject *object = JSON_NODE_HOLDS_OBJECT (element) ? json_node_get_object (element) : NULL;

      if (!object)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s[%u] is no object", origin,
                       name, i);
          return NULL;
        }
      if (!read_object (table, object,
                        GPOINTER_TO_UINT (g_hash_table_lookup (lines->lines, object)), origin,
                        error))
        return NULL;
    }
  if (!JSON_NODE_HOLDS_ARRAY (node))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s is no array", origin, name);
      return NULL;
    }
  return g_steal_pointer (&table);
}

/* Older versions are read, too, as members have kept their names. */
static gboolean
check_version (JsonNode *node, const char *origin, GError **error)
{
  const gboolean is_number
      = JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_INT64;
  if (is_number && json_node_get_int (node) >= 1 && json_node_get_int (node) <= PLAN_JSON_VERSION)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "%s: " PLAN_JSON_VERSION_NAME
               " is none of 1 to %d, which this program reads; a newer "
               "one wrote it",
               origin, PLAN_JSON_VERSION);
  return FALSE;
}

static GPtrArray *
read_members (JsonObject *root, const JsonLines *lines, const char *origin, GError **error)
{
  g_autoptr (GPtrArray) tables = tables_new ();
  JsonObjectIter iter;
  const char *name;
  JsonNode *node;

  json_object_iter_init (&iter, root);
  while (json_object_iter_next (&iter, &name, &node))
    {
      if (strcmp (name, PLAN_JSON_VERSION_NAME) == 0)
        {
          if (!check_version (node, origin, error))
            return NULL;
          continue;
        }
      DbTable *table = read_member (name, node, lines, origin, error);

      if (!table)
        return NULL;
      g_ptr_array_add (tables, table);
    }
  return g_steal_pointer (&tables);
}

GPtrArray *
db_tables_parse_json (const char *text, const char *origin, GError **error)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autoptr (GHashTable) objects = g_hash_table_new (NULL, NULL);
  g_autoptr (GArray) open = g_array_new (FALSE, FALSE, sizeof (guint));
  JsonLines lines = { .lines = objects, .open = open };
  JsonObject *root;

  g_signal_connect (parser, "object-start", G_CALLBACK (object_begins), &lines);
  g_signal_connect (parser, "object-end", G_CALLBACK (object_ends), &lines);
  root = plan_json_load (parser, text, origin, error);
  return root ? read_members (root, &lines, origin, error) : NULL;
}
