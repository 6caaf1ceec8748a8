/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/tables-private.h"

#include "planner/error.h"
#include "planner/text.h"
#include "planner/units.h"

#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>

/* The column of that name, or the number of columns. */
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

/* A reader of RFC 4180. */
typedef struct
{
  const char *at, *origin;
  guint line;
} CsvReader;

static gboolean
refuse_csv (const CsvReader *self, const char *what, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %s", self->origin, self->line, what);
  return FALSE;
}

static gboolean
ends_cell (char c)
{
  return c == '\0' || c == ',' || c == '\n' || c == '\r';
}

/* Quoted cells are there even when empty; what is between two commas is not. */
static gboolean
read_cell (CsvReader *self, char **out_cell, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);

  if (*self->at != '"')
    {
      const char *start = self->at;

      while (!ends_cell (*self->at))
        if (*self->at++ == '"')
          return refuse_csv (self, "a quote within a cell that does not begin with one", error);
      *out_cell = self->at > start ? g_strndup (start, (gsize)(self->at - start)) : NULL;
      return TRUE;
    }
  for (self->at++; *self->at != '"' || self->at[1] == '"'; self->at++)
    {
      if (*self->at == '\0')
        return refuse_csv (self, "a quoted cell does not end", error);
      self->line += *self->at == '\n';
      g_string_append_c (text, *self->at);
      self->at += *self->at == '"'; /* the second of two */
    }
  if (!ends_cell (*++self->at))
    return refuse_csv (self, "a quoted cell goes on after its end", error);
  *out_cell = g_string_free (g_steal_pointer (&text), FALSE);
  return TRUE;
}

/* One line of cells; elements are char *, or NULL. */
static GPtrArray *
read_record (CsvReader *self, GError **error)
{
  g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
  gboolean goes_on = TRUE;

  while (goes_on)
    {
      char *cell = NULL;

      if (!read_cell (self, &cell, error))
        return NULL;
      g_ptr_array_add (cells, cell);
      goes_on = *self->at == ',';
      self->at += goes_on;
    }
  if (*self->at == '\r')
    self->at++;
  if (*self->at == '\n')
    {
      self->at++;
      self->line++;
    }
  else if (*self->at)
    {
      refuse_csv (self, "a carriage return within a line", error);
      return NULL;
    }
  return g_steal_pointer (&cells);
}

/* The kind that has just these columns; DB_N_KINDS: none. */
static DbKind
kind_of_header (const GPtrArray *header)
{
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    {
      guint n_known = 0;

      for (guint i = 0; i < header->len; i++)
        {
          const char *name = g_ptr_array_index (header, i);

          n_known += name && find_column (kind, name) < db_kind_n_columns (kind);
        }
      if (n_known == header->len && header->len == db_kind_n_columns (kind))
        return kind;
    }
  return DB_N_KINDS;
}

GPtrArray *
db_tables_parse_csv (const char *text, const char *origin, GError **error)
{
  CsvReader reader = { .at = text, .origin = origin, .line = 1 };
  g_autoptr (GPtrArray) header = read_record (&reader, error);
  g_autoptr (GPtrArray) tables = tables_new ();
  DbTable *table;
  DbKind kind;

  if (!header)
    return NULL;
  kind = kind_of_header (header);
  if (kind == DB_N_KINDS)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s:1: these are the columns of nothing that db export writes", origin);
      return NULL;
    }
  table = db_table_new (kind);
  g_ptr_array_add (tables, table);
  while (*reader.at)
    {
      const guint line = reader.line;
      g_autoptr (GPtrArray) record = read_record (&reader, error);
      g_autofree char **row = g_new0 (char *, header->len);

      if (!record)
        return NULL;
      if (record->len != header->len)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %u cells instead of %u",
                       origin, line, record->len, header->len);
          return NULL;
        }
      for (guint i = 0; i < header->len; i++)
        row[find_column (kind, g_ptr_array_index (header, i))]
            = g_steal_pointer (&g_ptr_array_index (record, i));
      add_row (table, row, line);
    }
  return g_steal_pointer (&tables);
}

/* JSON objects do not know where they were; the parser does, when it has just read one. */
typedef struct
{
  GHashTable *lines; /* JsonObject -> where it begins */
  GArray *open;      /* where those begin that have not ended */
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

/* FALSE: no cell can be made of it. */
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
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     c < n_columns ? "%s:%u: %s is neither a number nor a text"
                                   : "%s:%u: '%s' is no column here",
                     origin, line, name);
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
  g_autoptr (GError) why = NULL;
  JsonNode *root;

  g_signal_connect (parser, "object-start", G_CALLBACK (object_begins), &lines);
  g_signal_connect (parser, "object-end", G_CALLBACK (object_ends), &lines);
  if (!json_parser_load_from_data (parser, text, -1, &why))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s", origin, why->message);
      return NULL;
    }
  root = json_parser_get_root (parser);
  if (!root || !JSON_NODE_HOLDS_OBJECT (root))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: is no JSON object", origin);
      return NULL;
    }
  return read_members (json_node_get_object (root), &lines, origin, error);
}
