/* SPDX-License-Identifier: Apache-2.0 */
/* What is illegal in any framework. Each row has a predicate that is true if the rule is broken.
 * Rules cite Megatron-LM by file at d98e8a64 (2026-08-22), or by pull request. If one field's value
 * sets another field, the rule about the first one comes first. */
#include "config.h"

#include "planner/plan/rules-private.h"

#include <string.h>

static gboolean
is_megatron_fsdp (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_MEGATRON_FSDP);
}

/* Whether Megatron-LM's arguments and Transformer Engine's kernels apply to the stack. */
static gboolean
runs_megatron (const PlanFacts *f)
{
  return is_megatron_fsdp (f) || is_stack (f, PLAN_STACK_MEGATRON);
}

static gboolean
is_native (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_NATIVE);
}

static gboolean
is_full (const PlanFacts *f)
{
  return IS (f, STRATEGY, OPTIM_GRADS_PARAMS);
}

static gboolean
is_quantised (const PlanFacts *f)
{
  return !IS (f, PARAM_GATHER, COMPUTE);
}

static gboolean
is_fp8 (const PlanFacts *f)
{
  return IS (f, COMPUTE, FP8_DELAYED) || IS (f, COMPUTE, FP8_TENSORWISE)
         || IS (f, COMPUTE, FP8_BLOCKWISE);
}

static gboolean
sizes_overflow (const PlanFacts *f)
{
  const double tokens = (double)(f->value[PLAN_MBS] * f->value[PLAN_SEQ]);
  gint64 width = MAX (f->model->vocab, 2 * f->model->ffn);
  width = MAX (width, f->model->hidden);
  width = MAX (width, 3 * f->model->heads * f->model->head_dim);
  const double scores = (double)f->model->heads * (double)f->value[PLAN_SEQ];
  /* The fullest rank has at most the rows of all its ep ranks. */
  const double full = MIN (1e-6 * (double)f->value[PLAN_MOE_IMBALANCE], (double)f->value[PLAN_EP]);
  const double experts = 2.0 * (double)f->model->topk * (double)f->model->expert_ffn * full;
  const double widest = MAX (MAX ((double)width, scores), experts);
  return tokens > G_MAXINT32 || tokens * widest * (double)f->model->layers > 0x1p53;
}

static gboolean
devices_do_not_divide (const PlanFacts *f)
{
  static const PlanField degrees[] = { PLAN_TP, PLAN_CP, PLAN_PP, PLAN_DP_OUTER };
  return !plan_rules_degrees_divide (f, degrees, G_N_ELEMENTS (degrees));
}

static gboolean
replicas_do_not_divide (const PlanFacts *f)
{
  static const PlanField degrees[] = { PLAN_TP, PLAN_CP, PLAN_PP };
  return !plan_rules_degrees_divide (f, degrees, G_N_ELEMENTS (degrees));
}

static gboolean
gbs_does_not_divide (const PlanFacts *f)
{
  return f->value[PLAN_GBS] % (f->value[PLAN_MBS] * plan_data_parallel (f->plan, f->cluster)) != 0;
}

static gboolean
tp_does_not_divide (const PlanFacts *f)
{
  const gint64 tp = f->value[PLAN_TP];
  const gboolean has_dense = *f->model->pattern.of
                                 ? strchr (f->model->pattern.of, PLAN_LETTER_MLP) != NULL
                                 : plan_model_moe_layers (f->model) < f->model->layers;
  return f->model->heads % tp != 0 || f->model->kv_heads % tp != 0
         || f->model->delta.key_heads % tp != 0 || f->model->ssm.groups % tp != 0
         || (has_dense && f->model->ffn % tp != 0) || f->model->shared_ffn % tp != 0;
}

static gboolean
sp_without_tp (const PlanFacts *f)
{
  return IS (f, SP, ON) && f->value[PLAN_TP] == 1;
}

static gboolean
sp_does_not_divide (const PlanFacts *f)
{
  return IS (f, SP, ON) && f->value[PLAN_SEQ] % f->value[PLAN_TP] != 0;
}

