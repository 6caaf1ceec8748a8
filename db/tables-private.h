/* Rows on their way into the store: read from text, then added. */
#pragma once
#include "db/tables.h"
#include <glib.h>
G_BEGIN_DECLS

/* In the caller's transaction. Adds what is not there; a row of the same name that differs is an
 * error, but for a run that was running and has ended since. `origin` is the file the rows are
 * from. Adds to the two counts. */
gboolean db_store_put_table (DbStore *self, DbTable *table, const char *origin, guint *io_added,
                             guint *io_present, GError **error);

/* Tables as JSON: {"runs": [{"uid": "…", …}, …], …}; or one table as CSV with its columns, in any
 * order, in the first line. Elements are DbTable, owned by the array; messages name the line. */
GPtrArray *db_tables_parse_json (const char *text, const char *origin, GError **error);
GPtrArray *db_tables_parse_csv (const char *text, const char *origin, GError **error);

G_END_DECLS
