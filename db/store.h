/* DbStore: the user's store, one SQLite file.
 *
 * open -> work by db/runs.h, db/traces.h, db/tables.h, db/transfer.h -> close. What belongs
 * together is written in one transaction, so a killed program leaves a whole database.
 * schema.sql is the document. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct _DbStore DbStore;

/* `path` NULL: $XDG_DATA_HOME/fsdplan/fsdplan.db, made with its folders; ":memory:" keeps nothing.
 * A file of an older version is brought up to date; one of a newer version, or that is no store,
 * is refused and left alone. */
DbStore *db_store_open (const char *path, GError **error);

/* An existing store, for reading only; IO when there is none. A file of an older version is read
 * as if it were up to date, and left as it is. */
DbStore *db_store_open_readonly (const char *path, GError **error);
/* The same; NULL without an error where there is none so far, or it cannot be read. */
gboolean db_store_open_if_any (const char *path, DbStore **out_store, GError **error);

void db_store_close (DbStore *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (DbStore, db_store_close)

const char *db_store_path (const DbStore *self);

/* Which file `path` means, and the version of the store in it; 0: there is none yet. */
gboolean db_store_find (const char *path, char **out_file, gint64 *out_version, GError **error);

/* The version that this program writes. */
gint64 db_store_latest_version (void);

/* Everything wrong with the store, in words: the file, its tables, its rows; none is good. */
GPtrArray *db_store_list_faults (DbStore *self, GError **error);

/* Gives numbers again from behind the largest that is in use, where none were left; says of how
 * many tables. */
gboolean db_store_repair_numbers (DbStore *self, guint *out_n, GError **error);

G_END_DECLS
