/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/sim.h"

#include "planner/base/error.h"
#include "sim/engine.h"
#include "sim/meet.h"
#include "sim/memory.h"

#include <string.h>

/* For how much longer than the host each stream is busy. */
typedef struct
{
  gint64 ns[PLAN_N_STREAMS];
} Ahead;

/* The simulation of one rank of one stage. */
typedef struct
{
  const PlanSchedule *schedule;
  SimIssue *issues; /* one per node, without the ids of events */
  const SimCost *cost;
  SimEngine engine;
  SimMemory *memory; /* NULL: memory is not simulated */
  PlanCursor cursor;
  PlanTrace *trace;    /* the trace to which spans are added; NULL: none */
  gint64 begin_ns;     /* when the section began, by the host's clock */
  const PlanOp *meets; /* the meeting at which it waits; NULL: none */
  gint64 ready_ns;     /* when it came to that meeting */
  gint64 period, period_before;
  Ahead now, before;
} Run;

static void
find_issues (Run *run)
{
  const guint n = plan_schedule_n_nodes (run->schedule);
  run->issues = g_new (SimIssue, n);
  for (guint node = 0; node < n; node++)
    {
      const PlanOp *op = plan_schedule_node (run->schedule, node);
      if (op->kind < PLAN_N_OPS)
        run->issues[node] = (SimIssue){ .kind = sim_issue_kind (op->kind),
                                        .stream = op->stream,
                                        .group = op->group,
                                        .n_waits = op->n_waits,
                                        .wait_level = { -1, -1, -1, -1 },
                                        .record_level = -1,
                                        .record = -1,
                                        .ns = sim_cost_ns (run->cost, node),
                                        .load = sim_cost_load (run->cost, node),
                                        .launch_ns = sim_cost_launch_ns (run->cost, node) };
    }
}

static SimIssue
issue_of (const Run *run, const PlanOp *op)
{
  const PlanCursor *cursor = &run->cursor;
  SimIssue now = run->issues[cursor->node];
  for (guint i = 0; i < op->n_waits; i++)
    now.waits[i] = plan_cursor_event (cursor, &op->waits[i]);
  if (op->record.array >= 0)
    now.record = plan_cursor_event (cursor, &op->record);
  return now;
}

static gint64
host_ns (const Run *run)
{
  return sim_engine_clock (&run->engine, SIM_CLOCK_HOST)->at;
}

static void
note_memory (Run *run, const PlanOp *op, gint64 at_ns)
{
  const PlanCategory category = sim_memory_apply (run->memory, &run->cursor, op);
  if (run->trace && category != PLAN_CATEGORY_HOST)
    plan_trace_add_sample (run->trace, category, at_ns,
                           (gint64)sim_memory_live (run->memory, category));
}

static void
issue (Run *run, const PlanOp *op)
{
  const gboolean takes_memory = plan_op_class (op->kind) == PLAN_CLASS_MEMORY;
  if (takes_memory && !run->memory)
    return;
  const SimIssue now = issue_of (run, op);
  SimClock start = { 0 };
  if (run->memory)
    sim_memory_issue (run->memory, sim_cost_launches (run->cost, run->cursor.node));
  const gint64 ns = sim_engine_issue (&run->engine, &now, &start);
  gint64 start_ns = start.at;
  if (now.kind == SIM_ISSUE_HOLD)
    start_ns = MAX (start_ns, host_ns (run));
  start_ns -= run->begin_ns;
  if (takes_memory)
    note_memory (run, op, start_ns);
  else if (run->trace)
    plan_trace_add_span (run->trace, run->cursor.node, (gint32)plan_cursor_unit (&run->cursor, op),
                         start_ns, start_ns + ns);
}

static void
begin_section (Run *run, PlanSection section, PlanTrace *trace)
{
  plan_cursor_start (&run->cursor, run->schedule, section);
  run->begin_ns = host_ns (run);
  run->trace = trace;
}

