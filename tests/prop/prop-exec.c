/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of random plans on threads: losses, norms and weights equal the evaluator's bit for bit,
 * also when resumed from a checkpoint, and bytes taken equal bytes predicted. */
#include "config.h"

#include "exec/probe/probe.h"
#include "exec/walk/runnable.h"
#include "planner/plan/pp-layout.h"
#include "planner/plan/stages.h"
#include "sim/sim.h"
#include "tests/case.h"
#include "tests/prop/random.h"
#include "tests/prop/shards.h"
#include "tests/reference/evaluate.h"
#include "tests/share.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 2
#define MAX_RANKS 8
#define SEEDS 150
#define STAGED 2000 /* seeds from there on have pipelines, where rules let them */
#define STAGED_SEEDS 40

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of, *eval_of;
  ExecJob job;
  guint ranks;
  ExecBlend *tokens, *eval_tokens;
} Case;

/* Whether a case's sizes are multiples of the blocks of all formats but fp8-blockwise, whose blocks
 * have 128 elements. */
static gboolean
is_aligned (guint seed)
{
  return seed < STAGED && (seed % 8 == 5 || seed % 8 == 7);
}

/* Whether a case's sizes are multiples of 128, too. */
static gboolean
is_square (guint seed)
{
  return seed % 16 == 13;
}

static guint
ranks_of (guint seed)
{
  return seed < STAGED ? (guint[]){ 1, 2, 3, 4, 8 }[seed % 5] : (guint[]){ 2, 4, 8 }[seed / 2 % 3];
}

/* Stages of a pipeline. */
static gint64
stages_of (guint seed)
{
  if (seed < STAGED)
    return 1;
  return ranks_of (seed) > 2 && seed % 3 == 0 ? 4 : 2;
}

/* Tensor-parallel ranks; 1 where sizes need not divide. */
static gint64
tp_of (guint seed)
{
  const guint ranks = ranks_of (seed);
  if (seed % 2 == 0 || is_aligned (seed) || ranks % 2 == 1)
    return 1;
  if (seed >= STAGED)
    return ranks / stages_of (seed) > 1 ? 2 : 1;
  return ranks > 2 && seed % 4 == 1 ? 4 : 2;
}

/* Models that are executed beside plain llama: each with properties that others do not have. */
static const char *const kinds[] = {
  "family=gpt2,tied=on",
  "family=gpt2,tied=off,activation=gelu",
  "family=qwen2",
  "family=qwen3",
  "family=llama,norm=layernorm,gated=off,activation=relu2,mlp_bias=on,positions=none",
  "family=llama,activation=quick_gelu,norm=layernorm,norm_bias=on,proj_bias=on,tied=on",
  "family=mistral,window=3",
  "family=gemma2,window=3,attn_scalar=5,attn_softcap=2,logit_softcap=1.5",
  "family=gemma3_text,window=5,full_every=3,attn_scalar=7,rope_scaling=linear,rope_factor=8",
  "family=falcon,qkv_bias=on",
  "family=bloom,tied=off",
  "family=bloom",
  "family=gpt_neox,rope_fraction=1",
  "family=llama,parallel=on,post_norms=on,norm_1p=on",
  "family=mpt,tied=off",
  "family=gemma,norm=layernorm,norm_bias=on,qk_norm=on,window=2,window_from=0,window_every=3",
  "family=llama,rope_theta=500,rope_scaling=llama3,rope_factor=8,rope_original=40",
  "family=qwen2,rope_scaling=yarn,rope_factor=4,rope_original=30,rope_fast=6",
  "family=llama,rope_scaling=dynamic,rope_factor=2,rope_original=5",
  "family=llama,q_lora=7,kv_lora=5,nope_dim=3,rope_dim=4,v_dim=6,rope_scaling=yarn,rope_factor=4,"
  "rope_original=30,rope_mscale=0.7,rope_mscale_all=0.9",
  "family=llama,kv_lora=6,nope_dim=4,rope_dim=2,v_dim=7,norm_1p=on,tied=on",
  "family=llama,sinks=on,window=3,window_every=2,activation=quick_gelu,glu_limit=0.004,"
  "glu_offset=1",
  "family=llama,qk_l2_norm=rope,nope_every=3,window=4,window_chunks=on,full_every=2",
  "family=smollm3,nope_every=2,sinks=on,window=3,window_chunks=on",
  "family=qwen3,qk_norm=full"
};

