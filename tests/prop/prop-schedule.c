/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules: their text form, their check, the cursor over repeats, and where buffers lie in the
 * arena. */
#include "config.h"

#include "planner/schedule/arena.h"
#include "tests/prop/random.h"

#include <check.h>
#include <stdlib.h>

START_TEST (print_then_parse_is_identity)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = random_schedule (_i);
  g_autofree char *text = plan_schedule_print (schedule);
  g_autoptr (PlanSchedule) again = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (again != NULL, "seed %d: %s", _i, error ? error->message : "");
  g_autofree char *text_again = plan_schedule_print (again);
  ck_assert_str_eq (text, text_again);
}
END_TEST

START_TEST (random_schedules_pass_their_check)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = random_schedule (_i);
  ck_assert_msg (plan_schedule_check (schedule, &error), "seed %d: %s", _i,
                 error ? error->message : "");
}
END_TEST

#define N_PLACES 3 /* buffers, and as many events: event i says when buffer i was used last */

/* An op that uses one of the buffers, mostly behind its last use. */
static void
add_op (GArray *ops, GRand *rand)
{
  const PlanRef place = { .array = 0, .offset = g_rand_int_range (rand, 0, N_PLACES), .loop = -1 };
  PlanOp op;
  plan_op_init (&op, PLAN_OP_SYNC, PLAN_STREAM_HOST);
  if (g_rand_int_range (rand, 0, 8) > 0)
    {
      plan_op_init (&op, g_rand_boolean (rand) ? PLAN_OP_ZERO : PLAN_OP_ALL_REDUCE,
                    (PlanStream)g_rand_int_range (rand, PLAN_STREAM_COMPUTE, PLAN_STREAM_REDUCE));
      op.refs[0] = place;
      op.dims[0] = 16;
      op.group = op.kind == PLAN_OP_ZERO ? -1 : 0;
    }
  if (op.kind == PLAN_OP_SYNC || g_rand_int_range (rand, 0, 8) > 0)
    op.waits[op.n_waits++] = place;
  if (op.kind != PLAN_OP_SYNC && g_rand_int_range (rand, 0, 6) > 0)
    op.record = place;
  g_array_append_val (ops, op);
}

static void
add_all (PlanSchedule *schedule, const GArray *ops)
{
  for (guint i = 0; i < ops->len; i++)
    plan_schedule_add (schedule, &g_array_index (ops, PlanOp, i));
}

static void
add_places (PlanSchedule *schedule, PlanOpKind kind, PlanStream stream)
{
  for (gint32 i = 0; i < N_PLACES; i++)
    {
      PlanOp op;
      plan_op_init (&op, kind, stream);
      const PlanRef place = { .array = 0, .offset = i, .loop = -1 };
      if (kind != PLAN_OP_SYNC)
        op.refs[0] = place;
      if (kind == PLAN_OP_ZERO)
        op.dims[0] = 16, op.record = place;
      if (kind == PLAN_OP_SYNC)
        op.waits[op.n_waits++] = place;
      plan_schedule_add (schedule, &op);
    }
}

/* What the check says of a schedule with ops before, in and behind a repeat. The repeat is written
 * as one, or turn by turn. */
static char *
verdict (const GArray *const parts[3], gint64 turns, gboolean is_repeat)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_new (0, 2);
  plan_schedule_add_group (schedule, "all", 2, 1);
  plan_schedule_add_buffer (schedule, "b", N_PLACES, 16, PLAN_DTYPE_FP32,
                            PLAN_CATEGORY_ACTIVATIONS);
  plan_schedule_add_event (schedule, "e", N_PLACES);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  add_places (schedule, PLAN_OP_ALLOC, PLAN_STREAM_COMPUTE);
  add_places (schedule, PLAN_OP_ZERO, PLAN_STREAM_COMPUTE);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  add_all (schedule, parts[0]);
  if (is_repeat)
    plan_schedule_begin_repeat (schedule, "i", 0, turns, 1);
  for (gint64 i = 0; i < (is_repeat ? 1 : turns); i++)
    add_all (schedule, parts[1]);
  if (is_repeat)
    plan_schedule_end_repeat (schedule);
  add_all (schedule, parts[2]);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  add_places (schedule, PLAN_OP_SYNC, PLAN_STREAM_HOST);
  add_places (schedule, PLAN_OP_FREE, PLAN_STREAM_COMPUTE);
  if (plan_schedule_check (schedule, &error))
    return g_strdup ("sound");
  return g_strdup (g_strrstr (error->message, "): ")); /* the op's number is another one */
}

