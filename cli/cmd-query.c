/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/commands.h"
#include "cli/io/config.h"
#include "cli/io/options.h"
#include "cli/query/query.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <string.h>

/* Options beyond those of the plan. */
typedef struct
{
  CliQuestion asked;
  char *explain, *max, *step;
  CliSizes sizes;
} Request;

static void
request_clear (Request *self)
{
  cli_question_clear (&self->asked);
  g_free (self->explain);
  g_free (self->max);
  g_free (self->step);
  g_free (self->sizes.gpus);
  g_free (self->sizes.tokens);
  g_free (self->sizes.deadline);
  g_free (self->sizes.price);
  g_free (self->sizes.budget);
  g_free (self->sizes.goodput);
  g_strfreev (self->sizes.clusters);
  g_strfreev (self->sizes.stacks);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Request, request_clear)

static gboolean
answer (const Request *request, const AdviseInput *input, CliFormat format, GError **error)
{
  g_auto (AdviseQuery) query = { 0 };
  AdviseChoice choice;
  if (!cli_query_ask (&choice, &request->asked.question, input, &query, error))
    return FALSE;
  advise_query_try (&choice, &query);
  cli_query_print (&query, &choice, format);
  return TRUE;
}

/* Appends the changes of --hw to the specification of each cluster. */
static void
change_clusters (char **specs, char *const *hw)
{
  for (; specs && *specs; specs++)
    {
      g_autofree char *spec = *specs;
      *specs = advise_cluster_words (spec, hw);
    }
}

/* Fields that define the task; a plan with other values would not do the same training. */
static const PlanField tasks[] = { PLAN_STACK,       PLAN_NCCL,           PLAN_GBS,
                                   PLAN_SEQ,         PLAN_OPTIMIZER,      PLAN_PER_TOKEN_LOSS,
                                   PLAN_NAN_CHECK,   PLAN_TASK,           PLAN_DETERMINISTIC,
                                   PLAN_MAIN_PARAMS, PLAN_HIDDEN_DROPOUT, PLAN_ATTENTION_DROPOUT,
                                   PLAN_DOC_TOKENS,  PLAN_EOD_MASK_LOSS };

static void
keep_task (const Plan *mine, Plan *plan)
{
  for (guint i = 0; i < G_N_ELEMENTS (tasks); i++)
    plan->value[tasks[i]] = mine->value[tasks[i]];
}

/* The fields with number formats, each with the class of --allow that lets it change. */
static const struct
{
  PlanField field;
  PlanAllow allow;
} formats[] = { { PLAN_COMPUTE, PLAN_ALLOW_LOWBIT },   { PLAN_PARAM_GATHER, PLAN_ALLOW_LOWBIT },
                { PLAN_MAIN_GRADS, PLAN_ALLOW_MIXED }, { PLAN_GRAD_COMM, PLAN_ALLOW_MIXED },
                { PLAN_EXP_AVG, PLAN_ALLOW_MOMENTS },  { PLAN_EXP_AVG_SQ, PLAN_ALLOW_MOMENTS } };

/* Makes the choice for comparison with a plan that the user has: plans for the same task, in the
 * same number formats except where --allow opens a class of others. */
static gboolean
choose_like (const Request *request, const CliOptions *options, const Plan *mine,
             AdviseInput *input, AdviseChoice *out, GError **error)
{
  plan_init (&input->plan);
  keep_task (mine, &input->plan);
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    input->plan.value[formats[i].field] = mine->value[formats[i].field];
  for (char **s = options->set; s && *s; s++)
    if (!cli_set_field (&input->plan, "--set", *s, error))
      return FALSE;
  if (!cli_query_choose (out, &request->asked.question, input, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    if (out->allow >> formats[i].allow & 1)
      out->pinned[formats[i].field] = FALSE;
  return TRUE;
}

/* Sets the fields given as "FIELD=VALUE,…". */
static gboolean
apply_settings (const char *text, Plan *plan, GError **error)
{
  g_auto (GStrv) settings = g_strsplit (text, ",", -1);
  for (char **s = settings; *s; s++)
    if (!cli_set_field (plan, "--explain", *s, error))
      return FALSE;
  return TRUE;
}

static gboolean
is_settings (const char *text)
{
  return strchr (text, '=') && text[0] != '@' && !g_file_test (text, G_FILE_TEST_EXISTS);
}

/* Explains why a plan that the user has is not the best. */
static gboolean
explain (const Request *request, const CliOptions *options, AdviseInput *input, CliFormat format,
         GError **error)
{
  Plan mine = input->plan;
  AdviseChoice choice;
  if (request->explain && is_settings (request->explain))
    {
      if (!apply_settings (request->explain, &mine, error))
        return FALSE;
      keep_task (&mine, &input->plan);
      if (!cli_query_choose (&choice, &request->asked.question, input, error))
        return FALSE;
    }
  else if (!choose_like (request, options, &mine, input, &choice, error))
    return FALSE;
  return cli_query_explain (&choice, &mine, format, error);
}

static gboolean
asks_for_sizes (const CliSizes *sizes)
{
  return sizes->clusters || sizes->stacks || sizes->gpus || sizes->tokens || sizes->deadline
         || sizes->price || sizes->budget || sizes->goodput;
}

static gboolean
check_request (const Request *request, const CliOptions *options, GError **error)
{
  if (request->max && strcmp (request->max, "seq") != 0 && strcmp (request->max, "mbs") != 0)
    {
      g_autofree char *shown = plan_text_quote (request->max);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--max: %s is neither seq nor mbs",
                   shown);
      return FALSE;
    }
  if (request->step && g_strcmp0 (request->max, "seq") != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--step is for --max seq");
      return FALSE;
    }
  if ((request->explain || options->from_megatron) + (request->max != NULL)
          + asks_for_sizes (&request->sizes)
      > 1)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--explain, --from-megatron, --max, and --gpus, --tokens, several --cluster or "
                   "several stacks are questions of their own: ask one");
      return FALSE;
    }
  if (request->explain && !is_settings (request->explain)
      && (options->plan || options->from_megatron))
    {
      g_autofree char *shown = plan_text_quote (request->explain);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--explain: %s is a plan of its own: leave out %s, or give FIELD=VALUE,…", shown,
                   options->plan ? "--plan" : "--from-megatron");
      return FALSE;
    }
  return TRUE;
}

