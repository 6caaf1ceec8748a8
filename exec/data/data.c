/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/data/data.h"

#include "exec/number/wide.h"

#include <math.h>

/* Standard deviation of the weights of a matrix, before it is scaled by depth. */
#define DEVIATION 0.02

/* Each random number is a hash of what it is for, so it does not depend on which were drawn before.
 * This is the finalizer of SplitMix64: a bijection in which each output bit depends on all input
 * bits. */
static inline guint64
mix (guint64 x)
{
  x += G_GUINT64_CONSTANT (0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * G_GUINT64_CONSTANT (0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* The token that follows `token` four times out of five, whatever the seed and the sequence. */
static gint32
successor (gint32 token, gint64 vocab)
{
  return (gint32)(mix ((guint64)token) % (guint64)vocab);
}

void
exec_data_sequence (guint64 seed, gint64 vocab, gint64 sample, gint64 seq, gint32 *out_tokens,
                    gint32 *out_targets)
{
  guint64 key = mix (mix (seed) ^ (guint64)sample);
  gint32 token = (gint32)(mix (key) % (guint64)vocab);

  for (gint64 t = 0; t < seq; t++)
    {
      guint64 draw = mix (key + 1 + (guint64)t);

      out_tokens[t] = token;
      if (draw % 5 != 0)
        token = successor (token, vocab);
      else
        token = (gint32)(draw / 5 % (guint64)vocab);
      out_targets[t] = token;
    }
}

/* A Feistel network over numbers of an even count of bits permutes at most four times as many
 * numbers as `n`. Results that are not below `n` are put in again until one is, which makes it a
 * permutation of the numbers below `n`. */
#define ROUNDS 6

guint64
exec_data_shuffle (guint64 seed, guint64 source, guint64 epoch, guint64 n, guint64 at)
{
  const guint64 key = mix (mix (mix (seed) ^ source) ^ epoch);
  const guint half = MAX ((g_bit_storage (n - 1) + 1) / 2, 1);
  const guint64 mask = (G_GUINT64_CONSTANT (1) << half) - 1;
  do
    {
      guint64 left = at >> half, right = at & mask;
      for (guint64 round = 0; round < ROUNDS; round++)
        {
          const guint64 next = left ^ (mix ((key + round) ^ mix (right)) & mask);
          left = right;
          right = next;
        }
      at = left << half | right;
    }
  while (at >= n);
  return at;
}

/* Nearly normal: the sum of twelve uniform numbers, with mean 0 and deviation 1. Summed as
 * integers, so that it is the same on every machine. */
static inline double
normal (guint64 key)
{
  gint64 sum = 0;

  for (guint i = 0; i < 3; i++)
    {
      const guint64 draw = mix (key + i);

      sum += (gint64)((draw & 0xffff) + (draw >> 16 & 0xffff) + (draw >> 32 & 0xffff)
                      + (draw >> 48));
    }
  return ((double)sum - 6 * 65535.0) / 65536.0;
}

static EXEC_WIDE void
fill_normal (guint64 key, guint64 first, guint64 count, double scale, float *out)
{
  for (guint64 i = 0; i < count; i++)
    out[i] = (float)(scale * normal (mix (key ^ (first + i))));
}

void
exec_data_weights (guint64 seed, const PlanModel *model, PlanTensorRole role, gint64 unit,
                   guint64 first, guint64 count, float *out)
{
  const PlanTensorKind kind = plan_model_tensor (model, role, model->vocab).kind;
  const gboolean writes_residual = role == PLAN_TENSOR_PROJ || role == PLAN_TENSOR_DOWN
                                   || role == PLAN_TENSOR_EXPERT_DOWN
                                   || role == PLAN_TENSOR_SHARED_DOWN;
  const guint64 key = mix (mix (mix (seed) ^ (guint64)role) ^ (guint64)unit);
  const gboolean is_gain = kind == PLAN_TENSOR_KIND_GAIN;
  double scale = DEVIATION;

  if (writes_residual) /* two projections per layer write to it */
    scale /= sqrt (2.0 * (double)model->layers);
  if (!is_gain && kind != PLAN_TENSOR_KIND_BIAS && kind != PLAN_TENSOR_KIND_STATE)
    fill_normal (key, first, count, scale, out);
  else
    for (guint64 i = 0; i < count; i++)
      out[i] = is_gain && !model->norm_1p ? 1 : 0;
}
