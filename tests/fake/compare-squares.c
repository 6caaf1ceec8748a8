/* SPDX-License-Identifier: Apache-2.0 */
/* e4m3 in blocks of 128 and in squares of 128 x 128: the device's kernels give the CPU's bits, for
 * matrices and their transposes, and for parts of parameters that begin and end anywhere in a
 * square. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/number/number.h"
#include "tests/fake/compare-operand.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ROUNDS 16

static const CompareDevice *device;

static guint64
sides (GRand *rand, gint most)
{
  return PLAN_DTYPE_SIDE * (guint64)g_rand_int_range (rand, 1, most + 1);
}

static void
draw_operand (CompareOperand *self, PlanDtype dtype, CompareDraw draw, guint64 count, GRand *rand)
{
  *self = (CompareOperand){ .dtype = dtype, .draw = draw, .count = MAX (count, 1), .limit = 256 };
  compare_operand_init (self, device, rand);
}

static void
point (ExecArgs *cpu, ExecArgs *cuda, guint i, const CompareOperand *operand, PlanDtype dtype)
{
  cpu->ptr[i] = operand->want + operand->at;
  cuda->ptr[i] = operand->device + operand->at;
  cpu->dtype[i] = cuda->dtype[i] = dtype;
}

static void
must (int code, const char *what)
{
  const char *error = device->wait ();
  ck_assert_msg (code == 0 && error == NULL, "%s: launch gives %d, %s", what, code,
                 error ? error : "");
}

/* Gives some rows and columns other magnitudes: zeros, the smallest and the largest numbers, and
 * numbers next to those at which a scale doubles. */
static void
plant_sizes (CompareOperand *self, guint64 rows, guint64 cols, GRand *rand)
{
  static const float edges[] = { 1.75f, 1.75f + FLT_EPSILON, 1, 0, 2 - FLT_EPSILON };

  for (guint line = 0; line < 8; line++)
    {
      const gboolean is_row = g_rand_boolean (rand);
      const guint64 at = (guint64)g_rand_int_range (rand, 0, (gint32)(is_row ? rows : cols));
      const gint exponent = g_rand_int_range (rand, -150, 128);
      const float edge = edges[g_rand_int_range (rand, 0, G_N_ELEMENTS (edges))];

      for (guint64 i = 0; i < (is_row ? cols : rows); i++)
        {
          const float part = i % 128 == 3 ? 1 : (float)g_rand_double_range (rand, -1, 1);
          const float value = (float)ldexp ((double)(edge * part), exponent);

          exec_number_narrow (
              self->want + self->at
                  + plan_dtype_bytes (self->dtype, is_row ? at * cols + i : i * cols + at),
              self->dtype, &value, 1);
        }
    }
  compare_operand_keep (self, device);
}

/* Checks the codes and the scales behind them: they must be equal, though any NaN will do for a
 * NaN; memory behind them is untouched. */
static void
check_blocks (CompareOperand *self, guint64 codes, guint64 scales, const char *what)
{
  compare_operand_fetch (self, device);
  const guint8 *got = self->got + self->at, *want = self->want + self->at;
  const guint64 used = codes + scales * sizeof (float);
  for (guint64 i = 0; i < codes; i++)
    if (got[i] != want[i] && ((got[i] & 0x7f) != 0x7f || (want[i] & 0x7f) != 0x7f))
      ck_abort_msg ("%s: code %" G_GUINT64_FORMAT " is %02x instead of %02x", what, i, got[i],
                    want[i]);
  for (guint64 i = 0; i < scales; i++)
    {
      float found, wanted;
      memcpy (&found, got + codes + i * sizeof found, sizeof found);
      memcpy (&wanted, want + codes + i * sizeof wanted, sizeof wanted);
      ck_assert_msg (found == wanted || (isnan (found) && isnan (wanted)),
                     "%s: scale %" G_GUINT64_FORMAT " is %a instead of %a", what, i, (double)found,
                     (double)wanted);
    }
  ck_assert_mem_eq (self->got, self->before, self->at);
  ck_assert_mem_eq (got + used, self->before + self->at + used, self->bytes - used + 64);
  compare_operand_clear (self, device);
}

