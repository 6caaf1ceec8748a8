/* SPDX-License-Identifier: Apache-2.0 */
/* Processors, memory and network ports, as the kernel describes them. */
#include "config.h"

#include "exec/probe/probe-private.h"

#include "exec/probe/cores.h"
#include "planner/base/error.h"

#include <string.h>
#include <unistd.h>

void
exec_host_clear (ExecHost *self)
{
  g_clear_pointer (&self->processor, g_free);
  g_clear_pointer (&self->source, g_free);
}

/* The value of the first "key : value" line; NULL if there is none. The caller frees. */
static char *
cpu_fact (const char *cpuinfo, const char *key)
{
  const char *line = cpuinfo ? strstr (cpuinfo, key) : NULL;
  const char *colon = line ? strchr (line, ':') : NULL;
  const char *end = colon ? strchr (colon, '\n') : NULL;
  return end ? g_strstrip (g_strndup (colon + 1, (gsize)(end - colon - 1))) : NULL;
}

/* fp32 operations per cycle: two fused multiply-adds of the widest vectors. */
static gint64
flops_per_cycle (const char *flags)
{
  if (flags && strstr (flags, " avx512f"))
    return 64;
  if (flags && strstr (flags, " fma"))
    return 32;
  return 8;
}

/* bf16 operations per cycle, where there are instructions for them: an AMX tile product takes 16
 * cycles; AVX-512's have twice the terms of fp32's. */
static gint64
bf16_per_cycle (const char *flags)
{
  if (flags && strstr (flags, " amx_bf16"))
    return 1024;
  return flags && strstr (flags, " avx512_bf16") ? 2 * flops_per_cycle (flags) : 0;
}

/* The clock rate in the processor's name, where there is one ("... @ 2.50GHz"); else the current
 * one, which varies. */
static double
clock_of (const char *name, const char *mhz)
{
  const char *at = name ? strrchr (name, '@') : NULL;
  const double named = at ? g_ascii_strtod (at + 1, NULL) * 1e9 : 0;
  return named > 0 ? named : mhz ? g_ascii_strtod (mhz, NULL) * 1e6 : 0;
}

void
exec_host_read_cpuinfo (ExecHost *self, const char *cpuinfo)
{
  g_autofree char *mhz = cpu_fact (cpuinfo, "cpu MHz");
  g_autofree char *flags = cpu_fact (cpuinfo, "flags");
  g_free (self->processor);
  self->processor = cpu_fact (cpuinfo, "model name");
  self->clock_hz = clock_of (self->processor, mhz);
  self->flops_per_cycle = flops_per_cycle (flags);
  self->bf16_per_cycle = bf16_per_cycle (flags);
}

static gint64
processors (void)
{
  ExecCores cores;
  exec_cores_read (&cores);
  return exec_cores_count (&cores);
}

double
exec_host_parse_rate (const char *text)
{
  char *end;
  const double value = g_ascii_strtod (text, &end);
  return value > 0 && value < 1e6 && g_str_has_prefix (end, " Gb/sec") ? value * 1e9 / 8 : 0;
}

/* PCI vendor of Elastic Fabric Adapters, which appear as RDMA devices. */
#define AMAZON 0x1d0f

static gboolean
is_amazons (const char *folder, const char *card)
{
  g_autofree char *path = g_build_filename (folder, card, "device", "vendor", NULL);
  g_autofree char *text = NULL;
  return g_file_get_contents (path, &text, NULL, NULL)
         && g_ascii_strtoull (text, NULL, 16) == AMAZON;
}

void
exec_host_read_ports (ExecHost *self, const char *folder)
{
  g_autoptr (GDir) cards = g_dir_open (folder, 0, NULL);
  const char *card;
  self->ports = 0;
  self->port_bytes_per_s = 0;
  self->has_efa = FALSE;
  while (cards && (card = g_dir_read_name (cards)))
    {
      g_autofree char *ports_path = g_build_filename (folder, card, "ports", NULL);
      g_autoptr (GDir) ports = g_dir_open (ports_path, 0, NULL);
      const char *port;
      while (ports && (port = g_dir_read_name (ports)))
        {
          g_autofree char *path = g_build_filename (ports_path, port, "rate", NULL);
          g_autofree char *text = NULL;
          const double rate
              = g_file_get_contents (path, &text, NULL, NULL) ? exec_host_parse_rate (text) : 0;
          if (rate > 0 && (self->ports == 0 || rate < self->port_bytes_per_s))
            self->port_bytes_per_s = rate;
          self->ports += rate > 0;
          self->has_efa = self->has_efa || (rate > 0 && is_amazons (folder, card));
        }
    }
}

gboolean
exec_host_read (ExecHost *self, GError **error)
{
  g_autofree char *cpuinfo = NULL;
  const gint64 pages = sysconf (_SC_PHYS_PAGES), page = sysconf (_SC_PAGESIZE);
  if (pages <= 0 || page <= 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "local: this system does not say how much memory it has");
      return FALSE;
    }
  g_file_get_contents ("/proc/cpuinfo", &cpuinfo, NULL, NULL);
  *self = (ExecHost){ .source = g_strdup ("the kernel: sysconf, /proc/cpuinfo"),
                      .processors = processors (),
                      .memory_bytes = (guint64)pages * (guint64)page };
  exec_host_read_cpuinfo (self, cpuinfo);
  exec_host_read_ports (self, "/sys/class/infiniband");
  return TRUE;
}
