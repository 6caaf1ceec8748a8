/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats with scales, as cuBLAS and Transformer Engine define them.
 *
 * e4m3, e5m2: one fp32 scale per tensor, kept outside it. It is the tensor's largest magnitude over
 * the format's, or, with delayed scaling, the inverse of the site's factor, which earlier
 * magnitudes decide.
 *
 * mxfp8: e4m3 in blocks of 32 along a row. Each block has a power of two as its scale, rounded up
 * so that nothing saturates; scales follow the elements.
 *
 * nvfp4: e2m1 in blocks of 16 along a row. Each block has an e4m3 scale, in units of one fp32 scale
 * per tensor; scales follow the elements.
 *
 * fp8-1x128, fp8-128x128: e4m3 in blocks of 128 along a row, or in squares of that side. Each has
 * an fp32 scale that is a power of two, rounded up so that nothing saturates (Transformer Engine's
 * Float8BlockScaling, by default). Scales follow the elements in cuBLASLt's order: of 1x128, the
 * first blocks of all rows, then the second ones; of squares row by row, each row padded to a
 * multiple of four. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cpu/pool.h"
#include "exec/number/number.h"

#include "planner/schedule/quantizers.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define E4M3_MAX 448.0
#define E5M2_MAX 57344.0
#define E2M1_MAX 6.0

/* Most elements that are read at once, no fewer than a block of any format. */
#define RUN PLAN_DTYPE_SIDE

/* A matrix to read, perhaps transposed. */
typedef struct
{
  const void *data;
  PlanDtype dtype;
  guint64 rows, cols;     /* of the result */
  gboolean is_transposed; /* stored as [cols, rows] */
  const ExecArgs *made;   /* the op that makes it in passing (exec_cpu_made); NULL: it is stored */
} Matrix;

static inline float
at_place (const void *data, PlanDtype dtype, guint64 at)
{
  switch ((int)dtype)
    {
    case PLAN_DTYPE_FP32:
      return ((const float *)data)[at];
    case PLAN_DTYPE_BF16:
      return exec_number_from_bf16 (((const guint16 *)data)[at]);
    default:
      return exec_number_from_fp16 (((const guint16 *)data)[at]);
    }
}

/* An element of a matrix with one row. */
static inline float
element (const Matrix *in, guint64 at)
{
  return at_place (in->data, in->dtype, at);
}

/* Reads at most RUN elements of a row from `col` on: where they lie, or copied to `storage`. */
static const float *
run_of (const Matrix *in, guint64 row, guint64 col, guint64 count, float storage[RUN])
{
  if (in->made && !in->is_transposed)
    return exec_cpu_made (in->made, row, col, count, storage);
  for (guint64 i = 0; in->made && i < count; i++)
    exec_cpu_made (in->made, col + i, row, 1, &storage[i]);
  if (in->made)
    return storage;
  if (!in->is_transposed)
    return exec_cpu_read (in->data, in->dtype, row * in->cols + col, count, storage);
  for (guint64 i = 0; i < count; i++)
    storage[i] = at_place (in->data, in->dtype, (col + i) * in->rows + row);
  return storage;
}

/* The larger of two numbers; NaN if one of them is. */
static float
larger (float a, float b)
{
  return a >= b || isnan (a) ? a : b;
}

/* The largest magnitude of a part of a matrix; NaN if there is one. */
static float
largest (const Matrix *in, guint64 row, guint64 rows, guint64 col, guint64 cols)
{
  float storage[RUN], max = 0;

  for (guint64 r = row; r < row + rows; r++)
    for (guint64 at = 0; at < cols; at += RUN)
      {
        const guint64 n = MIN (RUN, cols - at);

        max = larger (max, exec_number_largest (run_of (in, r, col + at, n, storage), n));
      }
  return max;
}

/* A conversion of a matrix to or from a format, which threads do by ranges of rows. */
typedef struct _Job Job;
typedef void (*JobRows) (const Job *self, guint64 first, guint64 end);
struct _Job
{
  const Matrix *in;
  guint8 *out;
  PlanDtype dtype;
  float scale; /* of formats with one scale */
  float *amax; /* largest magnitude, raised by what is read, or NULL */
  guint64 rows;
  guint64 grain;
  JobRows run;
};

