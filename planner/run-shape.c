/* SPDX-License-Identifier: Apache-2.0 */
/* The model and the cluster of a row. */
#include "config.h"

#include "planner/run-private.h"

#include "planner/error.h"
#include "planner/text.h"

#include <string.h>

/* What a family of these tables is in this program's words; NULL: the columns cannot say it. */
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
  { "grok", NULL, "experts" },
  { "gpt-oss", NULL, "experts" },
  { "gpt-moe", NULL, "experts" },
  { "llama4", NULL, "experts" },
  { "deepseek", NULL, "experts and latent attention" },
  { "hybrid", NULL, "layers without attention" },
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
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "family: %s is not one of these tables: %s",
               shown, hint);
  return FALSE;
}

static void
add_number (GString *text, const PlanRunRow *row, PlanRunColumn column, const char *key)
{
  if (row->cell[column])
    g_string_append_printf (text, ",%s=%s", key, row->cell[column]);
}

/* Which products have biases, where the family leaves it open. */
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
}

static char *
model_text (const PlanRunRow *row, const char *family)
{
  GString *text = g_string_new (family);
  add_number (text, row, PLAN_RUN_LAYERS, "layers");
  add_number (text, row, PLAN_RUN_HIDDEN, "hidden");
  add_number (text, row, PLAN_RUN_FFN, "ffn");
  add_number (text, row, PLAN_RUN_HEADS, "heads");
  add_number (text, row, PLAN_RUN_KV_HEADS, "kv_heads");
  add_number (text, row, PLAN_RUN_HEAD_DIM, "head_dim");
  add_number (text, row, PLAN_RUN_VOCAB, "vocab");
  add_number (text, row, PLAN_RUN_SEQ, "max_seq");
  if (row->cell[PLAN_RUN_TIED])
    g_string_append_printf (text, ",tied=%s",
                            plan_run_row_is (row, PLAN_RUN_TIED, "yes") ? "on" : "off");
  add_biases (text, row);
  if (plan_run_row_int (row, PLAN_RUN_EXPERTS) > 0)
    {
      add_number (text, row, PLAN_RUN_EXPERTS, "experts");
      add_number (text, row, PLAN_RUN_TOPK, "topk");
      add_number (text, row, PLAN_RUN_EXPERT_FFN, "expert_ffn");
      add_number (text, row, PLAN_RUN_SHARED_EXPERT_FFN, "shared_ffn");
      add_number (text, row, PLAN_RUN_FIRST_DENSE_LAYERS, "dense_layers");
    }
  return g_string_free (text, FALSE);
}

/* Columns without which there is no model, cluster or batch. */
static gboolean
lacks_something (PlanRunRow *row)
{
  static const PlanRunColumn needed[]
      = { PLAN_RUN_LAYERS,   PLAN_RUN_HIDDEN,  PLAN_RUN_FFN,      PLAN_RUN_HEADS, PLAN_RUN_VOCAB,
          PLAN_RUN_SEQ,      PLAN_RUN_GPU,     PLAN_RUN_GPUS,     PLAN_RUN_MBS,   PLAN_RUN_GBS,
          PLAN_RUN_STRATEGY, PLAN_RUN_COMPUTE, PLAN_RUN_RECOMPUTE };
  for (guint i = 0; i < G_N_ELEMENTS (needed); i++)
    if (!row->cell[needed[i]])
      plan_run_row_skip (row, "%s is not known: nothing is assumed in its place",
                         plan_run_column_name (needed[i]));
  return row->skipped != NULL;
}

const PlanModel *
plan_run_row_model (PlanRunRow *self, PlanRunParts *parts, GError **error)
{
  const guint family = find_family (self->cell[PLAN_RUN_FAMILY]);
  if (family == G_N_ELEMENTS (families))
    {
      refuse_family (self->cell[PLAN_RUN_FAMILY], error);
      return NULL;
    }
  if (families[family].reason)
    plan_run_row_skip (self, "family %s: %s", families[family].name, families[family].reason);
  if (self->skipped || lacks_something (self))
    return NULL;
  g_autofree char *text = model_text (self, families[family].keys);
  PlanModel *model = g_hash_table_lookup (parts->models, text);
  if (model || !(model = plan_model_new (text, error)))
    return model;
  g_hash_table_insert (parts->models, g_steal_pointer (&text), model);
  return model;
}

static const char networks_text[] =
#include "planner/data/networks.ini.inc"
    ;

static gpointer
read_networks (gpointer unused)
{
  (void)unused;
  g_autoptr (GError) error = NULL;
  GKeyFile *file = g_key_file_new ();
  if (!g_key_file_load_from_data (file, networks_text, (gsize)-1, G_KEY_FILE_NONE, &error))
    g_error ("networks.ini: %s", error->message);
  return file;
}

