/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that every rank of a tensor-parallel group holds whole (norms, some biases) see other
 * tokens or heads on each of them: their gradients are summed over the group, once per step, on the
 * shards that the optimizer reads. What a shard holds of them is gathered into one buffer, so that
 * one reduction does (after Megatron-LM's finalize_model_grads.py). */
#include "config.h"

#include "planner/lower-emit.h"
#include "planner/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

/* A run of such elements in the optimizer's part of a bucket. */
typedef struct
{
  guint64 from, to;
} Piece;

static gboolean
is_replicated (const PlanLower *self, const PlanSlot *slot)
{
  const gint64 vocab = self->net.vocab * self->plan->value[PLAN_TP];
  const PlanTensor whole = plan_model_tensor (self->model, slot->tensor.role, vocab);
  return slot->tensor.rows == whole.rows && slot->tensor.cols == whole.cols;
}

/* In ascending order; neighbours that touch are one. Returns how many there are. */
static guint
pieces_of (const PlanLower *self, PlanBucketKind kind, Piece *out_pieces)
{
  const PlanBucket *layout = &self->layout.buckets[kind];
  const guint64 own = (guint64)plan_lower_own_elements (self, kind);
  const guint64 first = plan_lower_own_first (self, kind);
  guint n = 0;
  for (guint i = 0; i < layout->n_slots; i++)
    {
      const PlanSlot *slot = &layout->slots[i];
      const guint64 end = slot->offset + slot->tensor.rows * slot->tensor.cols;
      const Piece piece = { MAX (slot->offset, first) - first, MIN (end, first + own) - first };
      if (!is_replicated (self, slot) || end <= first || slot->offset >= first + own)
        continue;
      guint at = n++;
      for (; at > 0 && out_pieces[at - 1].from > piece.from; at--)
        out_pieces[at] = out_pieces[at - 1];
      out_pieces[at] = piece;
    }
  guint merged = 0;
  for (guint i = 1; i < n; i++)
    if (out_pieces[i].from == out_pieces[merged].to)
      out_pieces[merged].to = out_pieces[i].to;
    else
      out_pieces[++merged] = out_pieces[i];
  return n > 0 ? merged + 1 : 0;
}

static guint64
count_all (const PlanLower *self)
{
  guint64 count = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    {
      Piece pieces[PLAN_N_TENSORS];
      const guint n = pieces_of (self, kind, pieces);
      for (guint i = 0; i < n; i++)
        count += (pieces[i].to - pieces[i].from) * (guint64)self->layout.buckets[kind].units;
    }
  return count;
}

void
plan_lower_declare_replicated (PlanLower *self)
{
  const gint32 cast = self->bucket[PLAN_BUCKET_LAYER].cast;
  const guint64 count = self->tensor_group < 0 || self->is_eval ? 0 : count_all (self);
  self->replicated
      = count == 0 ? -1
                   : plan_schedule_add_buffer (self->schedule, "replicated", 1, count,
                                               cast >= 0 ? self->main_params : self->main_grads,
                                               PLAN_CATEGORY_GRAD_BUCKETS);
}

/* Between the buffer and where the optimizer reads. */
static void
copy_all (PlanLower *self, gboolean is_back)
{
  guint64 at = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    {
      Piece pieces[PLAN_N_TENSORS];
      const guint n = pieces_of (self, kind, pieces);
      for (gint64 u = 0; n > 0 && u < self->layout.buckets[kind].units; u++)
        {
          const PlanLowerUnit unit = { .loop = -1, .offset = (gint32)u };
          if (!is_back)
            plan_lower_wait (self, plan_lower_unit_ref (self->bucket[kind].reduced, unit, 0));
          for (guint i = 0; i < n; i++)
            {
              const guint64 count = pieces[i].to - pieces[i].from;
              const PlanRef one = plan_lower_at (ONE (replicated), at);
              const PlanRef grads = plan_lower_at (
                  plan_lower_optimizer_gradients (self, kind, unit), pieces[i].from);
              plan_lower_compute (self, PLAN_OP_CAST,
                                  PLAN_REFS (is_back ? grads : one, is_back ? one : grads),
                                  PLAN_DIMS ((gint64)count));
              at += count;
            }
        }
    }
}

void
plan_lower_sum_replicated (PlanLower *self)
{
  if (self->replicated < 0)
    return;
  plan_lower_alloc (self, ONE (replicated));
  copy_all (self, FALSE);
  plan_lower_exchange (
      self, PLAN_OP_ALL_REDUCE, PLAN_REFS (ONE (replicated)),
      (gint64)plan_schedule_buffer (self->schedule, (guint)self->replicated)->elements);
  copy_all (self, TRUE);
  plan_lower_free (self, ONE (replicated));
}
