/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that find the largest magnitude of what they store, quantising by it, and ops that quantise
 * what they make. Whatever the device's numbers are, the magnitude is that of its own, and so is
 * what is quantised; nothing else changes. */
#include "config.h"

#include "exec/cuda/kernels/kernels.h"
#include "planner/model/model.h"
#include "tests/fake/compare-operand.h"
#include "tests/share.h"

#include <math.h>
#include <string.h>

#define ROUNDS 120
#define MOST 9 /* operands, without the magnitude */

static const CompareDevice *device;

/* An op, its operands as in compare.c (p: positive, f: fp32, w: scratch, -: absent), and which one
 * is for the magnitude of operand 0. */
typedef struct
{
  PlanOpKind kind;
  ExecCudaLaunch launch;
  const char *operands;
  guint amax;
} Finder;

static const Finder finders[] = {
  { PLAN_OP_RMSNORM, exec_cuda_rmsnorm, "nfnn-", PLAN_REF_RMSNORM_amax },
  { PLAN_OP_LAYERNORM, exec_cuda_layernorm, "nfnnn-", PLAN_REF_LAYERNORM_amax },
  { PLAN_OP_ADD_RMSNORM, exec_cuda_add_rmsnorm, "nfnnnn-", PLAN_REF_ADD_RMSNORM_amax },
  { PLAN_OP_ADD_LAYERNORM, exec_cuda_add_layernorm, "nfnnnnn-", PLAN_REF_ADD_LAYERNORM_amax },
  { PLAN_OP_RMSNORM_BWD, exec_cuda_rmsnorm_bwd, "nnnnnpwn", PLAN_REF_RMSNORM_BWD_amax },
  { PLAN_OP_LAYERNORM_BWD, exec_cuda_layernorm_bwd, "nnnnnnpnw", PLAN_REF_LAYERNORM_BWD_amax },
  { PLAN_OP_SWIGLU, exec_cuda_swiglu, "nn", PLAN_REF_SWIGLU_amax },
  { PLAN_OP_SWIGLU_BWD, exec_cuda_swiglu_bwd, "nnn", PLAN_REF_SWIGLU_BWD_amax },
  { PLAN_OP_ACTIVATE, exec_cuda_activate, "nn", PLAN_REF_ACTIVATE_amax },
  { PLAN_OP_ACTIVATE_BWD, exec_cuda_activate_bwd, "nnn", PLAN_REF_ACTIVATE_BWD_amax },
};

static void
take (CompareOperand *self, PlanDtype dtype, CompareDraw draw, guint64 count, GRand *rand)
{
  *self = (CompareOperand){ .dtype = dtype, .draw = draw, .count = count };
  compare_operand_init (self, device, rand);
}

/* The largest magnitude in the device's array, and what was there before, as bits. */
static float
largest_of (const CompareOperand *out, float before)
{
  float largest = before;

  for (guint64 i = 0; i < out->count; i++)
    {
      const guint8 *at = out->got + out->at + plan_dtype_bytes (out->dtype, i);
      CompareOperand one = *out;
      one.want = (guint8 *)at - out->at;
      largest = fmaxf (largest, (float)fabs (compare_operand_want (&one, 0)));
    }
  return largest;
}

static void
draw_dims (const Finder *finder, GRand *rand, gint64 *dims)
{
  dims[0] = g_rand_int_range (rand, 1, 12);
  dims[1] = g_rand_boolean (rand) ? 8 * g_rand_int_range (rand, 1, 300)
                                  : g_rand_int_range (rand, 1, 900);
  dims[2] = g_rand_int_range (rand, 0, PLAN_ACTIVATION_QUICK_GELU + 1);
  dims[3] = g_rand_boolean (rand);
  if (g_rand_int_range (rand, 0, 8) == 0 && finder->kind == PLAN_OP_SWIGLU)
    dims[0] = 65535 + 3, dims[1] = 2;
}

