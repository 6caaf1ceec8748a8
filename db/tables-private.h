/* Import of rows: reads them from text and adds them to the store. */
#pragma once
#include "db/tables.h"
#include <glib.h>
G_BEGIN_DECLS

/* Adds a table's rows that are not in the store, within the caller's transaction. A row that
 * differs from the stored one of the same name is an error, except that a running run may have
 * ended since. `origin` is the file that the rows are from. Increases the two counts. */
gboolean db_store_put_table (DbStore *self, DbTable *table, const char *origin, guint *io_added,
                             guint *io_present, GError **error);

/* Parses tables from JSON ({"runs": [{"uid": "...", ...}, ...], ...}), or one table from CSV with
 * its columns, in any order, in the first line. Elements are DbTable, owned by the array; messages
 * name the line. */
GPtrArray *db_tables_parse_json (const char *text, const char *origin, GError **error);
GPtrArray *db_tables_parse_csv (const char *text, const char *origin, GError **error);

G_END_DECLS
