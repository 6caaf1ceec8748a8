/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of few bits: the device's kernels make the same bits as the CPU's, for any part of a
 * parameter of any shape. Also reductions of the arrays of several ranks. */
#include "config.h"

#include "exec/comm.h"
#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/sum.h"
#include "exec/number/number.h"
#include "tests/fake/compare-operand.h"

#include <math.h>
#include <string.h>

#define ROUNDS 60

static const CompareDevice *device;

/* A parameter, the part of it that a rank has, and the format that it is quantised to. */
typedef struct
{
  ExecParam param;
  guint64 count, magnitudes;
  PlanDtype dtype;
} Case;

static gint64
from_to (GRand *rand, guint64 least, guint64 most)
{
  return g_rand_int_range (rand, (gint32)least, (gint32)most + 1);
}

/* Draws a case. Blocks of a row may end in the next row; now and then the scales are in whole
 * tiles. */
static void
draw_case (Case *c, int seed, GRand *rand)
{
  static const PlanDtype formats[]
      = { PLAN_DTYPE_E4M3, PLAN_DTYPE_E5M2, PLAN_DTYPE_E4M3, PLAN_DTYPE_E2M1 };
  const guint format = (guint)seed % 4;
  const guint block = format < 2 ? 0 : format == 2 ? 32 : 16;
  const guint64 side = block == 0 ? 1 : seed / 4 % 3 == 0 ? 128 : block;

  c->dtype = formats[format];
  c->param.block = block;
  c->param.rows = side * (guint64)from_to (rand, 1, block == 0 ? 90 : 3);
  c->param.cols = side == block && seed / 4 % 3 == 1 ? (guint64)from_to (rand, 1, 40)
                                                     : side * (guint64)from_to (rand, 1, 3);
  const guint64 all = c->param.rows * c->param.cols, even = c->dtype == PLAN_DTYPE_E2M1 ? 2 : 1;
  /* With a step below 8 the part may begin or end within a piece. */
  const guint64 step = g_rand_boolean (rand) ? 8 : even;
  c->param.first = (guint64)from_to (rand, 0, all) / step * step;
  c->count = (guint64)from_to (rand, 0, all - c->param.first) / even * even;
  if (g_rand_int_range (rand, 0, 4) == 0)
    {
      c->param.first = 0;
      c->count = all;
    }
  c->magnitudes = block == 0 ? 1 : 2 * all / block;
}

static void
take (CompareOperand *self, PlanDtype dtype, CompareDraw draw, guint64 count, GRand *rand)
{
  *self = (CompareOperand){ .dtype = dtype, .draw = draw, .count = MAX (count, 1), .limit = 256 };
  compare_operand_init (self, device, rand);
}

static void
set_operand (ExecArgs *cpu, ExecArgs *cuda, guint i, CompareOperand *operand)
{
  cpu->ptr[i] = operand->want + operand->at;
  cuda->ptr[i] = operand->device + operand->at;
  cpu->dtype[i] = cuda->dtype[i] = operand->dtype;
}

static void
must (int code, const char *what)
{
  const char *error = device->wait ();

  ck_assert_msg (code == 0 && error == NULL, "%s: launch gives %d, %s", what, code,
                 error ? error : "");
}

static void
check_and_clear (CompareOperand *self, const char *what)
{
  compare_operand_fetch (self, device);
  compare_operand_check (self, (CompareBound){ .any_nan = TRUE }, what);
  compare_operand_clear (self, device);
}

START_TEST (magnitudes_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  PlanOp op = { .kind = PLAN_OP_PARAM_AMAX };
  CompareOperand amax, in;
  Case c;

  draw_case (&c, _i, rand);
  op.dims[0] = (gint64)c.count;
  op.dims[1] = (gint64)c.magnitudes;
  ExecArgs cpu = { .op = &op, .param = c.param }, cuda = cpu;
  take (&amax, c.param.block > 0 && _i % 8 < 4 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32,
        COMPARE_POSITIVE, c.magnitudes, rand);
  take (&in, compare_format (rand), _i % 5 == 0 ? COMPARE_BITS : COMPARE_SMALL, c.count, rand);
  set_operand (&cpu, &cuda, 0, &amax);
  set_operand (&cpu, &cuda, 1, &in);
  exec_cpu_param_amax (&cpu);
  must (exec_cuda_param_amax (&cuda, NULL), "param_amax");
  check_and_clear (&amax, "magnitudes");
  check_and_clear (&in, "the parameter");
}
END_TEST

