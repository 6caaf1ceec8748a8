/* SPDX-License-Identifier: Apache-2.0 */
/* A store that is made of the text (SQL, JSON or CSV), some of whose columns are then set to values
 * that the store itself would refuse, as damage and other programs do: whoever reads it gets an
 * answer or an error. Which columns and values they are follows from the text. */
#include "config.h"

#include "db/clusters.h"
#include "db/plans.h"
#include "db/runs.h"
#include "db/store-private.h"
#include "db/traces.h"
#include "db/transfer.h"
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "sim/cost/adjust.h"
#include "sim/cost/timings.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

#define ROUNDS 4 /* of other columns and values, with one text */

static const char *const values[] = { "NULL",
                                      "''",
                                      "'  '",
                                      "0",
                                      "-1",
                                      "1",
                                      "1e999",
                                      "-0.5",
                                      "9223372036854775807",
                                      "-9223372036854775807 - 1",
                                      "x''",
                                      "x'ff00fe'",
                                      "'nan'",
                                      "'x'",
                                      "'1 2 3'",
                                      "'a=b'",
                                      "'[x]'",
                                      "'layers=1'",
                                      "char(0, 65)",
                                      "zeroblob(70000)",
                                      "hex(zeroblob(70000))",
                                      "replace(hex(zeroblob(9)), '0', '[')" };

/* The first column of a query's first row; NULL where there is none. */
static char *
ask (DbStore *store, const char *sql)
{
  g_auto (DbQuery) query = { 0 };
  char *text = NULL;
  if (!db_query_prepare (&query, store, sql, NULL))
    return NULL;
  if (db_query_next (&query))
    text = db_query_take_text (&query);
  return text;
}

/* Sets a random column of a random table to one value. SQLite's own random numbers would not be the
 * same every time. */
static void
tamper (DbStore *store, GRand *rand)
{
  g_autofree char *which_table = g_strdup_printf (
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%%'"
      " LIMIT 1 OFFSET %d %% (SELECT count (*) FROM sqlite_schema WHERE type = 'table'"
      " AND name NOT LIKE 'sqlite%%')",
      g_rand_int_range (rand, 0, 1000));
  g_autofree char *table = ask (store, which_table);
  g_autofree char *which_column
      = g_strdup_printf ("SELECT name FROM pragma_table_info ('%s')"
                         " LIMIT 1 OFFSET %d %% (SELECT count (*) FROM pragma_table_info ('%s'))",
                         table, g_rand_int_range (rand, 0, 1000), table);
  g_autofree char *column = ask (store, which_column);
  g_autofree char *update
      = g_strdup_printf ("UPDATE OR IGNORE \"%s\" SET \"%s\" = %s", table, column,
                         values[g_rand_int_range (rand, 0, G_N_ELEMENTS (values))]);
  db_store_exec (store, update, NULL);
}

/* A call is done, or sets an error. */
static void
check (gboolean is_done, GError *const *error)
{
  if (is_done != (*error == NULL))
    abort ();
}

static void
read_texts (const char *model, const char *cluster, const char *plan)
{
  Plan read;
  g_autoptr (GError) error = NULL;
  plan_model_free (plan_model_new (model ? model : "", NULL));
  plan_cluster_free (plan_cluster_parse (cluster ? cluster : "", "store", NULL));
  check (plan_parse (plan ? plan : "", "store", &read, &error), &error);
}

static void
read_run (DbStore *store, gint64 id)
{
  static const char *const origins[] = { "sim", "cpu", "cuda" };
  gint64 plan_id;
  g_auto (DbRun) run = { 0 };
  g_autoptr (GError) error = NULL;
  const gboolean is_read = db_store_load_run (store, id, &run, &error);
  check (is_read, &error);
  if (is_read)
    read_texts (run.model_text, run.cluster_text, run.plan_text);
  GArray *steps = db_store_list_steps (store, id, NULL);
  g_clear_pointer (&steps, g_array_unref);
  for (guint i = 0; i < G_N_ELEMENTS (origins); i++)
    {
      g_autoptr (GError) why = NULL;
      g_autoptr (PlanTrace) trace = db_store_load_trace (store, id, origins[i], 0, &why);
      check (trace != NULL, &why);
    }
  if (db_store_find_run_plan (store, id, &plan_id, NULL))
    {
      g_auto (DbPlan) plan = { 0 };
      g_autoptr (GError) why = NULL;
      check (db_store_load_plan (store, plan_id, &plan, &why), &why);
    }
}

static void
read_tables (DbStore *store)
{
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (DbTable) rows = db_store_read_table (store, kind, NULL, &error);
      check (rows != NULL, &error);
      for (guint row = 0; rows && row < db_table_n_rows (rows); row++)
        if (kind == DB_KIND_PARAMS && db_table_cell_named (rows, row, "text"))
          sim_adjustments_free (
              sim_adjustments_parse (db_table_cell_named (rows, row, "text"), "store", NULL));
        else if (kind == DB_KIND_OPS)
          {
            SimTiming timing = { .ranks = 1, .ns = 1 };
            const char *op = db_table_cell_named (rows, row, "op");
            const char *shape = db_table_cell_named (rows, row, "shape");
            const char *format = db_table_cell_named (rows, row, "format");
            if (op && shape && format)
              sim_timing_parse (op, shape, format, &timing, NULL);
          }
    }
}

static void
append (const char *text, gpointer user_data)
{
  g_string_append (user_data, text);
}

static void
read_all (DbStore *store)
{
  g_autoptr (GString) dump = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) runs = db_store_list_runs (store, NULL);
  for (guint i = 0; runs && i < runs->len; i++)
    read_run (store, g_array_index (runs, DbRun, i).id);
  g_autoptr (GArray) plans = db_store_list_plans (store, NULL);
  for (guint i = 0; plans && i < plans->len; i++)
    {
      const DbPlan *plan = &g_array_index (plans, DbStoredPlan, i).plan;
      read_texts (plan->model_text, plan->cluster_text, plan->plan_text);
    }
  g_autofree char *cluster = db_store_get_cluster (store, "lab", NULL);
  read_texts (NULL, cluster, NULL);
  read_tables (store);
  GPtrArray *faults = db_store_list_faults (store, NULL);
  g_clear_pointer (&faults, g_ptr_array_unref);
  check (db_store_dump (store, append, dump, &error), &error);
}

/* Returns FALSE where the text is refused. */
static gboolean
try_store (const char *text, GRand *rand)
{
  g_autoptr (DbStore) store = db_store_open (":memory:", NULL);
  const DbSource source = { .text = text, .origin = "fuzz" };
  DbImport import;
  if (!store)
    abort ();
  if (!db_store_import (store, &source, 1, FALSE, &import, NULL))
    return FALSE;
  db_store_exec (store, "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON", NULL);
  for (gint n = g_rand_int_range (rand, 1, 4); n > 0; n--)
    tamper (store, rand);
  read_all (store);
  return TRUE;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GRand) rand = g_rand_new_with_seed (g_str_hash (text));
  if (!g_utf8_validate (text, -1, NULL))
    return 0;
  guint round = 0;
  while (round < ROUNDS && try_store (text, rand))
    round++;
  fuzz_count (round > 0);
  return 0;
}
