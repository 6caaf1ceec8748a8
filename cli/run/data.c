/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/data.h"

#include "exec/walk/source.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <math.h>
#include <stdio.h>

#define MAX_EPOCHS 1000000

static gboolean
check_options (const CliDataOptions *options, GError **error)
{
  if (options->epochs && options->steps)
    g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                         "--epochs and --steps each say how long the run is: use one");
  else if ((options->epochs || options->is_shuffled || options->shuffles_documents)
           && !options->data)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s needs --data FILE: synthetic text has neither an end nor an order",
                 options->epochs        ? "--epochs"
                 : options->is_shuffled ? "--shuffle"
                                        : "--shuffle-documents");
  else
    return TRUE;
  return FALSE;
}

/* The sequence of the data that a resumed run begins with: the one after those its checkpoint has
 * seen; the first one where the data is not the checkpoint's. */
static guint64
first_sequence (const CliTraining *self)
{
  const guint64 seq = (guint64)self->job.of->plan.value[PLAN_SEQ];
  if (!self->resume)
    return 0;
  g_autofree char *now = exec_blend_describe (self->tokens);
  if (g_strcmp0 (exec_checkpoint_setting (self->resume, "data"), now) != 0)
    return 0;
  return ((guint64)exec_checkpoint_tokens (self->resume) + seq - 1) / seq;
}

/* Turns --epochs into steps: as many as need no sequence beyond the last epoch. */
static gboolean
count_steps (CliTraining *self, const char *text, GError **error)
{
  gint64 epochs;
  if (!text)
    return TRUE;
  if (!plan_units_parse_int (text, "--epochs", 1, MAX_EPOCHS, &epochs, error))
    return FALSE;
  const gint64 gbs = self->job.of->plan.value[PLAN_GBS];
  const guint64 first = first_sequence (self);
  const guint64 all = exec_blend_sequences (self->tokens, (guint64)epochs);
  const gint64 left = all > first ? (gint64)(all - first) / gbs : 0;
  self->job.steps = (self->resume ? exec_checkpoint_step (self->resume) : 0) + left;
  if (self->job.steps > 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--epochs %" G_GINT64_FORMAT ": the data has %" G_GUINT64_FORMAT
               " sequences for it, and a step takes gbs=%" G_GINT64_FORMAT
               ": give more, or --steps",
               epochs, all, gbs);
  return FALSE;
}

/* Finds where documents end, if attention stays within them or their last tokens are masked. */
static gboolean
find_documents (CliTraining *self, const char *end, GError **error)
{
  const Plan *plan = &self->job.of->plan;
  ExecBlend *const blends[] = { self->tokens, self->eval_tokens };
  gint64 token = -1;
  const gboolean masks = exec_source_masks (&self->job);
  if (end && plan->value[PLAN_DOC_TOKENS] == 0 && !masks)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "--document-end: attention goes over whole sequences and every token is "
                           "learned: say how long documents are with --set doc_tokens=N, or --set "
                           "eod_mask_loss=on");
      return FALSE;
    }
  if (!end && masks)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "eod_mask_loss=on: say which token ends documents with --document-end "
                           "TOKEN");
      return FALSE;
    }
  if (end
      && !plan_units_parse_int (end, "--document-end", 0, self->job.of->model->vocab - 1, &token,
                                error))
    return FALSE;
  self->job.document_end = token;
  for (guint b = 0; plan->value[PLAN_DOC_TOKENS] > 0 && b < G_N_ELEMENTS (blends); b++)
    for (guint i = 0; blends[b] && i < blends[b]->sources->len; i++)
      {
        ExecTokens *tokens = g_array_index (blends[b]->sources, ExecBlendSource, i).tokens;
        if (token >= 0)
          exec_blend_set_end (blends[b], token);
        if (exec_tokens_has_documents (tokens))
          continue;
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "doc_tokens: %s has no index, which would say where documents end: say which "
                     "token ends one with --document-end TOKEN",
                     exec_tokens_path (tokens));
        return FALSE;
      }
  return TRUE;
}

gboolean
cli_data_open (CliTraining *self, const CliDataOptions *options, GError **error)
{
  ExecJob *job = &self->job;
  const gint64 seq = job->of->plan.value[PLAN_SEQ], vocab = job->of->model->vocab;
  if (!check_options (options, error)
      || (options->data
          && !(self->tokens = exec_blend_open (options->data, "--data", vocab, seq, error)))
      || (options->eval_data
          && !(self->eval_tokens
               = exec_blend_open (options->eval_data, "--eval-data", vocab, seq, error))))
    return FALSE;
  if (!find_documents (self, options->end, error))
    return FALSE;
  if (options->is_shuffled)
    exec_blend_shuffle (self->tokens, job->seed);
  if (options->shuffles_documents && !exec_blend_shuffle_documents (self->tokens, job->seed, error))
    return FALSE;
  self->data = g_strdup (options->data);
  job->tokens = self->tokens;
  job->eval_tokens = self->eval_tokens;
  return count_steps (self, options->epochs, error);
}

