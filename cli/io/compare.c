/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/compare.h"

#include "planner/base/text.h"

#include <string.h>

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

/* The keys of a cluster's .ini text, which is one section with the cluster's name. */
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
        const gboolean is_listed = side == 1 && x;
        if (!is_listed && strcmp (*key, "source") != 0)
          add_difference (table, what, x, y);
      }
}

void
cli_compare_inputs (CliTable *table, const AdviseInput *a, const AdviseInput *b)
{
  add_model (table, a->model, b->model);
  add_cluster (table, a->cluster, b->cluster);
}

void
cli_compare_fields (CliTable *table, const Plan *a, const Plan *b)
{
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    {
      g_autofree char *x = plan_field_print (f, a->value[f]);
      g_autofree char *y = plan_field_print (f, b->value[f]);
      add_difference (table, plan_field_name (f), x, y);
    }
}

void
cli_compare_costs (CliTable *table, const AdvisePrediction *a, const AdvisePrediction *b)
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
  add_number (table, "allocated_mib", advise_mib (s->memory.allocated),
              advise_mib (t->memory.allocated), 1);
  add_number (table, "max_allocated_mib", advise_mib (s->memory.max_allocated),
              advise_mib (t->memory.max_allocated), 1);
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    {
      g_autofree char *what = g_strdup_printf ("%s_at_peak_mib", plan_category_name (c));
      if (s->memory.by_category[c] || t->memory.by_category[c])
        add_number (table, what, advise_mib (s->memory.by_category[c]),
                    advise_mib (t->memory.by_category[c]), 1);
    }
  add_number (table, "reserved_mib", advise_mib (s->memory.reserved),
              advise_mib (t->memory.reserved), 1);
  add_number (table, "device_mib", advise_mib (s->memory.device), advise_mib (t->memory.device), 1);
  g_autofree char *a_peak = advise_peak_name (&s->memory, a->schedule);
  g_autofree char *b_peak = advise_peak_name (&t->memory, b->schedule);
  add_difference (table, "peak_op", a_peak, b_peak);
  add_words (table, "fits", a->fits ? "yes" : "no", b->fits ? "yes" : "no");
}

static void
add_known_cell (CliTable *table, double value, gboolean is_known, int decimals)
{
  if (is_known)
    cli_table_add_real (table, value, decimals);
  else
    cli_table_add (table, NULL);
}

void
cli_add_uncertainty (CliTable *table, const AdvisePrediction *p)
{
  const gboolean is_known = p && p->error_range.pct >= 0;
  add_known_cell (table, is_known ? p->error_range.pct : 0, is_known, 1);
  add_known_cell (table, is_known ? p->error_range.runs : 0, is_known, 0);
  add_known_cell (table, p ? p->p_fits : 0, p && p->p_fits >= 0, 3);
}
