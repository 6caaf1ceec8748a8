/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/layout.h"
#include "planner/lower.h"
#include "tests/prop/random.h"

#include <check.h>
#include <stdlib.h>

/* A random plan for GPUs with everything that belongs to it. */
typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  Plan plan;
  PlanSchedule *schedule;
} Case;

static PlanSchedule *
lower (const Case *c, guint rank, int seed)
{
  g_autoptr (GError) error = NULL;
  PlanSchedule *schedule = plan_lower (c->model, c->cluster, &c->plan, rank, &error);
  ck_assert_msg (schedule != NULL, "seed %d: %s", seed, error ? error->message : "");
  return schedule;
}

static void
case_init (Case *c, int seed)
{
  c->model = random_model ((guint)seed);
  c->cluster = random_gpu_cluster ((guint)seed);
  c->plan = random_plan ((guint)seed, c->model, c->cluster, seed % 2 ? "megatron-fsdp" : "native");
  c->schedule = lower (c, 0, seed);
}

static void
case_clear (Case *c)
{
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
  plan_schedule_free (c->schedule);
}

START_TEST (schedules_pass_their_check)
{
  Case c;
  g_autoptr (GError) error = NULL;
  case_init (&c, _i);
  ck_assert_msg (plan_schedule_check (c.schedule, &error), "seed %d: %s", _i,
                 error ? error->message : "");
  case_clear (&c);
}
END_TEST

START_TEST (print_then_parse_is_identity)
{
  Case c;
  g_autoptr (GError) error = NULL;
  case_init (&c, _i);
  g_autofree char *text = plan_schedule_print (c.schedule);
  g_autoptr (PlanSchedule) again = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (again != NULL, "seed %d: %s", _i, error ? error->message : "");
  g_autofree char *text_again = plan_schedule_print (again);
  ck_assert_str_eq (text, text_again);
  case_clear (&c);
}
END_TEST

/* What was taken in a step is given back in it; what setup took, in teardown. */
START_TEST (every_alloc_is_freed)
{
  Case c;
  case_init (&c, _i);
  g_autofree gint *taken = g_new0 (gint, plan_schedule_n_buffer_ids (c.schedule) + 1);
  gint balance[PLAN_N_SECTIONS] = { 0 };
  for (PlanSection s = 0; s < PLAN_N_SECTIONS; s++)
    {
      PlanCursor cursor;
      const PlanOp *op;
      for (plan_cursor_start (&cursor, c.schedule, s); (op = plan_cursor_next (&cursor));)
        if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY)
          {
            const gint change = op->kind == PLAN_OP_ALLOC ? 1 : -1;
            gint *count = &taken[plan_cursor_buffer (&cursor, &op->refs[0])];
            *count += change;
            balance[s] += change;
            ck_assert_msg (*count == 0 || *count == 1, "seed %d", _i);
          }
    }
  ck_assert_int_eq (balance[PLAN_SECTION_STEP], 0);
  ck_assert_int_eq (balance[PLAN_SECTION_SETUP], -balance[PLAN_SECTION_TEARDOWN]);
  case_clear (&c);
}
END_TEST

/* "kind stream elements bytes" of every collective, in order. */
static char *
collectives (const PlanSchedule *schedule)
{
  GString *text = g_string_new (NULL);
  for (PlanSection s = 0; s < PLAN_N_SECTIONS; s++)
    {
      PlanCursor cursor;
      const PlanOp *op;
      for (plan_cursor_start (&cursor, schedule, s); (op = plan_cursor_next (&cursor));)
        if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
          g_string_append_printf (
              text, "%s %u %" G_GINT64_FORMAT " %s\n", plan_op_name (op->kind), op->stream,
              op->dims[0],
              plan_dtype_name (plan_schedule_buffer (schedule, (guint)op->refs[0].array)->dtype));
    }
  return g_string_free (text, FALSE);
}

START_TEST (all_ranks_issue_the_same_collectives)
{
  Case c;
  case_init (&c, _i);
  g_autofree char *expected = collectives (c.schedule);
  for (guint rank = 1; rank < plan_schedule_ranks (c.schedule); rank++)
    {
      g_autoptr (PlanSchedule) other = lower (&c, rank, _i);
      g_autofree char *found = collectives (other);
      ck_assert_msg (g_strcmp0 (expected, found) == 0, "seed %d: rank %u differs", _i, rank);
    }
  case_clear (&c);
}
END_TEST

/* Elements that this rank sends in a step, by what they are, for rings. */
typedef struct
{
  guint64 gathered, reduced;
} Traffic;

