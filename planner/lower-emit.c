/* SPDX-License-Identifier: Apache-2.0 */
/* How the steps of lowering name things and emit ops. */
#include "config.h"

#include "planner/lower-private.h"

#include "planner/scratch.h"

PlanRef
plan_lower_ref (gint32 array)
{
  return (PlanRef){ .array = array, .loop = -1 };
}

PlanRef
plan_lower_unit_ref (gint32 array, PlanLowerUnit unit, gint32 delta)
{
  return (PlanRef){ .array = array, .loop = unit.loop, .offset = unit.offset + delta };
}

PlanRef
plan_lower_at (PlanRef ref, guint64 element)
{
  ref.at += element;
  return ref;
}

PlanRef
plan_lower_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const PlanSlot *slot = plan_layout_slot (&self->layout, role);
  const PlanBucketKind kind = role == PLAN_TENSOR_EMBEDDING    ? PLAN_BUCKET_EMBEDDING
                              : role >= PLAN_TENSOR_FINAL_NORM ? PLAN_BUCKET_HEAD
                                                               : PLAN_BUCKET_LAYER;
  return plan_lower_at (plan_lower_unit_ref (self->bucket[kind].weights, unit, 0), slot->offset);
}

/* Scratch operands are the same everywhere: filled in from what the kernel says it wants. */
static PlanRef
scratch_for (PlanLower *self, PlanOpKind kind, const gint64 *dims)
{
  const guint64 elements = plan_scratch_elements (kind, dims, self->compute);
  if (self->scratch < 0 || elements == 0)
    return PLAN_REF_NONE;
  self->scratch_elements = MAX (self->scratch_elements, elements);
  return plan_lower_ref (self->scratch);
}

void
plan_lower_emit (PlanLower *self, PlanOpKind kind, PlanStream stream, const PlanRef *refs,
                 const gint64 *dims, const PlanRef *waits, PlanRef record)
{
  PlanOp op;
  plan_op_init (&op, kind, stream);
  for (guint i = 0, given = 0; i < plan_op_n_refs (kind); i++)
    op.refs[i]
        = plan_op_ref_access (kind, i) == 's' ? scratch_for (self, kind, dims) : refs[given++];
  for (guint i = 0; i < plan_op_n_dims (kind); i++)
    op.dims[i] = dims[i];
  /* PLAN_REF_NONE ends the list, and so does an event that this plan does not have. */
  for (; waits && waits->array >= 0; waits++)
    op.waits[op.n_waits++] = *waits;
  op.record = record;
  plan_schedule_add (self->schedule, &op);
}

void
plan_lower_compute (PlanLower *self, PlanOpKind kind, const PlanRef *refs, const gint64 *dims)
{
  plan_lower_emit (self, kind, PLAN_STREAM_COMPUTE, refs, dims, NULL, PLAN_REF_NONE);
}

void
plan_lower_alloc (PlanLower *self, PlanRef buffer)
{
  plan_lower_compute (self, PLAN_OP_ALLOC, &buffer, NULL);
}

void
plan_lower_free (PlanLower *self, PlanRef buffer)
{
  plan_lower_compute (self, PLAN_OP_FREE, &buffer, NULL);
}

void
plan_lower_free_after (PlanLower *self, PlanRef buffer, PlanRef event)
{
  plan_lower_emit (self, PLAN_OP_FREE, PLAN_STREAM_COMPUTE, &buffer, NULL, PLAN_WAITS (event),
                   PLAN_REF_NONE);
}

PlanLowerUnit
plan_lower_begin_units (PlanLower *self, gint64 first, gint64 count, gint64 step)
{
  if (count == 1)
    return (PlanLowerUnit){ .loop = -1, .offset = (gint32)first };
  plan_schedule_begin_repeat (self->schedule, "l", first, count, step);
  return (PlanLowerUnit){ .loop = self->depth++ };
}

void
plan_lower_end_units (PlanLower *self, PlanLowerUnit unit)
{
  if (unit.loop < 0)
    return;
  plan_schedule_end_repeat (self->schedule);
  self->depth--;
}

gint64
plan_lower_shard_elements (const PlanLower *self, PlanBucketKind kind)
{
  return (gint64)(self->layout.buckets[kind].padded / self->layout.shards);
}

void
plan_lower_gather (PlanLower *self, PlanLowerUnit unit, gint32 delta)
{
  const PlanLowerBucket *bucket = &self->bucket[PLAN_BUCKET_LAYER];
  const PlanRef weights = plan_lower_unit_ref (bucket->weights, unit, delta);
  plan_lower_alloc (self, weights);
  plan_lower_emit (self, PLAN_OP_ALL_GATHER, PLAN_STREAM_GATHER,
                   PLAN_REFS (weights, plan_lower_unit_ref (bucket->shard, unit, delta)),
                   PLAN_DIMS (plan_lower_shard_elements (self, PLAN_BUCKET_LAYER)),
                   PLAN_WAITS (plan_lower_ref (self->done)),
                   plan_lower_unit_ref (bucket->gathered, unit, delta));
}
