/* What `fsdplan show` says of clusters, devices and what was measured on them. */
#pragma once
#include "cli/io/output.h"
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* Every fact with its unit and source, and what follows from them. */
void cli_show_cluster (const PlanCluster *cluster, CliFormat format);

/* Every shipped device. */
gboolean cli_show_gpus (CliFormat format, GError **error);

/* The catalogue's measurements on the cluster's device, or all for NULL. */
gboolean cli_show_costs (const PlanCluster *cluster, CliFormat format, GError **error);

/* Keeps the cluster in the store under its name; INVALID for a name that finds something else. */
gboolean cli_keep_cluster (const PlanCluster *cluster, const char *db, GError **error);

G_END_DECLS
