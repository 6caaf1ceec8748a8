/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/serial.h"

#include "planner/schedule/echo.h"

typedef struct
{
  const PlanSchedule *schedule;
  const SimCost *cost;
  AdviseSerialCost cost_of;
  gint64 host_ns, chain_ns; /* host and chain time since the host last waited */
  gint64 busy_ns;           /* total time for which the chain is busy */
  gint64 total_ns;          /* time until the host last waited */
  gboolean is_in_echo;
} Walk;

/* The node of the end of the repeat that begins at `node`, and whether the host waits in it. */
static guint
end_of_repeat (const PlanSchedule *schedule, guint node, gboolean *out_waits)
{
  guint depth = 0;
  *out_waits = FALSE;
  for (;; node++)
    {
      const PlanOpKind kind = plan_schedule_node (schedule, node)->kind;
      depth += kind == PLAN_OP_REPEAT;
      depth -= kind == PLAN_OP_END;
      *out_waits = *out_waits || kind == PLAN_OP_SYNC;
      if (depth == 0)
        return node;
    }
}

/* Whether the host's wait ends only after all compute issued so far: it waits for the event that
 * the op before it recorded on the compute stream, or for an exchange that itself waits for
 * compute. */
static gboolean
is_behind_compute (const PlanSchedule *schedule, guint node)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  const PlanOp *before = node > 0 ? plan_schedule_node (schedule, node - 1) : op;
  return op->n_waits == 1 && op->waits[0].array == before->record.array
         && ((before->kind == PLAN_OP_WAIT && before->stream == PLAN_STREAM_COMPUTE)
             || (before->kind == PLAN_OP_TRADE && before->n_waits > 0));
}

static void
pass_op (Walk *self, guint node, gint64 times)
{
  gint64 ns, launch_ns;
  if (plan_schedule_node (self->schedule, node)->kind == PLAN_OP_SYNC)
    {
      const gint64 computed = is_behind_compute (self->schedule, node) ? self->chain_ns : 0;
      self->total_ns += times * MAX (self->host_ns, computed);
      self->host_ns = self->chain_ns = 0;
      return;
    }
  if (!self->cost_of (self->schedule, self->cost, node, &ns, &launch_ns))
    return;
  self->host_ns += launch_ns;
  self->busy_ns += ns;
  if (ns > 0)
    self->chain_ns = MAX (self->chain_ns, self->host_ns) + ns;
}

static void pass (Walk *self, guint node, guint end, gint64 times);

/* Adds the echoes at a node, from the one with that number on; returns the number of the next one.
 * There are no echoes within an echo. */
static guint
pass_echoes (Walk *self, guint number, guint node, gint64 times)
{
  const PlanEcho *echo;
  for (; !self->is_in_echo && (echo = plan_schedule_echo_at (self->schedule, number, node));
       number++)
    {
      self->is_in_echo = TRUE;
      pass (self, echo->begin, echo->end, times);
      self->is_in_echo = FALSE;
    }
  return number;
}

/* Adds the time of nodes [node, end), which happen `times` times. The first iteration of a repeat
 * follows what is before it, each other iteration the one before. Where the host does not wait in a
 * repeat, its further iterations are not followed: each adds for how long it keeps the host, and
 * the chain, busy. */
static void
pass (Walk *self, guint node, guint end, gint64 times)
{
  guint number = plan_schedule_find_echo (self->schedule, node);
  for (; node < end; node++)
    {
      const PlanOp *op = plan_schedule_node (self->schedule, node);
      number = pass_echoes (self, number, node, times);
      if (op->kind != PLAN_OP_REPEAT)
        {
          pass_op (self, node, times);
          continue;
        }
      const gint64 count = op->dims[PLAN_REPEAT_COUNT];
      gboolean waits;
      const guint last = end_of_repeat (self->schedule, node, &waits);
      if (count > 0)
        pass (self, node + 1, last, times);
      if (count > 1 && waits)
        pass (self, node + 1, last, times * (count - 1));
      else if (count > 1)
        {
          Walk one = { .schedule = self->schedule, .cost = self->cost, .cost_of = self->cost_of };
          pass (&one, node + 1, last, 1);
          self->host_ns += (count - 1) * one.host_ns;
          self->chain_ns += (count - 1) * one.busy_ns;
        }
      node = last;
      number = plan_schedule_find_echo (self->schedule, last + 1);
    }
  pass_echoes (self, number, end, times);
}

gint64
advise_serial_ns (const PlanSchedule *schedule, const SimCost *cost, AdviseSerialCost cost_of)
{
  Walk walk = { .schedule = schedule, .cost = cost, .cost_of = cost_of };
  pass (&walk, plan_schedule_section_node (schedule, PLAN_SECTION_STEP),
        plan_schedule_section_node (schedule, PLAN_SECTION_TEARDOWN), 1);
  return walk.total_ns;
}
