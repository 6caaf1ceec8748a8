/* SPDX-License-Identifier: Apache-2.0 */
/* The product of plans and layouts that prop-product.c trains: its dimensions, and the case of each
 * point. */
#include "config.h"

#include "tests/prop/product.h"

#include "exec/probe/probe.h"
#include "exec/walk/runnable.h"
#include "planner/plan/native.h"
#include "tests/case.h"
#include "tests/prop/shards.h"

#include <stdio.h>
#include <string.h>

#define MAX_VALUES PRODUCT_MAX_VALUES

/* The values of each dimension: the fields that they set, as in a plan's text. Values of
 * PRODUCT_SHARDS, PRODUCT_RANKS and PRODUCT_LOSS are names, which the functions below give
 * a meaning. Formats of gradients lack `auto`, since a resolved plan has one of the others in its
 * place. A loss in chunks and dropout are one value: they do not affect each other, and a dimension
 * for each would double the product. */
static const char *const dimensions[PRODUCT_N_DIMENSIONS][MAX_VALUES] = {
  [PRODUCT_SHARDS]
  = { "even", "uneven", "experts", "uneven experts", "parallel experts", "tensor parallel",
      "sequence parallel", "pipeline", "parallel experts and contexts", "context parallel",
      "sequence and context parallel", "sequence parallel experts, latent attention",
      "sequence parallel, products in pieces" },
  [PRODUCT_RANKS] = { "1", "2", "3", "4", "8" },
  [PRODUCT_OUTER] = { "dp_outer=1", "dp_outer=2" },
  [PRODUCT_STRATEGY]
  = { "strategy=no_shard", "strategy=optim", "strategy=optim_grads", "strategy=optim_grads_params",
      "strategy=optim_grads_params outer_strategy=optim" },
  [PRODUCT_MAIN_PARAMS]
  = { "main_params=fp32", "main_params=bf16", "main_params=fp16", "main_params=auto" },
  [PRODUCT_MAIN_GRADS] = { "main_grads=fp32", "main_grads=bf16", "main_grads=fp16" },
  [PRODUCT_GRAD_COMM] = { "grad_comm=fp32", "grad_comm=bf16", "grad_comm=fp16" },
  [PRODUCT_LOSS] = { "loss=whole", "loss=pieces beside dropout" },
  [PRODUCT_COMPUTE] = { "compute=fp32", "compute=bf16", "compute=fp8-tensorwise param_gather=fp8",
                        "compute=mxfp8 param_gather=mxfp8", "compute=nvfp4 param_gather=nvfp4",
                        "compute=fp8-blockwise param_gather=fp8" },
  [PRODUCT_GATHER]
  = { "overlap_param_gather=on", "overlap_param_gather=off overlap_grad_reduce=off",
      "fine_grained=on comm_unit=1000", "double_buffer=on", "double_buffer=max_pool",
      "nccl_ub=on ag_group=on" },
  [PRODUCT_RECOMPUTE] = { "recompute=none", "recompute=selective recompute_modules=core_attn",
                          "recompute=selective recompute_modules=core_attn+mlp", "recompute=full",
                          "recompute=full recompute_method=block",
                          "offload_modules=attn_norm+qkv_linear+core_attn+attn_proj+mlp_norm",
                          "offload_optimizer=0.4 precision_aware=on" },
};

guint
product_values (ProductDimension dimension)
{
  guint n = 0;
  while (n < MAX_VALUES && dimensions[dimension][n])
    n++;
  return n;
}

const char *
product_value_name (ProductDimension dimension, guint value)
{
  return dimensions[dimension][value];
}

static guint64
n_points_below (ProductDimension dimension)
{
  guint64 n = 1;
  for (ProductDimension d = dimension + 1; d < PRODUCT_N_DIMENSIONS; d++)
    n *= product_values (d);
  return n;
}

guint64
product_size (void)
{
  return n_points_below (0) * product_values (0);
}

