/* SPDX-License-Identifier: Apache-2.0 */
/* A stretch of ops is found once (find_way) and run again wherever a stage comes to the same place
 * (run_stretch); a step that is wanted as a trace is walked op by op. In brief schedules most of a
 * stretch are echoes; the ops of one are looked at once (find_part). */
#include "config.h"

#include "sim/fast/passes.h"

#include "planner/schedule/echo.h"
#include "sim/engine.h"
#include "sim/fast/stretch.h"
#include "sim/sim.h"

#include <string.h>

/* What a stage does from one place in its schedule to the next meeting, or to the end of the
 * section. */
typedef struct
{
  SimStretch *stretch;
  GArray *events; /* guint32: ids of its events, in the order of their numbers in the stretch */
  PlanCursor begin, end; /* the stage's cursor before and after the way when it was found */
  const PlanOp *meeting; /* the meeting that it leads to; NULL: the section ends */
} Way;

/* The ops of an echo. */
typedef struct
{
  GArray *events;  /* guint32: ids of its events, in the order in which its ops name them */
  guint64 number;  /* those with equal ops have equal ones */
  gboolean meets;  /* a meeting is among its ops */
  gboolean varies; /* its events depend on the iteration of the loop around it */
} Part;

/* For how much longer than the host each stream is busy. */
typedef struct
{
  gint64 ns[PLAN_N_STREAMS];
} Ahead;

typedef struct
{
  const PlanSchedule *schedule;
  const SimCost *cost;
  SimEngine engine;
  PlanCursor cursor;
  guint32 *numbers; /* by event: see Finding.numbers */
  /* Ways, two per node: for iterations of the loop around it before the last one, and for the last
   * one. */
  GPtrArray *ways;
  GHashTable *parts; /* first node of an echo -> Part */
  const PlanOp *meets;
  gint64 ready_ns, begin_ns;
  gint64 period, period_before;
  Ahead ahead;
  PlanTrace *trace; /* trace of the recorded step; NULL: none is wanted */
} Stage;

typedef struct
{
  const SimPipeline *pipeline;
  Stage *stages;
  GHashTable *stretches; /* ops -> SimStretch */
  GHashTable *keys;      /* ops with parts in place of theirs -> SimStretch, of `stretches` */
  GHashTable *numbers;   /* ops of a part -> its number */
  GByteArray *ops;       /* SimStretchOp, and parts: of the way that is being found */
  GByteArray *of_part;   /* SimStretchOp: of the part that is being found */
  SimPasses *out;
  GByteArray *state, *state_before; /* after the last step, and after the one before it */
  gboolean recurs;                  /* the two are equal */
} Run;

static void
free_way (gpointer data)
{
  Way *way = data;
  if (!way)
    return;
  g_array_unref (way->events);
  g_free (way);
}

static void
free_part (gpointer data)
{
  Part *part = data;
  g_array_unref (part->events);
  g_free (part);
}

static gint64
host_ns (const Stage *self)
{
  return sim_engine_clock (&self->engine, SIM_CLOCK_HOST)->at;
}

static SimIssue
issue_of (const Stage *self, const PlanCursor *cursor, const PlanOp *op)
{
  SimIssue issue = { .kind = sim_issue_kind (op->kind),
                     .stream = op->stream,
                     .group = op->group,
                     .n_waits = op->n_waits,
                     .wait_level = { -1, -1, -1, -1 },
                     .record_level = -1,
                     .record = -1,
                     .ns = sim_cost_ns (self->cost, cursor->node),
                     .load = sim_cost_load (self->cost, cursor->node),
                     .launch_ns = sim_cost_launch_ns (self->cost, cursor->node) };
  for (guint i = 0; i < op->n_waits; i++)
    issue.waits[i] = plan_cursor_event (cursor, &op->waits[i]);
  if (op->record.array >= 0)
    issue.record = plan_cursor_event (cursor, &op->record);
  return issue;
}

