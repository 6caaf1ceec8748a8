/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/commands.h"
#include "planner/cli/options.h"
#include "planner/cli/output.h"
#include "planner/cli/show-model.h"
#include "planner/cli/show-plan.h"

#include <stdio.h>

static void
show_names (CliFormat format)
{
  static const CliColumn columns[] = { { "kind", FALSE }, { "name", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (const char *const *name = plan_model_presets (); *name; name++)
    {
      cli_table_add (table, "model");
      cli_table_add (table, *name);
    }
  for (const char *const *name = plan_cluster_presets (); *name; name++)
    {
      cli_table_add (table, "cluster");
      cli_table_add (table, *name);
    }
  cli_table_print (table, format);
}

static int
show_asked (const CliOptions *options, CliFormat format, GError **error)
{
  const gboolean has_model = options->model || options->from_megatron;
  if (options->plan || (has_model && options->cluster))
    {
      g_auto (CliInput) input = { 0 };
      if (!cli_input_read (options, NULL, &input, error) || !cli_show_plan (&input, format, error))
        return CLI_FAILED;
      return CLI_DONE;
    }
  if (has_model)
    {
      g_autoptr (PlanModel) model = cli_model_read (options, error);
      return model && cli_show_model (model, options->seq, format, error) ? CLI_DONE : CLI_FAILED;
    }
  if (options->cluster)
    {
      g_autoptr (PlanCluster) cluster = cli_cluster_new (options->cluster, error);
      if (!cluster)
        return CLI_FAILED;
      g_autofree char *text = plan_cluster_print (cluster);
      fputs (text, stdout);
    }
  else
    show_names (format);
  return CLI_DONE;
}

int
cmd_show (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  gboolean fields = FALSE, rules = FALSE, stacks = FALSE, model_keys = FALSE;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "fields", 0, 0, G_OPTION_ARG_NONE, &fields, "every field of a plan with its values", NULL },
    { "model-keys", 0, 0, G_OPTION_ARG_NONE, &model_keys,
      "every key of --model KEY=VALUE,... with its values", NULL },
    { "rules", 0, 0, G_OPTION_ARG_NONE, &rules,
      "every rule that a plan must keep, and every hazard", NULL },
    { "stacks", 0, 0, G_OPTION_ARG_NONE, &stacks,
      "every framework that is modelled, with what changed in it when", NULL },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new (NULL, "a model, cluster or plan as understood, with derived numbers");
  cli_context_describe (context,
                        "--model or --from-megatron shows the model, --cluster the cluster, "
                        "both or --plan the plan;\nwithout options: the names of "
                        "shipped models and clusters.");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_options_add_format (&options, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (!cli_format_parse (options.format, &format, error))
    return CLI_FAILED;
  if (fields)
    cli_show_fields (format);
  else if (model_keys)
    cli_show_model_keys (format);
  else if (rules)
    cli_show_rules (format);
  else if (stacks)
    cli_show_stacks (format);
  else
    return show_asked (&options, format, error);
  return CLI_DONE;
}
