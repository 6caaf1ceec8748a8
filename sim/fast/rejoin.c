/* SPDX-License-Identifier: Apache-2.0 */
/* Every start is the latest of some clocks. If the last time it was no earlier than `least`, then
 * clocks that were earlier did not decide it, nor do they now, if they are still earlier than that
 * moved along; and all others are as they were. Nor do they decide what later runs begin: not where
 * the host waits in the rest, and else not where they are earlier than the host. */
#include "config.h"

#include "sim/fast/rejoin.h"

#include <string.h>

void
sim_rejoin_reset (SimRejoin *self, guint n_clocks)
{
  if (!self->clocks)
    {
      self->clocks = g_array_new (FALSE, FALSE, sizeof (gint64));
      self->begin = g_array_new (FALSE, FALSE, sizeof (SimClock));
    }
  self->n_clocks = n_clocks;
  self->n_known = self->n_passed = 0;
  g_array_set_size (self->clocks, n_clocks * SIM_REJOIN_PLACES);
  g_array_set_size (self->begin, n_clocks);
}

void
sim_rejoin_clear (SimRejoin *self)
{
  g_clear_pointer (&self->clocks, g_array_unref);
  g_clear_pointer (&self->begin, g_array_unref);
}

void
sim_rejoin_begin (SimRejoin *self, const SimEngine *engine)
{
  self->n_passed = 0;
  self->least_ns = G_MAXINT64;
  memcpy (self->begin->data, sim_engine_clock (engine, 0), self->n_clocks * sizeof (SimClock));
  self->occupancy = engine->occupancy;
  self->used = engine->used;
}

/* To the end of the run before, that much later. */
static void
go_to_end (const SimRejoin *self, gint64 later, SimEngine *engine)
{
  SimClock *clocks = sim_engine_clock (engine, 0);
  memcpy (clocks, self->begin->data, self->n_clocks * sizeof *clocks);
  for (guint i = 0; i < self->n_clocks; i++)
    clocks[i].at += later;
  engine->occupied = 0;
  engine->occupancy = self->occupancy;
  engine->used = self->used;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    {
      const guint n = engine->occupancy.n[s];
      engine->occupied |= n > 0 ? 1u << s : 0;
      memset (&clocks[SIM_CLOCK_SPELLS + (s * SIM_SPELLS + n) * 2], 0,
              (SIM_SPELLS - n) * 2 * sizeof *clocks);
    }
}

/* The host stands as it stood, or makes no difference until it waits. */
static gboolean
is_same_host (const SimPass *pass, gint64 host_ns)
{
  const gint64 later = host_ns - pass->host_ns;
  return later == 0 || (pass->waits && pass->slack_ns > MAX (later, 0));
}

static gboolean
is_same (const SimPass *pass, const gint64 *then, const SimEngine *engine, gint64 later)
{
  const SimClock *clocks = sim_engine_clock (engine, 0);
  if (!is_same_host (pass, clocks[SIM_CLOCK_HOST].at - later)
      || memcmp (&pass->occupancy, &engine->occupancy, sizeof engine->occupancy) != 0)
    return FALSE;
  const gint64 least_ns = pass->waits ? pass->least_ns : MIN (pass->least_ns, pass->host_ns);
  for (guint i = SIM_CLOCK_STREAMS; i < engine->n_clocks; i++)
    {
      const gint64 now = clocks[i].at - later;
      if (now != then[i] && MAX (now, then[i]) >= least_ns)
        return FALSE;
    }
  return TRUE;
}

/* Of all places so far. */
static void
note_least (SimRejoin *self, gint64 least_ns)
{
  for (guint i = 0; i < self->n_passed; i++)
    self->passes[i].least_ns = MIN (self->passes[i].least_ns, least_ns);
  self->least_ns = G_MAXINT64;
}

static void
note_slack (SimRejoin *self, gint64 slack_ns)
{
  for (guint i = 0; i < self->n_passed; i++)
    if (!self->passes[i].waits)
      self->passes[i].slack_ns = MIN (self->passes[i].slack_ns, slack_ns);
}

void
sim_rejoin_note_sync (SimRejoin *self, gint64 slack_ns)
{
  note_slack (self, slack_ns);
  for (guint i = 0; i < self->n_passed; i++)
    self->passes[i].waits = TRUE;
}

/* What is as far as can be stays there. */
static gint64
moved (gint64 ns, gint64 by_ns)
{
  return ns == G_MAXINT64 || ns == G_MININT64 ? ns : ns + by_ns;
}

/* The place is as it was: what was said of it holds that much later, and of those before, too. */
static void
rejoin (SimRejoin *self, SimPass *pass, gint64 later, SimEngine *engine, guint64 *n_ops)
{
  const gint64 host_ns = sim_engine_clock (engine, SIM_CLOCK_HOST)->at;
  pass->least_ns = moved (pass->least_ns, later);
  pass->slack_ns = moved (pass->slack_ns, pass->host_ns + later - host_ns);
  pass->host_ns = host_ns;
  pass->n_ops = *n_ops;
  note_least (self, pass->least_ns);
  if (pass->waits)
    sim_rejoin_note_sync (self, pass->slack_ns);
  else
    note_slack (self, pass->slack_ns);
  go_to_end (self, later, engine);
  *n_ops += pass->rest_ops;
}

void
sim_rejoin_end_part (SimRejoin *self, gint64 slack_ns)
{
  note_least (self, self->least_ns);
  note_slack (self, slack_ns);
}

static gint64 *
clocks_at (const SimRejoin *self, guint i)
{
  return &g_array_index (self->clocks, gint64, i * self->n_clocks);
}

/* Which of the last run's that are not overwritten is this one; n_known: none. */
static guint
find_place (const SimRejoin *self, guint64 place)
{
  guint i = self->n_passed;
  while (i < self->n_known && self->passes[i].place != place)
    i++;
  return i;
}

gboolean
sim_rejoin_pass (SimRejoin *self, SimEngine *engine, guint64 place, guint64 *n_ops)
{
  const guint compute = SIM_CLOCK_STREAMS + PLAN_STREAM_COMPUTE;
  const SimClock *clocks = sim_engine_clock (engine, 0);
  if (self->n_passed == SIM_REJOIN_PLACES)
    return FALSE;
  SimPass *pass = &self->passes[self->n_passed];
  gint64 *now = clocks_at (self, self->n_passed);
  const guint known = find_place (self, place);
  const gboolean is_known = known < self->n_known;
  const gint64 *then = is_known ? clocks_at (self, known) : now;
  const gint64 later = is_known ? clocks[compute].at - then[compute] : 0;
  const gboolean rejoins = is_known && is_same (&self->passes[known], then, engine, later);
  for (guint i = 0; i < self->n_clocks; i++)
    now[i] = clocks[i].at;
  if (rejoins)
    {
      *pass = self->passes[known];
      rejoin (self, pass, later, engine, n_ops);
    }
  else
    *pass = (SimPass){ .place = place,
                       .host_ns = clocks[SIM_CLOCK_HOST].at,
                       .least_ns = G_MAXINT64,
                       .slack_ns = G_MAXINT64,
                       .n_ops = *n_ops,
                       .occupancy = engine->occupancy };
  self->n_passed++;
  return rejoins;
}

void
sim_rejoin_end (SimRejoin *self, guint64 n_ops)
{
  for (guint i = 0; i < self->n_passed; i++)
    self->passes[i].rest_ops = n_ops - self->passes[i].n_ops;
  self->n_known = self->n_passed;
}
