/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the texts of --cluster, and derives facts from other facts. */
#include "config.h"

#include "planner/cluster/cluster.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/cluster/cluster-private.h"
#include "planner/cluster/topology.h"

#include <math.h>
#include <string.h>

#define MAX_NODES 1000000

void
plan_cluster_free (PlanCluster *self)
{
  if (!self)
    return;
  g_free (self->name);
  g_free (self->source);
  g_free (self->site);
  g_free (self->device_name);
  for (guint i = 0; i < PLAN_N_FACTS; i++)
    g_free (self->fact_source[i]);
  g_free (self);
}

PlanCluster *
plan_cluster_new_device (const char *device, GError **error)
{
  g_autoptr (PlanCluster) self = plan_cluster_new_empty ();
  if (!g_key_file_has_group (plan_cluster_device_file (), device))
    {
      g_autofree char *shown = plan_text_quote (device);
      g_autofree char *hint = plan_text_suggest (device, plan_cluster_devices_shipped ());
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is not a shipped device: %s", shown,
                   hint);
      return NULL;
    }
  self->name = g_strdup (device);
  self->device_name = g_strdup (device);
  self->devices_per_node = 1;
  if (!plan_cluster_read_keys (self, plan_cluster_device_file (), device, TRUE, error))
    {
      g_prefix_error (error, "gpus.ini: [%s] ", device);
      return NULL;
    }
  return g_steal_pointer (&self);
}

/* Copies a fact that `self` does not know, with its source. */
static void
copy_fact (PlanCluster *self, PlanFact to, const PlanCluster *other, PlanFact from)
{
  g_autofree char *text = plan_cluster_print_fact (other, from);
  const char *const source = plan_cluster_source_of (other, from);
  if (!text || plan_cluster_knows (self, to))
    return;
  if (!plan_cluster_set_fact (self, to, text, g_str_equal (source, self->source) ? NULL : source,
                              NULL))
    g_assert_not_reached (); /* printed facts read back */
}

void
plan_cluster_adopt (PlanCluster *self, const PlanCluster *device)
{
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    if (plan_fact_is_of_device (f)
        && (f != PLAN_FACT_MEMORY_NOMINAL /* another size of memory has another label */
            || self->memory_bytes <= device->memory_nominal_bytes))
      copy_fact (self, f, device, f);
}

void
plan_cluster_adopt_device (PlanCluster *self)
{
  g_autoptr (PlanCluster) device = NULL;
  const char *name;
  if (self->kind != PLAN_DEVICE_GPU || !plan_cluster_find_device (self->device_name, &name, NULL)
      || !name || !(device = plan_cluster_new_device (name, NULL)))
    return;
  g_free (self->device_name);
  self->device_name = g_strdup (name);
  plan_cluster_adopt (self, device);
}

#define FOLLOWS_FROM_LINK "follows from link_bandwidth, which NVLink alone has"

/* Takes the links of a node for NVLink, all devices of the node being its domain, where a file
 * states their rate and no domain: a rate of over 1.1 times PCI Express's and over half of
 * NVLink's. Both shares are assumed. Without a domain only PCI Express would join the devices. */
static void
derive_domain (PlanCluster *self)
{
  const double least = MAX (1.1 * self->host_link_bytes_per_s, 0.5 * self->nvlink_bytes_per_s);
  if (plan_cluster_knows (self, PLAN_FACT_NVLINK_DOMAIN) || self->devices_per_node < 2
      || self->nvlink_bytes_per_s <= 0 || self->link_bytes_per_s <= least)
    return;
  self->nvlink_domain = self->devices_per_node;
  g_free (self->fact_source[PLAN_FACT_NVLINK_DOMAIN]);
  self->fact_source[PLAN_FACT_NVLINK_DOMAIN] = g_strdup (FOLLOWS_FROM_LINK);
}

/* Derives facts: NVLink is the link of the devices that it joins, and ports are shared evenly. */
static void
derive (PlanCluster *self)
{
  derive_domain (self);
  if (self->nvlink_domain >= self->devices_per_node)
    copy_fact (self, PLAN_FACT_LINK_BANDWIDTH, self, PLAN_FACT_NVLINK_BANDWIDTH);
  if (self->nics_per_node > 0 && self->nic_rate_bytes_per_s > 0 && self->nic_bytes_per_s == 0)
    {
      self->nic_bytes_per_s = self->nic_rate_bytes_per_s * (double)self->nics_per_node
                              / (double)self->devices_per_node;
      self->fact_source[PLAN_FACT_NIC_BANDWIDTH] = g_strdup (self->fact_source[PLAN_FACT_NIC_RATE]);
    }
}

