/* fsdplan bench: times ops on this machine one by one, prints and stores them. */
#pragma once
#include "cli/io/context.h"
#include "cli/io/output.h"
#include "cli/run/train.h"
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* Runs the command in a backend's program. Returns an exit code, or CLI_FAILED with the error set,
 * which the caller prints on rank 0 before any rank leaves; it also closes out_process->comm. */
int cli_bench (int argc, char **argv, CliTraining *out_process, GError **error);

/* Times ops for some seconds, for `ranks` ranks with `threads` threads each, without the largest
 * sizes, and stores them; prints nothing. */
gboolean cli_bench_briefly (guint ranks, gint64 threads, const char *db, GError **error);

/* The options of --workspaces: shapes of attention to ask cuDNN about. A list is NULL where it was
 * not given. */
typedef struct
{
  gboolean is_given;
  char *models, *seqs, *batches, *tps;
} CliAskOptions;

void cli_ask_options_clear (CliAskOptions *self);
void cli_ask_options_add (CliAskOptions *self, CliContext *context);

/* Asks cuDNN, prints and stores the answers. `cluster` NULL: for all compute capabilities that it
 * knows. */
gboolean cli_ask_workspaces (const CliAskOptions *options, const PlanCluster *cluster,
                             gboolean is_dry, CliFormat format, const char *db, GError **error);

G_END_DECLS
