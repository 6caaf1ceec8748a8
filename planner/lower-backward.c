/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower-private.h"

#define UNIT(array) plan_lower_unit_ref (self->array, unit, 0)
#define ONE(array) plan_lower_ref (self->array)

static const PlanLowerUnit no_unit = { .loop = -1 };

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
fills_buckets (const PlanLower *self, gboolean is_last)
{
  return self->shards_grads || (is_last && self->ranks > 1 && self->grad_comm != self->main_grads);
}

/* Padding is reduced with the rest: it must be zero. */
static void
zero_gaps (PlanLower *self, PlanBucketKind kind, PlanRef bucket)
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
        plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (plan_lower_at (bucket, cursor)),
                            PLAN_DIMS ((gint64)(next - cursor)));
      cursor = end;
    }
}

/* The first gradient of a unit takes the whole bucket. */
static void
take_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  if (!self->shards_grads)
    return;
  const PlanRef bucket = plan_lower_unit_ref (self->bucket[kind].bucket, unit, 0);
  plan_lower_alloc (self, bucket);
  zero_gaps (self, kind, bucket);
}

/* Sharded gradients are copied into the bucket, others added up where they stay. `adds`: the
 * bucket holds a share of this gradient already. */
static void
put_gradient (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanTensorRole role,
              PlanRef raw, gboolean adds)
{
  const PlanSlot *slot = plan_layout_slot (&self->layout, role);
  const gint32 array = self->shards_grads ? self->bucket[kind].bucket : self->bucket[kind].grads;
  plan_lower_emit (
      self, self->shards_grads && !adds ? PLAN_OP_CAST : PLAN_OP_ACCUMULATE, PLAN_STREAM_COMPUTE,
      PLAN_REFS (plan_lower_at (plan_lower_unit_ref (array, unit, 0), slot->offset), raw),
      PLAN_DIMS ((gint64)(slot->tensor.rows * slot->tensor.cols)), NULL, ONE (done));
  plan_lower_free (self, raw);
}

/* din = dout * weight, then dweight = dout^T * in; `in` is done with. */
static void
linear_backward (PlanLower *self, PlanLowerUnit unit, PlanTensorRole role, PlanRef din,
                 PlanRef dout, PlanRef in, gint64 cols, gint64 depth, const PlanRef *waits)
{
  const PlanRef raw = plan_lower_ref (self->raw[role]);
  plan_lower_alloc (self, din);
  plan_lower_emit (self, PLAN_OP_GEMM, PLAN_STREAM_COMPUTE,
                   PLAN_REFS (din, dout, plan_lower_weight (self, role, unit)),
                   PLAN_DIMS (self->rows, depth, cols, 0), waits, PLAN_REF_NONE);
  plan_lower_alloc (self, raw);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (raw, dout, in),
                      PLAN_DIMS (cols, depth, self->rows, 2));
  put_gradient (self, PLAN_BUCKET_LAYER, unit, role, raw, FALSE);
  plan_lower_free (self, in);
}

/* Of dnorm, the gradient of a norm's output; leaves the gradient of its input in `din`. */
static void
norm_backward (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanTensorRole role,
               PlanRef din, PlanRef in, PlanRef rstd)
{
  const PlanRef raw = plan_lower_ref (self->raw[role]);
  plan_lower_alloc (self, din);
  plan_lower_alloc (self, raw);
  plan_lower_compute (
      self, PLAN_OP_RMSNORM_BWD,
      PLAN_REFS (din, raw, ONE (dnorm), in, plan_lower_weight (self, role, unit), rstd),
      PLAN_DIMS (self->rows, self->model->hidden));
  put_gradient (self, kind, unit, role, raw, FALSE);
  plan_lower_free (self, ONE (dnorm));
  plan_lower_free (self, rstd);
  plan_lower_free (self, in);
}

