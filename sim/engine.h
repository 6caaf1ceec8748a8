/* SimEngine: streams, events and a host, advanced op by op.
 *
 * The host issues ops one after the other, each at a cost. An op starts when it has been issued,
 * its stream is free and its events have happened; a collective waits for the one before of its
 * group, whatever their streams: a communicator does one thing at a time. An op that runs beside
 * others shares the device with them (sharing.h). On a serial device every stream is the same one.
 */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

/* Loops whose iterations can be proven alike: the outermost and those directly in it. */
#define SIM_LEVELS 2

/* A time, and by how much it is later in the next iteration of the loop of each level that is being
 * proven; 0 for a level that is not. */
typedef struct
{
  gint64 drift[SIM_LEVELS], at;
} SimClock;

/* Spells of a stream that are kept for those who share with them. */
#define SIM_SPELLS 4

/* Where each clock lies among all of them. */
enum
{
  SIM_CLOCK_HOST,
  SIM_CLOCK_STREAMS, /* when each is free */
  SIM_CLOCK_GROUPS = SIM_CLOCK_STREAMS + PLAN_N_STREAMS,
  SIM_CLOCK_SPELLS = SIM_CLOCK_GROUPS + PLAN_MAX_GROUPS, /* begin and end of each, by stream */
  SIM_CLOCK_EVENTS = SIM_CLOCK_SPELLS + PLAN_N_STREAMS * SIM_SPELLS * 2, /* when each last happened;
                                                                            0 before */
};

typedef enum
{
  SIM_ISSUE_WORK,
  SIM_ISSUE_SYNC, /* the host waits */
  SIM_ISSUE_HOLD, /* a stream waits: alloc, free and wait take no time of host or stream */
} SimIssueKind;

/* An op as the engine sees it, its references resolved to event ids. */
typedef struct
{
  SimIssueKind kind;
  PlanStream stream;
  gint8 group; /* -1: none */
  guint8 n_waits;
  gint8 wait_level[PLAN_MAX_WAITS]; /* of the loop with which the event moves; -1: none */
  gint8 record_level;
  guint32 waits[PLAN_MAX_WAITS];
  gint64 record;        /* -1: none */
  gint64 ns, launch_ns; /* it takes alone, the host takes for it */
  SimLoad load;
} SimIssue;

/* What streams do that others share with: spells in order, those in the past forgotten. */
typedef struct
{
  guint8 n[PLAN_N_STREAMS];
  SimLoad load[PLAN_N_STREAMS][SIM_SPELLS];
} SimOccupancy;

SimIssueKind sim_issue_kind (PlanOpKind kind);

/* An event met in a proof that no op of the iteration has recorded: what later iterations will find
 * in its place must be as late as this says, or no later. */
typedef struct
{
  guint32 event;
  gboolean decides; /* the op waited for it longest */
  SimClock clock;   /* its own, or of what the op waited for longer */
} SimMoving;

typedef struct
{
  gboolean is_serial;
  guint n_clocks;
  GArray *clocks;   /* SimClock */
  GArray *recorded; /* guint64 per event: number of the op that last did */
  guint64 n_issued;
  SimOccupancy occupancy; /* its times are clocks */
  guint occupied;         /* streams with any, a bit each */
  guint64 used;           /* by all those spells together, as sharing.c packs it */

  guint n_proofs; /* under way; without any, every drift is 0 */
  /* Per level: */
  gint64 shift[SIM_LEVELS];        /* ids per iteration of events that move; 0: nothing to prove */
  guint64 proof_begin[SIM_LEVELS]; /* first op of the iteration */
  gint64 holds[SIM_LEVELS];        /* iterations from it for which every order is sure to hold */
  GArray *seen[SIM_LEVELS];        /* SimMoving */
  GArray *moved[SIM_LEVELS];       /* SimMoving: recorded, with its time */
} SimEngine;

/* Zeroed memory becomes an engine at time 0; so does one that was used. */
void sim_engine_init (SimEngine *self, const PlanSchedule *schedule, const SimCost *cost);
void sim_engine_clear (SimEngine *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SimEngine, sim_engine_clear)

static inline SimClock *
sim_engine_clock (const SimEngine *self, guint i)
{
  return &((SimClock *)(gpointer)self->clocks->data)[i];
}

/* Notes for how many iterations what is later by `slack` stays so where the earlier one gains
 * `closer` in each. */
static inline void
sim_engine_note (SimEngine *self, guint level, gint64 slack, gint64 closer)
{
  if (closer > 0)
    self->holds[level] = MIN (self->holds[level], slack / closer);
}

/* The same of two clocks, with `margin` between them at least. */
static inline void
sim_engine_note_order (SimEngine *self, const SimClock *late, const SimClock *early, gint64 margin)
{
  for (guint level = 0; level < SIM_LEVELS && self->n_proofs > 0; level++)
    sim_engine_note (self, level, late->at - early->at - margin,
                     early->drift[level] - late->drift[level]);
}

/* The step function of every run: issues one op, says when it starts, and returns for how long it
 * runs beside what runs with it. */
gint64 sim_engine_issue (SimEngine *self, const SimIssue *issue, SimClock *out_start);

/* When an op could start; keeps its stream from anything before that time. */
gint64 sim_engine_ready (const SimEngine *self, const SimIssue *issue);
void sim_engine_hold (SimEngine *self, PlanStream stream, gint64 until_ns);

G_END_DECLS
