/* SPDX-License-Identifier: Apache-2.0 */
/* Products of e4m3 in blocks of 128 elements and in squares of that side, on a fake Hopper:
 * quantised there, multiplied by cuBLASLt in each pair that training has, and compared with sums in
 * double of what the CPU quantised. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cuda/cuda-check.h"
#include "exec/cuda/gemm-lt.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/number/number.h"
#include "tests/fake/cuda-fake.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the second factor is: a copy of a weight; a weight as it is gathered, with its scales
 * elsewhere; an activation, where the first factor is its gradient. */
typedef enum
{
  COPY,
  GATHERED,
  ACTIVATION,
  N_KINDS
} Kind;

typedef struct
{
  Kind kind;
  gint64 m, n, k;
  guint64 count[3];
  float *image[3];   /* the values: of `out` before the product, of the factors as the CPU's codes
                        mean them */
  guint8 *memory[3]; /* on the device */
  guint8 *scales;    /* scales of the gathered weight */
  PlanOp op;
  ExecArgs args;
} Case;

static void
must (int code)
{
  g_autoptr (GError) error = NULL;
  ck_assert_msg (exec_cuda_check (code, "test", &error), "%s", error ? error->message : "");
}

static guint8 *
send (const void *from, guint64 bytes)
{
  void *made;
  must ((int)cudaMalloc (&made, bytes));
  must ((int)cudaMemcpy (made, from, bytes, cudaMemcpyHostToDevice));
  return made;
}

static guint8 *
take (guint64 bytes)
{
  g_autofree guint8 *zeros = g_malloc0 (bytes);
  return send (zeros, bytes);
}

static float *
draw (guint64 count, GRand *rand)
{
  float *values = g_new (float, count);
  for (guint64 i = 0; i < count; i++)
    values[i]
        = (float)(g_rand_double_range (rand, -2, 2) * pow (2, g_rand_int_range (rand, -9, 9)));
  return values;
}

static PlanDtype
format_of (const Case *c, guint i)
{
  return i == 1 || c->kind == ACTIVATION ? PLAN_DTYPE_FP8_1X128 : PLAN_DTYPE_FP8_128X128;
}

/* Quantises a factor on the device, and sets what the CPU's codes mean. */
static void
take_factor (Case *c, guint i, GRand *rand)
{
  const gint64 rows = i == 1 ? c->m : c->n;
  const PlanDtype format = format_of (c, i);
  const guint64 count = (guint64)(rows * c->k), bytes = plan_dtype_bytes (format, count);
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { rows, c->k } };
  g_autofree guint8 *codes = g_malloc0 (bytes);
  c->count[i] = count;
  c->image[i] = draw (count, rand);
  ExecArgs args = { .op = &op, .ptr = { codes, NULL, c->image[i] } };
  args.dtype[0] = format;
  exec_cpu_quantize (&args);
  void *in = send (c->image[i], count * sizeof (float));
  c->memory[i] = take (bytes);
  args.ptr[0] = c->memory[i];
  args.ptr[2] = in;
  must (exec_cuda_quantize (&args, NULL));
  must ((int)cudaDeviceSynchronize ());
  must ((int)cudaFree (in));
  exec_cpu_dequantize (codes, format, NULL, (guint64)rows, (guint64)c->k, c->image[i]);
  c->args.ptr[i] = c->memory[i];
  c->args.dtype[i] = format;
}

/* Moves the scales elsewhere, as a gathered parameter has them; the codes stay. */
static void
take_scales_apart (Case *c)
{
  const guint64 bytes = sizeof (float) * plan_dtype_square_scales ((guint64)c->n, (guint64)c->k);
  c->scales = take (bytes);
  must ((int)cudaMemcpy (c->scales, c->memory[2] + c->count[2], bytes, cudaMemcpyDeviceToDevice));
  must ((int)cudaDeviceSynchronize ());
  c->args.dtype[2] = PLAN_DTYPE_E4M3;
  c->args.blocks[2] = (ExecBlocks){ .scales = c->scales, .format = PLAN_DTYPE_FP8_128X128 };
}

