/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer: gradient norm, clipping, and updates of parameters. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cpu/pool.h"
#include "exec/number/exact.h"
#include "exec/number/number.h"

#include <math.h>

#define BLOCK EXEC_CPU_BLOCK

static void
norm_sq_range (const ExecArgs *args, guint64 from, guint64 to)
{
  ExecExact all = { 0 };
  float storage[BLOCK];

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);
      const float *in = exec_cpu_read_ref (args, PLAN_REF_NORM_SQ_in, at, n, storage);
      ExecExact sum = { 0 };

      exec_exact_add_squares (&sum, in, (guint)n);
      exec_exact_merge (&all, &sum);
    }
  exec_pool_lock ();
  exec_exact_merge (args->ptr[PLAN_REF_NORM_SQ_sum], &all);
  exec_pool_unlock ();
}

void
exec_cpu_norm_sq (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_NORM_SQ_count], 1, norm_sq_range);
}

void
exec_cpu_clip (const ExecArgs *args)
{
  gint64 ranks = args->op->dims[PLAN_DIM_CLIP_ranks], norms = args->op->dims[PLAN_DIM_CLIP_norms];
  const gint64 counted = args->constants->tokens;
  double tokens = (double)(counted > 0 ? counted : args->op->dims[PLAN_DIM_CLIP_tokens]),
         max_norm = args->constants->max_norm, factor = 1;
  const ExecExact *sums
      = args->ptr[PLAN_REF_CLIP_sums]; /* of each rank: loss, squared norm of gradients */
  ExecExact loss = { 0 }, square = { 0 };
  float *coef = args->ptr[PLAN_REF_CLIP_coef];

  for (gint64 rank = 0; rank < ranks; rank++)
    exec_exact_merge (&loss, &sums[2 * rank]);
  for (gint64 rank = 0; rank < norms; rank++)
    exec_exact_merge (&square, &sums[2 * rank + 1]);
  /* What gradients are still to be divided by. */
  double left = tokens / (double)MAX (args->constants->grad_divisor, 1);
  double grad_norm = sqrt (exec_exact_value (&square)) / left;
  if (max_norm > 0)
    factor = max_norm / (grad_norm + 1e-6);
  if (factor > 1)
    factor = 1;
  coef[1] = (float)grad_norm;
  coef[2] = (float)(exec_exact_value (&loss) / tokens);
  coef[0] = isfinite (coef[1]) && isfinite (coef[2]) ? (float)(1 / left * factor) : NAN;
  coef[3] = 0;
}

/* Adam's hyperparameters for one step, converted to fp32 once. */
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

/* A piece of both moments in fp32. */
typedef struct
{
  float avg[BLOCK], avg_sq[BLOCK];
} Moments;

static const float *
read_moment (const ExecArgs *args, guint operand, float scale, guint64 at, guint64 count,
             float *storage)
{
  if (args->dtype[operand] != PLAN_DTYPE_E4M3)
    return exec_cpu_read_ref (args, operand, at, count, storage);
  exec_number_widen_scaled (storage, PLAN_DTYPE_E4M3, (const guint8 *)args->ptr[operand] + at,
                            scale, count);
  return storage;
}

static void
write_moment (const ExecArgs *args, guint operand, float scale, guint64 at, guint64 count,
              const float *values)
{
  if (args->dtype[operand] != PLAN_DTYPE_E4M3)
    exec_cpu_write_ref (args, operand, at, count, values);
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
  const float *avg = read_moment (args, PLAN_REF_ADAMW_exp_avg, scale[0], at, n, storage[0]);
  const float *avg_sq = read_moment (args, PLAN_REF_ADAMW_exp_avg_sq, scale[1], at, n, storage[1]);
  const float *grad = exec_cpu_read_ref (args, PLAN_REF_ADAMW_grad, at, n, storage[2]);

  step_moments (adam, n, avg, avg_sq, grad, out);
}

/* One update and the scales of its moments before and after it; a moment without a scale has 1. */
typedef struct
{
  const ExecArgs *args;
  Adam adam;
  gboolean is_scaled[2];
  float before[2], after[2];
  float largest[2]; /* magnitudes after the update; NaN if one is */
} Update;

static guint64
end_of (const ExecArgs *args, guint64 part)
{
  return MIN ((part + 1) * EXEC_CPU_PART, (guint64)args->op->dims[PLAN_DIM_ADAMW_count]);
}

static void
raise_to (float *largest, float magnitude)
{
  if (!(magnitude <= *largest) && !isnan (*largest))
    *largest = magnitude;
}

static void
find_largest (gpointer data, guint64 part, guint worker)
{
  Update *self = data;
  const guint64 end = end_of (self->args, part);
  float largest[2] = { 0, 0 };

  for (guint64 at = part * EXEC_CPU_PART; at < end; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, end - at);
      Moments next;

      next_moments (self->args, &self->adam, self->before, at, n, &next);
      raise_to (&largest[0], exec_number_largest (next.avg, n));
      raise_to (&largest[1], exec_number_largest (next.avg_sq, n));
    }
  exec_pool_lock ();
  raise_to (&self->largest[0], largest[0]);
  raise_to (&self->largest[1], largest[1]);
  exec_pool_unlock ();
}

/* Casts the updated weights, as they were stored, to the format of operand `out`, if the op has it.
 */
static void
round_main (const ExecArgs *args, guint out, guint64 at, guint64 n)
{
  float storage[BLOCK];

  if (args->ptr[out] != NULL)
    exec_cpu_write_ref (args, out, at, n,
                        exec_cpu_read_ref (args, PLAN_REF_ADAMW_main, at, n, storage));
}

