/* SimArenaFit: gives out places by first fit, as PlanArena does, but keeps only the gaps. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  GArray *gaps;      /* sorted by offset; no two touch each other or the end */
  guint64 end, size; /* everything from `end` on is free; `size` is the largest `end` so far */
} SimArenaFit;

void sim_arena_fit_begin (SimArenaFit *self);
void sim_arena_fit_clear (SimArenaFit *self);

guint64 sim_arena_fit_take (SimArenaFit *self, guint64 bytes);
void sim_arena_fit_give_back (SimArenaFit *self, guint64 offset, guint64 bytes);

/* Appends the gaps and the end to `out` (guint64): where these are equal, arenas behave alike. */
void sim_arena_fit_describe (const SimArenaFit *self, GArray *out);

G_END_DECLS
