/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm.h"
#include "exec/cpu/kernels-cpu-private.h"
#include "exec/kernels.h"
#include "exec/number/exact.h"
#include "exec/number/number.h"
#include "planner/base/error.h"

#include <math.h>
#include <string.h>

/* Operands and dims are those of planner/schedule/op-list.h, in its order. Everything is computed
 * in fp32 from widened operands, in loops of a fixed order, and rounded once where it is stored. */

#define BLOCK EXEC_CPU_BLOCK

const float *
exec_cpu_read (const void *array, PlanDtype dtype, guint64 at, guint64 count, float *storage)
{
  if (dtype == PLAN_DTYPE_FP32)
    return (const float *)array + at;
  exec_number_widen (storage, (const guint8 *)array + plan_dtype_bytes (dtype, at), dtype, count);
  return storage;
}

void
exec_cpu_write (void *array, PlanDtype dtype, guint64 at, guint64 count, const float *values)
{
  exec_number_narrow ((guint8 *)array + plan_dtype_bytes (dtype, at), dtype, values, count);
}

static void
run_zero (const ExecArgs *args)
{
  memset (args->ptr[0], 0, plan_dtype_bytes (args->dtype[0], (guint64)args->op->dims[0]));
}

static void
run_cast (const ExecArgs *args)
{
  guint64 count = (guint64)args->op->dims[0];
  float storage[BLOCK];

  if (args->dtype[0] == args->dtype[1])
    {
      memmove (args->ptr[0], args->ptr[1], plan_dtype_bytes (args->dtype[0], count));
      return;
    }
  for (guint64 at = 0; at < count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - at);

      exec_cpu_write (args->ptr[0], args->dtype[0], at, n,
                      exec_cpu_read (args->ptr[1], args->dtype[1], at, n, storage));
    }
}

static void
run_scale (const ExecArgs *args)
{
  guint64 count = (guint64)args->op->dims[0];
  float storage[BLOCK], out[BLOCK], factor = (float)(1.0 / (double)args->constants->mean_of);

  for (guint64 at = 0; at < count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - at);
      const float *in = exec_cpu_read (args->ptr[0], args->dtype[0], at, n, storage);

      for (guint64 i = 0; i < n; i++)
        out[i] = in[i] * factor;
      exec_cpu_write (args->ptr[0], args->dtype[0], at, n, out);
    }
}

static EXEC_WIDE void
add_block (float *out, const float *a, const float *b, guint64 n)
{
  for (guint64 i = 0; i < n; i++)
    out[i] = a[i] + b[i];
}

/* Operand 0 = operand `a` + operand `b`. */
static void
add (const ExecArgs *args, guint a, guint b)
{
  guint64 count = (guint64)args->op->dims[0];
  float a_storage[BLOCK], b_storage[BLOCK], out[BLOCK];

  for (guint64 at = 0; at < count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - at);
      const float *x = exec_cpu_read (args->ptr[a], args->dtype[a], at, n, a_storage);
      const float *y = exec_cpu_read (args->ptr[b], args->dtype[b], at, n, b_storage);

      add_block (out, x, y, n);
      exec_cpu_write (args->ptr[0], args->dtype[0], at, n, out);
    }
}

static void
run_accumulate (const ExecArgs *args)
{
  add (args, 0, 1);
}

/* Operand 1 holds one run of elements after the other. */
static void
run_sum_parts (const ExecArgs *args)
{
  guint64 count = (guint64)args->op->dims[0];
  guint parts = (guint)args->op->dims[1];
  g_autofree const void **part = g_new (const void *, parts);

  for (guint i = 0; i < parts; i++)
    part[i] = (const guint8 *)args->ptr[1] + plan_dtype_bytes (args->dtype[1], i * count);
  exec_comm_sum (args->ptr[0], part, parts, count, args->dtype[1]);
}

static void
run_add (const ExecArgs *args)
{
  add (args, 1, 2);
}

/* --- embedding ---------------------------------------------------------------------------- */

