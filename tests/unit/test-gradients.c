/* SPDX-License-Identifier: Apache-2.0 */
/* Every gradient of whole models against differences of their loss, in double precision: this file,
 * the evaluator and its kernels are compiled with double.h. */
#include "config.h"

#include "exec/probe/probe.h"
#include "planner/layout/buckets.h"
#include "planner/layout/slice.h"
#include "tests/case.h"
#include "tests/reference/evaluate-private.h"
#include "tests/reference/evaluate.h"
#include "tests/share.h"

#include <check.h>
#include <stdio.h>

/* Each weight is moved by this much both ways; the error of the slope is of the order of its
 * square. */
#define STEP 2e-5
#define BOUND 1e-6 /* of the largest gradient of the model */

/* The weights that the evaluator begins with, in the order in which it asks for them. Each
 * tensor-parallel rank asks for all of them; the vocabulary may be padded, with rows of zeros. */
static double *weights;
static gboolean *begins; /* whether a tensor begins with that weight */
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
  const PlanTensor tensor = plan_model_tensor (job->of->model, role, job->of->model->vocab);
  if (tensor.kind == PLAN_TENSOR_KIND_STATE) /* has no gradient */
    {
      for (guint64 i = 0; i < count; i++)
        out[i] = 0.3 * sin ((double)i + (double)layer);
      return TRUE;
    }
  const guint64 exist = MIN (count, plan_model_numel (&tensor));
  g_assert (asked % n_weights + exist <= n_weights);
  begins[asked % n_weights] = TRUE;
  memset (out, 0, count * sizeof *out);
  memcpy (out, weights + asked % n_weights, exist * sizeof *out);
  asked += exist;
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

/* One step of plain gradient descent at a rate of 1 from `weights`: gives its loss, and the weights
 * after it. */
