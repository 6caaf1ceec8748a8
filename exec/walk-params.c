/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that are quantised before they are gathered. A bucket holds many of them and a rank
 * any part of each, so an op on that part is done parameter by parameter. Their scales come of all
 * ranks' magnitudes: every rank has all of them, also of parameters of which it holds nothing. */
#include "config.h"

#include "exec/walk-private.h"

#include "planner/error.h"

/* A layer's linear weights, as its bucket holds them. */
static const PlanBucket *
bucket_of (const ExecWalk *self)
{
  return &self->layout.buckets[PLAN_BUCKET_LAYER];
}

static float *
scale_of (const ExecWalk *self, gint64 layer, PlanTensorRole role)
{
  return &self->param_scales[layer * PLAN_N_TENSORS + role];
}

/* The scale of the parameter that begins there; NULL where none does that has one. */
float *
exec_walk_param_scale (const ExecWalk *self, const PlanCursor *cursor, const PlanRef *ref)
{
  const PlanBucket *bucket = bucket_of (self);
  const PlanBuffer *buffer = plan_schedule_buffer (self->schedule, (guint)ref->array);
  const gboolean is_whole
      = (buffer->category == PLAN_CATEGORY_WEIGHTS || buffer->category == PLAN_CATEGORY_GATHERED)
        && buffer->dtype == PLAN_DTYPE_E4M3 && buffer->elements == bucket->padded;
  for (guint s = 0; is_whole && s < bucket->n_slots; s++)
    if (bucket->slots[s].offset == ref->at)
      return scale_of (self, exec_walk_unit_of (cursor, ref), bucket->slots[s].tensor.role);
  return NULL;
}

static const ExecShard *
shard_of (const ExecWalk *self, gint64 layer)
{
  for (guint i = 0; i < self->shards->len; i++)
    {
      const ExecShard *shard = &g_array_index (self->shards, ExecShard, i);
      if (shard->kind == PLAN_BUCKET_LAYER && shard->unit == layer)
        return shard;
    }
  return NULL;
}

/* One parameter of them, of which this rank may hold nothing. */
static gboolean
run_param (const ExecWalk *self, const ExecArgs *args, gint64 layer, const ExecShard *shard,
           guint s, GError **error)
{
  const guint magnitudes = args->op->kind == PLAN_OP_PARAM_AMAX ? 0 : 3;
  const PlanBucket *bucket = bucket_of (self);
  const PlanSlot *slot = &bucket->slots[s];
  const guint64 end = slot->offset + slot->tensor.rows * slot->tensor.cols;
  const guint64 from = CLAMP (slot->offset, shard->first, shard->first + shard->count);
  const guint64 to = CLAMP (end, shard->first, shard->first + shard->count);
  PlanOp op = *args->op;
  ExecArgs part = *args;
  op.dims[0] = (gint64)(to - from);
  op.dims[1] = 1;
  part.op = &op;
  for (guint i = 0; i < plan_op_n_refs (op.kind); i++)
    {
      const guint64 at
          = i == magnitudes ? (guint64)layer * bucket->n_slots + s : from - shard->first;
      if (part.ptr[i])
        part.ptr[i] = (guint8 *)part.ptr[i] + plan_dtype_bytes (part.dtype[i], at);
      part.scale[i] = scale_of (self, layer, slot->tensor.role);
    }
  return self->device->ops->run (self->device, &part, op.stream, error);
}

gboolean
exec_walk_run_params (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                      GError **error)
{
  const guint parts = args->op->kind == PLAN_OP_PARAM_AMAX ? 1 : 2; /* operand that says whose */
  const gint64 layer = exec_walk_unit_of (cursor, &args->op->refs[parts]);
  const ExecShard *shard = shard_of (self, layer);
  if (!shard || (guint64)args->op->dims[0] != shard->count
      || args->op->dims[1] != bucket_of (self)->n_slots)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
                   "%s is of %" G_GINT64_FORMAT " elements of %" G_GINT64_FORMAT
                   " parameters, which is no rank's part of layer %" G_GINT64_FORMAT,
                   plan_op_name (args->op->kind), args->op->dims[0], args->op->dims[1], layer);
      return FALSE;
    }
  for (guint s = 0; s < bucket_of (self)->n_slots; s++)
    if (!run_param (self, args, layer, shard, s, error))
      return FALSE;
  return TRUE;
}
