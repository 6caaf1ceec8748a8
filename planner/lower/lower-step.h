/* The steps of lowering, and what they share: when weights are gathered, what the optimizer reads.
 */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

void plan_lower_declare_values (PlanLower *self);

/* In the order in which they appear in a schedule. */
void plan_lower_setup (PlanLower *self);
void plan_lower_begin_step (PlanLower *self);
void plan_lower_forward (PlanLower *self);
void plan_lower_backward (PlanLower *self, gboolean is_last_micro_batch);
void plan_lower_end_step (PlanLower *self);

/* All micro batches through a stage of a pipeline; then the reductions that wait for the last. */
void plan_lower_pipeline (PlanLower *self);
void plan_lower_interleaved (PlanLower *self);
void plan_lower_reduce_together (PlanLower *self);

/* The reductions of the virtual stage at hand (`here`), beside what follows; the wait for those of
 * all virtual stages. */
void plan_lower_reduce_here (PlanLower *self);
void plan_lower_await_reduced (PlanLower *self);

/* Starts gathering the weights of the virtual stage at hand. */
void plan_lower_gather_here (PlanLower *self);

/* Input of the first layer and output of the last layer of the virtual stage at hand, for the micro
 * batch at hand, and the gradients of both. */
PlanRef plan_lower_input (const PlanLower *self);
PlanRef plan_lower_output (const PlanLower *self);
PlanRef plan_lower_output_gradient (const PlanLower *self);
PlanRef plan_lower_input_gradient (const PlanLower *self);

/* What routing takes while it works. Scores and their gradients are in the router's format; wide
 * images of tokens are made where that is wider than theirs. */
void plan_lower_declare_router (PlanLower *self);

/* What rows go through that ranks with parts of the same experts gather and sum. */
void plan_lower_declare_joined_rows (PlanLower *self);

/* Weights that were gathered where gradients will be have been quantised. */
void plan_lower_return_gradients (PlanLower *self, PlanLowerUnit unit);

/* Starts gathering the first of the buckets that stay gathered and are asked for in turn. */
void plan_lower_gather_first (PlanLower *self);

/* Every bucket around the layers that is not read before them. */
void plan_lower_gather_head (PlanLower *self);
void plan_lower_teardown (PlanLower *self);

/* What leads to the layer of a prediction module, in the forward pass, and what of it stays; the
 * same again, and backwards, in the backward pass. Then the model's loss and the module's. */
void plan_lower_declare_module (PlanLower *self);
void plan_lower_begin_module (PlanLower *self, PlanLowerUnit unit);
void plan_lower_leave_module (PlanLower *self, PlanLowerUnit unit);
void plan_lower_replay_module (PlanLower *self, PlanLowerUnit unit);
void plan_lower_end_module (PlanLower *self, PlanLowerUnit unit);
void plan_lower_module_loss_forward (PlanLower *self);
void plan_lower_module_loss_backward (PlanLower *self);

/* The final norm of what the decoder left. Embeddings of the tokens at hand: `whole` has all rows
 * of them, and is `x` where ranks do not split these; its gradient, `adds` where it has a share. */
void plan_lower_final_norm (PlanLower *self, PlanRef out);
void plan_lower_embed (PlanLower *self, PlanRef x, PlanRef whole);
void plan_lower_embed_backward (PlanLower *self, PlanRef dout, gboolean adds);

/* Compute waits for a parameter that is no layer's. */
void plan_lower_await_role (PlanLower *self, PlanTensorRole role);

/* The forward pass gets to the output layer's weight. */
void plan_lower_reach_output (PlanLower *self);

/* The host looks at what compute has done so far. */
void plan_lower_look (PlanLower *self);

/* Starts gathering what a unit's forward pass reads; gives it back. */
void plan_lower_gather (PlanLower *self, PlanLowerUnit unit, gint32 delta);
void plan_lower_release (PlanLower *self, PlanLowerUnit unit, gint32 delta);

/* Whether a bucket around the layers is read before them. */
gboolean plan_lower_is_early (const PlanLower *self, PlanBucketKind kind);

/* Whether each bucket that stays gathered is asked for when the one before is used. */
gboolean plan_lower_gathers_in_turn (const PlanLower *self);

void plan_lower_await_unit (PlanLower *self, PlanLowerUnit unit, gint32 delta);
/* Copies what was gathered to the parameters, where it was gathered elsewhere. */
void plan_lower_land (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint32 delta);

/* Embedding and head where they come and go with the passes: asks for one, waits for it, gives it
 * back; nothing where they stay. */
void plan_lower_gather_outer (PlanLower *self, PlanBucketKind kind);
void plan_lower_receive_outer (PlanLower *self, PlanBucketKind kind);
void plan_lower_drop_outer (PlanLower *self, PlanBucketKind kind);

/* The head's hook in the backward pass knows which unit is next. */
void plan_lower_gather_last (PlanLower *self);

/* The head is given back behind a loss in pieces, and gathered again with its norm, which turns
 * next; nothing where autograd joins no pieces. */
void plan_lower_gather_head_anew (PlanLower *self);

/* Gives back what autograd left, where that stays until the backward pass ends. */
void plan_lower_drop_fresh_gradients (PlanLower *self);

/* Starts what waited for a parameter's gradient. */
void plan_lower_gradient_is_there (PlanLower *self, PlanTensorRole role);

/* Moves a unit's gradients into the bucket that is reduced, where they waited for one another. */
void plan_lower_collect (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);

void plan_lower_gather_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                               gint32 delta, gboolean is_column);

/* What the optimizer reads of a bucket's gradients. */
PlanRef plan_lower_optimizer_gradients (const PlanLower *self, PlanBucketKind kind,
                                        PlanLowerUnit unit);

/* Sites that quantise by earlier magnitudes: what they keep, as a run begins, and as a step ends.
 */
void plan_lower_declare_sites (PlanLower *self);
void plan_lower_declare_amax_group (PlanLower *self);
void plan_lower_init_sites (PlanLower *self);
void plan_lower_rescale (PlanLower *self);

/* Gradients of a matrix that the first and the last stage share, summed over the two, where ranks
 * of a stage have summed theirs; and what takes their sum before. */
void plan_lower_sum_shared (PlanLower *self);
void plan_lower_declare_shared (PlanLower *self);
void plan_lower_add_other_share (PlanLower *self);

/* Groups of ranks that do collectives together (lower-groups.c); -1 in place of a group of one. */
void plan_lower_declare_groups (PlanLower *self);

G_END_DECLS