static PlanModel *
any_model (guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_autoptr (GError) error = NULL;
  if (seed % 2 == 0)
    return random_model (seed);
  if (is_aligned (seed))
    {
      PlanModel *aligned = plan_model_new (
          is_square (seed) ? "family=llama,layers=2,hidden=128,ffn=128,heads=4,kv_heads=2,"
                             "head_dim=32,vocab=90,max_seq=128"
          : seed % 4 == 1 ? "family=llama,layers=3,hidden=64,ffn=96,heads=4,kv_heads=2,head_dim=16,"
                            "vocab=90,max_seq=64"
                          : "family=qwen3,norm_1p=on,post_norms=on,layers=2,hidden=32,ffn=64,heads="
                            "2,kv_heads=2,head_dim=16,"
                            "vocab=50,max_seq=64",
          &error);
      g_assert_no_error (error);
      return aligned;
    }
  const char *kind = kinds[(seed / 8 * 2 + seed / 2 % 2) % G_N_ELEMENTS (kinds)];
  const gint32 tp = (gint32)tp_of (seed), kv_heads = tp * g_rand_int_range (rand, 1, 4);
  g_autofree char *heads = strstr (kind, "kv_lora")
                               ? g_strdup_printf ("heads=%d", kv_heads)
                               : g_strdup_printf ("heads=%d,kv_heads=%d,head_dim=%d",
                                                  kv_heads * g_rand_int_range (rand, 1, 3),
                                                  kv_heads, 2 * g_rand_int_range (rand, 1, 9));
  g_autofree char *spec = g_strdup_printf (
      "%s,layers=%d,hidden=%d,ffn=%d,%s,vocab=%d,max_seq=%d", kind, g_rand_int_range (rand, 1, 6),
      g_rand_int_range (rand, 2, 60), tp * g_rand_int_range (rand, 1, 90), heads,
      g_rand_int_range (rand, 2, 200), g_rand_int_range (rand, 4, 64));
  PlanModel *model = plan_model_new (spec, &error);
  if (!model)
    g_error ("seed %u: %s: %s", seed, spec, error->message);
  return model;
}

/* Fields that random_case leaves alone and that are executed in every value named here. */
static const struct
{
  PlanField field;
  gint64 other; /* than the default */
} wide_fields[] = { { PLAN_COMPUTE, PLAN_COMPUTE_FP16 },
                    { PLAN_COMPUTE, PLAN_COMPUTE_FP8_TENSORWISE },
                    { PLAN_COMPUTE, PLAN_COMPUTE_FP8_DELAYED },
                    { PLAN_COMPUTE, PLAN_COMPUTE_FP8_BLOCKWISE },
                    { PLAN_COMPUTE, PLAN_COMPUTE_MXFP8 },
                    { PLAN_COMPUTE, PLAN_COMPUTE_NVFP4 },
                    { PLAN_PARAM_GATHER, PLAN_PARAM_GATHER_FP8 },
                    { PLAN_PARAM_GATHER, PLAN_PARAM_GATHER_MXFP8 },
                    { PLAN_PARAM_GATHER, PLAN_PARAM_GATHER_NVFP4 },
                    { PLAN_KEEP_TRANSPOSE, PLAN_KEEP_TRANSPOSE_ON },
                    { PLAN_OUTER_STRATEGY, PLAN_OUTER_STRATEGY_OPTIM },
                    { PLAN_FINE_GRAINED, PLAN_FINE_GRAINED_ON },
                    { PLAN_DOUBLE_BUFFER, PLAN_DOUBLE_BUFFER_ON },
                    { PLAN_DOUBLE_BUFFER, PLAN_DOUBLE_BUFFER_MAX_POOL },
                    { PLAN_NCCL_UB, PLAN_NCCL_UB_ON },
                    { PLAN_AG_GROUP, PLAN_AG_GROUP_ON },
                    { PLAN_REDUCE_ALGO, PLAN_REDUCE_ALGO_A2A },
                    { PLAN_MAIN_PARAMS, PLAN_MAIN_PARAMS_BF16 },
                    { PLAN_MAIN_PARAMS, PLAN_MAIN_PARAMS_FP16 },
                    { PLAN_MAIN_PARAMS, PLAN_MAIN_PARAMS_AUTO },
                    { PLAN_MAIN_GRADS, PLAN_MAIN_GRADS_FP16 },
                    { PLAN_GRAD_COMM, PLAN_GRAD_COMM_FP16 },
                    { PLAN_PRECISION_AWARE, PLAN_PRECISION_AWARE_ON },
                    { PLAN_EXP_AVG, PLAN_EXP_AVG_BF16 },
                    { PLAN_EXP_AVG_SQ, PLAN_EXP_AVG_SQ_BF16 },
                    { PLAN_EXP_AVG, PLAN_EXP_AVG_FP16 },
                    { PLAN_EXP_AVG_SQ, PLAN_EXP_AVG_SQ_FP16 },
                    { PLAN_EXP_AVG, PLAN_EXP_AVG_FP8 },
                    { PLAN_EXP_AVG_SQ, PLAN_EXP_AVG_SQ_FP8 },
                    { PLAN_OPTIMIZER, PLAN_OPTIMIZER_SGD },
                    { PLAN_RECOMPUTE_MODULES, 1 << PLAN_RECOMPUTE_MODULES_CORE_ATTN },
                    { PLAN_RECOMPUTE_MODULES,
                      1 << PLAN_RECOMPUTE_MODULES_CORE_ATTN | 1 << PLAN_RECOMPUTE_MODULES_MLP },
                    { PLAN_PER_TOKEN_LOSS, PLAN_PER_TOKEN_LOSS_OFF },
                    { PLAN_GRAD_ACCUM_FUSION, PLAN_GRAD_ACCUM_FUSION_ON },
                    { PLAN_LOSS_CHUNKS, 2 },
                    { PLAN_LOSS_CHUNKS, 3 },
                    { PLAN_LOSS_CHUNKS, 4 },
                    { PLAN_NAN_CHECK, PLAN_NAN_CHECK_LOSS },
                    { PLAN_NAN_CHECK, PLAN_NAN_CHECK_PARAMS },
                    { PLAN_SYNC_EVERY_MICRO_BATCH, PLAN_SYNC_EVERY_MICRO_BATCH_ON },
                    { PLAN_DETERMINISTIC, PLAN_DETERMINISTIC_ON } };

