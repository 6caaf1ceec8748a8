/* Shared by the readers of topologies. */
#pragma once
#include "planner/cluster/topology.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_TOPOLOGY_MAX 512 /* most GPUs, and most ports, of a file */

PlanTopology *plan_topology_new (const char *source);

/* Sets INVALID with "line N: " before the message. Always returns FALSE. */
gboolean plan_topology_refuse (GError **error, guint line, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

/* Both leave `self` half filled when they fail. */
gboolean plan_topology_read_xml (PlanTopology *self, const char *text, GError **error);
gboolean plan_topology_read_matrix (PlanTopology *self, const char *text, GError **error);

G_END_DECLS
