/* plan_packing_place: where the parameters of one bucket lie in it, and what pads them. */
#pragma once
#include "planner/model/tensor.h"
#include "planner/plan/placing.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  PlanPacking packing;
  guint64 shards;   /* 1: nothing is padded */
  guint64 multiple; /* elements; a flat bucket's size is a multiple of this and of the shards */
} PlanPackingRule;

/* Sets the element at which each of the `n` parameters, given in the order of their names, starts.
 * Returns the elements of the bucket, with padding. */
guint64 plan_packing_place (const PlanPackingRule *rule, const PlanTensor *const *tensors, guint n,
                            guint64 *out_offsets);

G_END_DECLS
