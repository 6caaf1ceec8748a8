/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan on PyTorch's fully_shard (torch/distributed/fsdp/_fully_shard). Parameters are in the
 * order of torchtitan's models/llama3/model.py and models/common/attention.py.
 *
 * Until 2025-03 the loss leaves three fp32 images even if it is compiled. That was not read in the
 * source but chosen to agree with published memory (torchtitan 2024-12 and 2025-02). Since then
 * torchtitan says that compiling saves more than any number of chunks would (PR #1033), and
 * torchao's runs on B200 lack all three images. Its runs on H100, printed beside them, have the
 * memory that torchtitan logged in 2025-01 (PR #808), to the hundredth of a GiB. Attention is
 * PyTorch's flash kernels, which are those of flash-attention 2. Memory outside the schedule
 * (fixed_bytes) is a cuBLAS workspace of 32 MiB on Hopper, and tables. */
#include "config.h"

#include "planner/base/units.h"
#include "planner/plan/stack-private.h"

static void
logits_stay (PlanStack *stack)
{
  stack->loss.keeps_logits = TRUE;
}

static void
loss_keeps_images (PlanStack *stack)
{
  stack->loss.rounded = PLAN_ROUNDED_NEVER;
}

static void
before_own_groups (PlanStack *stack)
{
  stack->weights.outer = PLAN_OUTER_EACH_PASS;
}

static void
before_keys_were_shared (PlanStack *stack)
{
  stack->layer.keys = PLAN_KEYS_REPEATED;
}

static void
before_narrow_moments (PlanStack *stack)
{
  stack->offers &= ~PLAN_OFFERS_NARROW_MOMENTS;
}

static void
before_pieces (PlanStack *stack)
{
  stack->loss.pieces = PLAN_PIECES_NONE;
}

static void
before_all_attention_was_kept (PlanStack *stack)
{
  stack->layer.sac &= ~(PlanSac)PLAN_SAC_CUDNN;
}

static void
before_cudnn_attention (PlanStack *stack)
{
  stack->layer.sac |= PLAN_SAC_CUDNN;
}

static void
before_one_product (PlanStack *stack)
{
  stack->layer.joins_qkv = FALSE;
}

static void
before_one_list (PlanStack *stack)
{
  stack->layer.sac &= ~(PlanSac)(PLAN_SAC_BIASED | PLAN_SAC_ROWS);
  stack->layer.sac |= PLAN_SAC_SOME;
}

static void
before_rows_were_kept (PlanStack *stack)
{
  stack->layer.sac &= ~(PlanSac)PLAN_SAC_SOME;
}

static void
before_rows_lay_close (PlanStack *stack)
{
  stack->layer.pads_rows = TRUE;
}

static void
before_layers_were_compiled_whole (PlanStack *stack)
{
  stack->layer.compiles_parts = TRUE;
}

static void
before_all_was_repeated (PlanStack *stack)
{
  stack->layer.repeats = PLAN_REPEATS_NOTHING;
}

static const PlanStackStep steps[] = {
  { { 20240612, "torchtitan PR #391",
      "the logits are given back before the backward pass; before, they outlived it" },
    logits_stay },
  { { 20241022, "torchtitan e10cb949",
      "compile=on compiles the loss as well; its memory stays that of three fp32 images, as rows "
      "of 2024-12 and 2025-02 show" },
    NULL },
  { { 20250331, "torchtitan PR #1033",
      "a compiled loss leaves no fp32 image, only the logits and their gradient; what changed, in "
      "PyTorch most likely, was not found, and the day is that on which it was said" },
    loss_keeps_images },
  { { 20250515, "torchtitan PR #1196",
      "cuDNN's attention on Blackwell, which op-sac does not know and so does again" },
    before_cudnn_attention },
  { { 20250728, "torchtitan PR #1094",
      "embedding and head are gathered and reduced each by itself; before, both stayed from the "
      "beginning of the forward pass to the end of the backward one" },
    before_own_groups },
  { { 20250829, "torchtitan PR #1580",
      "a layer that is recomputed is recomputed to its end (early_stop=False), its last product "
      "too, which nobody reads" },
    before_all_was_repeated },
  { { 20250906, "torchtitan PR #1672",
      "op-sac keeps the rows that experts were sent and that came back, in all families but "
      "Qwen3; before, they were sent again, and the host waited again for their numbers" },
    before_rows_were_kept },
  { { 20251201, "torchtitan PR #2095", "op-sac keeps the result of every kind of attention" },
    before_all_attention_was_kept },
  { { 20260127, "torchtitan PR #2259",
      "query heads share keys and values; before, these were repeated for each query head" },
    before_keys_were_shared },
  { { 20260323, "torchtitan PR #2357",
      "one list for op-sac in all families: it keeps rows in Qwen3 as well, and all products with "
      "biases (addmm), which it does not count; before, it kept none of these" },
    before_one_list },
  { { 20260402, "torchtitan PR #2774",
      "rows of experts are no longer padded, for which a single rank (ep=1) moved them once more" },
    before_rows_lay_close },
  { { 20260414, "torchtitan PR #2741",
      "layers with experts are compiled whole; before, part by part, and op-sac kept no products "
      "of compiled parts, as it did not see them" },
    before_layers_were_compiled_whole },
  { { 20260415, "torchtitan PR #2732", "Adam's moments may be bf16 beside fp32 weights" },
    before_narrow_moments },
  { { 20260427, "torchtitan PR #2937",
      "output layer and loss may run in pieces (loss_chunks), in 8 unless a configuration says "
      "otherwise; before, only a loss that was never the default cut its fp32 images, for nine "
      "days "
      "(PR #996 to #1033)" },
    before_pieces },
  { { 20260609, "torchtitan PR #3571",
      "attention is PyTorch's FlexAttention, or varlen with flash-attention 3 on Hopper and 4 on "
      "Blackwell, no longer SDPA; neither was measured, and FlexAttention is taken for as fast as "
      "flash-attention 2" },
    NULL },
  { { 20260624, "torchtitan PR #3714",
      "queries, keys and values are one product, which op-sac keeps; before, they were three, of "
      "which it kept queries and values" },
    before_one_product },
};

const PlanFramework plan_framework_fsdp2 = {
  .steps = steps,
  .n_steps = G_N_ELEMENTS (steps),
  .newest = {
    .name = "fsdp2",
    .id = PLAN_STACK_FSDP2,
    .oldest = 20240328,
    .newest = 20260821,
    .source = "torchtitan main at b5bcd76c (2026-08-21), PyTorch's fully_shard",
    .vocab_multiple = 1,
    .offers = PLAN_OFFERS_NARROW_MOMENTS | PLAN_OFFERS_PIPELINES | PLAN_OFFERS_AFAB,
    .buckets = {
      .naming = PLAN_NAMING_NORMS_LAST,
      .packing = PLAN_PACKING_PER_TENSOR,
    },
    .weights = {
      .outer = PLAN_OUTER_OWN_GROUPS,
      .gathers_each_pass = TRUE,
      .rounds_as_gathered = TRUE,
      .gathered = PLAN_GATHERED_COPIED,
      .ahead = PLAN_AHEAD_ONE,
      .quantised = PLAN_QUANTISED_ON_USE,
    },
    .grads = {
      .queued_reductions = 1,
      .fresh = PLAN_GRADS_COLLECTED_WIDE, /* to_accumulated_grad_if_needed (_fsdp_param.py) */
    },
    .loss = {
      .kind = PLAN_LOSS_EAGER,
      .rounded = PLAN_ROUNDED_IF_COMPILED,
      .chunks = 8, /* ChunkedLossWrapper (components/loss.py, llama3/config_registry.py) */
      .pieces = PLAN_PIECES_AUTOGRAD,
    },
    .layer = {
      .sequences = PLAN_SEQUENCES_KEPT,
      .kernels = PLAN_KERNELS_PYTORCH,
      .repeats = PLAN_REPEATS_OUTPUTS,
      .sac = PLAN_SAC_CUDNN | PLAN_SAC_ROWS | PLAN_SAC_BIASED,
      .joins_qkv = TRUE,
    },
    .memory = {
      .allocation_bytes = 512,
      .allocator = PLAN_ALLOCATOR_EXPANDABLE,
      .streams = PLAN_STREAMS_POOLS,
      .fixed_bytes = 40 * PLAN_MIB,
      .context_bytes = PLAN_STACK_CONTEXT_BYTES,
      .communicator_bytes = PLAN_STACK_COMMUNICATOR_BYTES,
    },
    /* torch/distributed/pipelining at 1fd7abc2 and later: stage.py, backward_maybe_with_nosync and
     * perform_reduce_grad; schedules.py, Schedule1F1B; _recv_buffers.py. torchtitan's
     * distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part, and trainer.py,
     * train_step. */
    .pipeline = {
      .fill = PLAN_FILL_ALL,
      .deal = PLAN_DEAL_REST,
      .trades = PLAN_TRADES_ON_DEVICE,
      .reductions = PLAN_STAGES_REDUCE_HELD,
    },
    .host = {
      .loads = PLAN_LOADS_FIRST, /* `input.to (device)`, in every train.py */
      .launch_ns = {
        [PLAN_LAUNCH_KERNEL] = 10000,
        [PLAN_LAUNCH_PRODUCT] = 20000,
        [PLAN_LAUNCH_QUANTISED_PRODUCT] = 150000,
        [PLAN_LAUNCH_GRADIENT] = 10000,
        [PLAN_LAUNCH_QUANTISED_GRADIENT] = 75000,
        [PLAN_LAUNCH_ATTENTION] = 40000,
        [PLAN_LAUNCH_COLLECTIVE] = 250000,
      },
    },
  },
};
