/* SPDX-License-Identifier: Apache-2.0 */
/* Two tables. `rules` holds what is wrong by itself, each with a predicate that is true when the
 * rule is broken; sections cited are those of the notes on Megatron-FSDP, which name the upstream
 * source. `unbuilt` holds values that are legal and not modelled by this version yet; a line
 * disappears when its feature arrives. Where resolving one field sets another, the cause comes
 * first. */
#include "config.h"

#include "planner/rules.h"

#define FUSED_MASTERS_GONE 20260410

#define IS(facts, field, id) ((facts)->value[PLAN_##field] == PLAN_##field##_##id)
#define HAS_MODULE(facts, field, id) \
  (((facts)->value[PLAN_##field] >> PLAN_##field##_##id & 1) != 0)

typedef struct
{
  const gint64 *value;
  const Plan *plan;
  const PlanModel *model;
  const PlanCluster *cluster;
} Facts;

static gboolean
is_megatron_fsdp (const Facts *f)
{
  return f->value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON_FSDP;
}

static gboolean
is_native (const Facts *f)
{
  return f->value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_NATIVE;
}

static gboolean
is_full (const Facts *f)
{
  return IS (f, STRATEGY, OPTIM_GRADS_PARAMS);
}

static gboolean
is_quantised (const Facts *f)
{
  return !IS (f, PARAM_GATHER, COMPUTE);
}

static gboolean
is_fp8 (const Facts *f)
{
  return IS (f, COMPUTE, FP8_DELAYED) || IS (f, COMPUTE, FP8_TENSORWISE)
         || IS (f, COMPUTE, FP8_BLOCKWISE);
}

static gboolean
sizes_overflow (const Facts *f)
{
  const double tokens = (double)(f->value[PLAN_MBS] * f->value[PLAN_SEQ]);
  gint64 width = MAX (f->model->vocab, 2 * f->model->ffn);
  width = MAX (width, f->model->hidden);
  width = MAX (width, 3 * f->model->heads * f->model->head_dim);
  const double scores = (double)f->model->heads * (double)f->value[PLAN_SEQ];
  return tokens > G_MAXINT32
         || tokens * MAX ((double)width, scores) * (double)f->model->layers > 0x1p53;
}

static gboolean
devices_do_not_divide (const Facts *f)
{
  static const PlanField degrees[] = { PLAN_TP, PLAN_CP, PLAN_PP, PLAN_DP_OUTER };
  gint64 rest = plan_cluster_devices (f->cluster);
  for (guint i = 0; i < G_N_ELEMENTS (degrees); i++)
    {
      if (rest % f->value[degrees[i]] != 0)
        return TRUE;
      rest /= f->value[degrees[i]];
    }
  return FALSE;
}

static gboolean
gbs_does_not_divide (const Facts *f)
{
  return f->value[PLAN_GBS] % (f->value[PLAN_MBS] * plan_data_parallel (f->plan, f->cluster)) != 0;
}

static gboolean
tp_does_not_divide (const Facts *f)
{
  const gint64 tp = f->value[PLAN_TP];
  return f->model->heads % tp != 0 || f->model->kv_heads % tp != 0 || f->model->ffn % tp != 0;
}

static gboolean
sp_without_tp (const Facts *f)
{
  return IS (f, SP, ON) && f->value[PLAN_TP] == 1;
}

static gboolean
sp_does_not_divide (const Facts *f)
{
  return IS (f, SP, ON) && f->value[PLAN_SEQ] % f->value[PLAN_TP] != 0;
}

static gboolean
cp_does_not_divide (const Facts *f)
{
  return f->value[PLAN_CP] > 1 && f->value[PLAN_SEQ] % (2 * f->value[PLAN_CP]) != 0;
}

static gboolean
ep_without_experts (const Facts *f)
{
  return f->value[PLAN_EP] > 1 && f->model->experts == 0;
}

static gboolean
fsdp_pipeline (const Facts *f)
{
  return is_megatron_fsdp (f) && f->value[PLAN_PP] > 1;
}

static gboolean
hfsdp_not_full (const Facts *f)
{
  return IS (f, OUTER_STRATEGY, OPTIM) && !is_full (f);
}

static gboolean
hfsdp_one_replica (const Facts *f)
{
  return IS (f, OUTER_STRATEGY, OPTIM) && f->value[PLAN_DP_OUTER] == 1;
}

static gboolean
hfsdp_sums (const Facts *f)
{
  return is_megatron_fsdp (f) && IS (f, OUTER_STRATEGY, OPTIM) && IS (f, PER_TOKEN_LOSS, OFF);
}

static gboolean
hybrid_without_overlap (const Facts *f)
{
  return is_megatron_fsdp (f) && f->value[PLAN_DP_OUTER] > 1 && IS (f, OVERLAP_GRAD_REDUCE, OFF)
         && (IS (f, STRATEGY, NO_SHARD) || IS (f, STRATEGY, OPTIM));
}

static gboolean
hybrid_gather_group (const Facts *f)
{
  return IS (f, AG_GROUP, ON) && f->value[PLAN_DP_OUTER] > 1;
}

static gboolean
gather_overlap_alone (const Facts *f)
{
  return is_megatron_fsdp (f) && IS (f, OVERLAP_PARAM_GATHER, ON)
         && IS (f, OVERLAP_GRAD_REDUCE, OFF);
}

static gboolean
sync_reduces_twice (const Facts *f)
{
  return IS (f, SYNC_EVERY_MICRO_BATCH, ON)
         && (IS (f, STRATEGY, NO_SHARD) || IS (f, STRATEGY, OPTIM));
}

static gboolean
compute_without_rate (const Facts *f)
{
  const PlanDtype dtype
      = IS (f, COMPUTE, MXFP8) ? PLAN_DTYPE_E8M0 : plan_field_dtype (f->plan, PLAN_COMPUTE);
  return f->cluster->kind == PLAN_DEVICE_GPU && f->cluster->peak_flops[dtype] == 0;
}

static gboolean
fp8_gather_without_fp8 (const Facts *f)
{
  return IS (f, PARAM_GATHER, FP8) && !is_fp8 (f);
}

static gboolean
mxfp8_gather_without_mxfp8 (const Facts *f)
{
  return IS (f, PARAM_GATHER, MXFP8) && !IS (f, COMPUTE, MXFP8);
}

static gboolean
nvfp4_gather_elsewhere (const Facts *f)
{
  return IS (f, PARAM_GATHER, NVFP4) && !is_native (f);
}

static gboolean
nvfp4_gather_without_nvfp4 (const Facts *f)
{
  return IS (f, PARAM_GATHER, NVFP4) && !IS (f, COMPUTE, NVFP4);
}

static gboolean
quantised_not_sharded (const Facts *f)
{
  return is_quantised (f) && IS (f, STRATEGY, NO_SHARD);
}

static gboolean
quantised_half_sharded (const Facts *f)
{
  return is_quantised (f) && is_megatron_fsdp (f) && !is_full (f);
}

static gboolean
quantised_without_main (const Facts *f)
{
  return is_quantised (f) && IS (f, MAIN_PARAMS, AUTO);
}

static gboolean
blockwise_in_pool (const Facts *f)
{
  return is_megatron_fsdp (f) && is_full (f) && is_quantised (f) && IS (f, COMPUTE, FP8_BLOCKWISE)
         && !IS (f, DOUBLE_BUFFER, OFF);
}

static gboolean
transpose_of_nothing (const Facts *f)
{
  return IS (f, KEEP_TRANSPOSE, ON) && !IS (f, PARAM_GATHER, FP8);
}

static gboolean
mxfp8_selective_per_unit (const Facts *f)
{
  return IS (f, PARAM_GATHER, MXFP8) && IS (f, RECOMPUTE, SELECTIVE) && IS (f, FINE_GRAINED, OFF);
}

static gboolean
precision_aware_sgd (const Facts *f)
{
  return IS (f, PRECISION_AWARE, ON) && IS (f, OPTIMIZER, SGD);
}

static gboolean
moments_not_aware (const Facts *f)
{
  return IS (f, PRECISION_AWARE, OFF) && !(IS (f, EXP_AVG, FP32) && IS (f, EXP_AVG_SQ, FP32));
}

static gboolean
masters_not_aware (const Facts *f)
{
  return IS (f, FUSED_MASTERS, ON) && IS (f, PRECISION_AWARE, OFF);
}

static gboolean
masters_too_late (const Facts *f)
{
  const gint64 date = f->value[PLAN_STACK] / PLAN_STACK_BASE;
  return is_megatron_fsdp (f) && IS (f, FUSED_MASTERS, ON)
         && (date == 0 || date >= FUSED_MASTERS_GONE);
}

static gboolean
offload_not_aware (const Facts *f)
{
  return f->value[PLAN_OFFLOAD_OPTIMIZER] > 0 && IS (f, PRECISION_AWARE, OFF);
}

static gboolean
offload_of_fp8 (const Facts *f)
{
  return f->value[PLAN_OFFLOAD_OPTIMIZER] > 0 && is_quantised (f) && !IS (f, COMPUTE, FP8_DELAYED);
}

static gboolean
modules_without_selective (const Facts *f)
{
  const gint64 initial = G_GINT64_CONSTANT (1) << PLAN_RECOMPUTE_MODULES_CORE_ATTN;
  return !IS (f, RECOMPUTE, SELECTIVE) && f->value[PLAN_RECOMPUTE_MODULES] != initial;
}

static gboolean
selective_of_nothing (const Facts *f)
{
  return IS (f, RECOMPUTE, SELECTIVE) && f->value[PLAN_RECOMPUTE_MODULES] == 0;
}

static gboolean
modules_not_there (const Facts *f)
{
  const gboolean names_experts
      = HAS_MODULE (f, RECOMPUTE_MODULES, MOE) || HAS_MODULE (f, RECOMPUTE_MODULES, MOE_ACT);
  return (names_experts && f->model->experts == 0)
         || (HAS_MODULE (f, RECOMPUTE_MODULES, SHARED_EXPERTS) && f->model->shared_ffn == 0)
         || (HAS_MODULE (f, RECOMPUTE_MODULES, MLA_UP_PROJ) && f->model->kv_lora == 0);
}

static gboolean
norms_with_delayed (const Facts *f)
{
  return IS (f, COMPUTE, FP8_DELAYED) && HAS_MODULE (f, RECOMPUTE_MODULES, LAYERNORM);
}

static gboolean
method_without_full (const Facts *f)
{
  return !IS (f, RECOMPUTE, FULL)
         && (!IS (f, RECOMPUTE_METHOD, UNIFORM) || f->value[PLAN_RECOMPUTE_LAYERS] != 1);
}

static gboolean
recomputes_too_many (const Facts *f)
{
  return f->value[PLAN_RECOMPUTE_LAYERS] > f->model->layers;
}

static gboolean
recomputes_other_modules (const Facts *f)
{
  return IS (f, RECOMPUTE, SELECTIVE)
         && f->value[PLAN_RECOMPUTE_MODULES] != 1 << PLAN_RECOMPUTE_MODULES_MLP;
}

static gboolean
has_experts (const Facts *f)
{
  return f->model->experts > 0 || f->model->kv_lora > 0;
}

static gboolean
is_other_family (const Facts *f)
{
  return !plan_model_is_llama_shaped (f->model, f->value[PLAN_SEQ]);
}

static gboolean
recomputes_chunks (const Facts *f)
{
  return IS (f, RECOMPUTE, FULL) && IS (f, RECOMPUTE_METHOD, UNIFORM)
         && f->value[PLAN_RECOMPUTE_LAYERS] > 1;
}

static gboolean
offloads_too_many (const Facts *f)
{
  return f->value[PLAN_OFFLOAD_LAYERS] > f->model->layers;
}

static gboolean
offloads_and_recomputes (const Facts *f)
{
  return f->value[PLAN_OFFLOAD_LAYERS] > 0 && !IS (f, RECOMPUTE, NONE);
}

static gboolean
offloads_in_graph (const Facts *f)
{
  return f->value[PLAN_OFFLOAD_LAYERS] > 0 && IS (f, CUDA_GRAPH, ON);
}

static gboolean
offloads_twice (const Facts *f)
{
  return f->value[PLAN_OFFLOAD_LAYERS] > 0 && f->value[PLAN_OFFLOAD_MODULES] != 0;
}

static gboolean
offloads_proj_alone (const Facts *f)
{
  return HAS_MODULE (f, OFFLOAD_MODULES, ATTN_PROJ) && !HAS_MODULE (f, OFFLOAD_MODULES, CORE_ATTN);
}

static gboolean
compiles_elsewhere (const Facts *f)
{
  return IS (f, COMPILE, ON) && f->value[PLAN_STACK] % PLAN_STACK_BASE != PLAN_STACK_FSDP2;
}

/* What the message adds beside the fields' values. */
typedef enum
{
  ADD_NOTHING,
  ADD_DEVICES,
  ADD_MODEL,
} Addition;

typedef struct
{
  PlanRule rule;
  gboolean (*is_broken) (const Facts *f);
  Addition addition;
  guint n_shown;
  PlanField shown[6];
} Entry;

#define SHOW(...) \
  .n_shown = sizeof ((PlanField[]){ __VA_ARGS__ }) / sizeof (PlanField), .shown = { __VA_ARGS__ }

/* clang-format off */
static const Entry rules[] = {
  { { "sizes-fit", "a rank's activations must stay below 2^53 elements and its micro batch below 2^31 tokens: "
      "lower mbs or seq", "this program's own limit: bytes are counted in 64 bits", PLAN_ERROR_INFEASIBLE },
    sizes_overflow, ADD_MODEL, SHOW (PLAN_MBS, PLAN_SEQ) },
  { { "devices-divide", "the devices must be a multiple of tp x cp x pp x dp_outer",
      "Megatron-LM mcore_fsdp_adapter.py: the device mesh is a reshape of all ranks", PLAN_ERROR_INVALID },
    devices_do_not_divide, ADD_DEVICES, SHOW (PLAN_TP, PLAN_CP, PLAN_PP, PLAN_DP_OUTER) },
  { { "gbs-divides", "gbs must be a multiple of mbs x the data-parallel size (devices / tp / cp / pp), so that every "
      "rank runs whole micro batches", "Megatron-LM num_microbatches_calculator.py", PLAN_ERROR_INVALID },
    gbs_does_not_divide, ADD_DEVICES, SHOW (PLAN_GBS, PLAN_MBS, PLAN_TP, PLAN_CP, PLAN_PP) },
  { { "tp-divides-model", "tp must divide heads, kv_heads and ffn, which it splits",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    tp_does_not_divide, ADD_MODEL, SHOW (PLAN_TP) },
  { { "sp-needs-tp", "sp=on needs tp above 1: it splits over the tensor-parallel group",
      "Megatron-LM arguments.py: sequence parallelism is off when tp=1", PLAN_ERROR_INVALID },
    sp_without_tp, ADD_NOTHING, SHOW (PLAN_TP) },
  { { "sp-divides-seq", "sp=on needs seq to be a multiple of tp",
      "Megatron-LM: sequences are scattered in equal parts", PLAN_ERROR_INVALID },
    sp_does_not_divide, ADD_NOTHING, SHOW (PLAN_SEQ, PLAN_TP) },
  { { "cp-divides-seq", "cp above 1 needs seq to be a multiple of 2 x cp: each rank takes one early and one late part",
      "Megatron-LM context_parallel documentation", PLAN_ERROR_INVALID },
    cp_does_not_divide, ADD_NOTHING, SHOW (PLAN_SEQ, PLAN_CP) },
  { { "ep-needs-experts", "ep above 1 needs a model with experts; this one is dense: use ep=1",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    ep_without_experts, ADD_NOTHING, SHOW (PLAN_EP) },
  { { "fsdp-has-no-pipeline", "stack=megatron-fsdp needs pp=1: its mesh of all ranks has no pipeline axis",
      "Megatron-LM mcore_fsdp_adapter.py", PLAN_ERROR_INVALID },
    fsdp_pipeline, ADD_NOTHING, SHOW (PLAN_PP) },

  { { "hfsdp-needs-full-sharding", "outer_strategy=optim needs strategy=optim_grads_params",
      "Megatron-LM megatron_fsdp.py: not implemented for any other", PLAN_ERROR_INVALID },
    hfsdp_not_full, ADD_NOTHING, SHOW (PLAN_STRATEGY) },
  { { "hfsdp-needs-replicas", "outer_strategy=optim needs dp_outer above 1: with one replica there is nothing to "
      "shard over", "Megatron-LM param_and_grad_buffer.py, as read: it uses a buffer that it never made", PLAN_ERROR_INVALID },
    hfsdp_one_replica, ADD_NOTHING, SHOW (PLAN_DP_OUTER) },
  { { "hfsdp-needs-per-token-loss", "outer_strategy=optim on stack=megatron-fsdp needs per_token_loss=on: otherwise "
      "gradients are summed where they should be averaged", "Megatron-LM param_and_grad_buffer.py, as read: the buffer that is reduced has no scaling factor", PLAN_ERROR_INVALID },
    hfsdp_sums, ADD_NOTHING, SHOW (PLAN_PER_TOKEN_LOSS) },
  { { "hybrid-needs-overlap", "dp_outer above 1 with strategy no_shard or optim needs overlap_grad_reduce=on: the "
      "synchronous path reduces over the inner group only", "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_INVALID },
    hybrid_without_overlap, ADD_NOTHING, SHOW (PLAN_DP_OUTER, PLAN_STRATEGY, PLAN_OVERLAP_GRAD_REDUCE) },
  { { "ag-group-needs-one-group", "ag_group=on needs dp_outer=1: the second communicator spans all data-parallel "
      "ranks, the weights only the inner group", "Megatron-LM megatron_fsdp.py, as read", PLAN_ERROR_INVALID },
    hybrid_gather_group, ADD_NOTHING, SHOW (PLAN_DP_OUTER) },
  { { "gather-overlap-needs-reduce-overlap", "overlap_param_gather=on needs overlap_grad_reduce=on: set both or neither",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    gather_overlap_alone, ADD_NOTHING, SHOW (PLAN_OVERLAP_PARAM_GATHER, PLAN_OVERLAP_GRAD_REDUCE) },
  { { "sync-needs-sharded-gradients", "sync_every_micro_batch=on needs strategy=optim_grads or optim_grads_params: "
      "unsharded gradients accumulate where they are reduced, so a second reduction counts the first again",
      "Megatron-LM PR #3067", PLAN_ERROR_INVALID },
    sync_reduces_twice, ADD_NOTHING, SHOW (PLAN_STRATEGY) },

  { { "compute-needs-rate", "the device must have a rate for the compute format (mxfp8: for e8m0 block scales): choose "
      "another compute, or give peak_FORMAT in the cluster's .ini file if it has one",
      "the cluster's figures; Megatron-LM arguments.py: mxfp8 is for Blackwell", PLAN_ERROR_UNSUPPORTED },
    compute_without_rate, ADD_DEVICES, SHOW (PLAN_COMPUTE) },
  { { "fp8-gather-needs-fp8", "param_gather=fp8 needs compute=fp8-delayed, fp8-tensorwise or fp8-blockwise",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    fp8_gather_without_fp8, ADD_NOTHING, SHOW (PLAN_COMPUTE) },
  { { "mxfp8-gather-needs-mxfp8", "param_gather=mxfp8 needs compute=mxfp8",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    mxfp8_gather_without_mxfp8, ADD_NOTHING, SHOW (PLAN_COMPUTE) },
  { { "nvfp4-gather-is-native", "param_gather=nvfp4 needs stack=native: elsewhere buffers are sized by element and "
      "cannot hold packed pairs", "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_INVALID },
    nvfp4_gather_elsewhere, ADD_NOTHING, SHOW (PLAN_STACK) },
  { { "nvfp4-gather-needs-nvfp4", "param_gather=nvfp4 needs compute=nvfp4",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    nvfp4_gather_without_nvfp4, ADD_NOTHING, SHOW (PLAN_COMPUTE) },
  { { "quantised-params-need-sharding", "quantised parameters need a sharding strategy: no_shard has no buffer of "
      "weights to quantise into", "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_INVALID },
    quantised_not_sharded, ADD_NOTHING, SHOW (PLAN_PARAM_GATHER, PLAN_STRATEGY) },
  { { "quantised-params-need-full-sharding", "quantised parameters on stack=megatron-fsdp need "
      "strategy=optim_grads_params, the only one upstream supports with them",
      "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_UNSUPPORTED },
    quantised_half_sharded, ADD_NOTHING, SHOW (PLAN_PARAM_GATHER, PLAN_STRATEGY) },
  { { "quantised-params-need-main", "quantised parameters need main_params of their own, not auto: they are quantised "
      "from them", "Megatron-LM mixed_precision.py", PLAN_ERROR_INVALID },
    quantised_without_main, ADD_NOTHING, SHOW (PLAN_PARAM_GATHER, PLAN_MAIN_PARAMS) },
  { { "blockwise-outgrows-pool", "compute=fp8-blockwise with quantised, fully sharded parameters needs "
      "double_buffer=off and nccl_ub=off: quantising after the step holds more than two units",
      "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_INVALID },
    blockwise_in_pool, ADD_NOTHING, SHOW (PLAN_DOUBLE_BUFFER, PLAN_NCCL_UB) },
  { { "keep-transpose-needs-fp8-params", "keep_transpose=on needs param_gather=fp8, whose transposes it keeps",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    transpose_of_nothing, ADD_NOTHING, SHOW (PLAN_PARAM_GATHER) },
  { { "mxfp8-selective-needs-fine-grained", "param_gather=mxfp8 with recompute=selective needs fine_grained=on: rows and "
      "columns are needed at once", "Megatron-LM PR #4181", PLAN_ERROR_INVALID },
    mxfp8_selective_per_unit, ADD_NOTHING, SHOW (PLAN_FINE_GRAINED) },

  { { "precision-aware-needs-adam", "precision_aware=on needs optimizer=adamw",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    precision_aware_sgd, ADD_NOTHING, SHOW (PLAN_OPTIMIZER) },
  { { "moments-need-precision-aware", "exp_avg and exp_avg_sq other than fp32 need precision_aware=on",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    moments_not_aware, ADD_NOTHING, SHOW (PLAN_EXP_AVG, PLAN_EXP_AVG_SQ) },
  { { "fused-masters-need-precision-aware", "fused_masters=on needs precision_aware=on: only that optimizer kept them",
      "Megatron-LM PR #4133", PLAN_ERROR_INVALID },
    masters_not_aware, ADD_NOTHING, SHOW (PLAN_PRECISION_AWARE) },
  { { "fused-masters-before-2026-04-10", "fused_masters=on needs a stack date before 2026-04-10, as in "
      "megatron-fsdp@2026-04-09: later ones switch them off", "Megatron-LM PR #4133, merged 2026-04-10", PLAN_ERROR_INVALID },
    masters_too_late, ADD_NOTHING, SHOW (PLAN_STACK) },
  { { "offload-needs-precision-aware", "offload_optimizer above 0 needs precision_aware=on",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    offload_not_aware, ADD_NOTHING, SHOW (PLAN_OFFLOAD_OPTIMIZER) },
  { { "offload-of-fp8-is-delayed", "offload_optimizer above 0 with quantised parameters needs compute=fp8-delayed",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    offload_of_fp8, ADD_NOTHING, SHOW (PLAN_OFFLOAD_OPTIMIZER, PLAN_COMPUTE) },

  { { "recompute-modules-are-selective", "recompute_modules needs recompute=selective",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    modules_without_selective, ADD_NOTHING, SHOW (PLAN_RECOMPUTE, PLAN_RECOMPUTE_MODULES) },
  { { "selective-needs-modules", "recompute=selective needs at least one of recompute_modules",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    selective_of_nothing, ADD_NOTHING, SHOW (PLAN_RECOMPUTE_MODULES) },
  { { "recompute-modules-exist", "recompute_modules may name only modules of the model: moe and moe_act need experts, "
      "shared_experts shared ones, mla_up_proj latent attention", "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    modules_not_there, ADD_NOTHING, SHOW (PLAN_RECOMPUTE_MODULES) },
  { { "norms-not-with-delayed", "recompute_modules may not name layernorm when compute=fp8-delayed",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    norms_with_delayed, ADD_NOTHING, SHOW (PLAN_RECOMPUTE_MODULES) },
  { { "recompute-method-is-full", "recompute_method and recompute_layers need recompute=full",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    method_without_full, ADD_NOTHING, SHOW (PLAN_RECOMPUTE, PLAN_RECOMPUTE_METHOD, PLAN_RECOMPUTE_LAYERS) },
  { { "recompute-layers-exist", "recompute_layers may not be more than the model has",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    recomputes_too_many, ADD_MODEL, SHOW (PLAN_RECOMPUTE_LAYERS) },
  { { "offload-layers-exist", "offload_layers may not be more than the model has",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_too_many, ADD_MODEL, SHOW (PLAN_OFFLOAD_LAYERS) },
  { { "offload-layers-or-recompute", "offload_layers above 0 needs recompute=none",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_and_recomputes, ADD_NOTHING, SHOW (PLAN_OFFLOAD_LAYERS, PLAN_RECOMPUTE) },
  { { "offload-layers-or-cuda-graph", "offload_layers above 0 needs cuda_graph=off",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_in_graph, ADD_NOTHING, SHOW (PLAN_OFFLOAD_LAYERS) },
  { { "offload-layers-or-modules", "offload_layers and offload_modules exclude each other: use one",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_twice, ADD_NOTHING, SHOW (PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES) },
  { { "offload-proj-needs-core", "offload_modules with attn_proj needs core_attn beside it",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_proj_alone, ADD_NOTHING, SHOW (PLAN_OFFLOAD_MODULES) },
  { { "compile-is-fsdp2", "compile=on needs stack=fsdp2: no other stack compiles its step",
      "torchtitan: torch.compile belongs to fsdp2", PLAN_ERROR_INVALID },
    compiles_elsewhere, ADD_NOTHING, SHOW (PLAN_STACK) },
  { { "not-built-yet-experts", "models with experts or latent attention are read, shown and counted, but not planned "
      "by this version", "a limit of this version, not of a framework", PLAN_ERROR_UNSUPPORTED },
    has_experts, ADD_MODEL, SHOW (PLAN_SEQ) },
  { { "not-built-yet-family", "only models of llama's shape are planned by this version: RMSNorm, gated silu, rotary positions "
      "on whole heads, no biases, no q/k norm, no window shorter than seq",
      "a limit of this version, not of a framework", PLAN_ERROR_UNSUPPORTED },
    is_other_family, ADD_MODEL, SHOW (PLAN_SEQ) },
  { { "not-built-yet-recompute-modules", "recompute=selective is modelled for recompute_modules=mlp only by this version",
      "a limit of this version, not of a framework", PLAN_ERROR_UNSUPPORTED },
    recomputes_other_modules, ADD_NOTHING, SHOW (PLAN_RECOMPUTE_MODULES) },
  { { "not-built-yet-recompute-chunks", "recompute=full with recompute_method=uniform is modelled for recompute_layers=1 "
      "only by this version", "a limit of this version, not of a framework", PLAN_ERROR_UNSUPPORTED },
    recomputes_chunks, ADD_NOTHING, SHOW (PLAN_RECOMPUTE_LAYERS) },
};

/* X (FIELD, "field", "values that are modelled", mask of these values) */
#define BIT(field, id) (1u << PLAN_##field##_##id)
#define UNBUILT_LIST(X)                                                                                          \
  X (STACK, "stack", "megatron-fsdp and native", BIT (STACK, MEGATRON_FSDP) | BIT (STACK, NATIVE))               \
  X (DP_OUTER, "dp_outer", "1", 1u << 1)                                                                         \
  X (OUTER_STRATEGY, "outer_strategy", "no_shard", BIT (OUTER_STRATEGY, NO_SHARD))                               \
  X (TP, "tp", "1", 1u << 1)                                                                                     \
  X (CP, "cp", "1", 1u << 1)                                                                                     \
  X (EP, "ep", "1", 1u << 1)                                                                                     \
  X (PP, "pp", "1", 1u << 1)                                                                                     \
  X (UNIT, "unit", "layer", BIT (UNIT, LAYER))                                                                   \
  X (NCCL_UB, "nccl_ub", "off", BIT (NCCL_UB, OFF))                                                              \
  X (DOUBLE_BUFFER, "double_buffer", "off", BIT (DOUBLE_BUFFER, OFF))                                            \
  X (AG_GROUP, "ag_group", "off", BIT (AG_GROUP, OFF))                                                           \
  X (SHARP, "sharp", "off", BIT (SHARP, OFF))                                                                    \
  X (REDUCE_ALGO, "reduce_algo", "rs", BIT (REDUCE_ALGO, RS))                                                    \
  X (OVERLAP_GRAD_REDUCE, "overlap_grad_reduce", "on", BIT (OVERLAP_GRAD_REDUCE, ON))                            \
  X (OVERLAP_PARAM_GATHER, "overlap_param_gather", "on", BIT (OVERLAP_PARAM_GATHER, ON))                         \
  X (COMPUTE, "compute", "fp32 and bf16", BIT (COMPUTE, FP32) | BIT (COMPUTE, BF16))                             \
  X (PARAM_GATHER, "param_gather", "compute", BIT (PARAM_GATHER, COMPUTE))                                       \
  X (FINE_GRAINED, "fine_grained", "off", BIT (FINE_GRAINED, OFF))                                               \
  X (KEEP_TRANSPOSE, "keep_transpose", "off", BIT (KEEP_TRANSPOSE, OFF))                                         \
  X (MAIN_PARAMS, "main_params", "fp32", BIT (MAIN_PARAMS, FP32))                                                \
  X (MAIN_GRADS, "main_grads", "fp32 and bf16", BIT (MAIN_GRADS, FP32) | BIT (MAIN_GRADS, BF16))                 \
  X (GRAD_COMM, "grad_comm", "fp32 and bf16", BIT (GRAD_COMM, FP32) | BIT (GRAD_COMM, BF16))                     \
  X (EXP_AVG, "exp_avg", "fp32", BIT (EXP_AVG, FP32))                                                            \
  X (EXP_AVG_SQ, "exp_avg_sq", "fp32", BIT (EXP_AVG_SQ, FP32))                                                   \
  X (PRECISION_AWARE, "precision_aware", "off", BIT (PRECISION_AWARE, OFF))                                      \
  X (FUSED_MASTERS, "fused_masters", "off", BIT (FUSED_MASTERS, OFF))                                            \
  X (OPTIMIZER, "optimizer", "adamw", BIT (OPTIMIZER, ADAMW))                                                    \
  X (OFFLOAD_OPTIMIZER, "offload_optimizer", "0", 1u << 0)                                                       \
  X (OFFLOAD_LAYERS, "offload_layers", "0", 1u << 0)                                                             \
  X (OFFLOAD_MODULES, "offload_modules", "none", 1u << 0)                                                        \
  X (GRAD_ACCUM_FUSION, "grad_accum_fusion", "off", BIT (GRAD_ACCUM_FUSION, OFF))                                \
  X (PER_TOKEN_LOSS, "per_token_loss", "on", BIT (PER_TOKEN_LOSS, ON))                                           \
  X (CE_FUSION, "ce_fusion", "on", BIT (CE_FUSION, ON))                                                          \
  X (NAN_CHECK, "nan_check", "off", BIT (NAN_CHECK, OFF))                                                        \
  X (SYNC_EVERY_MICRO_BATCH, "sync_every_micro_batch", "off", BIT (SYNC_EVERY_MICRO_BATCH, OFF))                 \
  X (CUDA_GRAPH, "cuda_graph", "off", BIT (CUDA_GRAPH, OFF))                                                     \
  X (DETERMINISTIC, "deterministic", "off", BIT (DETERMINISTIC, OFF))                                            \
  X (COMPILE, "compile", "off", BIT (COMPILE, OFF))                                                              \
  X (TASK, "task", "train", BIT (TASK, TRAIN))
/* clang-format on */

static const struct
{
  PlanRule rule;
  PlanField field;
  guint mask;
} unbuilt[] = {
#define X(id, name, allowed, mask) \
  { { "not-built-yet-" name, "only " name " = " allowed " is modelled by this version", \
      "a limit of this version, not of a framework", PLAN_ERROR_UNSUPPORTED }, \
    PLAN_##id, \
    mask },
  UNBUILT_LIST (X)
#undef X
};

static void
append_fields (GString *text, const Entry *entry, const Facts *f)
{
  for (guint i = 0; i < entry->n_shown; i++)
    {
      g_autofree char *value = plan_field_print (entry->shown[i], f->value[entry->shown[i]]);
      g_string_append_printf (text, "%s%s=%s", i == 0 ? "; here " : ", ",
                              plan_field_name (entry->shown[i]), value);
    }
  if (entry->addition == ADD_DEVICES)
    g_string_append_printf (text, " on %" G_GINT64_FORMAT " x %s",
                            plan_cluster_devices (f->cluster), f->cluster->device_name);
  if (entry->addition == ADD_MODEL)
    {
      g_autofree char *model = plan_model_print (f->model);
      g_string_append_printf (text, " for %s", model);
    }
}

static void
report (const PlanRule *rule, const char *text, GError **error)
{
  g_set_error (error, PLAN_ERROR, (gint)rule->code, "rule %s: %s%s (%s)", rule->name, rule->reason,
               text, rule->citation);
}

gboolean
plan_rules_check (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster,
                  GError **error)
{
  const Facts facts = { resolved->value, resolved, model, cluster };
  g_return_val_if_fail (resolved->value[PLAN_MBS] > 0 && resolved->value[PLAN_GBS] > 0
                            && resolved->value[PLAN_SEQ] > 0,
                        FALSE);
  for (guint i = 0; i < G_N_ELEMENTS (rules); i++)
    if (rules[i].is_broken (&facts))
      {
        g_autoptr (GString) text = g_string_new (NULL);
        append_fields (text, &rules[i], &facts);
        report (&rules[i].rule, text->str, error);
        return FALSE;
      }
  for (guint i = 0; i < G_N_ELEMENTS (unbuilt); i++)
    {
      const gint64 value = resolved->value[unbuilt[i].field];
      const gint64 which = unbuilt[i].field == PLAN_STACK ? value % PLAN_STACK_BASE : value;
      if (which >= 0 && which < 32 && (unbuilt[i].mask >> which & 1))
        continue;
      g_autofree char *shown = plan_field_print (unbuilt[i].field, value);
      g_autofree char *text
          = g_strdup_printf ("; here %s=%s", plan_field_name (unbuilt[i].field), shown);
      report (&unbuilt[i].rule, text, error);
      return FALSE;
    }
  return TRUE;
}

guint
plan_rules_n (void)
{
  return G_N_ELEMENTS (rules) + G_N_ELEMENTS (unbuilt);
}

const PlanRule *
plan_rules_get (guint i)
{
  g_return_val_if_fail (i < plan_rules_n (), NULL);
  return i < G_N_ELEMENTS (rules) ? &rules[i].rule : &unbuilt[i - G_N_ELEMENTS (rules)].rule;
}
