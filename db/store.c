/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/store-private.h"

#include "planner/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

/* SQLite's application_id of stores: "fspl". */
#define APPLICATION_ID 0x6673706C

/* Writers wait for one another. The longest transaction, a trace, takes well under a second even on
 * a slow network folder, so a writer that waits this long waits for a process that hangs. */
#define BUSY_TIMEOUT_MS 30000

/* SQL that makes a store of the latest version from nothing. */
static const char schema[] =
#include "db/schema.sql.inc"
    ;

/* Migrations: entry i takes a store from version i + 1 to i + 2. Existing stores were made by these
 * texts, so released ones never change, and new ones are added at the end. */
static const char *const migrations[] = {
#include "db/migrate-1.sql.inc"
  ,
#include "db/migrate-2.sql.inc"
  ,
#include "db/migrate-3.sql.inc"
  ,
#include "db/migrate-4.sql.inc"
};

#define LATEST_VERSION ((gint64)G_N_ELEMENTS (migrations) + 1)

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
  switch (code & 0xff) /* extended codes have the plain code in their low byte */
    {
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
    case SQLITE_FULL:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return PLAN_ERROR_IO;
    case SQLITE_CORRUPT:
      return PLAN_ERROR_CORRUPT;
    case SQLITE_CONSTRAINT: /* the given data break a rule of the schema */
    case SQLITE_NOTADB:
      return PLAN_ERROR_INVALID;
    default:
      return PLAN_ERROR_BACKEND;
    }
}

/* Advice that SQLite's message lacks. */
static const char *
advice (int code)
{
  switch (code)
    {
    case SQLITE_IOERR_LOCK:
    case SQLITE_IOERR_RDLOCK:
    case SQLITE_IOERR_UNLOCK:
    case SQLITE_IOERR_CHECKRESERVEDLOCK:
    case SQLITE_NOLFS:
      return "; its file system cannot lock files: keep the store on another one";
    case SQLITE_IOERR_WRITE:
      return "; is there a quota, or a limit on the size of files?";
    }
  switch (code & 0xff)
    {
    case SQLITE_BUSY:
    case SQLITE_PROTOCOL:
      return "; another program keeps it locked, or its file system cannot lock files";
    case SQLITE_READONLY:
      return "; the file or its folder may only be read";
    default:
      return "";
    }
}

gboolean
db_set_error (DbStore *self, int code, GError **error)
{
  int plain = code & 0xff;
  gboolean asked_system = plain == SQLITE_CANTOPEN || plain == SQLITE_IOERR;

  /* the system's error says more than "unable to open database file" */
  int system_error = asked_system && self->db ? sqlite3_system_errno (self->db) : 0;

  g_set_error (error, PLAN_ERROR, error_code (code), "%s: cannot %s: %s%s%s%s", self->path,
               self->doing, self->db ? sqlite3_errmsg (self->db) : sqlite3_errstr (code),
               system_error ? ": " : "", system_error ? g_strerror (system_error) : "",
               advice (code));
  return FALSE;
}

gboolean
db_store_exec (DbStore *self, const char *sql, GError **error)
{
  int code = sqlite3_exec (self->db, sql, NULL, NULL, NULL);

  return code == SQLITE_OK || db_set_error (self, code, error);
}

/* The version of the file, 0 for an empty one; an error for a file that is not a store. To be
 * called in a transaction, so that all three queries see the same state. */
static gboolean
read_version (DbStore *self, gint64 *out_version, GError **error)
{
  gint64 application, version, objects;

  if (!db_store_read_int (self, "PRAGMA application_id", &application, error)
      || !db_store_read_int (self, "PRAGMA user_version", &version, error)
      || !db_store_read_int (self, "SELECT count (*) FROM sqlite_schema", &objects, error))
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
peek_version (DbStore *self, gint64 *out_version, GError **error)
{
  gboolean ok;

  if (!db_store_exec (self, "BEGIN", error))
    return FALSE;
  ok = read_version (self, out_version, error);
  sqlite3_exec (self->db, "ROLLBACK", NULL, NULL, NULL);
  return ok;
}

static gboolean
build (DbStore *self, gint64 version, GError **error)
{
  g_autofree char *mark = NULL;

  if (version == 0 && !db_store_exec (self, schema, error))
    return FALSE;
  for (; version > 0 && version < LATEST_VERSION; version++)
    if (!db_store_exec (self, migrations[version - 1], error))
      return FALSE;
  mark = g_strdup_printf ("PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID,
                          (int)LATEST_VERSION);
  return db_store_exec (self, mark, error);
}

gboolean
db_store_migrate (DbStore *self, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  gint64 version;

  /* looks first without a write lock, since most stores are up to date */
  if (!peek_version (self, &version, error))
    return FALSE;
  if (version < LATEST_VERSION)
    {
      /* with foreign keys on, remaking a table would delete the rows that refer to it */
      if (!db_store_exec (self, "PRAGMA foreign_keys = OFF", error)
          || !db_transaction_begin (&transaction, self, error)
          /* another process may have migrated it in between */
          || !read_version (self, &version, error)
          || (version < LATEST_VERSION && !build (self, version, error))
          || !db_transaction_commit (&transaction, error))
        return FALSE;
    }
  return db_store_exec (self, "PRAGMA foreign_keys = ON", error);
}

/* The file of a path; NULL stands for the user's own store. */
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

/* Whether a path is something other than a file, such as a device, which SQLite would take for an
 * empty file. */
static gboolean
is_other_than_file (const char *path)
{
  GStatBuf info;

  return strcmp (path, ":memory:") != 0 && g_stat (path, &info) == 0 && !S_ISREG (info.st_mode);
}

static gboolean
check_file (DbStore *self, const char *path, GError **error)
{
  if (!is_other_than_file (path))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: cannot %s: it %s", self->path, self->doing,
               g_file_test (path, G_FILE_TEST_IS_DIR)
                   ? "is a directory, not a file"
                   : "is no regular file; :memory: is the store that keeps nothing");
  return FALSE;
}

