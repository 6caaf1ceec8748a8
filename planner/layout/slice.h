/* PlanSlice: where a rank's part of a parameter lies in the whole parameter.
 *
 * Queries, keys and values are split by heads, gate and up each in equal parts, all along rows.
 * Matrices whose products are summed over ranks afterwards are split by columns. A parameter
 * that is not split is its own part. Parameters of all experts are one below the other; a rank has
 * those of neighbouring experts, each of which may be split so. */
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
  guint64 again, whole_again; /* where several experts are split by rows: rows of the part, and of
                                 the whole, after which the runs come again; else 0 */
} PlanSlice;

/* The slice of the rank with index `place` in its tensor-parallel group; of experts, in the group
 * of ranks that have different ones, or parts of them. */
PlanSlice plan_slice_of (const PlanModel *model, PlanTensorRole role, const PlanBucketRule *rule,
                         guint64 place);

/* How many elements, from element `at` of the part on, are contiguous in the whole as well, and
 * where they begin there. */
guint64 plan_slice_run (const PlanSlice *self, guint64 at, guint64 *out_first);

G_END_DECLS