/* Takes a plan, unless a rule refuses it, or the walk does by a rule that has a test of its own. */
static gboolean
take_plan (Case *c, const Plan *plan)
{
  g_autoptr (PlanCase) of = plan_case_new (c->model, c->cluster, plan, NULL, NULL);
  if (!of)
    return FALSE;
  const ExecJob job = { .of = of, .kernels = &exec_kernels_cpu };
  for (guint rank = 0; rank < c->ranks; rank += c->ranks / (guint)of->plan.value[PLAN_PP])
    {
      g_autoptr (PlanSchedule) schedule = test_lower (of, rank);
      if (!exec_runnable_check (&job, of, schedule, NULL))
        return FALSE;
    }
  plan_case_free (c->of);
  c->of = g_steal_pointer (&of);
  return TRUE;
}

/* Deals layers out by a layout, two to each virtual stage in front, where there are enough for
 * every one. */
static void
set_layout (Plan *plan, const PlanModel *model)
{
  const gint64 stages = plan->value[PLAN_PP];
  const gint64 n_virtual = plan->value[PLAN_STRATEGY] <= PLAN_STRATEGY_OPTIM ? 2 : 1;
  const gint64 n = stages * n_virtual;
  gint64 layers[16] = { 0 }, left = model->layers;
  if (n >= (gint64)G_N_ELEMENTS (layers) || left < n)
    return;
  for (gint64 i = 0; i < n; left -= layers[i++])
    layers[i] = i + 1 == n ? left : MIN (2, left - (n - 1 - i));
  plan_stages_clear (plan);
  plan->value[PLAN_PP] = stages;
  plan->value[PLAN_VPP] = n_virtual;
  plan->value[PLAN_PP_LAYOUT] = plan_pp_layout_number (layers, n, 0);
}

/* Makes a pipeline of any number of layers, of which the first stage has the remainder, and resets
 * what rules refuse beside stages. */
static void
set_stages (Plan *plan, const PlanModel *model, gint64 stages, gint64 ranks)
{
  const gint64 each = MAX (model->layers / stages, 1);
  plan->value[PLAN_PP] = stages;
  plan->value[PLAN_DP_OUTER] = 1;
  plan->value[PLAN_RECOMPUTE_LAYERS] = 1;
  if (model->layers % stages != 0)
    plan->value[PLAN_PP_FIRST_LAYERS] = model->layers - (stages - 1) * each;
  if (model->tied_embeddings)
    plan->value[PLAN_STRATEGY] = MIN (plan->value[PLAN_STRATEGY], PLAN_STRATEGY_OPTIM);
  if (model->layers % (2 * stages) == 0 && plan->value[PLAN_STRATEGY] <= PLAN_STRATEGY_OPTIM)
    {
      plan->value[PLAN_VPP] = 2;
      plan->value[PLAN_GBS] = plan->value[PLAN_MBS] * ranks * 2;
    }
  if (model->layers > 3)
    set_layout (plan, model);
}

static void
set_split (Plan *plan, const PlanModel *model, int seed)
{
  const gboolean is_latent = model->kv_lora > 0;
  plan->value[PLAN_TP] = tp_of ((guint)seed);
  if (seed % 16 < 8 && seed % 5 > 0 && !is_latent)
    plan->value[PLAN_TP_OVERLAP] = PLAN_TP_OVERLAP_ASYNC;
  plan->value[PLAN_SP] = seed % 16 < 8 || is_latent ? PLAN_SP_ON : PLAN_SP_OFF;
  if (plan->value[PLAN_SP] == PLAN_SP_ON)
    plan->value[PLAN_SEQ]
        = MAX (plan->value[PLAN_SEQ] / plan->value[PLAN_TP], 1) * plan->value[PLAN_TP];
}

