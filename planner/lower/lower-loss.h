/* The output layer and the loss, with what stages of a pipeline exchange, which may be logits. */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

/* What the final norm, the output layer and the loss leave for one another, and its gradients. */
void plan_lower_declare_head (PlanLower *self);

/* What pieces that autograd joins need beside; nothing where it joins none. */
void plan_lower_declare_joined (PlanLower *self);

/* Whether logits become their gradient in one kernel: neither softmax nor gradient is kept. */
gboolean plan_lower_turns_logits (const PlanStack *stack, const Plan *plan, const PlanModel *model);

/* What the final norm leaves for the backward pass, of the micro batch at hand. */
PlanRef plan_lower_kept_by_head (const PlanLower *self, gint32 array);

/* The output layer and the loss, up to the gradient of what the final norm left, in dnorm_final.
 * Where logits become their gradient, or are made in pieces, all of it is the backward pass's. */
void plan_lower_loss_forward (PlanLower *self);
void plan_lower_loss_backward (PlanLower *self);

/* The backward pass of a stage that reads logits, up to their gradient. */
void plan_lower_logits_backward (PlanLower *self);

/* What the stage at hand takes from the one before it, and what it makes for the next one, or the
 * gradients of the two; where the loss is a stage by itself, the last ones exchange logits. */
PlanRef plan_lower_from_before (const PlanLower *self, gboolean is_gradient);
PlanRef plan_lower_for_next (const PlanLower *self, gboolean is_gradient);

G_END_DECLS
