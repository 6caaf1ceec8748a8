/* Dumps: a store written as SQL, and read back. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

/* The beginning of a dump's first line; the version follows. */
#define DB_DUMP_MARK "-- fsdplan store, version"

/* Loads the store that a dump describes into memory, migrates it, and checks it. Statements that
 * dumps do not contain are refused. */
DbStore *db_dump_load (const char *text, const char *origin, GError **error);

G_END_DECLS
