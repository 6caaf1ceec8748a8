/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/show/show-cluster.h"

#include "db/catalogue.h"
#include "db/clusters.h"
#include "planner/base/error.h"
#include "planner/base/units.h"
#include "sim/cost/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DERIVED "derived"

/* A number that is computed from facts of a cluster. */
typedef struct
{
  const char *name;
  double value; /* 0 where a fact is unknown */
  const char *unit;
  double scale; /* what turns `value` into `scaled_unit`, which tables use */
  const char *scaled_unit;
  const char *summary;
} Derived;

#define N_DERIVED 7

static void
derive (const PlanCluster *c, Derived out[N_DERIVED])
{
  const double devices = (double)plan_cluster_devices (c);
  const double ports = (double)c->nics_per_node;
  const Derived all[N_DERIVED] = {
    { "devices", devices, "", 1, "", "devices of all nodes" },
    { "linked_devices", (double)plan_cluster_linked_devices (c), "", 1, "",
      "devices that reach one another without the network" },
    { "total_memory", devices * (double)c->memory_bytes, "B", 1 / (double)PLAN_GIB, "GiB",
      "memory of all devices" },
    { "total_peak_bf16", devices * c->peak_flops[PLAN_DTYPE_BF16], "FLOP/s", 1e-12, "TFLOP/s",
      "dense bf16 rate of all devices" },
    { "node_network_bandwidth", (double)c->devices_per_node * c->nic_bytes_per_s, "B/s", 1e-9,
      "GB/s", "all of a node's devices together, one way" },
    { "devices_per_nic", ports > 0 ? (double)c->devices_per_node / ports : 0, "", 1, "",
      "devices that share a network port" },
    { "link_over_nic", c->nic_bytes_per_s > 0 ? c->link_bytes_per_s / c->nic_bytes_per_s : 0, "", 1,
      "", "how much faster the link is than a device's share of the network" },
  };
  memcpy (out, all, sizeof all);
}

static void
add_row (CliTable *table, const char *fact, const char *value, const char *unit, const char *source,
         const char *summary)
{
  cli_table_add (table, fact);
  cli_table_add (table, value);
  cli_table_add (table, unit);
  cli_table_add (table, source);
  cli_table_add (table, summary);
}

static void
add_count (CliTable *table, const char *fact, gint64 value, const char *source, const char *summary)
{
  g_autofree char *text = g_strdup_printf ("%" G_GINT64_FORMAT, value);
  add_row (table, fact, text, "", source, summary);
}

/* Adds a fact: for people in the unit in which it is written, for programs in the base unit. */
static void
add_fact (CliTable *table, const PlanCluster *c, PlanFact fact, gboolean is_for_people)
{
  g_autofree char *text = plan_cluster_print_fact (c, fact);
  const char *unit = plan_fact_unit (fact);
  char *blank = strchr (text, ' ');
  if (is_for_people && blank)
    {
      *blank = '\0';
      unit = blank + 1;
    }
  else if (!plan_fact_is_answer (fact))
    {
      g_autofree char *number = plan_units_format_real (plan_cluster_value (c, fact));
      if (blank)
        {
          g_free (text);
          text = g_steal_pointer (&number);
        }
    }
  add_row (table, plan_fact_key (fact), text, unit, plan_cluster_source_of (c, fact),
           plan_fact_summary (fact));
}

static void
add_derived (CliTable *table, const Derived *derived, gboolean is_for_people)
{
  const double value = derived->value * (is_for_people ? derived->scale : 1);
  g_autofree char *text
      = plan_units_format_real (is_for_people ? floor (value * 10 + 0.5) / 10 : value);
  if (derived->value > 0)
    add_row (table, derived->name, text, is_for_people ? derived->scaled_unit : derived->unit,
             DERIVED, derived->summary);
}

