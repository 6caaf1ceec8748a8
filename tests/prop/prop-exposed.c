/* SPDX-License-Identifier: Apache-2.0 */
/* SimExposed, which cuts repeats out of a timeline, splits a step's time as plan_trace_attribute
 * does from a trace with every span. */
#include "config.h"

#include "planner/schedule/trace.h"
#include "sim/fast/exposed.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>

#define N_STREAMS (PLAN_N_STREAMS - PLAN_STREAM_COMPUTE)

/* The same timeline twice: in a SimExposed without its repeats, and in a trace with every span. */
typedef struct
{
  GRand *rand;
  SimExposed busy;
  PlanSchedule *schedule; /* node s runs on the s-th stream */
  PlanTrace *trace;
  gint64 free_ns[N_STREAMS];
} Both;

static void
add (Both *self, guint s, gint64 start, gint64 ns, gint64 drift, gboolean is_cut)
{
  const SimClock clock = { .at = start, .drift = { drift, 0 } };
  plan_trace_add_span (self->trace, s, -1, start, start + ns);
  if (!is_cut)
    sim_exposed_add (&self->busy, PLAN_STREAM_COMPUTE + s, &clock, ns);
  self->free_ns[s] = MAX (self->free_ns[s], start + ns);
}

static void
add_random_spans (Both *self, gint32 most)
{
  for (gint32 i = g_rand_int_range (self->rand, 0, most); i > 0; i--)
    {
      const guint s = (guint)g_rand_int_range (self->rand, 0, N_STREAMS);
      const gint64 gap = g_rand_boolean (self->rand) ? 0 : g_rand_int_range (self->rand, 0, 60);
      add (self, s, self->free_ns[s] + gap, g_rand_int_range (self->rand, 0, 30), 0, FALSE);
    }
}

/* Adds up to four spans of each stream, and repeats them up to 400 times. Most streams repeat with
 * the same period; a few with one that is 1 ns longer. */
static void
add_random_repeat (Both *self)
{
  const gint64 times = g_rand_int_range (self->rand, 1, 400);
  const gint64 period = g_rand_int_range (self->rand, 20, 90);
  gint64 periods[N_STREAMS], starts[N_STREAMS][4], lengths[N_STREAMS][4];
  guint n[N_STREAMS];
  for (guint s = 0; s < N_STREAMS; s++)
    {
      periods[s] = period + (g_rand_int_range (self->rand, 0, 8) == 0);
      n[s] = (guint)g_rand_int_range (self->rand, 0, 4);
      gint64 at = 0;
      for (guint i = 0; i < n[s]; i++)
        {
          at += g_rand_boolean (self->rand) ? 0 : g_rand_int_range (self->rand, 0, 4);
          starts[s][i] = self->free_ns[s] + at;
          lengths[s][i] = g_rand_boolean (self->rand) && n[s] == 1
                              ? periods[s] - at
                              : g_rand_int_range (self->rand, 0, 3);
          at += lengths[s][i];
        }
    }
  for (gint64 t = 0; t <= times; t++)
    {
      if (t == 0)
        sim_exposed_begin_iteration (&self->busy, 0);
      for (guint s = 0; s < N_STREAMS; s++)
        for (guint i = 0; i < n[s]; i++)
          add (self, s, starts[s][i] + t * periods[s], lengths[s][i], periods[s], t > 0);
      if (t == 0)
        sim_exposed_repeat (&self->busy, 0, times);
    }
}

START_TEST (equals_the_split_of_all_spans)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanTrace) trace = plan_trace_new ("test");
  g_autoptr (PlanSchedule) schedule = plan_schedule_new (0, 1);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  for (guint s = 0; s < N_STREAMS; s++)
    {
      PlanOp op;
      plan_op_init (&op, PLAN_OP_LOAD, PLAN_STREAM_COMPUTE + s);
      plan_schedule_add (schedule, &op);
    }
  Both both = { .rand = rand, .schedule = schedule, .trace = trace };
  SimShares shares;
  sim_exposed_begin (&both.busy, 0);
  add_random_spans (&both, 12);
  add_random_repeat (&both);
  add_random_spans (&both, 6);
  if (g_rand_boolean (rand))
    add_random_repeat (&both);
  add_random_spans (&both, 12);
  /* The step ends at any time from 40 ns before the end of its last span to 20 ns after it. */
  for (guint s = 0; s < N_STREAMS; s++)
    trace->step_ns = MAX (trace->step_ns, both.free_ns[s]);
  trace->step_ns += g_rand_int_range (rand, -40, 20);
  trace->step_ns = MAX (trace->step_ns, 0);
  plan_trace_attribute (trace, schedule);
  if (sim_exposed_split (&both.busy, trace->step_ns, &shares))
    ck_assert_msg (shares.compute_ns == trace->compute_ns
                       && shares.exposed_tensor_ns == trace->exposed_tensor_ns
                       && shares.exposed_copy_ns == trace->exposed_copy_ns
                       && shares.exposed_gather_ns == trace->exposed_gather_ns
                       && shares.exposed_reduce_ns == trace->exposed_reduce_ns
                       && shares.host_ns == trace->host_ns,
                   "seed %d", _i);
  else
    ck_assert_msg (both.busy.cut_ns > 0, "seed %d: nothing was cut out", _i);
  sim_exposed_clear (&both.busy);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-exposed");
  TCase *tcase = tcase_create ("random");
  test_add_share (tcase, equals_the_split_of_all_spans, 2000);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
