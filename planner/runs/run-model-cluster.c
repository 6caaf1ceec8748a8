/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the model and the cluster of a row. */
#include "config.h"

#include "planner/model/preset.h"
#include "planner/runs/run-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

#define DEEPSEEK "" /* run-experts.c adds the keys */

/* Families of the run tables in this program's words. Where `keys` is NULL, `reason` says why the
 * columns cannot express the family. */
static const struct
{
  const char *name, *keys, *reason;
} families[] = {
  { "llama", "family=llama", NULL },
  { "qwen2", "family=qwen2", NULL },
  { "qwen3", "family=qwen3", NULL },
  { "gpt", "family=gpt2", NULL },
  { "mpt", "family=mpt", NULL },
  { "bloom", "family=gpt2,positions=alibi", NULL },
  { "nemotron", "family=llama,norm=layernorm,norm_bias=on,activation=relu2,gated=off", NULL },
  { "mixtral", "family=mixtral", NULL },
  { "qwen3-moe", "family=qwen3_moe", NULL },
  { "bert", NULL, "attention looks both ways" },
  { "gpt-oss",
    "family=gpt_oss,rope_scaling=yarn,rope_factor=32,rope_original=4096,rope_fractional=on", NULL },
  { "gpt-moe", "family=gpt2,activation=gelu",
    NULL }, /* gelu is by tanh only where it adds biases */
  { "deepseek", DEEPSEEK, NULL },
  { "grok", NULL, "norms and an activation that are not in the columns" },
  { "llama4", "family=llama4_text", NULL },
  { "hybrid", NULL, "layers without attention, and not of a shipped model by name" },
  { "other", NULL, "not in the columns" },
};

static guint
find_family (const char *name)
{
  guint f = 0;
  while (f < G_N_ELEMENTS (families) && !g_str_equal (families[f].name, name))
    f++;
  return f;
}

static gboolean
refuse_family (const char *name, GError **error)
{
  const char *names[G_N_ELEMENTS (families) + 1] = { NULL };
  for (guint f = 0; f < G_N_ELEMENTS (families); f++)
    names[f] = families[f].name;
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_text_suggest (name, names);
  g_autofree char *wrong = *name ? g_strconcat (shown, " is not one of these tables", NULL)
                                 : g_strdup ("it may not be empty");
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "family: %s: %s", wrong, hint);
  return FALSE;
}

static void
add_number (GString *text, const PlanRunRow *row, PlanRunColumn column, const char *key)
{
  if (row->cell[column])
    g_string_append_printf (text, ",%s=%s", key, row->cell[column]);
}

/* Adds which linear layers have biases, where the family leaves that open. */
static void
add_biases (GString *text, const PlanRunRow *row)
{
  g_autofree char *bias = plan_run_row_note (row, "bias");
  if (!bias)
    return;
  const gboolean all = g_str_equal (bias, "yes");
  const gboolean attention = all || g_str_equal (bias, "attention");
  const gboolean qkv = attention || g_str_equal (bias, "qkv");
  g_string_append_printf (text, ",qkv_bias=%s,proj_bias=%s,mlp_bias=%s", qkv ? "on" : "off",
                          attention ? "on" : "off", all ? "on" : "off");
  if (plan_run_row_int (row, PLAN_RUN_EXPERTS) > 0)
    g_string_append_printf (text, ",expert_bias=%s", all ? "on" : "off");
}

static void
add_experts (GString *text, const PlanRunRow *row)
{
  g_autofree char *mtp = plan_run_row_note (row, "mtp");
  g_autofree char *model = plan_run_row_note (row, "model");
  add_number (text, row, PLAN_RUN_EXPERTS, "experts");
  add_number (text, row, PLAN_RUN_TOPK, "topk");
  add_number (text, row, PLAN_RUN_EXPERT_FFN, "expert_ffn");
  add_number (text, row, PLAN_RUN_SHARED_EXPERT_FFN, "shared_ffn");
  add_number (text, row, PLAN_RUN_FIRST_DENSE_LAYERS, "dense_layers");
  if (plan_run_row_is (row, PLAN_RUN_FAMILY, "gpt-moe")
      && plan_run_row_is (row, PLAN_RUN_TOPK, "1"))
    g_string_append (text, ",pre_softmax=on");   /* a softmax over one expert is 1 */
  if (g_strcmp0 (model, "llama4-maverick") == 0) /* as its config.json says */
    g_string_append (text, ",moe_every=2,qk_l2_norm=off");
  if (mtp)
    g_string_append_printf (text, ",mtp=%s", mtp);
}