static void
issue (Stage *self, const PlanOp *op)
{
  const SimIssue now = issue_of (self, &self->cursor, op);
  SimClock start;
  const gint64 ns = sim_engine_issue (&self->engine, &now, &start);
  gint64 start_ns = start.at - self->begin_ns;
  if (!self->trace)
    return;
  if (now.kind == SIM_ISSUE_HOLD)
    start_ns = MAX (start_ns, host_ns (self) - self->begin_ns);
  plan_trace_add_span (self->trace, self->cursor.node, (gint32)plan_cursor_unit (&self->cursor, op),
                       start_ns, start_ns + ns);
}

/* A way while its ops are being collected. */
typedef struct
{
  GByteArray *ops;
  GArray *events;
  guint32 *numbers; /* by event id: its number, where `events` confirms it */
  gboolean has_parts;
} Finding;

static guint32
number_of (Finding *self, guint32 event)
{
  const guint32 number = self->numbers[event];
  if (number < self->events->len && g_array_index (self->events, guint32, number) == event)
    return number;
  self->numbers[event] = self->events->len;
  g_array_append_val (self->events, event);
  return self->numbers[event];
}

static void
add_op (Finding *self, const Stage *stage, const PlanCursor *cursor, const PlanOp *op)
{
  const guint at = self->ops->len;
  g_byte_array_set_size (self->ops, at + sizeof (SimStretchOp));
  SimStretchOp *new = (SimStretchOp *)(gpointer)&self->ops->data[at];
  memset (new, 0, sizeof *new); /* padding, too: ops are compared by their bytes */
  new->ns = sim_cost_ns (stage->cost, cursor->node);
  new->launch_ns = sim_cost_launch_ns (stage->cost, cursor->node);
  new->load = sim_cost_load (stage->cost, cursor->node);
  new->record = op->record.array < 0
                    ? -1
                    : (gint32)number_of (self, plan_cursor_event (cursor, &op->record));
  new->group = op->group;
  new->kind = (guint8)sim_issue_kind (op->kind);
  new->stream = (guint8)op->stream;
  new->n_waits = op->n_waits;
  for (guint i = 0; i < op->n_waits; i++)
    new->waits[i] = number_of (self, plan_cursor_event (cursor, &op->waits[i]));
}

/* Whether a reference names another event in each iteration of the loop in which a way begins. */
static gboolean
is_of_loop (const PlanCursor *begin, const PlanCursor *cursor, const PlanRef *ref)
{
  return ref->array >= 0 && ref->loop == 0 && begin->loop[0].node == cursor->loop[0].node;
}

static gboolean
is_fixed (const PlanCursor *begin, const PlanCursor *cursor, const PlanOp *op)
{
  for (guint i = 0; i < op->n_waits; i++)
    if (is_of_loop (begin, cursor, &op->waits[i]))
      return FALSE;
  return !is_of_loop (begin, cursor, &op->record);
}

/* Whether a reference of an op names another event in each iteration of the outermost loop. */
static gboolean
varies_with_loop (const PlanOp *op)
{
  gboolean varies = op->record.array >= 0 && op->record.loop == 0;
  for (guint i = 0; i < op->n_waits; i++)
    varies = varies || (op->waits[i].array >= 0 && op->waits[i].loop == 0);
  return varies;
}

