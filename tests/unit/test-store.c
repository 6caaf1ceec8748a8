/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/plans.h"
#include "db/tables.h"
#include "tests/unit/test-store-samples.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

static gboolean
delete_run (DbStore *store, gint64 id, GError **error)
{
  g_autofree char *key = g_strdup_printf ("%" G_GINT64_FORMAT, id);
  const char *const keys[] = { key };

  return db_store_delete (store, DB_KIND_RUNS, keys, 1, error);
}

START_TEST (run_comes_back_as_stored)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  g_auto (DbRun) loaded = { 0 };
  DbRun run = sample_run ();

  must (db_store_begin_run (store, &run, &error), &error, "begin_run");
  ck_assert_int_gt (run.id, 0);
  ck_assert_str_eq (run.state, "running");
  ck_assert_msg (
      g_regex_match_simple ("^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ$", run.created, 0, 0),
      "created: %s", run.created);
  must (db_store_load_run (store, run.id, &loaded, &error), &error, "load_run");
  ck_assert_run_eq (&run, &loaded);

  must (db_store_finish_run (store, run.id, "failed", "rank 2: out of memory", 5, 6, &error),
        &error, "finish_run");
  g_free (run.state);
  run.state = (char *)"failed";
  run.message = (char *)"rank 2: out of memory";
  run.predicted_step_ns = 5;
  run.measured_step_ns = 6;
  db_run_clear (&loaded);
  must (db_store_load_run (store, run.id, &loaded, &error), &error, "load_run");
  ck_assert_run_eq (&run, &loaded);
  g_free (run.uid);
  g_free (run.created);
}
END_TEST

START_TEST (runs_are_listed_newest_last)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) none = db_store_list_runs (store, &error);
  g_autoptr (GArray) runs = NULL;
  gint64 id[3];

  must (none && none->len == 0, &error, "list_runs");
  for (guint i = 0; i < 3; i++)
    id[i] = store_begin_run (store);
  runs = db_store_list_runs (store, &error);
  must (runs && runs->len == 3, &error, "list_runs");
  for (guint i = 0; i < 3; i++)
    {
      g_auto (DbRun) alone = { 0 };

      ck_assert_int_eq (g_array_index (runs, DbRun, i).id, id[i]);
      must (db_store_load_run (store, id[i], &alone, &error), &error, "load_run");
      ck_assert_run_eq (&g_array_index (runs, DbRun, i), &alone);
    }
  /* All three runs have the same plan, which is stored once. */
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM plan"), 1);
}
END_TEST

/* Stores a question with its answers; the first answer is sample_run's plan. */
static void
add_query (DbStore *store, const char *question, DbAnswer *answers, guint n)
{
  g_autoptr (GError) error = NULL;
  const DbRun run = sample_run ();

  for (guint i = 0; i < n; i++)
    answers[i] = (DbAnswer){ .plan = { .hash = i ? (char *)"9f" : run.plan_hash,
                                       .model_text = run.model_text,
                                       .cluster_text = run.cluster_text,
                                       .plan_text = i ? (char *)"mbs=2\n" : run.plan_text },
                             .step_ns = 7 + i,
                             .device_bytes = 70 - i };
  must (db_store_add_query (store, "0.1.0", question, "default-1", answers, n, &error), &error,
        "add_query");
}