static char *
model_text (PlanRunRow *row, const char *family)
{
  const gboolean is_latent = g_str_equal (family, DEEPSEEK);
  g_autofree char *latent = is_latent ? plan_run_row_latent_keys (row) : NULL;
  g_autofree char *window = plan_run_row_note (row, "sliding_window");
  g_autofree char *positions = plan_run_row_note (row, "positions");
  GString *text = g_string_new (is_latent ? latent : family);
  add_number (text, row, PLAN_RUN_LAYERS, "layers");
  add_number (text, row, PLAN_RUN_HIDDEN, "hidden");
  add_number (text, row, PLAN_RUN_FFN, "ffn");
  add_number (text, row, PLAN_RUN_HEADS, "heads");
  if (!is_latent) /* latent attention has key heads of its own, and several widths */
    {
      add_number (text, row, PLAN_RUN_KV_HEADS, "kv_heads");
      add_number (text, row, PLAN_RUN_HEAD_DIM, "head_dim");
    }
  add_number (text, row, PLAN_RUN_VOCAB, "vocab");
  add_number (text, row, PLAN_RUN_SEQ, "max_seq");
  if (row->cell[PLAN_RUN_TIED])
    g_string_append_printf (text, ",tied=%s",
                            plan_run_row_is (row, PLAN_RUN_TIED, "yes") ? "on" : "off");
  if (positions)
    g_string_append_printf (text, ",positions=%s", positions);
  add_biases (text, row);
  if (plan_run_row_int (row, PLAN_RUN_EXPERTS) > 0)
    add_experts (text, row);
  if (g_strcmp0 (window, PLAN_RUN_ALTERNATING_WINDOW) == 0)
    g_string_append (text, ",window=128,window_every=2");
  return g_string_free (text, FALSE);
}

/* Skips a row that lacks a column without which there is no model, cluster or batch. `is_shaped`:
 * the model is known without columns. */
static gboolean
lacks_something (PlanRunRow *row, gboolean is_shaped)
{
  static const PlanRunColumn needed[]
      = { PLAN_RUN_LAYERS,   PLAN_RUN_HIDDEN,  PLAN_RUN_FFN,      PLAN_RUN_HEADS, PLAN_RUN_VOCAB,
          PLAN_RUN_SEQ,      PLAN_RUN_GPU,     PLAN_RUN_GPUS,     PLAN_RUN_MBS,   PLAN_RUN_GBS,
          PLAN_RUN_STRATEGY, PLAN_RUN_COMPUTE, PLAN_RUN_RECOMPUTE };
  for (guint i = is_shaped ? 5 : 0; i < G_N_ELEMENTS (needed); i++)
    if (!row->cell[needed[i]])
      plan_run_row_skip (row, "%s is not known: nothing is assumed in its place",
                         plan_run_column_name (needed[i]));
  return row->skipped != NULL;
}

/* The model of a text, made once. */
static PlanModel *
take_model (PlanRunParts *parts, const char *text, GError **error)
{
  PlanModel *model = g_hash_table_lookup (parts->models, text);
  if (model || !(model = plan_model_new (text, error)))
    return model;
  g_hash_table_insert (parts->models, g_strdup (text), model);
  return model;
}

/* The shipped model whose layers follow a pattern that a row is of, by its name: columns have no
 * word for it. NULL: it is of another model. */
static const char *
named_pattern (const PlanRunRow *row)
{
  g_autofree char *note = plan_run_row_note (row, "model");
  const char *const name = note && plan_run_row_is (row, PLAN_RUN_FAMILY, "hybrid")
                               ? plan_model_preset_named (note)
                               : NULL;
  g_autoptr (PlanModel) model = name ? plan_model_new_preset (name, NULL) : NULL;
  return model && *model->pattern.of ? name : NULL;
}

const PlanModel *
plan_run_row_model (PlanRunRow *self, PlanRunParts *parts, GError **error)
{
  const char *const name = self->cell[PLAN_RUN_FAMILY];
  const guint family = find_family (name ? name : "");
  if (family == G_N_ELEMENTS (families))
    {
      refuse_family (name ? name : "", error);
      return NULL;
    }
  const char *const named = named_pattern (self);
  if (families[family].reason && !named)
    plan_run_row_skip (self, "family %s: %s", families[family].name, families[family].reason);
  if (self->skipped || lacks_something (self, named != NULL))
    return NULL;
  if (named)
    return take_model (parts, named, error);
  g_autofree char *text = model_text (self, families[family].keys);
  if (self->skipped)
    return NULL;
  PlanModel *model = take_model (parts, text, error);
  if (!model || !plan_run_row_shows_module (self, model))
    return model;
  g_autofree char *with_module = g_strconcat (text, ",mtp=1", NULL);
  return take_model (parts, with_module, error);
}

/* Facts of links, as text. What data/runs.ini says of a row's network or source comes first; then
 * what the row itself says. */
