/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/stack.h"

#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/plan/stack-history.h"

/* Facts per framework; megatron-fsdp from its source at the newest date (communication unit, hooks)
 * and from the memory its authors logged (loss image, residual: fitted, docs/accuracy.md). What
 * lies outside the allocator is assumed, of the right order.
 *
 * So is what issuing an op costs a host that runs Python. Published: a small kernel of PyTorch's
 * costs 10 to 20 us (TransformerEngine PR #1016); a te.Linear, forward and backward, 0.57 ms in
 * bf16 and 2.07 ms in fp8 in 2023 (issue #445: three products), greatly reduced since (issue
 * #2126), taken as half; hooks of a unit up to 1 ms in FSDP2 (PyTorch issue #173680), here two
 * collectives of 250 us. Half and a quarter were chosen with the level of two logged runs in sight
 * (A11 and D2 of the memory tests), not solved for. A runtime in C pays for the launch alone.
 *
 * megatron: param_and_grad_buffer.py and distrib_optimizer.py there; its residual is that of
 * Megatron-FSDP, and met by a 3.7 B model of Megatron-LM's own tests. fsdp2: torchtitan, and
 * PyTorch's torch/distributed/fsdp/_fully_shard; that the loss leaves three fp32 images where it is
 * compiled too, until 2025-03, was chosen by published memory (torchtitan 2024-12 and 2025-02), not
 * read. Since then torchtitan says that compiling saves more than any number of pieces would (PR
 * #1033), and torchao's runs on B200 lack all three; its runs on H100, printed beside these, have
 * the memory that torchtitan logged in 2025-01 (PR #808), to the hundredth of a GiB.
 * fsdp1: torch/distributed/fsdp/_flat_param.py and _runtime_utils.py; its fused loss is that of
 * flash-attention (losses/cross_entropy.py), which llm-foundry uses unless told otherwise (loss_fn
 * in llmfoundry/models/mpt/modeling_mpt.py). Their residual is a cuBLAS workspace of 32 MiB on
 * Hopper and tables. nanotron: its source, of the branch that a published scan was run with
 * (nouamane/bench2), and with the sizes of that scan's 300 runs in sight: a cuBLAS workspace for
 * the forward pass's thread, one for autograd's, and tables. What
 * issuing an op costs them is taken for eager PyTorch's; nanotron's products, each an autograd
 * function in Python, for Transformer Engine's, with runs of that scan in sight.
 *
 * Parameters are named as their modules are made: torchtitan's models/llama3/model.py and
 * models/common/attention.py (fsdp2; what Hugging Face's modeling_llama.py makes lies alike,
 * fsdp1), nanotron's models/llama.py.
 *
 * Outside the allocator: a context with its modules and library handles, assumed; and NCCL's
 * buffers, of 24 channels (the log of Megatron-LM PR #3067) a ring's and a tree's, 4 MiB each for
 * the Simple protocol (NCCL_BUFFSIZE) and about one for the others.
 *
 * Attention: PyTorch's flash kernels are those of flash-attention 2 (fsdp2), which llm-foundry
 * (fsdp1) and nanotron call themselves.
 *
 * Products of fp32 factors run in tf32 (TransformerEngine common/gemm/cublaslt_gemm.cu). */
#define CONTEXT_BYTES (768 * PLAN_MIB)
#define COMMUNICATOR_BYTES (240 * PLAN_MIB)

