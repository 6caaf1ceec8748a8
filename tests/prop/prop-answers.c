/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of a query are those that trying every plan gives, also where setting an answer's
 * switches back makes it too near to another one. */
#include "config.h"

#include "advise/predict.h"
#include "advise/query.h"
#include "advise/workspaces.h"
#include "sim/sim.h"
#include "tests/case.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

typedef struct
{
  AdviseInput input;
  AdviseQuestion question;
  AdviseChoice choice;
} Asked;

/* A small question: some models of one node, whose switches differ by little. */
static void
asked_init (Asked *self, int seed)
{
  static char *only[][4]
      = { { (char *)"mbs=1,2", (char *)"recompute=none", (char *)"tp=1,2", NULL },
          { (char *)"mbs=1", (char *)"recompute=none,full", (char *)"tp=1", NULL },
          { (char *)"mbs=2", (char *)"cp=1", (char *)"tp=1", NULL } };
  static const char *const stacks[] = { "megatron-fsdp", "megatron", "fsdp2" };
  static const double apart[] = { 0.021, 0.03, 0.05, 0.5 };
  static char p_fits[] = "0.5";
  g_autofree char *model
      = g_strdup_printf ("layers=%d,hidden=%d,ffn=%d,heads=8,vocab=%d,max_seq=1024", 2 + seed % 5,
                         256 << seed % 3, 512 << seed % 3, 1024 * (1 + seed % 7));
  g_autofree char *words
      = g_strdup_printf ("stack=%s gbs=32 seq=1024 pp=1", stacks[seed % G_N_ELEMENTS (stacks)]);
  g_autoptr (GError) error = NULL;
  *self = (Asked){
    .input = { .model = plan_model_new (model, NULL),
               .cluster = plan_cluster_new (seed % 2 ? "dgx-h100:1" : "dgx-a100:2", NULL),
               .plan = test_plan (words) },
    .question = { .only = only[seed / 3 % G_N_ELEMENTS (only)],
                  .p_fits = p_fits,
                  .apart = apart[seed / 2 % G_N_ELEMENTS (apart)],
                  .front = 30 },
  };
  ck_assert (self->input.model && self->input.cluster);
  ck_assert_msg (advise_choice_init (&self->choice, &self->question, &self->input, &error), "%s",
                 error ? error->message : "");
  self->choice.pinned[PLAN_PP] = TRUE;
}

static void
asked_clear (Asked *self)
{
  plan_model_free (self->input.model);
  plan_cluster_free (self->input.cluster);
}

/* Simulates a plan op by op. FALSE: it is illegal. */
static gboolean
try (const Asked *asked, const Plan *plan, PlanFound *out)
{
  const AdviseInput *input = &asked->input;
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCase) of
      = plan_case_new (input->model, input->cluster, plan, advise_workspaces (input), NULL);
  if (!of)
    return FALSE;
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  g_autoptr (SimCost) cost = advise_cost_of (input, of, schedule, &error);
  g_autoptr (PlanTrace) trace = cost ? sim_run (schedule, cost, of->stack, &error) : NULL;
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  out->plan = of->plan;
  out->score = (PlanScore){ trace->step_ns, trace->memory.device, trace->memory.device };
  return TRUE;
}

static int
compare (gconstpointer a, gconstpointer b)
{
  const PlanFound *x = a, *y = b;
  if (x->score.time_ns != y->score.time_ns)
    return x->score.time_ns < y->score.time_ns ? -1 : 1;
  if (x->score.memory_bytes != y->score.memory_bytes)
    return x->score.memory_bytes < y->score.memory_bytes ? -1 : 1;
  return x->point < y->point ? -1 : x->point > y->point;
}

/* All plans that fit, by time; in place of those that do not, their slim plans. */
static GArray *
try_all (const Asked *asked, const PlanSpace *space)
{
  const guint64 most = asked->choice.memory_bytes;
  GArray *all = g_array_new (FALSE, FALSE, sizeof (PlanFound));
  for (guint64 point = 0; point < plan_space_size (space); point++)
    {
      PlanFound found = { .point = point };
      Plan plan, slim;
      if (!plan_space_at (space, point, &plan) || !try (asked, &plan, &found)
          || !plan_space_admits (space, &found.plan, NULL))
        continue;
      if (found.score.memory_bytes > most && plan_space_slim (space, &plan, &slim))
        ck_assert (try (asked, &slim, &found));
      if (found.score.memory_bytes <= most)
        g_array_append_val (all, found);
    }
  g_array_sort (all, compare);
  return all;
}

