/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/show/show-model.h"

#include "planner/base/units.h"
#include "planner/model/model.h"

#include <stdio.h>

static const char *const part_names[PLAN_N_PARTS] = {
  [PLAN_PART_EMBEDDING] = "embedding", [PLAN_PART_POSITIONS] = "positions",
  [PLAN_PART_ATTENTION] = "attention", [PLAN_PART_MLP] = "mlp",
  [PLAN_PART_NORMS] = "norms",         [PLAN_PART_BIASES] = "biases",
  [PLAN_PART_ROUTER] = "router",       [PLAN_PART_EXPERTS] = "experts",
  [PLAN_PART_OUTPUT] = "output",       [PLAN_PART_SHARED_EXPERTS] = "shared_experts",
};

static const char *const part_meanings[PLAN_N_PARTS] = {
  [PLAN_PART_EMBEDDING] = "a row for each token of the vocabulary",
  [PLAN_PART_POSITIONS] = "a row for each position, where positions are learned",
  [PLAN_PART_ATTENTION] = "projections into and out of attention",
  [PLAN_PART_MLP] = "the MLPs of dense layers",
  [PLAN_PART_NORMS] = "scales, and biases where there are any",
  [PLAN_PART_BIASES] = "biases of linear layers",
  [PLAN_PART_ROUTER] = "linear layers that choose experts",
  [PLAN_PART_EXPERTS] = "the experts to which tokens are sent",
  [PLAN_PART_OUTPUT] = "the linear layer that makes logits",
  [PLAN_PART_SHARED_EXPERTS] = "the experts that every token uses",
};

static void
add_int (JsonBuilder *b, const char *name, guint64 value)
{
  json_builder_set_member_name (b, name);
  json_builder_add_int_value (b, (gint64)value);
}

static void
add_word (JsonBuilder *b, const char *name, const char *value)
{
  json_builder_set_member_name (b, name);
  json_builder_add_string_value (b, value);
}

/* Adds every key, also those that are off, because scripts look for them. */
static void
add_keys (JsonBuilder *b, const PlanModel *model)
{
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *text = plan_model_print_key (model, i);
      json_builder_set_member_name (b, keys[i].name);
      switch (keys[i].kind)
        {
        case PLAN_MODEL_KEY_INT:
          json_builder_add_int_value (b, g_ascii_strtoll (text, NULL, 10));
          break;
        case PLAN_MODEL_KEY_REAL:
          json_builder_add_double_value (b, g_ascii_strtod (text, NULL));
          break;
        case PLAN_MODEL_KEY_FLAG:
          json_builder_add_boolean_value (b, g_str_equal (text, "on"));
          break;
        case PLAN_MODEL_KEY_WORD:
        case PLAN_MODEL_KEY_LIST:
        case PLAN_MODEL_KEY_PATTERN:
          json_builder_add_string_value (b, text);
          break;
        }
    }
}

static void
print_json (const PlanModel *model, gint64 seq)
{
  guint64 parts[PLAN_N_PARTS];
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  add_word (b, "name", model->name);
  add_word (b, "family", model->family);
  add_keys (b, model);
  add_int (b, "parameters", plan_model_count (model, parts));
  add_int (b, "active_parameters", plan_model_active_parameters (model));
  add_int (b, "mtp_parameters", plan_model_mtp_parameters (model));
  json_builder_set_member_name (b, "parameters_by_part");
  json_builder_begin_object (b);
  for (guint i = 0; i < PLAN_N_PARTS; i++)
    add_int (b, part_names[i], parts[i]);
  json_builder_end_object (b);
  add_int (b, "seq", (guint64)seq);
  json_builder_set_member_name (b, "flops_per_token");
  json_builder_add_double_value (b, plan_model_flops_per_token (model, seq, model->vocab));
  json_builder_end_object (b);
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  cli_print_json (root);
}

/* "8.03 billion"; the caller frees. */
static char *
in_words (guint64 count)
{
  const gboolean is_large = count >= 1000000000;
  return g_strdup_printf ("%.3g %s", (double)count / (is_large ? 1e9 : 1e6),
                          is_large ? "billion" : "million");
}

/* Bytes of a parameter in mixed precision: 2 of its weight in bf16, and 4 each of its main weight,
 * its main gradient and Adam's two moments. */
#define TRAINED_BYTES (2 + 4 * 4)

