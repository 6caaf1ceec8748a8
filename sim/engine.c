/* SPDX-License-Identifier: Apache-2.0 */
/* Every time in the engine is the latest of some other times, plus a constant. As long as each such
 * comparison has the same winner, times that change linearly from iteration to iteration go on
 * doing so. In a proof the engine therefore carries a drift with each time, and notes for how many
 * iterations the order of all compared times is sure to hold. */
#include "config.h"

#include "sim/sharing.h"

#include <string.h>

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
  self->used = 0;
  self->n_proofs = 0;
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

/* The functions below are compiled twice, with and without proofs: only proofs look at drifts,
 * which are all 0 otherwise. */
#define FOR_BOTH static inline __attribute__ ((always_inline))

FOR_BOTH void
set_clock (SimClock *clock, const SimClock *to, gboolean proves)
{
  clock->at = to->at;
  for (guint level = 0; level < SIM_LEVELS && proves; level++)
    clock->drift[level] = to->drift[level];
}

/* Delays `ready` to `other`. Members are copied one by one: a struct that was just written by
 * member cannot be loaded as a whole without a stall. */
FOR_BOTH void
wait_for (SimEngine *self, SimClock *ready, const SimClock *other, gboolean proves)
{
  const gint64 apart = other->at - ready->at;
  if (!proves)
    {
      ready->at = MAX (ready->at, other->at);
      return;
    }
  const gint64 closer[SIM_LEVELS]
      = { other->drift[0] - ready->drift[0], other->drift[1] - ready->drift[1] };
  const gboolean other_is_later = apart != 0       ? apart > 0
                                  : closer[1] != 0 ? closer[1] > 0
                                                   : closer[0] > 0;
  for (guint level = 0; level < SIM_LEVELS; level++)
    sim_engine_note (self, level, other_is_later ? apart : -apart,
                     other_is_later ? -closer[level] : closer[level]);
  if (other_is_later)
    set_clock (ready, other, proves);
}

/* Waits for an event that each iteration finds under another id. The prediction of when the events
 * under those ids happened is kept in `seen`, to be checked at the end of the iteration. */
static SimClock
wait_for_moving (SimEngine *self, SimClock ready, guint32 event, guint level)
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
        sim_engine_note (self, i, ready.at - clock->at, clock->drift[i] - ready.drift[i]);
  g_array_append_val (self->seen[level], seen);
  return seen.clock;
}

static inline gboolean
is_moving (const SimEngine *self, guint32 event, gint8 level)
{
  return level >= 0 && self->shift[level] != 0
         && g_array_index (self->recorded, guint64, event) < self->proof_begin[level];
}

FOR_BOTH void
record (SimEngine *self, const SimIssue *issue, const SimClock *clock, gboolean proves)
{
  if (issue->record < 0)
    return;
  set_clock (sim_engine_clock (self, SIM_CLOCK_EVENTS + (guint)issue->record), clock, proves);
  g_array_index (self->recorded, guint64, issue->record) = self->n_issued;
  if (proves && issue->record_level >= 0 && self->shift[issue->record_level] != 0)
    {
      const SimMoving moved = { .event = (guint32)issue->record, .clock = *clock };
      g_array_append_val (self->moved[issue->record_level], moved);
    }
}

FOR_BOTH void
find_ready (SimEngine *self, const SimIssue *issue, const SimClock *group, SimClock *ready,
            gboolean proves)
{
  const SimClock *events = sim_engine_clock (self, SIM_CLOCK_EVENTS);
  if (group)
    wait_for (self, ready, group, proves);
  for (guint i = 0; i < issue->n_waits; i++)
    if (proves && is_moving (self, issue->waits[i], issue->wait_level[i]))
      *ready = wait_for_moving (self, *ready, issue->waits[i], (guint)issue->wait_level[i]);
    else
      wait_for (self, ready, &events[issue->waits[i]], proves);
}

FOR_BOTH gint64
issue_op (SimEngine *self, const SimIssue *issue, SimClock *out_start, gboolean proves)
{
  SimClock *clocks = sim_engine_clock (self, 0);
  SimClock *host = &clocks[SIM_CLOCK_HOST];
  SimClock *stream
      = &clocks[SIM_CLOCK_STREAMS + (self->is_serial ? PLAN_STREAM_COMPUTE : issue->stream)];
  SimClock *group = issue->group >= 0 ? &clocks[SIM_CLOCK_GROUPS + issue->group] : NULL;
  SimClock ready = { 0 };
  gint64 ns = 0;
  self->n_issued++;
  set_clock (&ready, stream, proves);
  find_ready (self, issue, group, &ready, proves);
  if (issue->kind == SIM_ISSUE_WORK)
    host->at += issue->launch_ns;
  if (issue->kind != SIM_ISSUE_HOLD)
    wait_for (self, &ready, host, proves);
  set_clock (out_start, &ready, proves);
  if (issue->kind == SIM_ISSUE_SYNC)
    {
      set_clock (host, &ready, proves);
      return 0;
    }
  if (issue->kind == SIM_ISSUE_WORK)
    {
      ns = self->is_serial ? issue->ns : sim_sharing_run (self, issue, out_start);
      ready.at += ns;
      if (group)
        set_clock (group, &ready, proves);
      if (self->is_serial)
        set_clock (host, &ready, proves);
    }
  set_clock (stream, &ready, proves);
  record (self, issue, &ready, proves);
  return ns;
}

gint64
sim_engine_issue (SimEngine *self, const SimIssue *issue, SimClock *out_start)
{
  return self->n_proofs > 0 ? issue_op (self, issue, out_start, TRUE)
                            : issue_op (self, issue, out_start, FALSE);
}

static guint
stream_clock (const SimEngine *self, PlanStream stream)
{
  return SIM_CLOCK_STREAMS + (self->is_serial ? PLAN_STREAM_COMPUTE : stream);
}

gint64
sim_engine_ready (const SimEngine *self, const SimIssue *issue)
{
  const SimClock *clocks = sim_engine_clock (self, 0);
  gint64 ready = MAX (clocks[stream_clock (self, issue->stream)].at,
                      clocks[SIM_CLOCK_HOST].at + issue->launch_ns);
  if (issue->group >= 0)
    ready = MAX (ready, clocks[SIM_CLOCK_GROUPS + issue->group].at);
  for (guint i = 0; i < issue->n_waits; i++)
    ready = MAX (ready, clocks[SIM_CLOCK_EVENTS + issue->waits[i]].at);
  return ready;
}

void
sim_engine_hold (SimEngine *self, PlanStream stream, gint64 until_ns)
{
  SimClock *clock = sim_engine_clock (self, stream_clock (self, stream));
  clock->at = MAX (clock->at, until_ns);
}
