/* Operands and dims that a grouped GEMM, one that adds, and a GEMM have in common have the same
 * indices, so that backends can pass an op of one kind on as another. */
#pragma once
#include "planner/schedule/op.h"
#include <glib.h>

PLAN_SAME_REF (GROUPED_GEMM, GROUPED_GEMM_ADD, out);
PLAN_SAME_REF (GROUPED_GEMM, GROUPED_GEMM_ADD, counts);
PLAN_SAME_REF (GROUPED_GEMM, GROUPED_GEMM_ADD, work);
PLAN_SAME_DIM (GROUPED_GEMM, GROUPED_GEMM_ADD, layout);
PLAN_SAME_DIM (GROUPED_GEMM, GROUPED_GEMM_ADD, groups);
PLAN_SAME_REF (GROUPED_GEMM, GEMM, out);
PLAN_SAME_REF (GROUPED_GEMM, GEMM, a);
PLAN_SAME_REF (GROUPED_GEMM, GEMM, b);
PLAN_SAME_DIM (GROUPED_GEMM, GEMM, m);
PLAN_SAME_DIM (GROUPED_GEMM, GEMM, n);
PLAN_SAME_DIM (GROUPED_GEMM, GEMM, k);

/* Likewise of quantising, but that counts are in place of a scale, which comes behind. */
PLAN_SAME_REF (GROUPED_QUANTIZE, QUANTIZE, out);
PLAN_SAME_REF (GROUPED_QUANTIZE, QUANTIZE, col);
PLAN_SAME_REF (GROUPED_QUANTIZE, QUANTIZE, in);
PLAN_SAME_DIM (GROUPED_QUANTIZE, QUANTIZE, rows);
PLAN_SAME_DIM (GROUPED_QUANTIZE, QUANTIZE, cols);

PLAN_SAME_REF (GROUPED_TRANSPOSE, TRANSPOSE, out);
PLAN_SAME_REF (GROUPED_TRANSPOSE, TRANSPOSE, in);

/* Gradients of weights, sums over the rows of an expert, have these layouts of grouped GEMMs: of
 * factors as they are, or of copies that are transposed, in formats whose blocks lie along sums. */
static inline gboolean
exec_grouped_is_gradient (gint64 layout)
{
  return layout >= 2;
}

/* The layout of each expert's GEMM. */
static inline gint64
exec_grouped_layout_of_each (gint64 layout)
{
  return layout == 3 ? 1 : layout;
}