/* What is known of it there; NULL: what holds of such a cluster. The caller frees. */
static char *
network_fact (const char *network, const char *state, PlanFact fact)
{
  static GOnce once = G_ONCE_INIT;
  GKeyFile *file = g_once (&once, read_networks, NULL);
  g_autofree char *of_state = network && state ? g_strdup_printf ("%s/%s", network, state) : NULL;
  const char *section = of_state && g_key_file_has_group (file, of_state) ? of_state : network;
  char *value = section ? g_key_file_get_string (file, section, plan_fact_key (fact), NULL) : NULL;
  char *source = value ? strchr (value, '#') : NULL;
  if (source)
    *source = '\0';
  return value ? g_strchomp (value) : NULL;
}

/* Sets what the row says about the network and the NVLink domain. */
static gboolean
set_links (PlanCluster *cluster, gint64 per_node, const char *domain, const char *nic,
           const char *latency, GError **error)
{
  g_autofree char *ports = g_strdup_printf ("%" G_GINT64_FORMAT, per_node);
  if (domain && !plan_cluster_set_fact (cluster, PLAN_FACT_NVLINK_DOMAIN, domain, NULL, error))
    return FALSE;
  if (latency && !plan_cluster_set_fact (cluster, PLAN_FACT_NIC_LATENCY, latency, NULL, error))
    return FALSE;
  return !nic
         || (plan_cluster_set_fact (cluster, PLAN_FACT_NICS_PER_NODE, ports, NULL, error)
             && plan_cluster_set_fact (cluster, PLAN_FACT_NIC_RATE, nic, NULL, error)
             && plan_cluster_set_fact (cluster, PLAN_FACT_NIC_BANDWIDTH, nic, NULL, error));
}

/* What NCCL's log says of the switches: gathers took AllGather_ST, which it leaves for a kernel
 * that multicasts wherever switches can (ncclSymkPickKernel). */
static gboolean
lacks_multicast (const PlanRunRow *self)
{
  return g_str_has_prefix (self->cell[PLAN_RUN_SOURCE], "NVIDIA/Megatron-LM PR #3067");
}

static PlanCluster *
new_cluster (const char *gpu, gint64 nodes, gint64 per_node, const char *domain, const char *nic,
             const char *latency, gboolean lacks, GError **error)
{
  g_autofree char *spec = g_strdup_printf ("%s:%" G_GINT64_FORMAT, gpu, per_node);
  g_autoptr (PlanCluster) self = plan_cluster_new (spec, error);
  if (!self || !set_links (self, per_node, domain, nic, latency, error))
    return NULL;
  if (lacks && !plan_cluster_set_fact (self, PLAN_FACT_NVLS, "no", NULL, error))
    return NULL;
  self->nodes = nodes;
  /* Written and read, so that what contradicts itself is found. */
  g_autofree char *text = plan_cluster_print (self);
  return plan_cluster_parse (text, gpu, error);
}

const PlanCluster *
plan_run_row_cluster (PlanRunRow *self, PlanRunParts *parts, GError **error)
{
  const char *const gpu = self->cell[PLAN_RUN_GPU];
  const gint64 gpus = plan_run_row_int (self, PLAN_RUN_GPUS);
  const gint64 told = plan_run_row_int (self, PLAN_RUN_GPUS_PER_NODE);
  const gint64 per_node = told > 0 ? MIN (told, gpus) : MIN (8, gpus);
  g_autofree char *domain = plan_run_row_note (self, "nvlink_domain");
  g_autofree char *told_nic = plan_run_row_note (self, "nic_gbit_per_gpu");
  g_autofree char *network = plan_run_row_note (self, "network");
  g_autofree char *state = plan_run_row_note (self, "network_state");
  g_autofree char *latency = network_fact (network, state, PLAN_FACT_NIC_LATENCY);
  g_autofree char *reached = network_fact (network, state, PLAN_FACT_NIC_RATE);
  g_autofree char *nic = reached    ? g_strdup (reached)
                         : told_nic ? g_strconcat (told_nic, " Gbit/s", NULL)
                                    : NULL;
  g_autofree char *key = g_strdup_printf (
      "%s:%" G_GINT64_FORMAT ":%" G_GINT64_FORMAT ":%s:%s:%s:%d", gpu, gpus, per_node,
      domain ? domain : "", nic ? nic : "", latency ? latency : "", lacks_multicast (self));
  PlanCluster *cluster = g_hash_table_lookup (parts->clusters, key);
  g_autoptr (GError) why = NULL;
  if (cluster)
    return cluster;
  if (!g_strv_contains (plan_cluster_devices_shipped (), gpu))
    plan_run_row_skip (self, "gpu %s: not a shipped device", gpu);
  else if (gpus % per_node != 0)
    plan_run_row_skip (self, "gpus: %" G_GINT64_FORMAT " are no whole nodes of %" G_GINT64_FORMAT,
                       gpus, per_node);
  else if (!(cluster = new_cluster (gpu, gpus / per_node, per_node, domain, nic, latency,
                                    lacks_multicast (self), &why)))
    plan_run_row_skip (self, "gpus_per_node: %s", why->message);
  else
    g_hash_table_insert (parts->clusters, g_steal_pointer (&key), cluster);
  return cluster;
}
