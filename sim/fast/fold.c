/* SPDX-License-Identifier: Apache-2.0 */
/* A proof takes one iteration. Each clock is given a drift: what it gained in the iteration before.
 * The iteration then runs with drifts (engine.c) and must end with every clock advanced by its
 * drift and every drift as it began. So must the next one, and all of them, for as long as
 * no comparison changes its winner; for how long that is, the engine has noted.
 *
 * Within an iteration that is being proven for the outer loop an inner loop may jump: what is
 * compared changes linearly along it, so it is enough to have noted the order of its first and its
 * last iteration. That is why the last one is not jumped over then.
 *
 * Where an iteration ends as it began, that much later, no proof is needed, nor where the step
 * before was there (rejoin.h). Long iterations are first compared so, which is less to do. */
#include "config.h"

#include "sim/fast/fold.h"

#include <string.h>

void
sim_fold_begin (SimFold *self, const PlanSchedule *schedule, const SimProgram *program,
                const SimCost *cost)
{
  self->program = program;
  self->n_ops = self->n_walked = 0;
  self->n_open = 0;
  sim_engine_init (&self->engine, schedule, cost);
  sim_exposed_begin (&self->busy, 0);
  if (self->splits)
    sim_tally_begin (&self->tally, plan_schedule_n_nodes (schedule));
  sim_recall_begin (&self->recall, program, self->engine.n_clocks);
  sim_rejoin_reset (&self->rejoin, self->engine.n_clocks);
  for (guint i = 0; i < SIM_LEVELS; i++)
    {
      if (!self->saved[i])
        self->saved[i] = g_array_new (FALSE, FALSE, sizeof (SimClock));
      g_array_set_size (self->saved[i], self->engine.n_clocks);
    }
}

void
sim_fold_clear (SimFold *self)
{
  sim_engine_clear (&self->engine);
  sim_exposed_clear (&self->busy);
  sim_tally_clear (&self->tally);
  sim_recall_clear (&self->recall);
  sim_rejoin_clear (&self->rejoin);
  for (guint i = 0; i < SIM_LEVELS; i++)
    g_clear_pointer (&self->saved[i], g_array_unref);
}

static void walk (SimFold *self, guint begin, guint end);

/* What those who jump have to know of an op that has begun. */
static void
note_start (SimFold *self, const SimIssue *issue, const SimClock *start, gint64 issued_ns)
{
  const SimClock *host = sim_engine_clock (&self->engine, SIM_CLOCK_HOST);
  self->slack_ns = MIN (self->slack_ns, start->at - issued_ns);
  sim_rejoin_note (&self->rejoin, start->at);
  for (guint level = 0; level < SIM_LEVELS && self->engine.n_proofs > 0; level++)
    self->gain[level] = MIN (self->gain[level], start->drift[level] - host->drift[level]);
  if (issue->kind == SIM_ISSUE_SYNC)
    sim_rejoin_note_sync (&self->rejoin, self->n_open == 0 ? self->slack_ns : G_MININT64);
}

static void
walk_op (SimFold *self, SimOp *op, guint node)
{
  SimIssue *issue = &op->issue;
  for (guint i = 0; i < issue->n_waits; i++)
    issue->waits[i] = sim_ref_id (&op->waits[i], self->values);
  if (issue->record >= 0)
    issue->record = sim_ref_id (&op->record, self->values);
  SimClock start = { .at = 0 };
  const gint64 issued_ns = sim_engine_clock (&self->engine, SIM_CLOCK_HOST)->at
                           + (issue->kind == SIM_ISSUE_WORK ? issue->launch_ns : 0);
  const gint64 ns = sim_engine_issue (&self->engine, issue, &start);
  if (issue->kind != SIM_ISSUE_HOLD)
    note_start (self, issue, &start, issued_ns);
  if (self->splits && issue->kind == SIM_ISSUE_WORK)
    {
      sim_exposed_add (&self->busy, issue->stream, &start, ns);
      sim_tally_add (&self->tally, node, ns);
    }
  self->n_ops++;
  self->n_walked++;
}

/* The clocks that all iterations of a loop share, a range at a time. */
#define FOR_EACH_CLOCK(self, loop, i) \
  for (guint r_ = (loop)->first_range; r_ < (loop)->first_range + (loop)->n_ranges; r_++) \
    for (guint i = g_array_index ((self)->program->ranges, SimRange, r_).begin; \
         i < g_array_index ((self)->program->ranges, SimRange, r_).end; i++)