/* Finds the ops of an echo that a cursor goes into next. */
static const Part *
find_part (Run *run, guint stage, const PlanCursor *cursor, const PlanEcho *echo)
{
  const Stage *s = &run->stages[stage];
  Part *part = g_hash_table_lookup (s->parts, GUINT_TO_POINTER (echo->begin));
  if (part)
    return part;
  PlanCursor inside = *cursor;
  const PlanOp *op;
  /* Numbers of its own: the way that is being found may have some of these events already. */
  g_autofree guint32 *numbers = g_new0 (guint32, plan_schedule_n_event_ids (s->schedule));
  Finding finding = { .ops = run->of_part,
                      .events = g_array_new (FALSE, FALSE, sizeof (guint32)),
                      .numbers = numbers };
  g_byte_array_set_size (run->of_part, 0);
  part = g_new0 (Part, 1);
  part->events = finding.events;
  while ((op = plan_cursor_next (&inside)) && inside.back > 0 && inside.echo == cursor->echo)
    {
      part->meets = part->meets || sim_meet_is_meeting (run->pipeline, stage, op);
      part->varies = part->varies || (cursor->depth > 0 && varies_with_loop (op));
      if (plan_op_class (op->kind) != PLAN_CLASS_MEMORY)
        add_op (&finding, s, &inside, op);
    }
  g_autoptr (GBytes) ops = g_bytes_new (run->of_part->data, run->of_part->len);
  part->number = GPOINTER_TO_SIZE (g_hash_table_lookup (run->numbers, ops));
  if (part->number == 0)
    {
      part->number = g_hash_table_size (run->numbers) + 1;
      g_hash_table_insert (run->numbers, g_bytes_ref (ops), GSIZE_TO_POINTER (part->number));
    }
  g_hash_table_insert (s->parts, GUINT_TO_POINTER (echo->begin), part);
  return part;
}

#define IS_PART (G_GUINT64_CONSTANT (1) << 63) /* no op takes so long */

/* Adds a part: how many events it has, which part it is, and the numbers of its events here. */
static void
add_part (Finding *self, const Part *part)
{
  const guint64 head[] = { IS_PART | part->events->len, part->number };
  g_byte_array_append (self->ops, (const guint8 *)head, sizeof head);
  for (guint i = 0; i < part->events->len; i++)
    {
      const guint64 number = number_of (self, g_array_index (part->events, guint32, i));
      g_byte_array_append (self->ops, (const guint8 *)&number, sizeof number);
    }
  self->has_parts = TRUE;
}

/* Leaves out an echo that a way goes into next, and adds it as a part. FALSE: it goes into none, or
 * into one that has to be looked at op by op. */
static gboolean
take_part (Run *run, guint stage, Way *way, Finding *finding)
{
  const PlanEcho *echo = plan_cursor_echo (&way->end);
  const Part *part = echo ? find_part (run, stage, &way->end, echo) : NULL;
  if (!part || part->meets || part->varies)
    return FALSE;
  add_part (finding, part);
  plan_cursor_skip_echo (&way->end);
  return TRUE;
}

/* Finds the ops of a way, with parts in place of theirs or one by one. */
static gboolean
find_ops (Run *run, guint stage, Way *way, Finding *finding, gboolean in_parts)
{
  const Stage *s = &run->stages[stage];
  const PlanOp *op;
  way->end = way->begin;
  finding->has_parts = FALSE;
  g_array_set_size (way->events, 0);
  g_byte_array_set_size (run->ops, 0);
  for (;;)
    {
      if (in_parts && take_part (run, stage, way, finding))
        continue;
      op = plan_cursor_next (&way->end);
      if (op && way->begin.depth > 0 && !is_fixed (&way->begin, &way->end, op))
        return FALSE;
      if (!op || sim_meet_is_meeting (run->pipeline, stage, op))
        break;
      if (plan_op_class (op->kind) != PLAN_CLASS_MEMORY)
        add_op (finding, s, &way->end, op);
    }
  way->meeting = op;
  return way->end.depth <= 1;
}

/* The stretch with the ops that were found. */
static SimStretch *
stretch_of (Run *run, guint n_events)
{
  g_autoptr (GBytes) ops = g_bytes_new (run->ops->data, run->ops->len);
  SimStretch *stretch = g_hash_table_lookup (run->stretches, ops);
  if (!stretch)
    {
      stretch = sim_stretch_new (g_bytes_ref (ops), n_events);
      g_hash_table_insert (run->stretches, g_bytes_ref (ops), stretch);
    }
  return stretch;
}

/* Finds the stretch of a way, by its parts if it has any. FALSE: its ops depend on the
 * iteration. */
