/* What this machine is, as a cluster "local/FINGERPRINT", each fact with who said so.
 *
 * The fingerprint stands for the facts that stay: processors, memory, GPUs, network ports. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* One node of `devices` of this machine's GPUs, all of them for 0; of ranks on its processors where
 * it has none. */
PlanCluster *exec_probe_cluster (gint64 devices, GError **error);

/* One node of `ranks` devices, each an equal share of the processors, with a thread for each of its
 * own (several to one processor when there are more ranks than processors: then each gets its share
 * of the rate). */
PlanCluster *exec_probe_processors (gint64 ranks, GError **error);

/* Each rank on processors has so many threads: a device of another name, with rates to match as far
 * as the host has cores. */
void exec_probe_set_threads (PlanCluster *self, gint64 threads);

/* So many machines like the one of `self`. A network between them that the kernel does not name is
 * assumed. */
void exec_probe_set_nodes (PlanCluster *self, gint64 nodes);

/* `ranks` of this machine's GPUs, more than it has on as many machines like it; where they share,
 * equal shares of the first one. It has at least the `per_host` that ranks on it were found to have
 * (0: not known), though the driver may show this process its own alone. */
PlanCluster *exec_probe_gpus (gint64 ranks, gint64 per_host, gboolean share, GError **error);

G_END_DECLS