static void
run_embed (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  const gint32 *tokens = args->ptr[2];
  float storage[BLOCK];

  for (guint64 row = 0; row < rows; row++)
    {
      g_assert (tokens[row] >= 0 && tokens[row] < args->op->dims[2]);
      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);
          guint64 from = (guint64)tokens[row] * cols + at;

          exec_cpu_write (args->ptr[0], args->dtype[0], row * cols + at, n,
                          exec_cpu_read (args->ptr[1], args->dtype[1], from, n, storage));
        }
    }
}

/* Lists the rows of every token in ascending order: those of token v are order[start[v]] to
 * order[start[v + 1] - 1]. */
static void
sort_rows (const gint32 *tokens, guint64 rows, guint64 vocab, guint32 *start, guint32 *order)
{
  memset (start, 0, (vocab + 1) * sizeof *start);
  for (guint64 row = 0; row < rows; row++)
    {
      g_assert (tokens[row] >= 0 && (guint64)tokens[row] < vocab);
      start[tokens[row]]++;
    }
  for (guint64 v = 1; v <= vocab; v++)
    start[v] += start[v - 1];
  for (guint64 row = rows; row-- > 0;) /* from the last row: start[v] ends at its first place */
    order[--start[tokens[row]]] = (guint32)row;
}

static void
run_embed_bwd (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  guint64 vocab = (guint64)args->op->dims[2];
  guint32 *start = args->ptr[3], *order = start + vocab + 1;
  float *sum = (float *)(order + rows);
  float storage[BLOCK];

  g_assert (rows <= G_MAXUINT32);
  sort_rows (args->ptr[2], rows, vocab, start, order);
  for (guint64 v = 0; v < vocab; v++)
    {
      memset (sum, 0, cols * sizeof *sum);
      for (guint32 k = start[v]; k < start[v + 1]; k++)
        for (guint64 at = 0; at < cols; at += BLOCK)
          {
            guint64 n = MIN (BLOCK, cols - at);
            const float *dout
                = exec_cpu_read (args->ptr[1], args->dtype[1], order[k] * cols + at, n, storage);

            for (guint64 i = 0; i < n; i++)
              sum[at + i] += dout[i];
          }
      exec_cpu_write (args->ptr[0], args->dtype[0], v * cols, cols, sum);
    }
}

/* Row `row` gets what belongs to its place in its sequence. */
static void
run_positions (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  guint64 seq = (guint64)args->op->dims[2];
  float in_storage[BLOCK], table_storage[BLOCK], out[BLOCK];

  for (guint64 row = 0; row < rows; row++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at);
        const float *in
            = exec_cpu_read (args->ptr[0], args->dtype[0], row * cols + at, n, in_storage);
        const float *place
            = exec_cpu_read (args->ptr[1], args->dtype[1], row % seq * cols + at, n, table_storage);

        for (guint64 i = 0; i < n; i++)
          out[i] = in[i] + place[i];
        exec_cpu_write (args->ptr[0], args->dtype[0], row * cols + at, n, out);
      }
}

static void
run_positions_bwd (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  guint64 seq = (guint64)args->op->dims[2];
  float storage[BLOCK], sum[BLOCK];

  for (guint64 place = 0; place < seq; place++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at);

        memset (sum, 0, sizeof sum);
        for (guint64 row = place; row < rows; row += seq)
          {
            const float *dout
                = exec_cpu_read (args->ptr[1], args->dtype[1], row * cols + at, n, storage);

            for (guint64 i = 0; i < n; i++)
              sum[i] += dout[i];
          }
        exec_cpu_write (args->ptr[0], args->dtype[0], place * cols + at, n, sum);
      }
}

/* --- matrix product ----------------------------------------------------------------------- */

/* To every row of the product, before it is rounded. */
static void
add_bias (const ExecArgs *args, float *out)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  float storage[BLOCK];

  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);
      const float *bias = exec_cpu_read (args->ptr[3], args->dtype[3], at, n, storage);

      for (guint64 row = 0; row < rows; row++)
        for (guint64 i = 0; i < n; i++)
          out[row * cols + at + i] += bias[i];
    }
}

