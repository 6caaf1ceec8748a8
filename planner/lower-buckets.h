/* Where gradients are reduced by buckets of a size: which of them are complete when. */
#pragma once
#include "planner/lower-private.h"
G_BEGIN_DECLS

/* A part of a bucket: a unit's, or one around the layers. */
typedef struct
{
  PlanBucketKind kind;
  gint64 layer; /* -1: around them */
} PlanLowerPart;

#define PLAN_BEFORE_LAYERS G_MAXINT64 /* in the order of the backward pass */
#define PLAN_AFTER_LAYERS (-1)

typedef struct
{
  guint32 number;
  gint64 layer;        /* in whose backward pass it is complete, or one of those above */
  PlanTensorRole role; /* with whose gradient */
  guint rank;          /* of that gradient among the layer's, in time */
} PlanLowerGroup;

void plan_lower_init_buckets (PlanLower *self);
void plan_lower_clear_buckets (PlanLower *self);

/* The buckets that are complete in a layer's backward pass, in time; the caller frees. */
GArray *plan_lower_groups_of (const PlanLower *self, gint64 layer); /* PlanLowerGroup */

/* The parts of a bucket, in the order in which they are reduced; the caller frees. */
GArray *plan_lower_parts_of (const PlanLower *self, guint32 number); /* PlanLowerPart */

guint64 plan_lower_group_elements (const PlanLower *self, guint32 number);

G_END_DECLS