static gboolean
find_stretch (Run *run, guint stage, Way *way)
{
  Finding finding
      = { .ops = run->ops, .events = way->events, .numbers = run->stages[stage].numbers };
  if (!find_ops (run, stage, way, &finding, TRUE))
    return FALSE;
  if (!finding.has_parts)
    {
      way->stretch = stretch_of (run, way->events->len);
      return TRUE;
    }
  g_autoptr (GBytes) key = g_bytes_new (run->ops->data, run->ops->len);
  way->stretch = g_hash_table_lookup (run->keys, key);
  if (way->stretch)
    return TRUE;
  find_ops (run, stage, way, &finding, FALSE);
  way->stretch = stretch_of (run, way->events->len);
  g_hash_table_insert (run->keys, g_bytes_ref (key), way->stretch);
  return TRUE;
}

/* Finds the way from a stage's present place. NULL: its ops depend on the iteration. */
static Way *
find_way (Run *run, guint stage)
{
  Stage *s = &run->stages[stage];
  const gboolean is_last = s->cursor.depth > 0 && s->cursor.loop[0].left == 1;
  gpointer *place = &s->ways->pdata[2 * s->cursor.next + is_last];
  if (*place)
    return *place;
  Way *way = g_new0 (Way, 1);
  way->begin = s->cursor;
  way->events = g_array_new (FALSE, FALSE, sizeof (guint32));
  if (s->cursor.depth > 1 || !find_stretch (run, stage, way))
    {
      free_way (way);
      return NULL;
    }
  return *place = way;
}

/* Moves a cursor to where a way ends, which may be in the next iteration. */
static void
go_to_end (PlanCursor *cursor, const Way *way)
{
  const PlanCursor before = *cursor;
  *cursor = way->end;
  if (before.depth == 0 || way->end.depth == 0 || before.loop[0].node != way->end.loop[0].node)
    return;
  cursor->loop[0].left += before.loop[0].left - way->begin.loop[0].left;
  cursor->loop[0].value += before.loop[0].value - way->begin.loop[0].value;
}

/* Runs the next stretch of a stage, up to a meeting or the end of the section. */
static gboolean
run_stretch (Run *run, guint stage)
{
  Stage *s = &run->stages[stage];
  const Way *way = find_way (run, stage);
  if (!way)
    return FALSE;
  run->out->n_simulated
      += sim_stretch_run (way->stretch, &s->engine, (const guint32 *)(gpointer)way->events->data);
  run->out->n_ops += sim_stretch_n_ops (way->stretch);
  go_to_end (&s->cursor, way);
  s->meets = way->meeting;
  return TRUE;
}

/* Runs a stage op by op up to the next meeting, for a trace. */
static void
walk (const Run *run, guint stage)
{
  Stage *s = &run->stages[stage];
  while ((s->meets = plan_cursor_next (&s->cursor))
         && !sim_meet_is_meeting (run->pipeline, stage, s->meets))
    if (plan_op_class (s->meets->kind) != PLAN_CLASS_MEMORY)
      issue (s, s->meets);
}

static gboolean
advance (Run *run, guint stage)
{
  Stage *s = &run->stages[stage];
  if (s->trace)
    walk (run, stage);
  else if (!run_stretch (run, stage))
    return FALSE;
  if (s->meets)
    {
      const SimIssue now = issue_of (s, &s->cursor, s->meets);
      s->ready_ns = sim_engine_ready (&s->engine, &now);
    }
  return TRUE;
}

/* Lets the stages of a meeting begin it together, and go on to their next meetings. */
static gboolean
meet (Run *run, const guint *who, guint n)
{
  gint64 start_ns = 0;
  gboolean ok = TRUE;
  for (guint k = 0; k < n; k++)
    start_ns = MAX (start_ns, run->stages[who[k]].ready_ns);
  for (guint k = 0; k < n; k++)
    {
      Stage *s = &run->stages[who[k]];
      if (s->trace)
        plan_trace_add_wait (s->trace, s->ready_ns - s->begin_ns, start_ns - s->begin_ns);
      sim_engine_hold (&s->engine, s->meets->stream, start_ns);
      issue (s, s->meets);
    }
  for (guint k = 0; k < n; k++)
    ok = ok && advance (run, who[k]);
  return ok;
}