/* A factor of a product in fp32: itself, or its image. */
static const float *
read_factor (const ExecArgs *args, guint operand, guint64 count, float *image)
{
  PlanDtype dtype = args->dtype[operand];

  if (dtype == PLAN_DTYPE_FP32 || dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16)
    return exec_cpu_read (args->ptr[operand], dtype, 0, count, image);
  if (args->blocks[operand].scales != NULL) /* both factors lie along the inner dimension */
    exec_cpu_dequantize_apart (args, operand, (guint64)args->op->dims[operand - 1],
                               (guint64)args->op->dims[2], image);
  else
    exec_cpu_dequantize (args->ptr[operand], dtype, args->scale[operand],
                         (guint64)args->op->dims[operand - 1], (guint64)args->op->dims[2], image);
  return image;
}

/* The product of operands 1 and 2, in fp32; where `rounded` is not NULL perhaps there, in bf16 and
 * nowhere else: TRUE then. */
static gboolean
multiply (const ExecArgs *args, float *out, guint16 *rounded, float *a_image, float *b_image)
{
  const gint64 *dims = args->op->dims;
  guint64 a_count = (guint64)dims[0] * (guint64)dims[2];
  guint64 b_count = (guint64)dims[2] * (guint64)dims[1];

  if (args->dtype[1] == PLAN_DTYPE_BF16 && args->dtype[2] == PLAN_DTYPE_BF16
      && exec_gemm_amx (dims[0], dims[1], dims[2], (int)dims[3], args->ptr[1], args->ptr[2], FALSE,
                        out, rounded, a_image, b_image))
    return rounded != NULL;
  exec_gemm_fp32 (dims[0], dims[1], dims[2], (int)dims[3], read_factor (args, 1, a_count, a_image),
                  read_factor (args, 2, b_count, b_image), out);
  return FALSE;
}

static void
run_gemm (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  guint64 a_count = (guint64)dims[0] * (guint64)dims[2];
  guint64 b_count = (guint64)dims[2] * (guint64)dims[1];
  guint64 out_count = (guint64)dims[0] * (guint64)dims[1];
  float *a_image = args->ptr[4], *b_image, *out;

  /* Without scratch all three are fp32 and no image is needed. */
  g_assert (a_image != NULL
            || (args->dtype[0] == PLAN_DTYPE_FP32 && args->dtype[1] == PLAN_DTYPE_FP32
                && args->dtype[2] == PLAN_DTYPE_FP32));
  b_image = a_image != NULL ? a_image + a_count : NULL;
  out = args->dtype[0] == PLAN_DTYPE_FP32 ? args->ptr[0] : b_image + b_count;
  const gboolean rounds = args->dtype[0] == PLAN_DTYPE_BF16 && args->ptr[3] == NULL;
  if (multiply (args, out, rounds ? args->ptr[0] : NULL, a_image, b_image))
    return;
  if (args->ptr[3] != NULL)
    add_bias (args, out);
  if (args->dtype[0] != PLAN_DTYPE_FP32)
    exec_cpu_write (args->ptr[0], args->dtype[0], 0, out_count, out);
}

/* The product is not rounded before it is added. Its scratch has room for images of the factors
 * unless they need none. */
static void
run_gemm_add (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  guint64 a_count = (guint64)dims[0] * (guint64)dims[2];
  guint64 out_count = (guint64)dims[0] * (guint64)dims[1];
  float *product = args->ptr[3], *a_image = product + out_count, *b_image = a_image + a_count;
  float storage[BLOCK];

  multiply (args, product, NULL, a_image, b_image);
  for (guint64 at = 0; at < out_count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, out_count - at);
      const float *before = exec_cpu_read (args->ptr[0], args->dtype[0], at, n, storage);

      add_block (product + at, product + at, before, n);
      exec_cpu_write (args->ptr[0], args->dtype[0], at, n, product + at);
    }
}

