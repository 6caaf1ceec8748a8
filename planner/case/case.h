/* PlanCase: a model, a cluster, a plan for them, and everything that follows from the three.
 *
 * Only plan_case_new makes one, and it reports every error: values that are missing, rules, unknown
 * stacks. Lowering, bounds, hazards, predictions and runs read cases, in any number of threads;
 * nothing changes them. */
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
  const PlanWorkspaces *asked; /* answers of cuDNN about its attention workspaces on these GPUs;
                                  NULL: it was not asked */
  Plan plan;                   /* resolved */
  const PlanStack *stack;
  PlanLayout layout; /* in a pipeline, of the first stage */
  PlanLayerGraphs graphs;
} PlanCase;

/* Makes the case of a plan, which need not be resolved. Model, cluster and `asked`, which may be
 * NULL, must outlive it. */
PlanCase *plan_case_new (const PlanModel *model, const PlanCluster *cluster, const Plan *plan,
                         const PlanWorkspaces *asked, GError **error);
void plan_case_free (PlanCase *self);

/* Lays out the parameters of the part of the model that a stage of the pipeline holds. */
void plan_case_lay_out (const PlanCase *self, const PlanModel *part, PlanLayout *out_layout);

/* Whether the offloaded optimizer state of a node's ranks (weights, moments, gradients) fits into
 * its host's memory, each rank taken for one of the pipeline's first stage. */
gboolean plan_case_fits_host (const PlanCase *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanCase, plan_case_free)

G_END_DECLS