/* Makes some numbers any size, or 0, or infinite or NaN where the format has these (e2m1 has
 * neither). */
static void
plant_magnitudes (CompareOperand *self, gboolean has_nan, GRand *rand)
{
  for (guint64 i = 0; i < self->count; i++)
    {
      const gint choice = g_rand_int_range (rand, 0, 8);
      const float value = choice == 0              ? 0
                          : choice == 1 && has_nan ? INFINITY
                          : choice == 2 && has_nan
                              ? NAN
                              : (float)ldexp (g_rand_double_range (rand, 1, 2),
                                              g_rand_int_range (rand, -150, 128));

      if (choice < 5)
        exec_number_narrow (self->want + self->at + plan_dtype_bytes (self->dtype, i), self->dtype,
                            &value, 1);
    }
  compare_operand_keep (self, device);
}

/* Puts the CPU's scales, which are in row order, into the order of tiles. */
static void
tile_both (guint8 *scales, const Case *c)
{
  const guint64 n = c->param.rows * c->param.cols / c->param.block;
  const guint64 row_blocks = c->param.cols / c->param.block,
                heights = c->param.rows / c->param.block;
  g_autofree guint8 *turned = g_malloc (n);

  if (c->param.cols % c->param.block == 0)
    compare_tile_scales (scales, c->param.rows, row_blocks, FALSE);
  if (c->param.cols % 128 != 0 || heights % 4 != 0)
    return;
  for (guint64 i = 0; i < heights; i++) /* scales of columns are in the order of blocks */
    for (guint64 col = 0; col < c->param.cols; col++)
      turned[col * heights + i] = scales[n + i * c->param.cols + col];
  compare_tile_scales (turned, c->param.cols, heights, FALSE);
  memcpy (scales + n, turned, n);
}

/* Checks that codes are equal, but that a NaN may be any NaN. */
static void
check_codes (const CompareOperand *self, PlanDtype dtype, const char *what)
{
  const guint8 nan = dtype == PLAN_DTYPE_E5M2 ? 0x7c : 0x7e;

  for (guint64 i = 0; i < self->bytes; i++)
    {
      const guint8 got = self->got[self->at + i], want = self->want[self->at + i];

      if (got != want && (dtype == PLAN_DTYPE_E2M1 || (got & 0x7f) <= nan || (want & 0x7f) <= nan))
        ck_abort_msg ("%s: byte %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
                      " is %02x instead of %02x",
                      what, i, self->bytes, got, want);
    }
  ck_assert_mem_eq (self->got, self->before, self->at);
  ck_assert_mem_eq (self->got + self->at + self->bytes, self->before + self->at + self->bytes, 64);
}

static void
check_scale (const float *on_device, float want)
{
  float got;

  device->copy (&got, on_device, sizeof got);
  ck_assert_msg (memcmp (&got, &want, sizeof got) == 0 || (isnan (got) && isnan (want)),
                 "the parameter's scale is %a instead of %a", (double)got, (double)want);
}

enum
{
  OUT,
  COL,
  IN,
  AMAX,
  SCALES,
  N_OPERANDS
};

