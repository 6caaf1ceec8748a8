/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/emit/emit.h"
#include "planner/megatron/megatron.h"
#include "planner/model/preset.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A plan from "model", "cluster" and "field=value field=value"; NULL where it is not legal. */
typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of;
} Case;

static void
case_clear (Case *self)
{
  g_clear_pointer (&self->of, plan_case_free);
  g_clear_pointer (&self->model, plan_model_free);
  g_clear_pointer (&self->cluster, plan_cluster_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

static gboolean
case_init (Case *self, const char *model, const char *cluster, const char *fields, GError **error)
{
  g_auto (GStrv) pairs = g_strsplit (fields, " ", -1);
  Plan plan;
  self->model = plan_model_new (model, error);
  self->cluster = plan_cluster_new (cluster, error);
  ck_assert (self->model && self->cluster);
  plan_init (&plan);
  plan.value[PLAN_GBS] = 128;
  for (char **pair = pairs; *pair; pair++)
    {
      char *const value = strchr (*pair, '=');
      if (!value)
        continue;
      *value = '\0';
      ck_assert_msg (plan_set (&plan, *pair, value + 1, error), "%s=%s", *pair, value + 1);
    }
  self->of = plan_case_new (self->model, self->cluster, &plan, NULL, error);
  return self->of != NULL;
}

static char *
emit (const Case *self, PlanEmitKind kind, PlanEmitRuntime runtime, GError **error)
{
  const PlanEmitSubject subject = { .of = self->of };
  return plan_emit (kind, runtime, &subject, error);
}

#define DENSE "llama3-8b"
#define DDP "stack=megatron strategy=optim "
#define LOCAL "layers=4,hidden=64,ffn=176,heads=4,vocab=256,max_seq=128"

/* Settings that a target cannot express, and its message about each. */
static const struct
{
  PlanEmitKind kind;
  const char *model, *cluster, *fields, *reason;
} refusals[] = {
  { PLAN_EMIT_MEGATRON, DENSE, "dgx-h100:1", "stack=native",
    "stack=native: what is written is for stack=megatron-fsdp" },
  { PLAN_EMIT_TORCHRUN, DENSE, "dgx-h100:1", "stack=native",
    "what is written is for stack=megatron-fsdp or megatron: use --as mpirun" },
  { PLAN_EMIT_MEGATRON, DENSE, "dgx-h100:1", "stack=megatron-fsdp@2026-05-01",
    "stack=megatron-fsdp@2026-05-01: what is written is for Megatron-LM main at d98e8a64" },
  { PLAN_EMIT_MEGATRON, DENSE, "dgx-h100:1", "stack=fsdp2", "use --as torchtitan" },
  { PLAN_EMIT_TORCHTITAN, DENSE, "dgx-h100:1", "stack=fsdp1",
    "stack=fsdp1: what is written is for stack=fsdp2: use --as fsdp1" },
  { PLAN_EMIT_TORCHTITAN, DENSE, "dgx-h100:1", "stack=fsdp2@2025-06-01",
    "stack=fsdp2@2025-06-01: what is written is for torchtitan main at b5bcd76c (2026-08-21): use "
    "stack=fsdp2" },
  { PLAN_EMIT_TORCHTITAN, DENSE, "dgx-h100:1", "stack=fsdp2 compute=fp8-tensorwise",
    "compute=fp8-tensorwise: torchtitan's fp8 has a scale per row "
    "(components/quantization/float8.py, recipe_name): use bf16 or mxfp8, or --as fsdp2" },
  { PLAN_EMIT_TORCHTITAN, DENSE, "dgx-h100:1", "stack=fsdp2 per_token_loss=off",
    "per_token_loss=off: torchtitan has no option for that: use on" },
  { PLAN_EMIT_TORCHTITAN, DENSE, "dgx-h100:1", "stack=fsdp2 eod_mask_loss=on",
    "eod_mask_loss=on: torchtitan has no option for that: use off" },
  { PLAN_EMIT_TORCHTITAN, DENSE, "dgx-h100:1",
    "stack=fsdp2 recompute=full recompute_method=block recompute_layers=3",
    "recompute_layers: torchtitan recomputes all layers or none" },
  { PLAN_EMIT_TORCHTITAN, DENSE, "dgx-h100:1",
    "stack=fsdp2 main_params=bf16 exp_avg=bf16 exp_avg_sq=bf16",
    "main_grads: torchtitan keeps reduced gradients" },
  { PLAN_EMIT_TORCHTITAN, DENSE, "dgx-h100:2", "stack=fsdp2 tp=8 cp=2 seq=1040",
    "tp, cp: torchtitan's tokens of a micro batch must be a multiple of 32" },
  { PLAN_EMIT_TORCHTITAN, "gpt2", "dgx-h100:1", "stack=fsdp2",
    "model of another kind: use --as fsdp2" },
  { PLAN_EMIT_TORCHTITAN, "gemma2-9b", "dgx-h100:1", "stack=fsdp2", "model attn_scalar" },
  { PLAN_EMIT_FSDP2, DENSE, "dgx-b200:1", "stack=fsdp2 compute=mxfp8", "compute=mxfp8: " },
  { PLAN_EMIT_FSDP2, DENSE, "dgx-h100:1", "stack=fsdp2 main_grads=bf16", "use main_grads=fp32" },
  { PLAN_EMIT_FSDP1, DENSE, "dgx-h100:1", "stack=fsdp1 nan_check=loss", "nan_check=loss: " },
  { PLAN_EMIT_FSDP1, DENSE, "dgx-h100:1",
    "stack=fsdp1 main_params=auto exp_avg=bf16 exp_avg_sq=bf16", "use main_grads=bf16" },
  { PLAN_EMIT_ACCELERATE, DENSE, "dgx-h100:1", "stack=fsdp2",
    "grad_comm: Accelerate's mixed_precision reduces gradients in the format of compute: use "
    "grad_comm=bf16, or --as fsdp2" },
  { PLAN_EMIT_ACCELERATE, DENSE, "dgx-h100:2", "stack=fsdp1 dp_outer=4 grad_comm=bf16",
    "dp_outer: Accelerate's HYBRID_SHARD shards over a node: use dp_outer=2" },
  { PLAN_EMIT_NANOTRON, DENSE, "dgx-h100:1", "stack=nanotron strategy=optim deterministic=on",
    "deterministic=on: nanotron has no option for that: use off" },
  { PLAN_EMIT_BRIDGE, DENSE, "dgx-h100:1", "ag_group=on", "ag_group=on: Megatron-Bridge" },
  { PLAN_EMIT_BRIDGE, "gpt2", "dgx-h100:1", "seq=512", "seq: Megatron-Bridge's table" },
  { PLAN_EMIT_SLURM, DENSE, "dgx-h100:1", "stack=fsdp1", "what --as fsdp1 writes" },
  { PLAN_EMIT_MEGATRON, DENSE, "dgx-h100:1", "nan_check=params",
    "nan_check=params: there is no flag for it: use loss or off, or --as megatron_fsdp" },
  { PLAN_EMIT_MEGATRON, DENSE, "dgx-h100:1", "sync_every_micro_batch=on",
    "sync_every_micro_batch=on: " },
  { PLAN_EMIT_SLURM, DENSE, "dgx-h100:1", "task=eval", "task=eval: " },
  { PLAN_EMIT_MEGATRON, DENSE, "dgx-h100:1", "task=eval nan_check=params",
    "--as megatron cannot express this plan: nan_check=params: there is no flag for it: use loss "
    "or off, or --as megatron_fsdp; task=eval: Megatron-LM evaluates within training only: use "
    "train" },
  { PLAN_EMIT_MEGATRON, "mpt-7b", "dgx-h100:1", "", "model positions=alibi: " },
  { PLAN_EMIT_MEGATRON, "mpt-7b", "dgx-h100:1", "", "model norm_bias=off: " },
  { PLAN_EMIT_MEGATRON, LOCAL ",norm_bias=on", "dgx-h100:1", "", "model norm_bias=on: " },
  { PLAN_EMIT_MEGATRON, "gemma2-9b", "dgx-h100:1", "", "model post_norms=on: " },
  { PLAN_EMIT_MEGATRON, "gemma2-9b", "dgx-h100:1", "", "model attn_softcap: " },
  { PLAN_EMIT_MEGATRON, "gemma2-9b", "dgx-h100:1", "", "model logit_softcap: " },
  { PLAN_EMIT_MEGATRON, "gemma-7b", "dgx-h100:1", "", "model embed_scale=on: " },
  { PLAN_EMIT_MEGATRON, "gemma-7b", "dgx-h100:1", "", "model activation, gated: " },
  { PLAN_EMIT_MEGATRON, "gpt-neox-20b", "dgx-h100:1", "", "model parallel=on: " },
  { PLAN_EMIT_MEGATRON, LOCAL ",norm=layernorm,norm_bias=on,qk_norm=on", "dgx-h100:1", "",
    "model qk_norm=on: " },
  { PLAN_EMIT_MEGATRON, LOCAL ",proj_bias=on", "dgx-h100:1", "",
    "model qkv_bias, proj_bias, mlp_bias: " },
  { PLAN_EMIT_MEGATRON, LOCAL ",attn_scalar=7", "dgx-h100:1", "", "model attn_scalar: " },
  { PLAN_EMIT_MEGATRON, LOCAL ",rope_theta=10000.5", "dgx-h100:1", "", "model rope_theta: " },
  { PLAN_EMIT_MEGATRON, LOCAL ",rope_scaling=linear,rope_factor=2", "dgx-h100:1", "",
    "model rope_scaling: " },
  { PLAN_EMIT_MEGATRON, LOCAL ",rope_scaling=llama3,rope_factor=8,rope_original=4096", "dgx-h100:1",
    "", "model rope_scaling: " },
  { PLAN_EMIT_BRIDGE, LOCAL ",rope_scaling=dynamic,rope_factor=2", "dgx-h100:1", "",
    "model rope_scaling: " },
  { PLAN_EMIT_TORCHTITAN, LOCAL ",rope_scaling=yarn,rope_factor=2", "dgx-h100:1", "stack=fsdp2",
    "model rope_scaling: " },
  { PLAN_EMIT_TORCHTITAN, LOCAL ",qk_norm=on,rope_scaling=llama3,rope_original=8192", "dgx-h100:1",
    "stack=fsdp2", "model rope_scaling: " },
  { PLAN_EMIT_MEGATRON, LOCAL ",activation=relu,gated=off", "dgx-h100:1", "",
    "model activation, gated: " },
  { PLAN_EMIT_MEGATRON, DENSE, "dgx-h100:1", "stack=fsdp2", "stack=fsdp2: " },
  { PLAN_EMIT_MEGATRON, DENSE, "dgx-h100:1",
    "stack=megatron strategy=no_shard overlap_param_gather=off", "no_shard gathers nothing" },
  { PLAN_EMIT_MEGATRON_FSDP, DENSE, "dgx-h100:1", DDP, "stack=megatron: " },
  { PLAN_EMIT_MEGATRON_FSDP, DENSE, "dgx-h100:1", "stack=native", "stack=native: " },
  { PLAN_EMIT_MEGATRON_FSDP, DENSE, "dgx-h100:1", "comm_unit=1000",
    "comm_unit: the call takes none" },
  { PLAN_EMIT_MEGATRON_FSDP, DENSE, "dgx-h100:1", "sharp=ib", "sharp: " },
  { PLAN_EMIT_MEGATRON_FSDP, DENSE, "dgx-h100:1", "precision_aware=on offload_optimizer=0.5",
    "offload_optimizer: " },
  { PLAN_EMIT_MEGATRON_FSDP, DENSE, "dgx-h100:1", "offload_layers=2", "offload_layers: " },
  { PLAN_EMIT_MEGATRON_FSDP, DENSE, "dgx-h100:1", "offload_modules=core_attn",
    "offload_modules: " },
  { PLAN_EMIT_MEGATRON_FSDP, DENSE, "dgx-h100:1", "nan_check=loss", "nan_check=loss: " },
};

START_TEST (what_cannot_be_said_is_named)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  ck_assert_msg (
      case_init (&c, refusals[_i].model, refusals[_i].cluster, refusals[_i].fields, &error),
      "%s: %s", refusals[_i].fields, error ? error->message : "");
  g_autofree char *text = emit (&c, refusals[_i].kind, PLAN_EMIT_RUNTIME_OF_STACK, &error);
  ck_assert_msg (!text, "%s", refusals[_i].reason);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED));
  ck_assert_msg (strstr (error->message, refusals[_i].reason) != NULL, "%s", error->message);
}
END_TEST

