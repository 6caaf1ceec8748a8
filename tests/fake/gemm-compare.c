/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/gemm-compare.h"

#include "exec/cuda/cuda-check.h"
#include "exec/cuda/gemm-lt.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/number/number.h"
#include "planner/base/units.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>

enum
{
  OUT,
  A,
  B,
  WORK = 4
};

#define WORK_BYTES (33 * PLAN_MIB)
#define PATTERN 65521 /* the period of the numbers: a prime, which no matrix has */
#define ROWS 64       /* rows of the results that are compared */

static void
must (int code)
{
  g_autoptr (GError) error = NULL;

  ck_assert_msg (exec_cuda_check (code, "a product", &error), "%s",
                 error != NULL ? error->message : "");
}

static void *
take (guint64 bytes)
{
  void *made;

  must ((int)cudaMalloc (&made, bytes));
  return made;
}

/* Allocates an array of random numbers between -1 and 1 on the device. */
static void *
take_numbers (PlanDtype dtype, guint64 count, guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_autofree float *values = g_new (float, PATTERN);
  g_autofree guint8 *narrow = g_malloc (plan_dtype_bytes (dtype, PATTERN));
  guint8 *made = take (plan_dtype_bytes (dtype, count));

  for (guint i = 0; i < PATTERN; i++)
    values[i] = (float)g_rand_double_range (rand, -1, 1);
  exec_number_narrow (narrow, dtype, values, PATTERN);
  for (guint64 at = 0; at < count; at += PATTERN)
    must ((int)cudaMemcpy (made + plan_dtype_bytes (dtype, at), narrow,
                           plan_dtype_bytes (dtype, MIN (PATTERN, count - at)),
                           cudaMemcpyHostToDevice));
  return made;
}

static float *
first_rows (const ExecArgs *args)
{
  const guint64 count = (guint64)(MIN (args->op->dims[0], ROWS) * args->op->dims[1]);
  g_autofree guint8 *narrow = g_malloc (plan_dtype_bytes (args->dtype[OUT], count));
  float *values = g_new (float, count);

  must ((int)cudaDeviceSynchronize ());
  must ((int)cudaMemcpy (narrow, args->ptr[OUT], plan_dtype_bytes (args->dtype[OUT], count),
                         cudaMemcpyDeviceToHost));
  exec_number_widen (values, narrow, args->dtype[OUT], count);
  return values;
}

/* The norm of the difference of the two results, as a share of the plain one's norm. */
static double
distance (const ExecArgs *args)
{
  const guint64 count = (guint64)(MIN (args->op->dims[0], ROWS) * args->op->dims[1]);
  double apart = 0, all = 0;
  g_autofree float *found = first_rows (args);

  must (exec_cuda_gemm_plain (args, NULL));
  g_autofree float *plain = first_rows (args);
  for (guint64 i = 0; i < count; i++)
    {
      apart += pow ((double)found[i] - (double)plain[i], 2);
      all += pow ((double)plain[i], 2);
    }
  return isnan (apart) ? INFINITY : sqrt (apart / all);
}

static double
time_calls (const ExecArgs *args, guint repeats)
{
  cudaEvent_t begin, end;
  float ms = 0;

  must ((int)cudaEventCreate (&begin));
  must ((int)cudaEventCreate (&end));
  must (exec_cuda_gemm (args, NULL));
  must ((int)cudaEventRecord (begin, NULL));
  for (guint i = 0; i < repeats; i++)
    must (exec_cuda_gemm (args, NULL));
  must ((int)cudaEventRecord (end, NULL));
  must ((int)cudaEventSynchronize (end));
  must ((int)cudaEventElapsedTime (&ms, begin, end));
  must ((int)cudaEventDestroy (begin));
  must ((int)cudaEventDestroy (end));
  return (double)ms / repeats;
}

void
gemm_compare (const GemmCase *c, guint repeats, FILE *out)
{
  /* Both sum in fp32, in different orders, and round once. */
  const double bound = c->out == PLAN_DTYPE_BF16   ? 0x1p-8
                       : c->out == PLAN_DTYPE_FP16 ? 0x1p-11
                                                   : 1e-4;
  PlanOp op = { .kind = PLAN_OP_GEMM, .dims = { c->m, c->n, c->k, c->layout } };
  g_autoptr (GError) error = NULL;
  ExecArgs args = { .op = &op, .scratch_bytes = WORK_BYTES };

  ck_assert_msg (exec_cuda_gemm_open (NULL, &error), "%s", error != NULL ? error->message : "");
  args.dtype[OUT] = c->out;
  args.dtype[A] = args.dtype[B] = c->factors;
  args.ptr[OUT] = take (plan_dtype_bytes (c->out, (guint64)(c->m * c->n)));
  args.ptr[A] = take_numbers (c->factors, (guint64)(c->m * c->k), 1);
  args.ptr[B] = take_numbers (c->factors, (guint64)(c->k * c->n), 2);
  args.ptr[WORK] = take (WORK_BYTES);
  const double ms = time_calls (&args, repeats), off = distance (&args);
  fprintf (out,
           "# gemm %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
           " layout %" G_GINT64_FORMAT " %s to %s: %.3f ms %.0f TFLOP/s, off by %.1g\n",
           c->m, c->n, c->k, c->layout, plan_dtype_name (c->factors), plan_dtype_name (c->out), ms,
           2 * (double)c->m * (double)c->n * (double)c->k / ms / 1e9, off);
  for (guint i = OUT; i <= WORK; i++)
    must ((int)cudaFree (args.ptr[i]));
  exec_cuda_gemm_close ();
  ck_assert_double_le (off, bound);
}
