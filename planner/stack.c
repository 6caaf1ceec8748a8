/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/stack.h"

#include "planner/error.h"
#include "planner/units.h"

/* Facts per framework; megatron-fsdp from its source at the newest date (communication unit, hooks)
 * and from the memory its authors logged (loss image, constant residual: fitted, see README). What
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
 * compiled too was chosen by published memory (torchtitan 2024-12, torchao 2026-02), not read.
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
      .pooled_grad_units = 2,
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
      .loss = PLAN_LOSS_EAGER,
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
      .waits_at_load = TRUE, /* `v.to ("cuda")` (dataloader.py) */
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
      .piece_ns = 24000, /* six tensors are sliced, flattened and copied: 4 us each (zero.py) */
  },
  {
      .name = "native",
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
      .needs_kernel_scratch = TRUE,
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

/* A record is what holds after its newest change; `undo` gives back what held before. Where there
 * is none, the change is outside of what is modelled, and the summary says what it did. */
typedef struct
{
  PlanStackChange change;
  void (*undo) (PlanStack *stack);
} Change;

static void
before_max_pool (PlanStack *stack)
{
  stack->has_max_pool = FALSE;
}

static void
before_fine_grained (PlanStack *stack)
{
  stack->has_fine_grained = FALSE;
}

static void
before_units_below_full (PlanStack *stack)
{
  stack->units_below_full = FALSE;
}

static void
one_pooled_grad_unit (PlanStack *stack)
{
  stack->pooled_grad_units = 1;
}

static void
two_pooled_grad_units (PlanStack *stack)
{
  stack->pooled_grad_units = 2;
}

static void
before_non_units_stayed (PlanStack *stack)
{
  stack->outer = PLAN_OUTER_DROPS;
}

static void
before_masters_went (PlanStack *stack)
{
  stack->has_fused_masters = TRUE;
}

static void
record_streams (PlanStack *stack)
{
  stack->records_streams = TRUE;
}

static void
wait_at_load (PlanStack *stack)
{
  stack->waits_at_load = TRUE;
}

static void
do_not_wait_at_load (PlanStack *stack)
{
  stack->waits_at_load = FALSE;
}

/* Dates are those of the merge, in UTC. */
static const Change megatron_fsdp_changes[] = {
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
  { { 20260401, "Megatron-LM PR #4054", "double buffers of gradients hold one unit at a time" },
    two_pooled_grad_units },
  { { 20260410, "Megatron-LM PR #4133",
      "the optimizer's own fp32 masters are gone (fused_masters)" },
    before_masters_went },
  { { 20260413, "Megatron-LM PR #3155", "gathers start afresh after each evaluation" }, NULL },
  { { 20260427, "Megatron-LM PR #4427",
      "precision_aware reads gradients as they are, with every recipe" },
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
  { { 20260610, "Megatron-LM PR #5222",
      "double buffers of gradients hold two units again, fused weight gradients included" },
    one_pooled_grad_unit },
  { { 20260626, "Megatron-LM PR #4329", "units are transformer, MoE and Mamba layers" }, NULL },
  { { 20260702, "Megatron-LM PR #5462",
      "double_buffer=max_pool; gradient formats are no longer forced to fp32, and "
      "--grad-reduce-in-bf16 "
      "no longer reaches them: bf16 is the default for bf16 and fp8 models" },
    before_max_pool },
  { { 20260818, "Megatron-LM PR #6357",
      "optim and optim_grads reduce and gather by unit; before, by buckets of ddp-bucket-size" },
    before_units_below_full },
};

static const Change megatron_changes[] = {
  { { 20260116, "Megatron-LM PR #2913",
      "the host waits for the GPU when it loads a micro batch, to say how it is packed, though it "
      "is not (`torch.tensor (n, device=...)`)" },
    do_not_wait_at_load },
  { { 20260521, "Megatron-LM PR #4103", "it does so for packed ones only" }, wait_at_load },
};

static void
logits_stay (PlanStack *stack)
{
  stack->keeps_logits = TRUE;
}

static void
before_own_groups (PlanStack *stack)
{
  stack->outer = PLAN_OUTER_EACH_PASS;
}

static void
before_keys_were_shared (PlanStack *stack)
{
  stack->repeats_keys = TRUE;
}

static const Change fsdp2_changes[] = {
  { { 20240612, "torchtitan PR #391",
      "the logits are given back before the backward pass; before, they outlived it" },
    logits_stay },
  { { 20241022, "torchtitan e10cb949",
      "compile=on compiles the loss as well; its memory stays that of three fp32 images, as rows "
      "of "
      "2024-12 and 2026-02 show" },
    NULL },
  { { 20250728, "torchtitan PR #1094",
      "embedding and head are gathered and reduced each by itself; before, both stayed from the "
      "beginning of the forward pass to the end of the backward one" },
    before_own_groups },
  { { 20260127, "torchtitan PR #2259",
      "query heads share keys and values; before, these were repeated for each query head" },
    before_keys_were_shared },
};

static const Change nanotron_changes[] = {
  { { 20250101, "its published scan: reserved memory",
      "blocks that collectives used come free at once; before, when these were over on the "
      "device. The installations of before and after took turns in 2024-12 and 2025-01, told "
      "apart by the speed of their collectives; what else differs was not found" },
    record_streams },
};

/* What is known of each stack's past. */
static const struct
{
  gint64 id;
  const Change *changes;
  guint n;
} histories[] = {
  { PLAN_STACK_MEGATRON_FSDP, megatron_fsdp_changes, G_N_ELEMENTS (megatron_fsdp_changes) },
  { PLAN_STACK_MEGATRON, megatron_changes, G_N_ELEMENTS (megatron_changes) },
  { PLAN_STACK_FSDP2, fsdp2_changes, G_N_ELEMENTS (fsdp2_changes) },
  { PLAN_STACK_NANOTRON, nanotron_changes, G_N_ELEMENTS (nanotron_changes) },
};

/* Release branches by the day they left the main branch (git merge-base). */
static const struct
{
  const char *name;
  gint64 date;
} releases[] = {
  { "core_v0.16.0", 20260202 }, { "core_v0.16.1", 20260202 }, { "core_v0.17.0", 20260331 },
  { "core_v0.17.1", 20260331 }, { "core_v0.18.0", 20260601 }, { "core_v0.18.2", 20260601 },
  { "core_v0.19.0", 20260728 },
};

#define MAX_STATES 20

static const Change *
changes_of (const PlanStack *stack, guint *out_n)
{
  for (guint h = 0; h < G_N_ELEMENTS (histories); h++)
    if (histories[h].id == stack->id)
      {
        *out_n = histories[h].n;
        return histories[h].changes;
      }
  *out_n = 0;
  return NULL;
}

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
          guint n;
          const Change *changes = changes_of (&newest[k], &n);
          g_assert (n < MAX_STATES);
          states[k][n] = newest[k];
          for (guint c = n; c-- > 0;)
            {
              states[k][c] = states[k][c + 1];
              if (changes[c].undo)
                changes[c].undo (&states[k][c]);
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
  guint n, next = 0;
  const Change *changes = changes_of (stack, &n);
  while (next < n && changes[next].change.date <= date)
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

const PlanStackChange *
plan_stack_change (const PlanStack *self, guint i)
{
  guint n;
  const Change *changes = changes_of (self, &n);
  return i < n ? &changes[i].change : NULL;
}

const char *
plan_stack_release (const PlanStack *self, guint i)
{
  return self->id == PLAN_STACK_MEGATRON_FSDP && i < G_N_ELEMENTS (releases) ? releases[i].name
                                                                             : NULL;
}

gint64
plan_stack_release_date (gint64 stack, const char *release)
{
  for (guint i = 0; stack == PLAN_STACK_MEGATRON_FSDP && i < G_N_ELEMENTS (releases); i++)
    if (g_str_equal (releases[i].name, release))
      return releases[i].date;
  return 0;
}

char *
plan_stack_date_text (gint64 date)
{
  return g_strdup_printf ("%04d-%02d-%02d", (int)(date / 10000), (int)(date / 100 % 100),
                          (int)(date % 100));
}

gint64
plan_stack_padded_vocab (const PlanStack *self, gint64 vocab, gint64 tp)
{
  return (gint64)plan_units_round_up ((guint64)vocab, (guint64)(self->vocab_multiple * tp));
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
