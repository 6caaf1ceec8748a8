/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that are quantised before they are gathered (param_gather). A rank's shard of a bucket
 * holds parts of several parameters, of which each expert's matrix is one: an op on a shard gets a
 * list of them (exec/params.h). A scale depends on magnitudes from all ranks, so every rank has
 * all scales, also of parameters of which its shard holds nothing.
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

static gint64
n_experts (const ExecWalk *self)
{
  return self->of->model->experts / self->of->plan.value[PLAN_EP];
}

/* The slots of a kind of bucket with quantised weights, all of which are those of products. */
static const PlanSlot *
slots_of (const ExecWalk *self, PlanBucketKind kind)
{
  return self->part.layout.slots[kind];
}

/* Parameters in each slot: a matrix for each expert of the rank. */
static guint
matrices_of (const ExecWalk *self, PlanBucketKind kind)
{
  return kind == PLAN_BUCKET_EXPERTS ? (guint)n_experts (self) : 1;
}

static guint
n_params (const ExecWalk *self, PlanBucketKind kind)
{
  return self->part.layout.buckets[kind].n_slots * matrices_of (self, kind);
}

/* A parameter of a bucket, and where it begins there. */
typedef struct
{
  PlanTensorRole role;
  guint expert;
  guint64 rows, cols, offset;
} Param;

static Param
param_of (const ExecWalk *self, PlanBucketKind kind, guint number)
{
  const guint matrices = matrices_of (self, kind), expert = number % matrices;
  const PlanSlot *slot = &slots_of (self, kind)[number / matrices];
  const guint64 rows = slot->tensor.rows / matrices;
  return (Param){ slot->tensor.role, expert, rows, slot->tensor.cols,
                  slot->offset + expert * rows * slot->tensor.cols };
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
  if (self->job->alone)
    return self->job->alone->n;
  return self->of->plan.value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE
             ? (guint)(self->job->of->model->layers * PLAN_N_TENSORS * MAX (n_experts (self), 1))
             : 0;
}

/* Whether an op does as many matrices as there are experts, each with its own scale. */
static gboolean
is_grouped (PlanOpKind kind)
{
  return kind == PLAN_OP_GROUPED_QUANTIZE || kind == PLAN_OP_GROUPED_GEMM
         || kind == PLAN_OP_GROUPED_GEMM_ADD || kind == PLAN_OP_GROUPED_TRANSPOSE;
}