START_TEST (magnitudes_are_those_of_what_is_stored)
{
  const Finder *finder = &finders[(guint)_i % G_N_ELEMENTS (finders)];
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const ExecConstants constants = { .norm_eps = 1e-5 };
  const PlanDtype format = _i / 10 % 3 ? PLAN_DTYPE_BF16 : compare_format (rand);
  const float before = _i / 10 % 4 ? 0 : 2.5f;
  PlanOp op = { .kind = finder->kind };
  ExecArgs args = { .op = &op, .constants = &constants };
  CompareOperand operand[MOST], plain, amax, *of[PLAN_MAX_REFS] = { NULL };

  draw_dims (finder, rand, op.dims);
  for (guint i = 0; finder->operands[i]; i++)
    if (finder->operands[i] != '-' && finder->operands[i] != 'w')
      {
        const char what = finder->operands[i];
        take (&operand[i], strchr ("fp", what) ? PLAN_DTYPE_FP32 : format,
              what == 'p' ? COMPARE_POSITIVE : COMPARE_SMALL, plan_op_ref_elements (&op, i, 1),
              rand);
        of[i] = &operand[i];
      }
  take (&plain, format, COMPARE_SMALL, operand[0].count, rand);
  take (&amax, PLAN_DTYPE_FP32, COMPARE_POSITIVE, 1, rand);
  *(float *)(gpointer)(amax.want + amax.at) = before;
  compare_operand_keep (&amax, device);
  of[0] = &plain;
  compare_operands_run (of, finder->amax, &args, finder->launch, device);
  of[0] = &operand[0];
  of[finder->amax] = &amax;
  compare_operands_run (of, finder->amax + 1, &args, finder->launch, device);
  ck_assert_msg (memcmp (operand[0].got + operand[0].at, plain.got + plain.at, plain.bytes) == 0,
                 "%s: a magnitude is asked for, and results change", plan_op_name (op.kind));
  ck_assert_float_eq (*(const float *)(gconstpointer)(amax.got + amax.at),
                      largest_of (&operand[0], before));
  ck_assert_float_eq (*(const float *)(gconstpointer)(amax.want + amax.at),
                      fmaxf ((float)compare_operand_largest (&operand[0]), before));
  compare_operand_clear (&plain, device);
  for (guint i = 0; i <= finder->amax; i++)
    if (of[i])
      compare_operand_clear (of[i], device);
}
END_TEST

/* Quantising by a magnitude that was found gives the bits of quantising by one that is looked for,
 * and the magnitude is 0 afterwards. */
START_TEST (quantised_by_what_was_found)
{
  static const PlanDtype formats[] = { PLAN_DTYPE_E4M3, PLAN_DTYPE_E5M2, PLAN_DTYPE_NVFP4 };
  const PlanDtype format = formats[_i % 3];
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint64 unit = format == PLAN_DTYPE_NVFP4 ? 16 : 1;
  PlanOp op = { .kind = PLAN_OP_QUANTIZE,
                .dims = { (gint64)unit * g_rand_int_range (rand, 1, 20),
                          (gint64)unit * g_rand_int_range (rand, 1, 30) } };
  const guint64 n = (guint64)(op.dims[0] * op.dims[1]);
  CompareOperand in, found, out[4], *of[PLAN_MAX_REFS] = { NULL };
  ExecArgs args = { .op = &op };

  take (&in, compare_format (rand), COMPARE_SMALL, n, rand);
  take (&found, PLAN_DTYPE_FP32, COMPARE_POSITIVE, 1, rand);
  *(float *)(gpointer)(found.want + found.at) = (float)compare_operand_largest (&in);
  compare_operand_keep (&found, device);
  for (guint i = 0; i < 4; i++)
    {
      take (&out[i], format, COMPARE_SMALL, n, rand);
      out[i].rows = (guint64)op.dims[i % 2];
      out[i].cols = (guint64)op.dims[1 - i % 2];
    }
  of[PLAN_REF_QUANTIZE_in] = &in;
  for (guint i = 0; i < 4; i += 2)
    {
      ExecArgs cpu = args, cuda = args;
      of[PLAN_REF_QUANTIZE_out] = &out[i];
      of[PLAN_REF_QUANTIZE_col] = &out[i + 1];
      of[PLAN_REF_QUANTIZE_largest] = i > 0 ? &found : NULL;
      for (guint k = 0; k <= PLAN_REF_QUANTIZE_largest; k++)
        if (of[k])
          {
            cpu.ptr[k] = of[k]->want + of[k]->at;
            cpu.scale[k] = &of[k]->want_scale;
            cuda.ptr[k] = of[k]->device + of[k]->at;
            cuda.scale[k] = of[k]->device_scale;
            cpu.dtype[k] = cuda.dtype[k] = of[k]->dtype;
          }
      exec_kernels_cpu.run[op.kind](&cpu);
      ck_assert_int_eq (exec_cuda_quantize (&cuda, NULL), 0);
      ck_assert_ptr_null (device->wait ());
    }
  for (guint i = 0; i < 4; i++)
    {
      compare_operand_fetch (&out[i], device);
      compare_operand_check (&out[i], (CompareBound){ .any_nan = TRUE }, "by what was found");
    }
  for (guint i = 0; i < 2; i++)
    {
      ck_assert_mem_eq (out[i].want + out[i].at, out[i + 2].want + out[i + 2].at, out[i].bytes);
      ck_assert_float_eq (out[i].want_scale, out[i + 2].want_scale);
    }
  compare_operand_fetch (&found, device);
  ck_assert_float_eq (*(const float *)(gconstpointer)(found.got + found.at), 0);
  ck_assert_float_eq (*(const float *)(gconstpointer)(found.want + found.at), 0);
  for (guint i = 0; i < 4; i++)
    compare_operand_clear (&out[i], device);
  compare_operand_clear (&in, device);
  compare_operand_clear (&found, device);
}
END_TEST

