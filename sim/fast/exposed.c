/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fast/exposed.h"

#include <string.h>

/* Streams by precedence: time is attributed to the first of them that is busy, as in
 * planner/schedule/trace.c. */
static const PlanStream precedence[SIM_EXPOSED_STREAMS]
    = { PLAN_STREAM_COMPUTE,      PLAN_STREAM_TENSOR,       PLAN_STREAM_EXPERTS,
        PLAN_STREAM_CONTEXT,      PLAN_STREAM_NEXT,         PLAN_STREAM_PREV,
        PLAN_STREAM_GATHER,       PLAN_STREAM_OUTER_GATHER, PLAN_STREAM_REDUCE,
        PLAN_STREAM_OUTER_REDUCE, PLAN_STREAM_COPY,         PLAN_STREAM_FETCH };

static guint
rank_of (PlanStream stream)
{
  guint i = 0;
  while (i < SIM_EXPOSED_STREAMS && precedence[i] != stream)
    i++;
  return i;
}

typedef struct
{
  gint64 start, end;
  gint64 drift[SIM_LEVELS];
} Spell;

/* A cut: the last `period` before `at` stands for itself and `count` repetitions. */
typedef struct
{
  gint64 at, period, count;
} Cut;

void
sim_exposed_clear (SimExposed *self)
{
  for (guint i = 0; i < SIM_EXPOSED_STREAMS; i++)
    g_clear_pointer (&self->spells[i], g_array_unref);
  g_clear_pointer (&self->cuts, g_array_unref);
}

void
sim_exposed_begin (SimExposed *self, gint64 begin_ns)
{
  for (guint i = 0; i < SIM_EXPOSED_STREAMS; i++)
    {
      if (!self->spells[i])
        self->spells[i] = g_array_new (FALSE, FALSE, sizeof (Spell));
      g_array_set_size (self->spells[i], 0);
      self->closed[i] = 0;
    }
  if (!self->cuts)
    self->cuts = g_array_new (FALSE, FALSE, sizeof (Cut));
  g_array_set_size (self->cuts, 0);
  self->begin_ns = begin_ns;
  self->cut_ns = 0;
  self->least_ns = G_MININT64;
  self->is_lost = FALSE;
}

static Spell *
spell_at (const SimExposed *self, guint stream, guint i)
{
  return &g_array_index (self->spells[stream], Spell, i);
}

static void
add (SimExposed *self, guint stream, const Spell *spell)
{
  GArray *spells = self->spells[stream];
  if (spells->len > self->closed[stream])
    {
      Spell *last = spell_at (self, stream, spells->len - 1);
      if (last->end == spell->start && memcmp (last->drift, spell->drift, sizeof last->drift) == 0)
        {
          last->end = spell->end;
          return;
        }
    }
  g_array_append_vals (spells, spell, 1);
}

void
sim_exposed_add (SimExposed *self, PlanStream stream, const SimClock *start, gint64 ns)
{
  const guint i = rank_of (stream);
  if (i >= SIM_EXPOSED_STREAMS || ns <= 0)
    return;
  const gint64 begin = start->at - self->begin_ns - self->cut_ns;
  const Spell spell = { begin, begin + ns, { start->drift[0], start->drift[1] } };
  self->is_lost = self->is_lost || begin < self->least_ns;
  add (self, i, &spell);
}

static void
close_all (SimExposed *self)
{
  for (guint i = 0; i < SIM_EXPOSED_STREAMS; i++)
    self->closed[i] = self->spells[i]->len;
}

void
sim_exposed_begin_iteration (SimExposed *self, guint level)
{
  close_all (self);
  memcpy (self->first_of_iteration[level], self->closed, sizeof self->closed);
}

/* Up to this many spells are written out and not cut. Nothing can be cut while the step before
 * still runs on at the beginning of this one. */
#define FEW_SPELLS 256

static gboolean
are_few (const SimExposed *self, gint64 count)
{
  guint n = 0;
  for (guint s = 0; s < SIM_EXPOSED_STREAMS; s++)
    n += self->spells[s]->len - self->first_of_iteration[0][s];
  return n * count <= FEW_SPELLS;
}

/* Writes out `count` repetitions, spell by spell. */
static void
expand (SimExposed *self, guint level, gint64 count)
{
  guint ends[SIM_EXPOSED_STREAMS];
  close_all (self);
  memcpy (ends, self->closed, sizeof ends);
  for (guint s = 0; s < SIM_EXPOSED_STREAMS; s++)
    for (gint64 i = 1; i <= count; i++)
      for (guint p = self->first_of_iteration[level][s]; p < ends[s]; p++)
        {
          Spell spell = *spell_at (self, s, p);
          spell.start += i * spell.drift[level];
          spell.end += i * spell.drift[level];
          add (self, s, &spell);
        }
}

/* The period with which all streams repeat themselves, and from when until when; 0 if they do
 * not. */
