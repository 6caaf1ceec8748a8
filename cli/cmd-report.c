/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/commands.h"
#include "cli/io/options.h"
#include "cli/query/query.h"
#include "cli/report/report-page.h"
#include "cli/report/report-run.h"
#include "planner/base/error.h"

/* Checks the options: -o must be there, and those that only query can answer must not. */
static gboolean
check_request (const CliOptions *options, char *const *clusters, const char *path, GError **error)
{
  g_auto (GStrv) stacks = cli_query_stacks (options->set);
  if (!path)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "report: -o FILE is needed: where the page goes; - is standard output");
  else if (options->from_megatron)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "report: --from-megatron is for query, which says what is better than that "
                 "command; here give --model, --cluster and --gbs");
  else if (clusters || stacks)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "report: several %s are compared by query: a report is of one",
                 clusters ? "--cluster" : "stacks");
  else
    return TRUE;
  return FALSE;
}

/* Writes the page of a stored run. Model, cluster and plan are stored with it and must not be
 * given. */
static gboolean
report_run (CliOptions *options, const char *id, const char *path, GError **error)
{
  g_auto (CliStoredRun) run = { 0 };
  if (options->model || options->cluster || options->plan || options->gbs || options->seq
      || options->mbs || options->set || options->hw)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "report: --run is a stored run, whose plan is stored with it: leave out the "
                   "model, the cluster and the plan");
      return FALSE;
    }
  if (!cli_stored_run_load (options, id, &run, error))
    return FALSE;
  g_autofree char *page = cli_report_run (&run, options, error);
  return page && cli_write (path, page, error);
}

int
cmd_report (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (AdviseInput) input = { 0 };
  g_auto (CliQuestion) asked = { 0 };
  g_auto (AdviseQuery) query = { 0 };
  g_autofree char *path = NULL, *run = NULL;
  AdviseChoice choice;
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &path,
      "where the page goes, which is needed; - is standard output", "FILE" },
    { "run", 0, 0, G_OPTION_ARG_STRING, &run,
      "a stored run in place of a question: predicted beside measured, losses, a step", "ID" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new (NULL, "what query answers, or a run, as one page of HTML with pictures");
  cli_context_describe (
      context,
      "The page has all that it shows in it, needs no network, and runs no program: the "
      "answers with reasons, the front of memory and time, where time and memory of the "
      "best go, how sure that is, and what starts it. With --run it is about a stored run. "
      "gnuplot draws.");
  cli_context_add (context, entries);
  cli_question_add_options (&asked, context);
  cli_options_add (&options, context);
  g_auto (GStrv) clusters = cli_query_clusters (argc, argv);
  asked.question.words = cli_query_words (argc, argv);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  asked.question.set = options.set;
  asked.question.db = options.db;
  if (!check_request (&options, clusters, path, error))
    return CLI_FAILED;
  if (run)
    return report_run (&options, run, path, error) ? CLI_DONE : CLI_FAILED;
  if (!cli_question_read (&asked, error) || !cli_input_read (&options, NULL, &input, error)
      || !cli_query_check (&input, error)
      || !cli_query_ask (&choice, &asked.question, &input, &query, error))
    return CLI_FAILED;
  g_autofree char *page = cli_report_page (&query, &choice, error);
  return page && cli_write (path, page, error) ? CLI_DONE : CLI_FAILED;
}
