/* Ends a run between two steps on SIGTERM, which Slurm and others send some time before they kill.
 * A second SIGTERM kills the process at once. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Installs the handler: from now on SIGTERM only makes exec_stop_is_asked return TRUE. */
void exec_stop_watch (void);
gboolean exec_stop_is_asked (void);

G_END_DECLS
