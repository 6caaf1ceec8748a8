/* SPDX-License-Identifier: Apache-2.0 */
/* How lowering refers to buffers and emits ops. */
#include "config.h"

#include "planner/lower/lower-emit.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-layer.h"

#include "planner/schedule/scratch.h"

#include <math.h>
#include <string.h>

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
plan_lower_in_row (const PlanLower *self, PlanRef ref)
{
  if (ref.array >= 0)
    ref.offset
        += (gint32)(self->now.row * plan_schedule_buffer (self->schedule, (guint)ref.array)->count
                    / self->rows);
  return ref;
}

PlanRef
plan_lower_places (const PlanLower *self)
{
  return self->input.places < 0 ? PLAN_REF_NONE
                                : plan_lower_in_row (self, plan_lower_ref (self->input.places));
}

PlanRef
plan_lower_own_places (const PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const gint64 first
      = sizes->split_rows < sizes->rows ? self->place.tensor_rank * sizes->split_rows : 0;
  return self->input.places < 0 ? PLAN_REF_NONE
                                : plan_lower_at (plan_lower_places (self), (guint64)first);
}

PlanRef
plan_lower_random_key (const PlanLower *self, PlanLowerUnit unit)
{
  return self->input.keys < 0 ? PLAN_REF_NONE : plan_lower_unit_ref (self->input.keys, unit, 0);
}

PlanRef
plan_lower_attention_key (const PlanLower *self, PlanLowerUnit unit)
{
  return plan_attention_dropout (self->plan) > 0 ? plan_lower_random_key (self, unit)
                                                 : PLAN_REF_NONE;
}

PlanRef
plan_lower_embedding_key (const PlanLower *self)
{
  return self->input.keys < 0
             ? PLAN_REF_NONE
             : plan_lower_unit_ref (self->input.keys, PLAN_NO_UNIT, (gint32)self->stage.layers);
}

PlanRef
plan_lower_start (const PlanLower *self)
{
  return self->input.start < 0 ? PLAN_REF_NONE
                               : plan_lower_in_row (self, plan_lower_ref (self->input.start));
}

PlanRef
plan_lower_layer_gradient (const PlanLower *self, PlanLowerUnit unit, gint32 delta)
{
  const PlanRef ref = plan_lower_unit_ref (self->layer.grad_sum[PLAN_VALUE_X], unit,
                                           delta + (unit.is_module ? 1 : 0));
  return self->policy.grad_rows > 1 ? plan_lower_in_row (self, ref) : ref;
}

gint64
plan_lower_pool_length (const PlanLower *self)
{
  return PLAN_POOL_SETS * self->layout.pool_step;
}

static PlanRef
pooled (const PlanLower *self, PlanRef ref, gboolean is_pooled)
{
  ref.modulus = is_pooled ? (guint8)plan_lower_pool_length (self) : 0;
  return ref;
}

PlanRef
plan_lower_weights_ref (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                        gint32 delta, gboolean is_column)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  return pooled (self, plan_lower_unit_ref (is_column ? b->columns : b->weights, unit, delta),
                 b->is_pooled && b->shards_weights);
}

PlanRef
plan_lower_bucket_ref (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint32 delta)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  return pooled (self, plan_lower_unit_ref (b->bucket, unit, delta),
                 b->is_pooled && b->shards_grads);
}

PlanRef
plan_lower_at (PlanRef ref, guint64 element)
{
  ref.at += element;
  return ref;
}

static PlanRef
parameter (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, gboolean is_column)
{
  if (role == PLAN_N_TENSORS)
    return PLAN_REF_NONE;
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  return plan_lower_in_place (plan_lower_weights_ref (self, place.kind, place.unit, 0, is_column),
                              &place);
}

PlanRef
plan_lower_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  return parameter (self, role, unit, FALSE);
}

PlanRef
plan_lower_column (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  return parameter (self, role, unit, TRUE);
}

/* The scratch operand of an op: as large as its kernel says. All ops share one buffer, but for the
 * backward pass of attention. */
