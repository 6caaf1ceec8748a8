/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend: its table of kernels, and the kernels of element-wise ops, embeddings and matrix
 * products. Operands and dims are those of
 * planner/schedule/op-list.h. Everything is computed in fp32, in loops of a fixed order, and
 * rounded once where it is stored. */
#include "config.h"

#include "exec/comm.h"
#include "exec/cpu/kernels-cpu-attention.h"
#include "exec/cpu/kernels-cpu-experts.h"
#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cpu/pool.h"
#include "exec/kernels.h"
#include "exec/number/number.h"
#include "planner/base/error.h"

#include <math.h>
#include <string.h>

#define BLOCK EXEC_CPU_BLOCK

/* --- element by element ------------------------------------------------------------------- */

static void
zero_range (const ExecArgs *args, guint64 from, guint64 to)
{
  const PlanDtype dtype = args->dtype[PLAN_REF_ZERO_out];
  const guint64 begin = plan_dtype_bytes (dtype, from);

  memset ((guint8 *)args->ptr[PLAN_REF_ZERO_out] + begin, 0, plan_dtype_bytes (dtype, to) - begin);
}

static void
run_zero (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_ZERO_count], 1, zero_range);
}

/* Some ops copy or add columns of a matrix that has more: their manner says how many (PIECE) and
 * how wide the matrix is (WIDTH). Gives the index in the matrix of element `at` of those columns,
 * and cuts `n` to the elements that lie in the same row. */
static guint64
in_rows (const ExecArgs *args, guint64 at, guint64 *n)
{
  const guint64 piece = (guint64)exec_manner (args, PLAN_MANNER_PIECE);

  if (piece == 0)
    return at;
  *n = MIN (*n, piece - at % piece);
  return at / piece * (guint64)exec_manner (args, PLAN_MANNER_WIDTH) + at % piece;
}

static void
cast_range (const ExecArgs *args, guint64 from, guint64 to)
{
  float storage[BLOCK];
  guint64 n;

  for (guint64 at = from; at < to; at += n)
    {
      n = MIN (BLOCK, to - at);
      const guint64 in = in_rows (args, at, &n);

      exec_cpu_write_ref (args, PLAN_REF_CAST_out, at, n,
                          exec_cpu_read_ref (args, PLAN_REF_CAST_in, in, n, storage));
    }
}

static void
run_cast (const ExecArgs *args)
{
  guint64 count = (guint64)args->op->dims[PLAN_DIM_CAST_count];

  if (args->dtype[PLAN_REF_CAST_out] == args->dtype[PLAN_REF_CAST_in]
      && exec_manner (args, PLAN_MANNER_PIECE) == 0)
    memmove (args->ptr[PLAN_REF_CAST_out], args->ptr[PLAN_REF_CAST_in],
             plan_dtype_bytes (args->dtype[PLAN_REF_CAST_out], count));
  else
    exec_cpu_spread (args, count, 1, cast_range);
}

PLAN_SAME_REF (CAST, COPY, out);
PLAN_SAME_REF (CAST, COPY, in);
PLAN_SAME_DIM (CAST, COPY, count);

/* Copies a tensor and, where its format has a scale per tensor, that scale. */
static void
run_copy (const ExecArgs *args)
{
  run_cast (args);
  if (args->scale[PLAN_REF_COPY_out] && args->scale[PLAN_REF_COPY_in])
    *args->scale[PLAN_REF_COPY_out] = *args->scale[PLAN_REF_COPY_in];
}

static void
scale_range (const ExecArgs *args, guint64 from, guint64 to)
{
  const double said = exec_manner (args, PLAN_MANNER_FACTOR);
  const float factor = (float)(said != 0 ? said : 1.0 / (double)args->constants->grad_divisor);
  float storage[BLOCK], out[BLOCK];

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);
      const float *in = exec_cpu_read_ref (args, PLAN_REF_SCALE_buf, at, n, storage);

      for (guint64 i = 0; i < n; i++)
        out[i] = in[i] * factor;
      exec_cpu_write_ref (args, PLAN_REF_SCALE_buf, at, n, out);
    }
}

static void
run_scale (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_SCALE_count], 1, scale_range);
}

/* The bound of an op with a softcap, from the op's manner. */
static float
cap_of (const ExecArgs *args)
{
  const double cap = exec_manner (args, PLAN_MANNER_CAP);

  g_assert (cap > 0);
  return (float)cap;
}