START_TEST (a_cpu_has_no_megatron)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  ck_assert (case_init (&c, LOCAL, "dgx-h100:1", "", &error));
  c.cluster->kind = PLAN_DEVICE_CPU;
  g_autofree char *text = emit (&c, PLAN_EMIT_MEGATRON, PLAN_EMIT_RUNTIME_OF_STACK, &error);
  ck_assert (!text && strstr (error->message, "cluster dgx-h100: has no GPUs"));
}
END_TEST

/* Values that no rule allows yet are named, too. */
START_TEST (what_is_not_built_is_named)
{
  static const struct
  {
    PlanField field;
    gint64 value;
    const char *reason;
    gboolean is_call; /* in the call of fully_shard alone; otherwise in both */
  } unbuilt[] = { { PLAN_UNIT, PLAN_UNIT_BLOCK, "unit=block: ", FALSE },
                  { PLAN_FUSED_MASTERS, PLAN_FUSED_MASTERS_ON, "fused_masters=on: ", FALSE },
                  { PLAN_EP, 2, "ep: ", TRUE } };
  static const PlanEmitKind kinds[] = { PLAN_EMIT_MEGATRON_FSDP, PLAN_EMIT_MEGATRON };
  for (guint i = 0; i < G_N_ELEMENTS (unbuilt); i++)
    for (guint k = 0; k < (unbuilt[i].is_call ? 1 : 2); k++)
      {
        g_auto (Case) c = { 0 };
        g_autoptr (GError) error = NULL;
        ck_assert (case_init (&c, DENSE, "dgx-h100:1", "", &error));
        c.of->plan.value[unbuilt[i].field] = unbuilt[i].value; /* rules would refuse the value */
        g_autofree char *text = emit (&c, kinds[k], PLAN_EMIT_RUNTIME_OF_STACK, &error);
        ck_assert_msg (!text && strstr (error->message, unbuilt[i].reason), "%s",
                       unbuilt[i].reason);
      }
}
END_TEST

