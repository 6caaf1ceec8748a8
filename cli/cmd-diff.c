/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/predict.h"
#include "cli/diff-explain.h"
#include "cli/io/commands.h"
#include "cli/io/compare.h"
#include "cli/io/options.h"
#include "cli/io/output.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

static const CliColumn columns[]
    = { { "what", FALSE }, { "a", TRUE }, { "b", TRUE }, { "change", TRUE } };

/* The two plans and their predictions. */
typedef struct
{
  AdviseInput input[2];
  AdvisePrediction prediction[2];
} Pair;

static void
pair_clear (Pair *self)
{
  for (guint i = 0; i < 2; i++)
    {
      advise_prediction_clear (&self->prediction[i]);
      advise_input_clear (&self->input[i]);
    }
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Pair, pair_clear)

/* Copies an input, because standard input cannot be read a second time for the second plan. */
static gboolean
copy_input (const AdviseInput *from, AdviseInput *out, GError **error)
{
  g_autofree char *model = plan_model_print (from->model);
  g_autofree char *cluster = plan_cluster_print (from->cluster);
  out->plan = from->plan;
  out->adjustments = from->adjustments;
  return (out->model = plan_model_new (model, error))
         && (out->cluster = plan_cluster_parse (cluster, "cluster", error));
}

/* Reads two plans by name. */
static gboolean
read_two (CliOptions *options, char **names, Pair *pair, GError **error)
{
  if (strcmp (names[0], "-") == 0 && strcmp (names[1], "-") == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "diff: only one of the plans can come from standard input");
      return FALSE;
    }
  for (guint i = 0; i < 2; i++)
    {
      g_free (options->plan);
      options->plan = g_strdup (names[i]);
      if (!cli_input_read (options, NULL, &pair->input[i], error))
        return FALSE;
    }
  return TRUE;
}

/* Reads one plan, and makes the second from it by setting fields. */
static gboolean
read_changed (const CliOptions *options, char *const *changes, Pair *pair, GError **error)
{
  if (!cli_input_read (options, NULL, &pair->input[0], error)
      || !copy_input (&pair->input[0], &pair->input[1], error))
    return FALSE;
  for (; *changes; changes++)
    if (!cli_set_field (&pair->input[1].plan, "--to", *changes, error))
      return FALSE;
  return TRUE;
}

static gboolean
predict (Pair *pair, GError **error)
{
  for (guint i = 0; i < 2; i++)
    if (!advise_predict (&pair->input[i], &pair->prediction[i], error))
      {
        g_prefix_error (error, "plan %c: ", 'a' + (int)i);
        return FALSE;
      }
  return TRUE;
}

/* Compares what --explain asks for; without it inputs, fields, and sums of time and memory. */
static gboolean
compare (CliTable *table, const Pair *pair, const char *explain, GError **error)
{
  const AdvisePrediction *const p[] = { &pair->prediction[0], &pair->prediction[1] };
  const AdviseInput *const inputs[] = { &pair->input[0], &pair->input[1] };
  if (g_strcmp0 (explain, "time") == 0)
    return cli_compare_time (table, inputs, p, error);
  if (explain)
    {
      cli_compare_memory (table, p[0], p[1]);
      return TRUE;
    }
  cli_compare_inputs (table, inputs[0], inputs[1]);
  cli_compare_fields (table, &p[0]->of->plan, &p[1]->of->plan);
  cli_compare_costs (table, p[0], p[1]);
  return TRUE;
}

int
cmd_diff (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (Pair) pair = { 0 };
  g_auto (GStrv) changes = NULL;
  g_autofree char *explain = NULL;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "to", 0, 0, G_OPTION_ARG_STRING_ARRAY, &changes,
      "a field of the second plan, otherwise equal to the first; any number of times",
      "FIELD=VALUE" },
    { "explain", 0, 0, G_OPTION_ARG_STRING, &explain,
      "why so: what memory adds up to, and buffers that differ; or ops whose times differ, line by "
      "line",
      "memory|time" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context = cli_context_new (
      "[PLAN [PLAN]]", "two plans side by side: what differs, and where memory and time move");
  cli_context_describe (
      context,
      "Plans are files, stored ones (@ID, @runID) or - for standard input; with --to, the second "
      "is the first with other fields.");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (argc > 3 || (changes ? argc == 3 : argc != 3) || (argc > 1 && options.plan))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "diff: give two plans, or one by its name or options and --to FIELD=VALUE");
      return CLI_FAILED;
    }
  if (argc == 2)
    options.plan = g_strdup (argv[1]);
  if (!cli_check_explain (explain, error) || !cli_format_parse (options.format, &format, error)
      || !(changes ? read_changed (&options, changes, &pair, error)
                   : read_two (&options, argv + 1, &pair, error))
      || !predict (&pair, error))
    return CLI_FAILED;
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  if (!compare (table, &pair, explain, error))
    return CLI_FAILED;
  cli_table_print (table, format);
  return pair.prediction[0].fits || pair.prediction[1].fits ? CLI_DONE : CLI_NOT_FEASIBLE;
}