static gboolean
check_whole (const PlanCluster *self, GError **error)
{
  const gint64 domain = self->nvlink_domain, per_node = self->devices_per_node;
  const double ports = (double)self->nics_per_node * self->nic_rate_bytes_per_s;
  const struct
  {
    PlanFact fact;
    gboolean is_broken;
    const char *rule;
  } rules[] = {
    { PLAN_FACT_MEMORY,
      self->memory_nominal_bytes > 0 && self->memory_bytes > self->memory_nominal_bytes,
      "is more than memory_nominal" },
    { PLAN_FACT_NVLINK_DOMAIN, domain > 0 && domain % per_node != 0 && per_node % domain != 0,
      "neither divides devices_per_node nor is a multiple of it" },
    { PLAN_FACT_MESH_LINKS, self->mesh_links > 0 && self->mesh_links < per_node - 1,
      "is less than one to each other device of a node" },
    { PLAN_FACT_NIC_BANDWIDTH,
      ports > 0 && self->nic_bytes_per_s * (double)per_node > ports * 1.0001,
      "for each device is more than nics_per_node at nic_rate carry" },
    { PLAN_FACT_NIC_SHARERS, self->nic_sharers > per_node, "is more than devices_per_node" },
    { PLAN_FACT_FAR_DEVICES, self->far_devices > per_node, "is more than devices_per_node" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rules); i++)
    if (rules[i].is_broken)
      {
        g_autofree char *value = plan_cluster_print_fact (self, rules[i].fact);
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s %s",
                     plan_fact_key (rules[i].fact), value, rules[i].rule);
        return FALSE;
      }
  return TRUE;
}

gboolean
plan_cluster_complete (PlanCluster *self, GError **error)
{
  plan_cluster_adopt_device (self);
  derive (self);
  return check_whole (self, error);
}

static PlanCluster *
read_preset (const char *name, GError **error)
{
  g_autoptr (PlanCluster) self
      = plan_cluster_read_section (plan_cluster_preset_file (), name, error);
  if (self && plan_cluster_complete (self, error))
    return g_steal_pointer (&self);
  g_prefix_error (error, "clusters.ini: [%s] ", name);
  return NULL;
}

/* The first shipped cluster with that device; every device has one. */
static const char *
home_of (const char *device)
{
  for (const char *const *name = plan_cluster_presets (); *name; name++)
    {
      g_autofree char *its
          = g_key_file_get_string (plan_cluster_preset_file (), *name, "device", NULL);
      if (g_strcmp0 (its, device) == 0)
        return *name;
    }
  return NULL;
}

static void
take_part_of_node (PlanCluster *self, gint64 count)
{
  self->nodes = 1;
  self->devices_per_node = count;
  self->nvlink_domain = MIN (self->nvlink_domain, count);
  self->nic_sharers = MIN (self->nic_sharers, count);
  self->far_devices = MIN (self->far_devices, count);
}

/* A cluster of `count` devices of the first shipped cluster that has them: part of a node, or whole
 * nodes. With `nodes`, `count` is per node. */
static PlanCluster *
new_of_device (const char *device, gint64 nodes, gint64 count, GError **error)
{
  const char *const home = home_of (device);
  g_autoptr (PlanCluster) self = read_preset (home, error);
  if (!self)
    return NULL;
  const gint64 whole = self->devices_per_node;
  const gboolean is_part = nodes <= 1 && count <= whole;
  if (!is_part && (nodes > 0 ? count != whole : count % whole != 0))
    {
      g_autofree char *wrong
          = nodes > 0 ? g_strdup_printf ("not %" G_GINT64_FORMAT, count)
                      : g_strdup_printf ("and %" G_GINT64_FORMAT " are no whole nodes", count);
      const gint64 enough = nodes > 0 ? nodes : (count + whole - 1) / whole;
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "cluster: a node of %s has %" G_GINT64_FORMAT
                   " of %s, %s: write %s:%" G_GINT64_FORMAT " for %" G_GINT64_FORMAT " nodes",
                   home, whole, device, wrong, home, enough, enough);
      return NULL;
    }
  if (is_part)
    take_part_of_node (self, count);
  else
    self->nodes = nodes > 0 ? nodes : count / whole;
  return g_steal_pointer (&self);
}

