/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower-private.h"

#define UNIT(array) lower_unit_ref (self->array, unit, 0)
#define ONE(array) lower_ref (self->array)

static const LowerUnit no_unit = { .loop = -1 };

/* Gradient buckets whose reduction was started and that nobody has waited for, oldest first. */
typedef struct
{
  gint64 *unit;   /* or HEAD */
  guint first, n; /* in flight: unit[first .. n - 1] */
  guint64 elements;
  gint64 limit; /* start another only once no more than this is in flight */
  guint64 head_elements, unit_elements;
} Queue;

#define HEAD (-1)

static guint64
queue_elements (const Queue *self, gint64 unit)
{
  return unit == HEAD ? self->head_elements : self->unit_elements;
}

static void
queue_push (Queue *self, gint64 unit)
{
  self->unit[self->n++] = unit;
  self->elements += queue_elements (self, unit);
}

static gint64
queue_pop (Queue *self)
{
  const gint64 unit = self->unit[self->first++];
  self->elements -= queue_elements (self, unit);
  return unit;
}

static gboolean
queue_is_over (const Queue *self)
{
  return self->first < self->n && self->elements > (guint64)self->limit;
}

/* Whether this micro batch fills temporary buckets for the reduction. */
static gboolean
fills_buckets (const Lower *self, gboolean is_last)
{
  return self->shards_grads || (is_last && self->ranks > 1 && self->grad_comm != self->main_grads);
}

/* Padding is reduced with the rest: it must be zero. */
static void
zero_gaps (Lower *self, PlanBucketKind kind, PlanRef bucket)
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
        lower_compute (self, PLAN_OP_ZERO, LOWER_REFS (lower_at (bucket, cursor)),
                       LOWER_DIMS ((gint64)(next - cursor)));
      cursor = end;
    }
}

/* The first gradient of a unit takes the whole bucket. */
static void
take_bucket (Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  if (!self->shards_grads)
    return;
  const PlanRef bucket = lower_unit_ref (self->bucket[kind].bucket, unit, 0);
  lower_alloc (self, bucket);
  zero_gaps (self, kind, bucket);
}

/* Sharded gradients are copied into the bucket, others added up where they stay. `adds`: the
 * bucket holds a share of this gradient already. */
static void
put_gradient (Lower *self, PlanBucketKind kind, LowerUnit unit, PlanTensorRole role, PlanRef raw,
              gboolean adds)
{
  const PlanSlot *slot = plan_layout_slot (&self->layout, role);
  const gint32 array = self->shards_grads ? self->bucket[kind].bucket : self->bucket[kind].grads;
  lower_emit (self, self->shards_grads && !adds ? PLAN_OP_CAST : PLAN_OP_ACCUMULATE,
              PLAN_STREAM_COMPUTE,
              LOWER_REFS (lower_at (lower_unit_ref (array, unit, 0), slot->offset), raw),
              LOWER_DIMS ((gint64)(slot->tensor.rows * slot->tensor.cols)), NULL, ONE (done));
  lower_free (self, raw);
}

/* din = dout * weight, then dweight = dout^T * in; `in` is done with. */
static void
linear_backward (Lower *self, LowerUnit unit, PlanTensorRole role, PlanRef din, PlanRef dout,
                 PlanRef in, gint64 cols, gint64 depth, const PlanRef *waits)
{
  const PlanRef raw = lower_ref (self->raw[role]);
  lower_alloc (self, din);
  lower_emit (self, PLAN_OP_GEMM, PLAN_STREAM_COMPUTE,
              LOWER_REFS (din, dout, lower_weight (self, role, unit)),
              LOWER_DIMS (self->rows, depth, cols, 0), waits, PLAN_REF_NONE);
  lower_alloc (self, raw);
  lower_compute (self, PLAN_OP_GEMM, LOWER_REFS (raw, dout, in),
                 LOWER_DIMS (cols, depth, self->rows, 2));
  put_gradient (self, PLAN_BUCKET_LAYER, unit, role, raw, FALSE);
  lower_free (self, in);
}

