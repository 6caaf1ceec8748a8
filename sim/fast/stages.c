/* SPDX-License-Identifier: Apache-2.0 */
/* A stretch is what a stage does between two meetings. It begins when the host is free. The meeting
 * before it may still be under way then: it ends `lag` later, unless the first thing the host does
 * is to wait for it. So the outcome of a stretch follows from its ops, their costs and the lag, and
 * these are its key. */
#include "config.h"

#include "sim/fast/stages.h"

#include "planner/schedule/echo.h"
#include "planner/schedule/trace.h"
#include "sim/engine.h"
#include "sim/fast/stretch.h"
#include "sim/sim.h"

#include <string.h>

/* Simulated stretches begin at this time, which is large so that earlier times stay positive. */
#define BASE (G_GINT64_CONSTANT (1) << 50)
#define MAX_PIECES 12 /* of a stretch */

/* What a stretch leads to; times are counted from when the host is free. */
typedef struct
{
  gint64 ready_ns; /* until the stage is ready for the next meeting */
  gint64 host_ns;  /* until the host is free again */
  SimShares shares;
  GArray *node_ns;  /* gint64: time of each node that is part of the key, in their order */
  gboolean is_over; /* everything it began is over when it is ready for the meeting */
} Outcome;

/* Nodes [begin, end) of a schedule, with `depth` repeats around them. */
typedef struct
{
  guint begin, end;
  gint8 depth;
} Piece;

typedef struct
{
  guint before, meeting; /* nodes of the meeting before it and of the one it leads to */
  Piece pieces[MAX_PIECES];
  guint n_pieces;
  gboolean is_synced; /* the host waits for the meeting before as the first thing it does */
  guint sync;         /* node of that wait; G_MAXUINT: there is none */
  GBytes *key;        /* everything that its outcome follows from, except the lag */
  Outcome *last;      /* the outcome that it had last; NULL: none yet */
  gint64 last_lag_ns;
} Stretch;

typedef struct
{
  GPtrArray *stretches; /* Stretch */
  GArray *order;        /* guint: indices of the stretches of a step, in order */
  guint at;             /* index in `order` of the stretch under way */
  gint64 host_ns, lag_ns, ready_ns;
  gint64 idle_ns;  /* time for which it waited for other stages so far in this step */
  GPtrArray *used; /* Outcome: of each stretch of the step */
  /* Host clock and lag at the end of the step before, relative to the first stage. */
  gint64 was_ns, was_lag_ns;
} Stage;

struct _SimStages
{
  SimPipeline pipeline;
  const SimCost *const *costs;
  Stage *stages;
  GHashTable *keys;     /* GBytes: keys of stretches, each once */
  GHashTable *outcomes; /* Start, as GBytes -> Outcome */
  SimEngine engine;
  guint64 n_issued;
  guint n_steps;
  gint64 step_ns;
  GArray *node_ns; /* times of the nodes of the stage that was asked for last */
};

static void
free_outcome (gpointer data)
{
  Outcome *outcome = data;
  g_array_unref (outcome->node_ns);
  g_free (outcome);
}

static void
free_stretch (gpointer data)
{
  Stretch *stretch = data;
  g_clear_pointer (&stretch->key, g_bytes_unref);
  g_free (stretch);
}

void
sim_stages_free (SimStages *self)
{
  if (!self)
    return;
  for (guint i = 0; i < self->pipeline.n; i++)
    {
      g_ptr_array_unref (self->stages[i].stretches);
      g_array_unref (self->stages[i].order);
      g_ptr_array_unref (self->stages[i].used);
    }
  g_free (self->stages);
  g_hash_table_unref (self->outcomes);
  g_hash_table_unref (self->keys);
  sim_engine_clear (&self->engine);
  g_array_unref (self->node_ns);
  g_free (self);
}

static const PlanOp *
node_of (const SimStages *self, guint stage, guint node)
{
  return plan_schedule_node (self->pipeline.schedules[stage], node);
}

static gboolean
is_meeting (const SimStages *self, guint stage, guint node)
{
  const PlanOp *op = node_of (self, stage, node);
  return op->kind < PLAN_N_OPS && sim_meet_is_meeting (&self->pipeline, stage, op);
}

