/* ExecCores: the processors that a process may compute on: one for each core of its affinity mask,
 * but no more than its control group's quota allows. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define EXEC_CORES_MOST 1024

typedef struct
{
  guint8 mask[EXEC_CORES_MOST / 8]; /* bit per processor, by number */
  guint32 quota;                    /* processors' worth of CPU time; 0: no limit */
} ExecCores;

void exec_cores_read (ExecCores *self);

/* Adds the processors that another process may use. Both are taken to be in one control group, so
 * the quota is not added. */
void exec_cores_join (ExecCores *self, const ExecCores *other);

/* The number of processors; at least 1. */
guint exec_cores_count (const ExecCores *self);

/* The smallest quota of a control group and the groups it is in, from the files cpu.max below
 * `folder` (/sys/fs/cgroup); `groups` is the text of /proc/self/cgroup. 0: there is none. */
guint32 exec_cores_read_quota (const char *folder, const char *groups);

G_END_DECLS
