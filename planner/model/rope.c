/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas: transformers, modeling_rope_utils.py; "NTK by parts" is yarn
 * (arxiv.org/abs/2309.00071).
 */
#include "config.h"

#include "planner/model/rope.h"

#include "planner/base/error.h"

#include <math.h>

static gboolean
has_parts (const PlanRope *self)
{
  return self->scaling == PLAN_ROPE_SCALING_LLAMA3 || self->scaling == PLAN_ROPE_SCALING_YARN;
}

void
plan_rope_complete (PlanRope *self, gint64 max_seq)
{
  const gboolean is_yarn = self->scaling == PLAN_ROPE_SCALING_YARN;
  if (has_parts (self) && self->slow <= 0)
    self->slow = 1;
  if (has_parts (self) && self->fast <= 0)
    self->fast = is_yarn ? 32 : 4;
  if (self->original == 0
      && (is_yarn || self->scaling == PLAN_ROPE_SCALING_DYNAMIC
          || self->scaling == PLAN_ROPE_SCALING_LONGROPE))
    self->original = max_seq;
}

static gboolean
refuse (GError **error, const char *message)
{
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID, message);
  return FALSE;
}

gboolean
plan_rope_check (const PlanRope *self, GError **error)
{
  const gboolean is_none = self->scaling == PLAN_ROPE_SCALING_NONE;
  const gboolean is_yarn = self->scaling == PLAN_ROPE_SCALING_YARN;
  if (is_none && self->factor != 1)
    return refuse (error, "rope_factor: acts only with rope_scaling, which is none");
  if ((is_none || self->scaling == PLAN_ROPE_SCALING_LINEAR) && self->original != 0)
    return refuse (error, "rope_original: acts only with rope_scaling=dynamic, llama3, yarn or "
                          "longrope");
  if (!has_parts (self) && (self->slow > 0 || self->fast > 0))
    return refuse (error, "rope_slow, rope_fast: act only with rope_scaling=llama3 or yarn");
  if (self->scaling != PLAN_ROPE_SCALING_LONGROPE && self->shorter.n + self->longer.n > 0)
    return refuse (error, "rope_short, rope_long: act only with rope_scaling=longrope");
  if (self->shorter.n != self->longer.n)
    return refuse (error, "rope_short, rope_long: must have a factor each for as many pairs");
  if (!is_yarn && (self->mscale != 1 || self->mscale_all > 0 || self->is_fractional))
    return refuse (error, "rope_mscale, rope_mscale_all, rope_fractional: act only with "
                          "rope_scaling=yarn");
  if (self->scaling == PLAN_ROPE_SCALING_LLAMA3 && self->original == 0)
    return refuse (error, "rope_original: missing, and rope_scaling=llama3 needs it");
  if (has_parts (self) && self->slow > self->fast)
    return refuse (error, "rope_slow: must not be above rope_fast");
  if (is_yarn && self->theta <= 1)
    return refuse (error, "rope_theta: must be above 1 with rope_scaling=yarn");
  return TRUE;
}

/* The index of the pair that turns `turns` times within the original length; it may be a
 * fraction. */
static double
pair_of_turns (const PlanRope *self, double turns, double dim)
{
  return dim * log ((double)self->original / (turns * 2 * G_PI)) / (2 * log (self->theta));
}

/* The frequency under yarn: pairs up to one index keep theirs, those from another index on are
 * slower by the factor, and those between are interpolated by index. */
static double
slow_by_number (const PlanRope *self, double frequency, double pair, double dim)
{
  const double low = pair_of_turns (self, self->fast, dim),
               high = pair_of_turns (self, self->slow, dim);
  const double first = MAX (self->is_fractional ? low : floor (low), 0);
  double last = MIN (self->is_fractional ? high : ceil (high), dim - 1);
  if (first == last)
    last += 0.001;
  const double share = CLAMP ((pair - first) / (last - first), 0, 1);
  return frequency / self->factor * share + frequency * (1 - share);
}

/* The frequency under llama3: as under yarn, but pairs are told apart, and interpolated, by how
 * often they turn within the original length. */
static double
slow_by_turns (const PlanRope *self, double frequency)
{
  const double turns = (double)self->original * frequency / (2 * G_PI);
  const double width = self->fast - self->slow; /* 0: no pair is interpolated */
  const double share = width > 0 ? CLAMP ((turns - self->slow) / width, 0, 1) : turns >= self->slow;
  return (1 - share) * frequency / self->factor + share * frequency;
}

/* The frequency under longrope: each pair is slowed by its own factor. */
static double
slow_by_list (const PlanRope *self, double frequency, guint64 pair, guint64 seq)
{
  const PlanRopeFactors *factors = (gint64)seq > self->original ? &self->longer : &self->shorter;
  return pair < factors->n ? frequency / factors->at[pair] : frequency;
}

double
plan_rope_frequency (const PlanRope *self, guint64 pair, guint64 dim, guint64 seq)
{
  const double width = (double)dim, exponent = -2.0 * (double)pair / width;
  const double plain = pow (self->theta, exponent);
  switch (self->scaling)
    {
    case PLAN_ROPE_SCALING_LINEAR:
      return plain / self->factor;
    case PLAN_ROPE_SCALING_DYNAMIC:
      if ((gint64)seq <= self->original || dim <= 2)
        return plain;
      return pow (
          self->theta
              * pow (self->factor * (double)seq / (double)self->original - (self->factor - 1),
                     width / (width - 2)),
          exponent);
    case PLAN_ROPE_SCALING_LLAMA3:
      return slow_by_turns (self, plain);
    case PLAN_ROPE_SCALING_YARN:
      return slow_by_number (self, plain, (double)pair, width);
    case PLAN_ROPE_SCALING_LONGROPE:
      return slow_by_list (self, plain, pair, seq);
    case PLAN_ROPE_SCALING_NONE:
      break;
    }
  return plain;
}

static double
growth (double factor, double mscale)
{
  return factor <= 1 ? 1 : 0.1 * mscale * log (factor) + 1;
}

double
plan_rope_growth (const PlanRope *self)
{
  return self->scaling == PLAN_ROPE_SCALING_YARN ? growth (self->factor, self->mscale_all) : 1;
}

double
plan_rope_magnitude (const PlanRope *self)
{
  if (self->scaling == PLAN_ROPE_SCALING_LONGROPE && self->factor > 1 && self->original > 1)
    return sqrt (1 + log (self->factor) / log ((double)self->original));
  if (self->scaling != PLAN_ROPE_SCALING_YARN)
    return 1;
  return growth (self->factor, self->mscale) / plan_rope_growth (self);
}
