/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that are quantised before they are gathered (param_gather). A rank's shard of a bucket
 * holds parts of several parameters, so an op on a shard is run once for each parameter. A scale
 * depends on magnitudes from all ranks, so every rank has all scales, also of parameters of which
 * its shard holds nothing.
 *
 * A unit's magnitudes are one for each parameter; or, with formats of block scales, one for each
 * block along rows and then one for each block along columns; or, with 128 x 128 squares, one for
 * each square (and the scales lie in the same order). */
#include "config.h"

#include "exec/walk/walk-private.h"
#include "exec/walk/walk-update.h"

#include "planner/base/error.h"
#include "planner/schedule/quantizers.h"

#include <string.h>

/* The slots of a layer's bucket; the first n_slots are its linear weights. */
static const PlanSlot *
slots_of (const ExecWalk *self)
{
  return self->part.layout.slots[PLAN_BUCKET_LAYER];
}

static guint
n_slots (const ExecWalk *self)
{
  return self->part.layout.buckets[PLAN_BUCKET_LAYER].n_slots;
}

static gint32
find_array (const ExecWalk *self, const char *name)
{
  for (guint i = 0; i < plan_schedule_n_buffers (self->schedule); i++)
    if (strcmp (plan_schedule_buffer (self->schedule, i)->name, name) == 0)
      return (gint32)i;
  return -1;
}

guint
exec_walk_n_param_scales (const ExecWalk *self)
{
  return self->of->plan.value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE
             ? (guint)self->job->of->model->layers * PLAN_N_TENSORS
             : 0;
}

/* Whether an op does as many matrices as there are experts, each with its own scale. */
static gboolean
is_grouped (PlanOpKind kind)
{
  return kind == PLAN_OP_GROUPED_QUANTIZE || kind == PLAN_OP_GROUPED_GEMM
         || kind == PLAN_OP_GROUPED_GEMM_ADD;
}

/* Whether numbers of a format have a scale for all of them. */
static gboolean
has_scale (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_E4M3 || dtype == PLAN_DTYPE_E5M2 || dtype == PLAN_DTYPE_NVFP4;
}

static gint64
n_experts (const ExecWalk *self)
{
  return self->of->model->experts / self->of->plan.value[PLAN_EP];
}

guint
exec_walk_n_expert_scales (const ExecWalk *self)
{
  for (guint i = 0; i < plan_schedule_n_nodes (self->schedule); i++)
    {
      const PlanOp *op = plan_schedule_node (self->schedule, i);
      const gint32 out = op->refs[PLAN_REF_GROUPED_QUANTIZE_out].array;
      if (op->kind == PLAN_OP_GROUPED_QUANTIZE
          && has_scale (plan_schedule_buffer (self->schedule, (guint)out)->dtype))
        return plan_schedule_n_buffer_ids (self->schedule) * (guint)n_experts (self);
    }
  return 0;
}

void
exec_walk_place_scales (ExecWalk *self)
{
  self->param_scales = self->device->scales + plan_schedule_n_buffer_ids (self->schedule);
  self->moment_scales = self->param_scales + exec_walk_n_param_scales (self);
  if (exec_walk_n_expert_scales (self) > 0)
    self->expert_scales = self->moment_scales + exec_walk_n_moment_scales (self);
}

void
exec_walk_find_params (ExecWalk *self)
{
  const gboolean is_quantised = exec_walk_n_param_scales (self) > 0;
  self->quantised.weights = is_quantised ? find_array (self, "weights.layer") : -1;
  self->quantised.columns = is_quantised ? find_array (self, "columns.layer") : -1;
  self->quantised.scales = is_quantised ? find_array (self, "scales.layer") : -1;
  self->sites.scales = find_array (self, "site_scales");
  self->sites.history = find_array (self, "site_history");
  self->sites.amax = find_array (self, "site_amax");
  self->sites.bias = find_array (self, "router_bias");
  self->sites.loads = find_array (self, "router_loads");
}

/* The number format of elements and block scales together, where they lie in different arrays. */
static PlanDtype
format_of (const ExecWalk *self)
{
  const gint64 gather = self->of->plan.value[PLAN_PARAM_GATHER];
  return gather == PLAN_PARAM_GATHER_MXFP8   ? PLAN_DTYPE_MXFP8
         : gather == PLAN_PARAM_GATHER_NVFP4 ? PLAN_DTYPE_NVFP4
                                             : PLAN_DTYPE_FP8_128X128;
}

