/* Makes clusters of other sizes. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* A cluster like this one with another number of devices: some of a node's, or whole nodes. */
PlanCluster *advise_resize (const PlanCluster *cluster, gint64 devices, GError **error);

G_END_DECLS
