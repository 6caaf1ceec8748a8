/* SPDX-License-Identifier: Apache-2.0 */
/* Which sequences a step has, and its learning rate, as a run from beginning to end would count
 * them: whatever was resumed, from where. All of it has one batch and one length of sequences. */
#include "config.h"

#include "exec/walk/data.h"
#include "exec/walk/source.h"
#include "tests/reference/evaluate-private.h"

#include <math.h>

gboolean
exec_evaluator_state (const ExecJob *job, ExecState state, PlanTensorRole role, gint64 layer,
                      guint64 first, guint64 count, float *out, GError **error)
{
  return exec_source_state (job, state, role, layer, first, count, out, error);
}

gboolean
exec_evaluator_sequence (const ExecJob *job, gboolean is_eval, gint64 batch, gint64 of_batch,
                         gint32 *out_tokens, gint32 *out_targets, GError **error)
{
  const gint64 gbs = job->of->plan.value[PLAN_GBS], seq = job->of->plan.value[PLAN_SEQ];
  const gint64 number = batch * gbs + of_batch;
  const ExecTokens *file = is_eval ? job->eval_tokens : job->tokens;
  if (file)
    return exec_tokens_read (file, (guint64)(number * seq), out_tokens, out_targets, error);
  exec_data_sequence (job->seed, job->of->model->vocab,
                      is_eval ? (G_GINT64_CONSTANT (1) << 48) + number : number, seq, out_tokens,
                      out_targets);
  return TRUE;
}

double
exec_evaluator_rate (const ExecJob *job, gint64 step)
{
  const gint64 warmup = job->rate.warmup_steps, last = job->rate.last_step;
  const double peak = job->constants.lr, least = peak * job->rate.min_share;
  double share = 1;
  if (step < warmup)
    return peak * (double)(step + 1) / (double)warmup;
  if (last > warmup && step < last)
    share = (double)(step - warmup) / (double)(last - warmup);
  switch (job->rate.decay)
    {
    case EXEC_DECAY_LINEAR:
      return least + (peak - least) * (1 - share);
    case EXEC_DECAY_COSINE:
      return least + (peak - least) * (0.5 * (1 + cos (G_PI * share)));
    case EXEC_DECAY_NONE:
      break;
    }
  return peak;
}
