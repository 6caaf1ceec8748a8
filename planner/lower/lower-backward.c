/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of a micro batch, and the reductions that start in it. */
#include "config.h"

#include "planner/lower/lower-acts.h"
#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-combined.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
#include "planner/lower/lower-loss.h"
#include "planner/lower/lower-offload.h"
#include "planner/lower/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

/* Whether this micro batch reduces out of buffers that are allocated for the reduction alone. */
static gboolean
fills_buckets (const PlanLower *self, gboolean is_last)
{
  const gboolean takes_more = self->dtype.grad_comm != self->dtype.main_grads
                              || plan_lower_any_bucket (self)->received >= 0
                              || self->bucket[PLAN_BUCKET_EXPERTS].received >= 0;
  return self->policy.shards_grads
         || (is_last && self->place.most_ranks * self->place.replicas > 1 && takes_more);
}

/* Reduces a bucket between replicas, once per step. The sum replaces the accumulated gradients; it
 * is not added to them. */
static void
reduce_outer (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanRef after)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 own = plan_lower_own_elements (self, kind);
  const gint64 count = b->shards_grads ? plan_lower_shard_elements (self, kind)
                                       : (gint64)self->layout.buckets[kind].padded;
  const PlanRef grads = plan_lower_unit_ref (b->grads, unit, 0);
  const PlanRef reduced = plan_lower_unit_ref (b->reduced, unit, 0);
  const gboolean in_place = b->outer < 0;
  const PlanRef buffer = in_place ? grads : plan_lower_unit_ref (b->outer, unit, 0);
  const guint64 mine = self->policy.splits_shards ? (guint64)(self->place.replica * own) : 0;
  const PlanRef record = in_place ? reduced : PLAN_REF_NONE;

  if (!in_place)
    {
      plan_lower_alloc (self, buffer);
      plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, ONE (event.done));
      plan_lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_OUTER_REDUCE, PLAN_REFS (buffer, grads),
                       PLAN_DIMS (count), PLAN_WAITS (ONE (event.done), after), PLAN_REF_NONE);
    }
  if (self->policy.splits_shards)
    plan_lower_collective (self, PLAN_OP_REDUCE_SCATTER, PLAN_STREAM_OUTER_REDUCE, self->comm.outer,
                           PLAN_REFS (plan_lower_at (buffer, mine), buffer), own, after, record);
  else
    plan_lower_collective (self, PLAN_OP_ALL_REDUCE, PLAN_STREAM_OUTER_REDUCE, self->comm.outer,
                           PLAN_REFS (buffer), count, after, record);
  if (!in_place)
    plan_lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_OUTER_REDUCE,
                     PLAN_REFS (plan_lower_at (grads, mine), plan_lower_at (buffer, mine)),
                     PLAN_DIMS (self->policy.splits_shards ? own : count), NULL, reduced);
}

/* Reduces by all-to-all: each rank receives its own part of all ranks' gradients, and sums them
 * itself. */
static void
sum_received (PlanLower *self, const PlanLowerBucket *b, PlanRef received, PlanRef bucket,
              PlanRef slice, gint64 part, PlanRef record)
{
  plan_lower_alloc (self, received);
  plan_lower_collective (self, PLAN_OP_ALL_TO_ALL, PLAN_STREAM_REDUCE, b->inner_group,
                         PLAN_REFS (received, bucket), part, PLAN_REF_NONE, PLAN_REF_NONE);
  plan_lower_emit (self, PLAN_OP_SUM_PARTS, PLAN_STREAM_REDUCE, PLAN_REFS (slice, received),
                   PLAN_DIMS (part, b->ranks), NULL, record);
}

/* The part of a bucket that receives this rank's part of the sum, or the whole sum. */
static PlanRef
reduced_slice (const PlanLower *self, PlanBucketKind kind, PlanRef bucket)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 part = plan_lower_shard_elements (self, kind);
  return plan_lower_at (bucket, b->sums_whole ? 0 : (guint64)(b->rank * part));
}

