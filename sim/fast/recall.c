/* SPDX-License-Identifier: Apache-2.0 */
/* Within a proof of the loop around (fold.c) what is recalled must not limit it: all that the loop
 * compares drifts alike, or is early and drifts no faster. */
#include "config.h"

#include "sim/fast/recall.h"

#include <string.h>

#define VISITS 3 /* kept of each loop */
#define UNTOUCHED G_MININT64
#define LONG_NS (G_MAXINT64 / 4)

typedef struct
{
  guint64 age;  /* when it was entered: later ones are greater */
  gint64 base;  /* when the first of its streams was free */
  gint64 host;  /* how much later the host was at its beginning */
  gint64 taken; /* the host at its beginning, then what it took for the loop */
  gint64 slack; /* by which ops began later than they were issued; 0: not known */
  guint64 n_ops, n_issued;
  guint occupied[2]; /* before and after */
  SimOccupancy occupancy[2];
  guint64 used; /* after */
} SimVisit;

void
sim_recall_begin (SimRecall *self, const SimProgram *program, guint n_clocks)
{
  const guint n = program->time.loops->len * VISITS;
  if (!self->visits)
    {
      self->visits = g_array_new (FALSE, TRUE, sizeof (SimVisit));
      self->clocks = g_array_new (FALSE, FALSE, sizeof (gint64));
    }
  self->n_clocks = n_clocks;
  g_array_set_size (self->visits, 0);
  g_array_set_size (self->visits, n);
  g_array_set_size (self->clocks, 2 * n * n_clocks);
}

void
sim_recall_clear (SimRecall *self)
{
  g_clear_pointer (&self->visits, g_array_unref);
  g_clear_pointer (&self->clocks, g_array_unref);
}

static SimVisit *
visit_at (const SimRecall *self, guint loop, guint i)
{
  return &g_array_index (self->visits, SimVisit, loop * VISITS + i);
}

/* Its clocks at the beginning, and behind them those at the end. */
static gint64 *
clocks_of (const SimRecall *self, guint loop, guint i)
{
  return &g_array_index (self->clocks, gint64, 2 * (gsize)(loop * VISITS + i) * self->n_clocks);
}

#define FOR_EACH_TOUCHED(program, loop, i) \
  for (guint r_ = (loop)->first_touched; r_ < (loop)->first_touched + (loop)->n_touched; r_++) \
    for (guint i = g_array_index ((program)->ranges, SimRange, r_).begin; \
         i < g_array_index ((program)->ranges, SimRange, r_).end; i++)

#define FOR_EACH_SPELL(occupied, occupancy, i) \
  for (guint s_ = 0; s_ < PLAN_N_STREAMS; s_++) \
    for (guint i = SIM_CLOCK_SPELLS + s_ * SIM_SPELLS * 2, \
               end_ = i + ((occupied) >> s_ & 1 ? (occupancy)->n[s_] * 2u : 0); \
         i < end_; i++)

/* When the first of a loop's streams is free. */
static gint64
base_of (const SimEngine *engine, const SimLoop *loop)
{
  gint64 base = G_MAXINT64;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    if (loop->streams >> s & 1)
      base = MIN (base, sim_engine_clock (engine, SIM_CLOCK_STREAMS + s)->at);
  return base;
}

/* By how much all that matters drifts in the loop around; FALSE where that is not one number. */
static gboolean
find_drift (const SimEngine *engine, const SimProgram *program, const SimLoop *loop, gint64 base,
            gint64 *out_drift)
{
  const SimClock *clocks = sim_engine_clock (engine, 0);
  gint64 drift = 0;
  *out_drift = 0;
  if (loop->depth == 0 || engine->shift[0] == 0)
    return TRUE;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    if (loop->streams >> s & 1)
      drift = clocks[SIM_CLOCK_STREAMS + s].drift[0];
  FOR_EACH_TOUCHED (program, loop, i)
  if (clocks[i].at >= base ? clocks[i].drift[0] != drift : clocks[i].drift[0] > drift)
    return FALSE;
  FOR_EACH_SPELL (engine->occupied, &engine->occupancy, i)
  if (clocks[i].drift[0] != drift)
    return FALSE;
  *out_drift = drift;
  return clocks[SIM_CLOCK_HOST].drift[0] <= drift;
}

/* Whether the loop is entered as it was then. */
static gboolean
is_alike (const SimVisit *visit, const gint64 *then, const SimEngine *engine,
          const SimProgram *program, const SimLoop *loop, gint64 base)
{
  const SimClock *clocks = sim_engine_clock (engine, 0);
  if (visit->slack <= MAX (clocks[SIM_CLOCK_HOST].at - base - visit->host, 0)
      || visit->occupied[0] != engine->occupied
      || memcmp (&visit->occupancy[0], &engine->occupancy, sizeof engine->occupancy) != 0)
    return FALSE;
  FOR_EACH_SPELL (engine->occupied, &engine->occupancy, i)
  if (clocks[i].at - base != then[i] - visit->base)
    return FALSE;
  FOR_EACH_TOUCHED (program, loop, i)
  if (MAX (clocks[i].at - base, -1) != MAX (then[i] - visit->base, -1))
    return FALSE;
  return TRUE;
}