START_TEST (plans_are_shared_and_go_with_the_last)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) plans = NULL;
  g_auto (DbPlan) plan = { 0 };
  const char *const first[] = { "1" };
  DbAnswer answers[2];
  gint64 id;

  add_query (store, "--gbs 8", answers, 2);
  ck_assert_int_eq (answers[0].plan_id, 1);
  ck_assert_int_eq (answers[1].plan_id, 2);
  add_query (store, "--gbs 8", answers, 2);
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM query"), 1);
  add_query (store, "--gbs 8 --top 1", answers, 1);
  add_query (store, "--gbs 8", answers, 1); /* other answers: asked again */
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM query"), 3);
  ck_assert_int_eq (store_begin_run (store), 1);
  must (db_store_find_run_plan (store, 1, &id, &error), &error, "find_run_plan");
  ck_assert_int_eq (id, 1);
  plans = db_store_list_plans (store, &error);
  must (plans && plans->len == 2, &error, "list_plans");
  ck_assert_int_eq (g_array_index (plans, DbStoredPlan, 0).runs, 1);
  ck_assert_int_eq (g_array_index (plans, DbStoredPlan, 0).queries, 3);
  ck_assert_int_eq (g_array_index (plans, DbStoredPlan, 1).step_ns, 8);
  ck_assert_int_eq (g_array_index (plans, DbStoredPlan, 1).device_bytes, 69);

  ck_assert (!db_store_delete (store, DB_KIND_PLANS, first, 1, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "a run or a query has it");
  g_clear_error (&error);
  must (db_store_delete (store, DB_KIND_QUERIES, first, 1, &error), &error, "delete");
  ck_assert (!db_store_load_plan (store, 2, &plan, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "there is no plan @2");
  g_clear_error (&error);
  must (delete_run (store, 1, &error), &error, "delete_run");
  must (db_store_load_plan (store, 1, &plan, &error), &error, "load_plan");
  ck_assert (!db_store_find_run_plan (store, 1, &id, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "there is no run 1");
  g_clear_error (&error);
  /* A plan's number never means another plan later. */
  add_query (store, "--gbs 8", answers, 2);
  ck_assert_int_eq (answers[1].plan_id, 3);
}
END_TEST

START_TEST (steps_come_back_as_stored)
{
  static const DbStep steps[] = {
    { .step = 0, .loss = 0.1 + 0.2, .grad_norm = 5e-324, .step_ns = 1, .eval_loss = 0.7 },
    { .step = 1, .loss = INFINITY, .grad_norm = 1.7976931348623157e308, .step_ns = G_MAXINT64 },
    { .step = 2, .loss = NAN, .grad_norm = -0.0, .step_ns = 0, .eval_loss = NAN },
  };
  static const DbStep again[] = { { .step = 3 }, { .step = 1 } };
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) loaded = NULL;
  gint64 id = store_begin_run (store);

  must (db_store_add_steps (store, id, steps, G_N_ELEMENTS (steps), &error), &error, "add_steps");
  loaded = db_store_list_steps (store, id, &error);
  must (loaded && loaded->len == G_N_ELEMENTS (steps), &error, "list_steps");
  for (guint i = 0; i < G_N_ELEMENTS (steps); i++)
    {
      const DbStep *step = &g_array_index (loaded, DbStep, i);

      ck_assert_int_eq (step->step, steps[i].step);
      ck_assert_int_eq (step->step_ns, steps[i].step_ns);
      ck_assert (step->loss == steps[i].loss || (isnan (step->loss) && isnan (steps[i].loss)));
      ck_assert (step->grad_norm == steps[i].grad_norm);
      ck_assert (step->eval_loss == steps[i].eval_loss
                 || (isnan (step->eval_loss) && isnan (steps[i].eval_loss)));
    }

  /* All steps are stored or none: the new one fails with the one that is there already. */
  ck_assert (!db_store_add_steps (store, id, again, G_N_ELEMENTS (again), &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "cannot store step 1 of run 1");
  g_clear_error (&error);
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM run_step"), 3);
  ck_assert (!db_store_add_steps (store, 99, again, 1, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, store_file);
}
END_TEST

START_TEST (trace_comes_back_as_stored)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, "cpu", (guint)_i);
  g_autoptr (PlanTrace) loaded = NULL;
  g_autoptr (GError) error = NULL;
  gint64 id = store_begin_run (store);

  must (db_store_add_trace (store, id, 3, trace, schedule, &error), &error, "add_trace");
  loaded = db_store_load_trace (store, id, "cpu", 3, &error);
  must (loaded != NULL, &error, "load_trace");
  ck_assert_trace_eq (trace, loaded);
  ck_assert_int_eq (sql (store_file, "SELECT op = 'load' AND stream = 'host' FROM trace_op"
                                     " ORDER BY position DESC LIMIT 1"),
                    1);

  ck_assert_ptr_null (db_store_load_trace (store, id, "sim", 3, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "run 1 has no sim trace of rank 3");
  g_clear_error (&error);
  ck_assert (!db_store_add_trace (store, id, 3, trace, schedule, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "cannot store the cpu trace of rank 3 of run 1");
}
END_TEST

START_TEST (trace_of_another_schedule_leaves_no_mark)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, "cpu", 10);
  g_autoptr (GError) error = NULL;
  gint64 id = store_begin_run (store);

  plan_trace_add_span (trace, 1000, -1, 0, 1);
  ck_assert (!db_store_add_trace (store, id, 0, trace, schedule, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "node 1000");
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM trace"), 0);
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM trace_op"), 0);
  /* The store still works. */
  store_begin_run (store);
}
END_TEST

START_TEST (deleting_takes_all_of_a_run_and_no_more)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, "cpu", 10);
  g_autoptr (PlanTrace) kept = NULL;
  g_autoptr (GError) error = NULL;
  gint64 id[2];

  for (guint i = 0; i < 2; i++)
    {
      id[i] = store_begin_run (store);
      store_add_step (store, id[i], 1);
      must (db_store_add_trace (store, id[i], 0, trace, schedule, &error), &error, "add_trace");
    }
  must (delete_run (store, id[0], &error), &error, "delete_run");
  kept = db_store_load_trace (store, id[1], "cpu", 0, &error);
  must (kept != NULL, &error, "load_trace");
  ck_assert_trace_eq (trace, kept);

  must (delete_run (store, id[1], &error), &error, "delete_run");
  ck_assert_int_eq (sql (store_file, "SELECT (SELECT count (*) FROM plan)"
                                     " + (SELECT count (*) FROM run)"
                                     " + (SELECT count (*) FROM run_step)"
                                     " + (SELECT count (*) FROM trace)"
                                     " + (SELECT count (*) FROM trace_op)"
                                     " + (SELECT count (*) FROM trace_memory)"
                                     " + (SELECT count (*) FROM trace_sample)"),
                    0);
  /* A run's id never means another run later. */
  ck_assert_int_gt (store_begin_run (store), id[1]);
}
END_TEST

