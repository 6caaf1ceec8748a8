/* SPDX-License-Identifier: Apache-2.0 */
/* Products of factors whose blocks share scales, on a fake Blackwell: quantised there, multiplied
 * by cuBLASLt or the plain kernel, and compared with the CPU's product of the same numbers. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cuda/cuda-check.h"
#include "exec/cuda/gemm-lt.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/number/number.h"
#include "tests/fake/cuda-fake.h"
#include "tests/share.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum
{
  OUT,
  A,
  B,
  N_OPERANDS
};

/* Where the second factor has its scales: behind the elements; elsewhere; elsewhere, and by
 * columns. */
typedef enum
{
  WITH,
  APART,
  TURNED
} Place;

/* The operands on one side: in host memory, or on the device. */
typedef struct
{
  ExecArgs args;
  guint8 *amax, *scales, *columns;
  float *unit;
} Side;

typedef struct
{
  PlanDtype format; /* mxfp8 or nvfp4 */
  Place place;
  gint64 m, n, k;
  gboolean adds;
  PlanOp op;
  guint64 count[N_OPERANDS], bytes[N_OPERANDS];
  float *value[N_OPERANDS]; /* values of `out` before the product, and of the factors before they
                               are quantised, in bf16 */
  Side host, device;
} Case;

static void
must (int code)
{
  g_autoptr (GError) error = NULL;
  ck_assert_msg (exec_cuda_check (code, "test", &error), "%s", error ? error->message : "");
}

static void *
send (const void *from, guint64 bytes)
{
  void *made;
  must ((int)cudaMalloc (&made, bytes));
  must ((int)cudaMemcpy (made, from, bytes, cudaMemcpyHostToDevice));
  return made;
}

static guint
block_of (const Case *c)
{
  return plan_dtype_block (c->format);
}

/* Quantises by rows, on either side. */
static void
quantise (const Case *c, guint i, const void *in, const ExecArgs *args,
          int (*run) (const ExecArgs *args, void *stream))
{
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { (gint64)(c->count[i] / (guint64)c->k), c->k } };
  ExecArgs one = { .op = &op, .ptr = { args->ptr[i], NULL, (void *)in } };
  one.dtype[0] = c->format;
  one.dtype[2] = PLAN_DTYPE_BF16;
  one.scale[0] = args->scale[i];
  if (run)
    must (run (&one, NULL));
  else
    exec_cpu_quantize (&one);
}

/* Quantises as for a parameter that is gathered: [n, k], or [k, n] where its columns are read. */
static void
quantise_param (const Case *c, const void *in, const Side *side, gboolean on_device)
{
  const guint64 rows = (guint64)(c->place == TURNED ? c->k : c->n), count = c->count[B];
  PlanOp amax = { .kind = PLAN_OP_PARAM_AMAX,
                  .dims = { (gint64)count, (gint64)(2 * count / block_of (c)) } };
  PlanOp quantize = amax;
  ExecArgs args = { .op = &amax, .ptr = { side->amax, (void *)in } };
  args.param = (ExecParam){ rows, count / rows, 0, block_of (c) };
  args.dtype[0] = args.dtype[1] = PLAN_DTYPE_BF16;
  if (on_device)
    must (exec_cuda_param_amax (&args, NULL));
  else
    exec_cpu_param_amax (&args);
  quantize.kind = PLAN_OP_PARAM_QUANTIZE;
  args.op = &quantize;
  args.ptr[0] = c->place == TURNED
                    ? side->columns
                    : side->args.ptr[B]; /* the direction that the product does not read */
  args.ptr[1] = c->place == TURNED ? side->args.ptr[B] : side->columns;
  args.ptr[2] = (void *)in;
  args.ptr[3] = side->amax;
  args.ptr[4] = side->scales;
  args.dtype[0] = side->args.dtype[B];
  args.dtype[2] = args.dtype[3] = PLAN_DTYPE_BF16;
  args.scale[0] = side->args.scale[B];
  if (on_device)
    must (exec_cuda_param_quantize (&args, NULL));
  else
    exec_cpu_param_quantize (&args);
}

static void
quantise_all (const Case *c, const Side *side, gboolean on_device)
{
  for (guint i = A; i <= B; i++)
    {
      const guint64 bytes = 2 * c->count[i];
      g_autofree guint8 *narrow = g_malloc (bytes);
      exec_number_narrow (narrow, PLAN_DTYPE_BF16, c->value[i], c->count[i]);
      void *in = on_device ? send (narrow, bytes) : narrow;
      if (i == B && c->place != WITH)
        quantise_param (c, in, side, on_device);
      else
        quantise (c, i, in, &side->args, on_device ? exec_cuda_quantize : NULL);
      if (on_device)
        {
          must ((int)cudaDeviceSynchronize ());
          must ((int)cudaFree (in));
        }
    }
}