static void
softcap_range (const ExecArgs *args, guint64 from, guint64 to)
{
  float storage[BLOCK], out[BLOCK], cap = cap_of (args);

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);
      const float *in = exec_cpu_read_ref (args, PLAN_REF_SOFTCAP_buf, at, n, storage);

      for (guint64 i = 0; i < n; i++)
        out[i] = cap * tanhf (in[i] / cap);
      exec_cpu_write_ref (args, PLAN_REF_SOFTCAP_buf, at, n, out);
    }
}

static void
run_softcap (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_SOFTCAP_count], 1, softcap_range);
}

/* The derivative from the capped output alone: that of cap * tanh (x / cap) is 1 - tanh^2. */
static void
softcap_bwd_range (const ExecArgs *args, guint64 from, guint64 to)
{
  float storage[BLOCK], out_storage[BLOCK], din[BLOCK], cap = cap_of (args);

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);
      const float *grad = exec_cpu_read_ref (args, PLAN_REF_SOFTCAP_BWD_grad, at, n, storage);
      const float *out = exec_cpu_read_ref (args, PLAN_REF_SOFTCAP_BWD_out, at, n, out_storage);

      for (guint64 i = 0; i < n; i++)
        {
          const float share = out[i] / cap;

          din[i] = grad[i] * (1 - share * share);
        }
      exec_cpu_write_ref (args, PLAN_REF_SOFTCAP_BWD_grad, at, n, din);
    }
}

static void
run_softcap_bwd (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_SOFTCAP_BWD_count], 1, softcap_bwd_range);
}

static EXEC_WIDE void
add_block (float *out, const float *a, const float *b, guint64 n)
{
  for (guint64 i = 0; i < n; i++)
    out[i] = a[i] + b[i];
}

PLAN_SAME_REF (ADD, ACCUMULATE, out);

/* The operand `out` = operand `a` + operand `b`. */
static void
add (const ExecArgs *args, guint a, guint b, guint64 from, guint64 to)
{
  float a_storage[BLOCK], b_storage[BLOCK], out[BLOCK];
  guint64 n;

  for (guint64 at = from; at < to; at += n)
    {
      n = MIN (BLOCK, to - at);
      const guint64 in = in_rows (args, at, &n);
      const float *x = exec_cpu_read_ref (args, a, in, n, a_storage);
      const float *y = exec_cpu_read_ref (args, b, at, n, b_storage);

      add_block (out, x, y, n);
      exec_cpu_write_ref (args, PLAN_REF_ADD_out, in, n, out);
    }
}

static void
accumulate_range (const ExecArgs *args, guint64 from, guint64 to)
{
  add (args, PLAN_REF_ACCUMULATE_out, PLAN_REF_ACCUMULATE_in, from, to);
}

static void
run_accumulate (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_ACCUMULATE_count], 1, accumulate_range);
}

/* Adds up `parts` arrays that lie one after another in `in`. */
static void
run_sum_parts (const ExecArgs *args)
{
  guint64 count = (guint64)args->op->dims[PLAN_DIM_SUM_PARTS_count];
  guint parts = (guint)args->op->dims[PLAN_DIM_SUM_PARTS_parts];
  g_autofree const void **part = g_new (const void *, parts);

  for (guint i = 0; i < parts; i++)
    part[i] = (const guint8 *)args->ptr[PLAN_REF_SUM_PARTS_in]
              + plan_dtype_bytes (args->dtype[PLAN_REF_SUM_PARTS_in], i * count);
  exec_comm_sum (args->ptr[PLAN_REF_SUM_PARTS_out], part, parts, count,
                 args->dtype[PLAN_REF_SUM_PARTS_in]);
}

static void
add_range (const ExecArgs *args, guint64 from, guint64 to)
{
  add (args, PLAN_REF_ADD_a, PLAN_REF_ADD_b, from, to);
}

static void
run_add (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_ADD_count], 1, add_range);
}

/* --- embedding ---------------------------------------------------------------------------- */

guint64
exec_cpu_vocab_here (const ExecArgs *args, guint64 count)
{
  const double whole = exec_manner (args, PLAN_MANNER_WHOLE);

  if (whole <= 0)
    return count;
  return (guint64)CLAMP (whole - exec_manner (args, PLAN_MANNER_FIRST), 0, (double)count);
}