/* Files are written for the version that is modelled. */
START_TEST (versions_agree)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  ck_assert (case_init (&c, DENSE, "dgx-h100:1", "", &error));
  g_autofree char *text = emit (&c, PLAN_EMIT_MEGATRON, PLAN_EMIT_RUNTIME_OF_STACK, &error);
  ck_assert (strstr (text, c.of->stack->source));
}
END_TEST

static void
assert_identity (const Case *c, const char *text)
{
  g_auto (PlanMegatron) read = { 0 };
  g_autoptr (GError) error = NULL;
  Plan plan;
  ck_assert_msg (plan_megatron_parse (text, "emitted", 0, &read, &error), "%s", text);
  /* No flag gives the length of documents. */
  read.plan.value[PLAN_DOC_TOKENS] = c->of->plan.value[PLAN_DOC_TOKENS];
  ck_assert_int_eq (strstr (text, "--dataloader-inter-document-masking") != NULL,
                    c->of->plan.value[PLAN_DOC_TOKENS] > 0);
  ck_assert_msg (plan_resolve (&read.plan, c->model, c->cluster, &plan, &error), "%s: %s",
                 error->message, text);
  g_autofree char *a = plan_print (&c->of->plan), *b = plan_print (&plan);
  ck_assert_str_eq (a, b);
  ck_assert_uint_eq (plan_megatron_count (&read, PLAN_MEGATRON_ERROR), 0);
}

/* Every field with each of its values is read back, or named. A comment has NCCL's version. */
START_TEST (no_value_is_lost)
{
  static const char *const bases[] = { "",
                                       "strategy=no_shard",
                                       "compute=fp8-delayed",
                                       "recompute=full",
                                       "recompute=selective",
                                       "dp_outer=2",
                                       "precision_aware=on",
                                       "tp=2",
                                       "nccl_ub=on",
                                       "stack=megatron strategy=optim",
                                       "stack=megatron strategy=optim pp=2",
                                       "stack=megatron strategy=optim pp=2 vpp=2",
                                       "stack=megatron strategy=no_shard" };
  static const char *const layouts[]
      = { "Et*20|t*12L", "Et*7|t*9|t*9|t*7L", "Et|t*29|t|tL", "Et*2|t|t*28|tL" };
  const PlanField field = (PlanField)_i;
  const char *const *names = plan_field_names (field);
  const gboolean is_share = field == PLAN_OFFLOAD_OPTIMIZER || field == PLAN_HIDDEN_DROPOUT
                            || field == PLAN_ATTENTION_DROPOUT;
  guint n_said = 0;
  for (guint b = 0; field != PLAN_NCCL && b < G_N_ELEMENTS (bases); b++)
    for (guint v = 0; v < (names ? g_strv_length ((char **)names) : 4); v++)
      {
        g_auto (Case) c = { 0 };
        g_autoptr (GError) error = NULL;
        g_autofree char *value = names                     ? g_strdup (names[v])
                                 : field == PLAN_PP_LAYOUT ? g_strdup (layouts[v])
                                 : field == PLAN_MOE_CAPACITY || field == PLAN_MOE_AUX_LOSS
                                     ? g_strdup ("none")
                                 : is_share ? g_strdup_printf ("0.%u", v + 1)
                                            : g_strdup_printf ("%u", 1u << v);
        g_autofree char *fields
            = g_strdup_printf ("%s %s=%s", bases[b], plan_field_name (field), value);
        if (!case_init (&c, DENSE, "dgx-h100:2", fields, &error))
          continue;
        g_autofree char *text = emit (&c, PLAN_EMIT_MEGATRON, PLAN_EMIT_RUNTIME_OF_STACK, &error);
        if (text)
          assert_identity (&c, text);
        else
          ck_assert_msg (strstr (error->message, plan_field_name (field)) != NULL, "%s: %s", fields,
                         error->message);
        n_said += text != NULL;
      }
  ck_assert_msg (n_said > 0 || field == PLAN_NCCL, "%s: nothing was written",
                 plan_field_name (field));
}
END_TEST

