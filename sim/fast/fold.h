/* SimFold: runs the part of a program (program.h) that takes time, and jumps over iterations that
 * are proven to go on as the one before did. The result equals a run of every op to the nanosecond;
 * tests/prop/prop-fold.c compares them.
 *
 * A turn is as many iterations of a loop as it takes until the same events are used again
 * (SimLoop.unroll). Proofs are of turns; fold.c says why they hold. */
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
  gint64 values[PLAN_MAX_DEPTH];      /* values of the variables of the loops around the op */
  GArray *saved[SIM_LEVELS];          /* SimClock: all clocks when the iteration began, by level */
  SimOccupancy occupancy[SIM_LEVELS]; /* the occupancy at that time */
  guint64 n_ops, n_walked;            /* all ops; those that were issued one by one */
  gboolean splits;                    /* `busy` and `tally` note what streams and ops do */
} SimFold;

void sim_fold_begin (SimFold *self, const PlanSchedule *schedule, const SimProgram *program,
                     const SimCost *cost);
void sim_fold_clear (SimFold *self);

/* Runs a section and returns the host's time for it. */
gint64 sim_fold_run (SimFold *self, PlanSection section);

G_END_DECLS
