/* ExecIndexed: the parsed index (.idx) of a Megatron-LM data set, which describes the tokens in the
 * .bin beside it. Sequences follow one another without gaps, as Megatron-LM writes them, so the
 * .bin can be read as one run of tokens; other indices are refused. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint bytes; /* bytes of a token, which is little-endian */
  gboolean is_signed;
  guint64 tokens, sequences, documents;
  const guint8 *pointers; /* in the parsed data: where each sequence begins in the .bin, in bytes */
} ExecIndexed;

/* Parses an index and checks every field; INVALID names the field. `origin` is for messages. */
gboolean exec_indexed_parse (const void *data, gsize size, const char *origin,
                             ExecIndexed *out_indexed, GError **error);

/* The sequence that a token is in. */
guint64 exec_indexed_sequence_at (const ExecIndexed *self, guint64 token);

/* A sequence's first token, and the first one after it. */
guint64 exec_indexed_begin (const ExecIndexed *self, guint64 sequence);
guint64 exec_indexed_end (const ExecIndexed *self, guint64 sequence);

G_END_DECLS
