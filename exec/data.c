/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/data.h"

#include <math.h>

/* Deviation of a weight matrix before scaling by depth. */
#define DEVIATION 0.02

/* Every number is mixed from what it belongs to, so none depends on which were drawn before. The
 * finalizer of SplitMix64: a bijection whose output bits each depend on all input bits. */
static guint64
mix (guint64 x)
{
  x += G_GUINT64_CONSTANT (0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * G_GUINT64_CONSTANT (0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* The token after `token` four times out of five; the same for all seeds and samples. */
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

/* Twelve uniform numbers, summed in integers: deviation 1, mean 0, and the same on every machine.
 */
static double
normal (guint64 key)
{
  gint64 sum = 0;

  for (guint i = 0; i < 3; i++)
    for (guint64 draw = mix (key + i), piece = 0; piece < 4; piece++, draw >>= 16)
      sum += (gint64)(draw & 0xffff);
  return ((double)sum - 6 * 65535.0) / 65536.0;
}

float
exec_data_weight (guint64 seed, const PlanModel *model, PlanTensorRole role, gint64 unit,
                  guint64 element)
{
  PlanTensorKind kind = plan_model_tensor (model, role, model->vocab).kind;
  gboolean writes_residual = role == PLAN_TENSOR_PROJ || role == PLAN_TENSOR_DOWN
                             || role == PLAN_TENSOR_EXPERT_DOWN || role == PLAN_TENSOR_SHARED_DOWN;
  double scale = DEVIATION;

  if (kind == PLAN_TENSOR_KIND_GAIN)
    return model->norm_1p ? 0 : 1;
  if (kind == PLAN_TENSOR_KIND_BIAS || kind == PLAN_TENSOR_KIND_STATE)
    return 0;
  if (writes_residual) /* twice per layer */
    scale /= sqrt (2.0 * (double)model->layers);

  guint64 key = mix (mix (mix (seed) ^ (guint64)role) ^ (guint64)unit);

  return (float)(scale * normal (mix (key ^ element)));
}