static void
run_part (gpointer data, guint64 part, guint worker)
{
  const Job *self = data;
  const guint64 first = part * self->grain;

  self->run (self, first, MIN (first + self->grain, self->rows));
}

/* Divides rows among threads; each range begins at a multiple of `height`. */
static void
spread (Job *self, guint64 rows, guint64 cols, guint64 height, JobRows run)
{
  self->run = run;
  self->rows = rows;
  self->grain = MAX (EXEC_CPU_PART / MAX (cols, 1) / height, 1) * height;
  exec_pool_run ((rows + self->grain - 1) / self->grain, G_MAXUINT, run_part, self);
}

static void
raise_amax (float *amax, float magnitude)
{
  exec_pool_lock ();
  *amax = larger (*amax, magnitude);
  exec_pool_unlock ();
}

static void
largest_rows (const Job *self, guint64 first, guint64 end)
{
  raise_amax (self->amax, largest (self->in, first, end - first, 0, self->in->cols));
}

static double
largest_of_all (const Matrix *in)
{
  float max = 0;
  Job job = { .in = in, .amax = &max };

  spread (&job, in->rows, in->cols, 1, largest_rows);
  return (double)max;
}

static void
quantize_rows (const Job *self, guint64 first, guint64 end)
{
  const guint64 cols = self->in->cols;
  float storage[RUN];

  for (guint64 r = first; r < end; r++)
    for (guint64 c = 0; c < cols; c += RUN)
      {
        const guint64 n = MIN (RUN, cols - c);

        exec_number_narrow_scaled (self->out + r * cols + c, self->dtype,
                                   run_of (self->in, r, c, n, storage), self->scale, n);
      }
}

/* Quantises by a tensor's largest magnitude `max`. */
static void
quantize_by (const Matrix *in, double max, guint8 *out, PlanDtype dtype, float *out_scale)
{
  const double limit = dtype == PLAN_DTYPE_E4M3 ? E4M3_MAX : E5M2_MAX;
  Job job = { .in = in, .out = out, .dtype = dtype };

  *out_scale = job.scale = max == 0 ? 1.0f : (float)(max / limit);
  spread (&job, in->rows, in->cols, 1, quantize_rows);
}

static void
mxfp8_rows (const Job *self, guint64 first, guint64 end)
{
  const guint block = plan_dtype_block (PLAN_DTYPE_MXFP8);
  const guint64 cols = self->in->cols;
  guint8 *out = self->out + first * cols,
         *scales = self->out + self->in->rows * cols + first * cols / block;
  float storage[RUN];

  for (guint64 r = first; r < end; r++)
    for (guint64 c = 0; c < cols; c += block)
      {
        const float *from = run_of (self->in, r, c, block, storage);

        *scales = exec_number_to_e8m0_up ((double)exec_number_largest (from, block) / E4M3_MAX);
        exec_number_narrow_scaled (out, PLAN_DTYPE_E4M3, from,
                                   (float)exec_number_from_e8m0 (*scales++), block);
        out += block;
      }
}

static void
quantize_mxfp8 (const Matrix *in, guint8 *out)
{
  Job job = { .in = in, .out = out };

  spread (&job, in->rows, in->cols, 1, mxfp8_rows);
}

static void
nvfp4_rows (const Job *self, guint64 first, guint64 end)
{
  const guint block = plan_dtype_block (PLAN_DTYPE_NVFP4);
  const guint64 cols = self->in->cols;
  guint8 *out = self->out + first * cols / 2,
         *scales = self->out + self->in->rows * cols / 2 + first * cols / block;
  float storage[RUN];

  for (guint64 r = first; r < end; r++)
    for (guint64 c = 0; c < cols; c += block)
      {
        const float *from = run_of (self->in, r, c, block, storage);
        double scale;

        *scales = exec_number_to_e4m3 ((double)exec_number_largest (from, block) / E2M1_MAX
                                       / (double)self->scale);
        scale = (double)exec_number_from_e4m3 (*scales++) * (double)self->scale;
        for (guint64 i = 0; i < block; i += 2)
          {
            double low = (double)from[i], high = (double)from[i + 1];

            *out++ = scale == 0 ? 0
                                : exec_number_to_e2m1 (low / scale)
                                      | (guint8)(exec_number_to_e2m1 (high / scale) << 4);
          }
      }
}

