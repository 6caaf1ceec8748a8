/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/calibrate-parts.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/plan/stack-history.h"

#define FEW_DEVICES 64

/* The day that the row's version of its stack is of, as yyyymmdd. */
static gint64
day_of (const AdviseRun *run)
{
  return run->row.plan.value[PLAN_STACK] / PLAN_STACK_BASE;
}

static char *
source_of (const AdviseRun *run, G_GNUC_UNUSED gint64 middle)
{
  return advise_run_source (run);
}

static char *
gpu_of (const AdviseRun *run, G_GNUC_UNUSED gint64 middle)
{
  return g_strdup (run->row.cluster->device_name);
}

static char *
scale_of (const AdviseRun *run, G_GNUC_UNUSED gint64 middle)
{
  return plan_cluster_devices (run->row.cluster) > FEW_DEVICES
             ? g_strdup_printf ("above-%d", FEW_DEVICES)
             : NULL;
}

static char *
time_of (const AdviseRun *run, gint64 middle)
{
  g_autofree char *day = plan_stack_date_text (middle);
  return day_of (run) > middle ? g_strconcat ("after-", day, NULL) : NULL;
}

typedef char *(*PartOf) (const AdviseRun *run, gint64 middle);

static const char *const names[] = { "source", "gpu", "scale", "time", NULL };
static const PartOf parts[] = { source_of, gpu_of, scale_of, time_of };

static guint
find (const char *way)
{
  guint i = 0;
  while (names[i] && !g_str_equal (names[i], way))
    i++;
  return i;
}

gboolean
cli_part_check_way (const char *way, GError **error)
{
  if (names[find (way)])
    return TRUE;
  g_autofree char *shown = plan_text_quote (way);
  g_autofree char *hint = plan_text_suggest (way, names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--leave-out: %s: %s", shown, hint);
  return FALSE;
}

char *
cli_part_of (const CliPart *self, const AdviseRun *run)
{
  return run->row.cluster ? parts[find (self->way)](run, self->middle) : NULL;
}

gboolean
cli_part_has (const CliPart *self, const AdviseRun *run)
{
  g_autofree char *own = cli_part_of (self, run);
  return g_strcmp0 (own, self->name) == 0;
}

static gint
compare_days (gconstpointer a, gconstpointer b)
{
  const gint64 day = *(const gint64 *)a, other = *(const gint64 *)b;
  return (day > other) - (day < other);
}

gint64
cli_part_middle (const GPtrArray *runs)
{
  g_autoptr (GArray) days = g_array_new (FALSE, FALSE, sizeof (gint64));
  for (guint i = 0; i < runs->len; i++)
    {
      const gint64 day = day_of (runs->pdata[i]);
      g_array_append_val (days, day);
    }
  g_array_sort (days, compare_days);
  return g_array_index (days, gint64, days->len / 2);
}
