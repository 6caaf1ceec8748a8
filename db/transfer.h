/* Stores as text: a dump of everything as SQL, and imports of whatever was exported. */
#pragma once
#include "db/store.h"
#include "db/tables.h"
#include <glib.h>
G_BEGIN_DECLS

typedef void (*DbSink) (const char *text, gpointer user_data);

/* Writes SQL that makes an equal store from nothing; the sqlite3 program can run it too. */
gboolean db_store_dump (DbStore *self, DbSink sink, gpointer user_data, GError **error);

/* What an import did. */
typedef struct
{
  guint added[DB_N_KINDS], present[DB_N_KINDS];
  guint added_traces, present_traces;
} DbImport;

typedef struct
{
  const char *text;   /* a dump, JSON, or CSV with the columns of a table; NULL: `tables` is used */
  const char *origin; /* name for messages */
  GPtrArray *tables;  /* DbTable */
  /* Whether such rows may be added; NULL: all that the store accepts. */
  gboolean (*accepts) (const DbTable *table, const char *origin, GError **error);
} DbSource;

/* Adds what is not in the store yet, all of it or nothing. A row that differs from the stored one
 * of the same name is an error, except that a running run may have ended since. */
gboolean db_store_import (DbStore *self, const DbSource *sources, guint n_sources,
                          gboolean is_dry_run, DbImport *out_import, GError **error);

G_END_DECLS
