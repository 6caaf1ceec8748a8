/* SPDX-License-Identifier: Apache-2.0 */
/* Errors are what Megatron-LM itself stops at: its arguments.py, transformer_config.py,
 * distributed_data_parallel_config.py and mcore_fsdp_adapter.py at d98e8a64 (2026-08-22). Warnings
 * are what runs but does something else than it seems to; "as read" means read in the source and
 * not seen to happen. */
#include "config.h"

#include "planner/megatron/megatron-rules.h"

#include <string.h>

#define F(id) PLAN_MEGATRON_##id
#define ON(id) plan_megatron_is_on (c->settings, F (id))
#define IS(id, value) plan_megatron_is (c->settings, F (id), value)
#define INT(id) plan_megatron_int (c->settings, F (id))
#define GIVEN(id) plan_megatron_is_given (c->settings, F (id))
#define HAS(id, word) plan_megatron_list_has (c->settings, F (id), word)

typedef struct
{
  const PlanMegatronSettings *settings;
  GPtrArray *notes;
  gint64 date;
  gboolean is_fsdp, is_full, is_quantised;
} Check;

static void
say (const Check *c, PlanMegatronSeverity severity, gboolean is_broken, PlanMegatronFlag flag,
     const char *text)
{
  const PlanMegatronSetting *const setting = &c->settings->of[flag];
  if (is_broken)
    plan_megatron_notes_add (c->notes, severity, setting->line,
                             c->settings->is_log ? plan_megatron_flag_key (flag)
                                                 : plan_megatron_flag_name (flag),
                             "%s", text);
}

static void
refuse (const Check *c, gboolean is_broken, PlanMegatronFlag flag, const char *text)
{
  say (c, PLAN_MEGATRON_ERROR, is_broken, flag, text);
}

static void
warn (const Check *c, gboolean is_broken, PlanMegatronFlag flag, const char *text)
{
  say (c, PLAN_MEGATRON_WARNING, is_broken, flag, text);
}

gboolean
plan_megatron_is_fsdp (const PlanMegatronSettings *settings)
{
  return plan_megatron_is_on (settings, F (MEGATRON_FSDP))
         || plan_megatron_is_on (settings, F (CUSTOM_FSDP));
}

static gboolean
environment_is (const Check *c, const char *name, const char *value)
{
  return c->settings->environment
         && g_strcmp0 (g_hash_table_lookup (c->settings->environment, name), value) == 0;
}

static gboolean
environment_has (const Check *c, const char *name, const char *part)
{
  const char *const value
      = c->settings->environment ? g_hash_table_lookup (c->settings->environment, name) : NULL;
  return value && strstr (value, part);
}

static void
check_fsdp (const Check *c)
{
  const gboolean is_v2 = INT (FSDP_VERSION) == 2;
  const gboolean shards_grads = c->is_full || IS (STRATEGY, "optim_grads");
  refuse (c, !IS (CKPT_FORMAT, "fsdp_dtensor"), F (CKPT_FORMAT),
          "Megatron-FSDP needs --ckpt-format fsdp_dtensor, which is not the default");
  refuse (c, environment_is (c, "CUDA_DEVICE_MAX_CONNECTIONS", "1"), F (MEGATRON_FSDP),
          "CUDA_DEVICE_MAX_CONNECTIONS=1 is refused with Megatron-FSDP: unset it");
  refuse (c, !IS (OPTIMIZER, "adam") && !IS (OPTIMIZER, "sgd"), F (OPTIMIZER),
          "Megatron-FSDP takes adam and sgd only");
  refuse (c, ON (TORCH_FSDP2), F (TORCH_FSDP2),
          "and --use-megatron-fsdp exclude each other: choose one");
  refuse (c, INT (PP) > 1, F (PP),
          "Megatron-FSDP has no pipeline axis: its mesh of all ranks would not factor (as read); "
          "use 1");
  refuse (c, c->is_full && GIVEN (WEIGHT_HASH), F (WEIGHT_HASH),
          "compares replicas of weights, which optim_grads_params does not have: remove it");
  refuse (c, ON (META_DEVICE) && IS (STRATEGY, "no_shard"), F (META_DEVICE),
          "is refused with --data-parallel-sharding-strategy no_shard: remove it");
  refuse (c, ON (GROUPED_WEIGHT) || ON (GROUPED_BIAS),
          ON (GROUPED_WEIGHT) ? F (GROUPED_WEIGHT) : F (GROUPED_BIAS),
          "is refused with Megatron-FSDP: remove it");
  refuse (c, ON (HYBRID_CP), F (HYBRID_CP), "is refused with Megatron-FSDP: remove it");
  warn (c, !is_v2 && !ON (DISTRIBUTED_OPTIMIZER), F (DISTRIBUTED_OPTIMIZER),
        "is missing: Megatron-FSDP switches it on and warns");
  warn (c, ON (CUSTOM_FSDP) && !ON (MEGATRON_FSDP), F (CUSTOM_FSDP),
        "is the old name, gone since 2025-08-21: write --use-megatron-fsdp");
  warn (c, !ON (OVERLAP_GRAD_REDUCE) && shards_grads, F (OVERLAP_GRAD_REDUCE),
        "is missing: ZeRO-2 and 3 overlap all the same, but embedding, final norm and output layer "
        "fall into one bucket, whose gradient stays allocated through the whole backward pass");
  warn (c, !ON (META_DEVICE) && c->is_full, F (META_DEVICE),
        "is missing: every rank builds the whole model before it is sharded");
  warn (c, INT (TP) > 1 || INT (CP) > 1, INT (TP) > 1 ? F (TP) : F (CP),
        "before Blackwell wants CUDA_DEVICE_MAX_CONNECTIONS=1, which Megatron-FSDP forbids: it "
        "overlaps less");
  warn (c, ON (GRAD_ACCUM_FUSION) && shards_grads, F (GRAD_ACCUM_FUSION),
        "is not given: fused accumulation, the default, needs Transformer Engine 2.10 here");
}

