/* PlanPacking: where the parameters of one bucket lie in it, and what pads them. */
#pragma once
#include "planner/model/tensor.h"
#include "planner/plan/placing.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  PlanPacking packing;
  guint64 shards;   /* 1: nothing is padded */
  guint64 multiple; /* elements; a flat bucket is a multiple of this and of the shards */
} PlanPackingRule;

/* Sets the element at which each of `n` parameters starts, which are given in the order of their
 * names; returns the elements of the bucket, with padding. */
guint64 plan_packing_place (const PlanPackingRule *rule, const PlanTensor *const *tensors, guint n,
                            guint64 *out_offsets);

G_END_DECLS
