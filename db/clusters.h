/* Clusters in the user's store: machines that were probed, and clusters that were written by
 * hand. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  char *name;
  char *text;    /* as plan_cluster_print writes it */
  char *source;  /* of facts without a source of their own */
  char *created; /* UTC, ISO 8601 */
} DbCluster;

/* Stores a cluster's text under its name, replacing an older one. INVALID when it is not a
 * cluster's text. */
gboolean db_store_put_cluster (DbStore *self, const char *name, const char *text, GError **error);

/* The text of the cluster with that name; INVALID when there is none. The caller frees. */
char *db_store_get_cluster (DbStore *self, const char *name, GError **error);

/* All clusters by name; elements are DbCluster, owned by the array. */
GArray *db_store_list_clusters (DbStore *self, GError **error);

G_END_DECLS
