/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/stack-history.h"

#include "planner/base/error.h"

#include <check.h>
#include <stdlib.h>

static const PlanStack *
stack_of (const char *text, GError **error)
{
  Plan plan;
  plan_init (&plan);
  ck_assert_msg (plan_set (&plan, "stack", text, error), "%s", text);
  return plan_stack_of (&plan, PLAN_DEVICE_GPU, error);
}

/* What held on the day before a change and on the day itself. */
START_TEST (behaviour_follows_the_date)
{
  const PlanStack *newest = stack_of ("megatron-fsdp", NULL);
  ck_assert_ptr_eq (plan_stack_get (0), newest);
  ck_assert (stack_of ("megatron-fsdp@2026-04-09", NULL)->offers & PLAN_OFFERS_FUSED_MASTERS);
  ck_assert (!(stack_of ("megatron-fsdp@2026-04-10", NULL)->offers & PLAN_OFFERS_FUSED_MASTERS));
  ck_assert (!(stack_of ("megatron-fsdp@2026-05-19", NULL)->offers & PLAN_OFFERS_FINE_GRAINED));
  ck_assert (stack_of ("megatron-fsdp@2026-05-20", NULL)->offers & PLAN_OFFERS_FINE_GRAINED);
  ck_assert_int_eq (stack_of ("megatron-fsdp@2026-05-29", NULL)->weights.outer, PLAN_OUTER_DROPS);
  ck_assert_int_eq (stack_of ("megatron-fsdp@2026-05-30", NULL)->weights.outer, PLAN_OUTER_STAYS);
  ck_assert (!(stack_of ("megatron-fsdp@2026-07-01", NULL)->offers & PLAN_OFFERS_MAX_POOL));
  ck_assert (stack_of ("megatron-fsdp@2026-07-02", NULL)->offers & PLAN_OFFERS_MAX_POOL);
  ck_assert (stack_of ("megatron-fsdp@2026-08-17", NULL)->buckets.bucketing
             == PLAN_BUCKETING_BELOW);
  ck_assert (stack_of ("megatron-fsdp@2026-08-18", NULL)->buckets.bucketing
             == PLAN_BUCKETING_WHOLE);
  ck_assert (stack_of ("megatron-fsdp@2026-02-01", NULL)->host.loads == PLAN_LOADS_WAIT);
  ck_assert (stack_of ("megatron-fsdp@2026-05-20", NULL)->host.loads == PLAN_LOADS_WAIT);
  ck_assert (stack_of ("megatron-fsdp@2026-05-21", NULL)->host.loads == PLAN_LOADS_PACKED);
  ck_assert (stack_of ("megatron@2026-01-15", NULL)->host.loads == PLAN_LOADS_PACKED);
  ck_assert (stack_of ("megatron@2026-01-16", NULL)->host.loads == PLAN_LOADS_WAIT);
  ck_assert (stack_of ("megatron", NULL)->host.loads == PLAN_LOADS_PACKED);
  ck_assert_int_eq (stack_of ("megatron-fsdp@2026-03-31", NULL)->grads.pool,
                    PLAN_GRAD_POOL_AWAITED);
  ck_assert_int_eq (stack_of ("megatron-fsdp@2026-04-01", NULL)->grads.pool, PLAN_GRAD_POOL_ONE);
  ck_assert_int_eq (stack_of ("megatron-fsdp@2026-06-09", NULL)->grads.pool, PLAN_GRAD_POOL_ONE);
  ck_assert_int_eq (stack_of ("megatron-fsdp@2026-06-10", NULL)->grads.pool, PLAN_GRAD_POOL_QUEUED);
}
END_TEST

START_TEST (newest_date_is_the_newest_record)
{
  for (guint i = 0; i < plan_stack_n (); i++)
    {
      const PlanStack *stack = plan_stack_get (i);
      g_autofree char *date = plan_stack_date_text (stack->newest);
      g_autofree char *text = g_strconcat (stack->name, "@", date, NULL);
      ck_assert_mem_eq (stack_of (text, NULL), stack, sizeof *stack);
      ck_assert_int_le (stack->oldest, stack->newest);
      gint64 before = 0;
      const PlanStackChange *change;
      for (guint c = 0; (change = plan_stack_change (stack, c)); c++)
        {
          ck_assert_int_ge (change->date, MAX (before, stack->oldest));
          ck_assert_int_le (change->date, stack->newest);
          before = change->date;
        }
    }
}
END_TEST

START_TEST (release_is_its_branch_date)
{
  const PlanStack *stack = plan_stack_get (0);
  for (guint i = 0; plan_stack_release (stack, i); i++)
    {
      g_autofree char *text = g_strconcat ("megatron-fsdp@", plan_stack_release (stack, i), NULL);
      ck_assert_ptr_nonnull (stack_of (text, NULL));
    }
  Plan plan;
  plan_init (&plan);
  ck_assert (plan_set (&plan, "stack", "megatron-fsdp@core_v0.18.0", NULL));
  g_autofree char *shown = plan_field_print (PLAN_STACK, plan.value[PLAN_STACK]);
  ck_assert_str_eq (shown, "megatron-fsdp@2026-06-01");
  ck_assert (!plan_set (&plan, "stack", "native@core_v0.18.0", NULL));
  ck_assert (!plan_set (&plan, "stack", "megatron-fsdp@core_v9", NULL));
  ck_assert (!plan_set (&plan, "stack", "megatron-fsdp@", NULL));
}
END_TEST

static const struct
{
  const char *text, *message;
} refused[] = {
  { "megatron-fsdp@2026-01-20",
    "stack=megatron-fsdp is known from 2026-01-21 to 2026-08-22: give a date between them, or none "
    "for the newest" },
  { "megatron-fsdp@2026-08-23",
    "stack=megatron-fsdp is known from 2026-01-21 to 2026-08-22: give a date between them, or none "
    "for the newest" },
  { "native@2026-10-31",
    "stack=native is known from 2026-11-01 to 2026-11-01: give a date between them, or none for "
    "the newest" },
  { "fsdp2@2024-03-27",
    "stack=fsdp2 is known from 2024-03-28 to 2026-08-21: give a date between them, or none for the "
    "newest" },
};

START_TEST (refuses_what_it_does_not_know)
{
  g_autoptr (GError) error = NULL;
  ck_assert_ptr_null (stack_of (refused[_i].text, &error));
  ck_assert_str_eq (error->message, refused[_i].message);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("stack");
  TCase *tcase = tcase_create ("stack");
  tcase_add_test (tcase, behaviour_follows_the_date);
  tcase_add_test (tcase, newest_date_is_the_newest_record);
  tcase_add_test (tcase, release_is_its_branch_date);
  tcase_add_loop_test (tcase, refuses_what_it_does_not_know, 0, G_N_ELEMENTS (refused));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
