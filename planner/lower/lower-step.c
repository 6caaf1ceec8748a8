/* SPDX-License-Identifier: Apache-2.0 */
/* What happens around the micro batches: setup, the beginning and the end of a step, teardown. */
#include "config.h"

#include "planner/lower/lower-step.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
#include "planner/lower/lower-offload.h"

#define ONE(array) plan_lower_ref (self->array)

/* Whether a bucket's weights lie whole on every rank between steps. */
static gboolean
stays_whole (const PlanLower *self, PlanBucketKind kind)
{
  return !(self->bucket[kind].shards_weights
           && (self->bucket[kind].is_unit || self->policy.passes_outer));
}

/* This rank's part of a bucket's compute weights, into which the optimizer's result is rounded;
 * `is_column`: of the copy quantised along columns. */
static PlanRef
own_weights (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gboolean is_column)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const guint64 part = (guint64)plan_lower_shard_elements (self, kind);
  const guint64 own = (guint64)plan_lower_own_elements (self, kind);
  const guint64 inside = self->policy.splits_shards ? (guint64)self->place.replica * own : 0;
  if (b->shard < 0)
    return plan_lower_at (plan_lower_unit_ref (is_column ? b->columns : b->weights, unit, 0),
                          b->shards_optimizer ? (guint64)b->rank * part + inside : 0);
  return plan_lower_at (plan_lower_unit_ref (is_column ? b->column_shard : b->shard, unit, 0),
                        inside);
}

/* The weights that the optimizer updates. */
static PlanRef
main_weights (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  return b->main >= 0 ? plan_lower_unit_ref (b->main, unit, 0)
                      : own_weights (self, kind, unit, FALSE);
}

/* Starts gathering a bucket whose weights stay gathered. */
static void
publish_now (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const gboolean late = kind == PLAN_BUCKET_HEAD && self->policy.gathers_head_late;
  if (self->bucket[kind].shards_optimizer && stays_whole (self, kind) && !late)
    {
      plan_lower_gather_bucket (self, kind, unit, 0, FALSE);
      if (self->bucket[kind].columns >= 0)
        plan_lower_gather_bucket (self, kind, unit, 0, TRUE);
    }
}

static void
publish (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  if (self->policy.gather_time == PLAN_GATHER_AS_UPDATED)
    publish_now (self, kind, unit);
}

/* Rounds the main weights into the compute weights. */
static void
round_weights (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (b->main >= 0 && !b->rounds_late)
    plan_lower_round (self, own_weights (self, kind, unit, FALSE),
                      plan_lower_unit_ref (b->main, unit, 0), plan_lower_own_elements (self, kind));
}

/* Transformer Engine rounds all shards to the format of activations before it quantises any. */
static void
round_for_quantising (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanRef out = plan_lower_unit_ref (self->quantised[kind].unrounded, unit, 0);
  plan_lower_alloc (self, out);
  plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (out, main_weights (self, kind, unit)),
                      PLAN_DIMS (plan_lower_own_elements (self, kind)));
}

static void
measure_unit (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerQuantised *q = &self->quantised[kind];
  plan_lower_compute (
      self, PLAN_OP_PARAM_AMAX,
      PLAN_REFS (plan_lower_ref (q->amax), plan_lower_unit_ref (q->unrounded, unit, 0)),
      PLAN_DIMS (plan_lower_own_elements (self, kind), q->magnitudes));
}

static void
quantise_unit (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerQuantised *q = &self->quantised[kind];
  plan_lower_compute (self, PLAN_OP_PARAM_QUANTIZE,
                      PLAN_REFS (own_weights (self, kind, unit, FALSE),
                                 self->policy.gathers_columns ? own_weights (self, kind, unit, TRUE)
                                                              : PLAN_REF_NONE,
                                 plan_lower_unit_ref (q->unrounded, unit, 0),
                                 plan_lower_ref (q->amax), plan_lower_unit_ref (q->scales, unit, 0),
                                 plan_lower_layer_scales (self, unit),
                                 plan_lower_layer_amax (self, unit)),
                      PLAN_DIMS (plan_lower_own_elements (self, kind), q->magnitudes));
}

static void
publish_quantised (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  plan_lower_free (self, plan_lower_unit_ref (self->quantised[kind].unrounded, unit, 0));
  publish (self, kind, unit);
}

typedef void (*Visit) (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);

