/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/units.h"
#include "sim/cost/cost.h"
#include "sim/fast/slowdown-bound.h"
#include "sim/memory.h"
#include "sim/sim.h"

#include <check.h>
#include <stdlib.h>

/* Runs one step of a schedule by hand-computable costs; `loads` are of the step's ops. */
static PlanTrace *
run_beside (const char *lines, gint64 op_ns, gint64 launch_ns, const SimLoad *loads)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text
      = g_strconcat ("schedule 2 rank=0 ranks=2\n"
                     "buffer a elements=16 dtype=fp32 category=activations\n"
                     "buffer b elements=16 dtype=fp32 category=gathered\n"
                     "event e\nevent f\n"
                     "section setup\nalloc compute buf=a\nalloc compute buf=b\n"
                     "zero compute out=a count=16\nzero compute out=b count=16\n"
                     "sync host\nsection step\n",
                     lines, "section teardown\nfree compute buf=a\nfree compute buf=b\n", NULL);
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autoptr (SimCost) cost = sim_cost_new_constant (schedule, op_ns, launch_ns);
  const guint first = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);
  const guint end = plan_schedule_section_node (schedule, PLAN_SECTION_STEP + 1);
  for (guint node = first; loads && node < end; node++)
    sim_cost_set_load (cost, node, loads[node - first]);
  PlanTrace *trace = sim_run (schedule, cost, NULL, &error);
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  return trace;
}

static PlanTrace *
run (const char *lines, gint64 op_ns, gint64 launch_ns)
{
  return run_beside (lines, op_ns, launch_ns, NULL);
}

static void
assert_span (const PlanTrace *trace, guint i, gint64 start, gint64 end)
{
  const PlanSpan *span = &g_array_index (trace->spans, PlanSpan, i);
  ck_assert_msg (span->start_ns == start && span->end_ns == end,
                 "span %u is %d to %d, not %d to %d", i, (int)span->start_ns, (int)span->end_ns,
                 (int)start, (int)end);
}

START_TEST (one_stream_runs_in_order)
{
  g_autoptr (PlanTrace) t = run ("zero compute out=a count=1\n"
                                 "zero compute out=a count=1 record=e\n"
                                 "sync host wait=e\n",
                                 100, 0);
  assert_span (t, 0, 0, 100);
  assert_span (t, 1, 100, 200);
  ck_assert_int_eq (t->step_ns, 200);
}
END_TEST

START_TEST (streams_overlap_until_they_wait)
{
  g_autoptr (PlanTrace) t = run ("zero compute out=a count=1 record=e\n"
                                 "zero gather out=b count=1 record=f\n"
                                 "zero reduce out=b count=1 wait=e,f record=f\n"
                                 "zero compute out=a count=1 record=e\n"
                                 "sync host wait=e,f\n",
                                 100, 0);
  assert_span (t, 0, 0, 100);
  assert_span (t, 1, 0, 100);
  assert_span (t, 2, 100, 200);
  assert_span (t, 3, 100, 200);
  ck_assert_int_eq (t->step_ns, 200);
}
END_TEST

/* Issuing costs host time: short ops wait for it, long ones hide it. */
START_TEST (small_ops_are_bound_by_the_host)
{
  g_autoptr (PlanTrace) t = run ("zero compute out=a count=1\n"
                                 "zero compute out=a count=1 record=e\n"
                                 "sync host wait=e\n",
                                 10, 50);
  assert_span (t, 0, 50, 60);
  assert_span (t, 1, 100, 110);
  ck_assert_int_eq (t->step_ns, 110);
  ck_assert_int_eq (t->host_ns, 90);
}
END_TEST

/* What the host does not wait for goes on beside the next step. */
START_TEST (the_period_is_steady)
{
  g_autoptr (PlanTrace) t = run ("zero compute out=a count=1 wait=f record=e\n"
                                 "sync host wait=e\n"
                                 "zero gather out=b count=1 wait=e record=f\n",
                                 100, 0);
  ck_assert_int_eq (t->step_ns, 200);
  ck_assert_int_eq (t->compute_ns, 100);
  ck_assert_int_eq (t->exposed_gather_ns, 100);
}
END_TEST

START_TEST (a_wait_without_an_op_holds_its_stream)
{
  g_autoptr (PlanTrace) t = run ("zero gather out=b count=1 record=f\n"
                                 "free compute buf=b wait=f\n"
                                 "alloc compute buf=b\n"
                                 "zero compute out=b count=1 record=e\n"
                                 "sync host wait=e\n",
                                 100, 0);
  assert_span (t, 1, 100, 200);
}
END_TEST

/* A product wants every processor; a collective beside it keeps a fifth of them for 100 ns. 80 of
 * its 100 ns are done by then, and the rest goes on alone. */