static void
save (SimFold *self, const SimLoop *loop)
{
  SimClock *saved = (SimClock *)(gpointer)self->saved[loop->depth]->data;
  const SimClock *clocks = sim_engine_clock (&self->engine, 0);
  FOR_EACH_CLOCK (self, loop, i)
  saved[i] = clocks[i];
}

static void
begin_proof (SimFold *self, const SimLoop *loop, gint64 turns_after)
{
  const guint level = loop->depth;
  SimEngine *engine = &self->engine;
  SimClock *saved = (SimClock *)(gpointer)self->saved[level]->data;
  SimClock *clocks = sim_engine_clock (engine, 0);
  FOR_EACH_CLOCK (self, loop, i)
  {
    SimClock now = clocks[i];
    now.drift[0] = level == 0 ? now.at - saved[i].at : now.drift[0];
    now.drift[1] = level == 1 ? now.at - saved[i].at : now.drift[1];
    clocks[i] = now;
    saved[i] = now;
  }
  self->occupancy[level] = engine->occupancy;
  g_array_set_size (engine->seen[level], 0);
  g_array_set_size (engine->moved[level], 0);
  self->slack_ns = self->gain[level] = G_MAXINT64;
  engine->n_proofs++;
  engine->shift[level] = loop->step * loop->unroll;
  engine->proof_begin[level] = engine->n_issued + 1;
  engine->holds[level] = turns_after;
  if (self->splits)
    {
      sim_exposed_begin_pattern (&self->busy, level);
      sim_tally_begin_pattern (&self->tally, level);
    }
}

/* Limits the proof to the iterations that find in the event's place what is said of it. */
static void
check_moving (SimEngine *engine, const SimMoving *seen, guint level)
{
  const guint other = 1 - level;
  const SimClock *said = &seen->clock,
                 *found = sim_engine_clock (engine, SIM_CLOCK_EVENTS + seen->event);
  guint32 event = seen->event;
  for (gint64 i = 1; i <= engine->holds[level]; i++)
    {
      const gint64 slack = said->at + i * said->drift[level] - (found += engine->shift[level])->at;
      const gint64 closer = found->drift[other] - said->drift[other];
      event += (guint32)engine->shift[level];
      if (slack < 0 || (seen->decides && (slack > 0 || closer != 0)))
        {
          engine->holds[level] = i - 1;
          return;
        }
      if (!seen->decides && closer > 0)
        engine->holds[other] = MIN (engine->holds[other], slack / closer);
      if (g_array_index (engine->recorded, guint64, event) < engine->proof_begin[level])
        continue;
      /* From here on it is what the iterations record themselves. */
      const gint64 nearer = found->drift[level] - said->drift[level];
      if (seen->decides ? nearer != 0 : nearer > 0)
        engine->holds[level] = MIN (engine->holds[level], seen->decides ? i : i + slack / nearer);
      return;
    }
}

/* For how many iterations after this one the proof holds. */
static gint64
conclude (SimFold *self, const SimLoop *loop)
{
  const guint level = loop->depth, other = 1 - level;
  SimEngine *engine = &self->engine;
  const SimClock *saved = (const SimClock *)(gpointer)self->saved[level]->data;
  const SimClock *clocks = sim_engine_clock (engine, 0);
  if (memcmp (&engine->occupancy, &self->occupancy[level], sizeof engine->occupancy) != 0)
    return 0;
  FOR_EACH_CLOCK (self, loop, i)
  {
    const SimClock *a = &saved[i], *b = &clocks[i];
    if (b->at - a->at != a->drift[level] || b->drift[level] != a->drift[level]
        || b->drift[other] != a->drift[other])
      return 0;
  }
  for (guint i = 0; i < engine->seen[level]->len; i++)
    check_moving (engine, &g_array_index (engine->seen[level], SimMoving, i), level);
  return engine->holds[level];
}

/* Moves everything to where it is `turns` iterations later. */
static void
jump (SimFold *self, const SimLoop *loop, gint64 turns)
{
  const guint level = loop->depth;
  SimEngine *engine = &self->engine;
  SimClock *clocks = sim_engine_clock (engine, 0);
  FOR_EACH_CLOCK (self, loop, i)
  clocks[i].at += turns * clocks[i].drift[level];
  for (gint64 t = 1; t <= turns; t++)
    for (guint i = 0; i < engine->moved[level]->len; i++)
      {
        const SimMoving *moved = &g_array_index (engine->moved[level], SimMoving, i);
        const gint64 event = moved->event + t * engine->shift[level];
        SimClock *clock = sim_engine_clock (engine, (guint)(SIM_CLOCK_EVENTS + event));
        *clock = moved->clock;
        clock->at += t * clock->drift[level];
        clock->drift[level] = 0;
        g_array_index (engine->recorded, guint64, event) = engine->n_issued;
      }
  if (self->splits)
    {
      sim_exposed_repeat (&self->busy, level, turns);
      sim_tally_repeat (&self->tally, level, turns);
    }
  self->slack_ns += turns * MIN (self->gain[level], 0);
  self->values[level] += turns * engine->shift[level];
}