START_TEST (quantised_parts_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  PlanOp op = { .kind = PLAN_OP_PARAM_QUANTIZE };
  CompareOperand operand[N_OPERANDS];
  Case c;
  float scale = 0;

  draw_case (&c, _i, rand);
  const guint n_operands = c.param.block > 0 ? N_OPERANDS : SCALES;
  const guint64 bytes = plan_dtype_bytes (c.dtype, c.count);
  op.dims[0] = (gint64)c.count;
  op.dims[1] = (gint64)c.magnitudes;
  ExecArgs cpu = { .op = &op, .param = c.param }, cuda = cpu;
  take (&operand[OUT], PLAN_DTYPE_U8, COMPARE_BYTES, bytes, rand);
  take (&operand[COL], PLAN_DTYPE_U8, COMPARE_BYTES, bytes, rand);
  take (&operand[IN], compare_format (rand),
        _i % 5 == 0 && c.dtype != PLAN_DTYPE_E2M1 ? COMPARE_BITS : COMPARE_SMALL, c.count, rand);
  take (&operand[AMAX], c.param.block > 0 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32, COMPARE_POSITIVE,
        c.magnitudes, rand);
  if (_i % 3 == 0)
    plant_magnitudes (&operand[AMAX], c.dtype != PLAN_DTYPE_E2M1, rand);
  take (&operand[SCALES], PLAN_DTYPE_U8, COMPARE_BYTES, c.magnitudes, rand);
  for (guint i = 0; i < n_operands; i++)
    set_operand (&cpu, &cuda, i, &operand[i]);
  cpu.dtype[OUT] = cpu.dtype[COL] = cuda.dtype[OUT] = cuda.dtype[COL] = c.dtype;
  cpu.scale[OUT] = &scale;
  cuda.scale[OUT] = operand[OUT].device_scale;
  exec_cpu_param_quantize (&cpu);
  if (c.param.block > 0)
    tile_both (operand[SCALES].want + operand[SCALES].at, &c);
  must (exec_cuda_param_quantize (&cuda, NULL), "param_quantize");
  for (guint i = 0; i < N_OPERANDS; i++)
    compare_operand_fetch (&operand[i], device);
  check_codes (&operand[OUT], c.dtype, "by rows");
  check_codes (&operand[COL], c.dtype, "by columns");
  check_codes (&operand[SCALES], PLAN_DTYPE_E2M1, "scales");
  if (c.param.block != 32)
    check_scale (cuda.scale[OUT], scale);
  for (guint i = 0; i < N_OPERANDS; i++)
    compare_operand_clear (&operand[i], device);
}
END_TEST

/* --- quotients ---------------------------------------------------------------------------- */

/* Draws a float near a number of few bits times a scale: half way between two codes, or as near to
 * that as quotients come. */
static float
draw_near_tie (double scale, double most, GRand *rand)
{
  const double number = ldexp (g_rand_int_range (rand, 0, 32), g_rand_int_range (rand, -14, 5));
  float value = (float)MIN (number * scale, most);

  for (gint step = g_rand_int_range (rand, -2, 3); step != 0; step += step < 0 ? 1 : -1)
    value = nextafterf (value, step < 0 ? 0 : (float)most);
  return g_rand_boolean (rand) ? value : -value;
}

/* Fills an operand with numbers near ties, of any magnitude, and with scales per block of 16. */
static void
fill_near_ties (CompareOperand *self, PlanDtype dtype, GRand *rand)
{
  float *values = (gpointer)(self->want + self->at), scale, block = 1;
  const double limit = dtype == PLAN_DTYPE_E4M3 ? 448 : dtype == PLAN_DTYPE_E5M2 ? 57344 : 2688;
  const double most
      = (double)(float)ldexp (g_rand_double_range (rand, 1, 2), g_rand_int_range (rand, -150, 128));

  scale = (float)(most / limit);
  for (guint64 i = 0; i < self->count; i++)
    {
      if (i % 16 == 0)
        block = exec_number_from_e4m3 ((guint8)g_rand_int_range (rand, 0, 0x7f));
      values[i] = i == 0                      ? (float)most
                  : dtype != PLAN_DTYPE_NVFP4 ? draw_near_tie ((double)scale, most, rand)
                  : i % 16 == 1               ? (float)MIN (6 * (double)block * (double)scale, most)
                                : draw_near_tie ((double)block * (double)scale / 16, most, rand);
    }
  compare_operand_keep (self, device);
}