/* Runs all meetings of a section. Stages are asked in a ring, until none can go on. */
static gboolean
run_meetings (Run *run)
{
  const guint n = run->pipeline->n;
  const PlanOp *ops[SIM_MAX_STAGES];
  guint who[SIM_MAX_STAGES];
  for (guint i = 0; i < n; i++)
    ops[i] = run->stages[i].meets;
  for (guint stage = 0, idle = 0; idle < n; stage = (stage + 1) % n)
    {
      const guint n_meet = ops[stage] ? sim_meet_all (run->pipeline, stage, ops, who) : 0;
      idle = n_meet > 0 ? 0 : idle + 1;
      if (n_meet > 0 && !meet (run, who, n_meet))
        return FALSE;
      for (guint k = 0; k < n_meet; k++)
        ops[who[k]] = run->stages[who[k]].meets;
    }
  for (guint i = 0; i < n; i++)
    if (ops[i])
      return FALSE;
  return TRUE;
}

static gboolean
run_section (Run *run, PlanSection section)
{
  const guint n = run->pipeline->n;
  for (guint i = 0; i < n; i++)
    {
      Stage *s = &run->stages[i];
      plan_cursor_start (&s->cursor, s->schedule, section);
      s->begin_ns = host_ns (s);
      if (!advance (run, i))
        return FALSE;
    }
  if (!run_meetings (run))
    return FALSE;
  for (guint i = 0; i < n; i++)
    {
      Stage *s = &run->stages[i];
      s->period_before = s->period;
      s->period = host_ns (s) - s->begin_ns;
    }
  return TRUE;
}

static Ahead
ahead_of (const Stage *self)
{
  Ahead ahead;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    ahead.ns[s]
        = MAX (sim_engine_clock (&self->engine, SIM_CLOCK_STREAMS + s)->at - host_ns (self), 0);
  return ahead;
}

/* Whether the last step left every stage as the step before did. */
static gboolean
is_steady (Run *run)
{
  gboolean is_steady = TRUE;
  for (guint i = 0; i < run->pipeline->n; i++)
    {
      Stage *s = &run->stages[i];
      const Ahead now = ahead_of (s);
      is_steady
          = is_steady && s->period == s->period_before && memcmp (&now, &s->ahead, sizeof now) == 0;
      s->ahead = now;
    }
  return is_steady;
}

/* Notes all that the next step depends on: of each stage the clocks and the host, the latter
 * counted from the first stage's. A clock that is not later than its host counts as equal to it,
 * since nothing begins before the host issues it. */
static void
note_state (Run *run)
{
  GByteArray *now = run->state_before;
  run->state_before = run->state;
  run->state = now;
  g_byte_array_set_size (now, 0);
  for (guint i = 0; i < run->pipeline->n; i++)
    {
      const SimEngine *engine = &run->stages[i].engine;
      const SimClock *clocks = sim_engine_clock (engine, 0);
      const gint64 host = host_ns (&run->stages[i]), later = host - host_ns (&run->stages[0]);
      g_byte_array_append (now, (const guint8 *)&later, sizeof later);
      for (guint c = 0; c < engine->n_clocks; c++)
        {
          const gint64 ahead = MAX (clocks[c].at - host, 0);
          g_byte_array_append (now, (const guint8 *)&ahead, sizeof ahead);
        }
      g_byte_array_append (now, (const guint8 *)&engine->occupancy, sizeof engine->occupancy);
    }
  run->recurs = now->len == run->state_before->len
                && memcmp (now->data, run->state_before->data, now->len) == 0;
}

/* Runs steps until one is steady. Once a step ends in the state in which it began, all further
 * steps are equal to it, and the next one is the steady one. */
