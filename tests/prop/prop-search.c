/* SPDX-License-Identifier: Apache-2.0 */
/* The search against trying everything, and its bounds against what they bound. */
#include "config.h"

#include "planner/bound.h"
#include "planner/lower.h"
#include "planner/search.h"
#include "sim/sim.h"
#include "tests/prop/random.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
} Case;

static gboolean
simulate (const Case *c, const Plan *resolved, PlanScore *out)
{
  g_autoptr (GError) error = NULL;
  const PlanStack *stack = plan_stack_of (resolved, c->cluster->kind, &error);
  g_autoptr (PlanSchedule) schedule = plan_lower (c->model, c->cluster, resolved, 0, &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  const SimCostInput input
      = { .schedule = schedule, .cluster = c->cluster, .stack = stack, .plan = resolved };
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  g_autoptr (PlanTrace) trace = sim_run (schedule, cost, stack, &error);
  *out = (PlanScore){ trace->step_ns, trace->memory.device };
  return TRUE;
}

static gboolean
score (const Plan *resolved, gpointer user_data, PlanScore *out)
{
  return simulate (user_data, resolved, out);
}

/* A small space: one node, short models. */
static PlanSpace *
small_space (const Case *c, int seed, guint allow)
{
  gboolean pinned[PLAN_N_FIELDS] = { FALSE };
  Plan base;
  plan_init (&base);
  base.value[PLAN_GBS] = 16;
  base.value[PLAN_SEQ] = 128;
  pinned[PLAN_GBS] = pinned[PLAN_SEQ] = TRUE;
  if (seed % 2)
    pinned[PLAN_COMM_UNIT] = TRUE;
  if (seed % 3)
    pinned[PLAN_TP] = TRUE;
  PlanSpace *space = plan_space_new (c->model, c->cluster, &base, pinned, allow);
  const gint64 mbs[] = { 1, 2 };
  ck_assert (plan_space_restrict (space, PLAN_MBS, mbs, 2, NULL));
  const gint64 recompute[]
      = { seed % 4 ? PLAN_RECOMPUTE_NONE : PLAN_RECOMPUTE_SELECTIVE, PLAN_RECOMPUTE_FULL };
  ck_assert (plan_space_restrict (space, PLAN_RECOMPUTE, recompute, 2, NULL));
  return space;
}

static void
case_init (Case *c, int seed)
{
  c->model = random_wide_model ((guint)seed);
  c->cluster = plan_cluster_new (seed % 2 ? "dgx-h100:1" : "dgx-h100:2", NULL);
}

static void
case_clear (Case *c)
{
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}

/* Every legal plan of a space, scored. */
static GArray *
try_everything (const Case *c, const PlanSpace *space, guint64 memory_bytes)
{
  GArray *all = g_array_new (FALSE, FALSE, sizeof (PlanFound));
  for (guint64 point = 0; point < plan_space_size (space); point++)
    {
      PlanFound found = { .point = point };
      Plan plan;
      if (plan_space_at (space, point, &plan)
          && plan_resolve (&plan, c->model, c->cluster, &found.plan, NULL)
          && simulate (c, &found.plan, &found.score) && found.score.memory_bytes <= memory_bytes)
        g_array_append_val (all, found);
    }
  return all;
}

static gint64
best_time (const GArray *found)
{
  gint64 best = G_MAXINT64;
  for (guint i = 0; i < found->len; i++)
    best = MIN (best, g_array_index (found, PlanFound, i).score.time_ns);
  return best;
}

/* Whether something in `all` beats a score in memory and time. */
static gboolean
is_dominated (const GArray *all, const PlanScore *score_of)
{
  for (guint i = 0; i < all->len; i++)
    {
      const PlanScore *s = &g_array_index (all, PlanFound, i).score;
      if (s->time_ns <= score_of->time_ns && s->memory_bytes <= score_of->memory_bytes
          && (s->time_ns < score_of->time_ns || s->memory_bytes < score_of->memory_bytes))
        return TRUE;
    }
  return FALSE;
}

START_TEST (the_search_equals_trying_everything)
{
  Case c;
  case_init (&c, _i);
  g_autoptr (PlanSpace) space = small_space (&c, _i, _i % 2 ? 0 : 1u << PLAN_ALLOW_MIXED);
  PlanScore some = { 0 };
  g_auto (PlanSearchResult) result = { 0 };
  g_autoptr (GArray) unlimited = try_everything (&c, space, G_MAXUINT64);
  ck_assert_uint_gt (unlimited->len, 0);
  some = g_array_index (unlimited, PlanFound, unlimited->len / 2).score;
  const guint64 memory_bytes = _i % 3 ? some.memory_bytes : G_MAXUINT64;
  g_autoptr (GArray) all = try_everything (&c, space, memory_bytes);
  const PlanSearch search = { .model = c.model,
                              .cluster = c.cluster,
                              .space = space,
                              .memory_bytes = memory_bytes,
                              .best = 3,
                              .threads = 2,
                              .score = score,
                              .user_data = &c };
  plan_search_run (&search, &result);
  ck_assert_uint_eq (result.total,
                     result.by_rule + result.by_bound + result.by_memory + result.by_simulation);
  ck_assert (result.is_whole);
  ck_assert_int_eq (best_time (result.found), best_time (all));
  /* Nothing that the search kept on its front is beaten by anything there is, and nothing there is
   * lies before it. */
  g_autoptr (GArray) front = plan_search_front (&result);
  for (guint i = 0; i < front->len; i++)
    ck_assert (!is_dominated (
        all, &g_array_index (result.found, PlanFound, g_array_index (front, guint, i)).score));
  guint on_front = 0;
  for (guint i = 0; i < all->len; i++)
    {
      const PlanFound *f = &g_array_index (all, PlanFound, i);
      gboolean is_there = is_dominated (all, &f->score);
      for (guint j = 0; j < result.found->len && !is_there; j++)
        is_there
            = memcmp (&g_array_index (result.found, PlanFound, j).score, &f->score, sizeof f->score)
              == 0;
      ck_assert_msg (is_there, "seed %d: point %u of the front was left out", _i, (guint)f->point);
      on_front += is_dominated (all, &f->score) ? 0 : 1;
    }
  ck_assert_uint_ge (on_front, front->len);
  case_clear (&c);
}
END_TEST

START_TEST (bounds_are_never_above_the_simulation)
{
  Case c;
  PlanScore found;
  case_init (&c, _i);
  const Plan plan = random_wide_plan ((guint)_i, c.model, c.cluster);
  const PlanStack *stack = plan_stack_of (&plan, c.cluster->kind, NULL);
  simulate (&c, &plan, &found);
  g_autofree char *text = plan_print (&plan);
  const guint64 memory = plan_bound_memory (c.model, c.cluster, &plan, stack);
  ck_assert_msg (memory <= found.memory_bytes, "seed %d: at least %lu, simulated %lu\n%s", _i,
                 (unsigned long)memory, (unsigned long)found.memory_bytes, text);
  ck_assert_msg (plan_bound_time_ns (c.model, c.cluster, &plan) <= found.time_ns, "seed %d:\n%s",
                 _i, text);
  case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-search");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 240);
  tcase_add_loop_test (tcase, the_search_equals_trying_everything, 0, 12);
  tcase_add_loop_test (tcase, bounds_are_never_above_the_simulation, 0, 400);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
