/* CliStoredRun: a run of the store, with its prediction. */
#pragma once
#include "cli/io/options.h"
#include "db/runs.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
G_BEGIN_DECLS

typedef struct
{
  DbRun row;
  GArray *steps; /* DbStep */
  AdviseInput input;
  PlanSchedule *schedule; /* NULL until traces are loaded, as are simulated and measured */
  PlanTrace *simulated, *measured;
  GArray *stages;           /* PlanTraceView: measured traces of the stages; NULL: no pipeline */
  GArray *simulated_stages; /* PlanTraceView: simulated traces; the schedules are those of stages */
  char *title;
} CliStoredRun;

void cli_stored_run_clear (CliStoredRun *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliStoredRun, cli_stored_run_clear)

/* Loads the run that --run ID names; sets the plan of `options` to the run's. */
gboolean cli_stored_run_load (CliOptions *options, const char *id, CliStoredRun *out,
                              GError **error);

/* Loads the simulated and the measured trace of a step. UNSUPPORTED if this version lowers the plan
 * to another schedule. */
gboolean cli_stored_run_load_traces (const CliOptions *options, CliStoredRun *self, GError **error);

/* Draws the timeline of that step; of a pipeline, the timeline of each stage. */
gboolean cli_stored_run_plot_timeline (const CliStoredRun *self, const char *path, char **out_text,
                                       GError **error);

G_END_DECLS