START_TEST (quotients_are_the_cpus)
{
  static const PlanDtype formats[] = { PLAN_DTYPE_E4M3, PLAN_DTYPE_E5M2, PLAN_DTYPE_NVFP4 };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const PlanDtype dtype = formats[_i % 3];
  const guint64 unit = dtype == PLAN_DTYPE_NVFP4 ? 16 : 1;
  const guint64 rows = unit * (guint64)from_to (rand, 1, 150 / unit);
  const guint64 cols = unit * (guint64)from_to (rand, 1, 300 / unit);
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { (gint64)rows, (gint64)cols } };
  ExecArgs cpu = { .op = &op }, cuda = cpu;
  CompareOperand out[2], in;

  for (guint i = 0; i < 2; i++)
    {
      out[i] = (CompareOperand){ .dtype = dtype, .draw = COMPARE_SMALL, .count = rows * cols };
      out[i].rows = i == 0 ? rows : cols;
      out[i].cols = i == 0 ? cols : rows;
      compare_operand_init (&out[i], device, rand);
      cpu.scale[i] = &out[i].want_scale;
      cuda.scale[i] = out[i].device_scale;
      set_operand (&cpu, &cuda, i, &out[i]);
    }
  take (&in, PLAN_DTYPE_FP32, COMPARE_SMALL, rows * cols, rand);
  fill_near_ties (&in, dtype, rand);
  set_operand (&cpu, &cuda, 2, &in);
  exec_cpu_quantize (&cpu);
  must (exec_cuda_quantize (&cuda, NULL), "quantize");
  check_and_clear (&out[0], "quotients");
  check_and_clear (&out[1], "quotients, turned");
  check_and_clear (&in, "in");
}
END_TEST

/* --- scales that are known before --------------------------------------------------------- */

/* Allocates the scale of a site and its largest magnitude so far, which may already be larger than
 * what comes. */
static void
take_site (CompareOperand *scale, CompareOperand *amax, GRand *rand)
{
  take (scale, PLAN_DTYPE_FP32, COMPARE_POSITIVE, 1, rand);
  take (amax, PLAN_DTYPE_FP32, COMPARE_POSITIVE, 1, rand);
  if (g_rand_boolean (rand))
    {
      *(float *)(gpointer)(amax->want + amax->at) = 0;
      compare_operand_keep (amax, device);
    }
}

START_TEST (quantised_by_a_site_is_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  PlanOp op
      = { .kind = PLAN_OP_QUANTIZE, .dims = { from_to (rand, 1, 150), from_to (rand, 1, 150) } };
  const PlanDtype dtype = _i % 2 ? PLAN_DTYPE_E4M3 : PLAN_DTYPE_E5M2;
  const guint64 count = (guint64)(op.dims[0] * op.dims[1]);
  ExecArgs cpu = { .op = &op }, cuda = cpu;
  CompareOperand out[2], in, scale, amax;

  for (guint i = 0; i < 2; i++)
    {
      take (&out[i], dtype, COMPARE_SMALL, count, rand);
      cpu.scale[i] = &out[i].want_scale;
      cuda.scale[i] = out[i].device_scale;
      if (i == 0 || _i % 3 > 0)
        set_operand (&cpu, &cuda, i, &out[i]);
    }
  take (&in, compare_format (rand), _i % 5 == 0 ? COMPARE_BITS : COMPARE_SMALL, count, rand);
  take_site (&scale, &amax, rand);
  set_operand (&cpu, &cuda, 2, &in);
  set_operand (&cpu, &cuda, 3, &scale);
  if (_i % 4 > 0)
    set_operand (&cpu, &cuda, 4, &amax);
  exec_cpu_quantize (&cpu);
  must (exec_cuda_quantize (&cuda, NULL), "quantize");
  check_and_clear (&out[0], "by a site");
  check_and_clear (&out[1], "by a site, turned");
  check_and_clear (&in, "in");
  check_and_clear (&scale, "the site's scale");
  check_and_clear (&amax, "the site's largest");
}
END_TEST

START_TEST (parts_by_a_site_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint64 count = (guint64)from_to (rand, 1, 3000);
  PlanOp op = { .kind = PLAN_OP_PARAM_QUANTIZE, .dims = { (gint64)count, 1 } };
  ExecArgs cpu = { .op = &op, .param = { 1, count, 0, 0 } }, cuda = cpu;
  CompareOperand out, in, scale, amax;

  take (&out, PLAN_DTYPE_E4M3, COMPARE_SMALL, count, rand);
  take (&in, compare_format (rand), _i % 5 == 0 ? COMPARE_BITS : COMPARE_SMALL, count, rand);
  take_site (&scale, &amax, rand);
  cpu.scale[0] = &out.want_scale;
  cuda.scale[0] = out.device_scale;
  set_operand (&cpu, &cuda, 0, &out);
  set_operand (&cpu, &cuda, 2, &in);
  set_operand (&cpu, &cuda, 5, &scale);
  set_operand (&cpu, &cuda, 6, &amax);
  exec_cpu_param_quantize (&cpu);
  must (exec_cuda_param_quantize (&cuda, NULL), "param_quantize");
  check_and_clear (&out, "a part by a site");
  check_and_clear (&in, "in");
  check_and_clear (&scale, "the site's scale");
  check_and_clear (&amax, "the site's largest");
}
END_TEST

