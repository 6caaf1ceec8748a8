/* SPDX-License-Identifier: Apache-2.0 */
/* The sequences of a step, and its learning rate. Steps are counted from the first one of the whole
 * run, also where it is resumed. Batch and sequence length are the same in all steps. */
#include "config.h"

#include "exec/data/data.h"
#include "exec/walk/source.h"
#include "tests/reference/evaluate-private.h"

#include <math.h>

gboolean
exec_evaluator_state (const ExecJob *job, ExecState state, PlanTensorRole role, gint64 layer,
                      guint64 first, guint64 count, float *out, GError **error)
{
  return exec_source_state (job, state, role, layer, first, count, out, error);
}

/* Reads sequence `number` of a blend, which is found by going through all sequences before it. Each
 * sequence comes from a source whose next one is due; of several such sources the one with the
 * earliest deadline counts, and of equal ones the one named first. */
static gboolean
read_blend (const ExecBlend *blend, gint64 number, gint32 *out_tokens, gint32 *out_targets,
            gint32 *out_places, GError **error)
{
  const guint n = blend->sources->len;
  g_assert (!blend->shuffles_documents);
  const ExecBlendSource *sources = (const ExecBlendSource *)(gpointer)blend->sources->data;
  const gint64 period = (gint64)blend->period;
  g_autofree gint64 *taken = g_new0 (gint64, n);
  guint next = 0;
  for (gint64 at = 0; at <= number; at++)
    {
      gint64 first_end = G_MAXINT64;
      for (guint i = 0; i < n; i++)
        {
          const gint64 share = (gint64)sources[i].share;
          const gint64 end = ((taken[i] + 1) * period + share - 1) / share;
          if (taken[i] * period / share > at || end >= first_end)
            continue;
          first_end = end;
          next = i;
        }
      taken[next]++;
    }
  const guint64 of_source = (guint64)taken[next] - 1;
  const guint64 length = exec_tokens_sequences (sources[next].tokens);
  guint64 place = of_source % length;
  if (blend->is_shuffled)
    place = exec_data_shuffle (blend->seed, next, of_source / length, length, place);
  if (out_places)
    exec_tokens_places (sources[next].tokens, NULL, place * (guint64)blend->seq, out_places);
  return exec_tokens_read (sources[next].tokens, NULL, place * (guint64)blend->seq, out_tokens,
                           out_targets, error);
}

/* Evaluation has random sequences of its own, behind those of any training. */
#define FIRST_OF_EVALUATION (G_GINT64_CONSTANT (1) << 48)

static gboolean
read_sequence (const ExecJob *job, gboolean is_eval, gint64 batch, gint64 of_batch,
               gint32 *out_tokens, gint32 *out_targets, gint32 *out_places, GError **error)
{
  const gint64 gbs = job->of->plan.value[PLAN_GBS], seq = job->of->plan.value[PLAN_SEQ];
  const gint64 number = batch * gbs + of_batch;
  const ExecBlend *blend = is_eval ? job->eval_tokens : job->tokens;
  if (blend)
    return read_blend (blend, number, out_tokens, out_targets, out_places, error);
  for (gint64 t = 0, place = 0; out_places && t < seq; t++)
    {
      out_places[t] = (gint32)place++;
      if (place == job->of->plan.value[PLAN_DOC_TOKENS])
        place = 0;
    }
  exec_data_sequence (job->seed, job->of->model->vocab,
                      is_eval ? FIRST_OF_EVALUATION + number : number, seq, out_tokens,
                      out_targets);
  return TRUE;
}

/* With eod_mask_loss the last token of a document has no target. */
gboolean
exec_evaluator_sequence (const ExecJob *job, gboolean is_eval, gint64 batch, gint64 of_batch,
                         gint32 *out_tokens, gint32 *out_targets, gint32 *out_places,
                         GError **error)
{
  const gint64 *value = job->of->plan.value;
  if (!read_sequence (job, is_eval, batch, of_batch, out_tokens, out_targets, out_places, error))
    return FALSE;
  if (value[PLAN_EOD_MASK_LOSS] == PLAN_EOD_MASK_LOSS_OFF)
    return TRUE;
  for (gint64 left = value[PLAN_SEQ]; left > 0; left--, out_tokens++, out_targets++)
    *out_targets = *out_tokens == job->document_end ? -1 : *out_targets;
  return TRUE;
}

double
exec_evaluator_rate (const ExecJob *job, gint64 step)
{
  const gint64 warmup = job->rate.warmup_steps, last = job->rate.last_step;
  const double peak = job->constants.lr, least = peak * job->rate.min_share;
  gint64 begin = warmup; /* of the decay */
  double share = 1;
  if (step < warmup)
    return peak * (double)(step + 1) / (double)warmup;
  if (job->rate.decay_steps > 0 && job->rate.decay_steps < last - warmup)
    begin = last - job->rate.decay_steps;
  if (step < begin)
    return peak;
  if (last > begin && step < last)
    share = (double)(step - begin) / (double)(last - begin);
  switch (job->rate.decay)
    {
    case EXEC_DECAY_LINEAR:
      return least + (peak - least) * (1 - share);
    case EXEC_DECAY_COSINE:
      return least + (peak - least) * (0.5 * (1 + cos (G_PI * share)));
    case EXEC_DECAY_MINUS_SQRT:
      return least + (peak - least) * (1 - sqrt (share));
    case EXEC_DECAY_NONE:
      break;
    }
  return peak;
}