/* Reduces a complete bucket within the group that shards it, beside the compute that follows. */
static void
reduce_inner (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 full = (gint64)self->layout.buckets[kind].padded;
  const gint64 part = plan_lower_shard_elements (self, kind);
  const PlanRef grads = plan_lower_unit_ref (b->grads, unit, 0);
  const gboolean in_place = b->bucket < 0;
  const PlanRef bucket = in_place ? grads : plan_lower_bucket_ref (self, kind, unit, 0);
  const PlanRef slice = reduced_slice (self, kind, bucket);
  const PlanRef ends = in_place ? plan_lower_unit_ref (b->reduced, unit, 0) : PLAN_REF_NONE;

  if (!in_place && !b->shards_grads)
    {
      plan_lower_alloc (self, bucket);
      plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (bucket, grads), PLAN_DIMS (full));
    }
  if (self->policy.scales_buckets)
    plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, ONE (event.done));
  if (self->policy.scales_buckets)
    plan_lower_emit (self, PLAN_OP_SCALE, PLAN_STREAM_REDUCE, PLAN_REFS (bucket), PLAN_DIMS (full),
                     PLAN_WAITS (ONE (event.done)), PLAN_REF_NONE);
  if (b->received >= 0)
    sum_received (self, b, plan_lower_unit_ref (b->received, unit, 0), bucket, slice, part, ends);
  else if (!b->sums_whole)
    plan_lower_collective (self, PLAN_OP_REDUCE_SCATTER, PLAN_STREAM_REDUCE, b->inner_group,
                           PLAN_REFS (slice, bucket), part, PLAN_REF_NONE, ends);
  else
    plan_lower_collective (self, PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE, b->inner_group,
                           PLAN_REFS (bucket), full, PLAN_REF_NONE, ends);
}

/* Whether this micro batch leaves the bucket's gradients whole, to be reduced with later ones. */
static gboolean
waits_for_last (const PlanLower *self, PlanBucketKind kind)
{
  return self->bucket[kind].kept >= 0 && !plan_lower_reduces_kept (self);
}

/* Whether this is the first reduction of a step. */
static gboolean
reduces_first (const PlanLower *self, PlanBucketKind kind)
{
  return self->now.is_first_micro_batch || self->bucket[kind].kept >= 0;
}

/* Moves a sum to where gradients accumulate, and records `reduced`: from then on the bucket may be
 * freed. If replicas are reduced next, their reduction records it again. */
static void
land_reduced (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const PlanRef grads = plan_lower_unit_ref (b->grads, unit, 0);
  if (b->ranks == 1 || b->bucket < 0 || waits_for_last (self, kind))
    return;
  /* Whole gradients have been accumulated over micro batches already, so the sum replaces them. */
  const gboolean adds = b->shards_grads && !(self->policy.collects && reduces_first (self, kind));
  plan_lower_emit (
      self, adds ? PLAN_OP_ACCUMULATE : PLAN_OP_CAST, PLAN_STREAM_REDUCE,
      PLAN_REFS (b->shards_grads ? grads : reduced_slice (self, kind, grads),
                 reduced_slice (self, kind, plan_lower_bucket_ref (self, kind, unit, 0))),
      PLAN_DIMS (b->sums_whole ? (gint64)self->layout.buckets[kind].padded
                               : plan_lower_shard_elements (self, kind)),
      NULL, plan_lower_unit_ref (b->reduced, unit, 0));
}

static void
send_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  /* Cut by size, buckets of this kind are still being filled by other layers. */
  if (!self->layout.by_size)
    self->is_taken[kind] = FALSE;
  if (self->policy.collects && b->shards_grads)
    plan_lower_collect (self, kind, unit);
  if (waits_for_last (self, kind))
    return;
  if (self->policy.collects && b->shards_grads && reduces_first (self, kind))
    plan_lower_alloc (self, plan_lower_unit_ref (b->grads, unit, 0));
  if (b->ranks > 1)
    reduce_inner (self, kind, unit);
}

/* Starts the reductions of a unit's buckets of the kinds from `first` up to `end`. All collectives
 * are issued before any sum is moved, so that none of them waits for a move. */
