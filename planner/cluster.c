/* SPDX-License-Identifier: Apache-2.0 */
/* One section of an .ini file is one cluster, and its name the cluster's. Keys:
 *
 *   nodes (1), devices_per_node, device, kind (gpu), source
 *   peak_FORMAT (dense), memory, memory_bandwidth
 *   link_bandwidth, link_latency (inside a node), nic_bandwidth, nic_latency (between nodes)
 *
 * A figure that is not given is 0, that is not known: plan_cluster_check_figures refuses it by name
 * when it is needed. */
#include "config.h"

#include "planner/cluster.h"

#include "planner/error.h"
#include "planner/text.h"
#include "planner/units.h"

#include <math.h>
#include <string.h>

#define MAX_NODES 1000000
#define MAX_DEVICES_PER_NODE 4096
#define MAX_RATE 1e24
#define MAX_LATENCY_NS 1e9
#define NO_SOURCE "not stated"
#define PEAK "peak_"

static const char presets_text[] =
#include "planner/data/clusters.ini.inc"
    ;

typedef struct
{
  const char *name;
  double factor;
} Unit;

/* A printer takes the first that fits, down to the base unit; those behind it are only read. */
static const Unit flops_units[] = {
  { "TFLOP/s", 1e12 }, { "GFLOP/s", 1e9 }, { "FLOP/s", 1 }, { "PFLOP/s", 1e15 }, { NULL, 0 }
};
static const Unit bandwidth_units[]
    = { { "TB/s", 1e12 },      { "GB/s", 1e9 },         { "MB/s", 1e6 },
        { "B/s", 1 },          { "Tbit/s", 1e12 / 8 },  { "Gbit/s", 1e9 / 8 },
        { "Mbit/s", 1e6 / 8 }, { "GiB/s", 1073741824 }, { NULL, 0 } };
static const Unit latency_units[]
    = { { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "ns", 1 }, { NULL, 0 } };

typedef enum
{
  KEY_BANDWIDTH,
  KEY_LATENCY,
} KeyType;

static const struct
{
  const char *key;
  KeyType type;
  gsize offset;
} figures[] = {
  { "memory_bandwidth", KEY_BANDWIDTH, G_STRUCT_OFFSET (PlanCluster, memory_bytes_per_s) },
  { "link_bandwidth", KEY_BANDWIDTH, G_STRUCT_OFFSET (PlanCluster, link_bytes_per_s) },
  { "link_latency", KEY_LATENCY, G_STRUCT_OFFSET (PlanCluster, link_latency_ns) },
  { "nic_bandwidth", KEY_BANDWIDTH, G_STRUCT_OFFSET (PlanCluster, nic_bytes_per_s) },
  { "nic_latency", KEY_LATENCY, G_STRUCT_OFFSET (PlanCluster, nic_latency_ns) },
};

/* Every key, for hints. */
static const char *const keys[] = {
#define X(id, name, bits) PEAK name,
  PLAN_DTYPE_LIST (X)
#undef X
      "nodes",
  "devices_per_node",
  "device",
  "kind",
  "source",
  "memory",
  "memory_bandwidth",
  "link_bandwidth",
  "link_latency",
  "nic_bandwidth",
  "nic_latency",
  NULL
};

static const char *const kinds[] = { [PLAN_DEVICE_GPU] = "gpu", [PLAN_DEVICE_CPU] = "cpu", NULL };

void
plan_cluster_free (PlanCluster *self)
{
  if (!self)
    return;
  g_free (self->name);
  g_free (self->source);
  g_free (self->device_name);
  g_free (self);
}

static gboolean
refuse (GError **error, const char *key, const char *value, const char *rule)
{
  g_autofree char *shown = plan_text_quote (value);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s %s", key, shown, rule);
  return FALSE;
}

/* "989.5 TFLOP/s": a number above 0 and a unit of the table; at most `max` in the base unit. */
static gboolean
parse_quantity (const char *text, const char *key, const Unit *units, const char *example,
                double max, double *out, GError **error)
{
  const gsize digits = strspn (text, "0123456789.e+-");
  const char *const unit = text + digits + (text[digits] == ' ');
  g_autofree char *number = g_strndup (text, digits);
  g_autofree char *rule = g_strdup_printf ("is not a number with a unit such as %s", example);
  double value;
  while (units->name && !g_str_equal (units->name, unit))
    units++;
  if (!units->name || !plan_units_parse_real (number, key, 0, 1e300, &value, NULL))
    return refuse (error, key, text, rule);
  value *= units->factor;
  if (!(value > 0) || !(value <= max))
    return refuse (error, key, text,
                   value > 0 ? "is beyond any machine" : "says nothing: leave the key out");
  *out = value;
  return TRUE;
}

