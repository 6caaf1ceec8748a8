/* Shared by cluster.c, cluster-names.c and cluster-text.c. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* Makes an empty cluster of one node. */
PlanCluster *plan_cluster_new_empty (void);

/* Reads the keys of a section into `self`; a device's section may only have facts of devices. */
gboolean plan_cluster_read_keys (PlanCluster *self, GKeyFile *file, const char *section,
                                 gboolean is_device, GError **error);

/* Reads a cluster's section; facts of its device may still be missing. */
PlanCluster *plan_cluster_read_section (GKeyFile *file, const char *section, GError **error);

/* Takes the shipped device's facts, derives facts that follow from others, and checks the
 * cluster. */
gboolean plan_cluster_complete (PlanCluster *self, GError **error);

/* Fills in from `device` whatever `self` does not know about its device. */
void plan_cluster_adopt (PlanCluster *self, const PlanCluster *device);

/* The shipped clusters, and the shipped devices, which have only facts; a section each. */
GKeyFile *plan_cluster_preset_file (void);
GKeyFile *plan_cluster_device_file (void);

/* Finds the shipped device that a word stands for, NULL for none; INVALID where it stands for
 * several. */
gboolean plan_cluster_find_device (const char *word, const char **out_device, GError **error);

/* The shipped cluster that a word stands for; NULL for none. */
const char *plan_cluster_find_preset (const char *word);

/* Removes the numbers from texts such as "2x8xH100", "8 x H100" or "H100x8", so that the name is
 * left. Each number is 0 where it is absent; a single number is `count`. */
void plan_cluster_take_counts (char **name, gint64 *out_nodes, gint64 *out_count);

/* A hint at what was meant by a word that is no shipped name; the caller frees. */
char *plan_cluster_suggest (const char *word);

G_END_DECLS
