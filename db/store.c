/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/store-private.h"

#include "planner/error.h"

#include <errno.h>
#include <math.h>

/* Tells our files from other people's: "fspl". */
#define APPLICATION_ID 0x6673706C

/* Writers wait for one another. The longest transaction, a trace, takes well under a second, also
 * on a slow network folder: whoever waits this long waits for something that hangs. */
#define BUSY_TIMEOUT_MS 30000

/* Entry i takes a store from version i to i + 1. Stores out there were made by these texts: what
 * was released is never changed, and news go last. */
static const char *const migrations[] = {
#include "db/schema.sql.inc"
};

#define LATEST_VERSION ((gint64)G_N_ELEMENTS (migrations))

void
db_store_doing (DbStore *self, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  g_free (self->doing);
  self->doing = g_strdup_vprintf (format, args);
  va_end (args);
}

static PlanErrorCode
error_code (int code)
{
  switch (code & 0xff) /* extended codes keep the plain one there */
    {
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
    case SQLITE_FULL:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return PLAN_ERROR_IO;
    case SQLITE_CORRUPT:
      return PLAN_ERROR_CORRUPT;
    case SQLITE_CONSTRAINT: /* what was handed in breaks a rule of the schema */
    case SQLITE_NOTADB:
      return PLAN_ERROR_INVALID;
    default:
      return PLAN_ERROR_BACKEND;
    }
}

gboolean
db_set_error (DbStore *self, int code, GError **error)
{
  int plain = code & 0xff;
  gboolean asked_system = plain == SQLITE_CANTOPEN || plain == SQLITE_IOERR;

  /* The system knows more than "unable to open database file". */
  int system_error = asked_system && self->db ? sqlite3_system_errno (self->db) : 0;

  g_set_error (error, PLAN_ERROR, error_code (code), "%s: cannot %s: %s%s%s", self->path,
               self->doing, self->db ? sqlite3_errmsg (self->db) : sqlite3_errstr (code),
               system_error ? ": " : "", system_error ? g_strerror (system_error) : "");
  return FALSE;
}

gboolean
db_store_exec (DbStore *self, const char *sql, GError **error)
{
  int code = sqlite3_exec (self->db, sql, NULL, NULL, NULL);

  return code == SQLITE_OK || db_set_error (self, code, error);
}

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

  /* Repeats the code that was just reported, if any. */
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

  /* SQLite has no NaN: it stores NULL instead. */
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
  /* Takes the write lock now, where SQLite can still wait for it: two transactions that begin by
   * reading and both come to write cannot, and one of them would fail. */
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
  /* Some errors have rolled back already; then this one has nothing to do. */
  if (self->store && !sqlite3_get_autocommit (self->store->db))
    sqlite3_exec (self->store->db, "ROLLBACK", NULL, NULL, NULL);
  self->store = NULL;
}

static gboolean
read_int (DbStore *self, const char *sql, gint64 *out_value, GError **error)
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

/* Version of the file, 0 for one that is still empty; an error for a file that is not ours. To be
 * called in a transaction, so that the three answers are about one moment. */
static gboolean
read_version (DbStore *self, gint64 *out_version, GError **error)
{
  gint64 application, version, objects;

  if (!read_int (self, "PRAGMA application_id", &application, error)
      || !read_int (self, "PRAGMA user_version", &version, error)
      || !read_int (self, "SELECT count (*) FROM sqlite_schema", &objects, error))
    return FALSE;

  if (application == 0 && version == 0 && objects == 0)
    {
      *out_version = 0;
      return TRUE;
    }
  if (application != APPLICATION_ID)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: cannot %s: it is a database of another program", self->path, self->doing);
      return FALSE;
    }
  if (version < 1)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
                   "%s: cannot %s: its version is %" G_GINT64_FORMAT, self->path, self->doing,
                   version);
      return FALSE;
    }
  if (version > LATEST_VERSION)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "%s: cannot %s: it is of version %" G_GINT64_FORMAT
                   ", this program knows up to %" G_GINT64_FORMAT,
                   self->path, self->doing, version, LATEST_VERSION);
      return FALSE;
    }
  *out_version = version;
  return TRUE;
}