PlanCluster *
plan_cluster_resize (const PlanCluster *self, gint64 devices, GError **error)
{
  const gint64 whole = self->devices_per_node;
  if (devices < 1 || (devices > whole && (devices % whole != 0 || devices / whole > MAX_NODES)))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "cluster: %" G_GINT64_FORMAT
                   " devices of %s are neither a part of a node, which "
                   "has %" G_GINT64_FORMAT ", nor some of these",
                   devices, self->name, whole);
      return NULL;
    }
  g_autofree char *text = plan_cluster_print (self);
  PlanCluster *other = plan_cluster_parse (text, self->name, error);
  if (other && devices <= whole)
    take_part_of_node (other, devices);
  else if (other)
    other->nodes = devices / whole;
  return other;
}

/* A cluster from an .ini file or a topology; `device` is for a topology only. */
static PlanCluster *
new_from_file (const char *path, const char *device, GError **error)
{
  g_autofree char *text = NULL;
  gsize length;
  if (!plan_text_read_file (path, &text, &length, error))
    return NULL;
  if (!plan_topology_is (text))
    {
      if (!device)
        return plan_cluster_parse (text, path, error);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: %s@ is for what NCCL or nvidia-smi drew, and this is neither", path,
                   device);
      return NULL;
    }
  g_autoptr (PlanTopology) topology = plan_topology_parse (text, path, error);
  if (!topology)
    return NULL;
  PlanCluster *self = plan_topology_describe (topology, device, error);
  if (!self)
    g_prefix_error (error, "%s: ", path);
  return self;
}

static gboolean
is_file (const char *name)
{
  return strchr (name, '/') || g_str_has_suffix (name, ".ini") || g_str_has_suffix (name, ".xml")
         || g_file_test (name, G_FILE_TEST_EXISTS);
}

static PlanCluster *
new_named (const char *name, GError **error)
{
  const char *const at = strchr (name, '@');
  if (is_file (name) && (!at || g_file_test (name, G_FILE_TEST_EXISTS)))
    return new_from_file (name, NULL, error);
  if (at)
    {
      g_autofree char *device = g_strndup (name, (gsize)(at - name));
      return new_from_file (at + 1, device, error);
    }
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_cluster_suggest (name);
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_INVALID,
      "cluster: %s is neither a shipped cluster nor one of its devices (as in h100-80gb:8) "
      "nor a file: %s",
      shown, hint);
  return NULL;
}

/* A cluster from a preset, which consists of whole nodes. */
static PlanCluster *
new_of_preset (const char *preset, gint64 nodes, gint64 count, GError **error)
{
  if (nodes > 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "cluster: %s is a node with all its devices: write %s:%" G_GINT64_FORMAT
                   " for %" G_GINT64_FORMAT " of them",
                   preset, preset, nodes, nodes);
      return NULL;
    }
  PlanCluster *self = read_preset (preset, error);
  if (self && count > 0)
    self->nodes = count;
  return self;
}

PlanCluster *
plan_cluster_new (const char *spec, GError **error)
{
  const char *const colon = strrchr (spec, ':');
  g_autofree char *name = colon ? g_strndup (spec, (gsize)(colon - spec)) : g_strdup (spec);
  gint64 nodes = 0, count = 0, behind = 0;
  if (colon
      && !plan_units_parse_int (colon + 1, "cluster: the number behind the colon", 1, MAX_NODES,
                                &behind, error))
    return NULL;
  if (!is_file (name))
    plan_cluster_take_counts (&name, &nodes, &count);
  const char *const preset = is_file (name) ? NULL : plan_cluster_find_preset (name);
  const char *device = NULL;
  if (!preset && !plan_cluster_find_device (name, &device, error))
    {
      g_prefix_error_literal (error, "cluster: ");
      return NULL;
    }
  if (count > 0 && behind > 0) /* "8xH100:2" */
    nodes = behind;
  else if (behind > 0)
    count = behind;
  if (preset)
    return new_of_preset (preset, nodes, count, error);
  if (device)
    return new_of_device (device, nodes, MAX (count, 1), error);
  PlanCluster *self = new_named (name, error);
  if (self && colon)
    self->nodes = count;
  return self;
}