/* dbias = the sums of dout's columns, in the order of its rows. */
static void
run_bias_bwd (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  float storage[BLOCK], sum[BLOCK];

  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);

      memset (sum, 0, sizeof sum);
      for (guint64 row = 0; row < rows; row++)
        {
          const float *dout
              = exec_cpu_read (args->ptr[1], args->dtype[1], row * cols + at, n, storage);

          for (guint64 i = 0; i < n; i++)
            sum[i] += dout[i];
        }
      exec_cpu_write (args->ptr[0], args->dtype[0], at, n, sum);
    }
}

/* --- loss --------------------------------------------------------------------------------- */

static float
largest (const void *array, PlanDtype dtype, guint64 at, guint64 count)
{
  float storage[BLOCK], max = -INFINITY;

  for (guint64 done = 0; done < count; done += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - done);
      const float *in = exec_cpu_read (array, dtype, at + done, n, storage);
      float here = exec_cpu_largest (in, n);

      max = here > max ? here : max;
    }
  return max;
}

static void
run_cross_entropy (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  ExecExact *loss = args->ptr[0];
  const gint32 *targets = args->ptr[3];
  float storage[BLOCK];

  for (guint64 row = 0; row < rows; row++)
    {
      float *prob = (float *)args->ptr[1] + row * cols;
      float max = largest (args->ptr[2], args->dtype[2], row * cols, cols);
      float parts[EXEC_CPU_LANES] = { 0 }, target_logit = 0;

      g_assert (targets[row] < args->op->dims[1]);
      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);
          const float *logits
              = exec_cpu_read (args->ptr[2], args->dtype[2], row * cols + at, n, storage);

          if (targets[row] >= 0 && (guint64)targets[row] - at < n)
            target_logit = logits[(guint64)targets[row] - at];
          exec_cpu_exp_row (prob + at, logits, n, 1, max, parts);
        }
      float sum = exec_cpu_total (parts);
      exec_cpu_divide_row (prob, cols, sum);
      if (targets[row] >= 0)
        exec_exact_add_float (loss, logf (sum) - (target_logit - max));
    }
}

static void
run_cross_entropy_bwd (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  const float *prob = args->ptr[1];
  const gint32 *targets = args->ptr[2];
  float out[BLOCK];

  for (guint64 row = 0; row < rows; row++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at);

        if (targets[row] < 0)
          memset (out, 0, n * sizeof *out);
        else
          memcpy (out, prob + row * cols + at, n * sizeof *out);
        if (targets[row] >= 0 && (guint64)targets[row] - at < n)
          out[(guint64)targets[row] - at] -= 1.0f;
        exec_cpu_write (args->ptr[0], args->dtype[0], row * cols + at, n, out);
      }
}

/* A row goes through scratch in fp32, and is rounded once, as its gradient. */
static void
run_loss_grad (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[0], cols = (guint64)args->op->dims[1];
  const gint32 *targets = args->ptr[2];
  float storage[BLOCK], *prob = args->ptr[3];

  for (guint64 row = 0; row < rows; row++)
    {
      float max = largest (args->ptr[1], args->dtype[1], row * cols, cols);
      float parts[EXEC_CPU_LANES] = { 0 }, target_logit = 0;

      g_assert (targets[row] < args->op->dims[1]);
      if (targets[row] < 0)
        {
          memset (prob, 0, cols * sizeof *prob);
          exec_cpu_write (args->ptr[1], args->dtype[1], row * cols, cols, prob);
          continue;
        }
      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);
          const float *logits
              = exec_cpu_read (args->ptr[1], args->dtype[1], row * cols + at, n, storage);

          if ((guint64)targets[row] - at < n)
            target_logit = logits[(guint64)targets[row] - at];
          exec_cpu_exp_row (prob + at, logits, n, 1, max, parts);
        }
      float sum = exec_cpu_total (parts);
      exec_cpu_divide_row (prob, cols, sum);
      exec_exact_add_float (args->ptr[0], logf (sum) - (target_logit - max));
      prob[targets[row]] -= 1.0f;
      exec_cpu_write (args->ptr[1], args->dtype[1], row * cols, cols, prob);
    }
}