static void
start_reductions (PlanLower *self, PlanBucketKind first, PlanBucketKind end, PlanLowerUnit unit,
                  gboolean is_last)
{
  for (PlanBucketKind kind = first; kind < end; kind++)
    if (plan_lower_holds (self, kind, unit, 0))
      send_gradients (self, kind, unit);
  for (PlanBucketKind kind = first; kind < end; kind++)
    if (plan_lower_holds (self, kind, unit, 0))
      land_reduced (self, kind, unit);
  for (PlanBucketKind kind = first; kind < end && self->place.replicas > 1 && is_last; kind++)
    if (plan_lower_holds (self, kind, unit, 0))
      reduce_outer (self, kind, unit,
                    self->bucket[kind].ranks > 1
                        ? plan_lower_unit_ref (self->bucket[kind].reduced, unit, 0)
                        : PLAN_REF_NONE);
}

static void
release_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gboolean is_last)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (!plan_lower_holds (self, kind, unit, 0) || waits_for_last (self, kind))
    return;
  if (b->ranks > 1 || is_last)
    plan_lower_wait (self, plan_lower_unit_ref (b->reduced, unit, 0));
  if (!(b->is_pooled && b->shards_grads) && b->bucket >= 0)
    plan_lower_free (self, plan_lower_bucket_ref (self, kind, unit, 0));
  if (b->received >= 0)
    plan_lower_free (self, plan_lower_unit_ref (b->received, unit, 0));
  if (is_last && b->outer >= 0)
    plan_lower_free (self, plan_lower_unit_ref (b->outer, unit, 0));
}

static void
release_unit (PlanLower *self, PlanLowerUnit unit, gboolean is_last)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_bucket_is_unit (kind))
      release_bucket (self, kind, unit, is_last);
}

static void
head_backward (PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const PlanRef x = plan_lower_output (self);
  const PlanRef dx = plan_lower_output_gradient (self);
  const PlanRef stats = plan_lower_kept_by_head (self, self->head.stats);

  if (self->now.here.modules > 0)
    {
      plan_lower_module_loss_backward (self);
      return;
    }
  plan_lower_loss_backward (self);
  plan_lower_gather_head_anew (self);
  plan_lower_alloc (self, dx);
  plan_lower_norm_backward (self, dx, ONE (head.dnorm), x, stats, PLAN_TENSOR_FINAL_NORM,
                            self->params.final_norm_bias, PLAN_NO_UNIT, sizes->split_rows);
  plan_lower_free (self, ONE (head.dnorm));
  plan_lower_free (self, stats);
  plan_lower_free (self, x);
}

void
plan_lower_embed_backward (PlanLower *self, PlanRef dout, gboolean adds)
{
  plan_lower_compute (
      self, PLAN_OP_EMBED_BWD,
      PLAN_REFS (plan_lower_raw_gradient (self, PLAN_TENSOR_EMBEDDING, PLAN_NO_UNIT), dout,
                 plan_lower_in_row (self, ONE (input.tokens))),
      PLAN_DIMS (self->sizes->rows, self->model->hidden, self->sizes->vocab));
  plan_lower_free (self, dout);
  plan_lower_put_gradient (self, PLAN_TENSOR_EMBEDDING, PLAN_NO_UNIT, adds);
}

/* Backward pass of the norm after the embedding. Returns the gradient of its input. */
static PlanRef
normed_embedding_backward (PlanLower *self, PlanRef dx)
{
  const PlanRef in = plan_lower_in_row (self, ONE (embedding.unnormed));
  const PlanRef stats = plan_lower_in_row (self, ONE (embedding.stats));
  const PlanTensorRole bias = self->model->norm_bias ? PLAN_TENSOR_EMBED_NORM_BIAS : PLAN_N_TENSORS;
  plan_lower_alloc (self, ONE (embedding.dunnormed));
  plan_lower_norm_backward (self, ONE (embedding.dunnormed), dx, in, stats, PLAN_TENSOR_EMBED_NORM,
                            bias, PLAN_NO_UNIT, self->sizes->split_rows);
  plan_lower_free (self, dx);
  plan_lower_free (self, stats);
  plan_lower_free (self, in);
  return ONE (embedding.dunnormed);
}

