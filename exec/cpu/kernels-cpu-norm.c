/* SPDX-License-Identifier: Apache-2.0 */
/* RMS norm and LayerNorm of rows, alone or of a sum (ADD_RMSNORM), and RMS norm of each head; their
 * gradients. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"

#include <math.h>
#include <string.h>

#define BLOCK EXEC_CPU_BLOCK

float
exec_cpu_total (const float sum[EXEC_CPU_LANES])
{
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/* Writes a norm's output: quantised, where operand `scale` exists. Operand `amax` is behind it. */
static void
write_norm (const ExecArgs *args, guint scale, guint64 at, guint64 count, const float *values)
{
  if (args->ptr[scale] != NULL)
    exec_cpu_write_scaled (args, scale, at, count, values);
  else
    exec_cpu_write_raising (args, PLAN_REF_RMSNORM_out, scale + 1, at, count, values);
}

/* Where to put values: directly into an fp32 operand, otherwise into `storage`, to be rounded. */
static float *
place_of (const ExecArgs *args, guint operand, guint64 at, float *storage)
{
  return args->dtype[operand] == PLAN_DTYPE_FP32 ? (float *)args->ptr[operand] + at : storage;
}

static EXEC_WIDE void
add_piece (float *out, const float *a, const float *b, guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    out[i] = a[i] + b[i];
}

/* The factors of a norm's columns: its weights, or 1 + its weights; 1 where it has no weights. */
static const float *
read_gain (const ExecArgs *args, guint operand, guint64 at, guint64 count, float *storage)
{
  const float plus = (float)exec_manner (args, PLAN_MANNER_ONE_PLUS);

  for (guint64 i = 0; args->ptr[operand] == NULL && i < count; i++)
    storage[i] = 1;
  if (args->ptr[operand] == NULL)
    return storage;
  const float *weight = exec_cpu_read_ref (args, operand, at, count, storage);

  if (plus == 0)
    return weight;
  for (guint64 i = 0; i < count; i++)
    storage[i] = weight[i] + plus;
  return storage;
}

/* An op that adds and norms (ADD_RMSNORM) has the operands of the norm, but three in the place of
 * its input: the sum, and then the two terms. */
PLAN_SAME_REF (RMSNORM, LAYERNORM, out);
PLAN_SAME_REF (ADD_RMSNORM, ADD_LAYERNORM, sum);
PLAN_SAME_REF (ADD_RMSNORM, ADD_LAYERNORM, a);
PLAN_SAME_REF (ADD_RMSNORM, ADD_LAYERNORM, b);
PLAN_SAME_REF (RMSNORM, LAYERNORM, in);
G_STATIC_ASSERT ((int)PLAN_REF_ADD_RMSNORM_sum == (int)PLAN_REF_RMSNORM_in);
G_STATIC_ASSERT ((int)PLAN_REF_ADD_RMSNORM_a == (int)PLAN_REF_RMSNORM_weight);
G_STATIC_ASSERT ((int)PLAN_REF_ADD_RMSNORM_weight == (int)PLAN_REF_RMSNORM_weight + 2);
G_STATIC_ASSERT ((int)PLAN_REF_ADD_LAYERNORM_weight == (int)PLAN_REF_LAYERNORM_weight + 2);

PLAN_SAME_DIM (RMSNORM, LAYERNORM, rows);
PLAN_SAME_DIM (RMSNORM, LAYERNORM, cols);
PLAN_SAME_DIM (RMSNORM, ADD_RMSNORM, rows);
PLAN_SAME_DIM (RMSNORM, ADD_RMSNORM, cols);
PLAN_SAME_DIM (RMSNORM, ADD_LAYERNORM, rows);
PLAN_SAME_DIM (RMSNORM, ADD_LAYERNORM, cols);

/* Divides rows among threads, unless they are quantised, which divides each row. */
static void
spread_rows (const ExecArgs *args, guint scale, ExecCpuRange run)
{
  const guint64 rows = (guint64)args->op->dims[PLAN_DIM_RMSNORM_rows];

  if (args->ptr[scale] != NULL)
    run (args, 0, rows);
  else
    exec_cpu_spread (args, rows, (guint64)args->op->dims[PLAN_DIM_RMSNORM_cols], run);
}

/* Reads `count` elements of a norm's input from element `at` on. `sum`, if not NULL, has the
 * arguments of an op that adds first: then the input is its a + b, which is stored and read back,
 * so that the norm sees the stored, rounded values. */
