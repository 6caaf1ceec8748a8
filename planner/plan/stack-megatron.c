/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-LM with its distributed optimizer (param_and_grad_buffer.py, distrib_optimizer.py).
 * Memory outside the schedule (fixed_bytes) is as for Megatron-FSDP; a 3.7 B model of Megatron-LM's
 * own tests agrees with it. */
#include "config.h"

#include "planner/base/units.h"
#include "planner/plan/stack-private.h"

static void
keep_no_unused_gradients (PlanStack *stack)
{
  stack->grads.unused = PLAN_UNUSED_NOT_KEPT;
}

static void
keep_those_of_layers (PlanStack *stack)
{
  stack->grads.unused = PLAN_UNUSED_OF_LAYERS;
}

static void
wait_at_load (PlanStack *stack)
{
  stack->host.loads = PLAN_LOADS_WAIT;
}

static void
do_not_wait_at_load (PlanStack *stack)
{
  stack->host.loads = PLAN_LOADS_PACKED;
}

static void
offer_te_loss (PlanStack *stack)
{
  stack->offers |= PLAN_OFFERS_TE_LOSS;
}

static void
before_documents (PlanStack *stack)
{
  stack->offers &= ~PLAN_OFFERS_DOCUMENTS;
}

static void
leave_sends_alone (PlanStack *stack)
{
  stack->pipeline.trades = PLAN_TRADES_TOGETHER;
}

/* Dates are those of the merge, in UTC. */
static const PlanStackStep steps[] = {
  { { 20250408, "TransformerEngine PR #1651",
      "with grad_accum_fusion=on the gradients that a layer's products leave unused are kept, one "
      "of "
      "each shape (module/base.py, get_dummy_wgrad); before, each was freed at once" },
    keep_no_unused_gradients },
  { { 20250801, "Megatron-LM e7c55de9",
      "so is that of the output layer (tensor_parallel/layers.py)" },
    keep_those_of_layers },
  { { 20260116, "Megatron-LM PR #2913",
      "the host waits for the GPU when it loads a micro batch, to say how it is packed, though it "
      "is not (`torch.tensor (n, device=...)`)" },
    do_not_wait_at_load },
  { { 20260416, "Megatron-LM PR #4047",
      "with interleaved stages (vpp) compute waits at once for what it sends to the next stage; "
      "before, one micro batch later" },
    leave_sends_alone },
  { { 20260521, "Megatron-LM PR #4103", "it does so for packed ones only" }, wait_at_load },
  { PLAN_STACK_TE_LOSS, offer_te_loss },
  { PLAN_STACK_DOCUMENTS, before_documents },
};

const PlanFramework plan_framework_megatron = {
  .steps = steps,
  .n_steps = G_N_ELEMENTS (steps),
  .newest = {
    .name = "megatron",
    .id = PLAN_STACK_MEGATRON,
    .oldest = 20240101,
    .newest = 20260822,
    .source = "Megatron-LM main at d98e8a64 (2026-08-22)",
    .vocab_multiple = 128,
    /* Documents: --dataloader-inter-document-masking. */
    .offers = PLAN_OFFERS_DOCUMENTS | PLAN_OFFERS_PIPELINES,
    .buckets = {
      .bucketing = PLAN_BUCKETING_BACKWARDS,
      .elements = 40000000,
      .elements_per_rank = 1000000,
      .packing = PLAN_PACKING_FLAT,
      .shard_multiple = 128,
    },
    .weights = {
      .outer = PLAN_OUTER_STAYS,
      .whole = PLAN_WHOLE_IN_TURN,
      /* TransformerEngine module/layernorm_mlp.py, is_first_microbatch; since 2.0 in
       * Float8Tensor.update_usage. */
      .transposed = PLAN_TRANSPOSED_ONCE,
      .quantised = PLAN_QUANTISED_UNITS,
      /* --reuse-grad-buf-for-mxfp8-param-ag, which Megatron-LM urges to set (optimizer_config.py;
       * _post_param_sync). */
      .gathered = PLAN_GATHERED_IN_GRADS,
    },
    .optimizer = {
      .kind = PLAN_OPTIMIZER_DISTRIBUTED, /* `total_norm.item ()` (clip_grads.py) */
      .tensor_ns = 50000,     /* each tensor is sliced, listed and copied */
    },
    .loss = {
      .kind = PLAN_LOSS_IMAGE,
    },
    .grads = {
      .unused = PLAN_UNUSED_OF_ALL, /* TransformerEngine module/base.py, get_dummy_wgrad */
    },
    .layer = {
      .kernels = PLAN_KERNELS_TRANSFORMER_ENGINE,
      .repeats = PLAN_REPEATS_OUTPUTS,
      /* TransformerEngine module/linear.py: async_op; awaited after the GEMM over weights, then
       * after the one over rows. */
      .exchanges_beside = TRUE,
      .least_offloaded = 1048576, /* arguments.py --min-offloaded-tensor-size */
    },
    .memory = {
      .allocation_bytes = 512,
      .allocator = PLAN_ALLOCATOR_CACHING,
      .fixed_bytes = 105 * PLAN_MIB,
      .context_bytes = PLAN_STACK_CONTEXT_BYTES,
      .communicator_bytes = PLAN_STACK_COMMUNICATOR_BYTES,
    },
    .pipeline = {
      .trades = PLAN_TRADES_AWAITED,
      /* --no-align-grad-reduce is not set (schedules.py 2476-2480). */
      .reductions = PLAN_STAGES_REDUCE_ALIGNED,
    },
    .host = {
      .routing = PLAN_STACK_MEGATRON_ROUTING,
      .loads = PLAN_LOADS_PACKED, /* `int (max_seqlen.item ())` (pretrain_gpt.py) */
      .launch_ns = {
        [PLAN_LAUNCH_KERNEL] = 10000,
        [PLAN_LAUNCH_PRODUCT] = 100000,
        [PLAN_LAUNCH_QUANTISED_PRODUCT] = 600000,
        [PLAN_LAUNCH_GRADIENT] = 50000,
        [PLAN_LAUNCH_QUANTISED_GRADIENT] = 175000,
        [PLAN_LAUNCH_ATTENTION] = 150000,
        [PLAN_LAUNCH_COLLECTIVE] = 50000,
      },
    },
  },
};