static void
descend (const ExecJob *job, ExecResult *out_result)
{
  g_autoptr (GError) error = NULL;
  const guint64 tp = (guint64)job->of->plan.value[PLAN_TP],
                cp = (guint64)job->of->plan.value[PLAN_CP];
  asked = 0;
  ck_assert_msg (exec_evaluate (job, 2 * (guint)(tp * cp), out_result, &error), "%s",
                 error ? error->message : "");
  ck_assert_uint_eq (asked, tp * n_weights);
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

/* A share of all weights, at random, and the first of each tensor. */
static void
check_gradients (const ExecJob *job)
{
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (2);
  double largest = 0;
  descend (job, &result);
  ck_assert_uint_eq (result.main_params->len, n_weights * sizeof (double));
  const double *after = (const double *)(gpointer)result.main_params->data;
  for (guint64 i = 0; i < n_weights; i++)
    largest = MAX (largest, fabs (weights[i] - after[i]));
  ck_assert (largest > 1e-2);
  for (guint64 i = 0; i < n_weights; i++)
    {
      if (!begins[i] && g_rand_int_range (rand, 0, (gint32)test_share ()) > 0)
        continue;
      const double slope
          = (loss_at (job, i, weights[i] + STEP) - loss_at (job, i, weights[i] - STEP))
            / (2 * STEP);
      const double gradient = weights[i] - after[i];
      ck_assert_msg (fabs (gradient - slope) <= BOUND * largest,
                     "%s: gradient %d of %d is %.12g, the loss rises by %.12g",
                     job->of->model->name, (int)i, (int)n_weights, gradient, slope);
    }
}

/* Compares a split run with the whole one. Ranks of a tensor-parallel or context-parallel group,
 * each with its part of every parameter, must have the same losses and the same weights after the
 * step, but for rounding. */
typedef struct
{
  const PlanModel *model;
  const double *whole, *parts; /* after the step, of all parameters one after the other */
  PlanBucketRule rule;
  guint64 place, at_whole, at_part;
} Parts;

static void
check_part (Parts *self, const PlanTensor *tensor)
{
  const PlanTensor part = plan_buckets_part (self->model, tensor->role, &self->rule);
  const PlanSlice slice = plan_slice_of (self->model, tensor->role, &self->rule, self->place);
  const guint64 exist = plan_model_numel (tensor);
  for (guint64 i = 0, at; i < plan_model_numel (&part); i++)
    {
      plan_slice_run (&slice, i, &at);
      const double expected = at < exist ? self->whole[self->at_whole + at] : 0;
      ck_assert_msg (fabs (self->parts[self->at_part + i] - expected) < 1e-9,
                     "%s: element %d of %s on rank %d is %.12g, not %.12g", self->model->name,
                     (int)i, tensor->name, (int)self->place, self->parts[self->at_part + i],
                     expected);
    }
  self->at_whole += exist;
  self->at_part += plan_model_numel (&part);
}

static void
check_parts (const ExecJob *whole, const ExecJob *split)
{
  g_auto (ExecResult) expected = { 0 }, found = { 0 };
  const PlanModel *m = whole->of->model;
  PlanTensor tensors[PLAN_N_TENSORS];
  descend (whole, &expected);
  descend (split, &found);
  ck_assert_double_eq_tol (found.losses[0], expected.losses[0], 1e-10);
  ck_assert_double_eq_tol (found.grad_norms[0], expected.grad_norms[0], 1e-9);
  Parts self = { .model = m,
                 .whole = (const double *)(gpointer)expected.main_params->data,
                 .parts = (const double *)(gpointer)found.main_params->data,
                 .rule = split->of->layout.rule };
  for (self.place = 0; self.place < self.rule.tp; self.place++)
    {
      self.at_whole = 0;
      for (guint i = 0, n = plan_model_outer_tensors (m, m->vocab, tensors); i < n; i++)
        check_part (&self, &tensors[i]);
      for (gint64 layer = 0; layer < m->layers; layer++)
        for (guint i = 0, n = plan_model_layer_tensors (m, layer, tensors); i < n; i++)
          check_part (&self, &tensors[i]);
    }
  ck_assert_uint_eq (self.at_part * sizeof (double), found.main_params->len);
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
  "family=mixtral,experts=4,topk=3,expert_ffn=3,router_score=sqrtsoftplus",
  "family=llama,q_lora=3,kv_lora=5,nope_dim=1,rope_dim=4,v_dim=3,rope_scaling=yarn,rope_factor=4,"
  "rope_original=30,rope_mscale=0.7,rope_mscale_all=0.9",
  "family=mixtral,experts=3,expert_ffn=2,shared_ffn=3,dense_layers=1,kv_lora=3,nope_dim=2,"
  "rope_dim=2,v_dim=5,norm_1p=on",
  "family=mixtral,experts=6,topk=2,expert_ffn=2,router_bias=on,router_score=sigmoid,"
  "router_groups=3,router_group_topk=2,router_scale=2.5,shared_ffn=2",
  "family=mixtral,experts=4,topk=2,expert_ffn=2,router_bias=on",
  "family=qwen2_moe,experts=4,topk=2,expert_ffn=2,shared_ffn=3",
  "family=mixtral,experts=6,topk=2,expert_ffn=2,pre_softmax=on,router_groups=2,router_group_topk=1",
  "family=gpt_oss,experts=4,topk=2,expert_ffn=3,window=2,glu_limit=0.3",
  "family=gpt_oss,experts=3,topk=1,expert_ffn=2,activation=silu,glu_limit=0.7,glu_offset=0.5,"
  "shared_ffn=2,rope_scaling=yarn,rope_factor=4,rope_original=30,rope_fractional=on",
  "family=llama,sinks=on,activation=quick_gelu,glu_limit=0.2,glu_offset=2,qkv_bias=on",
  "family=smollm3,nope_every=2",
  "family=llama,qk_l2_norm=all,window=2,window_chunks=on",
  "family=llama4_text,experts=4,expert_ffn=3,shared_ffn=2,window=3,full_every=2,nope_every=2",
  "family=mixtral,experts=4,topk=2,expert_ffn=3,router_score=sigmoid,scores_on_input=on",
  "family=olmoe,experts=3,topk=2,expert_ffn=4",
};

static ExecJob
job_of (const PlanCase *of)
{
  return (ExecJob){ .of = of,
                    .kernels = &exec_kernels_cpu,
                    .steps = 1,
                    .constants = { .norm_eps = 1e-5,
                                   .rope = { .theta = 10000 },
                                   .router_score = of->model->router_score,
                                   .pre_softmax = of->model->pre_softmax,
                                   .router_scale = of->model->router_scale,
                                   .bias_rate = 0.05,
                                   .lr = 1 } };
}

static void
draw_weights (const PlanModel *model)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  n_weights = plan_model_parameters (model);
  if (model->router_bias)
    n_weights -= (guint64)(plan_model_moe_layers (model) * model->experts);
  weights = g_new (double, n_weights);
  begins = g_new0 (gboolean, n_weights);
  for (guint64 i = 0; i < n_weights; i++)
    weights[i] = g_rand_double_range (rand, -1, 1);
}

