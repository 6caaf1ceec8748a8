/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout. Which elements are zeroed is a function of a token's number in the run and of the column
 * (exec/number/random.h), so the backward pass finds it again, and how work is split does not
 * matter. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/number/random.h"
#include "planner/schedule/sequence.h"

/* out = add + in * factor; `add` may be absent (PLAN_MAX_REFS). */
typedef struct
{
  guint out, add, in, key, start;
} Operands;

PLAN_SAME_DIM (DROPOUT, DROPOUT_ADD, rows);
PLAN_SAME_DIM (DROPOUT, DROPOUT_ADD, cols);
PLAN_SAME_DIM (DROPOUT, DROPOUT_ADD, seq);
PLAN_SAME_DIM (DROPOUT, DROPOUT_ADD, site);
PLAN_SAME_DIM (DROPOUT, DROPOUT_BWD, rows);
PLAN_SAME_DIM (DROPOUT, DROPOUT_BWD, cols);
PLAN_SAME_DIM (DROPOUT, DROPOUT_BWD, seq);
PLAN_SAME_DIM (DROPOUT, DROPOUT_BWD, site);

static void
drop_row (const ExecArgs *args, const Operands *of, const ExecDropout *dropout, guint64 row,
          guint64 token)
{
  const guint64 cols = (guint64)args->op->dims[PLAN_DIM_DROPOUT_cols];
  float in_storage[EXEC_CPU_BLOCK], add_storage[EXEC_CPU_BLOCK], out[EXEC_CPU_BLOCK];

  for (guint64 at = 0; at < cols; at += EXEC_CPU_BLOCK)
    {
      const guint64 n = MIN (EXEC_CPU_BLOCK, cols - at), place = row * cols + at;
      const float *in = exec_cpu_read_ref (args, of->in, place, n, in_storage);

      exec_dropout_factors (dropout, token, at, n, out);
      for (guint64 i = 0; i < n; i++)
        out[i] *= in[i];
      if (of->add < PLAN_MAX_REFS)
        {
          const float *add = exec_cpu_read_ref (args, of->add, place, n, add_storage);

          for (guint64 i = 0; i < n; i++)
            out[i] += add[i];
        }
      exec_cpu_write_ref (args, of->out, place, n, out);
    }
}

static void
drop_rows (const ExecArgs *args, const Operands *of, guint64 first, guint64 end)
{
  const gint64 *dims = args->op->dims;
  const ExecDropout dropout
      = exec_dropout (args->ptr[of->key], (guint32)dims[PLAN_DIM_DROPOUT_site],
                      exec_manner (args, PLAN_MANNER_RATE));
  const guint64 seq = (guint64)dims[PLAN_DIM_DROPOUT_seq],
                parts = MAX ((guint64)exec_manner (args, PLAN_MANNER_PARTS), 1),
                before = (guint64)exec_manner (args, PLAN_MANNER_FIRST);
  const PlanSequencePart part
      = plan_sequence_part ((guint64)exec_manner (args, PLAN_MANNER_PART), parts, seq);
  const guint64 start = (guint64) * (const gint64 *)args->ptr[of->start];

  for (guint64 row = first; row < end; row++)
    drop_row (args, of, &dropout, row,
              start + (before + row) / seq * seq * parts
                  + plan_sequence_place (&part, (before + row) % seq));
}

static void
dropout_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  static const Operands of = { PLAN_REF_DROPOUT_out, PLAN_MAX_REFS, PLAN_REF_DROPOUT_in,
                               PLAN_REF_DROPOUT_key, PLAN_REF_DROPOUT_start };

  drop_rows (args, &of, first, end);
}

static void
dropout_add_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  static const Operands of
      = { PLAN_REF_DROPOUT_ADD_out, PLAN_REF_DROPOUT_ADD_a, PLAN_REF_DROPOUT_ADD_b,
          PLAN_REF_DROPOUT_ADD_key, PLAN_REF_DROPOUT_ADD_start };

  drop_rows (args, &of, first, end);
}

static void
dropout_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  static const Operands of = { PLAN_REF_DROPOUT_BWD_din, PLAN_MAX_REFS, PLAN_REF_DROPOUT_BWD_dout,
                               PLAN_REF_DROPOUT_BWD_key, PLAN_REF_DROPOUT_BWD_start };

  drop_rows (args, &of, first, end);
}

static void
spread (const ExecArgs *args, ExecCpuRange run)
{
  const gint64 *dims = args->op->dims;

  exec_cpu_spread (args, (guint64)dims[PLAN_DIM_DROPOUT_rows], (guint64)dims[PLAN_DIM_DROPOUT_cols],
                   run);
}

void
exec_cpu_dropout (const ExecArgs *args)
{
  spread (args, dropout_rows);
}

void
exec_cpu_dropout_add (const ExecArgs *args)
{
  spread (args, dropout_add_rows);
}

void
exec_cpu_dropout_bwd (const ExecArgs *args)
{
  spread (args, dropout_bwd_rows);
}
