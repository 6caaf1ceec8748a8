/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/sequence.h"

PlanSequencePart
plan_sequence_part (guint64 part, guint64 parts, guint64 length)
{
  const guint64 piece = length / 2;
  if (parts <= 1)
    return (PlanSequencePart){ length, { 0, length } };
  return (PlanSequencePart){ piece, { part * piece, (2 * parts - 1 - part) * piece } };
}

guint64
plan_sequence_place (const PlanSequencePart *self, guint64 at)
{
  return at < self->piece ? self->places[0] + at : self->places[1] + (at - self->piece);
}

guint64
plan_sequence_before (const PlanSequencePart *self, guint64 place)
{
  guint64 before = 0;
  for (guint i = 0; i < G_N_ELEMENTS (self->places); i++)
    if (place > self->places[i])
      before += MIN (place - self->places[i], self->piece);
  return before;
}
