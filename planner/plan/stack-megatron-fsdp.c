/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-FSDP: facts from its source at the newest date (communication unit, hooks), and from
 * memory that its authors logged (the loss's image; memory outside the schedule, which is fitted:
 * docs/accuracy.md). */
#include "config.h"

#include "planner/base/units.h"
#include "planner/plan/stack-private.h"

static void
before_max_pool (PlanStack *stack)
{
  stack->offers &= ~PLAN_OFFERS_MAX_POOL;
}

static void
before_fine_grained (PlanStack *stack)
{
  stack->offers &= ~PLAN_OFFERS_FINE_GRAINED;
}

static void
before_units_below_full (PlanStack *stack)
{
  stack->buckets.bucketing = PLAN_BUCKETING_BELOW;
}

static void
one_pooled_grad_unit (PlanStack *stack)
{
  stack->grads.pool = PLAN_GRAD_POOL_ONE;
}

static void
compute_awaits_pool (PlanStack *stack)
{
  stack->grads.pool = PLAN_GRAD_POOL_AWAITED;
}

static void
scale_hybrid (PlanStack *stack)
{
  stack->offers |= PLAN_OFFERS_HYBRID_MEANS;
}

static void
before_non_units_stayed (PlanStack *stack)
{
  stack->weights.outer = PLAN_OUTER_DROPS;
}

static void
before_masters_went (PlanStack *stack)
{
  stack->offers |= PLAN_OFFERS_FUSED_MASTERS;
}

static void
wait_at_load (PlanStack *stack)
{
  stack->host.loads = PLAN_LOADS_WAIT;
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

/* Dates are those of the merge, in UTC. */
static const PlanStackStep steps[] = {
  { { 20260121, "Megatron-LM PR #3023",
      "the 1/DP factor is applied to the bucket; before, to the accumulated gradients" },
    NULL },
  { { 20260302, "Megatron-LM PR #3067",
      "formats of main weights, gradients and their reduction can be chosen; strategy=optim no "
      "longer "
      "counts a rank's own gradient twice" },
    NULL },
  { { 20260317, "Megatron-LM PR #3810",
      "the formats take `auto`, and the two of gradients default to it" },
    NULL },
  { { 20260320, "Megatron-LM PR #3903",
      "with --bf16 and without --grad-reduce-in-bf16, both gradient formats are forced to fp32" },
    NULL },
  { { 20260401, "Megatron-LM PR #3918",
      "gradients whose shards are split between replicas are not scaled by 1/DP any more "
      "(outer_strategy=optim without per_token_loss)" },
    scale_hybrid },
  { { 20260401, "Megatron-LM PR #4054",
      "double buffers of gradients hold one unit at a time, and the wait for its reduction is on "
      "the "
      "reductions' stream; before, compute waited" },
    compute_awaits_pool },
  { { 20260410, "Megatron-LM PR #4133",
      "the optimizer's own fp32 masters are gone (fused_masters)" },
    before_masters_went },
  { { 20260413, "Megatron-LM PR #3155", "gathers start afresh after each evaluation" }, NULL },
  { { 20260427, "Megatron-LM PR #4427",
      "precision_aware reads gradients as they are, with every recipe" },
    NULL },
  { { 20260516, "Megatron-LM PR #3797",
      "ep_overlap; hooks of modules, not of layers, then gather weights that are sharded" },
    NULL },
  { { 20260520, "Megatron-LM PR #4181", "fine_grained can be asked for" }, before_fine_grained },
  { { 20260521, "Megatron-LM PR #4103",
      "the host loads micro batches ahead of the GPU; before, it waited to say that they are not "
      "packed" },
    wait_at_load },
  { { 20260530, "Megatron-LM PR #4717",
      "embedding and head keep their gathered memory from step to step; before, it was given back "
      "for "
      "the optimizer's work" },
    before_non_units_stayed },
  { PLAN_STACK_TE_LOSS, offer_te_loss },
  { { 20260610, "Megatron-LM PR #5222",
      "double buffers of gradients hold two units again, fused weight gradients included" },
    one_pooled_grad_unit },
  { { 20260626, "Megatron-LM PR #4329", "units are transformer, MoE and Mamba layers" }, NULL },
  { PLAN_STACK_DOCUMENTS, before_documents },
  { { 20260702, "Megatron-LM PR #5462",
      "double_buffer=max_pool; gradient formats are no longer forced to fp32, and "
      "--grad-reduce-in-bf16 "
      "no longer reaches them: bf16 is the default for bf16 and fp8 models" },
    before_max_pool },
  { { 20260818, "Megatron-LM PR #6357",
      "optim and optim_grads reduce and gather by unit; before, by buckets of ddp-bucket-size" },
    before_units_below_full },
};

/* Release branches, and the days on which they left the main branch (git merge-base). */
static const PlanStackRelease releases[] = {
  { "core_v0.16.0", 20260202 }, { "core_v0.16.1", 20260202 }, { "core_v0.17.0", 20260331 },
  { "core_v0.17.1", 20260331 }, { "core_v0.18.0", 20260601 }, { "core_v0.18.2", 20260601 },
  { "core_v0.19.0", 20260728 },
};

const PlanFramework plan_framework_megatron_fsdp = {
  .steps = steps,
  .n_steps = G_N_ELEMENTS (steps),
  .releases = releases,
  .n_releases = G_N_ELEMENTS (releases),
  .newest = {
    .name = "megatron-fsdp",
    .id = PLAN_STACK_MEGATRON_FSDP,
    .oldest = 20260121,
    .newest = 20260822,
    .source = "Megatron-LM main at d98e8a64 (2026-08-22)",
    .vocab_multiple = 128,
    /* Documents: --dataloader-inter-document-masking. */
    .offers = PLAN_OFFERS_DOCUMENTS | PLAN_OFFERS_FINE_GRAINED | PLAN_OFFERS_MAX_POOL,
    .buckets = {
      .bucketing = PLAN_BUCKETING_WHOLE,
      .elements = 40000000,
      .elements_per_rank = 1000000,
      .comm_unit_floor = 1000000000,
    },
    .weights = {
      .outer = PLAN_OUTER_STAYS,
      .ahead = PLAN_AHEAD_HOOKS,
      .transposed = PLAN_TRANSPOSED_BOTH,
      .quantised = PLAN_QUANTISED_UNITS,
    },
    .grads = {
      .pool = PLAN_GRAD_POOL_QUEUED,
      .unused = PLAN_UNUSED_OF_ALL, /* TransformerEngine module/base.py, get_dummy_wgrad */
    },
    .optimizer = {
      .kind = PLAN_OPTIMIZER_DISTRIBUTED, /* `total_norm.item ()` (clip_grads.py) */
      /* Each tensor by itself is wrapped as a DTensor, listed, sliced and rounded. */
      .tensor_ns = 250000,
    },
    .loss = {
      .kind = PLAN_LOSS_IMAGE,
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
      /* nccl_ub registers FixedPoolAllocator's pools; what these cannot hold comes from the device
       * allocator (fsdp_db_use_persist_buf_on_alloc_fail is off). */
      .allocation_bytes = 512,
      .allocator = PLAN_ALLOCATOR_CACHING,
      .fixed_bytes = 105 * PLAN_MIB,
      .context_bytes = PLAN_STACK_CONTEXT_BYTES,
      .communicator_bytes = PLAN_STACK_COMMUNICATOR_BYTES,
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
        [PLAN_LAUNCH_COLLECTIVE] = 250000,
      },
    },
  },
};
