/* Closed-form lower bounds of a plan's memory and time: never more than its simulation gives. A
 * search excludes plans by them, and nothing else uses them. */
#pragma once
#include "planner/case/case.h"
#include <glib.h>
G_BEGIN_DECLS

/* Device bytes: state between steps, the logits, and the activations that every layer keeps. */
guint64 plan_bound_memory (const PlanCase *of);

/* Sets the fields that plan_bound_memory does not read to one value, so that plans with the same
 * bound become equal. */
void plan_bound_distil (Plan *resolved);

/* Device bytes of the communicators of all groups of ranks: exact, not a bound. */
guint64 plan_bound_communicator_bytes (const PlanCase *of);

/* Time of a step: its GEMMs and attention at the device's full rate. 0 on a CPU, whose rate is an
 * assumption that its timings may beat. */
gint64 plan_bound_time_ns (const PlanModel *model, const PlanCluster *cluster,
                           const Plan *resolved);

/* Of the plans that differ from this one only in sharding, gradients and moments, the one with the
 * least state between steps: its plan_bound_memory bounds all of them. Not resolved. */
void plan_bound_leanest (const Plan *plan, Plan *out_plan);

/* The plan that computes the same in each of so many micro batches, but whose data-parallel ranks
 * communicate only at the end of a step. Not resolved. One more micro batch adds to it a lower
 * bound of what a micro batch takes in every plan that computes the same, once the time by which
 * its gradients are dearer than theirs is subtracted. */
void plan_bound_relax (const Plan *plan, const PlanCluster *cluster, gint64 micro_batches,
                       Plan *out_plan);

/* Sets the fields that do not change the gathers and reductions of a micro batch, or only add to
 * them, to one value: plans that become equal have these in common. Not resolved. */
void plan_bound_distil_exchange (const Plan *resolved, Plan *out_plan);

/* The same, with a step of so many micro batches. */
void plan_bound_exchange (const Plan *resolved, const PlanCluster *cluster, gint64 micro_batches,
                          Plan *out_plan);

G_END_DECLS
