/* SimEngine: streams, events and a host, advanced op by op.
 *
 * The host issues ops one after the other, each at a cost. An op starts when it
 * has been issued, its stream is free and its events have happened; a collective
 * waits for the one before of its group, whatever their streams: a communicator
 * does one thing at a time. On a serial device every stream is the same one. */
#pragma once
#include "planner/schedule.h"
#include "sim/cost.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const SimCost *cost;
  gint64 host_ns;
  gint64 stream_ns[PLAN_N_STREAMS]; /* when each is free */
  gint64 group_ns[PLAN_MAX_GROUPS];
  gint64 *event_ns; /* when each last happened; 0 before */
} SimEngine;

void sim_engine_init (SimEngine *self, const PlanSchedule *schedule, const SimCost *cost);
void sim_engine_clear (SimEngine *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SimEngine, sim_engine_clear)

/* Issues the op the cursor stands at. */
void sim_engine_issue (SimEngine *self, const PlanCursor *cursor, const PlanOp *op,
                       gint64 *out_start_ns, gint64 *out_end_ns);

G_END_DECLS
