/* Closed-form lower bounds of what a plan will take: never more than a simulation says. Used only
 * to leave plans out of a search. */
#pragma once
#include "planner/cluster.h"
#include "planner/model.h"
#include "planner/plan.h"
#include "planner/stack.h"
#include <glib.h>
G_BEGIN_DECLS

/* Device bytes: what stays between steps, the logits, and what every layer keeps. */
guint64 plan_bound_memory (const PlanModel *model, const PlanCluster *cluster, const Plan *resolved,
                           const PlanStack *stack);

/* Time of a step: its products and attention at the device's full rate. */
gint64 plan_bound_time_ns (const PlanModel *model, const PlanCluster *cluster,
                           const Plan *resolved);

G_END_DECLS