/* Each device's bytes, and the scale. */
static void
check_same (CompareOperand *got, CompareOperand *want, gboolean has_scale)
{
  compare_operand_fetch (got, device);
  compare_operand_fetch (want, device);
  ck_assert_mem_eq (got->got + got->at, want->got + want->at, got->bytes);
  ck_assert_mem_eq (got->want + got->at, want->want + want->at, got->bytes);
  if (has_scale)
    {
      ck_assert_float_eq (got->got_scale, want->got_scale);
      ck_assert_float_eq (got->want_scale, want->want_scale);
    }
}

static void
set (ExecArgs *cpu, ExecArgs *cuda, guint i, CompareOperand *self, PlanDtype dtype)
{
  cpu->ptr[i] = self->want + self->at;
  cpu->scale[i] = &self->want_scale;
  cuda->ptr[i] = self->device + self->at;
  cuda->scale[i] = self->device_scale;
  cpu->dtype[i] = cuda->dtype[i] = dtype;
}

static void
run_both (const ExecArgs *cpu, const ExecArgs *cuda, ExecCudaLaunch launch)
{
  exec_kernels_cpu.run[cpu->op->kind](cpu);
  ck_assert_int_eq (launch (cuda, NULL), 0);
  ck_assert_ptr_null (device->wait ());
}

/* Allocates both copies, of zeros, and the magnitude so far. */
static void
take_results (CompareOperand *amax, CompareOperand *out, CompareOperand *col, guint64 bytes,
              GRand *rand)
{
  take (amax, PLAN_DTYPE_FP32, COMPARE_POSITIVE, 1, rand);
  *(float *)(gpointer)(amax->want + amax->at) = 0.25f;
  compare_operand_keep (amax, device);
  take (out, PLAN_DTYPE_U8, COMPARE_BYTES, bytes, rand);
  take (col, PLAN_DTYPE_U8, COMPARE_BYTES, bytes, rand);
  memset (out->want + out->at, 0, out->bytes);
  memset (col->want + col->at, 0, col->bytes);
  compare_operand_keep (out, device);
  compare_operand_keep (col, device);
}

/* Swiglu, or its gradient, that is quantised as it is made has the bits of the two ops, on each
 * device its own. */
START_TEST (made_and_quantised_at_once)
{
  static const PlanDtype formats[]
      = { PLAN_DTYPE_E4M3, PLAN_DTYPE_E5M2, PLAN_DTYPE_FP8_1X128, PLAN_DTYPE_FP8_128X128 };
  const PlanDtype format = formats[_i % 4], bf16 = PLAN_DTYPE_BF16;
  const gboolean is_slope = _i / 4 % 2, is_given = _i % 4 < 2, transposes = _i / 8 % 3 > 0;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 unit = is_given ? 8 : 128;
  const gint64 rows = (is_given ? 1 : unit) * g_rand_int_range (rand, 1, is_given ? 200 : 4);
  const gint64 cols = unit * g_rand_int_range (rand, 1, is_given ? 40 : 4);
  const guint64 n = (guint64)(rows * cols), made_n = is_slope ? 2 * n : n;
  const guint64 bytes = plan_dtype_bytes (format, made_n);
  PlanOp make = { .kind = is_slope ? PLAN_OP_SWIGLU_BWD : PLAN_OP_SWIGLU, .dims = { rows, cols } };
  PlanOp quantise = { .kind = PLAN_OP_QUANTIZE, .dims = { rows, is_slope ? 2 * cols : cols } };
  PlanOp both = { .kind = is_slope ? PLAN_OP_SWIGLU_BWD_QUANTIZE : PLAN_OP_SWIGLU_QUANTIZE,
                  .dims = { rows, cols } };
  ExecArgs cpu[3] = { { .op = &make }, { .op = &quantise }, { .op = &both } };
  ExecArgs cuda[3] = { cpu[0], cpu[1], cpu[2] };
  CompareOperand in, dout, made, scale, amax[2], out[2], col[2];

  in = (CompareOperand){ .dtype = bf16, .draw = COMPARE_SMALL, .count = 2 * n, .is_aligned = TRUE };
  compare_operand_init (&in, device, rand);
  dout = made = in;
  dout.count = n;
  made.count = made_n;
  compare_operand_init (&dout, device, rand);
  compare_operand_init (&made, device, rand);
  take (&scale, PLAN_DTYPE_FP32, COMPARE_POSITIVE, 1, rand);
  set (&cpu[0], &cuda[0], 0, &made, bf16);
  set (&cpu[0], &cuda[0], 1, is_slope ? &dout : &in, bf16);
  if (is_slope)
    set (&cpu[0], &cuda[0], PLAN_REF_SWIGLU_BWD_in, &in, bf16);
  for (guint i = 0; i < 2; i++)
    {
      ExecArgs *c = &cpu[1 + i], *g = &cuda[1 + i];
      take_results (&amax[i], &out[i], &col[i], bytes, rand);
      set (c, g, PLAN_REF_QUANTIZE_out, &out[i], format);
      if (transposes)
        set (c, g, PLAN_REF_QUANTIZE_col, &col[i], format);
      set (c, g, PLAN_REF_QUANTIZE_in, i > 0 ? &in : &made, bf16);
      if (is_given)
        set (c, g, PLAN_REF_QUANTIZE_scale, &scale, PLAN_DTYPE_FP32);
      if (is_given)
        set (c, g, PLAN_REF_QUANTIZE_amax, &amax[i], PLAN_DTYPE_FP32);
    }
  if (is_slope)
    set (&cpu[2], &cuda[2], PLAN_REF_SWIGLU_BWD_QUANTIZE_dout, &dout, bf16);
  run_both (&cpu[0], &cuda[0], is_slope ? exec_cuda_swiglu_bwd : exec_cuda_swiglu);
  run_both (&cpu[1], &cuda[1], exec_cuda_quantize);
  run_both (&cpu[2], &cuda[2], exec_cuda_quantize);
  check_same (&out[1], &out[0], is_given);
  check_same (&col[1], &col[0], is_given && transposes);
  check_same (&amax[1], &amax[0], FALSE);
  CompareOperand *const all[]
      = { &in, &dout, &made, &scale, &amax[0], &amax[1], &out[0], &out[1], &col[0], &col[1] };
  for (guint i = 0; i < G_N_ELEMENTS (all); i++)
    compare_operand_clear (all[i], device);
}
END_TEST

