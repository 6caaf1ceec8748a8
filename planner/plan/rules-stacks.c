/* SPDX-License-Identifier: Apache-2.0 */
/* What a stack cannot do. Each row has a predicate that is true if the rule is broken. Sources:
 * Megatron-LM at d98e8a64 (2026-08-22), torchtitan at b5bcd76c (2026-08-21), PyTorch's
 * torch/distributed/fsdp, nanotron at 2cde8f63 (2024-12-05). */
#include "config.h"

#include "planner/plan/rules-private.h"

#include "planner/plan/megatron-lacks.h"

static gboolean
is_megatron (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_MEGATRON);
}

static gboolean
is_megatron_fsdp (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_MEGATRON_FSDP);
}

/* Whether Megatron-LM's training loop runs the stack. */
static gboolean
runs_megatron (const PlanFacts *f)
{
  return is_megatron (f) || is_megatron_fsdp (f);
}

static gboolean
is_nanotron (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_NANOTRON);
}

/* Whether the stack is one of PyTorch's own. */
static gboolean
is_torch (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_FSDP1) || is_stack (f, PLAN_STACK_FSDP2);
}

/* Whether the stack is Megatron-FSDP, or our runtime, which follows it. */
static gboolean
follows_megatron_fsdp (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_MEGATRON_FSDP) || is_stack (f, PLAN_STACK_NATIVE);
}

static gboolean
is_changed (const PlanFacts *f, const PlanField *fields, guint n)
{
  Plan initial;
  plan_init (&initial);
  for (guint i = 0; i < n; i++)
    if (f->value[fields[i]] != initial.value[fields[i]])
      return TRUE;
  return FALSE;
}

#define IS_ANY_CHANGED(f, ...) \
  is_changed (f, (const PlanField[]){ __VA_ARGS__ }, \
              sizeof ((const PlanField[]){ __VA_ARGS__ }) / sizeof (PlanField))

static gboolean
shards_more_than_optimizer (const PlanFacts *f)
{
  return (is_megatron (f) || is_nanotron (f))
         && !(IS (f, STRATEGY, NO_SHARD) || IS (f, STRATEGY, OPTIM));
}

static gboolean
shards_less_than_grads (const PlanFacts *f)
{
  return is_torch (f) && (IS (f, STRATEGY, NO_SHARD) || IS (f, STRATEGY, OPTIM));
}

static gboolean
buffers_elsewhere (const PlanFacts *f)
{
  return !follows_megatron_fsdp (f)
         && IS_ANY_CHANGED (f, PLAN_FINE_GRAINED, PLAN_COMM_UNIT, PLAN_DOUBLE_BUFFER, PLAN_NCCL_UB,
                            PLAN_AG_GROUP, PLAN_SYNC_EVERY_MICRO_BATCH);
}

static gboolean
keeps_whole_elsewhere (const PlanFacts *f)
{
  return !is_torch (f) && IS (f, GRAD_SYNC, LAST);
}

static gboolean
foreach_elsewhere (const PlanFacts *f)
{
  return IS (f, ADAM_FOREACH, ON)
         && (!is_torch (f) || !IS (f, OPTIMIZER, ADAMW)
             || plan_field_dtype (f->plan, PLAN_EXP_AVG_SQ)
                    != plan_field_dtype (f->plan, PLAN_MAIN_PARAMS));
}

static gboolean
hfsdp_elsewhere (const PlanFacts *f)
{
  return !follows_megatron_fsdp (f) && IS (f, OUTER_STRATEGY, OPTIM);
}

static gboolean
optimizer_elsewhere (const PlanFacts *f)
{
  return (is_torch (f) || is_nanotron (f))
         && IS_ANY_CHANGED (f, PLAN_PRECISION_AWARE, PLAN_OFFLOAD_OPTIMIZER,
                            PLAN_GRAD_ACCUM_FUSION);
}

/* torch.optim.AdamW makes moments in the format of the parameters. torchtitan can make them in bf16
 * before the first step. */
static gboolean
moments_elsewhere (const PlanFacts *f)
{
  const PlanDtype avg = plan_field_dtype (f->plan, PLAN_EXP_AVG);
  const PlanDtype params
      = is_nanotron (f) ? PLAN_DTYPE_FP32 : plan_field_dtype (f->plan, PLAN_MAIN_PARAMS);
  if (!(is_torch (f) || is_nanotron (f)) || !IS (f, OPTIMIZER, ADAMW))
    return FALSE;
  const gboolean may_be_narrow
      = f->stack && (f->stack->offers & PLAN_OFFERS_NARROW_MOMENTS) && params == PLAN_DTYPE_FP32;
  return avg != plan_field_dtype (f->plan, PLAN_EXP_AVG_SQ)
         || (avg != params && !(may_be_narrow && avg == PLAN_DTYPE_BF16));
}

