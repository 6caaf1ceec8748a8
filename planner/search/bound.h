/* Closed-form lower bounds of a plan's memory and step time. Each is never above what the
 * simulation of the plan gives; bound.c states the claims and the assumptions they rest on. The
 * search (search.c, advise/floor.c) excludes plans by these bounds, and nothing else uses them. */
#pragma once
#include "planner/case/case.h"
#include <glib.h>
G_BEGIN_DECLS

/* A lower bound of the device bytes of a plan: the state between steps, the activations that layers
 * keep, and the logits or what a layer's backward pass gathers and reduces. */
guint64 plan_bound_memory (const PlanCase *of);

/* The same at the start of the loss alone, when it does not matter how gathers and reductions are
 * cut. */
guint64 plan_bound_memory_of_loss (const PlanCase *of);

/* Sets the fields that plan_bound_memory_of_loss does not read to fixed values, so that plans with
 * the same bound become equal and one bound can be kept for all of them. */
void plan_bound_distil (Plan *resolved);

/* The device bytes that the communicators of all groups of ranks take. They are exact, not a
 * bound. */
guint64 plan_bound_communicator_bytes (const PlanCase *of);

/* A lower bound of a step's time: the FLOPs of its GEMMs and attention at the peak rate of the
 * device. It is 0 on a CPU, whose peak rate is itself an assumption that measured timings may
 * beat. */
gint64 plan_bound_time_ns (const PlanModel *model, const PlanCluster *cluster,
                           const Plan *resolved);

/* What the plans that a bound is for may choose. */
typedef struct
{
  gint64 strategy;                  /* the one that shards most; PLAN_UNSET: each plan's own */
  gboolean has_bf16, has_bf16_comm; /* main gradients in bf16; gradients that travel in bf16 */
  gint64 moment;                    /* the least format of moments; PLAN_UNSET: each plan's own */
} PlanLean;

/* Finds the plan with the least state between steps among those that differ from this one only in
 * sharding, gradients and moments, within these choices. Its plan_bound_memory_of_loss bounds all
 * of them. Neither plan is resolved. */
void plan_bound_leanest (const Plan *plan, const PlanLean *lean, Plan *out_plan);

/* Finds the relaxed plan: it computes the same in each of `micro_batches` micro batches, but its
 * data-parallel ranks communicate only at the end of a step. Not resolved. The time that one more
 * micro batch adds to a relaxed plan is a lower bound of the time of a micro batch in every plan
 * that computes the same, once the extra time that the relaxed plan spends on accumulating
 * gradients is subtracted (advise/floor.c does so). */
void plan_bound_relax (const Plan *plan, const PlanCluster *cluster, gint64 micro_batches,
                       Plan *out_plan);

/* Sets to fixed values the fields that do not change the gathers and reductions of a micro batch,
 * or whose other values only add to them. Plans that become equal this way all contain the same
 * gathers and reductions. Not resolved. */
void plan_bound_distil_exchange (const Plan *resolved, Plan *out_plan);

/* The plan that plan_bound_distil_exchange gives, with `micro_batches` micro batches in a step. */
void plan_bound_exchange (const Plan *resolved, const PlanCluster *cluster, gint64 micro_batches,
                          Plan *out_plan);

G_END_DECLS