static void
take_work (PlanLower *self, PlanRef buffer, void (*visit) (PlanLower *self, PlanRef buffer))
{
  const guint count = plan_schedule_buffer (self->schedule, (guint)buffer.array)->count;
  for (guint i = 0; i < count; i++)
    {
      buffer.offset = (gint32)i;
      visit (self, buffer);
    }
}

/* Finds the largest magnitudes of every parameter, and makes all ranks agree that have parts of it.
 * With delayed scaling, quantising finds them by the way. */
static void
find_largest (PlanLower *self, PlanBucketKind kind)
{
  const gint32 amax = self->quantised[kind].amax;
  if (amax < 0)
    return;
  const gint64 count = (gint64)plan_schedule_buffer (self->schedule, (guint)amax)->elements;
  plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (plan_lower_ref (amax)), PLAN_DIMS (count));
  plan_lower_each_unit (self, kind, measure_unit);
  plan_lower_share_magnitudes (self, kind, plan_lower_ref (amax), count);
}

/* Visits what quantising works on. */
static void
take_scratch (PlanLower *self, PlanBucketKind kind, void (*visit) (PlanLower *self, PlanRef buffer))
{
  const gint32 arrays[] = { self->quantised[kind].work, self->quantised[kind].amax };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    if (arrays[i] >= 0)
      take_work (self, plan_lower_ref (arrays[i]), visit);
}

/* Quantises the updated weights of all units of a kind, after the largest magnitudes are known on
 * every rank. */
static void
quantise_kind (PlanLower *self, PlanBucketKind kind)
{
  plan_lower_each_unit (self, kind, round_for_quantising);
  take_scratch (self, kind, plan_lower_alloc);
  find_largest (self, kind);
  plan_lower_each_unit (self, kind, quantise_unit);
  take_scratch (self, kind, plan_lower_free);
  plan_lower_each_unit (self, kind, publish_quantised);
}

static void
quantise_weights (PlanLower *self)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (self->quantised[kind].unrounded >= 0)
      quantise_kind (self, kind);
}

/* Visits the buffers of a bucket that stay between steps: all but those of gathers and of micro
 * batches. */
static void
resident_buffers (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                  void (*visit) (PlanLower *self, PlanRef buffer))
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint32 grads = b->lends_grads ? -1 : b->grads;
  const gint32 arrays[] = { b->shard,      b->column_shard, b->main, b->masters, b->exp_avg,
                            b->exp_avg_sq, grads,           b->half, b->cast };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    if (arrays[i] >= 0)
      visit (self, plan_lower_unit_ref (arrays[i], unit, 0));
  if (stays_whole (self, kind)) /* also weights that lie in the memory of gradients */
    visit (self, plan_lower_unit_ref (b->weights, unit, 0));
  if (stays_whole (self, kind) && b->columns >= 0)
    visit (self, plan_lower_unit_ref (b->columns, unit, 0));
}

/* Visits the pools of buffers. They are allocated in the setup and stay. */
static void
pool_buffers (PlanLower *self, PlanBucketKind kind, void (*visit) (PlanLower *self, PlanRef buffer))
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint32 arrays[] = { b->shards_weights ? b->weights : -1,
                            b->shards_weights ? b->columns : -1, b->shards_grads ? b->bucket : -1 };
  const gint64 step = self->layout.pool_step;
  gint64 first = 0;
  while (first < step && !plan_lower_holds (self, kind, PLAN_NO_UNIT, (gint32)first))
    first++;
  for (guint i = 0; b->is_pooled && i < G_N_ELEMENTS (arrays); i++)
    for (gint64 set = 0; arrays[i] >= 0 && set < PLAN_POOL_SETS; set++)
      visit (self,
             plan_lower_unit_ref (arrays[i], PLAN_NO_UNIT, (gint32)(first % step + set * step)));
}

/* Whether a bucket holds a parameter of that role. Where buckets are cut by size: always, as all
 * parameters of a layer are meant. */
static gboolean
is_derived_of (const PlanLower *self, PlanBucketKind kind, PlanTensorRole role)
{
  const PlanSlot *slots = self->layout.slots[kind];
  for (guint i = 0; !self->layout.by_size && i < self->layout.buckets[kind].n_slots; i++)
    if (slots[i].tensor.role == role)
      return TRUE;
  return self->layout.by_size;
}

