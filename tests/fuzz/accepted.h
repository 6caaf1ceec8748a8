/* Fuzz: how many inputs were accepted. One that is refused at the door tests nothing behind it. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Once for each input. The counts are printed when the program ends in good order. */
void fuzz_count (gboolean is_accepted);

G_END_DECLS