static void
mlp_backward (PlanLower *self, PlanLowerUnit unit)
{
  const PlanModel *m = self->model;
  const PlanRef dout = plan_lower_unit_ref (self->dx, unit, 1);
  const PlanRef gathered = plan_lower_unit_ref (self->bucket[PLAN_BUCKET_LAYER].gathered, unit, 0);
  linear_backward (self, unit, PLAN_TENSOR_DOWN, ONE (dact), dout, UNIT (act), m->hidden, m->ffn,
                   self->shards_weights ? PLAN_WAITS (gathered) : NULL);
  plan_lower_alloc (self, ONE (dgate_up));
  plan_lower_compute (self, PLAN_OP_SWIGLU_BWD,
                      PLAN_REFS (ONE (dgate_up), ONE (dact), UNIT (gate_up)),
                      PLAN_DIMS (self->rows, m->ffn));
  plan_lower_free (self, ONE (dact));
  plan_lower_free (self, UNIT (gate_up));
  linear_backward (self, unit, PLAN_TENSOR_GATE_UP, ONE (dnorm), ONE (dgate_up), UNIT (norm2),
                   2 * m->ffn, m->hidden, NULL);
  plan_lower_free (self, ONE (dgate_up));
  norm_backward (self, PLAN_BUCKET_LAYER, unit, PLAN_TENSOR_MLP_NORM, ONE (dbranch), UNIT (hidden2),
                 UNIT (rstd2));
  plan_lower_alloc (self, ONE (dhidden));
  plan_lower_compute (self, PLAN_OP_ADD, PLAN_REFS (ONE (dhidden), dout, ONE (dbranch)),
                      PLAN_DIMS (self->rows * m->hidden));
  plan_lower_free (self, ONE (dbranch));
  plan_lower_free (self, dout);
}

static void
attention_backward (PlanLower *self, PlanLowerUnit unit)
{
  const PlanModel *m = self->model;
  const gint64 seq = self->plan->value[PLAN_SEQ], batch = self->plan->value[PLAN_MBS];
  const PlanRef raw = plan_lower_ref (self->raw[PLAN_TENSOR_PROJ]);

  /* As linear_backward, but attention itself still needs its output. */
  plan_lower_alloc (self, ONE (dattn));
  plan_lower_compute (
      self, PLAN_OP_GEMM,
      PLAN_REFS (ONE (dattn), ONE (dhidden), plan_lower_weight (self, PLAN_TENSOR_PROJ, unit)),
      PLAN_DIMS (self->rows, self->attention_cols, m->hidden, 0));
  plan_lower_alloc (self, raw);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (raw, ONE (dhidden), UNIT (attn)),
                      PLAN_DIMS (m->hidden, self->attention_cols, self->rows, 2));
  put_gradient (self, PLAN_BUCKET_LAYER, unit, PLAN_TENSOR_PROJ, raw, FALSE);
  if (self->attention_work >= 0)
    plan_lower_alloc (self, ONE (attention_work));
  plan_lower_alloc (self, ONE (dqkv));
  plan_lower_compute (self, PLAN_OP_ATTENTION_BWD,
                      PLAN_REFS (ONE (dqkv), ONE (dattn), UNIT (attn), UNIT (lse), UNIT (qkv)),
                      PLAN_DIMS (batch, seq, m->heads, m->kv_heads, m->head_dim));
  if (self->attention_work >= 0)
    plan_lower_free (self, ONE (attention_work));
  plan_lower_free (self, ONE (dattn));
  plan_lower_free (self, UNIT (attn));
  plan_lower_free (self, UNIT (lse));
  plan_lower_free (self, UNIT (qkv));
  plan_lower_compute (self, PLAN_OP_ROPE, PLAN_REFS (ONE (dqkv)),
                      PLAN_DIMS (self->rows, seq, m->heads, m->kv_heads, m->head_dim, 1));
  linear_backward (self, unit, PLAN_TENSOR_QKV, ONE (dnorm), ONE (dqkv), UNIT (norm1),
                   self->qkv_cols, m->hidden, NULL);
  plan_lower_free (self, ONE (dqkv));
}

static void
layer_backward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep)
{
  const PlanLowerBucket *b = &self->bucket[PLAN_BUCKET_LAYER];
  plan_lower_recompute (self, unit, keep,
                        self->shards_weights ? plan_lower_unit_ref (b->gathered, unit, 0)
                                             : PLAN_REF_NONE);
  take_bucket (self, PLAN_BUCKET_LAYER, unit);
  mlp_backward (self, unit);
  attention_backward (self, unit);
  norm_backward (self, PLAN_BUCKET_LAYER, unit, PLAN_TENSOR_ATTENTION_NORM, ONE (dbranch), UNIT (x),
                 UNIT (rstd1));
  plan_lower_alloc (self, UNIT (dx));
  plan_lower_emit (self, PLAN_OP_ADD, PLAN_STREAM_COMPUTE,
                   PLAN_REFS (UNIT (dx), ONE (dhidden), ONE (dbranch)),
                   PLAN_DIMS (self->rows * self->model->hidden), NULL, ONE (done));
  plan_lower_free (self, ONE (dbranch));
  plan_lower_free (self, ONE (dhidden));
  if (self->shards_weights)
    plan_lower_free (self, plan_lower_unit_ref (b->weights, unit, 0));
}

