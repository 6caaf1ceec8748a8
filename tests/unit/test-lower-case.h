/* What tests of lowering measure in a case's schedule. */
#pragma once
#include "sim/sim.h"
#include "tests/case.h"
#include <check.h>

/* Makes a case from pairs of a field and its value; the last one is NULL. */
static inline void
case_init_fields (TestCase *c, const char *model, const char *cluster, const char *const *fields)
{
  g_autoptr (GError) error = NULL;
  Plan plan;
  plan_init (&plan);
  for (; *fields; fields += 2)
    ck_assert_msg (plan_set (&plan, fields[0], fields[1], &error), "%s", error->message);
  test_case_init_of (c, model, cluster, &plan);
}

static inline PlanMemory
memory_of (const TestCase *c)
{
  g_autoptr (GError) error = NULL;
  const SimCostInput input = sim_cost_input (c->of, c->schedule);
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  g_autoptr (PlanTrace) trace = sim_run (c->schedule, cost, c->of->stack, &error);
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  return trace->memory;
}

/* The most buffers of an array that are live at once in a step. */
static inline guint
most_live (const PlanSchedule *schedule, const char *name)
{
  guint live = 0, most = 0;
  PlanCursor cursor;
  const PlanOp *op;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY
        && strcmp (plan_schedule_buffer (schedule, (guint)op->refs[0].array)->name, name) == 0)
      {
        live += op->kind == PLAN_OP_ALLOC ? 1 : op->kind == PLAN_OP_FREE ? -1 : 0;
        most = MAX (most, live);
      }
  return most;
}

/* Elements of a buffer array that a stream's collectives fill in a step. */
static inline guint64
gathered_into (const PlanSchedule *schedule, const char *name)
{
  guint64 elements = 0;
  PlanCursor cursor;
  const PlanOp *op;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_ALL_GATHER
        && g_str_equal (plan_schedule_buffer (schedule, (guint)op->refs[0].array)->name, name))
      elements += (guint64)op->dims[0] * plan_schedule_group_size (schedule, op);
  return elements;
}

/* Bytes of what a kind of layer keeps for its backward pass. */
static inline guint64
kept_bytes (const TestCase *c, guint kind)
{
  const PlanLayerGraph *net = c->of->graphs.of[kind];
  PlanValueSet kept = plan_layer_graph_kept (net, &c->of->graphs.sizes, 0, net->n_nodes);
  guint64 bytes = 0;
  while (kept)
    {
      const PlanValue *value = &net->values[plan_value_pop (&kept)];
      bytes += plan_dtype_bytes (value->dtype, value->elements);
    }
  return bytes;
}

/* Checks that each of these lists stands among the names of a step's compute ops. */
static inline void
check_ops_are_there (const TestCase *c, const char *const *lists, guint n)
{
  PlanCursor cursor;
  g_autoptr (GString) names = g_string_new (" ");
  plan_cursor_start (&cursor, c->schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    if (plan_op_class (op->kind) == PLAN_CLASS_COMPUTE)
      g_string_append_printf (names, "%s ", plan_op_name (op->kind));
  for (guint i = 0; i < n; i++)
    ck_assert_msg (strstr (names->str, lists[i]) != NULL, "%s: not in %s", lists[i], names->str);
}
