/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/watch.h"

#include "tests/fake/order.h"

#include <string.h>

#define MAX_OPERANDS (2 * PLAN_MAX_REFS)

static const ExecKernels *watched_kernels;

/* Bytes of an operand's scales where they lie elsewhere: one scale for each block. Those of experts
 * lie apart. */
static guint64
bytes_apart (const ExecArgs *args, guint i)
{
  const PlanOp *op = args->op;
  const gboolean is_of_experts
      = op->kind == PLAN_OP_GROUPED_GEMM || op->kind == PLAN_OP_GROUPED_TRANSPOSE;
  const gboolean is_product = op->kind == PLAN_OP_GEMM || op->kind == PLAN_OP_GEMM_ADD
                              || op->kind == PLAN_OP_GROUPED_GEMM;
  const guint64 groups = !is_of_experts
                             ? 1
                             : (guint64)op->dims[is_product ? PLAN_DIM_GROUPED_GEMM_groups
                                                            : PLAN_DIM_GROUPED_TRANSPOSE_groups];
  const guint64 rows = (guint64)op->dims[is_product ? i - 1 : 0] / (is_product ? 1 : groups);
  const guint64 cols = (guint64)op->dims[is_product ? 2 : 1];
  const PlanDtype format = args->blocks[i].format;
  const guint64 before = (groups - 1) * args->blocks[i].apart;
  return before
         + (format == PLAN_DTYPE_FP8_128X128
                ? sizeof (float) * plan_dtype_square_scales (rows, cols)
                : rows * cols / plan_dtype_block (format));
}

/* Whether an operand has gaps between its rows: what a norm of a part of each row reads, and its
 * gradient. */
static gboolean
has_pitch (const ExecArgs *args, guint i)
{
  static const char *const names[] = { "in", "din", "add", NULL };
  return exec_manner (args, PLAN_MANNER_PITCH) > 0
         && g_strv_contains (names, plan_op_ref_name (args->op->kind, i));
}

/* Whether the rank's part of a unit has elements that are no parameter's, between two of them. */
static gboolean
has_gaps (const ExecArgs *args)
{
  const ExecParams *params = args->params;
  guint64 left = (guint64)args->op->dims[PLAN_DIM_PARAM_QUANTIZE_count];
  const guint64 last = params ? params->from + left : 0;
  for (guint i = 0; params && i < params->n; i++)
    {
      const ExecMatrices *of = &params->of[i];
      const guint64 end = of->at + of->n * of->rows * of->cols;
      left -= CLAMP (end, params->from, last) - CLAMP (of->at, params->from, last);
    }
  return params && left > 0;
}

/* Whether an op has to use all of an operand. It need not: of a table rows that nobody looks up; of
 * some formats with blocks the padding, and what is between parameters; of experts rows that nobody
 * sent; of a part of sequences rows of positions that other ranks have, and queries and keys that
 * do not see each other. */
static gboolean
is_whole (const ExecArgs *args, guint i)
{
  const PlanOpKind kind = args->op->kind;
  if ((kind == PLAN_OP_PARAM_AMAX || kind == PLAN_OP_PARAM_QUANTIZE) && has_gaps (args))
    return FALSE;
  const gboolean is_factor
      = (kind == PLAN_OP_GEMM || kind == PLAN_OP_GEMM_ADD) && (i == 1 || i == 2);
  const gboolean is_attention = kind == PLAN_OP_ATTENTION || kind == PLAN_OP_ATTENTION_BWD;
  const char access = plan_op_ref_access (kind, i);
  const gboolean is_of_experts
      = (kind == PLAN_OP_GROUPED_GEMM && args->op->dims[PLAN_DIM_GROUPED_GEMM_layout] < 2)
        || (kind == PLAN_OP_GROUPED_QUANTIZE && args->ptr[PLAN_REF_GROUPED_QUANTIZE_counts])
        || (kind == PLAN_OP_UNPERMUTE && i == PLAN_REF_UNPERMUTE_dprobs);
  const gboolean is_of_parts = exec_manner (args, PLAN_MANNER_PARTS) > 1
                               && (is_attention ? access == 'r' : kind == PLAN_OP_POSITIONS_BWD);
  return args->dtype[i] != PLAN_DTYPE_FP8_128X128 && !is_of_experts && !is_of_parts
         && !has_pitch (args, i) && (is_factor || access == 'w' || (is_attention && access == 'r'));
}

/* The most elements of an operand that an op may touch. The map on the device says how many
 * probabilities the experts of all ranks have: this is the most it can say. */