static const PlanStack newest[] = {
  {
      .name = "megatron-fsdp",
      .waits_if_packed = TRUE, /* `int (max_seqlen.item ())` (pretrain_gpt.py) */
      .has_documents = TRUE,   /* --dataloader-inter-document-masking */
      .id = PLAN_STACK_MEGATRON_FSDP,
      .oldest = 20260121,
      .newest = 20260822,
      .source = "Megatron-LM main at d98e8a64 (2026-08-22)",
      .vocab_multiple = 128,
      .bucket_elements = 40000000,
      .bucket_elements_per_rank = 1000000,
      .comm_unit_floor = 1000000000,
      .has_fine_grained = TRUE,
      .has_max_pool = TRUE,
      .units_below_full = TRUE,
      .outer = PLAN_OUTER_STAYS,
      .registers_pools = TRUE, /* FixedPoolAllocator: what it cannot hold, the device allocator
                                * does (fsdp_db_use_persist_buf_on_alloc_fail is off) */
      .pooled_grad_units = 2,
      .frees_pooled_early = TRUE,
      .prefetches_past_head = TRUE,
      .transposes_forward = TRUE,
      .repeats_outer_gather = TRUE,
      .casts_grads = TRUE,
      .widens_moments = TRUE,
      .recomputes_outputs = TRUE,
      .exchanges_beside = TRUE, /* TransformerEngine module/linear.py: async_op, waited for behind
                                 * the product over weights, then over rows */
      .quantises_units = TRUE,
      .loss = PLAN_LOSS_IMAGE,
      .allocation_bytes = 512,
      .caching_allocator = TRUE,
      .fixed_bytes = 105 * PLAN_MIB,
      .context_bytes = CONTEXT_BYTES,
      .communicator_bytes = COMMUNICATOR_BYTES,
      .rounds_to_tf32 = TRUE,
      .launch_ns = { [PLAN_LAUNCH_KERNEL] = 10000,
                     [PLAN_LAUNCH_PRODUCT] = 100000,
                     [PLAN_LAUNCH_QUANTISED_PRODUCT] = 600000,
                     [PLAN_LAUNCH_GRADIENT] = 50000,
                     [PLAN_LAUNCH_QUANTISED_GRADIENT] = 175000,
                     [PLAN_LAUNCH_ATTENTION] = 150000,
                     [PLAN_LAUNCH_COLLECTIVE] = 250000 },
      .waits_for_norm = TRUE, /* `total_norm.item ()` (clip_grads.py) */
      .tensor_ns = 250000,    /* wrapped as a DTensor, listed, sliced, rounded; each by itself */
  },
  {
      .name = "megatron",
      .waits_if_packed = TRUE, /* `int (max_seqlen.item ())` (pretrain_gpt.py) */
      .has_documents = TRUE,   /* --dataloader-inter-document-masking */
      .id = PLAN_STACK_MEGATRON,
      .oldest = 20240101,
      .newest = 20260822,
      .source = "Megatron-LM main at d98e8a64 (2026-08-22)",
      .vocab_multiple = 128,
      .bucket_elements = 40000000,
      .bucket_elements_per_rank = 1000000,
      .cuts_backwards = TRUE,
      .packing = PLAN_PACKING_FLAT,
      .shard_multiple = 128,
      .outer = PLAN_OUTER_STAYS,
      .gathers_in_turn = TRUE,
      .transposes_forward = TRUE,
      .keeps_transposes = TRUE, /* TransformerEngine module/layernorm_mlp.py, is_first_microbatch;
                                 * since 2.0 in Float8Tensor.update_usage */
      .casts_grads = TRUE,
      .widens_moments = TRUE,
      .recomputes_outputs = TRUE,
      .exchanges_beside = TRUE, /* TransformerEngine module/linear.py: async_op, waited for behind
                                 * the product over weights, then over rows */
      .quantises_units = TRUE,
      .gathers_in_grads = TRUE, /* --reuse-grad-buf-for-mxfp8-param-ag, which it urges to set
                                 * (optimizer_config.py; _post_param_sync) */
      .loss = PLAN_LOSS_IMAGE,
      .allocation_bytes = 512,
      .caching_allocator = TRUE,
      .fixed_bytes = 105 * PLAN_MIB,
      .context_bytes = CONTEXT_BYTES,
      .communicator_bytes = COMMUNICATOR_BYTES,
      .rounds_to_tf32 = TRUE,
      .launch_ns = { [PLAN_LAUNCH_KERNEL] = 10000,
                     [PLAN_LAUNCH_PRODUCT] = 100000,
                     [PLAN_LAUNCH_QUANTISED_PRODUCT] = 600000,
                     [PLAN_LAUNCH_GRADIENT] = 50000,
                     [PLAN_LAUNCH_QUANTISED_GRADIENT] = 175000,
                     [PLAN_LAUNCH_ATTENTION] = 150000,
                     [PLAN_LAUNCH_COLLECTIVE] = 50000 },
      .has_pipelines = TRUE,
      .aligns_reductions = TRUE, /* --no-align-grad-reduce is not set (schedules.py 2476-2480) */
      .awaits_sent = TRUE,
      .waits_for_norm = TRUE, /* `total_norm.item ()` (clip_grads.py) */
      .tensor_ns = 50000,     /* sliced, listed, copied */
  },
  {
      .name = "fsdp2",
      .id = PLAN_STACK_FSDP2,
      .oldest = 20240328,
      .newest = 20260821,
      .source = "torchtitan main at b5bcd76c (2026-08-21), PyTorch's fully_shard",
      .vocab_multiple = 1,
      .naming = PLAN_NAMING_NORMS_LAST,
      .packing = PLAN_PACKING_PER_TENSOR,
      .outer = PLAN_OUTER_OWN_GROUPS,
      .gathers_each_pass = TRUE,
      .rounds_as_gathered = TRUE,
      .copies_gathered = TRUE,
      .keeps_gathered = TRUE,
      .units_ahead = 1,
      .queued_reductions = 1,
      .collects_grads = TRUE,
      .drops_grads = TRUE,
      .has_narrow_moments = TRUE,
      .loss = PLAN_LOSS_EAGER,
      .rounds_compiled_loss = TRUE,
      .loss_chunks = 8, /* ChunkedLossWrapper (components/loss.py, llama3/config_registry.py) */
      .joins_pieces = TRUE,
      .separate_gate = TRUE,
      .quantises_on_use = TRUE,
      .allocation_bytes = 512,
      .caching_allocator = TRUE,
      .pools_per_stream = TRUE,
      .expandable_segments = TRUE,
      .fixed_bytes = 40 * PLAN_MIB,
      .context_bytes = CONTEXT_BYTES,
      .communicator_bytes = COMMUNICATOR_BYTES,
      .ampere_attention = TRUE,
      .waits_at_load = TRUE, /* `input.to (device)`, in every train.py */
      .launch_ns = { [PLAN_LAUNCH_KERNEL] = 10000,
                     [PLAN_LAUNCH_PRODUCT] = 20000,
                     [PLAN_LAUNCH_QUANTISED_PRODUCT] = 150000,
                     [PLAN_LAUNCH_GRADIENT] = 10000,
                     [PLAN_LAUNCH_QUANTISED_GRADIENT] = 75000,
                     [PLAN_LAUNCH_ATTENTION] = 40000,
                     [PLAN_LAUNCH_COLLECTIVE] = 250000 },
  },
  {
      .name = "fsdp1",
      .id = PLAN_STACK_FSDP1,
      .oldest = 20230301,
      .newest = 20250601,
      .source = "PyTorch 2.x FullyShardedDataParallel, flat parameters",
      .vocab_multiple = 1,
      .naming = PLAN_NAMING_NORMS_LAST,
      .packing = PLAN_PACKING_FLAT,
      .shard_multiple = 1,
      .outer = PLAN_OUTER_EACH_PASS,
      .gathers_each_pass = TRUE,
      .rounds_as_gathered = TRUE,
      .units_ahead = 1,
      .queued_reductions = 1,
      .collects_grads = TRUE,
      .drops_grads = TRUE,
      .loss = PLAN_LOSS_EAGER,
      .rounds_fused_loss = TRUE,
      .keeps_logits = TRUE,
      .separate_gate = TRUE,
      .allocation_bytes = 512,
      .caching_allocator = TRUE,
      .pools_per_stream = TRUE,
      .fixed_bytes = 40 * PLAN_MIB,
      .context_bytes = CONTEXT_BYTES,
      .communicator_bytes = COMMUNICATOR_BYTES,
      .ampere_attention = TRUE,
      .launch_ns = { [PLAN_LAUNCH_KERNEL] = 10000,
                     [PLAN_LAUNCH_PRODUCT] = 20000,
                     [PLAN_LAUNCH_QUANTISED_PRODUCT] = 350000,
                     [PLAN_LAUNCH_GRADIENT] = 10000,
                     [PLAN_LAUNCH_QUANTISED_GRADIENT] = 175000,
                     [PLAN_LAUNCH_ATTENTION] = 40000,
                     [PLAN_LAUNCH_COLLECTIVE] = 250000 },
  },
  {
      .name = "nanotron",
      .id = PLAN_STACK_NANOTRON,
      .oldest = 20241205,
      .newest = 20250131,
      .source = "nanotron main at 2cde8f63 (2024-12-05)",
      .vocab_multiple = 1,
      .naming = PLAN_NAMING_BY_USE,
      .packing = PLAN_PACKING_FLAT,
      .shard_multiple = 1,
      .outer = PLAN_OUTER_STAYS,
      .autograd_stays = TRUE,
      .keeps_half_grads = TRUE,
      .loss = PLAN_LOSS_SHARDED,
      .separate_gate = TRUE,
      .exchanges_beside = TRUE, /* tp_linear_async_communication (scaling_benchmarks.py) */
      .static_gathers = TRUE,
      .gathers_at_once = TRUE, /* _all_gather_params (zero.py) */
      .sums_at_once = TRUE,    /* `make_ddp` (trainer.py), sync_gradients_across_dp */
      .late_moments = TRUE,    /* torch.optim.AdamW makes its state in its first step */
      .pairs_keys = TRUE, /* `torch.cat ([key_states, value_states])` (llama.py): attention saves
                           * these, and with the queries all three as they were laid out */
      .reduce_bytes = 25 * PLAN_MIB, /* ddp_bucket_cap_mb (config.py): DDP calls hooks by bucket */
      .allocation_bytes = 512,
      .caching_allocator = TRUE,
      .product_work_bytes = 32 * PLAN_MIB, /* cuBLAS's on Hopper (CUDABlas.cpp), per thread */
      .fixed_bytes = 8 * PLAN_MIB,
      .context_bytes = CONTEXT_BYTES,
      .communicator_bytes = COMMUNICATOR_BYTES,
      .ampere_attention = TRUE,
      .has_pipelines = TRUE,
      .stages_by_cost = TRUE,
      .fills_pipeline = TRUE,
      .trades_in_turn = TRUE, /* blocking sends and receives on one stream (p2p.py 207-345) */
      .waits_at_load = TRUE,  /* `v.to ("cuda")` (dataloader.py) */
      .clips_in_place = TRUE, /* `get_grad_buffer (name).detach ().mul_` (clip_grads.py) */
      .launch_ns = { [PLAN_LAUNCH_KERNEL] = 10000,
                     [PLAN_LAUNCH_PRODUCT] = 100000, /* an autograd function in Python each */
                     [PLAN_LAUNCH_QUANTISED_PRODUCT] = 350000,
                     [PLAN_LAUNCH_GRADIENT] = 50000,
                     [PLAN_LAUNCH_QUANTISED_GRADIENT] = 175000,
                     [PLAN_LAUNCH_ATTENTION] = 150000,
                     [PLAN_LAUNCH_COLLECTIVE] = 100000 },
      /* llama.py, functional.py at 67c5ebb6. Of a layer's 24 going forward and 37 going backward,
       * products of a gathered sequence are two, of the rank's own part and of the others'; around
       * attention heads are laid out anew and lengths added up. Of each of its six tensors the
       * optimizer finds the norm, clips, counts, updates and rounds. */
      .kernels
      = { [PLAN_LAUNCH_PRODUCT] = 2, [PLAN_LAUNCH_GRADIENT] = 2, [PLAN_LAUNCH_ATTENTION] = 10 },
      .update_kernels = 30,
      /* _all_gather_params and all_gather_coalesced (zero.py, distributed.py): pieces are sliced,
       * looked at and flattened, which took 1.7 us each in PyTorch 2 on a Xeon where it was timed;
       * then unflattened, in 1.2 us, and copied by calls of their own, of 5 us each on a GPU. */
      .unit_tensors = 6,
      .piece_ns = 1700,
      .copy_ns = 6200,
  },
  {
      .name = "native",
      .has_documents = TRUE,
      .id = PLAN_STACK_NATIVE,
      .oldest = 20261101,
      .newest = 20261101,
      .source = "this program's own runtime",
      .vocab_multiple = 1,
      .comm_unit_floor = 0,
      .has_fine_grained = TRUE,
      .has_max_pool = TRUE,
      .units_below_full = TRUE,
      .outer = PLAN_OUTER_STAYS,
      .pooled_grad_units = 2,
      .loss_chunks = 1,
      .adds_in_norms = TRUE,
      .needs_kernel_scratch = TRUE,
      .maps_count_rows = TRUE,
      .takes_no_processors = TRUE,
      .allocation_bytes = 64,
      .launch_ns = { [PLAN_LAUNCH_KERNEL] = 2500,
                     [PLAN_LAUNCH_PRODUCT] = 2500,
                     [PLAN_LAUNCH_QUANTISED_PRODUCT] = 2500,
                     [PLAN_LAUNCH_GRADIENT] = 2500,
                     [PLAN_LAUNCH_QUANTISED_GRADIENT] = 2500,
                     [PLAN_LAUNCH_ATTENTION] = 2500,
                     [PLAN_LAUNCH_COLLECTIVE] = 5000 },
  },
};

