/* SPDX-License-Identifier: Apache-2.0 */
/* Facts one by one: key, text form with units, member of PlanCluster. */
#include "config.h"

#include "planner/cluster/cluster-facts.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/cluster/cluster.h"

#include <math.h>
#include <string.h>

#define MAX_RATE 1e24
#define MAX_LATENCY_NS 1e9
#define MAX_COUNT 1000000
#define ASSUMED "assumed: "

typedef enum
{
  TYPE_RATE,
  TYPE_BANDWIDTH,
  TYPE_FREQUENCY,
  TYPE_SIZE,
  TYPE_LATENCY,
  TYPE_POWER,
  TYPE_COUNT,
  TYPE_VERSION,
  TYPE_ANSWER,
} Type;

static const struct
{
  const char *key;
  Type type;
  gsize offset;
  gboolean is_of_device;
  const char *summary;
} facts[] = {
#define DEVICE TRUE
#define NODE FALSE
#define X(id, key, type, member, scope, summary) \
  { key, TYPE_##type, G_STRUCT_OFFSET (PlanCluster, member), scope, summary },
  PLAN_FACT_LIST (X)
#undef X
#undef NODE
#undef DEVICE
};

/* Keys that earlier versions wrote. */
static const struct
{
  const char *key;
  PlanFact fact;
} former_keys[] = {
  { "peak_e8m0", PLAN_FACT_PEAK_MXFP8 },
  { "peak_e2m1", PLAN_FACT_PEAK_NVFP4 },
};

typedef struct
{
  const char *name;
  double factor;
} Unit;

/* Units of each type. The printer takes the first that fits, down to the base unit; units behind
 * that are only read. */
static const Unit flops_units[] = {
  { "TFLOP/s", 1e12 }, { "GFLOP/s", 1e9 }, { "FLOP/s", 1 }, { "PFLOP/s", 1e15 }, { NULL, 0 }
};
static const Unit bandwidth_units[]
    = { { "TB/s", 1e12 },      { "GB/s", 1e9 },         { "MB/s", 1e6 },
        { "B/s", 1 },          { "Tbit/s", 1e12 / 8 },  { "Gbit/s", 1e9 / 8 },
        { "Mbit/s", 1e6 / 8 }, { "GiB/s", 1073741824 }, { NULL, 0 } };
static const Unit frequency_units[] = { { "GHz", 1e9 }, { "MHz", 1e6 }, { "Hz", 1 }, { NULL, 0 } };
static const Unit latency_units[]
    = { { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "ns", 1 }, { NULL, 0 } };
static const Unit power_units[] = { { "W", 1 }, { "kW", 1e3 }, { NULL, 0 } };

static const struct
{
  const Unit *units; /* NULL: not a number with one of these units */
  const char *base;
  const char *example;
  double max;
} types[] = {
  [TYPE_RATE] = { flops_units, "FLOP/s", "989.5 TFLOP/s", MAX_RATE },
  [TYPE_BANDWIDTH] = { bandwidth_units, "B/s", "450 GB/s or 400 Gbit/s", MAX_RATE },
  [TYPE_FREQUENCY] = { frequency_units, "Hz", "1830 MHz", MAX_RATE },
  [TYPE_SIZE] = { NULL, "B", NULL, 0 },
  [TYPE_LATENCY] = { latency_units, "ns", "2 us", MAX_LATENCY_NS },
  [TYPE_POWER] = { power_units, "W", "700 W", 1e6 },
  [TYPE_COUNT] = { NULL, "", NULL, 0 },
  [TYPE_VERSION] = { NULL, "", NULL, 0 },
  [TYPE_ANSWER] = { NULL, "", NULL, 0 },
};

static const char *const answers[]
    = { [PLAN_ANSWER_UNKNOWN] = "", [PLAN_ANSWER_NO] = "no", [PLAN_ANSWER_YES] = "yes" };

const char *
plan_fact_key (PlanFact fact)
{
  return facts[fact].key;
}

const char *
plan_fact_summary (PlanFact fact)
{
  return facts[fact].summary;
}

const char *
plan_fact_unit (PlanFact fact)
{
  return types[facts[fact].type].base;
}

gboolean
plan_fact_is_answer (PlanFact fact)
{
  return facts[fact].type == TYPE_ANSWER;
}

gboolean
plan_fact_is_of_device (PlanFact fact)
{
  return facts[fact].is_of_device;
}

gboolean
plan_fact_find (const char *key, PlanFact *out_fact)
{
  for (guint i = 0; i < PLAN_N_FACTS; i++)
    if (g_str_equal (key, facts[i].key))
      {
        *out_fact = (PlanFact)i;
        return TRUE;
      }
  for (guint i = 0; i < G_N_ELEMENTS (former_keys); i++)
    if (g_str_equal (key, former_keys[i].key))
      {
        *out_fact = former_keys[i].fact;
        return TRUE;
      }
  return FALSE;
}

#define MEMBER(self, fact, type) G_STRUCT_MEMBER (type, self, facts[fact].offset)

/* The value of a fact as a number in base units; a version is 10 x major + minor. */
static double
number_of (const PlanCluster *self, PlanFact fact)
{
  switch (facts[fact].type)
    {
    case TYPE_RATE:
    case TYPE_BANDWIDTH:
    case TYPE_FREQUENCY:
      return MEMBER (self, fact, double);
    case TYPE_SIZE:
      return (double)MEMBER (self, fact, guint64);
    case TYPE_LATENCY:
    case TYPE_POWER:
    case TYPE_COUNT:
    case TYPE_VERSION:
      return (double)MEMBER (self, fact, gint64);
    case TYPE_ANSWER:
      return (double)MEMBER (self, fact, PlanAnswer);
    }
  g_return_val_if_reached (0);
}

gboolean
plan_cluster_knows (const PlanCluster *self, PlanFact fact)
{
  return number_of (self, fact) > 0;
}

double
plan_cluster_value (const PlanCluster *self, PlanFact fact)
{
  if (facts[fact].type == TYPE_ANSWER)
    return MEMBER (self, fact, PlanAnswer) == PLAN_ANSWER_YES;
  return number_of (self, fact) / (facts[fact].type == TYPE_VERSION ? 10 : 1);
}

const char *
plan_cluster_source_of (const PlanCluster *self, PlanFact fact)
{
  return self->fact_source[fact] ? self->fact_source[fact] : self->source;
}

gboolean
plan_cluster_assumes (const PlanCluster *self, PlanFact fact)
{
  return g_str_has_prefix (plan_cluster_source_of (self, fact), ASSUMED);
}

static gboolean
refuse (GError **error, PlanFact fact, const char *value, const char *rule)
{
  g_autofree char *shown = plan_text_quote (value);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s %s", facts[fact].key, shown, rule);
  return FALSE;
}

/* Parses "989.5 TFLOP/s": a number above 0 and a unit, into the base unit. */
static gboolean
parse_quantity (const char *text, PlanFact fact, double *out, GError **error)
{
  const Unit *unit = types[facts[fact].type].units;
  const double max = types[facts[fact].type].max;
  const gsize digits = strspn (text, "0123456789.e+-");
  const char *const name = text + digits + (text[digits] == ' ');
  g_autofree char *number = g_strndup (text, digits);
  g_autofree char *rule
      = g_strdup_printf ("is not a number with a unit such as %s", types[facts[fact].type].example);
  double value;
  while (unit->name && !g_str_equal (unit->name, name))
    unit++;
  if (!unit->name || !plan_units_parse_real (number, facts[fact].key, 0, 1e300, &value, NULL))
    return refuse (error, fact, text, rule);
  value *= unit->factor;
  if (!(value > 0) || !(value <= max))
    return refuse (error, fact, text,
                   value > 0 ? "is beyond any machine" : "says nothing: leave the key out");
  *out = value;
  return TRUE;
}

static gboolean
set_quantity (PlanCluster *self, PlanFact fact, const char *text, GError **error)
{
  const gboolean is_whole = facts[fact].type == TYPE_LATENCY || facts[fact].type == TYPE_POWER;
  double value;
  if (!parse_quantity (text, fact, &value, error))
    return FALSE;
  if (!is_whole)
    {
      MEMBER (self, fact, double) = value;
      return TRUE;
    }
  const double whole = floor (value + 0.5);
  if (whole < 1 || fabs (value - whole) > 1e-6 * whole)
    return refuse (error, fact, text,
                   facts[fact].type == TYPE_LATENCY ? "is not a whole number of nanoseconds"
                                                    : "is not a whole number of watts");
  MEMBER (self, fact, gint64) = (gint64)whole;
  return TRUE;
}

static gboolean
set_size (PlanCluster *self, PlanFact fact, const char *text, GError **error)
{
  guint64 bytes;
  if (!plan_units_parse_size (text, facts[fact].key, &bytes, error))
    return FALSE;
  if (bytes == 0 || bytes > G_MAXINT64)
    return refuse (error, fact, text, "is not the memory of a device");
  MEMBER (self, fact, guint64) = bytes;
  return TRUE;
}

static gboolean
set_version (PlanCluster *self, PlanFact fact, const char *text, GError **error)
{
  const gsize digits = strspn (text, "0123456789");
  if (digits < 1 || digits > 2 || text[0] == '0' || text[digits] != '.'
      || !g_ascii_isdigit (text[digits + 1]) || text[digits + 2])
    return refuse (error, fact, text, "is not a version such as 9.0");
  MEMBER (self, fact, gint64) = 10 * g_ascii_strtoll (text, NULL, 10) + (text[digits + 1] - '0');
  return TRUE;
}

static gboolean
set_answer (PlanCluster *self, PlanFact fact, const char *text, GError **error)
{
  for (PlanAnswer answer = PLAN_ANSWER_NO; answer <= PLAN_ANSWER_YES; answer++)
    if (g_str_equal (text, answers[answer]))
      {
        MEMBER (self, fact, PlanAnswer) = answer;
        return TRUE;
      }
  return refuse (error, fact, text, "must be yes or no");
}

static gboolean
set_value (PlanCluster *self, PlanFact fact, const char *text, GError **error)
{
  switch (facts[fact].type)
    {
    case TYPE_RATE:
    case TYPE_BANDWIDTH:
    case TYPE_FREQUENCY:
    case TYPE_LATENCY:
    case TYPE_POWER:
      return set_quantity (self, fact, text, error);
    case TYPE_SIZE:
      return set_size (self, fact, text, error);
    case TYPE_COUNT:
      return plan_units_parse_int (text, facts[fact].key, 1, MAX_COUNT,
                                   &MEMBER (self, fact, gint64), error);
    case TYPE_VERSION:
      return set_version (self, fact, text, error);
    case TYPE_ANSWER:
      return set_answer (self, fact, text, error);
    }
  g_return_val_if_reached (FALSE);
}

gboolean
plan_cluster_set_fact (PlanCluster *self, PlanFact fact, const char *text, const char *source,
                       GError **error)
{
  if (!set_value (self, fact, text, error))
    return FALSE;
  if (fact == PLAN_FACT_PEAK_E4M3) /* blocks of 128 are multiplied by the same units as e4m3 */
    self->peak_flops[PLAN_DTYPE_FP8_1X128] = self->peak_flops[PLAN_DTYPE_FP8_128X128]
        = self->peak_flops[PLAN_DTYPE_E4M3];
  g_free (self->fact_source[fact]);
  self->fact_source[fact] = g_strdup (source);
  return TRUE;
}

/* Prints a value in the largest unit that reads back exactly, or in the base unit. */
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

/* Prints a size with at most one decimal where that is exact, or else in bytes. */
static char *
print_size (guint64 bytes)
{
  static const struct
  {
    const char *name;
    double factor;
  } units[]
      = { { "TiB", 1099511627776 }, { "GiB", 1073741824 }, { "GB", 1e9 }, { "MiB", 1048576 } };
  for (guint i = 0; i < G_N_ELEMENTS (units); i++)
    {
      const double tenths = floor ((double)bytes / units[i].factor * 10 + 0.5);
      g_autofree char *digits = plan_units_format_real (tenths / 10);
      g_autofree char *rounded = g_strdup_printf ("%s %s", digits, units[i].name);
      guint64 same;
      if ((double)bytes >= units[i].factor && plan_units_parse_size (rounded, "", &same, NULL)
          && same == bytes)
        return g_steal_pointer (&rounded);
    }
  return g_strdup_printf ("%" G_GUINT64_FORMAT " B", bytes);
}

char *
plan_cluster_print_fact (const PlanCluster *self, PlanFact fact)
{
  const double number = number_of (self, fact);
  if (!(number > 0))
    return NULL;
  switch (facts[fact].type)
    {
    case TYPE_RATE:
    case TYPE_BANDWIDTH:
    case TYPE_FREQUENCY:
    case TYPE_LATENCY:
    case TYPE_POWER:
      return print_quantity (number, types[facts[fact].type].units);
    case TYPE_SIZE:
      return print_size (MEMBER (self, fact, guint64));
    case TYPE_COUNT:
      return g_strdup_printf ("%" G_GINT64_FORMAT, MEMBER (self, fact, gint64));
    case TYPE_VERSION:
      return g_strdup_printf ("%d.%d", (int)number / 10, (int)number % 10);
    case TYPE_ANSWER:
      return g_strdup (answers[MEMBER (self, fact, PlanAnswer)]);
    }
  g_return_val_if_reached (NULL);
}
