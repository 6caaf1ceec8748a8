/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's FullyShardedDataParallel (torch/distributed/fsdp/_flat_param.py, _runtime_utils.py), as
 * llm-foundry uses it. The fused loss (losses/cross_entropy.py) and attention are
 * flash-attention's, as by llm-foundry's defaults (llmfoundry/models/mpt/modeling_mpt.py, loss_fn).
 * Parameters are in the order of Hugging Face's modeling_llama.py. Memory outside the schedule
 * (fixed_bytes) is a cuBLAS workspace of 32 MiB on Hopper, and tables. */
#include "config.h"

#include "planner/base/units.h"
#include "planner/plan/stack-private.h"

const PlanFramework plan_framework_fsdp1 = {
  .newest = {
    .name = "fsdp1",
    .id = PLAN_STACK_FSDP1,
    .oldest = 20230301,
    .newest = 20250601,
    .source = "PyTorch 2.x FullyShardedDataParallel, flat parameters",
    .vocab_multiple = 1,
    .buckets = {
      .naming = PLAN_NAMING_NORMS_LAST,
      .packing = PLAN_PACKING_FLAT,
      .shard_multiple = 1,
    },
    .weights = {
      .outer = PLAN_OUTER_EACH_PASS,
      .gathers_each_pass = TRUE,
      .rounds_as_gathered = TRUE,
      .ahead = PLAN_AHEAD_ONE,
    },
    .grads = {
      .queued_reductions = 1,
      .fresh = PLAN_GRADS_COLLECTED,
    },
    .loss = {
      .kind = PLAN_LOSS_EAGER,
      .rounded = PLAN_ROUNDED_IF_FUSED,
      .keeps_logits = TRUE,
    },
    .layer = {
      .kernels = PLAN_KERNELS_PYTORCH,
      .sac = PLAN_SAC_CUDNN | PLAN_SAC_BIASED, /* as `emit` writes it */
    },
    .memory = {
      .allocation_bytes = 512,
      .allocator = PLAN_ALLOCATOR_CACHING,
      .streams = PLAN_STREAMS_POOLS,
      .fixed_bytes = 40 * PLAN_MIB,
      .context_bytes = PLAN_STACK_CONTEXT_BYTES,
      .communicator_bytes = PLAN_STACK_COMMUNICATOR_BYTES,
    },
    .host = {
      .launch_ns = {
        [PLAN_LAUNCH_KERNEL] = 10000,
        [PLAN_LAUNCH_PRODUCT] = 20000,
        [PLAN_LAUNCH_QUANTISED_PRODUCT] = 350000,
        [PLAN_LAUNCH_GRADIENT] = 10000,
        [PLAN_LAUNCH_QUANTISED_GRADIENT] = 175000,
        [PLAN_LAUNCH_ATTENTION] = 40000,
        [PLAN_LAUNCH_COLLECTIVE] = 250000,
      },
    },
  },
};