/* --- optimizer ---------------------------------------------------------------------------- */

static void
run_norm_sq (const ExecArgs *args)
{
  guint64 count = (guint64)args->op->dims[0];
  float storage[BLOCK];

  for (guint64 at = 0; at < count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - at);
      const float *in = exec_cpu_read (args->ptr[1], args->dtype[1], at, n, storage);
      ExecExact sum = { 0 };

      exec_exact_add_squares (&sum, in, (guint)n);
      exec_exact_merge (args->ptr[0], &sum);
    }
}

static void
run_clip (const ExecArgs *args)
{
  gint64 ranks = args->op->dims[0], norms = args->op->dims[1];
  double tokens = (double)args->op->dims[2], max_norm = args->constants->max_norm, factor = 1;
  const ExecExact *sums = args->ptr[1]; /* of each rank: its loss, its squared norm */
  ExecExact loss = { 0 }, square = { 0 };
  float *coef = args->ptr[0];

  for (gint64 rank = 0; rank < ranks; rank++)
    exec_exact_merge (&loss, &sums[2 * rank]);
  for (gint64 rank = 0; rank < norms; rank++)
    exec_exact_merge (&square, &sums[2 * rank + 1]);
  double left = tokens / (double)MAX (args->constants->mean_of, 1); /* to divide gradients by */
  double grad_norm = sqrt (exec_exact_value (&square)) / left;
  if (max_norm > 0)
    factor = max_norm / (grad_norm + 1e-6);
  if (factor > 1) /* a NaN stays one: the step must not look sound */
    factor = 1;
  coef[0] = (float)(1 / left * factor);
  coef[1] = (float)grad_norm;
  coef[2] = (float)(exec_exact_value (&loss) / tokens);
  coef[3] = 0;
}

/* The step of Adam's hyperparameters, converted once. */
typedef struct
{
  float scale, lr, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float correction1, correction2, eps, weight_decay;
} Adam;

static Adam
adam_of (const ExecConstants *constants, float scale)
{
  double step = (double)constants->step;

  return (Adam){
    .scale = scale,
    .lr = (float)constants->lr,
    .beta1 = (float)constants->beta1,
    .beta2 = (float)constants->beta2,
    .one_minus_beta1 = (float)(1 - constants->beta1),
    .one_minus_beta2 = (float)(1 - constants->beta2),
    .correction1 = (float)(1 - pow (constants->beta1, step)),
    .correction2 = (float)(1 - pow (constants->beta2, step)),
    .eps = (float)constants->adam_eps,
    .weight_decay = (float)constants->weight_decay,
  };
}

/* A piece of both moments, before it is rounded. */
typedef struct
{
  float avg[BLOCK], avg_sq[BLOCK];
} Moments;

static const float *
read_moment (const ExecArgs *args, guint operand, float scale, guint64 at, guint64 count,
             float *storage)
{
  if (args->dtype[operand] != PLAN_DTYPE_E4M3)
    return exec_cpu_read (args->ptr[operand], args->dtype[operand], at, count, storage);
  exec_number_widen_scaled (storage, PLAN_DTYPE_E4M3, (const guint8 *)args->ptr[operand] + at,
                            scale, count);
  return storage;
}

static void
write_moment (const ExecArgs *args, guint operand, float scale, guint64 at, guint64 count,
              const float *values)
{
  if (args->dtype[operand] != PLAN_DTYPE_E4M3)
    exec_cpu_write (args->ptr[operand], args->dtype[operand], at, count, values);
  else
    exec_number_narrow_scaled ((guint8 *)args->ptr[operand] + at, PLAN_DTYPE_E4M3, values, scale,
                               count);
}

static EXEC_WIDE void
step_moments (const Adam *restrict adam, guint64 n, const float *avg, const float *avg_sq,
              const float *grad, Moments *restrict out)
{
  for (guint64 i = 0; i < n; i++)
    {
      float g = grad[i] * adam->scale;

      out->avg[i] = adam->beta1 * avg[i] + adam->one_minus_beta1 * g;
      out->avg_sq[i] = adam->beta2 * avg_sq[i] + adam->one_minus_beta2 * g * g;
    }
}