static void
quantize_nvfp4 (const Matrix *in, double max, guint8 *out, float *out_scale)
{
  Job job = { .in = in, .out = out };

  *out_scale = job.scale = max == 0 ? 1.0f : (float)(max / (E2M1_MAX * E4M3_MAX));
  spread (&job, in->rows, in->cols, 1, nvfp4_rows);
}

/* The scale of a block or square with the largest magnitude `max`. It is a normal number, as GPUs
 * may take others for 0. */
static float
scale_of_128 (double max)
{
  return max == 0 ? 1.0f
                  : (float)exec_number_from_e8m0 (MAX (exec_number_to_e8m0_up (max / E4M3_MAX), 1));
}

/* The index of the scale of the row's block number `block`, in a matrix of `rows` and `cols`. */
static guint64
place_of_128 (PlanDtype dtype, guint64 rows, guint64 cols, guint64 row, guint64 block)
{
  return dtype == PLAN_DTYPE_FP8_1X128
             ? block * rows + row
             : row / PLAN_DTYPE_SIDE * plan_dtype_squares_apart (cols) + block;
}

static void
rows_of_128 (const Job *self, guint64 first, guint64 end)
{
  const Matrix *in = self->in;
  const guint64 side = PLAN_DTYPE_SIDE, height = self->dtype == PLAN_DTYPE_FP8_1X128 ? 1 : side;
  guint8 *out = self->out + first * in->cols;
  float *scales = (float *)(gpointer)(self->out + in->rows * in->cols), storage[RUN];

  for (guint64 r = first; r < end; r += height)
    for (guint64 c = 0; c < in->cols; c += side)
      scales[place_of_128 (self->dtype, in->rows, in->cols, r, c / side)]
          = scale_of_128 ((double)largest (in, r, height, c, side));
  for (guint64 r = first; r < end; r++)
    for (guint64 c = 0; c < in->cols; c += side, out += side)
      exec_number_narrow_scaled (
          out, PLAN_DTYPE_E4M3, run_of (in, r, c, side, storage),
          scales[place_of_128 (self->dtype, in->rows, in->cols, r, c / side)], side);
}

/* Scales that pad a row of squares are 1, the scale of zeros. */
static void
quantize_128 (const Matrix *in, guint8 *out, PlanDtype dtype)
{
  const guint64 height = dtype == PLAN_DTYPE_FP8_1X128 ? 1 : PLAN_DTYPE_SIDE;
  float *scales = (float *)(gpointer)(out + in->rows * in->cols);
  Job job = { .in = in, .out = out, .dtype = dtype };

  for (guint64 i = 0; height > 1 && i < plan_dtype_square_scales (in->rows, in->cols); i++)
    scales[i] = 1;
  spread (&job, in->rows, in->cols, height, rows_of_128);
}

/* A tensor's largest magnitude: the op that made it may have found that. */
static double
largest_of (const Matrix *in, const ExecArgs *args)
{
  const float *found = args->ptr[PLAN_REF_QUANTIZE_largest];

  return found != NULL ? (double)*found : largest_of_all (in);
}

static void
quantize (const Matrix *in, const ExecArgs *args, guint operand)
{
  switch ((int)args->dtype[operand])
    {
    case PLAN_DTYPE_FP8_1X128:
    case PLAN_DTYPE_FP8_128X128:
      quantize_128 (in, args->ptr[operand], args->dtype[operand]);
      return;
    case PLAN_DTYPE_MXFP8:
      quantize_mxfp8 (in, args->ptr[operand]);
      return;
    case PLAN_DTYPE_NVFP4:
      quantize_nvfp4 (in, largest_of (in, args), args->ptr[operand], args->scale[operand]);
      return;
    default:
      quantize_by (in, largest_of (in, args), args->ptr[operand], args->dtype[operand],
                   args->scale[operand]);
      return;
    }
}