static gboolean
pieces_without_sp (const PlanFacts *f)
{
  return !IS (f, TP_OVERLAP, NONE) && !IS (f, SP, ON);
}

/* Products in pieces write into the memory of the other devices, which links must reach. */
static gboolean
pieces_reach_out (const PlanFacts *f)
{
  return !IS (f, TP_OVERLAP, NONE) && f->value[PLAN_TP] > plan_cluster_linked_devices (f->cluster);
}

static gboolean
cp_does_not_divide (const PlanFacts *f)
{
  return f->value[PLAN_CP] > 1 && f->value[PLAN_SEQ] % (2 * f->value[PLAN_CP]) != 0;
}

static gboolean
past_positions (const PlanFacts *f)
{
  return f->model->positions == PLAN_POSITIONS_LEARNED && f->value[PLAN_SEQ] > f->model->max_seq;
}

static gboolean
ep_without_experts (const PlanFacts *f)
{
  return f->value[PLAN_EP] > 1 && f->model->experts == 0;
}

static gboolean
fsdp_pipeline (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && f->value[PLAN_PP] > 1;
}

static gboolean
hfsdp_not_full (const PlanFacts *f)
{
  return IS (f, OUTER_STRATEGY, OPTIM) && !is_full (f);
}

static gboolean
hfsdp_one_replica (const PlanFacts *f)
{
  return IS (f, OUTER_STRATEGY, OPTIM) && f->value[PLAN_DP_OUTER] == 1;
}

static gboolean
hfsdp_one_shard (const PlanFacts *f)
{
  const gint64 all = plan_data_parallel (f->plan, f->cluster) * f->value[PLAN_CP];
  return IS (f, OUTER_STRATEGY, OPTIM) && all <= f->value[PLAN_DP_OUTER];
}

static gboolean
hfsdp_sums (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && f->stack && !(f->stack->offers & PLAN_OFFERS_HYBRID_MEANS)
         && IS (f, OUTER_STRATEGY, OPTIM) && IS (f, PER_TOKEN_LOSS, OFF);
}

static gboolean
hybrid_without_overlap (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && f->value[PLAN_DP_OUTER] > 1 && IS (f, OVERLAP_GRAD_REDUCE, OFF)
         && (IS (f, STRATEGY, NO_SHARD) || IS (f, STRATEGY, OPTIM));
}

static gboolean
hybrid_gather_group (const PlanFacts *f)
{
  return IS (f, AG_GROUP, ON) && f->value[PLAN_DP_OUTER] > 1;
}

static gboolean
gather_overlap_alone (const PlanFacts *f)
{
  return runs_megatron (f) && IS (f, OVERLAP_PARAM_GATHER, ON) && IS (f, OVERLAP_GRAD_REDUCE, OFF);
}

static gboolean
compute_without_rate (const PlanFacts *f)
{
  const PlanDtype dtype = plan_field_dtype (f->plan, PLAN_COMPUTE);
  return f->cluster->kind == PLAN_DEVICE_GPU && f->cluster->peak_flops[dtype] == 0;
}

static gboolean
fp8_gather_without_fp8 (const PlanFacts *f)
{
  return IS (f, PARAM_GATHER, FP8) && !is_fp8 (f);
}

static gboolean
mxfp8_gather_without_mxfp8 (const PlanFacts *f)
{
  return IS (f, PARAM_GATHER, MXFP8) && !IS (f, COMPUTE, MXFP8);
}

static gboolean
nvfp4_gather_elsewhere (const PlanFacts *f)
{
  return IS (f, PARAM_GATHER, NVFP4) && !is_native (f);
}

static gboolean
nvfp4_gather_without_nvfp4 (const PlanFacts *f)
{
  return IS (f, PARAM_GATHER, NVFP4) && !IS (f, COMPUTE, NVFP4);
}

static gboolean
quantised_not_sharded (const PlanFacts *f)
{
  return is_quantised (f) && IS (f, STRATEGY, NO_SHARD);
}

static gboolean
quantised_half_sharded (const PlanFacts *f)
{
  return is_quantised (f) && is_megatron_fsdp (f) && !is_full (f);
}