static gboolean
set_latency (gint64 *out, const char *key, const char *value, GError **error)
{
  double ns;
  if (!parse_quantity (value, key, latency_units, "2 us", MAX_LATENCY_NS, &ns, error))
    return FALSE;
  const double whole = floor (ns + 0.5);
  if (whole < 1 || fabs (ns - whole) > 1e-6 * whole)
    return refuse (error, key, value, "is not a whole number of nanoseconds");
  *out = (gint64)whole;
  return TRUE;
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

static gboolean
set_peak (PlanCluster *self, const char *key, const char *value, GError **error)
{
  PlanDtype dtype;
  return plan_dtype_parse (key + strlen (PEAK), key, &dtype, error)
         && parse_quantity (value, key, flops_units, "989.5 TFLOP/s", MAX_RATE,
                            &self->peak_flops[dtype], error);
}

static gboolean
set_memory (PlanCluster *self, const char *key, const char *value, GError **error)
{
  guint64 bytes;
  if (!plan_units_parse_size (value, key, &bytes, error))
    return FALSE;
  if (bytes == 0 || bytes > G_MAXINT64)
    return refuse (error, key, value, "is not the memory of a device");
  self->memory_bytes = bytes;
  return TRUE;
}

static gboolean
set_key (PlanCluster *self, const char *key, const char *value, GError **error)
{
  if (g_str_has_prefix (key, PEAK))
    return set_peak (self, key, value, error);
  for (guint i = 0; i < G_N_ELEMENTS (figures); i++)
    if (g_str_equal (key, figures[i].key))
      return figures[i].type == KEY_LATENCY
                 ? set_latency (&G_STRUCT_MEMBER (gint64, self, figures[i].offset), key, value,
                                error)
                 : parse_quantity (value, key, bandwidth_units, "450 GB/s or 400 Gbit/s", MAX_RATE,
                                   &G_STRUCT_MEMBER (double, self, figures[i].offset), error);
  if (g_str_equal (key, "memory"))
    return set_memory (self, key, value, error);
  if (g_str_equal (key, "nodes"))
    return plan_units_parse_int (value, key, 1, MAX_NODES, &self->nodes, error);
  if (g_str_equal (key, "devices_per_node"))
    return plan_units_parse_int (value, key, 1, MAX_DEVICES_PER_NODE, &self->devices_per_node,
                                 error);
  if (g_str_equal (key, "device"))
    return set_name (&self->device_name, key, value, error);
  if (g_str_equal (key, "kind"))
    return set_kind (&self->kind, key, value, error);
  if (!g_str_equal (key, "source"))
    {
      g_autofree char *shown = plan_text_quote (key);
      g_autofree char *hint = plan_text_suggest (key, keys);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is not a key of a cluster: %s", shown,
                   hint);
      return FALSE;
    }
  g_free (self->source);
  self->source = g_strdup (value);
  return TRUE;
}

static PlanCluster *
read_section (GKeyFile *file, const char *section, GError **error)
{
  g_autoptr (PlanCluster) self = g_new0 (PlanCluster, 1);
  g_auto (GStrv) found = g_key_file_get_keys (file, section, NULL, NULL);
  self->source = g_strdup (NO_SOURCE);
  self->nodes = 1;
  if (!set_name (&self->name, "name", section, error))
    return NULL;
  for (guint i = 0; found && found[i]; i++)
    {
      g_autoptr (GError) cause = NULL;
      g_autofree char *value = g_key_file_get_string (file, section, found[i], &cause);
      if (cause) /* with some, there is a value all the same */
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s", found[i], cause->message);
      if (cause || !set_key (self, found[i], g_strchomp (value), error))
        return NULL;
    }
  if (self->devices_per_node == 0 || !self->device_name)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: missing",
                   self->device_name ? "devices_per_node" : "device");
      return NULL;
    }
  return g_steal_pointer (&self);
}

