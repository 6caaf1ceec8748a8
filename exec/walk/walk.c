/* SPDX-License-Identifier: Apache-2.0 */
/* Every buffer has a tag: whether it is taken, whether it is written, and for weights their unit
 * and the updates they have seen. The walk fails before an op that would read a buffer that is
 * released, unwritten or of another step, or weights of another unit, and names that op. */
#include "config.h"

#include "exec/walk/walk-private.h"

#include "exec/cpu/row-map.h"
#include "exec/number/exact.h"
#include "exec/walk/links.h"
#include "exec/walk/runnable.h"
#include "exec/walk/walk-update.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <math.h>
#include <string.h>

#define POISON 0xff /* a NaN in every float format */
#define CANARY 0xa5

G_GNUC_PRINTF (5, 6)
static gboolean
fail_at (const ExecWalk *walk, guint32 node, gint64 unit, GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
               "rank %u, step %" G_GINT64_FORMAT ", op %u (%s, unit %" G_GINT64_FORMAT "): %s",
               walk->comm->rank, walk->step + 1, node,
               plan_op_name (plan_schedule_node (walk->schedule, node)->kind), unit, message);
  return FALSE;
}

#define fail(walk, cursor, error, ...) \
  fail_at (walk, (cursor)->node, \
           plan_cursor_unit (cursor, plan_schedule_node ((walk)->schedule, (cursor)->node)), \
           error, __VA_ARGS__)

/* Adds the op to a message of the device or the communicator. */
static gboolean
blame_op (const ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, GError **error)
{
  g_prefix_error (error,
                  "rank %u, step %" G_GINT64_FORMAT ", op %u (%s, unit %" G_GINT64_FORMAT "): ",
                  walk->comm->rank, walk->step + 1, cursor->node, plan_op_name (op->kind),
                  plan_cursor_unit (cursor, op));
  return FALSE;
}

static gboolean
is_weights (const PlanBuffer *buffer)
{
  return buffer->category == PLAN_CATEGORY_WEIGHTS || buffer->category == PLAN_CATEGORY_GATHERED
         || buffer->category == PLAN_CATEGORY_DERIVED
         || buffer->category == PLAN_CATEGORY_MAIN_PARAMS;
}

/* Whether an op copies or converts weights: its output gets the version and unit of its input, and
 * it may read weights of an earlier step. */
static gboolean
moves_weights (PlanOpKind kind)
{
  return kind == PLAN_OP_CAST || kind == PLAN_OP_COPY || kind == PLAN_OP_ALL_GATHER
         || kind == PLAN_OP_QUANTIZE || kind == PLAN_OP_GROUPED_QUANTIZE
         || kind == PLAN_OP_PARAM_QUANTIZE || kind == PLAN_OP_TRANSPOSE
         || kind == PLAN_OP_GROUPED_TRANSPOSE;
}

/* Fills a buffer with NaN when it is taken and when it is released, if accesses are checked. */
static gboolean
poison (const ExecWalk *walk, guint8 *at, guint64 bytes, PlanStream stream, GError **error)
{
  return !walk->poisons || !at
         || walk->device->ops->fill (walk->device, at, POISON, bytes, stream, error);
}

/* Where buffers lie: apart, with canaries between them, if accesses are checked on a CPU. */
static const PlanArena *
places_of (const ExecWalk *walk)
{
  return walk->room > 0 ? &walk->apart : &walk->arena;
}

/* Writes canary bytes on both sides of a buffer: they change when an op writes outside of it. */
static void
guard (const ExecWalk *walk, guint8 *at, guint64 bytes, guint64 taken)
{
  if (walk->room == 0 || !at || bytes == 0)
    return;
  memset (at - walk->room, CANARY, walk->room);
  memset (at + bytes, CANARY, taken - bytes + walk->room);
}

static gboolean
is_guarded (const ExecWalk *walk, const guint8 *at, guint64 bytes, guint64 taken)
{
  gboolean is_whole = TRUE;
  if (walk->room == 0 || !at || bytes == 0)
    return TRUE;
  for (guint64 i = 1; i <= walk->room; i++)
    is_whole = is_whole && *(at - i) == CANARY;
  for (guint64 i = bytes; i < taken + walk->room; i++)
    is_whole = is_whole && at[i] == CANARY;
  return is_whole;
}

