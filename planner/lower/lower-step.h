/* The steps of lowering, and what they share: when weights are gathered and freed, where gradients
 * go, what the optimizer reads. */
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

/* All micro batches of one stage of a pipeline, plain or interleaved; and the reduction of all
 * buckets one by one, after the last micro batch. */
void plan_lower_pipeline (PlanLower *self);
void plan_lower_interleaved (PlanLower *self);
void plan_lower_reduce_together (PlanLower *self);

/* Starts the reductions of the virtual stage at hand (`here`), to run beside what follows; waits
 * for those of all virtual stages. */
void plan_lower_reduce_here (PlanLower *self);
void plan_lower_await_reduced (PlanLower *self);

/* Starts gathering the weights of the virtual stage at hand. */
void plan_lower_gather_here (PlanLower *self);

/* The input of the first layer and the output of the last layer of the virtual stage at hand, for
 * the micro batch at hand, and the gradients of both. */
PlanRef plan_lower_input (const PlanLower *self);
PlanRef plan_lower_output (const PlanLower *self);
PlanRef plan_lower_output_gradient (const PlanLower *self);
PlanRef plan_lower_input_gradient (const PlanLower *self);

/* Declares the buffers of routing. Scores and their gradients have the router's format; the
 * router's input is widened to it if its own is narrower. */
void plan_lower_declare_router (PlanLower *self);

/* Declares the buffers of rows that several ranks share: gathered and reduce-scattered over ranks
 * that split experts, or that take part in the allgather dispatcher. */
void plan_lower_declare_joined_rows (PlanLower *self);

/* What they go through where they are moved op by op. */
void plan_lower_declare_moves (PlanLower *self);

/* Frees weights that were gathered into the memory of gradients, once they have been quantised, and
 * zeroes the gradients there. */
void plan_lower_return_gradients (PlanLower *self, PlanLowerUnit unit);

/* Gathers in turn: starts gathering the first bucket that a forward pass reads. */
void plan_lower_gather_first (PlanLower *self);

/* Starts gathering every bucket outside the layers that is not read before them. */
void plan_lower_gather_head (PlanLower *self);
void plan_lower_teardown (PlanLower *self);

/* A prediction module. begin makes its layer's input, leave frees what of that is recomputed,
 * replay recomputes it, end is the backward pass of all before the layer. Then come both losses,
 * the model's and the module's. */
void plan_lower_declare_module (PlanLower *self);
void plan_lower_begin_module (PlanLower *self, PlanLowerUnit unit);
void plan_lower_leave_module (PlanLower *self, PlanLowerUnit unit);
void plan_lower_replay_module (PlanLower *self, PlanLowerUnit unit);
void plan_lower_end_module (PlanLower *self, PlanLowerUnit unit);
void plan_lower_module_loss_forward (PlanLower *self);
void plan_lower_module_loss_backward (PlanLower *self);

/* The final norm of the decoder's output. Embeddings of the micro batch's tokens: `whole` is of all
 * tokens, `x` of this rank's, the same buffer if ranks do not split tokens. The backward pass adds
 * to a gradient that is there if `adds`. */
void plan_lower_final_norm (PlanLower *self, PlanRef out);
void plan_lower_embed (PlanLower *self, PlanRef x, PlanRef whole);
void plan_lower_embed_backward (PlanLower *self, PlanRef dout, gboolean adds);

/* Makes compute wait for the bucket of a parameter outside the layers. */
void plan_lower_await_role (PlanLower *self, PlanTensorRole role);

/* The same for the weight of the output layer, when the forward pass comes to it. */
void plan_lower_reach_output (PlanLower *self);

/* Makes the host wait for all ops issued to the compute stream so far. */
void plan_lower_look (PlanLower *self);

/* Starts gathering the weights of a unit's forward pass; frees them. `delta`: of the unit that many
 * later. */
void plan_lower_gather (PlanLower *self, PlanLowerUnit unit, gint32 delta);
void plan_lower_release (PlanLower *self, PlanLowerUnit unit, gint32 delta);

/* Whether a bucket holds parameters that are read before the layers. */
gboolean plan_lower_is_early (const PlanLower *self, PlanBucketKind kind);

/* Whether each bucket that stays gathered is gathered when the one before it is first used. */
gboolean plan_lower_gathers_in_turn (const PlanLower *self);

void plan_lower_await_unit (PlanLower *self, PlanLowerUnit unit, gint32 delta);
/* Copies gathered weights to where kernels read them, if they were gathered elsewhere. */
void plan_lower_land (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint32 delta);

/* Embedding and head, if they are gathered in each pass: starts the gather, waits for it, frees the
 * weights. Do nothing if they stay. */
void plan_lower_gather_outer (PlanLower *self, PlanBucketKind kind);
void plan_lower_receive_outer (PlanLower *self, PlanBucketKind kind);
void plan_lower_drop_outer (PlanLower *self, PlanBucketKind kind);

/* Gathers the last unit while the head's backward pass runs: its hook knows what comes next. */
void plan_lower_gather_last (PlanLower *self);

/* After a loss in chunks that autograd joins, frees the head's weights and gathers them again for
 * the final norm's backward pass. Does nothing otherwise. */
void plan_lower_gather_head_anew (PlanLower *self);

/* Frees the gradients that autograd left, if those stay until the backward pass ends. */
void plan_lower_drop_fresh_gradients (PlanLower *self);

/* Carries out the acts that a parameter's gradient was awaited for (PlanLowerCursor's
 * `attached`). */
void plan_lower_gradient_is_there (PlanLower *self, PlanTensorRole role);

/* Copies gradients of a unit into the bucket that is reduced, if they waited for one another. */
void plan_lower_collect (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);

void plan_lower_gather_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                               gint32 delta, gboolean is_column);

/* This rank's part of a bucket's gradients, as the optimizer reads it. */
PlanRef plan_lower_optimizer_gradients (const PlanLower *self, PlanBucketKind kind,
                                        PlanLowerUnit unit);

/* Scales of delayed scaling, routers' biases: declares them, begins with them, makes the next. */
void plan_lower_declare_sites (PlanLower *self);
void plan_lower_declare_amax_group (PlanLower *self);
void plan_lower_init_sites (PlanLower *self);
void plan_lower_rescale (PlanLower *self);
void plan_lower_balance (PlanLower *self);
void plan_lower_share_magnitudes (PlanLower *self, PlanBucketKind kind, PlanRef amax, gint64 n);

/* A matrix that two stages share (tied embeddings): sums its gradients over the two stages after
 * the ranks of each stage have reduced them; or, before that, declares a buffer and adds the other
 * stage's share. */
void plan_lower_sum_shared (PlanLower *self);
void plan_lower_declare_shared (PlanLower *self);
void plan_lower_add_other_share (PlanLower *self);

/* Declares the groups of ranks that communicate (lower-groups.c). A group of one is -1. */
void plan_lower_declare_groups (PlanLower *self);

G_END_DECLS