/* GKeyFile merges sections and keeps the last of equal keys; here neither may happen. */
static gboolean
check_no_repeats (const char *text, GError **error)
{
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i]; i++)
    {
      char *const line = g_strstrip (lines[i]);
      char *const equals = strchr (line, '=');
      if (*line == '#' || *line == '\0' || (*line != '[' && !equals))
        continue;
      if (*line == '[' && g_hash_table_size (seen) > 0)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "line %u: a second section; a file describes one cluster", i + 1);
          return FALSE;
        }
      if (*line != '[')
        *equals = '\0';
      if (!g_hash_table_add (seen, g_strdup (g_strchomp (line))))
        {
          g_autofree char *shown = plan_text_quote (line);
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "line %u: %s: given twice", i + 1,
                       shown);
          return FALSE;
        }
    }
  return TRUE;
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
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s", origin, cause->message);
      return NULL;
    }
  g_auto (GStrv) sections = g_key_file_get_groups (file, NULL);
  if (!sections[0])
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: no section; write [NAME] and below it the cluster's keys", origin);
      return NULL;
    }
  PlanCluster *self = NULL;
  if (!check_no_repeats (text, error))
    g_prefix_error (error, "%s: ", origin);
  else if (!(self = read_section (file, sections[0], error)))
    g_prefix_error (error, "%s: [%s] ", origin, sections[0]);
  return self;
}

const char *const *
plan_cluster_presets (void)
{
  static gsize ready = 0;
  static char **names;
  if (g_once_init_enter (&ready))
    {
      g_autoptr (GKeyFile) file = plan_text_built_in (presets_text);
      names = g_key_file_get_groups (file, NULL);
      g_once_init_leave (&ready, 1);
    }
  return (const char *const *)names;
}

static PlanCluster *
read_preset (const char *name, GError **error)
{
  g_autoptr (GKeyFile) file = plan_text_built_in (presets_text);
  PlanCluster *self = read_section (file, name, error);
  if (!self)
    g_prefix_error (error, "clusters.ini: [%s] ", name);
  return self;
}

/* `count` devices of one node of the first shipped cluster that has them; NULL without an error if
 * none has. */
static PlanCluster *
new_of_device (const char *device, gint64 count, GError **error)
{
  for (const char *const *name = plan_cluster_presets (); *name; name++)
    {
      g_autoptr (PlanCluster) self = read_preset (*name, error);
      if (!self)
        return NULL;
      if (!g_str_equal (self->device_name, device))
        continue;
      if (count > self->devices_per_node)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "cluster: a node of %s has %" G_GINT64_FORMAT " of %s, not %" G_GINT64_FORMAT
                       ": %s:N is N whole nodes",
                       *name, self->devices_per_node, device, count, *name);
          return NULL;
        }
      self->devices_per_node = count;
      return g_steal_pointer (&self);
    }
  return NULL;
}

static PlanCluster *
new_from_file (const char *path, GError **error)
{
  g_autofree char *text = NULL;
  gsize length;
  if (!plan_text_read_file (path, &text, &length, error))
    return NULL;
  return plan_cluster_parse (text, path, error);
}

static PlanCluster *
new_named (const char *name, GError **error)
{
  if (g_strv_contains (plan_cluster_presets (), name))
    return read_preset (name, error);
  if (strchr (name, '/') || g_str_has_suffix (name, ".ini")
      || g_file_test (name, G_FILE_TEST_EXISTS))
    return new_from_file (name, error);
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_text_suggest (name, plan_cluster_presets ());
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_INVALID,
      "cluster: %s is neither a shipped cluster nor one of its devices (as in h100-80gb:8) "
      "nor a file: %s",
      shown, hint);
  return NULL;
}

PlanCluster *
plan_cluster_new (const char *spec, GError **error)
{
  const char *const colon = strrchr (spec, ':');
  g_autofree char *name = colon ? g_strndup (spec, (gsize)(colon - spec)) : g_strdup (spec);
  g_autoptr (GError) cause = NULL;
  gint64 count = 1;
  if (colon
      && !plan_units_parse_int (colon + 1, "cluster: the number behind the colon", 1, MAX_NODES,
                                &count, error))
    return NULL;
  g_autoptr (PlanCluster) of_device = new_of_device (name, count, &cause);
  if (cause)
    {
      g_propagate_error (error, g_steal_pointer (&cause));
      return NULL;
    }
  if (of_device)
    return g_steal_pointer (&of_device);
  PlanCluster *self = new_named (name, error);
  if (self && colon)
    self->nodes = count;
  return self;
}

