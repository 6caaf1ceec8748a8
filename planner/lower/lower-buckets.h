/* Buckets of weights and gradients: which bucket a parameter lies in, and, where buckets are cut by
 * size, which gradients begin and complete each of them. */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

/* The place of a parameter in its bucket. */
typedef struct
{
  PlanBucketKind kind;
  PlanLowerUnit unit; /* the unit by which arrays of that kind of bucket are indexed */
  guint64 offset, elements;
  gint8 along; /* the repeat along which the offset moves; -1: none */
} PlanLowerPlace;

/* A "layer" for what the backward pass does first: loss and head. */
#define PLAN_BEFORE_LAYERS G_MAXINT64
#define PLAN_AFTER_LAYERS (-1)

typedef struct
{
  guint32 number;
  guint32 starter; /* the parameter whose gradient comes first, as a place among all */
  gint64 layer;    /* whose backward pass completes the bucket; or BEFORE_LAYERS, AFTER_LAYERS */
  PlanTensorRole role; /* whose gradient completes it */
  guint rank;          /* place of that gradient in time among those of its layer */
} PlanLowerGroup;

void plan_lower_init_buckets (PlanLower *self);
void plan_lower_clear_buckets (PlanLower *self);

/* This rank's part of a parameter; zero rows if no bucket holds the parameter. */
PlanTensor plan_lower_tensor (const PlanLower *self, PlanTensorRole role);

/* Whether the layer `delta` after a unit has a bucket of this kind. For kinds outside the layers:
 * whether there is such a bucket. */
gboolean plan_lower_holds (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                           gint32 delta);

/* The place of a unit's parameter, which the model must have. */
PlanLowerPlace plan_lower_place (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);

/* The reference to a parameter, given that to its bucket. */
PlanRef plan_lower_in_place (PlanRef bucket, const PlanLowerPlace *place);

/* Elements from the parameters of a layer to those of another layer in the same bucket. */
gint64 plan_lower_distance (const PlanLower *self, gint64 layer, gint64 other);

/* Whether a parameter's gradient is the first that its bucket gets. Only where buckets are cut by
 * size. */
gboolean plan_lower_starts (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);

/* Visits every bucket: those outside the layers, then layer by layer. Buckets cut by size are
 * visited in the order in which they fill. */
void plan_lower_each_bucket (PlanLower *self, void (*visit) (PlanLower *self, PlanBucketKind kind,
                                                             PlanLowerUnit unit));

/* Visits the buckets of one kind in layers. */
void plan_lower_each_unit (PlanLower *self, PlanBucketKind kind,
                           void (*visit) (PlanLower *self, PlanBucketKind kind,
                                          PlanLowerUnit unit));

/* Visits every bucket of the virtual stage at hand. */
void plan_lower_each_bucket_here (PlanLower *self,
                                  void (*visit) (PlanLower *self, PlanBucketKind kind,
                                                 PlanLowerUnit unit));

/* Visits the buckets of layers of one kind, and counts them; not where buckets are cut by size. */
void plan_lower_each_unit (PlanLower *self, PlanBucketKind kind,
                           void (*visit) (PlanLower *self, PlanBucketKind kind,
                                          PlanLowerUnit unit));
gint64 plan_lower_count_units (const PlanLower *self, PlanBucketKind kind);

/* The unit that indexes a bucket in the arrays of its kind. */
PlanLowerUnit plan_lower_span_unit (const PlanBucketSpan *span);

/* PLAN_LIES_WITHIN: what PlanLower's `like` says of a layer that lies in bucket `number` as a
 * whole, beside other layers. */
#define PLAN_NO_BUCKET G_MAXUINT32
#define PLAN_LIES_WITHIN(number) (-1 - (gint64)(number))

/* The number of the bucket that a forward pass comes to after bucket `number`. */
guint32 plan_lower_next_bucket (const PlanLower *self, guint32 number);

/* The buckets that a layer's backward pass completes, in the order of time; the caller frees. */
GArray *plan_lower_groups_of (const PlanLower *self, gint64 layer); /* PlanLowerGroup */

/* Parameters that every rank of a tensor-parallel group holds whole: whether a parameter is one,
 * and whether its gradients must be summed over the group because each rank saw other tokens or
 * heads. */
gboolean plan_lower_is_replicated (const PlanLower *self, PlanTensorRole role);
gboolean plan_lower_sums (const PlanLower *self, PlanTensorRole role);
void plan_lower_declare_replicated (PlanLower *self);

/* Declares the gradients that GEMMs leave unused (PlanStackGrads). */
void plan_lower_declare_unused (PlanLower *self);
void plan_lower_sum_replicated (PlanLower *self);

/* Divides what no reduction has divided: gradients of experts that one rank of a replica has
 * alone. */
void plan_lower_scale_alone (PlanLower *self);

/* Adds the squares of `count` gradients of a bucket, from its element `first` on, to this rank's
 * sum for the gradient norm. Gradients that all ranks of a tensor-parallel group hold are added by
 * its first rank alone. */
void plan_lower_measure (PlanLower *self, PlanBucketKind kind, PlanRef grads, guint64 first,
                         guint64 count);

/* What the optimizer has of a bucket's moments while it works: fp32 copies of narrow ones, and
 * roots of second moments, which plan_lower_take_roots makes of `n` of them. */
void plan_lower_take_copies (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);
void plan_lower_drop_copies (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);
void plan_lower_take_roots (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint64 n);

/* Reduces the gradients that the units of the virtual stage at hand kept whole up to the last micro
 * batch, and frees the weights that they kept gathered (PLAN_STAGES_REDUCE_HELD). */
void plan_lower_reduce_held (PlanLower *self);

/* Starts gathering the weights of a virtual stage that stay gathered for several passes; waits for
 * them; frees them. */
void plan_lower_gather_whole (PlanLower *self, gint64 virtual_stage);
void plan_lower_receive_whole (PlanLower *self, gint64 virtual_stage);
void plan_lower_drop_whole (PlanLower *self, gint64 virtual_stage);

G_END_DECLS
