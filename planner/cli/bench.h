/* fsdplan bench: ops of this machine timed one by one, printed and stored. */
#pragma once
#include "planner/cli/train.h"
#include <glib.h>
G_BEGIN_DECLS

/* The command, in the program of a backend: an exit code, or CLI_FAILED with the error set, which
 * is the root's to print before any rank leaves: the caller closes out_process->comm. */
int cli_bench (int argc, char **argv, CliTraining *out_process, GError **error);

G_END_DECLS
