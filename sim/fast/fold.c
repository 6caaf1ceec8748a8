/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a loop, found without walking all of its iterations.
 *
 * Definitions. A *clock* is a time that later ops read: of the host, a stream, a group, an event.
 * The *drift* of a clock is what it gained in one iteration. An iteration that is walked with
 * drifts beside the clocks (engine.c) is *proven* for h more iterations when
 *   1. every clock ends later by its drift,
 *   2. every drift ends as it began,
 *   3. the spells (sharing.h) of all streams end as they began, each later by its drift, and
 *   4. none of its comparisons of two times changes its winner within h iterations.
 *
 * Claim. The next h iterations move every clock by its drift, each.
 *
 * Why. Every time is the latest of some others plus a constant. Assume that iteration i begins with
 * every clock at its value here plus i drifts. Each comparison in it is between two values that are
 * linear in i, and has the winner that it had here (4); so every time in it is the one here plus i
 * times its own drift, and it ends with every clock i + 1 drifts ahead (1), with the same drifts
 * and the same occupancy (2, 3), which is the assumption for i + 1. For (4) the engine notes, at
 * each comparison, after how many iterations the gap between its two sides is used up.
 *
 * A loop inside an iteration that is being proven for the loop around may jump, too: what is
 * compared along it is linear in both numbers of iterations, so the order of its first and its last
 * iteration holds between them. That is why its last iteration is walked, not jumped over.
 *
 * tests/prop/prop-fold.c holds all of this against sim_run, which walks every op, to the
 * nanosecond; tests/prop/prop-sim.c holds the engine against a plain one. */
#include "config.h"

#include "sim/fast/fold.h"

#include <string.h>

void
sim_fold_begin (SimFold *self, const PlanSchedule *schedule, const SimProgram *program,
                const SimCost *cost)
{
  self->program = program;
  self->n_ops = self->n_walked = 0;
  sim_engine_init (&self->engine, schedule, cost);
  sim_exposed_begin (&self->busy, 0);
  if (self->splits)
    sim_tally_begin (&self->tally, plan_schedule_n_nodes (schedule));
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
  for (guint i = 0; i < SIM_LEVELS; i++)
    g_clear_pointer (&self->saved[i], g_array_unref);
}

static void walk (SimFold *self, guint begin, guint end);

static void
walk_op (SimFold *self, SimOp *op, guint node)
{
  SimIssue *issue = &op->issue;
  for (guint i = 0; i < issue->n_waits; i++)
    issue->waits[i] = sim_ref_id (&op->waits[i], self->values);
  if (issue->record >= 0)
    issue->record = sim_ref_id (&op->record, self->values);
  SimClock start = { .at = 0 };
  const gint64 ns = sim_engine_issue (&self->engine, issue, &start);
  if (self->splits && issue->kind == SIM_ISSUE_WORK)
    {
      sim_exposed_add (&self->busy, issue->stream, &start, ns);
      sim_tally_add (&self->tally, node, ns);
    }
  self->n_ops++;
  self->n_walked++;
}

/* Iterates over the clocks that all iterations of a loop share. */
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
  engine->n_proofs++;
  engine->shift[level] = loop->step * loop->unroll;
  engine->proof_begin[level] = engine->n_issued + 1;
  engine->holds[level] = turns_after;
  if (self->splits)
    {
      sim_exposed_begin_iteration (&self->busy, level);
      sim_tally_begin_iteration (&self->tally, level);
    }
}

/* Limits a proof to the iterations that find events at the time that `seen` predicts. */
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
      /* from here on these are events that the proven iterations record themselves */
      const gint64 nearer = found->drift[level] - said->drift[level];
      if (seen->decides ? nearer != 0 : nearer > 0)
        engine->holds[level] = MIN (engine->holds[level], seen->decides ? i : i + slack / nearer);
      return;
    }
}

/* Returns for how many iterations after this one the proof holds. */
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

/* Moves everything to the state `turns` iterations later. */
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

/* Runs one iteration of a loop. */
static void
turn (SimFold *self, const SimLoop *loop, guint begin)
{
  for (guint i = 0; i < loop->unroll; i++)
    {
      walk (self, begin, loop->end);
      self->values[loop->depth] += loop->step;
    }
}

/* Proves one more iteration and makes the jump that the proof allows. Returns how many iterations
 * are left. */
static gint64
prove (SimFold *self, const SimLoop *loop, guint begin, gint64 left)
{
  const gint64 n_kept = self->engine.n_proofs > 0; /* iterations kept for the end: see fold */
  const guint64 n_ops = self->n_ops;
  begin_proof (self, loop, --left);
  turn (self, loop, begin);
  const gint64 jumped = conclude (self, loop) - n_kept;
  if (jumped > 0)
    {
      jump (self, loop, jumped);
      self->n_ops += (guint64)jumped * (self->n_ops - n_ops);
      left -= jumped;
    }
  end_proof (self, loop);
  return left;
}

/* Whether an iteration advanced every stream by `pace`; sets `pace` to what this iteration did. */
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

#define PROOFS_TRIED 3 /* number of proofs tried whether or not iterations look alike */

/* Folds the iterations that are left. A proof needs the iteration before it, to know the drifts;
 * and within a proof of an outer loop one iteration must be left for the end. A proof costs as much
 * as two iterations, so after some failures the next one waits for two iterations that look
 * alike. */
static void
fold (SimFold *self, const SimLoop *loop, guint begin, gint64 left)
{
  const gint64 n_kept = self->engine.n_proofs > 0;
  gint64 pace[PLAN_N_STREAMS] = { 0 };
  gboolean is_saved = FALSE, looks_alike = FALSE; /* is_saved: an iteration has been walked */
  guint n_failed = 0;
  while (left > 0)
    {
      if (is_saved && left >= 2 + n_kept && (n_failed < PROOFS_TRIED || looks_alike))
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
      if (n_failed >= PROOFS_TRIED)
        looks_alike = keeps_pace (self, loop, pace);
    }
}

static void
walk_loop (SimFold *self, const SimLoop *loop, guint begin)
{
  gint64 left = loop->count;
  self->values[loop->depth] = loop->from;
  if (loop->is_uniform)
    {
      fold (self, loop, begin, loop->count / loop->unroll);
      left %= loop->unroll;
    }
  for (; left > 0; left--)
    {
      walk (self, begin, loop->end);
      self->values[loop->depth] += loop->step;
    }
}

static void
walk (SimFold *self, guint begin, guint end)
{
  for (guint i = begin; i < end;)
    {
      const SimItem *item = &g_array_index (self->program->time.items, SimItem, i);
      if (item->kind == SIM_ITEM_REPEAT)
        {
          const SimLoop *loop = &g_array_index (self->program->time.loops, SimLoop, item->index);
          walk_loop (self, loop, i + 1);
          i = loop->end;
        }
      else
        {
          walk_op (self, &g_array_index (self->program->ops, SimOp, item->index), item->node);
          i++;
        }
    }
}

gint64
sim_fold_run (SimFold *self, PlanSection section)
{
  const SimRange *range = &self->program->time.sections[section];
  const gint64 begin_ns = sim_engine_clock (&self->engine, SIM_CLOCK_HOST)->at;
  sim_exposed_begin (&self->busy, begin_ns);
  if (self->splits)
    sim_tally_begin (&self->tally, self->tally.ns->len);
  walk (self, range->begin, range->end);
  return sim_engine_clock (&self->engine, SIM_CLOCK_HOST)->at - begin_ns;
}
