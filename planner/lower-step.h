/* The steps of lowering, and what they share: when weights are gathered, what the optimizer reads.
 */
#pragma once
#include "planner/lower-private.h"
G_BEGIN_DECLS

/* In the order in which they appear in a schedule. */
void plan_lower_setup (PlanLower *self);
void plan_lower_begin_step (PlanLower *self);
void plan_lower_forward (PlanLower *self);
void plan_lower_backward (PlanLower *self, gboolean is_last_micro_batch);
void plan_lower_end_step (PlanLower *self);
void plan_lower_teardown (PlanLower *self);

/* The host looks at what compute has done so far. */
void plan_lower_look (PlanLower *self);

/* Starts gathering what a unit's forward pass reads; gives it back. */
void plan_lower_gather (PlanLower *self, PlanLowerUnit unit, gint32 delta);
void plan_lower_release (PlanLower *self, PlanLowerUnit unit, gint32 delta);

void plan_lower_await_unit (PlanLower *self, PlanLowerUnit unit, gint32 delta);
void plan_lower_gather_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                               gint32 delta, gboolean is_column);

/* What the optimizer reads of a bucket's gradients. */
PlanRef plan_lower_optimizer_gradients (const PlanLower *self, PlanBucketKind kind,
                                        PlanLowerUnit unit);

/* Gradients of what a tensor-parallel group's ranks all hold, summed over the group. */
void plan_lower_declare_replicated (PlanLower *self);
void plan_lower_sum_replicated (PlanLower *self);

G_END_DECLS
