/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of a micro batch, and the reductions that start in it. */
#include "config.h"

#include "planner/lower-emit.h"

#define ONE(array) plan_lower_ref (self->array)

/* A run of units that do the same relative to themselves. */
typedef struct
{
  PlanLowerKeep keep;
  gint32 gather_from, gather_to;   /* units gathered, relative; none where from > to */
  gint32 release_from, release_to; /* units whose gradient bucket is released, relative */
  gboolean releases_head;
  gint64 first, count;
} Run;

/* Gradient buckets whose reduction was started and that nobody has waited for, oldest first. */
typedef struct
{
  gint64 *unit;   /* or HEAD */
  guint first, n; /* in flight: unit[first .. n - 1] */
  guint64 elements;
  gint64 limit; /* start another only once no more than this is in flight */
  guint sets;   /* at most so many live at once; 0: any number */
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
  return self->first < self->n
         && (self->sets > 0 ? self->n - self->first >= self->sets
                            : self->elements > (guint64)self->limit);
}

/* Whether this micro batch fills temporary buckets for the reduction. */
static gboolean
fills_buckets (const PlanLower *self, gboolean is_last)
{
  return self->shards_grads
         || (is_last && self->ranks * self->replicas > 1 && self->grad_comm != self->main_grads);
}

/* Between replicas, once per step. What was accumulated is replaced by the sum, never added to. */
static void
reduce_outer (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanRef after)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 own = plan_lower_own_elements (self, kind);
  const gint64 count = self->shards_grads ? plan_lower_shard_elements (self, kind)
                                          : (gint64)self->layout.buckets[kind].padded;
  const PlanRef grads = plan_lower_unit_ref (b->grads, unit, 0);
  const PlanRef reduced = plan_lower_unit_ref (b->reduced, unit, 0);
  const gboolean in_place = b->outer < 0;
  const PlanRef buffer = in_place ? grads : plan_lower_unit_ref (b->outer, unit, 0);
  const guint64 mine = self->splits_shards ? (guint64)(self->replica * own) : 0;
  const PlanRef record = in_place ? reduced : PLAN_REF_NONE;

  if (!in_place)
    {
      plan_lower_alloc (self, buffer);
      plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, ONE (done));
      plan_lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_OUTER_REDUCE, PLAN_REFS (buffer, grads),
                       PLAN_DIMS (count), PLAN_WAITS (ONE (done), after), PLAN_REF_NONE);
    }
  if (self->splits_shards)
    plan_lower_collective (self, PLAN_OP_REDUCE_SCATTER, PLAN_STREAM_OUTER_REDUCE,
                           self->outer_group, PLAN_REFS (plan_lower_at (buffer, mine), buffer), own,
                           after, record);
  else
    plan_lower_collective (self, PLAN_OP_ALL_REDUCE, PLAN_STREAM_OUTER_REDUCE, self->outer_group,
                           PLAN_REFS (buffer), count, after, record);
  if (!in_place)
    plan_lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_OUTER_REDUCE,
                     PLAN_REFS (plan_lower_at (grads, mine), plan_lower_at (buffer, mine)),
                     PLAN_DIMS (self->splits_shards ? own : count), NULL, reduced);
}

/* Reduces a complete bucket, beside the compute that follows; `reduced` is when its memory is no
 * longer needed, the outer reduction's when there is one. */
