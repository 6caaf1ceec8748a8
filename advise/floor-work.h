/* AdviseFloorWork: what keeps the host and each stream of a rank busy in a step or a micro batch,
 * as sums of the costs of ops. Made for the floors of a search (floor.h), which terms used here are
 * explained in. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include "sim/fast/slowdown-bound.h"
G_BEGIN_DECLS

/* The time for which the host and each stream are busy, and the part of it that accumulates
 * gradients. Values may be added and multiplied. */
enum
{
  ADVISE_FLOOR_HOST,
  ADVISE_FLOOR_ADDING,        /* accumulating gradients: time of the compute stream, */
  ADVISE_FLOOR_ADDING_LAUNCH, /* time of the host, */
  ADVISE_FLOOR_N_ADDING,      /* and the number of ops */
  ADVISE_FLOOR_COPYING,       /* copies of gathered weights, and of gradients into their buckets */
  ADVISE_FLOOR_AWAITED, /* collectives of the tensor-parallel stream for which compute waits at once
                         */
  ADVISE_FLOOR_SERIAL,  /* see advise_floor_serial_ns */
  ADVISE_FLOOR_PERIOD,  /* the simulated time of a step; 0 where it was not simulated */
  ADVISE_FLOOR_STREAMS,
  ADVISE_FLOOR_GROUPS = ADVISE_FLOOR_STREAMS + PLAN_N_STREAMS, /* gathers and reductions of each */
  ADVISE_FLOOR_N = ADVISE_FLOOR_GROUPS + PLAN_MAX_GROUPS,
};

typedef struct
{
  gint64 of[ADVISE_FLOOR_N];
  SimSlowdown chain;          /* compute and awaited collectives, but not accumulating gradients */
  SimSlowdown gather, reduce; /* collectives between data-parallel ranks */
  gint64 trade_ns;            /* the quickest trade with another stage; 0: there is none */
} AdviseFloorWork;

/* The sum of `a` and `times` times `b`. Only the trade's time is that of `a`: it is the time of one
 * op, not a sum. */
AdviseFloorWork advise_floor_work_add (const AdviseFloorWork *a, const AdviseFloorWork *b,
                                       gint64 times);

AdviseFloorWork advise_floor_work_of_step (const PlanSchedule *schedule, const SimCost *cost);

/* A lower bound of the time of a step whose host waits many times for a stream, as it does in each
 * layer with experts. */
gint64 advise_floor_serial_ns (const PlanSchedule *schedule, const SimCost *cost);

/* The work of one more micro batch where micro batches are a repeat, so many `alike` in each round;
 * FALSE where they are not. */
gboolean advise_floor_work_of_repeat (const PlanSchedule *schedule, const SimCost *cost,
                                      gint64 alike, AdviseFloorWork *out_work);

G_END_DECLS
