/* SPDX-License-Identifier: Apache-2.0 */
/* Let an op want a share w of something of which a stream uses u. Beside it alone it loses
 * f (u) = max (0, 1 - max (1 - u, 1/2) / w) of its pace, beside two streams max (0, 1 - max (1 - u
 * - v, 1/3) / w), and beside more of them no less. The first term under `max` is convex and 0 at 0,
 * so that what two streams take adds up to no more than what both take together, but for the last
 * term, which caps the sum. Taking one shared thing into account leaves out the others, which can
 * only take more.
 *
 * Work of an op that loses a share a of its pace while a stream is beside it takes a longer for
 * each nanosecond that it is. A stream is beside the chain for all of its time, but for those in
 * which nothing of the chain runs; these are lost as a whole, which is more than what they save: at
 * most the sum of all shares, which is below 1. The same holds for ops that are not known here, and
 * for what slows them otherwise. So the least is what is lost where each stream lies beside the ops
 * that it slows least, as far as they reach. */
#include "config.h"

#include "sim/fast/slowdown-bound.h"

#include <stdlib.h>
#include <string.h>

#define WHOLE 1000.0 /* per mille */

void
sim_slowdown_add (SimSlowdown *self, SimLoad load, gint64 n, gint64 ns)
{
  guint i = 0;
  while (i < self->n && memcmp (&self->of[i].load, &load, sizeof load) != 0)
    i++;
  if (i == SIM_SLOWDOWN_CLASSES)
    {
      self->is_lost = TRUE;
      return;
    }
  if (i == self->n)
    self->of[self->n++] = (SimSlowdownClass){ .load = load };
  self->of[i].n += n;
  self->of[i].ns += ns;
}

void
sim_slowdown_join (SimSlowdown *self, const SimSlowdown *other, gint64 times)
{
  self->is_lost = self->is_lost || other->is_lost;
  for (guint i = 0; i < other->n; i++)
    sim_slowdown_add (self, other->of[i].load, times * other->of[i].n, times * other->of[i].ns);
}

SimSlowdownStream
sim_slowdown_stream (const SimSlowdown *self)
{
  SimSlowdownStream stream = { .n_kinds = 0 };
  for (guint i = 0; i < self->n && !self->is_lost; i++)
    {
      stream.ns += self->of[i].ns;
      if (self->of[i].n <= SIM_SLOWDOWN_SELDOM)
        continue;
      if (stream.n_kinds < SIM_SLOWDOWN_KINDS)
        stream.kinds[stream.n_kinds] = self->of[i];
      stream.n_kinds++;
    }
  return stream;
}

/* The share of its pace that an op loses which wants that much, where so much of it is used by that
 * many. */
static double
lost_share (guint wanted, guint used, guint users)
{
  const double rest = MAX (WHOLE - used, WHOLE / (users + 1));
  return wanted > rest ? 1 - rest / wanted : 0;
}

/* Of a class of the chain: what each kind of each stream takes, the most that both take together.
 */
typedef struct
{
  double taken[2][SIM_SLOWDOWN_KINDS], most;
} Slowed;

static Slowed
slow_by (guint wanted, const SimSlowdownStream beside[2], SimShared which)
{
  Slowed slowed = { { { 0 } }, 0 };
  for (guint s = 0; s < 2; s++)
    {
      double most = 0;
      for (guint k = 0; k < MIN (beside[s].n_kinds, SIM_SLOWDOWN_KINDS); k++)
        {
          slowed.taken[s][k] = lost_share (wanted, beside[s].kinds[k].load.permille[which], 1);
          most = MAX (most, slowed.taken[s][k]);
        }
      slowed.most += most;
    }
  const double cap = lost_share (wanted, (guint)WHOLE, 2);
  if (slowed.most <= cap)
    return slowed;
  for (guint i = 0; i < 2 * SIM_SLOWDOWN_KINDS; i++)
    slowed.taken[i / SIM_SLOWDOWN_KINDS][i % SIM_SLOWDOWN_KINDS] *= cap / slowed.most;
  slowed.most = cap;
  return slowed;
}

static Slowed
slow (const SimLoad *load, const SimSlowdownStream beside[2])
{
  Slowed slowed = slow_by (load->permille[0], beside, 0);
  for (SimShared r = 1; r < SIM_N_SHARED; r++)
    {
      const Slowed other = slow_by (load->permille[r], beside, r);
      if (other.most > slowed.most)
        slowed = other;
    }
  return slowed;
}

/* How a kind slows the classes of a chain, and how long it can. */
typedef struct
{
  double taken, reach_ns;
} Part;

static int
compare_parts (const void *a, const void *b)
{
  const Part *x = a, *y = b;
  return x->taken < y->taken ? -1 : x->taken > y->taken;
}

/* Lies beside the classes that it slows least first. */
static double
lost_beside (Part *parts, guint n, double left)
{
  double lost = 0;
  qsort (parts, n, sizeof (Part), compare_parts);
  for (guint i = 0; i < n && left > 0; i++)
    {
      lost += MIN (left, parts[i].reach_ns) * parts[i].taken;
      left -= parts[i].reach_ns;
    }
  return lost;
}

gint64
sim_slowdown_slowing_ns (const SimSlowdown *chain, const SimSlowdownStream beside[2])
{
  Slowed slowed[SIM_SLOWDOWN_CLASSES];
  Part parts[SIM_SLOWDOWN_CLASSES];
  double lost = 0;
  for (guint i = 0; i < chain->n; i++)
    slowed[i] = slow (&chain->of[i].load, beside);
  for (guint s = 0; s < 2 && !chain->is_lost; s++)
    for (guint k = 0; k < MIN (beside[s].n_kinds, SIM_SLOWDOWN_KINDS); k++)
      {
        guint n = 0;
        for (guint i = 0; i < chain->n; i++)
          if (chain->of[i].ns > 0)
            parts[n++]
                = (Part){ slowed[i].taken[s][k], (double)chain->of[i].ns / (1 - slowed[i].most) };
        lost += lost_beside (parts, n, (double)beside[s].kinds[k].ns);
      }
  return (gint64)lost;
}
