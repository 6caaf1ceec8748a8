/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of experts, and what quantises their factors, compared with plain loops and with kernels
 * that do the matrix of each expert alone. */
#include "config.h"

#include "exec/number/number.h"
#include "tests/unit/test-kernels-operands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One expert's product by layout: a [rows, k] b [n, k]^T; a [rows, k] b [k, n]; a [rows, m]^T b
 * [rows, n]. */
static void
slow_product (gint64 layout, gint64 rows, gint64 n, gint64 k, const double *a, const double *b,
              double *out)
{
  const gint64 high = layout == 2 ? k : rows, depth = layout == 2 ? rows : k;

  for (gint64 i = 0; i < high; i++)
    for (gint64 j = 0; j < n; j++)
      for (gint64 p = 0; p < depth; p++)
        out[i * n + j] += (layout == 2 ? a[p * high + i] : a[i * depth + p])
                          * (layout == 1 ? b[j * depth + p] : b[p * n + j]);
}

/* In every third round experts have equally many rows, which nothing counts. */
START_TEST (products_are_those_of_each_expert)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 layout = _i % 3, groups = between (rand, 1, 6), n = between (rand, 1, 40);
  const gint64 k = between (rand, 1, 40); /* in layout 2, rows of the result */
  const gboolean adds = layout == 2 && _i % 2 == 1;
  const gboolean is_counted = _i / 3 % 3 != 0;
  const PlanDtype format = format_of (_i / 2);
  g_auto (Tensor) counts = tensor_tokens (rand, (guint64)groups, 0, 9);
  gint32 *count = counts.data;
  gint64 rows = 0;

  count[0] = groups > 1 && is_counted ? 0 : count[0] + 1;
  for (gint64 g = 0; g < groups; g++)
    rows += count[g] = is_counted ? count[g] : count[0];
  const gint64 dims[] = { layout == 2 ? k : rows, n, layout == 2 ? rows : k, layout, groups };
  const guint64 out_count = (guint64)(layout == 2 ? groups * k * n : rows * n);
  g_auto (Tensor) a = tensor_random (rand, format, (guint64)(rows * k), 1);
  g_auto (Tensor) b
      = tensor_random (rand, format, (guint64)(layout == 2 ? rows * n : groups * k * n), 1);
  g_auto (Tensor) out = adds ? tensor_random (rand, PLAN_DTYPE_FP32, out_count, 1)
                             : tensor_blank (format, out_count);
  g_autofree double *want = g_new0 (double, out_count + 1);

  for (guint64 i = 0; adds && i < out_count; i++)
    want[i] = out.value[i];
  for (gint64 g = 0, row = 0; g < groups; row += count[g++])
    slow_product (layout, count[g], n, k, a.value + row * k,
                  b.value + (layout == 2 ? row * n : g * k * n),
                  want + (layout == 2 ? g * k * n : row * n));
  run_kernel (adds ? PLAN_OP_GROUPED_GEMM_ADD : PLAN_OP_GROUPED_GEMM,
              OPERANDS (&out, &a, &b, is_counted ? &counts : NULL), dims, format);
  check_close (&out, want, 1e-6, "grouped_gemm");
}
END_TEST

/* Formats of factors: the multiple of rows of which a block consists, and the scale of all. */
static const struct
{
  PlanDtype dtype;
  gint64 block;
  gboolean has_scale;
} formats[] = {
  { PLAN_DTYPE_E4M3, 1, TRUE },         { PLAN_DTYPE_E5M2, 1, TRUE },
  { PLAN_DTYPE_MXFP8, 32, FALSE },      { PLAN_DTYPE_NVFP4, 16, TRUE },
  { PLAN_DTYPE_FP8_1X128, 128, FALSE }, { PLAN_DTYPE_FP8_128X128, 128, FALSE },
};

#define MAX_GROUPS 4

