/* SPDX-License-Identifier: Apache-2.0 */
/* When blocks that collectives used become free (record_stream), compared with times worked out by
 * hand. */
#include "config.h"

#include "planner/lower/lower.h"
#include "planner/plan/plan.h"
#include "sim/record-stream.h"

#include <check.h>
#include <stdlib.h>

/* Array 0 is reduced, array 1 is not. */
static PlanSchedule *
schedule_new (void)
{
  PlanSchedule *self = plan_schedule_new (0, 2);
  const gint8 group = plan_schedule_add_group (self, "tensor", 2, 1);
  PlanOp op;
  plan_schedule_add_buffer (self, "reduced", 1, 64, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS);
  plan_schedule_add_buffer (self, "own", 1, 64, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS);
  plan_op_init (&op, PLAN_OP_ALL_REDUCE, PLAN_STREAM_TENSOR);
  op.group = group;
  op.dims[0] = 64;
  op.refs[0] = (PlanRef){ .array = 0, .loop = -1 };
  plan_schedule_begin_section (self, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (self, PLAN_SECTION_STEP);
  plan_schedule_add (self, &op);
  return self;
}

static const PlanStack waits
    = { .memory.allocator = PLAN_ALLOCATOR_CACHING, .memory.streams = PLAN_STREAMS_RECORDED };
static const PlanStack takes_at_once = { .memory.allocator = PLAN_ALLOCATOR_CACHING };

typedef struct
{
  PlanSchedule *schedule;
  SimRecordStream lead;
} Case;

static Case
case_new (const PlanStack *stack, gint64 host_ns, gint64 device_ns)
{
  Case c = { .schedule = schedule_new () };
  sim_record_stream_begin (&c.lead, c.schedule, stack,
                           &(SimPace){ .host_ns = host_ns, .device_ns = device_ns });
  return c;
}

static void
case_clear (Case *c)
{
  sim_record_stream_clear (&c->lead);
  plan_schedule_free (c->schedule);
}

static void
assert_none (Case *c)
{
  guint32 block = 77;
  ck_assert (!sim_record_stream_next (&c->lead, &block));
}

static void
assert_next (Case *c, guint32 expected)
{
  guint32 block = 77;
  ck_assert (sim_record_stream_next (&c->lead, &block));
  ck_assert_uint_eq (block, expected);
}

/* The device takes four times as long as the host: it finishes a launch when four times as many
 * have been issued. */
START_TEST (comes_free_when_the_device_is_there)
{
  Case c = case_new (&waits, 10, 40);
  sim_record_stream_issue (&c.lead, 100);
  ck_assert (sim_record_stream_give_back (&c.lead, 0, 5));
  sim_record_stream_issue (&c.lead, 20);
  ck_assert (sim_record_stream_give_back (&c.lead, 0, 3));
  sim_record_stream_issue (&c.lead, 279);
  assert_none (&c);
  sim_record_stream_issue (&c.lead, 1);
  assert_next (&c, 5);
  assert_none (&c);
  sim_record_stream_issue (&c.lead, 80);
  assert_next (&c, 3);
  assert_none (&c);
  case_clear (&c);
}
END_TEST

/* However slow the device is, no more launches wait than its queue holds. */
START_TEST (the_queue_bounds_the_lead)
{
  Case c = case_new (&waits, 1, 1000000);
  sim_record_stream_issue (&c.lead, 10);
  ck_assert (sim_record_stream_give_back (&c.lead, 0, 1));
  sim_record_stream_issue (&c.lead, SIM_RECORD_STREAM_MOST - 1);
  assert_none (&c);
  sim_record_stream_issue (&c.lead, 1);
  assert_next (&c, 1);
  case_clear (&c);
}
END_TEST

START_TEST (a_step_ends_with_nothing_waiting)
{
  Case c = case_new (&waits, 1, 1000000);
  for (guint32 block = 0; block < 9; block++)
    {
      sim_record_stream_issue (&c.lead, 10);
      ck_assert (sim_record_stream_give_back (&c.lead, 0, block));
    }
  assert_none (&c);
  sim_record_stream_meet (&c.lead);
  for (guint32 block = 0; block < 9; block++)
    assert_next (&c, block);
  assert_none (&c);
  case_clear (&c);
}
END_TEST

/* How many launches are done when so many have been issued, by applying the rule at every step. */
static guint64
n_done (gint64 host_ns, gint64 device_ns, guint64 issued)
{
  const guint64 share = (guint64)((double)host_ns / (double)device_ns * (double)issued);
  return MAX (share, issued > SIM_RECORD_STREAM_MOST ? issued - SIM_RECORD_STREAM_MOST : 0);
}

/* At first more launches wait than there is room for, and steps end in between. */
START_TEST (each_comes_free_at_its_moment)
{
  static const gint64 paces[][2]
      = { { 1, 3 }, { 20, 21 }, { 99999, 100000 }, { 1, 1000 }, { 7, 9 }, { 49, 49000001 } };
  g_autoptr (GRand) random = g_rand_new_with_seed (5);
  for (guint p = 0; p < G_N_ELEMENTS (paces); p++)
    {
      Case c = case_new (&waits, paces[p][0], paces[p][1]);
      guint64 given_at[3000], issued = 0;
      guint32 n_given = 0, n_free = 0;
      while (n_given < G_N_ELEMENTS (given_at))
        {
          const guint64 more = (guint64)g_rand_int_range (random, 0, n_given < 1000 ? 3 : 60);
          sim_record_stream_issue (&c.lead, more);
          issued += more;
          for (; n_free < n_given && given_at[n_free] <= n_done (paces[p][0], paces[p][1], issued);
               n_free++)
            assert_next (&c, n_free);
          assert_none (&c);
          given_at[n_given] = issued;
          ck_assert (sim_record_stream_give_back (&c.lead, 0, n_given++));
          if (n_given % 1400 == 0)
            {
              sim_record_stream_meet (&c.lead);
              while (n_free < n_given)
                assert_next (&c, n_free++);
              issued = 0;
            }
        }
      case_clear (&c);
    }
}
END_TEST

/* Blocks become free at once if no collective has used them, if the host frees them while it is
 * behind, or in another framework's allocator. */
START_TEST (others_come_free_at_once)
{
  static const struct
  {
    const PlanStack *stack;
    gint64 host_ns, device_ns;
    guint array;
  } cases[] = { { &waits, 1, 10, 1 }, { &waits, 10, 10, 0 },        { &waits, 20, 10, 0 },
                { &waits, 0, 10, 0 }, { &takes_at_once, 1, 10, 0 }, { NULL, 1, 10, 0 } };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      Case c = case_new (cases[i].stack, cases[i].host_ns, cases[i].device_ns);
      ck_assert (!sim_record_stream_give_back (&c.lead, cases[i].array, 1));
      assert_none (&c);
      case_clear (&c);
    }
}
END_TEST

