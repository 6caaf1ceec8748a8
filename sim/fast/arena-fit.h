/* SimArenaFit: places by first fit, as PlanArena gives them, without noting them all. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  GArray *gaps;      /* by offset; no two touch each other or the end */
  guint64 end, size; /* everything from the end on is free; the furthest it was */
} SimArenaFit;

void sim_arena_fit_begin (SimArenaFit *self);
void sim_arena_fit_clear (SimArenaFit *self);

guint64 sim_arena_fit_take (SimArenaFit *self, guint64 bytes);
void sim_arena_fit_give_back (SimArenaFit *self, guint64 offset, guint64 bytes);

/* Appends to `out` (guint64) where there is room. */
void sim_arena_fit_describe (const SimArenaFit *self, GArray *out);

G_END_DECLS