/* --- other hardware ------------------------------------------------------------------------- */

#define OVERRIDDEN "by --hw"
#define FOLLOWS "follows from --hw"

/* Facts that change in proportion with another fact. */
static const struct
{
  PlanFact fact, follower;
} followers[] = {
  { PLAN_FACT_NVLINK_BANDWIDTH, PLAN_FACT_LINK_BANDWIDTH },
  { PLAN_FACT_NIC_RATE, PLAN_FACT_NIC_BANDWIDTH },
  { PLAN_FACT_NICS_PER_NODE, PLAN_FACT_NIC_BANDWIDTH },
  { PLAN_FACT_NIC_BANDWIDTH, PLAN_FACT_NIC_RATE },
  { PLAN_FACT_MEMORY_NOMINAL, PLAN_FACT_MEMORY },
  { PLAN_FACT_MEMORY, PLAN_FACT_MEMORY_NOMINAL },
};

static gboolean
is_overridden (const PlanCluster *self, PlanFact fact)
{
  return g_strcmp0 (self->fact_source[fact], OVERRIDDEN) == 0;
}

static gboolean
find_fact (const char *key, PlanFact *out_fact, GError **error)
{
  const char *names[PLAN_N_FACTS + 1] = { NULL };
  if (plan_fact_find (key, out_fact))
    return TRUE;
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    names[f] = plan_fact_key (f);
  g_autofree char *shown = plan_text_quote (key);
  g_autofree char *hint = plan_text_suggest (key, names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is no fact of a cluster: %s", shown,
               hint);
  return FALSE;
}

static gboolean
override_one (PlanCluster *self, const char *setting, gboolean is_set[PLAN_N_FACTS], GError **error)
{
  const char *const equals = strchr (setting, '=');
  g_autofree char *key = equals ? g_strndup (setting, (gsize)(equals - setting)) : NULL;
  g_autofree char *shown = plan_text_quote (setting);
  PlanFact fact;
  if (!equals)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s is not FACT=VALUE, as in nic_bandwidth=100Gbit/s", shown);
      return FALSE;
    }
  if (!find_fact (g_strstrip (key), &fact, error))
    return FALSE;
  if (is_set[fact])
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: given twice", key);
      return FALSE;
    }
  g_autofree char *value = g_strstrip (g_strdup (equals + 1));
  is_set[fact] = TRUE;
  return plan_cluster_set_fact (self, fact, value, OVERRIDDEN, error);
}

/* Multiplies a fact by a factor. */
static gboolean
scale_fact (PlanCluster *self, PlanFact fact, double factor, GError **error)
{
  const double value = plan_cluster_value (self, fact) * factor;
  const gboolean is_size = g_str_equal (plan_fact_unit (fact), "B");
  g_autofree char *number = plan_units_format_real (is_size ? floor (value + 0.5) : value);
  g_autofree char *text = g_strdup_printf ("%s %s", number, plan_fact_unit (fact));
  return plan_cluster_set_fact (self, fact, text, FOLLOWS, error);
}

gboolean
plan_cluster_override (PlanCluster *self, const char *const *settings, GError **error)
{
  gboolean is_set[PLAN_N_FACTS] = { FALSE };
  double before[PLAN_N_FACTS];
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    before[f] = plan_cluster_value (self, f);
  for (; *settings; settings++)
    if (!override_one (self, *settings, is_set, error))
      return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (followers); i++)
    {
      const PlanFact fact = followers[i].fact, follower = followers[i].follower;
      if (is_set[fact] && before[fact] > 0 && before[follower] > 0
          && !is_overridden (self, follower)
          && !scale_fact (self, follower, plan_cluster_value (self, fact) / before[fact], error))
        return FALSE;
    }
  derive (self);
  return check_whole (self, error);
}

char **
plan_cluster_overrides (const PlanCluster *self)
{
  g_autoptr (GPtrArray) settings = g_ptr_array_new ();
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    if (is_overridden (self, f))
      {
        g_autofree char *value = plan_cluster_print_fact (self, f);
        g_ptr_array_add (settings, g_strdup_printf ("%s=%s", plan_fact_key (f), value));
      }
  g_ptr_array_add (settings, NULL);
  return (char **)g_ptr_array_free (g_steal_pointer (&settings), FALSE);
}

