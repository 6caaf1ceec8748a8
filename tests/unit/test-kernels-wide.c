/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of models that are not llama's: norms by mean and variance, norms of heads, other
 * activations, biases, learned positions; against double-precision references, and gradients
 * against differences of those. */
#include "config.h"

#include "planner/model.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void
slow_layernorm (Pass *pass)
{
  gint64 rows = pass->dims[0], cols = pass->dims[1];

  for (gint64 r = 0; r < rows; r++)
    {
      const double *in = pass->in[0] + r * cols;
      double mean = 0, square = 0;

      for (gint64 c = 0; c < cols; c++)
        mean += in[c] / (double)cols;
      for (gint64 c = 0; c < cols; c++)
        square += (in[c] - mean) * (in[c] - mean) / (double)cols;
      for (gint64 c = 0; c < cols; c++)
        pass->out[r * cols + c]
            = (in[c] - mean) / sqrt (square + constants.norm_eps) * pass->in[1][c];
    }
}

START_TEST (kernels_layernorm)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 rows = between (rand, 1, 5), cols = between (rand, 2, _i % 5 == 0 ? 300 : 40);
  guint64 n = (guint64)(rows * cols), width = (guint64)cols;
  PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n, 2);
  g_auto (Tensor) weight = tensor_random (rand, format, width, 1);
  g_auto (Tensor) bias = tensor_random (rand, format, width, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) out = tensor_blank (format, n), din = tensor_blank (format, n);
  g_auto (Tensor) stats = tensor_blank (PLAN_DTYPE_FP32, 2 * (guint64)rows);
  g_auto (Tensor) dweight = tensor_blank (format, width), dbias = tensor_blank (format, width);
  Pass pass = { { rows, cols }, { in.value, weight.value }, NULL, g_new (double, n), n };
  g_autofree double *want = pass.out, *want_dbias = g_new0 (double, width);
  g_autofree double *want_din = slow_gradient (slow_layernorm, &pass, 0, n, dout.value);
  g_autofree double *want_dweight = slow_gradient (slow_layernorm, &pass, 1, width, dout.value);

  slow_layernorm (&pass);
  run_kernel (PLAN_OP_LAYERNORM, OPERANDS (&out, &stats, &in, &weight, NULL), pass.dims, format);
  check_close (&out, want, 2e-6, "layernorm");
  for (guint64 i = 0; i < n; i++)
    {
      want[i] += bias.value[i % width];
      want_dbias[i % width] += dout.value[i];
    }
  run_kernel (PLAN_OP_LAYERNORM, OPERANDS (&out, &stats, &in, &weight, &bias), pass.dims, format);
  check_close (&out, want, 2e-6, "layernorm with bias");
  run_kernel (PLAN_OP_LAYERNORM_BWD, OPERANDS (&din, &dweight, &dbias, &dout, &in, &weight, &stats),
              pass.dims, format);
  check_close (&din, want_din, cols > 2 ? 1e-4 : 1e-2, "layernorm_bwd din");
  check_close (&dweight, want_dweight, 1e-5, "layernorm_bwd dweight");
  check_close (&dbias, want_dbias, 1e-6, "layernorm_bwd dbias");
}
END_TEST

/* in[1]: the weights of q, then of k. */
static void
slow_head_norm (Pass *pass)
{
  gint64 rows = pass->dims[0], heads = pass->dims[1], kv = pass->dims[2], d = pass->dims[3];
  gint64 all = heads + 2 * kv;

  for (gint64 h = 0; h < rows * all; h++)
    {
      const double *in = pass->in[0] + h * d;
      double sum = 0;

      for (gint64 i = 0; i < d; i++)
        sum += in[i] * in[i];
      for (gint64 i = 0; i < d; i++)
        pass->out[h * d + i] = h % all >= heads + kv
                                   ? in[i]
                                   : in[i] / sqrt (sum / (double)d + constants.norm_eps)
                                         * pass->in[1][(h % all >= heads ? d : 0) + i];
    }
}