START_TEST (products_miss_what_collectives_keep)
{
  const SimLoad loads[] = { { { 200 } }, { { 1000 } }, { { 0 } } };
  g_autoptr (PlanTrace) t = run_beside ("zero gather out=b count=1 record=f\n"
                                        "zero compute out=a count=1 record=e\n"
                                        "sync host wait=e,f\n",
                                        100, 0, loads);
  assert_span (t, 0, 0, 100);
  assert_span (t, 1, 0, 120);
  ck_assert_int_eq (t->step_ns, 120);
  ck_assert_int_eq (t->compute_ns, 120);
}
END_TEST

/* Two ops want all of a link: the later one has half of it until the first ends. An op on the
 * network is slowed by neither. */
START_TEST (links_are_shared_evenly)
{
  const SimLoad loads[] = { { { [SIM_SHARED_LINK] = 1000 } },
                            { { [SIM_SHARED_LINK] = 1000 } },
                            { { [SIM_SHARED_NETWORK] = 300 } },
                            { { 0 } } };
  g_autoptr (PlanTrace) t = run_beside ("zero gather out=b count=1 record=f\n"
                                        "zero reduce out=b count=1 record=e\n"
                                        "zero tensor out=b count=1\n"
                                        "sync host wait=e,f\n",
                                        100, 0, loads);
  assert_span (t, 0, 0, 100);
  assert_span (t, 1, 0, 150);
  assert_span (t, 2, 0, 100);
}
END_TEST

/* Of 1000 of the memory's bandwidth the first op uses 600. The later one wants 700: 400 are left,
 * but it gets at least half, 500. */
START_TEST (memory_is_shared_by_need)
{
  const SimLoad loads[]
      = { { { [SIM_SHARED_MEMORY] = 600 } }, { { [SIM_SHARED_MEMORY] = 700 } }, { { 0 } } };
  g_autoptr (PlanTrace) t = run_beside ("zero gather out=b count=1 record=f\n"
                                        "zero compute out=a count=1 record=e\n"
                                        "sync host wait=e,f\n",
                                        700, 0, loads);
  assert_span (t, 1, 0, 901); /* 714 per mille of its pace for 700 ns: 200.2 are left */
}
END_TEST

/* What was issued before keeps its pace. */
START_TEST (later_ops_slow_nothing)
{
  const SimLoad loads[] = { { { 1000 } }, { { 200 } }, { { 0 } } };
  g_autoptr (PlanTrace) t = run_beside ("zero compute out=a count=1 record=e\n"
                                        "zero gather out=b count=1 record=f\n"
                                        "sync host wait=e,f\n",
                                        100, 0, loads);
  assert_span (t, 0, 0, 100);
  assert_span (t, 1, 0, 100);
}
END_TEST

/* One stream with `ns` of ops of this load, ten of them. */
static SimSlowdownStream
stream_of (SimLoad load, gint64 ns)
{
  SimSlowdown crowd = { 0 };
  sim_slowdown_add (&crowd, load, 10, ns);
  return sim_slowdown_stream (&crowd);
}

/* A collective with a quarter of the processors and half of the memory's bandwidth, beside 1000 ns
 * of products that want all processors and 80 ns of copies that want 0.8 of the bandwidth: copies
 * lose 3/8, so that 80 of them last 128 ns; products lose 1/4, and last 1333. */
START_TEST (sums_say_what_is_slowed_at_least)
{
  const SimLoad product = { { 1000, 300 } }, copy = { { 0, 800 } }, collective = { { 250, 500 } };
  SimSlowdown chain = { 0 }, gather = { 0 }, rest = { 0 };
  sim_slowdown_add (&chain, product, 1, 1000);
  sim_slowdown_add (&chain, copy, 1, 80);
  SimSlowdownStream beside[2] = { stream_of (collective, 101), { .n_kinds = 0 } };
  ck_assert_int_eq (sim_slowdown_slowing_ns (&chain, beside), 25);
  /* What cannot lie beside products lies beside copies; more is beside nothing. */
  beside[0] = stream_of (collective, 1334 + 99);
  ck_assert_int_eq (sim_slowdown_slowing_ns (&chain, beside), 333 + 37);
  beside[0] = stream_of (collective, 1000000);
  ck_assert_int_eq (sim_slowdown_slowing_ns (&chain, beside), 333 + 48);
  /* Two of them lose what both take, two thirds at most. */
  beside[0] = stream_of (collective, 101);
  beside[1]
      = stream_of ((SimLoad){ { 125 } }, 300); /* 128 ns of it lie beside copies and cost nothing */
  ck_assert_int_eq (sim_slowdown_slowing_ns (&chain, beside), 25 + 21);
  beside[0] = beside[1] = stream_of ((SimLoad){ { 900 } }, 30);
  ck_assert_int_eq (sim_slowdown_slowing_ns (&chain, beside), 0); /* copies feel nothing of it */
  beside[0] = beside[1] = stream_of ((SimLoad){ { 900 } }, 111);
  ck_assert_int_eq (sim_slowdown_slowing_ns (&chain, beside), 20);
  /* Rare loads are left out of a stream's kinds; a sum from which all was subtracted is empty. */
  sim_slowdown_add (&gather, collective, 80, 800);
  sim_slowdown_add (&gather, copy, 1, 50);
  ck_assert_uint_eq (sim_slowdown_stream (&gather).n_kinds, 1);
  ck_assert_int_eq (sim_slowdown_stream (&gather).kinds[0].ns, 800);
  ck_assert_int_eq (sim_slowdown_stream (&gather).ns, 850);
  sim_slowdown_join (&rest, &gather, 3);
  sim_slowdown_join (&rest, &gather, -3);
  ck_assert_uint_eq (sim_slowdown_stream (&rest).n_kinds, 0);
  ck_assert_int_eq (sim_slowdown_stream (&rest).ns, 0);
}
END_TEST

