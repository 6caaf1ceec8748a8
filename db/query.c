/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/store-private.h"

#include <math.h>

gboolean
db_query_prepare (DbQuery *self, DbStore *store, const char *sql, GError **error)
{
  self->store = store;
  self->next = 0;
  self->code = sqlite3_prepare_v2 (store->db, sql, -1, &self->stmt, NULL);
  return self->code == SQLITE_OK || db_set_error (store, self->code, error);
}

void
db_query_clear (DbQuery *self)
{
  sqlite3_finalize (self->stmt);
  self->stmt = NULL;
}

static void
note_put (DbQuery *self, int code)
{
  if (self->code == SQLITE_OK)
    self->code = code;
}

void
db_query_put_int (DbQuery *self, gint64 value)
{
  note_put (self, sqlite3_bind_int64 (self->stmt, ++self->next, value));
}

void
db_query_put_real (DbQuery *self, double value)
{
  note_put (self, sqlite3_bind_double (self->stmt, ++self->next, value));
}

void
db_query_put_text (DbQuery *self, const char *value)
{
  note_put (self, sqlite3_bind_text (self->stmt, ++self->next, value, -1, SQLITE_STATIC));
}

void
db_query_put_value (DbQuery *self, const sqlite3_value *value)
{
  note_put (self, sqlite3_bind_value (self->stmt, ++self->next, value));
}

gboolean
db_query_next (DbQuery *self)
{
  if (self->code == SQLITE_OK || self->code == SQLITE_ROW)
    self->code = sqlite3_step (self->stmt);
  self->next = 0;
  return self->code == SQLITE_ROW;
}

gboolean
db_query_end (DbQuery *self, GError **error)
{
  gboolean done = self->code == SQLITE_DONE || db_set_error (self->store, self->code, error);

  /* returns again the error that was just reported, if any */
  sqlite3_reset (self->stmt);
  self->code = SQLITE_OK;
  self->next = 0;
  return done;
}

gboolean
db_query_run (DbQuery *self, GError **error)
{
  db_query_next (self);
  return db_query_end (self, error);
}

gint64
db_query_take_int (DbQuery *self)
{
  return sqlite3_column_int64 (self->stmt, self->next++);
}

double
db_query_take_real (DbQuery *self)
{
  int column = self->next++;

  /* SQLite stores NULL for NaN */
  return sqlite3_column_type (self->stmt, column) == SQLITE_NULL
             ? (double)NAN
             : sqlite3_column_double (self->stmt, column);
}

char *
db_query_take_text (DbQuery *self)
{
  return g_strdup ((const char *)sqlite3_column_text (self->stmt, self->next++));
}

gboolean
db_transaction_begin (DbTransaction *self, DbStore *store, GError **error)
{
  /* Takes the write lock now, where SQLite can still wait for it. Two transactions that begin by
   * reading and then both want to write cannot wait; one of them would fail. */
  if (!db_store_exec (store, "BEGIN IMMEDIATE", error))
    return FALSE;
  self->store = store;
  return TRUE;
}

gboolean
db_transaction_commit (DbTransaction *self, GError **error)
{
  if (!db_store_exec (self->store, "COMMIT", error))
    return FALSE;
  self->store = NULL;
  return TRUE;
}

void
db_transaction_clear (DbTransaction *self)
{
  /* after some errors SQLite has rolled back already */
  if (self->store && !sqlite3_get_autocommit (self->store->db))
    sqlite3_exec (self->store->db, "ROLLBACK", NULL, NULL, NULL);
  self->store = NULL;
}

gboolean
db_store_read_int (DbStore *self, const char *sql, gint64 *out_value, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  gint64 value = 0;

  if (!db_query_prepare (&query, self, sql, error))
    return FALSE;
  while (db_query_next (&query))
    value = db_query_take_int (&query);
  if (!db_query_end (&query, error))
    return FALSE;
  *out_value = value;
  return TRUE;
}

/* A random name. SQLite's generator notices a fork; GLib's would give all children the same. */
char *
db_random_uid (void)
{
  guint32 parts[4];

  sqlite3_randomness (sizeof parts, parts);
  return g_strdup_printf ("%08x%08x%08x%08x", parts[0], parts[1], parts[2], parts[3]);
}