START_TEST (next_scales_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint64 sites = (guint64)from_to (rand, 1, 20), length = (guint64)from_to (rand, 1, 130);
  PlanOp op = { .kind = PLAN_OP_RESCALE, .dims = { (gint64)sites, (gint64)length } };
  const CompareDraw draw = _i % 3 ? COMPARE_POSITIVE : COMPARE_MAGNITUDES;
  ExecArgs cpu = { .op = &op }, cuda = cpu;
  CompareOperand operand[3];

  for (guint i = 0; i < 3; i++)
    {
      take (&operand[i], PLAN_DTYPE_FP32, i == 0 ? COMPARE_POSITIVE : draw,
            i == 1 ? sites * length : sites, rand);
      set_operand (&cpu, &cuda, i, &operand[i]);
    }
  exec_cpu_rescale (&cpu);
  must (exec_cuda_rescale (&cuda, NULL), "rescale");
  for (guint i = 0; i < 3; i++)
    check_and_clear (&operand[i], "rescale");
}
END_TEST

/* Norms sum in another order, so a number near the middle of two codes may be rounded to the other
 * one: to a code beside the expected one, and in few places. */
START_TEST (norms_by_a_site_are_near_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gboolean is_layernorm = _i % 2;
  PlanOp op = { .kind = is_layernorm ? PLAN_OP_LAYERNORM : PLAN_OP_RMSNORM,
                .dims = { from_to (rand, 1, 12), from_to (rand, 2, 700) } };
  const guint64 rows = (guint64)op.dims[0], cols = (guint64)op.dims[1];
  const guint site = is_layernorm ? 5 : 4;
  const ExecConstants constants = { .norm_eps = 1e-5 };
  ExecArgs cpu = { .op = &op, .constants = &constants }, cuda = cpu;
  CompareOperand operand[7];
  guint64 different = 0;

  take (&operand[0], PLAN_DTYPE_E4M3, COMPARE_SMALL, rows * cols, rand);
  take (&operand[1], PLAN_DTYPE_FP32, COMPARE_SMALL, rows * (is_layernorm ? 2 : 1), rand);
  take (&operand[2], PLAN_DTYPE_BF16, COMPARE_SMALL, rows * cols, rand);
  take (&operand[3], PLAN_DTYPE_BF16, COMPARE_POSITIVE, cols, rand);
  if (is_layernorm)
    take (&operand[4], PLAN_DTYPE_BF16, COMPARE_SMALL, cols, rand);
  take_site (&operand[site], &operand[site + 1], rand);
  for (guint i = 0; i < site + 2; i++)
    set_operand (&cpu, &cuda, i, &operand[i]);
  cpu.scale[0] = &operand[0].want_scale;
  cuda.scale[0] = operand[0].device_scale;
  exec_kernels_cpu.run[op.kind](&cpu);
  must (is_layernorm ? exec_cuda_layernorm (&cuda, NULL) : exec_cuda_rmsnorm (&cuda, NULL), "norm");
  compare_operand_fetch (&operand[0], device);
  for (guint64 i = 0; i < rows * cols; i++)
    {
      const gint got = operand[0].got[operand[0].at + i], want = operand[0].want[operand[0].at + i];

      if (ABS (got - want) > ((got & 0x7f) == 0 || (want & 0x7f) == 0 ? 0x81 : 1))
        ck_abort_msg ("code %" G_GUINT64_FORMAT " is %02x instead of %02x", i, got, want);
      different += got != want;
    }
  ck_assert_uint_le (different, rows * cols / 50 + 2);
  ck_assert (operand[0].got_scale == operand[0].want_scale);
  compare_operand_clear (&operand[0], device);
  compare_operand_fetch (&operand[site + 1], device);
  compare_operand_check (&operand[site + 1], (CompareBound){ 0, 0x1p-12, FALSE }, "largest");
  compare_operand_clear (&operand[site + 1], device);
  for (guint i = 1; i < site + 1; i++)
    compare_operand_clear (&operand[i], device);
}
END_TEST

