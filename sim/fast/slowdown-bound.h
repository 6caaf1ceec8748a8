/* SimSlowdown: work added up by what it occupies, and the least that some of it slows the rest.
 *
 * Sums instead of a simulation, for bounds: communication that begins behind everything that was
 * given to the compute stream before, as plan_lower_collective has it, lies beside ops that are
 * issued later than it, so that it is them who are slowed (sharing.h). */
#pragma once
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_SLOWDOWN_CLASSES 64

/* Ops that a micro batch has a few times only: what it gathers and reduces besides its units. */
#define SIM_SLOWDOWN_SELDOM 3

/* Ops of one load, and the nanoseconds that they take alone. */
typedef struct
{
  SimLoad load;
  gint64 n, ns;
} SimSlowdownClass;

/* Work by load. Starts as zeros; may be added up and subtracted. */
typedef struct
{
  guint n;
  gboolean is_lost; /* there were too many loads */
  SimSlowdownClass of[SIM_SLOWDOWN_CLASSES];
} SimSlowdown;

void sim_slowdown_add (SimSlowdown *self, SimLoad load, gint64 n, gint64 ns);
void sim_slowdown_join (SimSlowdown *self, const SimSlowdown *other, gint64 times);

#define SIM_SLOWDOWN_KINDS 2

/* What one stream does again and again, where that is of few kinds; all that it does. */
typedef struct
{
  guint n_kinds; /* there may be more than are noted */
  SimSlowdownClass kinds[SIM_SLOWDOWN_KINDS];
  gint64 ns;
} SimSlowdownStream;

SimSlowdownStream sim_slowdown_stream (const SimSlowdown *self);

/* Nanoseconds that the ops of a chain, of which no two run at once, together with the time in which
 * none of them does, take longer at least than alone, when two streams do those kinds beside them.
 */
gint64 sim_slowdown_slowing_ns (const SimSlowdown *chain, const SimSlowdownStream beside[2]);

G_END_DECLS
