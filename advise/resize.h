/* Clusters of other sizes, for advice on how many devices to use. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* A cluster like this one with another number of devices: some of a node's, or whole nodes. Unlike
 * plan_cluster_resize it can grow a part of a shipped node to the whole: it looks the node up by
 * the cluster's name. */
PlanCluster *advise_resize (const PlanCluster *cluster, gint64 devices, GError **error);

G_END_DECLS
