/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/measurements.h"

#include "db/catalogue.h"

/* The op list's layout of a GEMM, from its transposes in BLAS's notation for column-major
 * matrices. */
static gint64
layout_of (const DbProduct *product)
{
  return g_strcmp0 (product->layout, "TN") == 0   ? 1
         : g_strcmp0 (product->layout, "NN") == 0 ? 0
                                                  : 2;
}

static SimMeasurements *
read_products (const char *gpu, GError **error)
{
  g_autoptr (DbStore) store = db_catalogue_open (error);
  g_autoptr (GArray) products = store ? db_catalogue_list_products (store, gpu, error) : NULL;
  g_autoptr (GArray) rows = g_array_new (FALSE, FALSE, sizeof (SimProduct));
  for (guint i = 0; products && i < products->len; i++)
    {
      const DbProduct *from = &g_array_index (products, DbProduct, i);
      SimProduct row = { .m = from->m,
                         .n = from->n,
                         .k = from->k,
                         .layout = layout_of (from),
                         .in = PLAN_DTYPE_BF16,
                         .accumulates = from->accumulates,
                         .flops_per_s = from->flops_per_s };
      if (from->batch != 1 || !g_str_equal (from->kind, "product"))
        continue;
      if (!plan_dtype_parse (from->out_dtype, from->row, &row.out, error))
        return NULL;
      g_array_append_val (rows, row);
    }
  return products ? sim_measurements_new ((const SimProduct *)rows->data, rows->len) : NULL;
}

/* The measurements of a device, by name; read when first asked for. */
static const SimMeasurements *
find (const char *device)
{
  static GHashTable *by_device = NULL;
  g_autoptr (GError) error = NULL;
  if (!by_device)
    by_device = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  if (!g_hash_table_contains (by_device, device))
    {
      g_hash_table_insert (by_device, g_strdup (device), read_products (device, &error));
      if (error)
        g_warning ("nothing measured is used: %s", error->message);
    }
  return g_hash_table_lookup (by_device, device);
}

const SimMeasurements *
advise_measurements (const PlanCluster *cluster)
{
  static GMutex mutex;
  if (plan_cluster_is_altered (cluster, TRUE)) /* nobody has measured an altered device */
    return NULL;
  g_mutex_lock (&mutex);
  const SimMeasurements *found = find (cluster->device_name);
  g_mutex_unlock (&mutex);
  return found;
}