static gboolean
apply_memory (ExecWalk *walk, const PlanCursor *cursor, PlanSection section, const PlanOp *op,
              GError **error)
{
  const guint array = (guint)op->refs[PLAN_REF_ALLOC_buf].array;
  const guint64 bytes = plan_schedule_buffer_bytes (walk->schedule, array);
  const guint64 taken = plan_units_round_up (bytes, PLAN_ARENA_ALIGNMENT);
  const gboolean is_host
      = plan_schedule_buffer (walk->schedule, array)->category == PLAN_CATEGORY_HOST;
  ExecTag *tag = &walk->tags[plan_cursor_buffer (cursor, &op->refs[PLAN_REF_ALLOC_buf])];

  if ((tag->bytes != NULL) == (op->kind == PLAN_OP_ALLOC))
    return fail (walk, cursor, error, "%s is %s",
                 plan_schedule_buffer (walk->schedule, array)->name,
                 tag->bytes ? "taken already" : "not taken");
  if (!is_guarded (walk, tag->bytes, bytes, taken))
    return fail (walk, cursor, error, "%s was written outside of its %" G_GUINT64_FORMAT " bytes",
                 plan_schedule_buffer (walk->schedule, array)->name, bytes);
  if (!poison (walk, tag->bytes, bytes, op->stream, error))
    return blame_op (walk, cursor, op, error);
  *tag = (ExecTag){ 0 };
  if (op->kind == PLAN_OP_ALLOC)
    tag->bytes = (is_host ? walk->device->host : walk->device->memory)
                 + g_array_index (places_of (walk)->offsets[section], guint64, walk->next_alloc++);
  if (!poison (walk, tag->bytes, bytes, op->stream, error))
    return blame_op (walk, cursor, op, error);
  guard (walk, tag->bytes, bytes, taken);
  if (is_host) /* in no sum of the device's */
    return TRUE;
  ExecSample sample = { .span = walk->spans->len,
                        .category = plan_meter_apply (&walk->meter, cursor, op, taken) };
  sample.live_bytes = walk->meter.live[sample.category];
  if (!walk->trace)
    return TRUE;
  if (!walk->device->ops->stamp (walk->device, op->stream, &sample.at, error))
    return blame_op (walk, cursor, op, error);
  g_array_append_val (walk->samples, sample);
  return TRUE;
}

/* SMs of the GPU that collectives may hold: of those that the compute stream has not waited for. */
static guint
taken_sms (const ExecWalk *walk, PlanStream stream)
{
  const gboolean is_registered = walk->of->plan.value[PLAN_NCCL_UB] == PLAN_NCCL_UB_ON;
  guint taken = 0;
  for (guint s = 0; stream == PLAN_STREAM_COMPUTE && s < PLAN_N_STREAMS; s++)
    if (walk->joined[s] < walk->collectives[s])
      taken = MAX (taken, is_registered && s == PLAN_STREAM_GATHER ? walk->comm->gather_sms
                                                                   : walk->comm->sms);
  return taken;
}

gint64
exec_walk_unit_of (const PlanCursor *cursor, const PlanRef *ref)
{
  return ref->offset + (ref->loop >= 0 ? cursor->loop[ref->loop].value : 0);
}

/* How many elements of a reference an op touches. */
static guint64
n_touched (const ExecWalk *walk, const PlanOp *op, guint i)
{
  if (op->kind == PLAN_OP_INIT)
    return walk->part.layout.buckets[op->dims[PLAN_DIM_INIT_bucket]].padded
           / (guint64)op->dims[PLAN_DIM_INIT_shards];
  return plan_op_ref_elements (op, i, plan_schedule_group_size (walk->schedule, op));
}

/* Checks that weights an op reads are all of this step and of the right unit. */
static gboolean
check_weights (const ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, guint i,
               GError **error)
{
  const PlanRef *ref = &op->refs[i];
  const PlanBuffer *buffer = plan_schedule_buffer (walk->schedule, (guint)ref->array);
  const ExecTag *tag = &walk->tags[plan_cursor_buffer (cursor, ref)];
  const gint64 unit = exec_walk_unit_of (cursor, ref);
  const guint64 from = (guint64)plan_cursor_at (cursor, ref), to = from + n_touched (walk, op, i);
  if (tag->version != walk->step && !moves_weights (op->kind))
    return fail (walk, cursor, error, "%s holds weights of step %" G_GINT64_FORMAT, buffer->name,
                 tag->version + 1);
  if (buffer->count > 1 && tag->unit != unit)
    return fail (walk, cursor, error,
                 "%s holds weights of unit %" G_GINT64_FORMAT " instead of unit %" G_GINT64_FORMAT,
                 buffer->name, tag->unit, unit);
  if (from < tag->from || to > tag->to)
    return fail (walk, cursor, error,
                 "%s holds weights of step %" G_GINT64_FORMAT " in elements %" G_GUINT64_FORMAT
                 " to %" G_GUINT64_FORMAT " alone",
                 buffer->name, tag->version + 1, tag->from, tag->to);
  return TRUE;
}