/* Visits the quantised and transposed copies of a bucket's weights that stay. */
static void
derived_buffers (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                 void (*visit) (PlanLower *self, PlanRef buffer))
{
  for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
    {
      const gboolean stays = self->stack->weights.quantised != PLAN_QUANTISED_ON_USE;
      const gint32 arrays[]
          = { stays ? self->params.copy[role] : -1, stays ? self->params.copy_col[role] : -1,
              self->policy.keeps_transposes ? self->params.transposed[role] : -1 };
      for (guint i = 0; is_derived_of (self, kind, role) && i < G_N_ELEMENTS (arrays); i++)
        if (arrays[i] >= 0)
          visit (self, plan_lower_unit_ref (arrays[i], unit, 0));
    }
  if (self->quantised[kind].scales >= 0)
    visit (self, plan_lower_unit_ref (self->quantised[kind].scales, unit, 0));
}

static void
take_derived (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  derived_buffers (self, kind, unit, plan_lower_alloc);
}

static void
drop_derived (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  derived_buffers (self, kind, unit, plan_lower_free);
}

/* Visits the units, if copies of their weights are in no bucket, as buckets are cut by size. */
static void
each_derived (PlanLower *self, Visit visit)
{
  if (!self->layout.by_size || !self->policy.copies_weights || self->stage.layers == 0
      || self->stack->weights.quantised == PLAN_QUANTISED_ON_USE)
    return;
  const PlanLowerUnit unit = plan_lower_begin_units (self, 0, self->stage.layers, 1);
  visit (self, PLAN_BUCKET_LAYER, unit);
  plan_lower_end_units (self, unit);
}

static void
setup_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 host = plan_lower_host_elements (self, kind);
  const gint64 n = plan_lower_own_elements (self, kind) - host;
  const gint32 zeroed[] = { b->exp_avg, b->exp_avg_sq };
  const gint64 shards = b->shards_optimizer ? (gint64)self->layout.buckets[kind].shards : 1;
  const gint64 shard = !b->shards_optimizer ? 0
                       : self->policy.splits_shards
                           ? b->rank * self->place.replicas + self->place.replica
                           : b->rank;
  resident_buffers (self, kind, unit, plan_lower_alloc);
  if (plan_bucket_is_unit (kind) && !self->layout.by_size)
    derived_buffers (self, kind, unit, plan_lower_alloc);
  plan_lower_compute (self, PLAN_OP_INIT, PLAN_REFS (main_weights (self, kind, unit)),
                      PLAN_DIMS (kind, shard, shards));
  plan_lower_host_init (self, kind, unit, main_weights (self, kind, unit));
  if (b->masters >= 0)
    plan_lower_compute (self, PLAN_OP_CAST,
                        PLAN_REFS (plan_lower_unit_ref (b->masters, unit, 0),
                                   plan_lower_at (main_weights (self, kind, unit), (guint64)host)),
                        PLAN_DIMS (n));
  for (guint i = 0; i < G_N_ELEMENTS (zeroed); i++)
    if (zeroed[i] >= 0)
      plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (plan_lower_unit_ref (zeroed[i], unit, 0)),
                          PLAN_DIMS (n));
  if (self->quantised[kind].unrounded >= 0)
    return;
  round_weights (self, kind, unit);
  publish (self, kind, unit);
}

static void
zero_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const gint64 n = self->bucket[kind].shards_grads ? plan_lower_shard_elements (self, kind)
                                                   : (gint64)self->layout.buckets[kind].padded;
  plan_lower_compute (self, PLAN_OP_ZERO,
                      PLAN_REFS (plan_lower_unit_ref (self->bucket[kind].grads, unit, 0)),
                      PLAN_DIMS (n));
}

static void
drop_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  plan_lower_free (self, plan_lower_unit_ref (self->bucket[kind].grads, unit, 0));
}

void
plan_lower_return_gradients (PlanLower *self, PlanLowerUnit unit)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (self->bucket[kind].lends_grads && plan_lower_holds (self, kind, unit, 0))
      {
        plan_lower_free (self, plan_lower_unit_ref (self->bucket[kind].weights, unit, 0));
        plan_lower_alloc (self, plan_lower_unit_ref (self->bucket[kind].grads, unit, 0));
        zero_gradients (self, kind, unit);
      }
}

/* Prepares gradients as a step begins: frees them, or makes them zero. */
static void
begin_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  if (self->policy.collects && self->bucket[kind].shards_grads)
    drop_gradients (self, kind, unit);
  else if (!self->bucket[kind].lends_grads)
    zero_gradients (self, kind, unit);
}

