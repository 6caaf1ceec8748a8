/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/runnable.h"

#include "planner/base/error.h"
#include "planner/plan/native.h"

/* Whether the kernels read and write a number format. All backends have those listed here; a
 * backend may have others (`more_formats`). */
static gboolean
is_runnable (const ExecKernels *kernels, PlanDtype dtype)
{
  switch ((int)dtype)
    {
    case PLAN_DTYPE_FP32:
    case PLAN_DTYPE_BF16:
    case PLAN_DTYPE_E4M3:
    case PLAN_DTYPE_E5M2:
    case PLAN_DTYPE_MXFP8:
    case PLAN_DTYPE_NVFP4:
    case PLAN_DTYPE_FP8_1X128:
    case PLAN_DTYPE_FP8_128X128:
    case PLAN_DTYPE_U8:
    case PLAN_DTYPE_I32:
    case PLAN_DTYPE_I64:
      return TRUE;
    default:
      return (kernels->more_formats >> dtype & 1) != 0;
    }
}

static gboolean
check_op (const ExecJob *job, const PlanSchedule *schedule, const PlanOp *op, GError **error)
{
  const gboolean computes = plan_op_class (op->kind) == PLAN_CLASS_COMPUTE;
  if (!computes || job->kernels->run[op->kind] || job->kernels->launch[op->kind])
    return !computes || job->kernels->check (schedule, op, error);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "this plan needs the op %s, which is modelled and not executed by %s yet",
               plan_op_name (op->kind), job->kernels->name);
  return FALSE;
}

PLAN_SAME_REF (QUANTIZE, GROUPED_QUANTIZE, out);
PLAN_SAME_DIM (QUANTIZE, GROUPED_QUANTIZE, rows);
PLAN_SAME_DIM (QUANTIZE, GROUPED_QUANTIZE, cols);
PLAN_SAME_DIM (QUANTIZE, SWIGLU_QUANTIZE, cols);
PLAN_SAME_DIM (QUANTIZE, SWIGLU_BWD_QUANTIZE, cols);

static gboolean
quantises (PlanOpKind kind)
{
  return kind == PLAN_OP_QUANTIZE || kind == PLAN_OP_GROUPED_QUANTIZE
         || kind == PLAN_OP_SWIGLU_QUANTIZE || kind == PLAN_OP_SWIGLU_BWD_QUANTIZE;
}

/* Checks that a quantised matrix, or each expert's, consists of whole blocks, along rows and along
 * columns, because one scale belongs to each block; twice the columns are no exception. Counted
 * rows begin at whole blocks. */
static gboolean
check_blocks (const PlanSchedule *schedule, const PlanOp *op, GError **error)
{
  const PlanBuffer *out
      = plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_QUANTIZE_out].array);
  const gint64 block = plan_dtype_block (out->dtype);
  const gboolean are_equal = op->kind == PLAN_OP_GROUPED_QUANTIZE
                             && op->refs[PLAN_REF_GROUPED_QUANTIZE_counts].array < 0;
  const gint64 groups = are_equal ? op->dims[PLAN_DIM_GROUPED_QUANTIZE_groups] : 1;
  if (block == 0
      || (op->dims[PLAN_DIM_QUANTIZE_rows] % (block * groups) == 0
          && op->dims[PLAN_DIM_QUANTIZE_cols] % block == 0))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "%s of %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
               " is not of whole blocks of %s: each must be a multiple of %" G_GINT64_FORMAT,
               out->name, op->dims[PLAN_DIM_QUANTIZE_rows] / groups,
               op->dims[PLAN_DIM_QUANTIZE_cols], plan_dtype_name (out->dtype), block);
  return FALSE;
}

static gboolean
check_buffers (const ExecKernels *kernels, const PlanSchedule *schedule, GError **error)
{
  for (guint i = 0; i < plan_schedule_n_buffers (schedule); i++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (schedule, i);
      if (is_runnable (kernels, buffer->dtype))
        continue;
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "this plan keeps %s in %s, which is modelled and not executed by %s yet",
                   buffer->name, plan_dtype_name (buffer->dtype), kernels->name);
      return FALSE;
    }
  return TRUE;
}

gboolean
exec_runnable_check (const ExecJob *job, const PlanCase *of, const PlanSchedule *schedule,
                     GError **error)
{
  const gint64 *value = of->plan.value;
  const gint64 data_parallel = plan_schedule_ranks (schedule) / value[PLAN_TP] / value[PLAN_PP];
  if (!plan_native_runs (&of->plan, of->model, data_parallel, error)
      || !check_buffers (job->kernels, schedule, error))
    return FALSE;
  for (guint i = 0; i < plan_schedule_n_nodes (schedule); i++)
    {
      const PlanOp *op = plan_schedule_node (schedule, i);
      if (op->kind >= PLAN_N_OPS)
        continue;
      if ((quantises (op->kind) && !check_blocks (schedule, op, error))
          || !check_op (job, schedule, op, error))
        return FALSE;
    }
  return TRUE;
}