static void
check_fsdp_types (const Check *c)
{
  static const PlanMegatronFlag inert[]
      = { F (ACCUMULATE_FP32), F (REDUCE_BF16), F (MAIN_GRADS), F (MAIN_PARAMS) };
  for (guint i = 0; !c->settings->is_log && i < G_N_ELEMENTS (inert); i++)
    warn (c, c->date >= 20260701 && plan_megatron_is_given (c->settings, inert[i]), inert[i],
          "has no effect on Megatron-FSDP since 2026-07-01: use --megatron-fsdp-main-grads-dtype, "
          "--megatron-fsdp-grad-comm-dtype and --megatron-fsdp-main-params-dtype");
  warn (c,
        c->date < 20260701 && c->date >= 20260316 && !ON (REDUCE_BF16) && ON (BF16)
            && (GIVEN (FSDP_MAIN_GRADS) || GIVEN (FSDP_GRAD_COMM))
            && !(IS (FSDP_MAIN_GRADS, "fp32") && IS (FSDP_GRAD_COMM, "fp32")),
        GIVEN (FSDP_MAIN_GRADS) ? F (FSDP_MAIN_GRADS) : F (FSDP_GRAD_COMM),
        "is overruled by fp32 before 2026-07-01 unless --grad-reduce-in-bf16 is given");
  warn (c, IS (FSDP_MAIN_PARAMS, "bf16") && ON (BF16), F (FSDP_MAIN_PARAMS),
        "bf16 keeps a second bf16 copy of bf16 weights: auto is the choice that saves memory");
  refuse (c, c->is_quantised && IS (FSDP_MAIN_PARAMS, "auto"), F (FSDP_MAIN_PARAMS),
          "auto leaves quantised parameters without the main weights they are made from: use fp32");
  refuse (c, c->is_quantised && IS (STRATEGY, "no_shard"), F (STRATEGY),
          "no_shard has no buffer to quantise parameters into (as read): use optim_grads_params");
  warn (c, c->is_quantised && (IS (STRATEGY, "optim") || IS (STRATEGY, "optim_grads")),
        F (STRATEGY), "is not supported with quantised parameters: use optim_grads_params");
  warn (c, ON (FP4_PARAM), F (FP4_PARAM),
        "packed fp4 parameters do not fit Megatron-FSDP's buffers (as read): leave it out");
  warn (c, GIVEN (FP8) && !ON (FP8_PARAM), F (FP8),
        "without --fp8-param-gather keeps an unsharded fp8 copy of every linear layer on every "
        "rank (as read): add it");
  warn (c, ON (REUSE_GRAD_BUFFER), F (REUSE_GRAD_BUFFER),
        "is of the distributed optimizer: Megatron-FSDP switches it off");
}

