/* SPDX-License-Identifier: Apache-2.0 */
/* Everything in a store survives being exported and imported, and nothing else can be imported. */
#include "config.h"

#include "db/plans.h"
#include "db/tables.h"
#include "db/transfer.h"
#include "tests/unit/test-store-samples.h"

#include <check.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

static void
append (const char *text, gpointer user_data)
{
  g_string_append (user_data, text);
}

static char *
dump_of (DbStore *store)
{
  GString *dump = g_string_new (NULL);
  g_autoptr (GError) error = NULL;

  must (db_store_dump (store, append, dump, &error), &error, "dump");
  return g_string_free (dump, FALSE);
}

/* Compares texts that are too long for Check's messages: shows where they differ. */
static void
ck_assert_texts_eq (const char *a, const char *b, int seed)
{
  gsize i = 0;

  while (a[i] && a[i] == b[i])
    i++;
  ck_assert_msg (a[i] == b[i], "seed %d: '%.80s' became '%.80s'", seed, a + i, b + i);
}

static DbImport
import (DbStore *store, const char *text)
{
  const DbSource source = { .text = text, .origin = "text" };
  DbImport result;
  g_autoptr (GError) error = NULL;

  must (db_store_import (store, &source, 1, FALSE, &result, &error), &error, "import");
  return result;
}

static gboolean
try_import (DbStore *store, const char *text, gboolean is_dry_run, DbImport *result, GError **error)
{
  const DbSource source = { .text = text, .origin = "text" };

  return db_store_import (store, &source, 1, is_dry_run, result, error);
}

/* Random texts of characters that are easily mishandled. */
static char *
random_text (GRand *rand)
{
  static const char *const pieces[]
      = { "\"", "'",    ",", "\n", "\r", "\t",  "\\",  "\xc2\xb5", "\xf0\x9f\x98\x80",
          "a",  "NULL", ";", "--", " ",  "inf", "1e5", "{",        "\x01" };
  GString *text = g_string_new (NULL);

  for (gint n = g_rand_int_range (rand, 0, 6); n > 0; n--)
    g_string_append (text, pieces[g_rand_int_range (rand, 0, G_N_ELEMENTS (pieces))]);
  return g_string_free (text, FALSE);
}

static double
random_real (GRand *rand)
{
  static const double special[]
      = { 0, -0.0, 5e-324, 1.7976931348623157e308, INFINITY, -INFINITY, NAN, 1e15, -1e22, 0.1, 3 };

  return g_rand_boolean (rand) ? special[g_rand_int_range (rand, 0, G_N_ELEMENTS (special))]
                               : g_rand_double_range (rand, -1e6, 1e6);
}

static gint64
random_whole (GRand *rand)
{
  return g_rand_boolean (rand) ? (gint64)g_rand_int (rand)
                               : (g_rand_boolean (rand) ? G_MAXINT64 : 0);
}

static void
add_random_run (DbStore *store, GRand *rand)
{
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanTrace) trace
      = sample_trace (schedule, "sim", (guint)g_rand_int_range (rand, 0, 9));
  char *texts[6];
  DbRun run = sample_run ();

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    texts[i] = random_text (rand);
  run.device = texts[0];
  run.model_text = texts[1];
  run.plan_text = texts[2];
  run.settings = texts[3];
  run.params_id = g_rand_boolean (rand) ? texts[4] : NULL;
  run.seed = g_rand_boolean (rand) ? G_MININT64 : G_MAXINT64;
  run.steps = G_MAXINT64;
  run.predicted_step_ns = random_whole (rand);
  must (db_store_begin_run (store, &run, &error), &error, "begin_run");
  for (gint64 s = g_rand_int_range (rand, 0, 5); s > 0; s--)
    {
      const DbStep step = { .step = s,
                            .loss = random_real (rand),
                            .grad_norm = random_real (rand),
                            .step_ns = random_whole (rand) };

      must (db_store_add_steps (store, run.id, &step, 1, &error), &error, "add_steps");
    }
  if (g_rand_boolean (rand))
    must (db_store_add_trace (store, run.id, 3, trace, schedule, &error), &error, "add_trace");
  if (g_rand_boolean (rand))
    must (db_store_finish_run (store, run.id, "failed", texts[5], 1, 2, &error), &error, "finish");
  g_free (run.uid);
  g_free (run.created);
  g_free (run.state);
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_free (texts[i]);
}

