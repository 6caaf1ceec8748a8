/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/commands.h"
#include "planner/cli/options.h"
#include "planner/cli/output.h"
#include "planner/cli/show-cluster.h"
#include "planner/error.h"
#include "planner/rules.h"
#include "planner/units.h"

#include <stdio.h>
#include <string.h>

static const struct
{
  const char *name;
  PlanTensorRole first, last;
  gboolean per_layer;
} parts[] = {
  { "embedding", PLAN_TENSOR_EMBEDDING, PLAN_TENSOR_EMBEDDING, FALSE },
  { "attention", PLAN_TENSOR_QKV, PLAN_TENSOR_PROJ, TRUE },
  { "mlp", PLAN_TENSOR_GATE_UP, PLAN_TENSOR_DOWN, TRUE },
  { "norms", PLAN_TENSOR_ATTENTION_NORM, PLAN_TENSOR_ATTENTION_NORM, TRUE },
  { "output", PLAN_TENSOR_OUTPUT, PLAN_TENSOR_OUTPUT, FALSE },
};

static guint64
numel (const PlanModel *model, PlanTensorRole role)
{
  const PlanTensor tensor = plan_model_tensor (model, role, model->vocab);
  return tensor.rows * tensor.cols;
}

static guint64
part_parameters (const PlanModel *model, guint part)
{
  guint64 sum = 0;
  for (PlanTensorRole role = parts[part].first; role <= parts[part].last; role++)
    sum += numel (model, role);
  sum *= parts[part].per_layer ? (guint64)model->layers : 1;
  if (parts[part].first == PLAN_TENSOR_ATTENTION_NORM)
    sum += (guint64)model->layers * numel (model, PLAN_TENSOR_MLP_NORM)
           + numel (model, PLAN_TENSOR_FINAL_NORM);
  return sum;
}

static gint64
sequence_of (const PlanModel *model, const char *seq, GError **error)
{
  gint64 value = model->max_seq;
  if (seq && !plan_units_parse_int (seq, "--seq", 1, 1 << 30, &value, error))
    return -1;
  return value;
}

static void
show_model_json (const PlanModel *model, gint64 seq)
{
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "name");
  json_builder_add_string_value (b, model->name);
  json_builder_set_member_name (b, "family");
  json_builder_add_string_value (b, model->family);
  json_builder_set_member_name (b, "layers");
  json_builder_add_int_value (b, model->layers);
  json_builder_set_member_name (b, "hidden");
  json_builder_add_int_value (b, model->hidden);
  json_builder_set_member_name (b, "parameters");
  json_builder_add_int_value (b, (gint64)plan_model_parameters (model));
  json_builder_set_member_name (b, "active_parameters");
  json_builder_add_int_value (b, (gint64)plan_model_parameters (model));
  json_builder_set_member_name (b, "parameters_by_part");
  json_builder_begin_object (b);
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    {
      json_builder_set_member_name (b, parts[i].name);
      json_builder_add_int_value (b, (gint64)part_parameters (model, i));
    }
  json_builder_end_object (b);
  json_builder_set_member_name (b, "flops_per_token");
  json_builder_add_double_value (b, plan_model_flops_per_token (model, seq, model->vocab));
  json_builder_end_object (b);
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  cli_print_json (root);
}