static void
check_hybrid (const Check *c)
{
  const gboolean is_hybrid = INT (OPTIMIZER_INSTANCES) > 1;
  const gboolean shards_outer = IS (OUTER_STRATEGY, "optim");
  refuse (c, shards_outer && !c->is_full, F (OUTER_STRATEGY),
          "optim needs --data-parallel-sharding-strategy optim_grads_params");
  refuse (c, shards_outer && !is_hybrid, F (OUTER_STRATEGY),
          "optim with one optimizer instance uses a buffer that was never made (as read): set "
          "--num-distributed-optimizer-instances above 1, or leave it out");
  warn (c, shards_outer && is_hybrid && !ON (PER_TOKEN_LOSS), F (PER_TOKEN_LOSS),
        "is missing: with --outer-dp-sharding-strategy optim gradients are summed where they "
        "should be averaged (as read)");
  warn (c, is_hybrid && ON (AG_GROUP) && !shards_outer, F (AG_GROUP),
        "spans all data-parallel ranks while weights are sharded over the inner ones (as read): "
        "leave it out");
  warn (c, ON (AG_GROUP) && shards_outer, F (AG_GROUP),
        "is ignored with --outer-dp-sharding-strategy optim");
  warn (c,
        is_hybrid && !ON (OVERLAP_GRAD_REDUCE)
            && (IS (STRATEGY, "no_shard") || IS (STRATEGY, "optim")),
        F (OPTIMIZER_INSTANCES),
        "above 1 without --overlap-grad-reduce reduces over the inner group only (as read)");
}