static guint64
most_elements (const ExecArgs *args, guint i)
{
  const PlanOp *op = args->op;
  const gint64 *dims = op->dims;
  const gint64 piece = (gint64)exec_manner (args, PLAN_MANNER_PIECE),
               width = (gint64)exec_manner (args, PLAN_MANNER_WIDTH);
  const gint64 parts = (gint64)exec_manner (args, PLAN_MANNER_PARTS);
  const gboolean is_table
      = (op->kind == PLAN_OP_POSITIONS && i == PLAN_REF_POSITIONS_table)
        || (op->kind == PLAN_OP_POSITIONS_BWD && i == PLAN_REF_POSITIONS_BWD_dtable);
  const gboolean has_rows = (op->kind == PLAN_OP_CAST && i == PLAN_REF_CAST_in)
                            || (op->kind == PLAN_OP_ACCUMULATE && i == PLAN_REF_ACCUMULATE_out);
  const gboolean is_part
      = op->kind == PLAN_OP_PARAM_AMAX && i == 0; /* the part's elements and no more */
  const gboolean is_probs = (op->kind == PLAN_OP_PERMUTE && i == PLAN_REF_PERMUTE_probs)
                            || (op->kind == PLAN_OP_UNPERMUTE && i == PLAN_REF_UNPERMUTE_dprobs);
  if (is_probs)
    return (guint64)(dims[PLAN_DIM_PERMUTE_rows]
                     * (dims[PLAN_DIM_PERMUTE_entries] - PLAN_ROW_MAP_HEAD
                        - dims[PLAN_DIM_PERMUTE_out_rows] - dims[PLAN_DIM_PERMUTE_rows]));
  if (has_rows && piece > 0)
    return (guint64)(dims[0] / piece * width - (width - piece));
  if (is_table && parts > 1)
    return (guint64)parts * plan_op_ref_elements (op, i, 1);
  if (has_pitch (args, i))
    return (guint64)((dims[PLAN_DIM_RMSNORM_rows] - 1)
                         * (gint64)exec_manner (args, PLAN_MANNER_PITCH)
                     + dims[PLAN_DIM_RMSNORM_cols]);
  return is_part ? (guint64)dims[1] : plan_op_ref_elements (op, i, 1);
}

/* Lists the operands of an op with their accesses. What results and scratch contain before the op
 * does not matter. */
static guint
list_operands (const ExecArgs *args, FakeOperand operands[MAX_OPERANDS])
{
  const PlanOp *op = args->op;
  guint n = 0;
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      const char access = plan_op_ref_access (op->kind, i);
      const guint64 bytes = plan_dtype_bytes (args->dtype[i], most_elements (args, i));
      if (!args->ptr[i])
        continue;
      operands[n++] = (FakeOperand){ .name = plan_op_ref_name (op->kind, i),
                                     .at = args->ptr[i],
                                     .bytes = access == 's' ? args->scratch_bytes : bytes,
                                     .is_read = access != 'w' && access != 's',
                                     .is_written = access != 'r',
                                     .is_whole = is_whole (args, i) };
      if (args->blocks[i].scales && access == 'r')
        operands[n++] = (FakeOperand){ .name = "scales",
                                       .at = args->blocks[i].scales,
                                       .bytes = bytes_apart (args, i),
                                       .is_read = TRUE };
    }
  return n;
}

/* Declares what an op uses that the host does itself. */
static void
declare_use (const ExecArgs *args, const FakeOperand *operands, guint n)
{
  for (guint i = 0; args->op->stream == PLAN_STREAM_HOST && i < n; i++)
    fake_order_host_use (plan_op_name (args->op->kind), operands[i].at, operands[i].bytes,
                         operands[i].is_written);
}

static int
launch (const ExecArgs *args, void *stream)
{
  FakeOperand operands[MAX_OPERANDS];
  const guint n = list_operands (args, operands);
  declare_use (args, operands, n);
  fake_watch_begin (plan_op_name (args->op->kind), operands, n);
  const int code = watched_kernels->launch[args->op->kind](args, stream);
  fake_watch_end (code == 0);
  return code;
}

const ExecKernels *
watch_kernels (const ExecKernels *kernels)
{
  static ExecKernels watching;
  watched_kernels = kernels;
  watching = *kernels;
  for (PlanOpKind kind = 0; kind < PLAN_N_OPS; kind++)
    if (kernels->launch[kind])
      watching.launch[kind] = launch;
  return &watching;
}