static gboolean
ask (const Request *request, const CliOptions *options, AdviseInput *input, CliFormat format,
     GError **error)
{
  gint64 step = 1024;
  if (request->step && !plan_units_parse_int (request->step, "--step", 1, G_MAXINT32, &step, error))
    return FALSE;
  if (request->explain || options->from_megatron)
    return explain (request, options, input, format, error);
  if (request->max)
    return cli_query_largest (&request->asked.question, input, request->max, step, format, error);
  if (asks_for_sizes (&request->sizes))
    return cli_query_sizes (&request->asked.question, &request->sizes, input, format, error);
  return answer (request, input, format, error);
}

static void
add_options (Request *request, CliContext *context)
{
  const GOptionEntry entries[] = {
    { "explain", 0, 0, G_OPTION_ARG_STRING, &request->explain,
      "why this plan is not the best, and which one change of it helps most: a plan file, @ID, or "
      "FIELD=VALUE,…",
      "PLAN" },
    { "max", 0, 0, G_OPTION_ARG_STRING, &request->max,
      "the largest sequence or micro batch that fits, and what the next one lacks", "seq|mbs" },
    { "step", 0, 0, G_OPTION_ARG_STRING, &request->step,
      "of --max seq: sequences are multiples of it; 1024 by default", "N" },
    { "gpus", 0, 0, G_OPTION_ARG_STRING, &request->sizes.gpus,
      "the same cluster in other sizes: from one to another by doubling, or each of a list",
      "N..M|N,M,…" },
    { "tokens", 0, 0, G_OPTION_ARG_STRING, &request->sizes.tokens,
      "that the run trains on, as in 15T: how long it takes, and what it costs", "N" },
    { "deadline", 0, 0, G_OPTION_ARG_STRING, &request->sizes.deadline,
      "which is the smallest size that is done by then", "DURATION" },
    { "price", 0, 0, G_OPTION_ARG_STRING, &request->sizes.price,
      "USD per GPU and hour: of all, or CLUSTER=USD,…", "USD" },
    { "budget", 0, 0, G_OPTION_ARG_STRING, &request->sizes.budget,
      "which is the fastest size that costs no more", "USD" },
    { "goodput", 0, 0, G_OPTION_ARG_STRING, &request->sizes.goodput,
      "share of the time of --tokens in which it trains; 1 by default: steps alone", "SHARE" },
    G_OPTION_ENTRY_NULL,
  };
  cli_question_add_options (&request->asked, context);
  cli_context_add (context, entries);
}

int
cmd_query (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (AdviseInput) input = { 0 };
  g_auto (Request) request = { 0 };
  AdviseQuestion *question = &request.asked.question;
  CliFormat format;
  g_autoptr (CliContext) context
      = cli_context_new (NULL, "the recommended configurations, best first, with reasons");
  cli_context_describe (
      context, "--cluster may be given several times, and --set stack=A,B,… names several stacks: "
               "the best plan of each, best first.\n"
               "With --from-megatron it says whether that command fits, what it would do, "
               "and what is better.");
  add_options (&request, context);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS, context);
  question->words = cli_query_words (argc, argv);
  request.sizes.clusters = cli_query_clusters (argc, argv);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  request.sizes.stacks = cli_query_stacks (options.set);
  if (!cli_question_read (&request.asked, error) || !check_request (&request, &options, error)
      || (request.sizes.tokens
          && !cli_config_default (CLI_CONFIG_PRICE, &request.sizes.price, error))
      || !cli_format_parse (options.format, &format, error))
    return CLI_FAILED;
  if (request.explain && !is_settings (request.explain))
    options.plan = g_strdup (request.explain);
  change_clusters (request.sizes.clusters, options.hw);
  question->set = options.set;
  question->db = options.db;
  if (!cli_input_read (&options, NULL, &input, error) || !cli_query_check (&input, error))
    return CLI_FAILED;
  return ask (&request, &options, &input, format, error) ? CLI_DONE : CLI_FAILED;
}
