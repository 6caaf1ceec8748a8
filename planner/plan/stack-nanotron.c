/* SPDX-License-Identifier: Apache-2.0 */
/* nanotron, from its source: the branch that a published scan was run with (nouamane/bench2).
 * Memory outside the schedule was chosen with the sizes of that scan's 300 runs known: a cuBLAS
 * workspace for the thread of the forward pass, one for autograd's thread, and tables. Its GEMMs
 * are autograd functions in Python, and cost the host what Transformer Engine's do; this, too, was
 * chosen with runs of that scan known. Parameters are in the order of models/llama.py; attention is
 * flash-attention 2. */
#include "config.h"

#include "planner/base/units.h"
#include "planner/plan/stack-private.h"

static void
record_streams (PlanStack *stack)
{
  stack->memory.streams = PLAN_STREAMS_RECORDED;
}

static const PlanStackStep steps[] = {
  { { 20250101, "its published scan: reserved memory",
      "blocks that collectives used come free at once; before, when these were over on the "
      "device. The installations of before and after took turns in 2024-12 and 2025-01, told "
      "apart by the speed of their collectives; what else differs was not found" },
    record_streams },
};

const PlanFramework plan_framework_nanotron = {
  .steps = steps,
  .n_steps = G_N_ELEMENTS (steps),
  .newest = {
    .name = "nanotron",
    .id = PLAN_STACK_NANOTRON,
    .oldest = 20241205,
    .newest = 20250131,
    .source = "nanotron main at 2cde8f63 (2024-12-05)",
    .vocab_multiple = 1,
    .offers = PLAN_OFFERS_PIPELINES | PLAN_OFFERS_AFAB,
    .buckets = {
      .naming = PLAN_NAMING_BY_USE,
      .packing = PLAN_PACKING_FLAT,
      .shard_multiple = 1,
    },
    .weights = {
      .outer = PLAN_OUTER_STAYS,
      .whole = PLAN_WHOLE_AT_ONCE, /* _all_gather_params (zero.py) */
      /* _all_gather_params and all_gather_coalesced (zero.py, distributed.py) slice, check and
       * flatten pieces, which took 1.7 us each in PyTorch 2 on a Xeon when it was timed; then
       * unflatten them, in 1.2 us, and copy each by a call of its own, of 5 us on a GPU. */
      .unit_tensors = 6,
      .piece_ns = 1700,
      .copy_ns = 6200,
    },
    .grads = {
      /* All-reduce of all gradients: `make_ddp` (trainer.py), sync_gradients_across_dp. */
      .fresh = PLAN_GRADS_LEFT,
      /* `ddp_bucket_cap_mb` (config.py); DDP calls its hook for each bucket. */
      .reduce_bytes = 25 * PLAN_MIB,
    },
    .optimizer = {
      .kind = PLAN_OPTIMIZER_TORCH, /* `get_grad_buffer (name).detach ().mul_` (clip_grads.py) */
      .update_kernels = 30,
    },
    .loss = {
      .kind = PLAN_LOSS_SHARDED,
    },
    .layer = {
      .kernels = PLAN_KERNELS_PYTORCH,
      .exchanges_beside = TRUE, /* tp_linear_async_communication (scaling_benchmarks.py) */
      .sequences = PLAN_SEQUENCES_STATIC,
      /* `torch.cat ([key_states, value_states])` (llama.py): attention saves these, and the
       * queries, keys and values as they were laid out before. */
      .keys = PLAN_KEYS_PAIRED,
    },
    .memory = {
      .allocation_bytes = 512,
      .allocator = PLAN_ALLOCATOR_CACHING,
      /* The workspace of cuBLAS on Hopper (CUDABlas.cpp), one for each thread. */
      .gemm_bytes = 32 * PLAN_MIB,
      .fixed_bytes = 8 * PLAN_MIB,
      .context_bytes = PLAN_STACK_CONTEXT_BYTES,
      .communicator_bytes = PLAN_STACK_COMMUNICATOR_BYTES,
    },
    .pipeline = {
      .deal = PLAN_DEAL_COST,
      .fill = PLAN_FILL_BUT_ONE,
      .trades = PLAN_TRADES_IN_TURN, /* blocking sends and receives on one stream (p2p.py 207-345) */
    },
    .host = {
      .loads = PLAN_LOADS_WAIT, /* `v.to ("cuda")` (dataloader.py) */
      .launch_ns = {
        [PLAN_LAUNCH_KERNEL] = 10000,
        [PLAN_LAUNCH_PRODUCT] = 100000, /* each is an autograd function in Python */
        [PLAN_LAUNCH_QUANTISED_PRODUCT] = 350000,
        [PLAN_LAUNCH_GRADIENT] = 50000,
        [PLAN_LAUNCH_QUANTISED_GRADIENT] = 175000,
        [PLAN_LAUNCH_ATTENTION] = 150000,
        [PLAN_LAUNCH_COLLECTIVE] = 100000,
      },
      /* Kernels are counted in llama.py and functional.py at 67c5ebb6: 24 in a layer's forward pass
       * and 37 in its backward pass. A product of a gathered sequence takes two, for the rank's own
       * part and for the others'; around attention, kernels lay out heads anew and add up lengths.
       * For each of the six tensors of a layer the optimizer finds the norm, clips, counts, updates
       * and rounds. */
      .kernels = {
        [PLAN_LAUNCH_PRODUCT] = 2,
        [PLAN_LAUNCH_GRADIENT] = 2,
        [PLAN_LAUNCH_ATTENTION] = 10,
      },
    },
  },
};
