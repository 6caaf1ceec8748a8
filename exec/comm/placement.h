/* ExecPlacement: on which host each rank of a run is, and whether all of them run the same.
 *
 * Gathered once, when ranks have found one another and nothing else is done: every rank knows all
 * of it, so all come to the same verdict. */
#pragma once
#include "exec/comm.h"
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

struct _ExecPlacement
{
  guint ranks, hosts;
  char **host_names; /* [hosts], in the order of their first ranks */
  guint *host_of;    /* [ranks] */
  guint per_host;    /* the most that a host has, of processes; 0: ranks are threads */
  guint threads;     /* for which each rank has cores of its own, on every host */
};

/* One host: ranks that are threads. */
ExecPlacement *exec_placement_new_local (guint ranks);

/* Of processes; collective. INVALID where a rank runs another program than rank 0, which it names.
 */
ExecPlacement *exec_placement_gather (ExecComm *comm, GError **error);
void exec_placement_free (ExecPlacement *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecPlacement, exec_placement_free)

const char *exec_placement_host (const ExecPlacement *self, guint rank);

/* As a cluster has them: its hosts, where as many ranks that follow one another lie on each; else
 * 1. */
guint exec_placement_nodes (const ExecPlacement *self);

/* "a: 0-3, b: 4-7"; of many hosts the first few. The caller frees. */
char *exec_placement_print (const ExecPlacement *self);

/* INVALID with the difference when the ranks do not lie as the cluster's nodes do: as many of them,
 * those of each node on a host of their own. */
gboolean exec_placement_check (const ExecPlacement *self, const PlanCluster *cluster,
                               GError **error);

/* INVALID when `size` ranks that follow one another, a group that shards, lie on several hosts
 * though a host has room for them. */
gboolean exec_placement_check_group (const ExecPlacement *self, guint size, GError **error);

/* What every rank must have the same of: a name for messages, and its text, lines of KEY=VALUE. */
typedef struct
{
  const char *name;
  const char *text;
} ExecAgreed;

/* Collective. INVALID naming the first rank that has another text than rank 0, and the first line
 * in which they differ. */
gboolean exec_placement_agree (const ExecPlacement *self, ExecComm *comm, const ExecAgreed *agreed,
                               guint n_agreed, GError **error);

G_END_DECLS
