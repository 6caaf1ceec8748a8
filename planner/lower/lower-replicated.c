/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that every rank of a tensor-parallel group holds whole (norms, some biases) see other
 * tokens or heads on each of them: their gradients are summed over the group, once per step, on the
 * shards that the optimizer reads. What a shard holds of them is gathered into one buffer, so that
 * one reduction does (after Megatron-LM's finalize_model_grads.py). */
#include "config.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

/* A run of such elements in the optimizer's part of a bucket. */
typedef struct
{
  guint64 from, to;
} Piece;

static gboolean
is_replicated (const PlanLower *self, const PlanSlot *slot)
{
  const gint64 vocab = self->sizes->vocab * self->plan->value[PLAN_TP];
  const PlanTensor whole = plan_model_tensor (self->model, slot->tensor.role, vocab);
  return slot->tensor.rows == whole.rows && slot->tensor.cols == whole.cols;
}

/* Of one bucket, in ascending order; neighbours that touch are one. Experts are whole on every rank
 * that has them, and reduced over all of these. The caller frees. */
static GArray *
pieces_of (const PlanLower *self, PlanBucketKind kind)
{
  const guint64 own = (guint64)plan_lower_own_elements (self, kind);
  const guint64 first = plan_lower_own_first (self, kind);
  g_autoptr (GArray) slots = plan_layout_slots (&self->layout, &self->buckets, kind);
  GArray *pieces = g_array_new (FALSE, FALSE, sizeof (Piece));
  for (guint i = 0; kind != PLAN_BUCKET_EXPERTS && i < slots->len; i++)
    {
      const PlanSlot *slot = &g_array_index (slots, PlanSlot, i);
      const guint64 end = slot->offset + slot->tensor.rows * slot->tensor.cols;
      const Piece piece = { MAX (slot->offset, first) - first, MIN (end, first + own) - first };
      Piece *before = pieces->len > 0 ? &g_array_index (pieces, Piece, pieces->len - 1) : NULL;
      if (!is_replicated (self, slot) || end <= first || slot->offset >= first + own)
        continue;
      if (before && before->to == piece.from)
        before->to = piece.to;
      else
        g_array_append_val (pieces, piece);
    }
  return pieces;
}

static guint64
count_all (const PlanLower *self)
{
  guint64 count = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    {
      g_autoptr (GArray) pieces = pieces_of (self, kind);
      for (guint i = 0; i < pieces->len; i++)
        {
          const Piece *piece = &g_array_index (pieces, Piece, i);
          count += (piece->to - piece->from) * (guint64)self->layout.buckets[kind].units;
        }
    }
  return count;
}

void
plan_lower_declare_replicated (PlanLower *self)
{
  const gint32 cast = plan_lower_any_bucket (self)->cast;
  const guint64 count = self->tensor_group < 0 || self->is_eval ? 0 : count_all (self);
  self->replicated
      = count == 0 ? -1
                   : plan_schedule_add_buffer (self->schedule, "replicated", 1, count,
                                               cast >= 0 ? self->main_params : self->main_grads,
                                               PLAN_CATEGORY_GRAD_BUCKETS);
}

/* Between the buffer, from element `at` on, and where the optimizer reads one bucket of these
 * pieces; returns the element behind. */
static guint64
copy_bucket (PlanLower *self, PlanBucketKind kind, const GArray *pieces, PlanLowerUnit unit,
             guint64 at, gboolean is_back)
{
  if (!is_back && pieces->len > 0)
    plan_lower_wait (self, plan_lower_unit_ref (self->bucket[kind].reduced, unit, 0));
  for (guint i = 0; i < pieces->len; i++)
    {
      const Piece *piece = &g_array_index (pieces, Piece, i);
      const guint64 count = piece->to - piece->from;
      const PlanRef one = plan_lower_at (ONE (replicated), at);
      const PlanRef grads
          = plan_lower_at (plan_lower_optimizer_gradients (self, kind, unit), piece->from);
      plan_lower_compute (self, PLAN_OP_CAST,
                          PLAN_REFS (is_back ? grads : one, is_back ? one : grads),
                          PLAN_DIMS ((gint64)count));
      at += count;
    }
  return at;
}

/* `pieces`: of each kind of bucket. */
static void
copy_all (PlanLower *self, GArray *const *pieces, gboolean is_back)
{
  guint64 at = 0;
  for (guint number = 0; number < self->buckets.n; number++)
    {
      const PlanBucketKind kind = self->buckets.spans[number].kind;
      at = copy_bucket (self, kind, pieces[kind],
                        plan_lower_span_unit (&self->buckets.spans[number]), at, is_back);
    }
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    for (gint32 u = 0; !self->layout.by_size && u < self->layout.buckets[kind].length; u++)
      if (plan_lower_holds (self, kind, PLAN_NO_UNIT, u))
        at = copy_bucket (self, kind, pieces[kind], (PlanLowerUnit){ .loop = -1, .offset = u }, at,
                          is_back);
}

void
plan_lower_sum_replicated (PlanLower *self)
{
  GArray *pieces[PLAN_N_BUCKETS];
  if (self->replicated < 0)
    return;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    pieces[kind] = pieces_of (self, kind);
  plan_lower_alloc (self, ONE (replicated));
  copy_all (self, pieces, FALSE);
  plan_lower_exchange (
      self, PLAN_OP_ALL_REDUCE, PLAN_REFS (ONE (replicated)),
      (gint64)plan_schedule_buffer (self->schedule, (guint)self->replicated)->elements);
  copy_all (self, pieces, TRUE);
  plan_lower_free (self, ONE (replicated));
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    g_array_unref (pieces[kind]);
}
