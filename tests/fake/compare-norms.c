/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that add and norm leave the same bits as two ops on the same device, since all of them go
 * through a row in the same way. */
#include "config.h"

#include "exec/cuda/kernels/kernels.h"
#include "planner/schedule/op.h"
#include "tests/fake/compare-dims.h"
#include "tests/fake/compare-operand.h"

#include <string.h>

#define ROUNDS 48

static const CompareDevice *device;

static void
take (CompareOperand *self, PlanDtype dtype, CompareDraw draw, guint64 count, GRand *rand)
{
  *self = (CompareOperand){ .dtype = dtype, .draw = draw, .count = count };
  compare_operand_init (self, device, rand);
}

/* Sets an operand; one that is NULL is absent. */
static void
point (ExecArgs *args, guint i, CompareOperand *operand)
{
  if (operand == NULL)
    return;
  args->ptr[i] = operand->device + operand->at;
  args->dtype[i] = operand->dtype;
  args->scale[i] = operand->device_scale;
}

static void
launch (ExecCudaLaunch launcher, PlanOpKind kind, const gint64 *dims,
        CompareOperand *const *operands)
{
  const ExecConstants constants = { .norm_eps = 1e-5 };
  PlanOp op = { .kind = kind };
  ExecArgs args = { .op = &op, .constants = &constants };

  memcpy (op.dims, dims, plan_op_n_dims (kind) * sizeof *dims);
  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    point (&args, i, operands[i]);
  const int code = launcher (&args, NULL);
  const char *error = device->wait ();
  ck_assert_msg (code == 0 && error == NULL, "%s: launch gives %d, %s", plan_op_name (kind), code,
                 error ? error : "");
}

#define OPERANDS(...) ((CompareOperand *const[PLAN_MAX_REFS]){ __VA_ARGS__ })

/* Checks that one kernel and the others made the same bits, and frees both results. */
static void
check_same (CompareOperand *got, CompareOperand *want, const char *what)
{
  compare_operand_fetch (got, device);
  compare_operand_fetch (want, device);
  ck_assert_msg (memcmp (got->got + got->at, want->got + want->at, want->bytes) == 0
                     && (want->dtype != PLAN_DTYPE_E4M3 || got->got_scale == want->got_scale),
                 "%s (%s) differs from what single ops leave", what, plan_dtype_name (want->dtype));
  compare_operand_clear (got, device);
  compare_operand_clear (want, device);
}

static gint64
rows_of (GRand *rand)
{
  return g_rand_int_range (rand, 1, 9);
}

START_TEST (sums_in_norms_are_those_of_two_kernels)
{
  const gboolean has_mean = _i % 2, quantises = _i / 2 % 2;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 dims[] = { rows_of (rand), compare_odd_size (rand, 2500) };
  const guint64 n = (guint64)(dims[0] * dims[1]), width = (guint64)dims[1];
  const guint64 depth = (guint64)dims[0] * 2;
  const PlanDtype out_format = quantises ? PLAN_DTYPE_E4M3 : compare_format (rand);
  const PlanDtype sum_format = compare_format (rand);
  CompareOperand a, b, gain, bias, scale, out[2], sum[2], stats[2], amax[2];

  take (&a, compare_format (rand), COMPARE_SMALL, n, rand);
  take (&b, compare_format (rand), COMPARE_SMALL, n, rand);
  take (&gain, compare_format (rand), COMPARE_SMALL, width, rand);
  take (&bias, compare_format (rand), COMPARE_SMALL, width, rand);
  take (&scale, PLAN_DTYPE_FP32, COMPARE_POSITIVE, 1, rand);
  for (guint i = 0; i < 2; i++)
    {
      take (&out[i], out_format, COMPARE_SMALL, n, rand);
      take (&sum[i], sum_format, COMPARE_SMALL, n, rand);
      take (&stats[i], PLAN_DTYPE_FP32, COMPARE_SMALL, depth, rand);
      take (&amax[i], PLAN_DTYPE_FP32, COMPARE_POSITIVE, 1, rand);
      *(float *)(gpointer)(amax[i].want + amax[i].at) = 0.5f;
      compare_operand_keep (&amax[i], device);
      memset (stats[i].want + stats[i].at, 0, stats[i].bytes);
      compare_operand_keep (&stats[i], device);
    }
  CompareOperand *by = quantises ? &scale : NULL, *offset = g_rand_boolean (rand) ? &bias : NULL;
  launch (exec_cuda_add, PLAN_OP_ADD, (gint64[]){ (gint64)n }, OPERANDS (&sum[0], &a, &b));
  if (has_mean)
    {
      launch (exec_cuda_layernorm, PLAN_OP_LAYERNORM, dims,
              OPERANDS (&out[0], &stats[0], &sum[0], &gain, offset, by, &amax[0]));
      launch (exec_cuda_add_layernorm, PLAN_OP_ADD_LAYERNORM, dims,
              OPERANDS (&out[1], &stats[1], &sum[1], &a, &b, &gain, offset, by, &amax[1]));
    }
  else
    {
      launch (exec_cuda_rmsnorm, PLAN_OP_RMSNORM, dims,
              OPERANDS (&out[0], &stats[0], &sum[0], &gain, by, &amax[0]));
      launch (exec_cuda_add_rmsnorm, PLAN_OP_ADD_RMSNORM, dims,
              OPERANDS (&out[1], &stats[1], &sum[1], &a, &b, &gain, by, &amax[1]));
    }
  check_same (&sum[1], &sum[0], "sum");
  check_same (&out[1], &out[0], "out");
  check_same (&stats[1], &stats[0], "statistics");
  check_same (&amax[1], &amax[0], "largest");
  CompareOperand *const rest[] = { &a, &b, &gain, &bias, &scale };
  for (guint i = 0; i < G_N_ELEMENTS (rest); i++)
    compare_operand_clear (rest[i], device);
}
END_TEST