static gboolean
offloads_elsewhere (const PlanFacts *f)
{
  return (is_torch (f) || is_nanotron (f))
         && IS_ANY_CHANGED (f, PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES);
}

static gboolean
quantised_elsewhere (const PlanFacts *f)
{
  return !follows_megatron_fsdp (f) && !IS (f, PARAM_GATHER, COMPUTE)
         && !(is_megatron (f) && (IS (f, PARAM_GATHER, FP8) || IS (f, PARAM_GATHER, MXFP8)));
}

static gboolean
compute_elsewhere (const PlanFacts *f)
{
  const gint64 compute = f->value[PLAN_COMPUTE];
  if (is_nanotron (f))
    return compute != PLAN_COMPUTE_BF16;
  if (is_stack (f, PLAN_STACK_FSDP1))
    return compute > PLAN_COMPUTE_BF16;
  return is_stack (f, PLAN_STACK_FSDP2) && compute > PLAN_COMPUTE_BF16
         && compute != PLAN_COMPUTE_FP8_TENSORWISE && compute != PLAN_COMPUTE_MXFP8;
}

static gboolean
waits_elsewhere (const PlanFacts *f)
{
  return is_torch (f) && (IS (f, OVERLAP_GRAD_REDUCE, OFF) || IS (f, OVERLAP_PARAM_GATHER, OFF));
}

static gboolean
chunks_elsewhere (const PlanFacts *f)
{
  return (is_torch (f) || is_nanotron (f)) && IS (f, RECOMPUTE, FULL)
         && IS (f, RECOMPUTE_METHOD, UNIFORM) && f->value[PLAN_RECOMPUTE_LAYERS] > 1;
}

static gboolean
modules_elsewhere (const PlanFacts *f)
{
  return (is_torch (f) || is_nanotron (f)) && IS (f, RECOMPUTE, SELECTIVE)
         && f->value[PLAN_RECOMPUTE_MODULES] != 1 << PLAN_RECOMPUTE_MODULES_OP_SAC;
}

static gboolean
recomputes_some_layers (const PlanFacts *f)
{
  return is_nanotron (f) && IS (f, RECOMPUTE, FULL) && IS (f, RECOMPUTE_METHOD, BLOCK)
         && f->value[PLAN_RECOMPUTE_LAYERS] < f->model->layers;
}

static gboolean
op_sac_elsewhere (const PlanFacts *f)
{
  return !is_torch (f) && IS (f, RECOMPUTE, SELECTIVE) && HAS_MODULE (f, RECOMPUTE_MODULES, OP_SAC);
}

static gboolean
main_grads_elsewhere (const PlanFacts *f)
{
  return is_nanotron (f)
         && !(IS (f, MAIN_GRADS, FP32) && IS (f, GRAD_COMM, FP32) && IS (f, REDUCE_ALGO, RS));
}

static gboolean
replicas_elsewhere (const PlanFacts *f)
{
  return is_nanotron (f) && (f->value[PLAN_DP_OUTER] > 1 || f->value[PLAN_CP] > 1);
}

static gboolean
flat_parameters_split (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_FSDP1) && (f->value[PLAN_TP] > 1 || f->value[PLAN_CP] > 1);
}

static gboolean
graphs_elsewhere (const PlanFacts *f)
{
  return (is_torch (f) || is_nanotron (f)) && IS (f, CUDA_GRAPH, ON);
}

/* Whether a graph would replay the random numbers with which a module was dropped out, where it is
 * recomputed. */
static gboolean
recomputes_dropout_in_graph (const PlanFacts *f)
{
  return runs_megatron (f) && IS (f, CUDA_GRAPH, ON) && IS (f, RECOMPUTE, SELECTIVE)
         && ((f->value[PLAN_ATTENTION_DROPOUT] > 0 && HAS_MODULE (f, RECOMPUTE_MODULES, CORE_ATTN))
             || (f->value[PLAN_HIDDEN_DROPOUT] > 0
                 && (HAS_MODULE (f, RECOMPUTE_MODULES, MLP)
                     || HAS_MODULE (f, RECOMPUTE_MODULES, MOE))));
}

static gboolean
empties_elsewhere (const PlanFacts *f)
{
  return IS (f, EMPTY_CACHE, ON) && !runs_megatron (f);
}

static gboolean
user_buffers_elsewhere (const PlanFacts *f)
{
  return IS (f, TP_OVERLAP, UB) && !runs_megatron (f);
}