/* Imports everything but runs. */
static const char others[]
    = "{\"clusters\": [{\"name\": \"mine\", \"text\": \"nodes=1\\n\", \"source\": \"\","
      " \"created\": \"2026-01-01T00:00:00Z\"}],"
      "\"measurements\": [{\"created\": \"2026-01-01T00:00:00Z\", \"source\": \"s, \\\"t\\\"\","
      " \"row_id\": \"r\", \"row_group\": \"g\", \"use\": \"fit\", \"quality\": \"A\","
      " \"stack\": \"native\", \"model_text\": \"m\", \"gpu\": \"h100\", \"gpus\": 8,"
      " \"plan_text\": \"p\", \"step_ms\": 1.5e-6, \"time_ok\": \"yes\", \"memory_ok\": \"no\","
      " \"notes\": \"\"}],"
      "\"ops\": [{\"uid\": \"u\", \"created\": \"2026-01-01T00:00:00Z\","
      " \"program_version\": \"1\", \"host\": \"h\", \"machine\": \"m\", \"backend\": \"cpu\","
      " \"comm\": \"self\", \"ranks\": 1, \"op\": \"gemm\", \"shape\": \"m=1 n=2 k=3\","
      " \"format\": \"bf16\", \"median_ns\": 5, \"spread_ns\": 1, \"samples\": 9}],"
      "\"cudnn\": [{\"created\": \"2026-01-01T00:00:00Z\", \"program_version\": \"1\","
      " \"cudnn\": 91900, \"architecture\": \"9.0\", \"pass\": \"forward\","
      " \"mask\": \"causal\", \"format\": \"bf16\", \"batch\": 1, \"seq\": 17,"
      " \"heads\": 4, \"kv_heads\": 2, \"head_dim\": 64, \"workspace_bytes\": 0}],"
      "\"params\": [{\"id\": \"fit-1\", \"created\": \"2026-01-01T00:00:00Z\","
      " \"program_version\": \"1\", \"text\": \"x=1\", \"validation\": \"one group left out\","
      " \"error_pct\": 3.5}],"
      "\"fitted\": [{\"params\": \"fit-1\", \"source\": \"s, \\\"t\\\"\", \"row_id\": \"r\"},"
      " {\"params\": \"fit-1\", \"op\": \"u\"}]}";

static DbStore *
random_store (guint seed)
{
  g_autoptr (GError) error = NULL;
  GRand *rand = g_rand_new_with_seed (seed);
  DbStore *store = store_open ();

  for (gint n = g_rand_int_range (rand, 0, 5); n > 0; n--)
    add_random_run (store, rand);
  for (gint n = g_rand_int_range (rand, 0, 3); n > 0; n--)
    {
      DbAnswer answer = { .plan = { (char *)"9f", (char *)"layers=1", (char *)"nodes=1\n",
                                    g_rand_boolean (rand) ? (char *)"mbs=2\n" : (char *)"" },
                          .step_ns = g_rand_int_range (rand, 0, 99) };
      must (db_store_add_query (store, "0", n > 1 ? "--top '1'" : "", "p", &answer, 1, &error),
            &error, "add_query");
    }
  if (g_rand_boolean (rand))
    import (store, others);
  g_rand_free (rand);
  return store;
}