static Traffic
traffic_of (const PlanSchedule *schedule)
{
  Traffic t = { 0 };
  PlanCursor cursor;
  const PlanOp *op;
  const guint64 others = plan_schedule_ranks (schedule) - 1;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_ALL_GATHER && op->stream == PLAN_STREAM_GATHER)
      t.gathered += (guint64)op->dims[0] * others;
    else if (op->kind == PLAN_OP_REDUCE_SCATTER)
      t.reduced += (guint64)op->dims[0] * others;
    else if (op->kind == PLAN_OP_ALL_REDUCE)
      t.reduced += 2 * (guint64)op->dims[0] * others / (others + 1);
  return t;
}

/* When each strategy communicates: once per step, or in each micro batch, forward and backward. */
START_TEST (traffic_follows_the_strategy)
{
  Case c;
  PlanLayout layout;
  case_init (&c, _i);
  const PlanStack *stack = plan_stack_of (&c.plan, c.cluster->kind, NULL);
  const guint64 ranks = (guint64)plan_data_parallel (&c.plan, c.cluster);
  const guint64 m = (guint64)plan_micro_batches (&c.plan, c.cluster);
  const gint64 strategy = c.plan.value[PLAN_STRATEGY];
  plan_layout_init (&layout, c.model, stack, &c.plan, (gint64)ranks);
  const guint64 units = layout.buckets[PLAN_BUCKET_LAYER].padded * (guint64)c.model->layers;
  const guint64 others
      = layout.buckets[PLAN_BUCKET_EMBEDDING].padded + layout.buckets[PLAN_BUCKET_HEAD].padded;
  const guint64 ring = ranks - 1;
  Traffic expected = { 0 }, found = traffic_of (c.schedule);
  if (strategy == PLAN_STRATEGY_NO_SHARD)
    expected.reduced = 2 * (units + others) * ring / ranks;
  else
    {
      expected.gathered = (units + others) / ranks * ring;
      expected.reduced = (units + others) / ranks * ring;
    }
  if (strategy >= PLAN_STRATEGY_OPTIM_GRADS)
    expected.reduced *= m;
  if (strategy == PLAN_STRATEGY_OPTIM_GRADS_PARAMS)
    {
      expected.gathered = (2 * m * units + others) / ranks * ring;
      /* The output layer's hook gathers units nobody needs, as many as it looks ahead. */
      if (stack->prefetches_past_head)
        ck_assert_uint_ge (found.gathered, expected.gathered);
    }
  if (!(stack->prefetches_past_head && strategy == PLAN_STRATEGY_OPTIM_GRADS_PARAMS))
    ck_assert_msg (found.gathered == expected.gathered, "seed %d", _i);
  /* all-reduces round once per bucket */
  const guint64 slack = strategy == PLAN_STRATEGY_NO_SHARD ? (guint64)c.model->layers + 2 : 0;
  ck_assert_msg (found.reduced <= expected.reduced && expected.reduced <= found.reduced + slack,
                 "seed %d: %" G_GUINT64_FORMAT " for %" G_GUINT64_FORMAT, _i, found.reduced,
                 expected.reduced);
  case_clear (&c);
}
END_TEST

/* Tensors neither overlap nor leave their bucket, and a bucket's shards are equal. */
START_TEST (layouts_hold_every_tensor_once)
{
  Case c;
  PlanLayout layout;
  case_init (&c, _i);
  const PlanStack *stack = plan_stack_of (&c.plan, c.cluster->kind, NULL);
  plan_layout_init (&layout, c.model, stack, &c.plan, plan_data_parallel (&c.plan, c.cluster));
  for (guint b = 0; b < PLAN_N_BUCKETS; b++)
    {
      const PlanBucket *bucket = &layout.buckets[b];
      ck_assert_uint_eq (bucket->padded % layout.shards, 0);
      for (guint i = 0; i < bucket->n_slots; i++)
        {
          const PlanSlot *s = &bucket->slots[i];
          const guint64 end = s->offset + s->tensor.rows * s->tensor.cols;
          ck_assert_uint_le (end, bucket->padded);
          for (guint j = 0; j < i; j++)
            {
              const PlanSlot *t = &bucket->slots[j];
              ck_assert_msg (t->offset >= end
                                 || t->offset + t->tensor.rows * t->tensor.cols <= s->offset,
                             "seed %d: %s and %s overlap", _i, s->tensor.name, t->tensor.name);
            }
        }
    }
  case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-lower");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 120);
  tcase_add_loop_test (tcase, schedules_pass_their_check, 0, 150);
  tcase_add_loop_test (tcase, print_then_parse_is_identity, 0, 60);
  tcase_add_loop_test (tcase, every_alloc_is_freed, 0, 100);
  tcase_add_loop_test (tcase, all_ranks_issue_the_same_collectives, 0, 60);
  tcase_add_loop_test (tcase, traffic_follows_the_strategy, 0, 150);
  tcase_add_loop_test (tcase, layouts_hold_every_tensor_once, 0, 150);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