/* Everything that the time of an op follows from. Events are named by array; loops are counted from
 * the piece's depth. */
typedef struct
{
  gint64 ns, launch_ns, from, count, step;
  SimLoad load;
  PlanRef waits[PLAN_MAX_WAITS], record;
  gint32 kind, stream, group, n_waits;
} Trait;

static PlanRef
ref_from (PlanRef ref, gint8 depth)
{
  if (ref.loop >= 0)
    ref.loop = (gint8)(ref.loop - depth);
  ref.at = 0;
  return ref;
}

static gboolean
takes_time (const PlanOp *op)
{
  return op->kind >= PLAN_N_OPS || plan_op_class (op->kind) != PLAN_CLASS_MEMORY;
}

static void
add_trait (const SimStages *self, guint stage, guint node, gint8 depth, GByteArray *key)
{
  const PlanOp *op = node_of (self, stage, node);
  Trait trait;
  memset (&trait, 0, sizeof trait); /* padding, too */
  trait.kind = op->kind;
  if (op->kind == PLAN_OP_REPEAT)
    {
      trait.from = op->dims[PLAN_REPEAT_FROM];
      trait.count = op->dims[PLAN_REPEAT_COUNT];
      trait.step = op->dims[PLAN_REPEAT_STEP];
    }
  else if (op->kind < PLAN_N_OPS)
    {
      const SimCost *cost = self->costs[stage];
      trait.kind = (gint32)sim_issue_kind (op->kind);
      trait.stream = op->stream;
      trait.group = op->group;
      trait.n_waits = op->n_waits;
      trait.ns = sim_cost_ns (cost, node);
      trait.launch_ns = sim_cost_launch_ns (cost, node);
      trait.load = sim_cost_load (cost, node);
      for (guint i = 0; i < op->n_waits; i++)
        trait.waits[i] = ref_from (op->waits[i], depth);
      trait.record = ref_from (op->record, depth);
    }
  g_byte_array_append (key, (const guint8 *)&trait, sizeof trait);
}

/* Whether the host waits for the meeting before a stretch first of all; gives the node at which it
 * does. */
static gboolean
begins_with_sync (const SimStages *self, guint stage, const Stretch *stretch, guint *out_node)
{
  const PlanOp *before = node_of (self, stage, stretch->before);
  for (guint p = 0; p < stretch->n_pieces; p++)
    for (guint node = stretch->pieces[p].begin; node < stretch->pieces[p].end; node++)
      {
        const PlanOp *op = node_of (self, stage, node);
        if (!takes_time (op))
          continue;
        *out_node = node;
        return op->kind == PLAN_OP_SYNC && op->n_waits == 1
               && op->waits[0].array == before->record.array;
      }
  return FALSE;
}

/* Whether a node affects the outcome of its stretch. Excluded are `skipped` (the host's wait for
 * the meeting before) and nodes that only take or free memory. */
static gboolean
is_of_key (const SimStages *self, guint stage, guint node, guint skipped)
{
  return takes_time (node_of (self, stage, node)) && node != skipped;
}

static void
describe (SimStages *self, guint stage, Stretch *stretch)
{
  g_autoptr (GByteArray) key = g_byte_array_new ();
  guint first = 0;
  stretch->is_synced = begins_with_sync (self, stage, stretch, &first);
  stretch->sync = stretch->is_synced ? first : G_MAXUINT;
  if (!stretch->is_synced)
    add_trait (self, stage, stretch->before, 0, key);
  for (guint p = 0; p < stretch->n_pieces; p++)
    for (guint node = stretch->pieces[p].begin; node < stretch->pieces[p].end; node++)
      if (is_of_key (self, stage, node, stretch->sync))
        add_trait (self, stage, node, stretch->pieces[p].depth, key);
  add_trait (self, stage, stretch->meeting, 0, key);
  g_autoptr (GBytes) bytes = g_byte_array_free_to_bytes (g_steal_pointer (&key));
  GBytes *known = g_hash_table_lookup (self->keys, bytes);
  stretch->key = g_bytes_ref (known ? known : bytes);
  if (!known)
    g_hash_table_add (self->keys, g_bytes_ref (bytes));
}