guint64
product_declaration (guint64 point)
{
  return point / n_points_below (PRODUCT_COMPUTE);
}

guint
product_digit (guint64 point, ProductDimension dimension)
{
  return (guint)(point / n_points_below (dimension) % product_values (dimension));
}

guint64
product_point (const guint digits[PRODUCT_N_DIMENSIONS])
{
  guint64 point = 0;
  for (ProductDimension d = 0; d < PRODUCT_N_DIMENSIONS; d++)
    point = point * product_values (d) + digits[d];
  return point;
}

char *
product_name (guint64 point)
{
  GString *text = g_string_new (NULL);
  for (ProductDimension d = 0; d < PRODUCT_N_DIMENSIONS; d++)
    g_string_append_printf (text, "%s%s", d == 0 ? "" : ", ",
                            dimensions[d][product_digit (point, d)]);
  return g_string_free (text, FALSE);
}

/* What a compute format demands of the sizes of GEMMs: to be whole blocks, or whole square blocks.
 */
typedef enum
{
  ANY,
  BLOCKS,
  SQUARES,
  N_SIZES
} Sizes;

static Sizes
sizes_of (guint compute)
{
  static const Sizes sizes[MAX_VALUES] = { ANY, ANY, ANY, BLOCKS, BLOCKS, SQUARES };
  return sizes[compute];
}

guint
product_weight (guint compute)
{
  return sizes_of (compute) == SQUARES ? 8 : 1;
}

#define MAX_SHARDS 13
#define PIPELINE 7 /* a value of PRODUCT_SHARDS */

/* Fields that split a model or a sequence among ranks, for those values of PRODUCT_SHARDS that do.
 */
static const char *const split_fields[MAX_SHARDS]
    = { [4] = "ep=2 moe_imbalance=2",
        [5] = "tp=2 sp=off",
        [6] = "tp=2 sp=on",
        [7] = "pp=2",
        [8] = "cp=4 ep=2 moe_imbalance=2 moe_capacity=0.8 moe_pad_to_capacity=on",
        [9] = "cp=4",
        [10] = "cp=2 tp=2 sp=on",
        [11] = "tp=2 sp=on ep=4 moe_imbalance=4 moe_capacity=1 "
               "moe_drop=position",
        [12] = "tp=4 sp=on tp_overlap=async" };

/* The model of a point. Models are made on first use and kept, since many points have the same.
 * NULL: there is no model of these shards with such sizes. */
