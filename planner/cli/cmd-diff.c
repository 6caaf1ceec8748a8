/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/commands.h"
#include "planner/cli/output.h"
#include "planner/cli/predict.h"
#include "planner/error.h"
#include "planner/text.h"

#include <string.h>

static const CliColumn columns[]
    = { { "what", FALSE }, { "a", TRUE }, { "b", TRUE }, { "change", TRUE } };

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
add_words (CliTable *table, const char *what, const char *a, const char *b)
{
  cli_table_add (table, what);
  cli_table_add (table, a);
  cli_table_add (table, b);
  cli_table_add (table, NULL);
}

static void
add_difference (CliTable *table, const char *what, const char *a, const char *b)
{
  if (g_strcmp0 (a, b) != 0)
    add_words (table, what, a, b);
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

static void
add_model (CliTable *table, const PlanModel *a, const PlanModel *b)
{
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  add_difference (table, "model", a->name, b->name);
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *what = g_strconcat ("model.", keys[i].name, NULL);
      g_autofree char *x = plan_model_print_key (a, i), *y = plan_model_print_key (b, i);
      add_difference (table, what, x, y);
    }
}

/* Its .ini text, key by key: but for the name there is one section. */
static GKeyFile *
cluster_keys (const PlanCluster *cluster)
{
  g_autofree char *text = plan_cluster_print (cluster);
  return plan_text_built_in (text);
}

static void
add_cluster (CliTable *table, const PlanCluster *a, const PlanCluster *b)
{
  g_autofree char *a_spec = cluster_spec (a), *b_spec = cluster_spec (b);
  g_autoptr (GKeyFile) a_file = cluster_keys (a), b_file = cluster_keys (b);
  g_auto (GStrv) a_keys = g_key_file_get_keys (a_file, a->name, NULL, NULL);
  g_auto (GStrv) b_keys = g_key_file_get_keys (b_file, b->name, NULL, NULL);
  add_difference (table, "cluster", a_spec, b_spec);
  for (guint side = 0; side < 2; side++)
    for (char **key = side == 0 ? a_keys : b_keys; key && *key; key++)
      {
        g_autofree char *what = g_strconcat ("cluster.", *key, NULL);
        g_autofree char *x = g_key_file_get_value (a_file, a->name, *key, NULL);
        g_autofree char *y = g_key_file_get_value (b_file, b->name, *key, NULL);
        const gboolean was_there = side == 1 && x;
        if (!was_there && strcmp (*key, "source") != 0)
          add_difference (table, what, x, y);
      }
}

/* What makes them two: model, cluster and fields. */
static void
add_differences (CliTable *table, const Pair *pair)
{
  add_model (table, pair->input[0].model, pair->input[1].model);
  add_cluster (table, pair->input[0].cluster, pair->input[1].cluster);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    {
      g_autofree char *a = plan_field_print (f, pair->prediction[0].plan.value[f]);
      g_autofree char *b = plan_field_print (f, pair->prediction[1].plan.value[f]);
      add_difference (table, plan_field_name (f), a, b);
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
  add_number (table, "exposed_tensor_ms", 1e-6 * (double)s->exposed_tensor_ns,
              1e-6 * (double)t->exposed_tensor_ns, 2);
  add_number (table, "exposed_reduce_ms", 1e-6 * (double)s->exposed_reduce_ns,
              1e-6 * (double)t->exposed_reduce_ns, 2);
  add_number (table, "exposed_copy_ms", 1e-6 * (double)s->exposed_copy_ns,
              1e-6 * (double)t->exposed_copy_ns, 2);
  add_number (table, "idle_ms", 1e-6 * (double)s->idle_ns, 1e-6 * (double)t->idle_ns, 2);
  add_number (table, "host_ms", 1e-6 * (double)s->host_ns, 1e-6 * (double)t->host_ns, 2);
  add_number (table, "tokens_per_s_per_gpu", a->tokens_per_s_per_gpu, b->tokens_per_s_per_gpu, 1);
  add_number (table, "tflops_per_gpu", a->tflops_per_gpu, b->tflops_per_gpu, 1);
  add_number (table, "mfu", a->mfu, b->mfu, 3);
  add_number (table, "allocated_mib", cli_mib (s->memory.allocated), cli_mib (t->memory.allocated),
              1);
  add_number (table, "max_allocated_mib", cli_mib (s->memory.max_allocated),
              cli_mib (t->memory.max_allocated), 1);
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    {
      g_autofree char *what = g_strdup_printf ("%s_at_peak_mib", plan_category_name (c));
      if (s->memory.by_category[c] || t->memory.by_category[c])
        add_number (table, what, cli_mib (s->memory.by_category[c]),
                    cli_mib (t->memory.by_category[c]), 1);
    }
  add_number (table, "reserved_mib", cli_mib (s->memory.reserved), cli_mib (t->memory.reserved), 1);
  add_number (table, "device_mib", cli_mib (s->memory.device), cli_mib (t->memory.device), 1);
  g_autofree char *a_peak = cli_peak_name (&s->memory, a->schedule);
  g_autofree char *b_peak = cli_peak_name (&t->memory, b->schedule);
  add_difference (table, "peak_op", a_peak, b_peak);
  add_words (table, "fits", a->fits ? "yes" : "no", b->fits ? "yes" : "no");
}

/* Standard input is there only once, so the second is made of what was read for the first. */
static gboolean
copy_input (const CliInput *from, CliInput *out, GError **error)
{
  g_autofree char *model = plan_model_print (from->model);
  g_autofree char *cluster = plan_cluster_print (from->cluster);
  out->plan = from->plan;
  return (out->model = plan_model_new (model, error))
         && (out->cluster = plan_cluster_parse (cluster, "cluster", error));
}

/* Two plans by name. */
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

/* One plan and the fields that make it another. */
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
    if (!cli_predict (&pair->input[i], &pair->prediction[i], error))
      {
        g_prefix_error (error, "plan %c: ", 'a' + (int)i);
        return FALSE;
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
      "[PLAN [PLAN]]", "two plans side by side: what differs, and where memory and time move");
  cli_context_describe (
      context, "Plans are files, stored runs (@ID) or - for standard input; with --to, the second "
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
  if (!cli_format_parse (options.format, &format, error)
      || !(changes ? read_changed (&options, changes, &pair, error)
                   : read_two (&options, argv + 1, &pair, error))
      || !predict (&pair, error))
    return CLI_FAILED;
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  add_differences (table, &pair);
  add_costs (table, &pair.prediction[0], &pair.prediction[1]);
  cli_table_print (table, format);
  return pair.prediction[0].fits || pair.prediction[1].fits ? CLI_DONE : CLI_NOT_FEASIBLE;
}