/* The check leaves out turns of a repeat that find nothing new; written out, none is left out. */
START_TEST (repeats_are_judged_as_their_turns)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  guint n_sound = 0;
  for (guint k = 0; k < 400; k++)
    {
      g_autoptr (GArray) before = g_array_new (FALSE, FALSE, sizeof (PlanOp)),
                         body = g_array_new (FALSE, FALSE, sizeof (PlanOp)),
                         behind = g_array_new (FALSE, FALSE, sizeof (PlanOp));
      const GArray *const parts[] = { before, body, behind };
      for (gint32 i = g_rand_int_range (rand, 0, 9); i > 0; i--)
        add_op (before, rand);
      for (gint32 i = g_rand_int_range (rand, 1, 6); i > 0; i--)
        add_op (body, rand);
      for (gint32 i = g_rand_int_range (rand, 0, 4); i > 0; i--)
        add_op (behind, rand);
      const gint64 turns = g_rand_int_range (rand, 1, 9);
      g_autofree char *brief = verdict (parts, turns, TRUE), *whole = verdict (parts, turns, FALSE);
      ck_assert_msg (g_str_equal (brief, whole), "seed %d, case %u: %s, but written out %s", _i, k,
                     brief, whole);
      n_sound += g_str_equal (brief, "sound");
    }
  ck_assert_uint_gt (n_sound, 40);
  ck_assert_uint_lt (n_sound, 360);
}
END_TEST

/* The cursor against a recursive expansion of the text. */
static guint
count_slowly (const PlanSchedule *schedule, guint *node, guint end)
{
  guint n = 0;
  while (*node < end)
    {
      const PlanOp *op = plan_schedule_node (schedule, (*node)++);
      if (op->kind == PLAN_OP_END)
        return n;
      if (op->kind == PLAN_OP_REPEAT)
        n += (guint)op->dims[1] * count_slowly (schedule, node, end);
      else
        n++;
    }
  return n;
}

START_TEST (the_cursor_sees_every_repetition)
{
  g_autoptr (PlanSchedule) schedule = random_schedule (_i);
  for (PlanSection s = 0; s < PLAN_N_SECTIONS; s++)
    {
      guint node = plan_schedule_section_node (schedule, s), seen = 0;
      const guint expected
          = count_slowly (schedule, &node, plan_schedule_section_node (schedule, s + 1));
      PlanCursor cursor;
      for (plan_cursor_start (&cursor, schedule, s); plan_cursor_next (&cursor);)
        seen++;
      ck_assert_uint_eq (seen, expected);
    }
}
END_TEST

/* No two buffers that are live at once may share a byte of the device's block, or of the host's. */
START_TEST (arena_places_do_not_overlap)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = random_schedule (_i);
  const guint64 room = (guint64)(_i % 3) * PLAN_ARENA_ALIGNMENT;
  g_auto (PlanArena) arena = { 0 };
  ck_assert_msg (plan_arena_init_apart (&arena, schedule, room, &error), "seed %d", _i);
  const guint32 n = plan_schedule_n_buffer_ids (schedule);
  g_autofree guint64 *start = g_new0 (guint64, n + 1), *size = g_new0 (guint64, n + 1);
  g_autofree gboolean *is_host = g_new0 (gboolean, n + 1);
  for (PlanSection s = 0; s < PLAN_N_SECTIONS; s++)
    {
      PlanCursor cursor;
      const PlanOp *op;
      guint next = 0;
      for (plan_cursor_start (&cursor, schedule, s); (op = plan_cursor_next (&cursor));)
        {
          if (op->kind != PLAN_OP_ALLOC && op->kind != PLAN_OP_FREE)
            continue;
          const guint32 id = plan_cursor_buffer (&cursor, &op->refs[0]);
          size[id] = 0;
          if (op->kind == PLAN_OP_FREE)
            continue;
          start[id] = g_array_index (arena.offsets[s], guint64, next++);
          size[id] = plan_schedule_buffer_bytes (schedule, (guint)op->refs[0].array);
          is_host[id] = plan_schedule_buffer (schedule, (guint)op->refs[0].array)->category
                        == PLAN_CATEGORY_HOST;
          if (size[id] == 0)
            continue;
          ck_assert_uint_ge (start[id], room);
          ck_assert_uint_le (start[id] + size[id] + room,
                             is_host[id] ? arena.host_bytes : arena.size_bytes);
          for (guint32 i = 0; i < n; i++)
            ck_assert (i == id || size[i] == 0 || is_host[i] != is_host[id]
                       || start[i] + size[i] + 2 * room <= start[id]
                       || start[id] + size[id] + 2 * room <= start[i]);
        }
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-schedule");
  TCase *tcase = tcase_create ("random");
  tcase_add_loop_test (tcase, print_then_parse_is_identity, 0, 300);
  tcase_add_loop_test (tcase, random_schedules_pass_their_check, 0, 300);
  tcase_add_loop_test (tcase, repeats_are_judged_as_their_turns, 0, 20);
  tcase_add_loop_test (tcase, the_cursor_sees_every_repetition, 0, 200);
  tcase_add_loop_test (tcase, arena_places_do_not_overlap, 0, 100);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
