/* SPDX-License-Identifier: Apache-2.0 */
/* Packing, after Megatron-FSDP (param_and_grad_buffer.py):
 *
 * - the chunk F of a bucket is the least common multiple of its tensors' row sizes, starting with
 *   the largest row and skipping tensors smaller than F;
 * - tensors of at least F elements are placed by descending row size, so that as many as possible
 *   begin or end at a multiple of F; smaller ones fill the gaps, then the tail;
 * - the bucket is padded to a multiple of shards * F, so that no shard cuts a row. */
#include "config.h"

#include "planner/layout.h"

#include "planner/units.h"

static guint64
lcm (guint64 a, guint64 b)
{
  guint64 x = a, y = b;
  while (y)
    {
      const guint64 t = x % y;
      x = y;
      y = t;
    }
  return a / x * b;
}

static guint64
numel (const PlanSlot *slot)
{
  return slot->tensor.rows * slot->tensor.cols;
}

/* Indices of the slots by descending row size, equal ones in list order. */
static void
sort_by_row (const PlanBucket *bucket, guint *order)
{
  for (guint i = 0; i < bucket->n_slots; i++)
    {
      guint at = i;
      for (; at > 0 && bucket->slots[order[at - 1]].tensor.cols < bucket->slots[i].tensor.cols;
           at--)
        order[at] = order[at - 1];
      order[at] = i;
    }
}

static guint64
chunk_of (const PlanBucket *bucket, const guint *order)
{
  guint64 chunk = bucket->slots[order[0]].tensor.cols;
  for (guint i = 1; i < bucket->n_slots; i++)
    {
      const PlanSlot *slot = &bucket->slots[order[i]];
      if (numel (slot) >= chunk && chunk % slot->tensor.cols != 0)
        chunk = lcm (chunk, slot->tensor.cols);
    }
  return chunk;
}

/* Puts small tensors into [from, to); returns where they end. */
static guint64
place_fragments (PlanBucket *bucket, guint64 chunk, gboolean *placed, guint64 from, guint64 to)
{
  for (guint i = 0; i < bucket->n_slots; i++)
    if (!placed[i] && numel (&bucket->slots[i]) < chunk && numel (&bucket->slots[i]) <= to - from)
      {
        bucket->slots[i].offset = from;
        from += numel (&bucket->slots[i]);
        placed[i] = TRUE;
      }
  return from;
}

static void
pack (PlanBucket *bucket, guint64 shards)
{
  guint order[PLAN_N_TENSORS] = { 0 };
  gboolean placed[PLAN_N_TENSORS] = { FALSE };
  sort_by_row (bucket, order);
  const guint64 chunk = chunk_of (bucket, order);
  guint64 cursor = 0;

  for (guint i = 0; i < bucket->n_slots; i++)
    {
      PlanSlot *slot = &bucket->slots[order[i]];
      if (placed[order[i]] || numel (slot) < chunk)
        continue;
      slot->offset = cursor;
      placed[order[i]] = TRUE;
      cursor += numel (slot);
      if (cursor % chunk == 0)
        continue;
      const guint64 aligned = plan_units_round_up (cursor, chunk);
      guint64 gap_end = aligned, next = aligned;
      for (guint j = i + 1; j < bucket->n_slots; j++)
        {
          PlanSlot *later = &bucket->slots[order[j]];
          const guint64 rest = numel (later) % chunk;
          if (placed[order[j]] || numel (later) < chunk || rest == 0 || rest > aligned - cursor)
            continue;
          later->offset = gap_end = aligned - rest;
          next = later->offset + numel (later);
          placed[order[j]] = TRUE;
          break;
        }
      place_fragments (bucket, chunk, placed, cursor, gap_end);
      cursor = next;
    }
  cursor = place_fragments (bucket, chunk, placed, cursor, G_MAXUINT64);
  bucket->padded = plan_units_round_up (cursor, shards * chunk);
}

/* One copy of everything: tensors one after the other, no padding. */
static void
pack_plain (PlanBucket *bucket)
{
  guint64 cursor = 0;
  for (guint i = 0; i < bucket->n_slots; i++)
    {
      bucket->slots[i].offset = cursor;
      cursor += numel (&bucket->slots[i]);
    }
  bucket->padded = cursor;
}

static void
add (PlanBucket *bucket, const PlanModel *model, PlanTensorRole role, gint64 vocab)
{
  const PlanTensor tensor = plan_model_tensor (model, role, vocab);
  if (tensor.rows > 0)
    {
      bucket->slots[bucket->n_slots++].tensor = tensor;
      bucket->raw += tensor.rows * tensor.cols;
    }
}

void
plan_layout_init (PlanLayout *self, const PlanModel *model, const PlanStack *stack,
                  const Plan *plan, gint64 data_parallel)
{
  const gint64 vocab = plan_stack_padded_vocab (stack, model->vocab, plan->value[PLAN_TP]);
  const gboolean shards = plan->value[PLAN_STRATEGY] != PLAN_STRATEGY_NO_SHARD;

  *self = (PlanLayout){ .shards = shards ? (guint64)data_parallel : 1 };
  add (&self->buckets[PLAN_BUCKET_EMBEDDING], model, PLAN_TENSOR_EMBEDDING, vocab);
  add (&self->buckets[PLAN_BUCKET_HEAD], model, PLAN_TENSOR_FINAL_NORM, vocab);
  add (&self->buckets[PLAN_BUCKET_HEAD], model, PLAN_TENSOR_OUTPUT, vocab);
  for (PlanTensorRole role = PLAN_TENSOR_ATTENTION_NORM; role <= PLAN_TENSOR_DOWN; role++)
    add (&self->buckets[PLAN_BUCKET_LAYER], model, role, vocab);
  for (guint i = 0; i < PLAN_N_BUCKETS; i++)
    {
      PlanBucket *bucket = &self->buckets[i];
      bucket->units = i == PLAN_BUCKET_LAYER ? model->layers : 1;
      if (self->shards > 1)
        pack (bucket, self->shards);
      else
        pack_plain (bucket);
    }
}

const PlanSlot *
plan_layout_slot (const PlanLayout *self, PlanTensorRole role)
{
  for (guint b = 0; b < PLAN_N_BUCKETS; b++)
    for (guint i = 0; i < self->buckets[b].n_slots; i++)
      if (self->buckets[b].slots[i].tensor.role == role)
        return &self->buckets[b].slots[i];
  return NULL;
}
