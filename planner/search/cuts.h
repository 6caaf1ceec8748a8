/* Which cuts are searched: of a model into pipeline stages, of experts into parts. */
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
  gint64 first_layers, last_layers; /* PLAN_UNSET: as many as the others */
  gint64 last_short;                /* layers that the last virtual stage has less */
  gboolean counts_ends;             /* embedding and loss count as a layer each */
  gboolean gathers_beside;          /* overlap_param_gather */
} PlanCut;

/* What is told of all cuts, and not searched: vpp; any of the other fields that begin with pp_;
 * overlap_param_gather. */
typedef struct
{
  gboolean has_virtual, has_layout, has_gathers;
} PlanCutTold;

/* Whether pipelines are searched: our own runtime has none on GPUs yet (planner/plan/native.h). */
gboolean plan_cuts_any (const PlanStack *stack, const PlanCluster *cluster);

/* Stages that divide the devices and the layers, or that do with the ends counted; and where that
 * makes the slowest stage quicker, or stages do not divide them, ends with as many layers fewer as
 * the loss weighs; where no virtual stages divide them, those whose last one has what is left. Of
 * virtual stages each number is at least twice the one before, as those between differ by less than
 * predictions err; all that there could be where it is told. Those of a stack that cuts by cost are
 * stages alone. */
GArray *plan_cuts_of (const PlanModel *model, const PlanCluster *cluster, const PlanStack *stack,
                      gint64 seq, PlanCutTold told);

/* FALSE for what a cut makes pointless, and the base of the search does not say: to recompute more
 * layers than a virtual stage has, or virtual stages where half as many leave less than a hundredth
 * of the compute for filling and draining the pipeline. */
gboolean plan_cut_may_help (const Plan *plan, const Plan *base, const PlanModel *model,
                            const PlanCluster *cluster);

/* Into so many parts an expert is split at most, where its stack does that: within what links join,
 * and no part is narrower than products gain from. */
gint64 plan_cuts_of_expert (const PlanModel *model, const PlanCluster *cluster, const Plan *base);

G_END_DECLS