/* The turn of ring attention: how many ranks before this one is that whose keys an op reads. */
static guint64
turn_of (const PlanCursor *cursor, const PlanOp *op)
{
  const guint kv = op->kind == PLAN_OP_ATTENTION       ? PLAN_REF_ATTENTION_kv
                   : op->kind == PLAN_OP_ATTENTION_BWD ? PLAN_REF_ATTENTION_BWD_kv
                                                       : PLAN_MAX_REFS;
  return kv < PLAN_MAX_REFS && op->refs[kv].array >= 0
             ? (guint64)exec_walk_unit_of (cursor, &op->refs[kv])
             : 0;
}

/* Turns an op's references into pointers and checks the tags of what it reads. */
static gboolean
resolve (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, ExecArgs *args, GError **error)
{
  *args = (ExecArgs){ .op = op,
                      .manner = plan_schedule_manner (walk->schedule, op),
                      .constants = &walk->constants,
                      .turn = turn_of (cursor, op),
                      .taken_sms = taken_sms (walk, op->stream),
                      .is_deterministic
                      = walk->of->plan.value[PLAN_DETERMINISTIC] == PLAN_DETERMINISTIC_ON };
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      if (op->refs[i].array < 0)
        continue;
      const PlanBuffer *buffer = plan_schedule_buffer (walk->schedule, (guint)op->refs[i].array);
      const guint32 id = plan_cursor_buffer (cursor, &op->refs[i]);
      const ExecTag *tag = &walk->tags[id];
      const char access = plan_op_ref_access (op->kind, i);
      if (!tag->bytes)
        return fail (walk, cursor, error, "%s is not taken", buffer->name);
      if ((access == 'r' || access == 'u') && !tag->is_written)
        return fail (walk, cursor, error, "%s is read before anything wrote it", buffer->name);
      if (access == 'r' && is_weights (buffer) && !check_weights (walk, cursor, op, i, error))
        return FALSE;
      const guint64 at = (guint64)plan_cursor_at (cursor, &op->refs[i]);
      args->ptr[i] = tag->bytes + plan_dtype_bytes (buffer->dtype, at);
      args->dtype[i] = buffer->dtype;
      if (access == 's')
        args->scratch_bytes = plan_dtype_bytes (buffer->dtype, buffer->elements - at);
      args->scale[i] = walk->device->scales ? &walk->device->scales[id] : NULL;
      exec_walk_find_scales (walk, cursor, i, args);
    }
  return TRUE;
}

/* Sets the tag of new weights. Elements of the same version and unit that adjoin those in the tag
 * extend its range. */
static void
mark_weights (ExecTag *tag, gint64 version, gint64 unit, guint64 from, guint64 to)
{
  const gboolean joins = tag->version == version && tag->unit == unit && tag->from < tag->to
                         && from <= tag->to && to >= tag->from;
  tag->from = joins ? MIN (from, tag->from) : from;
  tag->to = joins ? MAX (to, tag->to) : to;
  tag->version = version;
  tag->unit = unit;
}

static void
mark_written (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op)
{
  const gboolean quantises = op->kind == PLAN_OP_QUANTIZE || op->kind == PLAN_OP_GROUPED_QUANTIZE
                             || op->kind == PLAN_OP_PARAM_QUANTIZE;
  const gboolean updates
      = op->kind == PLAN_OP_ADAMW || op->kind == PLAN_OP_ADAMW_HOST || op->kind == PLAN_OP_SGD;
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      const PlanRef *ref = &op->refs[i];
      const char access = plan_op_ref_access (op->kind, i);
      if (ref->array < 0 || (access != 'w' && access != 'u'))
        continue;
      ExecTag *tag = &walk->tags[plan_cursor_buffer (cursor, ref)];
      const guint64 from = (guint64)plan_cursor_at (cursor, ref);
      const guint64 to = from + n_touched (walk, op, i);
      tag->is_written = TRUE;
      if (moves_weights (op->kind))
        {
          const ExecTag source
              = walk->tags[plan_cursor_buffer (cursor, &op->refs[quantises ? 2 : 1])];
          mark_weights (tag, source.version, source.unit, from, to);
        }
      else if (updates || op->kind == PLAN_OP_INIT)
        mark_weights (tag, walk->step + (updates ? 1 : 0), exec_walk_unit_of (cursor, ref), from,
                      to);
    }
}

