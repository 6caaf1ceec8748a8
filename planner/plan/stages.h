/* How the layers of a model are dealt out to the stages of a plan's pipeline. */
#pragma once
#include "planner/model/stage.h"
#include "planner/plan/stack.h"
G_BEGIN_DECLS

/* Stage `number` of the plan's pipeline, which has at least one. If layers do not divide, shares
 * are rounded down; plan_stages_divide tells. */
PlanStage plan_stage_of (const PlanModel *model, const PlanStack *stack, const Plan *plan,
                         gint64 number);

/* The stage that holds the output layer: the last one, unless later stages hold only a loss. */
gint64 plan_stages_head (const PlanModel *model, const PlanStack *stack, const Plan *plan);

/* The number of the layout of all virtual stages (pp-layout.h). */
gint64 plan_stages_layout (const PlanModel *model, const PlanStack *stack, const Plan *plan);

/* Whether other fields than pp_layout say how layers are dealt out; sets all of them, pp and vpp as
 * for one stage. */
gboolean plan_stages_are_given (const Plan *plan);
void plan_stages_clear (Plan *plan);

/* Of a plan with pp_layout, sets vpp if it is 1, and has other fields say the same where they
 * can. */
void plan_stages_settle (Plan *plan, const PlanModel *model);

/* Whether the layers can be dealt out as the plan says, each to one stage. */
gboolean plan_stages_divide (const PlanModel *model, const PlanStack *stack, const Plan *plan);

/* Whether some virtual stage would hold no layer and nothing of what stands around the layers. */
gboolean plan_stages_leave_one_empty (const PlanModel *model, const PlanStack *stack,
                                      const Plan *plan);

/* One pass of a micro batch through a virtual stage, forward or backward. */
typedef struct
{
  gint64 virtual_stage, micro_batch;
} PlanStagePass;

/* The number of a stage's forward passes in a step, which is also that of its backward passes; and
 * the pass at place `at` of either. Groups of pp_group micro batches go through one virtual stage
 * after another: forward from the first to the last, backward from the last to the first. The last
 * group may be smaller. */
gint64 plan_stage_passes (const Plan *plan, gint64 micro_batches);
PlanStagePass plan_stage_pass (const Plan *plan, gint64 micro_batches, gint64 at,
                               gboolean is_backward);

/* The number of micro batches in a group, and of those in groups of that size. */
gint64 plan_stage_group (const Plan *plan);
gint64 plan_stage_whole_groups (const Plan *plan, gint64 micro_batches);

/* Whether a stage runs all forward passes of a step before the first backward pass. */
gboolean plan_stage_is_afab (const Plan *plan);

/* The forward passes that a stage has done before its first backward pass; and the most whose
 * activations it holds at the same time. */
gint64 plan_stage_warm_up (const Plan *plan, gint64 number, gint64 micro_batches);
gint64 plan_stage_held (const Plan *plan, gint64 number, gint64 micro_batches);

/* The n-th pass of an interleaved stage, forward and backward passes counted together. */
PlanStagePass plan_stage_nth_pass (const Plan *plan, gint64 number, gint64 micro_batches, gint64 n);

/* Finds the pass whose input, or gradient of its output, an interleaved stage receives after the
 * pass at place `at`: usually the next one. On the stage that closes the ring (the first one
 * forward, the last one backward) it is a pass of the micro batch that passed here pp - 1 passes
 * earlier: the other end sends it now, for the next virtual stage. `out_place` is the place of the
 * pass that sends it. FALSE: nothing is received. */
gboolean plan_stage_received (const Plan *plan, gint64 number, gint64 micro_batches, gint64 at,
                              gboolean is_backward, PlanStagePass *out_pass, gint64 *out_place);

/* Exchanges in batches (pp_overlap=off): names the batch in which the next stage or the previous
 * one has an exchange, from the place of the pass that sends it; only equality and order matter. A
 * stage has one batch for each forward pass and for each backward pass, but those of a turn share
 * one; a gradient that no forward pass is left for has its own. */
gint64 plan_stage_batch_there (const Plan *plan, gint64 number, gint64 micro_batches,
                               gboolean is_next, gboolean is_backward, gint64 place);

/* Rows of activations, used in turns, that suffice: no micro batch comes to a row of a virtual
 * stage that an earlier one still needs. */
gint64 plan_stage_rows (const Plan *plan, gint64 number, gint64 micro_batches);

G_END_DECLS