static gboolean
quantised_without_main (const PlanFacts *f)
{
  return is_quantised (f) && IS (f, MAIN_PARAMS, AUTO);
}

static gboolean
blockwise_in_pool (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && is_full (f) && is_quantised (f) && IS (f, COMPUTE, FP8_BLOCKWISE)
         && !IS (f, DOUBLE_BUFFER, OFF);
}

static gboolean
transpose_of_nothing (const PlanFacts *f)
{
  return IS (f, KEEP_TRANSPOSE, ON) && !IS (f, PARAM_GATHER, FP8);
}

static gboolean
mxfp8_selective_per_unit (const PlanFacts *f)
{
  return (is_megatron_fsdp (f) || is_native (f)) && IS (f, PARAM_GATHER, MXFP8)
         && IS (f, RECOMPUTE, SELECTIVE) && IS (f, FINE_GRAINED, OFF);
}

static gboolean
precision_aware_sgd (const PlanFacts *f)
{
  return IS (f, PRECISION_AWARE, ON) && IS (f, OPTIMIZER, SGD);
}

/* Whether other rules (rules-stacks.c) say which formats of moments the stack's optimizer has. */
static gboolean
has_own_moments (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_FSDP1) || is_stack (f, PLAN_STACK_FSDP2)
         || is_stack (f, PLAN_STACK_NANOTRON);
}

static gboolean
moments_not_aware (const PlanFacts *f)
{
  return IS (f, PRECISION_AWARE, OFF) && !(IS (f, EXP_AVG, FP32) && IS (f, EXP_AVG_SQ, FP32))
         && !has_own_moments (f);
}

static gboolean
masters_not_aware (const PlanFacts *f)
{
  return IS (f, FUSED_MASTERS, ON) && IS (f, PRECISION_AWARE, OFF);
}

static gboolean
masters_too_late (const PlanFacts *f)
{
  return f->stack && IS (f, FUSED_MASTERS, ON) && !(f->stack->offers & PLAN_OFFERS_FUSED_MASTERS);
}

static gboolean
fine_grained_too_early (const PlanFacts *f)
{
  return f->stack && IS (f, FINE_GRAINED, ON) && !(f->stack->offers & PLAN_OFFERS_FINE_GRAINED)
         && !IS (f, PARAM_GATHER, MXFP8);
}

/* Megatron-LM's first commit with it is of that date. */
static gboolean
delta_too_early (const PlanFacts *f)
{
  const gint64 date = f->value[PLAN_STACK] / PLAN_STACK_BASE;
  return f->model->delta.attn_every > 0 && date > 0 && date < 20260117;
}

static gboolean
max_pool_too_early (const PlanFacts *f)
{
  return f->stack && IS (f, DOUBLE_BUFFER, MAX_POOL) && !(f->stack->offers & PLAN_OFFERS_MAX_POOL);
}

/* Asked only of stacks that can offload: for the others another rule names the stack to use. */
static gboolean
offload_not_aware (const PlanFacts *f)
{
  return f->value[PLAN_OFFLOAD_OPTIMIZER] > 0 && IS (f, PRECISION_AWARE, OFF)
         && (is_stack (f, PLAN_STACK_MEGATRON_FSDP) || is_stack (f, PLAN_STACK_MEGATRON)
             || is_stack (f, PLAN_STACK_NATIVE));
}

static gboolean
offload_of_fp8 (const PlanFacts *f)
{
  return f->value[PLAN_OFFLOAD_OPTIMIZER] > 0 && is_quantised (f) && !IS (f, COMPUTE, FP8_DELAYED)
         && !is_stack (f, PLAN_STACK_NATIVE);
}

static gboolean
modules_without_selective (const PlanFacts *f)
{
  const gint64 initial = G_GINT64_CONSTANT (1) << PLAN_RECOMPUTE_MODULES_CORE_ATTN;
  return !IS (f, RECOMPUTE, SELECTIVE) && f->value[PLAN_RECOMPUTE_MODULES] != initial;
}

static gboolean
selective_of_nothing (const PlanFacts *f)
{
  return IS (f, RECOMPUTE, SELECTIVE) && f->value[PLAN_RECOMPUTE_MODULES] == 0;
}