/* An activation that was copied back counts as gone from the host: each micro batch copies its own
 * there. */
static void
mark_fetched (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op)
{
  const PlanRef *out = &op->refs[PLAN_REF_COPY_out];
  if (op->kind == PLAN_OP_COPY
      && plan_schedule_buffer (walk->schedule, (guint)out->array)->category
             == PLAN_CATEGORY_ACTIVATIONS)
    walk->tags[plan_cursor_buffer (cursor, &op->refs[PLAN_REF_COPY_in])].is_written = FALSE;
}

/* --- results that the host looks at ------------------------------------------------------ */

/* How many bytes of an op's first result the host looks at: the loss and gradient norm, the row
 * counts of experts, and with nan_check whether sums are finite; 0: it does not look. */
static guint64
looked_at (const ExecWalk *walk, const PlanOp *op)
{
  const gint64 checks = walk->of->plan.value[PLAN_NAN_CHECK];
  if (op->kind == PLAN_OP_CLIP)
    return 3 * sizeof (float);
  if (op->kind == PLAN_OP_ROW_MAP && op->refs[PLAN_REF_ROW_MAP_routes].array >= 0)
    return PLAN_ROW_MAP_HEAD * sizeof (gint32);
  const gboolean adds_loss = op->kind == PLAN_OP_CROSS_ENTROPY || op->kind == PLAN_OP_LOSS_GRAD;
  if ((adds_loss && checks == PLAN_NAN_CHECK_LOSS)
      || (op->kind == PLAN_OP_NORM_SQ && checks == PLAN_NAN_CHECK_PARAMS
          && op->refs[PLAN_REF_NORM_SQ_sum].at == 0)) /* `at` > 0: sums of the gradient norm */
    return sizeof (ExecExact);
  return 0;
}

static gboolean
look (ExecWalk *walk, const PlanCursor *cursor, const ExecArgs *args, GError **error)
{
  ExecDevice *device = walk->device;
  const guint64 bytes = looked_at (walk, args->op);
  if (bytes == 0)
    return TRUE;
  void *staged = device->ops->stage (device, bytes, error);
  const ExecLook later = { .op = args->op,
                           .node = cursor->node,
                           .unit = plan_cursor_unit (cursor, args->op),
                           .micro_batch = walk->micro_batch,
                           .bytes = staged };
  g_array_append_val (walk->looks, later);
  return staged && device->ops->get (device, staged, args->ptr[0], bytes, args->op->stream, error);
}

static gint64
layer_of (const PlanCursor *cursor, const PlanRef *destination)
{
  return destination->offset + (destination->loop >= 0 ? cursor->loop[destination->loop].value : 0);
}

/* Fails, naming the parameter whose gradient is not finite: it was in an array raw.PARAMETER. */
static gboolean
blame_gradient (const ExecWalk *walk, const ExecLook *seen, GError **error)
{
  const PlanBuffer *raw
      = plan_schedule_buffer (walk->schedule, (guint)seen->op->refs[PLAN_REF_NORM_SQ_in].array);
  const PlanBuffer *buffer
      = plan_schedule_buffer (walk->schedule, (guint)seen->put_by->refs[0].array);
  g_autofree char *where = buffer->count > 1
                               ? g_strdup_printf (" of layer %" G_GINT64_FORMAT, seen->layer)
                               : g_strdup ("");
  return fail_at (walk, seen->put_node, seen->put_unit, error,
                  "nan_check: the gradient of %s%s is not finite in micro batch %" G_GINT64_FORMAT,
                  strchr (raw->name, '.') ? strchr (raw->name, '.') + 1 : raw->name, where,
                  seen->micro_batch);
}

/* Counts rows, and those that a capacity dropped. Fails when more of the others go to the experts
 * of a rank than there is room for: none of these may be lost. */
