/* SimTally: for how long the ops of each node of a schedule run in a step, all repeats together,
 * without a span per op. Iterations that are alike are counted once and multiplied. */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  GArray *ns;                 /* gint64 per node */
  GArray *before[SIM_LEVELS]; /* the same when the iteration that is being proven began */
} SimTally;

void sim_tally_clear (SimTally *self);

/* Forgets everything. */
void sim_tally_begin (SimTally *self, guint n_nodes);

static inline void
sim_tally_add (SimTally *self, guint node, gint64 ns)
{
  g_array_index (self->ns, gint64, node) += ns;
}

/* What is added from here on, and then that `count` times more. */
void sim_tally_begin_pattern (SimTally *self, guint level);
void sim_tally_repeat (SimTally *self, guint level, gint64 count);

G_END_DECLS