static PlanRef
scratch_for (PlanLower *self, PlanOpKind kind, const gint64 *dims)
{
  const PlanWorkspace *said
      = kind == PLAN_OP_ATTENTION ? plan_lower_asked_attention (self, PLAN_PASS_FORWARD) : NULL;
  const guint64 elements
      = self->cluster->kind == PLAN_DEVICE_CPU
            ? plan_scratch_elements (kind, dims, self->sizes->compute)
        : said ? said->bytes / sizeof (float) + PLAN_SCRATCH_ALIGNMENT
        : kind == PLAN_OP_ATTENTION && !plan_lower_attention_is_fused (self, kind)
            ? plan_scratch_batched_elements (kind, dims) + PLAN_SCRATCH_ALIGNMENT
            : plan_scratch_gpu_elements (kind, dims, self->sizes->compute, self->cluster);
  if ((kind == PLAN_OP_ATTENTION_BWD || kind == PLAN_OP_LATENT_ATTENTION_BWD)
      && self->work.scratch >= 0 && self->work.attention >= 0)
    return plan_lower_ref (self->work.attention); /* a buffer that is allocated for this op alone */
  if (self->work.scratch < 0 || elements == 0)
    return PLAN_REF_NONE;
  self->work.scratch_elements = MAX (self->work.scratch_elements, elements);
  return plan_lower_ref (self->work.scratch);
}

/* The share that an op of dropout zeroes, or that of attention's weights, where our own kernels say
 * which. */
static double
rate_of (const PlanLower *self, PlanOpKind kind)
{
  if (plan_op_work (kind) != PLAN_WORK_ATTENTION)
    return plan_hidden_dropout (self->plan);
  return self->input.keys < 0 ? 0 : plan_attention_dropout (self->plan);
}

/* Of an op that works on this rank's part of the vocabulary, of heads or of rows in a
 * tensor-parallel group: where the part begins, and how many there are in all (0: it does not
 * matter). */
static void
find_part (const PlanLower *self, PlanOpKind kind, double *out_first, double *out_whole)
{
  const PlanSizes *sizes = self->sizes;
  const gboolean is_of_heads = plan_op_work (kind) == PLAN_WORK_ATTENTION;
  const gboolean is_of_rows
      = !is_of_heads && !plan_manner_is_of (PLAN_MANNER_WHOLE, kind); /* positions, dropout */
  gint64 each = sizes->vocab, whole = self->model->vocab;
  if (is_of_rows)
    {
      each = sizes->split_rows < sizes->rows ? sizes->split_rows : 0;
      whole = 0;
    }
  else if (is_of_heads)
    {
      const gboolean slope = self->model->positions == PLAN_POSITIONS_ALIBI;
      each = slope || rate_of (self, kind) > 0 ? sizes->heads : 0;
      whole = slope ? self->model->heads : 0;
    }
  *out_first = (double)(self->place.tensor_rank * each);
  *out_whole = self->comm.tensor < 0 ? 0 : (double)whole;
}

/* What scores are divided by the root of; 0: head_dim. In latent attention they grow where yarn
 * stretches positions (transformers, modeling_deepseek_v3.py). */
static double
scalar_of (const PlanModel *m)
{
  const double growth = m->kv_lora > 0 ? plan_rope_growth (&m->rope) : 1;
  const double said = m->attn_scalar > 0 ? m->attn_scalar : (double)m->head_dim;
  const double scalar = said / pow (growth, 4);
  return scalar != (double)m->head_dim ? scalar : 0;
}