static gboolean
check_room (ExecWalk *walk, const ExecLook *seen, GError **error)
{
  const gint64 *dims = seen->op->dims;
  const gint64 wanted = ((const gint32 *)seen->bytes)[EXEC_ROW_MAP_MOST],
               ranks = dims[PLAN_DIM_ROW_MAP_ranks],
               rows = dims[PLAN_DIM_ROW_MAP_rows] * walk->of->model->topk;
  const gint64 room
      = (dims[PLAN_DIM_ROW_MAP_entries] - PLAN_ROW_MAP_HEAD - rows - dims[PLAN_DIM_ROW_MAP_experts])
        / ranks;
  walk->most_rows = MAX (walk->most_rows, wanted);
  walk->rows += rows;
  walk->dropped_rows += ((const gint32 *)seen->bytes)[EXEC_ROW_MAP_DROPPED];
  if (wanted <= room)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
               "rank %u, step %" G_GINT64_FORMAT ", layer %" G_GINT64_FORMAT ": %" G_GINT64_FORMAT
               " rows go to the experts of one rank, and there is room for "
               "%" G_GINT64_FORMAT ": --set moe_imbalance=%.4g has room for these, "
               "moe_imbalance=%" G_GINT64_FORMAT " for whatever the router does",
               walk->comm->rank, walk->step + 1, seen->unit, wanted, room,
               ceil (1e3 * (double)(wanted * ranks) / (double)rows) / 1e3, ranks);
  return FALSE;
}

/* Looks at one result. The layer of a gradient that is not finite is known from the op that moves
 * it into its bucket: in a captured step at once, otherwise when that op comes. */
static gboolean
take_look (ExecWalk *walk, const ExecLook *seen, GError **error)
{
  const float *coef = seen->bytes;
  if (seen->op->kind == PLAN_OP_CLIP)
    {
      walk->grad_norm = (double)coef[1];
      walk->loss = (double)coef[2];
      return TRUE;
    }
  if (seen->op->kind == PLAN_OP_ROW_MAP)
    return check_room (walk, seen, error);
  if (isfinite (exec_exact_value (seen->bytes)))
    return TRUE;
  if (seen->op->kind != PLAN_OP_NORM_SQ)
    return fail_at (walk, seen->node, seen->unit, error,
                    "nan_check: the loss is not finite in micro batch %" G_GINT64_FORMAT,
                    seen->micro_batch);
  if (seen->put_by)
    return blame_gradient (walk, seen, error);
  walk->suspect = *seen;
  return TRUE;
}

/* Looks at all results, which have been copied to the host by now. */
gboolean
exec_walk_take_looks (ExecWalk *walk, GError **error)
{
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < walk->looks->len; i++)
    ok = take_look (walk, &g_array_index (walk->looks, ExecLook, i), error);
  g_array_set_size (walk->looks, 0);
  return ok;
}

/* Whether an op moves the gradient of a look into its bucket; if so, notes the op in the look. */
static gboolean
is_put (ExecLook *look, const PlanCursor *cursor, const PlanOp *op)
{
  if (!look->op || look->op->kind != PLAN_OP_NORM_SQ || look->put_by || op->kind == PLAN_OP_NORM_SQ
      || plan_op_n_refs (op->kind) < 2
      || op->refs[1].array != look->op->refs[PLAN_REF_NORM_SQ_in].array)
    return FALSE;
  look->put_by = op;
  look->put_node = cursor->node;
  look->put_unit = plan_cursor_unit (cursor, op);
  look->layer = layer_of (cursor, &op->refs[0]);
  return TRUE;
}

/* In a step that is captured as a graph, notes into which bucket a gradient that was looked at is
 * moved; in other steps, fails if this op moves the gradient that is not finite. Gradients are
 * moved in the order of their looks. */
static gboolean
follow_gradient (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, GError **error)
{
  for (guint i = walk->kept.is_keeping ? walk->looks->len : 0; i-- > 0;)
    {
      ExecLook *look = &g_array_index (walk->looks, ExecLook, i);
      if (is_put (look, cursor, op) || look->put_by)
        return TRUE;
    }
  return !is_put (&walk->suspect, cursor, op) || blame_gradient (walk, &walk->suspect, error);
}

/* --- one op ------------------------------------------------------------------------------- */

