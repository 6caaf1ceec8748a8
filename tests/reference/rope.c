/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary angles as transformers computes them: function by function, for one pair of elements. */
#include "config.h"

#include "tests/reference/rope.h"

#include <math.h>

static double
llama3 (const PlanRope *rope, double inv_freq)
{
  const double wavelen = 2 * G_PI / inv_freq, old_context = (double)rope->original;
  const double smooth = (old_context / wavelen - rope->slow) / (rope->fast - rope->slow);
  if (wavelen < old_context / rope->fast)
    return inv_freq;
  if (wavelen > old_context / rope->slow)
    return inv_freq / rope->factor;
  return (1 - smooth) * inv_freq / rope->factor + smooth * inv_freq;
}

static double
correction_dim (const PlanRope *rope, double rotations, double dim)
{
  return (dim * log ((double)rope->original / (rotations * 2 * G_PI))) / (2 * log (rope->theta));
}

static double
yarn (const PlanRope *rope, gint64 pair, gint64 dim)
{
  const double pos_freq = pow (rope->theta, 2.0 * (double)pair / (double)dim);
  double low = correction_dim (rope, rope->fast, (double)dim);
  double high = correction_dim (rope, rope->slow, (double)dim);
  if (!rope->is_fractional)
    {
      low = floor (low);
      high = ceil (high);
    }
  if (low < 0)
    low = 0;
  if (high > (double)(dim - 1))
    high = (double)(dim - 1);
  if (low == high)
    high += 0.001;
  double ramp = ((double)pair - low) / (high - low);
  if (ramp < 0)
    ramp = 0;
  if (ramp > 1)
    ramp = 1;
  return 1 / (rope->factor * pos_freq) * ramp + 1 / pos_freq * (1 - ramp);
}

static double
get_mscale (double scale, double mscale)
{
  return scale <= 1 ? 1 : 0.1 * mscale * log (scale) + 1;
}

void
reference_rope_turn (const PlanRope *rope, gint64 pair, gint64 dim, gint64 seq, gint64 position,
                     double *out_cosine, double *out_sine)
{
  const double power = 2.0 * (double)pair / (double)dim;
  double base = rope->theta, attention_factor = 1;
  if (rope->scaling == PLAN_ROPE_SCALING_DYNAMIC && dim > 2 && seq > rope->original)
    base *= pow (rope->factor * (double)seq / (double)rope->original - (rope->factor - 1),
                 (double)dim / (double)(dim - 2));
  double inv_freq = 1 / pow (base, power);
  if (rope->scaling == PLAN_ROPE_SCALING_LINEAR)
    inv_freq /= rope->factor;
  if (rope->scaling == PLAN_ROPE_SCALING_LLAMA3)
    inv_freq = llama3 (rope, inv_freq);
  if (rope->scaling == PLAN_ROPE_SCALING_YARN)
    {
      inv_freq = yarn (rope, pair, dim);
      attention_factor
          = get_mscale (rope->factor, rope->mscale) / get_mscale (rope->factor, rope->mscale_all);
    }
  if (rope->scaling == PLAN_ROPE_SCALING_LONGROPE)
    {
      const PlanRopeFactors *ext = seq > rope->original ? &rope->longer : &rope->shorter;
      inv_freq = 1 / (ext->at[pair] * pow (rope->theta, 2.0 * (double)pair / (double)dim));
      if (rope->factor > 1)
        attention_factor = sqrt (1 + log (rope->factor) / log ((double)rope->original));
    }
  *out_cosine = attention_factor * cos ((double)position * inv_freq);
  *out_sine = attention_factor * sin ((double)position * inv_freq);
}
