/* DbStore: the user's store, one SQLite file.
 *
 * open -> use db/runs.h, db/traces.h, db/tables.h, db/transfer.h -> close. Data that belongs
 * together is written in one transaction, so a killed program leaves a consistent database.
 * schema.sql documents the tables. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct _DbStore DbStore;

/* Opens a store for reading and writing. `path` NULL is $XDG_DATA_HOME/fsdplan/fsdplan.db, which is
 * made with its folders; ":memory:" keeps nothing. A file of an older version is migrated. A file
 * of a newer version, or one that is not a store, is refused and left unchanged. */
DbStore *db_store_open (const char *path, GError **error);

/* Opens an existing store for reading only; IO when there is none. A file of an older version is
 * read as if it were migrated, but left unchanged. */
DbStore *db_store_open_readonly (const char *path, GError **error);
/* As db_store_open_readonly, but NULL without an error where there is no store yet or it cannot be
 * read. */
gboolean db_store_open_if_any (const char *path, DbStore **out_store, GError **error);

void db_store_close (DbStore *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (DbStore, db_store_close)

const char *db_store_path (const DbStore *self);

/* The file that `path` stands for, and the version of the store in it; 0: there is none yet. */
gboolean db_store_find (const char *path, char **out_file, gint64 *out_version, GError **error);

/* The version that this program writes. */
gint64 db_store_latest_version (void);

/* Everything that is wrong with the store, in words: with the file, its tables or its rows. Empty:
 * nothing. */
GPtrArray *db_store_list_faults (DbStore *self, GError **error);

/* Where a counter of row ids has come to its end, lowers it to the largest id in use. Gives the
 * number of tables that needed it. */
gboolean db_store_repair_numbers (DbStore *self, guint *out_n, GError **error);

G_END_DECLS
