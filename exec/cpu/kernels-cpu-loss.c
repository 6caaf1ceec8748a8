/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy and its gradient. A target below 0 counts for nothing. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cpu/pool.h"
#include "exec/number/exact.h"

#include <math.h>
#include <string.h>

#define BLOCK EXEC_CPU_BLOCK

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

/* A part of a sum that no order changes. */
static void
merge (ExecExact *sum, const ExecExact *part)
{
  exec_pool_lock ();
  exec_exact_merge (sum, part);
  exec_pool_unlock ();
}

static void
cross_entropy_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_cols];
  ExecExact loss = { 0 };
  const gint32 *targets = args->ptr[PLAN_REF_CROSS_ENTROPY_targets];
  float storage[BLOCK];

  for (guint64 row = first; row < end; row++)
    {
      float *prob = (float *)args->ptr[PLAN_REF_CROSS_ENTROPY_prob] + row * cols;
      float max = largest (args->ptr[PLAN_REF_CROSS_ENTROPY_logits],
                           args->dtype[PLAN_REF_CROSS_ENTROPY_logits], row * cols, cols);
      float parts[EXEC_CPU_LANES] = { 0 }, target_logit = 0;

      g_assert (targets[row] < args->op->dims[PLAN_DIM_CROSS_ENTROPY_cols]);
      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);
          const float *logits = exec_cpu_read_ref (args, PLAN_REF_CROSS_ENTROPY_logits,
                                                   row * cols + at, n, storage);

          if (targets[row] >= 0 && (guint64)targets[row] - at < n)
            target_logit = logits[(guint64)targets[row] - at];
          exec_cpu_exp_row (prob + at, logits, n, 1, max, parts);
        }
      float sum = exec_cpu_total (parts);
      exec_cpu_divide_row (prob, cols, sum);
      if (targets[row] >= 0)
        exec_exact_add_float (&loss, logf (sum) - (target_logit - max));
    }
  merge (args->ptr[PLAN_REF_CROSS_ENTROPY_loss], &loss);
}

void
exec_cpu_cross_entropy (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_rows],
                   (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_cols], cross_entropy_rows);
}

static void
cross_entropy_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_BWD_cols];
  const float *prob = args->ptr[PLAN_REF_CROSS_ENTROPY_BWD_prob];
  const gint32 *targets = args->ptr[PLAN_REF_CROSS_ENTROPY_BWD_targets];
  float out[BLOCK];

  for (guint64 row = first; row < end; row++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at);

        if (targets[row] < 0)
          memset (out, 0, n * sizeof *out);
        else
          memcpy (out, prob + row * cols + at, n * sizeof *out);
        if (targets[row] >= 0 && (guint64)targets[row] - at < n)
          out[(guint64)targets[row] - at] -= 1.0f;
        exec_cpu_write_ref (args, PLAN_REF_CROSS_ENTROPY_BWD_dlogits, row * cols + at, n, out);
      }
}

void
exec_cpu_cross_entropy_bwd (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_BWD_rows],
                   (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_BWD_cols],
                   cross_entropy_bwd_rows);
}

/* A row goes through `prob` in fp32, and is rounded once, as its gradient. */
static void
loss_grad_row (const ExecArgs *args, guint64 row, float *prob, ExecExact *loss)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_LOSS_GRAD_cols];
  const gint32 target = ((const gint32 *)args->ptr[PLAN_REF_LOSS_GRAD_targets])[row];
  float max = largest (args->ptr[PLAN_REF_LOSS_GRAD_logits], args->dtype[PLAN_REF_LOSS_GRAD_logits],
                       row * cols, cols);
  float parts[EXEC_CPU_LANES] = { 0 }, target_logit = 0, storage[BLOCK];

  g_assert (target < args->op->dims[PLAN_DIM_LOSS_GRAD_cols]);
  if (target < 0)
    {
      memset (prob, 0, cols * sizeof *prob);
      exec_cpu_write_ref (args, PLAN_REF_LOSS_GRAD_logits, row * cols, cols, prob);
      return;
    }
  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, cols - at);
      const float *logits
          = exec_cpu_read_ref (args, PLAN_REF_LOSS_GRAD_logits, row * cols + at, n, storage);

      if ((guint64)target - at < n)
        target_logit = logits[(guint64)target - at];
      exec_cpu_exp_row (prob + at, logits, n, 1, max, parts);
    }
  float sum = exec_cpu_total (parts);
  exec_cpu_divide_row (prob, cols, sum);
  exec_exact_add_float (loss, logf (sum) - (target_logit - max));
  prob[target] -= 1.0f;
  exec_cpu_write_ref (args, PLAN_REF_LOSS_GRAD_logits, row * cols, cols, prob);
}

typedef struct
{
  const ExecArgs *args;
  float *rooms; /* of all threads but the first, which has the op's scratch */
  guint64 rows; /* of a part */
} LossGrad;

static void
loss_grad_part (gpointer data, guint64 part, guint worker)
{
  const LossGrad *self = data;
  const ExecArgs *args = self->args;
  const guint64 first = part * self->rows;
  const guint64 end = MIN (first + self->rows, (guint64)args->op->dims[PLAN_DIM_LOSS_GRAD_rows]);
  float *prob = worker == 0 ? args->ptr[PLAN_REF_LOSS_GRAD_work]
                            : self->rooms + worker * args->op->dims[PLAN_DIM_LOSS_GRAD_cols];
  ExecExact loss = { 0 };

  for (guint64 row = first; row < end; row++)
    loss_grad_row (args, row, prob, &loss);
  merge (args->ptr[PLAN_REF_LOSS_GRAD_loss], &loss);
}

void
exec_cpu_loss_grad (const ExecArgs *args)
{
  const guint64 rows = (guint64)args->op->dims[PLAN_DIM_LOSS_GRAD_rows],
                cols = (guint64)args->op->dims[PLAN_DIM_LOSS_GRAD_cols];
  LossGrad self = { args, exec_pool_rooms (cols * sizeof (float)), MAX (EXEC_CPU_PART / cols, 1) };

  exec_pool_run ((rows + self.rows - 1) / self.rows, G_MAXUINT, loss_grad_part, &self);
}
