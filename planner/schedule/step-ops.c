/* SPDX-License-Identifier: Apache-2.0 */
/* A value that was dropped is recomputed by an op of the same kind that writes the same array of
 * activations, once before a micro batch's loss and once after it. Copies of values (quantised, or
 * to be sent) are made wherever they are needed, so they do not count as recompute. */
#include "config.h"

#include "planner/schedule/step-ops.h"

gint64 *
plan_schedule_step_times (const PlanSchedule *self)
{
  gint64 *times = g_new0 (gint64, plan_schedule_n_nodes (self) + 1);
  PlanTimes counting = { .depth = 0 };
  for (guint node = plan_schedule_section_node (self, PLAN_SECTION_STEP);
       node < plan_schedule_section_node (self, PLAN_SECTION_TEARDOWN); node++)
    times[node] = plan_times_next (&counting, plan_schedule_node (self, node));
  return times;
}

typedef enum
{
  FORWARD,
  LOSS, /* possibly in chunks, each with ops before and after it */
  BACKWARD,
} Pass;

static gboolean
is_loss (const PlanOp *op)
{
  return op->kind < PLAN_N_OPS && plan_op_work (op->kind) == PLAN_WORK_LOSS;
}

/* The pass of each node of a step. A micro batch begins where it is loaded. */
static Pass *
find_passes (const PlanSchedule *self, guint begin, guint end)
{
  Pass *passes = g_new0 (Pass, plan_schedule_n_nodes (self) + 1);
  gboolean is_behind = FALSE, is_ahead = FALSE;
  for (guint node = begin; node < end; node++)
    {
      const PlanOp *op = plan_schedule_node (self, node);
      is_behind = op->kind != PLAN_OP_LOAD && (is_behind || is_loss (op));
      passes[node] = is_behind ? BACKWARD : FORWARD;
    }
  for (guint node = end; node-- > begin;)
    {
      const PlanOp *op = plan_schedule_node (self, node);
      is_ahead = is_ahead || is_loss (op);
      if (passes[node] == BACKWARD && is_ahead)
        passes[node] = LOSS;
      is_ahead = is_ahead && op->kind != PLAN_OP_LOAD;
    }
  return passes;
}

static gboolean
computes_activations (const PlanSchedule *self, const PlanOp *op)
{
  return op->kind < PLAN_N_OPS && plan_op_class (op->kind) == PLAN_CLASS_COMPUTE
         && plan_op_work (op->kind) != PLAN_WORK_COPY
         && plan_op_work (op->kind) != PLAN_WORK_QUANTISE && plan_op_n_refs (op->kind) > 0
         && op->refs[0].array >= 0
         && plan_schedule_buffer (self, (guint)op->refs[0].array)->category
                == PLAN_CATEGORY_ACTIVATIONS;
}

static gpointer
key_of (const PlanOp *op)
{
  return GUINT_TO_POINTER ((guint)op->refs[0].array * (PLAN_N_OPS + 1u) + op->kind + 1u);
}

gboolean *
plan_schedule_recomputed (const PlanSchedule *self)
{
  const guint begin = plan_schedule_section_node (self, PLAN_SECTION_STEP);
  const guint end = plan_schedule_section_node (self, PLAN_SECTION_TEARDOWN);
  g_autofree Pass *passes = find_passes (self, begin, end);
  g_autoptr (GHashTable) forward = g_hash_table_new (NULL, NULL);
  gboolean *is_again = g_new0 (gboolean, plan_schedule_n_nodes (self) + 1);
  for (guint node = begin; node < end; node++)
    if (passes[node] == FORWARD && computes_activations (self, plan_schedule_node (self, node)))
      g_hash_table_add (forward, key_of (plan_schedule_node (self, node)));
  for (guint node = begin; node < end; node++)
    {
      const PlanOp *op = plan_schedule_node (self, node);
      is_again[node] = passes[node] == BACKWARD && computes_activations (self, op)
                       && g_hash_table_contains (forward, key_of (op));
    }
  return is_again;
}