/* Of dnorm, the gradient of a norm's output; leaves the gradient of its input in `din`. */
static void
norm_backward (Lower *self, PlanBucketKind kind, LowerUnit unit, PlanTensorRole role, PlanRef din,
               PlanRef in, PlanRef rstd)
{
  const PlanRef raw = lower_ref (self->raw[role]);
  lower_alloc (self, din);
  lower_alloc (self, raw);
  lower_compute (self, PLAN_OP_RMSNORM_BWD,
                 LOWER_REFS (din, raw, ONE (dnorm), in, lower_weight (self, role, unit), rstd),
                 LOWER_DIMS (self->rows, self->model->hidden));
  put_gradient (self, kind, unit, role, raw, FALSE);
  lower_free (self, ONE (dnorm));
  lower_free (self, rstd);
  lower_free (self, in);
}

static void
mlp_backward (Lower *self, LowerUnit unit)
{
  const PlanModel *m = self->model;
  const PlanRef dout = lower_unit_ref (self->dx, unit, 1);
  const PlanRef gathered = lower_unit_ref (self->bucket[PLAN_BUCKET_LAYER].gathered, unit, 0);
  linear_backward (self, unit, PLAN_TENSOR_DOWN, ONE (dact), dout, UNIT (act), m->hidden, m->ffn,
                   self->shards_weights ? LOWER_WAITS (gathered) : NULL);
  lower_alloc (self, ONE (dgate_up));
  lower_compute (self, PLAN_OP_SWIGLU_BWD, LOWER_REFS (ONE (dgate_up), ONE (dact), UNIT (gate_up)),
                 LOWER_DIMS (self->rows, m->ffn));
  lower_free (self, ONE (dact));
  lower_free (self, UNIT (gate_up));
  linear_backward (self, unit, PLAN_TENSOR_GATE_UP, ONE (dnorm), ONE (dgate_up), UNIT (norm2),
                   2 * m->ffn, m->hidden, NULL);
  lower_free (self, ONE (dgate_up));
  norm_backward (self, PLAN_BUCKET_LAYER, unit, PLAN_TENSOR_MLP_NORM, ONE (dbranch), UNIT (hidden2),
                 UNIT (rstd2));
  lower_alloc (self, ONE (dhidden));
  lower_compute (self, PLAN_OP_ADD, LOWER_REFS (ONE (dhidden), dout, ONE (dbranch)),
                 LOWER_DIMS (self->rows * m->hidden));
  lower_free (self, ONE (dbranch));
  lower_free (self, dout);
}

static void
attention_backward (Lower *self, LowerUnit unit)
{
  const PlanModel *m = self->model;
  const gint64 seq = self->plan->value[PLAN_SEQ], batch = self->plan->value[PLAN_MBS];
  const PlanRef raw = lower_ref (self->raw[PLAN_TENSOR_PROJ]);

  /* As linear_backward, but attention itself still needs its output. */
  lower_alloc (self, ONE (dattn));
  lower_compute (
      self, PLAN_OP_GEMM,
      LOWER_REFS (ONE (dattn), ONE (dhidden), lower_weight (self, PLAN_TENSOR_PROJ, unit)),
      LOWER_DIMS (self->rows, self->attention_cols, m->hidden, 0));
  lower_alloc (self, raw);
  lower_compute (self, PLAN_OP_GEMM, LOWER_REFS (raw, ONE (dhidden), UNIT (attn)),
                 LOWER_DIMS (m->hidden, self->attention_cols, self->rows, 2));
  put_gradient (self, PLAN_BUCKET_LAYER, unit, PLAN_TENSOR_PROJ, raw, FALSE);
  lower_alloc (self, ONE (dqkv));
  lower_compute (self, PLAN_OP_ATTENTION_BWD,
                 LOWER_REFS (ONE (dqkv), ONE (dattn), UNIT (attn), UNIT (lse), UNIT (qkv)),
                 LOWER_DIMS (batch, seq, m->heads, m->kv_heads, m->head_dim));
  lower_free (self, ONE (dattn));
  lower_free (self, UNIT (attn));
  lower_free (self, UNIT (lse));
  lower_free (self, UNIT (qkv));
  lower_compute (self, PLAN_OP_ROPE, LOWER_REFS (ONE (dqkv)),
                 LOWER_DIMS (self->rows, seq, m->heads, m->kv_heads, m->head_dim, 1));
  linear_backward (self, unit, PLAN_TENSOR_QKV, ONE (dnorm), ONE (dqkv), UNIT (norm1),
                   self->qkv_cols, m->hidden, NULL);
  lower_free (self, ONE (dqkv));
}

