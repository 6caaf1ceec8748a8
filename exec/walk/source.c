/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/source.h"

#include "exec/walk/data.h"

#include <math.h>
#include <string.h>

/* Synthetic text has no end: what is evaluated on begins where no run gets to. */
#define FIRST_EVAL_SEQUENCE (G_GINT64_CONSTANT (1) << 48)

gboolean
exec_source_state (const ExecJob *job, ExecState state, PlanTensorRole role, gint64 layer,
                   guint64 first, guint64 count, float *out, GError **error)
{
  if (job->resume)
    return exec_checkpoint_read (job->resume, state, role, layer, first, count, out, error);
  if (state == EXEC_STATE_SCALES)
    for (guint64 i = 0; i < count; i++)
      out[i] = 1;
  else if (state != EXEC_STATE_MAIN)
    memset (out, 0, count * sizeof *out);
  else if (job->weights)
    return exec_weights_read (job->weights, role, layer, first, count, out, error);
  else
    exec_data_weights (job->seed, job->of->model, role, layer, first, count, out);
  return TRUE;
}

gint64
exec_source_first_token (const ExecJob *job, gboolean is_eval, gint64 step)
{
  const gint64 *value = job->of->plan.value;
  if (is_eval)
    return 0;
  return job->first_token + (step - job->first_step) * value[PLAN_GBS] * value[PLAN_SEQ];
}

/* Synthetic text is made by the sequence, whatever its length. */
gboolean
exec_source_sequence (const ExecJob *job, gboolean is_eval, gint64 first, gint32 *out_tokens,
                      gint32 *out_targets, GError **error)
{
  const ExecTokens *tokens = is_eval ? job->eval_tokens : job->tokens;
  const gint64 seq = job->of->plan.value[PLAN_SEQ];
  if (tokens)
    return exec_tokens_read (tokens, (guint64)first, out_tokens, out_targets, error);
  exec_data_sequence (job->seed, job->of->model->vocab,
                      (first + seq - 1) / seq + (is_eval ? FIRST_EVAL_SEQUENCE : 0), seq,
                      out_tokens, out_targets);
  return TRUE;
}

double
exec_source_rate (const ExecJob *job, gint64 step)
{
  const ExecRate *rate = &job->rate;
  const double lr = job->constants.lr, min = lr * rate->min_share;
  const gint64 decays = rate->last_step - rate->warmup_steps;
  if (step < rate->warmup_steps)
    return lr * (double)(step + 1) / (double)rate->warmup_steps;
  if (rate->decay == EXEC_DECAY_NONE)
    return lr;
  const double done
      = decays > 0 ? MIN ((double)(step - rate->warmup_steps) / (double)decays, 1.0) : 1.0;
  const double left = rate->decay == EXEC_DECAY_COSINE ? 0.5 * (1 + cos (G_PI * done)) : 1 - done;
  return min + (lr - min) * left;
}