static void
show_as_table (const PlanCluster *c, CliFormat format)
{
  static const CliColumn columns[] = { { "fact", FALSE },
                                       { "value", TRUE },
                                       { "unit", FALSE },
                                       { "source", FALSE },
                                       { "meaning", FALSE } };
  const gboolean is_for_people = format == CLI_FORMAT_TABLE;
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  Derived derived[N_DERIVED];
  if (is_for_people)
    printf ("%s: %s, %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT "\n", c->name, c->device_name,
            c->nodes, c->devices_per_node);
  add_row (table, "device", c->device_name, "", c->source,
           c->kind == PLAN_DEVICE_CPU ? "ranks on processors" : "the device of each rank");
  if (c->site)
    add_row (table, "site", c->site, "", c->source,
             "where the machines are: the hosts of a site are alike");
  add_count (table, "nodes", c->nodes, c->source, "nodes");
  add_count (table, "devices_per_node", c->devices_per_node, c->source, "devices of a node");
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    if (plan_cluster_knows (c, f))
      add_fact (table, c, f, is_for_people);
  derive (c, derived);
  for (guint i = 0; i < N_DERIVED; i++)
    add_derived (table, &derived[i], is_for_people);
  cli_table_print (table, format);
}

static void
add_text (JsonBuilder *b, const char *name, const char *value)
{
  json_builder_set_member_name (b, name);
  json_builder_add_string_value (b, value);
}

static void
add_number (JsonBuilder *b, const char *name, double value)
{
  json_builder_set_member_name (b, name);
  if (value == floor (value) && fabs (value) < 1e15)
    json_builder_add_int_value (b, (gint64)value);
  else
    json_builder_add_double_value (b, value);
}

static void
add_json_fact (JsonBuilder *b, const PlanCluster *c, PlanFact fact)
{
  const double value = plan_cluster_value (c, fact);
  json_builder_set_member_name (b, plan_fact_key (fact));
  json_builder_begin_object (b);
  if (plan_fact_is_answer (fact))
    {
      json_builder_set_member_name (b, "value");
      json_builder_add_boolean_value (b, value > 0);
    }
  else
    add_number (b, "value", value);
  add_text (b, "unit", plan_fact_unit (fact));
  add_text (b, "source", plan_cluster_source_of (c, fact));
  json_builder_set_member_name (b, "assumed");
  json_builder_add_boolean_value (b, plan_cluster_assumes (c, fact));
  json_builder_end_object (b);
}

static void
show_as_json (const PlanCluster *c)
{
  g_autoptr (JsonBuilder) b = json_builder_new ();
  Derived derived[N_DERIVED];
  derive (c, derived);
  json_builder_begin_object (b);
  add_text (b, "name", c->name);
  add_text (b, "device", c->device_name);
  add_text (b, "kind", c->kind == PLAN_DEVICE_CPU ? "cpu" : "gpu");
  add_text (b, "source", c->source);
  if (c->site)
    add_text (b, "site", c->site);
  add_number (b, "nodes", (double)c->nodes);
  add_number (b, "devices_per_node", (double)c->devices_per_node);
  json_builder_set_member_name (b, "facts");
  json_builder_begin_object (b);
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    if (plan_cluster_knows (c, f))
      add_json_fact (b, c, f);
  json_builder_end_object (b);
  json_builder_set_member_name (b, DERIVED);
  json_builder_begin_object (b);
  for (guint i = 0; i < N_DERIVED; i++)
    if (derived[i].value > 0)
      add_number (b, derived[i].name, derived[i].value);
  json_builder_end_object (b);
  json_builder_end_object (b);
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  cli_print_json (root);
}

void
cli_show_cluster (const PlanCluster *cluster, CliFormat format)
{
  if (format == CLI_FORMAT_JSON)
    show_as_json (cluster);
  else
    show_as_table (cluster, format);
}

/* Adds a fact times `scale`; an empty cell where it is unknown. */
static void
add_scaled (CliTable *table, const PlanCluster *c, PlanFact fact, double scale, int decimals)
{
  if (plan_cluster_knows (c, fact))
    cli_table_add_real (table, plan_cluster_value (c, fact) * scale, decimals);
  else
    cli_table_add (table, NULL);
}