/* The manner of an op (PlanManner) in the layer at hand. */
static guint16
manner_of (PlanLower *self, PlanOpKind kind)
{
  const PlanModel *m = self->model;
  const gboolean is_windowed = self->now.kind & PLAN_LAYER_WINDOWED;
  const gboolean has_chunks = m->window_chunks && !plan_lower_takes_chunks (self);
  const guint32 keys = plan_op_class (kind) == PLAN_CLASS_COMPUTE ? plan_manner_keys_of (kind) : 0;
  double first, whole;
  if (keys == 0) /* as of most ops */
    return 0;
  find_part (self, kind, &first, &whole);
  const PlanManner wanted
      = { { [PLAN_MANNER_WINDOW] = is_windowed && !m->window_chunks ? (double)m->window : 0,
            [PLAN_MANNER_CHUNK] = is_windowed && has_chunks ? (double)m->window : 0,
            [PLAN_MANNER_SCALAR] = keys >> PLAN_MANNER_SCALAR & 1 ? scalar_of (m) : 0,
            [PLAN_MANNER_CAP]
            = plan_op_work (kind) == PLAN_WORK_ATTENTION ? m->attn_softcap : m->logit_softcap,
            [PLAN_MANNER_ALIBI] = m->positions == PLAN_POSITIONS_ALIBI ? 1 : 0,
            [PLAN_MANNER_TURNED] = m->rope_fraction < 1 ? (double)plan_model_turned (m) : 0,
            [PLAN_MANNER_THETA] = is_windowed ? m->rope_local : 0,
            [PLAN_MANNER_ONE_PLUS] = m->norm_1p ? 1 : 0,
            [PLAN_MANNER_PITCH] = (double)self->now.pitch,
            [PLAN_MANNER_MULTIPLE] = (double)self->now.multiple,
            [PLAN_MANNER_CAPACITY] = (double)self->now.capacity,
            [PLAN_MANNER_RATE] = rate_of (self, kind),
            [PLAN_MANNER_GROUPS] = m->router_groups > 1 ? (double)m->router_groups : 0,
            [PLAN_MANNER_GROUP_TOPK] = m->router_groups > 1 ? (double)m->router_group_topk : 0,
            [PLAN_MANNER_AUX_LOSS] = (double)self->plan->value[PLAN_MOE_AUX_LOSS] / 1e6,
            [PLAN_MANNER_COUNTED] = (double)self->experts.counted,
            [PLAN_MANNER_BY_POSITION]
            = self->plan->value[PLAN_MOE_DROP] == PLAN_MOE_DROP_POSITION ? 1 : 0,
            [PLAN_MANNER_LIMIT] = m->glu_limit,
            [PLAN_MANNER_OFFSET] = m->glu_offset,
            [PLAN_MANNER_FIRST] = first,
            [PLAN_MANNER_WHOLE] = whole,
            [PLAN_MANNER_PART] = (double)self->place.context_rank,
            [PLAN_MANNER_PARTS]
            = self->comm.context < 0 ? 0 : (double)self->plan->value[PLAN_CP] } };
  PlanManner manner = { 0 };
  gboolean is_said = FALSE;
  for (PlanMannerKey key = 0; key < PLAN_N_MANNERS; key++)
    if (wanted.value[key] != 0 && (keys >> key & 1))
      {
        manner.value[key] = wanted.value[key];
        is_said = TRUE;
      }
  return is_said ? plan_schedule_add_manner (self->schedule, &manner) : 0;
}

/* Puts an op into the CUDA graph at hand, if there is one and it holds the op: weights are gathered
 * and gradients reduced outside. */
static void
put_into_graph (PlanLower *self, PlanOp *op)
{
  if (self->now.graph == PLAN_GRAPH_NONE || !plan_op_goes_into_graphs (op->kind)
      || op->stream == PLAN_STREAM_GATHER || op->stream == PLAN_STREAM_REDUCE)
    return;
  op->graph = op->kind == PLAN_OP_ALLOC ? PLAN_GRAPH_WITHIN : self->now.graph;
  if (op->kind != PLAN_OP_ALLOC)
    self->now.graph = PLAN_GRAPH_WITHIN;
}

static void
fill (PlanLower *self, PlanOp *op, const PlanRef *refs, const gint64 *dims, const PlanRef *waits)
{
  for (guint i = 0, given = 0; i < plan_op_n_refs (op->kind); i++)
    op->refs[i] = plan_op_ref_access (op->kind, i) == 's' ? scratch_for (self, op->kind, dims)
                                                          : refs[given++];
  for (guint i = 0; i < plan_op_n_dims (op->kind); i++)
    op->dims[i] = dims[i];
  op->manner = manner_of (self, op->kind);
  put_into_graph (self, op);
  /* PLAN_REF_NONE ends the list, and so does an event that this plan does not have. */
  for (; waits && waits->array >= 0; waits++)
    op->waits[op->n_waits++] = *waits;
}

