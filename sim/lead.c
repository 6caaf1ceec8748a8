/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/lead.h"

typedef struct
{
  guint64 issued; /* launches when it was given back */
  guint32 block;
} Waiting;

/* Compute waits for collectives between ranks that share a sequence: one chain. */
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
    pace.device_ns = MAX (pace.device_ns, pace.host_ns + pace.host_ns * SIM_LEAD_SLOWEST / 100);
  return pace;
}

static void
find_used (SimLead *self, const PlanSchedule *schedule)
{
  g_array_set_size (self->is_used, plan_schedule_n_buffers (schedule));
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      const gboolean is_collective
          = op->kind < PLAN_N_OPS && plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE;
      for (guint i = 0; is_collective && i < PLAN_MAX_REFS; i++)
        if (op->refs[i].array >= 0)
          g_array_index (self->is_used, gboolean, op->refs[i].array) = TRUE;
    }
}

void
sim_lead_begin (SimLead *self, const PlanSchedule *schedule, const PlanStack *stack,
                const SimPace *pace)
{
  if (!self->waiting)
    {
      self->is_used = g_array_new (FALSE, TRUE, sizeof (gboolean));
      self->waiting = g_array_new (FALSE, FALSE, sizeof (Waiting));
    }
  g_array_set_size (self->is_used, 0);
  g_array_set_size (self->waiting, 0);
  self->n_over = 0;
  self->issued = 0;
  self->is_on
      = stack && stack->records_streams && pace->host_ns > 0 && pace->host_ns < pace->device_ns;
  if (!self->is_on)
    return;
  self->done_share = (double)pace->host_ns / (double)pace->device_ns;
  find_used (self, schedule);
}

void
sim_lead_clear (SimLead *self)
{
  g_clear_pointer (&self->is_used, g_array_unref);
  g_clear_pointer (&self->waiting, g_array_unref);
}

gboolean
sim_lead_give_back (SimLead *self, guint array, guint32 block)
{
  const Waiting waiting = { .issued = self->issued, .block = block };
  if (!self->is_on || !g_array_index (self->is_used, gboolean, array))
    return FALSE;
  g_array_append_val (self->waiting, waiting);
  return TRUE;
}

/* Launches that the device is through with. */
static guint64
done (const SimLead *self)
{
  const guint64 share = (guint64)(self->done_share * (double)self->issued);
  const guint64 rest = self->issued > SIM_LEAD_MOST ? self->issued - SIM_LEAD_MOST : 0;
  return MAX (share, rest);
}

gboolean
sim_lead_next (SimLead *self, guint32 *out_block)
{
  if (!self->is_on || self->n_over == self->waiting->len)
    return FALSE;
  const Waiting *next = &g_array_index (self->waiting, Waiting, self->n_over);
  if (next->issued > done (self))
    return FALSE;
  *out_block = next->block;
  if (2 * ++self->n_over >= self->waiting->len)
    {
      g_array_remove_range (self->waiting, 0, self->n_over);
      self->n_over = 0;
    }
  return TRUE;
}

void
sim_lead_describe (const SimLead *self, GArray *text, GArray *blocks)
{
  const gboolean grows = done (self) + SIM_LEAD_MOST != self->issued;
  const guint64 moment = grows ? self->issued : 0;
  g_array_append_val (text, moment);
  for (guint i = self->n_over; i < self->waiting->len; i++)
    {
      const Waiting *waiting = &g_array_index (self->waiting, Waiting, i);
      const guint64 age = self->issued - waiting->issued;
      g_array_append_val (text, age);
      g_array_append_val (blocks, waiting->block);
    }
}

void
sim_lead_meet (SimLead *self)
{
  if (!self->is_on)
    return;
  self->issued = 0;
  for (guint i = self->n_over; i < self->waiting->len; i++)
    g_array_index (self->waiting, Waiting, i).issued = 0;
}
