/* PlanCase: a model, a cluster, a plan for them, and what follows from the three.
 *
 * plan_case_new alone makes one, and reports every error there is: what is not said, rules, stacks.
 * Lowering, bounds, hazards, predictions and runs read it, in any number of threads; nothing
 * changes it. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/graph/layer-graph.h"
#include "planner/layout/layout.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack.h"
#include "planner/schedule/workspaces.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _PlanCase
{
  const PlanModel *model;
  const PlanCluster *cluster;
  const PlanWorkspaces *asked; /* of cuDNN about attention on these GPUs; NULL: it was not */
  Plan plan;                   /* resolved */
  const PlanStack *stack;
  PlanLayout layout; /* of a pipeline: of its first stage */
  PlanLayerGraphs graphs;
} PlanCase;

/* The case of a plan that need not be resolved. Model, cluster and what was asked, which may be
 * NULL, must outlive it. */
PlanCase *plan_case_new (const PlanModel *model, const PlanCluster *cluster, const Plan *plan,
                         const PlanWorkspaces *asked, GError **error);
void plan_case_free (PlanCase *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanCase, plan_case_free)

G_END_DECLS