static const float *
read_input (const ExecArgs *args, const ExecArgs *sum, guint64 at, guint64 count, float *storage)
{
  float a_storage[BLOCK], b_storage[BLOCK];

  if (sum == NULL)
    return exec_cpu_read_ref (args, PLAN_REF_RMSNORM_in, at, count, storage);
  float *out = place_of (sum, PLAN_REF_ADD_RMSNORM_sum, at, storage);
  add_piece (out, exec_cpu_read_ref (sum, PLAN_REF_ADD_RMSNORM_a, at, count, a_storage),
             exec_cpu_read_ref (sum, PLAN_REF_ADD_RMSNORM_b, at, count, b_storage), count);
  if (out != storage)
    return out;
  exec_cpu_write_ref (sum, PLAN_REF_ADD_RMSNORM_sum, at, count, out);
  return exec_cpu_read_ref (sum, PLAN_REF_ADD_RMSNORM_sum, at, count, storage);
}

/* The arguments of the norm alone: without the two terms. */
static ExecArgs
norm_of_sum (const ExecArgs *args)
{
  ExecArgs self = *args;

  for (guint i = PLAN_REF_RMSNORM_weight; i + 2 < PLAN_MAX_REFS; i++)
    {
      self.ptr[i] = args->ptr[i + 2];
      self.dtype[i] = args->dtype[i + 2];
    }
  return self;
}

/* The pitch of the input: elements from one row to the next. */
static guint64
pitch_of (const ExecArgs *args)
{
  const guint64 said = (guint64)exec_manner (args, PLAN_MANNER_PITCH);

  return said > 0 ? said : (guint64)args->op->dims[PLAN_DIM_RMSNORM_cols];
}

static EXEC_WIDE void
rmsnorm_row (const ExecArgs *args, const ExecArgs *sum, guint64 row)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_RMSNORM_cols], pitch = pitch_of (args);
  float eps = (float)args->constants->norm_eps;
  float *rstd = args->ptr[PLAN_REF_RMSNORM_rstd];
  float in_storage[BLOCK], weight_storage[BLOCK], out[BLOCK];
  float squares[EXEC_CPU_LANES] = { 0 };

  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);
      const float *in = read_input (args, sum, row * pitch + at, n, in_storage);

      exec_cpu_add_products (squares, in, in, n);
    }
  rstd[row] = 1.0f / sqrtf (exec_cpu_total (squares) / (float)cols + eps);
  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);
      const float *in
          = exec_cpu_read_ref (args, PLAN_REF_RMSNORM_in, row * pitch + at, n, in_storage);
      const float *weight = read_gain (args, PLAN_REF_RMSNORM_weight, at, n, weight_storage);

      for (guint64 i = 0; i < n; i++)
        out[i] = in[i] * rstd[row] * weight[i];
      write_norm (args, PLAN_REF_RMSNORM_scale, row * cols + at, n, out);
    }
}

static void
rmsnorm_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  for (guint64 row = first; row < end; row++)
    rmsnorm_row (args, NULL, row);
}

void
exec_cpu_rmsnorm (const ExecArgs *args)
{
  spread_rows (args, PLAN_REF_RMSNORM_scale, rmsnorm_rows);
}

static void
add_rmsnorm_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  const ExecArgs norm = norm_of_sum (args);

  for (guint64 row = first; row < end; row++)
    rmsnorm_row (&norm, args, row);
}

void
exec_cpu_add_rmsnorm (const ExecArgs *args)
{
  spread_rows (args, PLAN_REF_ADD_RMSNORM_scale, add_rmsnorm_rows);
}

PLAN_SAME_DIM (RMSNORM, RMSNORM_BWD, cols);
PLAN_SAME_REF (RMSNORM_BWD, LAYERNORM_BWD, din);

/* Writes the gradient of a norm's input. Where operand `add` exists it is added: the gradient that
 * the input already had from the residual branch. Rounds before and after, as two ops would. */
