/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/probe/cores.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

static gboolean
has (const ExecCores *self, guint64 processor)
{
  return processor < EXEC_CORES_MOST && (self->mask[processor / 8] >> processor % 8 & 1);
}

static void
set (ExecCores *self, guint processor)
{
  self->mask[processor / 8] |= (guint8)(1u << processor % 8);
}

/* Whether the same core has another processor with a lower number; the file says "0,64" or
 * "0-1". */
static gboolean
has_sibling_before (const ExecCores *all, guint processor)
{
  g_autofree char *path
      = g_strdup_printf ("/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", processor);
  g_autofree char *text = NULL;
  if (!g_file_get_contents (path, &text, NULL, NULL))
    return FALSE;
  g_auto (GStrv) numbers = g_strsplit_set (text, ",-\n", -1);
  for (char **n = numbers; *n; n++)
    {
      const guint64 sibling = g_ascii_strtoull (*n, NULL, 10);
      if (**n != '\0' && sibling < processor && has (all, sibling))
        return TRUE;
    }
  return FALSE;
}

/* Parses cpu.max into a number of processors: "200000 100000" is the time allowed in each period,
 * "max 100000" is no limit. */
static guint32
parse_quota (const char *text)
{
  char *end;
  const guint64 time = g_ascii_strtoull (text, &end, 10);
  const guint64 period = end != text ? g_ascii_strtoull (end, NULL, 10) : 0;
  return period > 0 ? (guint32)MAX (time / period, 1) : 0;
}

guint32
exec_cores_read_quota (const char *folder, const char *groups)
{
  const char *line = groups ? strstr (groups, "0::") : NULL; /* the line of the unified hierarchy */
  g_autofree char *group = line ? g_strndup (line + 3, strcspn (line + 3, "\n")) : g_strdup ("/");
  guint32 least = 0;
  for (char *end = group + strlen (group); end; end = strrchr (group, '/'))
    {
      *end = '\0';
      g_autofree char *path = g_build_filename (folder, group, "cpu.max", NULL);
      g_autofree char *text = NULL;
      const guint32 quota = g_file_get_contents (path, &text, NULL, NULL) ? parse_quota (text) : 0;
      if (quota > 0 && (least == 0 || quota < least))
        least = quota;
    }
  return least;
}

void
exec_cores_read (ExecCores *self)
{
  cpu_set_t set_of;
  ExecCores all = { .quota = 0 };
  g_autofree char *groups = NULL;
  const gboolean is_known = sched_getaffinity (0, sizeof set_of, &set_of) == 0;
  const glong online = MAX (sysconf (_SC_NPROCESSORS_ONLN), 1);
  for (guint p = 0; p < EXEC_CORES_MOST; p++)
    if (is_known ? CPU_ISSET (p, &set_of) : p < (gulong)online)
      set (&all, p);
  *self = (ExecCores){ .quota = 0 };
  for (guint p = 0; p < EXEC_CORES_MOST; p++)
    if (has (&all, p) && !has_sibling_before (&all, p))
      set (self, p);
  g_file_get_contents ("/proc/self/cgroup", &groups, NULL, NULL);
  self->quota = exec_cores_read_quota ("/sys/fs/cgroup", groups);
}

void
exec_cores_join (ExecCores *self, const ExecCores *other)
{
  for (guint i = 0; i < sizeof self->mask; i++)
    self->mask[i] |= other->mask[i];
  if (self->quota == 0 || (other->quota > 0 && other->quota < self->quota))
    self->quota = other->quota;
}

guint
exec_cores_count (const ExecCores *self)
{
  guint n = 0;
  for (guint p = 0; p < EXEC_CORES_MOST; p++)
    n += has (self, p);
  if (self->quota > 0 && self->quota < n)
    n = self->quota;
  return MAX (n, 1);
}
