/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/workspaces.h"
#include "cli/io/commands.h"
#include "cli/io/options.h"
#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/lower/lower.h"

#include <stdio.h>

int
cmd_lower (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (AdviseInput) input = { 0 };
  g_autoptr (PlanCase) of = NULL;
  g_autofree char *asked = NULL;
  gint64 rank = 0;
  const GOptionEntry entries[] = {
    { "rank", 0, 0, G_OPTION_ARG_STRING, &asked, "the rank whose schedule it is; 0 by default",
      "N" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context = cli_context_new (NULL, "print a plan's schedule");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if ((asked && !plan_units_parse_int (asked, "--rank", 0, G_MAXINT32, &rank, error))
      || !cli_input_read (&options, NULL, &input, error)
      || !(of = advise_case (&input, &input.plan, error)))
    return CLI_FAILED;
  const gint64 ranks = plan_cluster_devices (of->cluster);
  if (rank >= ranks)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--rank: this plan has ranks 0 to %" G_GINT64_FORMAT, ranks - 1);
      return CLI_FAILED;
    }
  g_autoptr (PlanSchedule) schedule = plan_lower (of, (guint)rank, error);
  if (!schedule)
    return CLI_FAILED;
  g_autofree char *text = plan_schedule_print (schedule);
  fputs (text, stdout);
  return CLI_DONE;
}