/* Runs the ops up to the next meeting, or to the end of the section. */
static void
advance (Run *run, const SimPipeline *pipeline, guint stage)
{
  const PlanOp *op;
  while ((op = plan_cursor_next (&run->cursor)))
    {
      if (sim_meet_is_meeting (pipeline, stage, op))
        {
          const SimIssue now = issue_of (run, op);
          run->ready_ns = sim_engine_ready (&run->engine, &now);
          break;
        }
      issue (run, op);
    }
  run->meets = op;
}

/* Lets the stages of a meeting begin it together. */
static void
meet (Run *runs, const guint *who, guint n)
{
  gint64 start_ns = 0;
  for (guint k = 0; k < n; k++)
    start_ns = MAX (start_ns, runs[who[k]].ready_ns);
  for (guint k = 0; k < n; k++)
    {
      Run *run = &runs[who[k]];
      if (run->trace)
        plan_trace_add_wait (run->trace, run->ready_ns - run->begin_ns, start_ns - run->begin_ns);
      sim_engine_hold (&run->engine, run->meets->stream, start_ns);
      issue (run, run->meets);
    }
}

static gboolean
meet_someone (Run *runs, const SimPipeline *pipeline, GError **error)
{
  const PlanOp *ops[SIM_MAX_STAGES];
  guint who[SIM_MAX_STAGES], n;
  gboolean is_over = TRUE;
  for (guint i = 0; i < pipeline->n; i++)
    {
      ops[i] = runs[i].meets;
      is_over = is_over && !ops[i];
    }
  for (guint i = 0; i < pipeline->n; i++)
    if (ops[i] && (n = sim_meet_all (pipeline, i, ops, who)) > 0)
      {
        meet (runs, who, n);
        for (guint k = 0; k < n; k++)
          advance (&runs[who[k]], pipeline, who[k]);
        return TRUE;
      }
  if (!is_over)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "schedules: every stage of the pipeline waits for another one");
  return FALSE;
}

/* Runs one section of every stage. With `traces`, every op is recorded in them. */
static gboolean
run_section (Run *runs, const SimPipeline *pipeline, PlanSection section, PlanTrace **traces,
             GError **error)
{
  GError *deadlock = NULL;
  for (guint i = 0; i < pipeline->n; i++)
    {
      begin_section (&runs[i], section, traces ? traces[i] : NULL);
      advance (&runs[i], pipeline, i);
    }
  while (pipeline->n > 1 && meet_someone (runs, pipeline, &deadlock))
    ;
  if (deadlock)
    {
      g_propagate_error (error, deadlock);
      return FALSE;
    }
  for (guint i = 0; i < pipeline->n; i++)
    {
      if (section != PLAN_SECTION_TEARDOWN && runs[i].memory)
        sim_memory_end_step (runs[i].memory);
      runs[i].period_before = runs[i].period;
      runs[i].period = host_ns (&runs[i]) - runs[i].begin_ns;
    }
  return TRUE;
}

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

/* Whether the last step left every stage as the step before did. */
static gboolean
is_steady (Run *runs, guint n)
{
  gboolean is_steady = TRUE;
  for (guint i = 0; i < n; i++)
    {
      runs[i].before = runs[i].now;
      runs[i].now = ahead_of (&runs[i].engine);
      is_steady = is_steady && runs[i].period == runs[i].period_before
                  && memcmp (&runs[i].now, &runs[i].before, sizeof runs[i].now) == 0;
    }
  return is_steady;
}

static gboolean
run_step (Run *runs, const SimPipeline *pipeline, PlanTrace **traces, GError **error)
{
  for (guint i = 0; i < pipeline->n; i++)
    if (runs[i].memory)
      sim_memory_begin_step (runs[i].memory);
  return run_section (runs, pipeline, PLAN_SECTION_STEP, traces, error);
}