/* Whether a node begins a repeat with meetings. */
static gboolean
meets_inside (const SimStages *self, guint stage, guint repeat)
{
  const PlanOp *op = node_of (self, stage, repeat);
  const guint end = op->kind == PLAN_OP_REPEAT ? (guint)op->dims[PLAN_REPEAT_END] : 0;
  for (guint node = repeat + 1; node < end; node++)
    if (is_meeting (self, stage, node))
      return TRUE;
  return FALSE;
}

/* A walk over the meetings of one step. Repeats that contain meetings are unrolled. */
typedef struct
{
  SimStages *self;
  guint stage;
  Stretch now;
  gboolean has_begun; /* some meeting was passed */
  GArray *order;
  guint *next; /* by node: the first node from it on that is a meeting or a repeat with meetings, or
                  has echoes before it */
  guint *behind; /* by node of a meeting: 1 + the stretch last found behind it; 0: none */
} Walk;

static void
walk_clear (Walk *self)
{
  g_free (self->next);
  g_free (self->behind);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Walk, walk_clear)

static void
walk_init (Walk *self, SimStages *stages, guint stage, guint begin, guint end)
{
  *self = (Walk){ .self = stages,
                  .stage = stage,
                  .order = stages->stages[stage].order,
                  .next = g_new (guint, end + 1),
                  .behind = g_new0 (guint, end) };
  self->next[end] = end;
  const PlanSchedule *schedule = stages->pipeline.schedules[stage];
  guint number = plan_schedule_find_echo (schedule, end);
  const PlanEcho *echo = number > 0 ? plan_schedule_echo (schedule, --number) : NULL;
  for (guint node = end; node-- > begin;)
    {
      const gboolean opens = meets_inside (stages, stage, node);
      const gboolean has_echo = echo && echo->at == node;
      self->next[node]
          = opens || has_echo || is_meeting (stages, stage, node) ? node : self->next[node + 1];
      while (echo && echo->at == node)
        echo = number > 0 ? plan_schedule_echo (schedule, --number) : NULL;
    }
}

/* Adds the stretch that was just walked, or finds it where it came before. */
static guint
add_stretch (Walk *walk)
{
  GPtrArray *stretches = walk->self->stages[walk->stage].stretches;
  guint *const behind = &walk->behind[walk->now.before];
  if (*behind > 0 && ((const Stretch *)stretches->pdata[*behind - 1])->meeting == walk->now.meeting)
    return *behind - 1;
  for (guint i = stretches->len; i-- > 0;)
    {
      const Stretch *other = stretches->pdata[i];
      if (other->before == walk->now.before && other->meeting == walk->now.meeting)
        return i;
    }
  Stretch *stretch = g_memdup2 (&walk->now, sizeof walk->now);
  describe (walk->self, walk->stage, stretch);
  g_ptr_array_add (stretches, stretch);
  *behind = stretches->len;
  return stretches->len - 1;
}

static gboolean
add_piece (Walk *walk, guint begin, guint end, gint8 depth)
{
  if (begin == end)
    return TRUE;
  if (walk->now.n_pieces == MAX_PIECES)
    return FALSE;
  walk->now.pieces[walk->now.n_pieces++] = (Piece){ begin, end, depth };
  return TRUE;
}

static void
reach_meeting (Walk *walk, guint node)
{
  walk->now.meeting = node;
  if (walk->has_begun)
    {
      const guint stretch = add_stretch (walk);
      g_array_append_val (walk->order, stretch);
    }
  walk->has_begun = TRUE;
  walk->now = (Stretch){ .before = node };
}

/* Adds what the echoes at a node repeat. */
static gboolean
add_echoes (Walk *walk, guint node, gint8 depth)
{
  const PlanSchedule *schedule = walk->self->pipeline.schedules[walk->stage];
  const PlanEcho *echo;
  for (guint i = plan_schedule_find_echo (schedule, node);
       (echo = plan_schedule_echo_at (schedule, i, node)); i++)
    if (!add_piece (walk, echo->begin, echo->end, depth))
      return FALSE;
  return TRUE;
}