static void
layer_backward (Lower *self, LowerUnit unit)
{
  const LowerBucket *b = &self->bucket[PLAN_BUCKET_LAYER];
  take_bucket (self, PLAN_BUCKET_LAYER, unit);
  mlp_backward (self, unit);
  attention_backward (self, unit);
  norm_backward (self, PLAN_BUCKET_LAYER, unit, PLAN_TENSOR_ATTENTION_NORM, ONE (dbranch), UNIT (x),
                 UNIT (rstd1));
  lower_alloc (self, UNIT (dx));
  lower_emit (self, PLAN_OP_ADD, PLAN_STREAM_COMPUTE,
              LOWER_REFS (UNIT (dx), ONE (dhidden), ONE (dbranch)),
              LOWER_DIMS (self->rows * self->model->hidden), NULL, ONE (done));
  lower_free (self, ONE (dbranch));
  lower_free (self, ONE (dhidden));
  if (self->shards_weights)
    lower_free (self, lower_unit_ref (b->weights, unit, 0));
}

/* Reduces a complete bucket, beside the compute that follows. */
static void
start_reduction (Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  const LowerBucket *b = &self->bucket[kind];
  const gint64 full = (gint64)self->layout.buckets[kind].padded;
  const gint64 part = lower_shard_elements (self, kind);
  const guint64 own = self->layout.shards > 1 ? (guint64)(self->rank * part) : 0;
  const PlanRef grads = lower_unit_ref (b->grads, unit, 0);
  const PlanRef reduced = lower_unit_ref (b->reduced, unit, 0);
  const gboolean in_place = b->bucket < 0;
  const PlanRef bucket = in_place ? grads : lower_unit_ref (b->bucket, unit, 0);
  const PlanRef slice = lower_at (bucket, own);

  if (!in_place && !self->shards_grads)
    {
      lower_alloc (self, bucket);
      lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_COMPUTE, LOWER_REFS (bucket, grads),
                  LOWER_DIMS (full), NULL, ONE (done));
    }
  if (self->shards_optimizer)
    lower_emit (self, PLAN_OP_REDUCE_SCATTER, PLAN_STREAM_REDUCE, LOWER_REFS (slice, bucket),
                LOWER_DIMS (part), LOWER_WAITS (ONE (done)), in_place ? reduced : PLAN_REF_NONE);
  else
    lower_emit (self, PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE, LOWER_REFS (bucket),
                LOWER_DIMS (full), LOWER_WAITS (ONE (done)), in_place ? reduced : PLAN_REF_NONE);
  if (in_place)
    return;
  /* What was accumulated over micro batches is replaced by the sum, never added to it. */
  lower_emit (self, self->shards_grads ? PLAN_OP_ACCUMULATE : PLAN_OP_CAST, PLAN_STREAM_REDUCE,
              LOWER_REFS (self->shards_grads ? grads : lower_at (grads, own), slice),
              LOWER_DIMS (self->shards_optimizer ? part : full), NULL, reduced);
}

