/* Which cuts of a model into pipeline stages are searched. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 stages, n_virtual;
  gboolean counts_ends;    /* embedding and loss count as a layer each */
  gboolean gathers_beside; /* overlap_param_gather */
} PlanCut;

/* Stages that divide the layers, or that do with the ends counted; of virtual stages each number is
 * at least twice the one before, as those between differ by less than predictions err, but all that
 * there could be where `is_told` how many. Those of a stack that cuts by cost are stages alone. */
GArray *plan_cuts_of (const PlanModel *model, const PlanCluster *cluster, const PlanStack *stack,
                      gboolean is_told);

/* FALSE for what a cut makes pointless, and the base of the search does not say: to recompute more
 * layers than a virtual stage has, or virtual stages where half as many leave less than a hundredth
 * of the compute for filling and draining the pipeline. */
gboolean plan_cut_may_help (const Plan *plan, const Plan *base, const PlanModel *model,
                            const PlanCluster *cluster);

G_END_DECLS