#define MAX_STATES 20

/* The record before change i of `stack`, or after all of them; made once, then only read. */
static const PlanStack *
before_change (const PlanStack *stack, guint i)
{
  static PlanStack states[G_N_ELEMENTS (newest)][MAX_STATES];
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      for (guint k = 0; k < G_N_ELEMENTS (newest); k++)
        {
          const guint n = plan_stack_n_changes (newest[k].id);
          g_assert (n < MAX_STATES);
          states[k][n] = newest[k];
          for (guint c = n; c-- > 0;)
            {
              states[k][c] = states[k][c + 1];
              plan_stack_undo (&states[k][c], c);
            }
        }
      g_once_init_leave (&ready, 1);
    }
  return &states[stack - newest][i];
}

static const PlanStack *
of_date (const PlanStack *stack, gint64 date, GError **error)
{
  if (date == 0)
    return stack;
  if (date < stack->oldest || date > stack->newest)
    {
      g_autofree char *oldest = plan_stack_date_text (stack->oldest);
      g_autofree char *latest = plan_stack_date_text (stack->newest);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "stack=%s is known from %s to %s: give a date between them, or none for the "
                   "newest",
                   stack->name, oldest, latest);
      return NULL;
    }
  const guint n = plan_stack_n_changes (stack->id);
  guint next = 0;
  while (next < n && plan_stack_change (stack, next)->date <= date)
    next++;
  return next < n ? before_change (stack, next) : stack;
}