static gboolean
walk_nodes (Walk *walk, guint begin, guint end, gint8 depth)
{
  guint from = begin;
  for (guint node = begin; (node = walk->next[node]) <= end; node++)
    {
      if (!add_piece (walk, from, node, depth) || !add_echoes (walk, node, depth))
        return FALSE;
      from = node;
      if (node == end)
        return TRUE;
      if (is_meeting (walk->self, walk->stage, node))
        reach_meeting (walk, from++);
      else if (meets_inside (walk->self, walk->stage, node))
        {
          const PlanOp *repeat = node_of (walk->self, walk->stage, node);
          const guint last = (guint)repeat->dims[PLAN_REPEAT_END];
          for (gint64 turn = 0; turn < repeat->dims[PLAN_REPEAT_COUNT]; turn++)
            if (!walk_nodes (walk, node + 1, last, (gint8)(depth + 1)))
              return FALSE;
          node = last;
          from = last + 1;
        }
    }
  return add_piece (walk, from, end, depth);
}

/* Finds the stretches of a step in order, from its first meeting to the first one of the next
 * step. */
static gboolean
find_order (SimStages *self, guint stage)
{
  const PlanSchedule *schedule = self->pipeline.schedules[stage];
  const guint begin = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);
  const guint end = plan_schedule_section_node (schedule, PLAN_SECTION_TEARDOWN);
  g_auto (Walk) walk = { 0 };
  guint first = begin;
  walk_init (&walk, self, stage, begin, end);
  if (!walk_nodes (&walk, begin, end, 0) || !walk.has_begun)
    return FALSE;
  /* The last stretch goes on into the next step. */
  while (first < end && !is_meeting (self, stage, first))
    {
      if (meets_inside (self, stage, first))
        return FALSE;
      first++;
    }
  const PlanEcho *echo = plan_schedule_echo (schedule, plan_schedule_find_echo (schedule, begin));
  if ((echo && echo->at <= first) || !add_piece (&walk, begin, first, 0))
    return FALSE;
  reach_meeting (&walk, first);
  return TRUE;
}

SimStages *
sim_stages_new (const SimPipeline *pipeline, const SimCost *const *costs)
{
  SimStages *self = g_new0 (SimStages, 1);
  self->pipeline = *pipeline;
  self->costs = costs;
  self->stages = g_new0 (Stage, pipeline->n);
  self->keys = g_hash_table_new_full (sim_stretch_hash, g_bytes_equal,
                                      (GDestroyNotify)g_bytes_unref, NULL);
  self->outcomes = g_hash_table_new_full (sim_stretch_hash, g_bytes_equal,
                                          (GDestroyNotify)g_bytes_unref, free_outcome);
  self->node_ns = g_array_new (FALSE, TRUE, sizeof (gint64));
  for (guint i = 0; i < pipeline->n; i++)
    {
      self->stages[i].stretches = g_ptr_array_new_with_free_func (free_stretch);
      self->stages[i].order = g_array_new (FALSE, FALSE, sizeof (guint));
      self->stages[i].used = g_ptr_array_new ();
    }
  return self;
}

/* A stretch while it is simulated. */
typedef struct
{
  SimStages *self;
  guint stage;
  const Stretch *stretch;
  gint64 begin_ns; /* when the time that is attributed to it begins */
  PlanTrace *trace;
  Outcome *outcome;
} Trial;

/* An op as the engine takes it. It is written anew and not shared with sim.c, with which this file
 * is compared. */
static SimIssue
issue_of (const Trial *trial, const PlanCursor *cursor, guint node)
{
  const SimCost *cost = trial->self->costs[trial->stage];
  const PlanOp *op = node_of (trial->self, trial->stage, node);
  SimIssue issue = { .kind = sim_issue_kind (op->kind),
                     .stream = op->stream,
                     .group = op->group,
                     .n_waits = op->n_waits,
                     .wait_level = { -1, -1, -1, -1 },
                     .record_level = -1,
                     .record = -1,
                     .ns = sim_cost_ns (cost, node),
                     .load = sim_cost_load (cost, node),
                     .launch_ns = sim_cost_launch_ns (cost, node) };
  for (guint i = 0; i < op->n_waits; i++)
    issue.waits[i] = plan_cursor_event (cursor, &op->waits[i]);
  if (op->record.array >= 0)
    issue.record = plan_cursor_event (cursor, &op->record);
  return issue;
}