/* What is made in passing is quantised by a scale that is known, or by scales of blocks, and is
 * made of bf16. */
START_TEST (made_by_known_scales)
{
  const PlanOpKind kind = _i / 3 ? PLAN_OP_SWIGLU_BWD_QUANTIZE : PLAN_OP_SWIGLU_QUANTIZE;
  PlanOp op = { .kind = kind, .dims = { 128, 128 } };
  gint64 nothing[8] = { 0 };
  ExecArgs args = { .op = &op };

  for (guint i = 0; i < 6; i++)
    {
      args.ptr[i] = i == 1 || i == 4 || (i == 3 && _i % 3 != 1) ? NULL : nothing;
      args.scale[i] = (float *)nothing;
      args.dtype[i] = _i % 3 > 0 ? PLAN_DTYPE_FP32 : PLAN_DTYPE_BF16;
    }
  args.dtype[0] = _i % 3 == 0   ? PLAN_DTYPE_MXFP8
                  : _i % 3 == 1 ? PLAN_DTYPE_E4M3
                                : PLAN_DTYPE_FP8_1X128;
  ck_assert_int_ne (exec_cuda_quantize (&args, NULL), 0);
}
END_TEST

/* Formats whose scales are of blocks alone take no magnitude. */
START_TEST (blocks_take_no_magnitude)
{
  static const PlanDtype formats[]
      = { PLAN_DTYPE_MXFP8, PLAN_DTYPE_FP8_1X128, PLAN_DTYPE_FP8_128X128 };
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { 128, 128 } };
  gint64 nothing[8] = { 0 };
  ExecArgs args = { .op = &op, .dtype = { formats[_i], formats[_i] } };

  args.ptr[0] = args.ptr[2] = args.ptr[PLAN_REF_QUANTIZE_largest] = nothing;
  args.scale[0] = (float *)nothing;
  ck_assert_int_ne (exec_cuda_quantize (&args, NULL), 0);
}
END_TEST

void
compare_add_largest_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create ("largest");

  device = on;
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, magnitudes_are_those_of_what_is_stored, 0,
                       MAX (ROUNDS / (int)test_share (), (int)G_N_ELEMENTS (finders)));
  tcase_add_loop_test (tcase, quantised_by_what_was_found, 0, ROUNDS / 2 / (int)test_share () + 3);
  tcase_add_loop_test (tcase, made_and_quantised_at_once, 0, 60 / (int)MIN (test_share (), 6));
  tcase_add_loop_test (tcase, made_by_known_scales, 0, 6);
  tcase_add_loop_test (tcase, blocks_take_no_magnitude, 0, 3);
  suite_add_tcase (suite, tcase);
}