static void
narrow_products (Plan *plan, int seed, GRand *rand)
{
  plan->value[PLAN_COMPUTE]
      = g_rand_int_range (rand, PLAN_COMPUTE_FP8_DELAYED, PLAN_COMPUTE_FP8_TENSORWISE + 1);
  if (seed % 9 == 3 && plan->value[PLAN_TP] == 2)
    plan->value[PLAN_TP_OVERLAP] = PLAN_TP_OVERLAP_NONE;
  if (plan->value[PLAN_TP] == 1)
    plan->value[PLAN_PARAM_GATHER] = PLAN_PARAM_GATHER_FP8;
  plan->value[PLAN_KEEP_TRANSPOSE] = g_rand_boolean (rand);
}

static void
narrow_moments (Plan *plan)
{
  plan->value[PLAN_PRECISION_AWARE] = PLAN_PRECISION_AWARE_ON;
  plan->value[PLAN_EXP_AVG] = PLAN_EXP_AVG_FP8;
  plan->value[PLAN_EXP_AVG_SQ] = PLAN_EXP_AVG_SQ_FP8;
}

/* Changes fields one after the other, where the plan may be run with the change. */
static void
widen_plan (Case *c, int seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)seed + 7);
  const gint64 most = c->ranks / tp_of ((guint)seed), replicas[] = { 1, MIN (2, most), most };
  for (guint i = 0; i < 12; i++)
    {
      Plan plan = c->of->plan;
      const guint at = (guint)g_rand_int_range (rand, 0, G_N_ELEMENTS (wide_fields));
      if (i == 0)
        plan.value[PLAN_DP_OUTER] = replicas[g_rand_int_range (rand, 0, 3)];
      else if (i == 2 && tp_of ((guint)seed) > 1)
        set_split (&plan, c->model, seed);
      else if (i == 1 && stages_of ((guint)seed) > 1)
        {
          set_stages (&plan, c->model, stages_of ((guint)seed), c->ranks);
          if (plan.value[PLAN_VPP] == 1 && seed % 3 == 1)
            plan.value[PLAN_PP_SCHEDULE] = PLAN_PP_SCHEDULE_AFAB;
        }
      else if (i == 2 && is_square ((guint)seed))
        {
          plan.value[PLAN_SEQ] = 128;
          plan.value[PLAN_COMPUTE] = PLAN_COMPUTE_FP8_BLOCKWISE;
        }
      else if (i == 3 && is_square ((guint)seed))
        {
          plan.value[PLAN_PARAM_GATHER] = PLAN_PARAM_GATHER_FP8;
          plan.value[PLAN_KEEP_TRANSPOSE] = g_rand_boolean (rand);
        }
      else if (i == 2 && is_aligned ((guint)seed))
        {
          plan.value[PLAN_SEQ] = 32;
          plan.value[PLAN_COMPUTE]
              = g_rand_int_range (rand, PLAN_COMPUTE_MXFP8, PLAN_COMPUTE_NVFP4 + 1);
        }
      else if (i == 3 && is_aligned ((guint)seed))
        plan.value[PLAN_PARAM_GATHER] = plan.value[PLAN_COMPUTE] == PLAN_COMPUTE_NVFP4
                                            ? PLAN_PARAM_GATHER_NVFP4
                                            : PLAN_PARAM_GATHER_MXFP8;
      else if (i == 3 && seed % 3 == 0)
        narrow_products (&plan, seed, rand);
      else if (i == 4 && seed >= STAGED && seed % 4 == 2)
        narrow_moments (&plan);
      else if (i == 1 && g_rand_boolean (rand))
        {
          plan.value[PLAN_STRATEGY] = PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
          plan.value[PLAN_OUTER_STRATEGY] = PLAN_OUTER_STRATEGY_OPTIM;
        }
      else
        plan.value[wide_fields[at].field] = wide_fields[at].other;
      take_plan (c, &plan);
    }
}

#define UP_PROJECTIONS \
  (1 << PLAN_RECOMPUTE_MODULES_CORE_ATTN | 1 << PLAN_RECOMPUTE_MODULES_MLA_UP_PROJ)

/* Sets recompute of attention and of the up-projections of latent vectors. */
static void
recompute_up_projections (Case *c)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_RECOMPUTE] = PLAN_RECOMPUTE_SELECTIVE;
  plan.value[PLAN_RECOMPUTE_MODULES] = UP_PROJECTIONS;
  ck_assert (take_plan (c, &plan));
}

/* Sets context parallelism of 2 or 4 ranks; the length of sequences becomes a multiple of 2 cp. */
static gboolean
add_context (Case *c, gint64 cp)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_CP] = cp;
  plan.value[PLAN_SEQ] = MAX (plan.value[PLAN_SEQ] / (2 * cp), 1) * 2 * cp;
  return take_plan (c, &plan);
}

/* Sets documents' lengths: shorter than sequences, longer than them, or one token. */
static void
add_documents (Case *c, int seed)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_DOC_TOKENS] = 1 + seed / 5 % 11;
  take_plan (c, &plan);
}

