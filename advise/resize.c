/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/resize.h"

#include "planner/base/error.h"

/* Resizes a cluster. A shipped one is taken afresh by its name, without the changes of --hw, which
 * the caller makes again; the text of any other has them already. */
static PlanCluster *
resize_unaltered (const PlanCluster *cluster, gint64 devices, GError **error)
{
  g_autoptr (PlanCluster) shipped = plan_cluster_new (cluster->name, NULL);
  g_autofree char *text = plan_cluster_print (cluster);
  g_autoptr (PlanCluster) self
      = shipped && g_strcmp0 (shipped->device_name, cluster->device_name) == 0
            ? g_steal_pointer (&shipped)
            : plan_cluster_parse (text, "cluster", error);
  if (!self)
    return NULL;
  const gint64 node = self->devices_per_node;
  if (devices < node)
    {
      g_autofree char *spec
          = g_strdup_printf ("%s:%" G_GINT64_FORMAT, cluster->device_name, devices);
      return plan_cluster_new (spec, error);
    }
  if (devices % node != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--gpus: %" G_GINT64_FORMAT " are not whole nodes of %" G_GINT64_FORMAT, devices,
                   node);
      return NULL;
    }
  self->nodes = devices / node;
  return g_steal_pointer (&self);
}

PlanCluster *
advise_resize (const PlanCluster *cluster, gint64 devices, GError **error)
{
  g_auto (GStrv) overrides = plan_cluster_overrides (cluster);
  g_autoptr (PlanCluster) self = resize_unaltered (cluster, devices, error);
  return self && plan_cluster_override (self, (const char *const *)overrides, error)
             ? g_steal_pointer (&self)
             : NULL;
}