static void
embedding_backward (PlanLower *self)
{
  const PlanModel *m = self->model;
  const PlanSizes *sizes = self->sizes;
  const gboolean splits = sizes->split_rows < sizes->rows;
  const PlanRef mask = plan_lower_in_row (self, ONE (embedding.mask));
  PlanRef dx = plan_lower_input_gradient (self);
  if (plan_drops_hidden (self->plan))
    plan_lower_dropout (self, PLAN_OP_DROPOUT_BWD, PLAN_REFS (dx, dx, mask),
                        plan_lower_embedding_key (self),
                        PLAN_DIMS (sizes->split_rows, m->hidden, 0));
  if (self->embedding.mask >= 0)
    plan_lower_free (self, mask);
  if (m->embed_norm)
    dx = normed_embedding_backward (self, dx);
  const PlanRef dout = splits ? ONE (embedding.out) : dx;
  if (m->positions == PLAN_POSITIONS_LEARNED)
    {
      const PlanRef raw = plan_lower_raw_gradient (self, PLAN_TENSOR_POSITIONS, PLAN_NO_UNIT);
      const gint64 seq = self->plan->value[PLAN_SEQ] / self->plan->value[PLAN_CP];
      if (seq < m->max_seq) /* positions that no token has */
        plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (raw),
                            PLAN_DIMS (m->max_seq * m->hidden));
      plan_lower_compute (self, PLAN_OP_POSITIONS_BWD,
                          PLAN_REFS (raw, dx, plan_lower_own_places (self)),
                          PLAN_DIMS (sizes->split_rows, m->hidden, seq));
      plan_lower_put_gradient (self, PLAN_TENSOR_POSITIONS, PLAN_NO_UNIT, FALSE);
    }
  if (m->embed_scale)
    plan_lower_scale_embedding (self, dx);
  if (splits)
    {
      plan_lower_alloc (self, dout);
      plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (dout, dx),
                           sizes->split_rows * m->hidden);
      plan_lower_free (self, dx);
    }
  plan_lower_embed_backward (self, dout, m->tied_embeddings || self->now.here.modules > 0);
}

static void
around_head (PlanLower *self)
{
  if (self->now.here.has_head)
    head_backward (self);
  else if (plan_stage_reads_logits (&self->now.here))
    plan_lower_logits_backward (self);
  else
    plan_lower_touch (self, plan_lower_ref (self->work.gemm[TRUE]));
}

static void
around_embedding (PlanLower *self)
{
  if (self->now.here.has_embedding)
    embedding_backward (self);
}

static void
await_piece (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gboolean is_column)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  plan_lower_wait (self,
                   plan_lower_unit_ref (is_column ? b->columns_gathered : b->gathered, unit, 0));
  plan_lower_land (self, kind, unit, 0);
}

/* Carries out an act on weights. FALSE: the act is about something else. */
static gboolean
act_on_weights (PlanLower *self, const PlanAct *a, PlanLowerUnit unit)
{
  const PlanBucketKind kind = a->bucket;
  const gboolean is_column
      = a->piece == PLAN_PIECE_COLUMNS || a->piece == PLAN_PIECE_EXPERT_COLUMNS;
  switch ((int)a->kind)
    {
    case PLAN_ACT_GATHER:
      plan_lower_gather_bucket (self, kind, unit, 0, is_column);
      return TRUE;
    case PLAN_ACT_GATHER_UNIT:
      plan_lower_gather (self, unit, 0);
      return TRUE;
    case PLAN_ACT_GATHER_HEAD:
      plan_lower_gather_head (self);
      return TRUE;
    case PLAN_ACT_GATHER_EMBEDDING:
      plan_lower_gather_outer (self, PLAN_BUCKET_EMBEDDING);
      return TRUE;
    case PLAN_ACT_AWAIT:
      await_piece (self, kind, unit, is_column);
      return TRUE;
    case PLAN_ACT_DROP:
      if (!self->bucket[kind].is_pooled)
        plan_lower_free (self, plan_lower_weights_ref (self, kind, unit, 0, is_column));
      return TRUE;
    default:
      return FALSE;
    }
}

