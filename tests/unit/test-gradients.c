/* SPDX-License-Identifier: Apache-2.0 */
/* Every gradient of whole models against differences of their loss, in double precision: this file,
 * the evaluator and its kernels are compiled with double.h. */
#include "config.h"

#include "exec/probe/probe.h"
#include "tests/case.h"
#include "tests/reference/evaluate-private.h"
#include "tests/reference/evaluate.h"

#include <check.h>
#include <stdio.h>

/* Half a difference; its error is of the order of the square. */
#define STEP 2e-5
#define BOUND 1e-6 /* of the largest gradient of the model */

/* The weights that the evaluator begins with, in the order in which it asks for them. */
static double *weights;
static guint64 n_weights, asked;

gboolean
exec_evaluator_state (const ExecJob *job, ExecState state, PlanTensorRole role, gint64 layer,
                      guint64 first, guint64 count, double *out, GError **error)
{
  g_assert (first == 0);
  if (state != EXEC_STATE_MAIN)
    {
      memset (out, 0, count * sizeof *out);
      return TRUE;
    }
  g_assert (asked + count <= n_weights);
  memcpy (out, weights + asked, count * sizeof *out);
  asked += count;
  return TRUE;
}

gboolean
exec_evaluator_sequence (const ExecJob *job, gboolean is_eval, gint64 step, gint64 of_batch,
                         gint32 *out_tokens, gint32 *out_targets, gint32 *out_places,
                         GError **error)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)of_batch + 1);
  for (gint64 i = 0; i < job->of->plan.value[PLAN_SEQ]; i++)
    {
      out_tokens[i] = g_rand_int_range (rand, 0, (gint32)job->of->model->vocab);
      out_targets[i] = g_rand_int_range (rand, -1, (gint32)job->of->model->vocab);
      if (out_places)
        out_places[i] = (gint32)(i % job->of->plan.value[PLAN_DOC_TOKENS]);
    }
  return TRUE;
}

double
exec_evaluator_rate (const ExecJob *job, gint64 step)
{
  return job->constants.lr;
}

/* One step of plain gradient descent at a rate of 1 from `weights`: its loss, and where it leads.
 */
static void
descend (const ExecJob *job, ExecResult *out_result)
{
  g_autoptr (GError) error = NULL;
  asked = 0;
  ck_assert_msg (exec_evaluate (job, 2, out_result, &error), "%s", error ? error->message : "");
  ck_assert_uint_eq (asked, n_weights);
}

static double
loss_at (const ExecJob *job, guint64 i, double value)
{
  g_auto (ExecResult) result = { 0 };
  const double kept = weights[i];
  weights[i] = value;
  descend (job, &result);
  weights[i] = kept;
  return result.losses[0];
}

static void
check_gradients (const ExecJob *job)
{
  g_auto (ExecResult) result = { 0 };
  double largest = 0;
  descend (job, &result);
  ck_assert_uint_eq (result.main_params->len, n_weights * sizeof (double));
  const double *after = (const double *)(gpointer)result.main_params->data;
  for (guint64 i = 0; i < n_weights; i++)
    largest = MAX (largest, fabs (weights[i] - after[i]));
  ck_assert (largest > 1e-2);
  for (guint64 i = 0; i < n_weights; i++)
    {
      const double slope
          = (loss_at (job, i, weights[i] + STEP) - loss_at (job, i, weights[i] - STEP))
            / (2 * STEP);
      const double gradient = weights[i] - after[i];
      ck_assert_msg (fabs (gradient - slope) <= BOUND * largest,
                     "%s: gradient %d of %d is %.12g, the loss rises by %.12g",
                     job->of->model->name, (int)i, (int)n_weights, gradient, slope);
    }
}

static const char *const kinds[] = {
  "family=llama,tied=off",
  "family=llama,tied=on",
  "family=gpt2,tied=on",
  "family=gpt2,tied=off,activation=gelu",
  "family=qwen2",
  "family=qwen3",
  "family=llama,norm=layernorm,gated=off,activation=relu2,mlp_bias=on,positions=none",
  "family=llama,activation=quick_gelu,norm=layernorm,norm_bias=on,proj_bias=on,tied=on",
  "family=gemma2,window=2,attn_scalar=5,attn_softcap=0.5,logit_softcap=0.7",
  "family=gpt_neox,rope_fraction=0.5",
  "family=llama,parallel=on,post_norms=on,norm_1p=on",
  "family=mpt,attn_softcap=0.5,window=3",
  "family=gemma3_text,window=2,full_every=2,attn_scalar=5",
  "family=falcon",
  "family=bloom",
  "family=phi3,rope_scaling=longrope,rope_original=4,rope_factor=3,rope_short=1:1.5,rope_long=2:3",
  "family=gemma,norm=layernorm,norm_bias=on,qk_norm=on,tied=off",
  "family=mixtral,experts=3,expert_ffn=4",
  "family=qwen3_moe,experts=4,topk=2,expert_ffn=3,moe_every=2",
  "family=mixtral,experts=4,topk=1,expert_ffn=3,pre_softmax=on,router_scale=1.5,dense_layers=1",
  "family=mixtral,experts=3,expert_ffn=2,shared_ffn=3,router_score=sigmoid,router_scale=2.5",
  "family=mixtral,experts=3,topk=1,expert_ffn=3,router_score=sigmoid,gated=off,activation=gelu",
  "family=mixtral,experts=4,topk=3,expert_ffn=3,router_score=sqrtsoftplus"
};

START_TEST (gradients_are_differences_of_the_loss)
{
  static const char *const pieces[] = { "1", "2", "5" };
  g_autoptr (GError) error = NULL;
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autofree char *spec = g_strdup_printf (
      "%s,layers=2,hidden=6,ffn=5,heads=4,kv_heads=2,head_dim=4,vocab=7,max_seq=5", kinds[_i]);
  g_autoptr (PlanModel) model = plan_model_new (spec, &error);
  g_autoptr (PlanCluster) cluster = exec_probe_processors (2, &error);
  g_autofree char *words = g_strconcat (
      "stack=native compute=fp32 optimizer=sgd mbs=2 gbs=8 loss_chunks=",
      pieces[_i % (int)G_N_ELEMENTS (pieces)], _i % 2 == 1 ? " doc_tokens=2" : "", NULL);
  ck_assert (model && cluster);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  const ExecJob job = { .of = of,
                        .kernels = &exec_kernels_cpu,
                        .steps = 1,
                        .constants = { .norm_eps = 1e-5,
                                       .rope = { .theta = 10000 },
                                       .router_score = model->router_score,
                                       .pre_softmax = model->pre_softmax,
                                       .router_scale = model->router_scale,
                                       .lr = 1 } };
  n_weights = plan_model_parameters (model);
  weights = g_new (double, n_weights);
  for (guint64 i = 0; i < n_weights; i++)
    weights[i] = g_rand_double_range (rand, -1, 1);
  check_gradients (&job);
  g_clear_pointer (&weights, g_free);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("test-gradients");
  TCase *tcase = tcase_create ("double");
  tcase_add_loop_test (tcase, gradients_are_differences_of_the_loss, 0, G_N_ELEMENTS (kinds));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