static void
reduce_inner (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanRef record)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 full = (gint64)self->layout.buckets[kind].padded;
  const gint64 part = plan_lower_shard_elements (self, kind);
  const guint64 own = self->shards_optimizer ? (guint64)(self->rank * part) : 0;
  const PlanRef grads = plan_lower_unit_ref (b->grads, unit, 0);
  const gboolean in_place = b->bucket < 0;
  const PlanRef bucket = in_place ? grads : plan_lower_bucket_ref (self, kind, unit, 0);
  const PlanRef slice = plan_lower_at (bucket, own), ends = in_place ? record : PLAN_REF_NONE;

  if (!in_place && !self->shards_grads)
    {
      plan_lower_alloc (self, bucket);
      plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (bucket, grads), PLAN_DIMS (full));
    }
  if (self->scales_buckets)
    plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, ONE (done));
  if (self->scales_buckets)
    plan_lower_emit (self, PLAN_OP_SCALE, PLAN_STREAM_REDUCE, PLAN_REFS (bucket), PLAN_DIMS (full),
                     PLAN_WAITS (ONE (done)), PLAN_REF_NONE);
  if (self->shards_optimizer)
    plan_lower_collective (self, PLAN_OP_REDUCE_SCATTER, PLAN_STREAM_REDUCE, self->inner_group,
                           PLAN_REFS (slice, bucket), part, PLAN_REF_NONE, ends);
  else
    plan_lower_collective (self, PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE, self->inner_group,
                           PLAN_REFS (bucket), full, PLAN_REF_NONE, ends);
  if (in_place)
    return;
  /* What was accumulated over micro batches is replaced by the sum, never added to it. */
  plan_lower_emit (self, self->shards_grads ? PLAN_OP_ACCUMULATE : PLAN_OP_CAST, PLAN_STREAM_REDUCE,
                   PLAN_REFS (self->shards_grads ? grads : plan_lower_at (grads, own), slice),
                   PLAN_DIMS (self->shards_optimizer ? part : full), NULL, record);
}

static void
start_reduction (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gboolean is_last)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (!plan_layout_has (&self->layout, kind))
    return;
  self->is_taken[kind] = FALSE;
  if (self->ranks > 1)
    reduce_inner (self, kind, unit, plan_lower_unit_ref (b->reduced, unit, 0));
  if (self->replicas > 1 && is_last)
    reduce_outer (self, kind, unit,
                  self->ranks > 1 ? plan_lower_unit_ref (b->reduced, unit, 0) : PLAN_REF_NONE);
}

static void
start_unit_reduction (PlanLower *self, PlanLowerUnit unit, gboolean is_last)
{
  start_reduction (self, PLAN_BUCKET_LAYER, unit, is_last);
  start_reduction (self, PLAN_BUCKET_PLAIN, unit, is_last);
}

static void
release_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint32 delta,
                gboolean is_last)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (!plan_layout_has (&self->layout, kind))
    return;
  plan_lower_wait (self, plan_lower_unit_ref (b->reduced, unit, delta));
  if (!(b->is_unit && self->pools && self->shards_grads) && b->bucket >= 0)
    plan_lower_free (self, plan_lower_bucket_ref (self, kind, unit, delta));
  if (is_last && b->outer >= 0)
    plan_lower_free (self, plan_lower_unit_ref (b->outer, unit, delta));
}

static void
release (PlanLower *self, gint64 index, PlanLowerUnit unit, gint32 delta, gboolean is_last)
{
  if (index == HEAD)
    release_bucket (self, PLAN_BUCKET_HEAD, PLAN_NO_UNIT, 0, is_last);
  else
    {
      release_bucket (self, PLAN_BUCKET_LAYER, unit, delta, is_last);
      release_bucket (self, PLAN_BUCKET_PLAIN, unit, delta, is_last);
    }
}

