/* fsdplan show for clusters, devices and measurements on them. */
#pragma once
#include "cli/io/output.h"
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* Prints every fact with its unit and source, and numbers computed from them. */
void cli_show_cluster (const PlanCluster *cluster, CliFormat format);

/* Prints the devices of the catalogue. */
gboolean cli_show_gpus (CliFormat format, GError **error);

/* Prints the catalogue's measurements on the cluster's device; NULL: on all devices. */
gboolean cli_show_costs (const PlanCluster *cluster, CliFormat format, GError **error);

/* Stores the cluster under its name. INVALID if the name would find another cluster. */
gboolean cli_keep_cluster (const PlanCluster *cluster, const char *db, GError **error);

G_END_DECLS
