/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the optimizer's update. It goes parameter by parameter where parameters differ: when some
 * are exempt from weight decay, and when moments have eight bits. In the latter case a rank's part
 * of a parameter has one scale per moment, as with Transformer Engine's FusedAdam, which is given
 * such parts as parameters. */
#include "config.h"

#include "exec/walk/walk-update.h"

#include "exec/number/number.h"
#include "exec/walk/source.h"
#include "planner/base/error.h"

static gboolean
has_scaled_moments (const ExecArgs *args)
{
  return args->op->kind != PLAN_OP_SGD
         && (args->dtype[PLAN_REF_ADAMW_exp_avg] == PLAN_DTYPE_E4M3
             || args->dtype[PLAN_REF_ADAMW_exp_avg_sq] == PLAN_DTYPE_E4M3);
}

#define FLOATS_OF_PART 4 /* of each moment: its scale, and room for the device */

static gboolean
is_scaled (const Plan *plan, PlanField field)
{
  return plan_field_dtype (plan, field) == PLAN_DTYPE_E4M3;
}

guint
exec_walk_n_moment_scales (const ExecWalk *self)
{
  const Plan *plan = &self->of->plan;
  if (self->job->alone)
    return FLOATS_OF_PART;
  return !self->trained && (is_scaled (plan, PLAN_EXP_AVG) || is_scaled (plan, PLAN_EXP_AVG_SQ))
             ? (guint)(self->job->of->model->layers + 1) * PLAN_N_TENSORS * FLOATS_OF_PART
             : 0;
}

gboolean
exec_walk_take_moment_scales (const ExecWalk *self, ExecShard *shard, guint *io_at, GError **error)
{
  g_autoptr (GArray) slots = plan_layout_slots (&self->part.layout, &self->buckets, shard->kind);
  const guint n = slots->len * FLOATS_OF_PART;
  gboolean has_any = FALSE;
  for (ExecState state = EXEC_STATE_EXP_AVG; state <= EXEC_STATE_EXP_AVG_SQ; state++)
    has_any |= shard->state[state].exists && shard->state[state].dtype == PLAN_DTYPE_E4M3;
  if (!has_any || shard->scales)
    return TRUE;
  g_autofree float *ones = g_new (float, n);
  for (guint i = 0; i < n; i++)
    ones[i] = 1;
  shard->scales = self->moment_scales + *io_at;
  *io_at += n;
  g_assert (*io_at <= exec_walk_n_moment_scales (self));
  return exec_device_write (self->device, shard->scales, ones, n * sizeof *ones, error);
}

static float *
scale_of (const ExecShard *shard, ExecState state, guint slot)
{
  return &shard->scales[FLOATS_OF_PART * slot + (state == EXEC_STATE_EXP_AVG_SQ ? 2 : 0)];
}

PLAN_SAME_REF (ADAMW, ADAMW_HOST, main);
PLAN_SAME_REF (ADAMW, ADAMW_HOST, exp_avg);
PLAN_SAME_REF (ADAMW, ADAMW_HOST, exp_avg_sq);
PLAN_SAME_REF (ADAMW, ADAMW_HOST, grad);
PLAN_SAME_REF (ADAMW, ADAMW_HOST, coef);
PLAN_SAME_DIM (ADAMW, ADAMW_HOST, count);

ExecShard *
exec_walk_updated_shard (const ExecWalk *self, const PlanCursor *cursor, const PlanOp *op,
                         guint64 *out_first)
{
  const PlanRef *main = &op->refs[PLAN_REF_ADAMW_main];
  const guint32 buffer = plan_cursor_buffer (cursor, main);
  const gboolean is_host = op->kind == PLAN_OP_ADAMW_HOST;
  for (guint i = 0; i < self->shards->len; i++)
    {
      ExecShard *shard = &g_array_index (self->shards, ExecShard, i);
      const guint64 at = is_host ? 0 : shard->state[EXEC_STATE_MAIN].at;
      const guint64 end = at + (is_host ? shard->hosted : shard->count);
      if ((is_host ? shard->state[EXEC_STATE_MAIN].host : shard->state[EXEC_STATE_MAIN].buffer)
              != buffer
          || main->at < at || main->at >= end)
        continue;
      *out_first = main->at - at;
      return shard;
    }
  return NULL;
}

/* Runs the op on all elements with one scale per moment, as for a job that times it alone. */
static gboolean
run_alone (const ExecWalk *self, const ExecArgs *args, GError **error)
{
  ExecArgs part = *args;
  part.scale[PLAN_REF_ADAMW_exp_avg] = self->moment_scales;
  part.scale[PLAN_REF_ADAMW_exp_avg_sq] = self->moment_scales + FLOATS_OF_PART / 2;
  return self->device->ops->run (self->device, &part, args->op->stream, error);
}

/* Whether weight decay applies. As in Megatron-LM, gains, biases and vectors of the router are
 * exempt. */
static gboolean
is_decayed (const PlanSlot *slot)
{
  return slot->tensor.kind == PLAN_TENSOR_KIND_LINEAR
         || slot->tensor.kind == PLAN_TENSOR_KIND_TABLE;
}

/* Elements that one call updates, as the op counts them. */
typedef struct
{
  guint slot; /* the shard's, in which they begin */
  guint64 at, count;
  gboolean is_decayed;
} Part;

/* Cuts `n` elements of a shard into parts. Neighbouring slots form one part if they are decayed
 * alike and moments have no scales. */
