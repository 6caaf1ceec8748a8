/* Clusters in the user's store: machines that were probed, and what was written down. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  char *name;
  char *text;    /* as plan_cluster_print wrote it */
  char *source;  /* of what has none of its own */
  char *created; /* UTC, ISO 8601 */
} DbCluster;

/* Keeps a cluster's text under its name, in place of an older one; INVALID when it is no cluster's
 * text. */
gboolean db_store_put_cluster (DbStore *self, const char *name, const char *text, GError **error);

/* The text of that name; INVALID when there is none. The caller frees. */
char *db_store_get_cluster (DbStore *self, const char *name, GError **error);

/* By name; elements are DbCluster, owned by the array. */
GArray *db_store_list_clusters (DbStore *self, GError **error);

G_END_DECLS