/* This rank's part of the reduced gradients. */
static PlanRef
own_gradients (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const PlanRef grads = plan_lower_unit_ref (b->grads, unit, 0);
  const guint64 part = (guint64)plan_lower_shard_elements (self, kind);
  const guint64 inside = self->policy.splits_shards
                             ? (guint64)(self->place.replica * plan_lower_own_elements (self, kind))
                             : 0;
  const gboolean is_whole = !b->shards_grads && b->shards_optimizer;
  return plan_lower_at (grads, inside + (is_whole ? (guint64)b->rank * part : 0));
}

PlanRef
plan_lower_optimizer_gradients (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const gint32 cast = self->bucket[kind].cast;
  return cast >= 0 ? plan_lower_unit_ref (cast, unit, 0) : own_gradients (self, kind, unit);
}

static void
await_reduction (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  if (self->bucket[kind].reduced >= 0)
    plan_lower_wait (self, plan_lower_unit_ref (self->bucket[kind].reduced, unit, 0));
}

static void
cast_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanRef cast = plan_lower_unit_ref (self->bucket[kind].cast, unit, 0);
  plan_lower_alloc (self, cast);
  await_reduction (self, kind, unit);
  plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (cast, own_gradients (self, kind, unit)),
                      PLAN_DIMS (plan_lower_own_elements (self, kind)));
}

static void
drop_cast (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  plan_lower_free (self, plan_lower_unit_ref (self->bucket[kind].cast, unit, 0));
}

/* Whether squares of all ranks of a replica are added up where each has all sums, too: no rank has
 * the gradients of all stages, or of all experts. */
static gboolean
measures_everywhere (const PlanLower *self)
{
  return self->comm.next >= 0
         || (self->model->experts > 0
             && self->plan->value[PLAN_EP] * self->plan->value[PLAN_ETP]
                        * self->plan->value[PLAN_TP]
                    > 1);
}

/* What several ranks hold whole, and all are asked, is counted by the first of them. */
static void
measure_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const gboolean is_whole = self->bucket[kind].sums_whole && self->bucket[kind].shards_optimizer;
  await_reduction (self, kind, unit);
  if (measures_everywhere (self) && self->bucket[kind].sums_whole && self->bucket[kind].rank > 0)
    return;
  if (is_whole)
    plan_lower_measure (self, kind, plan_lower_unit_ref (self->bucket[kind].grads, unit, 0), 0,
                        self->layout.buckets[kind].padded);
  else
    plan_lower_measure (self, kind, plan_lower_optimizer_gradients (self, kind, unit),
                        plan_lower_own_first (self, kind),
                        (guint64)plan_lower_own_elements (self, kind));
}

/* Updates the parameters that the device updates: all that the host does not. */
static void
update_here (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const guint64 host = (guint64)plan_lower_host_elements (self, kind);
  const gint64 n = plan_lower_own_elements (self, kind) - (gint64)host;
  const PlanRef main = plan_lower_at (main_weights (self, kind, unit), host);
  const PlanRef updated = b->masters >= 0 ? plan_lower_unit_ref (b->masters, unit, 0) : main;
  const PlanRef exp_avg = plan_lower_unit_ref (b->exp_avg, unit, 0);
  const PlanRef grads = plan_lower_at (plan_lower_optimizer_gradients (self, kind, unit), host);
  if (n == 0)
    return;
  if (self->stack->optimizer.kind == PLAN_OPTIMIZER_TORCH)
    {
      plan_lower_touch (self, exp_avg);
      plan_lower_touch (self, plan_lower_unit_ref (b->exp_avg_sq, unit, 0));
    }
  plan_lower_take_roots (self, kind, unit, n);
  if (b->exp_avg_sq < 0)
    plan_lower_compute (self, PLAN_OP_SGD,
                        PLAN_REFS (updated, exp_avg, grads, ONE (sums.coef), PLAN_REF_NONE),
                        PLAN_DIMS (n));
  else
    plan_lower_compute (self, PLAN_OP_ADAMW,
                        PLAN_REFS (updated, exp_avg, plan_lower_unit_ref (b->exp_avg_sq, unit, 0),
                                   grads, ONE (sums.coef), PLAN_REF_NONE),
                        PLAN_DIMS (n));
  if (b->masters >= 0)
    plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (main, updated), PLAN_DIMS (n));
}

