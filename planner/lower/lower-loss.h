/* Lowers the output layer and the loss, and says which buffers stages of a pipeline exchange. */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

/* Declares what the final norm, the output layer and the loss leave, and the gradients of it. */
void plan_lower_declare_head (PlanLower *self);

/* Declares what the embedding leaves for the first layer. */
void plan_lower_declare_embedding (PlanLower *self);

/* Declares the buffers of a loss in chunks that autograd joins, if this is one. */
void plan_lower_declare_joined (PlanLower *self);

/* Whether one kernel turns logits into their gradient, so that neither a softmax nor a second
 * buffer for the gradient is needed. */
gboolean plan_lower_turns_logits (const PlanStack *stack, const Plan *plan, const PlanModel *model);

/* What the final norm or the output layer keeps for the backward pass of the micro batch at hand.
 * `array`: one of PlanLowerHead; `head`: which loss it is for, else the one at hand. */
PlanRef plan_lower_kept_by_head (const PlanLower *self, gint32 array);
PlanRef plan_lower_kept_by (const PlanLower *self, gint32 array, gint32 head);

/* The output layer and the loss; the backward pass goes up to the gradient of the final norm's
 * output (d.norm_final). If one kernel turns logits into their gradient, or the loss is made in
 * chunks, the backward pass does all of it. */
void plan_lower_loss_forward (PlanLower *self);
void plan_lower_loss_backward (PlanLower *self);

/* The backward pass of a stage that receives logits, up to their gradient. */
void plan_lower_logits_backward (PlanLower *self);

/* What this stage receives from the stage before it, and what it sends to the next one, or the
 * gradients of these: activations, or logits around a stage that holds the loss alone. */
PlanRef plan_lower_from_before (const PlanLower *self, gboolean is_gradient);
PlanRef plan_lower_for_next (const PlanLower *self, gboolean is_gradient);

/* Declares the events of exchanges between stages. */
void plan_lower_declare_trades (PlanLower *self);

G_END_DECLS
