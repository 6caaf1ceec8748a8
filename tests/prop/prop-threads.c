/* SPDX-License-Identifier: Apache-2.0 */
/* A run is equal to the bit for any number of threads of a rank. Sizes are large enough that each
 * kernel is split among threads. */
#include "config.h"

#include "exec/probe/probe.h"
#include "exec/walk/exec.h"
#include "exec/walk/runnable.h"
#include "planner/lower/lower.h"
#include "tests/case.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 2

/* Case i has models[i % 3] and plans[i % 11]: as 3 and 11 have no common factor, 33 cases are all
 * pairs. */
static const char *const models[] = {
  "family=llama,layers=2,hidden=128,ffn=384,heads=4,kv_heads=2,vocab=640,max_seq=256",
  "family=gpt2,layers=1,hidden=128,ffn=384,heads=2,kv_heads=2,vocab=640,max_seq=256",
  "family=qwen3,layers=1,hidden=128,ffn=384,heads=4,kv_heads=1,head_dim=64,vocab=640,max_seq=256",
};

static const char *const plans[] = {
  "compute=fp32",
  "compute=bf16 loss_chunks=2",
  "compute=fp16",
  "compute=bf16 optimizer=sgd doc_tokens=50",
  "compute=bf16 precision_aware=on exp_avg=fp8 exp_avg_sq=fp8",
  "compute=fp8-delayed param_gather=fp8",
  "compute=fp8-tensorwise",
  "compute=mxfp8 param_gather=mxfp8",
  "compute=nvfp4",
  "compute=fp8-blockwise",
  "compute=bf16 recompute=full grad_accum_fusion=on",
};

static Plan
plan_of (guint i)
{
  Plan plan = test_plan (plans[i % G_N_ELEMENTS (plans)]);
  plan.value[PLAN_STACK] = PLAN_STACK_NATIVE;
  plan.value[PLAN_MBS] = i % 2 == 0 ? 3 : 2;
  plan.value[PLAN_SEQ] = i % 2 == 0 ? 128 : 256;
  return plan;
}

/* Trains case `i`; writes a result for each rank to `out`. */
static void
run (guint i, guint ranks, guint threads, ExecResult *out)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (models[i % G_N_ELEMENTS (models)], &error);
  g_autoptr (PlanCluster) cluster = exec_probe_processors (ranks, &error);
  ck_assert (model && cluster);
  exec_probe_set_threads (cluster, threads);
  Plan plan = plan_of (i);
  plan.value[PLAN_GBS] = plan.value[PLAN_MBS] * ranks;
  g_autoptr (PlanCase) of = plan_case_new (model, cluster, &plan, NULL, &error);
  ck_assert_msg (of != NULL, "%s: %s", plans[i % G_N_ELEMENTS (plans)],
                 error ? error->message : "");
  const ExecJob job = { .of = of,
                        .kernels = &exec_kernels_cpu,
                        .seed = i,
                        .steps = STEPS,
                        .constants = { .norm_eps = 1e-5,
                                       .rope = model->rope,
                                       .lr = 1e-2,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .adam_eps = 1e-8,
                                       .weight_decay = 0.1,
                                       .max_norm = 1.0 } };
  ck_assert_msg (exec_run_threads (&job, ranks, TRUE, NULL, NULL, out, &error), "%s: %s",
                 plans[i % G_N_ELEMENTS (plans)], error ? error->message : "");
}

static gboolean
are_equal (const ExecResult *a, const ExecResult *b)
{
  return memcmp (a->losses, b->losses, STEPS * sizeof *a->losses) == 0
         && memcmp (a->grad_norms, b->grad_norms, STEPS * sizeof *a->grad_norms) == 0
         && a->main_params->len == b->main_params->len
         && memcmp (a->main_params->data, b->main_params->data, a->main_params->len) == 0;
}

START_TEST (no_number_of_threads_changes_a_bit)
{
  const guint i = (guint)_i, ranks = i % 4 == 1 ? 2 : 1;
  static const guint threads[] = { 2, 3 };
  ExecResult one[2] = { { 0 } };
  run (i, ranks, 1, one);
  for (guint t = 0; t < G_N_ELEMENTS (threads); t++)
    {
      ExecResult several[2] = { { 0 } };
      run (i, ranks, threads[t], several);
      for (guint r = 0; r < ranks; r++)
        {
          ck_assert_msg (are_equal (&one[r], &several[r]), "%s, %s: %u threads differ from one",
                         models[i % G_N_ELEMENTS (models)], plans[i % G_N_ELEMENTS (plans)],
                         threads[t]);
          exec_result_clear (&several[r]);
        }
    }
  for (guint r = 0; r < ranks; r++)
    exec_result_clear (&one[r]);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("threads");
  TCase *tcase = tcase_create ("threads");
  SRunner *runner;

  tcase_set_timeout (tcase, 0);
  test_add_share (tcase, no_number_of_threads_changes_a_bit,
                  G_N_ELEMENTS (models) * G_N_ELEMENTS (plans));
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
