/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/reference/evaluate-dropout.h"

#include "tests/reference/evaluate-experts.h"
#include "tests/reference/evaluate-split.h"

/* Word `which` of Philox 4x32-10, by its rounds as the paper draws them. */
static guint32
philox (const guint32 key[2], guint64 low, guint64 high, guint which)
{
  guint32 l[2] = { (guint32)(low >> 32), (guint32)(high >> 32) };
  guint32 r[2] = { (guint32)low, (guint32)high };
  for (guint32 round = 0; round < 10; round++)
    {
      const guint64 first = (guint64)r[0] * 0xD2511F53U, second = (guint64)r[1] * 0xCD9E8D57U;
      r[0] = (guint32)(second >> 32) ^ l[0] ^ (key[0] + round * 0x9E3779B9U);
      r[1] = (guint32)(first >> 32) ^ l[1] ^ (key[1] + round * 0xBB67AE85U);
      l[0] = (guint32)second;
      l[1] = (guint32)first;
    }
  return which % 2 == 0 ? r[which / 2] : l[which / 2];
}

void
exec_evaluator_key (const ExecEvaluator *self, gint64 layer, guint32 out[2])
{
  const guint64 seed = self->job->seed;
  const guint32 key[2] = { seed & G_MAXUINT32, seed >> 32 };
  out[0] = philox (key, (guint64)layer, 0, 0);
  out[1] = philox (key, (guint64)layer, 0, 1);
}

/* The factor of an element of a row: 0 if it is dropped, else 1 / (1 - rate). The counter of the
 * random numbers is made of column / 4 (low 32 bits), the token's number in the run (64 bits) and
 * the site (high 32 bits); column % 4 chooses one of the four words. */
static float
factor (const guint32 key[2], guint64 token, ExecEvaluatorSite site, guint64 col, double rate)
{
  const guint64 low = (token & G_MAXUINT32) << 32 | col / 4,
                high = (guint64)site << 32 | token >> 32;
  const double drawn = philox (key, low, high, col % 4) / 4294967296.0;
  return drawn < rate ? 0.0f : (float)(1 / (1 - rate));
}

gboolean
exec_evaluator_drops (const ExecEvaluator *self)
{
  return self->job->of->plan.value[PLAN_HIDDEN_DROPOUT] > 0 && !self->is_eval;
}

void
exec_evaluator_drop (const ExecEvaluator *self, ExecArray out, ExecArray add, ExecArray in,
                     gint64 layer, ExecEvaluatorSite site)
{
  const double rate = (double)self->job->of->plan.value[PLAN_HIDDEN_DROPOUT] / 1e6;
  const guint64 cols = (guint64)self->model->hidden;
  guint32 key[2];
  exec_evaluator_key (self, layer, key);
  out = exec_evaluator_own (self, out);
  in = exec_evaluator_own (self, in);
  add = exec_evaluator_own (self, add);
  for (guint64 i = 0; i < (guint64)self->own_rows * cols; i++)
    {
      const guint64 token = (guint64)self->numbers[(guint64)self->first_row + i / cols];
      float value = exec_evaluator_get (in, (gint64)i);
      value *= factor (key, token, site, i % cols, rate);
      if (add.data)
        value = exec_evaluator_get (add, (gint64)i) + value;
      exec_evaluator_put (out, (gint64)i, value);
    }
}
