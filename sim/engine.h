/* SimEngine: streams, events and a host, advanced op by op.
 *
 * The host issues ops one after the other, and each takes it some time. An op starts when it has
 * been issued, its stream is free and its events have happened. A collective also waits for the one
 * before it in its group, whatever their streams, because a communicator does one thing at a time.
 * Ops that run side by side share the device (sharing.h). On a serial device (a CPU) all streams
 * are one.
 *
 * A proof shows for one iteration of a loop that the next ones go on as it did and need not be run
 * one by one (sim/fast/fold.c). For that the engine keeps a drift with every time. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

/* Levels of loops whose iterations can be proven alike: outermost loops are of level 0, those
 * directly in them of level 1. */
#define SIM_LEVELS 2

/* A time, and its drift: by how much it is later in the next iteration of the loop of each level
 * that is being proven. The drift of a level without a proof is 0. */
typedef struct
{
  gint64 drift[SIM_LEVELS], at;
} SimClock;

/* Spells (see sharing.h) that are kept per stream for ops that share with them. */
#define SIM_SPELLS 4

/* Index of each clock in SimEngine.clocks. */
enum
{
  SIM_CLOCK_HOST,
  SIM_CLOCK_STREAMS, /* when each is free */
  SIM_CLOCK_GROUPS = SIM_CLOCK_STREAMS + PLAN_N_STREAMS,
  SIM_CLOCK_SPELLS = SIM_CLOCK_GROUPS + PLAN_MAX_GROUPS, /* begin and end of each, by stream */
  SIM_CLOCK_EVENTS
  = SIM_CLOCK_SPELLS
    + PLAN_N_STREAMS * SIM_SPELLS * 2, /* when each event last happened; 0: never */
};

typedef enum
{
  SIM_ISSUE_WORK,
  SIM_ISSUE_SYNC, /* the host waits for a stream */
  SIM_ISSUE_HOLD, /* a stream waits for events: alloc, free and wait, which take no time themselves
                   */
} SimIssueKind;

/* An op as the engine sees it, its references resolved to event ids. */
typedef struct
{
  SimIssueKind kind;
  PlanStream stream;
  gint8 group; /* -1: none */
  guint8 n_waits;
  gint8 wait_level[PLAN_MAX_WAITS]; /* level of the loop with which the event moves; -1: none */
  gint8 record_level;
  guint32 waits[PLAN_MAX_WAITS];
  gint64 record;        /* -1: none */
  gint64 ns, launch_ns; /* of the op when nothing runs beside it; of the host to issue it */
  SimLoad load;
} SimIssue;

/* The spells of each stream that other streams share with, in order, without past ones. Their times
 * are clocks of the engine. */
typedef struct
{
  guint8 n[PLAN_N_STREAMS];
  SimLoad load[PLAN_N_STREAMS][SIM_SPELLS];
} SimOccupancy;

SimIssueKind sim_issue_kind (PlanOpKind kind);

/* An event that an op waits for during a proof, though no op of the proven iteration has recorded
 * it. Later iterations wait for another event in its place, which must have happened at the time
 * that `clock` predicts; where the event does not decide when the op starts, no later than that. */
typedef struct
{
  guint32 event;
  gboolean decides; /* it came last of all that the op waits for */
  SimClock clock;   /* of the event; where it does not decide, of the operand that came last */
} SimMoving;

typedef struct
{
  gboolean is_serial;
  guint n_clocks;
  GArray *clocks;   /* SimClock */
  GArray *recorded; /* guint64 per event: number of the op that last recorded it */
  guint64 n_issued;
  SimOccupancy occupancy;
  guint occupied; /* streams that have spells, a bit each */
  guint64 used;   /* by all spells together, packed as in sharing.c */

  guint n_proofs; /* proofs under way; without any, every drift is 0 */
  /* Per level: */
  gint64 shift[SIM_LEVELS]; /* by how much ids of moving events grow per iteration; 0: no proof */
  guint64 proof_begin[SIM_LEVELS]; /* number of the first op of the iteration */
  gint64 holds[SIM_LEVELS];        /* iterations from it on for which all orders hold */
  GArray *seen[SIM_LEVELS];        /* SimMoving: events waited for */
  GArray *moved[SIM_LEVELS];       /* SimMoving: events recorded, with their times */
} SimEngine;

/* Sets an engine, zeroed or used, to time 0. */
void sim_engine_init (SimEngine *self, const PlanSchedule *schedule, const SimCost *cost);
void sim_engine_clear (SimEngine *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SimEngine, sim_engine_clear)

static inline SimClock *
sim_engine_clock (const SimEngine *self, guint i)
{
  return &((SimClock *)(gpointer)self->clocks->data)[i];
}

/* Limits a proof: a time that is later than another by `slack`, and that the other one approaches
 * by `closer` in each iteration, stays later for slack / closer iterations. */
static inline void
sim_engine_note (SimEngine *self, guint level, gint64 slack, gint64 closer)
{
  if (closer > 0)
    self->holds[level] = MIN (self->holds[level], slack / closer);
}

/* As sim_engine_note, for two clocks that must keep at least `margin` between them. */
static inline void
sim_engine_note_order (SimEngine *self, const SimClock *late, const SimClock *early, gint64 margin)
{
  for (guint level = 0; level < SIM_LEVELS && self->n_proofs > 0; level++)
    sim_engine_note (self, level, late->at - early->at - margin,
                     early->drift[level] - late->drift[level]);
}

/* The step function of every simulation: issues one op, gives when it starts, and returns how long
 * it takes beside the ops that run with it. */
gint64 sim_engine_issue (SimEngine *self, const SimIssue *issue, SimClock *out_start);

/* When an op could start; sim_engine_hold then keeps its stream from starting anything earlier. */
gint64 sim_engine_ready (const SimEngine *self, const SimIssue *issue);
void sim_engine_hold (SimEngine *self, PlanStream stream, gint64 until_ns);

G_END_DECLS