START_TEST (sql_makes_the_same_store)
{
  g_autoptr (DbStore) store = random_store ((guint)_i);
  g_autoptr (DbStore) copy = db_store_open (":memory:", NULL);
  g_autofree char *dump = dump_of (store);
  g_autofree char *again = NULL;
  g_autofree char *third = NULL;
  DbImport twice;

  import (copy, dump);
  again = dump_of (copy);
  ck_assert_texts_eq (dump, again, _i);
  /* Importing a second time adds nothing. */
  twice = import (copy, dump);
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    ck_assert_uint_eq (twice.added[kind], 0);
  ck_assert_uint_eq (twice.added_traces, 0);
  third = dump_of (copy);
  ck_assert_str_eq (again, third);
}
END_TEST

/* Prints CSV by RFC 4180, written without using the program's own code. */
static char *
print_csv (const DbTable *table)
{
  GString *csv = g_string_new (NULL);
  const guint n = db_kind_n_columns (table->kind);

  for (guint c = 0; c < n; c++)
    g_string_append_printf (csv, "%s%s", db_kind_column_name (table->kind, c),
                            c + 1 < n ? "," : "\r\n");
  for (guint i = 0; i < table->cells->len; i++)
    {
      const char *cell = g_ptr_array_index (table->cells, i);
      g_auto (GStrv) parts = cell ? g_strsplit (cell, "\"", -1) : NULL;
      g_autofree char *doubled = cell ? g_strjoinv ("\"\"", parts) : NULL;

      if (cell)
        g_string_append_printf (csv, "\"%s\"", doubled);
      g_string_append (csv, i % n + 1 < n ? "," : "\r\n");
    }
  return g_string_free (csv, FALSE);
}

static void
ck_assert_tables_eq (GPtrArray *a, GPtrArray *b, int seed)
{
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    {
      const DbTable *x = g_ptr_array_index (a, kind), *y = g_ptr_array_index (b, kind);

      ck_assert_uint_eq (x->cells->len, y->cells->len);
      for (guint i = 0; i < x->cells->len; i++)
        ck_assert_msg (g_strcmp0 (x->cells->pdata[i], y->cells->pdata[i]) == 0,
                       "seed %d, %s: '%s' became '%s'", seed, db_kind_name (kind),
                       (const char *)x->cells->pdata[i], (const char *)y->cells->pdata[i]);
    }
}

START_TEST (csv_makes_the_same_rows)
{
  g_autoptr (DbStore) store = random_store ((guint)_i);
  g_autoptr (DbStore) copy = db_store_open (":memory:", NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (GPtrArray) tables = db_store_read_tables (store, &error);
  g_autoptr (GPtrArray) again = NULL;
  DbSource sources[DB_N_KINDS];
  char *csv[DB_N_KINDS];
  DbImport result;

  must (tables != NULL, &error, "read_tables");
  for (guint t = 0; t < tables->len; t++)
    {
      csv[t] = print_csv (g_ptr_array_index (tables, t));
      sources[t] = (DbSource){ .text = csv[t], .origin = db_kind_name (t) };
    }
  for (guint times = 0; times < 2; times++)
    must (db_store_import (copy, sources, DB_N_KINDS, FALSE, &result, &error), &error, "import");
  for (guint t = 0; t < DB_N_KINDS; t++)
    {
      ck_assert_uint_eq (result.added[t], 0);
      g_free (csv[t]);
    }
  again = db_store_read_tables (copy, &error);
  must (again != NULL, &error, "read_tables");
  ck_assert_tables_eq (tables, again, _i);
}
END_TEST

/* Joins two stores, both of which began to count at 1. */
START_TEST (stores_are_joined)
{
  g_autoptr (DbStore) mine = store_open ();
  g_autoptr (DbStore) theirs = db_store_open (":memory:", NULL);
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, "cpu", 4);
  g_autoptr (PlanTrace) kept = NULL;
  g_autofree char *dump = NULL;
  g_autofree char *ended = NULL;
  g_autoptr (GError) error = NULL;
  g_auto (DbRun) run = { 0 };
  DbImport result;

  store_add_step (mine, store_begin_run (mine), 1);
  store_add_step (theirs, store_begin_run (theirs), 1);
  must (db_store_add_trace (theirs, 1, 0, trace, schedule, &error), &error, "add_trace");
  dump = dump_of (theirs);
  result = import (mine, dump);
  ck_assert_uint_eq (result.added[DB_KIND_RUNS], 1);
  ck_assert_uint_eq (result.added_traces, 1);
  kept = db_store_load_trace (mine, 2, "cpu", 0, &error);
  must (kept != NULL, &error, "load_trace");
  ck_assert_trace_eq (trace, kept);

  /* The run was running in both; when it has ended in one, importing that ends it in the other, and
   * an older export does not undo that. */
  store_add_step (theirs, 1, 2);
  must (db_store_finish_run (theirs, 1, "done", NULL, 5, 6, &error), &error, "finish_run");
  ended = dump_of (theirs);
  result = import (mine, ended);
  ck_assert_uint_eq (result.present[DB_KIND_RUNS], 1);
  ck_assert_uint_eq (result.added[DB_KIND_STEPS], 1);
  import (mine, dump);
  must (db_store_load_run (mine, 2, &run, &error), &error, "load_run");
  ck_assert_str_eq (run.state, "done");
  ck_assert_int_eq (run.measured_step_ns, 6);
}
END_TEST

