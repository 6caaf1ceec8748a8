/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/commands.h"
#include "planner/cli/output.h"
#include "planner/cli/predict.h"
#include "planner/error.h"

#include <string.h>

static const CliColumn columns[]
    = { { "what", FALSE }, { "a", FALSE }, { "b", FALSE }, { "change", TRUE } };

/* What the two plans were predicted to cost, side by side. */
typedef struct
{
  CliInput input[2];
  CliPrediction prediction[2];
} Pair;

static void
pair_clear (Pair *self)
{
  for (guint i = 0; i < 2; i++)
    {
      cli_prediction_clear (&self->prediction[i]);
      cli_input_clear (&self->input[i]);
    }
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Pair, pair_clear)

static void
add_text (CliTable *table, const char *what, const char *a, const char *b)
{
  if (strcmp (a, b) == 0)
    return;
  cli_table_add (table, what);
  cli_table_add (table, a);
  cli_table_add (table, b);
  cli_table_add (table, NULL);
}

static void
add_number (CliTable *table, const char *what, double a, double b, int decimals)
{
  cli_table_add (table, what);
  cli_table_add_real (table, a, decimals);
  cli_table_add_real (table, b, decimals);
  cli_table_add_real (table, b - a, decimals);
}

static char *
cluster_spec (const PlanCluster *cluster)
{
  return g_strdup_printf ("%s:%" G_GINT64_FORMAT, cluster->name, cluster->nodes);
}

/* What makes them two: model, cluster and fields. */
static void
add_differences (CliTable *table, const Pair *pair)
{
  const CliInput *in = pair->input;
  g_autofree char *a_cluster = cluster_spec (in[0].cluster);
  g_autofree char *b_cluster = cluster_spec (in[1].cluster);
  add_text (table, "model", in[0].model->name, in[1].model->name);
  add_text (table, "cluster", a_cluster, b_cluster);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    {
      g_autofree char *a = plan_field_print (f, pair->prediction[0].plan.value[f]);
      g_autofree char *b = plan_field_print (f, pair->prediction[1].plan.value[f]);
      add_text (table, plan_field_name (f), a, b);
    }
}

static void
add_costs (CliTable *table, const CliPrediction *a, const CliPrediction *b)
{
  const PlanTrace *s = a->trace, *t = b->trace;
  add_number (table, "step_ms", a->step_ms, b->step_ms, 2);
  add_number (table, "compute_ms", 1e-6 * (double)s->compute_ns, 1e-6 * (double)t->compute_ns, 2);
  add_number (table, "exposed_gather_ms", 1e-6 * (double)s->exposed_gather_ns,
              1e-6 * (double)t->exposed_gather_ns, 2);
  add_number (table, "exposed_reduce_ms", 1e-6 * (double)s->exposed_reduce_ns,
              1e-6 * (double)t->exposed_reduce_ns, 2);
  add_number (table, "host_ms", 1e-6 * (double)s->host_ns, 1e-6 * (double)t->host_ns, 2);
  add_number (table, "tokens_per_s_per_gpu", a->tokens_per_s_per_gpu, b->tokens_per_s_per_gpu, 1);
  add_number (table, "tflops_per_gpu", a->tflops_per_gpu, b->tflops_per_gpu, 1);
  add_number (table, "allocated_mib", cli_mib (s->memory.allocated), cli_mib (t->memory.allocated),
              1);
  add_number (table, "max_allocated_mib", cli_mib (s->memory.max_allocated),
              cli_mib (t->memory.max_allocated), 1);
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    {
      g_autofree char *what = g_strdup_printf ("  %s at peak", plan_category_name (c));
      if (s->memory.by_category[c] || t->memory.by_category[c])
        add_number (table, what, cli_mib (s->memory.by_category[c]),
                    cli_mib (t->memory.by_category[c]), 1);
    }
  add_number (table, "reserved_mib", cli_mib (s->memory.reserved), cli_mib (t->memory.reserved), 1);
  add_number (table, "device_mib", cli_mib (s->memory.device), cli_mib (t->memory.device), 1);
}

/* Two plans by name, or one and the fields that make it another. */
static gboolean
read_pair (CliOptions *options, char **names, char *const *changes, Pair *pair, GError **error)
{
  for (guint i = 0; i < 2; i++)
    {
      if (names)
        {
          g_free (options->plan);
          options->plan = g_strdup (names[i]);
        }
      if (!cli_input_read (options, NULL, &pair->input[i], error))
        return FALSE;
      for (char *const *c = changes; i == 1 && c && *c; c++)
        if (!cli_set_field (&pair->input[i].plan, "--to", *c, error))
          return FALSE;
      if (!cli_predict (&pair->input[i], &pair->prediction[i], error))
        {
          g_prefix_error (error, "plan %c: ", 'a' + (int)i);
          return FALSE;
        }
    }
  return TRUE;
}

int
cmd_diff (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (Pair) pair = { 0 };
  g_auto (GStrv) changes = NULL;
  CliFormat format;
  const GOptionEntry entries[] = {
    { "to", 0, 0, G_OPTION_ARG_STRING_ARRAY, &changes,
      "a field of the second plan, which is else the first; any number of times", "FIELD=VALUE" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context = cli_context_new (
      "[PLAN PLAN]", "two plans side by side: what differs, and where memory and time move");
  cli_context_describe (context, "Plans are files or stored runs (@ID); with --to, the second "
                                 "is the first with other fields.");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_options_add_format (&options, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (argc != (changes ? 1 : 3))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "diff: give two plans, or one by its options and --to FIELD=VALUE");
      return CLI_FAILED;
    }
  if (!cli_format_parse (options.format, &format, error)
      || !read_pair (&options, changes ? NULL : argv + 1, changes, &pair, error))
    return CLI_FAILED;
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  add_differences (table, &pair);
  add_costs (table, &pair.prediction[0], &pair.prediction[1]);
  cli_table_print (table, format);
  return CLI_DONE;
}