static gboolean
await (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, GError **error)
{
  ExecDevice *device = walk->device;
  if (walk->kept.is_keeping && op->stream == PLAN_STREAM_HOST)
    return TRUE; /* the host waits for the launch instead, see exec_walk_check_graph */
  for (guint i = 0; i < op->n_waits; i++)
    {
      const guint32 event = plan_cursor_event (cursor, &op->waits[i]);
      const ExecRecord *record = &walk->records[event];
      if (record->stream == PLAN_STREAM_HOST) /* what the host did is over */
        continue;
      if (op->stream == PLAN_STREAM_HOST ? !device->ops->sync (device, event, error)
                                         : !device->ops->wait (device, event, op->stream, error))
        return FALSE;
      if (op->stream == PLAN_STREAM_COMPUTE || op->stream == PLAN_STREAM_HOST)
        walk->joined[record->stream] = MAX (walk->joined[record->stream], record->collectives);
    }
  return op->stream != PLAN_STREAM_HOST || exec_walk_take_looks (walk, error);
}

ExecIssued
exec_walk_issued (const PlanCursor *cursor, const PlanOp *op)
{
  return (ExecIssued){ .node = cursor->node,
                       .unit = (gint32)plan_cursor_unit (cursor, op),
                       .stream = op->stream,
                       .event = op->record.array < 0 ? EXEC_NO_EVENT
                                                     : plan_cursor_event (cursor, &op->record) };
}

gboolean
exec_walk_record (ExecWalk *walk, const ExecIssued *issued, GError **error)
{
  const PlanStream stream = issued->stream;
  if (issued->event == EXEC_NO_EVENT)
    return TRUE;
  walk->records[issued->event] = (ExecRecord){ stream, walk->collectives[stream] };
  return stream == PLAN_STREAM_HOST
         || walk->device->ops->record (walk->device, issued->event, stream, error);
}

gboolean
exec_walk_begin_span (ExecWalk *walk, guint32 node, PlanStream stream, GError **error)
{
  const gboolean begins = walk->timed.last == 0 || node == walk->timed.first;
  return !walk->trace || !begins
         || walk->device->ops->stamp (walk->device, stream, &walk->timed.start, error);
}

gboolean
exec_walk_end_span (ExecWalk *walk, const ExecIssued *issued, GError **error)
{
  ExecSpan span = { .node = issued->node, .unit = issued->unit, .start = walk->timed.start };
  if (!walk->trace || (walk->timed.last != 0 && issued->node != walk->timed.last))
    return TRUE;
  if (!walk->device->ops->stamp (walk->device, issued->stream, &span.end, error))
    return FALSE;
  g_array_append_val (walk->spans, span);
  return TRUE;
}

/* Does an op's work. TRUE for ops that only wait for events and record one. */
static gboolean
run_kind (ExecWalk *walk, const PlanCursor *cursor, const ExecArgs *args, GError **error)
{
  const PlanOp *op = args->op;
  if (op->kind == PLAN_OP_INIT)
    return exec_walk_init_shard (walk, cursor, args, error);
  if (op->kind == PLAN_OP_INIT_KEY)
    return exec_walk_init_key (walk, exec_walk_unit_of (cursor, &op->refs[0]), args->ptr[0], error);
  if (op->kind == PLAN_OP_INIT_SCALES)
    return exec_walk_init_scales (walk, args, error);
  if (op->kind == PLAN_OP_INIT_BALANCE)
    return exec_walk_init_balance (walk, args, error);
  if (op->kind == PLAN_OP_LOAD)
    return exec_walk_load (walk, args, error);
  if (op->kind == PLAN_OP_PARAM_AMAX || op->kind == PLAN_OP_PARAM_QUANTIZE)
    return exec_walk_run_params (walk, cursor, args, error);
  if (op->kind == PLAN_OP_ADAMW || op->kind == PLAN_OP_ADAMW_HOST || op->kind == PLAN_OP_SGD)
    return exec_walk_run_update (walk, cursor, args, error);
  return op->kind == PLAN_OP_SYNC || op->kind == PLAN_OP_WAIT || op->kind == PLAN_OP_PREPARE
         || walk->device->ops->run (walk->device, args, op->stream, error);
}

