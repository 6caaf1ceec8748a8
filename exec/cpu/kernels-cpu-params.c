/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on all parameters of a unit: each parameter, of which each expert's matrix is one, by itself.
 */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"

static void
move_operand (ExecArgs *args, guint operand, guint64 elements)
{
  if (args->ptr[operand] != NULL)
    args->ptr[operand]
        = (guint8 *)args->ptr[operand] + plan_dtype_bytes (args->dtype[operand], elements);
}

/* Runs the op on the rank's part of one matrix, which begins at an element of the unit. */
static void
run_matrix (const ExecArgs *args, const ExecMatrices *matrices, guint64 number, ExecKernel run)
{
  const ExecParams *params = args->params;
  const guint64 size = matrices->rows * matrices->cols, begin = matrices->at + number * size;
  const guint64 last = params->from + (guint64)args->op->dims[PLAN_DIM_PARAM_QUANTIZE_count];
  const guint64 from = CLAMP (begin, params->from, last), to = CLAMP (begin + size, from, last);
  const guint64 magnitude = matrices->magnitude + number * matrices->magnitudes;
  const gboolean raises = args->op->kind == PLAN_OP_PARAM_AMAX;
  PlanOp op = *args->op;
  ExecArgs part = *args;

  op.dims[PLAN_DIM_PARAM_QUANTIZE_count] = (gint64)(to - from);
  op.dims[PLAN_DIM_PARAM_QUANTIZE_parts] = (gint64)matrices->magnitudes;
  part.op = &op;
  part.params = NULL;
  part.param
      = (ExecParam){ matrices->rows, matrices->cols, to > from ? from - begin : 0, params->block };
  move_operand (&part, raises ? PLAN_REF_PARAM_AMAX_amax : PLAN_REF_PARAM_QUANTIZE_amax, magnitude);
  move_operand (&part, raises ? PLAN_REF_PARAM_AMAX_in : PLAN_REF_PARAM_QUANTIZE_in,
                from - params->from);
  if (!raises)
    {
      move_operand (&part, PLAN_REF_PARAM_QUANTIZE_out, from - params->from);
      move_operand (&part, PLAN_REF_PARAM_QUANTIZE_col, from - params->from);
      move_operand (&part, PLAN_REF_PARAM_QUANTIZE_scales, magnitude);
      move_operand (&part, PLAN_REF_PARAM_QUANTIZE_site_scales, matrices->site);
      move_operand (&part, PLAN_REF_PARAM_QUANTIZE_site_amax, matrices->site);
      part.scale[PLAN_REF_PARAM_QUANTIZE_out] = matrices->scale + number;
    }
  run (&part);
}

static void
run_all (const ExecArgs *args, ExecKernel run)
{
  if (args->params == NULL)
    run (args);
  else
    for (guint i = 0; i < args->params->n; i++)
      for (guint64 number = 0; number < args->params->of[i].n; number++)
        run_matrix (args, &args->params->of[i], number, run);
}

void
exec_cpu_param_amax (const ExecArgs *args)
{
  run_all (args, exec_cpu_param_amax_of_one);
}

void
exec_cpu_param_quantize (const ExecArgs *args)
{
  run_all (args, exec_cpu_param_quantize_of_one);
}
