/* CliWatch: who waits for a command: how often they see how far it is, and how they end it. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define CLI_INTERRUPTED 130 /* exit status: 128 and the number of SIGINT, as shells have it */

/* Whether a line of progress may be drawn now: standard error is a terminal, and a tenth of a
 * second has gone by since the last. Also while threads take turns. */
gboolean cli_watch_is_due (void);

/* Removes that line. */
void cli_watch_erase (void);

/* From here on Ctrl-C asks the command to end in good order; a second one ends it at once.
 * Whoever started it with SIGINT ignored does not want to end it. */
void cli_watch_interrupts (void);
gboolean cli_watch_is_interrupted (void);

/* The error that says so: STOPPED, "interrupted: ...". */
gboolean cli_watch_refuse (const char *what_is_known, GError **error);

G_END_DECLS