static void
use_updated (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  if (self->bucket[kind].lends_grads)
    {
      drop_gradients (self, kind, unit);
      plan_lower_alloc (self, plan_lower_unit_ref (self->bucket[kind].weights, unit, 0));
    }
  if (self->quantised[kind].unrounded >= 0)
    return;
  round_weights (self, kind, unit);
  if (self->stack->weights.outer != PLAN_OUTER_DROPS || plan_bucket_is_unit (kind)
      || !self->bucket[kind].shards_weights)
    publish (self, kind, unit);
}

static void
update_weights (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  update_here (self, kind, unit);
  use_updated (self, kind, unit);
}

static void
fetch_weights (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  plan_lower_host_weights (self, kind, unit, main_weights (self, kind, unit));
}

/* The host's share: gradients out, update, weights back, one after the other. The device does the
 * rest meanwhile or afterwards. */
static void
update_with_host (PlanLower *self)
{
  const gboolean is_beside = self->stack->optimizer.host == PLAN_HOST_ALIKE;
  plan_lower_each_bucket (self, plan_lower_host_gradients);
  plan_lower_host_factors (self);
  if (is_beside)
    plan_lower_each_bucket (self, update_here);
  plan_lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                   PLAN_WAITS (ONE (event.copied)), PLAN_REF_NONE);
  plan_lower_each_bucket (self, plan_lower_host_update);
  plan_lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                   PLAN_WAITS (ONE (event.updated)), PLAN_REF_NONE);
  plan_lower_each_bucket (self, fetch_weights);
  plan_lower_wait (self, ONE (event.copied));
  plan_lower_each_bucket (self, is_beside ? use_updated : update_weights);
}

static void
free_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gboolean late = kind == PLAN_BUCKET_HEAD && self->policy.gathers_head_late;
  if (self->bucket[kind].shards_optimizer && stays_whole (self, kind) && !late)
    plan_lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                     PLAN_WAITS (plan_lower_unit_ref (b->gathered, unit, 0),
                                 plan_lower_unit_ref (b->columns_gathered, unit, 0)),
                     PLAN_REF_NONE);
  resident_buffers (self, kind, unit, plan_lower_free);
  if (plan_bucket_is_unit (kind) && !self->layout.by_size)
    derived_buffers (self, kind, unit, plan_lower_free);
}

static void
each_small_buffer (PlanLower *self, void (*visit) (PlanLower *self, PlanRef buffer))
{
  const gint32 arrays[] = { self->input.tokens,
                            self->input.targets,
                            self->input.places,
                            self->input.start,
                            self->input.keys,
                            self->sums.own,
                            self->sums.all == self->sums.own ? -1 : self->sums.all,
                            self->sums.coef,
                            self->head.loss_rows,
                            self->sums.nan,
                            self->work.gemm[FALSE],
                            self->work.gemm[TRUE],
                            self->work.scratch,
                            self->work.unused,
                            self->experts.work,
                            self->quantizer.scales,
                            self->quantizer.history,
                            MAX (self->quantizer.amax, self->quantizer.largest), /* or neither */
                            self->experts.balance,
                            self->experts.loads,
                            self->work.gathered[FALSE],
                            self->work.gathered[TRUE],
                            self->joined.tokens };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    if (arrays[i] >= 0)
      take_work (self, plan_lower_ref (arrays[i]), visit);
  for (PlanValueId v = 0; v < PLAN_N_VALUES; v++)
    if (self->layer.graph_grad[v] >= 0)
      take_work (self, plan_lower_ref (self->layer.graph_grad[v]), visit);
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_layout_has (&self->layout, kind) && self->bucket[kind].is_unit)
      pool_buffers (self, kind, visit);
}

static void
await_published (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  plan_lower_wait (self, plan_lower_unit_ref (self->bucket[kind].gathered, unit, 0));
  plan_lower_wait (self, plan_lower_unit_ref (self->bucket[kind].columns_gathered, unit, 0));
}

/* Visits every rank's part in the list that is gathered. */
static void
each_part (PlanLower *self, void (*visit) (PlanLower *self, PlanRef buffer))
{
  const PlanLowerUnit rank = plan_lower_begin_repeat (self, "r", 0, self->place.ranks, 1);
  visit (self, plan_lower_unit_ref (self->flat.parts, rank, 0));
  plan_lower_end_units (self, rank);
}

/* Gathers all weights that stay gathered, with nothing beside. The first gather, in the setup, does
 * not need the buffers of a list. */