START_TEST (missing_run_is_named)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  g_auto (DbRun) run = { 0 };

  ck_assert (!delete_run (store, 7, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "there is no run 7");
  g_clear_error (&error);
  ck_assert (!db_store_load_run (store, 7, &run, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "there is no run 7");
  g_clear_error (&error);
  ck_assert (!db_store_finish_run (store, 7, "done", NULL, 0, 0, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "there is no run 7");
}
END_TEST

START_TEST (rules_of_the_schema_hold)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  DbRun run = sample_run ();
  gint64 id = store_begin_run (store);

  run.host = NULL;
  ck_assert (!db_store_begin_run (store, &run, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "run.host");
  ck_assert_int_eq (run.id, 0);
  ck_assert_ptr_null (run.created);
  g_clear_error (&error);
  ck_assert (!db_store_finish_run (store, id, "sleeping", NULL, 0, 0, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "cannot finish run 1");
}
END_TEST

START_TEST (damaged_trace_is_found)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, "cpu", 10);
  g_autoptr (GError) error = NULL;
  gint64 id = store_begin_run (store);

  must (db_store_add_trace (store, id, 0, trace, schedule, &error), &error, "add_trace");
  sql (store_file, "DROP TRIGGER trace_sample_is_final; UPDATE trace_sample SET category = 'lost' "
                   "WHERE position = 3");
  ck_assert_ptr_null (db_store_load_trace (store, id, "cpu", 0, &error));
  ck_assert_refused (error, PLAN_ERROR_CORRUPT, "unknown memory category 'lost'");
  g_clear_error (&error);
  sql (store_file, "DROP TRIGGER trace_memory_is_final; UPDATE trace_memory SET category = 'gone' "
                   "WHERE category = 'loss'");
  ck_assert_ptr_null (db_store_load_trace (store, id, "cpu", 0, &error));
  ck_assert_refused (error, PLAN_ERROR_CORRUPT, "unknown memory category 'gone'");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("store");
  TCase *tcase = tcase_create ("store");
  SRunner *runner = srunner_create (suite);
  int n_failed;

  tcase_add_checked_fixture (tcase, store_setup, store_teardown);
  tcase_add_test (tcase, run_comes_back_as_stored);
  tcase_add_test (tcase, runs_are_listed_newest_last);
  tcase_add_test (tcase, plans_are_shared_and_go_with_the_last);
  tcase_add_test (tcase, steps_come_back_as_stored);
  tcase_add_loop_test (tcase, trace_comes_back_as_stored, 0, 3);
  tcase_add_test (tcase, trace_of_another_schedule_leaves_no_mark);
  tcase_add_test (tcase, deleting_takes_all_of_a_run_and_no_more);
  tcase_add_test (tcase, missing_run_is_named);
  tcase_add_test (tcase, rules_of_the_schema_hold);
  tcase_add_test (tcase, damaged_trace_is_found);
  suite_add_tcase (suite, tcase);
  srunner_run_all (runner, CK_ENV);
  n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