static gboolean
modules_not_there (const PlanFacts *f)
{
  const gboolean names_experts
      = HAS_MODULE (f, RECOMPUTE_MODULES, MOE) || HAS_MODULE (f, RECOMPUTE_MODULES, MOE_ACT);
  return (names_experts && f->model->experts == 0)
         || (HAS_MODULE (f, RECOMPUTE_MODULES, SHARED_EXPERTS) && f->model->shared_ffn == 0)
         || (HAS_MODULE (f, RECOMPUTE_MODULES, MLA_UP_PROJ) && f->model->kv_lora == 0);
}

static gboolean
norms_with_delayed (const PlanFacts *f)
{
  return IS (f, COMPUTE, FP8_DELAYED)
         && (HAS_MODULE (f, RECOMPUTE_MODULES, LAYERNORM)
             || HAS_MODULE (f, RECOMPUTE_MODULES, MOE_ACT));
}

static gboolean
method_without_full (const PlanFacts *f)
{
  return !IS (f, RECOMPUTE, FULL)
         && (!IS (f, RECOMPUTE_METHOD, UNIFORM) || f->value[PLAN_RECOMPUTE_LAYERS] != 1);
}

static gboolean
recomputes_too_many (const PlanFacts *f)
{
  return f->value[PLAN_RECOMPUTE_LAYERS] > f->model->layers;
}

static gboolean
offloads_too_many (const PlanFacts *f)
{
  return f->value[PLAN_OFFLOAD_LAYERS] > f->model->layers;
}

static gboolean
offloads_and_recomputes (const PlanFacts *f)
{
  return f->value[PLAN_OFFLOAD_LAYERS] > 0 && !IS (f, RECOMPUTE, NONE);
}

static gboolean
offloads_in_graph (const PlanFacts *f)
{
  return f->value[PLAN_OFFLOAD_LAYERS] > 0 && IS (f, CUDA_GRAPH, ON);
}

static gboolean
offloads_twice (const PlanFacts *f)
{
  return f->value[PLAN_OFFLOAD_LAYERS] > 0 && f->value[PLAN_OFFLOAD_MODULES] != 0;
}

static gboolean
offloads_proj_alone (const PlanFacts *f)
{
  return HAS_MODULE (f, OFFLOAD_MODULES, ATTN_PROJ) && !HAS_MODULE (f, OFFLOAD_MODULES, CORE_ATTN);
}

static gboolean
graphs_without_gpu (const PlanFacts *f)
{
  return (IS (f, CUDA_GRAPH, ON) || f->value[PLAN_GRAPH_MODULES] != 0)
         && f->cluster->kind != PLAN_DEVICE_GPU;
}

static gboolean
cuts_loss_elsewhere (const PlanFacts *f)
{
  return f->stack && f->value[PLAN_LOSS_CHUNKS] > 1
         && (f->stack->loss.pieces == PLAN_PIECES_NONE
             || (f->stack->loss.pieces == PLAN_PIECES_AUTOGRAD && f->model->tied_embeddings));
}

static gboolean
loss_chunks_do_not_divide (const PlanFacts *f)
{
  return f->value[PLAN_MBS] * f->value[PLAN_SEQ] / f->value[PLAN_CP] % f->value[PLAN_LOSS_CHUNKS]
         != 0;
}

static gboolean
is_unaligned (gint64 value, gint64 multiple)
{
  return value % multiple != 0;
}