static void
write_input_gradient (const ExecArgs *args, guint add, guint amax, guint64 at, guint64 count,
                      const float *din)
{
  float storage[BLOCK], add_storage[BLOCK];
  float *sum = place_of (args, PLAN_REF_RMSNORM_BWD_din, at, storage);

  if (args->ptr[add] == NULL)
    {
      exec_cpu_write_raising (args, PLAN_REF_RMSNORM_BWD_din, amax, at, count, din);
      return;
    }
  const float *before = exec_cpu_read_ref (args, add, at, count, add_storage);
  if (sum == storage)
    {
      guint16 rounded[BLOCK]; /* of formats of at most 16 bits */

      exec_cpu_write (rounded, args->dtype[PLAN_REF_RMSNORM_BWD_din], 0, count, din);
      din = exec_cpu_read (rounded, args->dtype[PLAN_REF_RMSNORM_BWD_din], 0, count, storage);
    }
  add_piece (sum, before, din, count);
  if (sum == storage)
    exec_cpu_write_ref (args, PLAN_REF_RMSNORM_BWD_din, at, count, sum);
  exec_cpu_raise (args, PLAN_REF_RMSNORM_BWD_din, amax, count, sum);
}

/* A piece of a row of an RMS norm, in its backward pass. */
typedef struct
{
  float normal[BLOCK]; /* in * rstd */
  float scaled[BLOCK]; /* dout * weight */
} NormPiece;

/* Reads a piece of a row. Returns dout: the operand itself, or a copy in `storage`. */
static EXEC_WIDE const float *
read_norm_piece (const ExecArgs *args, guint64 row, guint64 at, guint64 count, NormPiece *out_piece,
                 float *storage)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_RMSNORM_BWD_cols], pitch = pitch_of (args);
  float rstd = ((const float *)args->ptr[PLAN_REF_RMSNORM_BWD_rstd])[row];
  float in_storage[BLOCK], weight_storage[BLOCK];
  const float *dout
      = exec_cpu_read_ref (args, PLAN_REF_RMSNORM_BWD_dout, row * cols + at, count, storage);
  const float *in
      = exec_cpu_read_ref (args, PLAN_REF_RMSNORM_BWD_in, row * pitch + at, count, in_storage);
  const float *weight = read_gain (args, PLAN_REF_RMSNORM_BWD_weight, at, count, weight_storage);

  for (guint64 i = 0; i < count; i++)
    {
      out_piece->normal[i] = in[i] * rstd;
      out_piece->scaled[i] = dout[i] * weight[i];
    }
  return dout;
}

/* din = rstd * (dout * weight - normal * mean (dout * weight * normal)) */
static EXEC_WIDE void
rmsnorm_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_RMSNORM_BWD_cols], pitch = pitch_of (args);
  const float *rstd = args->ptr[PLAN_REF_RMSNORM_BWD_rstd];
  float storage[BLOCK], din[BLOCK];
  NormPiece piece;

  for (guint64 row = first; row < end; row++)
    {
      float sum[EXEC_CPU_LANES] = { 0 };

      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);

          read_norm_piece (args, row, at, n, &piece, storage);
          exec_cpu_add_products (sum, piece.scaled, piece.normal, n);
        }
      float mean = exec_cpu_total (sum) / (float)cols;
      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);

          read_norm_piece (args, row, at, n, &piece, storage);
          for (guint64 i = 0; i < n; i++)
            din[i] = rstd[row] * (piece.scaled[i] - piece.normal[i] * mean);
          write_input_gradient (args, PLAN_REF_RMSNORM_BWD_add, PLAN_REF_RMSNORM_BWD_amax,
                                row * pitch + at, n, din);
        }
    }
}

/* dweight = sum over rows of dout * normal */
static EXEC_WIDE void
rmsnorm_bwd_columns (const ExecArgs *args, guint64 from, guint64 to)
{
  const guint64 rows = (guint64)args->op->dims[PLAN_DIM_RMSNORM_BWD_rows],
                cols = (guint64)args->op->dims[PLAN_DIM_RMSNORM_BWD_cols], n = to - from,
                pitch = pitch_of (args);
  const float *rstd = args->ptr[PLAN_REF_RMSNORM_BWD_rstd];
  float storage[BLOCK], in_storage[BLOCK], dweight[BLOCK] = { 0 };

  for (guint64 row = 0; row < rows; row++)
    {
      const guint64 at = row * cols + from;
      const float *dout = exec_cpu_read_ref (args, PLAN_REF_RMSNORM_BWD_dout, at, n, storage);
      const float *in
          = exec_cpu_read_ref (args, PLAN_REF_RMSNORM_BWD_in, row * pitch + from, n, in_storage);

      for (guint64 i = 0; i < n; i++)
        dweight[i] += dout[i] * (in[i] * rstd[row]);
    }
  exec_cpu_write_ref (args, PLAN_REF_RMSNORM_BWD_dweight, from, n, dweight);
}

