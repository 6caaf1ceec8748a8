/* SPDX-License-Identifier: Apache-2.0 */
/* e4m3 in blocks of 128 and in squares of that side, each with an fp32 scale: where codes and
 * scales are stored, what products read, and parameters that lie in parts on several ranks. */
#include "config.h"

#include "exec/number/number.h"
#include "tests/share.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 128

/* The scale of a block: the least normal power of two that brings the magnitude to 448 or less; 1
 * for zero. */
static double
slow_scale (double max)
{
  double scale = 0x1p-126;
  if (max == 0)
    return 1;
  while (max > 448 * scale)
    scale *= 2;
  return scale;
}

/* A matrix whose codes and scales are found element by element. */
typedef struct
{
  guint64 rows, cols;
  gboolean is_square, is_transposed;
  const double *in; /* [cols, rows] where it is transposed */
} Matrix;

static double
value_at (const Matrix *self, guint64 r, guint64 c)
{
  return self->is_transposed ? self->in[c * self->rows + r] : self->in[r * self->cols + c];
}

static double
scale_at (const Matrix *self, guint64 r, guint64 c)
{
  const guint64 first = self->is_square ? r / SIDE * SIDE : r;
  double max = 0;
  for (guint64 i = first; i < first + (self->is_square ? SIDE : 1); i++)
    for (guint64 j = c / SIDE * SIDE; j < c / SIDE * SIDE + SIDE; j++)
      max = fmax (max, fabs (value_at (self, i, j)));
  return slow_scale (max);
}

/* The place of a scale, in cuBLASLt's layout: for vectors all rows' scales of the first block come
 * first; for squares rows of scales are multiples of four. */
static guint64
place_at (const Matrix *self, guint64 r, guint64 c)
{
  const guint64 row_of_squares = (self->cols / SIDE + 3) / 4 * 4;
  return self->is_square ? r / SIDE * row_of_squares + c / SIDE : c / SIDE * self->rows + r;
}

static void
check_matrix (const Matrix *self, const Tensor *found, const char *what)
{
  const guint8 *codes = found->data;
  const float *scales = (gconstpointer)(codes + self->rows * self->cols);
  for (guint64 r = 0; r < self->rows; r += self->is_square ? SIDE : 1)
    for (guint64 c = 0; c < self->cols; c += SIDE)
      {
        const double scale = scale_at (self, r, c);
        ck_assert_msg ((double)scales[place_at (self, r, c)] == scale, "%s: %d, %d has %g, not %g",
                       what, (int)r, (int)c, (double)scales[place_at (self, r, c)], scale);
        for (guint64 i = r; i < r + (self->is_square ? SIDE : 1); i++)
          for (guint64 j = c; j < c + SIDE; j++)
            ck_assert_uint_eq (codes[i * self->cols + j],
                               exec_number_to_e4m3 (value_at (self, i, j) / scale));
      }
}

static void
draw_sides (GRand *rand, gint64 dims[2])
{
  dims[0] = SIDE * between (rand, 1, 3);
  dims[1] = SIDE * between (rand, 1, 6);
}

/* Draws numbers of very different sizes, with zeros among them, and one block of zeros. */
static Tensor
draw (GRand *rand, PlanDtype format, const gint64 dims[2])
{
  Tensor in = tensor_random (rand, format, (guint64)(dims[0] * dims[1]), 1);
  for (gint64 i = 0; i < dims[0] * dims[1]; i++)
    {
      const gboolean is_nothing = i / dims[1] < SIDE && i % dims[1] < SIDE && dims[1] > SIDE;
      float value = is_nothing ? 0 : (float)ldexp (in.value[i], (int)between (rand, -30, 30));
      exec_number_narrow ((guint8 *)in.data + plan_dtype_bytes (format, (guint64)i), format, &value,
                          1);
      in.value[i] = tensor_get (&in, (guint64)i);
    }
  return in;
}

START_TEST (blocks_of_128_are_what_they_say)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const PlanDtype format = _i % 2 ? PLAN_DTYPE_FP8_128X128 : PLAN_DTYPE_FP8_1X128;
  gint64 dims[2];
  draw_sides (rand, dims);
  const guint64 n = (guint64)(dims[0] * dims[1]);
  g_auto (Tensor) in = draw (rand, format_of (_i / 2), dims);
  g_auto (Tensor) row = tensor_blank (format, n), col = tensor_blank (format, n);
  const gboolean is_square = format == PLAN_DTYPE_FP8_128X128;
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&row, &col, &in), dims, PLAN_DTYPE_BF16);
  check_matrix (&(Matrix){ (guint64)dims[0], (guint64)dims[1], is_square, FALSE, in.value }, &row,
                "rows");
  check_matrix (&(Matrix){ (guint64)dims[1], (guint64)dims[0], is_square, TRUE, in.value }, &col,
                "columns");
}
END_TEST

