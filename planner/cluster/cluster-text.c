/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a cluster's file, which describes one cluster in a section with its name:
 *
 *   [NAME]    nodes (1), devices_per_node, device, kind (gpu), source, site, and any fact
 *   [gpu DEVICE]    source, and facts of that device, which may be described apart
 *
 * `fsdplan show --cluster X` lists the facts. A fact's value may be followed by `# its source`
 * where that is not `source`. A fact that is not given is unknown, unless the device is a shipped
 * one that has it; plan_cluster_check_figures reports it by name when it is needed. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/cluster/cluster-private.h"

#include <string.h>

#define MAX_NODES 1000000
#define MAX_DEVICES_PER_NODE 4096
#define NO_SOURCE "not stated"
#define DEVICE_SECTION "gpu "

/* All keys, for hints. */
static const char *const keys[] = {
#define X(id, key, type, member, scope, summary) key,
  PLAN_FACT_LIST (X)
#undef X
      "nodes",
  "devices_per_node",
  "device",
  "kind",
  "source",
  "site",
  NULL
};

static const char *const kinds[] = { [PLAN_DEVICE_GPU] = "gpu", [PLAN_DEVICE_CPU] = "cpu", NULL };

PlanCluster *
plan_cluster_new_empty (void)
{
  PlanCluster *self = g_new0 (PlanCluster, 1);
  self->source = g_strdup (NO_SOURCE);
  self->nodes = 1;
  return self;
}

static gboolean
refuse (GError **error, const char *key, const char *value, const char *rule)
{
  g_autofree char *shown = plan_text_quote (value);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s %s", key, shown, rule);
  return FALSE;
}

static gboolean
set_kind (PlanDeviceKind *out, const char *key, const char *value, GError **error)
{
  for (guint i = 0; kinds[i]; i++)
    if (g_str_equal (value, kinds[i]))
      {
        *out = (PlanDeviceKind)i;
        return TRUE;
      }
  return refuse (error, key, value, "must be gpu or cpu");
}

static gboolean
set_name (char **out, const char *key, const char *value, GError **error)
{
  if (!plan_text_is_name (value))
    return refuse (error, key, value, "may have only letters, digits and . _ + -");
  g_free (*out);
  *out = g_strdup (value);
  return TRUE;
}

/* Sets the name of a cluster: a word, or "local/1a2b3c4d" for a probed machine. */
static gboolean
set_cluster_name (PlanCluster *self, const char *value, GError **error)
{
  const gboolean is_local = g_str_has_prefix (value, "local/");
  if (!set_name (&self->name, "name", value + (is_local ? strlen ("local/") : 0), error))
    return FALSE;
  g_free (self->name);
  self->name = g_strdup (value);
  return TRUE;
}

/* Sets a fact from a text such as "3.35 TB/s # data sheet". */
static gboolean
set_fact (PlanCluster *self, PlanFact fact, const char *value, GError **error)
{
  const char *const hash = strchr (value, '#');
  g_autofree char *text = hash ? g_strndup (value, (gsize)(hash - value)) : g_strdup (value);
  g_autofree char *source = hash ? g_strstrip (g_strdup (hash + 1)) : NULL;
  if (source && *source == '\0')
    return refuse (error, plan_fact_key (fact), value, "has no source behind the #");
  return plan_cluster_set_fact (self, fact, g_strchomp (text), source, error);
}

static gboolean
refuse_key (GError **error, const char *key)
{
  g_autofree char *shown = plan_text_quote (key);
  g_autofree char *hint = plan_text_suggest (key, keys);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is not a key of a cluster: %s", shown,
               hint);
  return FALSE;
}

static gboolean
set_key (PlanCluster *self, const char *key, const char *value, gboolean is_device, GError **error)
{
  PlanFact fact;
  if (g_str_equal (key, "source"))
    {
      if (*value == '\0')
        return refuse (error, key, value,
                       "is no source: say where the figures are from, or leave it out");
      g_free (self->source);
      self->source = g_strdup (value);
      return TRUE;
    }
  const gboolean is_fact = plan_fact_find (key, &fact);
  if (is_device && !(is_fact && plan_fact_is_of_device (fact)))
    return refuse (error, "key", key, "is not a fact of a device: it belongs to the cluster");
  if (is_fact)
    return set_fact (self, fact, value, error);
  if (g_str_equal (key, "nodes"))
    return plan_units_parse_int (value, key, 1, MAX_NODES, &self->nodes, error);
  if (g_str_equal (key, "devices_per_node"))
    return plan_units_parse_int (value, key, 1, MAX_DEVICES_PER_NODE, &self->devices_per_node,
                                 error);
  if (g_str_equal (key, "device"))
    return set_name (&self->device_name, key, value, error);
  if (g_str_equal (key, "site"))
    return set_name (&self->site, key, value, error);
  if (g_str_equal (key, "kind"))
    return set_kind (&self->kind, key, value, error);
  return refuse_key (error, key);
}

gboolean
plan_cluster_read_keys (PlanCluster *self, GKeyFile *file, const char *section, gboolean is_device,
                        GError **error)
{
  g_auto (GStrv) found = g_key_file_get_keys (file, section, NULL, NULL);
  for (guint i = 0; found && found[i]; i++)
    {
      g_autoptr (GError) cause = NULL;
      g_autofree char *value = g_key_file_get_string (file, section, found[i], &cause);
      if (cause) /* some errors come with a value */
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s", found[i], cause->message);
      if (cause || !set_key (self, found[i], g_strchomp (value), is_device, error))
        return FALSE;
    }
  for (guint i = 0; i < PLAN_N_FACTS;
       i++) /* a fact's source that equals the cluster's is not kept */
    if (g_strcmp0 (self->fact_source[i], self->source) == 0)
      g_clear_pointer (&self->fact_source[i], g_free);
  return TRUE;
}

