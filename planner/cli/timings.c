/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/timings.h"

#include "db/tables.h"
#include "planner/error.h"

#include <string.h>

#define BETWEEN ", "

char *
cli_timings_machine (const PlanCluster *cluster, const char *library)
{
  return g_strconcat (cluster->device_name, BETWEEN, library, NULL);
}

static gboolean
is_of (const DbTable *rows, guint row, const char *machine, const char *comm)
{
  const char *carried = db_table_cell_named (rows, row, "comm");
  return g_str_equal (db_table_cell_named (rows, row, "backend"), "cpu")
         && g_str_has_prefix (db_table_cell_named (rows, row, "machine"), machine)
         && (g_str_equal (carried, "self") || g_str_equal (carried, comm));
}

static gboolean
take_row (const DbTable *rows, guint row, GArray *timings, GError **error)
{
  SimTiming timing
      = { .ranks = (guint)g_ascii_strtoull (db_table_cell_named (rows, row, "ranks"), NULL, 10),
          .ns = g_ascii_strtod (db_table_cell_named (rows, row, "median_ns"), NULL) };
  if (!sim_timing_parse (db_table_cell_named (rows, row, "op"),
                         db_table_cell_named (rows, row, "shape"),
                         db_table_cell_named (rows, row, "format"), &timing, error))
    {
      g_prefix_error (error, "op %s: ", db_table_cell_named (rows, row, "id"));
      return FALSE;
    }
  g_array_append_val (timings, timing);
  return TRUE;
}

/* Rows come in the order in which they were added: the newest counts. */
static SimTimings *
read_timings (const PlanCluster *cluster, const char *db, const char *comm, GError **error)
{
  g_autoptr (GError) why = NULL;
  g_autoptr (DbStore) store = db_store_open_readonly (db, &why);
  if (!store && g_error_matches (why, PLAN_ERROR, PLAN_ERROR_IO))
    return NULL; /* there is no store so far */
  if (!store)
    {
      g_propagate_error (error, g_steal_pointer (&why));
      return NULL;
    }
  g_autoptr (DbTable) rows = db_store_read_table (store, DB_KIND_OPS, NULL, error);
  g_autoptr (GArray) timings = g_array_new (FALSE, FALSE, sizeof (SimTiming));
  g_autofree char *machine = cli_timings_machine (cluster, "");
  for (guint row = 0; rows && row < db_table_n_rows (rows); row++)
    if (is_of (rows, row, machine, comm) && !take_row (rows, row, timings, error))
      return NULL;
  return timings->len > 0
             ? sim_timings_new ((const SimTiming *)(gpointer)timings->data, timings->len)
             : NULL;
}

const SimTimings *
cli_timings (const PlanCluster *cluster, const char *db, const char *comm)
{
  static GMutex mutex;
  static GHashTable *known = NULL;
  if (cluster->kind != PLAN_DEVICE_CPU)
    return NULL;
  const char *carrier = comm && g_str_equal (comm, "mpi") ? "mpi" : "threads";
  g_autofree char *key
      = g_strdup_printf ("%s\n%s\n%s", cluster->device_name, db ? db : "", carrier);
  gpointer found;
  g_mutex_lock (&mutex);
  if (!known)
    known = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  if (!g_hash_table_lookup_extended (known, key, NULL, &found))
    {
      g_autoptr (GError) error = NULL;
      found = read_timings (cluster, db, carrier, &error);
      if (error)
        g_warning ("nothing timed on this machine is used: %s", error->message);
      g_hash_table_insert (known, g_steal_pointer (&key), found);
    }
  g_mutex_unlock (&mutex);
  return found;
}