static void
release_bucket (Lower *self, gint64 index, LowerUnit unit, gint32 delta)
{
  const LowerBucket *b = &self->bucket[index == HEAD ? PLAN_BUCKET_HEAD : PLAN_BUCKET_LAYER];
  const LowerUnit where = index == HEAD ? no_unit : unit;
  lower_free_after (self, lower_unit_ref (b->bucket, where, index == HEAD ? 0 : delta),
                    lower_unit_ref (b->reduced, where, index == HEAD ? 0 : delta));
}

static void
head_backward (Lower *self)
{
  const PlanModel *m = self->model;
  const LowerUnit last = { .loop = -1, .offset = (gint32)m->layers };
  const gboolean tied = m->tied_embeddings;
  const PlanTensorRole role = tied ? PLAN_TENSOR_EMBEDDING : PLAN_TENSOR_OUTPUT;
  const PlanRef raw = lower_ref (self->raw[PLAN_TENSOR_OUTPUT]);

  lower_alloc (self, ONE (dlogits));
  lower_compute (self, PLAN_OP_CROSS_ENTROPY_BWD,
                 LOWER_REFS (ONE (dlogits), ONE (prob), ONE (targets)),
                 LOWER_DIMS (self->rows, self->vocab));
  lower_free (self, ONE (prob));
  take_bucket (self, PLAN_BUCKET_HEAD, no_unit);
  if (tied)
    take_bucket (self, PLAN_BUCKET_EMBEDDING, no_unit);
  lower_alloc (self, ONE (dnorm));
  lower_compute (self, PLAN_OP_GEMM,
                 LOWER_REFS (ONE (dnorm), ONE (dlogits), lower_weight (self, role, no_unit)),
                 LOWER_DIMS (self->rows, m->hidden, self->vocab, 0));
  lower_alloc (self, raw);
  lower_compute (self, PLAN_OP_GEMM, LOWER_REFS (raw, ONE (dlogits), ONE (norm_final)),
                 LOWER_DIMS (self->vocab, m->hidden, self->rows, 2));
  put_gradient (self, tied ? PLAN_BUCKET_EMBEDDING : PLAN_BUCKET_HEAD, no_unit, role, raw, FALSE);
  lower_free (self, ONE (dlogits));
  lower_free (self, ONE (norm_final));
  norm_backward (self, PLAN_BUCKET_HEAD, no_unit, PLAN_TENSOR_FINAL_NORM,
                 lower_unit_ref (self->dx, last, 0), lower_unit_ref (self->x, last, 0),
                 ONE (rstd_final));
}

static void
embedding_backward (Lower *self)
{
  const gboolean tied = self->model->tied_embeddings;
  const PlanRef raw = lower_ref (self->raw[PLAN_TENSOR_EMBEDDING]);
  if (!tied)
    take_bucket (self, PLAN_BUCKET_EMBEDDING, no_unit);
  lower_alloc (self, raw);
  lower_compute (self, PLAN_OP_EMBED_BWD, LOWER_REFS (raw, lower_ref (self->dx), ONE (tokens)),
                 LOWER_DIMS (self->rows, self->model->hidden, self->vocab));
  lower_free (self, lower_ref (self->dx));
  put_gradient (self, PLAN_BUCKET_EMBEDDING, no_unit, PLAN_TENSOR_EMBEDDING, raw, tied);
}