START_TEST (dry_run_leaves_no_mark)
{
  g_autoptr (DbStore) store = store_open ();
  g_autofree char *before = dump_of (store);
  g_autofree char *after = NULL;
  g_autoptr (GError) error = NULL;
  DbImport result;

  must (try_import (store, others, TRUE, &result, &error), &error, "import");
  ck_assert_uint_eq (result.added[DB_KIND_FITTED], 2);
  after = dump_of (store);
  ck_assert_str_eq (before, after);
}
END_TEST

#define STEPS "run,step,loss,grad_norm,step_ns\n"
#define SQL "-- fsdplan store, version 2\n"
#define CLUSTER "{\"name\": \"mine\", \"text\": \"t\", \"source\": \"s\", \"created\": \"c\"}"
#define WORKSPACE \
  "{\"created\": \"c\", \"program_version\": \"1\", \"cudnn\": 91900, \"architecture\": \"9.0\"," \
  " \"pass\": \"forward\", \"mask\": \"causal\", \"format\": \"bf16\", \"batch\": 1, \"seq\": 2," \
  " \"heads\": 3, \"kv_heads\": 1, \"head_dim\": 8, \"workspace_bytes\": "

static const struct
{
  const char *text, *said;
} wrong[] = {
  { "", "text:1: these are the columns of nothing" },
  { "a,b\n1,2\n", "text:1: these are the columns of nothing" },
  { STEPS "x,1,2,3\n", "text:2: 4 cells instead of 5" },
  { STEPS "x,1,2,3,4,5\n", "text:2: 6 cells instead of 5" },
  { STEPS "x,1,2,3,\"4\n\n", "text:2: a quoted cell does not end" },
  { STEPS "\"x\"y,1,2,3,4\n", "text:2: a quoted cell goes on after its end" },
  { STEPS "x\"y,1,2,3,4\n", "text:2: a quote within a cell" },
  { STEPS "x,1,2,3,4\ry", "text:2: a carriage return" },
  { STEPS "x,1,2,3,4\n", "text:2: its run is not in the store" },
  { STEPS "x,one,2,3,4\n", "text:2: step: 'one' is not a whole number" },
  { STEPS "x,1,two,3,4\n", "text:2: loss: 'two' is not" },
  { STEPS "x,1,nan,3,4\n", "text:2: loss: 'nan' is not" },
  { STEPS "x,99999999999999999999,2,3,4\n", "does not fit 64 bits" },
  { "{\"runs\": [}", "text:1:" },
  { "{\"walks\": []}", "the store has no 'walks'" },
  { "{\"clusters\": {}}", "text: clusters is no array" },
  { "{\"clusters\": [3]}", "text: clusters[0] is no object" },
  { "{\"clusters\": [\n{\"nam\": 3}]}", "text:2: 'nam' is no column here" },
  { "{\"clusters\": [\n\n{\"name\": [3]}]}", "text:3: name is neither a number nor a text" },
  { "{\"clusters\": [\n{\"name\": true}]}", "text:2: name is neither a number nor a text" },
  { "{\"clusters\": [\n{\"name\": \"x\"}]}", "NOT NULL constraint failed: cluster.text" },
  { "{\"clusters\": [" CLUSTER ",\n{\"name\": \"mine\", \"text\": \"u\", \"source\": \"s\","
    " \"created\": \"c\"}]}",
    "text:2: this cluster is stored already, and differs: text is 'u', stored is 't'" },
  { "{\"cudnn\": [" WORKSPACE "3}, " WORKSPACE "4}]}",
    "this answer of cuDNN is stored already, and differs: workspace_bytes is '4', stored is '3'" },
  { "{\"measurements\": [\n{\"step_ms\": \"1e-320\"}]}", "step_ms: '1e-320' is out of range" },
  { "{\"fitted\": [{\"params\": \"p\", \"run\": \"x\"}]}", "is not in the store" },
  { SQL, "there is no store in this dump" },
  { "{\"params\": [{\"id\": \"x\", \"created\": \"c\", \"program_version\": \"1\","
    " \"text\": \"t\", \"validation\": \"v\", \"error_pct\": 1}]}",
    "parameter set x does not say what it was fitted to" },
  { SQL "\nDROP TABLE run;\n", "text:3: " },
  { SQL "ATTACH '/tmp/x' AS x;\n", "text:2: not authorized" },
  { SQL "PRAGMA user_version = 2;\nPRAGMA writable_schema = 1;\n", "text:3: not authorized" },
  { SQL "CREATE TABLE t (x);\nINSERT INTO t SELECT readfile ('/etc/passwd');\n", "text:3: " },
  { SQL "PRAGMA user_version = 2;\nCREATE TABLE t (x);\nBEGIN;\n", "breaks off after line 4" },
  { SQL "PRAGMA user_version = 2;\nCREATE TABLE t (x);\n", "database of another program" },
  { SQL "PRAGMA application_id = 1718841452;\nPRAGMA user_version = 6;\nCREATE TABLE t (x);\n",
    "it is of version 6" },
  { SQL "PRAGMA application_id = 1718841452;\nPRAGMA user_version = 5;\nCREATE TABLE t (x);\n",
    "is missing" },
};