static EXEC_WIDE void
step_weights (const Adam *restrict adam, guint64 n, const float *in, const Moments *moments,
              float *restrict out)
{
  for (guint64 i = 0; i < n; i++)
    {
      float update = moments->avg[i] / adam->correction1
                     / (sqrtf (moments->avg_sq[i] / adam->correction2) + adam->eps);

      out[i] = in[i] - adam->lr * (update + adam->weight_decay * in[i]);
    }
}

static void
next_moments (const ExecArgs *args, const Adam *adam, const float scale[2], guint64 at, guint64 n,
              Moments *out)
{
  float storage[3][BLOCK];
  const float *avg = read_moment (args, 1, scale[0], at, n, storage[0]);
  const float *avg_sq = read_moment (args, 2, scale[1], at, n, storage[1]);
  const float *grad = exec_cpu_read (args->ptr[3], args->dtype[3], at, n, storage[2]);

  step_moments (adam, n, avg, avg_sq, grad, out);
}

/* Of moments in eight bits: their scales are those of all of them. */
static void
find_moment_scales (const ExecArgs *args, const Adam *adam, const float before[2], float out[2])
{
  guint64 count = (guint64)args->op->dims[0];
  float largest[2] = { 0, 0 };

  for (guint64 at = 0; at < count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - at);
      Moments next;

      next_moments (args, adam, before, at, n, &next);
      for (guint moment = 0; moment < 2; moment++)
        {
          float of_piece = exec_number_largest (moment == 0 ? next.avg : next.avg_sq, n);

          if (!(of_piece <= largest[moment]) && !isnan (largest[moment]))
            largest[moment] = of_piece;
        }
    }
  for (guint moment = 0; moment < 2; moment++)
    if (args->dtype[1 + moment] == PLAN_DTYPE_E4M3)
      *args->scale[1 + moment] = out[moment] = exec_number_scale (largest[moment]);
}

static void
run_adamw (const ExecArgs *args)
{
  Adam adam = adam_of (args->constants, ((const float *)args->ptr[4])[0]);
  guint64 count = (guint64)args->op->dims[0];
  gboolean is_scaled[] = { args->dtype[1] == PLAN_DTYPE_E4M3, args->dtype[2] == PLAN_DTYPE_E4M3 };
  float before[2] = { is_scaled[0] ? *args->scale[1] : 1, is_scaled[1] ? *args->scale[2] : 1 };
  float scale[2] = { 1, 1 }, storage[BLOCK], main_out[BLOCK];
  Moments next;

  if (is_scaled[0] || is_scaled[1])
    find_moment_scales (args, &adam, before, scale);
  for (guint64 at = 0; at < count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - at);
      const float *main_in = exec_cpu_read (args->ptr[0], args->dtype[0], at, n, storage);

      next_moments (args, &adam, before, at, n, &next);
      step_weights (&adam, n, main_in, &next, main_out);
      exec_cpu_write (args->ptr[0], args->dtype[0], at, n, main_out);
      write_moment (args, 1, scale[0], at, n, next.avg);
      write_moment (args, 2, scale[1], at, n, next.avg_sq);
    }
}

static void
run_sgd (const ExecArgs *args)
{
  const ExecConstants *constants = args->constants;
  float scale = ((const float *)args->ptr[3])[0], lr = (float)constants->lr;
  float momentum = (float)constants->beta1, weight_decay = (float)constants->weight_decay;
  guint64 count = (guint64)args->op->dims[0];
  float storage[3][BLOCK], main_out[BLOCK], momentum_out[BLOCK];

  for (guint64 at = 0; at < count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - at);
      const float *main_in = exec_cpu_read (args->ptr[0], args->dtype[0], at, n, storage[0]);
      const float *momentum_in = exec_cpu_read (args->ptr[1], args->dtype[1], at, n, storage[1]);
      const float *grad = exec_cpu_read (args->ptr[2], args->dtype[2], at, n, storage[2]);

      for (guint64 i = 0; i < n; i++)
        {
          momentum_out[i]
              = momentum * momentum_in[i] + (grad[i] * scale + weight_decay * main_in[i]);
          main_out[i] = main_in[i] - lr * momentum_out[i];
        }
      exec_cpu_write (args->ptr[0], args->dtype[0], at, n, main_out);
      exec_cpu_write (args->ptr[1], args->dtype[1], at, n, momentum_out);
    }
}