/* PyTorch's compiler finds products and their communication and cuts them into pieces; our own
 * runtime issues them so. */
static gboolean
async_elsewhere (const PlanFacts *f)
{
  return IS (f, TP_OVERLAP, ASYNC) && !(is_stack (f, PLAN_STACK_FSDP2) && IS (f, COMPILE, ON))
         && !is_stack (f, PLAN_STACK_NATIVE);
}

static gboolean
compiles_elsewhere (const PlanFacts *f)
{
  return IS (f, COMPILE, ON) && !is_stack (f, PLAN_STACK_FSDP2);
}

static gboolean
all_to_all_elsewhere (const PlanFacts *f)
{
  return IS (f, REDUCE_ALGO, A2A) && !is_megatron (f) && !is_stack (f, PLAN_STACK_NATIVE);
}

/* Whether Megatron-LM's DDP cannot reduce by all-to-all though it is asked to, as its
 * param_and_grad_buffer.py says. */
static gboolean
all_to_all_of_megatron (const PlanFacts *f)
{
  return IS (f, REDUCE_ALGO, A2A) && is_megatron (f)
         && (!IS (f, STRATEGY, OPTIM) || f->value[PLAN_DP_OUTER] > 1 || IS (f, MAIN_GRADS, FP32));
}

static gboolean
reduces_late (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && IS (f, OVERLAP_GRAD_REDUCE, OFF)
         && (IS (f, STRATEGY, OPTIM_GRADS) || IS (f, STRATEGY, OPTIM_GRADS_PARAMS));
}

static gboolean
gathers_late (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && IS (f, OVERLAP_PARAM_GATHER, OFF)
         && IS (f, STRATEGY, OPTIM_GRADS_PARAMS);
}

static gboolean
main_params_of_megatron (const PlanFacts *f)
{
  const gboolean may_be_half = IS (f, PRECISION_AWARE, ON) && IS (f, STRATEGY, OPTIM);
  return is_megatron (f) && !IS (f, MAIN_PARAMS, FP32)
         && !(may_be_half && IS (f, MAIN_PARAMS, FP16));
}

static gboolean
main_grads_of_megatron (const PlanFacts *f)
{
  const gint64 weights = IS (f, COMPUTE, FP32)   ? PLAN_MAIN_GRADS_FP32
                         : IS (f, COMPUTE, FP16) ? PLAN_MAIN_GRADS_FP16
                                                 : PLAN_MAIN_GRADS_BF16;
  const gint64 grads = f->value[PLAN_MAIN_GRADS];
  return is_megatron (f)
         && ((grads != PLAN_MAIN_GRADS_FP32 && grads != weights)
             || f->value[PLAN_GRAD_COMM] != grads);
}

/* Replicas, and an optimizer that reads gradients in their own format, need the distributed
 * optimizer. */
static gboolean
optimizer_not_distributed (const PlanFacts *f)
{
  return is_megatron (f) && IS (f, STRATEGY, NO_SHARD)
         && (f->value[PLAN_DP_OUTER] > 1 || IS (f, PRECISION_AWARE, ON));
}

static gboolean
transpose_elsewhere (const PlanFacts *f)
{
  return is_megatron (f) && IS (f, KEEP_TRANSPOSE, ON);
}

static gboolean
nan_check_of_params (const PlanFacts *f)
{
  return is_megatron (f) && IS (f, NAN_CHECK, PARAMS);
}

static gboolean
nan_check_of_loss (const PlanFacts *f)
{
  return runs_megatron (f) && IS (f, NAN_CHECK, LOSS)
         && (IS (f, COMPUTE, FP16) || IS (f, CUDA_GRAPH, ON));
}

static gboolean
lacks_te_loss (const PlanFacts *f)
{
  return IS (f, CE_FUSION, TE) && f->stack && !(f->stack->offers & PLAN_OFFERS_TE_LOSS);
}

static gboolean
deterministic_in_other_orders (const PlanFacts *f)
{
  return runs_megatron (f) && IS (f, DETERMINISTIC, ON)
         && !(IS (f, CE_FUSION, OFF) && IS (f, TP_OVERLAP, NONE) && IS (f, SHARP, OFF));
}

static gboolean
offloads_every_layer (const PlanFacts *f)
{
  return runs_megatron (f) && f->value[PLAN_OFFLOAD_LAYERS] >= f->model->layers;
}

static gboolean
model_of_megatron (const PlanFacts *f)
{
  return is_megatron (f) && !plan_megatron_builds (f->model);
}

/* Megatron-FSDP's own call takes any model. The settings that only Megatron-LM's training loop
 * reads do not come with it. */