START_TEST (gradients_are_differences_of_the_loss)
{
  static const char *const pieces[] = { "1", "2", "5" };
  g_autoptr (GError) error = NULL;
  g_autofree char *spec = g_strdup_printf (
      "%s,layers=2,hidden=6,ffn=5,%s,vocab=7,max_seq=5", kinds[_i],
      strstr (kinds[_i], "kv_lora") ? "heads=2,kv_heads=2" : "heads=4,kv_heads=2,head_dim=4");
  g_autoptr (PlanModel) model = plan_model_new (spec, &error);
  g_autoptr (PlanCluster) cluster = exec_probe_processors (2, &error);
  g_autofree char *words = g_strconcat (
      "stack=native compute=fp32 optimizer=sgd mbs=2 gbs=8 loss_chunks=",
      pieces[_i % (int)G_N_ELEMENTS (pieces)], _i % 2 == 1 ? " doc_tokens=2" : "",
      _i % 4 < 2 ? " hidden_dropout=0.25" : "",
      _i % 3 == 0 || strstr (kinds[_i], "kv_lora") ? " attention_dropout=0.4" : "", NULL);
  ck_assert (model && cluster);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  const ExecJob job = job_of (of);
  draw_weights (model);
  check_gradients (&job);
  g_clear_pointer (&weights, g_free);
  g_clear_pointer (&begins, g_free);
}
END_TEST

/* Models for splits: without experts, and without a norm that both branches read. The vocabulary is
 * padded. */
static const char *const split_kinds[] = {
  "family=llama,tied=off",
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
  "family=bloom",
  "family=llama,q_lora=3,kv_lora=5,nope_dim=1,rope_dim=4,v_dim=3",
  "family=llama,kv_lora=3,nope_dim=2,rope_dim=2,v_dim=5,norm_1p=on,tied=on",
  "family=llama,qk_l2_norm=rope,nope_every=2,window=4,window_chunks=on",
  "family=llama,sinks=on,window=3,window_chunks=on",
};

START_TEST (parts_have_the_gradients_of_the_whole)
{
  static const struct
  {
    guint ranks;
    const char *words;
  } splits[] = { { 4, "tp=2 sp=off" },
                 { 4, "tp=2 sp=on" },
                 { 8, "tp=4 sp=off loss_chunks=2" },
                 { 8, "tp=4 sp=on doc_tokens=3" },
                 { 4, "cp=2 loss_chunks=2" },
                 { 8, "cp=4" },
                 { 8, "tp=2 cp=2 sp=on" } };
  g_autoptr (GError) error = NULL;
  const gboolean is_latent = strstr (split_kinds[_i], "kv_lora") != NULL;
  g_autofree char *spec
      = g_strdup_printf ("%s,layers=2,hidden=6,ffn=12,heads=8,%svocab=11,max_seq=8",
                         split_kinds[_i], is_latent ? "" : "kv_heads=4,head_dim=4,");
  g_autoptr (PlanModel) model = plan_model_new (spec, &error);
  ck_assert_msg (model != NULL, "%s", error ? error->message : "");
  draw_weights (model);
  for (guint i = 0; i < G_N_ELEMENTS (splits); i++)
    {
      if (is_latent && (strstr (splits[i].words, "sp=off") || strstr (splits[i].words, "cp=")))
        continue; /* rules refuse those */
      const char *common = i % 2 == 0 ? "stack=native compute=fp32 optimizer=sgd mbs=2 gbs=8 "
                                      : "stack=native compute=fp32 optimizer=sgd mbs=2 gbs=8 "
                                        "hidden_dropout=0.25 ";
      const char *more_dropout = i % 2 == 0 ? "" : "attention_dropout=0.4 ";
      const char *documents = strstr (splits[i].words, "doc_tokens");
      g_autofree char *words = g_strconcat (common, more_dropout, documents ? documents : "", NULL);
      g_autofree char *split = g_strconcat (common, more_dropout, splits[i].words, NULL);
      g_autoptr (PlanCluster) two = exec_probe_processors (2, &error);
      g_autoptr (PlanCluster) more = exec_probe_processors (splits[i].ranks, &error);
      g_autoptr (PlanCase) of = test_case (model, two, words);
      g_autoptr (PlanCase) of_parts = test_case (model, more, split);
      const ExecJob whole_job = job_of (of), split_job = job_of (of_parts);
      check_parts (&whole_job, &split_job);
    }
  g_clear_pointer (&weights, g_free);
  g_clear_pointer (&begins, g_free);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("test-gradients");
  TCase *tcase = tcase_create ("double");
  test_add_runs (tcase, gradients_are_differences_of_the_loss, G_N_ELEMENTS (kinds));
  test_add_runs (tcase, parts_have_the_gradients_of_the_whole, G_N_ELEMENTS (split_kinds));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