/* Reduces a complete bucket, beside the compute that follows. */
static void
start_reduction (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 full = (gint64)self->layout.buckets[kind].padded;
  const gint64 part = plan_lower_shard_elements (self, kind);
  const guint64 own = self->layout.shards > 1 ? (guint64)(self->rank * part) : 0;
  const PlanRef grads = plan_lower_unit_ref (b->grads, unit, 0);
  const PlanRef reduced = plan_lower_unit_ref (b->reduced, unit, 0);
  const gboolean in_place = b->bucket < 0;
  const PlanRef bucket = in_place ? grads : plan_lower_unit_ref (b->bucket, unit, 0);
  const PlanRef slice = plan_lower_at (bucket, own);

  if (!in_place && !self->shards_grads)
    {
      plan_lower_alloc (self, bucket);
      plan_lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_COMPUTE, PLAN_REFS (bucket, grads),
                       PLAN_DIMS (full), NULL, ONE (done));
    }
  if (self->shards_optimizer)
    plan_lower_emit (self, PLAN_OP_REDUCE_SCATTER, PLAN_STREAM_REDUCE, PLAN_REFS (slice, bucket),
                     PLAN_DIMS (part), PLAN_WAITS (ONE (done)), in_place ? reduced : PLAN_REF_NONE);
  else
    plan_lower_emit (self, PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE, PLAN_REFS (bucket),
                     PLAN_DIMS (full), PLAN_WAITS (ONE (done)), in_place ? reduced : PLAN_REF_NONE);
  if (in_place)
    return;
  /* What was accumulated over micro batches is replaced by the sum, never added to it. */
  plan_lower_emit (self, self->shards_grads ? PLAN_OP_ACCUMULATE : PLAN_OP_CAST, PLAN_STREAM_REDUCE,
                   PLAN_REFS (self->shards_grads ? grads : plan_lower_at (grads, own), slice),
                   PLAN_DIMS (self->shards_optimizer ? part : full), NULL, reduced);
}

static void
release_bucket (PlanLower *self, gint64 index, PlanLowerUnit unit, gint32 delta)
{
  const PlanLowerBucket *b = &self->bucket[index == HEAD ? PLAN_BUCKET_HEAD : PLAN_BUCKET_LAYER];
  const PlanLowerUnit where = index == HEAD ? no_unit : unit;
  plan_lower_free_after (self, plan_lower_unit_ref (b->bucket, where, index == HEAD ? 0 : delta),
                         plan_lower_unit_ref (b->reduced, where, index == HEAD ? 0 : delta));
}

static void
head_backward (PlanLower *self)
{
  const PlanModel *m = self->model;
  const PlanLowerUnit last = { .loop = -1, .offset = (gint32)m->layers };
  const gboolean tied = m->tied_embeddings;
  const PlanTensorRole role = tied ? PLAN_TENSOR_EMBEDDING : PLAN_TENSOR_OUTPUT;
  const PlanRef raw = plan_lower_ref (self->raw[PLAN_TENSOR_OUTPUT]);

  plan_lower_alloc (self, ONE (dlogits));
  plan_lower_compute (self, PLAN_OP_CROSS_ENTROPY_BWD,
                      PLAN_REFS (ONE (dlogits), ONE (prob), ONE (targets)),
                      PLAN_DIMS (self->rows, self->vocab));
  plan_lower_free (self, ONE (prob));
  take_bucket (self, PLAN_BUCKET_HEAD, no_unit);
  if (tied)
    take_bucket (self, PLAN_BUCKET_EMBEDDING, no_unit);
  plan_lower_alloc (self, ONE (dnorm));
  plan_lower_compute (
      self, PLAN_OP_GEMM,
      PLAN_REFS (ONE (dnorm), ONE (dlogits), plan_lower_weight (self, role, no_unit)),
      PLAN_DIMS (self->rows, m->hidden, self->vocab, 0));
  plan_lower_alloc (self, raw);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (raw, ONE (dlogits), ONE (norm_final)),
                      PLAN_DIMS (self->vocab, m->hidden, self->rows, 2));
  put_gradient (self, tied ? PLAN_BUCKET_EMBEDDING : PLAN_BUCKET_HEAD, no_unit, role, raw, FALSE);
  plan_lower_free (self, ONE (dlogits));
  plan_lower_free (self, ONE (norm_final));
  norm_backward (self, PLAN_BUCKET_HEAD, no_unit, PLAN_TENSOR_FINAL_NORM,
                 plan_lower_unit_ref (self->dx, last, 0), plan_lower_unit_ref (self->x, last, 0),
                 ONE (rstd_final));
}