/* Carries out an act on a bucket cut by size. FALSE: the act is about something else. */
static gboolean
act_on_bucket (PlanLower *self, const PlanAct *a, PlanLowerUnit of, gboolean is_last)
{
  const PlanLowerUnit shared = { .loop = -1, .offset = (gint32)(a->shared - 1) };
  const PlanLowerUnit unit = a->shared > 0                     ? shared
                             : plan_bucket_is_unit (a->bucket) ? of
                                                               : PLAN_NO_UNIT;
  switch ((int)a->kind)
    {
    case PLAN_ACT_REDUCE_BUCKET:
      start_reductions (self, a->bucket, a->bucket + 1, unit, is_last);
      return TRUE;
    case PLAN_ACT_RELEASE_BUCKET:
      release_bucket (self, a->bucket, unit, is_last);
      return TRUE;
    case PLAN_ACT_AWAIT_BUCKET:
      plan_lower_wait (self, plan_lower_unit_ref (self->bucket[a->bucket].gathered, unit, 0));
      return TRUE;
    case PLAN_ACT_GATHER_BUCKET:
      plan_lower_gather_bucket (self, a->bucket, unit, 0, FALSE);
      return TRUE;
    default:
      return FALSE;
    }
}

static void
unit_backward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep)
{
  if (unit.is_module)
    plan_lower_replay_module (self, unit);
  plan_lower_layer_backward (self, unit, keep);
  if (unit.is_module)
    plan_lower_end_module (self, unit);
}

static void
act (PlanLower *self, const PlanAct *a, PlanLowerUnit unit, gboolean is_last)
{
  if (act_on_weights (self, a, unit) || act_on_bucket (self, a, unit, is_last))
    return;
  switch ((int)a->kind)
    {
    case PLAN_ACT_FORWARD:
      plan_lower_unit_forward (self, unit, a->keep);
      return;
    case PLAN_ACT_REPLAY:
      plan_lower_layer_forward (self, unit, a->keep);
      return;
    case PLAN_ACT_BACKWARD:
      unit_backward (self, unit, a->keep);
      return;
    case PLAN_ACT_REDUCE:
      start_reductions (self, PLAN_BUCKET_LAYER, PLAN_BUCKET_OUTER_PART, unit, is_last);
      return;
    case PLAN_ACT_RELEASE:
      release_unit (self, unit, is_last);
      return;
    case PLAN_ACT_REDUCE_HEAD:
      start_reductions (self, PLAN_BUCKET_HEAD, PLAN_BUCKET_HEAD + 1, PLAN_NO_UNIT, is_last);
      return;
    case PLAN_ACT_RELEASE_HEAD:
      release_bucket (self, PLAN_BUCKET_HEAD, PLAN_NO_UNIT, is_last);
      return;
    case PLAN_ACT_OFFLOAD:
      plan_lower_offload (self, unit, a->like);
      return;
    case PLAN_ACT_DROP_OFFLOADED:
      plan_lower_drop_offloaded (self, unit, a->like);
      return;
    case PLAN_ACT_FETCH:
      plan_lower_fetch (self, unit, a->like);
      return;
    case PLAN_ACT_AWAIT_FETCHED:
      plan_lower_await_fetched (self, unit, a->like);
      return;
    default:
      g_assert_not_reached ();
    }
}

void
plan_lower_gradient_is_there (PlanLower *self, PlanTensorRole role)
{
  for (guint i = 0; i < self->now.n_attached; i++)
    if (self->now.attached[i].role == role)
      {
        PlanLowerUnit unit = self->now.attached_from;
        unit.offset += self->now.attached[i].unit;
        act (self, &self->now.attached[i], unit, self->now.is_last_micro_batch);
      }
}

/* Notes the acts that follow a backward pass in the list and happen inside it. */
static void
attach (PlanLower *self, const PlanAct *a, PlanLowerUnit from, gboolean is_last)
{
  self->now.attached = a + 1;
  self->now.n_attached = a->attached;
  self->now.attached_from = from;
  self->now.is_last_micro_batch = is_last;
}

/* Whether the layer of an act lies in one bucket with the layers of the run's other turns. */
static gboolean
is_within (const PlanLower *self, const PlanLowerRun *run, const PlanAct *a)
{
  return run->count > 1 && self->by_size.like && self->by_size.like[run->first + a->unit] < 0;
}

