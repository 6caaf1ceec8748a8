/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine.h"

void
sim_engine_init (SimEngine *self, const PlanSchedule *schedule, const SimCost *cost)
{
  *self = (SimEngine){ .cost = cost };
  self->event_ns = g_new0 (gint64, plan_schedule_n_event_ids (schedule) + 1);
}

void
sim_engine_clear (SimEngine *self)
{
  g_clear_pointer (&self->event_ns, g_free);
}

void
sim_engine_issue (SimEngine *self, const PlanCursor *cursor, const PlanOp *op, gint64 *out_start_ns,
                  gint64 *out_end_ns)
{
  const gboolean is_memory
      = plan_op_class (op->kind) == PLAN_CLASS_MEMORY || op->kind == PLAN_OP_WAIT;
  const gboolean is_serial = sim_cost_is_serial (self->cost);
  gint64 *stream = &self->stream_ns[is_serial ? PLAN_STREAM_COMPUTE : op->stream];
  gint64 ready = *stream;

  for (guint i = 0; i < op->n_waits; i++)
    ready = MAX (ready, self->event_ns[plan_cursor_event (cursor, &op->waits[i])]);
  if (op->group >= 0)
    ready = MAX (ready, self->group_ns[op->group]);
  if (is_memory) /* the allocator works on the host, for nothing; waiting is the stream's */
    {
      *stream = ready;
      if (op->record.array >= 0)
        self->event_ns[plan_cursor_event (cursor, &op->record)] = ready;
      *out_start_ns = *out_end_ns = MAX (ready, self->host_ns);
      return;
    }
  if (op->kind == PLAN_OP_SYNC)
    {
      *out_start_ns = *out_end_ns = self->host_ns = MAX (self->host_ns, ready);
      return;
    }
  self->host_ns += sim_cost_launch_ns (self->cost, cursor->node);
  const gint64 start = MAX (ready, self->host_ns);
  const gint64 end = start + sim_cost_ns (self->cost, cursor->node);
  *stream = end;
  if (op->group >= 0)
    self->group_ns[op->group] = end;
  if (is_serial)
    self->host_ns = end;
  if (op->record.array >= 0)
    self->event_ns[plan_cursor_event (cursor, &op->record)] = end;
  *out_start_ns = start;
  *out_end_ns = end;
}