gint64
exec_cpu_vocab_find (const ExecArgs *args, gint32 entry, guint64 count)
{
  const gint64 whole = (gint64)exec_manner (args, PLAN_MANNER_WHOLE);
  const gint64 place = entry - (gint64)exec_manner (args, PLAN_MANNER_FIRST);

  g_assert (entry >= 0 && entry < (whole > 0 ? whole : (gint64)count));
  return place >= 0 && place < (gint64)count ? place : -1;
}

static void
embed_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_EMBED_cols];
  const gint32 *tokens = args->ptr[PLAN_REF_EMBED_tokens];
  const float zeros[BLOCK] = { 0 };
  float storage[BLOCK];

  for (guint64 row = first; row < end; row++)
    {
      gint64 place
          = exec_cpu_vocab_find (args, tokens[row], (guint64)args->op->dims[PLAN_DIM_EMBED_vocab]);

      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);
          guint64 from = (guint64)place * cols + at;

          exec_cpu_write_ref (
              args, PLAN_REF_EMBED_out, row * cols + at, n,
              place < 0 ? zeros : exec_cpu_read_ref (args, PLAN_REF_EMBED_table, from, n, storage));
        }
    }
}

static void
run_embed (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_EMBED_rows],
                   (guint64)args->op->dims[PLAN_DIM_EMBED_cols], embed_rows);
}

/* Sorts the rows of all tokens that are in this rank's part of the vocabulary: the rows of token v
 * are order[start[v]] to order[start[v + 1] - 1], ascending. */
static void
sort_rows (const ExecArgs *args, guint64 rows, guint64 vocab, guint32 *start, guint32 *order)
{
  const gint32 *tokens = args->ptr[PLAN_REF_EMBED_BWD_tokens];
  gint64 place;

  memset (start, 0, (vocab + 1) * sizeof *start);
  for (guint64 row = 0; row < rows; row++)
    if ((place = exec_cpu_vocab_find (args, tokens[row], vocab)) >= 0)
      start[place]++;
  for (guint64 v = 1; v <= vocab; v++)
    start[v] += start[v - 1];
  for (guint64 row = rows; row-- > 0;) /* backwards: start[v] ends at v's first row */
    if ((place = exec_cpu_vocab_find (args, tokens[row], vocab)) >= 0)
      order[--start[place]] = (guint32)row;
}

/* Computes rows of the table's gradient from the sorted rows. */
static void
embed_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_EMBED_BWD_cols];
  const guint32 *start = args->ptr[PLAN_REF_EMBED_BWD_work],
                *order = start + args->op->dims[PLAN_DIM_EMBED_BWD_vocab] + 1;
  float storage[BLOCK], sum[BLOCK];

  for (guint64 v = first; v < end; v++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at);

        memset (sum, 0, sizeof sum);
        for (guint32 k = start[v]; k < start[v + 1]; k++)
          {
            const float *dout = exec_cpu_read_ref (args, PLAN_REF_EMBED_BWD_dout,
                                                   order[k] * cols + at, n, storage);

            for (guint64 i = 0; i < n; i++)
              sum[i] += dout[i];
          }
        exec_cpu_write_ref (args, PLAN_REF_EMBED_BWD_dtable, v * cols + at, n, sum);
      }
}

static void
run_embed_bwd (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_EMBED_BWD_rows],
          cols = (guint64)args->op->dims[PLAN_DIM_EMBED_BWD_cols];
  guint64 vocab = (guint64)args->op->dims[PLAN_DIM_EMBED_BWD_vocab];
  guint32 *start = args->ptr[PLAN_REF_EMBED_BWD_work];

  g_assert (rows <= G_MAXUINT32);
  sort_rows (args, rows, vocab, start, start + vocab + 1);
  exec_cpu_spread (args, vocab, cols, embed_bwd_rows);
}

/* --- matrix product ----------------------------------------------------------------------- */

/* Where to compute the product in fp32: the output itself, or scratch behind the copies of the
 * factors. */
static float *
product_of (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;

  if (args->dtype[PLAN_REF_GEMM_out] == PLAN_DTYPE_FP32)
    return args->ptr[PLAN_REF_GEMM_out];
  return (float *)args->ptr[PLAN_REF_GEMM_work]
         + dims[PLAN_DIM_GEMM_k] * (dims[PLAN_DIM_GEMM_m] + dims[PLAN_DIM_GEMM_n]);
}