/* The two products behind dlogits; leaves the gradient of the final norm in dnorm_final. */
static void
output_backward (PlanLower *self)
{
  const PlanModel *m = self->model;
  const PlanNetwork *net = &self->net;
  const gboolean tied = m->tied_embeddings, splits = net->split_rows < net->rows;
  const PlanTensorRole role = tied ? PLAN_TENSOR_EMBEDDING : PLAN_TENSOR_OUTPUT;
  const PlanRef dnorm = splits ? ONE (dnorm_full) : ONE (dnorm_final);
  const PlanRef in = splits ? ONE (norm_final_full) : ONE (norm_final);

  plan_lower_alloc (self, dnorm);
  plan_lower_compute (
      self, PLAN_OP_GEMM,
      PLAN_REFS (dnorm, ONE (dlogits), plan_lower_weight (self, role, PLAN_NO_UNIT), PLAN_REF_NONE),
      PLAN_DIMS (net->rows, m->hidden, net->vocab, 0));
  if (splits)
    {
      plan_lower_alloc (self, in);
      plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (in, ONE (norm_final)),
                           net->split_rows * m->hidden);
    }
  plan_lower_weight_gradient (self, role, PLAN_NO_UNIT, ONE (dlogits), in, net->rows, net->vocab,
                              m->hidden, 2);
  plan_lower_free (self, ONE (dlogits));
  plan_lower_free (self, ONE (norm_final));
  if (splits)
    {
      plan_lower_free (self, in);
      plan_lower_alloc (self, ONE (dnorm_final));
      plan_lower_exchange (self, PLAN_OP_REDUCE_SCATTER, PLAN_REFS (ONE (dnorm_final), dnorm),
                           net->split_rows * m->hidden);
      plan_lower_free (self, dnorm);
    }
  else if (self->tensor_group >= 0)
    plan_lower_exchange (self, PLAN_OP_ALL_REDUCE, PLAN_REFS (dnorm), net->rows * m->hidden);
}

static void
head_backward (PlanLower *self)
{
  const PlanModel *m = self->model;
  const PlanNetwork *net = &self->net;
  const gint32 last = (gint32)m->layers;
  const PlanRef x = plan_lower_unit_ref (self->value[PLAN_VALUE_X], PLAN_NO_UNIT, last);
  const PlanRef dx = plan_lower_unit_ref (self->grad_sum[PLAN_VALUE_X], PLAN_NO_UNIT, last);

  plan_lower_alloc (self, ONE (dlogits));
  plan_lower_compute (self, PLAN_OP_CROSS_ENTROPY_BWD,
                      PLAN_REFS (ONE (dlogits), ONE (prob), ONE (targets)),
                      PLAN_DIMS (net->rows, net->vocab));
  plan_lower_free (self, ONE (prob));
  if (m->logit_softcap > 0)
    {
      plan_lower_compute (self, PLAN_OP_SOFTCAP_BWD, PLAN_REFS (ONE (dlogits), ONE (logits)),
                          PLAN_DIMS (net->rows * net->vocab));
      plan_lower_free (self, ONE (logits));
    }
  output_backward (self);
  plan_lower_alloc (self, dx);
  plan_lower_norm_backward (self, dx, ONE (dnorm_final), x, ONE (stats_final),
                            PLAN_TENSOR_FINAL_NORM, self->final_norm_bias, PLAN_NO_UNIT,
                            net->split_rows);
  plan_lower_free (self, ONE (dnorm_final));
  plan_lower_free (self, ONE (stats_final));
  plan_lower_free (self, x);
}