START_TEST (transposes_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const PlanDtype dtype = _i % 2 ? PLAN_DTYPE_E4M3 : PLAN_DTYPE_E5M2;
  gint64 unit = _i % 3 ? 16 : 1; /* in pieces of 16 bytes, both to and from them */
  PlanOp op
      = { .kind = PLAN_OP_TRANSPOSE,
          .dims = { unit * from_to (rand, 1, 200 / unit), unit * from_to (rand, 1, 200 / unit) } };
  ExecArgs cpu = { .op = &op }, cuda = cpu;
  CompareOperand out, in;

  take (&out, dtype, COMPARE_SMALL, (guint64)(op.dims[0] * op.dims[1]), rand);
  take (&in, dtype, COMPARE_SMALL, out.count, rand);
  set_operand (&cpu, &cuda, 0, &out);
  set_operand (&cpu, &cuda, 1, &in);
  cpu.scale[0] = &out.want_scale;
  cpu.scale[1] = &in.want_scale;
  cuda.scale[0] = out.device_scale;
  cuda.scale[1] = in.device_scale;
  exec_cpu_transpose (&cpu);
  must (exec_cuda_transpose (&cuda, NULL), "transpose");
  check_and_clear (&out, "transpose out");
  check_and_clear (&in, "transpose in");
}
END_TEST

#define MAX_FOLDED 5

/* Reductions of the arrays of several ranks, also with the result in place of one of them. */
START_TEST (folds_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const PlanDtype dtype = _i % 2 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;
  const guint ranks = (guint)from_to (rand, 1, MAX_FOLDED),
              at = (guint)from_to (rand, 0, ranks - 1);
  const guint64 count = (guint64)from_to (rand, 1, 700);
  const gboolean adds = _i / 2 % 2 == 0;
  CompareOperand in[MAX_FOLDED];
  const void *host[MAX_FOLDED], *there[MAX_FOLDED];

  for (guint i = 0; i < ranks; i++)
    {
      take (&in[i], dtype,
            adds     ? COMPARE_SMALL
            : _i % 3 ? COMPARE_SMALL
                     : COMPARE_BITS,
            count, rand);
      host[i] = in[i].want + in[i].at;
      there[i] = in[i].device + in[i].at;
    }
  if (adds)
    exec_comm_sum (in[at].want + in[at].at, host, ranks, count, dtype);
  else
    exec_comm_max (in[at].want + in[at].at, host, ranks, count, dtype);
  must (adds ? exec_cuda_sum (in[at].device + in[at].at, there, ranks, count, dtype, NULL)
             : exec_cuda_max (in[at].device + in[at].at, there, ranks, count, dtype, NULL),
        "fold");
  for (guint i = 0; i < ranks; i++)
    check_and_clear (&in[i], "fold");
}
END_TEST

/* Dequantises what quantize has written, and random bytes. */
START_TEST (cuda_dequantizes)
{
  static const PlanDtype formats[]
      = { PLAN_DTYPE_E4M3, PLAN_DTYPE_E5M2, PLAN_DTYPE_MXFP8, PLAN_DTYPE_NVFP4 };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  CompareOperand in = { .dtype = formats[_i % 4] };
  CompareOperand out
      = { .dtype = _i / 4 % 2 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32, .draw = COMPARE_SMALL };
  float scale = (float)ldexp (g_rand_double_range (rand, 1, 2), g_rand_int_range (rand, -140, 120));

  in.count = out.count
      = _i % 4 < 2 ? (guint64)from_to (rand, 1, 3000) : 32 * (guint64)from_to (rand, 1, 60);
  compare_operand_init (&in, device, rand);
  compare_operand_init (&out, device, rand);
  for (guint64 i = 0; i < in.bytes; i++)
    in.want[in.at + i] = (guint8)g_rand_int (rand);
  compare_operand_keep (&in, device);
  g_autofree float *values = g_new (float, out.count);
  exec_cpu_dequantize (in.want + in.at, in.dtype, &scale, 1, in.count, values);
  exec_number_narrow (out.want + out.at, out.dtype, values, out.count);
  device->copy (in.device_scale, &scale, sizeof scale);
  ck_assert_int_eq (exec_cuda_dequantize (in.device + in.at, in.dtype, in.device_scale, in.count,
                                          out.device + out.at, out.dtype, NULL),
                    0);
  ck_assert_ptr_null (device->wait ());
  compare_operand_fetch (&out, device);
  compare_operand_check (&out, (CompareBound){ .any_nan = TRUE }, "dequantize");
  compare_operand_clear (&in, device);
  compare_operand_clear (&out, device);
}
END_TEST

