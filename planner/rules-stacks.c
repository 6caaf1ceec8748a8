/* SPDX-License-Identifier: Apache-2.0 */
/* What a stack cannot express: each row with a predicate that is true when the rule is broken.
 * Sources: Megatron-LM at d98e8a64 (2026-08-22), torchtitan at b5bcd76c (2026-08-21), PyTorch's
 * torch/distributed/fsdp, nanotron at 2cde8f63 (2024-12-05). */
#include "config.h"

#include "planner/rules-private.h"

static gboolean
is_megatron (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_MEGATRON);
}

static gboolean
is_nanotron (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_NANOTRON);
}

/* PyTorch's own sharding. */
static gboolean
is_torch (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_FSDP1) || is_stack (f, PLAN_STACK_FSDP2);
}

/* Megatron-FSDP, and this program's runtime, which follows it. */
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
         && !(is_megatron (f) && IS (f, PARAM_GATHER, FP8));
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

static gboolean
empties_elsewhere (const PlanFacts *f)
{
  return IS (f, EMPTY_CACHE, ON) && !is_stack (f, PLAN_STACK_MEGATRON)
         && !is_stack (f, PLAN_STACK_MEGATRON_FSDP);
}

static gboolean
user_buffers_elsewhere (const PlanFacts *f)
{
  return IS (f, TP_OVERLAP, UB) && !is_stack (f, PLAN_STACK_MEGATRON)
         && !is_stack (f, PLAN_STACK_MEGATRON_FSDP);
}

/* PyTorch's compiler finds products and their communication; nobody else takes them apart. */
static gboolean
async_elsewhere (const PlanFacts *f)
{
  return IS (f, TP_OVERLAP, ASYNC) && !(is_stack (f, PLAN_STACK_FSDP2) && IS (f, COMPILE, ON));
}

static gboolean
drops_elsewhere (const PlanFacts *f)
{
  return is_nanotron (f) && IS_ANY_CHANGED (f, PLAN_HIDDEN_DROPOUT, PLAN_ATTENTION_DROPOUT);
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
  { { "hfsdp-is-megatron-fsdp-s", "outer_strategy=optim needs stack=megatron-fsdp or native",
      "Megatron-LM megatron_fsdp.py", PLAN_ERROR_INVALID },
    hfsdp_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_OUTER_STRATEGY) },
  { { "optimizer-is-megatron-s", "precision_aware, offload_optimizer and grad_accum_fusion need stack=megatron-fsdp, "
      "megatron or native", "Megatron-LM optimizer_config.py", PLAN_ERROR_INVALID },
    optimizer_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PRECISION_AWARE, PLAN_OFFLOAD_OPTIMIZER,
                                                      PLAN_GRAD_ACCUM_FUSION) },
  { { "activation-offload-is-megatron-s", "offload_layers and offload_modules need stack=megatron-fsdp, megatron or native",
      "Megatron-LM transformer_config.py", PLAN_ERROR_INVALID },
    offloads_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES) },
  { { "quantised-gather-of-stack", "param_gather other than compute needs stack=megatron-fsdp or native; stack=megatron "
      "takes fp8", "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    quantised_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PARAM_GATHER) },
  { { "compute-of-stack", "stack=nanotron computes in bf16, stack=fsdp1 in fp32, fp16 or bf16, stack=fsdp2 in those, "
      "fp8-tensorwise or mxfp8 (torchao)", "nanotron config/models_config.py; torchao float8 and mx_formats", PLAN_ERROR_INVALID },
    compute_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_COMPUTE) },
  { { "torch-overlaps", "stack=fsdp2 and stack=fsdp1 need overlap_grad_reduce=on and overlap_param_gather=on: they have no "
      "switch for it", "PyTorch fully_shard, FullyShardedDataParallel", PLAN_ERROR_INVALID },
    waits_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_OVERLAP_GRAD_REDUCE, PLAN_OVERLAP_PARAM_GATHER) },
  { { "chunks-are-megatron-s", "recompute_method=uniform with recompute_layers above 1 needs stack=megatron-fsdp, megatron or "
      "native: others recompute layer by layer", "torchtitan activation_checkpoint.py; nanotron models/llama.py", PLAN_ERROR_INVALID },
    chunks_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_RECOMPUTE_LAYERS) },
  { { "selective-is-op-sac", "recompute=selective on stack=fsdp2 and stack=fsdp1 needs recompute_modules=op-sac alone; "
      "stack=nanotron has none", "torchtitan activation_checkpoint.py", PLAN_ERROR_INVALID },
    modules_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_RECOMPUTE_MODULES) },
  { { "op-sac-is-torch-s", "recompute_modules=op-sac needs stack=fsdp2 or fsdp1",
      "torchtitan activation_checkpoint.py", PLAN_ERROR_INVALID },
    op_sac_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK) },
  { { "nanotron-gradients-are-fp32", "stack=nanotron needs main_grads=fp32, grad_comm=fp32 and reduce_algo=rs: "
      "its accumulator is summed in place",
      "nanotron optim/gradient_accumulator.py", PLAN_ERROR_INVALID },
    main_grads_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MAIN_GRADS, PLAN_GRAD_COMM, PLAN_REDUCE_ALGO) },
  { { "nanotron-has-one-group", "stack=nanotron needs dp_outer=1 and cp=1", "nanotron parallel/context.py", PLAN_ERROR_INVALID },
    replicas_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DP_OUTER, PLAN_CP) },
  { { "flat-parameters-are-whole", "stack=fsdp1 needs tp=1 and cp=1: its flat parameters hold whole layers",
      "PyTorch FullyShardedDataParallel", PLAN_ERROR_INVALID },
    flat_parameters_split, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_TP, PLAN_CP) },
  { { "graphs-are-megatron-s", "cuda_graph=on needs stack=megatron-fsdp, megatron or native",
      "Megatron-LM cuda_graphs.py", PLAN_ERROR_INVALID },
    graphs_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK) },
  { { "megatron-empties-its-cache", "empty_cache=on needs stack=megatron-fsdp or stack=megatron, whose training loop has such a switch",
      "Megatron-LM training.py, empty_unused_memory_level", PLAN_ERROR_INVALID },
    empties_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_EMPTY_CACHE) },
  { { "user-buffers-are-transformer-engine-s", "tp_overlap=ub needs stack=megatron-fsdp or stack=megatron, whose layers "
      "have such products", "TransformerEngine common/comm_gemm_overlap", PLAN_ERROR_INVALID },
    user_buffers_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_TP_OVERLAP) },
  { { "async-is-compiled", "tp_overlap=async needs stack=fsdp2 and compile=on: the compiler takes products and collectives apart",
      "torchtitan parallelize.py; PyTorch _inductor/fx_passes/micro_pipeline_tp.py", PLAN_ERROR_INVALID },
    async_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_TP_OVERLAP, PLAN_COMPILE) },
  { { "nanotron-drops-nothing", "stack=nanotron needs hidden_dropout=0 and attention_dropout=0: its models have no dropout",
      "nanotron models/llama.py", PLAN_ERROR_INVALID },
    drops_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_HIDDEN_DROPOUT, PLAN_ATTENTION_DROPOUT) },
};
/* clang-format on */

const PlanRuleEntry *
plan_rules_of_stacks (guint i)
{
  return i < G_N_ELEMENTS (rules) ? &rules[i] : NULL;
}