static guint64
scales_of (PlanDtype dtype, guint64 rows, guint64 cols)
{
  return dtype == PLAN_DTYPE_FP8_1X128 ? rows * cols / PLAN_DTYPE_SIDE
                                       : plan_dtype_square_scales (rows, cols);
}

START_TEST (matrices_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const PlanDtype dtype = _i % 2 ? PLAN_DTYPE_FP8_128X128 : PLAN_DTYPE_FP8_1X128;
  const PlanDtype source = compare_format (rand);
  const guint64 rows = sides (rand, 3), cols = sides (rand, 6), n = rows * cols;
  const gboolean transposes = _i / 4 % 3 > 0;
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { (gint64)rows, (gint64)cols } };
  ExecArgs cpu = { .op = &op }, cuda = cpu;
  CompareOperand row, col, in;
  draw_operand (&row, PLAN_DTYPE_U8, COMPARE_BYTES, plan_dtype_bytes (dtype, n), rand);
  draw_operand (&col, PLAN_DTYPE_U8, COMPARE_BYTES, plan_dtype_bytes (dtype, n), rand);
  draw_operand (&in, source, _i % 5 == 0 ? COMPARE_BITS : COMPARE_SMALL, n, rand);
  if (_i % 5 > 1)
    plant_sizes (&in, rows, cols, rand);
  point (&cpu, &cuda, 0, &row, dtype);
  if (transposes)
    point (&cpu, &cuda, 1, &col, dtype);
  point (&cpu, &cuda, 2, &in, source);
  exec_cpu_quantize (&cpu);
  must (exec_cuda_quantize (&cuda, NULL), "quantize");
  check_blocks (&row, n, scales_of (dtype, rows, cols), "rows");
  check_blocks (&col, transposes ? n : 0, transposes ? scales_of (dtype, cols, rows) : 0,
                "columns");
  compare_operand_fetch (&in, device);
  compare_operand_check (&in, (CompareBound){ .any_nan = TRUE }, "in");
  compare_operand_clear (&in, device);
}
END_TEST

enum
{
  OUT,
  AMAX,
  SCALES,
  IN,
  TRANSPOSED,
  N_OPERANDS
};

/* Draws the part: the whole parameter; a part that cuts squares; or one that also cuts pieces of
 * eight elements. Returns its number of elements. */
static guint64
draw_part (ExecParam *param, int seed, GRand *rand)
{
  const guint64 n = param->rows * param->cols, unit = seed % 3 == 1 ? 8 : 1;

  param->first = 0;
  if (seed % 3 == 0)
    return n;
  param->first = unit * (guint64)g_rand_int_range (rand, 0, (gint32)(n / unit));
  return (guint64)g_rand_int_range (rand, 0, (gint32)(n - param->first) + 1);
}

/* A rank's part of a parameter: its magnitudes are raised, it is quantised, then the whole
 * parameter is transposed. */
