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
} ExecIndexed;

/* Checks every field; INVALID names it. `origin` is for the message. */
gboolean exec_indexed_parse (const void *data, gsize size, const char *origin,
                             ExecIndexed *out_indexed, GError **error);

G_END_DECLS