START_TEST (wrong_imports_are_named_and_leave_no_mark)
{
  g_autoptr (DbStore) store = store_open ();
  g_autofree char *before = dump_of (store);
  g_autofree char *after = NULL;
  g_autoptr (GError) error = NULL;
  DbImport result;

  ck_assert (!try_import (store, wrong[_i].text, FALSE, &result, &error));
  ck_assert_msg (strstr (error->message, wrong[_i].said) != NULL, "'%s' lacks '%s'", error->message,
                 wrong[_i].said);
  after = dump_of (store);
  ck_assert_str_eq (before, after);
}
END_TEST

/* Cut anywhere before its end. */
START_TEST (cut_dumps_are_refused)
{
  g_autoptr (DbStore) store = store_open ();
  g_autofree char *dump = NULL;

  store_add_step (store, store_begin_run (store), 1);
  dump = dump_of (store);
  for (gsize n = strlen (dump) - strlen ("COMMIT;\n"); n > 30; n -= MIN (n, 97))
    {
      g_autofree char *cut = g_strndup (dump, n);
      g_autoptr (DbStore) copy = db_store_open (":memory:", NULL);
      g_autoptr (GError) error = NULL;
      DbImport result;

      ck_assert_msg (!try_import (copy, cut, FALSE, &result, &error),
                     "%" G_GSIZE_FORMAT " bytes were accepted", n);
    }
}
END_TEST

