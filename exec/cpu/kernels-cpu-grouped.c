/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of experts, and what quantises their factors: one call for each expert of the kernel that
 * does a single matrix. */
#include "config.h"

#include "exec/grouped-gemm.h"

#include "exec/cpu/kernels-cpu-experts.h"
#include "exec/cpu/kernels-cpu-private.h"

#include <string.h>

/* Moves an operand on to the next expert's elements, and to their scale where they have one for
 * all, or to their blocks' scales in an array of their own. */
static void
advance_operand (ExecArgs *args, guint operand, gint64 elements)
{
  if (args->ptr[operand] == NULL)
    return;
  args->ptr[operand]
      = (guint8 *)args->ptr[operand] + plan_dtype_bytes (args->dtype[operand], (guint64)elements);
  if (args->scale[operand] != NULL)
    args->scale[operand]++;
  if (args->blocks[operand].scales != NULL)
    args->blocks[operand].scales += args->blocks[operand].apart;
}

/* Quantises the rows of each expert by themselves, or equally many where nothing counts them. */
void
exec_cpu_grouped_quantize (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  const gint64 cols = dims[PLAN_DIM_GROUPED_QUANTIZE_cols],
               groups = dims[PLAN_DIM_GROUPED_QUANTIZE_groups];
  const gint32 *counts = args->ptr[PLAN_REF_GROUPED_QUANTIZE_counts];
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { [PLAN_DIM_QUANTIZE_cols] = cols } };
  ExecArgs each = *args;

  each.op = &op;
  each.ptr[PLAN_REF_QUANTIZE_scale] = args->ptr[PLAN_REF_GROUPED_QUANTIZE_scale];
  each.ptr[PLAN_REF_QUANTIZE_amax] = args->ptr[PLAN_REF_GROUPED_QUANTIZE_amax];
  each.ptr[PLAN_REF_QUANTIZE_largest] = NULL;
  for (gint64 group = 0; group < groups; group++)
    {
      const gint64 rows
          = counts != NULL ? counts[group] : dims[PLAN_DIM_GROUPED_QUANTIZE_rows] / groups;

      op.dims[PLAN_DIM_QUANTIZE_rows] = rows;
      if (rows > 0)
        exec_cpu_quantize (&each);
      for (guint i = 0; i <= PLAN_REF_QUANTIZE_in; i++)
        advance_operand (&each, i, rows * cols);
    }
}

void
exec_cpu_grouped_transpose (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  const gint64 groups = dims[PLAN_DIM_GROUPED_TRANSPOSE_groups];
  const gint64 rows = dims[PLAN_DIM_GROUPED_TRANSPOSE_rows] / groups,
               cols = dims[PLAN_DIM_GROUPED_TRANSPOSE_cols];
  PlanOp op = { .kind = PLAN_OP_TRANSPOSE,
                .dims = { [PLAN_DIM_TRANSPOSE_rows] = rows, [PLAN_DIM_TRANSPOSE_cols] = cols } };
  ExecArgs each = *args;

  each.op = &op;
  for (gint64 group = 0; group < groups; group++)
    {
      exec_cpu_transpose (&each);
      advance_operand (&each, PLAN_REF_TRANSPOSE_out, rows * cols);
      advance_operand (&each, PLAN_REF_TRANSPOSE_in, rows * cols);
    }
}

/* One product per expert, by the kernel of a single product. Experts have equally many rows where
 * nothing counts them. The weights of an expert without rows
 * get a gradient of 0. */
void
exec_cpu_grouped_gemm (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  const gboolean adds = args->op->kind == PLAN_OP_GROUPED_GEMM_ADD;
  const gint64 layout = dims[PLAN_DIM_GROUPED_GEMM_layout];
  const gboolean is_gradient = exec_grouped_is_gradient (layout);
  const gint32 *counts = args->ptr[PLAN_REF_GROUPED_GEMM_counts];
  PlanOp op = { .kind = adds ? PLAN_OP_GEMM_ADD : PLAN_OP_GEMM };
  const gint64 groups = dims[PLAN_DIM_GROUPED_GEMM_groups];
  const gint64 all = dims[is_gradient ? PLAN_DIM_GROUPED_GEMM_k : PLAN_DIM_GROUPED_GEMM_m];
  ExecArgs each = *args;

  memcpy (op.dims, dims, PLAN_N_DIMS_GEMM * sizeof *dims);
  op.dims[PLAN_DIM_GEMM_layout] = exec_grouped_layout_of_each (layout);
  each.op = &op;
  each.ptr[PLAN_REF_GROUPED_GEMM_counts] = NULL;
  each.ptr[adds ? PLAN_REF_GEMM_ADD_work : PLAN_REF_GEMM_work]
      = args->ptr[PLAN_REF_GROUPED_GEMM_work];
  for (gint64 group = 0; group < groups; group++)
    {
      const gint64 rows = counts != NULL ? counts[group] : all / groups;
      const gint64 m = is_gradient ? op.dims[PLAN_DIM_GEMM_m] : rows, n = op.dims[PLAN_DIM_GEMM_n],
                   k = is_gradient ? rows : op.dims[PLAN_DIM_GEMM_k];

      op.dims[is_gradient ? PLAN_DIM_GEMM_k : PLAN_DIM_GEMM_m] = rows;
      if (rows > 0)
        (adds ? exec_cpu_gemm_add : exec_cpu_gemm) (&each);
      else if (is_gradient && !adds)
        memset (each.ptr[PLAN_REF_GEMM_out], 0,
                plan_dtype_bytes (each.dtype[PLAN_REF_GEMM_out], (guint64)(m * n)));
      advance_operand (&each, PLAN_REF_GEMM_out, m * n);
      advance_operand (&each, PLAN_REF_GEMM_a, m * k);
      advance_operand (&each, PLAN_REF_GEMM_b, is_gradient ? k * n : op.dims[PLAN_DIM_GEMM_k] * n);
    }
}