static const PlanModel *
model_of (guint shards, Sizes sizes)
{
  static const char *const specs[MAX_SHARDS][N_SIZES] = {
    { "family=llama,layers=2,hidden=16,ffn=10,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=4",
      "family=llama,layers=1,hidden=32,ffn=32,heads=2,kv_heads=1,head_dim=16,vocab=32,max_seq=32",
      "family=llama,layers=1,hidden=128,ffn=128,heads=4,kv_heads=2,head_dim=32,vocab=32,"
      "max_seq=128" },
    { "family=gemma2,tied=off,layers=3,hidden=10,ffn=7,heads=3,kv_heads=1,head_dim=6,vocab=23,"
      "max_seq=5,window=2,attn_scalar=5,attn_softcap=2,logit_softcap=3",
      "family=qwen3,layers=2,hidden=32,ffn=32,heads=2,kv_heads=2,head_dim=16,vocab=33,"
      "max_seq=32",
      "family=qwen3,layers=1,hidden=128,ffn=128,heads=4,kv_heads=2,head_dim=32,vocab=33,"
      "max_seq=128" },
    { "family=mixtral,layers=2,hidden=16,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=4,"
      "experts=6,topk=2" },
    { "family=deepseek_v3,layers=3,hidden=10,ffn=7,heads=3,q_lora=6,kv_lora=5,nope_dim=4,rope_dim="
      "2,v_dim=3,vocab=23,max_seq=5,experts=9,topk=3,expert_ffn=3,shared_ffn=3,dense_layers=1,"
      "router_score=sigmoid,router_scale=2.5,router_bias=on,router_groups=3,router_group_topk=2,"
      "shared_gate=on,mtp=0" },
    { "family=mixtral,layers=2,hidden=16,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=4,"
      "experts=6,topk=2,expert_ffn=8,shared_ffn=8,router_bias=on,scores_on_input=on" },
    { "family=gemma2,tied=off,layers=3,hidden=10,ffn=6,heads=6,kv_heads=2,head_dim=6,vocab=23,"
      "max_seq=5,window=2,attn_scalar=5,attn_softcap=2,logit_softcap=3" },
    { "family=qwen3,tied=on,mlp_bias=on,layers=2,hidden=16,ffn=12,heads=4,kv_heads=2,head_dim=8,"
      "vocab=32,max_seq=8" },
    { "family=gemma2,tied=off,layers=4,hidden=10,ffn=7,heads=3,kv_heads=1,head_dim=6,vocab=23,"
      "max_seq=5,window=2,attn_scalar=5,attn_softcap=2,logit_softcap=3,nope_every=3" },
    { "family=gpt_oss,layers=2,hidden=16,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=16,"
      "experts=6,topk=2,expert_ffn=8,shared_ffn=8,window=5,glu_limit=0.004" },
    { "family=gemma2,tied=off,layers=3,hidden=10,ffn=7,heads=3,kv_heads=1,head_dim=6,vocab=23,"
      "max_seq=24,window=7,window_chunks=on,qk_l2_norm=all,attn_scalar=5,attn_softcap=2,"
      "logit_softcap=3",
      "family=llama,layers=1,hidden=32,ffn=32,heads=2,kv_heads=1,head_dim=16,vocab=32,max_seq="
      "128" },
    { "family=bloom,tied=on,layers=2,hidden=16,ffn=16,heads=4,head_dim=4,vocab=32,max_seq=8" },
    { "family=deepseek_v3,layers=3,hidden=10,ffn=6,heads=4,q_lora=6,kv_lora=5,nope_dim=4,rope_dim="
      "2,"
      "v_dim=3,vocab=23,max_seq=6,experts=8,topk=3,expert_ffn=3,shared_ffn=6,shared_gate=on,"
      "dense_layers=1,router_score=sigmoid,router_scale=2.5,router_bias=on,router_groups=4,"
      "router_group_topk=2,mtp=0" },
    { "family=gpt_neox,tied=off,layers=2,hidden=16,ffn=12,heads=4,head_dim=8,vocab=33,max_seq=8" },
  };
  static PlanModel *models[MAX_SHARDS][N_SIZES];
  g_autoptr (GError) error = NULL;
  PlanModel **model = &models[shards][sizes];
  if (!*model && specs[shards][sizes])
    *model = plan_model_new (specs[shards][sizes], &error);
  g_assert_no_error (error);
  return *model;
}

static const PlanCluster *
cluster_of (guint ranks)
{
  static PlanCluster *clusters[PRODUCT_MAX_RANKS + 1];
  g_autoptr (GError) error = NULL;
  if (!clusters[ranks])
    clusters[ranks] = exec_probe_processors (ranks, &error);
  g_assert_no_error (error);
  return clusters[ranks];
}

/* The least number above 1 of equal pieces into which a sequence can be cut. */
static gint64
pieces_of (gint64 seq)
{
  gint64 pieces = 2;
  while (seq % pieces != 0)
    pieces++;
  return pieces;
}

static gboolean
is_runnable (const ProductCase *self)
{
  const PlanCase *of = self->of;
  const gint64 *value = of->plan.value;
  if (!plan_native_runs (&of->plan, of->model, self->ranks / value[PLAN_TP] / value[PLAN_PP], NULL))
    return FALSE; /* most are refused here, which is cheaper than making a schedule */
  g_autoptr (PlanSchedule) schedule = test_lower (self->of, 0);
  return exec_runnable_check (&self->job, self->of, schedule, NULL);
}