static void *
take (gboolean on_device, guint64 bytes)
{
  g_autofree guint8 *zeros = g_malloc0 (bytes);
  return on_device ? send (zeros, bytes) : g_steal_pointer (&zeros);
}

static void
take_side (Case *c, Side *side, gboolean on_device)
{
  const guint64 magnitudes = 2 * c->count[B] / block_of (c);
  side->amax = take (on_device, 2 * magnitudes);
  side->scales = take (on_device, magnitudes);
  side->columns = take (on_device, c->count[B]);
  side->unit = take (on_device, N_OPERANDS * sizeof (float));
  side->args = (ExecArgs){ .op = &c->op, .is_deterministic = TRUE };
  for (guint i = 0; i < N_OPERANDS; i++)
    {
      side->args.dtype[i] = i == OUT                        ? PLAN_DTYPE_FP32
                            : i == A || c->place == WITH    ? c->format
                            : c->format == PLAN_DTYPE_NVFP4 ? PLAN_DTYPE_E2M1
                                                            : PLAN_DTYPE_E4M3;
      c->bytes[i] = plan_dtype_bytes (side->args.dtype[i], c->count[i]);
      side->args.ptr[i] = take (on_device, c->bytes[i]);
      side->args.scale[i] = side->unit + i;
    }
  if (c->place == WITH)
    return;
  side->args.blocks[B].format = c->format;
  side->args.blocks[B].is_transposed = c->place == TURNED;
  side->args.blocks[B].scales = side->scales + (c->place == TURNED ? magnitudes / 2 : 0);
}

static void
case_init (Case *c, PlanDtype format, Place place, const gint64 dims[3], gboolean adds,
           guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  *c = (Case){ .format = format, .place = place, .m = dims[0], .n = dims[1], .k = dims[2] };
  c->adds = adds;
  c->op
      = (PlanOp){ .kind = adds ? PLAN_OP_GEMM_ADD : PLAN_OP_GEMM, .dims = { c->m, c->n, c->k, 1 } };
  c->count[OUT] = (guint64)(c->m * c->n);
  c->count[A] = (guint64)(c->m * c->k);
  c->count[B] = (guint64)(c->n * c->k);
  for (guint i = 0; i < N_OPERANDS; i++)
    {
      c->value[i] = g_new (float, c->count[i]);
      for (guint64 e = 0; e < c->count[i]; e++)
        c->value[i][e]
            = (float)(g_rand_double_range (rand, -2, 2) * pow (2, g_rand_int_range (rand, -6, 4)));
    }
  fake_cuda_reset ();
  fake_cuda_set_machine (1, (guint64)1 << 26, 10, 0);
  ck_assert (exec_cuda_gemm_open (NULL, NULL));
  take_side (c, &c->host, FALSE);
  take_side (c, &c->device, TRUE);
}

static void
clear_side (Side *side, void (*give) (void *memory))
{
  give (side->amax);
  give (side->scales);
  give (side->columns);
  give (side->unit);
  for (guint i = 0; i < N_OPERANDS; i++)
    give (side->args.ptr[i]);
}

static void
give_device (void *memory)
{
  must ((int)cudaFree (memory));
}

static void
case_clear (Case *c)
{
  clear_side (&c->host, g_free);
  clear_side (&c->device, give_device);
  for (guint i = 0; i < N_OPERANDS; i++)
    g_free (c->value[i]);
  exec_cuda_gemm_close ();
  ck_assert_str_eq (fake_cuda_finish (), "");
}

/* A factor as the CPU reads it: [rows, k] in fp32. */
static float *
image_of (const Case *c, guint i)
{
  const ExecArgs *args = &c->host.args;
  float *image = g_new (float, c->count[i]);
  if (args->blocks[i].scales)
    exec_cpu_dequantize_apart (args, i, (guint64)c->n, (guint64)c->k, image);
  else
    exec_cpu_dequantize (args->ptr[i], args->dtype[i], args->scale[i], c->count[i] / (guint64)c->k,
                         (guint64)c->k, image);
  return image;
}

/* Compares with sums in double. A term is rounded up to twice where its scales are multiplied in,
 * and once in each of k sums; the result is rounded three times. */
