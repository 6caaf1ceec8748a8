/* Fuzz: how many inputs were accepted. One that is refused at the door tests nothing behind it, so
 * that of the last ones that were not more are made. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Once for each input. The counts are printed when the program ends in good order. */
void fuzz_count (gboolean is_accepted);

/* What will be counted next. */
void fuzz_announce (gconstpointer data, gsize size);

/* One of the last inputs that were announced and accepted; NULL: there is none. */
GBytes *fuzz_accepted (guint which);

G_END_DECLS