START_TEST (parts_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint64 rows = sides (rand, 3), cols = sides (rand, 5), n = rows * cols;
  const guint64 squares = plan_dtype_square_scales (rows, cols);
  const PlanDtype source = compare_format (rand);
  ExecParam param = { rows, cols, 0, PLAN_DTYPE_SIDE };
  const guint64 count = draw_part (&param, _i, rand);
  CompareOperand operand[N_OPERANDS];
  draw_operand (&operand[OUT], PLAN_DTYPE_U8, COMPARE_BYTES, n, rand);
  draw_operand (&operand[AMAX], PLAN_DTYPE_FP32, COMPARE_POSITIVE, squares, rand);
  draw_operand (&operand[SCALES], PLAN_DTYPE_FP32, COMPARE_POSITIVE, squares, rand);
  draw_operand (&operand[IN], source, _i % 5 == 0 ? COMPARE_BITS : COMPARE_SMALL, count, rand);
  draw_operand (&operand[TRANSPOSED], PLAN_DTYPE_U8, COMPARE_BYTES,
                plan_dtype_bytes (PLAN_DTYPE_FP8_128X128, n), rand);

  PlanOp amax = { .kind = PLAN_OP_PARAM_AMAX, .dims = { (gint64)count, (gint64)squares } };
  ExecArgs cpu = { .op = &amax, .param = param }, cuda = cpu;
  point (&cpu, &cuda, 0, &operand[AMAX], PLAN_DTYPE_FP32);
  point (&cpu, &cuda, 1, &operand[IN], source);
  exec_cpu_param_amax (&cpu);
  must (exec_cuda_param_amax (&cuda, NULL), "param_amax");

  PlanOp quantize = { .kind = PLAN_OP_PARAM_QUANTIZE, .dims = { (gint64)count, (gint64)squares } };
  cpu = cuda = (ExecArgs){ .op = &quantize, .param = param };
  point (&cpu, &cuda, 0, &operand[OUT], PLAN_DTYPE_E4M3);
  cpu.ptr[0] = (guint8 *)cpu.ptr[0] + param.first;
  cuda.ptr[0] = (guint8 *)cuda.ptr[0] + param.first;
  point (&cpu, &cuda, 2, &operand[IN], source);
  point (&cpu, &cuda, 3, &operand[AMAX], PLAN_DTYPE_FP32);
  point (&cpu, &cuda, 4, &operand[SCALES], PLAN_DTYPE_FP32);
  exec_cpu_param_quantize (&cpu);
  must (exec_cuda_param_quantize (&cuda, NULL), "param_quantize");

  PlanOp transpose = { .kind = PLAN_OP_TRANSPOSE, .dims = { (gint64)rows, (gint64)cols } };
  cpu = cuda = (ExecArgs){ .op = &transpose };
  point (&cpu, &cuda, 0, &operand[TRANSPOSED], PLAN_DTYPE_FP8_128X128);
  point (&cpu, &cuda, 1, &operand[OUT], PLAN_DTYPE_E4M3);
  cpu.blocks[1].format = cuda.blocks[1].format = PLAN_DTYPE_FP8_128X128;
  cpu.blocks[1].scales = operand[SCALES].want + operand[SCALES].at;
  cuda.blocks[1].scales = operand[SCALES].device + operand[SCALES].at;
  exec_cpu_transpose (&cpu);
  must (exec_cuda_transpose (&cuda, NULL), "transpose");

  check_blocks (&operand[TRANSPOSED], n, plan_dtype_square_scales (cols, rows), "transposed");
  check_blocks (&operand[OUT], n, 0, "the part");
  check_blocks (&operand[AMAX], 0, squares, "magnitudes");
  check_blocks (&operand[SCALES], 0, squares, "scales");
  compare_operand_clear (&operand[IN], device);
}
END_TEST

START_TEST (other_shapes_are_refused)
{
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { PLAN_DTYPE_SIDE, PLAN_DTYPE_SIDE + 16 } };
  ExecArgs args = { .op = &op };
  float nothing[8] = { 0 };
  for (guint i = 0; i < 3; i++)
    args.ptr[i] = nothing;
  args.dtype[0] = args.dtype[1] = PLAN_DTYPE_FP8_1X128;
  ck_assert_int_ne (exec_cuda_quantize (&args, NULL), 0);
  op.dims[1] = PLAN_DTYPE_SIDE;
  args.dtype[1] = PLAN_DTYPE_FP8_128X128; /* a matrix and its transpose have the same format */
  ck_assert_int_ne (exec_cuda_quantize (&args, NULL), 0);
  op.kind = PLAN_OP_TRANSPOSE; /* only squares can be transposed: blocks of a row would become
                                  blocks of a column */
  args.dtype[0] = args.dtype[1] = PLAN_DTYPE_FP8_1X128;
  ck_assert_int_ne (exec_cuda_transpose (&args, NULL), 0);
  ck_assert_ptr_null (device->wait ());
}
END_TEST

void
compare_add_square_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create ("squares");
  device = on;
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, matrices_are_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, parts_are_the_cpus, 0, ROUNDS);
  tcase_add_test (tcase, other_shapes_are_refused);
  suite_add_tcase (suite, tcase);
}
