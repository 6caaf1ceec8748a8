/* SPDX-License-Identifier: Apache-2.0 */
/* What happens around the micro batches: setup, the beginning and the end of a step, teardown. */
#include "config.h"

#include "planner/lower-private.h"

#define ONE(array) lower_ref (self->array)

static const LowerUnit no_unit = { .loop = -1 };

/* Elements of this rank's part of a bucket, as the optimizer sees it. */
static gint64
own_elements (const Lower *self, PlanBucketKind kind)
{
  return self->shards_optimizer ? lower_shard_elements (self, kind)
                                : (gint64)self->layout.buckets[kind].padded;
}

/* Where this rank's part begins in a full buffer. */
static guint64
own_offset (const Lower *self, PlanBucketKind kind)
{
  return self->shards_optimizer ? (guint64)(self->rank * lower_shard_elements (self, kind)) : 0;
}

/* Rounds the main weights into the compute weights and, where ranks hold parts, starts gathering
 * whatever stays gathered. */
static void
publish_weights (Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  const LowerBucket *b = &self->bucket[kind];
  const PlanRef weights = lower_unit_ref (b->weights, unit, 0);
  const PlanRef own = self->shards_weights ? lower_unit_ref (b->shard, unit, 0)
                                           : lower_at (weights, own_offset (self, kind));

  lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_COMPUTE,
              LOWER_REFS (own, lower_unit_ref (b->main, unit, 0)),
              LOWER_DIMS (own_elements (self, kind)), NULL, ONE (done));
  if (self->shards_optimizer && !(self->shards_weights && kind == PLAN_BUCKET_LAYER))
    lower_emit (self, PLAN_OP_ALL_GATHER, PLAN_STREAM_GATHER, LOWER_REFS (weights, own),
                LOWER_DIMS (own_elements (self, kind)), LOWER_WAITS (ONE (done)),
                lower_unit_ref (b->gathered, unit, 0));
}

/* Memory that stays: everything but what lower_gather and the micro batches take. */
static void
resident_buffers (Lower *self, PlanBucketKind kind, LowerUnit unit,
                  void (*visit) (Lower *self, PlanRef buffer))
{
  const LowerBucket *b = &self->bucket[kind];
  const gint32 arrays[] = { b->shard, b->main, b->exp_avg, b->exp_avg_sq, b->grads };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    if (arrays[i] >= 0)
      visit (self, lower_unit_ref (arrays[i], unit, 0));
  if (!(self->shards_weights && kind == PLAN_BUCKET_LAYER))
    visit (self, lower_unit_ref (b->weights, unit, 0));
}

static void
setup_bucket (Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  const LowerBucket *b = &self->bucket[kind];
  const gint64 n = own_elements (self, kind);
  resident_buffers (self, kind, unit, lower_alloc);
  lower_compute (self, PLAN_OP_INIT, LOWER_REFS (lower_unit_ref (b->main, unit, 0)),
                 LOWER_DIMS (kind, self->shards_optimizer ? self->rank : 0,
                             self->shards_optimizer ? self->ranks : 1));
  lower_compute (self, PLAN_OP_ZERO, LOWER_REFS (lower_unit_ref (b->exp_avg, unit, 0)),
                 LOWER_DIMS (n));
  lower_compute (self, PLAN_OP_ZERO, LOWER_REFS (lower_unit_ref (b->exp_avg_sq, unit, 0)),
                 LOWER_DIMS (n));
  publish_weights (self, kind, unit);
}

static void
zero_gradients (Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  const gint64 n = self->shards_grads ? lower_shard_elements (self, kind)
                                      : (gint64)self->layout.buckets[kind].padded;
  lower_compute (self, PLAN_OP_ZERO,
                 LOWER_REFS (lower_unit_ref (self->bucket[kind].grads, unit, 0)), LOWER_DIMS (n));
}

