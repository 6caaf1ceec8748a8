/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/commands.h"
#include "planner/cli/options.h"
#include "planner/cli/output.h"
#include "planner/cli/show-model.h"
#include "planner/rules.h"

#include <stdio.h>

static void
show_fields (CliFormat format)
{
  static const CliColumn columns[]
      = { { "field", FALSE }, { "default", FALSE }, { "values", FALSE }, { "meaning", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  Plan plan;
  plan_init (&plan);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    {
      g_autofree char *initial = plan_field_print (f, plan.value[f]);
      g_autofree char *values = plan_field_values (f);
      cli_table_add (table, plan_field_name (f));
      cli_table_add (table, initial);
      cli_table_add (table, values);
      cli_table_add (table, plan_field_summary (f));
    }
  cli_table_print (table, format);
}

static void
show_rules (CliFormat format)
{
  static const CliColumn columns[]
      = { { "rule", FALSE }, { "reason", FALSE }, { "source", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < plan_rules_n (); i++)
    {
      const PlanRule *rule = plan_rules_get (i);
      cli_table_add (table, rule->name);
      cli_table_add (table, rule->reason);
      cli_table_add (table, rule->citation);
    }
  cli_table_print (table, format);
}

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
  if (options->plan || (options->model && options->cluster))
    {
      g_auto (CliInput) input = { 0 };
      Plan plan;
      if (!cli_input_read (options, NULL, &input, error)
          || !plan_resolve (&input.plan, input.model, input.cluster, &plan, error))
        return CLI_FAILED;
      g_autofree char *text = plan_print (&plan);
      g_autofree char *hash = plan_hash (&plan);
      g_autofree char *model = plan_model_print (input.model);
      printf ("# plan %s\nmodel=%s\n", hash, model);
      if (options->cluster)
        printf ("cluster=%s\n", options->cluster);
      fputs (text, stdout);
      return CLI_DONE;
    }
  if (options->model)
    return cli_show_model (options->model, options->seq, format, error) ? CLI_DONE : CLI_FAILED;
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
  gboolean fields = FALSE, rules = FALSE, model_keys = FALSE;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "fields", 0, 0, G_OPTION_ARG_NONE, &fields, "every field of a plan with its values", NULL },
    { "model-keys", 0, 0, G_OPTION_ARG_NONE, &model_keys,
      "every key of --model KEY=VALUE,... with its values", NULL },
    { "rules", 0, 0, G_OPTION_ARG_NONE, &rules, "every rule that a plan must keep", NULL },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (GOptionContext) context
      = cli_context_new (NULL, "a model, cluster or plan as understood, with derived numbers");
  g_option_context_set_description (context,
                                    "Without options: the names of shipped models and clusters.");
  g_option_context_add_main_entries (context, entries, NULL);
  cli_options_add (&options, context);
  if (!cli_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (!cli_format_parse (options.format, &format, error))
    return CLI_FAILED;
  if (fields)
    show_fields (format);
  else if (model_keys)
    cli_show_model_keys (format);
  else if (rules)
    show_rules (format);
  else
    return show_asked (&options, format, error);
  return CLI_DONE;
}
