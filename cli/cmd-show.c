/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/commands.h"
#include "cli/io/options.h"
#include "cli/io/output.h"
#include "cli/show/show-cluster.h"
#include "cli/show/show-model.h"
#include "cli/show/show-plan.h"
#include "planner/base/error.h"
#include "planner/model/preset.h"

#include <stdio.h>
#include <string.h>

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

/* Makes the cluster that was asked for; with `keep` also stores it. */
static PlanCluster *
asked_cluster (const CliOptions *options, gboolean keep, GError **error)
{
  g_autofree char *spec = advise_cluster_words (options->cluster, options->hw);
  g_autoptr (PlanCluster) cluster = cli_cluster_new (spec, options->db, error);
  if (!cluster || (keep && !cli_keep_cluster (cluster, options->db, error)))
    return NULL;
  return g_steal_pointer (&cluster);
}

static int
show_asked (const CliOptions *options, gboolean keep, CliFormat format, GError **error)
{
  const gboolean has_model = options->model || options->from_megatron;
  if (options->plan || (has_model && options->cluster))
    {
      g_auto (AdviseInput) input = { 0 };
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
      g_autoptr (PlanCluster) cluster = asked_cluster (options, keep, error);
      if (!cluster)
        return CLI_FAILED;
      cli_show_cluster (cluster, format);
    }
  else
    show_names (format);
  return CLI_DONE;
}

/* Checks that options for a cluster alone, --format=ini and --keep, are used with a cluster
 * alone. */
static gboolean
check_cluster_only (const CliOptions *options, gboolean keep, gboolean is_ini, GError **error)
{
  if ((!keep && !is_ini) || (options->cluster && !options->model && !options->plan))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is for --cluster alone",
               is_ini ? "--format=ini" : "--keep");
  return FALSE;
}

/* Prints a cluster in the text form that --cluster and the store read. */
static int
show_ini (const CliOptions *options, gboolean keep, GError **error)
{
  g_autoptr (PlanCluster) cluster = asked_cluster (options, keep, error);
  if (!cluster)
    return CLI_FAILED;
  g_autofree char *text = plan_cluster_print (cluster);
  fputs (text, stdout);
  return CLI_DONE;
}

static int
show_costs (const CliOptions *options, CliFormat format, GError **error)
{
  g_autoptr (PlanCluster) cluster = NULL;
  if (options->cluster && !(cluster = cli_cluster_new (options->cluster, options->db, error)))
    return CLI_FAILED;
  return cli_show_costs (cluster, format, error) ? CLI_DONE : CLI_FAILED;
}

int
cmd_show (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  gboolean fields = FALSE, rules = FALSE, stacks = FALSE, model_keys = FALSE;
  gboolean gpus = FALSE, costs = FALSE, keep = FALSE;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "fields", 0, 0, G_OPTION_ARG_NONE, &fields, "every field of a plan with its values", NULL },
    { "model-keys", 0, 0, G_OPTION_ARG_NONE, &model_keys,
      "every key of --model KEY=VALUE,... with its values", NULL },
    { "rules", 0, 0, G_OPTION_ARG_NONE, &rules,
      "every rule that a plan must keep, and every hazard", NULL },
    { "stacks", 0, 0, G_OPTION_ARG_NONE, &stacks,
      "every framework that is modelled, with what changed in it when", NULL },
    { "gpus", 0, 0, G_OPTION_ARG_NONE, &gpus, "every shipped GPU", NULL },
    { "costs", 0, 0, G_OPTION_ARG_NONE, &costs,
      "what others measured on the cluster's devices, or on any", NULL },
    { "keep", 0, 0, G_OPTION_ARG_NONE, &keep,
      "keep the cluster in the store, for --cluster to find by its name", NULL },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new (NULL, "a model, cluster or plan as understood, with derived numbers");
  cli_context_describe (context,
                        "--model or --from-megatron shows the model, --cluster the cluster, "
                        "both or --plan the plan;\nwithout options: the names of "
                        "shipped models and clusters.\n"
                        "--format=ini prints a cluster's text, for a file of one's own.");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS "|ini", context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  const gboolean is_ini = options.format && strcmp (options.format, "ini") == 0;
  if (!check_cluster_only (&options, keep, is_ini, error))
    return CLI_FAILED;
  if (is_ini)
    return show_ini (&options, keep, error);
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
  else if (gpus)
    return cli_show_gpus (format, error) ? CLI_DONE : CLI_FAILED;
  else if (costs)
    return show_costs (&options, format, error);
  else
    return show_asked (&options, keep, format, error);
  return CLI_DONE;
}
