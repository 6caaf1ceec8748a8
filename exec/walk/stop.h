/* A run that is asked to end does so between two steps: SIGTERM, which Slurm and others send some
 * time before they kill. A second one kills at once. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* From now on SIGTERM only sets what exec_stop_is_asked says. */
void exec_stop_watch (void);
gboolean exec_stop_is_asked (void);

G_END_DECLS
