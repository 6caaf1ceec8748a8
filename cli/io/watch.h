/* CliWatch: shows the user progress, and lets them interrupt. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define CLI_INTERRUPTED 130 /* exit status: 128 + SIGINT, as in shells */

/* Whether to draw a line of progress now: if standard error is a terminal and a tenth of a second
 * has passed since the last one. Any thread may call it, but only one at a time. */
gboolean cli_watch_is_due (void);

/* Erases the line of progress. */
void cli_watch_erase (void);

/* From now on Ctrl-C asks the command to end in good order; a second one ends it at once. Has no
 * effect where SIGINT is ignored: whoever started the command that way does not want it to be
 * interrupted. */
void cli_watch_interrupts (void);
gboolean cli_watch_is_interrupted (void);

/* Sets the error STOPPED; its message is "interrupted: " with `what_is_known` behind it. Always
 * returns FALSE. */
gboolean cli_watch_refuse (const char *what_is_known, GError **error);

G_END_DECLS
