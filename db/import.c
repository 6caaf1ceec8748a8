/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/transfer.h"

#include "db/dump-private.h"
#include "db/store-private.h"
#include "db/tables-private.h"
#include "planner/base/error.h"

#include <string.h>

/* Copies the rows whose `column` is `old`, with their first columns replaced by `first`, where 0
 * stands for NULL. */
static gboolean
copy_rows (DbStore *from, DbStore *to, const char *table, const char *column, gint64 old,
           const gint64 *first, int n_first, GError **error)
{
  g_autofree char *select = g_strdup_printf ("SELECT * FROM %s WHERE %s = ?", table, column);
  g_autoptr (GString) insert = g_string_new (NULL);
  g_auto (DbQuery) source = { 0 };
  g_auto (DbQuery) target = { 0 };
  int n_columns;

  if (!db_query_prepare (&source, from, select, error))
    return FALSE;
  n_columns = sqlite3_column_count (source.stmt);
  g_string_printf (insert, "INSERT INTO %s VALUES (?", table);
  for (int c = 1; c < n_columns; c++)
    g_string_append (insert, ", ?");
  g_string_append (insert, ")");
  if (!db_query_prepare (&target, to, insert->str, error))
    return FALSE;

  db_query_put_int (&source, old);
  while (db_query_next (&source))
    {
      for (int c = 0; c < n_columns; c++)
        if (c >= n_first)
          db_query_put_value (&target, sqlite3_column_value (source.stmt, c));
        else if (first[c])
          db_query_put_int (&target, first[c]);
        else
          db_query_put_text (&target, NULL);
      if (!db_query_run (&target, error))
        return FALSE;
    }
  return db_query_end (&source, error);
}

static gboolean
copy_trace (DbStore *from, DbStore *to, gint64 old_id, gint64 run_id, GError **error)
{
  static const char *const parts[] = { "trace_op", "trace_memory", "trace_sample" };
  const gint64 first[] = { 0, run_id };
  gint64 id;

  if (!copy_rows (from, to, "trace", "id", old_id, first, G_N_ELEMENTS (first), error))
    return FALSE;
  id = sqlite3_last_insert_rowid (to->db);
  for (guint p = 0; p < G_N_ELEMENTS (parts); p++)
    if (!copy_rows (from, to, parts[p], "trace_id", old_id, &id, 1, error))
      return FALSE;
  return TRUE;
}

/* Finds the run of that name in this store, and whether it has that trace. Runs are imported before
 * traces. */
static gboolean
find_trace (DbStore *self, const char *uid, const char *origin, gint64 rank, gint64 *out_run_id,
            gboolean *out_is_there, GError **error)
{
  g_auto (DbQuery) find = { 0 };

  if (!db_query_prepare (&find, self,
                         "SELECT run.id, trace.id IS NOT NULL FROM run LEFT JOIN trace"
                         " ON run_id = run.id AND origin = ?2 AND rank = ?3 WHERE uid = ?1",
                         error))
    return FALSE;
  db_query_put_text (&find, uid);
  db_query_put_text (&find, origin);
  db_query_put_int (&find, rank);
  while (db_query_next (&find))
    {
      *out_run_id = db_query_take_int (&find);
      *out_is_there = db_query_take_int (&find) != 0;
    }
  return db_query_end (&find, error);
}

static gboolean
copy_traces (DbStore *from, DbStore *to, DbImport *import, GError **error)
{
  g_auto (DbQuery) list = { 0 };

  db_store_doing (to, "import traces");
  if (!db_query_prepare (&list, from,
                         "SELECT trace.id, uid, origin, rank FROM trace"
                         " JOIN run ON run.id = run_id ORDER BY trace.id",
                         error))
    return FALSE;
  while (db_query_next (&list))
    {
      const gint64 id = db_query_take_int (&list);
      g_autofree char *uid = db_query_take_text (&list);
      g_autofree char *origin = db_query_take_text (&list);
      const gint64 rank = db_query_take_int (&list);
      gint64 run_id = 0;
      gboolean is_there = FALSE;

      if (!find_trace (to, uid, origin, rank, &run_id, &is_there, error)
          || (!is_there && !copy_trace (from, to, id, run_id, error)))
        return FALSE;
      import->present_traces += is_there;
      import->added_traces += !is_there;
    }
  return db_query_end (&list, error);
}