static gboolean
run_all (Run *runs, const SimPipeline *pipeline, PlanTrace **traces, guint *out_n_steps,
         GError **error)
{
  guint steps = 0;
  if (!run_section (runs, pipeline, PLAN_SECTION_SETUP, NULL, error))
    return FALSE;
  for (guint i = 0; i < pipeline->n; i++)
    {
      runs[i].now = ahead_of (&runs[i].engine);
      runs[i].period = -1;
    }
  do
    if (!run_step (runs, pipeline, NULL, error))
      return FALSE;
  while (!is_steady (runs, pipeline->n) && ++steps < SIM_MAX_STEPS);
  *out_n_steps = steps + 2;
  return run_step (runs, pipeline, traces, error);
}

static gboolean
report (Run *run, PlanTrace *trace, GError **error)
{
  trace->step_ns = run->period;
  if (run->memory && !sim_memory_report (run->memory, &trace->memory, error))
    return FALSE;
  plan_trace_attribute (trace, run->schedule);
  return !run->memory || !g_getenv ("FSDPLAN_DEBUG_CHECK")
         || plan_trace_check (trace, run->schedule, error);
}

/* Runs the steps and fills the traces. With `has_memory`, memory is simulated as well. */
static gboolean
simulate (const SimPipeline *pipeline, const SimCost *const *costs, gboolean has_memory,
          const PlanStack *stack, PlanTrace **out_traces, gint64 *out_offsets, guint *out_n_steps,
          GError **error)
{
  g_return_val_if_fail (pipeline->n > 0 && pipeline->n <= SIM_MAX_STAGES, FALSE);
  g_autofree Run *runs = g_new0 (Run, pipeline->n);
  for (guint i = 0; i < pipeline->n; i++)
    {
      const SimPace pace = sim_pace_of (pipeline->schedules[i], costs[i]);
      runs[i].schedule = pipeline->schedules[i];
      runs[i].cost = costs[i];
      runs[i].memory = has_memory ? sim_memory_new (runs[i].schedule, stack, &pace) : NULL;
      find_issues (&runs[i]);
      sim_engine_init (&runs[i].engine, runs[i].schedule, runs[i].cost);
      out_traces[i] = plan_trace_new ("sim");
    }
  gboolean ok = run_all (runs, pipeline, out_traces, out_n_steps, error);
  gint64 earliest_ns = G_MAXINT64;
  for (guint i = 0; i < pipeline->n; i++)
    earliest_ns = MIN (earliest_ns, runs[i].begin_ns);
  for (guint i = 0; i < pipeline->n; i++)
    {
      ok = ok && report (&runs[i], out_traces[i], error);
      if (out_offsets)
        out_offsets[i] = runs[i].begin_ns - earliest_ns;
      if (runs[i].memory)
        sim_memory_free (runs[i].memory);
      g_free (runs[i].issues);
      sim_engine_clear (&runs[i].engine);
    }
  for (guint i = 0; i < pipeline->n && !ok; i++)
    g_clear_pointer (&out_traces[i], plan_trace_free);
  return ok;
}

gboolean
sim_run_stages (const SimPipeline *pipeline, const SimCost *const *costs, const PlanStack *stack,
                PlanTrace **out_traces, gint64 *out_offsets, GError **error)
{
  guint n_steps;
  return simulate (pipeline, costs, TRUE, stack, out_traces, out_offsets, &n_steps, error);
}

gboolean
sim_time_stages (const SimPipeline *pipeline, const SimCost *const *costs, PlanTrace **out_traces,
                 guint *out_n_steps, GError **error)
{
  return simulate (pipeline, costs, FALSE, NULL, out_traces, NULL, out_n_steps, error);
}

PlanTrace *
sim_run (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack, GError **error)
{
  const SimPipeline alone = { &schedule, 1 };
  PlanTrace *trace;
  return sim_run_stages (&alone, &cost, stack, &trace, NULL, error) ? trace : NULL;
}