static void
scaled_rows (const Job *self, guint64 first, guint64 end)
{
  const Matrix *in = self->in;
  float storage[RUN], product[RUN], amax = 0;

  for (guint64 r = first; r < end; r++)
    for (guint64 c = 0; c < in->cols; c += RUN)
      {
        const guint64 n = MIN (RUN, in->cols - c);
        const float *from = run_of (in, r, c, n, storage);

        if (self->amax != NULL)
          amax = larger (amax, exec_number_largest (from, n));
        for (guint64 i = 0; i < n; i++)
          product[i] = from[i] * self->scale;
        exec_number_narrow_scaled (self->out + r * in->cols + c, self->dtype, product, 1, n);
      }
  if (self->amax != NULL)
    raise_amax (self->amax, amax);
}

/* Quantises by a given factor. Values are rounded twice: their product with the factor to fp32,
 * then that to the format. */
static void
quantize_scaled (const Matrix *in, float scale, float *amax, guint8 *out, PlanDtype dtype,
                 float *out_scale)
{
  Job job = { .in = in, .out = out, .dtype = dtype, .scale = scale, .amax = amax };

  *out_scale = 1.0f / scale;
  spread (&job, in->rows, in->cols, 1, scaled_rows);
}

void
exec_cpu_write_scaled (const ExecArgs *args, guint scale, guint64 at, guint64 count,
                       const float *values)
{
  Matrix in = { values, PLAN_DTYPE_FP32, 1, count, FALSE, NULL };

  quantize_scaled (&in, *(const float *)args->ptr[scale], args->ptr[scale + 1],
                   (guint8 *)args->ptr[PLAN_REF_RMSNORM_out] + at,
                   args->dtype[PLAN_REF_RMSNORM_out], args->scale[PLAN_REF_RMSNORM_out]);
}

/* --- delayed scaling ---------------------------------------------------------------------- */

/* Makes each site's scale from its history of largest magnitudes. While infinity or NaN is in the
 * history, the scale stays as it was. */
void
exec_cpu_rescale (const ExecArgs *args)
{
  guint64 count = (guint64)args->op->dims[PLAN_DIM_RESCALE_count],
          length = (guint64)args->op->dims[PLAN_DIM_RESCALE_length];
  float *scales = args->ptr[PLAN_REF_RESCALE_scales],
        *history = args->ptr[PLAN_REF_RESCALE_history], *amax = args->ptr[PLAN_REF_RESCALE_amax];

  for (guint64 site = 0; site < count; site++, history += length)
    {
      gboolean is_gradient = site % PLAN_QUANTIZERS_OF_PRODUCT == PLAN_QUANTIZER_GRADIENT;
      float largest = 0;

      memmove (history + 1, history, (length - 1) * sizeof *history);
      history[0] = amax[site];
      amax[site] = 0;
      for (guint64 i = 0; i < length; i++)
        largest = larger (largest, history[i]);
      if (largest > 0 && isfinite (largest))
        scales[site] = fminf ((float)(is_gradient ? E5M2_MAX : E4M3_MAX) / largest, FLT_MAX);
    }
}

PLAN_SAME_REF (QUANTIZE, SWIGLU_QUANTIZE, in);
PLAN_SAME_REF (QUANTIZE, SWIGLU_QUANTIZE, amax);
PLAN_SAME_REF (QUANTIZE, SWIGLU_BWD_QUANTIZE, in);
PLAN_SAME_REF (QUANTIZE, SWIGLU_BWD_QUANTIZE, amax);

/* QUANTIZE, and the SwiGLU ops that quantise their own output (SWIGLU_QUANTIZE and its gradient),
 * which have a given scale or scales of blocks. */