static void
end_proof (SimFold *self, const SimLoop *loop)
{
  const guint level = loop->depth;
  SimEngine *engine = &self->engine;
  SimClock *clocks = sim_engine_clock (engine, 0);
  FOR_EACH_CLOCK (self, loop, i)
  clocks[i].drift[level] = 0;
  for (guint i = 0; i < engine->moved[level]->len; i++)
    clocks[SIM_CLOCK_EVENTS + g_array_index (engine->moved[level], SimMoving, i).event].drift[level]
        = 0;
  engine->shift[level] = 0;
  engine->n_proofs--;
}

/* As many iterations as it takes until the same is used again. */
static void
turn (SimFold *self, const SimLoop *loop, guint begin)
{
  for (guint i = 0; i < loop->unroll; i++)
    {
      walk (self, begin, loop->end);
      self->values[loop->depth] += loop->step;
    }
}

/* What is noted from here on is of the next part of a step. */
static void
end_part (SimFold *self)
{
  sim_rejoin_end_part (&self->rejoin, self->slack_ns);
  self->before_ns = MIN (self->before_ns, self->slack_ns);
  self->slack_ns = G_MAXINT64;
}

/* At the end of a part, with so many turns left of the loop that ends there: whether the step goes
 * on from here as the one before. */
static gboolean
passes_as_before (SimFold *self, guint end, gint64 left)
{
  return sim_rejoin_pass (&self->rejoin, &self->engine, (guint64)end << 32 | (guint32)left,
                          &self->n_ops);
}

/* A turn of a loop, as a whole. */
typedef struct
{
  guint64 n_ops, n_issued;  /* before */
  gint64 least_ns;          /* nothing of it began before */
  gint64 slack_ns;          /* by which it began later than it was issued */
  gint64 later, host_later; /* it moved its streams and the host by that */
} Turn;

static gboolean
has_touched (const SimEngine *engine, const SimLoop *loop, const Turn *turn, guint clock)
{
  if (clock >= SIM_CLOCK_EVENTS)
    return g_array_index (engine->recorded, guint64, clock - SIM_CLOCK_EVENTS) > turn->n_issued;
  return clock < SIM_CLOCK_GROUPS && loop->streams >> (clock - SIM_CLOCK_STREAMS) & 1;
}

/* Whether the next one finds what this one found, that much later, but for what both leave alone
 * or overwrite, and what is over before either begins. What is then no earlier than that follows
 * from such as well, and is as much later in turn. */
static gboolean
is_alike (const SimFold *self, const SimLoop *loop, const Turn *turn)
{
  const SimEngine *engine = &self->engine;
  const SimClock *saved = (const SimClock *)(gpointer)self->saved[loop->depth]->data;
  const SimClock *clocks = sim_engine_clock (engine, 0);
  if (turn->later <= 0
      || memcmp (&engine->occupancy, &self->occupancy[loop->depth], sizeof engine->occupancy) != 0)
    return FALSE;
  FOR_EACH_CLOCK (self, loop, i)
  {
    const gint64 then = saved[i].at, now = clocks[i].at;
    if (i == SIM_CLOCK_HOST)
      continue;
    if (now >= turn->least_ns
            ? now - then != turn->later && MAX (then, now - turn->later) >= turn->least_ns
            : now != then || has_touched (engine, loop, turn, i))
      return FALSE;
  }
  return TRUE;
}

/* For how many turns the host makes as little difference as it did. */
static gint64
turns_of_host (const SimLoop *loop, const Turn *turn, gint64 left)
{
  const gint64 closer = turn->host_later - turn->later;
  if (closer == 0)
    return left;
  if (turn->slack_ns <= 0 || !loop->is_closed)
    return 0;
  return closer < 0 ? left : MIN (left, (turn->slack_ns - 1) / closer);
}