void
exec_cpu_rmsnorm_bwd (const ExecArgs *args)
{
  const guint64 rows = (guint64)args->op->dims[PLAN_DIM_RMSNORM_BWD_rows],
                cols = (guint64)args->op->dims[PLAN_DIM_RMSNORM_BWD_cols];

  exec_cpu_spread_columns (args, rows, cols, rmsnorm_bwd_columns);
  exec_cpu_spread (args, rows, cols, rmsnorm_bwd_rows);
}

/* --- LayerNorm ---------------------------------------------------------------------------- */

/* Computes a row's statistics: its mean and the inverse of its standard deviation. */
static void
find_statistics (const ExecArgs *args, const ExecArgs *sum, guint64 row, float *out_stats)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_LAYERNORM_cols];
  float in_storage[BLOCK], sums[EXEC_CPU_LANES] = { 0 }, squares[EXEC_CPU_LANES] = { 0 };

  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);
      const float *in = read_input (args, sum, row * cols + at, n, in_storage);

      for (guint64 i = 0; i < n; i++)
        sums[i % EXEC_CPU_LANES] += in[i];
    }
  out_stats[0] = exec_cpu_total (sums) / (float)cols;
  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);
      const float *in
          = exec_cpu_read_ref (args, PLAN_REF_LAYERNORM_in, row * cols + at, n, in_storage);

      for (guint64 i = 0; i < n; i++)
        {
          float off = in[i] - out_stats[0];

          squares[i % EXEC_CPU_LANES] += off * off;
        }
    }
  out_stats[1]
      = 1.0f / sqrtf (exec_cpu_total (squares) / (float)cols + (float)args->constants->norm_eps);
}

static void
layernorm_row (const ExecArgs *args, const ExecArgs *sum, guint64 row)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_LAYERNORM_cols];
  float in_storage[BLOCK], weight_storage[BLOCK], bias_storage[BLOCK], out[BLOCK];
  float *stats = (float *)args->ptr[PLAN_REF_LAYERNORM_stats] + 2 * row;

  find_statistics (args, sum, row, stats);
  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);
      const float *in
          = exec_cpu_read_ref (args, PLAN_REF_LAYERNORM_in, row * cols + at, n, in_storage);
      const float *weight = read_gain (args, PLAN_REF_LAYERNORM_weight, at, n, weight_storage);
      const float *bias
          = args->ptr[PLAN_REF_LAYERNORM_bias] != NULL
                ? exec_cpu_read_ref (args, PLAN_REF_LAYERNORM_bias, at, n, bias_storage)
                : NULL;

      for (guint64 i = 0; i < n; i++)
        {
          out[i] = (in[i] - stats[0]) * stats[1] * weight[i];
          if (bias != NULL)
            out[i] += bias[i];
        }
      write_norm (args, PLAN_REF_LAYERNORM_scale, row * cols + at, n, out);
    }
}

static void
layernorm_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  for (guint64 row = first; row < end; row++)
    layernorm_row (args, NULL, row);
}

void
exec_cpu_layernorm (const ExecArgs *args)
{
  spread_rows (args, PLAN_REF_LAYERNORM_scale, layernorm_rows);
}

static void
add_layernorm_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  const ExecArgs norm = norm_of_sum (args);

  for (guint64 row = first; row < end; row++)
    layernorm_row (&norm, args, row);
}

void
exec_cpu_add_layernorm (const ExecArgs *args)
{
  spread_rows (args, PLAN_REF_ADD_LAYERNORM_scale, add_layernorm_rows);
}

/* Reads a piece of a row: normalised input, and dout as the result. Operands are
 * LAYERNORM_BWD's. */
static const float *
read_layernorm_piece (const ExecArgs *args, guint64 row, guint64 at, guint64 n, float *out_normal,
                      float *storage)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_LAYERNORM_BWD_cols];
  const float *stats = (const float *)args->ptr[PLAN_REF_LAYERNORM_BWD_stats] + 2 * row;
  float in_storage[BLOCK];
  const float *in
      = exec_cpu_read_ref (args, PLAN_REF_LAYERNORM_BWD_in, row * cols + at, n, in_storage);

  for (guint64 i = 0; i < n; i++)
    out_normal[i] = (in[i] - stats[0]) * stats[1];
  return exec_cpu_read_ref (args, PLAN_REF_LAYERNORM_BWD_dout, row * cols + at, n, storage);
}