/* Checks that the version has every flag of a command line. */
static void
assert_flags_known (const char *text)
{
  g_auto (GStrv) words = g_strsplit_set (text, " \n\"", -1);
  gboolean is_comment = FALSE, is_launcher = FALSE;
  for (char **word = words; *word; word++)
    {
      is_launcher = is_launcher || strcmp (*word, "torchrun") == 0;
      is_launcher = is_launcher && strcmp (*word, "pretrain_gpt.py") != 0;
      is_comment = strcmp (*word, "#") == 0;
      if (is_comment || is_launcher || !g_str_has_prefix (*word, "--"))
        continue;
      const PlanMegatronFlagInfo info = plan_megatron_flag_find (*word + 2);
      ck_assert_msg (info.class != PLAN_MEGATRON_CLASS_UNKNOWN
                         && info.class != PLAN_MEGATRON_CLASS_REFUSED,
                     "%s", *word);
    }
}

/* The shipped models without experts that Megatron-LM has no flags for. */
static const char *const not_megatrons[]
    = { "gemma-7b",   "gemma2-2b",  "gemma2-9b",    "gemma2-27b", "gemma3-1b", "gemma3-4b",
        "gemma3-12b", "gemma3-27b", "gpt-neox-20b", "mpt-7b",     "glm4-9b",   NULL };

START_TEST (shipped_models_are_written)
{
  const char *const name = plan_model_presets ()[_i];
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *text = case_init (&c, name, "dgx-h100:1", "seq=128 gbs=8", &error)
                              ? emit (&c, PLAN_EMIT_TORCHRUN, PLAN_EMIT_RUNTIME_OF_STACK, &error)
                              : NULL;
  ck_assert_msg (c.model->experts > 0 || (text != NULL) != g_strv_contains (not_megatrons, name),
                 "%s: %s", name, error ? error->message : "is written");
  if (!text)
    return;
  g_auto (PlanMegatron) read = { 0 };
  assert_flags_known (text);
  assert_identity (&c, text);
  ck_assert (plan_megatron_parse (text, name, 0, &read, &error));
  g_autofree char *other = plan_megatron_shape_compare (&read.shape, c.model, &error);
  ck_assert_msg (!other && !error, "%s: %s", name, other ? other : error->message);
}
END_TEST

/* A plan for experts, which is not resolved by every version, and what its command line has. */
static const struct
{
  const char *model, *fields, *flags;
} of_experts[] = {
  { "mixtral-8x7b", "ep=8",
    "--num-experts 8 --moe-ffn-hidden-size 14336 --moe-router-topk 2 "
    "--moe-router-score-function softmax --expert-model-parallel-size 8 "
    "--expert-tensor-parallel-size 1 --moe-grouped-gemm --moe-permute-fusion "
    "--moe-token-dispatcher-type alltoall --moe-router-dtype fp32" },
  { "mixtral-8x7b", "ep=8 moe_capacity=1.25 moe_pad_to_capacity=on moe_drop=position",
    "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity "
    "--moe-token-drop-policy position" },
  { "mixtral-8x7b", "ep=8 moe_capacity=1",
    "--moe-expert-capacity-factor 1 !--moe-pad-expert-input-to-capacity "
    "!--moe-token-drop-policy" },
  { "mixtral-8x22b", "tp=2 sp=on ep=4 etp=2 moe_permute_fusion=off router_dtype=bf16",
    "--expert-tensor-parallel-size 2 !--moe-permute-fusion !--moe-router-dtype" },
  { "qwen2-57b-a14b", "ep=8 moe_grouped_gemm=off moe_dispatcher=allgather",
    "--moe-shared-expert-intermediate-size 20480 --moe-shared-expert-gate "
    "--moe-router-pre-softmax !--moe-grouped-gemm --moe-token-dispatcher-type allgather" },
  { "qwen3-30b-a3b", "ep=8 moe_dispatcher=hybridep ep_overlap=on moe_router_fusion=on",
    "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
    "--overlap-moe-expert-parallel-comm --moe-router-fusion --kv-channels 128 --qk-layernorm" },
  { "qwen3-235b-a22b", "ep=8 moe_dispatcher=deepep stack=megatron strategy=optim ep_overlap=on",
    "--moe-flex-dispatcher-backend deepep CUDA_DEVICE_MAX_CONNECTIONS=32" },
  { "qwen3-coder-480b-a35b", "ep=8",
    "--num-experts 160 --moe-ffn-hidden-size 2560 --moe-router-topk 8 --qk-layernorm" },
  { "deepseek-v2-lite", "ep=8 stack=megatron strategy=optim",
    "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 "
    "--v-head-dim 128 --qk-layernorm !--q-lora-rank !--kv-channels !--group-query-attention "
    "--moe-router-pre-softmax --moe-layer-freq --rotary-scaling-factor 40 --mscale 0.707" },
  { "deepseek-v2", "ep=8",
    "--q-lora-rank 1536 --moe-router-num-groups 8 "
    "--moe-router-group-topk 3 --moe-router-topk-scaling-factor 16" },
  { "deepseek-v3", "ep=8 moe_shared_overlap=on",
    "--moe-router-score-function sigmoid --moe-router-enable-expert-bias --mtp-num-layers 1 "
    "--moe-shared-expert-overlap --moe-router-topk-scaling-factor 2.5 --moe-layer-freq" },
  { "llama4-maverick", "ep=8", "--no-rope-freq --moe-apply-probs-on-input !--qk-l2-norm" },
  { "kimi-k2", "ep=8", "--num-experts 384 !--moe-router-num-groups --rotary-scaling-factor 32" },
  { "glm-4.5", "ep=8", "--add-qkv-bias --rotary-percent 0.5 --moe-router-score-function sigmoid" },
  { "glm-4.5-air", "ep=8", "--num-experts 128" },
};

