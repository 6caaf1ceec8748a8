/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/adjustments.h"

#include "db/catalogue.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

/* Refuses an id, naming those that exist. */
static void
refuse (const char *id, GPtrArray *known, GError **error)
{
  g_ptr_array_add (known, g_strdup (ADVISE_NO_ADJUSTMENTS));
  g_ptr_array_add (known, NULL);
  g_autofree char *shown = plan_text_quote (id);
  g_autofree char *hint = plan_text_suggest (id, (const char *const *)known->pdata);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--params: %s is no set of parameters: %s",
               shown, hint);
}

/* The newest set of the store, or the one with that id; NULL without an error where there is
 * none. */
static SimAdjustments *
find_stored (const char *id, DbStore *store, GPtrArray *known, GError **error)
{
  g_autoptr (DbTable) sets = store ? db_store_read_table (store, DB_KIND_PARAMS, NULL, NULL) : NULL;
  const char *text = NULL, *name = NULL, *newest = "";
  for (guint i = 0; sets && i < db_table_n_rows (sets); i++)
    {
      const char *row_id = db_table_cell_named (sets, i, "id");
      const char *created = db_table_cell_named (sets, i, "created");
      g_ptr_array_add (known, g_strdup (row_id));
      if (id ? !g_str_equal (id, row_id) : g_strcmp0 (created, newest) < 0)
        continue;
      newest = created;
      name = row_id;
      text = db_table_cell_named (sets, i, "text");
    }
  return text ? sim_adjustments_parse (text, name, error) : NULL;
}

/* The shipped set; that a catalogue has none is no error. */
static SimAdjustments *
read_shipped (GError **error)
{
  g_autofree char *path = db_catalogue_adjustments_path ();
  g_autofree char *text = NULL;
  gsize length;
  return g_file_test (path, G_FILE_TEST_EXISTS) && plan_text_read_file (path, &text, &length, error)
             ? sim_adjustments_parse (text, path, error)
             : NULL;
}

static SimAdjustments *
find (const char *id, const char *db, GError **error)
{
  g_autoptr (GPtrArray) known = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GError) cause = NULL;
  g_autoptr (DbStore) store = NULL;
  if (!db_store_open_if_any (db, &store, error) || g_strcmp0 (id, ADVISE_NO_ADJUSTMENTS) == 0)
    return NULL;
  g_autoptr (SimAdjustments) set = find_stored (id, store, known, &cause);
  if (!set && !cause)
    {
      set = read_shipped (&cause);
      if (set && id && !g_str_equal (set->id, id))
        {
          g_ptr_array_add (known, g_strdup (set->id));
          g_clear_pointer (&set, sim_adjustments_free);
        }
    }
  if (cause)
    g_propagate_error (error, g_steal_pointer (&cause));
  else if (!set && id)
    refuse (id, known, error);
  return g_steal_pointer (&set);
}

const SimAdjustments *
advise_adjustments (const char *id, const char *db, GError **error)
{
  static GMutex mutex;
  static GHashTable *sets = NULL; /* parameter sets by id and store; NULL: such a store has none */
  g_autofree char *key = g_strdup_printf ("%s\n%s", id ? id : "", db ? db : "");
  gpointer set;
  g_mutex_lock (&mutex);
  if (!sets)
    sets = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  if (!g_hash_table_lookup_extended (sets, key, NULL, &set))
    {
      g_autoptr (GError) cause = NULL;
      set = find (id, db, &cause);
      if (cause)
        g_propagate_error (error, g_steal_pointer (&cause));
      else
        g_hash_table_insert (sets, g_steal_pointer (&key), set);
    }
  g_mutex_unlock (&mutex);
  return set;
}

const char *
advise_adjustments_unreadable (const DbTable *sets, GError **why)
{
  for (guint i = 0; i < db_table_n_rows (sets); i++)
    {
      const char *id = db_table_cell_named (sets, i, "id");
      g_autoptr (SimAdjustments) set
          = sim_adjustments_parse (db_table_cell_named (sets, i, "text"), id, why);
      if (!set)
        return id;
    }
  return NULL;
}

gboolean
advise_adjustments_accept (const DbTable *table, const char *origin, GError **error)
{
  g_autoptr (GError) why = NULL;
  const char *id
      = table->kind == DB_KIND_PARAMS ? advise_adjustments_unreadable (table, &why) : NULL;
  if (!id)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: parameter set %s cannot be read, and predictions would rest on it: %s", origin,
               id, why->message);
  return FALSE;
}

static gpointer
read_shipped_once (gpointer unused)
{
  (void)unused;
  return read_shipped (NULL);
}

const SimAdjustments *
advise_adjustments_shipped (void)
{
  static GOnce once = G_ONCE_INIT;
  return g_once (&once, read_shipped_once, NULL);
}

SimParams
advise_params (const SimAdjustments *set, const PlanCluster *cluster, const PlanStack *stack)
{
  SimParams params = *sim_params_default (cluster);
  if (set)
    sim_adjustments_apply (set, cluster->device_name, stack->name, cluster->site, &params);
  return params;
}
