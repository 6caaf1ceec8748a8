/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue as the program reads it, against the text it was built from. */
#include "config.h"

#include "db/catalogue-format.h"
#include "db/catalogue.h"
#include "planner/base/error.h"
#include "planner/cluster/cluster.h"
#include "sim/cost/cost.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "FSDPLAN_CATALOGUE"

/* Offsets at which SQLite keeps these two numbers in a file, big-endian. */
#define USER_VERSION_AT 60
#define APPLICATION_ID_AT 68

static char *shipped;

static DbStore *
open_shipped (void)
{
  g_autoptr (GError) error = NULL;
  g_setenv (VARIABLE, shipped, TRUE);
  DbStore *store = db_catalogue_open (&error);
  ck_assert_msg (store != NULL, "%s", error ? error->message : "");
  return store;
}

/* The lines of a table below its header. */
static char **
lines_of (const char *table)
{
  g_autofree char *path = g_build_filename (g_getenv ("top_srcdir"), "db", "data", table, NULL);
  g_autofree char *text = NULL;
  ck_assert (g_file_get_contents (path, &text, NULL, NULL));
  const char *below = strchr (text, '\n') + 1;
  return g_strsplit (g_strchomp ((char *)below), "\n", -1);
}

static const DbCurvePoint *
find_point (const GArray *curves, const char *row, const DbCurve **out_curve)
{
  for (guint i = 0; i < curves->len; i++)
    {
      *out_curve = &g_array_index (curves, DbCurve, i);
      for (guint p = 0; p < (*out_curve)->points->len; p++)
        {
          const DbCurvePoint *point = &g_array_index ((*out_curve)->points, DbCurvePoint, p);
          if (g_str_equal (point->row, row))
            return point;
        }
    }
  return NULL;
}

START_TEST (every_point_is_there)
{
  g_autoptr (DbStore) store = open_shipped ();
  g_autoptr (GArray) curves = db_catalogue_list_curves (store, "h100-80gb", NULL, NULL);
  g_auto (GStrv) lines = lines_of ("points.csv");
  ck_assert_uint_gt (curves->len, 0);
  for (guint i = 0; lines[i]; i++) /* no field of this table has a comma */
    {
      g_auto (GStrv) fields = g_strsplit (lines[i], ",", -1);
      const DbCurve *curve;
      const DbCurvePoint *point = find_point (curves, fields[4], &curve);
      ck_assert_msg ((point != NULL) == (strstr (fields[0], "-h100-80gb-") != NULL), "%s",
                     lines[i]);
      if (!point)
        continue;
      ck_assert_str_eq (curve->id, fields[0]);
      ck_assert_int_eq (point->size_bytes, g_ascii_strtoll (fields[1], NULL, 10));
      ck_assert (point->bus_bytes_per_s == g_ascii_strtod (fields[2], NULL) * 1e9);
    }
}
END_TEST

START_TEST (curves_are_sorted_and_sourced)
{
  g_autoptr (DbStore) store = open_shipped ();
  g_autoptr (GArray) all = db_catalogue_list_curves (store, NULL, NULL, NULL);
  g_autoptr (GArray) gathers = db_catalogue_list_curves (store, NULL, "all_gather", NULL);
  g_auto (GStrv) lines = lines_of ("points.csv");
  guint points = 0, n_gathers = 0;
  for (guint i = 0; i < all->len; i++)
    {
      const DbCurve *curve = &g_array_index (all, DbCurve, i);
      ck_assert (curve->source && *curve->source && curve->points->len > 0);
      ck_assert ((curve->nodes > 1) || curve->network == NULL);
      n_gathers += g_str_equal (curve->op, "all_gather");
      points += curve->points->len;
      for (guint p = 1; p < curve->points->len; p++)
        ck_assert_int_lt (g_array_index (curve->points, DbCurvePoint, p - 1).size_bytes,
                          g_array_index (curve->points, DbCurvePoint, p).size_bytes);
      if (i > 0)
        ck_assert_int_le (g_strcmp0 (g_array_index (all, DbCurve, i - 1).gpu, curve->gpu), 0);
    }
  ck_assert_uint_eq (points, g_strv_length (lines));
  ck_assert_uint_eq (gathers->len, n_gathers);
  g_autoptr (GArray) none = db_catalogue_list_curves (store, "none", NULL, NULL);
  ck_assert_uint_eq (none->len, 0);
}
END_TEST

