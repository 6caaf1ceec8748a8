/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/joined.h"

#include <string.h>

/* The first of two collectives that are issued together has at least so many times the bytes of the
 * second: who needs the first waits for both. */
#define MORE_BYTES 16

PLAN_SAME_REF (ALL_GATHER, REDUCE_SCATTER, out);
G_STATIC_ASSERT ((int)PLAN_DIM_ALL_GATHER_count == (int)PLAN_DIM_REDUCE_SCATTER_count);

static gboolean
may_be_joined (const PlanOp *op)
{
  return op->kind == PLAN_OP_ALL_GATHER || op->kind == PLAN_OP_REDUCE_SCATTER;
}

/* Whether an op may stand between two collectives that are issued together. */
static gboolean
may_stand_between (const PlanOp *op)
{
  return op->kind == PLAN_OP_ALLOC || (op->kind == PLAN_OP_WAIT && op->n_waits == 0);
}

static guint64
bytes_of (const PlanSchedule *self, const PlanOp *op)
{
  const PlanRef *out = &op->refs[PLAN_REF_ALL_GATHER_out];
  return plan_dtype_bytes (plan_schedule_buffer (self, (guint)out->array)->dtype,
                           (guint64)op->dims[PLAN_DIM_ALL_GATHER_count]);
}

static gboolean
wait_alike (const PlanOp *op, const PlanOp *other)
{
  gboolean alike = op->n_waits == other->n_waits;
  for (guint i = 0; alike && i < op->n_waits; i++)
    {
      const PlanRef *a = &op->waits[i], *b = &other->waits[i];
      alike = a->array == b->array && a->loop == b->loop && a->offset == b->offset
              && a->modulus == b->modulus;
    }
  return alike;
}

/* The end of the section that a node is in. */
static guint
section_end (const PlanSchedule *self, guint node)
{
  for (PlanSection s = 1; s < PLAN_N_SECTIONS; s++)
    if (node < plan_schedule_section_node (self, s))
      return plan_schedule_section_node (self, s);
  return plan_schedule_n_nodes (self);
}

guint
plan_joined_next (const PlanSchedule *self, guint node)
{
  const PlanOp *op = plan_schedule_node (self, node), *next;
  if (!may_be_joined (op))
    return 0;
  const guint end = section_end (self, node);
  while (++node < end && may_stand_between (plan_schedule_node (self, node)))
    ;
  if (node == end)
    return 0;
  next = plan_schedule_node (self, node);
  return next->kind == op->kind && next->stream == op->stream && next->group == op->group
                 && wait_alike (op, next)
                 && bytes_of (self, next) * MORE_BYTES <= bytes_of (self, op)
             ? node
             : 0;
}
