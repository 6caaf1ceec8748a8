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

/* Tensor by tensor: the rows of each are a multiple of the shards, so that every rank holds an
 * equal part of each tensor. */
static void
pack_per_tensor (PlanBucket *bucket, guint64 shards)
{
  guint64 cursor = 0;
  for (guint i = 0; i < bucket->n_slots; i++)
    {
      const PlanTensor *tensor = &bucket->slots[i].tensor;
      bucket->slots[i].offset = cursor;
      cursor += plan_units_round_up (tensor->rows, shards) * tensor->cols;
    }
  bucket->padded = cursor;
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
add (PlanBucket *bucket, const PlanTensor *tensor)
{
  bucket->slots[bucket->n_slots++].tensor = *tensor;
  bucket->raw += tensor->rows * tensor->cols;
}

/* What building a layout looks at. */
typedef struct
{
  const PlanModel *model;
  gint64 vocab;
  guint64 tp;
  guint64 closes_at; /* elements at which a bucket that is no unit's is full; 0: by module */
} Builder;

/* A shared embedding has a bucket of its own. The others fill one after the other. */
static void
add_outer (PlanLayout *self, const Builder *b)
{
  static const PlanTensorRole roles[]
      = { PLAN_TENSOR_EMBEDDING, PLAN_TENSOR_POSITIONS, PLAN_TENSOR_FINAL_NORM,
          PLAN_TENSOR_FINAL_NORM_BIAS, PLAN_TENSOR_OUTPUT };
  PlanBucketKind kind = PLAN_BUCKET_EMBEDDING;
  for (guint i = 0; i < G_N_ELEMENTS (roles); i++)
    {
      const PlanTensor tensor = plan_buckets_part (b->model, roles[i], b->vocab, b->tp);
      if (tensor.rows == 0)
        continue;
      if (b->closes_at == 0 && roles[i] == PLAN_TENSOR_FINAL_NORM)
        kind = PLAN_BUCKET_HEAD;
      add (&self->buckets[kind], &tensor);
      if (b->closes_at > 0
          && (self->buckets[kind].raw >= b->closes_at
              || (roles[i] == PLAN_TENSOR_EMBEDDING && b->model->tied_embeddings)))
        kind = PLAN_BUCKET_HEAD;
    }
}

static void
add_layer (PlanLayout *self, const Builder *b, gboolean quantises)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const guint n = plan_buckets_layer (b->model, &self->rule, tensors);
  for (guint i = 0; i < n; i++)
    {
      const PlanTensor *tensor = &tensors[self->rule.is_backwards ? n - 1 - i : i];
      const gboolean is_plain = quantises && tensor->kind != PLAN_TENSOR_KIND_LINEAR;
      add (&self->buckets[is_plain ? PLAN_BUCKET_PLAIN : PLAN_BUCKET_LAYER], tensor);
    }
}

/* Nothing is gathered and dropped by unit, and there is one format of weights. */
static gboolean
goes_by_size (const PlanStack *stack, const gint64 *value)
{
  const gint64 strategy = value[PLAN_STRATEGY];
  return stack->bucket_elements > 0 && value[PLAN_PARAM_GATHER] == PLAN_PARAM_GATHER_COMPUTE
         && (strategy == PLAN_STRATEGY_NO_SHARD
             || (!stack->units_below_full && strategy < PLAN_STRATEGY_OPTIM_GRADS_PARAMS));
}

/* Parts are as large as they can be so that no bucket begins or ends inside one. */
static void
add_parts (PlanLayout *self, const PlanModel *model)
{
  g_auto (PlanBuckets) buckets = { 0 };
  plan_buckets_init (&buckets, model, &self->rule);
  guint part = 0, outer = 0;
  for (guint i = 0; i < buckets.n_layer; i++)
    {
      part += plan_buckets_cut_layer (&buckets, i) ? 1 : 0;
      const PlanBucketKind kind = part == 0 ? PLAN_BUCKET_LAYER : PLAN_BUCKET_PART + part - 1;
      add (&self->buckets[kind], &buckets.layer[i]);
    }
  for (guint i = 0; i < buckets.n_before; i++)
    {
      outer += i > 0 && plan_buckets_before (&buckets, i) != plan_buckets_before (&buckets, i - 1);
      add (&self->buckets[i == 0 || outer == 0 ? PLAN_BUCKET_EMBEDDING
                                               : PLAN_BUCKET_OUTER_PART + outer - 1],
           &buckets.before[i]);
    }
  const guint first = outer;
  for (guint i = 0; i < buckets.n_after; i++)
    {
      outer += i > 0 && plan_buckets_after (&buckets, i) != plan_buckets_after (&buckets, i - 1);
      add (&self->buckets[outer == first ? PLAN_BUCKET_HEAD : PLAN_BUCKET_OUTER_PART + outer - 1],
           &buckets.after[i]);
    }
}