/* Checks that text has `words`, and has none of those behind !. */
static void
assert_words (const char *text, const char *words)
{
  g_auto (GStrv) all = g_strsplit (words, " ", -1);
  for (char **word = all; *word; word++)
    {
      const gboolean is_absent = **word == '!';
      ck_assert_msg ((strstr (text, *word + is_absent) == NULL) == is_absent, "%s: %s", *word,
                     text);
    }
}

/* Whatever this version models of it. */
static void
case_init_unchecked (Case *self, const char *model, char *fields)
{
  Plan plan;
  self->model = plan_model_new (model, NULL);
  self->cluster = plan_cluster_new ("dgx-h100:1", NULL);
  ck_assert (self->model && plan_parse (g_strdelimit (fields, " ", '\n'), "test", &plan, NULL));
  self->of = g_new0 (PlanCase, 1);
  *self->of = (PlanCase){ .model = self->model,
                          .cluster = self->cluster,
                          .plan = plan,
                          .stack = plan_stack_of (&plan, self->cluster->kind, NULL) };
}

START_TEST (experts_are_written)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  Plan plan;
  g_autofree char *fields
      = g_strconcat ("gbs=128 mbs=1 seq=128 sp=off ", of_experts[_i].fields, NULL);
  const gboolean is_split = strstr (fields, "sp=on") != NULL;
  char *const first = is_split ? strstr (fields, "sp=off ") : NULL;
  if (first) /* the flag is given once */
    memset (first, ' ', strlen ("sp=off "));
  case_init_unchecked (&c, of_experts[_i].model, fields);
  g_autofree char *text = emit (&c, PLAN_EMIT_TORCHRUN, PLAN_EMIT_RUNTIME_OF_STACK, &error);
  ck_assert_msg (text != NULL, "%s", error ? error->message : "");
  assert_flags_known (text);
  assert_words (text, of_experts[_i].flags);
  g_auto (PlanMegatron) read = { 0 };
  ck_assert_msg (plan_megatron_parse (text, "emitted", 0, &read, &error), "%s", text);
  ck_assert_uint_eq (plan_megatron_count (&read, PLAN_MEGATRON_ERROR), 0);
  plan = read.plan;
  if (!is_split)
    plan.value[PLAN_SP] = PLAN_SP_OFF;
  g_autofree char *a = plan_print (&c.of->plan), *b = plan_print (&plan);
  ck_assert_str_eq (a, b);
  g_autofree char *other = plan_megatron_shape_compare (&read.shape, c.model, &error);
  ck_assert_msg (!other && !error, "%s", other ? other : error->message);
}
END_TEST

/* The same for torchtitan and Megatron-Bridge, with their messages where they cannot. */
static const struct
{
  const char *model, *fields, *words, *reason;
} of_files[] = {
  { "mixtral-8x7b", "stack=megatron-fsdp ep=8 router_dtype=bf16",
    "num_moe_experts=8, moe_ffn_hidden_size=14336, moe_router_topk=2, get_gpt_decoder_block_spec "
    "cfg.model.expert_model_parallel_size cfg.model.moe_grouped_gemm moe_router_dtype "
    "!moe_shared_expert_gate !moe_flex_dispatcher_backend",
    NULL },
  { "qwen2-57b-a14b", "stack=megatron strategy=optim ep=8 moe_dispatcher=hybridep",
    "moe_shared_expert_intermediate_size=20480, moe_shared_expert_gate=True, "
    "moe_router_pre_softmax=True, moe_flex_dispatcher_backend",
    NULL },
  { "glm-4.5-air", "stack=megatron strategy=optim ep=8",
    "moe_router_score_function=\"sigmoid\", moe_router_enable_expert_bias=True, mtp_num_layers=1,",
    NULL },
  { "deepseek-v3", "stack=megatron-fsdp ep=8", "MLAModelProvider rope_type=\"yarn\",", NULL },
  { "gpt-oss-20b", "stack=megatron", "yarn_correction_range_round_to_int=False,", NULL },
  { "mixtral-8x7b", "stack=megatron-fsdp ep=8 ep_overlap=on", NULL, "ep_overlap=on: a recipe" },
  { "qwen3-30b-a3b", "stack=fsdp2 ep=8",
    "make_moe_config, num_experts=128, top_k=8, score_func=\"softmax\", route_norm=True, "
    "load_balance_coeff=None, comm_backend=\"standard\", expert_parallel_degree=8, "
    "state_dict_adapter=Qwen3StateDictAdapter, post_optimizer_build_fn=None, !num_expert_groups",
    NULL },
  { "mixtral-8x7b", "stack=fsdp2 ep=4 moe_dispatcher=hybridep moe_imbalance=1.25",
    "Qwen3TransformerBlock !qk_norm= comm_backend=\"hybridep\", moe_imbalance=1.25 "
    "state_dict_adapter=None,",
    NULL },
  { "layers=8,hidden=64,ffn=128,heads=4,vocab=256,max_seq=128,experts=8,topk=2,expert_ffn=32,"
    "shared_ffn=32,dense_layers=1,moe_every=2,router_score=sigmoid,router_bias=on,router_groups=4,"
    "router_group_topk=2,router_scale=2.5",
    "stack=fsdp2 ep=2 moe_dispatcher=deepep",
    "score_func=\"sigmoid\", route_scale=2.5, num_expert_groups=4, num_limited_groups=2, "
    "shared_experts=make_ffn_config( load_balance_coeff=1e-3, "
    "post_optimizer_build_fn=register_moe_load_balancing_hook,",
    NULL },
  { "deepseek-v2-lite,rope_mscale_all=0", "stack=fsdp2 ep=8", NULL,
    "rope_mscale_all alike; model of another kind: use stack=megatron-fsdp or megatron" },
  { "qwen2-57b-a14b", "stack=fsdp2 ep=8", NULL, "model shared_gate, expert_bias, sinks" },
};