/* For any pair of formats that a product may have: the product with the unit matrix is what was
 * quantised. */
START_TEST (products_read_blocks_of_128)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const PlanDtype format = _i % 2 ? PLAN_DTYPE_FP8_128X128 : PLAN_DTYPE_FP8_1X128;
  gint64 dims[2];
  draw_sides (rand, dims);
  const guint64 rows = (guint64)dims[0], cols = (guint64)dims[1];
  g_auto (Tensor) in = draw (rand, PLAN_DTYPE_FP32, dims);
  g_auto (Tensor) unit = tensor_blank (PLAN_DTYPE_BF16, cols * cols);
  g_auto (Tensor) narrow = tensor_blank (format, rows * cols);
  g_auto (Tensor) narrow_unit = tensor_blank (PLAN_DTYPE_FP8_1X128, cols * cols);
  g_auto (Tensor) out = tensor_blank (PLAN_DTYPE_FP32, rows * cols);
  for (guint64 i = 0; i < cols * cols; i++)
    ((guint16 *)unit.data)[i] = i % (cols + 1) == 0 ? 0x3f80 : 0;
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&narrow, NULL, &in), dims, PLAN_DTYPE_FP32);
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&narrow_unit, NULL, &unit),
              (gint64[]){ (gint64)cols, (gint64)cols }, PLAN_DTYPE_BF16);
  run_kernel (PLAN_OP_GEMM, OPERANDS (&out, &narrow_unit, &narrow),
              (gint64[]){ (gint64)cols, (gint64)rows, (gint64)cols, 1 }, PLAN_DTYPE_BF16);
  const Matrix matrix = { rows, cols, format == PLAN_DTYPE_FP8_128X128, FALSE, in.value };
  for (guint64 r = 0; r < rows; r++)
    for (guint64 c = 0; c < cols; c++)
      {
        const guint8 code = ((guint8 *)narrow.data)[r * cols + c];
        const float *scales = (gconstpointer)((guint8 *)narrow.data + rows * cols);
        const double want
            = (double)exec_number_from_e4m3 (code) * (double)scales[place_at (&matrix, r, c)];
        ck_assert_msg (tensor_get (&out, c * rows + r) == want, "%d, %d: %g instead of %g", (int)r,
                       (int)c, tensor_get (&out, c * rows + r), want);
      }
}
END_TEST

/* Bits that are worked out by hand. */
START_TEST (known_bits)
{
  g_auto (Tensor) in = tensor_blank (PLAN_DTYPE_FP32, SIDE * SIDE);
  g_auto (Tensor) out = tensor_blank (PLAN_DTYPE_FP8_128X128, SIDE * SIDE);
  const gint64 dims[] = { SIDE, SIDE };
  float *values = in.data;
  const guint8 *codes = out.data;
  const float *scales = (gconstpointer)(codes + SIDE * SIDE);
  memset (values, 0, SIDE * SIDE * sizeof *values);
  values[0] = 448;              /* the largest at a scale of 1 */
  values[SIDE] = -1;            /* a row below */
  values[SIDE * SIDE - 1] = 17; /* half way between 16 and 18: to 16, the even one */
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&out, NULL, &in), dims, PLAN_DTYPE_FP32);
  ck_assert_float_eq (scales[0], 1);
  for (guint i = 1; i < 4; i++) /* these scales only fill up the row */
    ck_assert_float_eq (scales[i], 1);
  ck_assert_uint_eq (codes[0], 0x7e);
  ck_assert_uint_eq (codes[SIDE], 0xb8);
  ck_assert_uint_eq (codes[SIDE * SIDE - 1], 0x58);
  values[0] = nextafterf (448, INFINITY); /* the scale goes to 2, so that it fits */
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&out, NULL, &in), dims, PLAN_DTYPE_FP32);
  ck_assert_float_eq (scales[0], 2);
  ck_assert_uint_eq (codes[0], 0x76); /* 224 */
  values[0] = INFINITY;               /* a block with an infinity must not look finite */
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&out, NULL, &in), dims, PLAN_DTYPE_FP32);
  ck_assert (isnan (scales[0]));
  values[0] = values[SIDE] = values[SIDE * SIDE - 1] = 0x1p-140f;
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&out, NULL, &in), dims, PLAN_DTYPE_FP32);
  ck_assert_float_eq (scales[0], 0x1p-126f);
}
END_TEST

