/* SimRejoin: where a section that is run again comes to be as it was there the last time.
 *
 * Places are behind its repeats, and between turns of them. From such a place on all goes as it
 * went then, as much later. What was over before anything of the rest began makes no difference;
 * nor does the host, where it is ahead until it waits.
 */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_REJOIN_PLACES 8 /* of a section that are looked at */

/* When a run came by, and what was left then. */
typedef struct
{
  guint64 place; /* which one: no other of a run has that number */
  gint64 host_ns;
  gint64 least_ns; /* nothing of the rest began before */
  gint64 slack_ns; /* by which it began later than it was issued, until the host waited */
  gboolean waits;  /* it does in what is left */
  guint64 n_ops, rest_ops;
  SimOccupancy occupancy;
} SimPass;

typedef struct
{
  guint n_clocks;
  guint n_known, n_passed; /* places: known, passed by in this run */
  SimPass passes[SIM_REJOIN_PLACES];
  GArray *clocks;         /* gint64: all of them at each place */
  GArray *begin;          /* SimClock: when this run began; the last one ended with them */
  SimOccupancy occupancy; /* then, */
  guint64 used;           /* too */
  gint64 least_ns;        /* in this part, as noted by those who issue */
} SimRejoin;

/* Zeroed memory becomes one that knows nothing; so does one that was used. */
void sim_rejoin_reset (SimRejoin *self, guint n_clocks);
void sim_rejoin_clear (SimRejoin *self);

void sim_rejoin_begin (SimRejoin *self, const SimEngine *engine);

/* A part of the run is over, with what there was of slack in it. */
void sim_rejoin_end_part (SimRejoin *self, gint64 slack_ns);

/* At each place of a run in turn, between two parts. TRUE: it is as it was; the engine and `n_ops`
 * are where the run ends. */
gboolean sim_rejoin_pass (SimRejoin *self, SimEngine *engine, guint64 place, guint64 *n_ops);

/* The host has waited, with such slack in this part; the run ends, and its last part before. */
void sim_rejoin_note_sync (SimRejoin *self, gint64 slack_ns);
void sim_rejoin_end (SimRejoin *self, guint64 n_ops);

/* Something begins at that time. */
static inline void
sim_rejoin_note (SimRejoin *self, gint64 start_ns)
{
  self->least_ns = MIN (self->least_ns, start_ns);
}

G_END_DECLS