/* This rank's part of the reduced gradients. */
static PlanRef
own_gradients (const Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  const PlanRef grads = lower_unit_ref (self->bucket[kind].grads, unit, 0);
  return self->shards_grads ? grads : lower_at (grads, own_offset (self, kind));
}

static void
measure_gradients (Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  const LowerBucket *b = &self->bucket[kind];
  lower_emit (
      self, PLAN_OP_NORM_SQ, PLAN_STREAM_COMPUTE,
      LOWER_REFS (lower_at (ONE (sums), PLAN_EXACT_LIMBS), own_gradients (self, kind, unit)),
      LOWER_DIMS (own_elements (self, kind)), LOWER_WAITS (lower_unit_ref (b->reduced, unit, 0)),
      ONE (done));
}

static void
update_weights (Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  const LowerBucket *b = &self->bucket[kind];
  lower_compute (self, PLAN_OP_ADAMW,
                 LOWER_REFS (lower_unit_ref (b->main, unit, 0),
                             lower_unit_ref (b->exp_avg, unit, 0),
                             lower_unit_ref (b->exp_avg_sq, unit, 0),
                             own_gradients (self, kind, unit), ONE (coef)),
                 LOWER_DIMS (own_elements (self, kind)));
  publish_weights (self, kind, unit);
}

static void
free_bucket (Lower *self, PlanBucketKind kind, LowerUnit unit)
{
  const LowerBucket *b = &self->bucket[kind];
  if (self->shards_optimizer && !(self->shards_weights && kind == PLAN_BUCKET_LAYER))
    lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                LOWER_WAITS (lower_unit_ref (b->gathered, unit, 0)), PLAN_REF_NONE);
  resident_buffers (self, kind, unit, lower_free);
}

static void
each_bucket (Lower *self, void (*visit) (Lower *self, PlanBucketKind kind, LowerUnit unit))
{
  visit (self, PLAN_BUCKET_EMBEDDING, no_unit);
  visit (self, PLAN_BUCKET_HEAD, no_unit);
  const LowerUnit unit = lower_begin_units (self, 0, self->model->layers, 1);
  visit (self, PLAN_BUCKET_LAYER, unit);
  lower_end_units (self, unit);
}

static void
each_small_buffer (Lower *self, void (*visit) (Lower *self, PlanRef buffer))
{
  const gint32 arrays[] = { self->tokens, self->targets,
                            self->sums,   self->all_sums == self->sums ? -1 : self->all_sums,
                            self->coef,   self->scratch };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    if (arrays[i] >= 0)
      visit (self, lower_ref (arrays[i]));
}

void
lower_setup (Lower *self)
{
  each_small_buffer (self, lower_alloc);
  each_bucket (self, setup_bucket);
}

void
lower_begin_step (Lower *self)
{
  lower_compute (self, PLAN_OP_ZERO, LOWER_REFS (ONE (sums)), LOWER_DIMS (2 * PLAN_EXACT_LIMBS));
  each_bucket (self, zero_gradients);
}

void
lower_end_step (Lower *self)
{
  each_bucket (self, measure_gradients);
  if (self->ranks > 1)
    lower_emit (self, PLAN_OP_ALL_GATHER, PLAN_STREAM_COMPUTE,
                LOWER_REFS (ONE (all_sums), ONE (sums)), LOWER_DIMS (2 * PLAN_EXACT_LIMBS), NULL,
                PLAN_REF_NONE);
  /* Where gradients are whole on every rank, one rank's sum is the sum. */
  lower_compute (self, PLAN_OP_CLIP, LOWER_REFS (ONE (coef), ONE (all_sums)),
                 LOWER_DIMS (self->ranks, self->shards_optimizer ? self->ranks : 1,
                             self->ranks * self->micro_batches * self->rows));
  each_bucket (self, update_weights);
  lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL, LOWER_WAITS (ONE (done)),
              PLAN_REF_NONE);
}

void
lower_teardown (Lower *self)
{
  each_bucket (self, free_bucket);
  each_small_buffer (self, lower_free);
}
