/* SPDX-License-Identifier: Apache-2.0 */
/* Where gradients go: into the bucket that is reduced, or to where they accumulate. */
#include "config.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
#include "planner/lower/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

/* Padding is reduced with the rest: it must be zero. */
static void
zero_gaps (PlanLower *self, PlanBucketKind kind, PlanRef bucket)
{
  const guint64 padded = self->layout.buckets[kind].padded;
  g_autoptr (GArray) slots = plan_layout_slots (&self->layout, &self->buckets, kind);
  guint64 cursor = 0;
  for (guint i = 0; i <= slots->len; i++)
    {
      const PlanSlot *slot = i < slots->len ? &g_array_index (slots, PlanSlot, i) : NULL;
      const guint64 next = slot ? slot->offset : padded;
      if (next > cursor)
        plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (plan_lower_at (bucket, cursor)),
                            PLAN_DIMS ((gint64)(next - cursor)));
      cursor = slot ? next + slot->tensor.rows * slot->tensor.cols : padded;
    }
}

/* Whether a gradient is the first one of its bucket in this backward pass. */
static gboolean
opens_bucket (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, PlanBucketKind kind)
{
  if (self->layout.by_size && plan_bucket_is_unit (kind))
    return plan_lower_starts (self, role, unit);
  return !self->is_taken[kind];
}

/* Where the gradient of a parameter ends up before it is reduced. The first one of a bucket takes
 * the whole of it. */
static PlanRef
destination (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  const PlanLowerBucket *b = &self->bucket[place.kind];
  if (!b->shards_grads)
    return plan_lower_in_place (plan_lower_unit_ref (b->grads, place.unit, 0), &place);
  const PlanRef bucket = plan_lower_bucket_ref (self, place.kind, place.unit, 0);
  if (opens_bucket (self, role, unit, place.kind))
    {
      if (!(self->pools && b->is_unit))
        plan_lower_alloc (self, bucket);
      zero_gaps (self, place.kind, bucket);
      self->is_taken[place.kind] = TRUE;
    }
  return plan_lower_in_place (bucket, &place);
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
      const PlanSlot *slot = &self->layout.slots[kind][i];
      const gboolean is_sum = self->raw_sum >= 0 && slot->tensor.role == PLAN_TENSOR_OUTPUT;
      const PlanRef raw = plan_lower_ref (is_sum ? self->raw_sum : self->raw[slot->tensor.role]);
      plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (plan_lower_at (bucket, slot->offset), raw),
                          PLAN_DIMS ((gint64)(slot->tensor.rows * slot->tensor.cols)));
      plan_lower_free (self, raw);
      self->is_collected[slot->tensor.role] = FALSE;
    }
}

static PlanRef
fresh_gradient (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  return plan_lower_unit_ref (self->fresh[role], plan_lower_place (self, role, unit).unit, 0);
}

PlanRef
plan_lower_raw_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const gboolean stays = self->fresh[role] >= 0 && !self->is_collected[role];
  const PlanRef raw
      = stays ? fresh_gradient (self, role, unit)
              : plan_lower_ref (self->is_collected[role] ? self->raw_again : self->raw[role]);
  plan_lower_alloc (self, raw);
  return raw;
}

/* The host looks at every parameter's gradient as soon as it is there. */
static void
look_for_nan (PlanLower *self, PlanRef gradient, gint64 count)
{
  if (self->nan_sum < 0)
    return;
  plan_lower_compute (self, PLAN_OP_NORM_SQ, PLAN_REFS (ONE (nan_sum), gradient),
                      PLAN_DIMS (count));
  plan_lower_look (self);
}

/* Joins the gradients that stay as autograd leaves them with those that accumulate, over the copy
 * that is kept for a reduction where this micro batch has one. */
