/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/adjustments.h"
#include "advise/validate.h"
#include "cli/io/commands.h"
#include "cli/io/config.h"
#include "cli/io/context.h"
#include "cli/io/output.h"
#include "cli/validate-report.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <stdio.h>

#define MAX_WRONG_SHOWN 20

/* The options. */
typedef struct
{
  char *stack, *use, *params, *db, *format;
  char **where;
  gboolean shows_rows, shows_chances, is_stored;
} Question;

static void
question_clear (Question *self)
{
  g_free (self->stack);
  g_free (self->use);
  g_free (self->params);
  g_free (self->db);
  g_free (self->format);
  g_strfreev (self->where);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Question, question_clear)

static gboolean
select_rows (AdviseValidation *validation, const Question *question, GError **error)
{
  static const char *const uses[] = { "fit", "report", "all", NULL };
  g_autofree char *stack = question->stack ? g_strconcat ("stack=", question->stack, NULL) : NULL;
  g_autofree char *use = question->use ? g_strconcat ("use=", question->use, NULL) : NULL;
  if (question->use && !g_strv_contains (uses, question->use))
    {
      g_autofree char *shown = plan_text_quote (question->use);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--use: %s is not fit, report or all",
                   shown);
      return FALSE;
    }
  if ((stack && !advise_validation_where (validation, stack, error))
      || (use && !g_str_equal (question->use, "all")
          && !advise_validation_where (validation, use, error)))
    return FALSE;
  for (char **where = question->where; where && *where; where++)
    if (!advise_validation_where (validation, *where, error))
      return FALSE;
  return TRUE;
}

static void
print_verdicts (const char *what, const CliVerdicts *v)
{
  if (v->n > 0)
    printf ("%s: %u of %u correct (%u ran out); %u predicted to fit and did not, %u the reverse\n",
            what, v->n_correct, v->n, v->n_oom, v->false_fits, v->false_ooms);
}

static void
print_words (const AdviseValidation *validation, const GArray *sections)
{
  const CliSection *all = &g_array_index (sections, CliSection, 0);
  const PlanRegret *regret = &all->regret;
  g_autoptr (CliTable) skipped = cli_skipped_table (validation);
  printf (
      "\nn counts groups of close variants, which weigh alike; time in ms, memory in MiB; noise: "
      "how far repeats lie\nfrom their median; naive: 6 FLOPs per parameter and token at the "
      "stack's and GPU's best fixed MFU, and\n18 bytes per parameter, sharded; tiny models apart: "
      "how many are within 5 %% or 200 MiB\n");
  print_verdicts ("out of memory", &all->verdicts);
  print_verdicts ("of them predicted between 70 and 100 GB", &all->near);
  if (all->verdicts.n > 0)
    {
      g_autoptr (CliTable) chances = cli_chances_table (all);
      printf ("of plans said to fit with some probability, so many did:\n\n");
      cli_table_print (chances, CLI_FORMAT_TABLE);
      printf ("\n");
    }
  if (all->n_uncertain > 0)
    printf ("%u of %u times lie within the uncertainty that is said of them: %.0f %%; of groups of "
            "rows that weigh alike %.0f %%\n",
            all->n_within, all->n_uncertain, 100.0 * all->n_within / all->n_uncertain,
            100 * all->groups_within / all->groups_uncertain);
  if (all->groups_unseen > 0)
    printf ("of them %.0f groups are of sources that nothing was fitted to: %.0f %%\n",
            all->groups_unseen, 100 * all->unseen_within / all->groups_unseen);
  if (regret->n > 0)
    printf (
        "choosing among %u sets of plans for the same task: %.2f %% slower than the best, at most "
        "%.2f; blindly %.2f %%\n",
        regret->n, regret->mean_pct, regret->max_pct, regret->blind_pct);
  printf ("%u of %u rows predicted\n", all->n_predicted, all->n_rows);
  if (all->n_predicted < all->n_rows)
    {
      printf ("\n");
      cli_table_print (skipped, CLI_FORMAT_TABLE);
    }
}

