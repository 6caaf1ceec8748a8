/* What cluster.c, cluster-names.c and cluster-text.c share. */
#pragma once
#include "planner/cluster/cluster.h"
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

/* The shipped clusters and devices, a section each, nothing but facts in those of devices. */
GKeyFile *plan_cluster_preset_file (void);
GKeyFile *plan_cluster_device_file (void);

/* The shipped device that a word stands for, NULL for none; INVALID where it stands for several. */
gboolean plan_cluster_find_device (const char *word, const char **out_device, GError **error);

/* The shipped cluster that a word stands for; NULL for none. */
const char *plan_cluster_find_preset (const char *word);

/* "2x8xH100", "8 x H100", "H100x8": takes the numbers off, so that the name stays. Each 0 where it
 * is not told; one alone is `count`. */
void plan_cluster_take_counts (char **name, gint64 *out_nodes, gint64 *out_count);

/* What may have been meant by a word that is no shipped name; the caller frees. */
char *plan_cluster_suggest (const char *word);

G_END_DECLS
