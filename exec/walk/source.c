/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/source.h"

#include "exec/data/data.h"

#include <math.h>
#include <string.h>

/* The first sequence of synthetic text that is used for evaluation. Synthetic text has no end, and
 * no run trains on this many sequences. */
#define FIRST_EVAL_SEQUENCE (G_GINT64_CONSTANT (1) << 48)

guint64
exec_source_elements (const PlanModel *model, PlanTensorRole role)
{
  const PlanTensor tensor = plan_model_tensor (model, role, model->vocab);
  return plan_model_numel (&tensor);
}

/* Reads a parameter's state, of elements that exist in the model (no padding of the vocabulary). */
static gboolean
read_state (const ExecJob *job, ExecState state, PlanTensorRole role, gint64 layer, guint64 first,
            guint64 count, float *out, GError **error)
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

gboolean
exec_source_state (const ExecJob *job, ExecState state, PlanTensorRole role, gint64 layer,
                   guint64 first, guint64 count, float *out, GError **error)
{
  const gboolean is_padded = role == PLAN_TENSOR_EMBEDDING || role == PLAN_TENSOR_OUTPUT;
  const guint64 exist = is_padded ? exec_source_elements (job->of->model, role) : G_MAXUINT64;
  const guint64 n = first < exist ? MIN (count, exist - first) : 0;
  memset (out + n, 0, (count - n) * sizeof *out);
  return n == 0 || read_state (job, state, role, layer, first, n, out, error);
}

gint64
exec_source_first_token (const ExecJob *job, gboolean is_eval, gint64 batch)
{
  const gint64 batch_tokens = job->of->plan.value[PLAN_GBS] * job->of->plan.value[PLAN_SEQ];
  if (is_eval)
    return batch * batch_tokens;
  return job->first_token + (batch - job->first_step) * batch_tokens;
}

/* Reads one sequence. Synthetic text is made sequence by sequence and consists of documents of
 * doc_tokens tokens. */
static gboolean
read_sequence (const ExecJob *job, gboolean is_eval, gint64 first, gint32 *out_tokens,
               gint32 *out_targets, gint32 *out_places, GError **error)
{
  const ExecBlend *tokens = is_eval ? job->eval_tokens : job->tokens;
  const gint64 seq = job->of->plan.value[PLAN_SEQ];
  if (tokens)
    return exec_blend_read (tokens, (guint64)first, out_tokens, out_targets, out_places, error);
  for (gint64 t = 0; out_places && t < seq; t++)
    out_places[t] = (gint32)(t % job->of->plan.value[PLAN_DOC_TOKENS]);
  exec_data_sequence (job->seed, job->of->model->vocab,
                      (first + seq - 1) / seq + (is_eval ? FIRST_EVAL_SEQUENCE : 0), seq,
                      out_tokens, out_targets);
  return TRUE;
}

/* As Megatron-LM's GPTDataset does with eod_mask_loss: the loss is masked where the input token
 * ends a document, not where that token is to be predicted. */
gboolean
exec_source_sequence (const ExecJob *job, gboolean is_eval, gint64 first, gint32 *out_tokens,
                      gint32 *out_targets, gint32 *out_places, GError **error)
{
  const Plan *plan = &job->of->plan;
  if (!read_sequence (job, is_eval, first, out_tokens, out_targets, out_places, error))
    return FALSE;
  for (gint64 t = 0; exec_source_masks (job) && t < plan->value[PLAN_SEQ]; t++)
    if (out_tokens[t] == job->document_end)
      out_targets[t] = -1;
  return TRUE;
}

gboolean
exec_source_masks (const ExecJob *job)
{
  return job->of->plan.value[PLAN_EOD_MASK_LOSS] == PLAN_EOD_MASK_LOSS_ON;
}

const char *const exec_decay_names[] = { [EXEC_DECAY_NONE] = "none",
                                         [EXEC_DECAY_LINEAR] = "linear",
                                         [EXEC_DECAY_COSINE] = "cosine",
                                         [EXEC_DECAY_MINUS_SQRT] = "minus_sqrt",
                                         NULL };

/* The share of the decay from the highest to the lowest rate that is still to come, when the share
 * `done` of its steps is over. */
static double
left_of (ExecDecay decay, double done)
{
  switch (decay)
    {
    case EXEC_DECAY_NONE:
      return 1;
    case EXEC_DECAY_LINEAR:
      return 1 - done;
    case EXEC_DECAY_COSINE:
      return 0.5 * (1 + cos (G_PI * done));
    case EXEC_DECAY_MINUS_SQRT:
      return 1 - sqrt (done);
    }
  g_return_val_if_reached (1);
}

double
exec_source_rate (const ExecJob *job, gint64 step)
{
  const ExecRate *rate = &job->rate;
  const double lr = job->constants.lr, min = lr * rate->min_share;
  const gint64 after = rate->last_step - rate->warmup_steps;
  const gint64 decays = rate->decay_steps > 0 ? MIN (rate->decay_steps, after) : after;
  const gint64 decayed = step - (rate->last_step - decays); /* steps since the decay began */
  if (step < rate->warmup_steps)
    return lr * (double)(step + 1) / (double)rate->warmup_steps;
  const double done = decays > 0 ? CLAMP ((double)decayed / (double)decays, 0.0, 1.0) : 1.0;
  return min + (lr - min) * left_of (rate->decay, done);
}