/* --- moments ------------------------------------------------------------------------------ */

/* Two steps, the second on the state of the first; parts of any length at any offset. */
START_TEST (narrow_moments_are_the_cpus)
{
  static const PlanDtype formats[]
      = { PLAN_DTYPE_E4M3, PLAN_DTYPE_FP16, PLAN_DTYPE_BF16, PLAN_DTYPE_FP32 };
  static const char *const names[] = { "main", "exp_avg", "exp_avg_sq", "grad", "coef", "out" };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint64 count = (guint64)from_to (rand, 1, _i % 3 == 0 ? 3000 : 40);
  const guint64 skip = (guint64)from_to (rand, 0, MIN (count - 1, 9));
  const CompareDraw draw = _i % 7 == 0 ? COMPARE_BITS : COMPARE_SMALL;
  PlanOp op = { .kind = PLAN_OP_ADAMW, .dims = { (gint64)(count - skip) } };
  ExecConstants constants = { .lr = 1e-2,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .adam_eps = 1e-8,
                              .weight_decay = 0.1,
                              .step = from_to (rand, 1, 99) };
  ExecArgs cpu = { .op = &op, .constants = &constants }, cuda = cpu;
  CompareOperand operand[6];

  for (guint i = 0; i < G_N_ELEMENTS (operand); i++)
    {
      const gboolean is_moment = i == 1 || i == 2;
      const PlanDtype dtype = i == 4        ? PLAN_DTYPE_FP32
                              : i == 5      ? compare_format (rand)
                              : is_moment   ? formats[((guint)_i >> 2 * (i - 1)) % 4]
                              : _i % 2 == 0 ? PLAN_DTYPE_FP32
                                            : PLAN_DTYPE_BF16;
      const guint64 from = i != 4 ? skip : 0;
      take (&operand[i], dtype, i == 2 && _i % 7 > 0 ? COMPARE_POSITIVE : draw, i != 4 ? count : 4,
            rand);
      set_operand (&cpu, &cuda, i, &operand[i]);
      cpu.ptr[i] = (guint8 *)cpu.ptr[i] + plan_dtype_bytes (dtype, from);
      cuda.ptr[i] = (guint8 *)cuda.ptr[i] + plan_dtype_bytes (dtype, from);
      cpu.scale[i] = &operand[i].want_scale;
      cuda.scale[i] = operand[i].device_scale;
    }
  for (guint step = 0; step < 2; step++)
    {
      exec_kernels_cpu.run[PLAN_OP_ADAMW](&cpu);
      must (exec_cuda_adamw (&cuda, NULL), "adamw");
    }
  for (guint i = 0; i < G_N_ELEMENTS (operand); i++)
    check_and_clear (&operand[i], names[i]);
}
END_TEST