/* Makes a new file that only its owner can read, since runs and plans are private. SQLite gives its
 * journal the same permissions. */
static void
make_private (const char *path)
{
  const int fd = open (path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd != -1)
    close (fd);
}

/* Opens a file; `name` is its name in messages. */
static DbStore *
open_file (const char *path, const char *name, int flags, GError **error)
{
  g_autoptr (DbStore) self = g_new0 (DbStore, 1);
  int code;

  /* only a catalogue is attached by URI; a user's path is never one */
  g_autofree char *plain
      = g_str_has_prefix (path, "file:") ? g_strconcat ("./", path, NULL) : g_strdup (path);

  self->path = g_strdup (name);
  db_store_doing (self, "open the store");
  if (!check_file (self, plain, error))
    return NULL;
  if ((flags & SQLITE_OPEN_CREATE) && strcmp (plain, ":memory:") != 0)
    make_private (plain);
  code = sqlite3_open_v2 (plain, &self->db, flags | SQLITE_OPEN_URI, NULL);
  if (code != SQLITE_OK)
    {
      db_set_error (self, code, error);
      return NULL;
    }
  sqlite3_extended_result_codes (self->db, 1);
  sqlite3_busy_timeout (self->db, BUSY_TIMEOUT_MS);

  /* Another program's file may have a write-ahead log, which the last process to close it would
   * merge. A refused file must be left alone. */
  sqlite3_db_config (self->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
  if (!db_store_exec (self, "PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY", error))
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
  self = open_file (file, file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, error);

  /* A write-ahead log needs shared memory, which network folders lack; a rollback journal needs
   * only locks and ordered writes. With EXTRA the removal of the journal also survives a power
   * cut. */
  if (!self || !db_store_exec (self, "PRAGMA synchronous = EXTRA", error)
      || !db_store_migrate (self, error)
      || !db_store_exec (self, "PRAGMA journal_mode = DELETE", error)
      || !db_store_debug_check (self, error))
    return NULL;
  return g_steal_pointer (&self);
}

DbStore *
db_store_new_empty (const char *path, GError **error)
{
  return open_file (":memory:", path, SQLITE_OPEN_READWRITE, error);
}

/* Copies a store into memory and migrates the copy; the file is only read. */
static DbStore *
copy_to_memory (DbStore *file, GError **error)
{
  g_autoptr (DbStore) self = db_store_new_empty (file->path, error);
  sqlite3_backup *backup;
  int code;

  if (!self)
    return NULL;
  backup = sqlite3_backup_init (self->db, "main", file->db, "main");
  sqlite3_backup_step (backup, -1);
  code = sqlite3_backup_finish (backup);
  if (code != SQLITE_OK)
    {
      db_set_error (self, code, error);
      return NULL;
    }
  return db_store_migrate (self, error) ? g_steal_pointer (&self) : NULL;
}

DbStore *
db_store_open_readonly (const char *path, GError **error)
{
  g_autofree char *file = store_path (path);
  g_autoptr (DbStore) self = NULL;
  gint64 version;

  if (!g_file_test (file, G_FILE_TEST_EXISTS))
    {
      g_set_error (
          error, PLAN_ERROR, PLAN_ERROR_IO,
          "%s: cannot open the store: no store is there yet: query, run, bench and import make one",
          file);
      return NULL;
    }
  /* Not SQLITE_OPEN_READONLY: after a writer was killed, the next process must roll its journal
   * back before reading. SQLite itself falls back to reading where it may not write. */
  self = open_file (file, file, SQLITE_OPEN_READWRITE, error);
  if (!self || !peek_version (self, &version, error))
    return NULL;

  if (version == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: cannot %s: nothing was stored yet",
                   self->path, self->doing);
      return NULL;
    }
  if (version < LATEST_VERSION)
    {
      g_autoptr (DbStore) file_store = g_steal_pointer (&self);

      if (!(self = copy_to_memory (file_store, error)))
        return NULL;
    }
  if (!db_store_exec (self, "PRAGMA query_only = ON", error) || !db_store_debug_check (self, error))
    return NULL;
  return g_steal_pointer (&self);
}

gboolean
db_store_open_if_any (const char *path, DbStore **out_store, GError **error)
{
  g_autofree char *file = store_path (path);
  g_autoptr (GError) why = NULL;
  *out_store = db_store_open_readonly (path, &why);
  if (*out_store
      || (g_error_matches (why, PLAN_ERROR, PLAN_ERROR_IO) && !is_other_than_file (file)))
    return TRUE;
  g_propagate_error (error, g_steal_pointer (&why));
  return FALSE;
}

const char *
db_store_path (const DbStore *self)
{
  return self->path;
}

gint64
db_store_latest_version (void)
{
  return LATEST_VERSION;
}

gboolean
db_store_find (const char *path, char **out_file, gint64 *out_version, GError **error)
{
  g_autofree char *file = store_path (path);
  gint64 version = 0;

  if (g_file_test (file, G_FILE_TEST_EXISTS))
    {
      g_autoptr (DbStore) self = open_file (file, file, SQLITE_OPEN_READWRITE, error);

      if (!self || !peek_version (self, &version, error))
        return FALSE;
    }
  *out_file = g_steal_pointer (&file);
  *out_version = version;
  return TRUE;
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
