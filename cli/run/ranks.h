/* The ranks of a run as users see them: where they are, whether they agree, how long each takes. */
#pragma once
#include "cli/run/train.h"
#include "exec/walk/stragglers.h"
#include <glib.h>
G_BEGIN_DECLS

/* Fails if this process is one of several that a launcher started without the means to join them;
 * `processes` names what would join them. */
gboolean cli_ranks_check_launcher (const char *processes, GError **error);

/* Opens this process's rank in MPI, for backends. If the other ranks have not started in time (0:
 * no limit), prints that and ends the process, because MPI has no deadline for it. */
ExecComm *cli_ranks_open_mpi (guint timeout_s, GError **error);

/* Finds where the ranks are, right after the communicator is open. This and the next two functions
 * fail on all ranks alike, with training->failed_together, unless a rank is missing. */
gboolean cli_ranks_meet (CliTraining *training, GError **error);

/* Checks that ranks placed by a launcher are where the plan's cluster, `asked`, wants them. */
gboolean cli_ranks_check_cluster (CliTraining *training, const PlanCluster *asked, GError **error);

/* Tells all ranks whether this one can begin; returns `can_begin`. out_failed_together: no rank
 * can. FALSE with the error where the others cannot be told. */
gboolean cli_ranks_vote (ExecComm *comm, gboolean can_begin, gboolean *out_failed_together,
                         GError **error);

/* Checks that sharding groups are inside hosts and that all ranks have the same settings. */
gboolean cli_ranks_agree (CliTraining *training, GError **error);

/* The settings that repeat a run, as lines of KEY=VALUE; the caller frees. */
char *cli_ranks_print_settings (const ExecJob *job);

/* Parses "--threads N"; 0 where it is absent. */
gboolean cli_ranks_parse_threads (const char *text, gint64 *out, GError **error);

/* Describes the machines that ranks are on, with `threads` threads per rank; 0: as many as each has
 * cores for. */
PlanCluster *cli_ranks_describe (guint ranks, const ExecPlacement *placement, gboolean shares,
                                 gint64 threads, GError **error);

/* Prints which ranks are slow: one line, and one for each straggler; nothing for a single rank. */
void cli_ranks_print (const CliTraining *training, const ExecRankTime *times);

/* Adds which ranks are slow as an object; null for a single rank. */
void cli_ranks_to_json (const CliTraining *training, const ExecRankTime *times,
                        JsonBuilder *builder);

G_END_DECLS
