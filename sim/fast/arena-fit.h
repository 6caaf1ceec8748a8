/* SimGaps: places by first fit, as PlanArena gives them, without noting them all. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  GArray *gaps;      /* by offset; no two touch each other or the end */
  guint64 end, size; /* everything from the end on is free; the furthest it was */
} SimGaps;

void sim_gaps_begin (SimGaps *self);
void sim_gaps_clear (SimGaps *self);

guint64 sim_gaps_take (SimGaps *self, guint64 bytes);
void sim_gaps_give_back (SimGaps *self, guint64 offset, guint64 bytes);

/* Appends to `out` (guint64) where there is room. */
void sim_gaps_describe (const SimGaps *self, GArray *out);

G_END_DECLS