static void
check_buffers (const Check *c)
{
  refuse (c, ON (MANUAL_REGISTRATION) && !(c->is_fsdp && ON (NCCL_UB)), F (MANUAL_REGISTRATION),
          "needs --use-megatron-fsdp and --use-nccl-ub");
  warn (c,
        ON (NCCL_UB)
            && (environment_has (c, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
                || environment_has (c, "PYTORCH_ALLOC_CONF", "expandable_segments:True")),
        F (NCCL_UB),
        "is refused with expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.11");
  if (!c->is_fsdp)
    return;
  const gboolean has_pool = ON (DOUBLE_BUFFER) || ON (NCCL_UB) || ON (MAX_POOL);
  warn (c, ON (NO_SYMMETRIC) && ON (NCCL_UB), F (NO_SYMMETRIC),
        "gives up symmetric kernels, which sum in fp32 what travels in bf16");
  warn (c, ON (PERSIST_ON_FAIL) && !has_pool, F (PERSIST_ON_FAIL),
        "acts only with --fsdp-double-buffer or --use-nccl-ub");
  warn (c, has_pool && IS (STRATEGY, "no_shard"), F (STRATEGY),
        "no_shard has no units, so double buffering does nothing");
  warn (c, has_pool && c->is_full && ON (FP8_PARAM) && IS (FP8_RECIPE, "blockwise"), F (FP8_RECIPE),
        "blockwise parameters with double buffering need more unit buffers at once than there are "
        "(as read): leave one out");
  refuse (c, has_pool && ON (EP_OVERLAP), F (EP_OVERLAP), "excludes double buffering");
  warn (c, ON (KEEP_TRANSPOSE) && !ON (FP8_PARAM), F (KEEP_TRANSPOSE),
        "acts only with --fp8-param-gather");
}

static void
check_overlap (const Check *c)
{
  refuse (c, ON (OVERLAP_PARAM_GATHER) && !ON (OVERLAP_GRAD_REDUCE), F (OVERLAP_PARAM_GATHER),
          "needs --overlap-grad-reduce");
  refuse (c, ON (OVERLAP_PARAM_GATHER) && !ON (DISTRIBUTED_OPTIMIZER) && !c->is_fsdp,
          F (OVERLAP_PARAM_GATHER), "needs --use-distributed-optimizer or --use-megatron-fsdp");
  refuse (c, ON (TP_COMM_OVERLAP) && !ON (SEQUENCE_PARALLEL), F (TP_COMM_OVERLAP),
          "needs --sequence-parallel");
  refuse (c, !c->is_fsdp && IS (CKPT_FORMAT, "fsdp_dtensor"), F (CKPT_FORMAT),
          "fsdp_dtensor is for --use-megatron-fsdp only");
  warn (c, !c->is_fsdp && GIVEN (STRATEGY) && !c->settings->is_log, F (STRATEGY),
        "acts only with --use-megatron-fsdp");
  warn (c, c->is_fsdp && !GIVEN (STRATEGY) && c->date < 20260401, F (STRATEGY),
        "is missing: before 2026-04-01 nothing is sharded without it");
  warn (c,
        !c->is_fsdp && !ON (TORCH_FSDP2) && !ON (EP_OVERLAP) && c->settings->environment
            && !environment_is (c, "CUDA_DEVICE_MAX_CONNECTIONS", "1")
            && (INT (TP) > 1 || INT (CP) > 1),
        INT (TP) > 1 ? F (TP) : F (CP),
        "before Blackwell is refused without CUDA_DEVICE_MAX_CONNECTIONS=1: export it");
  refuse (c, ON (TORCH_FSDP2) && !c->is_fsdp && ON (DISTRIBUTED_OPTIMIZER), F (TORCH_FSDP2),
          "excludes --use-distributed-optimizer");
  refuse (c, ON (TORCH_FSDP2) && !c->is_fsdp && ON (GRAD_ACCUM_FUSION), F (TORCH_FSDP2),
          "needs --no-gradient-accumulation-fusion");
}

static void
check_precision (const Check *c)
{
  const gboolean is_aware = ON (PRECISION_AWARE);
  refuse (c, ON (BF16) && ON (FP16), F (FP16), "and --bf16 exclude each other");
  refuse (c, ON (FP8_PARAM) && !GIVEN (FP8), F (FP8_PARAM), "needs --fp8-format");
  refuse (c, ON (FP8_PARAM) && !c->is_fsdp && !ON (DISTRIBUTED_OPTIMIZER) && !ON (TORCH_FSDP2),
          F (FP8_PARAM), "needs --use-distributed-optimizer, --use-megatron-fsdp or FSDP2");
  refuse (c, GIVEN (FP4) && GIVEN (FP8), F (FP4), "and --fp8-format exclude each other");
  refuse (c, ON (FP4_PARAM) && !GIVEN (FP4), F (FP4_PARAM), "needs --fp4-format");
  refuse (c, ON (FP8_OUTPUT) && !(GIVEN (FP8) && IS (FP8_RECIPE, "mxfp8")), F (FP8_OUTPUT),
          "needs --fp8-format and --fp8-recipe mxfp8");
  refuse (c, GIVEN (FP8) && ON (ENDS_BF16) && IS (FP8_RECIPE, "delayed"), F (ENDS_BF16),
          "is refused with --fp8-recipe delayed");
  warn (c, !GIVEN (FP8) && GIVEN (FP8_RECIPE) && !c->settings->is_log, F (FP8_RECIPE),
        "acts only with --fp8-format: this computes without fp8");
  refuse (c, is_aware && !IS (OPTIMIZER, "adam"), F (PRECISION_AWARE), "needs --optimizer adam");
  refuse (c, !is_aware && !(IS (EXP_AVG, "fp32") && IS (EXP_AVG_SQ, "fp32")),
          IS (EXP_AVG, "fp32") ? F (EXP_AVG_SQ) : F (EXP_AVG),
          "other than fp32 needs --use-precision-aware-optimizer");
  refuse (c, ON (OPTIMIZER_OFFLOAD) && !is_aware, F (OPTIMIZER_OFFLOAD),
          "needs --use-precision-aware-optimizer");
  refuse (c, ON (OPTIMIZER_OFFLOAD) && ON (FP8_PARAM) && !IS (FP8_RECIPE, "delayed"),
          F (OPTIMIZER_OFFLOAD), "with --fp8-param-gather needs --fp8-recipe delayed");
  warn (c, !ON (OPTIMIZER_OFFLOAD) && GIVEN (OFFLOAD_FRACTION) && !c->settings->is_log,
        F (OFFLOAD_FRACTION), "acts only with --optimizer-cpu-offload");
  refuse (c, ON (ACCUMULATE_FP32) && ON (BF16) && !IS (MAIN_GRADS, "fp32"), F (MAIN_GRADS),
          "must be fp32 with --accumulate-allreduce-grads-in-fp32");
  refuse (c, ON (DETERMINISTIC) && ON (CE_FUSION), F (DETERMINISTIC),
          "is refused with --cross-entropy-loss-fusion: remove one"); /* determinism.py */
  refuse (c, ON (CE_FUSION) && IS (CE_IMPL, "te") && c->date >= 20260603, F (CE_IMPL),
          "te is switched off for want of stability: use native"); /* PR #5115 */
}

static void
check_recompute (const Check *c)
{
  const gboolean of_experts = ON (MOE_LAYER_RECOMPUTE) && INT (NUM_EXPERTS) > 0;
  const gboolean selective = ON (RECOMPUTE_ACTIVATIONS) || IS (RECOMPUTE, "selective")
                             || (of_experts && !IS (RECOMPUTE, "full"));
  const gboolean full = !selective && IS (RECOMPUTE, "full");
  refuse (c, of_experts && full, F (MOE_LAYER_RECOMPUTE),
          "excludes full recompute, in which experts are: remove it");
  refuse (c, full && !GIVEN (RECOMPUTE_METHOD), F (RECOMPUTE),
          "full needs --recompute-method uniform or block");
  refuse (c, full && !GIVEN (RECOMPUTE_LAYERS), F (RECOMPUTE), "full needs --recompute-num-layers");
  refuse (c,
          full && GIVEN (RECOMPUTE_LAYERS)
              && (INT (RECOMPUTE_LAYERS) < 1 || INT (RECOMPUTE_LAYERS) > INT (NUM_LAYERS)),
          F (RECOMPUTE_LAYERS), "must be from 1 to --num-layers");
  refuse (c, selective && GIVEN (RECOMPUTE_METHOD), F (RECOMPUTE_METHOD),
          "is for full recompute; this one is selective");
  refuse (c, selective && GIVEN (RECOMPUTE_LAYERS), F (RECOMPUTE_LAYERS),
          "is for full recompute; this one is selective");
  warn (c,
        !c->settings->is_log && !full && !selective
            && (GIVEN (RECOMPUTE_METHOD) || GIVEN (RECOMPUTE_LAYERS) || GIVEN (RECOMPUTE_MODULES)),
        GIVEN (RECOMPUTE_METHOD)   ? F (RECOMPUTE_METHOD)
        : GIVEN (RECOMPUTE_LAYERS) ? F (RECOMPUTE_LAYERS)
                                   : F (RECOMPUTE_MODULES),
        "acts only with --recompute-granularity: nothing is recomputed");
  warn (c, full && GIVEN (RECOMPUTE_MODULES) && !c->settings->is_log, F (RECOMPUTE_MODULES),
        "acts only with --recompute-granularity selective");
  refuse (c,
          selective && GIVEN (FP8) && IS (FP8_RECIPE, "delayed")
              && (HAS (RECOMPUTE_MODULES, "layernorm") || HAS (RECOMPUTE_MODULES, "moe_act")),
          F (RECOMPUTE_MODULES), "layernorm and moe_act are refused with --fp8-recipe delayed");
  refuse (c, selective && HAS (RECOMPUTE_MODULES, "mla_up_proj") && !ON (MULTI_LATENT_ATTENTION),
          F (RECOMPUTE_MODULES), "mla_up_proj needs --multi-latent-attention");
  warn (c, selective && (!GIVEN (RECOMPUTE_MODULES) || HAS (RECOMPUTE_MODULES, "core_attn")),
        GIVEN (RECOMPUTE_MODULES)    ? F (RECOMPUTE_MODULES)
        : ON (RECOMPUTE_ACTIVATIONS) ? F (RECOMPUTE_ACTIVATIONS)
        : of_experts                 ? F (MOE_LAYER_RECOMPUTE)
                                     : F (RECOMPUTE),
        "recomputes core_attn, which saves almost nothing with fused attention");
  refuse (c, ON (DISTRIBUTE_SAVED) && !(full && INT (TP) > 1 && !ON (SEQUENCE_PARALLEL)),
          F (DISTRIBUTE_SAVED),
          "needs full recompute, tensor parallelism and no "
          "--sequence-parallel");
  refuse (c, ON (EP_OVERLAP) && full, F (EP_OVERLAP), "excludes full recompute");
  refuse (c, full && (IS (CUDA_GRAPH, "local") || IS (CUDA_GRAPH, "transformer_engine")),
          F (CUDA_GRAPH), "with full recompute must be full_iteration");
}

/* Checks which experts a token may go to, and their layout. */
static void
check_router (const Check *c)
{
  const gint64 experts = INT (NUM_EXPERTS), groups = INT (MOE_NUM_GROUPS);
  const gboolean is_softmax = IS (MOE_SCORE_FUNCTION, "softmax");
  refuse (c, INT (EP) > 1 && experts == 0, F (EP), "above 1 needs --num-experts");
  if (experts == 0)
    return;
  refuse (c, INT (EP) > 1 && experts % INT (EP) != 0, F (EP), "must divide --num-experts");
  refuse (c, ON (TORCH_FSDP2) && !c->is_fsdp && INT (EP) > 1, F (TORCH_FSDP2),
          "excludes expert parallelism");
  refuse (c, INT (TP) > 1 && !ON (SEQUENCE_PARALLEL), F (TP),
          "with experts needs --sequence-parallel: training without it stops");
  refuse (c, ON (ADD_BIAS_LINEAR) && (GIVEN (ETP) ? INT (ETP) : INT (TP)) > 1, F (NUM_EXPERTS),
          "whose biases are not disabled needs --expert-tensor-parallel-size 1");
  refuse (c, ON (MOE_EXPERT_BIAS) && is_softmax, F (MOE_EXPERT_BIAS),
          "needs --moe-router-score-function sigmoid or sqrtsoftplus");
  refuse (c, INT (MOE_ROUTER_TOPK) == 1 && is_softmax && !ON (MOE_PRE_SOFTMAX), F (MOE_ROUTER_TOPK),
          "1 needs --moe-router-pre-softmax");
  refuse (c, INT (MOE_GROUP_TOPK) > 0 && (groups == 0 || experts % groups != 0), F (MOE_GROUP_TOPK),
          "needs --moe-router-num-groups, which divides --num-experts");
  refuse (c, groups > 0 && INT (MOE_GROUP_TOPK) > groups, F (MOE_GROUP_TOPK),
          "must not be above --moe-router-num-groups");
}

/* Checks how tokens are sent, and what overlaps that. */
static void
check_dispatch (const Check *c)
{
  const gboolean selective = ON (RECOMPUTE_ACTIVATIONS) || IS (RECOMPUTE, "selective");
  const gboolean is_flex = IS (MOE_DISPATCHER, "flex"), gathers = IS (MOE_DISPATCHER, "allgather");
  const gint64 etp = GIVEN (ETP) ? INT (ETP) : INT (TP);
  if (INT (NUM_EXPERTS) == 0)
    return;
  refuse (c, is_flex && !IS (MOE_FLEX_BACKEND, "hybridep") && INT (EP) * etp == 1,
          F (MOE_DISPATCHER), "flex sends between ranks: it needs expert parallelism");
  refuse (c, ON (MOE_PAD_TO_CAPACITY) && !GIVEN (MOE_CAPACITY), F (MOE_PAD_TO_CAPACITY),
          "needs --moe-expert-capacity-factor");
  refuse (c, ON (MOE_PAD_TO_CAPACITY) && is_flex && !IS (MOE_FLEX_BACKEND, "hybridep"),
          F (MOE_PAD_TO_CAPACITY), "needs another dispatcher than deepep");
  refuse (c, ON (MOE_SHARED_OVERLAP) && gathers, F (MOE_SHARED_OVERLAP),
          "needs --moe-token-dispatcher-type alltoall or flex");
  refuse (c, ON (MOE_SHARED_OVERLAP) && selective && HAS (RECOMPUTE_MODULES, "shared_experts"),
          F (MOE_SHARED_OVERLAP), "and recomputing shared_experts exclude each other");
  refuse (c, selective && HAS (RECOMPUTE_MODULES, "moe_act") && !ON (MOE_GROUPED_GEMM),
          F (RECOMPUTE_MODULES), "moe_act needs --moe-grouped-gemm");
  refuse (c, ON (EP_OVERLAP) && (INT (EP) == 1 || gathers), F (EP_OVERLAP),
          "needs expert parallelism and --moe-token-dispatcher-type alltoall or flex");
  refuse (c, ON (EP_OVERLAP) && !ON (BF16) && !ON (FP16), F (EP_OVERLAP), "needs --bf16 or --fp16");
  refuse (c, ON (EP_OVERLAP) && selective && HAS (RECOMPUTE_MODULES, "moe"), F (EP_OVERLAP),
          "excludes recomputing moe");
  refuse (c, ON (EP_OVERLAP) && ON (MOE_SHARED_OVERLAP), F (EP_OVERLAP),
          "and --moe-shared-expert-overlap exclude each other");
  refuse (c, ON (EP_OVERLAP) && INT (MTP_NUM_LAYERS) > 1, F (EP_OVERLAP),
          "takes one prediction module at most");
  refuse (c, ON (DELAY_WGRAD) && !ON (EP_OVERLAP), F (DELAY_WGRAD),
          "needs --overlap-moe-expert-parallel-comm");
  warn (c, c->is_fsdp && INT (FSDP_VERSION) == 1 && ON (AVERAGE_IN_COLLECTIVE) && INT (EP) > 1,
        F (AVERAGE_IN_COLLECTIVE),
        "averages gradients of experts over too few ranks, as read: they come out as many times "
        "too large as --expert-model-parallel-size says");
  warn (c, c->is_fsdp && INT (FSDP_VERSION) == 2 && is_flex && IS (MOE_FLEX_BACKEND, "hybridep"),
        F (MOE_FLEX_BACKEND), "hybridep with version 2 gives bad gradients (issue #7400)");
}

static void
check_offload (const Check *c)
{
  const gboolean offloads = INT (OFFLOAD_LAYERS) > 0;
  refuse (c, offloads && (GIVEN (RECOMPUTE) || ON (RECOMPUTE_ACTIVATIONS)), F (OFFLOAD_LAYERS),
          "excludes recompute: choose one");
  refuse (c, offloads && INT (PP) > 1, F (OFFLOAD_LAYERS), "excludes pipeline parallelism");
  refuse (c, offloads && GIVEN (NUM_LAYERS) && INT (OFFLOAD_LAYERS) >= INT (NUM_LAYERS),
          F (OFFLOAD_LAYERS), "must be below --num-layers");
  refuse (c, offloads && (IS (CUDA_GRAPH, "local") || IS (CUDA_GRAPH, "transformer_engine")),
          F (OFFLOAD_LAYERS), "excludes CUDA graphs per layer");
  refuse (c, offloads && ON (OFFLOAD_ACTIVATIONS), F (OFFLOAD_ACTIVATIONS),
          "and --cpu-offloading-num-layers exclude each other");
  refuse (c, ON (OFFLOAD_ACTIVATIONS) && !GIVEN (OFFLOAD_MODULES), F (OFFLOAD_ACTIVATIONS),
          "needs --offload-modules");
  refuse (c,
          ON (OFFLOAD_ACTIVATIONS) && HAS (OFFLOAD_MODULES, "attn_proj")
              && !HAS (OFFLOAD_MODULES, "core_attn"),
          F (OFFLOAD_MODULES), "attn_proj needs core_attn beside it");
  refuse (c, ON (OFFLOAD_ACTIVATIONS) && !IS (TRANSFORMER_IMPL, "transformer_engine"),
          F (OFFLOAD_ACTIVATIONS), "needs --transformer-impl transformer_engine");
  warn (c,
        ON (OFFLOAD_ACTIVATIONS) && c->settings->environment
            && !environment_is (c, "NVTE_CPU_OFFLOAD_V1", "1"),
        F (OFFLOAD_ACTIVATIONS),
        "is refused by Transformer Engine 2.10 and later without NVTE_CPU_OFFLOAD_V1=1");
  warn (c, !ON (OFFLOAD_ACTIVATIONS) && GIVEN (OFFLOAD_MODULES) && !c->settings->is_log,
        F (OFFLOAD_MODULES), "acts only with --fine-grained-activation-offloading");
}

static void
check_version_2 (const Check *c)
{
  static const PlanMegatronFlag refused[] = { F (DISTRIBUTED_OPTIMIZER),
                                              F (PER_TOKEN_LOSS),
                                              F (PERSIST_ON_FAIL),
                                              F (MANUAL_REGISTRATION),
                                              F (DELAY_WGRAD),
                                              F (FINE_GRAINED),
                                              F (MAX_POOL),
                                              F (PRECISION_AWARE),
                                              F (OPTIMIZER_OFFLOAD),
                                              F (FP16) };
  for (guint i = 0; i < G_N_ELEMENTS (refused); i++)
    refuse (c, plan_megatron_is_on (c->settings, refused[i]), refused[i],
            "is refused with --megatron-fsdp-version 2");
  refuse (c, INT (TP) > 1 || INT (CP) > 1, INT (TP) > 1 ? F (TP) : F (CP),
          "must be 1 with --megatron-fsdp-version 2");
  refuse (c, !c->is_full, F (STRATEGY),
          "must be optim_grads_params with --megatron-fsdp-version 2");
  refuse (c, IS (OUTER_STRATEGY, "optim") || INT (OPTIMIZER_INSTANCES) > 1, F (OUTER_STRATEGY),
          "and hybrid sharding are refused with --megatron-fsdp-version 2");
  refuse (c, ON (GRAD_ACCUM_FUSION), F (GRAD_ACCUM_FUSION),
          "must be given with --megatron-fsdp-version 2");
  refuse (c, GIVEN (FP8) || GIVEN (FP4), GIVEN (FP8) ? F (FP8) : F (FP4),
          "is refused with --megatron-fsdp-version 2");
  refuse (c, !IS (CUDA_GRAPH, "none"), F (CUDA_GRAPH),
          "must be none with --megatron-fsdp-version 2");
  refuse (c, ON (NCCL_UB) && ON (NO_SYMMETRIC), F (NO_SYMMETRIC),
          "is refused with --use-nccl-ub and --megatron-fsdp-version 2");
  refuse (c, GIVEN (COMM_UNIT), F (COMM_UNIT), "is refused with --megatron-fsdp-version 2");
  refuse (c, GIVEN (NUM_BUCKETS), F (NUM_BUCKETS), "is refused with --megatron-fsdp-version 2");
  say (c, PLAN_MEGATRON_WARNING, TRUE, F (FSDP_VERSION),
       "2 gathers module by module and packs gradients otherwise: version 1 is modelled");
}

/* gpt_builders.py passes on neither flag: the model keeps a factor of 8, and does not interpolate.
 */
static void
check_positions (const Check *c)
{
  warn (c,
        ON (USE_ROPE_SCALING)
            && g_ascii_strtod (plan_megatron_value (c->settings, F (ROPE_SCALING_FACTOR)), NULL)
                   != 8,
        F (ROPE_SCALING_FACTOR),
        "does not reach the model, which keeps 8, until gpt_builders.py says "
        "rope_scaling_factor=args.rope_scaling_factor; it is taken as meant");
  warn (c, GIVEN (ROPE_INTERPOLATION), F (ROPE_INTERPOLATION),
        "does not reach the model, since gpt_builders.py does not hand it on");
}

static void
check_sizes (const Check *c)
{
  const gint64 seq = INT (SEQ_LENGTH), positions = INT (MAX_POSITION_EMBEDDINGS);
  refuse (c, INT (MBS) < 1, F (MBS), "is missing, which Megatron-LM needs");
  refuse (c, seq < 1, F (SEQ_LENGTH), "is missing, which Megatron-LM needs");
  refuse (c, positions > 0 && seq > positions, F (SEQ_LENGTH),
          "must not be above --max-position-embeddings");
  refuse (c, GIVEN (STEP_SCHEDULE) && GIVEN (GBS), F (STEP_SCHEDULE),
          "and --global-batch-size exclude each other");
  warn (c, GIVEN (RAMPUP), F (RAMPUP), "grows the batch: the full one is modelled");
  warn (c, GIVEN (STEP_SCHEDULE), F (STEP_SCHEDULE),
        "changes the batch: give the one to model with --gbs");
  refuse (c, ON (GROUP_QUERY_ATTENTION) && ON (MULTI_LATENT_ATTENTION), F (GROUP_QUERY_ATTENTION),
          "and --multi-latent-attention exclude each other");
  refuse (c, ON (SWIGLU) && (ON (SQUARED_RELU) || ON (QUICK_GEGLU)), F (SWIGLU),
          "excludes --squared-relu and --quick-geglu: choose one");
  refuse (c,
          INT (MTP_NUM_LAYERS) > 0 && !ON (USE_ROTARY) && !IS (POSITION_EMBEDDING_TYPE, "rope")
              && !IS (POSITION_EMBEDDING_TYPE, "none"),
          F (MTP_NUM_LAYERS), "needs --position-embedding-type rope or none");
  refuse (c, INT (MOE_SHARED_SIZE) > 0 && ON (ADD_BIAS_LINEAR), F (MOE_SHARED_SIZE),
          "needs --disable-bias-linear");
  warn (c, !ON (GROUP_QUERY_ATTENTION) && GIVEN (NUM_QUERY_GROUPS) && !c->settings->is_log,
        F (NUM_QUERY_GROUPS),
        "acts only with --group-query-attention: every head has keys and values of its own");
  warn (c, INT (PP) == 1 && (ON (PP_COUNT_EMBEDDING) || ON (PP_COUNT_LOSS)),
        ON (PP_COUNT_EMBEDDING) ? F (PP_COUNT_EMBEDDING) : F (PP_COUNT_LOSS),
        "decides nothing without pipeline parallelism");
  warn (c, INT (TP) == 1 && ON (SEQUENCE_PARALLEL), F (SEQUENCE_PARALLEL),
        "is switched off without tensor parallelism");
  say (c, PLAN_MEGATRON_NOTE,
       g_ascii_strtod (plan_megatron_value (c->settings, F (ATTENTION_DROPOUT)), NULL) > 0,
       F (ATTENTION_DROPOUT),
       "above 0, and it is 0.1 by default, takes time in attention that is not modelled");
  refuse (c, IS (CUDA_GRAPH, "full_iteration") && ON (NAN_CHECK) && !ON (FAKE_GROUP),
          F (CUDA_GRAPH), "full_iteration needs --no-check-for-nan-in-loss-and-grad");
  say (c, PLAN_MEGATRON_NOTE, ON (NAN_CHECK) && c->is_fsdp && !ON (FP16), F (NAN_CHECK),
       "is not given: the loss is checked in every micro batch; gradients only in the reduction "
       "that does not overlap (strategies no_shard and optim without --overlap-grad-reduce)");
}

void
plan_megatron_rules_check (const PlanMegatronSettings *settings, gint64 date, GPtrArray *notes)
{
  Check check = { .settings = settings, .notes = notes, .date = date };
  const Check *const c = &check;
  check.is_fsdp = plan_megatron_is_fsdp (settings);
  check.is_full = IS (STRATEGY, "optim_grads_params");
  check.is_quantised = (ON (FP8_PARAM) && GIVEN (FP8)) || (ON (FP4_PARAM) && GIVEN (FP4));
  check_sizes (c);
  check_router (c);
  check_dispatch (c);
  check_positions (c);
  check_overlap (c);
  if (check.is_fsdp)
    {
      check_fsdp (c);
      check_fsdp_types (c);
      check_hybrid (c);
    }
  check_buffers (c);
  check_precision (c);
  check_recompute (c);
  check_offload (c);
  if (check.is_fsdp && INT (FSDP_VERSION) == 2)
    check_version_2 (c);
}