static GArray *
parts_of (const ExecShard *shard, const GArray *slots, guint64 begin, guint64 n, gboolean is_scaled)
{
  GArray *parts = g_array_new (FALSE, FALSE, sizeof (Part));
  for (guint s = 0; s < slots->len; s++)
    {
      const PlanSlot *slot = &g_array_index (slots, PlanSlot, s);
      Part part = { .slot = s, .is_decayed = is_decayed (slot) };
      Part *last = parts->len ? &g_array_index (parts, Part, parts->len - 1) : NULL;
      guint64 first;
      if (!exec_walk_part_of (shard, slot, &part.at, &part.count, &first))
        continue;
      const guint64 from = MAX (part.at, begin), to = MIN (part.at + part.count, begin + n);
      if (from >= to)
        continue;
      part.at = from - begin;
      part.count = to - from;
      if (!is_scaled && last && last->is_decayed == part.is_decayed
          && last->at + last->count == part.at)
        last->count += part.count;
      else
        g_array_append_val (parts, part);
    }
  return parts;
}

G_STATIC_ASSERT ((int)PLAN_DIM_ADAMW_count == (int)PLAN_DIM_SGD_count);

static gboolean
run_part (const ExecWalk *self, const ExecArgs *args, const ExecShard *shard, const Part *part,
          GError **error)
{
  const gboolean is_adam = args->op->kind != PLAN_OP_SGD;
  const guint last = is_adam ? (guint)PLAN_REF_ADAMW_grad : (guint)PLAN_REF_SGD_grad;
  const guint out = is_adam ? (guint)PLAN_REF_ADAMW_out : (guint)PLAN_REF_SGD_out;
  PlanOp op = *args->op;
  ExecArgs own = *args;
  ExecConstants constants = *args->constants;
  if (!part->is_decayed && !constants.decays_all)
    constants.weight_decay = 0;
  op.dims[PLAN_DIM_ADAMW_count] = (gint64)part->count;
  own.op = &op;
  own.constants = &constants;
  for (guint i = PLAN_REF_ADAMW_main; i <= last; i++)
    own.ptr[i] = (guint8 *)args->ptr[i] + plan_dtype_bytes (args->dtype[i], part->at);
  if (args->ptr[out])
    own.ptr[out] = (guint8 *)args->ptr[out] + plan_dtype_bytes (args->dtype[out], part->at);
  for (guint i = 0; shard->scales && i < 2; i++)
    own.scale[PLAN_REF_ADAMW_exp_avg + i]
        = scale_of (shard, (ExecState)(EXEC_STATE_EXP_AVG + i), part->slot);
  return self->device->ops->run (self->device, &own, op.stream, error);
}

gboolean
exec_walk_run_update (const ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                      GError **error)
{
  const guint64 count = (guint64)args->op->dims[PLAN_DIM_ADAMW_count];
  guint64 first;
  const ExecShard *shard = exec_walk_updated_shard (self, cursor, args->op, &first);
  const gboolean is_scaled = has_scaled_moments (args);
  const gboolean some_exempt = args->constants->weight_decay > 0 && !args->constants->decays_all;
  if (self->job->alone && is_scaled)
    return run_alone (self, args, error);
  if (!is_scaled && !some_exempt)
    return self->device->ops->run (self->device, args, args->op->stream, error);
  const gboolean is_host = args->op->kind == PLAN_OP_ADAMW_HOST;
  if (!shard || count != (is_host ? shard->hosted : shard->count - shard->hosted)
      || first != (is_host ? 0 : shard->hosted))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
                   "%s is of %" G_GUINT64_FORMAT
                   " elements, which are neither a rank's part of a bucket nor a share of it",
                   plan_op_name (args->op->kind), count);
      return FALSE;
    }
  g_autoptr (GArray) slots = plan_layout_slots (&self->part.layout, &self->buckets, shard->kind);
  g_autoptr (GArray) parts = parts_of (shard, slots, first, count, is_scaled);
  for (guint i = 0; i < parts->len; i++)
    if (!run_part (self, args, shard, &g_array_index (parts, Part, i), error))
      return FALSE;
  return TRUE;
}

gboolean
exec_walk_fill_scaled (const ExecWalk *self, const ExecShard *shard, ExecState state,
                       GError **error)
{
  g_autoptr (GArray) slots = plan_layout_slots (&self->part.layout, &self->buckets, shard->kind);
  for (guint s = 0; s < slots->len; s++)
    {
      const PlanSlot *slot = &g_array_index (slots, PlanSlot, s);
      float scale;
      guint64 at, count, first;
      if (!exec_walk_part_of (shard, slot, &at, &count, &first))
        continue;
      g_autofree float *values = g_new (float, count);
      g_autofree guint8 *narrow = g_malloc (count);
      if (!exec_walk_read_part (
              self, state, slot,
              exec_part_layer (&self->part, shard->kind, shard->unit + slot->layer), first, count,
              values, error))
        return FALSE;
      scale = exec_number_scale (exec_number_largest (values, count));
      exec_number_narrow_scaled (narrow, PLAN_DTYPE_E4M3, values, scale, count);
      if (!exec_device_write (self->device, scale_of (shard, state, s), &scale, sizeof scale, error)
          || !exec_device_write (self->device, exec_walk_state (self, shard, state, at), narrow,
                                 count, error))
        return FALSE;
    }
  return TRUE;
}

float *
exec_walk_widen_scaled (const ExecWalk *self, const ExecShard *shard, ExecState state, guint slot,
                        guint64 at, guint64 count, GError **error)
{
  g_autofree guint8 *narrow = g_malloc (count);
  float *values, scale;
  if (!exec_device_read (self->device, &scale, scale_of (shard, state, slot), sizeof scale, error)
      || !exec_device_read (self->device, narrow, exec_walk_state (self, shard, state, at), count,
                            error))
    return NULL;
  values = g_new (float, count);
  exec_number_widen_scaled (values, PLAN_DTYPE_E4M3, narrow, scale, count);
  return values;
}