/* Masks the ends of documents, if the plan has one mean over all tokens. */
static void
mask_ends (Case *c)
{
  Plan plan = c->of->plan;
  if (plan.value[PLAN_PER_TOKEN_LOSS] == PLAN_PER_TOKEN_LOSS_OFF)
    return;
  plan.value[PLAN_EOD_MASK_LOSS] = PLAN_EOD_MASK_LOSS_ON;
  ck_assert (take_plan (c, &plan));
}

static void
add_dropout (Case *c)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_HIDDEN_DROPOUT] = 250000;
  plan.value[PLAN_ATTENTION_DROPOUT] = 400000;
  take_plan (c, &plan);
}

/* Offloads the first layers, or all, instead of computing anything again. */
static void
add_offloading (Case *c, int seed)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_RECOMPUTE] = PLAN_RECOMPUTE_NONE;
  plan.value[PLAN_OFFLOAD_LAYERS] = MIN (1 + seed / 3 % 4, c->model->layers);
  take_plan (c, &plan);
}

/* Gives the host a share of the optimizer, if that is AdamW without moments in eight bits. */
static void
add_host (Case *c, int seed)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_PRECISION_AWARE] = PLAN_PRECISION_AWARE_ON;
  plan.value[PLAN_OFFLOAD_OPTIMIZER] = 1 + (gint64)seed * 7919 % 1000000;
  take_plan (c, &plan);
}

static void
case_init (Case *c, int seed)
{
  g_autoptr (GError) error = NULL;
  c->ranks = ranks_of ((guint)seed);
  c->model = any_model ((guint)seed);
  c->cluster = exec_probe_cluster (c->ranks, &error);
  ck_assert (c->cluster != NULL);
  c->of = random_case ((guint)seed, c->model, c->cluster, "native");
  c->eval_of = NULL;
  c->tokens = c->eval_tokens = NULL;
  widen_plan (c, seed);
  if (c->model->kv_lora > 0 && c->model->q_lora > 0)
    recompute_up_projections (c);
  if (seed % 5 == 3 && seed % 4 != 1)
    add_documents (c, seed);
  else if (seed % 6 != 0 && (seed % 4 == 0 || !add_context (c, 4)))
    add_context (c, 2);
  if (seed % 3 == 1)
    mask_ends (c);
  if (seed % 4 < 2)
    add_dropout (c);
  if (seed % 3 == 2)
    add_offloading (c, seed);
  if (seed % 5 < 2)
    add_host (c, seed);
  c->job = (ExecJob){ .of = c->of,
                      .kernels = &exec_kernels_cpu,
                      .seed = (guint64)seed,
                      .steps = STEPS,
                      .document_end = 1,
                      .constants = { .norm_eps = 1e-5,
                                     .rope = c->model->rope,
                                     .lr = 1e-2,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .adam_eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .decays_all = seed % 4 == 3,
                                     .max_norm = seed % 3 ? 1.0 : 0.0 } };
}

/* Evaluates after every step. */
static void
case_add_evaluation (Case *c)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_TASK] = PLAN_TASK_EVAL;
  c->job.eval_of = c->eval_of = test_case_of (c->model, c->cluster, &plan);
  c->job.eval_every = 1;
  c->job.eval_batches = 1 + c->job.seed % 3;
}

/* Writes tokens for so many sequences and a part of one more. */
static char *
write_tokens (const Case *c, const char *folder, const char *name, GRand *rand, gint64 sequences)
{
  const gint64 seq = c->of->plan.value[PLAN_SEQ];
  const gsize count = (gsize)(sequences * seq) + (gsize)g_rand_int_range (rand, 1, (gint32)seq + 1);
  g_autofree guint16 *tokens = g_new (guint16, count);
  char *path = g_build_filename (folder, name, NULL);
  for (gsize i = 0; i < count; i++)
    {
      const gint32 token = g_rand_int_range (rand, 0, (gint32)c->model->vocab);
      tokens[i] = GUINT16_TO_LE ((guint16)token);
    }
  ck_assert (g_file_set_contents (path, (const char *)tokens, (gssize)(2 * count), NULL));
  return path;
}

/* Adds a blend of two files, shuffled for every other seed, that is used up within a step or two;
 * and one file for the evaluations. */
