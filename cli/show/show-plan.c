/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/prediction-json.h"
#include "cli/show/show-plan.h"

#include "advise/predict.h"
#include "advise/workspaces.h"
#include "planner/case/hazards.h"
#include "planner/emit/emit.h"
#include "planner/layout/layout.h"
#include "planner/plan/stack-history.h"

#include <stdio.h>

/* A number that follows from a resolved plan. */
typedef struct
{
  const char *name;
  gint64 value;
} Figure;

#define N_FIGURES 11

static gint64
elements_of (const PlanTensor *tensors, guint n)
{
  gint64 elements = 0;
  for (guint i = 0; i < n; i++)
    elements += (gint64)(tensors[i].rows * tensors[i].cols);
  return elements;
}

/* Finds the numbers that follow from a resolved plan. */
static void
derive (const PlanCase *of, Figure *out)
{
  const Plan *plan = &of->plan;
  const PlanLayout *layout = &of->layout;
  const PlanBucket *b = layout->buckets;
  const gint64 shards = (gint64)layout->shards;
  gint64 raw = (gint64)b[PLAN_BUCKET_LAYER].raw, padded = (gint64)b[PLAN_BUCKET_LAYER].padded;
  gint64 embedding = (gint64)b[PLAN_BUCKET_EMBEDDING].padded;
  gint64 head = (gint64)b[PLAN_BUCKET_HEAD].padded;
  if (layout->by_size) /* buckets are padded, and may span layers: a layer has no padding of its own
                        */
    {
      g_auto (PlanBuckets) buckets = { 0 };
      plan_buckets_init (&buckets, of->model, &layout->rule);
      raw = padded = elements_of (buckets.layer, buckets.n_layer);
      embedding = elements_of (buckets.before, buckets.n_before);
      head = elements_of (buckets.after, buckets.n_after);
    }
  const Figure figures[N_FIGURES] = {
    { "devices", plan_cluster_devices (of->cluster) },
    { "data_parallel", plan_data_parallel (plan, of->cluster) },
    { "micro_batches", plan_micro_batches (plan, of->cluster) },
    { "tokens_per_step", plan->value[PLAN_GBS] * plan->value[PLAN_SEQ] },
    { "padded_vocab", (gint64)layout->rule.vocab },
    { "units", of->model->layers + of->model->mtp },
    { "unit_elements", raw },
    { "unit_elements_padded", padded },
    { "unit_elements_per_rank", padded / shards },
    { "embedding_elements_padded", embedding },
    { "head_elements_padded", head },
  };
  for (guint i = 0; i < N_FIGURES; i++)
    out[i] = figures[i];
}

/* Prints the plan as a plan file, with figures and hazards as comments. The file names the cluster
 * as --cluster takes it, which is shorter than the cluster's text. */
static void
print_file (const PlanCase *of, const char *cluster_spec, const Figure *figures, GPtrArray *hazards)
{
  const PlanEmitSubject subject = { .of = of, .cluster_spec = cluster_spec };
  g_autofree char *text = plan_emit_plan (&subject);
  fputs (text, stdout);
  puts ("");
  for (guint i = 0; i < N_FIGURES; i++)
    printf ("# %-26s %" G_GINT64_FORMAT "\n", figures[i].name, figures[i].value);
  for (guint i = 0; i < hazards->len; i++)
    printf ("# note: %s\n", (char *)hazards->pdata[i]);
}

static void
print_rows (const Plan *plan, const PlanModel *model, const Figure *figures)
{
  static const CliColumn columns[] = { { "name", FALSE }, { "value", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    {
      if (!plan_field_is_of (f, model))
        continue;
      g_autofree char *value = plan_field_print (f, plan->value[f]);
      cli_table_add (table, plan_field_name (f));
      cli_table_add (table, value);
    }
  for (guint i = 0; i < N_FIGURES; i++)
    {
      cli_table_add (table, figures[i].name);
      cli_table_add_int (table, figures[i].value);
    }
  cli_table_print (table, CLI_FORMAT_CSV);
}

static void
print_json (const PlanCase *of, const Figure *figures, GPtrArray *hazards)
{
  g_autofree char *hash = plan_hash (&of->plan);
  g_autofree char *model = plan_model_print (of->model);
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "hash");
  json_builder_add_string_value (b, hash);
  json_builder_set_member_name (b, "model");
  json_builder_add_string_value (b, model);
  json_builder_set_member_name (b, "cluster");
  json_builder_add_string_value (b, of->cluster->name);
  cli_plan_to_json (&of->plan, of->model, b);
  json_builder_set_member_name (b, "derived");
  json_builder_begin_object (b);
  for (guint i = 0; i < N_FIGURES; i++)
    {
      json_builder_set_member_name (b, figures[i].name);
      json_builder_add_int_value (b, figures[i].value);
    }
  json_builder_end_object (b);
  cli_hazards_to_json (hazards, b);
  json_builder_end_object (b);
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  cli_print_json (root);
}

gboolean
cli_show_plan (const AdviseInput *input, CliFormat format, GError **error)
{
  Figure figures[N_FIGURES];
  g_autoptr (PlanCase) of = advise_case (input, &input->plan, error);
  if (!of)
    return FALSE;
  derive (of, figures);
  g_autoptr (GPtrArray) hazards = plan_hazards_of (of);
  if (format == CLI_FORMAT_JSON)
    print_json (of, figures, hazards);
  else if (format == CLI_FORMAT_CSV)
    print_rows (&of->plan, of->model, figures);
  else
    print_file (of, input->cluster_spec, figures, hazards);
  return TRUE;
}

void
cli_show_fields (CliFormat format)
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

void
cli_show_rules (CliFormat format)
{
  static const CliColumn columns[]
      = { { "rule", FALSE }, { "breaking_it", FALSE }, { "reason", FALSE }, { "source", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  const guint n = plan_rules_n ();
  for (guint i = 0; i < n + plan_hazards_n (); i++)
    {
      PlanHazardLevel level = PLAN_HAZARD_COST;
      const PlanRule *rule = i < n ? plan_rules_get (i) : plan_hazards_get (i - n, &level);
      cli_table_add (table, rule->name);
      cli_table_add (table, i < n                       ? "is refused"
                            : level == PLAN_HAZARD_COST ? "is noted"
                                                        : "is not recommended");
      cli_table_add (table, rule->reason);
      cli_table_add (table, rule->citation);
    }
  cli_table_print (table, format);
}

static void
add_stack_row (CliTable *table, const char *stack, gint64 date, const char *source,
               const char *text)
{
  g_autofree char *day = plan_stack_date_text (date);
  cli_table_add (table, stack);
  cli_table_add (table, day);
  cli_table_add (table, source);
  cli_table_add (table, text);
}

void
cli_show_stacks (CliFormat format)
{
  static const CliColumn columns[]
      = { { "stack", FALSE }, { "date", FALSE }, { "source", FALSE }, { "what", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < plan_stack_n (); i++)
    {
      const PlanStack *stack = plan_stack_get (i);
      const PlanStackChange *change;
      const char *release;
      for (guint c = 0; (change = plan_stack_change (stack, c)); c++)
        add_stack_row (table, stack->name, change->date, change->source, change->summary);
      for (guint r = 0; (release = plan_stack_release (stack, r)); r++)
        add_stack_row (table, stack->name, plan_stack_release_date (stack->id, release), release,
                       "a release: behaves as on the day when its branch left the main one");
      add_stack_row (table, stack->name, stack->newest, stack->source,
                     "the newest that is known; used where no date is given");
    }
  cli_table_print (table, format);
}
