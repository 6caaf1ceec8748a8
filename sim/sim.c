/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/sim.h"

#include "sim/engine.h"
#include "sim/memory.h"

#include <string.h>

typedef struct
{
  const PlanSchedule *schedule;
  const SimCost *cost;
  SimEngine engine;
  SimMemory *memory;
} Run;

static gint64
issue (Run *run, const PlanCursor *cursor, const PlanOp *op, SimClock *out_start)
{
  SimIssue now = { .kind = sim_issue_kind (op->kind),
                   .stream = op->stream,
                   .group = op->group,
                   .n_waits = op->n_waits,
                   .wait_level = { -1, -1, -1, -1 },
                   .record_level = -1,
                   .record = -1,
                   .ns = sim_cost_ns (run->cost, cursor->node),
                   .load = sim_cost_load (run->cost, cursor->node),
                   .launch_ns = sim_cost_launch_ns (run->cost, cursor->node) };
  for (guint i = 0; i < op->n_waits; i++)
    now.waits[i] = plan_cursor_event (cursor, &op->waits[i]);
  if (op->record.array >= 0)
    now.record = plan_cursor_event (cursor, &op->record);
  return sim_engine_issue (&run->engine, &now, out_start);
}

static gint64
host_ns (const Run *run)
{
  return sim_engine_clock (&run->engine, SIM_CLOCK_HOST)->at;
}

static void
note_memory (Run *run, PlanTrace *trace, const PlanCursor *cursor, const PlanOp *op, gint64 at_ns)
{
  const PlanCategory category = sim_memory_apply (run->memory, cursor, op);
  if (trace && category != PLAN_CATEGORY_HOST)
    plan_trace_add_sample (trace, category, at_ns, (gint64)sim_memory_live (run->memory, category));
}

/* One section; with a trace, what happens is noted in it. Returns the host's time for it. */
static gint64
run_section (Run *run, PlanSection section, PlanTrace *trace)
{
  const gint64 begin_ns = host_ns (run);
  const PlanOp *op;
  PlanCursor cursor;
  plan_cursor_start (&cursor, run->schedule, section);
  while ((op = plan_cursor_next (&cursor)))
    {
      sim_memory_issue (run->memory, sim_cost_launches (run->cost, cursor.node));
      const SimIssueKind kind = sim_issue_kind (op->kind);
      SimClock start = { 0 };
      const gint64 ns = issue (run, &cursor, op, &start);
      gint64 start_ns = start.at;
      if (kind == SIM_ISSUE_HOLD)
        start_ns = MAX (start_ns, host_ns (run));
      start_ns -= begin_ns;
      if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY)
        note_memory (run, trace, &cursor, op, start_ns);
      else if (trace)
        plan_trace_add_span (trace, cursor.node, (gint32)plan_cursor_unit (&cursor, op), start_ns,
                             start_ns + ns);
    }
  if (section != PLAN_SECTION_TEARDOWN)
    sim_memory_end_step (run->memory);
  return host_ns (run) - begin_ns;
}

/* How much longer each stream is busy than the host. */
typedef struct
{
  gint64 ns[PLAN_N_STREAMS];
} Ahead;

static Ahead
ahead_of (const SimEngine *engine)
{
  Ahead ahead;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    ahead.ns[s] = MAX (sim_engine_clock (engine, SIM_CLOCK_STREAMS + s)->at
                           - sim_engine_clock (engine, SIM_CLOCK_HOST)->at,
                       0);
  return ahead;
}

PlanTrace *
sim_run (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack, GError **error)
{
  const SimPace pace = sim_pace_of (schedule, cost);
  g_autoptr (SimMemory) memory = sim_memory_new (schedule, stack, &pace);
  g_autoptr (PlanTrace) trace = plan_trace_new ("sim");
  g_auto (SimEngine) engine = { 0 };
  sim_engine_init (&engine, schedule, cost);
  Run run = { .schedule = schedule, .cost = cost, .engine = engine, .memory = memory };

  run_section (&run, PLAN_SECTION_SETUP, NULL);
  Ahead now = ahead_of (&run.engine), before;
  gint64 period = -1, period_before;
  guint steps = 0;
  do
    {
      before = now;
      period_before = period;
      sim_memory_begin_step (memory);
      period = run_section (&run, PLAN_SECTION_STEP, NULL);
      now = ahead_of (&run.engine);
    }
  while ((period != period_before || memcmp (&now, &before, sizeof now) != 0)
         && ++steps < SIM_MAX_STEPS);
  sim_memory_begin_step (memory);
  trace->step_ns = run_section (&run, PLAN_SECTION_STEP, trace);
  if (!sim_memory_report (memory, &trace->memory, error))
    return NULL;
  plan_trace_attribute (trace, schedule);
  if (g_getenv ("FSDPLAN_DEBUG_CHECK") && !plan_trace_check (trace, schedule, error))
    return NULL;
  return g_steal_pointer (&trace);
}