static void
case_init (Case *c, Kind kind, gboolean adds, GRand *rand)
{
  *c = (Case){ .kind = kind };
  c->m = 128 * g_rand_int_range (rand, 1, 3);
  c->n = 128 * g_rand_int_range (rand, 1, 4);
  c->k = 128 * g_rand_int_range (rand, 1, 7);
  c->op
      = (PlanOp){ .kind = adds ? PLAN_OP_GEMM_ADD : PLAN_OP_GEMM, .dims = { c->m, c->n, c->k, 1 } };
  c->args = (ExecArgs){ .op = &c->op, .is_deterministic = TRUE };
  fake_cuda_reset ();
  fake_cuda_find_races (TRUE);
  fake_cuda_set_machine (1, (guint64)1 << 26, 9, 0);
  ck_assert (exec_cuda_gemm_open (NULL, NULL));
  c->count[0] = (guint64)(c->m * c->n);
  c->image[0] = draw (c->count[0], rand);
  c->memory[0] = send (c->image[0], c->count[0] * sizeof (float));
  c->args.ptr[0] = c->memory[0];
  take_factor (c, 1, rand);
  take_factor (c, 2, rand);
  if (kind == GATHERED)
    take_scales_apart (c);
}

static void
case_clear (Case *c)
{
  for (guint i = 0; i < 3; i++)
    {
      must ((int)cudaFree (c->memory[i]));
      g_free (c->image[i]);
    }
  if (c->scales)
    must ((int)cudaFree (c->scales));
  exec_cuda_gemm_close ();
  ck_assert_str_eq (fake_cuda_finish (), "");
}

/* Scales are powers of two, so terms are exact; k sums are rounded, and the result three times. */
static void
check_result (const Case *c, gboolean adds)
{
  g_autofree float *found = g_new (float, c->count[0]);
  must ((int)cudaDeviceSynchronize ());
  must (
      (int)cudaMemcpy (found, c->memory[0], c->count[0] * sizeof (float), cudaMemcpyDeviceToHost));
  for (gint64 row = 0; row < c->m; row++)
    for (gint64 col = 0; col < c->n; col++)
      {
        const gint64 at = row * c->n + col;
        double want = adds ? (double)c->image[0][at] : 0, size = fabs (want);
        for (gint64 p = 0; p < c->k; p++)
          {
            const double term
                = (double)c->image[1][row * c->k + p] * (double)c->image[2][col * c->k + p];
            want += term;
            size += fabs (term);
          }
        ck_assert_msg (fabs ((double)found[at] - want) <= (double)(c->k + 4) * 0x1p-24 * size,
                       "[%d, %d] is %.9g instead of %.9g", (int)row, (int)col, (double)found[at],
                       want);
      }
}

START_TEST (every_pair_is_cublaslts)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gboolean adds = _i / N_KINDS % 2;
  Case c;
  case_init (&c, (Kind)(_i % N_KINDS), adds, rand);
  for (guint turn = 0; turn < (adds ? 1 : 2); turn++) /* the second time the algorithm is cached */
    must (adds ? exec_cuda_gemm_add (&c.args, NULL) : exec_cuda_gemm (&c.args, NULL));
  ck_assert_msg (!strstr (fake_cuda_log (), "gemm_plain"), "%s", fake_cuda_log ());
  check_result (&c, adds);
  case_clear (&c);
}
END_TEST

/* The plain kernels make the same results. */
START_TEST (plain_kernels_agree)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gboolean adds = _i / N_KINDS % 2;
  Case c;
  case_init (&c, (Kind)(_i % N_KINDS), adds, rand);
  must (adds ? exec_cuda_gemm_add_plain (&c.args, NULL) : exec_cuda_gemm_plain (&c.args, NULL));
  check_result (&c, adds);
  case_clear (&c);
}
END_TEST

/* Blocks lie along the inner dimension: other layouts would not have whole blocks there. */
START_TEST (other_layouts_are_refused)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  Case c;
  case_init (&c, COPY, FALSE, rand);
  c.op.dims[3] = _i == 0 ? 0 : 2;
  ck_assert_int_ne (exec_cuda_gemm_plain (&c.args, NULL), 0);
  ck_assert_int_ne (exec_cuda_gemm (&c.args, NULL), 0);
  case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-squares");
  TCase *tcase = tcase_create ("squares");
  tcase_set_timeout (tcase, 120);
  tcase_add_loop_test (tcase, every_pair_is_cublaslts, 0, 4 * N_KINDS);
  tcase_add_loop_test (tcase, plain_kernels_agree, 0, 2 * N_KINDS);
  tcase_add_loop_test (tcase, other_layouts_are_refused, 0, 2);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
