/* Fuzz: texts like a whole and valid one, with some of its cells, keys and lines changed. Bytes
 * that are changed at random seldom get past the first check; these do. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* The same for the same seed; the caller frees. */
char *fuzz_mutate (const char *text, gsize length, guint32 seed, gsize *out_length);

/* The text with one word empty, of quoted texts what is in the quotes; NULL where there are not as
 * many. */
char *fuzz_empty (const char *text, gsize length, guint word, gsize *out_length);

guint fuzz_count_words (const char *text, gsize length);

G_END_DECLS