/* What each unit gathers and releases, relative to itself; equal neighbours make one run. */
static GArray *
plan_runs (const Lower *self, Queue *queue, gboolean queues)
{
  GArray *runs = g_array_new (FALSE, FALSE, sizeof (LowerRun));
  const gint64 layers = self->model->layers;
  for (gint64 u = layers - 1; u >= 0; u--)
    {
      LowerRun run = { .gather_from = 0,
                       .gather_to = -1,
                       .release_from = 0,
                       .release_to = -1,
                       .first = u,
                       .count = 1 };
      if (self->shards_weights && u == layers - 1)
        run.gather_to = (gint32)MIN (self->prefetch, u);
      else if (self->shards_weights && u >= self->prefetch)
        run.gather_from = run.gather_to = (gint32)self->prefetch;
      for (gint64 popped; queues && queue_is_over (queue);)
        if ((popped = queue_pop (queue)) == HEAD)
          run.releases_head = TRUE;
        else
          {
            run.release_to = (gint32)(popped - u);
            run.release_from = run.release_from ? run.release_from : run.release_to;
          }
      if (queues)
        queue_push (queue, u);
      LowerRun *last = runs->len ? &g_array_index (runs, LowerRun, runs->len - 1) : NULL;
      if (last && last->gather_from == run.gather_from && last->gather_to == run.gather_to
          && last->release_from == run.release_from && last->release_to == run.release_to
          && last->releases_head == run.releases_head)
        last->count++;
      else
        g_array_append_val (runs, run);
    }
  return runs;
}

static void
run_backward (Lower *self, const LowerRun *run, gboolean reduces)
{
  const LowerUnit unit = lower_begin_units (self, run->first, run->count, -1);
  for (gint32 i = run->gather_from; i <= run->gather_to; i++)
    lower_gather (self, unit, -i);
  layer_backward (self, unit);
  if (reduces)
    {
      if (run->releases_head)
        release_bucket (self, HEAD, unit, 0);
      for (gint32 i = run->release_from; i >= run->release_to && run->release_to > 0; i--)
        release_bucket (self, 0, unit, i);
      start_reduction (self, PLAN_BUCKET_LAYER, unit);
    }
  lower_end_units (self, unit);
}

void
lower_backward (Lower *self, gboolean is_last)
{
  const LowerBucket *layer = &self->bucket[PLAN_BUCKET_LAYER];
  const gboolean queues = fills_buckets (self, is_last);
  const gboolean reduces = self->ranks > 1 && (self->shards_grads || is_last);
  g_autofree gint64 *in_flight = g_new (gint64, self->model->layers + 2);
  Queue queue = { .unit = in_flight,
                  .limit = self->comm_unit,
                  .head_elements = self->layout.buckets[PLAN_BUCKET_HEAD].padded,
                  .unit_elements = self->layout.buckets[PLAN_BUCKET_LAYER].padded };

  head_backward (self);
  if (reduces)
    start_reduction (self, PLAN_BUCKET_HEAD, no_unit);
  if (queues)
    queue_push (&queue, HEAD);
  /* What the output layer's hook gathered for nothing goes when the next gather is due. */
  if (self->shards_weights && self->stack->prefetches_past_head)
    for (gint32 i = 0; i < self->prefetch; i++)
      lower_free_after (self, lower_unit_ref (layer->weights, no_unit, i),
                        lower_unit_ref (layer->gathered, no_unit, i));

  g_autoptr (GArray) runs = plan_runs (self, &queue, queues);
  for (guint i = 0; i < runs->len; i++)
    run_backward (self, &g_array_index (runs, LowerRun, i), reduces);
  embedding_backward (self);
  while (queues && queue_is_over (&queue))
    {
      const gint64 popped = queue_pop (&queue);
      release_bucket (self, popped, (LowerUnit){ .loop = -1, .offset = (gint32)popped }, 0);
    }
  if (reduces)
    start_reduction (self, PLAN_BUCKET_EMBEDDING, no_unit);
  while (queues && queue.first < queue.n)
    {
      const gint64 popped = queue_pop (&queue);
      release_bucket (self, popped, (LowerUnit){ .loop = -1, .offset = (gint32)popped }, 0);
    }
  if (queues)
    lower_free_after (self, lower_ref (self->bucket[PLAN_BUCKET_EMBEDDING].bucket),
                      lower_ref (self->bucket[PLAN_BUCKET_EMBEDDING].reduced));
}