START_TEST (what_was_fitted_to_stays)
{
  static const char *const measurement[] = { "1" }, *const params[] = { "fit-1" };
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;

  import (store, others);
  ck_assert (!db_store_delete (store, DB_KIND_MEASUREMENTS, measurement, 1, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "a parameter set was fitted to it");
  g_clear_error (&error);
  ck_assert (!db_store_delete (store, DB_KIND_FITTED, params, 1, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "fitted are not deleted alone");
  g_clear_error (&error);
  must (db_store_delete (store, DB_KIND_PARAMS, params, 1, &error), &error, "delete");
  must (db_store_delete (store, DB_KIND_MEASUREMENTS, measurement, 1, &error), &error, "delete");
}
END_TEST

static const char *const changes[] = {
  "UPDATE run_measurement SET step_ms = 1",
  "UPDATE run_step SET loss = 0",
  "UPDATE run SET seed = 3",
  "UPDATE op_measurement SET median_ns = 1",
  "UPDATE attention_workspace SET workspace_bytes = 1",
  "UPDATE param_set SET text = ''",
  "UPDATE param_set_row SET op_measurement_id = NULL",
  "UPDATE plan SET plan_text = ''",
};

START_TEST (what_was_measured_is_never_changed)
{
  g_autoptr (DbStore) store = store_open ();
  g_autofree char *before = NULL;
  g_autofree char *after = NULL;
  sqlite3 *db = NULL;

  import (store, others);
  store_add_step (store, store_begin_run (store), 1);
  before = dump_of (store);
  ck_assert_int_eq (sqlite3_open (store_file, &db), SQLITE_OK);
  ck_assert_int_eq (sqlite3_exec (db, changes[_i], NULL, NULL, NULL), SQLITE_CONSTRAINT);
  sqlite3_close (db);
  after = dump_of (store);
  ck_assert_str_eq (before, after);
}
END_TEST

/* The best predictions are those of rows that were fitted: reports must not use any of these. */
START_TEST (report_rows_are_never_fitted_to)
{
  g_autoptr (DbStore) store = store_open ();
  g_auto (GStrv) parts = g_strsplit (others, "\"use\": \"fit\"", -1);
  g_autofree char *reporting = g_strjoinv ("\"use\": \"report\"", parts);
  g_autoptr (GError) error = NULL;
  DbImport result;

  ck_assert (!try_import (store, reporting, FALSE, &result, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "a row for reporting is never fitted to");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("store-transfer");
  TCase *tcase = tcase_create ("store-transfer");
  SRunner *runner = srunner_create (suite);
  int n_failed;

  tcase_add_checked_fixture (tcase, store_setup, store_teardown);
  tcase_add_loop_test (tcase, sql_makes_the_same_store, 0, 40);
  tcase_add_loop_test (tcase, csv_makes_the_same_rows, 0, 40);
  tcase_add_test (tcase, stores_are_joined);
  tcase_add_test (tcase, dry_run_leaves_no_mark);
  tcase_add_loop_test (tcase, wrong_imports_are_named_and_leave_no_mark, 0, G_N_ELEMENTS (wrong));
  tcase_add_test (tcase, cut_dumps_are_refused);
  tcase_add_test (tcase, what_was_fitted_to_stays);
  tcase_add_loop_test (tcase, what_was_measured_is_never_changed, 0, G_N_ELEMENTS (changes));
  tcase_add_test (tcase, report_rows_are_never_fitted_to);
  suite_add_tcase (suite, tcase);
  srunner_run_all (runner, CK_ENV);
  n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