static gboolean
run_all (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, GError **error)
{
  ExecArgs args;
  if (!await (walk, cursor, op, error) || !resolve (walk, cursor, op, &args, error))
    return FALSE;
  if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
    {
      mark_written (walk, cursor, op);
      return follow_gradient (walk, cursor, op, error)
             && exec_walk_run_collective (walk, cursor, &args, error);
    }
  if (!exec_walk_begin_span (walk, cursor->node, op->stream, error)
      || !run_kind (walk, cursor, &args, error))
    return FALSE;
  mark_written (walk, cursor, op);
  mark_fetched (walk, cursor, op);
  if (!look (walk, cursor, &args, error)
      || (walk->device->ops->is_immediate && !exec_walk_take_looks (walk, error)))
    return FALSE;
  if (!follow_gradient (walk, cursor, op, error))
    return FALSE;
  const ExecIssued issued = exec_walk_issued (cursor, op);
  return exec_walk_end_span (walk, &issued, error) && exec_walk_record (walk, &issued, error)
         && exec_walk_split_step (walk, &issued, error);
}

/* Runs an op, and adds it to errors of the device or the communicator, which do not name it. */
static gboolean
run_op (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, GError **error)
{
  g_autoptr (GError) why = NULL;
  if (run_all (walk, cursor, op, &why))
    return TRUE;
  if (g_error_matches (why, PLAN_ERROR, PLAN_ERROR_BACKEND))
    blame_op (walk, cursor, op, &why);
  g_propagate_error (error, g_steal_pointer (&why));
  return FALSE;
}

/* Turns stamps into times; the device must have finished. */
static void
fill_trace (ExecWalk *walk)
{
  ExecDevice *device = walk->device;
  for (guint i = 0, next = 0; i <= walk->spans->len; i++)
    {
      for (; next < walk->samples->len; next++)
        {
          const ExecSample *sample = &g_array_index (walk->samples, ExecSample, next);
          if (sample->span > i)
            break;
          plan_trace_add_sample (walk->trace, sample->category,
                                 device->ops->stamp_ns (device, sample->at),
                                 (gint64)sample->live_bytes);
        }
      if (i == walk->spans->len)
        break;
      const ExecSpan *span = &g_array_index (walk->spans, ExecSpan, i);
      plan_trace_add_span (walk->trace, span->node, span->unit,
                           device->ops->stamp_ns (device, span->start),
                           device->ops->stamp_ns (device, span->end));
    }
}

gboolean
exec_walk_finish (ExecWalk *walk, GError **error)
{
  return walk->device->ops->finish (walk->device, error) && exec_walk_take_looks (walk, error);
}

static gboolean
run_ops (ExecWalk *walk, PlanSection section, GError **error)
{
  const PlanOp *op;
  PlanCursor cursor;
  plan_cursor_start (&cursor, walk->schedule, section);
  while ((op = plan_cursor_next (&cursor)))
    if (op->kind == PLAN_OP_TOUCH) /* memory was there since ALLOC */
      continue;
    else if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY
                 ? !apply_memory (walk, &cursor, section, op, error)
                 : !run_op (walk, &cursor, op, error))
      return FALSE;
  return TRUE;
}

gboolean
exec_walk_run (ExecWalk *walk, PlanSection section, GError **error)
{
  ExecDevice *device = walk->device;
  const gboolean is_step = section == PLAN_SECTION_STEP;
  walk->next_alloc = 0;
  walk->micro_batch = 0;
  g_array_set_size (walk->spans, 0);
  g_array_set_size (walk->samples, 0);
  if ((walk->trace && !exec_walk_finish (walk, error))
      || !device->ops->begin (device, walk->trace != NULL, error))
    return FALSE;
  if (is_step && walk->kept.is_kept && !walk->trace)
    return exec_walk_run_graph (walk, error);
  if ((is_step && !exec_walk_begin_step (walk, error)) || !run_ops (walk, section, error)
      || (is_step && !exec_walk_end_step (walk, error)))
    return FALSE;
  /* After the traced step, and after setup and teardown, the host waits for everything. After
   * another step it waits only for what was copied, so that the next step overlaps its end. */
  if (!is_step || walk->trace)
    {
      if (!exec_walk_finish (walk, error))
        return FALSE;
    }
  else if (!device->ops->settle (device, error) || !exec_walk_take_looks (walk, error))
    return FALSE;
  if (walk->trace)
    fill_trace (walk);
  return TRUE;
}

/* --- opening and closing ------------------------------------------------------------------ */

