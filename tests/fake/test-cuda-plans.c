/* SPDX-License-Identifier: Apache-2.0 */
/* What a query may answer for our own runtime that runtime executes: the checks that `run` makes
 * before it begins take every plan of the space that has neither broken rules nor a hazard, on GPUs
 * of three generations and on processors; and every answer of a query within some memory. */
#include "config.h"

#include "advise/query.h"
#include "exec/probe/probe.h"
#include "exec/walk/runnable.h"
#include "tests/case.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>

static const char *const models[] = {
  "family=gpt_oss,layers=4,hidden=128,heads=4,kv_heads=2,head_dim=32,ffn=64,expert_ffn=64,experts="
  "8,"
  "topk=2,window=64",
  "family=gemma2,layers=4,hidden=96,heads=4,kv_heads=2,head_dim=32,ffn=160,window=64",
  "family=deepseek_v3,layers=4,hidden=128,heads=4,ffn=256,dense_layers=1,q_lora=64,kv_lora=64,"
  "nope_dim=32,rope_dim=32,v_dim=32,experts=8,topk=2,expert_ffn=128,shared_ffn=128,"
  "router_score=sigmoid,router_groups=2,router_group_topk=1,router_bias=on,mtp=0",
  "family=qwen3_moe,layers=6,hidden=160,heads=8,kv_heads=4,head_dim=32,ffn=320,experts=6,topk=2,"
  "expert_ffn=48,shared_ffn=64,shared_gate=on",
  "family=mixtral,layers=4,hidden=256,heads=4,kv_heads=4,head_dim=64,ffn=256,experts=4,topk=2",
  "family=llama,layers=6,hidden=128,heads=4,kv_heads=4,head_dim=32,ffn=256",
  "family=gpt2,layers=4,hidden=80,heads=4,head_dim=20,ffn=320,tied=on",
};

static const struct
{
  const char *name; /* NULL: processors */
  guint devices;
  int major;
} machines[]
    = { { "dgx-h100:1", 8, 9 }, { "b200:4", 4, 10 }, { "dgx-a100:1", 8, 8 }, { NULL, 4, 0 } };

#define N_MACHINES G_N_ELEMENTS (machines)
#define FIELDS "stack=native gbs=32 seq=256 mbs=1"

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  Plan plan;
  const ExecKernels *kernels;
} Place;

static void
place_init (Place *self, guint model, guint machine)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *words = g_strconcat (models[model], ",vocab=256,max_seq=256", NULL);
  self->model = plan_model_new (words, &error);
  ck_assert_msg (self->model != NULL, "%s", error ? error->message : "");
  self->cluster = machines[machine].name
                      ? plan_cluster_new (machines[machine].name, &error)
                      : exec_probe_processors (machines[machine].devices, &error);
  ck_assert_msg (self->cluster != NULL, "%s", error ? error->message : "");
  self->plan = test_plan (self->model->experts > 0 ? FIELDS " moe_imbalance=2" : FIELDS);
  self->kernels = machines[machine].name ? &exec_kernels_cuda : &exec_kernels_cpu;
  if (machines[machine].name)
    fake_cuda_set_machine (MIN (machines[machine].devices, 8), (guint64)1 << 30,
                           machines[machine].major, 0);
}

static void
place_clear (Place *self)
{
  plan_model_free (self->model);
  plan_cluster_free (self->cluster);
}

static void
assert_runs (const Place *self, const PlanCase *of)
{
  const ExecJob job = { .of = of, .kernels = self->kernels };
  const guint stages = (guint)of->plan.value[PLAN_PP];
  for (guint stage = 0; stage < stages; stage++)
    {
      g_autoptr (GError) error = NULL;
      const guint rank = stage * (guint)plan_cluster_devices (self->cluster) / stages;
      g_autoptr (PlanSchedule) schedule = test_lower (of, rank);
      g_autofree char *text = plan_print (&of->plan);
      ck_assert_msg (exec_runnable_check (&job, of, schedule, &error), "%s: %s",
                     error ? error->message : "", text);
    }
}

#define POINTS 300 /* tried of each space: most break rules */

START_TEST (plans_of_the_space_run)
{
  const gboolean pinned[PLAN_N_FIELDS] = { 0 };
  const guint allow = ((1u << PLAN_N_ALLOW) - 1) & ~(1u << PLAN_ALLOW_HAZARDS);
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Place place;
  place_init (&place, (guint)_i / N_MACHINES, (guint)_i % N_MACHINES);
  g_autoptr (PlanSpace) space
      = plan_space_new (place.model, place.cluster, &place.plan, pinned, allow);
  const double size = (double)plan_space_size (space);
  guint n_run = 0;
  for (guint i = 0; i < POINTS; i++)
    {
      const guint64 point = (guint64)(g_rand_double (rand) * size);
      Plan plan;
      if (!plan_space_at (space, point, &plan))
        continue;
      g_autoptr (PlanCase) of = plan_case_new (place.model, place.cluster, &plan, NULL, NULL);
      if (!of || !plan_space_admits (space, &of->plan, of))
        continue;
      assert_runs (&place, of);
      n_run++;
    }
  ck_assert_uint_gt (n_run, 0);
  place_clear (&place);
}
END_TEST

/* The fastest plans that fit into a memory, which is from ample to scarce. */
START_TEST (answers_run)
{
  static char *only[] = { (char *)"mbs=1", (char *)"comm_unit=auto", (char *)"cp=1,2", NULL };
  static char *const memories[] = { (char *)"16GiB", (char *)"1200MiB", (char *)"1100MiB" };
  static char p_fits[] = "0.5", allow[] = "mixed,lowbit,moments";
  g_autoptr (GError) error = NULL;
  g_auto (AdviseQuery) query = { 0 };
  AdviseChoice choice;
  Place place;
  place_init (&place, (guint)_i / 6, (guint)_i / 3 % 2);
  const AdviseInput input = { .model = place.model, .cluster = place.cluster, .plan = place.plan };
  const AdviseQuestion question = { .only = only,
                                    .memory = memories[_i % 3],
                                    .p_fits = p_fits,
                                    .allow = allow,
                                    .apart = 0.01,
                                    .front = 30 };
  ck_assert_msg (advise_choice_init (&choice, &question, &input, &error), "%s",
                 error ? error->message : "");
  ck_assert_msg (advise_query_ask (&choice, 6, &query, &error), "%s", error ? error->message : "");
  for (guint i = 0; i < query.answers->len; i++)
    {
      const AdviseAnswer *answer = &g_array_index (query.answers, AdviseAnswer, i);
      g_autoptr (PlanCase) of = test_case_of (place.model, place.cluster, &answer->found->plan);
      assert_runs (&place, of);
    }
  ck_assert (_i % 3 > 0 || query.answers->len > 0);
  place_clear (&place);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-plans");
  TCase *tcase = tcase_create ("plans");
  tcase_set_timeout (tcase, 600);
  test_add_share (tcase, plans_of_the_space_run, G_N_ELEMENTS (models) * N_MACHINES);
  test_add_share (tcase, answers_run, 6 * 4);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