static void
say_of (const ExecBlend *blend, const char *who, guint64 sequences)
{
  for (guint i = 0; blend && i < blend->sources->len; i++)
    {
      const ExecTokens *tokens = g_array_index (blend->sources, ExecBlendSource, i).tokens;
      const guint64 has = exec_tokens_sequences (tokens);
      const guint64 takes = exec_blend_taken (blend, i, sequences);
      if (takes > has)
        fprintf (stderr,
                 "fsdplan: %s takes %" G_GUINT64_FORMAT " sequences of %" G_GINT64_FORMAT
                 " tokens from %s, which has %" G_GUINT64_FORMAT ": it is seen %.3g times\n",
                 who, takes, blend->seq, exec_tokens_path (tokens), has,
                 (double)takes / (double)has);
    }
}

/* Number of sequences of the data that the run needs, counting those before it was resumed. */
static guint64
sequences_of_run (const ExecJob *job)
{
  const gint64 gbs = job->of->plan.value[PLAN_GBS], seq = job->of->plan.value[PLAN_SEQ];
  return (guint64)((job->first_token + seq - 1) / seq + job->steps * gbs);
}

static guint64
sequences_of_evaluation (const ExecJob *job)
{
  return (guint64)(job->eval_batches * job->of->plan.value[PLAN_GBS]);
}

/* Documents of data that differ by more than this share from doc_tokens are reported. */
#define ALIKE 0.1

static void
say_documents (const ExecBlend *blend, gint64 expected)
{
  for (guint i = 0; blend && i < blend->sources->len; i++)
    {
      const ExecTokens *tokens = g_array_index (blend->sources, ExecBlendSource, i).tokens;
      const double found = exec_tokens_mean_document (tokens);
      if (found > 0 && fabs (found - (double)expected) > ALIKE * found)
        fprintf (stderr,
                 "fsdplan: the document that a token is in has %.0f tokens on average in %s, not "
                 "doc_tokens=%" G_GINT64_FORMAT ", by which the run is predicted\n",
                 found, exec_tokens_path (tokens), expected);
    }
}

void
cli_data_say (const CliTraining *self)
{
  const ExecJob *job = &self->job;
  const gint64 seq = job->of->plan.value[PLAN_SEQ], document = job->of->plan.value[PLAN_DOC_TOKENS];
  if (document > 0)
    say_documents (job->tokens, MIN (document, seq));
  g_autofree char *run
      = g_strdup_printf ("the run of %" G_GINT64_FORMAT " steps", job->first_step + job->steps);
  say_of (job->tokens, run, sequences_of_run (job));
  if (job->eval_every > 0)
    say_of (job->eval_tokens, "an evaluation", sequences_of_evaluation (job));
}

static void
add_sources (JsonBuilder *b, const char *name, const ExecBlend *blend, guint64 sequences)
{
  json_builder_set_member_name (b, name);
  json_builder_begin_array (b);
  for (guint i = 0; blend && i < blend->sources->len; i++)
    {
      const ExecTokens *tokens = g_array_index (blend->sources, ExecBlendSource, i).tokens;
      const guint64 has = exec_tokens_sequences (tokens);
      const guint64 takes = exec_blend_taken (blend, i, sequences);
      json_builder_begin_object (b);
      json_builder_set_member_name (b, "file");
      json_builder_add_string_value (b, exec_tokens_path (tokens));
      json_builder_set_member_name (b, "sequences");
      json_builder_add_int_value (b, (gint64)has);
      json_builder_set_member_name (b, "taken");
      json_builder_add_int_value (b, (gint64)takes);
      json_builder_set_member_name (b, "epochs");
      json_builder_add_double_value (b, (double)takes / (double)has);
      json_builder_end_object (b);
    }
  json_builder_end_array (b);
}

void
cli_data_to_json (const CliTraining *self, JsonBuilder *b)
{
  const ExecJob *job = &self->job;
  add_sources (b, "data", job->tokens, sequences_of_run (job));
  if (job->eval_every > 0)
    add_sources (b, "eval_data", job->eval_tokens, sequences_of_evaluation (job));
}