static void
case_add_data (Case *c, guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_autoptr (GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp ("prop-exec-XXXXXX", NULL);
  const gint64 gbs = c->of->plan.value[PLAN_GBS], seq = c->of->plan.value[PLAN_SEQ];
  g_autofree char *a = write_tokens (c, folder, "a.u16", rand, gbs + 1);
  g_autofree char *b = write_tokens (c, folder, "b.u16", rand, 2);
  g_autofree char *spec = g_strdup_printf ("%d:%s,%d:%s", g_rand_int_range (rand, 1, 9), a,
                                           g_rand_int_range (rand, 1, 9), b);
  c->tokens = exec_blend_open (spec, "--data", c->model->vocab, seq, &error);
  c->eval_tokens = exec_blend_open (a, "--eval-data", c->model->vocab, seq, &error);
  ck_assert_msg (c->tokens && c->eval_tokens, "%s", error ? error->message : "");
  if (seed % 2 == 0)
    exec_blend_shuffle (c->tokens, seed);
  if (c->of->plan.value[PLAN_DOC_TOKENS] > 0)
    {
      exec_blend_set_end (c->tokens, 1);
      exec_blend_set_end (c->eval_tokens, 1);
    }
  c->job.tokens = c->tokens;
  c->job.eval_tokens = c->eval_tokens;
  g_unlink (a); /* which stays mapped */
  g_unlink (b);
  g_rmdir (folder);
}

static void
case_clear (Case *c)
{
  exec_blend_free (c->tokens);
  exec_blend_free (c->eval_tokens);
  plan_case_free (c->of);
  plan_case_free (c->eval_of);
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}

/* Losses from step `first` of the expected ones on, and the weights they lead to. */
static void
check_results (const Case *c, int seed, const ExecResult *results, const ExecResult *expected,
               gint64 first)
{
  const gsize bytes = (gsize)c->job.steps * sizeof (double);
  for (guint r = 0; r < c->ranks; r++)
    {
      ck_assert_msg (memcmp (results[r].losses, expected->losses + first, bytes) == 0,
                     "seed %d: rank %u has loss %.9g, not %.9g", seed, r, results[r].losses[0],
                     expected->losses[first]);
      ck_assert_msg (memcmp (results[r].grad_norms, expected->grad_norms + first, bytes) == 0,
                     "seed %d: rank %u has norm %.9g, not %.9g", seed, r, results[r].grad_norms[0],
                     expected->grad_norms[first]);
      ck_assert_msg (memcmp (results[r].eval_losses, expected->eval_losses + first, bytes) == 0,
                     "seed %d: rank %u has evaluation loss %.9g, not %.9g", seed, r,
                     results[r].eval_losses[0], expected->eval_losses[first]);
      ck_assert_msg (shards_equal (&c->job, c->ranks, r, &results[r], expected),
                     "seed %d: weights of rank %u differ", seed, r);
    }
}

/* Compares a run with the evaluator. Some cases have evaluations, some files of tokens. */
static void
compare (int seed)
{
  Case c;
  g_autoptr (GError) error = NULL;
  ExecResult results[MAX_RANKS] = { { 0 } };
  g_auto (ExecResult) expected = { 0 };
  case_init (&c, seed);
  if (seed % 4 == 0)
    case_add_evaluation (&c);
  if (seed % 3 == 0)
    case_add_data (&c, (guint32)seed / 3);
  ck_assert_msg (exec_run_threads (&c.job, c.ranks, TRUE, NULL, NULL, results, &error),
                 "seed %d: %s", seed, error ? error->message : "");
  ck_assert_msg (exec_evaluate (&c.job, c.ranks, &expected, &error), "seed %d: %s", seed,
                 error ? error->message : "");
  check_results (&c, seed, results, &expected, 0);
  for (guint r = 0; r < c.ranks; r++)
    exec_result_clear (&results[r]);
  case_clear (&c);
}

START_TEST (threads_equal_the_evaluator_bit_for_bit) { compare (_i); }
END_TEST

START_TEST (stages_equal_the_evaluator_bit_for_bit) { compare (STAGED + _i); }
END_TEST

static void
remove_folder (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name (dir)))
    {
      g_autofree char *inner = g_build_filename (path, name, NULL);
      if (g_file_test (inner, G_FILE_TEST_IS_DIR))
        remove_folder (inner);
      else
        g_unlink (inner);
    }
  g_rmdir (path);
}

/* Some steps, and the others resumed from a checkpoint, equal all of them in one run. */
START_TEST (resumed_runs_equal_the_evaluator)
{
  Case c;
  g_autoptr (GError) error = NULL;
  ExecResult results[MAX_RANKS] = { { 0 } };
  g_auto (ExecResult) expected = { 0 };
  g_autofree char *folder = g_dir_make_tmp ("prop-exec-XXXXXX", NULL);
  case_init (&c, _i % 4 == 3 ? STAGED + _i : 1000 + _i);
  case_add_evaluation (&c);
  if (_i % 3 > 0)
    case_add_data (&c, (guint32)_i);
  c.job.rate = (ExecRate){ (ExecDecay)(_i % 4), _i % 4, 4, _i % 5 % 4, 0.1 };
  c.job.steps = 4;
  ck_assert (exec_evaluate (&c.job, c.ranks, &expected, &error));
  c.job.steps = 1 + _i % 3;
  c.job.save = folder;
  c.job.save_every = _i % 2;
  c.job.saves_behind = _i % 4 > 1;
  ck_assert_msg (exec_run_threads (&c.job, c.ranks, FALSE, NULL, NULL, results, &error), "%s",
                 error ? error->message : "");
  for (guint r = 0; r < c.ranks; r++)
    exec_result_clear (&results[r]);
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (folder, c.model, &error);
  ck_assert_msg (checkpoint != NULL, "%s", error ? error->message : "");
  c.job.resume = checkpoint;
  c.job.first_step = exec_checkpoint_step (checkpoint);
  c.job.first_token = exec_checkpoint_tokens (checkpoint);
  ck_assert_int_eq (c.job.first_step, c.job.steps);
  c.job.steps = 4 - c.job.first_step;
  c.job.save = NULL;
  ck_assert_msg (exec_run_threads (&c.job, c.ranks, TRUE, NULL, NULL, results, &error), "%s",
                 error ? error->message : "");
  check_results (&c, _i, results, &expected, c.job.first_step);
  for (guint r = 0; r < c.ranks; r++)
    exec_result_clear (&results[r]);
  remove_folder (folder);
  case_clear (&c);
}
END_TEST

