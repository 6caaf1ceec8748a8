/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/dump-private.h"

#include "db/store-private.h"
#include "db/transfer.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <math.h>
#include <string.h>

/* Appends a value as SQL that reads back exactly. */
static void
append_literal (GString *sql, sqlite3_stmt *stmt, int column)
{
  g_autofree char *real = NULL;

  switch (sqlite3_column_type (stmt, column))
    {
    case SQLITE_INTEGER:
      g_string_append_printf (sql, "%" G_GINT64_FORMAT,
                              (gint64)sqlite3_column_int64 (stmt, column));
      return;
    case SQLITE_FLOAT:
      if (isinf (sqlite3_column_double (stmt, column))) /* SQL has no literal for infinity */
        g_string_append (sql, sqlite3_column_double (stmt, column) > 0 ? "9e999" : "-9e999");
      else
        {
          real = plan_units_format_real (sqlite3_column_double (stmt, column));
          g_string_append (sql, real);
        }
      return;
    case SQLITE_TEXT:
      g_string_append_c (sql, '\'');
      for (const char *c = (const char *)sqlite3_column_text (stmt, column); *c; c++)
        g_string_append_len (sql, *c == '\'' ? "''" : c, *c == '\'' ? 2 : 1);
      g_string_append_c (sql, '\'');
      return;
    default:
      g_string_append (sql, "NULL");
      return;
    }
}

static gboolean
dump_rows (DbStore *self, const char *table, DbSink sink, gpointer user_data, GError **error)
{
  g_autofree char *select = g_strdup_printf ("SELECT * FROM %s", table);
  g_autoptr (GString) sql = g_string_new (NULL);
  g_auto (DbQuery) rows = { 0 };

  if (!db_query_prepare (&rows, self, select, error))
    return FALSE;
  while (db_query_next (&rows))
    {
      g_string_printf (sql, "INSERT INTO %s VALUES (", table);
      for (int c = 0; c < sqlite3_column_count (rows.stmt); c++)
        {
          g_string_append (sql, c ? ", " : "");
          append_literal (sql, rows.stmt, c);
        }
      g_string_append (sql, ");\n");
      sink (sql->str, user_data);
    }
  return db_query_end (&rows, error);
}

/* Dumps tables with their rows, as they were made, or the triggers and indices. */
static gboolean
dump_objects (DbStore *self, gboolean is_table, DbSink sink, gpointer user_data, GError **error)
{
  g_auto (DbQuery) objects = { 0 };

  if (!db_query_prepare (&objects, self,
                         "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
                         " AND name NOT LIKE 'sqlite_%' AND (type = 'table') = ? ORDER BY rowid",
                         error))
    return FALSE;
  db_query_put_int (&objects, is_table);
  while (db_query_next (&objects))
    {
      g_autofree char *name = db_query_take_text (&objects);
      g_autofree char *sql = db_query_take_text (&objects);

      sink (sql, user_data);
      sink (";\n", user_data);
      if (is_table && !dump_rows (self, name, sink, user_data, error))
        return FALSE;
    }
  return db_query_end (&objects, error);
}

static gboolean
dump (DbStore *self, DbSink sink, gpointer user_data, GError **error)
{
  gint64 application, version;
  g_autofree char *head = NULL;

  if (!db_store_read_int (self, "PRAGMA application_id", &application, error)
      || !db_store_read_int (self, "PRAGMA user_version", &version, error))
    return FALSE;
  head = g_strdup_printf (DB_DUMP_MARK " %" G_GINT64_FORMAT "\n"
                                       "PRAGMA foreign_keys = OFF;\nBEGIN;\n"
                                       "PRAGMA application_id = %" G_GINT64_FORMAT ";\n"
                                       "PRAGMA user_version = %" G_GINT64_FORMAT ";\n",
                          version, application, version);
  sink (head, user_data);
  if (!dump_objects (self, TRUE, sink, user_data, error))
    return FALSE;
  sink ("DELETE FROM sqlite_sequence;\n", user_data); /* the counters of row numbers */
  if (!dump_rows (self, "sqlite_sequence", sink, user_data, error)
      || !dump_objects (self, FALSE, sink, user_data, error))
    return FALSE;
  sink ("COMMIT;\n", user_data);
  return TRUE;
}

