/* fsdplan bench: ops of this machine timed one by one, printed and stored. */
#pragma once
#include "cli/io/context.h"
#include "cli/io/output.h"
#include "cli/run/train.h"
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* The command, in the program of a backend: an exit code, or CLI_FAILED with the error set, which
 * is the root's to print before any rank leaves: the caller closes out_process->comm. */
int cli_bench (int argc, char **argv, CliTraining *out_process, GError **error);

/* Times ops of so many ranks, each of so many threads, for some seconds, without the largest sizes,
 * and stores them; prints nothing. */
gboolean cli_bench_briefly (guint ranks, gint64 threads, const char *db, GError **error);

/* --workspaces, and the shapes of attention that cuDNN is asked about; each list NULL where it was
 * not given. */
typedef struct
{
  gboolean is_given;
  char *models, *seqs, *batches, *tps;
} CliAskOptions;

void cli_ask_options_clear (CliAskOptions *self);
void cli_ask_options_add (CliAskOptions *self, CliContext *context);

/* Asks, prints and stores the answers. `cluster` NULL: all architectures that are known. */
gboolean cli_ask_workspaces (const CliAskOptions *options, const PlanCluster *cluster,
                             gboolean is_dry, CliFormat format, const char *db, GError **error);

G_END_DECLS
