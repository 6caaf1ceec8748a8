/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/commands.h"
#include "planner/cli/query.h"
#include "planner/error.h"

#include <string.h>

/* What is asked, beside the plan's own options. */
typedef struct
{
  CliQuestion question;
  char *explain;
} Request;

static void
request_clear (Request *self)
{
  g_strfreev (self->question.only);
  g_free (self->question.memory);
  g_free (self->question.headroom);
  g_free (self->question.allow);
  g_free (self->question.words);
  g_free (self->explain);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Request, request_clear)

static gboolean
answer (const Request *request, const CliInput *input, CliFormat format, GError **error)
{
  g_auto (CliQuery) query = { 0 };
  CliChoice choice;
  if (!cli_choice_init (&choice, &request->question, input, error)
      || !cli_query_ask (&choice, (guint)request->question.top, &query, error))
    return FALSE;
  if (query.answers->len == 0)
    return cli_query_refuse (&query, &choice, error);
  cli_query_keep_answers (&request->question, input, query.answers);
  cli_query_print (&query, &choice, format);
  return TRUE;
}

/* What a step is for; a better plan does the same. */
static const PlanField tasks[]
    = { PLAN_STACK,          PLAN_NCCL,      PLAN_GBS,  PLAN_SEQ,           PLAN_OPTIMIZER,
        PLAN_PER_TOKEN_LOSS, PLAN_NAN_CHECK, PLAN_TASK, PLAN_DETERMINISTIC, PLAN_MAIN_PARAMS };

/* The formats of a plan, each with the class of arithmetic that opens it. */
static const struct
{
  PlanField field;
  PlanAllow allow;
} formats[] = { { PLAN_COMPUTE, PLAN_ALLOW_LOWBIT },   { PLAN_PARAM_GATHER, PLAN_ALLOW_LOWBIT },
                { PLAN_MAIN_GRADS, PLAN_ALLOW_MIXED }, { PLAN_GRAD_COMM, PLAN_ALLOW_MIXED },
                { PLAN_EXP_AVG, PLAN_ALLOW_MOMENTS },  { PLAN_EXP_AVG_SQ, PLAN_ALLOW_MOMENTS } };

/* What is chosen from, given a plan that somebody has: plans that do the same, with its arithmetic
 * where no class of others is allowed. */
static gboolean
choose_like (const Request *request, const CliOptions *options, const Plan *mine, CliInput *input,
             CliChoice *out, GError **error)
{
  plan_init (&input->plan);
  for (guint i = 0; i < G_N_ELEMENTS (tasks); i++)
    input->plan.value[tasks[i]] = mine->value[tasks[i]];
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    input->plan.value[formats[i].field] = mine->value[formats[i].field];
  for (char **s = options->set; s && *s; s++)
    if (!cli_set_field (&input->plan, "--set", *s, error))
      return FALSE;
  if (!cli_choice_init (out, &request->question, input, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    if (out->allow >> formats[i].allow & 1)
      out->pinned[formats[i].field] = FALSE;
  return TRUE;
}

/* "FIELD=VALUE,…" */
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

/* A plan that somebody has, beside the best. */
static gboolean
explain (const Request *request, const CliOptions *options, CliInput *input, CliFormat format,
         GError **error)
{
  Plan mine = input->plan;
  CliChoice choice;
  if (request->explain && is_settings (request->explain)
          ? !apply_settings (request->explain, &mine, error)
                || !cli_choice_init (&choice, &request->question, input, error)
          : !choose_like (request, options, &mine, input, &choice, error))
    return FALSE;
  return cli_query_explain (&choice, &mine, format, error);
}

static gboolean
check_request (const Request *request, const CliOptions *options, GError **error)
{
  if (request->question.top < 1 || request->question.top > 1000)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--top: %d is not from 1 to 1000",
                   request->question.top);
      return FALSE;
    }
  if (request->explain && !is_settings (request->explain)
      && (options->plan || options->from_megatron))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--explain: '%s' is a plan of its own: leave out %s, or give FIELD=VALUE,…",
                   request->explain, options->plan ? "--plan" : "--from-megatron");
      return FALSE;
    }
  return TRUE;
}

int
cmd_query (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (CliInput) input = { 0 };
  g_auto (Request) request = { .question = { .top = 5 } };
  CliQuestion *question = &request.question;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "only", 0, 0, G_OPTION_ARG_STRING_ARRAY, &question->only,
      "search these values of a field only", "FIELD=V1,V2,…" },
    { "memory", 0, 0, G_OPTION_ARG_STRING, &question->memory,
      "what a plan may take on a device; the cluster's unless said", "SIZE" },
    { "headroom", 0, 0, G_OPTION_ARG_STRING, &question->headroom, "part of it that stays free",
      "PERCENT" },
    { "allow", 0, 0, G_OPTION_ARG_STRING, &question->allow,
      "classes of arithmetic beyond fp32 sums and states: mixed, lowbit, moments", "CLASS,…" },
    { "top", 0, 0, G_OPTION_ARG_INT, &question->top, "answers, best first; 5 unless said", "N" },
    { "explain", 0, 0, G_OPTION_ARG_STRING, &request.explain,
      "why this plan is not the best, and which one change of it helps most: a plan file, @ID, or "
      "FIELD=VALUE,…",
      "PLAN" },
    { "no-keep", 0, 0, G_OPTION_ARG_NONE, &question->keeps_nothing,
      "leave no plan in the store, and give them no numbers", NULL },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new (NULL, "the recommended configurations, best first, with reasons");
  cli_context_describe (context,
                        "With --from-megatron it says whether that command fits, what it would do, "
                        "and what is better.");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS, context);
  question->words = cli_query_words (argc, argv);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (!check_request (&request, &options, error)
      || !cli_format_parse (options.format, &format, error))
    return CLI_FAILED;
  if (request.explain && !is_settings (request.explain))
    options.plan = g_strdup (request.explain);
  question->set = options.set;
  question->db = options.db;
  if (!cli_input_read (&options, NULL, &input, error))
    return CLI_FAILED;
  if (input.plan.value[PLAN_GBS] == PLAN_UNSET)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "gbs is needed: --gbs N, in sequences per step over all devices");
      return CLI_FAILED;
    }
  const gboolean ok = request.explain || options.from_megatron
                          ? explain (&request, &options, &input, format, error)
                          : answer (&request, &input, format, error);
  return ok ? CLI_DONE : CLI_FAILED;
}