/* Every value above occurs in a case. */
START_TEST (every_value_is_run)
{
  guint met[G_N_ELEMENTS (wide_fields)] = { 0 }, hybrids = 0, hfsdp = 0, split[2] = { 0, 0 };
  guint contexts[3] = { 0 }, windowed = 0, up_projections = 0, dropped = 0, offloaded = 0;
  guint pieces[2] = { 0, 0 };   /* of two ranks and of four */
  guint hosted = 0, narrow = 0; /* narrow: products in eight bits of split sequences */
  for (int seed = 0; seed < SEEDS; seed++)
    {
      Case c;
      case_init (&c, seed);
      const gint64 *value = c.of->plan.value;
      for (guint i = 0; i < G_N_ELEMENTS (wide_fields); i++)
        met[i] += value[wide_fields[i].field] == wide_fields[i].other;
      up_projections += value[PLAN_RECOMPUTE_MODULES] == UP_PROJECTIONS;
      offloaded += value[PLAN_OFFLOAD_LAYERS] > 0;
      hosted += value[PLAN_OFFLOAD_OPTIMIZER] > 0;
      hybrids += value[PLAN_DP_OUTER] > 1 && value[PLAN_DP_OUTER] < c.ranks;
      hfsdp += value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM;
      split[value[PLAN_SP] == PLAN_SP_ON] += value[PLAN_TP] > 1;
      pieces[value[PLAN_TP] > 2] += value[PLAN_TP_OVERLAP] == PLAN_TP_OVERLAP_ASYNC;
      narrow += value[PLAN_SP] == PLAN_SP_ON
                && (value[PLAN_COMPUTE] == PLAN_COMPUTE_FP8_DELAYED
                    || value[PLAN_COMPUTE] == PLAN_COMPUTE_FP8_TENSORWISE);
      contexts[0] += value[PLAN_CP] == 2;
      contexts[1] += value[PLAN_CP] == 4;
      contexts[2] += value[PLAN_CP] > 1 && value[PLAN_TP] > 1;
      windowed += value[PLAN_CP] > 1 && c.model->window > 0;
      dropped += value[PLAN_HIDDEN_DROPOUT] > 0 && value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_NONE;
      case_clear (&c);
    }
  for (guint i = 0; i < G_N_ELEMENTS (wide_fields); i++)
    ck_assert_msg (met[i] > 0, "%s=%" G_GINT64_FORMAT " is in no case",
                   plan_field_name (wide_fields[i].field), wide_fields[i].other);
  ck_assert_uint_gt (up_projections, 0);
  ck_assert_uint_gt (hybrids, 10);
  ck_assert_uint_gt (hfsdp, 4);
  ck_assert_uint_gt (split[0], 6);
  ck_assert_uint_gt (split[1], 6);
  ck_assert_uint_gt (MIN (pieces[0], pieces[1]), 2);
  ck_assert_uint_gt (narrow, 0);
  for (guint i = 0; i < G_N_ELEMENTS (contexts); i++)
    ck_assert_msg (contexts[i] > 1, "%u cases of contexts %u", contexts[i], i);
  ck_assert_uint_gt (windowed, 1);
  ck_assert_uint_gt (dropped, 3);
  ck_assert_uint_gt (offloaded, 20);
  ck_assert_uint_gt (hosted, 20);
}
END_TEST