void
plan_lower_emit (PlanLower *self, PlanOpKind kind, PlanStream stream, const PlanRef *refs,
                 const gint64 *dims, const PlanRef *waits, PlanRef record)
{
  PlanOp *op = plan_schedule_add_op (self->schedule, kind, stream);
  fill (self, op, refs, dims, waits);
  op->record = record;
}

static PlanStream
compute_stream (const PlanLower *self)
{
  return self->combined.owed ? PLAN_STREAM_EXPERTS : PLAN_STREAM_COMPUTE;
}

void
plan_lower_compute (PlanLower *self, PlanOpKind kind, const PlanRef *refs, const gint64 *dims)
{
  plan_lower_emit (self, kind, compute_stream (self), refs, dims, NULL, PLAN_REF_NONE);
}

void
plan_lower_compute_as (PlanLower *self, PlanOpKind kind, const PlanRef *refs, const gint64 *dims,
                       const PlanManner *manner)
{
  PlanOp *op = plan_schedule_add_op (self->schedule, kind, compute_stream (self));
  fill (self, op, refs, dims, NULL);
  op->record = PLAN_REF_NONE;
  op->manner = plan_schedule_add_manner (self->schedule, manner);
}

void
plan_lower_dropout (PlanLower *self, PlanOpKind kind, const PlanRef *refs, PlanRef key,
                    const gint64 *dims)
{
  const gint64 seq = self->plan->value[PLAN_SEQ] / self->plan->value[PLAN_CP];
  const guint n = plan_op_n_refs (kind) - 2;
  PlanRef all[PLAN_MAX_REFS];
  memcpy (all, refs, n * sizeof *refs);
  all[n] = key;
  all[n + 1] = plan_lower_start (self);
  plan_lower_compute (self, kind, all, PLAN_DIMS (dims[0], dims[1], seq, dims[2]));
}

/* Whether the op that was emitted last is an update of those weights by our own kernels, which can
 * round them as well. */
static gboolean
is_updated_last (const PlanLower *self, const PlanRef *weights, gint64 count)
{
  const guint n = plan_schedule_n_nodes (self->schedule);
  const PlanOp *last = n > 0 ? plan_schedule_node (self->schedule, n - 1) : NULL;
  return self->stack->layer.kernels == PLAN_KERNELS_OWN && last
         && (last->kind == PLAN_OP_ADAMW || last->kind == PLAN_OP_SGD)
         && plan_ref_is_same (&last->refs[PLAN_REF_ADAMW_main], weights)
         && last->dims[PLAN_DIM_ADAMW_count] == count;
}

PLAN_SAME_REF (ADAMW, SGD, main);
PLAN_SAME_DIM (ADAMW, SGD, count);

void
plan_lower_round (PlanLower *self, PlanRef out, PlanRef weights, gint64 count)
{
  const guint n = plan_schedule_n_nodes (self->schedule);
  if (is_updated_last (self, &weights, count))
    plan_schedule_set_operand (self->schedule, n - 1,
                               plan_schedule_node (self->schedule, n - 1)->kind == PLAN_OP_SGD
                                   ? (guint)PLAN_REF_SGD_out
                                   : (guint)PLAN_REF_ADAMW_out,
                               out);
  else
    plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (out, weights), PLAN_DIMS (count));
}

void
plan_lower_scale_embedding (PlanLower *self, PlanRef x)
{
  const gint64 hidden = self->model->hidden;
  const PlanManner manner = { { [PLAN_MANNER_FACTOR] = sqrt ((double)hidden) } };
  PlanOp *op = plan_schedule_add_op (self->schedule, PLAN_OP_SCALE, PLAN_STREAM_COMPUTE);
  op->manner = plan_schedule_add_manner (self->schedule, &manner);
  op->refs[PLAN_REF_SCALE_buf] = x;
  op->dims[PLAN_DIM_SCALE_count] = self->sizes->split_rows * hidden;
}

