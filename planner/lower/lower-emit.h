/* How the steps of lowering name buffers and emit ops. */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

#define PLAN_REFS(...) ((const PlanRef[]){ __VA_ARGS__ })
#define PLAN_DIMS(...) ((const gint64[]){ __VA_ARGS__, 0 })
#define PLAN_WAITS(...) ((const PlanRef[]){ __VA_ARGS__, PLAN_REF_NONE })

PlanRef plan_lower_ref (gint32 array); /* element 0; none for -1 */
PlanRef plan_lower_unit_ref (gint32 array, PlanLowerUnit unit, gint32 delta);
PlanRef plan_lower_at (PlanRef ref, guint64 element);

/* The same of the micro batch at hand, in an array that has as much for each that is held. */
PlanRef plan_lower_in_row (const PlanLower *self, PlanRef ref);

/* Places of this micro batch's tokens in their documents; none where those do not matter. And of
 * those that this rank has where a tensor-parallel group splits them. */
PlanRef plan_lower_places (const PlanLower *self);
PlanRef plan_lower_own_places (const PlanLower *self);

/* The gradient of the input of layer unit + delta. */
PlanRef plan_lower_layer_gradient (const PlanLower *self, PlanLowerUnit unit, gint32 delta);

/* A bucket's gathered weights (or the other copy of them), and its gradients on their way to the
 * reduction: one for each unit, or one of a pool. */
PlanRef plan_lower_weights_ref (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                                gint32 delta, gboolean is_column);
PlanRef plan_lower_bucket_ref (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                               gint32 delta);

/* The parameter of that role: a view into its gathered bucket; none for PLAN_N_TENSORS. */
PlanRef plan_lower_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);
PlanRef plan_lower_column (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);

/* Adds an op. `waits` is NULL or ends with PLAN_REF_NONE; absent events are skipped. Scratch
 * operands are filled in here. */
void plan_lower_emit (PlanLower *self, PlanOpKind kind, PlanStream stream, const PlanRef *refs,
                      const gint64 *dims, const PlanRef *waits, PlanRef record);
void plan_lower_compute (PlanLower *self, PlanOpKind kind, const PlanRef *refs, const gint64 *dims);
/* Embeddings, or their gradient, times what the model multiplies them by. */
void plan_lower_scale_embedding (PlanLower *self, PlanRef x);
void plan_lower_alloc (PlanLower *self, PlanRef buffer);
/* Nothing where there is no such buffer. */
void plan_lower_touch (PlanLower *self, PlanRef buffer);
void plan_lower_free (PlanLower *self, PlanRef buffer);
void plan_lower_wait (PlanLower *self, PlanRef event); /* of the compute stream; none: nothing */

/* Between these two, all that is emitted goes beside compute, in order, behind what was ready of
 * that pass (0: forward, 1: backward); `owed` gets what is given back meanwhile. Then compute goes
 * behind it, and gives that back. */
void plan_lower_begin_apart (PlanLower *self, guint pass, GArray *owed);
void plan_lower_end_apart (PlanLower *self, guint pass);
void plan_lower_arrive (PlanLower *self, guint pass, GArray *owed);

/* A collective behind everything that was given to the compute stream so far. */
void plan_lower_collective (PlanLower *self, PlanOpKind kind, PlanStream stream, gint8 group,
                            const PlanRef *refs, gint64 count, PlanRef wait, PlanRef record);

/* The same of an op whose size is more than a count. */
void plan_lower_collective_of (PlanLower *self, PlanOpKind kind, PlanStream stream, gint8 group,
                               const PlanRef *refs, const gint64 *dims, PlanRef wait,
                               PlanRef record);

/* Communication within the tensor-parallel group, which compute waits for. */
void plan_lower_exchange (PlanLower *self, PlanOpKind kind, const PlanRef *refs, gint64 count);

/* The same beside the compute that follows, until the last one begun is awaited. */
void plan_lower_begin_exchange (PlanLower *self, PlanOpKind kind, const PlanRef *refs,
                                gint64 count);
void plan_lower_await_exchange (PlanLower *self);

/* One more, behind the last one but not behind compute. */
void plan_lower_go_on_exchanging (PlanLower *self, PlanOpKind kind, const PlanRef *refs,
                                  gint64 count);

/* Opens a repeat, of units where nothing else is said, or none where it has one turn; returns how
 * to name what it stands at. */
PlanLowerUnit plan_lower_begin_repeat (PlanLower *self, const char *variable, gint64 first,
                                       gint64 count, gint64 step);
PlanLowerUnit plan_lower_begin_units (PlanLower *self, gint64 first, gint64 count, gint64 step);
void plan_lower_end_units (PlanLower *self, PlanLowerUnit unit);

/* Elements per rank of a bucket, and of the optimizer's part. */
gint64 plan_lower_shard_elements (const PlanLower *self, PlanBucketKind kind);
gint64 plan_lower_own_elements (const PlanLower *self, PlanBucketKind kind);

/* The first element of a bucket in the optimizer's part. */
guint64 plan_lower_own_first (const PlanLower *self, PlanBucketKind kind);

G_END_DECLS
