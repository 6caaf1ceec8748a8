/* The ranks of a run as a user sees them: where they lie, whether they agree, how long each takes.
 */
#pragma once
#include "cli/run/train.h"
#include "exec/walk/stragglers.h"
#include <glib.h>
G_BEGIN_DECLS

/* That this process is not one of many that do not know of one another: a launcher may have started
 * them without what would join them, as `processes` names it. */
gboolean cli_ranks_check_launcher (const char *processes, GError **error);

/* This process's rank of those that a launcher started. Whoever waits longer than that for others
 * to start (0: for ever) says so and ends: no library that joins processes has a deadline for it.
 */
ExecComm *cli_ranks_open (guint timeout_s, GError **error);

/* Once there is a communicator, and before anything else is done with it. What fails here and in
 * the next two fails on all ranks alike, training->failed_together, unless a rank is missing. */
gboolean cli_ranks_meet (CliTraining *training, GError **error);

/* Whether ranks that a launcher placed lie as a plan that was made for `asked` wants them. */
gboolean cli_ranks_check_cluster (CliTraining *training, const PlanCluster *asked, GError **error);

/* Tells the others whether this rank can begin, and returns it; what none of them can has failed
 * together. FALSE with the error where the others cannot be told. */
gboolean cli_ranks_vote (ExecComm *comm, gboolean can_begin, gboolean *out_failed_together,
                         GError **error);

/* Whether groups that shard lie inside hosts, and all ranks are to do the same. */
gboolean cli_ranks_agree (CliTraining *training, GError **error);

/* How to repeat a run, as lines of KEY=VALUE; the caller frees. */
char *cli_ranks_print_settings (const ExecJob *job);

/* "--threads N": 0 where it is absent. */
gboolean cli_ranks_parse_threads (const char *text, gint64 *out, GError **error);

/* The machines that ranks lie on; each has so many threads, or for 0 those that it has cores for.
 */
PlanCluster *cli_ranks_describe (guint ranks, const ExecPlacement *placement, gboolean shares,
                                 gint64 threads, GError **error);

/* Who is slow: a line, or one more for each straggler; nothing for one rank. */
void cli_ranks_print (const CliTraining *training, const ExecRankTime *times);

/* The same as an object, or null. */
void cli_ranks_to_json (const CliTraining *training, const ExecRankTime *times,
                        JsonBuilder *builder);

G_END_DECLS