static void
publish_together (PlanLower *self, gboolean is_updated)
{
  if (self->policy.gather_time != PLAN_GATHER_AT_END || !self->policy.shards_optimizer)
    return;
  const gboolean is_flat = is_updated && self->flat.sent >= 0;
  if (is_flat)
    {
      plan_lower_alloc (self, ONE (flat.sent));
      each_part (self, plan_lower_alloc);
      plan_lower_alloc (self, ONE (flat.landed));
    }
  plan_lower_each_bucket (self, publish_now);
  plan_lower_each_bucket (self, await_published);
  if (is_flat)
    {
      plan_lower_free (self, ONE (flat.landed));
      plan_lower_free (self, ONE (flat.sent));
      each_part (self, plan_lower_free);
    }
}

/* The embedding's hook runs once more as the step ends, so that the units it gathers are on their
 * way when the next step begins. */
static void
kick (PlanLower *self)
{
  if (self->policy.gather_time == PLAN_GATHER_AT_BEGIN)
    return;
  self->now.units_here = self->policy.ahead_of_embedding;
  for (gint32 i = 0; i < self->policy.ahead_of_embedding; i++)
    plan_lower_gather (self, PLAN_NO_UNIT, i);
}

void
plan_lower_setup (PlanLower *self)
{
  self->now.is_first_micro_batch = TRUE;
  each_small_buffer (self, plan_lower_alloc);
  plan_lower_host_memory (self, TRUE);
  plan_lower_each_bucket (self, setup_bucket);
  each_derived (self, take_derived);
  plan_lower_init_sites (self);
  quantise_weights (self);
  publish_together (self, FALSE);
  kick (self);
}

void
plan_lower_gather_first (PlanLower *self)
{
  if (self->layout.by_size)
    {
      const PlanBucketSpan *span = &self->buckets.spans[self->buckets.number[0]];
      publish_now (self, span->kind, plan_lower_span_unit (span));
      return;
    }
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_lower_is_early (self, kind))
      publish_now (self, kind, PLAN_NO_UNIT);
}

void
plan_lower_gather_here (PlanLower *self)
{
  plan_lower_each_bucket_here (self, publish_now);
}

/* As a step begins, gathers the first two virtual stages. */
static void
gather_two (PlanLower *self)
{
  for (gint64 i = 0; i < MIN (self->stage.n_virtual, 2); i++)
    {
      self->now.here = plan_stage_virtual (&self->stage, i);
      plan_lower_gather_here (self);
    }
}

void
plan_lower_begin_step (PlanLower *self)
{
  plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (ONE (sums.own)),
                      PLAN_DIMS (2 * PLAN_EXACT_LIMBS));
  if (self->sums.nan >= 0)
    plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (ONE (sums.nan)),
                        PLAN_DIMS (PLAN_EXACT_LIMBS));
  if (self->policy.gather_time == PLAN_GATHER_AT_BEGIN)
    {
      self->now.is_first_micro_batch = TRUE;
      self->now.units_here = 0;
      plan_lower_each_bucket (self, publish_now);
    }
  if (self->policy.is_eval)
    return;
  /* Later stages gather once they have their first input. */
  if (self->policy.gather_time == PLAN_GATHER_IN_TURN && self->stage.has_embedding)
    plan_lower_gather_first (self);
  if (self->policy.gather_time == PLAN_GATHER_BY_STAGE)
    gather_two (self);
  if (plan_lower_any_bucket (self)->cast >= 0)
    plan_lower_each_bucket (self, drop_cast);
  plan_lower_each_bucket (self, begin_gradients);
}

/* Frees embedding and head before the optimizer works, and gathers them again afterwards, where
 * they do not stay meanwhile. */
static void
drop_or_take_non_units (PlanLower *self, gboolean takes)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (!plan_bucket_is_unit (kind) && self->policy.shards_weights
        && self->stack->weights.outer == PLAN_OUTER_DROPS && plan_layout_has (&self->layout, kind))
      {
        const PlanRef weights = plan_lower_ref (self->bucket[kind].weights);
        if (takes)
          {
            plan_lower_alloc (self, weights);
            publish (self, kind, PLAN_NO_UNIT);
          }
        else
          plan_lower_free (self, weights);
      }
}

/* Frees units that were gathered ahead of a pass that does not come. */
static void
drop_units (PlanLower *self, gint64 count)
{
  for (gint32 i = 0; i < count; i++)
    {
      plan_lower_await_unit (self, PLAN_NO_UNIT, i);
      plan_lower_release (self, PLAN_NO_UNIT, i);
    }
}

