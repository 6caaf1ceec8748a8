/* ExecCores: what a process may compute on: one processor of each core of its affinity mask, and
 * as many as a control group's quota pays for. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define EXEC_CORES_MOST 1024

typedef struct
{
  guint8 mask[EXEC_CORES_MOST / 8]; /* by number of the processor */
  guint32 quota;                    /* processors' worth of time; 0: all of it */
} ExecCores;

void exec_cores_read (ExecCores *self);

/* What both may use: quotas are taken for that of one control group. */
void exec_cores_join (ExecCores *self, const ExecCores *other);

/* At least 1. */
guint exec_cores_count (const ExecCores *self);

/* The smallest quota of a control group and of those around it: files cpu.max below `folder`,
 * /sys/fs/cgroup; `groups` is the text of /proc/self/cgroup. 0: there is none. */
guint32 exec_cores_read_quota (const char *folder, const char *groups);

G_END_DECLS
