/* SPDX-License-Identifier: Apache-2.0 */
/* Issues collectives. Those that go together (planner/schedule/joined.h) are held until the last of
 * them comes, where the communicator takes several at once: events that say that one has ended are
 * recorded behind all. */
#include "config.h"

#include "exec/walk/walk-private.h"

#include "planner/schedule/joined.h"

PLAN_SAME_REF (ALL_GATHER, REDUCE_SCATTER, out);
PLAN_SAME_REF (ALL_GATHER, REDUCE_SCATTER, in);
PLAN_SAME_REF (ALL_GATHER, ALL_TO_ALL, out);
PLAN_SAME_REF (ALL_GATHER, ALL_TO_ALL, in);
PLAN_SAME_REF (ALL_GATHER, EXCHANGE, out);
PLAN_SAME_REF (ALL_GATHER, EXCHANGE, in);
G_STATIC_ASSERT ((int)PLAN_REF_ALL_REDUCE_buf == (int)PLAN_REF_ALL_GATHER_out);
G_STATIC_ASSERT ((int)PLAN_REF_ALL_REDUCE_MAX_buf == (int)PLAN_REF_ALL_GATHER_out);
PLAN_SAME_REF (ALL_GATHER, TRADE, out);
PLAN_SAME_REF (ALL_GATHER, TRADE, in);
G_STATIC_ASSERT ((int)PLAN_DIM_ALL_GATHER_count == (int)PLAN_DIM_TRADE_count);

static gboolean
call_comm (const ExecWalk *walk, const ExecArgs *args, GError **error)
{
  const guint64 count = (guint64)args->op->dims[PLAN_DIM_ALL_GATHER_count];
  const gboolean has_out = args->ptr[PLAN_REF_ALL_GATHER_out] != NULL;
  const PlanDtype dtype = args->dtype[has_out ? PLAN_REF_ALL_GATHER_out : PLAN_REF_ALL_GATHER_in];
  ExecComm *comm = walk->group[args->op->group];
  void *stream = walk->device->ops->stream (walk->device, args->op->stream);
  void *out = args->ptr[PLAN_REF_ALL_GATHER_out], *in = args->ptr[PLAN_REF_ALL_GATHER_in];
  switch (args->op->kind)
    {
    case PLAN_OP_ALL_TO_ALL:
      return comm->ops->all_to_all (comm, out, in, count, dtype, stream, error);
    case PLAN_OP_ALL_GATHER:
      return comm->ops->all_gather (comm, out, in, count, dtype, stream, error);
    case PLAN_OP_REDUCE_SCATTER:
      return comm->ops->reduce_scatter (comm, out, in, count, dtype, stream, error);
    case PLAN_OP_ALL_REDUCE_MAX:
      return comm->ops->all_reduce_max (comm, out, count, dtype, stream, error);
    case PLAN_OP_ALL_REDUCE:
      return comm->ops->all_reduce (comm, out, count, dtype, stream, error);
    case PLAN_OP_TRADE:
      return comm->ops->trade (comm, out, in, count, dtype,
                               (guint)args->op->dims[PLAN_DIM_TRADE_peer], stream, error);
    case PLAN_OP_EXCHANGE:
      return comm->ops->exchange (comm, out, in, count, dtype,
                                  MAX ((guint)exec_manner (args, PLAN_MANNER_DISTANCE), 1), stream,
                                  error);
    case PLAN_OP_SEND_TOKENS: /* exec_runnable_check refuses it */
      PLAN_CASES_BUT_COLLECTIVES
      break;
    }
  g_assert_not_reached ();
}

static gboolean
call_together (const ExecWalk *walk, GError **error)
{
  const ExecArgs *first = &g_array_index (walk->held, ExecHeld, 0).args;
  ExecComm *comm = walk->group[first->op->group];
  g_autofree ExecCommPart *parts = g_new (ExecCommPart, walk->held->len);
  for (guint i = 0; i < walk->held->len; i++)
    {
      const ExecArgs *args = &g_array_index (walk->held, ExecHeld, i).args;
      parts[i] = (ExecCommPart){ .out = args->ptr[PLAN_REF_ALL_GATHER_out],
                                 .in = args->ptr[PLAN_REF_ALL_GATHER_in],
                                 .count = (guint64)args->op->dims[PLAN_DIM_ALL_GATHER_count],
                                 .dtype = args->dtype[PLAN_REF_ALL_GATHER_out] };
    }
  return comm->ops->together (comm, first->op->kind == PLAN_OP_REDUCE_SCATTER, parts,
                              walk->held->len,
                              walk->device->ops->stream (walk->device, first->op->stream), error);
}

/* Issues the collectives that are held as one call, which counts as the first one's. */
static gboolean
issue (ExecWalk *walk, GError **error)
{
  const ExecHeld *first = &g_array_index (walk->held, ExecHeld, 0);
  ExecComm *comm = walk->group[first->args.op->group];
  const gint64 begin_ns = exec_walk_now_ns ();
  comm->node = first->issued.node;
  comm->unit = first->issued.unit;
  walk->collectives[first->issued.stream] += walk->held->len;
  if (!(walk->held->len > 1 ? call_together (walk, error) : call_comm (walk, &first->args, error)))
    return FALSE;
  if (walk->device->ops->is_immediate)
    walk->collective_ns += exec_walk_now_ns () - begin_ns;
  return TRUE;
}

/* In a trace the first of several has the time of all. */
static gboolean
end_issue (ExecWalk *walk, GError **error)
{
  for (guint i = 0; i < walk->held->len; i++)
    {
      const ExecIssued *issued = &g_array_index (walk->held, ExecHeld, i).issued;
      if ((i > 0 && !exec_walk_begin_span (walk, issued->node, issued->stream, error))
          || !exec_walk_end_span (walk, issued, error) || !exec_walk_record (walk, issued, error))
        return FALSE;
    }
  g_array_set_size (walk->held, 0);
  return TRUE;
}

gboolean
exec_walk_run_collective (ExecWalk *walk, const PlanCursor *cursor, const ExecArgs *args,
                          GError **error)
{
  const ExecHeld held = { .args = *args, .issued = exec_walk_issued (cursor, args->op) };
  const gboolean waits = walk->group[args->op->group]->ops->together
                         && plan_joined_next (walk->schedule, cursor->node) > 0;
  g_array_append_val (walk->held, held);
  return waits
         || (exec_walk_begin_span (walk, g_array_index (walk->held, ExecHeld, 0).issued.node,
                                   args->op->stream, error)
             && issue (walk, error) && end_issue (walk, error));
}