PlanCluster *
plan_cluster_read_section (GKeyFile *file, const char *section, GError **error)
{
  g_autoptr (PlanCluster) self = plan_cluster_new_empty ();
  if (!set_cluster_name (self, section, error)
      || !plan_cluster_read_keys (self, file, section, FALSE, error))
    return NULL;
  if (self->devices_per_node == 0 || !self->device_name)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: missing",
                   self->device_name ? "devices_per_node" : "device");
      return NULL;
    }
  return g_steal_pointer (&self);
}

static gboolean
refuse_line (GError **error, guint line, const char *text, const char *rule)
{
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "line %u: %s: %s", line, shown, rule);
  return FALSE;
}

/* Refuses repeated sections and keys; GKeyFile would merge them and keep the last. */
static gboolean
check_no_repeats (const char *text, GError **error)
{
  g_autoptr (GHashTable) sections = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  guint clusters = 0;
  for (guint i = 0; lines[i]; i++)
    {
      char *const line = g_strstrip (lines[i]);
      char *const equals = strchr (line, '=');
      const gboolean is_section = *line == '[';
      if (*line == '#' || *line == '\0' || (!is_section && !equals))
        continue;
      clusters += is_section && !g_str_has_prefix (line + 1, DEVICE_SECTION);
      if (clusters > 1)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "line %u: a second section; a file describes one cluster", i + 1);
          return FALSE;
        }
      if (is_section)
        g_hash_table_remove_all (seen);
      else
        *equals = '\0';
      if (!g_hash_table_add (is_section ? sections : seen, g_strdup (g_strchomp (line))))
        return refuse_line (error, i + 1, line, "given twice");
    }
  return TRUE;
}

/* The section that describes the cluster; NULL when none does. */
static const char *
find_cluster (char **sections)
{
  for (; *sections; sections++)
    if (!g_str_has_prefix (*sections, DEVICE_SECTION))
      return *sections;
  return NULL;
}

/* Reads a device's section, which must be of the cluster's device. */
static gboolean
read_device (PlanCluster *self, GKeyFile *file, const char *section, GError **error)
{
  g_autoptr (PlanCluster) device = plan_cluster_new_empty ();
  if (!g_str_equal (section + strlen (DEVICE_SECTION), self->device_name))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "[%s] is not the cluster's device, which is %s", section, self->device_name);
      return FALSE;
    }
  if (!plan_cluster_read_keys (device, file, section, TRUE, error))
    {
      g_prefix_error (error, "[%s] ", section);
      return FALSE;
    }
  plan_cluster_adopt (self, device);
  return TRUE;
}

static PlanCluster *
read_file (GKeyFile *file, GError **error)
{
  g_auto (GStrv) sections = g_key_file_get_groups (file, NULL);
  const char *const section = find_cluster (sections);
  if (!section)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "no section; write [NAME] and below it the cluster's keys");
      return NULL;
    }
  g_autoptr (PlanCluster) self = plan_cluster_read_section (file, section, error);
  if (!self)
    {
      g_prefix_error (error, "[%s] ", section);
      return NULL;
    }
  for (guint i = 0; sections[i]; i++)
    if (sections[i] != section && !read_device (self, file, sections[i], error))
      return NULL;
  if (!plan_cluster_complete (self, error))
    {
      g_prefix_error (error, "[%s] ", section);
      return NULL;
    }
  return g_steal_pointer (&self);
}

PlanCluster *
plan_cluster_parse (const char *text, const char *origin, GError **error)
{
  g_autoptr (GKeyFile) file = g_key_file_new ();
  g_autoptr (GError) cause = NULL;
  if (!plan_text_check (text, strlen (text), origin, error))
    return NULL;
  if (!g_key_file_load_from_data (file, text, strlen (text), G_KEY_FILE_KEEP_TRANSLATIONS, &cause))
    {
      g_autofree char *shown = plan_text_line (cause->message);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s", origin, shown);
      return NULL;
    }
  PlanCluster *self = check_no_repeats (text, error) ? read_file (file, error) : NULL;
  if (!self)
    g_prefix_error (error, "%s: ", origin);
  return self;
}

char *
plan_cluster_print (const PlanCluster *self)
{
  g_autoptr (GKeyFile) file = g_key_file_new ();
  g_key_file_set_string (file, self->name, "source", self->source);
  if (self->site)
    g_key_file_set_string (file, self->name, "site", self->site);
  g_key_file_set_int64 (file, self->name, "nodes", self->nodes);
  g_key_file_set_int64 (file, self->name, "devices_per_node", self->devices_per_node);
  g_key_file_set_string (file, self->name, "device", self->device_name);
  g_key_file_set_string (file, self->name, "kind", kinds[self->kind]);
  for (guint i = 0; i < PLAN_N_FACTS; i++)
    {
      const char *const source = self->fact_source[i];
      g_autofree char *value = plan_cluster_print_fact (self, (PlanFact)i);
      g_autofree char *line = source ? g_strdup_printf ("%s # %s", value, source) : NULL;
      if (value)
        g_key_file_set_string (file, self->name, plan_fact_key ((PlanFact)i), line ? line : value);
    }
  return g_key_file_to_data (file, NULL, NULL);
}
