/* DbTable: all that the store has of one kind, as text: what is listed, exported and imported.
 *
 * A row stands for itself: it names others as every store names them. Only the numbers in "id"
 * columns are this store's own. An empty cell (NULL) is what was not known. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

/* In an order in which rows can be added: what is referred to comes first. */
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

/* "runs"; the error names them all. */
gboolean db_kind_parse (const char *name, DbKind *out_kind, GError **error);

typedef enum
{
  DB_TYPE_TEXT,
  DB_TYPE_INT,
  DB_TYPE_REAL,
} DbType;

guint db_kind_n_columns (DbKind kind);
const char *db_kind_column_name (DbKind kind, guint column);
DbType db_kind_column_type (DbKind kind, guint column);

typedef struct
{
  DbKind kind;
  GPtrArray *cells; /* char * or NULL, row after row */
  GArray *lines;    /* guint, of the file they were read from; empty: they were not */
} DbTable;

DbTable *db_table_new (DbKind kind);
void db_table_free (DbTable *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (DbTable, db_table_free)

/* A row of cells by the names of their columns, which must exist; the others are empty. `line` is
 * that of the file it is from. */
void db_table_add (DbTable *self, const char *const (*cells)[2], guint n_cells, guint line);

guint db_table_n_rows (const DbTable *self);
const char *db_table_cell (const DbTable *self, guint row, guint column);

/* The cell of that column; it must exist. */
const char *db_table_cell_named (const DbTable *self, guint row, const char *column);

/* `key` NULL: all rows; else those whose first column it is. */
DbTable *db_store_read_table (DbStore *self, DbKind kind, const char *key, GError **error);

/* All kinds at one moment; elements are DbTable, owned by the array. */
GPtrArray *db_store_read_tables (DbStore *self, GError **error);

/* Removes rows by their first column with what belongs to them, all or none; INVALID when one is
 * not there, or something else refers to it. */
gboolean db_store_delete (DbStore *self, DbKind kind, const char *const *keys, guint n_keys,
                          GError **error);

G_END_DECLS