void
exec_cpu_quantize (const ExecArgs *args)
{
  const gboolean is_slope = args->op->kind == PLAN_OP_SWIGLU_BWD_QUANTIZE;
  const ExecArgs *made = args->op->kind == PLAN_OP_QUANTIZE ? NULL : args;
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_QUANTIZE_rows],
          cols = (guint64)args->op->dims[PLAN_DIM_QUANTIZE_cols] * (is_slope ? 2 : 1);
  Matrix in = {
    args->ptr[PLAN_REF_QUANTIZE_in], args->dtype[PLAN_REF_QUANTIZE_in], rows, cols, FALSE, made
  };
  Matrix transposed = { in.data, in.dtype, cols, rows, TRUE, made };

  for (guint operand = PLAN_REF_QUANTIZE_out; operand <= PLAN_REF_QUANTIZE_col; operand++)
    if (args->ptr[operand] != NULL && args->ptr[PLAN_REF_QUANTIZE_scale] != NULL)
      quantize_scaled (operand == PLAN_REF_QUANTIZE_col ? &transposed : &in,
                       *(const float *)args->ptr[PLAN_REF_QUANTIZE_scale],
                       args->ptr[PLAN_REF_QUANTIZE_amax], args->ptr[operand], args->dtype[operand],
                       args->scale[operand]);
    else if (args->ptr[operand] != NULL)
      quantize (operand == PLAN_REF_QUANTIZE_col ? &transposed : &in, args, operand);
  if (!made && args->ptr[PLAN_REF_QUANTIZE_largest] != NULL)
    *(float *)args->ptr[PLAN_REF_QUANTIZE_largest] = 0;
}

/* --- the part of one parameter -------------------------------------------------------------- */

static void
raise_to (const ExecArgs *args, guint64 at, double magnitude)
{
  float storage, before = *exec_cpu_read_ref (args, PLAN_REF_PARAM_AMAX_amax, at, 1, &storage);
  float value = (float)magnitude;

  if (!(magnitude <= (double)before) && !isnan (before))
    exec_cpu_write_ref (args, PLAN_REF_PARAM_AMAX_amax, at, 1, &value);
}

/* The index of the scale of the square that an element of a parameter is in. */
static guint64
square_of (const ExecParam *param, guint64 element)
{
  return place_of_128 (PLAN_DTYPE_FP8_128X128, param->rows, param->cols, element / param->cols,
                       element % param->cols / PLAN_DTYPE_SIDE);
}

/* The indices of the scales of the two blocks that an element of a parameter is in: along its row
 * and along its column. Scales along columns follow all those along rows. */
typedef struct
{
  guint64 by_row, by_column;
} Blocks;

static Blocks
blocks_of (const ExecParam *param, guint64 element)
{
  guint64 row = element / param->cols, col = element % param->cols;

  return (Blocks){ element / param->block, param->rows * param->cols / param->block
                                               + row / param->block * param->cols + col };
}

void
exec_cpu_param_amax_of_one (const ExecArgs *args)
{
  guint64 count = (guint64)args->op->dims[PLAN_DIM_PARAM_AMAX_count];
  Matrix in = {
    args->ptr[PLAN_REF_PARAM_AMAX_in], args->dtype[PLAN_REF_PARAM_AMAX_in], 1, count, FALSE, NULL
  };

  if (args->param.block == 0)
    {
      raise_to (args, 0, (double)largest (&in, 0, 1, 0, count));
      return;
    }
  for (guint64 i = 0; i < count; i++)
    {
      Blocks at = blocks_of (&args->param, args->param.first + i);
      double magnitude = fabs ((double)element (&in, i));

      if (args->param.block == PLAN_DTYPE_SIDE)
        {
          raise_to (args, square_of (&args->param, args->param.first + i), magnitude);
          continue;
        }
      raise_to (args, at.by_row, magnitude);
      raise_to (args, at.by_column, magnitude);
    }
}

/* Every rank computes all scales of the parameter and quantises its own elements by them, once
 * along rows and once along columns. */
