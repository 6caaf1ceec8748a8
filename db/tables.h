/* DbTable: all rows of one kind in the store, as text, to be listed, exported and imported.
 *
 * A row refers to other rows by names that are valid in every store; only numbers in "id" columns
 * are this store's own. An empty cell (NULL) is an unknown value. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

/* Kinds, in an order in which rows can be added: rows come after those that they refer to. */
typedef enum
{
  DB_KIND_CLUSTERS,
  DB_KIND_PLANS,
  DB_KIND_RUNS,
  DB_KIND_STEPS, /* of runs */
  DB_KIND_QUERIES,
  DB_KIND_ANSWERS, /* of queries */
  DB_KIND_MEASUREMENTS,
  DB_KIND_OPS,
  DB_KIND_WORKSPACES, /* of attention */
  DB_KIND_PARAMS,
  DB_KIND_FITTED, /* the rows that parameter sets were fitted to */
  DB_N_KINDS
} DbKind;

const char *db_kind_name (DbKind kind);

/* Parses a kind such as "runs"; the error names all of them. */
gboolean db_kind_parse (const char *name, DbKind *out_kind, GError **error);

typedef enum
{
  DB_TYPE_TEXT,
  DB_TYPE_INT,
  DB_TYPE_REAL,
  DB_TYPE_AMOUNT, /* a real that was measured: 0, or from 1e-6 to 1e15 */
} DbType;

guint db_kind_n_columns (DbKind kind);
const char *db_kind_column_name (DbKind kind, guint column);
DbType db_kind_column_type (DbKind kind, guint column);

typedef struct
{
  DbKind kind;
  GPtrArray *cells; /* char * or NULL, row by row */
  GArray *lines;    /* guint: each row's line in its file; empty: not read from a file */
} DbTable;

DbTable *db_table_new (DbKind kind);
void db_table_free (DbTable *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (DbTable, db_table_free)

/* Adds a row from pairs of column name and cell. The columns must exist; all others are empty.
 * `line` is the row's line in its file. */
void db_table_add (DbTable *self, const char *const (*cells)[2], guint n_cells, guint line);

guint db_table_n_rows (const DbTable *self);
const char *db_table_cell (const DbTable *self, guint row, guint column);

/* The cell of a column, which must exist. */
const char *db_table_cell_named (const DbTable *self, guint row, const char *column);

/* Reads all rows, or with a `key` those whose first column has that value. */
DbTable *db_store_read_table (DbStore *self, DbKind kind, const char *key, GError **error);

/* Reads all kinds in one transaction; elements are DbTable, owned by the array. */
GPtrArray *db_store_read_tables (DbStore *self, GError **error);

/* Deletes rows by their first column, with everything that belongs to them; all or none. INVALID
 * when a row does not exist, or something else refers to it. */
gboolean db_store_delete (DbStore *self, DbKind kind, const char *const *keys, guint n_keys,
                          GError **error);

G_END_DECLS
