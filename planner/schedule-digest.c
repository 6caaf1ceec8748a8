/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule-private.h"

/* Two independent 64-bit sums of what is fed to it: equal ones are of equal input but for one
 * chance in 2^128. */
typedef struct
{
  guint64 a, b;
} Digest;

static void
feed (Digest *self, guint64 word)
{
  self->a = (self->a ^ word) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15);
  self->a ^= self->a >> 32;
  self->b = (self->b + word) * G_GUINT64_CONSTANT (0xC2B2AE3D27D4EB4F);
  self->b ^= self->b >> 29;
}

static void
feed_ref (Digest *self, const PlanRef *ref)
{
  feed (self, (guint64)(guint32)ref->array << 32 | (guint32)ref->offset);
  if (ref->array < 0)
    return;
  feed (self, (guint64)(guint8)ref->loop << 8 | ref->modulus);
  feed (self, ref->at);
}

static void
feed_op (Digest *self, const PlanOp *op)
{
  feed (self, (guint64)op->kind << 24 | (guint64)op->stream << 16 | (guint64)(guint8)op->group << 8
                  | op->n_waits);
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    feed_ref (self, &op->refs[i]);
  for (guint i = 0; i < PLAN_MAX_DIMS; i++)
    feed (self, (guint64)op->dims[i]);
  for (guint i = 0; i < op->n_waits; i++)
    feed_ref (self, &op->waits[i]);
  feed_ref (self, &op->record);
}

void
plan_schedule_digest (const PlanSchedule *self, guint64 out_digest[2])
{
  Digest digest = { self->ranks, self->is_graph };
  for (guint i = 0; i < PLAN_N_SECTIONS; i++)
    feed (&digest, self->section_start[i]);
  for (guint i = 0; i < self->groups->len; i++)
    {
      const PlanGroup *group = &g_array_index (self->groups, PlanGroup, i);
      feed (&digest, (guint64)group->size << 32 | group->stride);
    }
  for (guint i = 0; i < self->buffers->len; i++)
    {
      const PlanBuffer *buffer = &g_array_index (self->buffers, PlanBuffer, i);
      feed (&digest, (guint64)buffer->count << 32 | (guint64)buffer->dtype << 8 | buffer->category);
      feed (&digest, buffer->elements);
    }
  for (guint i = 0; i < self->events->len; i++)
    feed (&digest, g_array_index (self->events, PlanEvent, i).count);
  for (guint i = 0; i < self->nodes->len; i++)
    feed_op (&digest, &g_array_index (self->nodes, PlanOp, i));
  out_digest[0] = digest.a;
  out_digest[1] = digest.b;
}