static void
param_quantize_mxfp8 (const ExecArgs *args, const Matrix *amax, const Matrix *in)
{
  guint8 *scales = args->ptr[PLAN_REF_PARAM_QUANTIZE_scales],
         *out = args->ptr[PLAN_REF_PARAM_QUANTIZE_out],
         *col = args->ptr[PLAN_REF_PARAM_QUANTIZE_col];

  for (guint64 i = 0; i < amax->cols; i++)
    scales[i] = exec_number_to_e8m0_up ((double)element (amax, i) / E4M3_MAX);
  for (guint64 i = 0; i < in->cols; i++)
    {
      Blocks at = blocks_of (&args->param, args->param.first + i);
      double value = (double)element (in, i);

      out[i] = exec_number_to_e4m3 (value / exec_number_from_e8m0 (scales[at.by_row]));
      col[i] = exec_number_to_e4m3 (value / exec_number_from_e8m0 (scales[at.by_column]));
    }
}

/* Quantises by squares, for which rows and columns share one copy. */
static void
param_quantize_squares (const ExecArgs *args, const Matrix *amax, const Matrix *in)
{
  float *scales = args->ptr[PLAN_REF_PARAM_QUANTIZE_scales];
  guint8 *out = args->ptr[PLAN_REF_PARAM_QUANTIZE_out];

  for (guint64 i = 0; i < amax->cols; i++)
    scales[i] = scale_of_128 ((double)element (amax, i));
  for (guint64 i = 0; i < in->cols; i++)
    out[i] = exec_number_to_e4m3 (
        (double)element (in, i) / (double)scales[square_of (&args->param, args->param.first + i)]);
}

/* Puts an element of e2m1 into its half of a byte: even elements into the lower half. */
static void
put_e2m1 (guint8 *out, guint64 i, double value, double scale)
{
  guint8 bits = scale == 0 ? 0 : exec_number_to_e2m1 (value / scale);

  out[i / 2] = i % 2 == 0 ? bits : (guint8)(out[i / 2] | bits << 4);
}

/* A rank's part begins and ends at whole bytes. */
static void
param_quantize_nvfp4 (const ExecArgs *args, const Matrix *amax, const Matrix *in)
{
  guint8 *scales = args->ptr[PLAN_REF_PARAM_QUANTIZE_scales];
  double max = (double)largest (amax, 0, 1, 0, amax->cols), unit;

  g_assert (in->cols % 2 == 0 && args->param.first % 2 == 0);
  *args->scale[PLAN_REF_PARAM_QUANTIZE_out]
      = max == 0 ? 1.0f : (float)(max / (E2M1_MAX * E4M3_MAX));
  unit = (double)*args->scale[PLAN_REF_PARAM_QUANTIZE_out];
  for (guint64 i = 0; i < amax->cols; i++)
    scales[i] = exec_number_to_e4m3 ((double)element (amax, i) / E2M1_MAX / unit);
  for (guint64 i = 0; i < in->cols; i++)
    {
      Blocks at = blocks_of (&args->param, args->param.first + i);
      double value = (double)element (in, i);

      put_e2m1 (args->ptr[PLAN_REF_PARAM_QUANTIZE_out], i, value,
                (double)exec_number_from_e4m3 (scales[at.by_row]) * unit);
      put_e2m1 (args->ptr[PLAN_REF_PARAM_QUANTIZE_col], i, value,
                (double)exec_number_from_e4m3 (scales[at.by_column]) * unit);
    }
}