static PlanLowerUnit
begin_run (PlanLower *self, const PlanLowerRun *run, const PlanAct *acts)
{
  const PlanLowerUnit first = plan_lower_begin_units (self, run->first, run->count, run->step);
  for (guint i = 0; i < run->n; i++)
    {
      const gint64 layer = run->first + acts[i].unit;
      if (!is_within (self, run, &acts[i]))
        continue;
      plan_schedule_move_along (self->schedule,
                                plan_lower_distance (self, layer, layer + run->step));
      break;
    }
  return first;
}

void
plan_lower_run (PlanLower *self, const PlanLowerOrder *order, gboolean is_last)
{
  for (guint r = 0; r < order->runs->len; r++)
    {
      const PlanLowerRun *run = &g_array_index (order->runs, PlanLowerRun, r);
      const PlanAct *acts = &g_array_index (order->acts, PlanAct, run->from);
      const PlanLowerUnit first = begin_run (self, run, acts);
      for (guint i = 0; i < run->n; i++)
        {
          const PlanAct *a = &acts[i];
          PlanLowerUnit unit = first;
          unit.offset += a->unit;
          unit.is_within = is_within (self, run, a);
          unit.is_module = a->keep.is_module;
          attach (self, a, first, is_last);
          act (self, a, unit, is_last);
          self->now.n_attached = 0;
          i += a->attached;
        }
      plan_lower_end_units (self, first);
    }
}

void
plan_lower_run_to_layer (PlanLower *self, PlanLowerBackward *back)
{
  while (back->run < back->order.runs->len)
    {
      const PlanLowerRun *run = &g_array_index (back->order.runs, PlanLowerRun, back->run);
      const PlanAct *a = &g_array_index (back->order.acts, PlanAct, run->from + back->at);
      const PlanLowerUnit first
          = { .loop = -1, .offset = (gint32)(run->first + back->turn * run->step) };
      PlanLowerUnit unit = first;
      unit.offset += a->unit;
      unit.is_module = a->keep.is_module;
      const gboolean is_layer = a->kind == PLAN_ACT_BACKWARD;
      attach (self, a, first, back->is_last);
      if (!is_layer)
        act (self, a, unit, back->is_last);
      self->now.n_attached = is_layer ? self->now.n_attached : 0;
      back->at += 1 + a->attached;
      if (back->at == run->n)
        {
          back->at = 0;
          back->turn++;
        }
      if (back->turn == run->count)
        {
          back->turn = 0;
          back->run++;
        }
      if (is_layer)
        return;
    }
}

static void
release_group (PlanLower *self, guint32 number, gboolean is_last)
{
  const PlanBucketSpan *span = &self->buckets.spans[number];
  release_bucket (self, span->kind, plan_lower_span_unit (span), is_last);
}

static void
drain (PlanLower *self, PlanLowerQueue *queue, gboolean whole, gboolean is_last)
{
  while (whole ? queue->first < queue->n : plan_lower_queue_is_over (queue, FALSE))
    {
      const gint64 popped = plan_lower_queue_pop (queue);
      if (queue->group_elements)
        release_group (self, (guint32)popped, is_last);
      else if (popped == PLAN_QUEUE_HEAD)
        release_bucket (self, PLAN_BUCKET_HEAD, PLAN_NO_UNIT, is_last);
      else
        release_unit (self, (PlanLowerUnit){ .loop = -1, .offset = (gint32)popped }, is_last);
    }
}

/* Whether the virtual stage at hand has the parameters of a kind of bucket outside the layers. */
static gboolean
is_here (const PlanLower *self, PlanBucketKind kind)
{
  return plan_lower_is_early (self, kind) ? self->now.here.has_embedding : self->now.here.has_head;
}

