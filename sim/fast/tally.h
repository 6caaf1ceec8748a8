/* SimTally: for how long the ops of each node of a schedule run in a step, summed over all repeats,
 * without a span per op. Iterations that are jumped over are counted by multiplication. */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  GArray *ns;                 /* gint64 per node */
  GArray *before[SIM_LEVELS]; /* `ns` at the beginning of the iteration that is being proven, by
                                 level */
} SimTally;

void sim_tally_clear (SimTally *self);

/* Forgets everything. */
void sim_tally_begin (SimTally *self, guint n_nodes);

static inline void
sim_tally_add (SimTally *self, guint node, gint64 ns)
{
  g_array_index (self->ns, gint64, node) += ns;
}

/* Marks the beginning of an iteration; sim_tally_repeat adds what was added since then `count` more
 * times. */
void sim_tally_begin_iteration (SimTally *self, guint level);
void sim_tally_repeat (SimTally *self, guint level, gint64 count);

G_END_DECLS