/* How many elements of a row, or of a column, share a scale; 0: the whole parameter does. */
static guint
block_of (const ExecWalk *self)
{
  return self->quantised.scales < 0 ? 0 : plan_dtype_block (format_of (self));
}

static guint64
numel (const PlanSlot *slot)
{
  return slot->tensor.rows * slot->tensor.cols;
}

/* Number of magnitudes, and so of scales, of the first `n` parameters of a unit. */
static guint64
magnitudes_of (const ExecWalk *self, guint n)
{
  guint64 elements = 0, squares = 0;
  for (guint s = 0; s < n; s++)
    {
      const PlanTensor *tensor = &slots_of (self)[s].tensor;
      elements += tensor->rows * tensor->cols;
      squares += plan_dtype_square_scales (tensor->rows, tensor->cols);
    }
  if (block_of (self) == PLAN_DTYPE_SIDE)
    return squares;
  return block_of (self) > 0 ? 2 * elements / block_of (self) : n;
}

static float *
scale_of (const ExecWalk *self, gint64 layer, PlanTensorRole role)
{
  return &self->param_scales[layer * PLAN_N_TENSORS + role];
}

/* Moves a pointer into an array that holds state of all layers to the part of the op's layer. */
static void
find_part (const ExecWalk *self, const PlanCursor *cursor, guint operand, ExecArgs *args)
{
  const PlanRef *ref = &args->op->refs[operand];
  const gboolean is_site = ref->array == self->sites.scales || ref->array == self->sites.amax;
  if (is_site || ref->array == self->sites.bias || ref->array == self->sites.loads)
    args->ptr[operand]
        = (float *)args->ptr[operand]
          + exec_walk_unit_of (cursor, ref)
                * (is_site ? plan_quantizers_of_layer (self->of->model) : self->of->model->experts);
}

/* Sets the operand's scale, or its block scales, if it is a quantised parameter that begins where
 * the operand does; and moves operands that hold state of all layers to the layer's part. */
