/* SPDX-License-Identifier: Apache-2.0 */
/* How long an op takes beside others, from the spells of other streams (sharing.h).
 *
 * During a proof (engine.h) the spells beside an op must keep their place relative to it in all
 * later iterations: an edge of a spell that lies within the op must have the op's drift, and all
 * other edges must stay outside. */
#include "config.h"

#include "sim/sharing.h"

#include <string.h>

#define WHOLE 1000 /* a whole resource, per mille */

/* The four shares of a SimLoad are packed into one 64-bit number, 16 bits each (a lane), so that
 * all four are added and compared at once. No lane may overflow into the next. */
#define LANE_BITS 16
#define LANES(number) ((guint64)(number)*G_GUINT64_CONSTANT (0x0001000100010001))

/* A lane's value is above `number` where value + TOP - number has the lane's highest bit set. */
#define TOP 0x7fff

G_STATIC_ASSERT (sizeof (SimLoad) == sizeof (guint64));

/* The largest number of streams that have spells at the same time. The host and compute never have
 * any. Of two more pairs only one is in use: `next` and `prev` are of pipelines, `outer_gather` and
 * `outer_reduce` of replicas, and a pipeline has no replicas. At most two of `fetch` (offloaded
 * activations), `experts` (ep_overlap) and `context` (cp) are in use together, by rule
 * not-built-yet-offload-of-experts. */
#define BUSY_STREAMS (PLAN_N_STREAMS - 5)

/* The largest sum that `above` forms in a lane: what all spells and one op use, and TOP - WHOLE. */
G_STATIC_ASSERT (BUSY_STREAMS *SIM_SPELLS *WHOLE + WHOLE + TOP - WHOLE < 1 << LANE_BITS);

/* What some spells use of each resource, and how many of them use it. */
typedef struct
{
  guint64 used, users;
} Others;

static inline guint64
packed (const SimLoad *load)
{
  guint64 all;
  memcpy (&all, load, sizeof all);
  return all;
}

static inline guint
lane_of (guint64 all, guint shift)
{
  return (guint)(all >> shift) & ((1u << LANE_BITS) - 1);
}

/* 1 in each lane whose value is above `number`. */
static inline guint64
above (guint64 all, guint number)
{
  return (all + LANES (TOP - number)) >> (LANE_BITS - 1) & LANES (1);
}

/* 1 in each lane of a resource that is wanted and of which less is left than is wanted. */
static inline guint64
scarce (guint64 used, guint64 wanted)
{
  return above (wanted, 0) & above (used + wanted, WHOLE);
}

static SimClock *
spell_of (const SimEngine *self, guint stream, guint i)
{
  return sim_engine_clock (self, SIM_CLOCK_SPELLS + (stream * SIM_SPELLS + i) * 2);
}

/* Streams, a bit each, that have spells beside an op of this stream. */
static guint
others_of (const SimEngine *self, guint stream)
{
  return self->occupied & ~(1u << stream);
}

#define FOR_EACH_STREAM(streams, s) \
  for (guint left_ = (streams), s; left_ && (s = (guint)__builtin_ctz (left_), TRUE); \
       left_ &= left_ - 1)

static inline void
add_other (Others *self, const SimLoad *load)
{
  self->used += packed (load);
  self->users += above (packed (load), 0);
}

/* The pace of an op beside others: the per mille of its speed that it keeps. */
static inline gint64
pace_beside (const Others *others, guint64 wanted)
{
  guint pace = WHOLE;
  for (guint64 left = scarce (others->used, wanted); left; left &= left - 1)
    {
      const guint shift = (guint)__builtin_ctzll (left), used = lane_of (others->used, shift);
      const guint rest = used < WHOLE ? WHOLE - used : 0;
      const guint even = WHOLE / (lane_of (others->users, shift) + 1);
      pace = MIN (pace, WHOLE * MAX (rest, even) / lane_of (wanted, shift));
    }
  return pace;
}

/* Whether any spell may slow an op of `stream`. The sum of all spells, without those of its own
 * stream, is checked first. */
static gboolean
can_be_slowed (const SimEngine *self, guint stream, guint64 wanted)
{
  const SimOccupancy *o = &self->occupancy;
  Others most = { 0, 0 };
  guint64 used = self->used;
  for (guint i = 0; i < o->n[stream]; i++)
    used -= packed (&o->load[stream][i]);
  if (!scarce (used, wanted))
    return FALSE;
  FOR_EACH_STREAM (others_of (self, stream), s)
  for (guint i = 0; i < o->n[s]; i++)
    add_other (&most, &o->load[s][i]);
  return pace_beside (&most, wanted) < WHOLE;
}

/* The time that an op needs from `start` on. It is followed from one edge of the spells beside it
 * to the next, as its pace changes only there. Exact but for the last nanosecond. */
static gint64
run_beside (const SimEngine *self, guint streams, const SimIssue *issue, gint64 start)
{
  const guint64 wanted = packed (&issue->load);
  gint64 at = start, left = issue->ns * WHOLE;
  for (;;)
    {
      Others now = { 0, 0 };
      gint64 until = G_MAXINT64;
      FOR_EACH_STREAM (streams, s)
      for (guint i = 0; i < self->occupancy.n[s]; i++)
        {
          const SimClock *spell = spell_of (self, s, i);
          if (spell[1].at <= at)
            continue;
          if (spell[0].at <= at)
            add_other (&now, &self->occupancy.load[s][i]);
          until = MIN (until, spell[0].at <= at ? spell[1].at : spell[0].at);
          break;
        }
      const gint64 pace = pace_beside (&now, wanted);
      const gint64 needed = (left + pace - 1) / pace;
      if (needed <= until - at)
        return at + needed - start;
      left -= (until - at) * pace;
      at = until;
    }
}