/* Quantises the matrix of one expert alone, and compares. */
static void
check_alone (PlanDtype dtype, gint64 rows, gint64 cols, const Tensor *in, guint64 first,
             const Tensor *both, const float *scales, gboolean has_scale)
{
  const guint64 count = (guint64)(rows * cols), bytes = plan_dtype_bytes (dtype, count);
  const Tensor own
      = { in->dtype, count, (guint8 *)in->data + plan_dtype_bytes (in->dtype, first), NULL, NULL };
  float scale[2] = { 0, 0 };

  for (guint i = 0; i < 2 && rows > 0; i++)
    {
      g_auto (Tensor) out = tensor_blank (dtype, count), other = tensor_blank (dtype, count);
      Tensor *const as[] = { i == 0 ? &out : &other, i == 0 ? &other : &out };

      memset (out.data, 0, bytes); /* as those before: not all bytes of a row of squares are used */
      as[0]->scale = &scale[0];
      as[1]->scale = &scale[1];
      run_kernel (PLAN_OP_QUANTIZE, OPERANDS (as[0], as[1], &own), (gint64[]){ rows, cols },
                  PLAN_DTYPE_BF16);
      ck_assert_mem_eq ((guint8 *)both[i].data + plan_dtype_bytes (dtype, first), out.data, bytes);
      ck_assert (!has_scale || scales[i * MAX_GROUPS] == scale[i]);
      out.scale = other.scale = NULL;
    }
}

/* Rows of experts, of which some have none; and weights, which are equally many. */
START_TEST (matrices_are_quantised_by_themselves)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint f = (guint)_i % G_N_ELEMENTS (formats);
  const gint64 block = formats[f].block, groups = between (rand, 1, MAX_GROUPS);
  const gint64 cols = block * between (rand, 1, block > 32 ? 2 : 5), most = block > 32 ? 2 : 6;
  const gboolean is_counted = _i / 6 % 2 == 0;
  g_auto (Tensor) counts = tensor_tokens (rand, (guint64)groups, 0, (gint32)most);
  float scales[2 * MAX_GROUPS] = { 0 };
  gint32 *count = counts.data;
  gint64 rows = 0;

  count[groups - 1] += 1;
  for (gint64 g = 0; g < groups; g++)
    {
      count[g] = (gint32)block * (is_counted ? count[g] : count[groups - 1]);
      rows += count[g];
    }
  g_auto (Tensor) in = tensor_random (rand, PLAN_DTYPE_BF16, (guint64)(rows * cols), 1);
  Tensor both[]
      = { tensor_blank (formats[f].dtype, in.count), tensor_blank (formats[f].dtype, in.count) };

  for (guint i = 0; i < 2; i++)
    {
      memset (both[i].data, 0, plan_dtype_bytes (formats[f].dtype, in.count));
      both[i].scale = scales + i * MAX_GROUPS;
    }
  run_kernel (PLAN_OP_GROUPED_QUANTIZE,
              OPERANDS (&both[0], &both[1], &in, is_counted ? &counts : NULL),
              (gint64[]){ rows, cols, groups }, PLAN_DTYPE_BF16);
  for (gint64 g = 0, row = 0; g < groups; row += count[g++])
    check_alone (formats[f].dtype, count[g], cols, &in, (guint64)(row * cols), both, scales + g,
                 formats[f].has_scale);
  for (guint i = 0; i < 2; i++)
    {
      both[i].scale = NULL;
      tensor_clear (&both[i]);
    }
}
END_TEST

/* With a scale that is given, of all experts, their rows are quantised by it, and their largest
 * magnitude is found; rows behind those of the last expert are no expert's. */
