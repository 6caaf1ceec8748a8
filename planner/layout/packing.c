/* SPDX-License-Identifier: Apache-2.0 */
/* PLAN_PACKING_CHUNKS packs as Megatron-FSDP does (param_and_grad_buffer.py):
 *
 * - the chunk F of a bucket is the least common multiple of its tensors' row sizes, starting with
 * the largest row and skipping tensors smaller than F;
 * - tensors of at least F elements are placed by descending row size, so that as many as possible
 * begin or end at a multiple of F; smaller ones fill the gaps, then the tail;
 * - the bucket is padded to a multiple of shards * F, so that no shard cuts a row. */
#include "config.h"

#include "planner/layout/packing.h"

#include "planner/base/units.h"

typedef struct
{
  const PlanTensor *const *tensors;
  guint n;
  guint *order; /* places by descending row size, equal ones in the order of names */
  guint64 *offsets;
  gboolean *placed;
  guint64 chunk;
} Packer;

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
numel (const PlanTensor *tensor)
{
  return tensor->rows * tensor->cols;
}

static gint
by_row (gconstpointer a, gconstpointer b, gpointer tensors)
{
  const guint one = *(const guint *)a, other = *(const guint *)b;
  const PlanTensor *const *all = tensors;
  if (all[one]->cols != all[other]->cols)
    return all[one]->cols > all[other]->cols ? -1 : 1;
  return one < other ? -1 : 1;
}

static guint64
chunk_of (const Packer *self)
{
  guint64 chunk = self->tensors[self->order[0]]->cols;
  for (guint i = 1; i < self->n; i++)
    {
      const PlanTensor *tensor = self->tensors[self->order[i]];
      if (numel (tensor) >= chunk && chunk % tensor->cols != 0)
        chunk = lcm (chunk, tensor->cols);
    }
  return chunk;
}

/* Puts small tensors into [from, to). Returns where they end. */
static guint64
place_fragments (Packer *self, guint64 from, guint64 to)
{
  for (guint i = 0; i < self->n; i++)
    {
      const guint64 elements = numel (self->tensors[i]);
      if (self->placed[i] || elements >= self->chunk || elements > to - from)
        continue;
      self->offsets[i] = from;
      from += elements;
      self->placed[i] = TRUE;
    }
  return from;
}

/* Fills the last chunk of a tensor that ends inside it, at `cursor`: with a later tensor that can
 * end where the chunk does, and with small tensors. Returns where the next tensor starts. */
static guint64
fill_chunk (Packer *self, guint place, guint64 cursor)
{
  const guint64 aligned = plan_units_round_up (cursor, self->chunk);
  guint64 gap_end = aligned, next = aligned;
  for (guint k = place + 1; k < self->n; k++)
    {
      const guint j = self->order[k];
      const guint64 elements = numel (self->tensors[j]), rest = elements % self->chunk;
      if (self->placed[j] || elements < self->chunk || rest == 0 || rest > aligned - cursor)
        continue;
      self->offsets[j] = gap_end = aligned - rest;
      next = gap_end + elements;
      self->placed[j] = TRUE;
      break;
    }
  place_fragments (self, cursor, gap_end);
  return next;
}

static guint64
place_in_chunks (const PlanPackingRule *rule, const PlanTensor *const *tensors, guint n,
                 guint64 *out_offsets)
{
  g_autofree guint *order = g_new (guint, n);
  g_autofree gboolean *placed = g_new0 (gboolean, n);
  Packer self
      = { .tensors = tensors, .n = n, .order = order, .offsets = out_offsets, .placed = placed };
  for (guint i = 0; i < n; i++)
    order[i] = i;
  g_qsort_with_data (order, (gint)n, sizeof *order, by_row, (gpointer)(gsize)tensors);
  self.chunk = chunk_of (&self);
  guint64 cursor = 0;
  for (guint k = 0; k < n; k++)
    {
      const guint i = order[k];
      if (placed[i] || numel (tensors[i]) < self.chunk)
        continue;
      out_offsets[i] = cursor;
      placed[i] = TRUE;
      cursor += numel (tensors[i]);
      if (cursor % self.chunk != 0)
        cursor = fill_chunk (&self, k, cursor);
    }
  cursor = place_fragments (&self, cursor, G_MAXUINT64);
  return plan_units_round_up (cursor, rule->shards * self.chunk);
}

guint64
plan_packing_place (const PlanPackingRule *rule, const PlanTensor *const *tensors, guint n,
                    guint64 *out_offsets)
{
  if (rule->shards > 1 && rule->packing == PLAN_PACKING_CHUNKS && n > 0)
    return place_in_chunks (rule, tensors, n, out_offsets);
  const gboolean is_per_tensor = rule->shards > 1 && rule->packing == PLAN_PACKING_PER_TENSOR;
  guint64 cursor = 0;
  for (guint i = 0; i < n; i++)
    {
      const guint64 rows
          = is_per_tensor ? plan_units_round_up (tensors[i]->rows, rule->shards) : tensors[i]->rows;
      out_offsets[i] = cursor;
      cursor += rows * tensors[i]->cols;
    }
  return rule->shards > 1 && rule->packing == PLAN_PACKING_FLAT
             ? plan_units_round_up (cursor, lcm (rule->shards, rule->multiple))
             : cursor;
}
