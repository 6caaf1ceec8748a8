/* SPDX-License-Identifier: Apache-2.0 */
/* Where gradients go: into the bucket that is reduced, or to where they accumulate. */
#include "config.h"

#include "planner/lower-emit.h"
#include "planner/lower-layer.h"
#include "planner/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

static PlanBucketKind
bucket_of (const PlanLower *self, PlanTensorRole role, const PlanSlot **out_slot)
{
  PlanBucketKind kind = PLAN_BUCKET_LAYER;
  *out_slot = plan_layout_slot (&self->layout, role, &kind);
  g_assert (*out_slot);
  return kind;
}

/* Padding is reduced with the rest: it must be zero. */
static void
zero_gaps (PlanLower *self, PlanBucketKind kind, PlanRef bucket)
{
  const PlanBucket *layout = &self->layout.buckets[kind];
  guint64 cursor = 0;
  while (cursor < layout->padded)
    {
      guint64 next = layout->padded, end = layout->padded; /* of the nearest tensor from here */
      for (guint i = 0; i < layout->n_slots; i++)
        if (layout->slots[i].offset >= cursor && layout->slots[i].offset < next)
          {
            next = layout->slots[i].offset;
            end = next + layout->slots[i].tensor.rows * layout->slots[i].tensor.cols;
          }
      if (next > cursor)
        plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (plan_lower_at (bucket, cursor)),
                            PLAN_DIMS ((gint64)(next - cursor)));
      cursor = end;
    }
}

/* Where the gradient of a parameter ends up before it is reduced. The first one of a unit takes
 * the whole bucket. */
static PlanRef
destination (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const PlanSlot *slot;
  const PlanBucketKind kind = bucket_of (self, role, &slot);
  const PlanLowerBucket *b = &self->bucket[kind];
  if (!self->shards_grads)
    return plan_lower_at (plan_lower_unit_ref (b->grads, unit, 0), slot->offset);
  const PlanRef bucket = plan_lower_bucket_ref (self, kind, unit, 0);
  if (!self->is_taken[kind])
    {
      if (!(self->pools && b->is_unit))
        plan_lower_alloc (self, bucket);
      zero_gaps (self, kind, bucket);
      self->is_taken[kind] = TRUE;
    }
  return plan_lower_at (bucket, slot->offset);
}

void
plan_lower_collect (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanBucket *layout = &self->layout.buckets[kind];
  const PlanRef bucket = plan_lower_bucket_ref (self, kind, unit, 0);
  plan_lower_alloc (self, bucket);
  zero_gaps (self, kind, bucket);
  for (guint i = 0; i < layout->n_slots; i++)
    {
      const PlanSlot *slot = &layout->slots[i];
      const PlanRef raw = plan_lower_ref (self->raw[slot->tensor.role]);
      plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (plan_lower_at (bucket, slot->offset), raw),
                          PLAN_DIMS ((gint64)(slot->tensor.rows * slot->tensor.cols)));
      plan_lower_free (self, raw);
      self->is_collected[slot->tensor.role] = FALSE;
    }
}

/* The place of a parameter's gradient among those of its unit that stay as autograd leaves them. */
static PlanRef
fresh_gradient (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const PlanSlot *slot;
  const PlanBucketKind kind = bucket_of (self, role, &slot);
  return plan_lower_at (plan_lower_unit_ref (self->bucket[kind].fresh, unit, 0), slot->offset);
}

PlanRef
plan_lower_raw_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const PlanSlot *slot;
  const PlanBucketKind kind = bucket_of (self, role, &slot);
  const PlanLowerBucket *b = &self->bucket[kind];
  if (b->fresh >= 0 && !self->is_collected[role])
    {
      if (!self->is_taken[kind])
        plan_lower_alloc (self, plan_lower_unit_ref (b->fresh, unit, 0));
      self->is_taken[kind] = TRUE;
      return fresh_gradient (self, role, unit);
    }
  const PlanRef raw = plan_lower_ref (self->is_collected[role] ? self->raw_again : self->raw[role]);
  plan_lower_alloc (self, raw);
  return raw;
}

/* The host looks at every parameter's gradient as soon as it is there. */
static void
look_for_nan (PlanLower *self, PlanRef gradient, const PlanSlot *slot)
{
  if (self->nan_sum < 0)
    return;
  plan_lower_compute (self, PLAN_OP_NORM_SQ, PLAN_REFS (ONE (nan_sum), gradient),
                      PLAN_DIMS ((gint64)(slot->tensor.rows * slot->tensor.cols)));
  plan_lower_look (self);
}

