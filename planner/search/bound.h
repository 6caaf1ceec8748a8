/* Closed-form lower bounds of what a plan will take: never more than a simulation says. Used only
 * to leave plans out of a search. */
#pragma once
#include "planner/lower/case.h"
#include <glib.h>
G_BEGIN_DECLS

/* Device bytes: what stays between steps, the logits, and what every layer keeps. */
guint64 plan_bound_memory (const PlanCase *of);

/* Drops from a resolved plan what that bound does not look at. */
void plan_bound_distil (Plan *resolved);

/* Device bytes of every group of ranks that talk to one another: no bound, but what they take. */
guint64 plan_bound_communicator_bytes (const PlanCase *of);

/* Time of a step: its products and attention at the device's full rate. 0 on a CPU, whose rate is
 * assumed: what was timed there may be faster. */
gint64 plan_bound_time_ns (const PlanModel *model, const PlanCluster *cluster,
                           const Plan *resolved);

/* The plan with the same activations that keeps least between steps, of those that differ from this
 * one by how they are sharded, by gradients and moments: plan_bound_memory of it is a bound of all
 * of them. Not resolved. */
void plan_bound_leanest (const Plan *plan, Plan *out_plan);

/* The plan that computes the same in each micro batch, and communicates nothing between data-
 * parallel ranks but at the end; a step of that many micro batches. Not resolved. What one more
 * micro batch adds to it, less what its gradients cost it more than they cost others, every plan
 * with these activations takes per micro batch. */
void plan_bound_relax (const Plan *plan, const PlanCluster *cluster, gint64 micro_batches,
                       Plan *out_plan);

/* Drops from a resolved plan what changes nothing about the gathers and reductions of a micro
 * batch, or adds to them only: plans that look alike then have these in common. Not resolved. */
void plan_bound_distil_exchange (const Plan *resolved, Plan *out_plan);

/* That plan in a step of so many micro batches. */
void plan_bound_exchange (const Plan *resolved, const PlanCluster *cluster, gint64 micro_batches,
                          Plan *out_plan);

G_END_DECLS
