/* CliLimits: a limit of the system that strikes while the program runs becomes an error of the call
 * that met it, or ends the program with a message. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* From now on, writing beyond a file size limit fails like writing to a full disk. Lack of memory,
 * threads that cannot be started and a mapped file that was truncated end the program with a
 * message and exit status 1. An address space limit below `address_space` bytes ends it so at
 * once. */
void cli_limits_begin (guint64 address_space);

G_END_DECLS