static gboolean
open_device (ExecWalk *walk, GError **error)
{
  const ExecDeviceNeeds needs
      = { .kernels = walk->job->kernels,
          .schedule = walk->schedule,
          .comm = walk->comm,
          .memory_bytes = places_of (walk)->size_bytes,
          .host_bytes = places_of (walk)->host_bytes,
          .threads = (guint)walk->of->cluster->threads,
          .more_scales = exec_walk_n_param_scales (walk) + exec_walk_n_moment_scales (walk)
                         + exec_walk_n_expert_scales (walk),
          .is_registered = walk->of->plan.value[PLAN_NCCL_UB] == PLAN_NCCL_UB_ON,
          .keeps_steps = walk->kept.is_wanted,
          .is_deterministic = walk->of->plan.value[PLAN_DETERMINISTIC] == PLAN_DETERMINISTIC_ON };
  walk->device = walk->job->kernels->device->open (&needs, error);
  if (walk->device && needs.more_scales > 0)
    exec_walk_place_scales (walk);
  return walk->device != NULL;
}

static gboolean
find_groups (ExecWalk *walk, GError **error)
{
  for (guint g = 0; g < plan_schedule_n_groups (walk->schedule); g++)
    if (!(walk->group[g]
          = exec_links_find (walk->comm, plan_schedule_group (walk->schedule, g), error)))
      return FALSE;
  return TRUE;
}

gboolean
exec_walk_open (ExecWalk *self, const ExecJob *job, const PlanCase *of,
                const PlanSchedule *schedule, ExecComm *comm, GError **error)
{
  const Plan *plan = &of->plan;
  const gboolean has_graphs = plan->value[PLAN_CUDA_GRAPH] == PLAN_CUDA_GRAPH_ON
                              && plan->value[PLAN_TASK] == PLAN_TASK_TRAIN;
  *self = (ExecWalk){ .job = job,
                      .of = of,
                      .comm = comm,
                      .schedule = schedule,
                      .tags = g_new0 (ExecTag, plan_schedule_n_buffer_ids (schedule) + 1),
                      .shards = g_array_new (FALSE, FALSE, sizeof (ExecShard)),
                      .spans = g_array_new (FALSE, FALSE, sizeof (ExecSpan)),
                      .samples = g_array_new (FALSE, FALSE, sizeof (ExecSample)),
                      .looks = g_array_new (FALSE, FALSE, sizeof (ExecLook)),
                      .held = g_array_new (FALSE, FALSE, sizeof (ExecHeld)),
                      .records = g_new0 (ExecRecord, plan_schedule_n_event_ids (schedule) + 1),
                      .constants = job->constants,
                      .step = job->first_step,
                      .kept = { .is_wanted = has_graphs },
                      .poisons = g_getenv ("FSDPLAN_DEBUG_CHECK") != NULL };
  self->room = self->poisons && job->kernels->device->is_immediate ? PLAN_ARENA_ALIGNMENT : 0;
  exec_part_init (&self->part, of, comm->rank, comm->ranks);
  const gint64 data_parallel = self->part.ranks / plan->value[PLAN_TP];
  if (plan_scales_gradients (plan, data_parallel / plan->value[PLAN_DP_OUTER]))
    self->constants.grad_divisor = data_parallel;
  if (!exec_runnable_check (job, of, schedule, error) || !exec_walk_check_graph (self, error)
      || !find_groups (self, error) || !plan_arena_init (&self->arena, schedule, error)
      || (self->room > 0 && !plan_arena_init_apart (&self->apart, schedule, self->room, error))
      || !open_device (self, error))
    return FALSE;
  exec_walk_find_params (self);
  if (of->layout.by_size)
    plan_buckets_init (&self->buckets, of->model, &of->layout.rule);
  return TRUE;
}

void
exec_walk_close (ExecWalk *self)
{
  if (self->device)
    self->device->ops->close (self->device);
  plan_arena_clear (&self->arena);
  plan_arena_clear (&self->apart);
  plan_buckets_clear (&self->buckets);
  g_free (self->tags);
  g_free (self->records);
  g_array_unref (self->shards);
  g_array_unref (self->spans);
  g_array_unref (self->samples);
  g_array_unref (self->looks);
  g_array_unref (self->held);
  g_clear_pointer (&self->saving, exec_saving_free);
  g_clear_pointer (&self->checkpoints, g_ptr_array_unref);
  exec_walk_clear_graph (self);
}
