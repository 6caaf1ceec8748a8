/* SPDX-License-Identifier: Apache-2.0 */
/* Every time is the latest of some others, plus a constant. As long as each of these comparisons
 * has the winner it has now, times that change linearly from iteration to iteration go on to. So
 * the engine carries with each time its drift, and notes for how many iterations the order of what
 * it compares is sure to hold. */
#include "config.h"

#include "sim/sharing.h"

void
sim_engine_init (SimEngine *self, const PlanSchedule *schedule, const SimCost *cost)
{
  const guint n_events = plan_schedule_n_event_ids (schedule);
  if (!self->clocks)
    {
      self->clocks = g_array_new (FALSE, TRUE, sizeof (SimClock));
      self->recorded = g_array_new (FALSE, TRUE, sizeof (guint64));
      for (guint i = 0; i < SIM_LEVELS; i++)
        {
          self->seen[i] = g_array_new (FALSE, FALSE, sizeof (SimMoving));
          self->moved[i] = g_array_new (FALSE, FALSE, sizeof (SimMoving));
        }
    }
  self->is_serial = sim_cost_is_serial (cost);
  self->n_clocks = SIM_CLOCK_EVENTS + n_events;
  g_array_set_size (self->clocks, 0);
  g_array_set_size (self->clocks, self->n_clocks);
  g_array_set_size (self->recorded, 0);
  g_array_set_size (self->recorded, n_events + 1);
  self->n_issued = 0;
  self->occupancy = (SimOccupancy){ 0 };
  self->occupied = 0;
  self->slowed_ns = 0;
  for (guint i = 0; i < SIM_LEVELS; i++)
    self->shift[i] = 0;
}

void
sim_engine_clear (SimEngine *self)
{
  g_clear_pointer (&self->clocks, g_array_unref);
  g_clear_pointer (&self->recorded, g_array_unref);
  for (guint i = 0; i < SIM_LEVELS; i++)
    {
      g_clear_pointer (&self->seen[i], g_array_unref);
      g_clear_pointer (&self->moved[i], g_array_unref);
    }
}

SimIssueKind
sim_issue_kind (PlanOpKind kind)
{
  return kind == PLAN_OP_SYNC                                                ? SIM_ISSUE_SYNC
         : kind == PLAN_OP_WAIT || plan_op_class (kind) == PLAN_CLASS_MEMORY ? SIM_ISSUE_HOLD
                                                                             : SIM_ISSUE_WORK;
}

static inline SimClock
later (SimEngine *self, SimClock a, const SimClock *b)
{
  const gboolean is_b = b->at != a.at               ? b->at > a.at
                        : b->drift[1] != a.drift[1] ? b->drift[1] > a.drift[1]
                                                    : b->drift[0] > a.drift[0];
  const SimClock late = is_b ? *b : a, early = is_b ? a : *b;
  sim_engine_note_order (self, &late, &early, 0);
  return late;
}

/* An event that other iterations look for elsewhere. What they find there has its own drift, to be
 * checked place by place at the end of the iteration. */
static SimClock
later_moving (SimEngine *self, SimClock ready, guint32 event, guint level)
{
  const SimClock *clock = sim_engine_clock (self, SIM_CLOCK_EVENTS + event);
  SimMoving seen = { .event = event, .decides = clock->at > ready.at, .clock = ready };
  if (seen.decides)
    {
      seen.clock = *clock;
      seen.clock.drift[level] = clock->at - clock[-self->shift[level]].at;
      sim_engine_note_order (self, &seen.clock, &ready, 0);
    }
  else
    for (guint i = 0; i < SIM_LEVELS; i++)
      if (i != level)
        sim_engine_note (self, &ready, clock, i, 0);
  g_array_append_val (self->seen[level], seen);
  return seen.clock;
}

static inline gboolean
is_moving (const SimEngine *self, guint32 event, gint8 level)
{
  return level >= 0 && self->shift[level] != 0
         && g_array_index (self->recorded, guint64, event) < self->proof_begin[level];
}

static inline void
record (SimEngine *self, const SimIssue *issue, SimClock clock)
{
  if (issue->record < 0)
    return;
  *sim_engine_clock (self, SIM_CLOCK_EVENTS + (guint)issue->record) = clock;
  g_array_index (self->recorded, guint64, issue->record) = self->n_issued;
  if (issue->record_level >= 0 && self->shift[issue->record_level] != 0)
    {
      const SimMoving moved = { .event = (guint32)issue->record, .clock = clock };
      g_array_append_val (self->moved[issue->record_level], moved);
    }
}

SimTurn
sim_engine_issue (SimEngine *self, const SimIssue *issue)
{
  SimClock *clocks = sim_engine_clock (self, 0);
  SimClock *host = &clocks[SIM_CLOCK_HOST];
  SimClock *stream
      = &clocks[SIM_CLOCK_STREAMS + (self->is_serial ? PLAN_STREAM_COMPUTE : issue->stream)];
  SimClock *group = issue->group >= 0 ? &clocks[SIM_CLOCK_GROUPS + issue->group] : NULL;
  SimClock ready = *stream;
  self->n_issued++;
  if (group)
    ready = later (self, ready, group);
  for (guint i = 0; i < issue->n_waits; i++)
    ready = is_moving (self, issue->waits[i], issue->wait_level[i])
                ? later_moving (self, ready, issue->waits[i], (guint)issue->wait_level[i])
                : later (self, ready, &clocks[SIM_CLOCK_EVENTS + issue->waits[i]]);
  if (issue->kind == SIM_ISSUE_HOLD)
    {
      *stream = ready;
      record (self, issue, ready);
      return (SimTurn){ .start = ready };
    }
  if (issue->kind == SIM_ISSUE_SYNC)
    {
      *host = later (self, ready, host);
      return (SimTurn){ .start = *host };
    }
  host->at += issue->launch_ns;
  const SimClock start = later (self, ready, host);
  const gint64 ns = self->is_serial ? issue->ns : sim_sharing_run (self, issue, &start);
  *stream = start;
  stream->at += ns;
  if (group)
    *group = *stream;
  if (self->is_serial)
    *host = *stream;
  record (self, issue, *stream);
  return (SimTurn){ .start = start, .ns = ns };
}
