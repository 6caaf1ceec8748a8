/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/clusters.h"
#include "planner/base/error.h"
#include "planner/cluster/cluster.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define TEXT "[box]\nsource=mine\nnodes=1\ndevices_per_node=2\ndevice=x\nkind=gpu\n"

START_TEST (keeps_and_finds)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (DbStore) store = db_store_open (":memory:", NULL);
  g_autoptr (PlanCluster) dgx = plan_cluster_new ("dgx-h100:4", NULL);
  g_autofree char *dgx_text = plan_cluster_print (dgx);
  ck_assert_msg (db_store_put_cluster (store, "local/1a2b3c4d", TEXT, &error), "%s",
                 error ? error->message : "");
  ck_assert (db_store_put_cluster (store, "a", dgx_text, NULL));
  g_autofree char *kept = db_store_get_cluster (store, "local/1a2b3c4d", NULL);
  g_autofree char *kept_dgx = db_store_get_cluster (store, "a", NULL);
  ck_assert_str_eq (kept, TEXT);
  ck_assert_str_eq (kept_dgx, dgx_text);
  g_autoptr (GArray) all = db_store_list_clusters (store, NULL);
  ck_assert_uint_eq (all->len, 2);
  const DbCluster *first = &g_array_index (all, DbCluster, 0);
  const DbCluster *second = &g_array_index (all, DbCluster, 1);
  ck_assert_str_eq (first->name, "a");
  ck_assert_str_eq (second->source, "mine");
  ck_assert_uint_eq (strlen (second->created), strlen ("2026-01-01T00:00:00Z"));
}
END_TEST

START_TEST (the_newer_text_stays)
{
  g_autoptr (DbStore) store = db_store_open (":memory:", NULL);
  ck_assert (db_store_put_cluster (store, "box", TEXT, NULL));
  ck_assert (db_store_put_cluster (store, "box", TEXT "memory=1GB\n", NULL));
  g_autofree char *kept = db_store_get_cluster (store, "box", NULL);
  g_autoptr (GArray) all = db_store_list_clusters (store, NULL);
  ck_assert_str_eq (kept, TEXT "memory=1GB\n");
  ck_assert_uint_eq (all->len, 1);
}
END_TEST

START_TEST (keeps_only_clusters)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (DbStore) store = db_store_open (":memory:", NULL);
  ck_assert (!db_store_put_cluster (store, "box", "[box]\n", &error));
  ck_assert_str_eq (error->message, "box: [box] device: missing");
  g_clear_error (&error);
  g_autofree char *none = db_store_get_cluster (store, "box", &error);
  ck_assert_ptr_null (none);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_str_eq (error->message, ":memory:: there is no cluster box");
  g_autoptr (GArray) all = db_store_list_clusters (store, NULL);
  ck_assert_uint_eq (all->len, 0);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("clusters");
  TCase *tcase = tcase_create ("clusters");
  tcase_add_test (tcase, keeps_and_finds);
  tcase_add_test (tcase, the_newer_text_stays);
  tcase_add_test (tcase, keeps_only_clusters);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