void
plan_layout_init (PlanLayout *self, const PlanModel *model, const PlanStack *stack,
                  const Plan *plan, gint64 data_parallel)
{
  const gint64 *value = plan->value;
  const gboolean is_hfsdp = value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM;
  const gint64 shards = is_hfsdp ? data_parallel : data_parallel / value[PLAN_DP_OUTER];
  const Builder b
      = { .model = model,
          .vocab = plan_stack_padded_vocab (stack, model->vocab, value[PLAN_TP]),
          .tp = (guint64)value[PLAN_TP],
          .closes_at = stack->bucket_elements == 0 ? 0
                       : value[PLAN_OVERLAP_GRAD_REDUCE] == PLAN_OVERLAP_GRAD_REDUCE_OFF
                           ? G_MAXUINT64
                           : MAX (stack->bucket_elements,
                                  stack->bucket_elements_per_rank * (guint64)data_parallel) };

  *self = (PlanLayout){ .shards
                        = value[PLAN_STRATEGY] == PLAN_STRATEGY_NO_SHARD ? 1 : (guint64)shards };
  self->rule = (PlanBucketRule){ .naming = stack->naming,
                                 .closes_at = b.closes_at,
                                 .is_backwards = stack->cuts_backwards,
                                 .parts_shared = !stack->cuts_backwards,
                                 .vocab = b.vocab,
                                 .tp = b.tp };
  self->by_size = goes_by_size (stack, value);
  if (self->by_size)
    add_parts (self, model);
  else
    add_outer (self, &b);
  if (!self->by_size)
    add_layer (self, &b, value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE);
  for (guint i = 0; i < PLAN_N_BUCKETS; i++)
    {
      PlanBucket *bucket = &self->buckets[i];
      bucket->units = plan_bucket_is_unit ((PlanBucketKind)i) ? model->layers : 1;
      if (bucket->n_slots == 0 || self->shards == 1 || stack->packing == PLAN_PACKING_FLAT)
        pack_plain (bucket);
      else if (stack->packing == PLAN_PACKING_CHUNKS)
        pack (bucket, self->shards);
      else
        pack_per_tensor (bucket, self->shards);
      if (self->shards > 1 && stack->packing == PLAN_PACKING_FLAT)
        bucket->padded
            = plan_units_round_up (bucket->padded, lcm (self->shards, stack->shard_multiple));
    }
}

const PlanSlot *
plan_layout_slot (const PlanLayout *self, PlanTensorRole role, PlanBucketKind *out_kind)
{
  for (guint b = 0; b < PLAN_N_BUCKETS; b++)
    for (guint i = 0; i < self->buckets[b].n_slots; i++)
      if (self->buckets[b].slots[i].tensor.role == role)
        {
          *out_kind = (PlanBucketKind)b;
          return &self->buckets[b].slots[i];
        }
  return NULL;
}

gboolean
plan_layout_has (const PlanLayout *self, PlanBucketKind kind)
{
  return self->buckets[kind].n_slots > 0;
}

char *
plan_layout_bucket_name (PlanBucketKind kind, const char *what)
{
  static const char *const names[] = { "embed", "head", "layer", "plain" };
  if (kind < G_N_ELEMENTS (names))
    return g_strconcat (what, ".", names[kind], NULL);
  const gboolean is_unit = plan_bucket_is_unit (kind);
  const guint part = kind - (is_unit ? PLAN_BUCKET_PART : PLAN_BUCKET_OUTER_PART);
  return g_strdup_printf ("%s.%s%u", what, is_unit ? "layer" : "outer", part + 2);
}
