/* ExecBlend: the training data of a run: one source of tokens, or several that are mixed by weight,
 * in order or shuffled. Which sequence comes when depends on its number alone, so any number of
 * ranks sees the same run, and a resumed run goes on where it was.
 *
 * Of every `period` sequences a source gives as many as its share, evenly spread: its k-th one
 * (from 0) may come from turn floor (k * period / share) on, and before ceil ((k + 1) * period /
 * share). At each turn, of the sources that may come, the one whose
 * interval ends first comes. So the
 * number of sequences taken from a source never differs from its exact part by one or more. Every
 * source has epochs of its own. */
#pragma once
#include "exec/data/tokens.h"
#include <glib.h>
G_BEGIN_DECLS

/* Longest period: weights are rounded to this fraction of their sum. */
#define EXEC_BLEND_MAX_PERIOD 1000000

typedef struct
{
  ExecTokens *tokens;
  guint64 share;        /* of `period`; shares have no common divisor */
  ExecOrder *orders[2]; /* of its documents, in the latest two epochs; NULL: not made */
} ExecBlendSource;

typedef struct
{
  gint64 seq;
  GArray *sources; /* ExecBlendSource */
  guint64 period;
  struct
  {
    guint32 source, number; /* its sequence in this period */
  } * turns;                /* [period] */
  gint64 end;               /* token that ends a document; -1: none was given */
  gboolean is_shuffled, shuffles_documents;
  GMutex mutex; /* guards the sources' orders */
  guint64 seed; /* of shuffling */
} ExecBlend;

/* Opens PATH, or WEIGHT:PATH,WEIGHT:PATH... where a comma ends a path only if a weight and a colon
 * follow. `what` names the data in messages. */
ExecBlend *exec_blend_open (const char *spec, const char *what, gint64 vocab, gint64 seq,
                            GError **error);
void exec_blend_free (ExecBlend *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecBlend, exec_blend_free)

/* Shuffles the sequences of each source, anew in every epoch. */
void exec_blend_shuffle (ExecBlend *self, guint64 seed);

/* Shuffles documents, before sequences are cut out of them, and sequences: as Megatron-LM's
 * GPTDataset does, but anew in every epoch. INVALID where a source has no index. */
gboolean exec_blend_shuffle_documents (ExecBlend *self, guint64 seed, GError **error);

/* How many of the first `sequences` sequences come from a source. */
guint64 exec_blend_taken (const ExecBlend *self, guint source, guint64 sequences);

/* How many sequences come before any source is read more than `epochs` times. */
guint64 exec_blend_sequences (const ExecBlend *self, guint64 epochs);

/* A text that identifies the data and its order; the caller frees. */
char *exec_blend_describe (const ExecBlend *self);

/* Sets the token that ends documents in all sources; see ExecTokens. */
void exec_blend_set_end (ExecBlend *self, gint64 token);

/* Reads the sequence at token `first`, counted over all sources from the start of training: its
 * tokens, the next tokens, and, unless out_places is NULL, each token's place in its document. If
 * `first` is inside of a sequence, the next whole one is read, except from a single source that is
 * not shuffled. */
gboolean exec_blend_read (const ExecBlend *self, guint64 first, gint32 *out_tokens,
                          gint32 *out_targets, gint32 *out_places, GError **error);

G_END_DECLS
