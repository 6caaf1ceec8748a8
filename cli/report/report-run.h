/* The HTML page about a stored run. */
#pragma once
#include "cli/plot/plot-run.h"
G_BEGIN_DECLS

/* The page of a run. It has the run's traces if they were stored and can be drawn, else the reason.
 * The caller frees. */
char *cli_report_run (CliStoredRun *run, const CliOptions *options, GError **error);

G_END_DECLS
