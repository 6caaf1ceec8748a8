/* ExecPlacement: on which host each rank of a run is, and whether all ranks run the same program.
 *
 * Gathered once, right after the ranks have found each other. Every rank has all of it, so that all
 * ranks come to the same verdict. */
#pragma once
#include "exec/comm.h"
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

struct _ExecPlacement
{
  guint ranks, hosts;
  char **host_names; /* [hosts], in the order of their lowest ranks */
  guint *host_of;    /* [ranks], index of the host */
  guint per_host;    /* most processes on one host; 0: ranks are threads */
  guint threads;     /* cores for each rank, on the host with the fewest per rank */
};

/* One host, for ranks that are threads of this process. */
ExecPlacement *exec_placement_new_local (guint ranks);

/* The placement of ranks that are processes; all ranks call it. INVALID, naming the first rank that
 * runs another program than rank 0. */
ExecPlacement *exec_placement_gather (ExecComm *comm, GError **error);
void exec_placement_free (ExecPlacement *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecPlacement, exec_placement_free)

const char *exec_placement_host (const ExecPlacement *self, guint rank);

/* The number of nodes of a cluster with these hosts: the number of hosts if each has as many ranks,
 * with consecutive numbers; else 1. */
guint exec_placement_nodes (const ExecPlacement *self);

/* "a: 0-3; b: 4-7", of many hosts the first few. The caller frees. */
char *exec_placement_print (const ExecPlacement *self);

/* INVALID, with the difference, unless the ranks are placed as the cluster's nodes are: as many of
 * them, and those of each node together on a host of their own. */
gboolean exec_placement_check (const ExecPlacement *self, const PlanCluster *cluster,
                               GError **error);

/* INVALID when a sharding group, of `size` consecutive ranks, is spread over several hosts though a
 * host has room for it. */
gboolean exec_placement_check_group (const ExecPlacement *self, guint size, GError **error);

/* What all ranks must agree on: a name for messages, and a text of KEY=VALUE lines. */
typedef struct
{
  const char *name;
  const char *text;
} ExecAgreed;

/* Checks that all ranks have the same texts; all ranks call it. INVALID, naming the first rank
 * whose text differs from rank 0's and the first line that differs. */
gboolean exec_placement_agree (const ExecPlacement *self, ExecComm *comm, const ExecAgreed *agreed,
                               guint n_agreed, GError **error);

G_END_DECLS
