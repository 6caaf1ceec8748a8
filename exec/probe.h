/* What this machine is, as a cluster: its processors and memory, from the kernel alone. */
#pragma once
#include "planner/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* One node of `ranks` devices, each an equal share of the processors (several to one processor when
 * there are more ranks than processors: then each gets its share of the rate). */
PlanCluster *exec_probe_cluster (guint ranks, GError **error);

G_END_DECLS