/* GEMMs in these formats need operands whose rows are whole blocks. */
static gboolean
shapes_not_aligned (const PlanFacts *f)
{
  if (f->value[PLAN_COMPUTE] < PLAN_COMPUTE_FP8_DELAYED || !runs_megatron (f))
    return FALSE;
  const gint64 multiple = IS (f, COMPUTE, MXFP8) ? 32 : 16;
  const gint64 tp = f->value[PLAN_TP];
  const gint64 tokens = f->value[PLAN_MBS] * f->value[PLAN_SEQ] / f->value[PLAN_CP];
  return is_unaligned (tokens, multiple) || is_unaligned (f->model->hidden, multiple)
         || is_unaligned (f->model->expert_hidden, multiple)
         || is_unaligned (f->model->ffn / tp, multiple)
         || is_unaligned (f->model->expert_ffn / f->value[PLAN_ETP], multiple)
         || is_unaligned (f->model->shared_ffn / tp, multiple)
         || is_unaligned (f->model->heads * f->model->head_dim / tp, multiple)
         || is_unaligned (f->model->kv_heads * f->model->head_dim / tp, multiple)
         || is_unaligned (plan_delta_projected (&f->model->delta) / tp, multiple)
         || is_unaligned (plan_delta_values (&f->model->delta) / tp, multiple)
         || is_unaligned (plan_ssm_projected (&f->model->ssm) / tp, multiple)
         || is_unaligned (plan_ssm_inner (&f->model->ssm) / tp, multiple);
}

