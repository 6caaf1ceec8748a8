/* CliLimits: what the machine refuses in the middle of something ends in a sentence. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* From here on writing beyond a quota of file sizes fails as writing to a full disk does. Too
 * little memory, threads that cannot be started, and a mapped file that has become shorter end the
 * program with a message and exit status 1; a limit of less than `address_space` bytes does so at
 * once. */
void cli_limits_begin (guint64 address_space);

G_END_DECLS
