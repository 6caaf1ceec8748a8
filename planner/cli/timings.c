/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/timings.h"

#include "db/tables.h"

#include <string.h>

#define BETWEEN ", "

/* ", 2 x 1.25 GB/s between nodes": what leaves one. NULL where nobody says it. */
static char *
print_network (const PlanCluster *cluster)
{
  g_autofree char *rate = plan_cluster_print_fact (cluster, PLAN_FACT_NIC_BANDWIDTH);
  return rate ? g_strdup_printf (BETWEEN "%" G_GINT64_FORMAT " x %s between nodes",
                                 cluster->devices_per_node, rate)
              : NULL;
}

char *
cli_timings_machine (const PlanCluster *cluster, const char *library, gboolean crosses)
{
  g_autofree char *network = crosses ? print_network (cluster) : NULL;
  return g_strconcat (cluster->device_name, BETWEEN, library, network, NULL);
}

/* Whose rows are taken. */
typedef struct
{
  char *machine, *network; /* how the first begins, and ends between nodes */
  const char *comm;
} Wanted;

static gboolean
is_of (const DbTable *rows, guint row, const Wanted *wanted)
{
  const char *carried = db_table_cell_named (rows, row, "comm");
  return g_str_equal (db_table_cell_named (rows, row, "backend"), "cpu")
         && g_str_has_prefix (db_table_cell_named (rows, row, "machine"), wanted->machine)
         && (g_str_equal (carried, "self") || g_str_equal (carried, wanted->comm));
}

/* What was timed between nodes holds for that network alone. */
static gboolean
take_row (const DbTable *rows, guint row, const Wanted *wanted, GArray *timings, GError **error)
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
  if (timing.nodes <= 1
      || (wanted->network
          && g_str_has_suffix (db_table_cell_named (rows, row, "machine"), wanted->network)))
    g_array_append_val (timings, timing);
  return TRUE;
}

/* Rows come in the order in which they were added: the newest counts. */
static SimTimings *
read_timings (const PlanCluster *cluster, const char *db, const char *comm, GError **error)
{
  g_autoptr (DbStore) store = NULL;
  if (!db_store_open_if_any (db, &store, error) || !store)
    return NULL;
  g_autoptr (DbTable) rows = db_store_read_table (store, DB_KIND_OPS, NULL, error);
  g_autoptr (GArray) timings = g_array_new (FALSE, FALSE, sizeof (SimTiming));
  g_autofree char *machine = cli_timings_machine (cluster, "", FALSE);
  g_autofree char *network = print_network (cluster);
  const Wanted wanted = { .machine = machine, .network = network, .comm = comm };
  for (guint row = 0; rows && row < db_table_n_rows (rows); row++)
    if (is_of (rows, row, &wanted) && !take_row (rows, row, &wanted, timings, error))
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
  const gboolean are_processes = cluster->nodes > 1 || g_strcmp0 (comm, "mpi") == 0;
  const char *carrier = are_processes ? "mpi" : "threads";
  g_autofree char *network = print_network (cluster);
  g_autofree char *key = g_strdup_printf ("%s\n%s\n%s\n%s", cluster->device_name, db ? db : "",
                                          carrier, network ? network : "");
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