/* Of each strategy there are stages of several ranks. */
START_TEST (every_kind_of_stages_is_run)
{
  guint interleaved = 0, staged[PLAN_STRATEGY_N_VALUES] = { 0 }, shared = 0, deep = 0, narrow = 0,
        again = 0, split = 0, dropped = 0, afab = 0, hosted = 0, scaled = 0, packed = 0;
  for (int seed = STAGED; seed < STAGED + STAGED_SEEDS; seed++)
    {
      Case c;
      case_init (&c, seed);
      const gint64 *value = c.of->plan.value;
      staged[value[PLAN_STRATEGY]] += value[PLAN_PP] > 1 && value[PLAN_PP] < c.ranks;
      shared += value[PLAN_PP] > 1 && c.model->tied_embeddings;
      deep += value[PLAN_PP] > 2;
      split += value[PLAN_PP] > 1 && value[PLAN_TP] > 1;
      interleaved += value[PLAN_VPP] > 1;
      afab += value[PLAN_PP_SCHEDULE] == PLAN_PP_SCHEDULE_AFAB;
      dropped += value[PLAN_VPP] > 1 && value[PLAN_HIDDEN_DROPOUT] > 0;
      hosted += value[PLAN_PP] > 1 && value[PLAN_OFFLOAD_OPTIMIZER] > 0;
      scaled += value[PLAN_PP] > 1
                && (plan_field_dtype (&c.of->plan, PLAN_EXP_AVG) == PLAN_DTYPE_E4M3
                    || plan_field_dtype (&c.of->plan, PLAN_EXP_AVG_SQ) == PLAN_DTYPE_E4M3);
      packed += value[PLAN_PP] > 1 && value[PLAN_DOC_TOKENS] > 0;
      narrow += value[PLAN_PP] > 1 && value[PLAN_COMPUTE] == PLAN_COMPUTE_BF16;
      again += value[PLAN_PP] > 1 && value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_NONE;
      case_clear (&c);
    }
  ck_assert_uint_gt (shared, 3);
  ck_assert_uint_gt (deep, 3);
  ck_assert_uint_gt (split, 3);
  ck_assert_uint_gt (interleaved, 1);
  ck_assert_uint_gt (afab, 5);
  ck_assert_uint_gt (dropped, 0);
  ck_assert_uint_gt (hosted, 3);
  ck_assert_uint_gt (scaled, 1);
  ck_assert_uint_gt (packed, 1);
  ck_assert_uint_gt (narrow, 3);
  ck_assert_uint_gt (again, 3);
  for (guint i = 0; i < G_N_ELEMENTS (staged); i++)
    ck_assert_msg (staged[i] > 0, "no stages of several ranks have strategy %u", i);
}
END_TEST

static PlanTrace *
simulate (const Case *c, guint rank)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = test_lower (c->of, rank);
  const SimCostInput input = sim_cost_input (c->of, schedule);
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  PlanTrace *trace = sim_run (schedule, cost, c->of->stack, &error);
  ck_assert (trace != NULL);
  return trace;
}

/* Compares the bytes that each rank took with those predicted, by category and at the peak. Ranks
 * have predictions of their own only where tensor parallelism or stages tell them apart. */
static void
compare_bytes (int seed)
{
  Case c;
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanTrace) sim = NULL;
  ExecResult results[MAX_RANKS] = { { 0 } };
  case_init (&c, seed);
  ck_assert (exec_run_threads (&c.job, c.ranks, FALSE, NULL, NULL, results, &error));
  for (guint r = 0; r < c.ranks; r++)
    {
      if (r == 0 || c.of->plan.value[PLAN_TP] > 1 || c.of->plan.value[PLAN_PP] > 1)
        {
          g_clear_pointer (&sim, plan_trace_free);
          sim = simulate (&c, r);
        }
      const PlanMemory *p = &sim->memory, *m = &results[r].trace->memory;
      ck_assert_uint_eq (p->allocated, m->allocated);
      ck_assert_uint_eq (p->max_allocated, m->max_allocated);
      ck_assert_uint_eq (p->reserved, results[r].arena_bytes);
      ck_assert_uint_eq (p->host, m->host);
      ck_assert_uint_eq (p->device, m->device);
      ck_assert_uint_eq (p->peak_node, m->peak_node);
      ck_assert (memcmp (p->by_category, m->by_category, sizeof p->by_category) == 0);
      ck_assert (memcmp (p->resting, m->resting, sizeof p->resting) == 0);
      ck_assert_uint_eq (sim->spans->len, results[r].trace->spans->len);
      ck_assert_uint_eq (sim->samples->len, results[r].trace->samples->len);
      exec_result_clear (&results[r]);
    }
  case_clear (&c);
}

START_TEST (bytes_taken_equal_bytes_predicted) { compare_bytes (_i); }
END_TEST

START_TEST (bytes_of_stages_equal_bytes_predicted) { compare_bytes (STAGED + _i); }
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-exec");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  test_add_share (tcase, threads_equal_the_evaluator_bit_for_bit, SEEDS);
  test_add_share (tcase, resumed_runs_equal_the_evaluator, 30);
  test_add_share (tcase, stages_equal_the_evaluator_bit_for_bit, STAGED_SEEDS);
  tcase_add_test (tcase, every_value_is_run);
  tcase_add_test (tcase, every_kind_of_stages_is_run);
  test_add_share (tcase, bytes_taken_equal_bytes_predicted, 40);
  test_add_share (tcase, bytes_of_stages_equal_bytes_predicted, 20);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
