/* How lowering refers to buffers and emits ops. */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

#define PLAN_REFS(...) ((const PlanRef[]){ __VA_ARGS__ })
#define PLAN_DIMS(...) ((const gint64[]){ __VA_ARGS__, 0 })
#define PLAN_WAITS(...) ((const PlanRef[]){ __VA_ARGS__, PLAN_REF_NONE })

PlanRef plan_lower_ref (gint32 array); /* element 0 of an array; none for -1 */
PlanRef plan_lower_unit_ref (gint32 array, PlanLowerUnit unit, gint32 delta);
/* A layer's part of a buffer that holds those of all layers; none where `array` is -1. */
PlanRef plan_lower_of_layer (gint32 array, PlanLowerUnit unit);
PlanRef plan_lower_at (PlanRef ref, guint64 element);

/* A buffer in the row of activations of the micro batch at hand: arrays have equally many elements
 * for each row. */
PlanRef plan_lower_in_row (const PlanLower *self, PlanRef ref);

/* The places of a micro batch's tokens within their documents: of all tokens, and of those that
 * this rank holds where sequence parallelism splits them. None if places make no difference. */
PlanRef plan_lower_places (const PlanLower *self);
PlanRef plan_lower_own_places (const PlanLower *self);

/* What random numbers are made of: the key of a layer, the same where attention has dropout, that
 * of the embedding, and where those of the micro batch at hand begin. None if there are none. */
PlanRef plan_lower_random_key (const PlanLower *self, PlanLowerUnit unit);
PlanRef plan_lower_attention_key (const PlanLower *self, PlanLowerUnit unit);
PlanRef plan_lower_embedding_key (const PlanLower *self);
PlanRef plan_lower_start (const PlanLower *self);

/* The gradient of the input of the layer `delta` after a unit. */
PlanRef plan_lower_layer_gradient (const PlanLower *self, PlanLowerUnit unit, gint32 delta);

/* A bucket's gathered weights (`is_column`: the copy quantised along columns), and its gradients on
 * their way to the reduction. Each unit has its own buffer, or they use a pool in turns. */
/* The length of arrays of buffers in a pool: units use the elements in turns, where layers of other
 * kinds lie between them some not at all. */
gint64 plan_lower_pool_length (const PlanLower *self);
PlanRef plan_lower_weights_ref (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                                gint32 delta, gboolean is_column);
PlanRef plan_lower_bucket_ref (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                               gint32 delta);

/* A unit's parameter, as a view into its bucket of weights, and into the copy quantised along
 * columns. None for PLAN_N_TENSORS. */
PlanRef plan_lower_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);
PlanRef plan_lower_column (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);

/* Declares the events of what is done and known on the compute stream. */
void plan_lower_declare_events (PlanLower *self);

/* Adds an op. `refs` lists its operands without scratch, which is added here. `waits` is NULL or
 * ends with PLAN_REF_NONE; an event that this plan does not have ends it, too. */
void plan_lower_emit (PlanLower *self, PlanOpKind kind, PlanStream stream, const PlanRef *refs,
                      const gint64 *dims, const PlanRef *waits, PlanRef record);
void plan_lower_compute (PlanLower *self, PlanOpKind kind, const PlanRef *refs, const gint64 *dims);
/* The same for an op whose manner does not follow from the layer. */
void plan_lower_compute_as (PlanLower *self, PlanOpKind kind, const PlanRef *refs,
                            const gint64 *dims, const PlanManner *manner);
/* An op of dropout. `refs`: its operands, without what random numbers are made of, of which `key`
 * is the key. `dims`: rows, cols and site. */
void plan_lower_dropout (PlanLower *self, PlanOpKind kind, const PlanRef *refs, PlanRef key,
                         const gint64 *dims);
/* Rounds weights to their format in products. Our own kernel that has just updated them does it. */
void plan_lower_round (PlanLower *self, PlanRef out, PlanRef weights, gint64 count);
/* Multiplies embeddings, or their gradient, by the model's factor. */
void plan_lower_scale_embedding (PlanLower *self, PlanRef x);
void plan_lower_alloc (PlanLower *self, PlanRef buffer);
/* Says that the framework takes a buffer's memory only now (PLAN_OP_TOUCH). Does nothing for an
 * absent buffer. */
void plan_lower_touch (PlanLower *self, PlanRef buffer);
void plan_lower_free (PlanLower *self, PlanRef buffer);
/* Makes compute wait for an event. Does nothing for an absent one. */
void plan_lower_wait (PlanLower *self, PlanRef event);

/* Between begin_apart and end_apart ops go to the stream of experts, after what compute had marked
 * ready for that pass (0: forward, 1: backward), and `owed` collects the buffers that they free.
 * Then arrive makes compute wait for these ops, and frees those buffers. */
void plan_lower_begin_apart (PlanLower *self, guint pass, GArray *owed);
void plan_lower_end_apart (PlanLower *self, guint pass);
void plan_lower_arrive (PlanLower *self, guint pass, GArray *owed);

/* Emits a collective that waits for all ops issued to the compute stream so far, and for `wait`. */
void plan_lower_collective (PlanLower *self, PlanOpKind kind, PlanStream stream, gint8 group,
                            const PlanRef *refs, gint64 count, PlanRef wait, PlanRef record);

/* The same for an op whose dims are more than a count. */
void plan_lower_collective_of (PlanLower *self, PlanOpKind kind, PlanStream stream, gint8 group,
                               const PlanRef *refs, const gint64 *dims, PlanRef wait,
                               PlanRef record);

/* Emits a collective of the tensor-parallel group, and makes compute wait for it. */
void plan_lower_exchange (PlanLower *self, PlanOpKind kind, const PlanRef *refs, gint64 count);

/* The same in two parts: ops emitted between them run beside the collective. await_exchange waits
 * for the last one begun. */
void plan_lower_begin_exchange (PlanLower *self, PlanOpKind kind, const PlanRef *refs,
                                gint64 count);
void plan_lower_await_exchange (PlanLower *self);

/* Begins to send elements to the rank that is `distance` further, and to receive others from the
 * rank as far behind. */
void plan_lower_begin_sending (PlanLower *self, const PlanRef *refs, gint64 count, guint distance);

/* Begins another collective after the last one, without waiting for compute. */
void plan_lower_go_on_exchanging (PlanLower *self, PlanOpKind kind, const PlanRef *refs,
                                  gint64 count);

/* Opens a repeat over `variable`, or over layers; one turn alone needs no repeat. Returns the unit
 * of the current turn. */
PlanLowerUnit plan_lower_begin_repeat (PlanLower *self, const char *variable, gint64 first,
                                       gint64 count, gint64 step);
PlanLowerUnit plan_lower_begin_units (PlanLower *self, gint64 first, gint64 count, gint64 step);
void plan_lower_end_units (PlanLower *self, PlanLowerUnit unit);

/* Whether attention takes each chunk for a sequence by itself (planner/lower/lower-attention.c).
 * Our own runtime does where chunks divide sequences, so that no kernel needs a mask for them. */
gboolean plan_lower_takes_chunks (const PlanLower *self);

/* Elements of a bucket that one rank's shard has, and of the part that its optimizer updates. */
gint64 plan_lower_shard_elements (const PlanLower *self, PlanBucketKind kind);
gint64 plan_lower_own_elements (const PlanLower *self, PlanBucketKind kind);

/* The element of a bucket at which the optimizer's part begins. */
guint64 plan_lower_own_first (const PlanLower *self, PlanBucketKind kind);

G_END_DECLS
