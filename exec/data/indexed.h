/* ExecIndexed: what the index (.idx) of one of Megatron-LM's data sets says of the tokens in the
 * .bin beside it. Sequences lie there one behind the other, as its writers lay them, so that their
 * concatenation is the file itself; an index that says otherwise is refused. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint bytes; /* of a token, little-endian */
  gboolean is_signed;
  guint64 tokens, sequences, documents;
  const guint8 *pointers; /* in the data that was parsed: where each sequence begins, in bytes */
} ExecIndexed;

/* Checks every field; INVALID names it. `origin` is for the message. */
gboolean exec_indexed_parse (const void *data, gsize size, const char *origin,
                             ExecIndexed *out_indexed, GError **error);

/* The last sequence that begins at a token or before it. */
guint64 exec_indexed_sequence_at (const ExecIndexed *self, guint64 token);

/* A sequence's first token, and the one behind its last. */
guint64 exec_indexed_begin (const ExecIndexed *self, guint64 sequence);
guint64 exec_indexed_end (const ExecIndexed *self, guint64 sequence);

G_END_DECLS
