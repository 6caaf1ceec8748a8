/* What the modules of the store share: statements, transactions, one way to say what failed.
 *
 * A public function begins with db_store_doing; every later error names the file
 * and that. */
#pragma once
#include "db/store.h"
#include <glib.h>
#include <sqlite3.h>
G_BEGIN_DECLS

struct _DbStore
{
  sqlite3 *db;
  char *path;
  char *doing; /* "delete run 3", for messages */
};

void db_store_doing (DbStore *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Converts SQLite's complaint about the call that returned `code`; always FALSE. */
gboolean db_set_error (DbStore *self, int code, GError **error);

/* Runs constant SQL that returns no rows. */
gboolean db_store_exec (DbStore *self, const char *sql, GError **error);

/* The one number that constant SQL returns. */
gboolean db_store_read_int (DbStore *self, const char *sql, gint64 *out_value, GError **error);

/* Makes the tables, or brings them up to date; refuses what is no store. */
gboolean db_store_migrate (DbStore *self, GError **error);

/* A database in memory, without tables so far; `path` is what messages call it. */
DbStore *db_store_new_empty (const char *path, GError **error);

/* The rows are what they should be; names the first that is not. */
gboolean db_store_check_rows (DbStore *self, GError **error);

/* Without faults, or FSDPLAN_DEBUG_CHECK is not set. */
gboolean db_store_debug_check (DbStore *self, GError **error);

/* A name that no other row has, in any store; the caller frees. */
char *db_random_uid (void);

/* A prepared statement. Values are put in the order of its marks, columns taken in the order of
 * its list, so that neither is numbered by hand. A failed put is reported by the next run or
 * end. */
typedef struct
{
  DbStore *store;
  sqlite3_stmt *stmt;
  int next; /* marks put, or columns of this row taken */
  int code; /* of the last call */
} DbQuery;

gboolean db_query_prepare (DbQuery *self, DbStore *store, const char *sql, GError **error);
void db_query_clear (DbQuery *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (DbQuery, db_query_clear)

void db_query_put_int (DbQuery *self, gint64 value);
void db_query_put_real (DbQuery *self, double value);      /* not a number becomes NULL */
void db_query_put_text (DbQuery *self, const char *value); /* borrowed until run; may be NULL */
void db_query_put_value (DbQuery *self, const sqlite3_value *value); /* of another query */

/* Runs a statement that returns no rows; it can then be filled again. */
gboolean db_query_run (DbQuery *self, GError **error);

/* while (db_query_next ()) take columns; then db_query_end says whether that was all. */
gboolean db_query_next (DbQuery *self);
gboolean db_query_end (DbQuery *self, GError **error);

gint64 db_query_take_int (DbQuery *self);
double db_query_take_real (DbQuery *self); /* NULL becomes not a number */
char *db_query_take_text (DbQuery *self);  /* the caller frees */

/* A write transaction; cleared without a commit, it leaves no mark. */
typedef struct
{
  DbStore *store; /* NULL outside of a transaction */
} DbTransaction;

gboolean db_transaction_begin (DbTransaction *self, DbStore *store, GError **error);
gboolean db_transaction_commit (DbTransaction *self, GError **error);
void db_transaction_clear (DbTransaction *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (DbTransaction, db_transaction_clear)

G_END_DECLS
