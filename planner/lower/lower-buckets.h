/* Buckets of gradients and weights: in which one a parameter lies, and, where buckets go by size,
 * when each is begun, complete and needed. */
#pragma once
#include "planner/lower/lower-private.h"
G_BEGIN_DECLS

/* Where a parameter lies. */
typedef struct
{
  PlanBucketKind kind;
  PlanLowerUnit unit; /* of the bucket */
  guint64 offset, elements;
  gint8 along; /* the repeat with whose turns the offset moves; -1: none */
} PlanLowerPlace;

#define PLAN_BEFORE_LAYERS G_MAXINT64 /* in the order of the backward pass */
#define PLAN_AFTER_LAYERS (-1)

typedef struct
{
  guint32 number;
  guint32 starter;     /* parameter whose gradient is there first */
  gint64 layer;        /* in whose backward pass it is complete, or one of those above */
  PlanTensorRole role; /* with whose gradient */
  guint rank;          /* of that gradient among the layer's, in time */
} PlanLowerGroup;

void plan_lower_init_buckets (PlanLower *self);
void plan_lower_clear_buckets (PlanLower *self);

/* One rank's part of a parameter; no rows where no bucket holds one. */
PlanTensor plan_lower_tensor (const PlanLower *self, PlanTensorRole role);

/* Whether a layer, `delta` behind that unit, has a bucket of this kind; of one that is no layer's,
 * whether there is such a bucket. */
gboolean plan_lower_holds (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                           gint32 delta);

/* Where that parameter of a unit lies; the model must have it. */
PlanLowerPlace plan_lower_place (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);

/* That parameter, of a bucket. */
PlanRef plan_lower_in_place (PlanRef bucket, const PlanLowerPlace *place);

/* Elements from a layer's parameters to those of another one in the same bucket. */
gint64 plan_lower_distance (const PlanLower *self, gint64 layer, gint64 other);

/* Whether the first gradient of its bucket is that parameter's, where buckets go by size. */
gboolean plan_lower_starts (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);

/* Every bucket: those around the layers, then layer by layer; by size, as they fill. */
void plan_lower_each_bucket (PlanLower *self, void (*visit) (PlanLower *self, PlanBucketKind kind,
                                                             PlanLowerUnit unit));

/* Buckets of the virtual stage at hand. */
void plan_lower_each_bucket_here (PlanLower *self,
                                  void (*visit) (PlanLower *self, PlanBucketKind kind,
                                                 PlanLowerUnit unit));

/* How the arrays of its kind count a bucket. */
PlanLowerUnit plan_lower_span_unit (const PlanBucketSpan *span);

/* The bucket that a forward pass gets to behind that one. */
#define PLAN_NO_BUCKET G_MAXUINT32
#define PLAN_LIES_WITHIN(number) \
  (-1 - (gint64)(number)) /* a layer, among others of that bucket \
                           */
guint32 plan_lower_next_bucket (const PlanLower *self, guint32 number);

/* The buckets that are complete in a layer's backward pass, in time; the caller frees. */
GArray *plan_lower_groups_of (const PlanLower *self, gint64 layer); /* PlanLowerGroup */

/* What every rank of a tensor-parallel group has whole: whether that is so of a parameter, and
 * whether its gradients are summed over the group, as each has seen other tokens or heads. */
gboolean plan_lower_is_replicated (const PlanLower *self, PlanTensorRole role);
gboolean plan_lower_sums (const PlanLower *self, PlanTensorRole role);
void plan_lower_declare_replicated (PlanLower *self);
void plan_lower_sum_replicated (PlanLower *self);

/* Adds the squares of `count` gradients of a bucket, from its element `first` on, to the norm's
 * sum: what all ranks of a tensor-parallel group have is added by the first one of them. */
void plan_lower_measure (PlanLower *self, PlanBucketKind kind, PlanRef grads, guint64 first,
                         guint64 count);

G_END_DECLS