static void
print (const AdviseValidation *validation, const Question *question, CliFormat format)
{
  g_autoptr (GArray) sections = cli_sections_new (validation);
  if (format == CLI_FORMAT_JSON)
    {
      g_autoptr (JsonNode) root = cli_validation_to_json (validation, sections);
      cli_print_json (root);
      return;
    }
  g_autoptr (CliTable) table = question->shows_rows ? cli_validation_table (validation)
                               : question->shows_chances
                                   ? cli_chances_table (&g_array_index (sections, CliSection, 0))
                                   : cli_sections_table (sections, format == CLI_FORMAT_TABLE);
  cli_table_print (table, format);
  if (format == CLI_FORMAT_TABLE && !question->shows_chances)
    print_words (validation, sections);
}

/* Prints the rows that could not be read, at the end; they make the command fail. */
static int
report_wrong (const AdviseValidation *validation, GError **error)
{
  const guint n = validation->wrong->len;
  for (guint i = 0; i < MIN (n, MAX_WRONG_SHOWN); i++)
    fprintf (stderr, "%s\n", (char *)validation->wrong->pdata[i]);
  if (n == 0)
    return CLI_DONE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %u rows could not be read",
               validation->origin, n);
  return CLI_FAILED;
}

int
cmd_validate (int argc, char **argv, GError **error)
{
  g_auto (Question) question = { 0 };
  g_auto (AdviseValidation) validation = { 0 };
  const SimAdjustments *adjustments = NULL;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "stack", 0, 0, G_OPTION_ARG_STRING, &question.stack, "only rows of that framework", "STACK" },
    { "where", 0, 0, G_OPTION_ARG_STRING_ARRAY, &question.where,
      "only rows with that value in that column, or with any but 0, no and none; may be repeated",
      "COLUMN[=VALUE]" },
    { "use", 0, 0, G_OPTION_ARG_STRING, &question.use,
      "rows that parameters may be fitted to, those that they never are, or all",
      "fit|report|all" },
    { "stored", 0, 0, G_OPTION_ARG_NONE, &question.is_stored,
      "the runs in the store, imported or done by fsdplan run, and not a table", NULL },
    { "rows", 0, 0, G_OPTION_ARG_NONE, &question.shows_rows,
      "a line per row instead of a summary; JSON has both", NULL },
    { "reliability", 0, 0, G_OPTION_ARG_NONE, &question.shows_chances,
      "of plans said to fit with a probability in some range, how many did; JSON has it too",
      NULL },
    { "params", 0, 0, G_OPTION_ARG_STRING, &question.params,
      "what measured runs taught: a set of the store, or the shipped one; " ADVISE_NO_ADJUSTMENTS
      " for none; the newest by default",
      "ID" },
    { "db", 0, 0, G_OPTION_ARG_STRING, &question.db,
      "the store; $XDG_DATA_HOME/fsdplan/fsdplan.db by default", "FILE" },
    { "format", 0, 0, G_OPTION_ARG_STRING, &question.format, "how to print it", "table|csv|json" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new ("[RUNS.csv]", "predicted against measured, for a table of training runs");
  cli_context_add (context, entries);
  cli_context_describe (
      context, "Without a file the table of published runs that comes with the program is "
               "used; - is standard input.\nRows that no plan can express are skipped with "
               "the reason, never guessed.");
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (argc > (question.is_stored ? 1 : 2))
    {
      g_autofree char *shown = plan_text_quote (argv[argc - 1]);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "validate: one table at a time, and not %s too", shown);
      return CLI_FAILED;
    }
  if (!cli_format_parse (question.format, &format, error)
      || !(question.is_stored
               ? advise_validation_read_store (question.db, &validation, error)
               : advise_validation_read (argc > 1 ? argv[1] : NULL, &validation, error))
      || !select_rows (&validation, &question, error))
    return CLI_FAILED;
  if (cli_config_default (CLI_CONFIG_PARAMS, &question.params, error))
    adjustments = advise_adjustments (question.params, question.db, error);
  if (*error)
    return CLI_FAILED;
  advise_validation_predict (&validation, adjustments);
  print (&validation, &question, format);
  return report_wrong (&validation, error);
}