/* Adds the bias to rows of the product before they are rounded. */
static void
add_bias (const ExecArgs *args, float *out, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_GEMM_n];
  float storage[BLOCK];

  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);
      const float *bias = exec_cpu_read_ref (args, PLAN_REF_GEMM_bias, at, n, storage);

      for (guint64 row = first; row < end; row++)
        for (guint64 i = 0; i < n; i++)
          out[row * cols + at + i] += bias[i];
    }
}

static void
finish_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  const guint64 cols = (guint64)args->op->dims[PLAN_DIM_GEMM_n];
  float *out = product_of (args);

  if (args->ptr[PLAN_REF_GEMM_bias] != NULL)
    add_bias (args, out, first, end);
  if (args->dtype[PLAN_REF_GEMM_out] != PLAN_DTYPE_FP32)
    exec_cpu_write_ref (args, PLAN_REF_GEMM_out, first * cols, (end - first) * cols,
                        out + first * cols);
}

PLAN_SAME_REF (GEMM, GEMM_ADD, out);
PLAN_SAME_REF (GEMM, GEMM_ADD, a);
PLAN_SAME_REF (GEMM, GEMM_ADD, b);
PLAN_SAME_DIM (GEMM, GEMM_ADD, m);
PLAN_SAME_DIM (GEMM, GEMM_ADD, n);
PLAN_SAME_DIM (GEMM, GEMM_ADD, k);
PLAN_SAME_DIM (GEMM, GEMM_ADD, layout);

typedef struct
{
  const ExecArgs *args;
  guint operand;
  guint64 count;
  float *copy;
} Widening;

static void
widen_part (gpointer data, guint64 part, guint worker)
{
  const Widening *self = data;
  const guint64 from = part * EXEC_CPU_PART;

  exec_cpu_read_ref (self->args, self->operand, from, MIN (EXEC_CPU_PART, self->count - from),
                     self->copy + from);
}

/* A factor in fp32: the operand itself, or a converted copy in `copy`. */
static const float *
read_factor (const ExecArgs *args, guint operand, guint64 count, float *copy)
{
  PlanDtype dtype = args->dtype[operand];
  const guint rows = operand == PLAN_REF_GEMM_a ? PLAN_DIM_GEMM_m : PLAN_DIM_GEMM_n;

  if (dtype == PLAN_DTYPE_FP32)
    return args->ptr[operand];
  if (dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16)
    {
      Widening self = { args, operand, count, copy };

      exec_pool_run ((count + EXEC_CPU_PART - 1) / EXEC_CPU_PART, G_MAXUINT, widen_part, &self);
      return copy;
    }
  if (args->blocks[operand].scales != NULL) /* both factors' blocks lie along k */
    exec_cpu_dequantize_apart (args, operand, (guint64)args->op->dims[rows],
                               (guint64)args->op->dims[PLAN_DIM_GEMM_k], copy);
  else
    exec_cpu_dequantize (args->ptr[operand], dtype, args->scale[operand],
                         (guint64)args->op->dims[rows], (guint64)args->op->dims[PLAN_DIM_GEMM_k],
                         copy);
  return copy;
}

/* Multiplies a and b into `out` in fp32. If `rounded` is not NULL, may instead write the product
 * there, rounded to bf16, and then returns TRUE. */
static gboolean
multiply (const ExecArgs *args, float *out, guint16 *rounded, float *a_copy, float *b_copy)
{
  const gint64 *dims = args->op->dims;
  guint64 a_count = (guint64)dims[PLAN_DIM_GEMM_m] * (guint64)dims[PLAN_DIM_GEMM_k];
  guint64 b_count = (guint64)dims[PLAN_DIM_GEMM_k] * (guint64)dims[PLAN_DIM_GEMM_n];

  if (args->dtype[PLAN_REF_GEMM_a] == PLAN_DTYPE_BF16
      && args->dtype[PLAN_REF_GEMM_b] == PLAN_DTYPE_BF16 && exec_gemm_bf16_is_available ())
    {
      exec_gemm_bf16 (dims[PLAN_DIM_GEMM_m], dims[PLAN_DIM_GEMM_n], dims[PLAN_DIM_GEMM_k],
                      (int)dims[PLAN_DIM_GEMM_layout], args->ptr[PLAN_REF_GEMM_a],
                      args->ptr[PLAN_REF_GEMM_b], FALSE, out, rounded);
      return rounded != NULL;
    }
  exec_gemm_fp32 (dims[PLAN_DIM_GEMM_m], dims[PLAN_DIM_GEMM_n], dims[PLAN_DIM_GEMM_k],
                  (int)dims[PLAN_DIM_GEMM_layout],
                  read_factor (args, PLAN_REF_GEMM_a, a_count, a_copy),
                  read_factor (args, PLAN_REF_GEMM_b, b_count, b_copy), out);
  return FALSE;
}