static void
update_part (gpointer data, guint64 part, guint worker)
{
  const Update *self = data;
  const ExecArgs *args = self->args;
  const guint64 end = end_of (args, part);
  float storage[BLOCK], main_out[BLOCK];
  Moments next;

  for (guint64 at = part * EXEC_CPU_PART; at < end; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, end - at);
      const float *main_in = exec_cpu_read_ref (args, PLAN_REF_ADAMW_main, at, n, storage);

      next_moments (args, &self->adam, self->before, at, n, &next);
      step_weights (&self->adam, n, main_in, &next, main_out);
      exec_cpu_write_ref (args, PLAN_REF_ADAMW_main, at, n, main_out);
      round_main (args, PLAN_REF_ADAMW_out, at, n);
      write_moment (args, PLAN_REF_ADAMW_exp_avg, self->after[0], at, n, next.avg);
      write_moment (args, PLAN_REF_ADAMW_exp_avg_sq, self->after[1], at, n, next.avg_sq);
    }
}

/* Moments in eight bits have one scale for all elements, so a first pass over the elements finds
 * the new scale. */
void
exec_cpu_adamw (const ExecArgs *args)
{
  const guint64 count = (guint64)args->op->dims[PLAN_DIM_ADAMW_count];
  const guint64 parts = (count + EXEC_CPU_PART - 1) / EXEC_CPU_PART;
  Update self
      = { .args = args,
          .adam = adam_of (args->constants, ((const float *)args->ptr[PLAN_REF_ADAMW_coef])[0]),
          .before = { 1, 1 },
          .after = { 1, 1 } };

  if (isnan (self.adam.scale))
    return;
  for (guint moment = 0; moment < 2; moment++)
    if (args->dtype[PLAN_REF_ADAMW_exp_avg + moment] == PLAN_DTYPE_E4M3)
      {
        self.is_scaled[moment] = TRUE;
        self.before[moment] = *args->scale[PLAN_REF_ADAMW_exp_avg + moment];
      }
  if (self.is_scaled[0] || self.is_scaled[1])
    exec_pool_run (parts, G_MAXUINT, find_largest, &self);
  for (guint moment = 0; moment < 2; moment++)
    if (self.is_scaled[moment])
      *args->scale[PLAN_REF_ADAMW_exp_avg + moment] = self.after[moment]
          = exec_number_scale (self.largest[moment]);
  exec_pool_run (parts, G_MAXUINT, update_part, &self);
}

PLAN_SAME_REF (ADAMW, SGD, main);

static void
sgd_range (const ExecArgs *args, guint64 from, guint64 to)
{
  const ExecConstants *constants = args->constants;
  float scale = ((const float *)args->ptr[PLAN_REF_SGD_coef])[0], lr = (float)constants->lr;
  float momentum = (float)constants->beta1, weight_decay = (float)constants->weight_decay;
  float storage[3][BLOCK], main_out[BLOCK], momentum_out[BLOCK];

  for (guint64 at = from; at < to; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, to - at);
      const float *main_in = exec_cpu_read_ref (args, PLAN_REF_SGD_main, at, n, storage[0]);
      const float *momentum_in = exec_cpu_read_ref (args, PLAN_REF_SGD_momentum, at, n, storage[1]);
      const float *grad = exec_cpu_read_ref (args, PLAN_REF_SGD_grad, at, n, storage[2]);

      for (guint64 i = 0; i < n; i++)
        {
          momentum_out[i]
              = momentum * momentum_in[i] + (grad[i] * scale + weight_decay * main_in[i]);
          main_out[i] = main_in[i] - lr * momentum_out[i];
        }
      exec_cpu_write_ref (args, PLAN_REF_SGD_main, at, n, main_out);
      exec_cpu_write_ref (args, PLAN_REF_SGD_momentum, at, n, momentum_out);
      round_main (args, PLAN_REF_SGD_out, at, n);
    }
}

void
exec_cpu_sgd (const ExecArgs *args)
{
  if (!isnan (((const float *)args->ptr[PLAN_REF_SGD_coef])[0]))
    exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_SGD_count], 1, sgd_range);
}

/* --- biases of routers -------------------------------------------------------------------- */

/* Moves the bias of each expert by the rate: up if it got fewer rows than the mean, down if more.
 * Loads are whole numbers, which are summed exactly in double. The coefficient of gradients is NaN
 * in a step that changes nothing. */
void
exec_cpu_balance (const ExecArgs *args)
{
  const gint64 layers = args->op->dims[PLAN_DIM_BALANCE_layers],
               experts = args->op->dims[PLAN_DIM_BALANCE_experts];
  const float rate = (float)args->constants->bias_rate;
  float *bias = args->ptr[PLAN_REF_BALANCE_bias];
  const float *loads = args->ptr[PLAN_REF_BALANCE_loads];

  if (isnan (*(const float *)args->ptr[PLAN_REF_BALANCE_coef]))
    return;
  for (gint64 layer = 0; layer < layers; layer++, bias += experts, loads += experts)
    {
      double all = 0;

      for (gint64 e = 0; e < experts; e++)
        all += (double)loads[e];
      for (gint64 e = 0; e < experts; e++)
        {
          const double load = (double)loads[e] * (double)experts;

          if (load != all)
            bias[e] += load < all ? rate : -rate;
        }
    }
}
