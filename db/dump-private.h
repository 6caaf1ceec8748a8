/* Dumps: a store as SQL, and back. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

/* A dump's first line starts so; its version follows. */
#define DB_DUMP_MARK "-- fsdplan store, version"

/* The store a dump describes, in memory, brought up to date and without faults. Statements that no
 * dump has are refused. */
DbStore *db_dump_load (const char *text, const char *origin, GError **error);

G_END_DECLS