/* Reduces the head's bucket, whose gradients are complete. */
static void
finish_head (PlanLower *self, PlanLowerQueue *queue, gboolean reduces, gboolean queues,
             gboolean is_last)
{
  if (!is_here (self, PLAN_BUCKET_HEAD))
    return;
  if (reduces)
    start_reductions (self, PLAN_BUCKET_HEAD, PLAN_BUCKET_HEAD + 1, PLAN_NO_UNIT, is_last);
  if (queues && plan_layout_has (&self->layout, PLAN_BUCKET_HEAD))
    plan_lower_queue_push (queue, PLAN_QUEUE_HEAD);
}

/* The backward pass of what stands before or after the layers (`when`), with the reductions of
 * buckets cut by size that its gradients complete. */
static void
backward_around (PlanLower *self, PlanLowerQueue *queue, gint64 when, gboolean reduces,
                 gboolean queues, gboolean is_last)
{
  g_autoptr (GArray) acts = g_array_new (FALSE, FALSE, sizeof (PlanAct));
  if (reduces)
    plan_lower_add_reductions (self, queues ? queue : NULL, when, acts);
  self->now.attached = (const PlanAct *)(void *)acts->data;
  self->now.n_attached = acts->len;
  self->now.attached_from = PLAN_NO_UNIT;
  self->now.is_last_micro_batch = is_last;
  if (when == PLAN_BEFORE_LAYERS)
    around_head (self);
  else
    around_embedding (self);
  self->now.n_attached = 0;
}

/* Waits for the reductions that end the backward pass: they end after all others. */
static void
await_last_group (PlanLower *self, gboolean is_last)
{
  g_autoptr (GArray) groups = plan_lower_groups_of (self, PLAN_AFTER_LAYERS);
  for (guint i = 0; i < groups->len; i++)
    release_group (self, g_array_index (groups, PlanLowerGroup, i).number, is_last);
}

/* Reduces one bucket and waits for it. */
static void
reduce_now (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  start_reductions (self, kind, kind + 1, unit, TRUE);
  release_bucket (self, kind, unit, TRUE);
}

void
plan_lower_reduce_together (PlanLower *self)
{
  plan_lower_each_bucket (self, reduce_now);
}

/* Ends a unit's step: frees the weights that stayed gathered, and reduces the gradients that were
 * held. */
static void
finish_unit (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (self->policy.keeps_weights && b->shards_weights && (b->is_unit || self->policy.passes_outer))
    plan_lower_free (self, plan_lower_unit_ref (b->weights, unit, 0));
  if (b->kept >= 0)
    reduce_now (self, kind, unit);
}

void
plan_lower_reduce_held (PlanLower *self)
{
  if (!self->policy.holds_gradients)
    return;
  self->now.reduces_held = TRUE;
  plan_lower_each_bucket_here (self, finish_unit);
  self->now.reduces_held = FALSE;
}

static void
reduce_one (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  start_reductions (self, kind, kind + 1, unit, TRUE);
}

static void
release_one (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  release_bucket (self, kind, unit, TRUE);
}

void
plan_lower_reduce_here (PlanLower *self)
{
  plan_lower_each_bucket_here (self, reduce_one);
}

void
plan_lower_await_reduced (PlanLower *self)
{
  plan_lower_each_bucket (self, release_one);
}

/* By unit: elements that are reduced; the caller frees. */
static guint64 *
elements_of_units (const PlanLower *self)
{
  guint64 *elements = g_new0 (guint64, self->stage.layers);
  for (gint32 unit = 0; unit < self->stage.layers; unit++)
    for (PlanBucketKind kind = PLAN_BUCKET_LAYER; kind < PLAN_BUCKET_PART; kind++)
      if (plan_lower_holds (self, kind, PLAN_NO_UNIT, unit) && self->bucket[kind].ranks > 1)
        elements[unit] += self->layout.buckets[kind].padded;
  return elements;
}

/* What comes before the layers where buckets are cut by size. */
static void
begin_by_size (PlanLower *self, PlanLowerBackward *back)
{
  back->elements = g_renew (guint64, back->elements, self->buckets.n);
  for (guint32 number = 0; number < self->buckets.n; number++)
    back->elements[number] = self->layout.buckets[self->buckets.spans[number].kind].padded;
  back->queue.group_elements = back->elements;
  backward_around (self, &back->queue, PLAN_BEFORE_LAYERS, back->reduces, back->queues,
                   back->is_last);
}