/* The caching allocator by hand: segments of 2 MiB for small requests, of 20 MiB below 10 MiB, else
 * of their own; a freed block serves the next request that fits. */
START_TEST (the_caching_allocator_keeps_segments)
{
  g_autoptr (GError) error = NULL;
  const PlanStack stack
      = { .memory.allocation_bytes = 512, .memory.allocator = PLAN_ALLOCATOR_CACHING };
  const char *text = "schedule 2 rank=0 ranks=1\n"
                     "buffer small elements=1000 dtype=u8 category=loss\n"
                     "buffer large elements=3145728 dtype=u8 category=loss\n"
                     "buffer huge elements=104857601 dtype=u8 category=loss\n"
                     "buffer most elements=100000000 dtype=u8 category=loss\n"
                     "section setup\nsection step\n"
                     "alloc compute buf=small\nalloc compute buf=large\nalloc compute buf=huge\n"
                     "free compute buf=huge\nalloc compute buf=most\n"
                     "free compute buf=most\nfree compute buf=large\nfree compute buf=small\n"
                     "section teardown\n";
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autoptr (SimCost) cost = sim_cost_new_constant (schedule, 1, 0);
  g_autoptr (PlanTrace) trace = sim_run (schedule, cost, &stack, &error);
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  ck_assert_uint_eq (trace->memory.reserved, (2 + 20 + 102) * PLAN_MIB);
  ck_assert_uint_eq (trace->memory.max_allocated, 1024 + 3145728 + 104858112);
  ck_assert_uint_eq (trace->memory.allocated, 0);
}
END_TEST

/* 20 MiB that a step takes and gives back, and 20 MiB that stay: what stays is counted from setup
 * on, but where it is touched late it lies in what the step had given back. */
START_TEST (what_is_touched_gets_its_block_then)
{
  static const PlanStack stack
      = { .memory.allocator = PLAN_ALLOCATOR_CACHING, .memory.allocation_bytes = 512 };
  for (guint late = 0; late < 2; late++)
    {
      g_autoptr (GError) error = NULL;
      g_autofree char *text
          = g_strconcat ("schedule 2 rank=0 ranks=1\n"
                         "buffer stays elements=5242880 dtype=fp32 category=optimizer\n"
                         "buffer passes elements=5242880 dtype=fp32 category=activations\n"
                         "section setup\nalloc compute buf=stays\nsection step\n"
                         "alloc compute buf=passes\nfree compute buf=passes\n",
                         late ? "touch compute buf=stays\n" : "",
                         "section teardown\nfree compute buf=stays\n", NULL);
      g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
      ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
      ck_assert (plan_schedule_check (schedule, &error));
      g_autoptr (SimMemory) memory = sim_memory_new (schedule, &stack, NULL);
      PlanMemory report[2];
      for (guint step = 0; step < 2; step++)
        {
          PlanCursor cursor;
          const PlanOp *op;
          plan_cursor_start (&cursor, schedule, PLAN_SECTION_SETUP);
          while (step == 0 && (op = plan_cursor_next (&cursor)))
            sim_memory_apply (memory, &cursor, op);
          sim_memory_begin_step (memory);
          plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
          while ((op = plan_cursor_next (&cursor)))
            sim_memory_apply (memory, &cursor, op);
          ck_assert (sim_memory_report (memory, &report[step], &error));
          ck_assert_uint_eq (report[step].max_allocated, 40 * PLAN_MIB);
        }
      ck_assert_uint_eq (report[0].reserved, (late ? 20 : 40) * PLAN_MIB);
      ck_assert_uint_eq (report[1].reserved, 40 * PLAN_MIB);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("sim");
  TCase *tcase = tcase_create ("sim");
  tcase_add_test (tcase, one_stream_runs_in_order);
  tcase_add_test (tcase, what_is_touched_gets_its_block_then);
  tcase_add_test (tcase, streams_overlap_until_they_wait);
  tcase_add_test (tcase, small_ops_are_bound_by_the_host);
  tcase_add_test (tcase, the_period_is_steady);
  tcase_add_test (tcase, a_wait_without_an_op_holds_its_stream);
  tcase_add_test (tcase, products_miss_what_collectives_keep);
  tcase_add_test (tcase, links_are_shared_evenly);
  tcase_add_test (tcase, memory_is_shared_by_need);
  tcase_add_test (tcase, later_ops_slow_nothing);
  tcase_add_test (tcase, sums_say_what_is_slowed_at_least);
  tcase_add_test (tcase, the_caching_allocator_keeps_segments);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