static void
embedding_backward (PlanLower *self)
{
  const PlanModel *m = self->model;
  const PlanNetwork *net = &self->net;
  const gboolean splits = net->split_rows < net->rows;
  const PlanRef dx = plan_lower_ref (self->grad_sum[PLAN_VALUE_X]),
                dout = splits ? ONE (embedded) : dx;
  if (m->positions == PLAN_POSITIONS_LEARNED)
    {
      plan_lower_compute (
          self, PLAN_OP_POSITIONS_BWD,
          PLAN_REFS (plan_lower_raw_gradient (self, PLAN_TENSOR_POSITIONS, PLAN_NO_UNIT), dx),
          PLAN_DIMS (
              net->split_rows, m->hidden,
              MIN (self->plan->value[PLAN_SEQ] / self->plan->value[PLAN_CP], net->split_rows)));
      plan_lower_put_gradient (self, PLAN_TENSOR_POSITIONS, PLAN_NO_UNIT, FALSE);
    }
  if (m->embed_scale)
    plan_lower_compute (self, PLAN_OP_SCALE, PLAN_REFS (dx),
                        PLAN_DIMS (net->split_rows * m->hidden));
  if (splits)
    {
      plan_lower_alloc (self, dout);
      plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (dout, dx),
                           net->split_rows * m->hidden);
      plan_lower_free (self, dx);
    }
  plan_lower_compute (
      self, PLAN_OP_EMBED_BWD,
      PLAN_REFS (plan_lower_raw_gradient (self, PLAN_TENSOR_EMBEDDING, PLAN_NO_UNIT), dout,
                 ONE (tokens)),
      PLAN_DIMS (net->rows, m->hidden, net->vocab));
  plan_lower_free (self, dout);
  plan_lower_put_gradient (self, PLAN_TENSOR_EMBEDDING, PLAN_NO_UNIT, m->tied_embeddings);
}

static gboolean
alike (const Run *a, const Run *b)
{
  return a->keep.again == b->keep.again && a->keep.drops_input == b->keep.drops_input
         && a->gather_from == b->gather_from && a->gather_to == b->gather_to
         && a->release_from == b->release_from && a->release_to == b->release_to
         && a->releases_head == b->releases_head;
}

/* What each unit gathers and releases, relative to itself; equal neighbours make one run. */
static GArray *
plan_runs (const PlanLower *self, Queue *queue, gboolean queues)
{
  GArray *runs = g_array_new (FALSE, FALSE, sizeof (Run));
  const gint64 layers = self->model->layers;
  for (gint64 u = layers - 1; u >= 0; u--)
    {
      Run run = {
        .keep = plan_lower_keep (self, u), .gather_to = -1, .release_to = -1, .first = u, .count = 1
      };
      if (self->shards_weights && u == layers - 1)
        run.gather_to = (gint32)MIN (self->ahead, u);
      else if (self->shards_weights && u >= self->ahead)
        run.gather_from = run.gather_to = (gint32)self->ahead;
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
      Run *last = runs->len ? &g_array_index (runs, Run, runs->len - 1) : NULL;
      if (last && alike (last, &run))
        last->count++;
      else
        g_array_append_val (runs, run);
    }
  return runs;
}

static void
release_due (PlanLower *self, const Run *run, PlanLowerUnit unit, gboolean is_last)
{
  if (run->releases_head)
    release (self, HEAD, unit, 0, is_last);
  for (gint32 i = run->release_from; i >= run->release_to && run->release_to > 0; i--)
    release (self, 0, unit, i, is_last);
}

static void
await_backward (PlanLower *self, PlanLowerUnit unit)
{
  const PlanLowerBucket *layer = &self->bucket[PLAN_BUCKET_LAYER];
  if (!self->shards_weights)
    return;
  plan_lower_wait (
      self, plan_lower_unit_ref (layer->columns >= 0 ? layer->columns_gathered : layer->gathered,
                                 unit, 0));
  if (plan_layout_has (&self->layout, PLAN_BUCKET_PLAIN))
    plan_lower_wait (self, plan_lower_unit_ref (self->bucket[PLAN_BUCKET_PLAIN].gathered, unit, 0));
}

/* What is computed again reads the rows, which the backward pass did not ask for: nothing hides
 * this gather. */
static void
gather_rows (PlanLower *self, PlanLowerUnit unit)
{
  plan_lower_gather_bucket (self, PLAN_BUCKET_LAYER, unit, 0, FALSE);
  plan_lower_wait (self, plan_lower_unit_ref (self->bucket[PLAN_BUCKET_LAYER].gathered, unit, 0));
}