/* The stream from whose pool a buffer is allocated. */
static PlanStream
pool_of (const PlanLower *self, gint32 array)
{
  if (self->combined.owed)
    return PLAN_STREAM_EXPERTS;
  for (PlanBucketKind kind = 0;
       kind < PLAN_N_BUCKETS && self->stack->memory.streams == PLAN_STREAMS_POOLS; kind++)
    {
      const PlanLowerBucket *b = &self->bucket[kind];
      const gboolean lands
          = b->shards_weights && self->stack->weights.gathered != PLAN_GATHERED_COPIED;
      if (!plan_layout_has (&self->layout, kind))
        continue;
      if (array == b->landing || (array == b->weights && lands))
        return PLAN_STREAM_GATHER;
      if (array == b->grads && self->policy.collects)
        return PLAN_STREAM_REDUCE;
    }
  return PLAN_STREAM_COMPUTE;
}

/* Whether a buffer was allocated in the setup and stays. */
static gboolean
stays (const PlanLower *self, PlanRef buffer)
{
  return self->now.is_in_step && buffer.array >= 0
         && (buffer.array == self->work.gathered[FALSE] || buffer.array == self->work.gathered[TRUE]
             || buffer.array == self->joined.tokens);
}

void
plan_lower_touch (PlanLower *self, PlanRef buffer)
{
  if (buffer.array >= 0)
    plan_lower_compute (self, PLAN_OP_TOUCH, &buffer, NULL);
}

void
plan_lower_alloc (PlanLower *self, PlanRef buffer)
{
  if (stays (self, buffer))
    {
      plan_lower_touch (self, buffer);
      return;
    }
  plan_lower_emit (self, PLAN_OP_ALLOC, pool_of (self, buffer.array), &buffer, NULL, NULL,
                   PLAN_REF_NONE);
}

void
plan_lower_free (PlanLower *self, PlanRef buffer)
{
  if (stays (self, buffer))
    return;
  if (self->beside.is_begun)
    {
      g_assert (self->beside.n_owed < PLAN_MAX_OWED);
      self->beside.owed[self->beside.n_owed++] = buffer;
    }
  else if (self->combined.owed)
    g_array_append_val (self->combined.owed, buffer);
  else
    plan_lower_compute (self, PLAN_OP_FREE, &buffer, NULL);
}

void
plan_lower_wait (PlanLower *self, PlanRef event)
{
  if (event.array >= 0 && !self->combined.owed) /* ops of the stream of experts run in order */
    plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, PLAN_WAITS (event),
                     PLAN_REF_NONE);
}

static PlanRef
event_of (gint32 array, guint pass)
{
  PlanRef event = plan_lower_ref (array);
  event.offset = (gint32)pass;
  return event;
}

void
plan_lower_begin_apart (PlanLower *self, guint pass, GArray *owed)
{
  plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_EXPERTS, NULL, NULL,
                   PLAN_WAITS (event_of (self->combined.ready, pass)), PLAN_REF_NONE);
  self->combined.owed = owed;
}

void
plan_lower_end_apart (PlanLower *self, guint pass)
{
  self->combined.owed = NULL;
  plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_EXPERTS, NULL, NULL, NULL,
                   event_of (self->combined.arrived, pass));
}

void
plan_lower_arrive (PlanLower *self, guint pass, GArray *owed)
{
  plan_lower_wait (self, event_of (self->combined.arrived, pass));
  for (guint i = 0; i < owed->len; i++)
    plan_lower_free (self, g_array_index (owed, PlanRef, i));
  g_array_set_size (owed, 0);
}

static PlanOp *
add_collective (PlanLower *self, PlanOpKind kind, PlanStream stream, gint8 group,
                const PlanRef *refs, const gint64 *dims, PlanRef wait, PlanRef record)
{
  const PlanRef done = plan_lower_ref (self->event.done);
  if (!self->combined.owed)
    plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, done);
  PlanOp *op = plan_schedule_add_op (self->schedule, kind,
                                     self->combined.owed ? PLAN_STREAM_EXPERTS : stream);
  fill (self, op, refs, dims, self->combined.owed ? PLAN_WAITS (wait) : PLAN_WAITS (done, wait));
  op->group = group;
  op->record = record;
  return op;
}

void
plan_lower_collective_of (PlanLower *self, PlanOpKind kind, PlanStream stream, gint8 group,
                          const PlanRef *refs, const gint64 *dims, PlanRef wait, PlanRef record)
{
  add_collective (self, kind, stream, group, refs, dims, wait, record);
}