/* Leaves out turns that do what this one did; returns how many. */
static gint64
repeat (SimFold *self, const SimLoop *loop, Turn *turn, gint64 left)
{
  SimClock *clocks = sim_engine_clock (&self->engine, 0);
  const SimClock *saved = (const SimClock *)(gpointer)self->saved[loop->depth]->data;
  const guint stream = SIM_CLOCK_STREAMS + (guint)__builtin_ctz (loop->streams);
  turn->later = clocks[stream].at - saved[stream].at;
  turn->host_later = clocks[SIM_CLOCK_HOST].at - saved[SIM_CLOCK_HOST].at;
  const gint64 turns = is_alike (self, loop, turn) ? turns_of_host (loop, turn, left) : 0;
  if (turns == 0)
    return 0;
  FOR_EACH_CLOCK (self, loop, i)
  if (i != SIM_CLOCK_HOST && clocks[i].at >= turn->least_ns)
    clocks[i].at += turns * turn->later;
  clocks[SIM_CLOCK_HOST].at += turns * turn->host_later;
  self->slack_ns = turn->slack_ns - turns * MAX (turn->host_later - turn->later, 0);
  sim_rejoin_note (&self->rejoin, turn->least_ns + turn->later);
  self->values[loop->depth] += turns * loop->step * loop->unroll;
  self->n_ops += (guint64)turns * (self->n_ops - turn->n_ops);
  return turns;
}

/* A proof of one more turn, and the jump that it allows; returns how many turns are left then. */
static gint64
prove (SimFold *self, const SimLoop *loop, guint begin, gint64 left)
{
  const gint64 at_end = self->engine.n_proofs > 0;
  const guint64 n_ops = self->n_ops;
  const gint64 slack_ns = self->slack_ns;
  begin_proof (self, loop, --left);
  turn (self, loop, begin);
  const gint64 jumped = conclude (self, loop) - at_end;
  if (jumped > 0)
    {
      jump (self, loop, jumped);
      self->n_ops += (guint64)jumped * (self->n_ops - n_ops);
      left -= jumped;
    }
  end_proof (self, loop);
  self->slack_ns = MIN (self->slack_ns, slack_ns);
  return left;
}

/* Whether a turn moved streams as the one before did, by `pace`; notes by what it did. */
static gboolean
keeps_pace (const SimFold *self, const SimLoop *loop, gint64 pace[PLAN_N_STREAMS])
{
  const SimClock *saved = (const SimClock *)(gpointer)self->saved[loop->depth]->data;
  const SimClock *clocks = sim_engine_clock (&self->engine, 0);
  gboolean keeps = TRUE;
  for (guint s = 0, i = SIM_CLOCK_STREAMS; s < PLAN_N_STREAMS; s++, i++)
    {
      const gint64 moved = clocks[i].at - saved[i].at;
      keeps = keeps && moved == pace[s];
      pace[s] = moved;
    }
  return keeps;
}

#define SURMISED 3 /* proofs of a loop that are tried whatever went before */

/* Two iterations alike are needed, the second one to prove it, and within a proof of the loop
 * around one to be left for the end. `is_saved`: one has been walked. A proof takes as long as two
 * turns: where some failed the next one waits for two turns that look alike. */
static void
fold (SimFold *self, const SimLoop *loop, guint begin, gint64 left, gboolean is_saved)
{
  const gint64 at_end = self->engine.n_proofs > 0;
  gint64 pace[PLAN_N_STREAMS] = { 0 };
  gboolean looks_alike = FALSE;
  guint n_failed = 0;
  while (left > 0)
    {
      if (is_saved && left >= 2 + at_end && (n_failed < SURMISED || looks_alike))
        {
          const gint64 before = left;
          left = prove (self, loop, begin, left);
          is_saved = left == before - 1;
          n_failed += is_saved;
        }
      else
        {
          save (self, loop);
          is_saved = TRUE;
          turn (self, loop, begin);
          left--;
        }
      if (n_failed >= SURMISED)
        looks_alike = keeps_pace (self, loop, pace);
    }
}

#define CLOCKS_PER_OP 16 /* that are compared in the time it takes to walk one */

/* Turns that are long, and the same whatever their loop stands at. */
static gboolean
is_compared (const SimFold *self, const SimLoop *loop)
{
  return self->compares && loop->depth == 0 && !loop->has_moving
         && loop->length > self->engine.n_clocks / CLOCKS_PER_OP;
}

#define COMPARED 2 /* turns of a loop */

/* Walks the first turns: if one does what the one before did, so do all that follow; and from each
 * the step may go on as the one before. Proofs are for what else may happen. Returns how many turns
 * are left. */
