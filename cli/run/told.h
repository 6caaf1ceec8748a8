/* Collects messages of the libraries (g_message) during a run. Each is printed once on standard
 * error, however many ranks of this process send it, and stored with the run. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Begins to collect. Only rank 0's process prints. */
void cli_told_begin (gboolean is_root);

/* All messages so far, one per line; NULL: none. The caller frees. */
char *cli_told_text (void);

G_END_DECLS