static gboolean
settings_of_megatron_lm (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && !plan_megatron_builds (f->model)
         && IS_ANY_CHANGED (f, PLAN_COMM_UNIT, PLAN_SHARP, PLAN_OFFLOAD_OPTIMIZER,
                            PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES);
}

/* nanotron has no models but those that its LlamaConfig describes. */
static gboolean
model_of_nanotron (const PlanFacts *f)
{
  const PlanModel *const m = f->model;
  const gboolean has_other_norms
      = m->norm != PLAN_NORM_RMSNORM || m->norm_bias || m->norm_1p || m->post_norms || m->qk_norm;
  const gboolean has_biases = m->qkv_bias || m->proj_bias || m->mlp_bias;
  const gboolean has_other_attention
      = m->positions != PLAN_POSITIONS_ROPE || m->rope_fraction != 1
        || m->rope.scaling != PLAN_ROPE_SCALING_NONE || m->window > 0
        || m->head_dim * m->heads != m->hidden || m->attn_softcap > 0
        || (m->attn_scalar > 0 && m->attn_scalar != (double)m->head_dim);
  return is_nanotron (f)
         && (has_other_norms || has_biases || has_other_attention
             || m->activation != PLAN_ACTIVATION_SILU || !m->gated || m->parallel || m->embed_scale
             || m->logit_softcap > 0 || m->experts > 0 || m->kv_lora > 0 || m->mtp > 0);
}

/* torchao's mxfp8 comes with torchtitan, which recomputes all layers or none. */
static gboolean
mxfp8_of_some_layers (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_FSDP2) && IS (f, COMPUTE, MXFP8) && IS (f, RECOMPUTE, FULL)
         && IS (f, RECOMPUTE_METHOD, BLOCK) && f->value[PLAN_RECOMPUTE_LAYERS] < f->model->layers;
}

/* FSDP 1 shards models of any kind, but over one mesh of ranks, so that experts cannot have
 * another. */
static gboolean
ep_elsewhere (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_FSDP1) && f->value[PLAN_EP] > 1;
}

/* torchtitan's experts are not split, run as grouped GEMMs with fp32 scores, and overlap with
 * nothing. */
static gboolean
expert_settings_elsewhere (const PlanFacts *f)
{
  return (is_torch (f) || is_nanotron (f))
         && (IS (f, MOE_DISPATCHER, ALLGATHER)
             || IS_ANY_CHANGED (f, PLAN_ETP, PLAN_MOE_GROUPED_GEMM, PLAN_MOE_PERMUTE_FUSION,
                                PLAN_MOE_ROUTER_FUSION, PLAN_ROUTER_DTYPE, PLAN_MOE_CAPACITY,
                                PLAN_MOE_PAD_TO_CAPACITY, PLAN_MOE_DROP, PLAN_MOE_SHARED_OVERLAP,
                                PLAN_EP_OVERLAP, PLAN_EP_DELAY_WGRAD));
}

static gboolean
balances_elsewhere (const PlanFacts *f)
{
  return f->value[PLAN_MOE_AUX_LOSS] > 0 && !is_stack (f, PLAN_STACK_NATIVE);
}

static gboolean
drops_elsewhere (const PlanFacts *f)
{
  return is_nanotron (f) && IS_ANY_CHANGED (f, PLAN_HIDDEN_DROPOUT, PLAN_ATTENTION_DROPOUT);
}

static gboolean
leaves_documents (const PlanFacts *f)
{
  return f->value[PLAN_DOC_TOKENS] > 0 && f->stack && !(f->stack->offers & PLAN_OFFERS_DOCUMENTS);
}

static gboolean
native_without_cuda (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_NATIVE) && f->cluster->rocm == PLAN_ANSWER_YES;
}

