/* PlanSlice: where a tensor-parallel rank's part of a parameter lies in all of it.
 *
 * Rows of queries, keys and values are split head by head, those of gate and up in halves of their
 * own; what sums go over afterwards is split by columns. What is not split is its own part. */
#pragma once
#include "planner/layout/buckets.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_MAX_SLICES 3

typedef struct
{
  guint n; /* runs of rows, one after the other in the part */
  struct
  {
    guint64 rows, first; /* how many; the first of the whole */
  } run[PLAN_MAX_SLICES];
  guint64 cols, first_col, whole_cols; /* of each row */
} PlanSlice;

/* Of place `place` among the ranks that the rule splits all but experts over. */
PlanSlice plan_slice_of (const PlanModel *model, PlanTensorRole role, const PlanBucketRule *rule,
                         guint64 place);

/* How many elements from element `at` of the part on lie together in the whole, and where. */
guint64 plan_slice_run (const PlanSlice *self, guint64 at, guint64 *out_first);

G_END_DECLS