START_TEST (every_kernel_is_there)
{
  g_autoptr (DbStore) store = open_shipped ();
  g_autoptr (GArray) products = db_catalogue_list_products (store, NULL, NULL);
  g_autoptr (GArray) attention = db_catalogue_list_attention (store, NULL, NULL);
  g_autoptr (GArray) of_a100 = db_catalogue_list_products (store, "a100-pcie-80gb", NULL);
  g_auto (GStrv) product_lines = lines_of ("products.csv");
  g_auto (GStrv) attention_lines = lines_of ("attention.csv");
  g_autoptr (GArray) workspaces = db_catalogue_list_workspaces (store, NULL, NULL);
  g_auto (GStrv) workspace_lines = lines_of ("workspaces.csv");
  ck_assert_uint_eq (products->len, g_strv_length (product_lines));
  ck_assert_uint_eq (attention->len, g_strv_length (attention_lines));
  ck_assert_uint_eq (workspaces->len, g_strv_length (workspace_lines));
  ck_assert (of_a100->len > 0 && of_a100->len < products->len);
  for (guint i = 0; i < products->len; i++)
    {
      const DbProduct *p = &g_array_index (products, DbProduct, i);
      g_autoptr (PlanCluster) gpu = plan_cluster_new_device (p->gpu, NULL);
      ck_assert_ptr_nonnull (gpu);
      ck_assert_msg (p->flops_per_s < gpu->peak_flops[PLAN_DTYPE_BF16], "%s is beyond its GPU",
                     p->row);
      ck_assert (p->m > 0 && p->n > 0 && p->k > 0 && p->batch > 0);
    }
  g_auto (GStrv) first = g_strsplit (product_lines[0], ",", -1);
  for (guint i = 0; i < products->len; i++)
    {
      const DbProduct *p = &g_array_index (products, DbProduct, i);
      if (!g_str_equal (p->row, first[0]))
        continue;
      ck_assert_str_eq (p->gpu, first[2]);
      ck_assert_int_eq (p->k, g_ascii_strtoll (first[8], NULL, 10));
      ck_assert_str_eq (p->out_dtype, first[11]);
      ck_assert (p->flops_per_s == g_ascii_strtod (first[12], NULL) * 1e12);
      ck_assert_str_eq (p->source, "MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json");
      return;
    }
  ck_abort_msg ("%s is missing", first[0]);
}
END_TEST

static SimParam
param_of (const char *key)
{
  for (SimParam p = 0; p < SIM_N_PARAMS; p++)
    if (g_str_equal (sim_param_key (p), key))
      return p;
  ck_abort_msg ("%s is no parameter of the cost model", key);
}

/* The simulator's own defaults have to equal the catalogue's. */
START_TEST (parameters_are_the_simulator_s)
{
  g_autoptr (DbStore) store = open_shipped ();
  const SimParams *params;
  for (guint i = 0; (params = sim_params_get (i)); i++)
    {
      g_autoptr (GArray) rows = db_catalogue_list_parameters (store, params->id, NULL);
      ck_assert_uint_eq (rows->len, SIM_N_PARAMS);
      for (guint r = 0; r < rows->len; r++)
        {
          const DbFact *fact = &g_array_index (rows, DbFact, r);
          const SimParam param = param_of (fact->key);
          ck_assert_msg (fact->value == params->value[param], "%s: %s", params->id, fact->key);
          ck_assert_str_eq (fact->source, sim_params_source (params, param));
        }
    }
}
END_TEST

static void
check_facts (const GArray *rows, const PlanCluster *of, gboolean is_device)
{
  guint known = 0;
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    known += plan_cluster_knows (of, f) && plan_fact_is_of_device (f) == is_device;
  ck_assert_uint_eq (rows->len, known);
  for (guint i = 0; i < rows->len; i++)
    {
      const DbFact *row = &g_array_index (rows, DbFact, i);
      PlanFact fact;
      ck_assert (plan_fact_find (row->key, &fact));
      ck_assert (row->value == plan_cluster_value (of, fact));
      ck_assert_str_eq (row->unit, plan_fact_unit (fact));
      ck_assert_str_eq (row->source, plan_cluster_source_of (of, fact));
    }
}

START_TEST (facts_are_the_planner_s)
{
  g_autoptr (DbStore) store = open_shipped ();
  for (const char *const *name = plan_cluster_devices_shipped (); *name; name++)
    {
      g_autoptr (PlanCluster) device = plan_cluster_new_device (*name, NULL);
      g_autoptr (GArray) rows = db_catalogue_list_gpu_facts (store, *name, NULL);
      check_facts (rows, device, TRUE);
    }
  for (const char *const *name = plan_cluster_presets (); *name; name++)
    {
      g_autoptr (PlanCluster) cluster = plan_cluster_new (*name, NULL);
      g_autoptr (GArray) rows = db_catalogue_list_cluster_facts (store, *name, NULL);
      check_facts (rows, cluster, FALSE);
    }
}
END_TEST

