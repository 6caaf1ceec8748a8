/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens of a batch a rank reads, and how they come to its device; what its random numbers
 * are made of. */
#include "config.h"

#include "exec/walk/walk-private.h"

#include "exec/number/random.h"
#include "exec/walk/source.h"
#include "planner/schedule/sequence.h"

#include <string.h>

/* Copies the two pieces of a sequence that are this rank's. */
static void
copy_part (const PlanSequencePart *part, const gint32 *sequence, gint32 *out)
{
  for (guint i = 0; i < G_N_ELEMENTS (part->places); i++)
    memcpy (out + i * part->piece, sequence + part->places[i], part->piece * sizeof *out);
}

/* Reads this rank's part of a sequence by way of the whole one. */
static gboolean
read_part (const ExecWalk *walk, gboolean is_eval, gint64 first, gint32 *out_tokens,
           gint32 *out_targets, GError **error)
{
  const guint64 seq = (guint64)walk->of->plan.value[PLAN_SEQ],
                parts = (guint64)walk->of->plan.value[PLAN_CP];
  const guint64 rank = walk->part.place / (guint64)walk->of->plan.value[PLAN_TP];
  const PlanSequencePart part = plan_sequence_part (rank % parts, parts, seq / parts);
  g_autofree gint32 *tokens = g_new (gint32, seq), *targets = g_new (gint32, seq);
  if (!exec_source_sequence (walk->job, is_eval, first, tokens, targets, NULL, error))
    return FALSE;
  copy_part (&part, tokens, out_tokens);
  copy_part (&part, targets, out_targets);
  return TRUE;
}

/* Reads a sequence that lies on this rank as a whole. Stages that neither embed tokens nor compute
 * the loss need the places of tokens in their documents alone. */
static gboolean
read_whole (const ExecWalk *walk, gboolean is_eval, gint64 first, const ExecLoad *load, gint64 at,
            GError **error)
{
  const gint64 seq = walk->of->plan.value[PLAN_SEQ];
  g_autofree gint32 *unused = load->tokens ? NULL : g_new (gint32, 2 * seq);
  return exec_source_sequence (walk->job, is_eval, first, load->tokens ? load->tokens + at : unused,
                               load->tokens ? load->targets + at : unused + seq,
                               load->places ? load->places + at : NULL, error);
}

/* Reads the tokens of a micro batch. Sequences are assigned by micro batch, then by rank; ranks of
 * a tensor-parallel group, and all stages, read the same ones, those of a context-parallel group
 * parts of the same ones. */
gboolean
exec_walk_fill_batch (ExecWalk *walk, const ExecLoad *load, GError **error)
{
  const gint64 *value = walk->of->plan.value;
  const gint64 seq = value[PLAN_SEQ], mbs = value[PLAN_MBS], cp = value[PLAN_CP];
  const gint64 turn
      = (load->micro_batch * walk->part.ranks + walk->part.place) / (value[PLAN_TP] * cp);
  const gboolean is_eval = walk->trained != NULL;
  const gint64 batch = is_eval ? walk->eval_batch : walk->step;
  gint64 first = exec_source_first_token (walk->job, is_eval, batch) + turn * mbs * seq;
  if (load->start)
    *load->start = first;
  for (gint64 i = 0; (load->tokens || load->places) && i < mbs; i++, first += seq)
    {
      const gint64 at = i * seq / cp;
      if (cp > 1 ? !read_part (walk, is_eval, first, load->tokens + at, load->targets + at, error)
                 : !read_whole (walk, is_eval, first, load, at, error))
        return FALSE;
    }
  return TRUE;
}

/* Makes the key of a layer's random numbers, or, behind those of the layers, the embedding's. */
gboolean
exec_walk_init_key (const ExecWalk *walk, gint64 unit, void *out, GError **error)
{
  const ExecPart *part = &walk->part;
  const gboolean is_layer = unit < part->stage.layers;
  guint32 key[PLAN_RANDOM_KEY];
  exec_random_key (walk->job->seed, is_layer ? exec_part_layer (part, PLAN_BUCKET_LAYER, unit) : -1,
                   key);
  return exec_device_write (walk->device, out, key, sizeof key, error);
}

gboolean
exec_walk_load (ExecWalk *walk, const ExecArgs *args, GError **error)
{
  ExecDevice *device = walk->device;
  const guint64 row_bytes = (guint64)args->op->dims[PLAN_DIM_LOAD_rows] * sizeof (gint32);
  void *staged[PLAN_MAX_REFS] = { NULL };
  guint64 bytes[PLAN_MAX_REFS];
  for (guint i = 0; i < plan_op_n_refs (PLAN_OP_LOAD); i++)
    {
      bytes[i] = i == PLAN_REF_LOAD_start ? sizeof (gint64) : row_bytes;
      if (args->ptr[i] && !(staged[i] = device->ops->stage (device, bytes[i], error)))
        return FALSE;
    }
  const ExecLoad load = { .micro_batch = walk->micro_batch++,
                          .tokens = staged[PLAN_REF_LOAD_tokens],
                          .targets = staged[PLAN_REF_LOAD_targets],
                          .places = staged[PLAN_REF_LOAD_places],
                          .start = staged[PLAN_REF_LOAD_start] };
  if (!exec_walk_fill_batch (walk, &load, error))
    return FALSE;
  if (walk->kept.is_keeping)
    g_array_append_val (walk->kept.loads, load);
  for (guint i = 0; i < plan_op_n_refs (PLAN_OP_LOAD); i++)
    if (args->ptr[i]
        && !device->ops->put (device, args->ptr[i], staged[i], bytes[i], args->op->stream, error))
      return FALSE;
  return TRUE;
}