/* In the largest unit that gives the same number back, or in the base unit. */
static char *
print_quantity (double value, const Unit *units)
{
  for (; units->factor != 1; units++)
    {
      g_autofree char *scaled = plan_units_format_real (value / units->factor);
      if (value >= units->factor && g_ascii_strtod (scaled, NULL) * units->factor == value
          && !strchr (scaled, 'e'))
        return g_strdup_printf ("%s %s", scaled, units->name);
    }
  g_autofree char *base = plan_units_format_real (value);
  return g_strdup_printf ("%s %s", base, units->name);
}

/* In GiB where that is exact. */
static void
print_memory (const PlanCluster *self, GKeyFile *file)
{
  g_autofree char *bytes = g_strdup_printf ("%" G_GUINT64_FORMAT " B", self->memory_bytes);
  char digits[G_ASCII_DTOSTR_BUF_SIZE];
  g_ascii_formatd (digits, sizeof digits, "%.1f", (double)self->memory_bytes / (double)PLAN_GIB);
  g_autofree char *rounded = g_strconcat (digits, " GiB", NULL);
  guint64 same;
  if (self->memory_bytes == 0)
    return;
  const gboolean exact
      = plan_units_parse_size (rounded, "memory", &same, NULL) && same == self->memory_bytes;
  g_key_file_set_string (file, self->name, "memory", exact ? rounded : bytes);
}

char *
plan_cluster_print (const PlanCluster *self)
{
  g_autoptr (GKeyFile) file = g_key_file_new ();
  g_key_file_set_string (file, self->name, "source", self->source);
  g_key_file_set_int64 (file, self->name, "nodes", self->nodes);
  g_key_file_set_int64 (file, self->name, "devices_per_node", self->devices_per_node);
  g_key_file_set_string (file, self->name, "device", self->device_name);
  g_key_file_set_string (file, self->name, "kind", kinds[self->kind]);
  for (guint i = 0; i < PLAN_N_DTYPES; i++)
    if (self->peak_flops[i] > 0)
      {
        g_autofree char *key = g_strconcat (PEAK, plan_dtype_name ((PlanDtype)i), NULL);
        g_autofree char *value = print_quantity (self->peak_flops[i], flops_units);
        g_key_file_set_string (file, self->name, key, value);
      }
  print_memory (self, file);
  for (guint i = 0; i < G_N_ELEMENTS (figures); i++)
    {
      const gboolean is_latency = figures[i].type == KEY_LATENCY;
      const double figure = is_latency ? (double)G_STRUCT_MEMBER (gint64, self, figures[i].offset)
                                       : G_STRUCT_MEMBER (double, self, figures[i].offset);
      g_autofree char *value
          = print_quantity (figure, is_latency ? latency_units : bandwidth_units);
      if (figure > 0)
        g_key_file_set_string (file, self->name, figures[i].key, value);
    }
  return g_key_file_to_data (file, NULL, NULL);
}

gint64
plan_cluster_devices (const PlanCluster *self)
{
  return self->nodes * self->devices_per_node;
}

gboolean
plan_cluster_check_figures (const PlanCluster *self, PlanDtype compute, GError **error)
{
  g_autofree char *peak = g_strconcat (PEAK, plan_dtype_name (compute), NULL);
  const gboolean linked = self->devices_per_node > 1, networked = self->nodes > 1;
  const struct
  {
    const char *key;
    gboolean is_missing;
  } facts[] = {
    { peak, self->peak_flops[compute] == 0 },
    { "memory", self->memory_bytes == 0 },
    { "memory_bandwidth", self->memory_bytes_per_s == 0 },
    { "link_bandwidth", linked && self->link_bytes_per_s == 0 },
    { "link_latency", linked && self->link_latency_ns == 0 },
    { "nic_bandwidth", networked && self->nic_bytes_per_s == 0 },
    { "nic_latency", networked && self->nic_latency_ns == 0 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (facts); i++)
    if (facts[i].is_missing)
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "cluster %s: %s is not known and needed here: give it in an .ini file",
                     self->name, facts[i].key);
        return FALSE;
      }
  return TRUE;
}
