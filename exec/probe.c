/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/probe.h"

#include "planner/error.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

/* Bytes per second that one processor moves, for want of a measurement: a share of a DDR4-3200
 * channel (25.6 GB/s). */
#define ASSUMED_BYTES_PER_S 10e9
#define ASSUMED_MHZ 2000.0
#define LATENCY_NS 2000 /* two threads meeting at a barrier */

/* The value of the first "key : value" line of /proc/cpuinfo; NULL if there is none. */
static char *
cpu_fact (const char *cpuinfo, const char *key)
{
  const char *line = cpuinfo ? strstr (cpuinfo, key) : NULL;
  const char *colon = line ? strchr (line, ':') : NULL;
  const char *end = colon ? strchr (colon, '\n') : NULL;
  return end ? g_strstrip (g_strndup (colon + 1, (gsize)(end - colon - 1))) : NULL;
}

/* fp32 operations per cycle: two fused multiply-adds of the widest vectors. */
static double
flops_per_cycle (const char *flags)
{
  if (flags && strstr (flags, " avx512f"))
    return 64;
  if (flags && strstr (flags, " fma"))
    return 32;
  return 8;
}

/* A model name as a word: "AMD EPYC 7B13" -> "amd-epyc-7b13". */
static char *
word (const char *name)
{
  GString *out = g_string_new (NULL);
  for (; *name; name++)
    if (g_ascii_isalnum (*name))
      g_string_append_c (out, g_ascii_tolower (*name));
    else if (out->len && out->str[out->len - 1] != '-')
      g_string_append_c (out, '-');
  while (out->len && out->str[out->len - 1] == '-')
    g_string_truncate (out, out->len - 1);
  return g_string_free (out, FALSE);
}

static gint64
processors (void)
{
  cpu_set_t set;
  if (sched_getaffinity (0, sizeof set, &set) == 0)
    return CPU_COUNT (&set);
  return MAX (sysconf (_SC_NPROCESSORS_ONLN), 1);
}

PlanCluster *
exec_probe_cluster (guint ranks, GError **error)
{
  g_autofree char *cpuinfo = NULL;
  const gint64 pages = sysconf (_SC_PHYS_PAGES), page = sysconf (_SC_PAGESIZE);
  if (pages <= 0 || page <= 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "local: this system does not say how much memory it has");
      return NULL;
    }
  g_file_get_contents ("/proc/cpuinfo", &cpuinfo, NULL, NULL);
  g_autofree char *name = cpu_fact (cpuinfo, "model name");
  g_autofree char *mhz = cpu_fact (cpuinfo, "cpu MHz");
  g_autofree char *flags = cpu_fact (cpuinfo, "flags");
  const double clock = mhz ? g_ascii_strtod (mhz, NULL) : ASSUMED_MHZ;
  const gint64 n = processors ();
  const double share = MIN (1.0, (double)n / ranks); /* of a processor, per rank */

  PlanCluster *self = g_new0 (PlanCluster, 1);
  self->name = g_strdup ("local");
  self->source = g_strdup ("/proc/cpuinfo; memory bandwidth assumed, not measured");
  self->nodes = 1;
  self->devices_per_node = ranks;
  self->device_name = word (name && *name ? name : "unknown processor");
  self->kind = PLAN_DEVICE_CPU;
  /* bf16 is widened to fp32 before it is multiplied */
  self->peak_flops[PLAN_DTYPE_FP32] = clock * 1e6 * flops_per_cycle (flags) * share;
  self->peak_flops[PLAN_DTYPE_BF16] = self->peak_flops[PLAN_DTYPE_FP32];
  self->memory_bytes = (guint64)pages * (guint64)page / ranks;
  self->memory_bytes_per_s = ASSUMED_BYTES_PER_S * share;
  self->link_bytes_per_s = ASSUMED_BYTES_PER_S * share;
  self->link_latency_ns = LATENCY_NS;
  return self;
}