/* dweight = sum over rows of dout * normal, dbias = sum over rows of dout. */
static void
layernorm_bwd_columns (const ExecArgs *args, guint64 from, guint64 to)
{
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_LAYERNORM_BWD_rows];
  float normal[BLOCK], storage[BLOCK], dweight[BLOCK], dbias[BLOCK];

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);

      memset (dweight, 0, sizeof dweight);
      memset (dbias, 0, sizeof dbias);
      for (guint64 row = 0; row < rows; row++)
        {
          const float *dout = read_layernorm_piece (args, row, at, n, normal, storage);

          for (guint64 i = 0; i < n; i++)
            {
              dweight[i] += dout[i] * normal[i];
              dbias[i] += dout[i];
            }
        }
      exec_cpu_write_ref (args, PLAN_REF_LAYERNORM_BWD_dweight, at, n, dweight);
      if (args->ptr[PLAN_REF_LAYERNORM_BWD_dbias] != NULL)
        exec_cpu_write_ref (args, PLAN_REF_LAYERNORM_BWD_dbias, at, n, dbias);
    }
}

/* din = rstd * (scaled - mean (scaled) - normal * mean (scaled * normal)), scaled = dout * weight.
 */
static void
layernorm_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_LAYERNORM_BWD_cols];
  float normal[BLOCK], storage[BLOCK], weight_storage[BLOCK], scaled[BLOCK], din[BLOCK];

  for (guint64 row = first; row < end; row++)
    {
      float rstd = ((const float *)args->ptr[PLAN_REF_LAYERNORM_BWD_stats])[2 * row + 1];
      float sums[EXEC_CPU_LANES] = { 0 }, products[EXEC_CPU_LANES] = { 0 }, mean, slope;

      for (guint pass = 0; pass < 2; pass++)
        {
          mean = exec_cpu_total (sums) / (float)cols;
          slope = exec_cpu_total (products) / (float)cols;
          for (guint64 at = 0; at < cols; at += BLOCK)
            {
              guint64 n = MIN (BLOCK, cols - at);
              const float *dout = read_layernorm_piece (args, row, at, n, normal, storage);
              const float *weight
                  = read_gain (args, PLAN_REF_LAYERNORM_BWD_weight, at, n, weight_storage);

              for (guint64 i = 0; i < n; i++)
                {
                  scaled[i] = dout[i] * weight[i];
                  din[i] = rstd * (scaled[i] - mean - normal[i] * slope);
                }
              if (pass == 1)
                {
                  write_input_gradient (args, PLAN_REF_LAYERNORM_BWD_add,
                                        PLAN_REF_LAYERNORM_BWD_amax, row * cols + at, n, din);
                  continue;
                }
              for (guint64 i = 0; i < n; i++)
                sums[i % EXEC_CPU_LANES] += scaled[i];
              exec_cpu_add_products (products, scaled, normal, n);
            }
        }
    }
}

void
exec_cpu_layernorm_bwd (const ExecArgs *args)
{
  const guint64 rows = (guint64)args->op->dims[PLAN_DIM_LAYERNORM_BWD_rows],
                cols = (guint64)args->op->dims[PLAN_DIM_LAYERNORM_BWD_cols];

  exec_cpu_spread_columns (args, rows, cols, layernorm_bwd_columns);
  exec_cpu_spread (args, rows, cols, layernorm_bwd_rows);
}

/* --- norms of query and key heads --------------------------------------------------------- */

typedef struct
{
  guint64 rows, heads, kv_heads, q_dim, k_dim, width; /* `width`: elements of a row */
} Heads;

PLAN_SAME_DIM (HEAD_NORM, HEAD_NORM_BWD, rows);
PLAN_SAME_DIM (HEAD_NORM, HEAD_NORM_BWD, heads);
PLAN_SAME_DIM (HEAD_NORM, HEAD_NORM_BWD, kv_heads);
PLAN_SAME_DIM (HEAD_NORM, HEAD_NORM_BWD, q_dim);
PLAN_SAME_DIM (HEAD_NORM, HEAD_NORM_BWD, k_dim);
G_STATIC_ASSERT ((int)PLAN_REF_HEAD_NORM_out == (int)PLAN_REF_HEAD_NORM_BWD_din);