gboolean
cli_show_gpus (CliFormat format, GError **error)
{
  static const CliColumn columns[]
      = { { "gpu", FALSE },         { "memory_gib", TRUE },  { "memory_tb_s", TRUE },
          { "bf16_tflops", TRUE },  { "fp16_tflops", TRUE }, { "fp8_tflops", TRUE },
          { "nvfp4_tflops", TRUE }, { "nvlink_gb_s", TRUE }, { "capability", TRUE },
          { "source", FALSE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (const char *const *name = plan_cluster_devices_shipped (); *name; name++)
    {
      g_autoptr (PlanCluster) gpu = plan_cluster_new_device (*name, error);
      if (!gpu)
        return FALSE;
      cli_table_add (table, *name);
      add_scaled (table, gpu, PLAN_FACT_MEMORY, 1 / (double)PLAN_GIB, 1);
      add_scaled (table, gpu, PLAN_FACT_MEMORY_BANDWIDTH, 1e-12, 3);
      add_scaled (table, gpu, PLAN_FACT_PEAK_BF16, 1e-12, 1);
      add_scaled (table, gpu, PLAN_FACT_PEAK_FP16, 1e-12, 1);
      add_scaled (table, gpu, PLAN_FACT_PEAK_E4M3, 1e-12, 1);
      add_scaled (table, gpu, PLAN_FACT_PEAK_NVFP4, 1e-12, 1);
      add_scaled (table, gpu, PLAN_FACT_NVLINK_BANDWIDTH, 1e-9, 1);
      add_scaled (table, gpu, PLAN_FACT_COMPUTE_CAPABILITY, 1, 1);
      cli_table_add (table, gpu->source);
    }
  cli_table_print (table, format);
  return TRUE;
}

static void
add_cost (CliTable *table, const char *gpu, const char *kind, const char *how)
{
  cli_table_add (table, gpu);
  cli_table_add (table, kind);
  cli_table_add (table, how);
}

static void
add_measured (CliTable *table, double value, const char *unit, const char *source, const char *row)
{
  cli_table_add_real (table, value, 3);
  cli_table_add (table, unit);
  cli_table_add (table, source);
  cli_table_add (table, row);
}

static gboolean
add_curves (CliTable *table, DbStore *store, const char *gpu, GError **error)
{
  g_autoptr (GArray) curves = db_catalogue_list_curves (store, gpu, NULL, error);
  for (guint i = 0; curves && i < curves->len; i++)
    {
      const DbCurve *curve = &g_array_index (curves, DbCurve, i);
      for (guint p = 0; p < curve->points->len; p++)
        {
          const DbCurvePoint *point = &g_array_index (curve->points, DbCurvePoint, p);
          add_cost (table, curve->gpu, curve->op, curve->algorithm);
          cli_table_add_int (table, curve->ranks);
          cli_table_add_int (table, curve->nodes);
          if (point->size_bytes > 0)
            cli_table_add_int (table, point->size_bytes);
          else
            cli_table_add (table, NULL);
          add_measured (table, 1e-9 * point->bus_bytes_per_s, "GB/s of bus", curve->source,
                        point->row);
        }
    }
  return curves != NULL;
}

static void
add_shape (CliTable *table, char *shape)
{
  cli_table_add (table, NULL); /* only collectives have ranks and nodes */
  cli_table_add (table, NULL);
  cli_table_add (table, shape);
  g_free (shape);
}

static gboolean
add_products (CliTable *table, DbStore *store, const char *gpu, GError **error)
{
  g_autoptr (GArray) products = db_catalogue_list_products (store, gpu, error);
  for (guint i = 0; products && i < products->len; i++)
    {
      const DbProduct *p = &g_array_index (products, DbProduct, i);
      add_cost (table, p->gpu, p->kind, p->pass);
      add_shape (table, g_strdup_printf ("%" G_GINT64_FORMAT " of m=%" G_GINT64_FORMAT
                                         " n=%" G_GINT64_FORMAT " k=%" G_GINT64_FORMAT " to %s%s",
                                         p->batch, p->m, p->n, p->k, p->out_dtype,
                                         p->accumulates ? ", added" : ""));
      add_measured (table, 1e-12 * p->flops_per_s, "TFLOP/s", p->source, p->row);
    }
  return products != NULL;
}

static gboolean
add_attention (CliTable *table, DbStore *store, const char *gpu, GError **error)
{
  g_autoptr (GArray) rows = db_catalogue_list_attention (store, gpu, error);
  for (guint i = 0; rows && i < rows->len; i++)
    {
      const DbAttention *a = &g_array_index (rows, DbAttention, i);
      add_cost (table, a->gpu, "attention", a->pass);
      add_shape (table,
                 g_strdup_printf ("%" G_GINT64_FORMAT " of seq=%" G_GINT64_FORMAT
                                  " heads=%" G_GINT64_FORMAT "/%" G_GINT64_FORMAT
                                  " dims=%" G_GINT64_FORMAT "/%" G_GINT64_FORMAT,
                                  a->batch, a->seq, a->heads, a->kv_heads, a->qk_dim, a->v_dim));
      add_measured (table, a->share, "of peak, as its source counts", a->source, a->row);
    }
  return rows != NULL;
}

/* The unit of a cost parameter. Empty for shares and counts, and for parameters of other
 * versions. */
static const char *
parameter_unit (const char *key)
{
  for (SimParam p = 0; p < SIM_N_PARAMS; p++)
    if (g_str_equal (sim_param_key (p), key))
      return sim_param_unit (p);
  return "";
}

static gboolean
add_parameters (CliTable *table, DbStore *store, const char *params, GError **error)
{
  g_autoptr (GArray) parameters = db_catalogue_list_parameters (store, params, error);
  for (guint i = 0; parameters && i < parameters->len; i++)
    {
      const DbFact *fact = &g_array_index (parameters, DbFact, i);
      add_cost (table, NULL, "parameter", fact->of);
      add_shape (table, g_strdup (fact->key));
      add_measured (table, fact->value, parameter_unit (fact->key), fact->source, NULL);
    }
  return parameters != NULL;
}

gboolean
cli_show_costs (const PlanCluster *cluster, CliFormat format, GError **error)
{
  static const CliColumn columns[]
      = { { "gpu", FALSE },    { "kind", FALSE }, { "how", FALSE },  { "ranks", TRUE },
          { "nodes", TRUE },   { "size", FALSE }, { "value", TRUE }, { "unit", FALSE },
          { "source", FALSE }, { "row", FALSE } };
  const char *gpu = cluster ? cluster->device_name : NULL;
  const char *params = cluster ? sim_params_default (cluster)->id : NULL;
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  g_autoptr (DbStore) store = db_catalogue_open (error);
  if (!store || !add_curves (table, store, gpu, error) || !add_products (table, store, gpu, error)
      || !add_attention (table, store, gpu, error) || !add_parameters (table, store, params, error))
    return FALSE;
  cli_table_print (table, format);
  return TRUE;
}

/* Whether a name cannot be stored: names of shipped clusters are found first, and "local" always
 * means this machine. */
static gboolean
is_taken (const char *name)
{
  return plan_cluster_is_shipped (name) || g_str_equal (name, "local")
         || g_str_equal (name, "local-cpu");
}

gboolean
cli_keep_cluster (const PlanCluster *cluster, const char *db, GError **error)
{
  if (is_taken (cluster->name))
    {
      g_set_error (
          error, PLAN_ERROR, PLAN_ERROR_INVALID,
          "--keep: %s is a name of fsdplan's own; give the cluster another name in an .ini file",
          cluster->name);
      return FALSE;
    }
  g_autoptr (DbStore) store = db_store_open (db, error);
  g_autofree char *text = plan_cluster_print (cluster);
  return store && db_store_put_cluster (store, cluster->name, text, error);
}