START_TEST (experts_are_in_files)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  const PlanEmitKind kind
      = strstr (of_files[_i].fields, "fsdp2") ? PLAN_EMIT_TORCHTITAN : PLAN_EMIT_BRIDGE;
  g_autofree char *fields
      = g_strconcat ("gbs=128 mbs=1 seq=128 sp=off ", of_files[_i].fields, NULL);
  case_init_unchecked (&c, of_files[_i].model, fields);
  g_autofree char *text = emit (&c, kind, PLAN_EMIT_RUNTIME_OF_STACK, &error);
  if (of_files[_i].reason)
    ck_assert_msg (error && strstr (error->message, of_files[_i].reason), "%s",
                   error ? error->message : text);
  else
    {
      ck_assert_msg (text != NULL, "%s", error ? error->message : "");
      assert_words (text, of_files[_i].words);
    }
}
END_TEST

START_TEST (every_model_with_experts_is_written)
{
  for (const char *const *name = plan_model_presets (); *name; name++)
    {
      g_autoptr (PlanModel) model = plan_model_new (*name, NULL);
      gboolean is_there = !model->experts || model->sinks || model->qk_l2_norm == PLAN_QK_L2_ROPE
                          || model->qk_norm == PLAN_QK_NORM_FULL || model->delta.attn_every > 0
                          || *model->pattern.of;
      for (guint i = 0; i < G_N_ELEMENTS (of_experts); i++)
        is_there = is_there || g_str_equal (of_experts[i].model, *name);
      ck_assert_msg (is_there, "%s", *name);
    }
}
END_TEST

START_TEST (rare_flags_are_known)
{
  static const char *const all[]
      = { "offload_modules=core_attn+attn_proj cuda_graph=on sharp=nvl+ib",
          "compute=fp8-delayed param_gather=fp8 keep_transpose=on nccl_ub=on fine_grained=on",
          "compute=nvfp4 precision_aware=on exp_avg=bf16 exp_avg_sq=fp8 offload_optimizer=0.5",
          "dp_outer=2 outer_strategy=optim comm_unit=1000 recompute=full optimizer=sgd",
          "double_buffer=max_pool ag_group=on deterministic=on ce_fusion=off tp=2 compute=fp16",
          "recompute=selective recompute_modules=mlp+layernorm grad_accum_fusion=on",
          DDP "dp_outer=2 tp=2 tp_overlap=ub compute=fp8-delayed param_gather=fp8 sharp=ib",
          DDP "reduce_algo=a2a main_grads=bf16 grad_comm=bf16 precision_aware=on main_params=fp16",
          DDP "overlap_grad_reduce=off overlap_param_gather=off compute=fp16",
          "stack=megatron strategy=no_shard compute=fp32 recompute=full" };
  for (guint i = 0; i < G_N_ELEMENTS (all); i++)
    {
      g_auto (Case) c = { 0 };
      g_autoptr (GError) error = NULL;
      ck_assert_msg (case_init (&c, DENSE, "dgx-b200:2", all[i], &error), "%s: %s", all[i],
                     error ? error->message : "");
      g_autofree char *text = emit (&c, PLAN_EMIT_TORCHRUN, PLAN_EMIT_RUNTIME_OF_STACK, &error);
      ck_assert_msg (text != NULL, "%s: %s", all[i], error ? error->message : "");
      assert_flags_known (text);
      assert_identity (&c, text);
    }
}
END_TEST

/* Megatron-LM takes no sequence longer than its bound on positions, which is none for rope. */
START_TEST (long_sequences_raise_the_bound)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  ck_assert (case_init (&c, DENSE, "dgx-h100:1", "seq=16384", &error));
  g_autofree char *text = emit (&c, PLAN_EMIT_TORCHRUN, PLAN_EMIT_RUNTIME_OF_STACK, &error);
  ck_assert (strstr (text, "--max-position-embeddings 16384 ") != NULL);
  assert_identity (&c, text);
}
END_TEST

/* The three formats are always given: their defaults changed between versions. */
START_TEST (formats_are_always_said)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  ck_assert (case_init (&c, DENSE, "dgx-h100:1", "main_params=auto main_grads=bf16 grad_comm=auto",
                        &error));
  g_autofree char *text = emit (&c, PLAN_EMIT_TORCHRUN, PLAN_EMIT_RUNTIME_OF_STACK, &error);
  ck_assert (strstr (text, "--megatron-fsdp-main-params-dtype auto ")
             && strstr (text, "--megatron-fsdp-main-grads-dtype bf16 ")
             && strstr (text, "--megatron-fsdp-grad-comm-dtype bf16 "));
}
END_TEST