START_TEST (a_given_scale_is_of_all_matrices)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 groups = between (rand, 1, MAX_GROUPS), cols = between (rand, 1, 30);
  g_auto (Tensor) counts = tensor_tokens (rand, (guint64)groups, 0, 6);
  g_auto (Tensor) scale = tensor_random (rand, PLAN_DTYPE_FP32, 1, 1);
  g_auto (Tensor) amax = tensor_blank (PLAN_DTYPE_FP32, 1);
  float scales[2 * MAX_GROUPS] = { 0 }, most = 0;
  gint32 *count = counts.data;
  gint64 rows = 0;

  count[0] += 1;
  for (gint64 g = 0; g < groups; g++)
    rows += count[g];
  g_auto (Tensor) in = tensor_random (rand, PLAN_DTYPE_BF16, (guint64)((rows + 2) * cols), 1);
  Tensor out = tensor_blank (PLAN_DTYPE_E4M3, in.count),
         col = tensor_blank (PLAN_DTYPE_E4M3, in.count);
  const float given = 3 + (float)_i / 7;

  *(float *)scale.data = given;
  *(float *)amax.data = 0;
  out.scale = scales;
  col.scale = scales + MAX_GROUPS;
  run_kernel (PLAN_OP_GROUPED_QUANTIZE, OPERANDS (&out, &col, &in, &counts, &scale, &amax),
              (gint64[]){ rows + 2, cols, groups }, PLAN_DTYPE_BF16);
  for (gint64 g = 0, first = 0; g < groups; first += count[g++] * cols)
    for (gint64 i = 0; i < count[g] * cols; i++)
      {
        const float value = (float)tensor_get (&in, (guint64)(first + i));
        const gint64 turned = first + i % cols * count[g] + i / cols;
        guint8 want;

        exec_number_narrow_scaled (&want, PLAN_DTYPE_E4M3, &(float){ value * given }, 1, 1);
        ck_assert_uint_eq (((guint8 *)out.data)[first + i], want);
        ck_assert_uint_eq (((guint8 *)col.data)[turned], want);
        most = fmaxf (most, fabsf (value));
      }
  ck_assert (*(float *)amax.data == most);
  for (gint64 g = 0; g < groups; g++)
    ck_assert (count[g] == 0
               || (scales[g] == 1.0f / given && scales[MAX_GROUPS + g] == 1.0f / given));
  out.scale = col.scale = NULL;
  tensor_clear (&out);
  tensor_clear (&col);
}
END_TEST

/* A tensor of e4m3 numbers, none of which is NaN, and a scale for each group. */
static Tensor
narrow_random (GRand *rand, guint64 count, float *scales)
{
  Tensor self = tensor_blank (PLAN_DTYPE_E4M3, count);

  for (guint64 i = 0; i < count; i++)
    ((guint8 *)self.data)[i] = (guint8)(g_rand_int_range (rand, 0, 0x7f) | (i % 3 == 0 ? 0x80 : 0));
  for (guint g = 0; g < MAX_GROUPS; g++)
    scales[g] = (float)g_rand_double_range (rand, 0.01, 2);
  self.scale = scales;
  return self;
}

/* Weights of experts are transposed expert by expert, with a scale each, or those of its squares,
 * which lie behind the expert's numbers. */