static gboolean
run_steps (Run *run)
{
  guint steps = 0;
  if (!run_section (run, PLAN_SECTION_SETUP))
    return FALSE;
  for (guint i = 0; i < run->pipeline->n; i++)
    {
      run->stages[i].ahead = ahead_of (&run->stages[i]);
      run->stages[i].period = -1;
    }
  note_state (run);
  do
    {
      if (!run_section (run, PLAN_SECTION_STEP))
        return FALSE;
      note_state (run);
    }
  while (!is_steady (run) && ++steps < SIM_MAX_STEPS && !run->recurs);
  run->out->n_steps = steps + 2;
  return TRUE;
}

static gboolean
run_last (Run *run, PlanTrace **out_traces)
{
  if (run->recurs && !out_traces)
    {
      run->out->step_ns = run->stages[0].period;
      return TRUE;
    }
  for (guint i = 0; i < run->pipeline->n && out_traces; i++)
    run->stages[i].trace = out_traces[i] = plan_trace_new ("sim");
  if (!run_section (run, PLAN_SECTION_STEP))
    return FALSE;
  run->out->step_ns = run->stages[0].period;
  for (guint i = 0; i < run->pipeline->n && out_traces; i++)
    {
      out_traces[i]->step_ns = run->stages[i].period;
      plan_trace_attribute (out_traces[i], run->stages[i].schedule);
    }
  return TRUE;
}

static void
stage_init (Stage *self, const PlanSchedule *schedule, const SimCost *cost)
{
  self->schedule = schedule;
  self->cost = cost;
  self->ways = g_ptr_array_new_with_free_func (free_way);
  g_ptr_array_set_size (self->ways, (gint)(2 * plan_schedule_n_nodes (schedule) + 2));
  self->parts = g_hash_table_new_full (NULL, NULL, NULL, free_part);
  self->numbers = g_new0 (guint32, plan_schedule_n_event_ids (schedule) + 1);
  sim_engine_init (&self->engine, schedule, cost);
}

static void
stage_clear (Stage *self)
{
  g_ptr_array_unref (self->ways);
  g_hash_table_unref (self->parts);
  g_free (self->numbers);
  sim_engine_clear (&self->engine);
}

gboolean
sim_passes_run (const SimPipeline *pipeline, const SimCost *const *costs, PlanTrace **out_traces,
                SimPasses *out_passes)
{
  g_return_val_if_fail (pipeline->n > 0 && pipeline->n <= SIM_MAX_STAGES, FALSE);
  g_autofree Stage *stages = g_new0 (Stage, pipeline->n);
  g_autoptr (GHashTable) stretches
      = g_hash_table_new_full (sim_stretch_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref,
                               (GDestroyNotify)sim_stretch_free);
  g_autoptr (GHashTable) keys = g_hash_table_new_full (sim_stretch_hash, g_bytes_equal,
                                                       (GDestroyNotify)g_bytes_unref, NULL);
  g_autoptr (GHashTable) numbers = g_hash_table_new_full (sim_stretch_hash, g_bytes_equal,
                                                          (GDestroyNotify)g_bytes_unref, NULL);
  g_autoptr (GByteArray) ops = g_byte_array_new ();
  g_autoptr (GByteArray) of_part = g_byte_array_new ();
  g_autoptr (GByteArray) state = g_byte_array_new ();
  g_autoptr (GByteArray) before = g_byte_array_new ();
  Run run = { pipeline, stages,     stretches, keys,   numbers, ops,
              of_part,  out_passes, state,     before, FALSE };
  *out_passes = (SimPasses){ 0 };
  if (sim_cost_is_serial (costs[0]))
    return FALSE;
  for (guint i = 0; i < pipeline->n; i++)
    stage_init (&stages[i], pipeline->schedules[i], costs[i]);
  const gboolean ok = run_steps (&run) && run_last (&run, out_traces);
  for (guint i = 0; i < pipeline->n; i++)
    {
      stage_clear (&stages[i]);
      if (!ok && out_traces)
        g_clear_pointer (&out_traces[i], plan_trace_free);
    }
  return ok;
}
