/* How the layers of a model are dealt out to the stages of a plan's pipeline. */
#pragma once
#include "planner/model/stage.h"
#include "planner/plan/stack.h"
G_BEGIN_DECLS

/* Stage `number` of the plan's pipeline, whose degree is at least 1. What does not divide is dealt
 * out rounded down: plan_stages_divide tells. */
PlanStage plan_stage_of (const PlanModel *model, const PlanStack *stack, const Plan *plan,
                         gint64 number);

/* Whether layers can be dealt out as the plan says, every layer to one stage. */
gboolean plan_stages_divide (const PlanModel *model, const PlanStack *stack, const Plan *plan);

/* Whether some stage has no layer. */
gboolean plan_stages_leave_one_empty (const PlanModel *model, const PlanStack *stack,
                                      const Plan *plan);

/* Micro batches whose forward pass a stage has done when it begins with backward passes, under
 * 1F1B; and those whose activations it holds at most. */
gint64 plan_stage_warm_up (const Plan *plan, gint64 number, gint64 micro_batches);
gint64 plan_stage_held (const Plan *plan, gint64 number, gint64 micro_batches);

G_END_DECLS
