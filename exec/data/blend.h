/* ExecBlend: the text of a run: one source of tokens, or several that are seen in shares, in order
 * or shuffled. Which sequence comes when is a function of its number alone, so that every number of
 * ranks sees the same run and a resumed one goes on where it was.
 *
 * Of `period` sequences in a row a source has as many as its share. After any number of them it has
 * had less than one more, and less than one fewer, than its part of that number: its next one is
 * due from floor (k * period / share) on, and before ceil ((k + 1) * period / share); of those that
 * are due the one whose time ends first comes. Every source has epochs of its own. */
#pragma once
#include "exec/data/tokens.h"
#include <glib.h>
G_BEGIN_DECLS

/* Weights are told apart to this part of their sum. */
#define EXEC_BLEND_MAX_PERIOD 1000000

typedef struct
{
  ExecTokens *tokens;
  guint64 share;        /* of `period`: no divisor is common to all */
  ExecOrder *orders[2]; /* of its documents, in the last epochs that were asked for; or NULL */
} ExecBlendSource;

typedef struct
{
  gint64 seq;
  GArray *sources; /* ExecBlendSource */
  guint64 period;
  struct
  {
    guint32 source, number; /* of its sequences in this period */
  } * turns;                /* [period] */
  gint64 end;               /* token that ends a document; -1: none that was said */
  gboolean is_shuffled, shuffles_documents;
  GMutex mutex; /* guards the sources' orders */
  guint64 seed; /* of the order, where it is shuffled */
} ExecBlend;

/* `spec` is a path, or WEIGHT:PATH,WEIGHT:PATH...: a comma ends a path where a weight and a colon
 * follow. `what` names it in messages. */
ExecBlend *exec_blend_open (const char *spec, const char *what, gint64 vocab, gint64 seq,
                            GError **error);
void exec_blend_free (ExecBlend *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecBlend, exec_blend_free)

/* From now on sequences come in the seed's order, each source's anew in every epoch. */
void exec_blend_shuffle (ExecBlend *self, guint64 seed);

/* Documents, too, before sequences are cut out of them: as Megatron-LM's GPTDataset does, but epoch
 * by epoch. INVALID where a source has no index. */
gboolean exec_blend_shuffle_documents (ExecBlend *self, guint64 seed, GError **error);

/* How many of the first `sequences` are of a source. */
guint64 exec_blend_taken (const ExecBlend *self, guint source, guint64 sequences);

/* How many come before some source is seen more than `epochs` times. */
guint64 exec_blend_sequences (const ExecBlend *self, guint64 epochs);

/* What tells the data, and its order, from others; the caller frees. */
char *exec_blend_describe (const ExecBlend *self);

/* From now on documents of all sources end with this token; see ExecTokens. */
void exec_blend_set_end (ExecBlend *self, gint64 token);

/* The sequence at a token, counted over all sources from where training began, and next tokens;
 * places in documents, unless that is NULL. Only one source in order can be entered within a
 * sequence: elsewhere the next whole one comes. */
gboolean exec_blend_read (const ExecBlend *self, guint64 first, gint32 *out_tokens,
                          gint32 *out_targets, gint32 *out_places, GError **error);

G_END_DECLS