/* Gathers every rank's exact sums on all ranks. */
static void
share_sums (PlanLower *self)
{
  if (self->comm.world < 0)
    return;
  plan_lower_collective (self, PLAN_OP_ALL_GATHER, PLAN_STREAM_REDUCE, self->comm.world,
                         PLAN_REFS (ONE (sums.all), ONE (sums.own)), 2 * PLAN_EXACT_LIMBS,
                         PLAN_REF_NONE, ONE (event.exchanged));
  plan_lower_wait (self, ONE (event.exchanged));
}

/* The host waits for the gradient norm and then prepares the update, in frameworks that read the
 * norm: they cannot issue the update ahead. */
static void
prepare (PlanLower *self)
{
  if (self->stack->optimizer.kind != PLAN_OPTIMIZER_DISTRIBUTED
      || self->plan->value[PLAN_CUDA_GRAPH] != PLAN_CUDA_GRAPH_OFF)
    return;
  const gint64 tensors = plan_model_n_tensors (self->model);
  plan_lower_look (self);
  plan_lower_emit (self, PLAN_OP_PREPARE, PLAN_STREAM_HOST, NULL, PLAN_DIMS (tensors), NULL,
                   PLAN_REF_NONE);
}

/* Ends an evaluation step: the next one gathers afresh. */
static void
end_evaluation (PlanLower *self)
{
  drop_units (self, self->policy.ahead_of_head);
  share_sums (self);
  plan_lower_look (self);
}

void
plan_lower_end_step (PlanLower *self)
{
  if (self->policy.is_eval)
    {
      end_evaluation (self);
      return;
    }
  const gint64 all = self->comm.world < 0 ? 1 : plan_schedule_ranks (self->schedule);
  const gint64 tp = self->plan->value[PLAN_TP];
  const gint64 parts = self->comm.next >= 0                                     ? all / tp
                       : self->policy.sums_whole && !measures_everywhere (self) ? 1
                       : self->policy.splits_shards ? self->place.ranks * self->place.replicas
                                                    : self->place.ranks;
  self->now.is_first_micro_batch = TRUE;
  drop_or_take_non_units (self, FALSE);
  plan_lower_sum_shared (self);
  if (plan_lower_any_bucket (self)->cast >= 0)
    plan_lower_each_bucket (self, cast_gradients);
  plan_lower_scale_alone (self);
  plan_lower_sum_replicated (self);
  plan_lower_rescale (self);
  plan_lower_each_bucket (self, measure_gradients);
  share_sums (self);
  /* How many ranks' sums of squares are counted: where every rank has all gradients, those of one
   * tensor-parallel group are. */
  plan_lower_emit (self, PLAN_OP_CLIP, PLAN_STREAM_COMPUTE,
                   PLAN_REFS (ONE (sums.coef), ONE (sums.all)),
                   PLAN_DIMS (all, parts * tp,
                              self->place.ranks * self->place.replicas * self->place.micro_batches
                                  * self->sizes->rows),
                   NULL, plan_lower_ref (self->event.known));
  plan_lower_balance (self);
  prepare (self);
  const PlanLowerBucket *any = plan_lower_any_bucket (self);
  const gboolean widens = any->wide_avg >= 0 || any->wide_avg_sq >= 0 || any->roots >= 0;
  if (widens)
    plan_lower_each_bucket (self, plan_lower_take_copies);
  if (self->event.copied >= 0)
    update_with_host (self);
  else
    plan_lower_each_bucket (self, update_weights);
  if (widens)
    plan_lower_each_bucket (self, plan_lower_drop_copies);
  quantise_weights (self);
  publish_together (self, TRUE);
  drop_or_take_non_units (self, TRUE);
  kick (self);
  if (self->event.known >= 0)
    plan_lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                     PLAN_WAITS (ONE (event.known)), PLAN_REF_NONE);
  else
    plan_lower_look (self);
}

void
plan_lower_teardown (PlanLower *self)
{
  if (self->policy.gather_time != PLAN_GATHER_AT_BEGIN)
    drop_units (self, self->policy.ahead_of_embedding);
  plan_lower_each_bucket (self, free_bucket);
  each_derived (self, drop_derived);
  each_small_buffer (self, plan_lower_free);
  plan_lower_host_memory (self, FALSE);
}
