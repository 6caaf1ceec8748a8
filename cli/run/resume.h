/* Resuming: compares the settings that a checkpoint records with those of the run that reads it. */
#pragma once
#include "cli/run/train.h"
#include <glib.h>
G_BEGIN_DECLS

/* "NAME=VALUE" of all settings that the state or the place in the data depend on, ended by NULL.
 * The caller frees. */
char **cli_resume_settings (const ExecJob *job);

/* Continues from the open checkpoint: takes its step and its place in the data. Settings that
 * differ are reported on rank 0; those that would make state or place mean something else are
 * refused unless `is_forced`. */
gboolean cli_resume_take_up (CliTraining *self, gboolean is_forced, GError **error);

G_END_DECLS