#define SAVING 2e-4 /* a switch that saves less is set back */

/* Sets switches back, the last field first, where that costs next to nothing. */
static void
make_plain (const Asked *asked, PlanFound *found)
{
  for (PlanField f = PLAN_N_FIELDS; f-- > 0;)
    {
      const char *const *names = plan_field_names (f);
      PlanFound plain = *found;
      if (asked->choice.pinned[f] || !names || strcmp (names[0], "off") != 0
          || found->plan.value[f] == asked->input.plan.value[f])
        continue;
      plain.plan.value[f] = asked->input.plan.value[f];
      const gint64 most_ns = found->score.time_ns + (gint64)(SAVING * (double)found->score.time_ns);
      if (try (asked, &plain.plan, &plain)
          && memcmp (&plain.plan, &found->plan, sizeof plain.plan) != 0
          && plain.score.time_ns <= most_ns
          && plain.score.memory_bytes <= found->score.memory_bytes)
        *found = plain;
    }
}

static gboolean
is_near (const Asked *asked, const GArray *answers, const PlanFound *found)
{
  for (guint i = 0; i < answers->len; i++)
    {
      const gint64 a = found->score.time_ns,
                   b = g_array_index (answers, PlanFound, i).score.time_ns;
      if ((double)ABS (a - b) <= asked->question.apart / 100 * (double)MIN (a, b))
        return TRUE;
    }
  return FALSE;
}

/* Goes through all plans by their time. Of plans with one time and memory the first is taken, and
 * set back, unless it is too near to an answer before it or becomes so. */
static GArray *
expected_answers (const Asked *asked, const GArray *all, guint top, guint *out_n_dropped)
{
  GArray *answers = g_array_new (FALSE, FALSE, sizeof (PlanFound));
  const PlanFound *last = NULL;
  for (guint i = 0; i < all->len && answers->len < top; i++)
    {
      const PlanFound *one = &g_array_index (all, PlanFound, i);
      PlanFound found = *one;
      const gboolean is_again = last && memcmp (&last->score, &one->score, sizeof one->score) == 0;
      if (is_again || is_near (asked, answers, one))
        continue;
      last = one;
      make_plain (asked, &found);
      if (is_near (asked, answers, &found))
        ++*out_n_dropped;
      else
        g_array_append_val (answers, found);
    }
  g_array_sort (answers, compare);
  return answers;
}

#define SOME_DROPPED 27 /* a seed where setting back makes answers too near to others */

START_TEST (answers_are_those_of_all_plans)
{
  Asked asked;
  g_auto (AdviseQuery) query = { 0 };
  g_autoptr (GError) error = NULL;
  const guint top = 2 + (guint)_i % 7 * 5;
  guint n_dropped = 0;
  asked_init (&asked, _i);
  g_autoptr (PlanSpace) space = advise_choice_space (&asked.choice, &error);
  ck_assert_msg (space != NULL, "%s", error ? error->message : "");
  g_autoptr (GArray) all = try_all (&asked, space);
  g_autoptr (GArray) expected = expected_answers (&asked, all, top, &n_dropped);
  ck_assert_uint_gt (expected->len, 0);
  ck_assert (_i != SOME_DROPPED || n_dropped > 0);
  ck_assert_msg (advise_query_ask (&asked.choice, top, &query, &error), "%s",
                 error ? error->message : "");
  ck_assert_uint_eq (query.answers->len, expected->len);
  for (guint i = 0; i < expected->len; i++)
    {
      const PlanFound *e = &g_array_index (expected, PlanFound, i),
                      *f = g_array_index (query.answers, AdviseAnswer, i).found;
      ck_assert_int_eq (f->score.time_ns, e->score.time_ns);
      ck_assert_uint_eq (f->score.memory_bytes, e->score.memory_bytes);
      ck_assert_msg (memcmp (&f->plan, &e->plan, sizeof e->plan) == 0, "seed %d: answer %u", _i, i);
    }
  asked_clear (&asked);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-answers");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 600);
  test_add_share (tcase, answers_are_those_of_all_plans, 72);
  if (SOME_DROPPED % test_share () != 0)
    tcase_add_loop_test (tcase, answers_are_those_of_all_plans, SOME_DROPPED, SOME_DROPPED + 1);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
