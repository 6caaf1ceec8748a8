/* SPDX-License-Identifier: Apache-2.0 */
/* What happens around the micro batches: setup, the beginning and the end of a step, teardown. */
#include "config.h"

#include "planner/lower-private.h"

#define ONE(array) plan_lower_ref (self->array)

static const PlanLowerUnit no_unit = { .loop = -1 };

/* Elements of this rank's part of a bucket, as the optimizer sees it. */
static gint64
own_elements (const PlanLower *self, PlanBucketKind kind)
{
  return self->shards_optimizer ? plan_lower_shard_elements (self, kind)
                                : (gint64)self->layout.buckets[kind].padded;
}

/* Where this rank's part begins in a full buffer. */
static guint64
own_offset (const PlanLower *self, PlanBucketKind kind)
{
  return self->shards_optimizer ? (guint64)(self->rank * plan_lower_shard_elements (self, kind))
                                : 0;
}

/* Rounds the main weights into the compute weights and, where ranks hold parts, starts gathering
 * whatever stays gathered. */
static void
publish_weights (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const PlanRef weights = plan_lower_unit_ref (b->weights, unit, 0);
  const PlanRef own = self->shards_weights ? plan_lower_unit_ref (b->shard, unit, 0)
                                           : plan_lower_at (weights, own_offset (self, kind));

  plan_lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_COMPUTE,
                   PLAN_REFS (own, plan_lower_unit_ref (b->main, unit, 0)),
                   PLAN_DIMS (own_elements (self, kind)), NULL, ONE (done));
  if (self->shards_optimizer && !(self->shards_weights && kind == PLAN_BUCKET_LAYER))
    plan_lower_emit (self, PLAN_OP_ALL_GATHER, PLAN_STREAM_GATHER, PLAN_REFS (weights, own),
                     PLAN_DIMS (own_elements (self, kind)), PLAN_WAITS (ONE (done)),
                     plan_lower_unit_ref (b->gathered, unit, 0));
}

/* Memory that stays: everything but what lower_gather and the micro batches take. */
static void
resident_buffers (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                  void (*visit) (PlanLower *self, PlanRef buffer))
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint32 arrays[] = { b->shard, b->main, b->exp_avg, b->exp_avg_sq, b->grads, b->cast };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    if (arrays[i] >= 0)
      visit (self, plan_lower_unit_ref (arrays[i], unit, 0));
  if (!(self->shards_weights && kind == PLAN_BUCKET_LAYER))
    visit (self, plan_lower_unit_ref (b->weights, unit, 0));
}

static void
setup_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 n = own_elements (self, kind);
  resident_buffers (self, kind, unit, plan_lower_alloc);
  plan_lower_compute (self, PLAN_OP_INIT, PLAN_REFS (plan_lower_unit_ref (b->main, unit, 0)),
                      PLAN_DIMS (kind, self->shards_optimizer ? self->rank : 0,
                                 self->shards_optimizer ? self->ranks : 1));
  plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (plan_lower_unit_ref (b->exp_avg, unit, 0)),
                      PLAN_DIMS (n));
  plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (plan_lower_unit_ref (b->exp_avg_sq, unit, 0)),
                      PLAN_DIMS (n));
  publish_weights (self, kind, unit);
}

static void
zero_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const gint64 n = self->shards_grads ? plan_lower_shard_elements (self, kind)
                                      : (gint64)self->layout.buckets[kind].padded;
  plan_lower_compute (self, PLAN_OP_ZERO,
                      PLAN_REFS (plan_lower_unit_ref (self->bucket[kind].grads, unit, 0)),
                      PLAN_DIMS (n));
}

/* This rank's part of the reduced gradients. */
static PlanRef
own_gradients (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanRef grads = plan_lower_unit_ref (self->bucket[kind].grads, unit, 0);
  return self->shards_grads ? grads : plan_lower_at (grads, own_offset (self, kind));
}

/* What the optimizer reads. */
static PlanRef
optimizer_gradients (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const gint32 cast = self->bucket[kind].cast;
  return cast >= 0 ? plan_lower_unit_ref (cast, unit, 0) : own_gradients (self, kind, unit);
}