static void
run_backward (PlanLower *self, const Run *run, gboolean reduces, gboolean is_last)
{
  /* A pool's buffer must be free before it is filled, a queue only before more is sent. */
  const gboolean early = self->pools && self->shards_grads;
  const PlanLowerUnit unit = plan_lower_begin_units (self, run->first, run->count, -1);
  for (gint32 i = run->gather_from; i <= run->gather_to; i++)
    plan_lower_gather (self, unit, -i, TRUE);
  await_backward (self, unit);
  const gboolean needs_rows = self->gathers_columns && self->shards_weights && run->keep.again != 0;
  if (needs_rows)
    gather_rows (self, unit);
  if (reduces && early)
    release_due (self, run, unit, is_last);
  plan_lower_layer_backward (self, unit, run->keep);
  if (needs_rows && !self->pools)
    plan_lower_free (self, plan_lower_weights_ref (self, PLAN_BUCKET_LAYER, unit, 0, FALSE));
  if (self->shards_weights)
    plan_lower_release (self, unit, 0, TRUE);
  if (reduces)
    {
      if (!early)
        release_due (self, run, unit, is_last);
      start_unit_reduction (self, unit, is_last);
    }
  plan_lower_end_units (self, unit);
}

static void
drain (PlanLower *self, Queue *queue, gboolean whole, gboolean is_last)
{
  while (whole ? queue->first < queue->n : queue_is_over (queue))
    {
      const gint64 popped = queue_pop (queue);
      release (self, popped, (PlanLowerUnit){ .loop = -1, .offset = (gint32)popped }, 0, is_last);
    }
}

/* All gradients of the head's bucket are there. */
static void
finish_head (PlanLower *self, Queue *queue, gboolean reduces, gboolean queues, gboolean is_last)
{
  if (reduces)
    start_reduction (self, PLAN_BUCKET_HEAD, PLAN_NO_UNIT, is_last);
  if (queues && plan_layout_has (&self->layout, PLAN_BUCKET_HEAD))
    queue_push (queue, HEAD);
}

void
plan_lower_backward (PlanLower *self, gboolean is_last)
{
  const PlanLayout *layout = &self->layout;
  const gboolean queues = fills_buckets (self, is_last);
  const gboolean reduces
      = (self->ranks > 1 && (self->shards_grads || is_last)) || (self->replicas > 1 && is_last);
  g_autofree gint64 *in_flight = g_new (gint64, self->model->layers + 2);
  Queue queue
      = { .unit = in_flight,
          .limit = self->comm_unit,
          .sets = self->pools && self->shards_grads ? (guint)self->stack->pooled_grad_units : 0,
          .head_elements = layout->buckets[PLAN_BUCKET_HEAD].padded,
          .unit_elements
          = layout->buckets[PLAN_BUCKET_LAYER].padded + layout->buckets[PLAN_BUCKET_PLAIN].padded };

  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    self->is_taken[kind] = FALSE;
  head_backward (self);
  if (!self->head_holds_positions)
    finish_head (self, &queue, reduces, queues, is_last);
  /* What the output layer's hook gathered for nothing goes when the next gather is due. */
  for (gint32 i = 0; i < self->ahead_of_head; i++)
    {
      plan_lower_await_unit (self, PLAN_NO_UNIT, i);
      plan_lower_release (self, PLAN_NO_UNIT, i, FALSE);
    }
  g_autoptr (GArray) runs = plan_runs (self, &queue, queues);
  for (guint i = 0; i < runs->len; i++)
    run_backward (self, &g_array_index (runs, Run, i), reduces, is_last);
  embedding_backward (self);
  drain (self, &queue, FALSE, is_last);
  if (self->head_holds_positions)
    finish_head (self, &queue, reduces, queues, is_last);
  if (reduces)
    start_reduction (self, PLAN_BUCKET_EMBEDDING, PLAN_NO_UNIT, is_last);
  drain (self, &queue, TRUE, is_last);
  if (reduces)
    release_bucket (self, PLAN_BUCKET_EMBEDDING, PLAN_NO_UNIT, 0, is_last);
}
