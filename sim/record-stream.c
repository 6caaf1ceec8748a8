/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/record-stream.h"

#include <string.h>

#define ROOM 256 /* blocks, at first */

/* Whether an op is on the chain: compute, and the collectives of tensor parallelism, for which
 * compute waits. */
static gboolean
is_on_chain (const PlanOp *op)
{
  return op->stream == PLAN_STREAM_COMPUTE || op->stream == PLAN_STREAM_TENSOR;
}

SimPace
sim_pace_of (const PlanSchedule *schedule, const SimCost *cost)
{
  SimPace pace = { 0 };
  PlanTimes counting = { 0 };
  gboolean waits = FALSE;
  for (guint node = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);
       node < plan_schedule_section_node (schedule, PLAN_SECTION_STEP + 1); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      const gint64 times = plan_times_next (&counting, op);
      waits = waits || op->stream == PLAN_STREAM_TENSOR;
      if (times == 0)
        continue;
      pace.host_ns += times * sim_cost_launch_ns (cost, node);
      pace.device_ns += is_on_chain (op) ? times * sim_cost_ns (cost, node) : 0;
    }
  if (waits)
    pace.device_ns
        = MAX (pace.device_ns, pace.host_ns + pace.host_ns * SIM_RECORD_STREAM_SLOWEST / 100);
  return pace;
}

static void
find_used (SimRecordStream *self, const PlanSchedule *schedule)
{
  g_array_set_size (self->is_in_collective, plan_schedule_n_buffers (schedule));
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      const gboolean is_collective
          = op->kind < PLAN_N_OPS && plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE;
      for (guint i = 0; is_collective && i < PLAN_MAX_REFS; i++)
        if (op->refs[i].array >= 0)
          g_array_index (self->is_in_collective, gboolean, op->refs[i].array) = TRUE;
    }
}

/* The number of launches after which the queue is full, with a margin for rounding. */
static guint64
full_from (double done_share)
{
  return (guint64)(1.001 * SIM_RECORD_STREAM_MOST * done_share / (1 - done_share)) + 2;
}

void
sim_record_stream_begin (SimRecordStream *self, const PlanSchedule *schedule,
                         const PlanStack *stack, const SimPace *pace)
{
  if (!self->is_in_collective)
    self->is_in_collective = g_array_new (FALSE, TRUE, sizeof (gboolean));
  g_array_set_size (self->is_in_collective, 0);
  self->n_over = self->n_waiting = 0;
  self->over_at = G_MAXUINT64;
  self->issued = 0;
  self->is_on = stack && stack->memory.streams == PLAN_STREAMS_RECORDED && pace->host_ns > 0
                && pace->host_ns < pace->device_ns;
  if (!self->is_on)
    return;
  self->done_share = (double)pace->host_ns / (double)pace->device_ns;
  self->full_from = full_from (self->done_share);
  find_used (self, schedule);
}

void
sim_record_stream_clear (SimRecordStream *self)
{
  g_clear_pointer (&self->is_in_collective, g_array_unref);
  g_clear_pointer (&self->waiting, g_free);
  self->room = 0;
}

void
sim_record_stream_make_room (SimRecordStream *self)
{
  const guint n = self->n_waiting - self->n_over;
  if (2 * n >= self->room)
    {
      self->room = 2 * self->room + ROOM;
      self->waiting = g_renew (SimWaiting, self->waiting, self->room);
    }
  memmove (self->waiting, self->waiting + self->n_over, n * sizeof *self->waiting);
  self->n_over = 0;
  self->n_waiting = n;
}

/* Number of launches that the device has done when the host has issued `issued`, as long as no
 * queue is full. */
static guint64
share_of (const SimRecordStream *self, guint64 issued)
{
  return (guint64)(self->done_share * (double)issued);
}

static guint64
done (const SimRecordStream *self)
{
  const guint64 rest
      = self->issued > SIM_RECORD_STREAM_MOST ? self->issued - SIM_RECORD_STREAM_MOST : 0;
  return MAX (share_of (self, self->issued), rest);
}

/* Returns after how many launches by the host the device has done the first `issued` of them. The
 * quotient is a first guess, off by its rounding. */
guint64
sim_record_stream_done_at (const SimRecordStream *self, guint64 issued)
{
  const guint64 full = issued + SIM_RECORD_STREAM_MOST;
  const double quotient = (double)issued / self->done_share;
  guint64 at = quotient < (double)full ? (guint64)quotient : full;
  while (at < full && share_of (self, at) < issued)
    at++;
  while (at > 0 && share_of (self, at - 1) >= issued)
    at--;
  return at;
}

void
sim_record_stream_describe (const SimRecordStream *self, GArray *description, GArray *blocks)
{
  const gboolean grows = done (self) + SIM_RECORD_STREAM_MOST != self->issued;
  const guint64 moment = grows ? self->issued : 0;
  const guint n = self->n_waiting - self->n_over, n_ages = description->len + 1,
              n_blocks = blocks->len;
  const SimWaiting *waiting = &self->waiting[self->n_over];
  g_array_append_val (description, moment);
  g_array_set_size (description, n_ages + n);
  g_array_set_size (blocks, n_blocks + n);
  for (guint i = 0; i < n; i++)
    {
      g_array_index (description, guint64, n_ages + i) = self->issued - waiting[i].issued;
      g_array_index (blocks, guint32, n_blocks + i) = waiting[i].block;
    }
}

void
sim_record_stream_meet (SimRecordStream *self)
{
  self->issued = 0;
  for (guint i = self->n_over; i < self->n_waiting; i++)
    self->waiting[i].issued = 0;
  sim_record_stream_find_next (self);
}