static void
cast_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const PlanRef cast = plan_lower_unit_ref (b->cast, unit, 0);
  plan_lower_alloc (self, cast);
  plan_lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_COMPUTE,
                   PLAN_REFS (cast, own_gradients (self, kind, unit)),
                   PLAN_DIMS (own_elements (self, kind)),
                   PLAN_WAITS (plan_lower_unit_ref (b->reduced, unit, 0)), PLAN_REF_NONE);
}

static void
drop_cast (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  plan_lower_free (self, plan_lower_unit_ref (self->bucket[kind].cast, unit, 0));
}

static void
measure_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  plan_lower_emit (self, PLAN_OP_NORM_SQ, PLAN_STREAM_COMPUTE,
                   PLAN_REFS (plan_lower_at (ONE (sums), PLAN_EXACT_LIMBS),
                              optimizer_gradients (self, kind, unit)),
                   PLAN_DIMS (own_elements (self, kind)),
                   PLAN_WAITS (plan_lower_unit_ref (b->reduced, unit, 0)), ONE (done));
}

static void
update_weights (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  plan_lower_compute (self, PLAN_OP_ADAMW,
                      PLAN_REFS (plan_lower_unit_ref (b->main, unit, 0),
                                 plan_lower_unit_ref (b->exp_avg, unit, 0),
                                 plan_lower_unit_ref (b->exp_avg_sq, unit, 0),
                                 optimizer_gradients (self, kind, unit), ONE (coef)),
                      PLAN_DIMS (own_elements (self, kind)));
  publish_weights (self, kind, unit);
}

static void
free_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (self->shards_optimizer && !(self->shards_weights && kind == PLAN_BUCKET_LAYER))
    plan_lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                     PLAN_WAITS (plan_lower_unit_ref (b->gathered, unit, 0)), PLAN_REF_NONE);
  resident_buffers (self, kind, unit, plan_lower_free);
}

static void
each_bucket (PlanLower *self,
             void (*visit) (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit))
{
  visit (self, PLAN_BUCKET_EMBEDDING, no_unit);
  visit (self, PLAN_BUCKET_HEAD, no_unit);
  const PlanLowerUnit unit = plan_lower_begin_units (self, 0, self->model->layers, 1);
  visit (self, PLAN_BUCKET_LAYER, unit);
  plan_lower_end_units (self, unit);
}

static void
each_small_buffer (PlanLower *self, void (*visit) (PlanLower *self, PlanRef buffer))
{
  const gint32 arrays[] = { self->tokens, self->targets,
                            self->sums,   self->all_sums == self->sums ? -1 : self->all_sums,
                            self->coef,   self->scratch };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    if (arrays[i] >= 0)
      visit (self, plan_lower_ref (arrays[i]));
}

void
plan_lower_setup (PlanLower *self)
{
  each_small_buffer (self, plan_lower_alloc);
  each_bucket (self, setup_bucket);
}

void
plan_lower_begin_step (PlanLower *self)
{
  plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (ONE (sums)), PLAN_DIMS (2 * PLAN_EXACT_LIMBS));
  if (self->bucket[PLAN_BUCKET_LAYER].cast >= 0)
    each_bucket (self, drop_cast);
  each_bucket (self, zero_gradients);
}

void
plan_lower_end_step (PlanLower *self)
{
  if (self->bucket[PLAN_BUCKET_LAYER].cast >= 0)
    each_bucket (self, cast_gradients);
  each_bucket (self, measure_gradients);
  if (self->ranks > 1)
    plan_lower_emit (self, PLAN_OP_ALL_GATHER, PLAN_STREAM_COMPUTE,
                     PLAN_REFS (ONE (all_sums), ONE (sums)), PLAN_DIMS (2 * PLAN_EXACT_LIMBS), NULL,
                     PLAN_REF_NONE);
  /* Where gradients are whole on every rank, one rank's sum is the sum. */
  plan_lower_compute (self, PLAN_OP_CLIP, PLAN_REFS (ONE (coef), ONE (all_sums)),
                      PLAN_DIMS (self->ranks, self->shards_optimizer ? self->ranks : 1,
                                 self->ranks * self->micro_batches * self->rows));
  each_bucket (self, update_weights);
  plan_lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL, PLAN_WAITS (ONE (done)),
                   PLAN_REF_NONE);
}

void
plan_lower_teardown (PlanLower *self)
{
  each_bucket (self, free_bucket);
  each_small_buffer (self, plan_lower_free);
}