gboolean
plan_cluster_is_altered (const PlanCluster *self, gboolean of_device)
{
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    if (is_overridden (self, f) && (!of_device || plan_fact_is_of_device (f)))
      return TRUE;
  return FALSE;
}

gint64
plan_cluster_devices (const PlanCluster *self)
{
  return self->nodes * self->devices_per_node;
}

gint64
plan_cluster_linked_devices (const PlanCluster *self)
{
  return MAX (self->devices_per_node, MIN (self->nvlink_domain, plan_cluster_devices (self)));
}

/* The fact that is the rate of GEMMs in `compute`; PLAN_N_FACTS when there is none. */
static PlanFact
peak_of (PlanDtype compute)
{
  static const PlanFact facts[PLAN_N_DTYPES] = {
    [PLAN_DTYPE_FP32] = PLAN_FACT_PEAK_FP32,
    [PLAN_DTYPE_BF16] = PLAN_FACT_PEAK_BF16,
    [PLAN_DTYPE_FP16] = PLAN_FACT_PEAK_FP16,
    [PLAN_DTYPE_E4M3] = PLAN_FACT_PEAK_E4M3,
    [PLAN_DTYPE_E5M2] = PLAN_FACT_PEAK_E5M2,
    [PLAN_DTYPE_MXFP8] = PLAN_FACT_PEAK_MXFP8,
    [PLAN_DTYPE_NVFP4] = PLAN_FACT_PEAK_NVFP4,
    [PLAN_DTYPE_I32] = PLAN_N_FACTS,
    [PLAN_DTYPE_I64] = PLAN_N_FACTS,
    [PLAN_DTYPE_U8] = PLAN_N_FACTS,
    [PLAN_DTYPE_E8M0] = PLAN_N_FACTS,
    [PLAN_DTYPE_E2M1] = PLAN_N_FACTS,
    [PLAN_DTYPE_FP8_1X128] = PLAN_FACT_PEAK_E4M3,
    [PLAN_DTYPE_FP8_128X128] = PLAN_FACT_PEAK_E4M3,
  };
  return facts[compute];
}

gboolean
plan_cluster_check_figures (const PlanCluster *self, PlanDtype compute, GError **error)
{
  const PlanFact peak = peak_of (compute);
  const gint64 linked = plan_cluster_linked_devices (self), all = plan_cluster_devices (self);
  const struct
  {
    PlanFact fact;
    gboolean is_needed;
    const char *example;
  } needs[] = {
    { peak, peak != PLAN_N_FACTS, "989 TFLOP/s" },
    { PLAN_FACT_MEMORY, TRUE, "79 GiB" },
    { PLAN_FACT_MEMORY_BANDWIDTH, TRUE, "3.35 TB/s" },
    { PLAN_FACT_LINK_BANDWIDTH, linked > 1, "450 GB/s" },
    { PLAN_FACT_LINK_LATENCY, linked > 1, "2 us" },
    { PLAN_FACT_NIC_BANDWIDTH, all > linked, "400 Gbit/s" },
    { PLAN_FACT_NIC_LATENCY, all > linked, "5 us" },
  };
  g_autoptr (GString) missing = g_string_new (NULL);
  g_autoptr (GString) lines = g_string_new (NULL);
  if (peak == PLAN_N_FACTS)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "cluster %s: no rate of matrix products in %s can be stated", self->name,
                   plan_dtype_name (compute));
      return FALSE;
    }
  for (guint i = 0; i < G_N_ELEMENTS (needs); i++)
    if (needs[i].is_needed && !plan_cluster_knows (self, needs[i].fact))
      {
        const char *const key = plan_fact_key (needs[i].fact);
        g_string_append_printf (missing, "%s%s", missing->len ? ", " : "", key);
        g_string_append_printf (lines, "%s%s=%s", lines->len ? ", " : "", key, needs[i].example);
      }
  if (missing->len == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "cluster %s: %s: not known and needed here: give each in an .ini file, as in %s",
               self->name, missing->str, lines->str);
  return FALSE;
}
