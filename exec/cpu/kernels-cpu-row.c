/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over a row that several kernels need. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"

#define LANES EXEC_CPU_LANES

/* NaNs are ignored. */
EXEC_WIDE float
exec_cpu_largest (const float *in, guint64 count)
{
  float lane[LANES], max = -INFINITY;
  guint64 i = 0;

  for (guint l = 0; l < LANES; l++)
    lane[l] = -INFINITY;
  for (; i + LANES <= count; i += LANES)
    for (guint l = 0; l < LANES; l++)
      lane[l] = in[i + l] > lane[l] ? in[i + l] : lane[l];
  for (; i < count; i++)
    max = in[i] > max ? in[i] : max;
  for (guint l = 0; l < LANES; l++)
    max = lane[l] > max ? lane[l] : max;
  return max;
}

/* out = exp (in * scale - minus), and `sum` += out, in lanes; `out` may be `in`. */
EXEC_WIDE void
exec_cpu_exp_row (float *out, const float *in, guint64 count, float scale, float minus,
                  float sum[LANES])
{
  float lane[LANES];
  guint64 i = 0;

  memcpy (lane, sum, sizeof lane);
  for (; i + LANES <= count; i += LANES)
    {
      float value[LANES];

      for (guint l = 0; l < LANES; l++)
        value[l] = EXEC_CPU_EXP (in[i + l] * scale - minus);
      for (guint l = 0; l < LANES; l++)
        lane[l] += value[l];
      memcpy (out + i, value, sizeof value);
    }
  for (; i < count; i++)
    {
      out[i] = EXEC_CPU_EXP (in[i] * scale - minus);
      lane[i % LANES] += out[i];
    }
  memcpy (sum, lane, sizeof lane);
}

EXEC_WIDE void
exec_cpu_divide_row (float *row, guint64 count, float divisor)
{
  for (guint64 i = 0; i < count; i++)
    row[i] /= divisor;
}

EXEC_WIDE void
exec_cpu_add_products (float sum[LANES], const float *a, const float *b, guint64 count)
{
  float lane[LANES];
  guint64 i = 0;

  memcpy (lane, sum, sizeof lane);
  for (; i + LANES <= count; i += LANES)
    for (guint l = 0; l < LANES; l++)
      lane[l] += a[i + l] * b[i + l];
  for (; i < count; i++)
    lane[i % LANES] += a[i] * b[i];
  memcpy (sum, lane, sizeof lane);
}
