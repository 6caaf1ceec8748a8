/* What cluster.c and cluster-text.c share. */
#pragma once
#include "planner/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* An empty cluster of one node. */
PlanCluster *plan_cluster_new_empty (void);

/* Reads the keys of a section into `self`; of a device's section only facts of devices. */
gboolean plan_cluster_read_keys (PlanCluster *self, GKeyFile *file, const char *section,
                                 gboolean is_device, GError **error);

/* Reads a cluster's section; the device's facts may still be missing. */
PlanCluster *plan_cluster_read_section (GKeyFile *file, const char *section, GError **error);

/* Adopts the shipped device's facts, derives what follows from others, and checks the whole. */
gboolean plan_cluster_complete (PlanCluster *self, GError **error);

/* Fills what `self` does not know about its device from `device`. */
void plan_cluster_adopt (PlanCluster *self, const PlanCluster *device);

G_END_DECLS