static void
embedding_backward (PlanLower *self)
{
  const gboolean tied = self->model->tied_embeddings;
  const PlanRef raw = plan_lower_ref (self->raw[PLAN_TENSOR_EMBEDDING]);
  if (!tied)
    take_bucket (self, PLAN_BUCKET_EMBEDDING, no_unit);
  plan_lower_alloc (self, raw);
  plan_lower_compute (self, PLAN_OP_EMBED_BWD,
                      PLAN_REFS (raw, plan_lower_ref (self->dx), ONE (tokens)),
                      PLAN_DIMS (self->rows, self->model->hidden, self->vocab));
  plan_lower_free (self, plan_lower_ref (self->dx));
  put_gradient (self, PLAN_BUCKET_EMBEDDING, no_unit, PLAN_TENSOR_EMBEDDING, raw, tied);
}

/* What each unit gathers and releases, relative to itself; equal neighbours make one run. */
static GArray *
plan_runs (const PlanLower *self, Queue *queue, gboolean queues)
{
  GArray *runs = g_array_new (FALSE, FALSE, sizeof (PlanLowerRun));
  const gint64 layers = self->model->layers;
  for (gint64 u = layers - 1; u >= 0; u--)
    {
      PlanLowerRun run = { .keep = plan_lower_keep (self, u),
                           .gather_from = 0,
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
      PlanLowerRun *last = runs->len ? &g_array_index (runs, PlanLowerRun, runs->len - 1) : NULL;
      if (last && last->keep == run.keep && last->gather_from == run.gather_from
          && last->gather_to == run.gather_to && last->release_from == run.release_from
          && last->release_to == run.release_to && last->releases_head == run.releases_head)
        last->count++;
      else
        g_array_append_val (runs, run);
    }
  return runs;
}

static void
run_backward (PlanLower *self, const PlanLowerRun *run, gboolean reduces)
{
  const PlanLowerUnit unit = plan_lower_begin_units (self, run->first, run->count, -1);
  for (gint32 i = run->gather_from; i <= run->gather_to; i++)
    plan_lower_gather (self, unit, -i);
  layer_backward (self, unit, run->keep);
  if (reduces)
    {
      if (run->releases_head)
        release_bucket (self, HEAD, unit, 0);
      for (gint32 i = run->release_from; i >= run->release_to && run->release_to > 0; i--)
        release_bucket (self, 0, unit, i);
      start_reduction (self, PLAN_BUCKET_LAYER, unit);
    }
  plan_lower_end_units (self, unit);
}

void
plan_lower_backward (PlanLower *self, gboolean is_last)
{
  const PlanLowerBucket *layer = &self->bucket[PLAN_BUCKET_LAYER];
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
      plan_lower_free_after (self, plan_lower_unit_ref (layer->weights, no_unit, i),
                             plan_lower_unit_ref (layer->gathered, no_unit, i));

  g_autoptr (GArray) runs = plan_runs (self, &queue, queues);
  for (guint i = 0; i < runs->len; i++)
    run_backward (self, &g_array_index (runs, PlanLowerRun, i), reduces);
  embedding_backward (self);
  while (queues && queue_is_over (&queue))
    {
      const gint64 popped = queue_pop (&queue);
      release_bucket (self, popped, (PlanLowerUnit){ .loop = -1, .offset = (gint32)popped }, 0);
    }
  if (reduces)
    start_reduction (self, PLAN_BUCKET_EMBEDDING, no_unit);
  while (queues && queue.first < queue.n)
    {
      const gint64 popped = queue_pop (&queue);
      release_bucket (self, popped, (PlanLowerUnit){ .loop = -1, .offset = (gint32)popped }, 0);
    }
  if (queues)
    plan_lower_free_after (self, plan_lower_ref (self->bucket[PLAN_BUCKET_EMBEDDING].bucket),
                           plan_lower_ref (self->bucket[PLAN_BUCKET_EMBEDDING].reduced));
}
