/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/test-exec-split-case.h"

#include "exec/probe/probe.h"
#include "sim/cost/cost.h"
#include "sim/sim.h"
#include "tests/prop/shards.h"
#include "tests/reference/evaluate.h"

#include <check.h>
#include <string.h>

#define MOST_RANKS 8

void
case_init_on (Case *c, guint ranks, const char *model, const char *words, gint64 steps)
{
  g_autoptr (GError) error = NULL;
  c->model = plan_model_new (model, &error);
  ck_assert_msg (c->model != NULL, "%s", error ? error->message : "");
  const char *balance = c->model->experts > 0 ? "moe_aux_loss=0.02 " : "";
  g_autofree char *all
      = g_strconcat ("stack=native compute=fp32 gbs=8 seq=16 mbs=2 ", balance, words, NULL);
  c->cluster = exec_probe_processors (ranks, &error);
  c->of = test_case (c->model, c->cluster, all);
  c->job = (ExecJob){ .of = c->of,
                      .kernels = &exec_kernels_cpu,
                      .seed = 3,
                      .steps = steps,
                      .constants = { .norm_eps = 1e-5,
                                     .rope = c->model->rope,
                                     .router_score = c->model->router_score,
                                     .pre_softmax = c->model->pre_softmax,
                                     .router_scale = c->model->router_scale,
                                     .bias_rate = 0.05,
                                     .lr = 3e-3,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .adam_eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .max_norm = 1 } };
}

void
case_clear (Case *c)
{
  plan_case_free (c->of);
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}

/* What a rank reports of its experts' rows: the fullest expert has no fewer than the mean, unless
 * some were dropped; and some were where a capacity is less than the mean. */
static void
check_rows (const PlanCase *of, const ExecResult *result)
{
  const gint64 *value = of->plan.value, capacity = value[PLAN_MOE_CAPACITY];
  if (of->model->experts > 0 && value[PLAN_EP] > 1)
    ck_assert ((result->imbalance >= 1 || capacity > 0)
               && result->imbalance <= (double)value[PLAN_EP]);
  ck_assert (result->dropped < 1);
  ck_assert_int_eq (result->dropped > 0, capacity > 0 && capacity < 1000000);
}

/* Compares the bytes that a rank took with those predicted, at the peak and between steps. */
static void
check_bytes (const Case *c, guint rank, const ExecResult *result, const char *words)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = test_lower (c->of, rank);
  const SimCostInput input = sim_cost_input (c->of, schedule);
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  g_autoptr (PlanTrace) trace = sim_run (schedule, cost, c->of->stack, &error);
  ck_assert_msg (trace != NULL, "%s: %s", words, error ? error->message : "");
  const PlanMemory *predicted = &trace->memory, *taken = &result->trace->memory;
  ck_assert_uint_eq (predicted->max_allocated, taken->max_allocated);
  ck_assert_mem_eq (predicted->by_category, taken->by_category, sizeof predicted->by_category);
  ck_assert_mem_eq (predicted->resting, taken->resting, sizeof predicted->resting);
}

void
compare_split (const char *model, guint ranks, const char *words)
{
  g_auto (Case) c = { 0 };
  g_auto (ExecResult) expected = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *eval
      = g_strconcat ("stack=native compute=fp32 gbs=8 seq=16 mbs=2 task=eval ", words, NULL);
  ExecResult results[MOST_RANKS] = { { 0 } };
  case_init_on (&c, ranks, model, words, 3);
  g_autoptr (PlanCase) eval_of = test_case (c.model, c.cluster, eval);
  c.job.eval_of = eval_of;
  c.job.eval_every = 1;
  ck_assert_msg (exec_run_threads (&c.job, ranks, TRUE, NULL, NULL, results, &error), "%s: %s",
                 words, error ? error->message : "");
  ck_assert_msg (exec_evaluate (&c.job, ranks, &expected, &error), "%s",
                 error ? error->message : "");
  for (guint r = 0; r < ranks; r++)
    {
      ck_assert_mem_eq (results[r].losses, expected.losses, 3 * sizeof (double));
      ck_assert_mem_eq (results[r].grad_norms, expected.grad_norms, 3 * sizeof (double));
      ck_assert_mem_eq (results[r].eval_losses, expected.eval_losses, 3 * sizeof (double));
      ck_assert_msg (shards_equal (&c.job, ranks, r, &results[r], &expected), "%s: rank %u", words,
                     r);
      check_rows (c.of, &results[r]);
      check_bytes (&c, r, &results[r], words);
      exec_result_clear (&results[r]);
    }
}
