/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/schedule/trace.h"

#include <check.h>
#include <json-glib/json-glib.h>
#include <stdlib.h>
#include <string.h>

#define SCHEDULE \
  "schedule 2 rank=0 ranks=2\n" \
  "group all size=2 stride=1\n" \
  "buffer w elements=16 dtype=fp32 category=gathered\n" \
  "section setup\nsection step\n" \
  "  alloc compute buf=w\n" \
  "  zero compute out=w count=16\n" \
  "  all_reduce gather group=all buf=w count=16\n" \
  "  all_reduce reduce group=all buf=w count=16\n" \
  "section teardown\n"

enum
{
  ALLOC,
  ZERO,
  GATHER,
  REDUCE
};

static PlanSchedule *
schedule (void)
{
  return plan_schedule_parse (SCHEDULE, "text", NULL);
}

static void
assert_parts (const PlanTrace *t, gint64 compute, gint64 gather, gint64 reduce, gint64 host)
{
  ck_assert_int_eq (t->compute_ns, compute);
  ck_assert_int_eq (t->exposed_gather_ns, gather);
  ck_assert_int_eq (t->exposed_reduce_ns, reduce);
  ck_assert_int_eq (t->host_ns, host);
}

START_TEST (time_belongs_to_compute_first)
{
  g_autoptr (PlanSchedule) s = schedule ();
  g_autoptr (PlanTrace) t = plan_trace_new ("sim");
  g_autoptr (GError) error = NULL;
  t->step_ns = 100;
  plan_trace_add_span (t, ZERO, -1, 10, 40);
  plan_trace_add_span (t, GATHER, -1, 30, 60);
  plan_trace_add_span (t, REDUCE, -1, 50, 80);
  plan_trace_attribute (t, s);
  assert_parts (t, 30, 20, 20, 30);
  ck_assert_msg (plan_trace_check (t, s, &error), "%s", error ? error->message : "");
}
END_TEST

/* A gather that ends 15 ns after the step delays the next step, which is like this one: those 15 ns
 * count as exposed at its beginning. */
START_TEST (tails_belong_to_the_next_step)
{
  g_autoptr (PlanSchedule) s = schedule ();
  g_autoptr (PlanTrace) t = plan_trace_new ("sim");
  t->step_ns = 100;
  plan_trace_add_span (t, ZERO, -1, 20, 90);
  plan_trace_add_span (t, GATHER, -1, 90, 115);
  plan_trace_attribute (t, s);
  assert_parts (t, 70, 25, 0, 5);
}
END_TEST

START_TEST (text_reads_back)
{
  g_autoptr (PlanTrace) t = plan_trace_new ("cpu");
  g_autoptr (GError) error = NULL;
  t->step_ns = 7;
  t->memory.max_allocated = G_GUINT64_CONSTANT (5000000000);
  t->memory.by_category[PLAN_CATEGORY_LOSS] = 9;
  t->memory.peak_unit = -1;
  plan_trace_add_span (t, ZERO, -1, 0, 7);
  plan_trace_add_sample (t, PLAN_CATEGORY_LOSS, 3, 64);
  g_autofree char *text = plan_trace_print (t);
  g_autoptr (PlanTrace) again = plan_trace_parse (text, "text", &error);
  ck_assert_msg (again != NULL, "%s", error ? error->message : "");
  g_autofree char *text_again = plan_trace_print (again);
  ck_assert_str_eq (text, text_again);
}
END_TEST

START_TEST (bad_text_is_refused)
{
  static const char *const bad[] = { "",
                                     "trace 2 sim\n",
                                     "trace 1 sim\nspan 1 2 3\n",
                                     "trace 1 sim\nstep_ns x\n",
                                     "trace 1 sim\npeak nothing 3\n",
                                     "trace 1 sim\nmemory 0 loss 1\n",
                                     "trace 1 sim\nspan -1 0 0 0\n",
                                     "trace 1 sim\npeak_node 99999999999\n" };
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_autoptr (GError) error = NULL;
      ck_assert_msg (plan_trace_parse (bad[i], "text", &error) == NULL, "accepted: %s", bad[i]);
      ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_CORRUPT));
    }
}
END_TEST

START_TEST (broken_traces_fail_their_check)
{
  g_autoptr (PlanSchedule) s = schedule ();
  g_autoptr (PlanTrace) t = plan_trace_new ("sim");
  g_autoptr (GError) error = NULL;
  t->step_ns = 10;
  ck_assert (!plan_trace_check (t, s, &error));
  ck_assert (strstr (error->message, "add up") != NULL);
  g_clear_error (&error);
  plan_trace_add_span (t, ZERO, -1, 0, 5);
  plan_trace_add_span (t, ZERO, -1, 4, 6);
  plan_trace_attribute (t, s);
  ck_assert (!plan_trace_check (t, s, &error));
  ck_assert (strstr (error->message, "before its stream compute is free") != NULL);
}
END_TEST

