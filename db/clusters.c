/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/clusters.h"

#include "db/store-private.h"
#include "planner/base/error.h"
#include "planner/cluster/cluster.h"

gboolean
db_store_put_cluster (DbStore *self, const char *name, const char *text, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  g_auto (DbQuery) put = { 0 };
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *created = g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ");
  g_autoptr (PlanCluster) cluster = plan_cluster_parse (text, name, error);
  if (!cluster)
    return FALSE;
  db_store_doing (self, "keep cluster %s", name);
  if (!db_transaction_begin (&transaction, self, error)
      || !db_query_prepare (&put, self,
                            "INSERT INTO cluster (name, text, source, created) VALUES (?, ?, ?, ?)"
                            "    ON CONFLICT (name) DO UPDATE SET text = excluded.text,"
                            "       source = excluded.source, created = excluded.created",
                            error))
    return FALSE;
  db_query_put_text (&put, name);
  db_query_put_text (&put, text);
  db_query_put_text (&put, cluster->source);
  db_query_put_text (&put, created);
  return db_query_run (&put, error) && db_transaction_commit (&transaction, error);
}

char *
db_store_get_cluster (DbStore *self, const char *name, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  g_autofree char *text = NULL;
  db_store_doing (self, "load cluster %s", name);
  if (!db_query_prepare (&query, self, "SELECT text FROM cluster WHERE name = ?", error))
    return NULL;
  db_query_put_text (&query, name);
  while (db_query_next (&query))
    text = db_query_take_text (&query);
  if (!db_query_end (&query, error))
    return NULL;
  if (!text)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: there is no cluster %s", self->path,
                 name);
  return g_steal_pointer (&text);
}

static void
clear_cluster (gpointer data)
{
  DbCluster *self = data;
  g_free (self->name);
  g_free (self->text);
  g_free (self->source);
  g_free (self->created);
}

GArray *
db_store_list_clusters (DbStore *self, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  g_autoptr (GArray) clusters = g_array_new (FALSE, TRUE, sizeof (DbCluster));
  g_array_set_clear_func (clusters, clear_cluster);
  db_store_doing (self, "list clusters");
  if (!db_query_prepare (&query, self,
                         "SELECT name, text, source, created FROM cluster ORDER BY name", error))
    return NULL;
  while (db_query_next (&query))
    {
      DbCluster cluster;
      cluster.name = db_query_take_text (&query);
      cluster.text = db_query_take_text (&query);
      cluster.source = db_query_take_text (&query);
      cluster.created = db_query_take_text (&query);
      g_array_append_val (clusters, cluster);
    }
  return db_query_end (&query, error) ? g_steal_pointer (&clusters) : NULL;
}