void
exec_cpu_gemm (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  guint64 a_count = (guint64)dims[PLAN_DIM_GEMM_m] * (guint64)dims[PLAN_DIM_GEMM_k];
  float *a_copy = args->ptr[PLAN_REF_GEMM_work], *b_copy, *out = product_of (args);

  /* Without scratch all three matrices must be fp32, so that nothing is converted. */
  g_assert (a_copy != NULL
            || (args->dtype[PLAN_REF_GEMM_out] == PLAN_DTYPE_FP32
                && args->dtype[PLAN_REF_GEMM_a] == PLAN_DTYPE_FP32
                && args->dtype[PLAN_REF_GEMM_b] == PLAN_DTYPE_FP32));
  b_copy = a_copy != NULL ? a_copy + a_count : NULL;
  const gboolean rounds
      = args->dtype[PLAN_REF_GEMM_out] == PLAN_DTYPE_BF16 && args->ptr[PLAN_REF_GEMM_bias] == NULL;
  if (multiply (args, out, rounds ? args->ptr[PLAN_REF_GEMM_out] : NULL, a_copy, b_copy))
    return;
  if (args->ptr[PLAN_REF_GEMM_bias] != NULL || args->dtype[PLAN_REF_GEMM_out] != PLAN_DTYPE_FP32)
    exec_cpu_spread (args, (guint64)dims[PLAN_DIM_GEMM_m], (guint64)dims[PLAN_DIM_GEMM_n],
                     finish_rows);
}

static void
add_product_range (const ExecArgs *args, guint64 from, guint64 to)
{
  float *product = args->ptr[PLAN_REF_GEMM_ADD_work], storage[BLOCK];

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);
      const float *before = exec_cpu_read_ref (args, PLAN_REF_GEMM_ADD_out, at, n, storage);

      add_block (product + at, product + at, before, n);
      exec_cpu_write_ref (args, PLAN_REF_GEMM_ADD_out, at, n, product + at);
    }
}

/* Adds the product to `out` without rounding it first. The scratch has room for the product and for
 * copies of those factors that need one. */
void
exec_cpu_gemm_add (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  guint64 a_count = (guint64)dims[PLAN_DIM_GEMM_ADD_m] * (guint64)dims[PLAN_DIM_GEMM_ADD_k];
  guint64 out_count = (guint64)dims[PLAN_DIM_GEMM_ADD_m] * (guint64)dims[PLAN_DIM_GEMM_ADD_n];
  float *product = args->ptr[PLAN_REF_GEMM_ADD_work], *a_copy = product + out_count,
        *b_copy = a_copy + a_count;

  multiply (args, product, NULL, a_copy, b_copy);
  exec_cpu_spread (args, out_count, 1, add_product_range);
}

/* dbias = the sum of each column of dout, in the order of rows. */
static void
bias_bwd_columns (const ExecArgs *args, guint64 from, guint64 to)
{
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_BIAS_BWD_rows],
          cols = (guint64)args->op->dims[PLAN_DIM_BIAS_BWD_cols];
  float storage[BLOCK], sum[BLOCK];

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);

      memset (sum, 0, sizeof sum);
      for (guint64 row = 0; row < rows; row++)
        {
          const float *dout
              = exec_cpu_read_ref (args, PLAN_REF_BIAS_BWD_dout, row * cols + at, n, storage);

          for (guint64 i = 0; i < n; i++)
            sum[i] += dout[i];
        }
      exec_cpu_write_ref (args, PLAN_REF_BIAS_BWD_dbias, at, n, sum);
    }
}

