/* How the layers of a model are dealt out to the stages of a plan's pipeline. */
#pragma once
#include "planner/model/stage.h"
#include "planner/plan/stack.h"
G_BEGIN_DECLS

/* Stage `number` of the plan's pipeline, whose degree is at least 1. What does not divide is dealt
 * out rounded down: plan_stages_divide tells. */
PlanStage plan_stage_of (const PlanModel *model, const PlanStack *stack, const Plan *plan,
                         gint64 number);

/* The stage that holds the output layer: the last one, but for those that hold a loss alone. */
gint64 plan_stages_head (const PlanModel *model, const PlanStack *stack, const Plan *plan);

/* Megatron-LM's layout string of all virtual stages: "Et*4|(t*4|)*14tmL"; the caller frees. */
char *plan_stages_layout (const PlanModel *model, const PlanStack *stack, const Plan *plan);

/* Whether layers can be dealt out as the plan says, every layer to one stage. */
gboolean plan_stages_divide (const PlanModel *model, const PlanStack *stack, const Plan *plan);

/* Whether some stage has no layer, and nothing of what stands around them. */
gboolean plan_stages_leave_one_empty (const PlanModel *model, const PlanStack *stack,
                                      const Plan *plan);

/* One pass of a micro batch through a virtual stage, forward or backward. */
typedef struct
{
  gint64 virtual_stage, micro_batch;
} PlanStagePass;

/* A stage's passes of one direction in a step, and the one in place `at`: groups of pp_group micro
 * batches go through one virtual stage after the other, backwards from the last one on. */
gint64 plan_stage_passes (const Plan *plan, gint64 micro_batches);
PlanStagePass plan_stage_pass (const Plan *plan, gint64 micro_batches, gint64 at,
                               gboolean is_backward);

/* Micro batches in a group. */
gint64 plan_stage_group (const Plan *plan);

/* Forward passes that a stage has done when it begins with backward ones (1F1B, interleaved where
 * there are virtual stages), and those whose activations it holds at most. */
gint64 plan_stage_warm_up (const Plan *plan, gint64 number, gint64 micro_batches);
gint64 plan_stage_held (const Plan *plan, gint64 number, gint64 micro_batches);

/* Rows for activations of micro batches, used in turns, that suffice: no micro batch comes to one
 * whose last user still holds something in the same virtual stage. */
gint64 plan_stage_rows (const Plan *plan, gint64 number, gint64 micro_batches);

G_END_DECLS
