/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels read and write operands, and how their work is divided among threads. The table of
 * kernels is not needed for it: GPUs have the host's share of the optimizer done by a kernel
 * alone. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cpu/pool.h"
#include "exec/number/number.h"

#define BLOCK EXEC_CPU_BLOCK

const float *
exec_cpu_read (const void *array, PlanDtype dtype, guint64 at, guint64 count, float *storage)
{
  if (dtype == PLAN_DTYPE_FP32)
    return (const float *)array + at;
  exec_number_widen (storage, (const guint8 *)array + plan_dtype_bytes (dtype, at), dtype, count);
  return storage;
}

const float *
exec_cpu_read_ref (const ExecArgs *args, guint operand, guint64 at, guint64 count, float *storage)
{
  return exec_cpu_read (args->ptr[operand], args->dtype[operand], at, count, storage);
}

void
exec_cpu_write (void *array, PlanDtype dtype, guint64 at, guint64 count, const float *values)
{
  exec_number_narrow ((guint8 *)array + plan_dtype_bytes (dtype, at), dtype, values, count);
}

void
exec_cpu_write_ref (const ExecArgs *args, guint operand, guint64 at, guint64 count,
                    const float *values)
{
  exec_cpu_write (args->ptr[operand], args->dtype[operand], at, count, values);
}

/* Rounding keeps the order of numbers, so the largest magnitude is rounded after it is found. */
void
exec_cpu_raise (const ExecArgs *args, guint operand, guint amax, guint64 count, const float *values)
{
  float *raised = args->ptr[amax], max, rounded, storage;

  if (raised == NULL)
    return;
  max = exec_number_largest (values, count);
  exec_cpu_write (&rounded, args->dtype[operand], 0, 1, &max);
  max = *exec_cpu_read (&rounded, args->dtype[operand], 0, 1, &storage);
  exec_pool_lock ();
  if (!(max <= *raised) && !isnan (*raised))
    *raised = max;
  exec_pool_unlock ();
}

void
exec_cpu_write_raising (const ExecArgs *args, guint operand, guint amax, guint64 at, guint64 count,
                        const float *values)
{
  exec_cpu_write_ref (args, operand, at, count, values);
  exec_cpu_raise (args, operand, amax, count, values);
}

/* --- work divided among the threads of a rank --------------------------------------------- */

#define PART EXEC_CPU_PART
#define PART_COLUMNS 64 /* fewest columns per thread: a few cache lines */

typedef struct
{
  const ExecArgs *args;
  ExecCpuRange run;
  guint64 count, grain;
} Spread;

static void
run_range (gpointer data, guint64 part, guint worker)
{
  const Spread *self = data;
  const guint64 from = part * self->grain;

  self->run (self->args, from, MIN (from + self->grain, self->count));
}

static void
spread (const ExecArgs *args, guint64 count, guint64 grain, ExecCpuRange run)
{
  Spread self = { args, run, count, grain };

  exec_pool_run ((count + grain - 1) / grain, G_MAXUINT, run_range, &self);
}

void
exec_cpu_spread (const ExecArgs *args, guint64 count, guint64 width, ExecCpuRange run)
{
  spread (args, count, MAX (PART / MAX (width, 1), 1), run);
}

void
exec_cpu_spread_columns (const ExecArgs *args, guint64 rows, guint64 cols, ExecCpuRange run)
{
  const guint64 grain = PART / MAX (rows, 1) / PART_COLUMNS * PART_COLUMNS;

  spread (args, cols, CLAMP (grain, PART_COLUMNS, BLOCK), run);
}
