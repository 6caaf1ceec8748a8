/* Shared by the modules of the store: statements, transactions, and error messages.
 *
 * A public function begins with db_store_doing; every later error then names the file and what was
 * being done. */
#pragma once
#include "db/store.h"
#include <glib.h>
#include <sqlite3.h>
G_BEGIN_DECLS

struct _DbStore
{
  sqlite3 *db;
  char *path;
  char *doing; /* for messages: "delete run 3" */
};

void db_store_doing (DbStore *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Sets an error from the SQLite call that returned `code`. Always FALSE. */
gboolean db_set_error (DbStore *self, int code, GError **error);

/* Runs constant SQL that returns no rows. */
gboolean db_store_exec (DbStore *self, const char *sql, GError **error);

/* Reads the one number that constant SQL returns. */
gboolean db_store_read_int (DbStore *self, const char *sql, gint64 *out_value, GError **error);

/* Makes the tables, or migrates them to the latest version; refuses a file that is not a store. */
gboolean db_store_migrate (DbStore *self, GError **error);

/* Makes a database in memory without tables; `path` is its name in messages. */
DbStore *db_store_new_empty (const char *path, GError **error);

/* Checks all rows by the rules of db/check.c; the error names the first row that breaks one. */
gboolean db_store_check_rows (DbStore *self, GError **error);

/* TRUE if the store has no faults, or FSDPLAN_DEBUG_CHECK is not set. */
gboolean db_store_debug_check (DbStore *self, GError **error);

/* A new name that no row of any store has; the caller frees. */
char *db_random_uid (void);

/* A prepared statement. Values are put in the order of its parameters, and columns are taken in the
 * order of its list, so neither is numbered by hand. An error of a put is reported by the next run
 * or end. */
typedef struct
{
  DbStore *store;
  sqlite3_stmt *stmt;
  int next; /* number of parameters put, or of columns of this row taken */
  int code; /* result of the last call */
} DbQuery;

gboolean db_query_prepare (DbQuery *self, DbStore *store, const char *sql, GError **error);
void db_query_clear (DbQuery *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (DbQuery, db_query_clear)

void db_query_put_int (DbQuery *self, gint64 value);
void db_query_put_real (DbQuery *self, double value);      /* NaN becomes NULL */
void db_query_put_text (DbQuery *self, const char *value); /* borrowed until run; may be NULL */
void db_query_put_value (DbQuery *self, const sqlite3_value *value); /* of another query */

/* Runs a statement that returns no rows, after which it can be filled again. */
gboolean db_query_run (DbQuery *self, GError **error);

/* Use as while (db_query_next ()) take columns. db_query_end then tells whether it was an error
 * that ended the loop. */
gboolean db_query_next (DbQuery *self);
gboolean db_query_end (DbQuery *self, GError **error);

gint64 db_query_take_int (DbQuery *self);
double db_query_take_real (DbQuery *self); /* NULL becomes NaN */
char *db_query_take_text (DbQuery *self);  /* the caller frees */

/* A write transaction. Cleared without a commit it is rolled back. */
typedef struct
{
  DbStore *store; /* NULL outside of a transaction */
} DbTransaction;

gboolean db_transaction_begin (DbTransaction *self, DbStore *store, GError **error);
gboolean db_transaction_commit (DbTransaction *self, GError **error);
void db_transaction_clear (DbTransaction *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (DbTransaction, db_transaction_clear)

G_END_DECLS
