/* Resuming: the settings that a checkpoint records beside those of the run that reads it. */
#pragma once
#include "cli/run/train.h"
#include <glib.h>
G_BEGIN_DECLS

/* "NAME=VALUE" of all that the state or the place in the data depend on; NULL at the end. The
 * caller frees. */
char **cli_resume_settings (const ExecJob *job);

/* Takes up the checkpoint that is opened: its step, and its place in the data. What differs is said
 * on rank 0; what would make state or place mean something else is refused unless `is_forced`. */
gboolean cli_resume_take_up (CliTraining *self, gboolean is_forced, GError **error);

G_END_DECLS
