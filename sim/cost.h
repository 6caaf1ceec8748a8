/* SimCost: how long each op of a schedule takes, and how we know.
 *
 * Made for one schedule on one cluster; durations are integers, rounded once. */
#pragma once
#include "planner/cluster.h"
#include "planner/schedule.h"
#include "planner/stack.h"
#include <glib.h>
G_BEGIN_DECLS

/* Best source first. */
typedef enum
{
  SIM_PROVENANCE_MEASURED,
  SIM_PROVENANCE_INTERPOLATED,
  SIM_PROVENANCE_FITTED,
  SIM_PROVENANCE_DATASHEET,
  SIM_N_PROVENANCES
} SimProvenance;

/* What a parameter set holds; sources beside the values in cost-defaults.c. Efficiencies are shares
 * of the data sheet's figure that large ops reach. */
typedef struct
{
  const char *id;
  double gemm_efficiency, attention_efficiency, attention_bwd_efficiency; /* of the dense peak */
  double memory_efficiency; /* of the memory bandwidth, reads and writes counted */
  double link_efficiency;   /* of the link inside a node */
  double nic_efficiency;    /* of the network card */
  gint64 kernel_ns;         /* added to every kernel */
} SimParams;

/* The parameter set for a kind of device when nothing was calibrated. */
const SimParams *sim_params_default (PlanDeviceKind kind);

typedef struct _SimCost SimCost;

/* The schedule must outlive it. UNSUPPORTED when the cluster lacks a rate that an op needs. */
SimCost *sim_cost_new (const PlanSchedule *schedule, const PlanCluster *cluster,
                       const PlanStack *stack, const SimParams *params, GError **error);

/* Every op takes `op_ns`, issuing takes `launch_ns`: for hand-computed tests. */
SimCost *sim_cost_new_constant (const PlanSchedule *schedule, gint64 op_ns, gint64 launch_ns);

void sim_cost_free (SimCost *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimCost, sim_cost_free)

gint64 sim_cost_ns (const SimCost *self, guint node);
SimProvenance sim_cost_provenance (const SimCost *self, guint node);
gint64 sim_cost_launch_ns (const SimCost *self);
gboolean sim_cost_is_serial (const SimCost *self); /* a CPU: streams do not overlap */

G_END_DECLS