const PlanStack *
plan_stack_of (const Plan *plan, PlanDeviceKind device, GError **error)
{
  const gint64 which = plan->value[PLAN_STACK] % PLAN_STACK_BASE;
  const gint64 date = plan->value[PLAN_STACK] / PLAN_STACK_BASE;
  for (guint i = 0; i < plan_stack_n (); i++)
    if (newest[i].id == which && (device == PLAN_DEVICE_GPU || newest[i].id == PLAN_STACK_NATIVE))
      return of_date (&newest[i], date, error);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "stack=%s does not run on a CPU: use stack=native or a cluster of GPUs",
               plan_field_names (PLAN_STACK)[which]);
  return NULL;
}

guint
plan_stack_n (void)
{
  return G_N_ELEMENTS (newest);
}

const PlanStack *
plan_stack_get (guint i)
{
  g_return_val_if_fail (i < plan_stack_n (), NULL);
  return &newest[i];
}

gint64
plan_stack_padded_vocab (const PlanStack *self, gint64 vocab, gint64 tp)
{
  return (gint64)plan_units_round_up ((guint64)vocab, (guint64)(self->vocab_multiple * tp));
}

PlanLoss
plan_stack_loss (const PlanStack *self, const Plan *plan)
{
  const gboolean rounds
      = (self->rounds_fused_loss && plan->value[PLAN_CE_FUSION] == PLAN_CE_FUSION_ON)
        || (self->rounds_compiled_loss && plan->value[PLAN_COMPILE] == PLAN_COMPILE_ON);
  return rounds ? PLAN_LOSS_ROUNDED : self->loss;
}

guint64
plan_stack_outside_bytes (const PlanStack *self, const PlanSchedule *schedule)
{
  guint64 bytes = self->context_bytes;
  for (guint g = 0; g < plan_schedule_n_groups (schedule); g++)
    if (plan_schedule_group (schedule, g)->size > 1)
      bytes += self->communicator_bytes + plan_schedule_group (schedule, g)->registered_bytes;
  return bytes;
}