void
exec_cpu_param_quantize_of_one (const ExecArgs *args)
{
  Matrix in = { args->ptr[PLAN_REF_PARAM_QUANTIZE_in],
                args->dtype[PLAN_REF_PARAM_QUANTIZE_in],
                1,
                (guint64)args->op->dims[PLAN_DIM_PARAM_QUANTIZE_count],
                FALSE,
                NULL };
  Matrix amax = { args->ptr[PLAN_REF_PARAM_QUANTIZE_amax],
                  args->dtype[PLAN_REF_PARAM_QUANTIZE_amax],
                  1,
                  (guint64)args->op->dims[PLAN_DIM_PARAM_QUANTIZE_parts],
                  FALSE,
                  NULL };

  if (args->dtype[PLAN_REF_PARAM_QUANTIZE_out] == PLAN_DTYPE_E2M1)
    param_quantize_nvfp4 (args, &amax, &in);
  else if (args->param.block == PLAN_DTYPE_SIDE)
    param_quantize_squares (args, &amax, &in);
  else if (args->param.block > 0)
    param_quantize_mxfp8 (args, &amax, &in);
  else if (args->ptr[PLAN_REF_PARAM_QUANTIZE_site_scales] != NULL)
    quantize_scaled (
        &in, *(const float *)args->ptr[PLAN_REF_PARAM_QUANTIZE_site_scales],
        args->ptr[PLAN_REF_PARAM_QUANTIZE_site_amax], args->ptr[PLAN_REF_PARAM_QUANTIZE_out],
        args->dtype[PLAN_REF_PARAM_QUANTIZE_out], args->scale[PLAN_REF_PARAM_QUANTIZE_out]);
  else
    quantize_by (&in, (double)element (&amax, 0), args->ptr[PLAN_REF_PARAM_QUANTIZE_out],
                 args->dtype[PLAN_REF_PARAM_QUANTIZE_out],
                 args->scale[PLAN_REF_PARAM_QUANTIZE_out]);
}

/* Transposes the scales of squares, which may lie outside the elements' array. */
static void
transpose_scales (const ExecArgs *args, guint64 rows, guint64 cols)
{
  const guint64 side = PLAN_DTYPE_SIDE, from = plan_dtype_squares_apart (cols);
  const guint64 to = plan_dtype_squares_apart (rows);
  const float *in
      = args->blocks[PLAN_REF_TRANSPOSE_in].scales != NULL
            ? (gconstpointer)args->blocks[PLAN_REF_TRANSPOSE_in].scales
            : (gconstpointer)((const guint8 *)args->ptr[PLAN_REF_TRANSPOSE_in] + rows * cols);
  float *out = (gpointer)((guint8 *)args->ptr[PLAN_REF_TRANSPOSE_out] + rows * cols);

  for (guint64 r = 0; r * side < cols; r++)
    for (guint64 c = 0; c < to; c++)
      out[r * to + c] = c * side < rows ? in[c * from + r] : 1.0f;
}

/* out[cols, rows] = in[rows, cols] transposed, with its scale or its squares' scales. */
void
exec_cpu_transpose (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_TRANSPOSE_rows],
          cols = (guint64)args->op->dims[PLAN_DIM_TRANSPOSE_cols];
  guint64 width = plan_dtype_bits (args->dtype[PLAN_REF_TRANSPOSE_out]) / 8;
  const guint8 *in = args->ptr[PLAN_REF_TRANSPOSE_in];
  guint8 *out = args->ptr[PLAN_REF_TRANSPOSE_out];

  for (guint64 col = 0; col < cols; col++)
    for (guint64 row = 0; row < rows; row++, out += width)
      memcpy (out, in + (row * cols + col) * width, width);
  if (args->dtype[PLAN_REF_TRANSPOSE_out] == PLAN_DTYPE_FP8_128X128)
    transpose_scales (args, rows, cols);
  else if (args->scale[PLAN_REF_TRANSPOSE_out] != NULL
           && args->scale[PLAN_REF_TRANSPOSE_in] != NULL)
    *args->scale[PLAN_REF_TRANSPOSE_out] = *args->scale[PLAN_REF_TRANSPOSE_in];
}

/* A conversion to fp32. */
typedef struct
{
  Job job;
  const guint8 *in;
  gconstpointer scales;
  const ExecBlocks *blocks; /* of block scales in an array of their own */
  guint64 cols;
  float *out;
} Widening;

static void
widen_128_rows (const Job *job, guint64 first, guint64 end)
{
  const Widening *self = (const Widening *)job;
  const float *scales = self->scales;

  for (guint64 r = first; r < end; r++)
    for (guint64 c = 0; c < self->cols; c += PLAN_DTYPE_SIDE)
      exec_number_widen_scaled (
          self->out + r * self->cols + c, PLAN_DTYPE_E4M3, self->in + r * self->cols + c,
          scales[place_of_128 (job->dtype, job->rows, self->cols, r, c / PLAN_DTYPE_SIDE)],
          MIN (PLAN_DTYPE_SIDE, self->cols - c));
}

