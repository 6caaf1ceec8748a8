/* What sim/fast/footprint.c and its leaps (sim/fast/leap.c) share. */
#pragma once
#include "sim/fast/footprint.h"
#include <string.h>
G_BEGIN_DECLS

/* An item of the program with all that it takes to be run again and again. */
struct _SimMove
{
  guint64 bytes;
  SimBlocksHint hint;
  guint32 base; /* id of its buffer where all values are 0 */
  gint32 offset;
  guint32 index, node, launches;
  guint8 kind, modulus, category, pool;
  guint8 value;    /* which one its buffer moves with; SIM_NO_VALUE, always 0, where it does not */
  guint8 has_unit; /* it is one of many */
  guint8 has_block;
  guint8 is_passing; /* what it takes is given back next, unless a range ends between */
};

#define SIM_NO_VALUE PLAN_MAX_DEPTH

static inline SimMove *
sim_footprint_move (const SimFootprint *self, guint i)
{
  return &((SimMove *)(gpointer)self->moves->data)[i];
}

static inline guint32 *
sim_footprint_held (const SimFootprint *self, guint32 id)
{
  return &((guint32 *)(gpointer)self->held->data)[id];
}

/* Of its buffer, with the loops where they stand. */
static inline guint32
sim_footprint_id (const SimFootprint *self, const SimMove *move)
{
  const gint64 value = self->values[move->value];
  return G_LIKELY (!move->modulus) ? move->base + (guint32)value
                                   : move->base - (guint32)move->offset
                                         + (guint32)((move->offset + value) % move->modulus);
}

/* Categories at the peak are noted when it is over. */
static inline void
sim_footprint_note_peak (SimFootprint *self)
{
  if (self->is_peak)
    memcpy (self->meter.peak, self->meter.live, sizeof self->meter.peak);
  self->is_peak = FALSE;
}

/* Memory is taken, or given back: the meter's part of it. */
void sim_footprint_count (SimFootprint *self, const SimMove *move);

G_END_DECLS
