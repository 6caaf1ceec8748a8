/* A model, a cluster and a plan, lowered: what the tests of lowering look at. */
#pragma once
#include "planner/lower/lower.h"
#include "sim/sim.h"
#include <check.h>

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  Plan plan;
  const PlanStack *stack;
  PlanSchedule *schedule;
} Case;

static inline void
case_init (Case *c, const char *model, const char *cluster, const char *const *fields)
{
  g_autoptr (GError) error = NULL;
  Plan plan;
  c->model = plan_model_new (model, &error);
  c->cluster = plan_cluster_new (cluster, &error);
  plan_init (&plan);
  for (; *fields; fields += 2)
    ck_assert_msg (plan_set (&plan, fields[0], fields[1], &error), "%s", error->message);
  ck_assert_msg (plan_resolve (&plan, c->model, c->cluster, &c->plan, &error), "%s",
                 error ? error->message : "");
  c->stack = plan_stack_of (&c->plan, c->cluster->kind, &error);
  c->schedule = plan_lower (c->model, c->cluster, &c->plan, 0, &error);
  ck_assert_msg (c->schedule != NULL, "%s", error ? error->message : "");
}

/* The same, of "field=value field=value". */
static inline void
case_init_words (Case *c, const char *model, const char *cluster, const char *words)
{
  g_auto (GStrv) halves = g_strsplit_set (words, " =", -1);
  case_init (c, model, cluster, (const char *const *)halves);
}

static inline void
case_clear (Case *c)
{
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
  plan_schedule_free (c->schedule);
}

static inline PlanMemory
memory_of (const Case *c)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SimCost) cost = sim_cost_new (
      &(SimCostInput){
          .schedule = c->schedule, .cluster = c->cluster, .stack = c->stack, .plan = &c->plan },
      &error);
  g_autoptr (PlanTrace) trace = sim_run (c->schedule, cost, c->stack, &error);
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  return trace->memory;
}

/* Most buffers of an array that are live at once in a step. */
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