START_TEST (other_parts_are_refused)
{
  PlanOp op = { .kind = PLAN_OP_PARAM_QUANTIZE, .dims = { 3, 1 } };
  ExecArgs args = { .op = &op, .param = { 4, 16, 0, 16 } };
  float nothing[8] = { 0 };

  for (guint i = 0; i < N_OPERANDS; i++)
    args.ptr[i] = nothing;
  args.dtype[OUT] = PLAN_DTYPE_E2M1; /* two codes share a byte, and the count is odd */
  ck_assert_int_ne (exec_cuda_param_quantize (&args, NULL), 0);
  args.dtype[OUT] = PLAN_DTYPE_BF16;
  ck_assert_int_ne (exec_cuda_param_quantize (&args, NULL), 0);
  args.dtype[0] = PLAN_DTYPE_BF16; /* the atomic maximum needs 32 bits */
  args.param.block = 0;
  ck_assert_int_ne (exec_cuda_param_amax (&args, NULL), 0);
  args.dtype[0] = args.dtype[1]
      = PLAN_DTYPE_MXFP8; /* its scales are either of rows or of columns */
  ck_assert_int_ne (exec_cuda_transpose (&args, NULL), 0);
  ck_assert_ptr_null (device->wait ());
}
END_TEST

/* Every op that the CPU runs the device runs too: those on parts of parameters are compared here,
 * those of experts in compare-experts.c; products of experts, what quantises their rows or
 * transposes their weights, copies to
 * the host and what the host does are compared by whole runs alone (test-cuda-experts.c,
 * test-cuda-walk.c). */
START_TEST (every_op_is_compared)
{
  static const PlanOpKind elsewhere[] = { PLAN_OP_ADAMW_HOST,
                                          PLAN_OP_COPY,
                                          PLAN_OP_PARAM_AMAX,
                                          PLAN_OP_PARAM_QUANTIZE,
                                          PLAN_OP_RESCALE,
                                          PLAN_OP_TRANSPOSE,
                                          PLAN_OP_ROUTE,
                                          PLAN_OP_ROUTE_BWD,
                                          PLAN_OP_COUNT_ROUTES,
                                          PLAN_OP_BALANCE,
                                          PLAN_OP_DROP_TOKENS,
                                          PLAN_OP_ROW_MAP,
                                          PLAN_OP_PERMUTE,
                                          PLAN_OP_UNPERMUTE,
                                          PLAN_OP_GROUPED_QUANTIZE,
                                          PLAN_OP_GROUPED_TRANSPOSE,
                                          PLAN_OP_GROUPED_GEMM,
                                          PLAN_OP_GROUPED_GEMM_ADD,
                                          PLAN_OP_SWIGLU_QUANTIZE,
                                          PLAN_OP_SWIGLU_BWD_QUANTIZE,
                                          PLAN_OP_EXPERT_ACTIVATE,
                                          PLAN_OP_EXPERT_ACTIVATE_BWD,
                                          PLAN_OP_SCALE_ROWS,
                                          PLAN_OP_SCALE_ROWS_BWD,
                                          PLAN_OP_ADD_EXPERT_BIAS,
                                          PLAN_OP_ADD_EXPERT_BIAS_BWD,
                                          PLAN_OP_ATTENTION_SINK,
                                          PLAN_OP_ATTENTION_SINK_BWD,
                                          PLAN_OP_GATE,
                                          PLAN_OP_GATE_BWD };
  for (PlanOpKind kind = 0; kind < PLAN_N_OPS; kind++)
    {
      gboolean is_compared = compare_has_kernel (kind);

      for (guint i = 0; i < G_N_ELEMENTS (elsewhere); i++)
        is_compared |= elsewhere[i] == kind;
      ck_assert_msg (is_compared == (exec_kernels_cpu.run[kind] != NULL), "%s is%s compared",
                     plan_op_name (kind), is_compared ? "" : " not");
    }
}
END_TEST

void
compare_add_narrow_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create ("narrow");

  device = on;
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, magnitudes_are_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, quantised_parts_are_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, quotients_are_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, quantised_by_a_site_is_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, parts_by_a_site_are_the_cpus, 0, ROUNDS / 3);
  tcase_add_loop_test (tcase, next_scales_are_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, norms_by_a_site_are_near_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, transposes_are_the_cpus, 0, ROUNDS / 3);
  tcase_add_loop_test (tcase, folds_are_the_cpus, 0, ROUNDS / 3);
  tcase_add_loop_test (tcase, cuda_dequantizes, 0, ROUNDS);
  tcase_add_loop_test (tcase, narrow_moments_are_the_cpus, 0, ROUNDS);
  tcase_add_test (tcase, other_parts_are_refused);
  tcase_add_test (tcase, every_op_is_compared);
  suite_add_tcase (suite, tcase);
}
