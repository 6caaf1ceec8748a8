/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/timings.h"

#include "db/tables.h"

#include <string.h>

#define BETWEEN ", "

/* The part of a machine's name for its network, ", 2 x 1.25 GB/s between nodes"; NULL where it is
 * not known. */
static char *
print_network (const PlanCluster *cluster)
{
  g_autofree char *rate = plan_cluster_print_fact (cluster, PLAN_FACT_NIC_BANDWIDTH);
  return rate ? g_strdup_printf (BETWEEN "%" G_GINT64_FORMAT " x %s between nodes",
                                 cluster->devices_per_node, rate)
              : NULL;
}

char *
advise_timings_machine (const PlanCluster *cluster, const char *library, gboolean crosses)
{
  g_autofree char *network = crosses ? print_network (cluster) : NULL;
  return g_strconcat (cluster->device_name, BETWEEN, library, network, NULL);
}

/* Which rows of the store to take. */
typedef struct
{
  char *machine, *network; /* beginning of the machine's name; its end, for rows between nodes */
  const char *backend, *comm;
  gint64 sharing; /* ranks that share a GPU and slow one another; 0: none do */
} Wanted;

static gboolean
is_of (const DbTable *rows, guint row, const Wanted *wanted, guint ranks)
{
  const char *comm = db_table_cell_named (rows, row, "comm");
  const gboolean is_comm = g_str_equal (comm, wanted->comm);
  return g_str_equal (db_table_cell_named (rows, row, "backend"), wanted->backend)
         && g_str_has_prefix (db_table_cell_named (rows, row, "machine"), wanted->machine)
         && (wanted->sharing > 0 ? is_comm && ranks == wanted->sharing
                                 : is_comm || g_str_equal (comm, "self"));
}

/* Takes a row. Timings between nodes hold for their own network only. */
static gboolean
take_row (const DbTable *rows, guint row, const Wanted *wanted, GArray *timings, GError **error)
{
  SimTiming timing
      = { .ranks = (guint)g_ascii_strtoull (db_table_cell_named (rows, row, "ranks"), NULL, 10),
          .ns = g_ascii_strtod (db_table_cell_named (rows, row, "median_ns"), NULL) };
  if (!is_of (rows, row, wanted, timing.ranks))
    return TRUE;
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

/* Reads the timings. Rows are in the order in which they were added, so the newest counts. */
static SimTimings *
read_timings (const Wanted *wanted, const char *db, GError **error)
{
  g_autoptr (DbStore) store = NULL;
  if (!db_store_open_if_any (db, &store, error) || !store)
    return NULL;
  g_autoptr (DbTable) rows = db_store_read_table (store, DB_KIND_OPS, NULL, error);
  g_autoptr (GArray) timings = g_array_new (FALSE, FALSE, sizeof (SimTiming));
  for (guint row = 0; rows && row < db_table_n_rows (rows); row++)
    if (!take_row (rows, row, wanted, timings, error))
      return NULL;
  return timings->len > 0
             ? sim_timings_new ((const SimTiming *)(gpointer)timings->data, timings->len)
             : NULL;
}

static const char *
comm_of (const PlanCluster *cluster, const char *comm)
{
  const gboolean is_gpu = cluster->kind == PLAN_DEVICE_GPU, is_one = cluster->nodes == 1;
  if (is_gpu)
    return is_one && g_strcmp0 (comm, "threads") == 0 ? "threads" : "nccl";
  return is_one && g_strcmp0 (comm, "mpi") != 0 ? "threads" : "mpi";
}

static GHashTable *known = NULL; /* SimTimings by key; NULL where a store has none */
static GMutex mutex;             /* guards `known` */

/* The timings for a key, which has everything by which rows are chosen; read once. */
static SimTimings *
find (const Wanted *wanted, const char *db)
{
  g_autofree char *key
      = g_strdup_printf ("%s\n%s\n%s\n%s\n%" G_GINT64_FORMAT, wanted->machine, db ? db : "",
                         wanted->comm, wanted->network ? wanted->network : "", wanted->sharing);
  gpointer found;
  if (!known)
    known
        = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify)sim_timings_free);
  if (!g_hash_table_lookup_extended (known, key, NULL, &found))
    {
      g_autoptr (GError) error = NULL;
      found = read_timings (wanted, db, &error);
      if (error)
        g_warning ("nothing timed on this machine is used: %s", error->message);
      g_hash_table_insert (known, g_steal_pointer (&key), found);
    }
  return found;
}

const SimTimings *
advise_timings (const PlanCluster *cluster, const PlanStack *stack, const char *db,
                const char *comm)
{
  if (stack->id != PLAN_STACK_NATIVE || plan_cluster_is_altered (cluster, FALSE))
    return NULL;
  const gboolean is_gpu = cluster->kind == PLAN_DEVICE_GPU;
  const char *comm_name = comm_of (cluster, comm);
  const gint64 ranks = plan_cluster_devices (cluster);
  g_autofree char *machine = advise_timings_machine (cluster, "", FALSE);
  g_autofree char *network = print_network (cluster);
  const Wanted wanted
      = { .machine = machine,
          .network = network,
          .backend = is_gpu ? "cuda" : "cpu",
          .comm = comm_name,
          .sharing = is_gpu && ranks > 1 && g_str_equal (comm_name, "threads") ? ranks : 0 };
  g_mutex_lock (&mutex);
  SimTimings *found = find (&wanted, db);
  g_mutex_unlock (&mutex);
  return found;
}

void
advise_timings_forget (void)
{
  g_mutex_lock (&mutex);
  if (known)
    g_hash_table_remove_all (known);
  g_mutex_unlock (&mutex);
}