void
exec_walk_find_scales (const ExecWalk *self, const PlanCursor *cursor, guint operand,
                       ExecArgs *args)
{
  const PlanRef *ref = &args->op->refs[operand];
  const PlanSlot *slots = slots_of (self);
  const gint64 layer = exec_walk_unit_of (cursor, ref);
  const gboolean is_column = ref->array == self->quantised.columns;
  guint s = 0;
  find_part (self, cursor, operand, args);
  if (self->expert_scales && is_grouped (args->op->kind))
    args->scale[operand]
        = self->expert_scales + plan_cursor_buffer (cursor, ref) * n_experts (self);
  if (!is_column && ref->array != self->quantised.weights)
    return;
  while (s < n_slots (self) && slots[s].offset != ref->at)
    s++;
  if (s == n_slots (self))
    return;
  args->scale[operand] = scale_of (self, layer, slots[s].tensor.role);
  if (block_of (self) == 0)
    return;
  const PlanBuffer *scales = plan_schedule_buffer (self->schedule, (guint)self->quantised.scales);
  const ExecTag *tag = &self->tags[scales->first + (guint)layer];
  const guint64 at
      = magnitudes_of (self, s) + (is_column ? numel (&slots[s]) / block_of (self) : 0);
  args->blocks[operand] = (ExecBlocks){ tag->bytes + plan_dtype_bytes (scales->dtype, at),
                                        format_of (self), is_column };
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

/* Whether an operand has numbers per parameter (magnitudes, scales), rather than per element. */
static gboolean
is_of_magnitudes (PlanOpKind kind, guint operand)
{
  return kind == PLAN_OP_PARAM_AMAX ? operand == PLAN_REF_PARAM_AMAX_amax
                                    : operand >= PLAN_REF_PARAM_QUANTIZE_amax;
}

/* Index in an operand at which the part of one parameter begins. Elements begin at `from` in the
 * rank's shard; magnitudes lie unit after unit, scales and sites are those of one unit. */
static guint64
place_of (const ExecWalk *self, PlanOpKind kind, guint operand, gint64 layer, guint s, guint64 from)
{
  const guint amax
      = kind == PLAN_OP_PARAM_AMAX ? PLAN_REF_PARAM_AMAX_amax : PLAN_REF_PARAM_QUANTIZE_amax;
  const guint64 first = magnitudes_of (self, s);
  if (kind == PLAN_OP_PARAM_QUANTIZE && operand > PLAN_REF_PARAM_QUANTIZE_scales)
    return plan_quantizer_of (self->of->model, slots_of (self)[s].tensor.role,
                              PLAN_QUANTIZER_WEIGHT);
  if (operand == amax)
    return (guint64)layer * magnitudes_of (self, n_slots (self)) + first;
  return kind == PLAN_OP_PARAM_QUANTIZE && operand > amax ? first : from;
}

PLAN_SAME_DIM (PARAM_QUANTIZE, PARAM_AMAX, count);
PLAN_SAME_DIM (PARAM_QUANTIZE, PARAM_AMAX, parts);

/* Runs the op for one parameter, of which this rank may hold no elements. */
static gboolean
run_param (const ExecWalk *self, const ExecArgs *args, gint64 layer, const ExecShard *shard,
           guint s, GError **error)
{
  const PlanSlot *slot = &slots_of (self)[s];
  const guint64 last = shard->first + shard->count, end = slot->offset + numel (slot);
  const guint64 from = CLAMP (slot->offset, shard->first, last);
  const guint64 to = CLAMP (end, shard->first, last);
  PlanOp op = *args->op;
  ExecArgs part = *args;
  op.dims[PLAN_DIM_PARAM_QUANTIZE_count] = (gint64)(to - from);
  op.dims[PLAN_DIM_PARAM_QUANTIZE_parts]
      = (gint64)(magnitudes_of (self, s + 1) - magnitudes_of (self, s));
  part.op = &op;
  part.param = (ExecParam){ slot->tensor.rows, slot->tensor.cols,
                            to > from ? from - slot->offset : 0, block_of (self) };
  for (guint i = 0; i < plan_op_n_refs (op.kind); i++)
    {
      const guint64 at = place_of (self, op.kind, i, layer, s, from - shard->first);
      if (part.ptr[i])
        part.ptr[i] = (guint8 *)part.ptr[i] + plan_dtype_bytes (part.dtype[i], at);
      part.scale[i] = scale_of (self, layer, slot->tensor.role);
    }
  return self->device->ops->run (self->device, &part, op.stream, error);
}

/* Runs the op for each of the parameters of a job that times it alone: they lie one after another,
 * whole, and so do their magnitudes and scales. */
static gboolean
run_alone (const ExecWalk *self, const ExecArgs *args, GError **error)
{
  const ExecAlone *alone = self->job->alone;
  PlanOp op = *args->op;
  ExecArgs part = *args;
  op.dims[PLAN_DIM_PARAM_QUANTIZE_count] /= alone->n;
  op.dims[PLAN_DIM_PARAM_QUANTIZE_parts] /= alone->n;
  part.op = &op;
  part.param = alone->each;
  for (guint s = 0; s < alone->n; s++)
    {
      if (!self->device->ops->run (self->device, &part, op.stream, error))
        return FALSE;
      for (guint i = 0; i < plan_op_n_refs (op.kind); i++)
        if (part.ptr[i])
          part.ptr[i] = (guint8 *)part.ptr[i]
                        + plan_dtype_bytes (part.dtype[i],
                                            (guint64)op.dims[is_of_magnitudes (op.kind, i)
                                                                 ? PLAN_DIM_PARAM_QUANTIZE_parts
                                                                 : PLAN_DIM_PARAM_QUANTIZE_count]);
    }
  return TRUE;
}

gboolean
exec_walk_run_params (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                      GError **error)
{
  const guint in = args->op->kind == PLAN_OP_PARAM_AMAX ? (guint)PLAN_REF_PARAM_AMAX_in
                                                        : (guint)PLAN_REF_PARAM_QUANTIZE_in;
  const gint64 layer = exec_walk_unit_of (cursor, &args->op->refs[in]);
  const ExecShard *shard = shard_of (self, layer);
  const guint n = n_slots (self);
  if (self->job->alone)
    return run_alone (self, args, error);
  if (!shard || (guint64)args->op->dims[PLAN_DIM_PARAM_QUANTIZE_count] != shard->count
      || (guint64)args->op->dims[PLAN_DIM_PARAM_QUANTIZE_parts] != magnitudes_of (self, n))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
                   "%s is of %" G_GINT64_FORMAT " elements with %" G_GINT64_FORMAT
                   " magnitudes, which is no rank's part of unit %" G_GINT64_FORMAT,
                   plan_op_name (args->op->kind), args->op->dims[PLAN_DIM_PARAM_QUANTIZE_count],
                   args->op->dims[PLAN_DIM_PARAM_QUANTIZE_parts], layer);
      return FALSE;
    }
  for (guint s = 0; s < n; s++)
    if (!run_param (self, args, layer, shard, s, error))
      return FALSE;
  return TRUE;
}