static gboolean
look (DbStore *self, gint64 *out_version, GError **error)
{
  gboolean ok;

  if (!db_store_exec (self, "BEGIN", error))
    return FALSE;
  ok = read_version (self, out_version, error);
  sqlite3_exec (self->db, "ROLLBACK", NULL, NULL, NULL);
  return ok;
}

static gboolean
migrate (DbStore *self, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  g_autofree char *mark = NULL;
  gint64 version;

  /* Looks without a write lock first: most stores are what they should be. */
  if (!look (self, &version, error))
    return FALSE;
  if (version == LATEST_VERSION)
    return TRUE;

  /* Somebody else may have migrated in between. */
  if (!db_transaction_begin (&transaction, self, error) || !read_version (self, &version, error))
    return FALSE;
  for (; version < LATEST_VERSION; version++)
    if (!db_store_exec (self, migrations[version], error))
      return FALSE;

  mark = g_strdup_printf ("PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID,
                          (int)LATEST_VERSION);
  return db_store_exec (self, mark, error) && db_transaction_commit (&transaction, error);
}

/* NULL stands for the user's own store. */
static char *
store_path (const char *path)
{
  return path ? g_strdup (path)
              : g_build_filename (g_get_user_data_dir (), "fsdplan", "fsdplan.db", NULL);
}

static gboolean
make_folder (const char *path, GError **error)
{
  g_autofree char *folder = g_path_get_dirname (path);

  if (g_mkdir_with_parents (folder, 0700) == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: cannot make the folder of the store: %s",
               folder, g_strerror (errno));
  return FALSE;
}

static DbStore *
open_file (const char *path, int flags, GError **error)
{
  g_autoptr (DbStore) self = g_new0 (DbStore, 1);
  int code;

  /* A catalogue is attached by its URI; a user's path is never one. */
  g_autofree char *plain
      = g_str_has_prefix (path, "file:") ? g_strconcat ("./", path, NULL) : g_strdup (path);

  self->path = g_strdup (path);
  db_store_doing (self, "open the store");
  code = sqlite3_open_v2 (plain, &self->db, flags | SQLITE_OPEN_URI, NULL);
  if (code != SQLITE_OK)
    {
      db_set_error (self, code, error);
      return NULL;
    }
  sqlite3_extended_result_codes (self->db, 1);
  sqlite3_busy_timeout (self->db, BUSY_TIMEOUT_MS);

  /* A file of another program may have a write-ahead log, which the last one to close would
   * otherwise merge: refusing must leave it alone. */
  sqlite3_db_config (self->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
  if (!db_store_exec (self, "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF", error))
    return NULL;
  return g_steal_pointer (&self);
}

DbStore *
db_store_open (const char *path, GError **error)
{
  g_autofree char *file = store_path (path);
  g_autoptr (DbStore) self = NULL;

  if (!path && !make_folder (file, error))
    return NULL;
  self = open_file (file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, error);

  /* A write-ahead log needs shared memory, which network folders do not have; the rollback
   * journal needs only locks and ordered writes. */
  if (!self || !migrate (self, error)
      || !db_store_exec (self, "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL", error))
    return NULL;
  return g_steal_pointer (&self);
}

DbStore *
db_store_open_readonly (const char *path, GError **error)
{
  g_autofree char *file = store_path (path);
  g_autoptr (DbStore) self = NULL;
  gint64 version;

  /* Not SQLITE_OPEN_READONLY: when a writer was killed, whoever comes next must roll its journal
   * back before reading. SQLite itself falls back to reading where it may not write. */
  self = open_file (file, SQLITE_OPEN_READWRITE, error);
  if (!self || !db_store_exec (self, "PRAGMA query_only = ON", error)
      || !look (self, &version, error))
    return NULL;

  if (version == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: cannot %s: nothing was stored yet",
                   self->path, self->doing);
      return NULL;
    }
  if (version < LATEST_VERSION)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "%s: cannot %s for reading only: it is of version %" G_GINT64_FORMAT
                   ", and becomes %" G_GINT64_FORMAT " when next written",
                   self->path, self->doing, version, LATEST_VERSION);
      return NULL;
    }
  return g_steal_pointer (&self);
}

void
db_store_close (DbStore *self)
{
  if (!self)
    return;
  sqlite3_close (self->db);
  g_free (self->path);
  g_free (self->doing);
  g_free (self);
}