void
plan_lower_collective (PlanLower *self, PlanOpKind kind, PlanStream stream, gint8 group,
                       const PlanRef *refs, gint64 count, PlanRef wait, PlanRef record)
{
  plan_lower_collective_of (self, kind, stream, group, refs, &count, wait, record);
}

void
plan_lower_begin_exchange (PlanLower *self, PlanOpKind kind, const PlanRef *refs, gint64 count)
{
  plan_lower_collective (self, kind, PLAN_STREAM_TENSOR, self->comm.tensor, refs, count,
                         PLAN_REF_NONE, plan_lower_ref (self->event.exchanged));
}

void
plan_lower_begin_sending (PlanLower *self, const PlanRef *refs, gint64 count, guint distance)
{
  const PlanManner manner = { { [PLAN_MANNER_DISTANCE] = distance } };
  PlanOp *op = add_collective (self, PLAN_OP_EXCHANGE, PLAN_STREAM_TENSOR, self->comm.tensor, refs,
                               &count, PLAN_REF_NONE, plan_lower_ref (self->event.exchanged));
  if (distance > 1)
    op->manner = plan_schedule_add_manner (self->schedule, &manner);
}

void
plan_lower_go_on_exchanging (PlanLower *self, PlanOpKind kind, const PlanRef *refs, gint64 count)
{
  PlanOp *op = plan_schedule_add_op (self->schedule, kind, PLAN_STREAM_TENSOR);
  fill (self, op, refs, &count, NULL);
  op->group = self->comm.tensor;
  op->record = plan_lower_ref (self->event.exchanged);
}

void
plan_lower_await_exchange (PlanLower *self)
{
  plan_lower_wait (self, plan_lower_ref (self->event.exchanged));
}

void
plan_lower_exchange (PlanLower *self, PlanOpKind kind, const PlanRef *refs, gint64 count)
{
  plan_lower_begin_exchange (self, kind, refs, count);
  plan_lower_await_exchange (self);
}

void
plan_lower_declare_events (PlanLower *self)
{
  self->event.done = plan_schedule_add_event (self->schedule, "done", 1);
  self->event.known = self->stack->host.runs_ahead && !self->policy.is_eval
                          ? plan_schedule_add_event (self->schedule, "known", 1)
                          : -1;
}

PlanLowerUnit
plan_lower_begin_repeat (PlanLower *self, const char *variable, gint64 first, gint64 count,
                         gint64 step)
{
  if (count == 1)
    return (PlanLowerUnit){ .loop = -1, .offset = (gint32)first };
  plan_schedule_begin_repeat (self->schedule, variable, first, count, step);
  return (PlanLowerUnit){ .loop = self->now.depth++, .first = (gint32)first };
}

PlanLowerUnit
plan_lower_begin_units (PlanLower *self, gint64 first, gint64 count, gint64 step)
{
  return plan_lower_begin_repeat (self, "l", first, count, step);
}

void
plan_lower_end_units (PlanLower *self, PlanLowerUnit unit)
{
  if (unit.loop < 0)
    return;
  plan_schedule_end_repeat (self->schedule);
  self->now.depth--;
}

gint64
plan_lower_shard_elements (const PlanLower *self, PlanBucketKind kind)
{
  return (gint64)(self->layout.buckets[kind].padded / (guint64)self->bucket[kind].ranks);
}

gint64
plan_lower_own_elements (const PlanLower *self, PlanBucketKind kind)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 shards = b->shards_optimizer
                            ? b->ranks * (self->policy.splits_shards ? self->place.replicas : 1)
                            : 1;
  return (gint64)self->layout.buckets[kind].padded / shards;
}

guint64
plan_lower_own_first (const PlanLower *self, PlanBucketKind kind)
{
  const gint64 inside
      = self->policy.splits_shards ? self->place.replica * plan_lower_own_elements (self, kind) : 0;
  const PlanLowerBucket *b = &self->bucket[kind];
  return b->shards_optimizer ? (guint64)(b->rank * plan_lower_shard_elements (self, kind) + inside)
                             : 0;
}