/* Raises the counters of row numbers to the other store's, so that numbers it gave to deleted rows
 * are not given again. */
static gboolean
copy_last_numbers (DbStore *from, DbStore *to, GError **error)
{
  g_auto (DbQuery) list = { 0 };
  g_auto (DbQuery) raise = { 0 };
  g_auto (DbQuery) add = { 0 };

  db_store_doing (to, "import the numbers given so far");
  if (!db_query_prepare (&list, from, "SELECT seq, name FROM sqlite_sequence", error)
      || !db_query_prepare (&raise, to,
                            "UPDATE sqlite_sequence SET seq = max (seq, ?1) WHERE name = ?2", error)
      || !db_query_prepare (&add, to,
                            "INSERT INTO sqlite_sequence (seq, name) SELECT ?1, ?2 WHERE NOT EXISTS"
                            " (SELECT 1 FROM sqlite_sequence WHERE name = ?2)",
                            error))
    return FALSE;
  while (db_query_next (&list))
    {
      const gint64 last = db_query_take_int (&list);
      g_autofree char *name = db_query_take_text (&list);

      db_query_put_int (&raise, last);
      db_query_put_text (&raise, name);
      db_query_put_int (&add, last);
      db_query_put_text (&add, name);
      if (!db_query_run (&raise, error) || !db_query_run (&add, error))
        return FALSE;
    }
  return db_query_end (&list, error);
}

static gboolean
put_tables (DbStore *self, GPtrArray *tables, const DbSource *source, DbImport *import,
            GError **error)
{
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    for (guint t = 0; t < tables->len; t++)
      {
        DbTable *table = g_ptr_array_index (tables, t);

        if (table->kind == kind
            && ((source->accepts && !source->accepts (table, source->origin, error))
                || !db_store_put_table (self, table, source->origin, &import->added[kind],
                                        &import->present[kind], error)))
          return FALSE;
      }
  return TRUE;
}

static gboolean
import_source (DbStore *self, const DbSource *source, DbImport *import, GError **error)
{
  const char *text = source->text, *origin = source->origin;
  g_autoptr (DbStore) dump = NULL;
  g_autoptr (GPtrArray) tables = NULL;

  if (!text)
    return put_tables (self, source->tables, source, import, error);
  if (g_str_has_prefix (text, DB_DUMP_MARK))
    tables
        = (dump = db_dump_load (text, origin, error)) ? db_store_read_tables (dump, error) : NULL;
  else
    tables = text[strspn (text, " \t\r\n")] == '{' ? db_tables_parse_json (text, origin, error)
                                                   : db_tables_parse_csv (text, origin, error);
  return tables && put_tables (self, tables, source, import, error)
         && (!dump
             || (copy_traces (dump, self, import, error) && copy_last_numbers (dump, self, error)));
}

gboolean
db_store_import (DbStore *self, const DbSource *sources, guint n_sources, gboolean is_dry_run,
                 DbImport *out_import, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  DbImport import = { 0 };

  db_store_doing (self, "import");
  if (!db_transaction_begin (&transaction, self, error))
    return FALSE;
  for (guint i = 0; i < n_sources; i++)
    if (!import_source (self, &sources[i], &import, error))
      return FALSE;
  db_store_doing (self, "import");
  if (!db_store_check_rows (self, error)
      || (!is_dry_run && !db_transaction_commit (&transaction, error)))
    return FALSE;
  *out_import = import;
  return TRUE;
}
