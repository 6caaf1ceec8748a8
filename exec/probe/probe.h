/* Describes this machine as a cluster "local/FINGERPRINT", with the source of each fact.
 *
 * The fingerprint is made of facts that do not change: processors, memory, GPUs, network ports. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* One node with `devices` of this machine's GPUs (0: all); without GPUs, with that many ranks on
 * its processors (0: one). */
PlanCluster *exec_probe_cluster (gint64 devices, GError **error);

/* One node with `ranks` devices, each an equal share of the processors, with a thread for each of
 * them. If there are more ranks than processors, several share one and each has a share of its
 * rate. */
PlanCluster *exec_probe_processors (gint64 ranks, GError **error);

/* Gives each rank on processors this many threads: the device gets another name, and its rates grow
 * as far as the host has cores. */
void exec_probe_set_threads (PlanCluster *self, gint64 threads);

/* Makes a cluster of `nodes` machines like this one. The network between them is assumed where the
 * kernel names none. */
void exec_probe_set_nodes (PlanCluster *self, gint64 nodes);

/* A cluster of `ranks` GPUs like this machine's, on as many such machines as that takes; with
 * `share`, ranks that each have an equal share of the first GPU. `per_host` is the number of ranks
 * that were found on a host (0: not known): there are at least as many GPUs, even if this process
 * sees fewer. */
PlanCluster *exec_probe_gpus (gint64 ranks, gint64 per_host, gboolean share, GError **error);

G_END_DECLS