gboolean
product_is_beyond_dense (guint64 point)
{
  const guint shards = product_digit (point, PRODUCT_SHARDS);
  return shards >= 2 && shards != PIPELINE;
}

void
product_case_clear (ProductCase *self)
{
  g_clear_pointer (&self->of, plan_case_free);
}

guint
product_ranks (guint value)
{
  return (guint)atoi (dimensions[PRODUCT_RANKS][value]);
}

gboolean
product_case_init (ProductCase *self, guint64 point)
{
  Plan plan;
  self->ranks = product_ranks (product_digit (point, PRODUCT_RANKS));
  self->model = model_of (product_digit (point, PRODUCT_SHARDS),
                          sizes_of (product_digit (point, PRODUCT_COMPUTE)));
  if (!self->model)
    return FALSE;
  self->cluster = cluster_of (self->ranks);
  plan_init (&plan);
  test_plan_set (&plan, "stack=native mbs=1");
  for (ProductDimension d = PRODUCT_OUTER; d < PRODUCT_N_DIMENSIONS; d++)
    if (d != PRODUCT_LOSS)
      test_plan_set (&plan, dimensions[d][product_digit (point, d)]);
  if (product_digit (point, PRODUCT_LOSS) == 1)
    {
      plan.value[PLAN_LOSS_CHUNKS] = pieces_of (self->model->max_seq);
      plan.value[PLAN_HIDDEN_DROPOUT] = 250000;
      plan.value[PLAN_ATTENTION_DROPOUT] = 400000;
    }
  plan.value[PLAN_GBS] = 2 * self->ranks;
  if (self->model->experts > 0 && plan.value[PLAN_OFFLOAD_MODULES] != 0)
    test_plan_set (&plan, "offload_modules=attn_norm+qkv_linear+core_attn+attn_proj+mlp_norm+"
                          "expert_fc1+moe_act");
  if (self->model->experts > 0 && product_declaration (point) / 5 % 2 == 0)
    plan.value[PLAN_MOE_AUX_LOSS] = 20000;
  const char *words = split_fields[product_digit (point, PRODUCT_SHARDS)];
  if (words && self->ranks < 4 * plan.value[PLAN_DP_OUTER])
    return FALSE;
  if (words)
    test_plan_set (&plan, words);
  self->of = plan_case_new (self->model, self->cluster, &plan, NULL, NULL);
  self->job = (ExecJob){ .of = self->of,
                         .kernels = &exec_kernels_cpu,
                         .seed = product_declaration (point),
                         .steps = 2,
                         .constants = { .norm_eps = 1e-5,
                                        .rope = self->model->rope,
                                        .router_score = self->model->router_score,
                                        .pre_softmax = self->model->pre_softmax,
                                        .router_scale = self->model->router_scale,
                                        .bias_rate = 0.25,
                                        .lr = 1e-2,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .adam_eps = 1e-8,
                                        .weight_decay = 0.1,
                                        .max_norm = 1.0 } };
  return self->of && is_runnable (self);
}

static gboolean
figures_equal (const ProductCase *self, guint rank, const char *what, const double *found,
               const double *expected)
{
  for (gint64 i = 0; i < self->job.steps; i++)
    if (memcmp (&found[i], &expected[i], sizeof *found) != 0)
      {
        printf ("# rank %u, step %d: the %s is %.9g, not %.9g\n", rank, (int)i, what, found[i],
                expected[i]);
        return FALSE;
      }
  return TRUE;
}

gboolean
product_case_equals (const ProductCase *self, guint rank, const ExecResult *result,
                     const ExecResult *expected)
{
  if (!figures_equal (self, rank, "loss", result->losses, expected->losses)
      || !figures_equal (self, rank, "norm", result->grad_norms, expected->grad_norms))
    return FALSE;
  if (shards_equal (&self->job, self->ranks, rank, result, expected))
    return TRUE;
  printf ("# rank %u: the main weights differ\n", rank);
  return FALSE;
}