/* clang-format off */
static const PlanRuleEntry rules[] = {
  { { "sizes-fit", "a rank's activations must stay below 2^53 elements and its micro batch below 2^31 tokens: "
      "lower mbs or seq", "this program's own limit: bytes are counted in 64 bits", PLAN_ERROR_INFEASIBLE },
    sizes_overflow, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_MBS, PLAN_SEQ), PLAN_OF_BLOCKS },
  { { "devices-divide", "the devices must be a multiple of tp x cp x pp x dp_outer",
      "Megatron-LM mcore_fsdp_adapter.py: the device mesh is a reshape of all ranks", PLAN_ERROR_INVALID },
    devices_do_not_divide, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_TP, PLAN_CP, PLAN_PP, PLAN_DP_OUTER),
    PLAN_BREAKS_BLOCKS (replicas_do_not_divide) },
  { { "gbs-divides", "gbs must be a multiple of mbs x the data-parallel size (devices / tp / cp / pp), so that every "
      "rank runs whole micro batches", "Megatron-LM num_microbatches_calculator.py", PLAN_ERROR_INVALID },
    gbs_does_not_divide, PLAN_ADD_BATCHES, PLAN_SHOW (PLAN_GBS, PLAN_MBS, PLAN_TP, PLAN_CP, PLAN_PP), PLAN_OF_BLOCKS },
  { { "tp-divides-model", "tp must divide heads, kv_heads, and ffn, shared_ffn, delta_key_heads and ssm_groups where layers have them: it splits these",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    tp_does_not_divide, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_TP), PLAN_OF_BLOCKS },
  { { "sp-needs-tp", "sp=on needs tp above 1: it splits over the tensor-parallel group",
      "Megatron-LM arguments.py: sequence parallelism is off when tp=1", PLAN_ERROR_INVALID },
    sp_without_tp, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_TP), PLAN_OF_BLOCKS },
  { { "sp-divides-seq", "sp=on needs seq to be a multiple of tp",
      "Megatron-LM: sequences are scattered in equal parts", PLAN_ERROR_INVALID },
    sp_does_not_divide, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_SEQ, PLAN_TP), PLAN_OF_BLOCKS },
  { { "pieces-need-sp", "tp_overlap other than none needs tp above 1 and sp=on: what goes on in pieces are the gathers and "
      "reductions of split sequences", "Megatron-LM arguments.py, --tp-comm-overlap", PLAN_ERROR_INVALID },
    pieces_without_sp, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_TP_OVERLAP, PLAN_TP, PLAN_SP), PLAN_OF_BLOCKS },
  { { "pieces-need-links", "tp_overlap other than none needs tp to be at most the devices that are linked without the network",
      "TransformerEngine module/base.py, initialize_ub", PLAN_ERROR_INVALID },
    pieces_reach_out, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_TP_OVERLAP, PLAN_TP), PLAN_OF_BLOCKS },
  { { "cp-divides-seq", "cp above 1 needs seq to be a multiple of 2 x cp: each rank takes one early and one late part",
      "Megatron-LM context_parallel documentation", PLAN_ERROR_INVALID },
    cp_does_not_divide, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_SEQ, PLAN_CP), PLAN_OF_BLOCKS },
  { { "seq-within-positions", "seq may not be more than the rows of a learned table of positions",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    past_positions, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_SEQ), PLAN_OF_BLOCKS },
  { { "ep-needs-experts", "ep above 1 needs a model with experts; this one is dense: use ep=1",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    ep_without_experts, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EP), PLAN_OF_BLOCKS },
  { { "fsdp-has-no-pipeline", "stack=megatron-fsdp needs pp=1: its mesh of all ranks has no pipeline axis",
      "Megatron-LM mcore_fsdp_adapter.py", PLAN_ERROR_INVALID },
    fsdp_pipeline, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP), PLAN_OF_BLOCKS },

  { { "hfsdp-needs-full-sharding", "outer_strategy=optim needs strategy=optim_grads_params",
      "Megatron-LM megatron_fsdp.py: not implemented for any other", PLAN_ERROR_INVALID },
    hfsdp_not_full, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STRATEGY) },
  { { "hfsdp-needs-replicas", "outer_strategy=optim needs dp_outer above 1: with one replica there is nothing to "
      "shard over", "Megatron-LM param_and_grad_buffer.py, as read: it uses a buffer that it never made", PLAN_ERROR_INVALID },
    hfsdp_one_replica, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DP_OUTER) },
  { { "hfsdp-needs-shards", "outer_strategy=optim needs more than one rank in each replica; with one there is nothing to "
      "shard inside: use dp_outer=1", "Megatron-LM param_and_grad_buffer.py: the inner group holds the shards that are cut",
      PLAN_ERROR_INVALID },
    hfsdp_one_shard, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_DP_OUTER, PLAN_TP) },
  { { "hfsdp-needs-per-token-loss", "outer_strategy=optim on stack=megatron-fsdp needs per_token_loss=on since "
      "2026-04-01: otherwise gradients are summed where they should be averaged", "Megatron-LM param_and_grad_buffer.py, as read: since PR #3918 the buffer that is reduced has no scaling factor", PLAN_ERROR_INVALID },
    hfsdp_sums, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PER_TOKEN_LOSS) },
  { { "hybrid-needs-overlap", "dp_outer above 1 with strategy no_shard or optim needs overlap_grad_reduce=on: the "
      "synchronous path reduces over the inner group only", "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_INVALID },
    hybrid_without_overlap, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DP_OUTER, PLAN_STRATEGY, PLAN_OVERLAP_GRAD_REDUCE) },
  { { "ag-group-needs-one-group", "ag_group=on needs dp_outer=1: the second communicator spans all data-parallel "
      "ranks, the weights only the inner group", "Megatron-LM megatron_fsdp.py, as read", PLAN_ERROR_INVALID },
    hybrid_gather_group, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DP_OUTER) },
  { { "gather-overlap-needs-reduce-overlap", "overlap_param_gather=on needs overlap_grad_reduce=on: set both or neither",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    gather_overlap_alone, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OVERLAP_PARAM_GATHER, PLAN_OVERLAP_GRAD_REDUCE), PLAN_OF_BLOCKS },

  { { "compute-needs-rate", "the device must have a rate for the compute format: choose "
      "another compute, or give peak_FORMAT in the cluster's .ini file if it has one",
      "the cluster's figures; Megatron-LM arguments.py: mxfp8 is for Blackwell", PLAN_ERROR_UNSUPPORTED },
    compute_without_rate, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_COMPUTE), PLAN_OF_BLOCKS },
  { { "fp8-gather-needs-fp8", "param_gather=fp8 needs compute=fp8-delayed, fp8-tensorwise or fp8-blockwise",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    fp8_gather_without_fp8, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_COMPUTE), PLAN_OF_BLOCKS },
  { { "mxfp8-gather-needs-mxfp8", "param_gather=mxfp8 needs compute=mxfp8",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    mxfp8_gather_without_mxfp8, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_COMPUTE), PLAN_OF_BLOCKS },
  { { "nvfp4-gather-is-native", "param_gather=nvfp4 needs stack=native: elsewhere buffers are sized by element and "
      "cannot hold packed pairs", "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_INVALID },
    nvfp4_gather_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK), PLAN_OF_BLOCKS },
  { { "nvfp4-gather-needs-nvfp4", "param_gather=nvfp4 needs compute=nvfp4",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    nvfp4_gather_without_nvfp4, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_COMPUTE), PLAN_OF_BLOCKS },
  { { "quantised-params-need-sharding", "quantised parameters need a sharding strategy: no_shard has no buffer of "
      "weights to quantise into", "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_INVALID },
    quantised_not_sharded, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PARAM_GATHER, PLAN_STRATEGY) },
  { { "quantised-params-need-full-sharding", "quantised parameters on stack=megatron-fsdp need "
      "strategy=optim_grads_params, the only one upstream supports with them",
      "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_UNSUPPORTED },
    quantised_half_sharded, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PARAM_GATHER, PLAN_STRATEGY) },
  { { "quantised-params-need-main", "quantised parameters need main_params of their own, not auto: they are quantised "
      "from them", "Megatron-LM mixed_precision.py", PLAN_ERROR_INVALID },
    quantised_without_main, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PARAM_GATHER, PLAN_MAIN_PARAMS), PLAN_OF_BLOCKS },
  { { "blockwise-outgrows-pool", "compute=fp8-blockwise with quantised, fully sharded parameters needs "
      "double_buffer=off and nccl_ub=off: quantising after the step holds more than two units",
      "Megatron-LM param_and_grad_buffer.py, as read", PLAN_ERROR_INVALID },
    blockwise_in_pool, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DOUBLE_BUFFER, PLAN_NCCL_UB) },
  { { "keep-transpose-needs-fp8-params", "keep_transpose=on needs param_gather=fp8, whose transposes it keeps",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    transpose_of_nothing, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PARAM_GATHER), PLAN_OF_BLOCKS },
  { { "mxfp8-selective-needs-fine-grained", "param_gather=mxfp8 with recompute=selective needs fine_grained=on: rows and "
      "columns are needed at once", "Megatron-LM PR #4181", PLAN_ERROR_INVALID },
    mxfp8_selective_per_unit, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_FINE_GRAINED), PLAN_OF_BLOCKS },

  { { "fp8-needs-aligned-shapes", "products in fp8 and nvfp4 need hidden, expert_hidden, ffn / tp, expert_ffn / etp, the widths of q, k and v and of the delta rule's and state spaces' projections / tp and the "
      "tokens of a micro batch to be multiples of 16 (mxfp8: 32)",
      "Transformer Engine utils.py, assert_dim_for_fp8_exec", PLAN_ERROR_INVALID },
    shapes_not_aligned, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_COMPUTE, PLAN_MBS, PLAN_SEQ, PLAN_TP, PLAN_CP), PLAN_OF_BLOCKS },
  { { "fine-grained-since-2026-05-20", "fine_grained=on needs a stack date of 2026-05-20 or later, or "
      "param_gather=mxfp8, which brings it", "Megatron-LM PR #4181, merged 2026-05-20", PLAN_ERROR_INVALID },
    fine_grained_too_early, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK), PLAN_OF_BLOCKS },
  { { "delta-since-2026-01-17", "models with linear attention by the gated delta rule (attn_every) need a stack date of 2026-01-17 or later",
      "Megatron-LM PR #1989, merged 2026-01-17", PLAN_ERROR_INVALID },
    delta_too_early, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK), PLAN_OF_BLOCKS },
  { { "max-pool-since-2026-07-02", "double_buffer=max_pool needs a stack date of 2026-07-02 or later: use "
      "double_buffer=on", "Megatron-LM PR #5462, merged 2026-07-02", PLAN_ERROR_INVALID },
    max_pool_too_early, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK) },

  { { "precision-aware-needs-adam", "precision_aware=on needs optimizer=adamw",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    precision_aware_sgd, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OPTIMIZER) },
  { { "moments-need-precision-aware", "exp_avg and exp_avg_sq other than fp32 need precision_aware=on",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    moments_not_aware, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EXP_AVG, PLAN_EXP_AVG_SQ) },
  { { "fused-masters-need-precision-aware", "fused_masters=on needs precision_aware=on: only that optimizer kept them",
      "Megatron-LM PR #4133", PLAN_ERROR_INVALID },
    masters_not_aware, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PRECISION_AWARE) },
  { { "fused-masters-before-2026-04-10", "fused_masters=on needs a stack date before 2026-04-10, as in "
      "megatron-fsdp@2026-04-09: later ones switch them off", "Megatron-LM PR #4133, merged 2026-04-10", PLAN_ERROR_INVALID },
    masters_too_late, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK), PLAN_OF_BLOCKS },
  { { "offload-needs-precision-aware", "offload_optimizer above 0 needs precision_aware=on",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    offload_not_aware, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OFFLOAD_OPTIMIZER) },
  { { "offload-of-fp8-is-delayed", "offload_optimizer above 0 with quantised parameters needs compute=fp8-delayed "
      "or stack=native",
      "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    offload_of_fp8, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OFFLOAD_OPTIMIZER, PLAN_COMPUTE), PLAN_OF_BLOCKS },

  { { "recompute-modules-are-selective", "recompute_modules needs recompute=selective",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    modules_without_selective, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE, PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "selective-needs-modules", "recompute=selective needs at least one of recompute_modules",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    selective_of_nothing, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "recompute-modules-exist", "recompute_modules may name only modules of the model: moe and moe_act need experts, "
      "shared_experts shared ones, mla_up_proj latent attention", "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    modules_not_there, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "norms-not-with-delayed", "recompute_modules may not name layernorm or moe_act when compute=fp8-delayed",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    norms_with_delayed, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "recompute-method-is-full", "recompute_method and recompute_layers need recompute=full",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    method_without_full, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE, PLAN_RECOMPUTE_METHOD, PLAN_RECOMPUTE_LAYERS), PLAN_OF_BLOCKS },
  { { "recompute-layers-exist", "recompute_layers may not be more than the model has",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    recomputes_too_many, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_RECOMPUTE_LAYERS), PLAN_OF_BLOCKS },
  { { "offload-layers-exist", "offload_layers may not be more than the model has",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_too_many, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_OFFLOAD_LAYERS), PLAN_OF_BLOCKS },
  { { "offload-layers-or-recompute", "offload_layers above 0 needs recompute=none",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_and_recomputes, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OFFLOAD_LAYERS, PLAN_RECOMPUTE), PLAN_OF_BLOCKS },
  { { "offload-layers-or-cuda-graph", "offload_layers above 0 needs cuda_graph=off",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_in_graph, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OFFLOAD_LAYERS), PLAN_OF_BLOCKS },
  { { "offload-layers-or-modules", "offload_layers and offload_modules exclude each other: use one",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_twice, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES), PLAN_OF_BLOCKS },
  { { "offload-proj-needs-core", "offload_modules with attn_proj needs core_attn beside it",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_proj_alone, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OFFLOAD_MODULES), PLAN_OF_BLOCKS },
  { { "graphs-need-gpus", "cuda_graph=on and graph_modules need a cluster of GPUs, which run ops by themselves: use off and none",
      "CUDA runtime, graphs", PLAN_ERROR_INVALID },
    graphs_without_gpu, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_CUDA_GRAPH, PLAN_GRAPH_MODULES), PLAN_OF_BLOCKS },
  { { "loss-chunks-of-stack", "loss_chunks above 1 needs stack=native, or stack=fsdp2 of 2026-04-27 or later with a head of "
      "its own: where it shares the embedding's weight, that is reduced twice, which is not modelled",
      "torchtitan PR #2937; Megatron-LM has no loss in pieces", PLAN_ERROR_UNSUPPORTED },
    cuts_loss_elsewhere, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_STACK, PLAN_LOSS_CHUNKS), PLAN_OF_BLOCKS },
  { { "loss-chunks-divide", "loss_chunks must divide mbs x seq / cp, the tokens of a rank's micro batch: pieces are equal",
      "this program's own runtime", PLAN_ERROR_INVALID },
    loss_chunks_do_not_divide, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_LOSS_CHUNKS, PLAN_MBS, PLAN_SEQ, PLAN_CP), PLAN_OF_BLOCKS },
};
/* clang-format on */

const PlanRuleTable plan_rules_illegal = { rules, G_N_ELEMENTS (rules) };