static Heads
heads_of (const PlanOp *op)
{
  Heads self = { .rows = (guint64)op->dims[PLAN_DIM_HEAD_NORM_rows],
                 .heads = (guint64)op->dims[PLAN_DIM_HEAD_NORM_heads],
                 .kv_heads = (guint64)op->dims[PLAN_DIM_HEAD_NORM_kv_heads],
                 .q_dim = (guint64)op->dims[PLAN_DIM_HEAD_NORM_q_dim],
                 .k_dim = (guint64)op->dims[PLAN_DIM_HEAD_NORM_k_dim] };

  self.width = self.heads * self.q_dim + 2 * self.kv_heads * self.k_dim;
  return self;
}

/* The first element of a head of q or k in its row, or of the first of v. */
static guint64
head_at (const Heads *self, guint64 head)
{
  return head < self->heads ? head * self->q_dim
                            : self->heads * self->q_dim + (head - self->heads) * self->k_dim;
}

static guint64
head_dim (const Heads *self, guint64 head)
{
  return head < self->heads ? self->q_dim : self->k_dim;
}

static void
copy_values (const Heads *heads, const ExecArgs *args, guint64 row, guint in)
{
  guint64 from = row * heads->width + head_at (heads, heads->heads + heads->kv_heads);
  guint64 count = heads->kv_heads * heads->k_dim;

  memcpy ((guint8 *)args->ptr[PLAN_REF_HEAD_NORM_out]
              + plan_dtype_bytes (args->dtype[PLAN_REF_HEAD_NORM_out], from),
          (const guint8 *)args->ptr[in] + plan_dtype_bytes (args->dtype[in], from),
          plan_dtype_bytes (args->dtype[PLAN_REF_HEAD_NORM_out], count));
}

static void
head_norm_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  Heads heads = heads_of (args->op);
  guint64 normed = heads.heads + heads.kv_heads;
  float in_storage[BLOCK], weight_storage[BLOCK], out[BLOCK];

  for (guint64 row = first; row < end; row++)
    {
      for (guint64 h = 0; h < normed; h++)
        {
          guint64 from = row * heads.width + head_at (&heads, h), dim = head_dim (&heads, h);
          guint gain = h < heads.heads ? PLAN_REF_HEAD_NORM_q : PLAN_REF_HEAD_NORM_k;
          float *rstd = (float *)args->ptr[PLAN_REF_HEAD_NORM_rstd] + row * normed + h;
          float squares[EXEC_CPU_LANES] = { 0 };

          for (guint64 at = 0; at < dim; at += BLOCK)
            {
              guint64 n = MIN (BLOCK, dim - at);
              const float *in
                  = exec_cpu_read_ref (args, PLAN_REF_HEAD_NORM_in, from + at, n, in_storage);

              exec_cpu_add_products (squares, in, in, n);
            }
          *rstd
              = 1.0f
                / sqrtf (exec_cpu_total (squares) / (float)dim + (float)args->constants->norm_eps);
          for (guint64 at = 0; at < dim; at += BLOCK)
            {
              guint64 n = MIN (BLOCK, dim - at);
              const float *in
                  = exec_cpu_read_ref (args, PLAN_REF_HEAD_NORM_in, from + at, n, in_storage);
              const float *weight = read_gain (args, gain, at, n, weight_storage);

              for (guint64 i = 0; i < n; i++)
                out[i] = in[i] * *rstd * weight[i];
              exec_cpu_write_ref (args, PLAN_REF_HEAD_NORM_out, from + at, n, out);
            }
        }
      copy_values (&heads, args, row, PLAN_REF_HEAD_NORM_in);
    }
}

void
exec_cpu_head_norm (const ExecArgs *args)
{
  Heads heads = heads_of (args->op);

  exec_cpu_spread (args, heads.rows, heads.width, head_norm_rows);
}