START_TEST (gradients_that_are_added_are_those_of_two_kernels)
{
  const gboolean has_mean = _i % 2, in_place = _i / 2 % 2;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 dims[] = { rows_of (rand), compare_odd_size (rand, 2500) };
  const guint64 n = (guint64)(dims[0] * dims[1]), width = (guint64)dims[1];
  const PlanDtype format = compare_format (rand);
  CompareOperand dout, in, gain, stats, before, share, din[2], dgain[2], dbias[2];

  take (&dout, compare_format (rand), COMPARE_SMALL, n, rand);
  take (&in, compare_format (rand), COMPARE_SMALL, n, rand);
  take (&gain, compare_format (rand), COMPARE_SMALL, width, rand);
  take (&stats, PLAN_DTYPE_FP32, COMPARE_POSITIVE, (guint64)dims[0] * 2, rand);
  take (&before, in_place ? format : compare_format (rand), COMPARE_SMALL, n, rand);
  take (&share, format, COMPARE_SMALL, n, rand);
  for (guint i = 0; i < 2; i++)
    {
      take (&din[i], format, COMPARE_SMALL, n, rand);
      take (&dgain[i], PLAN_DTYPE_FP32, COMPARE_SMALL, width, rand);
      take (&dbias[i], PLAN_DTYPE_FP32, COMPARE_SMALL, width, rand);
    }
  if (in_place)
    {
      memcpy (din[1].want + din[1].at, before.before + before.at, before.bytes);
      compare_operand_keep (&din[1], device);
    }
  CompareOperand *add = in_place ? &din[1] : &before;
  if (has_mean)
    {
      launch (exec_cuda_layernorm_bwd, PLAN_OP_LAYERNORM_BWD, dims,
              OPERANDS (&share, &dgain[0], &dbias[0], &dout, &in, &gain, &stats));
      launch (exec_cuda_layernorm_bwd, PLAN_OP_LAYERNORM_BWD, dims,
              OPERANDS (&din[1], &dgain[1], &dbias[1], &dout, &in, &gain, &stats, add));
    }
  else
    {
      launch (exec_cuda_rmsnorm_bwd, PLAN_OP_RMSNORM_BWD, dims,
              OPERANDS (&share, &dgain[0], &dout, &in, &gain, &stats));
      launch (exec_cuda_rmsnorm_bwd, PLAN_OP_RMSNORM_BWD, dims,
              OPERANDS (&din[1], &dgain[1], &dout, &in, &gain, &stats, NULL, add));
    }
  launch (exec_cuda_add, PLAN_OP_ADD, (gint64[]){ (gint64)n }, OPERANDS (&din[0], &before, &share));
  check_same (&din[1], &din[0], "din");
  check_same (&dgain[1], &dgain[0], "dweight");
  if (has_mean)
    check_same (&dbias[1], &dbias[0], "dbias");
  for (guint i = 0; !has_mean && i < 2; i++)
    compare_operand_clear (&dbias[i], device);
  CompareOperand *const rest[] = { &dout, &in, &gain, &stats, &before, &share };
  for (guint i = 0; i < G_N_ELEMENTS (rest); i++)
    compare_operand_clear (rest[i], device);
}
END_TEST

void
compare_add_norm_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create ("adding_norms");

  device = on;
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, sums_in_norms_are_those_of_two_kernels, 0, ROUNDS);
  tcase_add_loop_test (tcase, gradients_that_are_added_are_those_of_two_kernels, 0, ROUNDS);
  suite_add_tcase (suite, tcase);
}
