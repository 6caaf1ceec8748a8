/* PlanSlice: where a tensor-parallel rank's part of a parameter lies in the whole parameter.
 *
 * Queries, keys and values are split by heads, gate and up each in equal parts, all along rows.
 * Matrices whose products are summed over ranks afterwards are split by columns. A parameter
 * that is not split is its own part. */
#pragma once
#include "planner/layout/buckets.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_MAX_SLICES 3

typedef struct
{
  guint n; /* runs of rows, which lie one after the other in the part */
  struct
  {
    guint64 rows, first; /* rows of the run, and its first row in the whole */
  } run[PLAN_MAX_SLICES];
  guint64 cols, first_col,
      whole_cols; /* columns of the part; its first column in the whole; columns of the whole */
} PlanSlice;

/* The slice of the rank with index `place` in its tensor-parallel group. Experts are not
 * covered. */
PlanSlice plan_slice_of (const PlanModel *model, PlanTensorRole role, const PlanBucketRule *rule,
                         guint64 place);

/* How many elements, from element `at` of the part on, are contiguous in the whole as well, and
 * where they begin there. */
guint64 plan_slice_run (const PlanSlice *self, guint64 at, guint64 *out_first);

G_END_DECLS
