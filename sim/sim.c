/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/sim.h"

#include "sim/engine.h"
#include "sim/memory.h"

#include <string.h>

/* A step is steady once it leaves every stream as far ahead of the host as the one before did; what
 * is carried from step to step settles in two. */
#define MAX_STEPS 16

typedef struct
{
  const PlanSchedule *schedule;
  SimEngine engine;
  SimMemory *memory;
} Run;

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
  const gint64 begin_ns = run->engine.host_ns;
  const PlanOp *op;
  PlanCursor cursor;
  plan_cursor_start (&cursor, run->schedule, section);
  while ((op = plan_cursor_next (&cursor)))
    {
      gint64 start_ns, end_ns;
      sim_engine_issue (&run->engine, &cursor, op, &start_ns, &end_ns);
      if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY)
        note_memory (run, trace, &cursor, op, start_ns - begin_ns);
      else if (trace)
        plan_trace_add_span (trace, cursor.node, (gint32)plan_cursor_unit (&cursor, op),
                             start_ns - begin_ns, end_ns - begin_ns);
    }
  return run->engine.host_ns - begin_ns;
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
    ahead.ns[s] = MAX (engine->stream_ns[s] - engine->host_ns, 0);
  return ahead;
}

PlanTrace *
sim_run (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack, GError **error)
{
  g_autoptr (SimMemory) memory = sim_memory_new (schedule, stack);
  g_autoptr (PlanTrace) trace = plan_trace_new ("sim");
  g_auto (SimEngine) engine = { 0 };
  sim_engine_init (&engine, schedule, cost);
  Run run = { .schedule = schedule, .engine = engine, .memory = memory };

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
         && ++steps < MAX_STEPS);
  sim_memory_begin_step (memory);
  trace->step_ns = run_section (&run, PLAN_SECTION_STEP, trace);
  if (!sim_memory_report (memory, &trace->memory, error))
    return NULL;
  plan_trace_attribute (trace, schedule);
  if (g_getenv ("FSDPLAN_DEBUG_CHECK") && !plan_trace_check (trace, schedule, error))
    return NULL;
  return g_steal_pointer (&trace);
}