static gint64
compare_turns (SimFold *self, const SimLoop *loop, guint begin, gint64 left)
{
  for (guint i = 0; i < COMPARED && left > 0 && !self->is_over; i++)
    {
      Turn this = { .n_ops = self->n_ops, .n_issued = self->engine.n_issued };
      save (self, loop);
      self->occupancy[loop->depth] = self->engine.occupancy;
      turn (self, loop, begin);
      left--;
      this.least_ns = self->rejoin.least_ns;
      this.slack_ns = self->slack_ns;
      end_part (self);
      if (left > 0)
        self->is_over = passes_as_before (self, loop->end, left);
      if (!self->is_over)
        left -= repeat (self, loop, &this, left);
    }
  return left;
}

static void
walk_loop (SimFold *self, const SimLoop *loop, guint begin)
{
  gint64 left = loop->count;
  self->values[loop->depth] = loop->from;
  if (loop->is_uniform)
    {
      const gboolean compares = is_compared (self, loop);
      gint64 turns = loop->count / loop->unroll;
      if (compares)
        turns = compare_turns (self, loop, begin, turns);
      if (self->is_over)
        return;
      fold (self, loop, begin, turns, compares);
      left %= loop->unroll;
    }
  for (; left > 0; left--)
    {
      walk (self, begin, loop->end);
      self->values[loop->depth] += loop->step;
    }
}

static void
enter_loop (SimFold *self, guint index, guint begin)
{
  const SimLoop *loop = &g_array_index (self->program->time.loops, SimLoop, index);
  const gboolean is_outermost = self->n_open == 0;
  const gboolean recalls = loop->is_closed && loop->depth < SIM_LEVELS && loop->count > 1
                           && !self->splits && !self->engine.is_serial;
  gint64 base_ns;
  if (is_outermost)
    {
      end_part (self);
      self->before_ns = G_MAXINT64;
    }
  const gint64 outer_ns = self->slack_ns;
  if (recalls
      && sim_recall_enter (&self->recall, &self->engine, self->program, index, &self->n_ops,
                           &base_ns, &self->slack_ns))
    sim_rejoin_note (&self->rejoin, base_ns);
  else
    {
      self->slack_ns = G_MAXINT64;
      self->n_open++;
      walk_loop (self, loop, begin);
      self->n_open--;
      if (recalls && !self->is_over)
        sim_recall_leave (&self->recall, &self->engine, self->program, index, self->n_ops,
                          is_outermost ? MIN (self->slack_ns, self->before_ns) : self->slack_ns);
    }
  self->slack_ns = MIN (self->slack_ns, outer_ns);
}

static void
walk (SimFold *self, guint begin, guint end)
{
  for (guint i = begin; i < end;)
    {
      const SimItem *item = &g_array_index (self->program->time.items, SimItem, i);
      if (item->kind == SIM_ITEM_REPEAT)
        {
          enter_loop (self, item->index, i + 1);
          i = g_array_index (self->program->time.loops, SimLoop, item->index).end;
        }
      else
        {
          walk_op (self, &g_array_index (self->program->ops, SimOp, item->index), item->node);
          i++;
        }
    }
}

/* Behind each repeat it may go on as it did in the step before. */
static void
run_step (SimFold *self, const SimRange *range)
{
  guint begin = range->begin;
  const SimItem *items = &g_array_index (self->program->time.items, SimItem, 0);
  sim_rejoin_begin (&self->rejoin, &self->engine);
  self->slack_ns = G_MAXINT64;
  for (guint i = begin, end; i < range->end && !self->is_over; i = end)
    {
      end = i + 1;
      if (items[i].kind != SIM_ITEM_REPEAT)
        continue;
      end = g_array_index (self->program->time.loops, SimLoop, items[i].index).end;
      walk (self, begin, end);
      begin = end;
      if (self->is_over || end == range->end)
        continue;
      end_part (self);
      self->is_over = passes_as_before (self, end, 0);
    }
  if (!self->is_over)
    {
      walk (self, begin, range->end);
      end_part (self);
    }
  sim_rejoin_end (&self->rejoin, self->n_ops);
}

gint64
sim_fold_run (SimFold *self, PlanSection section)
{
  const SimRange *range = &self->program->time.sections[section];
  const gint64 begin_ns = sim_engine_clock (&self->engine, SIM_CLOCK_HOST)->at;
  sim_exposed_begin (&self->busy, begin_ns);
  if (self->splits)
    sim_tally_begin (&self->tally, self->tally.ns->len);
  self->compares = section == PLAN_SECTION_STEP && !self->splits && !self->engine.is_serial;
  self->is_over = FALSE;
  if (self->compares)
    run_step (self, range);
  else
    walk (self, range->begin, range->end);
  return sim_engine_clock (&self->engine, SIM_CLOCK_HOST)->at - begin_ns;
}