/* Repeated ops count as often as they run; ops that overlap compute do not delay it. */
START_TEST (the_pace_is_that_of_a_step)
{
  g_autoptr (PlanSchedule) schedule = plan_schedule_new (0, 2);
  const gint8 group = plan_schedule_add_group (schedule, "inner", 2, 1);
  PlanOp op;
  plan_schedule_add_buffer (schedule, "a", 1, 64, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  plan_schedule_begin_repeat (schedule, "m", 0, 3, 1);
  plan_schedule_begin_repeat (schedule, "l", 0, 5, 1);
  plan_op_init (&op, PLAN_OP_ZERO, PLAN_STREAM_COMPUTE);
  op.dims[0] = 64;
  op.refs[0] = (PlanRef){ .array = 0, .loop = -1 };
  plan_schedule_add (schedule, &op);
  plan_schedule_end_repeat (schedule);
  plan_op_init (&op, PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE);
  op.group = group;
  op.dims[0] = 64;
  op.refs[0] = (PlanRef){ .array = 0, .loop = -1 };
  plan_schedule_add (schedule, &op);
  plan_schedule_end_repeat (schedule);
  g_autoptr (SimCost) cost = sim_cost_new_constant (schedule, 100, 7);
  const SimPace pace = sim_pace_of (schedule, cost);
  ck_assert_int_eq (pace.device_ns, 15 * 100);
  ck_assert_int_eq (pace.host_ns, 18 * 7);
}
END_TEST

/* Within a tensor-parallel group a device that is kept waiting by its own host waits for the
 * slowest host. */
START_TEST (the_slowest_host_sets_the_pace)
{
  g_autoptr (PlanSchedule) schedule = schedule_new ();
  g_autoptr (SimCost) fast = sim_cost_new_constant (schedule, 1000, 2000);
  g_autoptr (SimCost) slow = sim_cost_new_constant (schedule, 5000, 2000);
  ck_assert_int_eq (sim_pace_of (schedule, fast).device_ns, 2000 + 20 * SIM_RECORD_STREAM_SLOWEST);
  ck_assert_int_eq (sim_pace_of (schedule, slow).device_ns, 5000);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("record-stream");
  TCase *tcase = tcase_create ("hand-computed");
  tcase_add_test (tcase, comes_free_when_the_device_is_there);
  tcase_add_test (tcase, the_queue_bounds_the_lead);
  tcase_add_test (tcase, a_step_ends_with_nothing_waiting);
  tcase_add_test (tcase, each_comes_free_at_its_moment);
  tcase_add_test (tcase, others_come_free_at_once);
  tcase_add_test (tcase, the_pace_is_that_of_a_step);
  tcase_add_test (tcase, the_slowest_host_sets_the_pace);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