static void
apply (const SimVisit *visit, const gint64 *then, SimEngine *engine, const SimProgram *program,
       const SimLoop *loop, gint64 later, gint64 drift)
{
  SimClock *clocks = sim_engine_clock (engine, 0);
  engine->n_issued++;
  FOR_EACH_TOUCHED (program, loop, i)
  if (then[i] != UNTOUCHED)
    {
      clocks[i] = (SimClock){ .at = then[i] + later, .drift = { drift, 0 } };
      if (i >= SIM_CLOCK_EVENTS)
        g_array_index (engine->recorded, guint64, i - SIM_CLOCK_EVENTS) = engine->n_issued;
    }
  memset (&clocks[SIM_CLOCK_SPELLS], 0, (SIM_CLOCK_EVENTS - SIM_CLOCK_SPELLS) * sizeof (SimClock));
  FOR_EACH_SPELL (visit->occupied[1], &visit->occupancy[1], i)
  clocks[i] = (SimClock){ .at = then[i] + later, .drift = { drift, 0 } };
  engine->occupied = visit->occupied[1];
  engine->occupancy = visit->occupancy[1];
  engine->used = visit->used;
  clocks[SIM_CLOCK_HOST].at += visit->taken;
}

/* The visit that nobody has come back to for longest. */
static guint
find_oldest (const SimRecall *self, guint loop)
{
  guint oldest = 0;
  for (guint i = 1; i < VISITS; i++)
    if (visit_at (self, loop, i)->age < visit_at (self, loop, oldest)->age)
      oldest = i;
  return oldest;
}

static guint
find_latest (const SimRecall *self, guint loop)
{
  guint latest = 0;
  for (guint i = 1; i < VISITS; i++)
    if (visit_at (self, loop, i)->age > visit_at (self, loop, latest)->age)
      latest = i;
  return latest;
}

gboolean
sim_recall_enter (SimRecall *self, SimEngine *engine, const SimProgram *program, guint index,
                  guint64 *n_ops, gint64 *out_base_ns, gint64 *out_slack_ns)
{
  const SimLoop *loop = &g_array_index (program->time.loops, SimLoop, index);
  const SimClock *clocks = sim_engine_clock (engine, 0);
  const gint64 base = base_of (engine, loop);
  gint64 drift;
  *out_base_ns = base;
  const gboolean is_uniform = find_drift (engine, program, loop, base, &drift);
  for (guint i = 0; i < VISITS && is_uniform; i++)
    {
      SimVisit *visit = visit_at (self, index, i);
      const gint64 *then = clocks_of (self, index, i);
      if (!is_alike (visit, then, engine, program, loop, base))
        continue;
      *out_slack_ns = visit->slack - (clocks[SIM_CLOCK_HOST].at - base - visit->host);
      apply (visit, then + self->n_clocks, engine, program, loop, base - visit->base, drift);
      visit->age = engine->n_issued;
      *n_ops += visit->n_ops;
      return TRUE;
    }
  const guint oldest = find_oldest (self, index);
  gint64 *now = clocks_of (self, index, oldest);
  FOR_EACH_TOUCHED (program, loop, i)
  now[i] = clocks[i].at;
  for (guint i = SIM_CLOCK_SPELLS; i < SIM_CLOCK_EVENTS; i++)
    now[i] = clocks[i].at;
  *visit_at (self, index, oldest) = (SimVisit){ .age = engine->n_issued + 1,
                                                .base = base,
                                                .host = clocks[SIM_CLOCK_HOST].at - base,
                                                .taken = clocks[SIM_CLOCK_HOST].at,
                                                .n_ops = *n_ops,
                                                .n_issued = engine->n_issued,
                                                .occupied = { engine->occupied },
                                                .occupancy = { engine->occupancy } };
  return FALSE;
}

void
sim_recall_leave (SimRecall *self, const SimEngine *engine, const SimProgram *program, guint index,
                  guint64 n_ops, gint64 slack_ns)
{
  const SimLoop *loop = &g_array_index (program->time.loops, SimLoop, index);
  const SimClock *clocks = sim_engine_clock (engine, 0);
  const guint latest = find_latest (self, index);
  SimVisit *visit = visit_at (self, index, latest);
  const gint64 *before = clocks_of (self, index, latest);
  gint64 *after = clocks_of (self, index, latest) + self->n_clocks;
  visit->slack = MIN (slack_ns, LONG_NS);
  visit->taken = clocks[SIM_CLOCK_HOST].at - visit->taken;
  visit->n_ops = n_ops - visit->n_ops;
  visit->occupied[1] = engine->occupied;
  visit->occupancy[1] = engine->occupancy;
  visit->used = engine->used;
  FOR_EACH_TOUCHED (program, loop, i)
  {
    const gboolean is_touched
        = i >= SIM_CLOCK_EVENTS
              ? g_array_index (engine->recorded, guint64, i - SIM_CLOCK_EVENTS) > visit->n_issued
              : clocks[i].at != before[i];
    after[i] = is_touched ? clocks[i].at : UNTOUCHED;
  }
  for (guint i = SIM_CLOCK_SPELLS; i < SIM_CLOCK_EVENTS; i++)
    after[i] = clocks[i].at;
}