/* Notes that an edge of a spell lies within the op: at a level where the two drift apart, no
 * further iteration is like this one. */
static void
note_inside (SimEngine *self, const SimClock *edge, const SimClock *start)
{
  for (guint level = 0; level < SIM_LEVELS; level++)
    if (edge->drift[level] != start->drift[level])
      self->holds[level] = 0;
}

static void
note_neighbours (SimEngine *self, guint streams, const SimClock *start, gint64 ns)
{
  SimClock end = *start;
  end.at += ns;
  FOR_EACH_STREAM (streams, s)
  for (guint i = 0; i < self->occupancy.n[s]; i++)
    {
      const SimClock *spell = spell_of (self, s, i);
      if (spell[1].at <= start->at)
        sim_engine_note_order (self, start, &spell[1], 0);
      else if (spell[0].at >= end.at)
        sim_engine_note_order (self, &spell[0], &end, 0);
      else
        {
          if (spell[0].at > start->at)
            note_inside (self, &spell[0], start);
          else
            sim_engine_note_order (self, start, &spell[0], 0);
          if (spell[1].at < end.at)
            note_inside (self, &spell[1], start);
          else
            sim_engine_note_order (self, &spell[1], &end, 0);
        }
    }
}

static void
forget_first (SimEngine *self, guint stream, guint count)
{
  SimOccupancy *o = &self->occupancy;
  SimClock *spells = spell_of (self, stream, 0);
  SimLoad *loads = o->load[stream];
  const guint n = o->n[stream], kept = n - count;
  for (guint i = 0; i < count; i++)
    self->used -= packed (&loads[i]);
  for (guint i = 0; i < n; i++)
    {
      loads[i] = i < kept ? loads[i + count] : (SimLoad){ { 0 } };
      for (guint edge = 0; edge < 2; edge++)
        spells[2 * i + edge] = i < kept ? spells[2 * (i + count) + edge] : (SimClock){ .at = 0 };
    }
  o->n[stream] = (guint8)kept;
  if (kept == 0)
    self->occupied &= ~(1u << stream);
}

/* Drops spells that were over when the compute stream began an op: later ops are not compared with
 * them, even those of other streams that begin earlier (sharing.h). */
static void
forget_past (SimEngine *self, const SimClock *now)
{
  FOR_EACH_STREAM (self->occupied, s)
  {
    guint past = 0;
    for (; past < self->occupancy.n[s] && spell_of (self, s, past)[1].at <= now->at; past++)
      sim_engine_note_order (self, now, &spell_of (self, s, past)[1], 0);
    if (past < self->occupancy.n[s])
      sim_engine_note_order (self, &spell_of (self, s, past)[1], now, 1);
    if (past > 0)
      forget_first (self, s, past);
  }
}

void
sim_sharing_add (SimEngine *self, PlanStream stream, const SimLoad *load, const SimClock *begin,
                 const SimClock *end)
{
  SimOccupancy *o = &self->occupancy;
  SimClock *spell = spell_of (self, stream, o->n[stream]);
  spell[0] = *begin;
  spell[1] = *end;
  o->load[stream][o->n[stream]++] = *load;
  self->used += packed (load);
  self->occupied |= 1u << stream;
}

/* Adds a spell, or extends the last one if that ends where this one begins and has the same
 * load. */
static void
add_spell (SimEngine *self, const SimIssue *issue, const SimClock *start, gint64 ns)
{
  SimOccupancy *o = &self->occupancy;
  const guint s = issue->stream;
  const SimClock end = { .at = start->at + ns, .drift = { start->drift[0], start->drift[1] } };
  if (o->n[s] > 0)
    {
      SimClock *last = spell_of (self, s, o->n[s] - 1u);
      if (last[1].at == start->at && packed (&o->load[s][o->n[s] - 1u]) == packed (&issue->load))
        {
          note_inside (self, &last[1], start);
          last[1] = end;
          return;
        }
      sim_engine_note_order (self, start, &last[1], 1);
      if (o->n[s] == SIM_SPELLS)
        forget_first (self, s, 1);
    }
  sim_sharing_add (self, issue->stream, &issue->load, start, &end);
}

gint64
sim_sharing_run (SimEngine *self, const SimIssue *issue, const SimClock *start)
{
  const guint64 wanted = packed (&issue->load);
  gint64 ns = issue->ns;
  if (issue->stream == PLAN_STREAM_COMPUTE && self->occupied)
    forget_past (self, start);
  const guint streams = others_of (self, issue->stream);
  if (ns > 0 && streams && can_be_slowed (self, issue->stream, wanted))
    {
      ns = run_beside (self, streams, issue, start->at);
      if (self->n_proofs > 0)
        note_neighbours (self, streams, start, ns);
    }
  if (issue->stream != PLAN_STREAM_COMPUTE && ns > 0 && wanted)
    add_spell (self, issue, start, ns);
  return ns;
}
