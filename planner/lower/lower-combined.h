/* ep_overlap: the forward pass of a micro batch beside the backward pass of the one before. */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

/* Decides for how many micro batches activations are held at once (`rows`), and whether passes are
 * combined. */
void plan_lower_take_rows (PlanLower *self);

/* Lowers all micro batches of a step. */
void plan_lower_combined (PlanLower *self);

/* The parts of a pass that stand before the layers and after them. The backward ones are for micro
 * batches that reduce nothing. */
void plan_lower_begin_forward (PlanLower *self);
void plan_lower_end_forward (PlanLower *self);
void plan_lower_begin_backward (PlanLower *self);
void plan_lower_end_backward (PlanLower *self);

G_END_DECLS
