/* SPDX-License-Identifier: Apache-2.0 */
/* The tails of activations: for arguments from 0 down to -12, where little is left of the argument,
 * a kernel's results are compared with arithmetic in double. */
#include "config.h"

#include "exec/cuda/kernels/kernels.h"
#include "planner/model/model.h"
#include "tests/fake/compare-operand.h"

#include <math.h>

#define STEPS 1201
#define STEP 0.01 /* between two arguments */

static const CompareDevice *device;

/* The share of its argument that an activation leaves: the activation of x is x times this
 * share. */
static double
share_of (PlanActivation kind, double x)
{
  switch ((int)kind)
    {
    case PLAN_ACTIVATION_GELU:
      return 0.5 * erfc (-x / sqrt (2));
    case PLAN_ACTIVATION_GELU_TANH:
      return 1 / (1 + exp (-sqrt (8 / G_PI) * (x + 0.044715 * x * x * x)));
    case PLAN_ACTIVATION_QUICK_GELU:
      return 1 / (1 + exp (-1.702 * x));
    default:
      return 1 / (1 + exp (-x));
    }
}

static void
take (CompareOperand *self, GRand *rand)
{
  *self = (CompareOperand){ .dtype = PLAN_DTYPE_FP32, .draw = COMPARE_SMALL, .count = STEPS };
  compare_operand_init (self, device, rand);
}

START_TEST (activations_have_their_tails)
{
  static const PlanActivation kinds[] = { PLAN_ACTIVATION_SILU, PLAN_ACTIVATION_GELU,
                                          PLAN_ACTIVATION_GELU_TANH, PLAN_ACTIVATION_QUICK_GELU };
  const PlanActivation kind = kinds[_i];
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  PlanOp op = { .kind = PLAN_OP_ACTIVATE, .dims = { 1, STEPS, (gint64)kind, 0 } };
  ExecArgs args = { .op = &op };
  CompareOperand out, in;

  take (&out, rand);
  take (&in, rand);
  float *x = (float *)(gpointer)(in.want + in.at);
  for (guint i = 0; i < STEPS; i++)
    x[i] = (float)(-STEP * i);
  compare_operand_keep (&in, device);
  args.ptr[0] = out.device + out.at;
  args.ptr[1] = in.device + in.at;
  args.dtype[0] = args.dtype[1] = PLAN_DTYPE_FP32;
  ck_assert_int_eq (exec_cuda_activate (&args, NULL), 0);
  ck_assert_ptr_null (device->wait ());
  compare_operand_fetch (&out, device);
  const float *got = (const float *)(gconstpointer)(out.got + out.at);
  for (guint i = 0; i < STEPS; i++)
    {
      const double share = share_of (kind, (double)x[i]), want = (double)x[i] * share;

      /* Shares near the smallest normal float, as gelu_tanh has, are not compared. */
      if (fabs ((double)got[i] - want) > 0x1p-13 * fabs (want) && share > 0x1p-120)
        ck_abort_msg ("%d of %g is %g instead of %g", (int)kind, (double)x[i], (double)got[i],
                      want);
    }
  compare_operand_clear (&out, device);
  compare_operand_clear (&in, device);
}
END_TEST

void
compare_add_activation_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create ("tails");

  device = on;
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, activations_have_their_tails, 0, 4);
  suite_add_tcase (suite, tcase);
}