static gint64
run_op (Trial *trial, const PlanCursor *cursor, guint node)
{
  const SimIssue issue = issue_of (trial, cursor, node);
  SimClock start = { 0 };
  const gint64 ns = sim_engine_issue (&trial->self->engine, &issue, &start);
  trial->self->n_issued++;
  if (issue.kind == SIM_ISSUE_WORK)
    plan_trace_add_span (trial->trace, node, -1, start.at - trial->begin_ns,
                         start.at - trial->begin_ns + ns);
  return ns;
}

static void
run_pieces (Trial *trial, guint skipped)
{
  GArray *node_ns = trial->outcome->node_ns;
  for (guint p = 0; p < trial->stretch->n_pieces; p++)
    {
      const Piece *piece = &trial->stretch->pieces[p];
      PlanCursor cursor = { .schedule = trial->self->pipeline.schedules[trial->stage],
                            .next = piece->begin,
                            .end = piece->end,
                            .depth = piece->depth };
      g_autofree guint *place = g_new (guint, piece->end - piece->begin);
      for (guint node = piece->begin; node < piece->end; node++)
        {
          place[node - piece->begin] = node_ns->len;
          if (is_of_key (trial->self, trial->stage, node, skipped))
            g_array_set_size (node_ns, node_ns->len + 1);
        }
      const PlanOp *op;
      while ((op = plan_cursor_next (&cursor)))
        if (is_of_key (trial->self, trial->stage, cursor.node, skipped))
          g_array_index (node_ns, gint64, place[cursor.node - piece->begin])
              += run_op (trial, &cursor, cursor.node);
    }
}

/* Issues the meeting that is still under way as the stretch begins. */
static void
run_meeting (Trial *trial, gint64 lag_ns)
{
  SimEngine *engine = &trial->self->engine;
  const guint node = trial->stretch->before;
  const PlanCursor nowhere = { .schedule = trial->self->pipeline.schedules[trial->stage] };
  const SimIssue issue = issue_of (trial, &nowhere, node);
  trial->begin_ns = BASE + lag_ns - issue.ns;
  sim_engine_clock (engine, SIM_CLOCK_HOST)->at = BASE - issue.launch_ns;
  sim_engine_hold (engine, issue.stream, BASE + lag_ns - issue.ns);
  run_op (trial, &nowhere, node);
}

static gboolean
is_over (const SimEngine *engine, gint64 at_ns)
{
  for (guint i = 0; i < engine->n_clocks; i++)
    if (sim_engine_clock (engine, i)->at > at_ns)
      return FALSE;
  return TRUE;
}

static Outcome *
simulate (SimStages *self, guint stage, const Stretch *stretch, gint64 lag_ns)
{
  const PlanSchedule *schedule = self->pipeline.schedules[stage];
  g_autoptr (PlanTrace) trace = plan_trace_new ("sim");
  const PlanCursor nowhere = { .schedule = schedule };
  Outcome *outcome = g_new0 (Outcome, 1);
  Trial trial = { self, stage, stretch, BASE, trace, outcome };
  outcome->node_ns = g_array_new (FALSE, TRUE, sizeof (gint64));
  sim_engine_init (&self->engine, schedule, self->costs[stage]);
  sim_engine_clock (&self->engine, SIM_CLOCK_HOST)->at = BASE;
  if (!stretch->is_synced)
    run_meeting (&trial, lag_ns);
  run_pieces (&trial, stretch->sync);
  const SimIssue next = issue_of (&trial, &nowhere, stretch->meeting);
  const gint64 ready_ns = sim_engine_ready (&self->engine, &next);
  outcome->ready_ns = ready_ns - BASE;
  outcome->host_ns = sim_engine_clock (&self->engine, SIM_CLOCK_HOST)->at - BASE;
  outcome->is_over = is_over (&self->engine, ready_ns);
  trace->step_ns = ready_ns - trial.begin_ns;
  plan_trace_attribute (trace, schedule);
  outcome->shares
      = (SimShares){ trace->compute_ns,        trace->exposed_tensor_ns, trace->exposed_gather_ns,
                     trace->exposed_reduce_ns, trace->exposed_copy_ns,   trace->host_ns };
  return outcome;
}

