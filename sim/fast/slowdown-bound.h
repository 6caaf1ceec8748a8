/* SimCrowd: work added up by what it occupies, and the least that some of it slows the rest.
 *
 * Sums instead of a simulation, for bounds: communication that begins behind everything that was
 * given to the compute stream before, as plan_lower_collective has it, lies beside ops that are
 * issued later than it, so that it is them who are slowed (sharing.h). */
#pragma once
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_CROWD_CLASSES 64

/* Ops that a micro batch has a few times only: what it gathers and reduces besides its units. */
#define SIM_CROWD_SELDOM 3

/* Ops of one load, and the nanoseconds that they take alone. */
typedef struct
{
  SimLoad load;
  gint64 n, ns;
} SimCrowdClass;

/* Work by load. Starts as zeros; may be added up and subtracted. */
typedef struct
{
  guint n;
  gboolean is_lost; /* there were too many loads */
  SimCrowdClass of[SIM_CROWD_CLASSES];
} SimCrowd;

void sim_crowd_add (SimCrowd *self, SimLoad load, gint64 n, gint64 ns);
void sim_crowd_join (SimCrowd *self, const SimCrowd *other, gint64 times);

#define SIM_CROWD_KINDS 2

/* What one stream does again and again, where that is of few kinds; all that it does. */
typedef struct
{
  guint n_kinds; /* there may be more than are noted */
  SimCrowdClass kinds[SIM_CROWD_KINDS];
  gint64 ns;
} SimCrowdStream;

SimCrowdStream sim_crowd_stream (const SimCrowd *self);

/* Nanoseconds that the ops of a chain, of which no two run at once, together with the time in which
 * none of them does, take longer at least than alone, when two streams do those kinds beside them.
 */
gint64 sim_crowd_slowing_ns (const SimCrowd *chain, const SimCrowdStream beside[2]);

G_END_DECLS