START_TEST (kernels_head_norm)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 kv = between (rand, 1, 2), heads = kv * between (rand, 1, 3);
  gint64 d = _i % 10 == 0 ? 260 : between (rand, 1, 12), rows = between (rand, 1, 3);
  guint64 n = (guint64)(rows * (heads + 2 * kv) * d), width = (guint64)d;
  PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n, 2);
  g_auto (Tensor) q = tensor_random (rand, format, width, 1);
  g_auto (Tensor) k = tensor_random (rand, format, width, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) out = tensor_blank (format, n), din = tensor_blank (format, n);
  g_auto (Tensor) dq = tensor_blank (format, width), dk = tensor_blank (format, width);
  g_auto (Tensor) rstd = tensor_blank (PLAN_DTYPE_FP32, (guint64)(rows * (heads + kv)));
  g_autofree double *weights = g_new (double, 2 * width);
  Pass pass = { { rows, heads, kv, d }, { in.value, weights }, NULL, g_new (double, n), n };
  g_autofree double *want = pass.out;

  memcpy (weights, q.value, width * sizeof *weights);
  memcpy (weights + width, k.value, width * sizeof *weights);
  g_autofree double *want_din = slow_gradient (slow_head_norm, &pass, 0, n, dout.value);
  g_autofree double *want_dweights
      = slow_gradient (slow_head_norm, &pass, 1, 2 * width, dout.value);
  slow_head_norm (&pass);
  run_kernel (PLAN_OP_HEAD_NORM, OPERANDS (&out, &rstd, &in, &q, &k), pass.dims, format);
  check_close (&out, want, 1e-6, "head_norm");
  run_kernel (PLAN_OP_HEAD_NORM_BWD, OPERANDS (&din, &dq, &dk, &dout, &in, &q, &k, &rstd),
              pass.dims, format);
  check_close (&din, want_din, 1e-4, "head_norm_bwd din");
  check_close (&dq, want_dweights, 1e-5, "head_norm_bwd dq");
  check_close (&dk, want_dweights + width, 1e-5, "head_norm_bwd dk");
}
END_TEST

static double
slow_activation (PlanActivation kind, double x)
{
  switch (kind)
    {
    case PLAN_ACTIVATION_SILU:
      return x / (1 + exp (-x));
    case PLAN_ACTIVATION_GELU:
      return x * 0.5 * erfc (-x / sqrt (2));
    case PLAN_ACTIVATION_GELU_TANH:
      return 0.5 * x * (1 + tanh (sqrt (2 / G_PI) * (x + 0.044715 * x * x * x)));
    case PLAN_ACTIVATION_RELU:
      return fmax (x, 0);
    case PLAN_ACTIVATION_RELU2:
      return fmax (x, 0) * fmax (x, 0);
    case PLAN_ACTIVATION_QUICK_GELU:
      return x / (1 + exp (-1.702 * x));
    }
  g_assert_not_reached ();
}

static void
slow_activate (Pass *pass)
{
  gint64 rows = pass->dims[0], cols = pass->dims[1], gated = pass->dims[3];

  for (gint64 r = 0; r < rows; r++)
    for (gint64 c = 0; c < cols; c++)
      {
        const double *in = pass->in[0] + (gated ? 2 : 1) * r * cols + c;

        pass->out[r * cols + c]
            = slow_activation ((PlanActivation)pass->dims[2], in[0]) * (gated ? in[cols] : 1);
      }
}

/* Every activation, gated or not. */
START_TEST (kernels_activate)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 rows = between (rand, 1, 4), cols = between (rand, 1, _i % 5 == 0 ? 300 : 30);
  gint64 gated = _i % 2, kind = _i / 2 % (PLAN_ACTIVATION_QUICK_GELU + 1);
  guint64 n = (guint64)(rows * cols), in_n = n * (gated ? 2 : 1);
  PlanDtype format = format_of (_i / 12);
  g_auto (Tensor) in = tensor_random (rand, format, in_n, 4);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) out = tensor_blank (format, n), din = tensor_blank (format, in_n);
  Pass pass = { { rows, cols, kind, gated }, { in.value }, NULL, g_new (double, n), n };
  g_autofree double *want = pass.out;
  g_autofree double *want_din = slow_gradient (slow_activate, &pass, 0, in_n, dout.value);

  slow_activate (&pass);
  run_kernel (PLAN_OP_ACTIVATE, OPERANDS (&out, &in), pass.dims, format);
  check_close (&out, want, 1e-6, "activate");
  run_kernel (PLAN_OP_ACTIVATE_BWD, OPERANDS (&din, &dout, &in), pass.dims, format);
  check_close (&din, want_din, 2e-6, "activate_bwd");
}
END_TEST

