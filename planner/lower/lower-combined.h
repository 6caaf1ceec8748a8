/* How the forward pass of one micro batch goes beside the backward pass of another. */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

/* How many micro batches are held at once, and whether their passes are combined. */
void plan_lower_take_rows (PlanLower *self);

/* All micro batches. */
void plan_lower_combined (PlanLower *self);

/* What of a pass is before the layers and behind them; backwards, where nothing is reduced. */
void plan_lower_begin_forward (PlanLower *self);
void plan_lower_end_forward (PlanLower *self);
void plan_lower_begin_backward (PlanLower *self);
void plan_lower_end_backward (PlanLower *self);

G_END_DECLS