/* din of one head, by the formula of exec_cpu_rmsnorm_bwd's rows. */
static void
head_norm_bwd_input (const Heads *heads, const ExecArgs *args, guint64 row, guint64 h)
{
  guint64 from = row * heads->width + head_at (heads, h), dim = head_dim (heads, h);
  guint gain = h < heads->heads ? PLAN_REF_HEAD_NORM_BWD_q : PLAN_REF_HEAD_NORM_BWD_k;
  float rstd
      = ((const float *)
             args->ptr[PLAN_REF_HEAD_NORM_BWD_rstd])[row * (heads->heads + heads->kv_heads) + h];
  float in_storage[BLOCK], dout_storage[BLOCK], weight_storage[BLOCK], normal[BLOCK];
  float scaled[BLOCK], din[BLOCK], sum[EXEC_CPU_LANES] = { 0 };

  for (guint pass = 0; pass < 2; pass++)
    {
      float mean = exec_cpu_total (sum) / (float)dim;

      for (guint64 at = 0; at < dim; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, dim - at);
          const float *dout
              = exec_cpu_read_ref (args, PLAN_REF_HEAD_NORM_BWD_dout, from + at, n, dout_storage);
          const float *in
              = exec_cpu_read_ref (args, PLAN_REF_HEAD_NORM_BWD_in, from + at, n, in_storage);
          const float *weight = read_gain (args, gain, at, n, weight_storage);

          for (guint64 i = 0; i < n; i++)
            {
              normal[i] = in[i] * rstd;
              scaled[i] = dout[i] * weight[i];
              din[i] = rstd * (scaled[i] - normal[i] * mean);
            }
          if (pass == 0)
            exec_cpu_add_products (sum, scaled, normal, n);
          else
            exec_cpu_write_ref (args, PLAN_REF_HEAD_NORM_BWD_din, from + at, n, din);
        }
    }
}

/* The gradient of the weight of queries or keys: sums over rows and over `count` heads from `first`
 * on. */
static void
head_norm_bwd_weight (const Heads *heads, const ExecArgs *args, guint out, guint64 first,
                      guint64 count, guint64 from, guint64 to)
{
  guint64 normed = heads->heads + heads->kv_heads;
  float in_storage[BLOCK], dout_storage[BLOCK], sum[BLOCK];

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);

      memset (sum, 0, sizeof sum);
      for (guint64 row = 0; row < heads->rows; row++)
        for (guint64 h = first; h < first + count; h++)
          {
            guint64 place = row * heads->width + head_at (heads, h) + at;
            float rstd = ((const float *)args->ptr[PLAN_REF_HEAD_NORM_BWD_rstd])[row * normed + h];
            const float *dout
                = exec_cpu_read_ref (args, PLAN_REF_HEAD_NORM_BWD_dout, place, n, dout_storage);
            const float *in
                = exec_cpu_read_ref (args, PLAN_REF_HEAD_NORM_BWD_in, place, n, in_storage);

            for (guint64 i = 0; i < n; i++)
              sum[i] += dout[i] * (in[i] * rstd);
          }
      exec_cpu_write_ref (args, out, at, n, sum);
    }
}

static void
head_norm_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  Heads heads = heads_of (args->op);

  for (guint64 row = first; row < end; row++)
    {
      for (guint64 h = 0; h < heads.heads + heads.kv_heads; h++)
        head_norm_bwd_input (&heads, args, row, h);
      copy_values (&heads, args, row, PLAN_REF_HEAD_NORM_BWD_dout);
    }
}

static void
head_norm_bwd_q (const ExecArgs *args, guint64 from, guint64 to)
{
  Heads heads = heads_of (args->op);

  head_norm_bwd_weight (&heads, args, PLAN_REF_HEAD_NORM_BWD_dq, 0, heads.heads, from, to);
}

static void
head_norm_bwd_k (const ExecArgs *args, guint64 from, guint64 to)
{
  Heads heads = heads_of (args->op);

  head_norm_bwd_weight (&heads, args, PLAN_REF_HEAD_NORM_BWD_dk, heads.heads, heads.kv_heads, from,
                        to);
}

void
exec_cpu_head_norm_bwd (const ExecArgs *args)
{
  Heads heads = heads_of (args->op);

  if (args->ptr[PLAN_REF_HEAD_NORM_BWD_dq] != NULL)
    {
      exec_cpu_spread_columns (args, heads.rows * heads.heads, heads.q_dim, head_norm_bwd_q);
      exec_cpu_spread_columns (args, heads.rows * heads.kv_heads, heads.k_dim, head_norm_bwd_k);
    }
  exec_cpu_spread (args, heads.rows, heads.width, head_norm_bwd_rows);
}