gboolean
db_store_dump (DbStore *self, DbSink sink, gpointer user_data, GError **error)
{
  gboolean ok;

  db_store_doing (self, "export the store");
  if (!db_store_exec (self, "BEGIN", error))
    return FALSE;
  ok = dump (self, sink, user_data, error);
  sqlite3_exec (self->db, "ROLLBACK", NULL, NULL, NULL);
  return ok;
}

/* SQLite's authoriser: allows what a dump does and nothing else, since a dump may come from
 * anywhere. */
static int
allow_dump (void *user_data, int action, const char *first, const char *second,
            const char *database, const char *trigger)
{
  static const char *const pragmas[] = { "foreign_keys", "application_id", "user_version", NULL };
  static const char *const functions[] = { "like", "coalesce", NULL };

  switch (action)
    {
    case SQLITE_CREATE_TABLE:
    case SQLITE_CREATE_INDEX:
    case SQLITE_CREATE_TRIGGER:
    case SQLITE_INSERT:
    case SQLITE_READ:
    case SQLITE_REINDEX:
    case SQLITE_SELECT:
    case SQLITE_TRANSACTION:
      return SQLITE_OK;
    case SQLITE_UPDATE: /* SQLite itself updates its list of tables */
      return strcmp (first, "sqlite_master") == 0 ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_DELETE:
      return strcmp (first, "sqlite_sequence") == 0 ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_PRAGMA:
      return g_strv_contains (pragmas, first) ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_FUNCTION:
      return g_strv_contains (functions, second) ? SQLITE_OK : SQLITE_DENY;
    default:
      return SQLITE_DENY;
    }
}

static guint
count_lines (const char *from, const char *to)
{
  guint n = 0;

  for (; from < to; from++)
    n += *from == '\n';
  return n;
}

/* The beginning of the next statement, for its line number. */
static const char *
skip_comments (const char *text)
{
  text += strspn (text, " \t\r\n");
  while (g_str_has_prefix (text, "--"))
    {
      text += strcspn (text, "\n");
      text += strspn (text, " \t\r\n");
    }
  return text;
}

static gboolean
run_statements (DbStore *self, const char *text, GError **error)
{
  const char *rest = text;

  while (*rest)
    {
      const char *statement = skip_comments (rest);
      g_auto (DbQuery) query = { .store = self };

      query.code = sqlite3_prepare_v2 (self->db, statement, -1, &query.stmt, &rest);
      if (query.code == SQLITE_OK && query.stmt && db_query_run (&query, NULL))
        continue;
      if (query.code == SQLITE_OK && !query.stmt) /* only blanks and comments are left */
        continue;
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %s", self->path,
                   1 + count_lines (text, statement), sqlite3_errmsg (self->db));
      return FALSE;
    }
  if (sqlite3_get_autocommit (self->db))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: the dump breaks off after line %u",
               self->path, count_lines (text, text + strlen (text)));
  return FALSE;
}

DbStore *
db_dump_load (const char *text, const char *origin, GError **error)
{
  g_autoptr (DbStore) self = db_store_new_empty (origin, error);
  g_autoptr (GPtrArray) faults = NULL;
  gint64 version;

  if (!self)
    return NULL;
  db_store_doing (self, "read the dump");
  sqlite3_set_authorizer (self->db, allow_dump, NULL);
  if (!run_statements (self, text, error))
    return NULL;
  sqlite3_set_authorizer (self->db, NULL, NULL);
  if (!db_store_read_int (self, "PRAGMA user_version", &version, error))
    return NULL;
  if (version == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: there is no store in this dump",
                   origin);
      return NULL;
    }
  if (!db_store_migrate (self, error) || !(faults = db_store_list_faults (self, error)))
    return NULL;
  if (faults->len)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s", origin,
                   (const char *)g_ptr_array_index (faults, 0));
      return NULL;
    }
  return g_steal_pointer (&self);
}