/* Megatron-LM's megatron_fsdp/fully_shard.py at d98e8a64: what fully_shard takes. */
static const char *const arguments[] = { "module",
                                         "optimizer",
                                         "device_mesh",
                                         "dp_shard_dim",
                                         "dp_outer_dim",
                                         "tp_dim",
                                         "hybrid_fsdp_group",
                                         "hybrid_fsdp_expt_group",
                                         "expt_device_mesh",
                                         "fsdp_group_ag",
                                         "expt_fsdp_group_ag",
                                         "fsdp_unit_modules",
                                         "zero_dp_strategy",
                                         "outer_dp_sharding_strategy",
                                         "device",
                                         "init_model_with_meta_device",
                                         "mixed_precision_policy",
                                         "overlap_grad_reduce",
                                         "overlap_param_gather",
                                         "sync_model_each_microbatch",
                                         "preproc_state_dict_for_dcp_ckpt",
                                         "report_nan_in_param_grad",
                                         "average_in_collective",
                                         "disable_bucketing",
                                         "calculate_per_token_loss",
                                         "keep_fp8_transpose_cache",
                                         "nccl_ub",
                                         "fsdp_double_buffer",
                                         "fsdp_db_use_persist_buf_on_alloc_fail",
                                         "disable_symmetric_registration",
                                         "enable_fine_grained_param_gather",
                                         "use_decoupled_grad",
                                         "cuda_graph_mode",
                                         "maxpool_double_buffer",
                                         NULL };

static const struct
{
  const char *fields, *said;
} calls[] = {
  { "", "overlap_grad_reduce=True" },
  { "", "sync_model_each_microbatch=False" },
  { "", "main_params_dtype=torch.float32" },
  { "main_params=auto", "main_params_dtype=None" },
  { "grad_comm=bf16", "grad_comm_dtype=torch.bfloat16" },
  { "strategy=optim", "zero_dp_strategy=\"optim\"" },
  { "strategy=no_shard", "fsdp_unit_modules=None" },
  { "sync_every_micro_batch=on", "sync_model_each_microbatch=True" },
  { "per_token_loss=off", "calculate_per_token_loss=False" },
  { "nccl_ub=on", "fsdp_double_buffer=True" },
  { "double_buffer=max_pool", "maxpool_double_buffer=True" },
  { "precision_aware=on", "use_decoupled_grad=True" },
  { "cuda_graph=on", "cuda_graph_mode=True" },
  { "nan_check=params", "report_nan_in_param_grad=True" },
  { "dp_outer=2 outer_strategy=optim", "outer_dp_sharding_strategy=\"optim\"" },
  { "dp_outer=2", "(2, 8, 1)" },
  { "cp=2 tp=2", "(8, 2)" },
  { "ag_group=on", "gathers = torch.distributed.new_group()" },
  { "ag_group=on tp=2", "[list(range(i, 16, 2)) for i in range(2)]" },
  { "fine_grained=on", "fully_shard_optimizer(optimizer)" },
  { "fine_grained=on", "enable_fine_grained_param_gather=True" },
  { "compute=fp8-delayed param_gather=fp8 keep_transpose=on", "keep_fp8_transpose_cache=True" },
};

START_TEST (calls_take_what_there_is)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  ck_assert_msg (case_init (&c, DENSE, "dgx-h100:2", calls[_i].fields, &error), "%s",
                 error ? error->message : "");
  g_autofree char *text = emit (&c, PLAN_EMIT_MEGATRON_FSDP, PLAN_EMIT_RUNTIME_OF_STACK, &error);
  ck_assert_msg (text && strstr (text, calls[_i].said), "%s", text ? text : error->message);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (char **line = lines; *line; line++)
    {
      const gboolean is_argument
          = g_str_has_prefix (*line, "        ") && (*line)[8] != ' ' && strchr (*line, '=');
      g_autofree char *name = is_argument ? g_strndup (*line + 8, strcspn (*line + 8, "=")) : NULL;
      ck_assert_msg (!name || strcmp (name, "mesh_dim_names") == 0
                         || g_strv_contains (arguments, name),
                     "%s", *line);
    }
}
END_TEST

/* The moments are made before the first step, as many tensors as there are weights. */
START_TEST (narrow_moments_are_made)
{
  static const struct
  {
    const char *fields;
    gboolean are_made;
  } plans[] = {
    { "stack=fsdp2 exp_avg=bf16 exp_avg_sq=bf16 compute=fp8-tensorwise", TRUE },
    { "stack=fsdp2", FALSE },
    { "stack=fsdp2 optimizer=sgd", FALSE },
    { "stack=fsdp2 main_params=bf16 main_grads=bf16 exp_avg=bf16 exp_avg_sq=bf16", FALSE },
  };
  for (guint i = 0; i < G_N_ELEMENTS (plans); i++)
    {
      g_auto (Case) c = { 0 };
      g_autoptr (GError) error = NULL;
      ck_assert_msg (case_init (&c, "gemma2-9b", "dgx-h100:1", plans[i].fields, &error), "%s",
                     error ? error->message : "");
      g_autofree char *text = emit (&c, PLAN_EMIT_FSDP2, PLAN_EMIT_RUNTIME_OF_STACK, &error);
      ck_assert_msg (text != NULL, "%s", error ? error->message : "");
      ck_assert_int_eq (strstr (text, "torch.zeros_like(p, dtype=torch.bfloat16)") != NULL,
                        plans[i].are_made);
      ck_assert (strstr (text, "fused=True") != NULL);
    }
}
END_TEST