/* A copy in which the four bytes at `offset` are `value`. */
static char *
altered_copy (const char *folder, gsize offset, guint32 value)
{
  char *path = g_build_filename (folder, "copy %41#?.db", NULL);
  g_autofree char *bytes = NULL;
  gsize length;
  ck_assert (g_file_get_contents (shipped, &bytes, &length, NULL));
  for (guint i = 0; i < 4 && offset > 0; i++)
    bytes[offset + i] = (char)(value >> (24 - 8 * i));
  ck_assert (g_file_set_contents (path, bytes, (gssize)length, NULL));
  return path;
}

static const struct
{
  gsize offset;
  guint32 value;
  int code;
  const char *message;
} altered[] = {
  { USER_VERSION_AT, DB_CATALOGUE_VERSION + 1, PLAN_ERROR_UNSUPPORTED,
    "this catalogue is of version 3, and this program reads version 2: name the one it came with "
    "in FSDPLAN_CATALOGUE" },
  { APPLICATION_ID_AT, 7, PLAN_ERROR_INVALID, "this is not a catalogue of fsdplan" },
  { 16, 0, PLAN_ERROR_INVALID, "" }, /* the page size: then the file is no database at all */
};

START_TEST (refuses_altered_files)
{
  g_autofree char *folder = g_dir_make_tmp ("fsdplan-XXXXXX", NULL);
  g_autofree char *path = altered_copy (folder, altered[_i].offset, altered[_i].value);
  g_autoptr (GError) error = NULL;
  g_setenv (VARIABLE, path, TRUE);
  g_autoptr (DbStore) store = db_catalogue_open (&error);
  ck_assert_ptr_null (store);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, altered[_i].code), "%s", error->message);
  ck_assert_msg (strstr (error->message, altered[_i].message), "%s", error->message);
  g_unlink (path);
  g_rmdir (folder);
}
END_TEST

START_TEST (any_name_will_do)
{
  g_autofree char *folder = g_dir_make_tmp ("fsdplan-XXXXXX", NULL);
  g_autofree char *path = altered_copy (folder, 0, 0);
  g_autoptr (GError) error = NULL;
  g_setenv (VARIABLE, path, TRUE);
  g_autoptr (DbStore) store = db_catalogue_open (&error);
  ck_assert_msg (store != NULL, "%s", error ? error->message : "");
  g_autoptr (GArray) rows = db_catalogue_list_attention (store, NULL, NULL);
  ck_assert_uint_gt (rows->len, 0);
  g_unlink (path);
  g_rmdir (folder);
}
END_TEST

START_TEST (absence_is_an_error)
{
  g_autoptr (GError) error = NULL;
  g_setenv (VARIABLE, "/nonexistent/catalogue.db", TRUE);
  g_autoptr (DbStore) store = db_catalogue_open (&error);
  ck_assert_ptr_null (store);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_IO));
  ck_assert_str_eq (error->message,
                    "/nonexistent/catalogue.db: there is no catalogue here: install fsdplan, or "
                    "name one in FSDPLAN_CATALOGUE");
}
END_TEST

/* A catalogue that is attached to a user's store can be read, but not written. */
START_TEST (attached_to_a_store)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (DbStore) store = db_store_open (":memory:", NULL);
  g_autoptr (GArray) none = db_catalogue_list_curves (store, NULL, NULL, &error);
  ck_assert_ptr_null (none);
  g_clear_error (&error);
  g_setenv (VARIABLE, "/nonexistent/catalogue.db", TRUE);
  ck_assert (!db_catalogue_attach (store, NULL)); /* attaching works again */
  g_setenv (VARIABLE, shipped, TRUE);
  ck_assert_msg (db_catalogue_attach (store, &error), "%s", error ? error->message : "");
  g_autoptr (GArray) curves = db_catalogue_list_curves (store, NULL, NULL, NULL);
  ck_assert_uint_gt (curves->len, 0);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("catalogue");
  TCase *tcase = tcase_create ("catalogue");
  shipped = g_strdup (g_getenv (VARIABLE));
  tcase_add_test (tcase, every_point_is_there);
  tcase_add_test (tcase, curves_are_sorted_and_sourced);
  tcase_add_test (tcase, every_kernel_is_there);
  tcase_add_test (tcase, parameters_are_the_simulator_s);
  tcase_add_test (tcase, facts_are_the_planner_s);
  tcase_add_loop_test (tcase, refuses_altered_files, 0, G_N_ELEMENTS (altered));
  tcase_add_test (tcase, any_name_will_do);
  tcase_add_test (tcase, absence_is_an_error);
  tcase_add_test (tcase, attached_to_a_store);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  g_free (shipped);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