static gboolean
open_cpu (GError **error)
{
  exec_gemm_open ();
  return TRUE;
}

/* Without scratch a product works in place, on fp32 alone, and is not added to anything. */
static gboolean
check_cpu (const PlanSchedule *schedule, const PlanOp *op, GError **error)
{
  const gboolean adds = op->kind == PLAN_OP_GEMM_ADD;
  const gboolean has_scratch
      = (!adds && op->kind != PLAN_OP_GEMM) || op->refs[adds ? 3 : 4].array >= 0;

  for (guint i = 0; !has_scratch && i <= 2; i++)
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
  return g_strconcat (exec_gemm_name (), exec_gemm_amx_open () ? ", bf16 by AMX" : NULL, NULL);
}

const ExecKernels exec_kernels_cpu = {
  .name = "cpu",
  .summary = "one core per rank; the numeric reference",
  .open = open_cpu,
  .describe = describe_cpu,
  .check = check_cpu,
  .device = &exec_device_cpu,
  .more_formats = 1u << PLAN_DTYPE_FP16 | 1u << PLAN_DTYPE_E8M0 | 1u << PLAN_DTYPE_E2M1,
  .run = {
    [PLAN_OP_ZERO] = run_zero,
    [PLAN_OP_CAST] = run_cast,
    [PLAN_OP_ACCUMULATE] = run_accumulate,
    [PLAN_OP_QUANTIZE] = exec_cpu_quantize,
    [PLAN_OP_PARAM_AMAX] = exec_cpu_param_amax,
    [PLAN_OP_PARAM_QUANTIZE] = exec_cpu_param_quantize,
    [PLAN_OP_SCALE] = run_scale,
    [PLAN_OP_RESCALE] = exec_cpu_rescale,
    [PLAN_OP_TRANSPOSE] = exec_cpu_transpose,
    [PLAN_OP_SUM_PARTS] = run_sum_parts,
    [PLAN_OP_ADD] = run_add,
    [PLAN_OP_POSITIONS] = run_positions,
    [PLAN_OP_POSITIONS_BWD] = run_positions_bwd,
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
    [PLAN_OP_GEMM] = run_gemm,
    [PLAN_OP_GEMM_ADD] = run_gemm_add,
    [PLAN_OP_BIAS_BWD] = run_bias_bwd,
    [PLAN_OP_ROPE] = exec_cpu_rope,
    [PLAN_OP_ATTENTION] = exec_cpu_attention,
    [PLAN_OP_ATTENTION_BWD] = exec_cpu_attention_bwd,
    [PLAN_OP_SWIGLU] = exec_cpu_swiglu,
    [PLAN_OP_SWIGLU_BWD] = exec_cpu_swiglu_bwd,
    [PLAN_OP_ACTIVATE] = exec_cpu_activate,
    [PLAN_OP_ACTIVATE_BWD] = exec_cpu_activate_bwd,
    [PLAN_OP_CROSS_ENTROPY] = run_cross_entropy,
    [PLAN_OP_CROSS_ENTROPY_BWD] = run_cross_entropy_bwd,
    [PLAN_OP_LOSS_GRAD] = run_loss_grad,
    [PLAN_OP_NORM_SQ] = run_norm_sq,
    [PLAN_OP_CLIP] = run_clip,
    [PLAN_OP_ADAMW] = run_adamw,
    [PLAN_OP_SGD] = run_sgd,
  },
};
