/* SimFold: runs the part of a program that takes time, and jumps over iterations that are proven
 * to go on as the one before did.
 *
 * Gives what a run of every op gives, to the nanosecond. */
#pragma once
#include "sim/engine.h"
#include "sim/fast/exposed.h"
#include "sim/fast/program.h"
#include "sim/fast/tally.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const SimProgram *program;
  SimEngine engine;
  SimExposed busy;
  SimTally tally;
  gint64 values[PLAN_MAX_DEPTH];      /* of the loops around the op */
  GArray *saved[SIM_LEVELS];          /* SimClock: all of them when an iteration began */
  SimOccupancy occupancy[SIM_LEVELS]; /* then */
  guint64 n_ops, n_walked;            /* of them all, those that were issued one by one */
  gboolean splits;                    /* notes in `busy` and `tally` what streams and ops do */
} SimFold;

void sim_fold_begin (SimFold *self, const PlanSchedule *schedule, const SimProgram *program,
                     const SimCost *cost);
void sim_fold_clear (SimFold *self);

/* Returns the host's time for it. */
gint64 sim_fold_run (SimFold *self, PlanSection section);

G_END_DECLS