/* What an outcome follows from. */
typedef struct
{
  guint64 key; /* the address of the stretch's key; stretches with equal keys share one */
  gint64 lag_ns;
} Start;

static Outcome *
outcome_of (SimStages *self, guint stage, Stretch *stretch, gint64 lag_ns)
{
  if (stretch->last && stretch->last_lag_ns == lag_ns)
    return stretch->last;
  const Start start = { (guint64)(gsize)stretch->key, lag_ns };
  g_autoptr (GBytes) bytes = g_bytes_new (&start, sizeof start);
  Outcome *outcome = g_hash_table_lookup (self->outcomes, bytes);
  if (!outcome)
    {
      outcome = simulate (self, stage, stretch, lag_ns);
      g_hash_table_insert (self->outcomes, g_bytes_ref (bytes), outcome);
    }
  stretch->last = outcome;
  stretch->last_lag_ns = lag_ns;
  return outcome;
}

static Stretch *
stretch_at (const SimStages *self, guint stage)
{
  const Stage *s = &self->stages[stage];
  return s->stretches->pdata[g_array_index (s->order, guint, s->at)];
}

/* Runs the stretch at hand, up to its meeting. FALSE: something it began is not over then. */
static gboolean
run_stretch (SimStages *self, guint stage)
{
  Stage *s = &self->stages[stage];
  Outcome *outcome = outcome_of (self, stage, stretch_at (self, stage), s->lag_ns);
  s->used->pdata[s->at] = outcome;
  s->ready_ns = s->host_ns + outcome->ready_ns;
  s->host_ns += outcome->host_ns;
  return outcome->is_over;
}

/* Ends the meeting that a stage is at, and begins its next stretch. */
static void
leave (SimStages *self, guint stage, gint64 start_ns)
{
  Stage *s = &self->stages[stage];
  const guint node = stretch_at (self, stage)->meeting;
  const gint64 end_ns = start_ns + sim_cost_ns (self->costs[stage], node);
  s->idle_ns += start_ns - s->ready_ns;
  s->host_ns += sim_cost_launch_ns (self->costs[stage], node);
  s->at = (s->at + 1) % s->order->len;
  s->lag_ns = end_ns - s->host_ns;
  if (!stretch_at (self, stage)->is_synced)
    return;
  s->host_ns = end_ns;
  s->lag_ns = 0;
}

/* Runs one step of all stages, from the last meeting of one step to the last of the next. */
static gboolean
run_step (SimStages *self)
{
  const guint n = self->pipeline.n;
  const PlanOp *at[SIM_MAX_STAGES] = { NULL }; /* the meeting to which each stage has come */
  guint left[SIM_MAX_STAGES], who[SIM_MAX_STAGES];
  guint queue[2 * SIM_MAX_STAGES], first = 0, last = 0;
  for (guint i = 0; i < n; i++)
    {
      left[i] = self->stages[i].order->len;
      self->stages[i].idle_ns = 0;
      queue[last++] = i;
    }
  while (first != last)
    {
      const guint stage = queue[first];
      gint64 start_ns = 0;
      first = (first + 1) % G_N_ELEMENTS (queue);
      if (!run_stretch (self, stage))
        return FALSE;
      at[stage] = node_of (self, stage, stretch_at (self, stage)->meeting);
      const guint n_meet = sim_meet_all (&self->pipeline, stage, at, who);
      for (guint k = 0; k < n_meet; k++)
        start_ns = MAX (start_ns, self->stages[who[k]].ready_ns);
      for (guint k = 0; k < n_meet; k++)
        {
          leave (self, who[k], start_ns);
          at[who[k]] = NULL;
          if (--left[who[k]] == 0)
            continue;
          queue[last] = who[k];
          last = (last + 1) % G_N_ELEMENTS (queue);
        }
    }
  for (guint i = 0; i < n; i++)
    if (left[i] > 0)
      return FALSE;
  return TRUE;
}

