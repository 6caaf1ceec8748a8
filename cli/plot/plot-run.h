/* CliStoredRun: a run of the store, with what it was predicted to do. */
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
  PlanSchedule *schedule; /* NULL until its traces are loaded, like the next */
  PlanTrace *simulated, *measured;
  GArray *stages; /* PlanTraceView: what was measured of a pipeline's; NULL: there is none */
  char *title;
} CliStoredRun;

void cli_stored_run_clear (CliStoredRun *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliStoredRun, cli_stored_run_clear)

/* What --run ID names, in the store of `options`, whose plan it becomes. */
gboolean cli_stored_run_load (CliOptions *options, const char *id, CliStoredRun *out,
                              GError **error);

/* One step as simulated and as measured: what was kept of it, if the schedule is still that. */
gboolean cli_stored_run_load_traces (const CliOptions *options, CliStoredRun *self, GError **error);

G_END_DECLS