static void
show_model (const PlanModel *model, gint64 seq, CliFormat format)
{
  static const CliColumn columns[] = { { "property", FALSE }, { "value", TRUE } };
  if (format == CLI_FORMAT_JSON)
    {
      show_model_json (model, seq);
      return;
    }
  const struct
  {
    const char *name;
    gint64 value;
  } rows[] = { { "layers", model->layers },
               { "hidden", model->hidden },
               { "ffn", model->ffn },
               { "heads", model->heads },
               { "kv_heads", model->kv_heads },
               { "head_dim", model->head_dim },
               { "vocab", model->vocab },
               { "max_seq", model->max_seq },
               { "parameters", (gint64)plan_model_parameters (model) } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  if (format == CLI_FORMAT_TABLE)
    printf ("%s, family %s%s\n", model->name, model->family,
            model->tied_embeddings ? ", embedding and output layer are one" : "");
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      cli_table_add (table, rows[i].name);
      cli_table_add_int (table, rows[i].value);
    }
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    {
      g_autofree char *name = g_strconcat ("  of which ", parts[i].name, NULL);
      cli_table_add (table, name);
      cli_table_add_int (table, (gint64)part_parameters (model, i));
    }
  g_autofree char *name = g_strdup_printf ("GFLOP per token at seq %" G_GINT64_FORMAT, seq);
  cli_table_add (table, name);
  cli_table_add_real (table, 1e-9 * plan_model_flops_per_token (model, seq, model->vocab), 3);
  cli_table_print (table, format);
}

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

/* The cluster that was asked for; with `keep` it goes into the store, too. */
static PlanCluster *
asked_cluster (const CliOptions *options, gboolean keep, GError **error)
{
  g_autoptr (PlanCluster) cluster = cli_cluster_new (options->cluster, options->db, error);
  if (!cluster || (keep && !cli_keep_cluster (cluster, options->db, error)))
    return NULL;
  return g_steal_pointer (&cluster);
}

static int
show_asked (const CliOptions *options, gboolean keep, CliFormat format, GError **error)
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
    {
      g_autoptr (PlanModel) model = plan_model_new (options->model, error);
      const gint64 seq = model ? sequence_of (model, options->seq, error) : -1;
      if (seq < 0)
        return CLI_FAILED;
      show_model (model, seq, format);
    }
  else if (options->cluster)
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

/* What is for a cluster alone: its text, and keeping it. */
static gboolean
check_cluster_only (const CliOptions *options, gboolean keep, gboolean is_ini, GError **error)
{
  if ((!keep && !is_ini) || (options->cluster && !options->model && !options->plan))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is for --cluster alone",
               is_ini ? "--format=ini" : "--keep");
  return FALSE;
}

/* The text that --cluster and the store read. */
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
  gboolean fields = FALSE, rules = FALSE, gpus = FALSE, costs = FALSE, keep = FALSE;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "fields", 0, 0, G_OPTION_ARG_NONE, &fields, "every field of a plan with its values", NULL },
    { "rules", 0, 0, G_OPTION_ARG_NONE, &rules, "every rule that a plan must keep", NULL },
    { "gpus", 0, 0, G_OPTION_ARG_NONE, &gpus, "every shipped GPU", NULL },
    { "costs", 0, 0, G_OPTION_ARG_NONE, &costs,
      "what others measured on the cluster's devices, or on any", NULL },
    { "keep", 0, 0, G_OPTION_ARG_NONE, &keep,
      "keep the cluster in the store, for --cluster to find by its name", NULL },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (GOptionContext) context
      = cli_context_new (NULL, "a model, cluster or plan as understood, with derived numbers");
  g_option_context_set_description (
      context, "Without options: the names of shipped models and clusters.\n"
               "--format=ini prints a cluster's text, for a file of one's own.");
  g_option_context_add_main_entries (context, entries, NULL);
  cli_options_add (&options, context);
  if (!cli_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  const gboolean is_ini = options.format && strcmp (options.format, "ini") == 0;
  if (!check_cluster_only (&options, keep, is_ini, error))
    return CLI_FAILED;
  if (is_ini)
    return show_ini (&options, keep, error);
  if (!cli_format_parse (options.format, &format, error))
    return CLI_FAILED;
  if (fields)
    show_fields (format);
  else if (rules)
    show_rules (format);
  else if (gpus)
    return cli_show_gpus (format, error) ? CLI_DONE : CLI_FAILED;
  else if (costs)
    return show_costs (&options, format, error);
  else
    return show_asked (&options, keep, format, error);
  return CLI_DONE;
}