static void
run_bias_bwd (const ExecArgs *args)
{
  exec_cpu_spread_columns (args, (guint64)args->op->dims[PLAN_DIM_BIAS_BWD_rows],
                           (guint64)args->op->dims[PLAN_DIM_BIAS_BWD_cols], bias_bwd_columns);
}

static gboolean
open_cpu (GError **error)
{
  exec_gemm_open ();
  return TRUE;
}

/* Refuses products without scratch, unless all matrices are fp32 and nothing is added. */
static gboolean
check_cpu (const PlanSchedule *schedule, const PlanOp *op, GError **error)
{
  const gboolean adds = op->kind == PLAN_OP_GEMM_ADD;
  const gboolean has_scratch
      = (!adds && op->kind != PLAN_OP_GEMM)
        || op->refs[adds ? PLAN_REF_GEMM_ADD_work : PLAN_REF_GEMM_work].array >= 0;

  for (guint i = 0; !has_scratch && i <= PLAN_REF_GEMM_b; i++)
    if (adds || plan_schedule_buffer (schedule, (guint)op->refs[i].array)->dtype != PLAN_DTYPE_FP32)
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                     "this plan needs the op %s without scratch%s, which is modelled and not "
                     "executed by cpu yet",
                     plan_op_name (op->kind), adds ? "" : " in formats other than fp32");
        return FALSE;
      }
  return TRUE;
}

static char *
describe_cpu (void)
{
  const char *bf16 = exec_gemm_bf16_name ();

  return bf16 != NULL ? g_strconcat (exec_gemm_name (), ", bf16 by ", bf16, NULL)
                      : g_strdup (exec_gemm_name ());
}

