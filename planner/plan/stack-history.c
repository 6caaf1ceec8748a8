/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/stack-history.h"

/* `undo` gives back what held before the change. Where there is none, the change is outside of what
 * is modelled, and the summary says what it did. */
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
compute_awaits_pool (PlanStack *stack)
{
  stack->pooled_grad_units = 2;
  stack->frees_pooled_early = FALSE;
}

static void
scale_hybrid (PlanStack *stack)
{
  stack->scales_hybrid = TRUE;
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

static void
before_documents (PlanStack *stack)
{
  stack->has_documents = FALSE;
}

#define DOCUMENTS \
  { \
    { 20260628, "Megatron-LM PR #5298", "attention can stay within documents (doc_tokens)" }, \
        before_documents \
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
  DOCUMENTS,
  { { 20260702, "Megatron-LM PR #5462",
      "double_buffer=max_pool; gradient formats are no longer forced to fp32, and "
      "--grad-reduce-in-bf16 "
      "no longer reaches them: bf16 is the default for bf16 and fp8 models" },
    before_max_pool },
  { { 20260818, "Megatron-LM PR #6357",
      "optim and optim_grads reduce and gather by unit; before, by buckets of ddp-bucket-size" },
    before_units_below_full },
};

static void
leave_sends_alone (PlanStack *stack)
{
  stack->awaits_sent = FALSE;
}

static const Change megatron_changes[] = {
  { { 20260116, "Megatron-LM PR #2913",
      "the host waits for the GPU when it loads a micro batch, to say how it is packed, though it "
      "is not (`torch.tensor (n, device=...)`)" },
    do_not_wait_at_load },
  { { 20260416, "Megatron-LM PR #4047",
      "with interleaved stages (vpp) compute waits at once for what it sends to the next stage; "
      "before, one micro batch later" },
    leave_sends_alone },
  { { 20260521, "Megatron-LM PR #4103", "it does so for packed ones only" }, wait_at_load },
  DOCUMENTS,
};

static void
logits_stay (PlanStack *stack)
{
  stack->keeps_logits = TRUE;
}

static void
loss_keeps_images (PlanStack *stack)
{
  stack->rounds_compiled_loss = FALSE;
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

static void
before_narrow_moments (PlanStack *stack)
{
  stack->has_narrow_moments = FALSE;
}

static void
before_pieces (PlanStack *stack)
{
  stack->loss_chunks = 0;
}

static void
before_all_attention_was_kept (PlanStack *stack)
{
  stack->repeats_cudnn_attention = TRUE;
}

static void
before_cudnn_attention (PlanStack *stack)
{
  stack->repeats_cudnn_attention = FALSE;
}

static const Change fsdp2_changes[] = {
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
  { { 20251201, "torchtitan PR #2095", "op-sac keeps the result of every kind of attention" },
    before_all_attention_was_kept },
  { { 20260127, "torchtitan PR #2259",
      "query heads share keys and values; before, these were repeated for each query head" },
    before_keys_were_shared },
  { { 20260415, "torchtitan PR #2732", "Adam's moments may be bf16 beside fp32 weights" },
    before_narrow_moments },
  { { 20260427, "torchtitan PR #2937",
      "output layer and loss may run in pieces (loss_chunks), in 8 unless a configuration says "
      "otherwise; before, only a loss that was never the default cut its fp32 images, for nine "
      "days "
      "(PR #996 to #1033)" },
    before_pieces },
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

static const Change *
changes_of (gint64 id, guint *out_n)
{
  for (guint h = 0; h < G_N_ELEMENTS (histories); h++)
    if (histories[h].id == id)
      {
        *out_n = histories[h].n;
        return histories[h].changes;
      }
  *out_n = 0;
  return NULL;
}

guint
plan_stack_n_changes (gint64 id)
{
  guint n;
  changes_of (id, &n);
  return n;
}

void
plan_stack_undo (PlanStack *state, guint i)
{
  guint n;
  const Change *changes = changes_of (state->id, &n);
  g_return_if_fail (i < n);
  if (changes[i].undo)
    changes[i].undo (state);
}

const PlanStackChange *
plan_stack_change (const PlanStack *self, guint i)
{
  guint n;
  const Change *changes = changes_of (self->id, &n);
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