/* Whether the step left all stages as the step before did. */
static gboolean
is_steady (SimStages *self)
{
  gboolean is_steady = TRUE;
  for (guint i = 0; i < self->pipeline.n; i++)
    {
      Stage *s = &self->stages[i];
      const gint64 now = s->host_ns - self->stages[0].host_ns;
      is_steady = is_steady && now == s->was_ns && s->lag_ns == s->was_lag_ns;
      s->was_ns = now;
      s->was_lag_ns = s->lag_ns;
    }
  return is_steady;
}

gboolean
sim_stages_run (SimStages *self)
{
  guint steps = 0;
  gboolean is_same = FALSE;
  for (guint i = 0; i < self->pipeline.n; i++)
    {
      self->stages[i].was_ns = -1;
      if (!find_order (self, i))
        return FALSE;
      g_ptr_array_set_size (self->stages[i].used, (gint)self->stages[i].order->len);
      self->stages[i].at
          = self->stages[i].order->len - 1; /* a step ends with a meeting of all stages */
    }
  while (!is_same && steps++ < SIM_MAX_STEPS)
    {
      const gint64 begin_ns = self->stages[0].host_ns;
      if (!run_step (self))
        return FALSE;
      self->step_ns = self->stages[0].host_ns - begin_ns;
      is_same = is_steady (self);
    }
  self->n_steps = steps + 1;
  return TRUE;
}

gint64
sim_stages_step_ns (const SimStages *self)
{
  return self->step_ns;
}

guint
sim_stages_n_steps (const SimStages *self)
{
  return self->n_steps;
}

guint64
sim_stages_n_issued (const SimStages *self)
{
  return self->n_issued;
}

/* Adds the time of the meeting before a stretch, unless the stretch includes it because the host
 * does not wait for it. */
static void
add_meeting (const SimStages *self, guint stage, const Stretch *stretch, SimShares *shares)
{
  const gint64 ns = sim_cost_ns (self->costs[stage], stretch->before);
  if (!stretch->is_synced)
    return;
  if (node_of (self, stage, stretch->before)->stream == PLAN_STREAM_REDUCE)
    shares->exposed_reduce_ns += ns;
  else
    shares->exposed_tensor_ns += ns;
}

void
sim_stages_split (SimStages *self, guint stage, SimShares *out_shares, gint64 *out_idle_ns)
{
  const Stage *s = &self->stages[stage];
  SimShares sum = { 0 };
  for (guint i = 0; i < s->order->len; i++)
    {
      const SimShares *one = &((const Outcome *)s->used->pdata[i])->shares;
      sum.compute_ns += one->compute_ns;
      sum.exposed_tensor_ns += one->exposed_tensor_ns;
      sum.exposed_gather_ns += one->exposed_gather_ns;
      sum.exposed_reduce_ns += one->exposed_reduce_ns;
      sum.exposed_copy_ns += one->exposed_copy_ns;
      sum.host_ns += one->host_ns;
      add_meeting (self, stage, s->stretches->pdata[g_array_index (s->order, guint, i)], &sum);
    }
  *out_shares = sum;
  *out_idle_ns = s->idle_ns;
}

const gint64 *
sim_stages_node_ns (SimStages *self, guint stage)
{
  const Stage *s = &self->stages[stage];
  g_array_set_size (self->node_ns, 0);
  g_array_set_size (self->node_ns, plan_schedule_n_nodes (self->pipeline.schedules[stage]));
  gint64 *all = (gint64 *)(gpointer)self->node_ns->data;
  for (guint i = 0; i < s->order->len; i++)
    {
      const Stretch *stretch = s->stretches->pdata[g_array_index (s->order, guint, i)];
      const gint64 *ns
          = (const gint64 *)(gconstpointer)((const Outcome *)s->used->pdata[i])->node_ns->data;
      all[stretch->before] += sim_cost_ns (self->costs[stage], stretch->before);
      for (guint p = 0; p < stretch->n_pieces; p++)
        for (guint node = stretch->pieces[p].begin; node < stretch->pieces[p].end; node++)
          if (is_of_key (self, stage, node, stretch->sync))
            all[node] += *ns++;
    }
  return all;
}