const ExecKernels exec_kernels_cpu = {
  .name = "cpu",
  .summary = "processors; the numeric reference",
  .open = open_cpu,
  .describe = describe_cpu,
  .check = check_cpu,
  .device = &exec_device_cpu,
  .more_formats = 1u << PLAN_DTYPE_FP16 | 1u << PLAN_DTYPE_E8M0 | 1u << PLAN_DTYPE_E2M1,
  .run = {
    [PLAN_OP_ZERO] = run_zero,
    [PLAN_OP_CAST] = run_cast,
    [PLAN_OP_COPY] = run_copy,
    [PLAN_OP_ACCUMULATE] = run_accumulate,
    [PLAN_OP_QUANTIZE] = exec_cpu_quantize,
    [PLAN_OP_GROUPED_QUANTIZE] = exec_cpu_grouped_quantize,
    [PLAN_OP_SWIGLU_QUANTIZE] = exec_cpu_quantize,
    [PLAN_OP_SWIGLU_BWD_QUANTIZE] = exec_cpu_quantize,
    [PLAN_OP_PARAM_AMAX] = exec_cpu_param_amax,
    [PLAN_OP_PARAM_QUANTIZE] = exec_cpu_param_quantize,
    [PLAN_OP_SCALE] = run_scale,
    [PLAN_OP_RESCALE] = exec_cpu_rescale,
    [PLAN_OP_TRANSPOSE] = exec_cpu_transpose,
    [PLAN_OP_GROUPED_TRANSPOSE] = exec_cpu_grouped_transpose,
    [PLAN_OP_SUM_PARTS] = run_sum_parts,
    [PLAN_OP_ADD] = run_add,
    [PLAN_OP_DROPOUT] = exec_cpu_dropout,
    [PLAN_OP_DROPOUT_ADD] = exec_cpu_dropout_add,
    [PLAN_OP_DROPOUT_BWD] = exec_cpu_dropout_bwd,
    [PLAN_OP_SOFTCAP] = run_softcap,
    [PLAN_OP_SOFTCAP_BWD] = run_softcap_bwd,
    [PLAN_OP_POSITIONS] = exec_cpu_positions,
    [PLAN_OP_POSITIONS_BWD] = exec_cpu_positions_bwd,
    [PLAN_OP_EMBED] = run_embed,
    [PLAN_OP_EMBED_BWD] = run_embed_bwd,
    [PLAN_OP_RMSNORM] = exec_cpu_rmsnorm,
    [PLAN_OP_RMSNORM_BWD] = exec_cpu_rmsnorm_bwd,
    [PLAN_OP_LAYERNORM] = exec_cpu_layernorm,
    [PLAN_OP_LAYERNORM_BWD] = exec_cpu_layernorm_bwd,
    [PLAN_OP_ADD_RMSNORM] = exec_cpu_add_rmsnorm,
    [PLAN_OP_ADD_LAYERNORM] = exec_cpu_add_layernorm,
    [PLAN_OP_HEAD_NORM] = exec_cpu_head_norm,
    [PLAN_OP_HEAD_NORM_BWD] = exec_cpu_head_norm_bwd,
    [PLAN_OP_GEMM] = exec_cpu_gemm,
    [PLAN_OP_GEMM_ADD] = exec_cpu_gemm_add,
    [PLAN_OP_BIAS_BWD] = run_bias_bwd,
    [PLAN_OP_ROPE] = exec_cpu_rope,
    [PLAN_OP_ATTENTION] = exec_cpu_attention,
    [PLAN_OP_ATTENTION_BWD] = exec_cpu_attention_bwd,
    [PLAN_OP_LATENT_ROPE] = exec_cpu_latent_rope,
    [PLAN_OP_LATENT_ROPE_BWD] = exec_cpu_latent_rope_bwd,
    [PLAN_OP_LATENT_ATTENTION] = exec_cpu_latent_attention,
    [PLAN_OP_LATENT_ATTENTION_BWD] = exec_cpu_latent_attention_bwd,
    [PLAN_OP_ATTENTION_JOIN] = exec_cpu_attention_join,
    [PLAN_OP_ATTENTION_SINK] = exec_cpu_attention_sink,
    [PLAN_OP_ATTENTION_SINK_BWD] = exec_cpu_attention_sink_bwd,
    [PLAN_OP_SWIGLU] = exec_cpu_swiglu,
    [PLAN_OP_SWIGLU_BWD] = exec_cpu_swiglu_bwd,
    [PLAN_OP_ACTIVATE] = exec_cpu_activate,
    [PLAN_OP_ACTIVATE_BWD] = exec_cpu_activate_bwd,
    [PLAN_OP_ROUTE] = exec_cpu_route,
    [PLAN_OP_DROP_TOKENS] = exec_cpu_drop_tokens,
    [PLAN_OP_BALANCE] = exec_cpu_balance,
    [PLAN_OP_ROUTE_BWD] = exec_cpu_route_bwd,
    [PLAN_OP_COUNT_ROUTES] = exec_cpu_count_routes,
    [PLAN_OP_ROW_MAP] = exec_cpu_row_map,
    [PLAN_OP_PERMUTE] = exec_cpu_permute,
    [PLAN_OP_UNPERMUTE] = exec_cpu_unpermute,
    [PLAN_OP_GROUPED_GEMM] = exec_cpu_grouped_gemm,
    [PLAN_OP_GROUPED_GEMM_ADD] = exec_cpu_grouped_gemm,
    [PLAN_OP_EXPERT_ACTIVATE] = exec_cpu_expert_activate,
    [PLAN_OP_EXPERT_ACTIVATE_BWD] = exec_cpu_expert_activate_bwd,
    [PLAN_OP_SCALE_ROWS] = exec_cpu_scale_rows,
    [PLAN_OP_SCALE_ROWS_BWD] = exec_cpu_scale_rows_bwd,
    [PLAN_OP_ADD_EXPERT_BIAS] = exec_cpu_add_expert_bias,
    [PLAN_OP_ADD_EXPERT_BIAS_BWD] = exec_cpu_add_expert_bias_bwd,
    [PLAN_OP_GATE] = exec_cpu_gate,
    [PLAN_OP_GATE_BWD] = exec_cpu_gate_bwd,
    [PLAN_OP_ROW_STAT] = exec_cpu_row_stat,
    [PLAN_OP_CROSS_ENTROPY] = exec_cpu_cross_entropy,
    [PLAN_OP_CROSS_ENTROPY_BWD] = exec_cpu_cross_entropy_bwd,
    [PLAN_OP_LOSS_GRAD] = exec_cpu_loss_grad,
    [PLAN_OP_NORM_SQ] = exec_cpu_norm_sq,
    [PLAN_OP_CLIP] = exec_cpu_clip,
    [PLAN_OP_ADAMW] = exec_cpu_adamw,
    [PLAN_OP_ADAMW_HOST] = exec_cpu_adamw,
    [PLAN_OP_SGD] = exec_cpu_sgd,
  },
};