START_TEST (matrices_are_transposed_by_themselves)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gboolean has_squares = _i % 4 == 0;
  const PlanDtype dtype = has_squares ? PLAN_DTYPE_FP8_128X128 : PLAN_DTYPE_E4M3;
  const gint64 groups = between (rand, 1, MAX_GROUPS), side = has_squares ? 128 : 1;
  const gint64 rows = side * between (rand, 1, has_squares ? 2 : 20),
               cols = side * between (rand, 1, has_squares ? 3 : 20);
  const guint64 each = plan_dtype_bytes (dtype, (guint64)(rows * cols));
  const guint64 down = plan_dtype_squares_apart ((guint64)cols),
                across = plan_dtype_squares_apart ((guint64)rows);
  Tensor in = tensor_blank (dtype, (guint64)(groups * rows * cols)),
         out = tensor_blank (dtype, in.count);
  float scales[2 * MAX_GROUPS] = { 0 };

  for (guint64 i = 0; i < each * (guint64)groups; i++)
    ((guint8 *)in.data)[i] = (guint8)g_rand_int_range (rand, 0, 0x40);
  for (guint g = 0; g < MAX_GROUPS; g++)
    scales[g] = (float)g_rand_double_range (rand, 0.01, 2);
  in.scale = scales;
  out.scale = scales + MAX_GROUPS;
  run_kernel (PLAN_OP_GROUPED_TRANSPOSE, OPERANDS (&out, &in),
              (gint64[]){ groups * rows, cols, groups }, PLAN_DTYPE_BF16);
  for (gint64 g = 0; g < groups; g++)
    {
      const guint8 *from = (const guint8 *)in.data + (guint64)g * each;
      const guint8 *to = (const guint8 *)out.data + (guint64)g * each;
      const float *before = (gconstpointer)(from + rows * cols),
                  *after = (gconstpointer)(to + rows * cols);

      for (gint64 i = 0; i < rows * cols; i++)
        ck_assert_uint_eq (to[i % cols * rows + i / cols], from[i]);
      for (guint64 r = 0; has_squares && r < (guint64)rows / 128; r++)
        for (guint64 c = 0; c < (guint64)cols / 128; c++)
          ck_assert_mem_eq (&after[c * across + r], &before[r * down + c], sizeof *after);
      ck_assert (has_squares || scales[MAX_GROUPS + g] == scales[g]);
    }
  in.scale = out.scale = NULL;
  tensor_clear (&in);
  tensor_clear (&out);
}
END_TEST

/* Gradients of weights from transposed copies, whose scales differ from expert to expert. */
START_TEST (gradients_are_of_transposed_copies)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 groups = between (rand, 1, MAX_GROUPS), m = between (rand, 1, 20),
               n = between (rand, 1, 20);
  g_auto (Tensor) counts = tensor_tokens (rand, (guint64)groups, 0, 9);
  const gint32 *count = counts.data;
  float a_scales[MAX_GROUPS], b_scales[MAX_GROUPS];
  gint64 rows = 0;

  for (gint64 g = 0; g < groups; g++)
    rows += count[g];
  Tensor a = narrow_random (rand, (guint64)(rows * m), a_scales),
         b = narrow_random (rand, (guint64)(rows * n), b_scales);
  g_auto (Tensor) out = tensor_blank (PLAN_DTYPE_FP32, (guint64)(groups * m * n));
  g_autofree double *want = g_new0 (double, (gsize)(groups * m * n));

  for (gint64 g = 0, row = 0; g < groups; row += count[g++])
    for (gint64 i = 0; i < m; i++)
      for (gint64 j = 0; j < n; j++)
        for (gint64 p = 0; p < count[g]; p++)
          want[(g * m + i) * n + j]
              += (double)exec_number_from_e4m3 (((guint8 *)a.data)[row * m + i * count[g] + p])
                 * (double)exec_number_from_e4m3 (((guint8 *)b.data)[row * n + j * count[g] + p])
                 * (double)a_scales[g] * (double)b_scales[g];
  run_kernel (PLAN_OP_GROUPED_GEMM, OPERANDS (&out, &a, &b, &counts),
              (gint64[]){ m, n, rows, 3, groups }, PLAN_DTYPE_E4M3);
  check_close (&out, want, 1e-6, "gradients");
  a.scale = b.scale = NULL;
  tensor_clear (&a);
  tensor_clear (&b);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("test-kernels-grouped");
  TCase *tcase = kernels_case ("grouped");
  exec_kernels_cpu.open (NULL);
  tcase_add_loop_test (tcase, products_are_those_of_each_expert, 0, 60);
  tcase_add_loop_test (tcase, matrices_are_quantised_by_themselves, 0, 48);
  tcase_add_loop_test (tcase, a_given_scale_is_of_all_matrices, 0, 30);
  tcase_add_loop_test (tcase, matrices_are_transposed_by_themselves, 0, 24);
  tcase_add_loop_test (tcase, gradients_are_of_transposed_copies, 0, 20);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
