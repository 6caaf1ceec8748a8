/* Makes texts like a valid one, with some of its cells, keys and lines changed. A text with bytes
 * changed at random seldom gets past the first check of a parser; these do. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* The same seed makes the same text; the caller frees. */
char *fuzz_mutate (const char *text, gsize length, guint32 seed, gsize *out_length);

/* The text without its word of that number; of a quoted text the quotes stay. NULL where the text
 * has fewer words. */
char *fuzz_empty (const char *text, gsize length, guint word, gsize *out_length);

guint fuzz_count_words (const char *text, gsize length);

G_END_DECLS
