/* ep_overlap: the forward pass of a micro batch beside the backward pass of an earlier one. */
#pragma once
#include "planner/lower/lower-private.h"
#include "planner/plan/stages.h"
G_BEGIN_DECLS

/* Decides for how many micro batches activations are held at once (`rows`), and whether passes are
 * combined. */
void plan_lower_take_rows (PlanLower *self);

/* Lowers all micro batches of a step without a pipeline. */
void plan_lower_combined (PlanLower *self);

/* A forward pass and a backward pass that run beside each other. They are lowered in three parts:
 * what stands before the layers; all layers, after which the output and the gradient of the input
 * are there and may be sent; and the rest, with weight gradients that were delayed. The last part
 * frees the pair. */
typedef struct _PlanLowerPair PlanLowerPair;
PlanLowerPair *plan_lower_begin_pair (PlanLower *self, PlanStagePass ahead, PlanStagePass back);
void plan_lower_pair_layers (PlanLowerPair *self);
void plan_lower_end_pair (PlanLowerPair *self);

/* All three, with nothing between them. */
void plan_lower_pair (PlanLower *self, PlanStagePass ahead, PlanStagePass back);

/* The parts of a pass that stand before the layers and after them. The backward ones are for micro
 * batches that reduce nothing. */
void plan_lower_begin_forward (PlanLower *self);
void plan_lower_end_forward (PlanLower *self);
void plan_lower_begin_backward (PlanLower *self);
void plan_lower_end_backward (PlanLower *self);

G_END_DECLS
