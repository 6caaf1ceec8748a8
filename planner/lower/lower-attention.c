/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one rank, or of a context-parallel group. There each rank holds an early and a late
 * part of every sequence, so that all ranks have equally much to do. Keys and values go round a
 * ring: while a rank works with those of one rank, it sends them to the next rank and receives
 * others from the previous one, in two buffers used in turns. In the backward pass their gradients
 * follow them, one step later, until they are back at their own rank. The partial outputs are
 * joined by the sums of their exponentials (after Transformer Engine's AttnFuncWithCPAndKVP2P).
 * What is sent are columns of larger rows, copied out of them or added to them. */
#include "config.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-layer.h"
#include "planner/schedule/scratch.h"

#include <string.h>

#define ONE(array) plan_lower_ref (self->array)
#define SETS 2

/* The operands of one attention. */
typedef struct
{
  PlanRef dqkv, dout; /* backward pass only */
  PlanRef out, lse, qkv, key;
  gint64 keys;
} Operands;

static gint64
parts (const PlanLower *self)
{
  return self->plan->value[PLAN_CP];
}

/* Elements of the queries of this rank's tokens; of their keys and values. */
static gint64
query_elements (const PlanLower *self)
{
  return self->sizes->rows * self->sizes->heads * self->sizes->head_dim;
}

static gint64
key_elements (const PlanLower *self)
{
  return self->sizes->rows * 2 * self->sizes->key_heads * self->sizes->head_dim;
}

const gint64 *
plan_lower_attention_dims (const PlanLower *self, gint64 *out_dims)
{
  const gint64 *value = self->plan->value;
  const gint64 dims[] = { value[PLAN_MBS], value[PLAN_SEQ] / value[PLAN_CP], self->sizes->heads,
                          self->sizes->key_heads, self->sizes->head_dim };
  memcpy (out_dims, dims, sizeof dims);
  return out_dims;
}

gboolean
plan_lower_takes_chunks (const PlanLower *self)
{
  const PlanModel *m = self->model;
  const gint64 seq = self->plan->value[PLAN_SEQ];
  return self->stack->layer.kernels == PLAN_KERNELS_OWN && m->window_chunks && parts (self) == 1
         && m->window < seq && seq % m->window == 0;
}

static void
take_chunks (const PlanLower *self, gint64 *dims)
{
  if (!plan_lower_takes_chunks (self))
    return;
  dims[PLAN_DIM_ATTENTION_batch] *= dims[PLAN_DIM_ATTENTION_seq] / self->model->window;
  dims[PLAN_DIM_ATTENTION_seq] = self->model->window;
}

/* The dims of attention in the layer at hand. */
static void
layer_dims (const PlanLower *self, gint64 *out_dims)
{
  plan_lower_attention_dims (self, out_dims);
  if (self->now.kind & PLAN_LAYER_WINDOWED)
    take_chunks (self, out_dims);
}

/* Whether cuDNN does this attention, as far as what becomes of scores and weights tells. Our own
 * runtime's dropout has random numbers, and its documents masks, that are in no graph of cuDNN's.
 */
static gboolean
attends_plainly (const PlanLower *self)
{
  const gboolean is_own = self->stack->layer.kernels == PLAN_KERNELS_OWN;
  return plan_model_attends_plainly (self->model)
         && !(is_own && plan_attention_dropout (self->plan) > 0)
         && !(is_own && self->plan->value[PLAN_DOC_TOKENS] > 0);
}

/* Whether our own runtime has cuDNN do this attention. */
gboolean
plan_lower_attention_is_fused (const PlanLower *self, PlanOpKind kind)
{
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_attention_dims (self, dims);
  return attends_plainly (self)
         && plan_scratch_attention_is_fused (kind, dims, self->sizes->compute,
                                             self->cluster->compute_capability);
}

/* cuDNN's answer for this attention. It was asked about plain attention of one rank only. */
const PlanWorkspace *
plan_lower_asked_attention (const PlanLower *self, PlanPass pass)
{
  gint64 dims[PLAN_MAX_DIMS];
  if (!self->asked || parts (self) > 1 || !attends_plainly (self))
    return NULL;
  return plan_workspaces_find (self->asked, plan_lower_attention_dims (self, dims),
                               self->sizes->compute, pass);
}

/* What attention of a case rests on. */
static PlanLower
attention_of (const PlanCase *of)
{
  return (PlanLower){ .model = of->model,
                      .cluster = of->cluster,
                      .asked = of->asked,
                      .plan = &of->plan,
                      .stack = of->stack,
                      .graphs = &of->graphs,
                      .sizes = &of->graphs.sizes };
}

const PlanWorkspace *
plan_lower_find_workspace (const PlanCase *of, PlanPass pass)
{
  const PlanLower self = attention_of (of);
  return of->cluster->kind == PLAN_DEVICE_CPU ? NULL : plan_lower_asked_attention (&self, pass);
}

gboolean
plan_lower_attends_by_batches (const PlanCase *of)
{
  const PlanLower self = attention_of (of);
  return of->cluster->kind != PLAN_DEVICE_CPU && of->stack->layer.kernels == PLAN_KERNELS_OWN
         && (of->model->kv_lora > 0
             || !plan_lower_attention_is_fused (&self, PLAN_OP_ATTENTION_BWD));
}

/* Size of the scratch buffer of attention's backward pass, for attention of those dims. */
static guint64
work_elements (const PlanLower *self, const gint64 *dims, gboolean is_deterministic)
{
  if (self->work.scratch >= 0 && !plan_lower_attention_is_fused (self, PLAN_OP_ATTENTION_BWD))
    return plan_scratch_batched_elements (PLAN_OP_ATTENTION_BWD, dims);
  return plan_scratch_attention_elements (dims, self->cluster->compute_capability,
                                          is_deterministic);
}

guint64
plan_lower_attention_work (const PlanLower *self)
{
  const gboolean is_deterministic = self->plan->value[PLAN_DETERMINISTIC] == PLAN_DETERMINISTIC_ON;
  const PlanWorkspace *said = plan_lower_asked_attention (
      self, is_deterministic ? PLAN_PASS_DETERMINISTIC : PLAN_PASS_BACKWARD);
  gint64 dims[PLAN_MAX_DIMS], chunks[PLAN_MAX_DIMS];
  if (said && !plan_lower_takes_chunks (self))
    return (said->bytes + sizeof (float) - 1) / sizeof (float);
  if (self->work.scratch >= 0 && self->model->kv_lora > 0)
    return plan_scratch_batched_elements (PLAN_OP_LATENT_ATTENTION_BWD,
                                          plan_lower_latent_dims (self, dims));
  plan_lower_attention_dims (self, dims);
  plan_lower_attention_dims (self, chunks);
  take_chunks (self, chunks);
  return MAX (work_elements (self, dims, is_deterministic),
              work_elements (self, chunks, is_deterministic));
}

void
plan_lower_declare_attention (PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const guint64 rows = (guint64)sizes->rows, lse = rows * (guint64)sizes->heads;
  const guint64 queries = (guint64)query_elements (self), keys = (guint64)key_elements (self);
  const struct
  {
    gint32 *array;
    const char *name;
    guint32 count;
    guint64 elements;
    PlanDtype dtype;
  } table[] = {
    { &self->context.kv, "kv", SETS, keys, sizes->compute },
    { &self->context.dkv, "dkv", SETS, keys, sizes->compute },
    { &self->context.dkv_part, "dkv.part", 1, keys, sizes->compute },
    { &self->context.dq_part, "dq.part", 1, queries, sizes->compute },
    { &self->context.attn_part, "attn.part", 1, queries, sizes->compute },
    { &self->context.lse_part, "lse.part", 1, lse, PLAN_DTYPE_FP32 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (table); i++)
    *table[i].array = parts (self) == 1
                          ? -1
                          : plan_schedule_add_buffer (self->schedule, table[i].name, table[i].count,
                                                      table[i].elements, table[i].dtype,
                                                      PLAN_CATEGORY_ACTIVATIONS);
  self->context.kv_here
      = parts (self) == 1 ? -1 : plan_schedule_add_event (self->schedule, "kv_here", 1);
  self->context.dkv_here
      = parts (self) == 1 ? -1 : plan_schedule_add_event (self->schedule, "dkv_here", 1);
}

/* The buffer of a step of the ring, or of the step `delta` steps later. */
static PlanRef
in_turn (gint32 array, PlanLowerUnit step, gint32 delta)
{
  PlanRef ref = plan_lower_unit_ref (array, step, delta);
  ref.modulus = SETS;
  return ref;
}

/* Sends this step's buffer to the next rank, and receives into the other one. */
static void
send (PlanLower *self, gint32 array, PlanLowerUnit step, gint32 here)
{
  plan_lower_alloc (self, in_turn (array, step, 1));
  plan_lower_collective (self, PLAN_OP_EXCHANGE, PLAN_STREAM_CONTEXT, self->comm.context,
                         PLAN_REFS (in_turn (array, step, 1), in_turn (array, step, 0)),
                         key_elements (self), PLAN_REF_NONE, plan_lower_ref (here));
}

/* Columns of all rows of queries, keys and values, or of their gradients: those of the queries, or
 * those of keys and values. */
typedef struct
{
  PlanRef at;
  gint64 count;
  PlanManner manner;
} Columns;

static Columns
columns_of (const PlanLower *self, PlanRef qkv, gboolean is_keys)
{
  const PlanSizes *sizes = self->sizes;
  const gint64 queries = sizes->heads * sizes->head_dim;
  const gint64 keys = 2 * sizes->key_heads * sizes->head_dim;
  return (Columns){ .at = is_keys ? plan_lower_at (qkv, (guint64)queries) : qkv,
                    .count = is_keys ? key_elements (self) : query_elements (self),
                    .manner = { { [PLAN_MANNER_PIECE] = (double)(is_keys ? keys : queries),
                                  [PLAN_MANNER_WIDTH] = (double)(queries + keys) } } };
}

/* Copies keys and values out of qkv: what is sent must be in one piece. */
static void
take_keys (PlanLower *self, PlanRef qkv)
{
  const PlanRef kv = in_turn (self->context.kv, PLAN_NO_UNIT, 0);
  const Columns keys = columns_of (self, qkv, TRUE);
  plan_lower_alloc (self, kv);
  plan_lower_compute_as (self, PLAN_OP_CAST, PLAN_REFS (kv, keys.at), PLAN_DIMS (keys.count),
                         &keys.manner);
}

/* Adds a gradient of the queries, or of keys and values, to what dqkv has of them. */
static void
add_columns (PlanLower *self, PlanRef dqkv, PlanRef gradient, gboolean is_keys)
{
  const Columns columns = columns_of (self, dqkv, is_keys);
  plan_lower_compute_as (self, PLAN_OP_ACCUMULATE, PLAN_REFS (columns.at, gradient),
                         PLAN_DIMS (columns.count), &columns.manner);
}

/* Dims with the mean number of keys that a query sees among the tokens of one other rank, equally
 * many for each rank, or among this rank's own. */
static const gint64 *
dims_of (const PlanLower *self, gint64 keys, gboolean is_own, gint64 *out_dims)
{
  const gint64 other = keys / parts (self);
  layer_dims (self, out_dims);
  out_dims[PLAN_N_WORKSPACE_DIMS] = is_own ? keys - (parts (self) - 1) * other : other;
  return out_dims;
}

/* Where random numbers begin, if attention has any. */
static PlanRef
start_of (const PlanLower *self, const Operands *o)
{
  return o->key.array < 0 ? PLAN_REF_NONE : plan_lower_start (self);
}

static void
work_forward (PlanLower *self, const Operands *o, PlanRef kv)
{
  gint64 dims[PLAN_MAX_DIMS];
  if (kv.array < 0)
    {
      plan_lower_compute (self, PLAN_OP_ATTENTION,
                          PLAN_REFS (o->out, o->lse, o->qkv, kv, plan_lower_places (self), o->key,
                                     start_of (self, o)),
                          dims_of (self, o->keys, TRUE, dims));
      return;
    }
  plan_lower_alloc (self, ONE (context.attn_part));
  plan_lower_alloc (self, ONE (context.lse_part));
  plan_lower_compute (self, PLAN_OP_ATTENTION,
                      PLAN_REFS (ONE (context.attn_part), ONE (context.lse_part), o->qkv, kv,
                                 plan_lower_places (self), o->key, start_of (self, o)),
                      dims_of (self, o->keys, FALSE, dims));
  plan_lower_compute (self, PLAN_OP_ATTENTION_JOIN,
                      PLAN_REFS (o->out, o->lse, ONE (context.attn_part), ONE (context.lse_part)),
                      PLAN_DIMS (dims[PLAN_DIM_ATTENTION_batch], dims[PLAN_DIM_ATTENTION_seq],
                                 dims[PLAN_DIM_ATTENTION_heads],
                                 dims[PLAN_DIM_ATTENTION_head_dim]));
  plan_lower_free (self, ONE (context.lse_part));
  plan_lower_free (self, ONE (context.attn_part));
}

static void
step_forward (PlanLower *self, const Operands *o, PlanLowerUnit step, gboolean is_own,
              gboolean is_last)
{
  const PlanRef kv = in_turn (self->context.kv, step, 0);
  if (!is_last)
    send (self, self->context.kv, step, self->context.kv_here);
  work_forward (self, o, is_own ? PLAN_REF_NONE : kv);
  if (!is_last)
    plan_lower_wait (self, ONE (context.kv_here));
  plan_lower_free (self, kv);
}

static PlanLowerUnit
step_at (gint64 step)
{
  return (PlanLowerUnit){ .loop = -1, .offset = (gint32)step };
}

void
plan_lower_attention (PlanLower *self, const PlanRef *refs, gint64 keys)
{
  const Operands o
      = { .out = refs[0], .lse = refs[1], .qkv = refs[2], .key = refs[3], .keys = keys };
  const gint64 last = parts (self) - 1;
  if (last == 0)
    {
      work_forward (self, &o, PLAN_REF_NONE);
      return;
    }
  take_keys (self, o.qkv);
  step_forward (self, &o, step_at (0), TRUE, FALSE);
  if (last > 1)
    {
      const PlanLowerUnit step = plan_lower_begin_repeat (self, "r", 1, last - 1, 1);
      step_forward (self, &o, step, FALSE, FALSE);
      plan_lower_end_units (self, step);
    }
  step_forward (self, &o, step_at (last), FALSE, TRUE);
}

/* One backward pass of attention. If `kv` gives another rank's keys, only the gradient of the
 * queries goes to dqkv, and that of the keys to dkv. */
static void
work_backward (PlanLower *self, const Operands *o, PlanRef dqkv, PlanRef kv, PlanRef dkv)
{
  gint64 dims[PLAN_MAX_DIMS];
  if (self->work.attention >= 0)
    plan_lower_alloc (self, ONE (work.attention));
  plan_lower_alloc (self, dqkv);
  plan_lower_compute (self, PLAN_OP_ATTENTION_BWD,
                      PLAN_REFS (dqkv, o->dout, o->out, o->lse, o->qkv, kv, dkv,
                                 plan_lower_places (self), o->key, start_of (self, o)),
                      dims_of (self, o->keys, kv.array < 0, dims));
  if (self->work.attention >= 0)
    plan_lower_free (self, ONE (work.attention));
}

/* One step of the ring in the backward pass: adds this rank's share to the gradient that came for
 * the keys at hand, and sends it on. */
static void
step_backward (PlanLower *self, const Operands *o, PlanLowerUnit step, gboolean is_first,
               gboolean is_last)
{
  const PlanRef kv = in_turn (self->context.kv, step, 0),
                dkv = in_turn (self->context.dkv, step, 0);
  const PlanRef share = is_first ? dkv : ONE (context.dkv_part);
  if (!is_last)
    send (self, self->context.kv, step, self->context.kv_here);
  plan_lower_alloc (self, share);
  work_backward (self, o, ONE (context.dq_part), kv, share);
  add_columns (self, o->dqkv, ONE (context.dq_part), FALSE);
  plan_lower_free (self, ONE (context.dq_part));
  if (!is_first)
    {
      plan_lower_wait (self, ONE (context.dkv_here));
      plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (dkv, share),
                          PLAN_DIMS (key_elements (self)));
      plan_lower_free (self, share);
      plan_lower_free (self, in_turn (self->context.dkv, step, 1));
    }
  send (self, self->context.dkv, step, self->context.dkv_here);
  if (!is_last)
    plan_lower_wait (self, ONE (context.kv_here));
  plan_lower_free (self, kv);
}

void
plan_lower_attention_backward (PlanLower *self, const PlanRef *refs, gint64 keys)
{
  const PlanRef dqkv = refs[0];
  const Operands o = { .dqkv = dqkv,
                       .dout = refs[1],
                       .out = refs[2],
                       .lse = refs[3],
                       .qkv = refs[4],
                       .key = refs[5],
                       .keys = keys };
  const gint64 last = parts (self) - 1;
  if (last == 0)
    {
      work_backward (self, &o, dqkv, PLAN_REF_NONE, PLAN_REF_NONE);
      return;
    }
  take_keys (self, o.qkv);
  send (self, self->context.kv, step_at (0), self->context.kv_here);
  work_backward (self, &o, dqkv, PLAN_REF_NONE, PLAN_REF_NONE);
  plan_lower_wait (self, ONE (context.kv_here));
  plan_lower_free (self, in_turn (self->context.kv, step_at (0), 0));
  step_backward (self, &o, step_at (1), TRUE, last == 1);
  if (last > 2)
    {
      const PlanLowerUnit step = plan_lower_begin_repeat (self, "r", 2, last - 2, 1);
      step_backward (self, &o, step, FALSE, FALSE);
      plan_lower_end_units (self, step);
    }
  if (last > 1)
    step_backward (self, &o, step_at (last), FALSE, TRUE);
  plan_lower_wait (self, ONE (context.dkv_here));
  plan_lower_free (self, in_turn (self->context.dkv, step_at (last), 0));
  add_columns (self, dqkv, in_turn (self->context.dkv, step_at (last), 1), TRUE);
  plan_lower_free (self, in_turn (self->context.dkv, step_at (last), 1));
}

/* Of our own kernels attention knows no sinks: an op behind it, or behind the ring, weighs what it
 * made. Transformer Engine's attention takes them; PyTorch's has a node behind it (SINK). */
void
plan_lower_sink (PlanLower *self, PlanRef out, PlanRef lse, PlanLowerUnit unit)
{
  gint64 dims[PLAN_MAX_DIMS];
  if (!self->model->sinks || self->stack->layer.kernels != PLAN_KERNELS_OWN)
    return;
  layer_dims (self, dims);
  dims[PLAN_DIM_ATTENTION_SINK_head_dim] = self->sizes->head_dim;
  plan_lower_compute (self, PLAN_OP_ATTENTION_SINK,
                      PLAN_REFS (out, lse, plan_lower_weight (self, PLAN_TENSOR_SINKS, unit)),
                      dims);
}

/* The gradient of a sink is a sum over the queries of each head, made from their statistics. */
void
plan_lower_sink_backward (PlanLower *self, PlanRef dout, PlanRef out, PlanRef lse,
                          PlanLowerUnit unit)
{
  gint64 dims[PLAN_MAX_DIMS];
  if (!self->model->sinks || self->stack->layer.kernels == PLAN_KERNELS_PYTORCH)
    return;
  const PlanRef raw = plan_lower_raw_gradient (self, PLAN_TENSOR_SINKS, unit);
  layer_dims (self, dims);
  dims[PLAN_DIM_ATTENTION_SINK_BWD_head_dim] = self->sizes->head_dim;
  if (self->stack->layer.kernels == PLAN_KERNELS_OWN)
    plan_lower_compute (
        self, PLAN_OP_ATTENTION_SINK_BWD,
        PLAN_REFS (raw, dout, out, lse, plan_lower_weight (self, PLAN_TENSOR_SINKS, unit)), dims);
  else
    plan_lower_compute (self, PLAN_OP_BIAS_BWD, PLAN_REFS (raw, lse),
                        PLAN_DIMS (self->sizes->rows, self->sizes->heads));
  plan_lower_put_gradient (self, PLAN_TENSOR_SINKS, unit, FALSE);
}
