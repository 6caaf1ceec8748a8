/* Operands and dims that a grouped GEMM, one that adds, and a GEMM have in common have the same
 * indices, so that backends can pass an op of one kind on as another. */
#pragma once
#include "planner/schedule/op.h"

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