/* Runs an op on elements `from` to `to` of a parameter, as the walk calls it. */
static void
run_on_part (PlanOpKind kind, const ExecParam *whole, guint64 from, guint64 to,
             const Tensor *const *operands)
{
  const guint64 n = whole->rows * whole->cols;
  PlanOp op = { .kind = kind };
  ExecArgs args = { .op = &op, .param = *whole };
  op.dims[0] = (gint64)(to - from);
  op.dims[1] = (gint64)plan_dtype_square_scales (whole->rows, whole->cols);
  args.param.first = from;
  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    if (operands[i])
      {
        const guint64 at = operands[i]->count == n ? from : 0; /* the other operands are whole */
        args.dtype[i] = operands[i]->dtype;
        args.ptr[i] = (guint8 *)operands[i]->data + plan_dtype_bytes (operands[i]->dtype, at);
      }
  exec_kernels_cpu.run[kind](&args);
}

/* Squares that lie in parts on several ranks get the same bits as in the whole parameter, also
 * where it is transposed. */
START_TEST (parts_of_squares_are_the_wholes)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 dims[2];
  draw_sides (rand, dims);
  const guint64 n = (guint64)(dims[0] * dims[1]), cut = (guint64)between (rand, 0, (gint32)n);
  const ExecParam param = { (guint64)dims[0], (guint64)dims[1], 0, SIDE };
  const guint64 squares = plan_dtype_square_scales (param.rows, param.cols);
  g_auto (Tensor) in = draw (rand, PLAN_DTYPE_BF16, dims);
  g_auto (Tensor) whole = tensor_blank (PLAN_DTYPE_FP8_128X128, n);
  g_auto (Tensor) whole_col = tensor_blank (PLAN_DTYPE_FP8_128X128, n);
  g_auto (Tensor) turned = tensor_blank (PLAN_DTYPE_FP8_128X128, n);
  g_auto (Tensor) parts = tensor_blank (PLAN_DTYPE_E4M3, n);
  g_auto (Tensor) amax = tensor_blank (PLAN_DTYPE_FP32, squares);
  g_auto (Tensor) scales = tensor_blank (PLAN_DTYPE_FP32, squares);
  const guint64 used = n + squares * sizeof (float);
  memset (amax.data, 0, squares * sizeof (float));
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&whole, &whole_col, &in), dims, PLAN_DTYPE_BF16);
  run_on_part (PLAN_OP_PARAM_AMAX, &param, cut, n, OPERANDS (&amax, &in));
  run_on_part (PLAN_OP_PARAM_AMAX, &param, 0, cut, OPERANDS (&amax, &in));
  run_on_part (PLAN_OP_PARAM_QUANTIZE, &param, 0, cut,
               OPERANDS (&parts, NULL, &in, &amax, &scales));
  run_on_part (PLAN_OP_PARAM_QUANTIZE, &param, cut, n,
               OPERANDS (&parts, NULL, &in, &amax, &scales));
  ck_assert_mem_eq (parts.data, whole.data, n);
  ck_assert_mem_eq (scales.data, (guint8 *)whole.data + n, used - n);

  PlanOp op = { .kind = PLAN_OP_TRANSPOSE, .dims = { dims[0], dims[1] } };
  ExecArgs args = { .op = &op, .ptr = { turned.data, parts.data } };
  args.dtype[0] = PLAN_DTYPE_FP8_128X128;
  args.dtype[1] = PLAN_DTYPE_E4M3;
  args.blocks[1].scales = scales.data;
  args.blocks[1].format = PLAN_DTYPE_FP8_128X128;
  exec_kernels_cpu.run[PLAN_OP_TRANSPOSE](&args);
  ck_assert_mem_eq (turned.data, whole_col.data,
                    n + sizeof (float) * plan_dtype_square_scales (param.cols, param.rows));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-squares");
  TCase *tcase = kernels_case ("squares");
  tcase_set_timeout (tcase, 120);
  test_add_runs (tcase, blocks_of_128_are_what_they_say, 12);
  test_add_runs (tcase, products_read_blocks_of_128, 8);
  tcase_add_test (tcase, known_bits);
  test_add_runs (tcase, parts_of_squares_are_the_wholes, 12);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