/* clang-format off */
static const PlanRuleEntry rules[] = {
  { { "ddp-shards-the-optimizer", "stack=megatron and stack=nanotron need strategy=no_shard or optim: data parallelism, "
      "or with a sharded optimizer", "Megatron-LM distrib_optimizer.py; nanotron optim/zero.py", PLAN_ERROR_INVALID },
    shards_more_than_optimizer, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_STRATEGY) },
  { { "torch-shards-gradients", "stack=fsdp2 and stack=fsdp1 need strategy=optim_grads_params, or optim_grads, which is "
      "reshard_after_forward=False (fsdp1: SHARD_GRAD_OP)", "PyTorch fully_shard, FullyShardedDataParallel", PLAN_ERROR_INVALID },
    shards_less_than_grads, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_STRATEGY) },
  { { "buffers-are-megatron-fsdp-s", "fine_grained, comm_unit, double_buffer, nccl_ub, ag_group and sync_every_micro_batch "
      "need stack=megatron-fsdp or native", "Megatron-LM param_and_grad_buffer.py of megatron_fsdp", PLAN_ERROR_INVALID },
    buffers_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_FINE_GRAINED, PLAN_COMM_UNIT, PLAN_DOUBLE_BUFFER,
                                                    PLAN_NCCL_UB, PLAN_AG_GROUP) },
  { { "whole-gradients-are-torch-s", "grad_sync=last needs stack=fsdp2 or stack=fsdp1: only PyTorch keeps gradients whole "
      "that are sharded", "PyTorch set_requires_gradient_sync of _fully_shard.py, no_sync of "
      "fully_sharded_data_parallel.py", PLAN_ERROR_INVALID },
    keeps_whole_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_GRAD_SYNC), PLAN_OF_BLOCKS },
  { { "foreach-is-torch-s", "adam_foreach=on needs stack=fsdp2 or stack=fsdp1 with optimizer=adamw and moments in the "
      "format of main_params", "PyTorch torch/optim/adam.py", PLAN_ERROR_INVALID },
    foreach_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_OPTIMIZER, PLAN_EXP_AVG_SQ, PLAN_ADAM_FOREACH) },
  { { "hfsdp-is-megatron-fsdp-s", "outer_strategy=optim needs stack=megatron-fsdp or native",
      "Megatron-LM megatron_fsdp.py", PLAN_ERROR_INVALID },
    hfsdp_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_OUTER_STRATEGY) },
  { { "optimizer-is-megatron-s", "precision_aware, offload_optimizer and grad_accum_fusion need stack=megatron-fsdp, "
      "megatron or native", "Megatron-LM optimizer_config.py", PLAN_ERROR_INVALID },
    optimizer_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PRECISION_AWARE, PLAN_OFFLOAD_OPTIMIZER,
                                                      PLAN_GRAD_ACCUM_FUSION) },
  { { "moments-of-stack", "exp_avg and exp_avg_sq need the format of main_params on stack=fsdp2 and stack=fsdp1, and fp32 on "
      "stack=nanotron; stack=fsdp2 of 2026-04-15 or later takes bf16 for both with main_params=fp32",
      "PyTorch optim/adamw.py; torchtitan components/optimizer/optimizer.py 109 and 332, fused_opt_states_bf16, PR #2732; "
      "nanotron optim/gradient_accumulator.py", PLAN_ERROR_INVALID },
    moments_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_EXP_AVG, PLAN_EXP_AVG_SQ, PLAN_MAIN_PARAMS) },
  { { "activation-offload-is-megatron-s", "offload_layers and offload_modules need stack=megatron-fsdp, megatron or native",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES), PLAN_OF_BLOCKS },
  { { "quantised-gather-of-stack", "param_gather other than compute needs stack=megatron-fsdp or native; stack=megatron "
      "takes fp8 and mxfp8", "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    quantised_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PARAM_GATHER), PLAN_OF_BLOCKS },
  { { "compute-of-stack", "stack=nanotron computes in bf16, stack=fsdp1 in fp32, fp16 or bf16, stack=fsdp2 in those, "
      "fp8-tensorwise or mxfp8 (torchao); torchtitan's own recipes of fp8, with a scale per row, and its nvfp4 are not modelled",
      "nanotron config/models_config.py; torchao float8/config.py; torchtitan components/quantization/float8.py 58, mx.py, "
      "nvfp4.py", PLAN_ERROR_INVALID },
    compute_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_COMPUTE), PLAN_OF_BLOCKS },
  { { "torch-overlaps", "stack=fsdp2 and stack=fsdp1 need overlap_grad_reduce=on and overlap_param_gather=on: they have no "
      "switch for it", "PyTorch fully_shard, FullyShardedDataParallel", PLAN_ERROR_INVALID },
    waits_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_OVERLAP_GRAD_REDUCE, PLAN_OVERLAP_PARAM_GATHER), PLAN_OF_BLOCKS },
  { { "chunks-are-megatron-s", "recompute_method=uniform with recompute_layers above 1 needs stack=megatron-fsdp, megatron or "
      "native: others recompute layer by layer", "torchtitan activation_checkpoint.py; nanotron models/llama.py", PLAN_ERROR_INVALID },
    chunks_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_RECOMPUTE_LAYERS), PLAN_OF_BLOCKS },
  { { "selective-is-op-sac", "recompute=selective on stack=fsdp2 and stack=fsdp1 needs recompute_modules=op-sac alone; "
      "stack=nanotron has none", "torchtitan activation_checkpoint.py", PLAN_ERROR_INVALID },
    modules_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "nanotron-recomputes-all", "recompute=full on stack=nanotron needs all layers, as recompute_method=uniform recomputes "
      "them: it has one switch", "nanotron config/parallelism_config.py, recompute_layer", PLAN_ERROR_INVALID },
    recomputes_some_layers, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_RECOMPUTE_METHOD, PLAN_RECOMPUTE_LAYERS), PLAN_OF_BLOCKS },
  { { "op-sac-is-torch-s", "recompute_modules=op-sac needs stack=fsdp2 or fsdp1",
      "torchtitan activation_checkpoint.py", PLAN_ERROR_INVALID },
    op_sac_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "nanotron-gradients-are-fp32", "stack=nanotron needs main_grads=fp32, grad_comm=fp32 and reduce_algo=rs: "
      "its accumulator is summed in place",
      "nanotron optim/gradient_accumulator.py", PLAN_ERROR_INVALID },
    main_grads_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MAIN_GRADS, PLAN_GRAD_COMM, PLAN_REDUCE_ALGO) },
  { { "nanotron-has-one-group", "stack=nanotron needs dp_outer=1 and cp=1", "nanotron parallel/context.py", PLAN_ERROR_INVALID },
    replicas_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DP_OUTER, PLAN_CP) },
  { { "flat-parameters-are-whole", "stack=fsdp1 needs tp=1 and cp=1: its flat parameters hold whole layers",
      "PyTorch FullyShardedDataParallel", PLAN_ERROR_INVALID },
    flat_parameters_split, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_TP, PLAN_CP), PLAN_OF_BLOCKS },
  { { "graphs-are-megatron-s", "cuda_graph=on needs stack=megatron-fsdp, megatron or native",
      "Megatron-LM cuda_graphs.py", PLAN_ERROR_INVALID },
    graphs_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_CUDA_GRAPH), PLAN_OF_BLOCKS },
  { { "graphs-recompute-no-dropout", "cuda_graph=on with recompute=selective needs attention_dropout=0 where recompute_modules has "
      "core_attn, and hidden_dropout=0 where it has mlp or moe", "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    recomputes_dropout_in_graph, PLAN_ADD_NOTHING,
    PLAN_SHOW (PLAN_CUDA_GRAPH, PLAN_RECOMPUTE_MODULES, PLAN_HIDDEN_DROPOUT, PLAN_ATTENTION_DROPOUT), PLAN_OF_BLOCKS },
  { { "megatron-empties-its-cache", "empty_cache=on needs stack=megatron-fsdp or stack=megatron, whose training loop has such a switch",
      "Megatron-LM training.py, empty_unused_memory_level", PLAN_ERROR_INVALID },
    empties_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_EMPTY_CACHE) },
  { { "user-buffers-are-transformer-engine-s", "tp_overlap=ub needs stack=megatron-fsdp or stack=megatron, whose layers "
      "have such products", "TransformerEngine common/comm_gemm_overlap", PLAN_ERROR_INVALID },
    user_buffers_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_TP_OVERLAP), PLAN_OF_BLOCKS },
  { { "async-is-compiled", "tp_overlap=async needs stack=native, or stack=fsdp2 and compile=on: there the compiler takes products and "
      "collectives apart",
      "torchtitan parallelize.py; PyTorch _inductor/fx_passes/micro_pipeline_tp.py", PLAN_ERROR_INVALID },
    async_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_TP_OVERLAP, PLAN_COMPILE), PLAN_OF_BLOCKS },
  { { "nanotron-drops-nothing", "stack=nanotron needs hidden_dropout=0 and attention_dropout=0: its models have no dropout",
      "nanotron models/llama.py", PLAN_ERROR_INVALID },
    drops_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_HIDDEN_DROPOUT, PLAN_ATTENTION_DROPOUT), PLAN_OF_BLOCKS },
  { { "documents-of-stack", "doc_tokens needs stack=megatron-fsdp or stack=megatron from 2026-06-28 on, or stack=native: "
      "attention of the others goes over whole sequences", "Megatron-LM PR #5298, --dataloader-inter-document-masking",
      PLAN_ERROR_INVALID },
    leaves_documents, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_DOC_TOKENS), PLAN_OF_BLOCKS },
  { { "compile-is-fsdp2", "compile=on needs stack=fsdp2: no other stack compiles its step",
      "torchtitan: torch.compile belongs to fsdp2", PLAN_ERROR_INVALID },
    compiles_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_COMPILE), PLAN_OF_BLOCKS },
  { { "all-to-all-of-stack", "reduce_algo=a2a needs stack=native or stack=megatron: Megatron-FSDP, PyTorch and nanotron have "
      "only reduce-scatter", "Megatron-LM param_and_grad_buffer.py of megatron_fsdp", PLAN_ERROR_INVALID },
    all_to_all_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_REDUCE_ALGO) },
  { { "all-to-all-sums-halves", "reduce_algo=a2a on stack=megatron needs strategy=optim, dp_outer=1 and main_grads other "
      "than fp32", "Megatron-LM distributed/param_and_grad_buffer.py", PLAN_ERROR_INVALID },
    all_to_all_of_megatron, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_REDUCE_ALGO, PLAN_STRATEGY, PLAN_DP_OUTER, PLAN_MAIN_GRADS) },
  { { "sharded-gradients-overlap", "overlap_grad_reduce=off on stack=megatron-fsdp needs strategy=no_shard or optim: where "
      "gradients are sharded it overlaps their reduction whatever is asked for",
      "Megatron-LM megatron_fsdp.py, MegatronFSDP.__init__", PLAN_ERROR_INVALID },
    reduces_late, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OVERLAP_GRAD_REDUCE, PLAN_STRATEGY) },
  { { "sharded-params-overlap", "overlap_param_gather=off on stack=megatron-fsdp needs a strategy other than "
      "optim_grads_params: where parameters are sharded it overlaps their gathers whatever is asked for",
      "Megatron-LM megatron_fsdp.py, MegatronFSDP.__init__", PLAN_ERROR_INVALID },
    gathers_late, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OVERLAP_PARAM_GATHER, PLAN_STRATEGY) },
  { { "megatron-main-params", "stack=megatron needs main_params=fp32; with strategy=optim and precision_aware=on also fp16",
      "Megatron-LM arguments.py, --main-params-dtype", PLAN_ERROR_INVALID },
    main_params_of_megatron, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MAIN_PARAMS, PLAN_PRECISION_AWARE, PLAN_STRATEGY) },
  { { "megatron-main-grads", "stack=megatron needs main_grads=fp32 or the weights' format, and grad_comm as main_grads: it "
      "sends gradients as it accumulates them", "Megatron-LM arguments.py, --accumulate-allreduce-grads-in-fp32", PLAN_ERROR_INVALID },
    main_grads_of_megatron, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MAIN_GRADS, PLAN_GRAD_COMM, PLAN_COMPUTE) },
  { { "megatron-optimizer-is-distributed", "dp_outer above 1 and precision_aware=on on stack=megatron need strategy=optim: "
      "they are settings of the distributed optimizer", "Megatron-LM arguments.py, --num-distributed-optimizer-instances",
      PLAN_ERROR_INVALID },
    optimizer_not_distributed, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STRATEGY, PLAN_DP_OUTER, PLAN_PRECISION_AWARE) },
  { { "transposes-are-megatron-fsdp-s", "keep_transpose=on needs stack=megatron-fsdp or native",
      "Megatron-LM arguments.py, --keep-fp8-transpose-cache", PLAN_ERROR_INVALID },
    transpose_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_KEEP_TRANSPOSE), PLAN_OF_BLOCKS },
  { { "megatron-checks-the-loss", "nan_check=params needs another stack than megatron, which looks at the loss and at whole "
      "buckets of gradients", "Megatron-LM arguments.py, --no-check-for-nan-in-loss-and-grad", PLAN_ERROR_INVALID },
    nan_check_of_params, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_NAN_CHECK), PLAN_OF_BLOCKS },
  { { "nan-check-needs-the-host", "nan_check=loss on stack=megatron-fsdp and stack=megatron needs compute other than fp16, whose "
      "loss is scaled, and cuda_graph=off: a graph cannot look at a value", "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    nan_check_of_loss, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_NAN_CHECK, PLAN_COMPUTE, PLAN_CUDA_GRAPH), PLAN_OF_BLOCKS },
  { { "te-loss-was-megatron-s", "ce_fusion=te needs stack=megatron-fsdp or stack=megatron as it was before 2026-06-03 "
      "(stack=megatron@2026-06-02), when Megatron-LM switched it off for want of stability: use ce_fusion=on", "Megatron-LM PR #5115", PLAN_ERROR_INVALID },
    lacks_te_loss, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_CE_FUSION), PLAN_OF_BLOCKS },
  { { "deterministic-sums-in-one-order", "deterministic=on on stack=megatron-fsdp and stack=megatron needs ce_fusion=off, "
      "tp_overlap=none and sharp=off, as it has NCCL reduce in rings", "Megatron-LM determinism.py", PLAN_ERROR_INVALID },
    deterministic_in_other_orders, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DETERMINISTIC, PLAN_CE_FUSION, PLAN_TP_OVERLAP, PLAN_SHARP),
    PLAN_OF_BLOCKS },
  { { "last-layer-stays", "offload_layers on stack=megatron-fsdp and stack=megatron must be below the model's layers",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_every_layer, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_OFFLOAD_LAYERS), PLAN_OF_BLOCKS },
  { { "model-of-megatron-lm", "stack=megatron needs a model that Megatron Core has modules for (fsdplan emit --as megatron "
      "names the property that Megatron-LM lacks): use stack=megatron-fsdp, whose call takes models of one's own, or fsdp2",
      "Megatron-LM arguments.py, transformer_config.py", PLAN_ERROR_INVALID },
    model_of_megatron, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_STACK), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "model-of-nanotron", "stack=nanotron needs a llama: RMS norms before attention and MLP, a gated silu, rope on whole "
      "heads of hidden / heads and not scaled (its configuration has rope_scaling, its llama does not read it), no biases, "
      "windows, caps or experts", "nanotron config/models_config.py, LlamaConfig; models/llama.py", PLAN_ERROR_INVALID },
    model_of_nanotron, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_STACK), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "mxfp8-recomputes-all", "compute=mxfp8 on stack=fsdp2 needs all layers recomputed or none: torchtitan, which brings it, "
      "has no other choice", "torchtitan distributed/activation_checkpoint.py", PLAN_ERROR_INVALID },
    mxfp8_of_some_layers, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_COMPUTE, PLAN_RECOMPUTE_METHOD, PLAN_RECOMPUTE_LAYERS), PLAN_OF_BLOCKS },
  { { "settings-of-megatron-lm", "comm_unit, sharp and offloading on stack=megatron-fsdp need a model that Megatron-LM's flags "
      "can describe: Megatron-FSDP's call, which takes any other, has no such arguments",
      "Megatron-LM fully_shard.py of megatron_fsdp", PLAN_ERROR_INVALID },
    settings_of_megatron_lm, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_COMM_UNIT, PLAN_SHARP, PLAN_OFFLOAD_OPTIMIZER, PLAN_OFFLOAD_LAYERS,
                                                        PLAN_OFFLOAD_MODULES) },
  { { "native-needs-cuda", "stack=native computes on GPUs by CUDA, cuBLASLt and cuDNN, which AMD's GPUs do not run: use stack=megatron, "
      "megatron-fsdp, fsdp2 or fsdp1", "fsdplan's exec/cuda", PLAN_ERROR_INVALID },
    native_without_cuda, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_STACK), PLAN_OF_BLOCKS },
  { { "ep-needs-a-mesh", "ep above 1 needs a stack other than fsdp1, which shards every parameter over all ranks",
      "PyTorch FullyShardedDataParallel", PLAN_ERROR_INVALID },
    ep_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_EP), PLAN_OF_BLOCKS },
  { { "expert-settings-are-megatron-s", "moe_dispatcher=allgather and changes of etp, moe_grouped_gemm, moe_permute_fusion, "
      "moe_router_fusion, router_dtype, moe_capacity, moe_pad_to_capacity, moe_drop, moe_shared_overlap, ep_overlap and ep_delay_wgrad need "
      "stack=megatron-fsdp, megatron or native",
      "torchtitan models/common/moe.py, token_dispatcher.py, distributed/parallel_dims.py", PLAN_ERROR_INVALID },
    expert_settings_elsewhere, PLAN_ADD_CHANGED, PLAN_SHOW (PLAN_STACK, PLAN_MOE_DISPATCHER, PLAN_ETP, PLAN_MOE_GROUPED_GEMM,
      PLAN_MOE_PERMUTE_FUSION, PLAN_MOE_ROUTER_FUSION, PLAN_ROUTER_DTYPE, PLAN_MOE_CAPACITY, PLAN_MOE_PAD_TO_CAPACITY,
      PLAN_MOE_DROP, PLAN_MOE_SHARED_OVERLAP, PLAN_EP_OVERLAP, PLAN_EP_DELAY_WGRAD), PLAN_OF_BLOCKS },
  { { "aux-loss-is-native-s", "moe_aux_loss needs stack=native: what the loss that balances experts exchanges is left out of plans for "
      "other stacks, which take its coefficient from their own job", "a limit of this version, not of a framework", PLAN_ERROR_UNSUPPORTED },
    balances_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_MOE_AUX_LOSS), PLAN_OF_BLOCKS },
};
/* clang-format on */

const PlanRuleTable plan_rules_of_stacks = { rules, G_N_ELEMENTS (rules) };
