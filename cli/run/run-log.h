/* CliRunLog: logs a run while it goes on: as lines of JSON that fsdplan import and plot read, and
 * as TensorBoard's events.
 *
 * The lines are {"run": {...}}, then for each step {"step": ..., "loss": ...}, and at last {"end":
 * {...}}, with names as in db export. A resumed run appends to the same file. */
#pragma once
#include "db/runs.h"
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _CliRunLog CliRunLog;

/* Either of `path` and `tensorboard` may be NULL. */
CliRunLog *cli_run_log_new (const char *path, const char *tensorboard, GError **error);
void cli_run_log_free (CliRunLog *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliRunLog, cli_run_log_free)

gboolean cli_run_log_begin (CliRunLog *self, const DbRun *run, GError **error);

/* Logs a step of `tokens` tokens. When a log cannot be written any more, that is reported on
 * standard error and the run goes on without it. */
void cli_run_log_step (CliRunLog *self, const ExecStep *step, gint64 tokens);
void cli_run_log_end (CliRunLog *self, const char *state, const char *message,
                      gint64 measured_step_ns);

G_END_DECLS
