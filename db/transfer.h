/* Stores as text: everything as SQL, and whatever an export wrote back into a store. */
#pragma once
#include "db/store.h"
#include "db/tables.h"
#include <glib.h>
G_BEGIN_DECLS

typedef void (*DbSink) (const char *text, gpointer user_data);

/* SQL that makes the same store from nothing, also by the sqlite3 program. */
gboolean db_store_dump (DbStore *self, DbSink sink, gpointer user_data, GError **error);

/* What an import did. */
typedef struct
{
  guint added[DB_N_KINDS], present[DB_N_KINDS];
  guint added_traces, present_traces;
} DbImport;

typedef struct
{
  const char *text;   /* a dump, JSON, or CSV with the columns of a table; NULL: there are tables */
  const char *origin; /* names it in messages */
  GPtrArray *tables;  /* DbTable */
  /* Whether such rows may be added; NULL: all that the store takes. */
  gboolean (*accepts) (const DbTable *table, const char *origin, GError **error);
} DbSource;

/* Adds what is not there yet. All of it or nothing; a row that differs from the stored one of the
 * same name is an error. A run that was running may come back as ended. */
gboolean db_store_import (DbStore *self, const DbSource *sources, guint n_sources,
                          gboolean is_dry_run, DbImport *out_import, GError **error);

G_END_DECLS
