/* Counts the inputs that were accepted, and keeps the last of them. An input that is refused at
 * once tests nothing but the refusal, so the mutator makes more inputs like the accepted ones. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* To be called once for each input. The counts are printed when the program ends in good order. */
void fuzz_count (gboolean is_accepted);

/* Tells the input that fuzz_count will count next, which is kept if it is accepted. */
void fuzz_announce (gconstpointer data, gsize size);

/* One of the last inputs that were announced and accepted, or NULL where there is none. */
GBytes *fuzz_accepted (guint which);

G_END_DECLS