START_TEST (a_job_is_by_its_stack)
{
  static const struct
  {
    const char *stack;
    PlanEmitRuntime runtime;
    const char *starts;
  } jobs[] = {
    { "stack=megatron-fsdp", PLAN_EMIT_RUNTIME_OF_STACK, "pretrain_gpt.py" },
    { "stack=megatron-fsdp", PLAN_EMIT_RUNTIME_FSDPLAN, "fsdplan run --plan" },
    { "stack=megatron-fsdp", PLAN_EMIT_RUNTIME_MEGATRON, "pretrain_gpt.py" },
    { "stack=native", PLAN_EMIT_RUNTIME_OF_STACK, "fsdplan run --plan" },
    { "stack=native", PLAN_EMIT_RUNTIME_FSDPLAN, "#SBATCH --ntasks-per-node=8\n" },
    { "stack=native", PLAN_EMIT_RUNTIME_OF_STACK, "#SBATCH --nodes=4\n" },
    { "stack=native", PLAN_EMIT_RUNTIME_MEGATRON, NULL },
    { "stack=native", PLAN_EMIT_RUNTIME_OF_STACK, " --backend cuda " },
    { "stack=fsdp2", PLAN_EMIT_RUNTIME_OF_STACK, "-m torchtitan.train --module torchtitan_plan" },
    { "stack=nanotron strategy=optim", PLAN_EMIT_RUNTIME_OF_STACK, "run_train.py --config-file" },
    { "stack=fsdp1", PLAN_EMIT_RUNTIME_OF_STACK, NULL },
  };
  for (guint i = 0; i < G_N_ELEMENTS (jobs); i++)
    {
      g_auto (Case) c = { 0 };
      g_autoptr (GError) error = NULL;
      ck_assert (case_init (&c, DENSE, "dgx-h100:4", jobs[i].stack, &error));
      g_autofree char *text = emit (&c, PLAN_EMIT_SLURM, jobs[i].runtime, &error);
      ck_assert_msg (jobs[i].starts ? text && strstr (text, jobs[i].starts) : !text, "job %u", i);
    }
}
END_TEST

START_TEST (each_stack_has_its_kind)
{
  static const struct
  {
    const char *cluster, *fields;
    PlanEmitKind kind;
  } natural[] = {
    { "dgx-h100:1", "", PLAN_EMIT_MEGATRON },
    { "dgx-h100:1", DDP, PLAN_EMIT_MEGATRON },
    { "dgx-h100:1", "stack=fsdp2", PLAN_EMIT_TORCHTITAN },
    { "dgx-h100:1", "stack=fsdp1", PLAN_EMIT_FSDP1 },
    { "dgx-h100:1", "stack=nanotron strategy=optim", PLAN_EMIT_NANOTRON },
    { "dgx-h100:1", "stack=native", PLAN_EMIT_MPIRUN },
    { "dgx-h100:2", "stack=native", PLAN_EMIT_SLURM },
  };
  for (guint i = 0; i < G_N_ELEMENTS (natural); i++)
    {
      g_auto (Case) c = { 0 };
      g_autoptr (GError) error = NULL;
      ck_assert (case_init (&c, DENSE, natural[i].cluster, natural[i].fields, &error));
      ck_assert_int_eq (plan_emit_kind_of (&c.of->plan, c.cluster), natural[i].kind);
      g_autofree char *text = emit (&c, natural[i].kind, PLAN_EMIT_RUNTIME_OF_STACK, &error);
      ck_assert_msg (text != NULL, "%s: %s", natural[i].fields, error ? error->message : "");
    }
}
END_TEST

START_TEST (words_are_checked)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL, other = NULL, third = NULL, fourth = NULL;
  PlanEmitKind kind;
  PlanEmitRuntime runtime;
  ck_assert (plan_emit_kind_parse ("megatron_fsdp", &kind, NULL)
             && kind == PLAN_EMIT_MEGATRON_FSDP);
  ck_assert (!plan_emit_kind_parse ("fully_shard", &kind, &fourth));
  ck_assert_str_eq (fourth->message, "--as: there is no 'fully_shard': Megatron-FSDP's is "
                                     "megatron_fsdp, PyTorch's fsdp2");
  ck_assert (!plan_emit_kind_parse ("slrm", &kind, &error));
  ck_assert_str_eq (error->message, "--as: there is no 'slrm': did you mean 'slurm'?");
  ck_assert (!plan_emit_runtime_parse ("megatrn", &runtime, &other));
  ck_assert_str_eq (other->message, "--runtime: there is no 'megatrn': did you mean 'megatron'?");
  ck_assert (case_init (&c, DENSE, "dgx-h100:1", "", NULL));
  g_autofree char *text = emit (&c, PLAN_EMIT_PLAN, PLAN_EMIT_RUNTIME_MEGATRON, &third);
  ck_assert (!text && g_error_matches (third, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_str_eq (third->message, "--runtime says what a job starts: it is for --as slurm");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("test-emit");
  TCase *tcase = tcase_create ("emit");
  const int n_presets = (int)g_strv_length ((char **)plan_model_presets ());
  tcase_add_loop_test (tcase, what_cannot_be_said_is_named, 0, G_N_ELEMENTS (refusals));
  tcase_add_test (tcase, a_cpu_has_no_megatron);
  tcase_add_test (tcase, what_is_not_built_is_named);
  tcase_add_test (tcase, versions_agree);
  tcase_add_loop_test (tcase, no_value_is_lost, 0, PLAN_N_FIELDS);
  tcase_add_loop_test (tcase, shipped_models_are_written, 0, n_presets);
  tcase_add_loop_test (tcase, experts_are_written, 0, G_N_ELEMENTS (of_experts));
  tcase_add_test (tcase, every_model_with_experts_is_written);
  tcase_add_loop_test (tcase, experts_are_in_files, 0, G_N_ELEMENTS (of_files));
  tcase_add_test (tcase, rare_flags_are_known);
  tcase_add_test (tcase, long_sequences_raise_the_bound);
  tcase_add_test (tcase, formats_are_always_said);
  tcase_add_loop_test (tcase, calls_take_what_there_is, 0, G_N_ELEMENTS (calls));
  tcase_add_test (tcase, narrow_moments_are_made);
  tcase_add_test (tcase, a_job_is_by_its_stack);
  tcase_add_test (tcase, each_stack_has_its_kind);
  tcase_add_test (tcase, words_are_checked);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