/* Joins the gradients that stay as autograd leaves them with those that accumulate, over the copy
 * that is kept for a reduction where this micro batch has one. */
static void
put_fresh_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, gboolean adds)
{
  const PlanSlot *slot;
  const PlanBucketKind kind = bucket_of (self, role, &slot);
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 count = (gint64)(slot->tensor.rows * slot->tensor.cols);
  const PlanRef fresh = fresh_gradient (self, role, unit);
  const gboolean is_shared = role == PLAN_TENSOR_EMBEDDING && self->model->tied_embeddings && !adds;
  look_for_nan (self, adds ? ONE (raw_again) : fresh, slot);
  self->is_collected[role] = is_shared;
  if (is_shared) /* the other share is still to come */
    return;
  if (adds)
    {
      plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (fresh, ONE (raw_again)),
                          PLAN_DIMS (count));
      plan_lower_free (self, ONE (raw_again));
    }
  PlanRef from = fresh;
  if (b->half >= 0 && self->is_last_micro_batch)
    {
      from = plan_lower_at (plan_lower_unit_ref (b->half, unit, 0), slot->offset);
      plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (from, fresh), PLAN_DIMS (count));
    }
  plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (destination (self, role, unit), from),
                      PLAN_DIMS (count));
}

static void
drop_fresh (PlanLower *self, gboolean of_units, PlanLowerUnit unit)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_layout_has (&self->layout, kind) && plan_bucket_is_unit (kind) == of_units)
      plan_lower_free (self, plan_lower_unit_ref (self->bucket[kind].fresh, unit, 0));
}

void
plan_lower_drop_fresh_gradients (PlanLower *self)
{
  if (!self->stack->autograd_stays)
    return;
  drop_fresh (self, FALSE, PLAN_NO_UNIT);
  const PlanLowerUnit unit = plan_lower_begin_units (self, 0, self->model->layers, 1);
  drop_fresh (self, TRUE, unit);
  plan_lower_end_units (self, unit);
}

/* Sharded gradients are copied into the bucket, others added up where they stay. */
void
plan_lower_put_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, gboolean adds)
{
  const PlanSlot *slot;
  const PlanBucketKind kind = bucket_of (self, role, &slot);
  const PlanRef raw = plan_lower_ref (self->raw[role]);
  const gint64 count = (gint64)(slot->tensor.rows * slot->tensor.cols);
  if (self->bucket[kind].fresh >= 0)
    {
      put_fresh_gradient (self, role, unit, adds);
      return;
    }
  look_for_nan (self, self->is_collected[role] ? ONE (raw_again) : raw, slot);
  if (self->is_collected[role])
    {
      plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (raw, ONE (raw_again)),
                          PLAN_DIMS (count));
      plan_lower_free (self, ONE (raw_again));
      return;
    }
  self->is_collected[role] = self->collects;
  if (self->collects)
    return;
  plan_lower_compute (self, self->shards_grads && !adds ? PLAN_OP_CAST : PLAN_OP_ACCUMULATE,
                      PLAN_REFS (destination (self, role, unit), raw), PLAN_DIMS (count));
  plan_lower_free (self, raw);
  plan_lower_gradient_is_there (self, role);
}

void
plan_lower_weight_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, PlanRef dout,
                            PlanRef in, gint64 rows, gint64 cols, gint64 depth, gint64 layout)
{
  const gint64 *dims = PLAN_DIMS (cols, depth, rows, layout);
  if (self->plan->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON)
    {
      const PlanSlot *slot;
      const PlanRef out = destination (self, role, unit);
      bucket_of (self, role, &slot);
      if (self->shards_grads)
        plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (out, dout, in, PLAN_REF_NONE), dims);
      else
        plan_lower_compute (self, PLAN_OP_GEMM_ADD, PLAN_REFS (out, dout, in), dims);
      look_for_nan (self, out, slot);
      plan_lower_gradient_is_there (self, role);
      return;
    }
  const PlanRef raw = plan_lower_raw_gradient (self, role, unit);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (raw, dout, in, PLAN_REF_NONE), dims);
  plan_lower_put_gradient (self, role, unit, FALSE);
}