static void
begin_by_unit (PlanLower *self, PlanLowerBackward *back)
{
  back->head_waits = self->policy.head_holds_positions
                     || (self->policy.passes_outer && !self->policy.has_own_groups);
  around_head (self);
  if (!back->head_waits && self->now.here.modules == 0) /* else a later layer completes it */
    finish_head (self, &back->queue, back->reduces, back->queues, back->is_last);
  if (self->policy.has_own_groups)
    plan_lower_drop_outer (self, PLAN_BUCKET_HEAD);
}

void
plan_lower_begin_backward (PlanLower *self, PlanLowerBackward *back, gboolean is_last)
{
  const gboolean communicates
      = (self->place.most_ranks > 1 && (self->policy.shards_grads || is_last))
        || (self->place.replicas > 1 && is_last);
  *back = (PlanLowerBackward){ .is_last = is_last };
  back->in_flight = g_new (gint64, self->stage.layers + 2 + self->buckets.n);
  back->elements = elements_of_units (self);
  back->together = communicates && self->policy.reduces_together && self->comm.next < 0;
  back->reduces = communicates && !self->policy.reduces_together;
  back->queues = fills_buckets (self, is_last) && !self->policy.reduces_together;
  back->queue = (PlanLowerQueue){ .unit = back->in_flight,
                                  .limit = self->policy.comm_unit,
                                  .sets = self->policy.sets,
                                  .head_elements = self->layout.buckets[PLAN_BUCKET_HEAD].padded,
                                  .unit_elements = back->elements };
  self->now.is_backward = TRUE;
  self->now.is_last_micro_batch = is_last;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    self->is_taken[kind] = FALSE;
  if (self->layout.by_size)
    begin_by_size (self, back);
  else
    begin_by_unit (self, back);
  plan_lower_order_init_backward (&back->order, self, back->queues ? &back->queue : NULL,
                                  back->reduces);
}

static void
end_by_size (PlanLower *self, PlanLowerBackward *back)
{
  backward_around (self, &back->queue, PLAN_AFTER_LAYERS, back->reduces, back->queues,
                   back->is_last);
  drain (self, &back->queue, TRUE, back->is_last);
  if (back->reduces && !back->queues)
    await_last_group (self, back->is_last);
}

static void
end_by_unit (PlanLower *self, PlanLowerBackward *back)
{
  const gboolean embeds = back->reduces && is_here (self, PLAN_BUCKET_EMBEDDING);
  if (self->policy.has_own_groups)
    plan_lower_receive_outer (self, PLAN_BUCKET_EMBEDDING);
  around_embedding (self);
  plan_lower_drop_outer (self, PLAN_BUCKET_EMBEDDING);
  if (!self->policy.has_own_groups)
    plan_lower_drop_outer (self, PLAN_BUCKET_HEAD);
  drain (self, &back->queue, FALSE, back->is_last);
  if (back->head_waits)
    finish_head (self, &back->queue, back->reduces, back->queues, back->is_last);
  if (embeds)
    start_reductions (self, PLAN_BUCKET_EMBEDDING, PLAN_BUCKET_EMBEDDING + 1, PLAN_NO_UNIT,
                      back->is_last);
  drain (self, &back->queue, TRUE, back->is_last);
  if (embeds)
    release_bucket (self, PLAN_BUCKET_EMBEDDING, PLAN_NO_UNIT, back->is_last);
  plan_lower_drop_fresh_gradients (self);
}

void
plan_lower_end_backward (PlanLower *self, PlanLowerBackward *back)
{
  if (self->layout.by_size)
    end_by_size (self, back);
  else
    end_by_unit (self, back);
  if (back->together)
    plan_lower_reduce_together (self);
  self->now.is_backward = FALSE;
  plan_lower_order_clear (&back->order);
  g_free (back->in_flight);
  g_free (back->elements);
}

void
plan_lower_backward (PlanLower *self, gboolean is_last)
{
  PlanLowerBackward back;
  plan_lower_begin_backward (self, &back, is_last);
  plan_lower_run (self, &back.order, is_last);
  plan_lower_end_backward (self, &back);
}