static void
put_fresh_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, gboolean adds)
{
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  const PlanLowerBucket *b = &self->bucket[place.kind];
  const gint64 count = (gint64)place.elements;
  const PlanRef fresh = fresh_gradient (self, role, unit);
  const gboolean is_shared = role == PLAN_TENSOR_EMBEDDING && self->model->tied_embeddings && !adds;
  look_for_nan (self, adds ? ONE (raw_again) : fresh, count);
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
      from = plan_lower_in_place (plan_lower_unit_ref (b->half, place.unit, 0), &place);
      plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (from, fresh), PLAN_DIMS (count));
    }
  plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (destination (self, role, unit), from),
                      PLAN_DIMS (count));
}

static void
drop_fresh (PlanLower *self, gboolean of_units, PlanLowerUnit unit)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    for (guint i = 0;
         plan_bucket_is_unit (kind) == of_units && i < self->layout.buckets[kind].n_slots; i++)
      plan_lower_free (self, fresh_gradient (self, self->layout.slots[kind][i].tensor.role, unit));
}

void
plan_lower_drop_fresh_gradients (PlanLower *self)
{
  if (!self->stack->autograd_stays)
    return;
  drop_fresh (self, FALSE, PLAN_NO_UNIT);
  if (self->stage.layers == 0)
    return;
  const PlanLowerUnit unit = plan_lower_begin_units (self, 0, self->stage.layers, 1);
  drop_fresh (self, TRUE, unit);
  plan_lower_end_units (self, unit);
}

/* A prediction module's loss comes through the output layer that the model's own has come through.
 */
static gboolean
is_second_share (const PlanLower *self, PlanTensorRole role)
{
  return self->head > 0 && role == PLAN_TENSOR_OUTPUT;
}

/* Sharded gradients are copied into the bucket, others added up where they stay. */
static void
move_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, PlanRef raw, gboolean adds)
{
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  const gint64 count = (gint64)place.elements;
  plan_lower_compute (
      self, self->bucket[place.kind].shards_grads && !adds ? PLAN_OP_CAST : PLAN_OP_ACCUMULATE,
      PLAN_REFS (destination (self, role, unit), raw), PLAN_DIMS (count));
  plan_lower_free (self, raw);
  plan_lower_gradient_is_there (self, role);
}

void
plan_lower_put_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, gboolean adds)
{
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  const PlanRef raw = plan_lower_ref (self->raw[role]);
  const gint64 count = (gint64)place.elements;
  if (self->fresh[role] >= 0)
    {
      put_fresh_gradient (self, role, unit, adds);
      return;
    }
  look_for_nan (self, self->is_collected[role] ? ONE (raw_again) : raw, count);
  if (self->is_collected[role])
    {
      plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (raw, ONE (raw_again)),
                          PLAN_DIMS (count));
      plan_lower_free (self, ONE (raw_again));
      return;
    }
  self->is_collected[role] = self->collects && self->bucket[place.kind].shards_grads;
  if (self->is_collected[role])
    return;
  move_gradient (self, role, unit, raw, adds);
}

static gboolean
is_fused (const PlanLower *self)
{
  return self->plan->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
}

void
plan_lower_weight_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, PlanRef dout,
                            PlanRef in, gint64 rows, gint64 cols, gint64 depth, gint64 layout)
{
  const gint64 *dims = PLAN_DIMS (cols, depth, rows, layout);
  if (is_fused (self))
    {
      const PlanRef out = destination (self, role, unit);
      if (self->bucket[plan_lower_place (self, role, unit).kind].shards_grads
          && !is_second_share (self, role))
        plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (out, dout, in, PLAN_REF_NONE), dims);
      else
        plan_lower_compute (self, PLAN_OP_GEMM_ADD, PLAN_REFS (out, dout, in), dims);
      look_for_nan (self, out, cols * depth);
      plan_lower_gradient_is_there (self, role);
      return;
    }
  const PlanRef raw = plan_lower_raw_gradient (self, role, unit);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (raw, dout, in, PLAN_REF_NONE), dims);
  plan_lower_put_gradient (self, role, unit, is_second_share (self, role));
}

/* Written at once where it accumulates, or into one buffer for all experts, which is then moved
 * (Transformer Engine's grouped_linear.py). */