START_TEST (chrome_json_is_json)
{
  g_autoptr (PlanSchedule) s = schedule ();
  g_autoptr (PlanTrace) t = plan_trace_new ("sim");
  g_autoptr (JsonParser) parser = json_parser_new ();
  plan_trace_add_span (t, ZERO, -1, 1234, 5678);
  plan_trace_add_sample (t, PLAN_CATEGORY_LOSS, 3, 64);
  g_autofree char *text = plan_trace_print_chrome (&(PlanTraceView){ t, s, 0 }, 1);
  ck_assert (json_parser_load_from_data (parser, text, -1, NULL));
  JsonArray *events = json_object_get_array_member (
      json_node_get_object (json_parser_get_root (parser)), "traceEvents");
  ck_assert_uint_eq (json_array_get_length (events), 1 + PLAN_N_STREAMS + 2);
  JsonObject *span = json_array_get_object_element (events, 1 + PLAN_N_STREAMS);
  ck_assert_str_eq (json_object_get_string_member (span, "name"), "zero");
  ck_assert_double_eq (json_object_get_double_member (span, "ts"), 1.234);
  ck_assert_double_eq (json_object_get_double_member (span, "dur"), 4.444);
}
END_TEST

/* Two arrows, to the gather and back. Each has one start and one end, each at a span of its op, and
 * does not end before it starts. */
START_TEST (flows_follow_events)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) s
      = plan_schedule_parse ("schedule 2 rank=0 ranks=1\n"
                             "buffer w elements=16 dtype=fp32 category=gathered\n"
                             "event e\nevent f[2]\n"
                             "section setup\nsection step\n"
                             "alloc compute buf=w wait=f[0]\n"
                             "zero compute out=w count=16 wait=f[0] record=e\n"
                             "zero gather out=w count=16 wait=e record=f[1]\n"
                             "zero compute out=w count=16 wait=f[1],e record=e\n"
                             "free compute buf=w wait=f[1]\n"
                             "section teardown\n",
                             "text", &error);
  ck_assert_msg (s != NULL, "%s", error ? error->message : "");
  g_autoptr (PlanTrace) t = plan_trace_new ("sim");
  const guint first = plan_schedule_section_node (s, PLAN_SECTION_STEP) + 1;
  plan_trace_add_span (t, first, -1, 0, 1000);
  plan_trace_add_span (t, first + 1, -1, 1000, 3000);
  plan_trace_add_span (t, first + 2, -1, 4000, 5000);
  g_autofree char *text = plan_trace_print_chrome (&(PlanTraceView){ t, s, 0 }, 1);
  g_autoptr (JsonParser) parser = json_parser_new ();
  ck_assert (json_parser_load_from_data (parser, text, -1, NULL));
  JsonArray *events = json_object_get_array_member (
      json_node_get_object (json_parser_get_root (parser)), "traceEvents");
  double starts[3] = { -1, -1, -1 }, ends[3] = { -1, -1, -1 };
  gint64 from[3] = { 0 }, to[3] = { 0 };
  for (guint i = 0; i < json_array_get_length (events); i++)
    {
      JsonObject *event = json_array_get_object_element (events, i);
      const char *kind = json_object_get_string_member (event, "ph");
      if (*kind != 's' && *kind != 'f')
        continue;
      const gint64 id = json_object_get_int_member (event, "id");
      double *const at = *kind == 's' ? starts : ends;
      ck_assert (id >= 1 && id <= 2 && at[id] < 0);
      at[id] = json_object_get_double_member (event, "ts");
      (*kind == 's' ? from : to)[id] = json_object_get_int_member (event, "tid");
    }
  ck_assert (from[1] == PLAN_STREAM_COMPUTE && to[1] == PLAN_STREAM_GATHER);
  ck_assert (from[2] == PLAN_STREAM_GATHER && to[2] == PLAN_STREAM_COMPUTE);
  ck_assert (starts[1] == 0.999 && ends[1] == 1.0);
  ck_assert (starts[2] == 2.999 && ends[2] == 4.0);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("trace");
  TCase *tcase = tcase_create ("trace");
  tcase_add_test (tcase, time_belongs_to_compute_first);
  tcase_add_test (tcase, tails_belong_to_the_next_step);
  tcase_add_test (tcase, text_reads_back);
  tcase_add_test (tcase, bad_text_is_refused);
  tcase_add_test (tcase, broken_traces_fail_their_check);
  tcase_add_test (tcase, chrome_json_is_json);
  tcase_add_test (tcase, flows_follow_events);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
