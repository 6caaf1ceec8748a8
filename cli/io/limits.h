/* CliLimits: makes limits of the system that strike while the program runs end it with a
 * message. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* From now on, writing beyond a file size limit fails like writing to a full disk. Lack of memory,
 * threads that cannot be started and a mapped file that was truncated end the program with a
 * message and exit status 1; so does, at once, an address space limit below `address_space`
 * bytes. */
void cli_limits_begin (guint64 address_space);

G_END_DECLS
