/* SPDX-License-Identifier: Apache-2.0 */
/* Claim: sim_slowdown_slowing_ns (chain, beside) is at most what sharing.c adds to the time of
 * `chain` while the two streams do their kinds of op beside it.
 *
 * Terms: an op wants the share w of a resource (processors, memory, links or network) of which
 * stream 1 uses u and stream 2 uses v. The pace of the op is the share of its speed that it keeps.
 *
 * Assumptions: sharing.c gives an op beside one stream the pace min (1, max (1 - u, 1/2) / w),
 * beside two min (1, max (1 - u - v, 1/3) / w), and beside more streams no more than that; the
 * scarcest resource decides; and every op of `beside` runs beside the chain for all of its time
 * (advise/floor.c, find_met, says when).
 *
 * Why it holds. The loss of pace is f (u) = max (0, 1 - max (1 - u, 1/2) / w), and max (0, 1 - max
 * (1 - u - v, 1/3) / w) beside two. Without the inner maximum f is convex and f (0) = 0, so the
 * losses due to the two streams add up to no more than the loss beside both; the inner maximum caps
 * the sum, as slow_by does. Looking at one resource only leaves out losses.
 *
 * An op that loses the share a of its pace while a stream is beside it needs a nanoseconds more for
 * each nanosecond of that. While no op of the chain runs, a stream slows nothing, but the whole of
 * that time is lost to the chain, and that is more than the loss it avoids, because all shares
 * together stay below 1. The same argument covers ops and slowings that are not counted here. So
 * the sum is least where each stream lies beside the classes that it slows least, for as long as
 * those last, which is what lost_beside adds up.
 *
 * tests/unit/test-sim.c has worked examples; bounds_of_plans_hold_where_compute_is_slowed in
 * tests/prop/prop-search.c compares the bound with simulations. */
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

void
sim_slowdown_divide (SimSlowdown *self, gint64 n)
{
  for (guint i = 0; i < self->n; i++)
    {
      self->of[i].n /= n;
      self->of[i].ns /= n;
    }
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

/* The share of its pace that an op loses. It wants `wanted` per mille of a resource, of which
 * `users` other streams use `used` per mille. */
static double
lost_share (guint wanted, guint used, guint users)
{
  const double rest = MAX (WHOLE - used, WHOLE / (users + 1));
  return wanted > rest ? 1 - rest / wanted : 0;
}

/* For one class of the chain: the share of pace that each kind of each stream takes from it, and
 * the most that both streams take together. */
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

/* For one class of the chain: the share of its pace that a kind takes, and how long the class lasts
 * at most. */
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

/* What is lost in `left` nanoseconds that lie beside the least slowed classes first. */
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