/* Prints a model's size, shape and memory in three sentences, above the table. */
static void
print_summary (const PlanModel *model)
{
  const guint64 n = plan_model_count (model, NULL) + plan_model_mtp_parameters (model);
  g_autofree char *all = in_words (plan_model_count (model, NULL));
  g_autofree char *active = in_words (plan_model_active_parameters (model));
  g_autofree char *stored = plan_units_format_size (2 * n);
  g_autofree char *trained = plan_units_format_size (TRAINED_BYTES * n);
  printf ("%s, family %s: %s parameters", model->name, model->family, all);
  if (model->experts > 0)
    printf (", of which a token uses %s (%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " experts)",
            active, model->topk, model->experts);
  printf ("\n%" G_GINT64_FORMAT " layers of width %" G_GINT64_FORMAT
          ", sequences of up to %" G_GINT64_FORMAT " tokens%s\n",
          model->layers, model->hidden, model->max_seq,
          model->tied_embeddings ? ", embedding and output layer are one" : "");
  printf (
      "%s in bf16; %s to train with Adam in mixed precision, without activations, over all GPUs "
      "together\n\n",
      stored, trained);
}

/* Adds a cell of the column "meaning", which only the table for people has. */
static void
add_meaning (CliTable *table, const char *meaning)
{
  guint n;
  const CliColumn *columns = cli_table_columns (table, &n);
  if (g_str_equal (columns[n - 1].name, "meaning"))
    cli_table_add (table, meaning);
}

static void
add_counts (CliTable *table, const PlanModel *model)
{
  guint64 parts[PLAN_N_PARTS];
  cli_table_add (table, "parameters");
  cli_table_add_int (table, (gint64)plan_model_count (model, parts));
  add_meaning (table, "all trained parameters");
  for (guint i = 0; i < PLAN_N_PARTS; i++)
    {
      g_autofree char *name = g_strconcat ("  of which ", part_names[i], NULL);
      if (parts[i] == 0)
        continue;
      cli_table_add (table, name);
      cli_table_add_int (table, (gint64)parts[i]);
      add_meaning (table, part_meanings[i]);
    }
  if (model->experts > 0)
    {
      cli_table_add (table, "  active for a token");
      cli_table_add_int (table, (gint64)plan_model_active_parameters (model));
      add_meaning (table, "the dense parameters and the experts that one token uses");
    }
  if (model->mtp > 0)
    {
      cli_table_add (table, "multi-token prediction");
      cli_table_add_int (table, (gint64)plan_model_mtp_parameters (model));
      add_meaning (table, "a module that predicts the token after the next one");
    }
}

static void
print_table (const PlanModel *model, gint64 seq, CliFormat format)
{
  static const CliColumn columns[]
      = { { "property", FALSE }, { "value", TRUE }, { "meaning", FALSE } };
  const gboolean is_for_people = format == CLI_FORMAT_TABLE;
  g_autoptr (CliTable) table
      = cli_table_new (columns, G_N_ELEMENTS (columns) - (is_for_people ? 0 : 1));
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  if (is_for_people)
    print_summary (model);
  for (guint i = 0; i < n; i++)
    if (plan_model_key_matters (model, i))
      {
        g_autofree char *value = plan_model_print_key (model, i);
        cli_table_add (table, keys[i].name);
        cli_table_add (table, value);
        add_meaning (table, keys[i].meaning);
      }
  add_counts (table, model);
  g_autofree char *name = g_strdup_printf ("GFLOP per token at seq %" G_GINT64_FORMAT, seq);
  cli_table_add (table, name);
  cli_table_add_real (table, 1e-9 * plan_model_flops_per_token (model, seq, model->vocab), 3);
  add_meaning (table, "forwards and backwards; causal attention counts half");
  cli_table_print (table, format);
}

gboolean
cli_show_model (const PlanModel *model, const char *seq, CliFormat format, GError **error)
{
  gint64 length = model->max_seq;
  if (seq && !plan_units_parse_int (seq, "--seq", 1, 1 << 30, &length, error))
    return FALSE;
  if (format == CLI_FORMAT_JSON)
    print_json (model, length);
  else
    print_table (model, length, format);
  return TRUE;
}

void
cli_show_model_keys (CliFormat format)
{
  static const CliColumn columns[]
      = { { "key", FALSE }, { "meaning", FALSE }, { "values", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  g_autofree char *families = g_strjoinv (" ", (char **)plan_model_families ());
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  cli_table_add (table, "family");
  cli_table_add (table, "the family whose values keys have by default; llama by default");
  cli_table_add (table, families);
  cli_table_add (table, "name");
  cli_table_add (table, "what the model is called; custom by default");
  cli_table_add (table, "letters, digits and . _ + -");
  for (guint i = 0; i < n; i++)
    {
      cli_table_add (table, keys[i].name);
      cli_table_add (table, keys[i].meaning);
      cli_table_add (table, keys[i].values);
    }
  cli_table_print (table, format);
}