static gint64
find_period (const SimExposed *self, gint64 *out_from, gint64 *out_until)
{
  gint64 period = 0;
  *out_from = self->least_ns;
  *out_until = G_MAXINT64;
  for (guint s = 0; s < SIM_EXPOSED_STREAMS; s++)
    {
      const guint begin = self->first_of_iteration[0][s], end = self->spells[s]->len;
      for (guint i = begin; i < end; i++)
        {
          const gint64 drift = spell_at (self, s, i)->drift[0];
          if (drift <= 0 || (period && drift != period))
            return 0;
          period = drift;
        }
      if (begin < end)
        {
          *out_from = MAX (*out_from, spell_at (self, s, begin)->start);
          *out_until = MIN (*out_until, spell_at (self, s, end - 1)->end);
        }
      else if (end > 0) /* this stream is idle while the others repeat themselves */
        *out_from = MAX (*out_from, spell_at (self, s, end - 1)->end);
    }
  return period;
}

void
sim_exposed_repeat (SimExposed *self, guint level, gint64 count)
{
  gint64 from = 0, until = 0, kept = count;
  const gint64 period
      = level == 0 && !are_few (self, count) ? find_period (self, &from, &until) : 0;
  if (period > 0) /* one whole period must lie before the cut */
    kept = CLAMP ((from + period - until + period - 1) / period, 0, count);
  expand (self, level, kept);
  if (kept == count)
    return;
  const Cut cut = { .at = from + period, .period = period, .count = count - kept };
  g_array_append_val (self->cuts, cut);
  self->cut_ns += cut.count * period;
  self->least_ns = cut.at;
}

/* A walk over the spells of one stream, as plan_trace_attribute walks over spans. */
typedef struct
{
  const SimExposed *busy;
  guint stream, next;
  gboolean in_tail;
  gint64 step_ns, start, end;
} Walk;

static void
advance (Walk *self)
{
  const guint n = self->busy->spells[self->stream]->len;
  for (; self->in_tail || self->next < n; self->next++)
    {
      if (self->next == n)
        {
          self->in_tail = FALSE;
          self->next = 0;
          if (n == 0)
            break;
        }
      const Spell *spell = spell_at (self->busy, self->stream, self->next);
      const gint64 shift = self->in_tail ? self->step_ns : 0;
      if (spell->end <= shift)
        continue;
      self->start = spell->start - shift;
      self->end = spell->end - shift;
      self->next++;
      return;
    }
  self->start = self->end = G_MAXINT64;
}

/* Returns the first stream, by precedence, that is busy at a time; shortens `until` to where that
 * may change. */
static guint
owner_of (Walk walks[SIM_EXPOSED_STREAMS], gint64 now, gint64 *until)
{
  guint i;
  for (i = 0; i < SIM_EXPOSED_STREAMS; i++)
    {
      while (walks[i].end <= now)
        advance (&walks[i]);
      *until = MIN (*until, walks[i].start <= now ? walks[i].end : walks[i].start);
      if (walks[i].start <= now)
        break;
    }
  return i;
}

/* Whether all cuts lie within the step, behind the end of what runs on from the step before. */
static gboolean
can_split (const SimExposed *self, gint64 step_ns)
{
  for (guint c = 0; c < self->cuts->len; c++)
    {
      const Cut *cut = &g_array_index (self->cuts, Cut, c);
      if (cut->at > step_ns || cut->at < cut->period)
        return FALSE;
      for (guint s = 0; s < SIM_EXPOSED_STREAMS; s++)
        for (guint i = self->spells[s]->len; i-- > 0;)
          if (spell_at (self, s, i)->end - step_ns > cut->at - cut->period)
            return FALSE;
          else if (spell_at (self, s, i)->end <= step_ns)
            break;
    }
  return !self->is_lost;
}

gboolean
sim_exposed_split (const SimExposed *self, gint64 step_ns, SimShares *out_shares)
{
  const gint64 end_ns = step_ns - self->cut_ns;
  gint64 shares[SIM_EXPOSED_STREAMS + 1] = { 0 }, before[SIM_EXPOSED_STREAMS + 1];
  Walk walks[SIM_EXPOSED_STREAMS];
  guint c = 0;
  gboolean in_period = FALSE;
  if (!can_split (self, end_ns))
    return FALSE;
  for (guint i = 0; i < SIM_EXPOSED_STREAMS; i++)
    {
      walks[i] = (Walk){ .busy = self, .stream = i, .in_tail = TRUE, .step_ns = end_ns };
      advance (&walks[i]);
    }
  for (gint64 now = 0; now <= end_ns;)
    {
      const Cut *cut = c < self->cuts->len ? &g_array_index (self->cuts, Cut, c) : NULL;
      const gint64 mark = !cut ? G_MAXINT64 : in_period ? cut->at : cut->at - cut->period;
      if (now == mark)
        {
          for (guint i = 0; in_period && i <= SIM_EXPOSED_STREAMS; i++)
            shares[i] += cut->count * (shares[i] - before[i]);
          memcpy (before, shares, sizeof before);
          c += in_period;
          in_period = !in_period;
          continue;
        }
      if (now == end_ns)
        break;
      gint64 until = MIN (end_ns, mark);
      const guint owner = owner_of (walks, now, &until);
      shares[owner] += until - now;
      now = until;
    }
  *out_shares
      = (SimShares){ .compute_ns = shares[0],
                     .exposed_tensor_ns = shares[1] + shares[2] + shares[3] + shares[4] + shares[5],
                     .exposed_gather_ns = shares[6] + shares[7],
                     .exposed_reduce_ns = shares[8] + shares[9],
                     .exposed_copy_ns = shares[10] + shares[11],
                     .host_ns = shares[SIM_EXPOSED_STREAMS] };
  return TRUE;
}
