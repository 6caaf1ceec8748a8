/* The page of HTML that tells all about a stored run. */
#pragma once
#include "cli/plot/plot-run.h"
G_BEGIN_DECLS

/* Traces are in it where they were kept and can be drawn; else it says why not. The caller frees.
 */
char *cli_report_run (CliStoredRun *run, const CliOptions *options, GError **error);

G_END_DECLS
