/* SPDX-License-Identifier: Apache-2.0 */
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

/* No two buffers that are live at once may share a byte. */
START_TEST (arena_places_do_not_overlap)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = random_model (_i);
  g_autoptr (PlanSchedule) schedule = random_schedule (_i);
  const guint64 room = (guint64)(_i % 3) * PLAN_ARENA_ALIGNMENT;
  g_auto (PlanArena) arena = { 0 };
  ck_assert_msg (plan_arena_init_apart (&arena, schedule, room, &error), "seed %d", _i);
  const guint32 n = plan_schedule_n_buffer_ids (schedule);
  g_autofree guint64 *start = g_new0 (guint64, n + 1), *size = g_new0 (guint64, n + 1);
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
          if (size[id] == 0
              || plan_schedule_buffer (schedule, (guint)op->refs[0].array)->category
                     == PLAN_CATEGORY_HOST)
            {
              size[id] = 0;
              continue;
            }
          ck_assert_uint_ge (start[id], room);
          ck_assert_uint_le (start[id] + size[id] + room, arena.size_bytes);
          for (guint32 i = 0; i < n; i++)
            ck_assert (i == id || size[i] == 0 || start[i] + size[i] + 2 * room <= start[id]
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
  tcase_add_loop_test (tcase, the_cursor_sees_every_repetition, 0, 200);
  tcase_add_loop_test (tcase, arena_places_do_not_overlap, 0, 100);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