static void
check_result (const Case *c)
{
  g_autofree float *a = image_of (c, A), *b = image_of (c, B);
  g_autofree float *found = g_new (float, c->count[OUT]);
  must ((int)cudaDeviceSynchronize ());
  must ((int)cudaMemcpy (found, c->device.args.ptr[OUT], c->bytes[OUT], cudaMemcpyDeviceToHost));
  for (gint64 row = 0; row < c->m; row++)
    for (gint64 col = 0; col < c->n; col++)
      {
        const gint64 at = row * c->n + col;
        double want = c->adds ? (double)c->value[OUT][at] : 0, size = fabs (want);
        for (gint64 p = 0; p < c->k; p++)
          {
            const double term = (double)a[row * c->k + p] * (double)b[col * c->k + p];
            want += term;
            size += fabs (term);
          }
        ck_assert_msg (fabs ((double)found[at] - want) <= (double)(c->k + 6) * 0x1p-24 * size,
                       "[%d, %d] is %.9g instead of %.9g", (int)row, (int)col, (double)found[at],
                       want);
      }
}

static void
check_product (PlanDtype format, Place place, const gint64 dims[3], gboolean adds, guint32 seed,
               gboolean is_cublaslts)
{
  Case c;
  case_init (&c, format, place, dims, adds, seed);
  quantise_all (&c, &c.host, FALSE);
  quantise_all (&c, &c.device, TRUE);
  must (
      (int)cudaMemcpy (c.device.args.ptr[OUT], c.value[OUT], c.bytes[OUT], cudaMemcpyHostToDevice));
  for (guint turn = 0; turn < (adds ? 1 : 2); turn++) /* the second time the algorithm is cached */
    must (adds ? exec_cuda_gemm_add (&c.device.args, NULL) : exec_cuda_gemm (&c.device.args, NULL));
  ck_assert_msg ((strstr (fake_cuda_log (), "gemm_plain") == NULL) == is_cublaslts, "%s",
                 fake_cuda_log ());
  check_result (&c);
  case_clear (&c);
}

/* Where tiles are whole cuBLASLt reads them in place, but no transposed operand of nvfp4. */
START_TEST (whole_tiles_are_read_where_they_lie)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const PlanDtype format = _i % 2 ? PLAN_DTYPE_NVFP4 : PLAN_DTYPE_MXFP8;
  const Place place = (Place)(_i / 2 % 3);
  const gint64 dims[] = { 128 * g_rand_int_range (rand, 1, 3), 128 * g_rand_int_range (rand, 1, 3),
                          128 * g_rand_int_range (rand, 1, 4) };
  check_product (format, place, dims, _i / 6 % 2, (guint32)_i,
                 format == PLAN_DTYPE_MXFP8 || place != TURNED);
}
END_TEST

START_TEST (other_sizes_are_the_plain_kernels)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 dims[] = { 32 * g_rand_int_range (rand, 1, 5), 32 * g_rand_int_range (rand, 1, 4),
                          32 * g_rand_int_range (rand, 1, 8) };
  const gboolean is_whole = dims[0] % 128 == 0 && dims[1] % 128 == 0 && dims[2] % 128 == 0;
  if (!is_whole)
    check_product (_i % 2 ? PLAN_DTYPE_NVFP4 : PLAN_DTYPE_MXFP8, (Place)(_i / 2 % 3), dims,
                   _i / 6 % 2, (guint32)_i, FALSE);
}
END_TEST

/* cuBLASLt wants scales aligned to 16 bytes: those behind a parameter of odd size are not. */
START_TEST (scales_off_their_bytes_are_the_plain_kernels)
{
  const gint64 dims[] = { 128, 128, 128 };
  const guint64 magnitudes = 2 * 128 * 128 / 32;
  Case c;
  case_init (&c, PLAN_DTYPE_MXFP8, APART, dims, FALSE, 1);
  give_device (c.device.scales);
  guint8 *moved = take (TRUE, magnitudes + 8);
  c.device.scales = moved + 8;
  c.device.args.blocks[B].scales = c.device.scales;
  quantise_all (&c, &c.host, FALSE);
  quantise_all (&c, &c.device, TRUE);
  must (exec_cuda_gemm (&c.device.args, NULL));
  ck_assert (strstr (fake_cuda_log (), "gemm_plain") != NULL);
  check_result (&c);
  c.device.scales = moved;
  case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-blocks");
  TCase *tcase = tcase_create ("blocks");
  tcase_set_timeout (tcase, 120);
  test_add_runs (tcase, whole_tiles_are_read_where_they_lie, 24);
  test_add_runs (tcase, other_sizes_are_the_plain_kernels, 24);
  tcase_add_test (tcase, scales_off_their_bytes_are_the_plain_kernels);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