void
plan_lower_expert_weight_gradient (PlanLower *self, const PlanNode *node, PlanLowerUnit unit,
                                   PlanRef dout, PlanRef in)
{
  const PlanTensorRole role = node->weight;
  const gint64 *dims = PLAN_DIMS (node->cols, node->depth, node->rows, 2, self->sizes->experts);
  if (is_fused (self))
    {
      const gboolean adds = !self->bucket[PLAN_BUCKET_EXPERTS].shards_grads;
      plan_lower_compute (self, adds ? PLAN_OP_GROUPED_GEMM_ADD : PLAN_OP_GROUPED_GEMM,
                          PLAN_REFS (destination (self, role, unit), dout, in), dims);
      plan_lower_gradient_is_there (self, role);
      return;
    }
  const PlanRef raw = plan_lower_raw_gradient (self, role, unit);
  plan_lower_compute (self, PLAN_OP_GROUPED_GEMM, PLAN_REFS (raw, dout, in), dims);
  plan_lower_put_gradient (self, role, unit, FALSE);
}

gboolean
plan_lower_moves_sums (const PlanLower *self)
{
  if (self->joins_pieces)
    return TRUE;
  const PlanDtype held = self->shards_grads ? self->grad_comm : self->main_grads;
  return !is_fused (self) || held != PLAN_DTYPE_FP32;
}

PlanLowerSum
plan_lower_begin_sum (PlanLower *self, PlanTensorRole role)
{
  g_assert ((!self->collects || self->joins_pieces) && self->fresh[role] < 0);
  if (plan_lower_moves_sums (self))
    {
      if (!self->joins_pieces)
        plan_lower_alloc (self, ONE (raw_sum));
      return (PlanLowerSum){ .role = role, .out = ONE (raw_sum), .moves = TRUE };
    }
  return (PlanLowerSum){ .role = role,
                         .out = destination (self, role, PLAN_NO_UNIT),
                         .adds = !self->shards_grads };
}

/* A gradient in the weights' format, then added to the sum, which the first one begins. */
static void
join_product (PlanLower *self, PlanLowerSum *sum, PlanRef dout, PlanRef in, const gint64 *dims)
{
  const gboolean is_sum = !sum->adds && self->grad_comm == self->sizes->compute;
  const PlanRef raw = is_sum ? sum->out : plan_lower_ref (self->raw[sum->role]);
  plan_lower_alloc (self, raw);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (raw, dout, in, PLAN_REF_NONE), dims);
  if (is_sum)
    return;
  if (!sum->adds)
    plan_lower_alloc (self, sum->out);
  plan_lower_compute (self, sum->adds ? PLAN_OP_ACCUMULATE : PLAN_OP_CAST,
                      PLAN_REFS (sum->out, raw), PLAN_DIMS (dims[0] * dims[1]));
  plan_lower_free (self, raw);
}

void
plan_lower_add_product (PlanLower *self, PlanLowerSum *sum, PlanRef dout, PlanRef in,
                        const gint64 *dims)
{
  if (self->joins_pieces)
    join_product (self, sum, dout, in, dims);
  else if (sum->adds)
    plan_lower_compute (self, PLAN_OP_GEMM_ADD, PLAN_REFS (sum->out, dout, in), dims);
  else
    plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (sum->out, dout, in, PLAN_REF_NONE), dims);
  sum->adds = TRUE;
}

void
plan_lower_end_sum (PlanLower *self, const PlanLowerSum *sum)
{
  const PlanLowerPlace place = plan_lower_place (self, sum->role, PLAN_NO_UNIT);
  look_for_nan (self, sum->out, (gint64)place.elements);
  self->is_collected[sum->role] = self->collects;
  if (self->collects) /* it waits for the norm's */
    return;
  if (sum->moves)
    move_gradient (self, sum->role, PLAN_NO_UNIT, sum->out, FALSE);
  else
    plan_lower_gradient_is_there (self, sum->role);
}
