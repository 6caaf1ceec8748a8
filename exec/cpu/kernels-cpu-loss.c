/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy and its gradient. Rows with a target below 0 are masked. */
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

/* Adds a thread's part to an exact sum, which does not depend on the order. */
static void
merge (ExecExact *sum, const ExecExact *part)
{
  exec_pool_lock ();
  exec_exact_merge (sum, part);
  exec_pool_unlock ();
}

/* Which operands of an op are those of its softmax. */
typedef struct
{
  guint logits, targets, stats;
} Softmax;

/* Computes the softmax of a row and its loss. Returns the target's column, or -1 if the target is
 * not among these columns and the row has no loss here. Where the vocabulary is divided among
 * ranks, `stats` are those of whole rows. */
static gint64
softmax_row (const ExecArgs *args, const Softmax *refs, guint64 row, float *prob, float *out_loss)
{
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_rows],
          cols = (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_cols];
  guint64 here = exec_cpu_vocab_here (args, cols);
  const gint32 target = ((const gint32 *)args->ptr[refs->targets])[row];
  const gint64 place = target < 0 ? -1 : exec_cpu_vocab_find (args, target, cols);
  const float *stats = args->ptr[refs->stats];
  float max = stats
                  ? stats[row]
                  : largest (args->ptr[refs->logits], args->dtype[refs->logits], row * cols, here);
  float parts[EXEC_CPU_LANES] = { 0 }, target_logit = 0, storage[BLOCK];

  for (guint64 at = 0; at < here; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, here - at);
      const float *logits = exec_cpu_read_ref (args, refs->logits, row * cols + at, n, storage);

      if (place >= 0 && (guint64)place - at < n)
        target_logit = logits[(guint64)place - at];
      exec_cpu_exp_row (prob + at, logits, n, 1, max, parts);
    }
  float sum = stats ? stats[rows + row] : exec_cpu_total (parts);
  if (stats)
    target_logit = stats[2 * rows + row];
  exec_cpu_divide_row (prob, here, sum);
  memset (prob + here, 0, (cols - here) * sizeof *prob);
  *out_loss = logf (sum) - (target_logit - max);
  return place;
}

/* One statistic of each row of this rank's part of the logits: the target's logit, or 0 where
 * another rank has it, if there are targets; the sum of e^(logit - max), if there are maxima; else
 * the largest logit. */
static void
row_stat_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_ROW_STAT_cols],
          here = exec_cpu_vocab_here (args, cols);
  const gint32 *targets = args->ptr[PLAN_REF_ROW_STAT_targets];
  const float *max = args->ptr[PLAN_REF_ROW_STAT_max];
  float *out = args->ptr[PLAN_REF_ROW_STAT_out], storage[BLOCK], powers[BLOCK];

  for (guint64 row = first; row < end; row++)
    {
      gint64 place
          = targets && targets[row] >= 0 ? exec_cpu_vocab_find (args, targets[row], cols) : -1;
      float parts[EXEC_CPU_LANES] = { 0 };

      if (targets)
        out[row] = place < 0 ? 0
                             : *exec_cpu_read_ref (args, PLAN_REF_ROW_STAT_in,
                                                   row * cols + (guint64)place, 1, storage);
      else if (max == NULL)
        out[row] = largest (args->ptr[PLAN_REF_ROW_STAT_in], args->dtype[PLAN_REF_ROW_STAT_in],
                            row * cols, here);
      for (guint64 at = 0; max && at < here; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, here - at);

          exec_cpu_exp_row (
              powers, exec_cpu_read_ref (args, PLAN_REF_ROW_STAT_in, row * cols + at, n, storage),
              n, 1, max[row], parts);
        }
      if (max)
        out[row] = exec_cpu_total (parts);
    }
}

void
exec_cpu_row_stat (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_ROW_STAT_rows],
                   (guint64)args->op->dims[PLAN_DIM_ROW_STAT_cols], row_stat_rows);
}

static void
cross_entropy_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  static const Softmax refs = { PLAN_REF_CROSS_ENTROPY_logits, PLAN_REF_CROSS_ENTROPY_targets,
                                PLAN_REF_CROSS_ENTROPY_stats };
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_cols];
  float *prob = args->ptr[PLAN_REF_CROSS_ENTROPY_prob], loss;
  ExecExact sum = { 0 };

  for (guint64 row = first; row < end; row++)
    if (softmax_row (args, &refs, row, prob + row * cols, &loss) >= 0)
      exec_exact_add_float (&sum, loss);
  merge (args->ptr[PLAN_REF_CROSS_ENTROPY_loss], &sum);
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
    {
      gint64 place = targets[row] < 0 ? -1 : exec_cpu_vocab_find (args, targets[row], cols);

      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);

          if (targets[row] < 0)
            memset (out, 0, n * sizeof *out);
          else
            memcpy (out, prob + row * cols + at, n * sizeof *out);
          if (place >= 0 && (guint64)place - at < n)
            out[(guint64)place - at] -= 1.0f;
          exec_cpu_write_ref (args, PLAN_REF_CROSS_ENTROPY_BWD_dlogits, row * cols + at, n, out);
        }
    }
}

void
exec_cpu_cross_entropy_bwd (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_BWD_rows],
                   (guint64)args->op->dims[PLAN_DIM_CROSS_ENTROPY_BWD_cols],
                   cross_entropy_bwd_rows);
}

/* Replaces a row of logits by its gradient. The row passes through `prob` in fp32 and is rounded
 * once. */
static void
loss_grad_row (const ExecArgs *args, guint64 row, float *prob, ExecExact *loss)
{
  static const Softmax refs
      = { PLAN_REF_LOSS_GRAD_logits, PLAN_REF_LOSS_GRAD_targets, PLAN_REF_LOSS_GRAD_stats };
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_LOSS_GRAD_cols];
  float of_row;

  if (((const gint32 *)args->ptr[PLAN_REF_LOSS_GRAD_targets])[row] < 0)
    memset (prob, 0, cols * sizeof *prob);
  else
    {
      gint64 place = softmax_row (args, &refs, row, prob, &of_row);

      if (place >= 0)
        {
          exec_exact_add_float (loss, of_row);
          prob[place] -= 1.0f;
        }
    }
  exec_cpu_write_ref (args, PLAN_REF_LOSS_GRAD_logits, row * cols, cols, prob);
}

PLAN_SAME_DIM (LOSS_GRAD, CROSS_ENTROPY, rows);
PLAN_SAME_DIM (LOSS_GRAD, CROSS_ENTROPY, cols);

typedef struct
{
  const ExecArgs *args;
  float *more_scratch; /* of all threads but the first, which uses the op's scratch */
  guint64 rows;        /* rows of a part */
} LossGrad;

static void
loss_grad_part (gpointer data, guint64 part, guint worker)
{
  const LossGrad *self = data;
  const ExecArgs *args = self->args;
  const guint64 first = part * self->rows;
  const guint64 end = MIN (first + self->rows, (guint64)args->op->dims[PLAN_DIM_LOSS_GRAD_rows]);
  float *prob = worker == 0 ? args->ptr[PLAN_REF_LOSS_GRAD_work]
                            : self->more_scratch + worker * args->op->dims[PLAN_DIM_LOSS_GRAD_cols];
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
  LossGrad self
      = { args, exec_pool_scratch (cols * sizeof (float)), MAX (EXEC_CPU_PART / cols, 1) };

  exec_pool_run ((rows + self.rows - 1) / self.rows, G_MAXUINT, loss_grad_part, &self);
}