static const struct
{
  PlanFact fact;
  const char *note, *unit; /* NULL: no note states it */
} links[] = {
  { PLAN_FACT_NVLINK_DOMAIN, "nvlink_domain", "" },
  { PLAN_FACT_NVLS, NULL, "" },
  { PLAN_FACT_NIC_LATENCY, NULL, "" },
  { PLAN_FACT_NIC_RATE, "nic_gbit_per_gpu", " Gbit/s" },
};
#define N_LINKS G_N_ELEMENTS (links)

/* Finds the texts of `links`, in order. NULL: the row does not change that fact of the cluster. */
static void
tell_links (const PlanRunRow *row, char *out_text[N_LINKS])
{
  for (guint i = 0; i < N_LINKS; i++)
    {
      g_autofree char *note = links[i].note ? plan_run_row_note (row, links[i].note) : NULL;
      out_text[i] = plan_run_row_known (row, plan_fact_key (links[i].fact));
      if (!out_text[i] && note)
        out_text[i] = g_strconcat (note, links[i].unit, NULL);
    }
}

static gboolean
set_links (PlanCluster *cluster, gint64 per_node, char *const text[N_LINKS], GError **error)
{
  g_autofree char *ports = g_strdup_printf ("%" G_GINT64_FORMAT, per_node);
  for (guint i = 0; i < N_LINKS; i++)
    if (text[i] && !plan_cluster_set_fact (cluster, links[i].fact, text[i], NULL, error))
      return FALSE;
    else if (text[i] && links[i].fact == PLAN_FACT_NIC_RATE /* it is the rate of a device */
             && !(
                 plan_cluster_set_fact (cluster, PLAN_FACT_NICS_PER_NODE, ports, NULL, error)
                 && plan_cluster_set_fact (cluster, PLAN_FACT_NIC_BANDWIDTH, text[i], NULL, error)))
      return FALSE;
  return TRUE;
}

static PlanCluster *
new_cluster (const char *gpu, const char *site, gint64 nodes, gint64 per_node,
             char *const text[N_LINKS], GError **error)
{
  g_autofree char *spec = g_strdup_printf ("%s:%" G_GINT64_FORMAT, gpu, per_node);
  g_autoptr (PlanCluster) self = plan_cluster_new (spec, error);
  if (!self || !set_links (self, per_node, text, error))
    return NULL;
  self->nodes = nodes;
  self->site = g_strdup (site);
  /* printed and parsed, so that contradictions are found */
  g_autofree char *printed = plan_cluster_print (self);
  return plan_cluster_parse (printed, gpu, error);
}

/* The cluster of a row, made once per set of facts. */
static PlanCluster *
take_cluster (PlanRunParts *parts, const char *gpu, const char *site, gint64 nodes, gint64 per_node,
              char *const text[N_LINKS], GError **error)
{
  g_autoptr (GString) key = g_string_new (NULL);
  g_string_printf (key, "%s:%s:%" G_GINT64_FORMAT ":%" G_GINT64_FORMAT, gpu, site ? site : "",
                   nodes, per_node);
  for (guint i = 0; i < N_LINKS; i++)
    g_string_append_printf (key, ":%s", text[i] ? text[i] : "");
  PlanCluster *cluster = g_hash_table_lookup (parts->clusters, key->str);
  if (!cluster && (cluster = new_cluster (gpu, site, nodes, per_node, text, error)))
    g_hash_table_insert (parts->clusters, g_strdup (key->str), cluster);
  return cluster;
}

const PlanCluster *
plan_run_row_cluster (PlanRunRow *self, PlanRunParts *parts, GError **error)
{
  const char *const gpu = self->cell[PLAN_RUN_GPU];
  const gint64 gpus = plan_run_row_int (self, PLAN_RUN_GPUS);
  const gint64 told = plan_run_row_int (self, PLAN_RUN_GPUS_PER_NODE);
  const gint64 per_node = told > 0 ? MIN (told, gpus) : MIN (8, gpus);
  g_autofree char *site = plan_run_row_site (self);
  char *text[N_LINKS];
  PlanCluster *cluster = NULL;
  g_autoptr (GError) why = NULL;
  tell_links (self, text);
  if (!g_strv_contains (plan_cluster_devices_shipped (), gpu))
    plan_run_row_skip (self, "gpu %s: not a shipped device", gpu);
  else if (gpus % per_node != 0)
    plan_run_row_skip (self, "gpus: %" G_GINT64_FORMAT " are no whole nodes of %" G_GINT64_FORMAT,
                       gpus, per_node);
  else if (!(cluster = take_cluster (parts, gpu, site, gpus / per_node, per_node, text, &why)))
    plan_run_row_skip (self, "gpus_per_node: %s", why->message);
  for (guint i = 0; i < N_LINKS; i++)
    g_free (text[i]);
  return cluster;
}
