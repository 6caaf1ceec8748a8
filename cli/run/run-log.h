/* CliRunLog: what a run does, line by line as it does it: JSON that fsdplan import and plot read,
 * and TensorBoard's events.
 *
 * Lines are {"run": {...}}, then of each step {"step": ..., "loss": ...}, then {"end": {...}}: in
 * columns as db export has them. Who resumes a run appends to the same file. */
#pragma once
#include "db/runs.h"
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _CliRunLog CliRunLog;

/* Either may be NULL. */
CliRunLog *cli_run_log_new (const char *path, const char *tensorboard, GError **error);
void cli_run_log_free (CliRunLog *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliRunLog, cli_run_log_free)

gboolean cli_run_log_begin (CliRunLog *self, const DbRun *run, GError **error);

/* `tokens` of a step. A log that cannot be written to ends with words on standard error, and the
 * run goes on. */
void cli_run_log_step (CliRunLog *self, const ExecStep *step, gint64 tokens);
void cli_run_log_end (CliRunLog *self, const char *state, const char *message,
                      gint64 measured_step_ns);

G_END_DECLS