/* A product's bias is added before the one rounding. */
START_TEST (kernels_bias)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 m = between (rand, 1, 6), n = between (rand, 1, _i % 5 == 0 ? 300 : 20);
  gint64 k = between (rand, 1, 20), dims[] = { m, n, k, 1 };
  PlanDtype format = format_of (_i);
  g_auto (Tensor) a = tensor_random (rand, format, (guint64)(m * k), 1);
  g_auto (Tensor) b = tensor_random (rand, format, (guint64)(n * k), 1);
  g_auto (Tensor) bias = tensor_random (rand, format, (guint64)n, 1);
  g_auto (Tensor) out = tensor_blank (format, (guint64)(m * n));
  g_auto (Tensor) dout = tensor_random (rand, format, (guint64)(m * n), 1);
  g_auto (Tensor) dbias = tensor_blank (format, (guint64)n);
  g_autofree double *want = g_new0 (double, m *n), *want_dbias = g_new0 (double, n);

  for (gint64 i = 0; i < m * n; i++)
    {
      for (gint64 p = 0; p < k; p++)
        want[i] += a.value[i / n * k + p] * b.value[i % n * k + p];
      want[i] += bias.value[i % n];
      want_dbias[i % n] += dout.value[i];
    }
  run_kernel (PLAN_OP_GEMM, OPERANDS (&out, &a, &b, &bias), dims, format);
  check_close (&out, want, 1e-6, "gemm with bias");
  run_kernel (PLAN_OP_BIAS_BWD, OPERANDS (&dbias, &dout), (gint64[]){ m, n }, format);
  check_close (&dbias, want_dbias, 1e-6, "bias_bwd");
}
END_TEST

/* Rows of several sequences; a table that is longer than a sequence. */
START_TEST (kernels_positions)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 seq = between (rand, 1, 6), rows = seq * between (rand, 1, 3);
  gint64 cols = between (rand, 1, _i % 5 == 0 ? 300 : 20), dims[] = { rows, cols, seq };
  guint64 n = (guint64)(rows * cols), table_n = (guint64)((seq + 2) * cols);
  PlanDtype format = format_of (_i);
  g_auto (Tensor) x = tensor_random (rand, format, n, 1);
  g_auto (Tensor) table = tensor_random (rand, format, table_n, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) dtable = tensor_copy (&table);
  g_autofree double *want = g_new (double, n), *want_dtable = g_new0 (double, table_n);

  memcpy (want_dtable, table.value, table_n * sizeof *want_dtable);
  memset (want_dtable, 0, (gsize)(seq * cols) * sizeof *want_dtable);
  for (guint64 i = 0; i < n; i++)
    {
      const guint64 place = i % (guint64)(seq * cols);

      want[i] = x.value[i] + table.value[place];
      want_dtable[place] += dout.value[i];
    }
  run_kernel (PLAN_OP_POSITIONS, OPERANDS (&x, &table), dims, format);
  check_close (&x, want, 1e-7, "positions");
  run_kernel (PLAN_OP_POSITIONS_BWD, OPERANDS (&dtable, &dout), dims, format);
  check_close (&dtable, want_dtable, 1e-6, "positions_bwd");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-wide");
  TCase *tcase = tcase_create ("cpu");
  exec_gemm_open ();
  tcase_add_loop_test (tcase, kernels_layernorm, 0, 20);
  tcase_add_loop_test (tcase, kernels_head_norm, 0, 20);
  tcase_add_loop_test (tcase, kernels_activate, 0, 48);
  tcase_add_loop_test (tcase, kernels_bias, 0, 20);
  tcase_add_loop_test (tcase, kernels_positions, 0, 20);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