/* Whether numbers of a format have a scale for all of them. */
static gboolean
has_scale (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_E4M3 || dtype == PLAN_DTYPE_E5M2 || dtype == PLAN_DTYPE_NVFP4;
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

static gint32
find_quantised (const ExecWalk *self, PlanBucketKind kind, const char *what)
{
  g_autofree char *name = plan_layout_bucket_name (kind, what);
  return plan_layout_quantises (kind, self->of->stack, &self->of->plan) ? find_array (self, name)
                                                                        : -1;
}

void
exec_walk_find_params (ExecWalk *self)
{
  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    {
      self->quantised[kind].weights = find_quantised (self, kind, "weights");
      self->quantised[kind].columns = find_quantised (self, kind, "columns");
      self->quantised[kind].scales = find_quantised (self, kind, "scales");
      self->quantised[kind].unrounded = find_quantised (self, kind, "unrounded");
    }
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
block_of (const ExecWalk *self, PlanBucketKind kind)
{
  return self->quantised[kind].scales < 0 ? 0 : plan_dtype_block (format_of (self));
}

/* Number of magnitudes, and so of scales, of one of a slot's parameters. */
static guint64
magnitudes_of_one (const ExecWalk *self, PlanBucketKind kind, guint slot)
{
  const Param param = param_of (self, kind, slot * matrices_of (self, kind));
  const guint block = block_of (self, kind);
  return block == PLAN_DTYPE_SIDE ? plan_dtype_square_scales (param.rows, param.cols)
         : block > 0              ? 2 * param.rows * param.cols / block
                                  : 1;
}

/* The same of the first `n` parameters of a unit. */
static guint64
magnitudes_of (const ExecWalk *self, PlanBucketKind kind, guint n)
{
  const guint matrices = matrices_of (self, kind), slots = n / matrices, rest = n % matrices;
  guint64 magnitudes = rest > 0 ? rest * magnitudes_of_one (self, kind, slots) : 0;
  for (guint s = 0; s < slots; s++)
    magnitudes += matrices * magnitudes_of_one (self, kind, s);
  return magnitudes;
}

static float *
scale_of (const ExecWalk *self, gint64 layer, const Param *param)
{
  return &self->param_scales[(layer * PLAN_N_TENSORS + param->role) * MAX (n_experts (self), 1)
                             + param->expert];
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

/* Sets the scale of an operand in a bucket of quantised weights, or its block scales, if a
 * parameter begins where the operand does, or experts do. */
static void
find_quantised_scales (const ExecWalk *self, const PlanCursor *cursor, PlanBucketKind kind,
                       guint operand, ExecArgs *args)
{
  const PlanRef *ref = &args->op->refs[operand];
  const PlanSlot *slots = slots_of (self, kind);
  const guint n_slots = self->part.layout.buckets[kind].n_slots, block = block_of (self, kind);
  const gint64 layer = exec_walk_unit_of (cursor, ref);
  const gboolean is_column = ref->array == self->quantised[kind].columns;
  guint s = 0;
  while (s < n_slots && slots[s].offset != ref->at)
    s++;
  if (s == n_slots)
    return;
  const guint number = s * matrices_of (self, kind);
  const Param param = param_of (self, kind, number);
  args->scale[operand] = scale_of (self, layer, &param);
  if (block == 0)
    return;
  const PlanBuffer *scales
      = plan_schedule_buffer (self->schedule, (guint)self->quantised[kind].scales);
  const ExecTag *tag = &self->tags[scales->first + (guint)layer];
  const guint64 at
      = magnitudes_of (self, kind, number) + (is_column ? param.rows * param.cols / block : 0);
  args->blocks[operand]
      = (ExecBlocks){ tag->bytes + plan_dtype_bytes (scales->dtype, at), format_of (self),
                      is_column,
                      plan_dtype_bytes (scales->dtype, magnitudes_of_one (self, kind, s)) };
}

/* Sets the scales of an operand that is a quantised parameter, or those of experts; and moves
 * operands that hold state of all layers to the layer's part. */
void
exec_walk_find_scales (const ExecWalk *self, const PlanCursor *cursor, guint operand,
                       ExecArgs *args)
{
  const PlanRef *ref = &args->op->refs[operand];
  find_part (self, cursor, operand, args);
  if (self->expert_scales && is_grouped (args->op->kind))
    args->scale[operand]
        = self->expert_scales + plan_cursor_buffer (cursor, ref) * n_experts (self);
  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    if (ref->array == self->quantised[kind].weights || ref->array == self->quantised[kind].columns)
      find_quantised_scales (self, cursor, kind, operand, args);
}

static const ExecShard *
shard_of (const ExecWalk *self, PlanBucketKind kind, gint64 layer)
{
  for (guint i = 0; i < self->shards->len; i++)
    {
      const ExecShard *shard = &g_array_index (self->shards, ExecShard, i);
      if (shard->kind == kind && shard->unit == layer)
        return shard;
    }
  return NULL;
}

/* Number of units of a kind of bucket before a layer's. */
static guint64
units_before (const ExecWalk *self, PlanBucketKind kind, gint64 layer)
{
  guint64 n = 0;
  for (guint i = 0; i < self->shards->len; i++)
    {
      const ExecShard *shard = &g_array_index (self->shards, ExecShard, i);
      n += shard->kind == kind && shard->unit < layer;
    }
  return n;
}

PLAN_SAME_DIM (PARAM_QUANTIZE, PARAM_AMAX, count);
PLAN_SAME_DIM (PARAM_QUANTIZE, PARAM_AMAX, parts);

/* The matrices of one slot of a unit. */
static ExecMatrices
matrices_in (const ExecWalk *self, PlanBucketKind kind, gint64 layer, guint slot)
{
  const guint n = matrices_of (self, kind), number = slot * n;
  const Param first = param_of (self, kind, number);
  return (ExecMatrices){ .n = n,
                         .rows = first.rows,
                         .cols = first.cols,
                         .at = first.offset,
                         .magnitude = magnitudes_of (self, kind, number),
                         .magnitudes = magnitudes_of_one (self, kind, slot),
                         .site
                         = plan_quantizer_of (self->of->model, first.role, PLAN_QUANTIZER_WEIGHT),
                         .scale = scale_of (self, layer, &first) };
}

static ExecParams
params_of (const ExecWalk *self, PlanBucketKind kind, const ExecShard *shard)
{
  const guint n = self->part.layout.buckets[kind].n_slots;
  ExecParams params = { .from = shard->first, .block = block_of (self, kind), .n = n };
  g_assert (n <= EXEC_MAX_MATRICES);
  for (guint s = 0; s < n; s++)
    params.of[s] = matrices_in (self, kind, shard->unit, s);
  return params;
}

/* The parameters of a job that times an op on them alone: they lie one after another, whole. */
static ExecParams
params_alone (const ExecWalk *self, const PlanOp *op)
{
  const ExecAlone *alone = self->job->alone;
  const guint64 parts = (guint64)op->dims[PLAN_DIM_PARAM_QUANTIZE_parts];
  ExecParams params = { .block = alone->each.block, .n = 1 };
  params.of[0] = (ExecMatrices){ .n = alone->n,
                                 .rows = alone->each.rows,
                                 .cols = alone->each.cols,
                                 .magnitudes = parts / alone->n,
                                 .scale = self->param_scales };
  return params;
}

/* The kind of bucket whose unrounded weights are in an array. */
static PlanBucketKind
kind_of (const ExecWalk *self, gint32 array)
{
  PlanBucketKind kind = 0;
  while (kind + 1 < PLAN_BUCKET_PART && self->quantised[kind].unrounded != array)
    kind++;
  return kind;
}

/* Fails where an op is not of the elements and magnitudes of a rank's part of a unit. */
static gboolean
check_part (const ExecWalk *self, const PlanOp *op, PlanBucketKind kind, gint64 layer,
            const ExecShard *shard, GError **error)
{
  if (shard && (guint64)op->dims[PLAN_DIM_PARAM_QUANTIZE_count] == shard->count
      && (guint64)op->dims[PLAN_DIM_PARAM_QUANTIZE_parts]
             == magnitudes_of (self, kind, n_params (self, kind)))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
               "%s is of %" G_GINT64_FORMAT " elements with %" G_GINT64_FORMAT
               " magnitudes, which is no rank's part of unit %" G_GINT64_FORMAT,
               plan_op_name (op->kind), op->dims[PLAN_DIM_PARAM_QUANTIZE_count],
               op->dims[PLAN_DIM_PARAM_QUANTIZE_parts], layer);
  return FALSE;
}

/* Offsets operands that all units share to this unit's part: magnitudes lie unit after unit,
 * quantisers layer after layer. */
static void
move_to_unit (const ExecWalk *self, PlanBucketKind kind, gint64 layer, ExecParams *params,
              ExecArgs *args)
{
  const gboolean raises = args->op->kind == PLAN_OP_PARAM_AMAX;
  const guint amax = raises ? (guint)PLAN_REF_PARAM_AMAX_amax : (guint)PLAN_REF_PARAM_QUANTIZE_amax;
  const guint64 before
      = units_before (self, kind, layer) * (guint64)args->op->dims[PLAN_DIM_PARAM_QUANTIZE_parts];
  guint64 site = params->of[0].site;
  for (guint s = 1; s < params->n; s++)
    site = MIN (site, params->of[s].site);
  for (guint s = 0; s < params->n; s++)
    params->of[s].site -= site;
  if (args->ptr[amax])
    args->ptr[amax] = (guint8 *)args->ptr[amax] + plan_dtype_bytes (args->dtype[amax], before);
  for (guint i = PLAN_REF_PARAM_QUANTIZE_site_scales; !raises && i < PLAN_N_REFS_PARAM_QUANTIZE;
       i++)
    if (args->ptr[i])
      args->ptr[i] = (float *)args->ptr[i] + site;
}

/* Elements of a shard that belong to parameters: the rest is padding behind the last one. */
static gint64
count_of (const ExecParams *params, gint64 count)
{
  guint64 end = 0;
  for (guint s = 0; s < params->n; s++)
    end = MAX (end, params->of[s].at + params->of[s].n * params->of[s].rows * params->of[s].cols);
  return CLAMP ((gint64)end - (gint64)params->from, 0, count);
}

gboolean
exec_walk_run_params (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                      GError **error)
{
  PlanOp op = *args->op;
  const guint in = op.kind == PLAN_OP_PARAM_AMAX ? (guint)PLAN_REF_PARAM_AMAX_in
                                                 : (guint)PLAN_REF_PARAM_QUANTIZE_in;
  ExecArgs unit = *args;
  ExecParams params;
  if (self->job->alone)
    params = params_alone (self, &op);
  else
    {
      const PlanBucketKind kind = kind_of (self, op.refs[in].array);
      const gint64 layer = exec_walk_unit_of (cursor, &op.refs[in]);
      const ExecShard *shard = shard_of (self, kind, layer);
      if (!check_part (self, &op, kind, layer, shard, error))
        return FALSE;
      params = params_of (self, kind, shard);
      move_to_unit (self, kind, layer, &params, &unit);
      op.dims[PLAN_DIM_PARAM_QUANTIZE_count]
          = count_of (&params, op.dims[PLAN_DIM_PARAM_QUANTIZE_count]);
    }
  unit.op = &op;
  unit.params = &params;
  return self->device->ops->run (self->device, &unit, op.stream, error);
}
