/* What the floors below have to say while a run goes on (g_message): each sentence once on standard
 * error, however many ranks of this process say it, and kept with the run's record. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* From now on; a rank that is not the root's keeps silent. */
void cli_told_begin (gboolean is_root);

/* All of it so far, a line each; NULL: nothing. The caller frees. */
char *cli_told_text (void);

G_END_DECLS