static void
widen_rows (const Job *job, guint64 first, guint64 end)
{
  const Widening *self = (const Widening *)job;
  const guint64 from = first * self->cols, to = end * self->cols;
  const guint8 *scales = self->scales;
  const guint block = plan_dtype_block (job->dtype);

  if (job->dtype == PLAN_DTYPE_MXFP8)
    for (guint64 i = from; i < to; i += block)
      exec_number_widen_scaled (self->out + i, PLAN_DTYPE_E4M3, self->in + i,
                                (float)exec_number_from_e8m0 (scales[i / block]), block);
  else if (job->dtype == PLAN_DTYPE_NVFP4)
    for (guint64 i = from; i < to; i++)
      self->out[i]
          = (float)((double)exec_number_from_e2m1 (self->in[i / 2] >> 4 * (i % 2) & 0xf)
                    * (double)exec_number_from_e4m3 (scales[i / block]) * (double)job->scale);
  else
    exec_number_widen_scaled (self->out + from, job->dtype, self->in + from, job->scale, to - from);
}

/* Converts a matrix that consists of whole blocks. */
void
exec_cpu_dequantize (const void *array, PlanDtype dtype, const float *scale, guint64 rows,
                     guint64 cols, float *out)
{
  const guint8 *in = array;
  Widening self = { .job = { .dtype = dtype, .scale = scale != NULL ? *scale : 1 },
                    .in = in,
                    .scales = in + plan_dtype_bits (dtype) * rows * cols / 8,
                    .cols = cols,
                    .out = out };

  spread (&self.job, rows, cols, 1,
          plan_dtype_block (dtype) == PLAN_DTYPE_SIDE ? widen_128_rows : widen_rows);
}

static float
value_apart (const guint8 *in, PlanDtype dtype, guint64 at, guint8 scale, const float *unit)
{
  if (dtype == PLAN_DTYPE_E2M1)
    return (float)((double)exec_number_from_e2m1 (in[at / 2] >> 4 * (at % 2) & 0xf)
                   * (double)exec_number_from_e4m3 (scale) * (double)*unit);
  return (float)((double)exec_number_from_e4m3 (in[at]) * exec_number_from_e8m0 (scale));
}

static void
widen_apart_rows (const Job *job, guint64 first, guint64 end)
{
  const Widening *self = (const Widening *)job;
  const ExecBlocks *blocks = self->blocks;
  const guint block = plan_dtype_block (blocks->format);
  const guint64 rows = job->rows, cols = self->cols;

  for (guint64 r = first; r < end; r++)
    for (guint64 c = 0; c < cols; c++)
      {
        guint64 at = blocks->is_transposed ? c * rows + r : r * cols + c;
        guint64 scale = blocks->is_transposed ? c / block * rows + r : at / block;

        self->out[r * cols + c]
            = value_apart (self->in, job->dtype, at, blocks->scales[scale], &job->scale);
      }
}

/* Converts a product's operand to [rows, cols] when block scales lie in an array of their own. If
 * it is stored transposed, as [cols, rows], blocks lie along the columns of that. */
void
exec_cpu_dequantize_apart (const ExecArgs *args, guint operand, guint64 rows, guint64 cols,
                           float *out)
{
  const ExecBlocks *blocks = &args->blocks[operand];
  const gboolean has_squares = plan_dtype_block (blocks->format) == PLAN_DTYPE_SIDE;
  Widening self = { .job = { .dtype = has_squares ? blocks->format : args->dtype[operand],
                             .scale = args->scale[operand] != NULL ? *args->scale[operand] : 1 },
                    .in = args->ptr[operand],
                    .scales = blocks->scales,
                    .blocks = blocks,
                    .cols = cols,
                    .out = out };

  spread (&self.job, rows, cols, 1, has_squares ? widen_128_rows : widen_apart_rows);
}
