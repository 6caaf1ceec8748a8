/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of models other than llama's: norms by mean and variance, norms of heads, other
 * activations, biases, learned positions; compared with double-precision references, and gradients
 * with finite differences of these. */
#include "config.h"

#include "exec/number/number.h"
#include "planner/model/model.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <float.h>
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
            = (in[c] - mean) / sqrt (square + constants.norm_eps) * gain_of (pass->in[1][c]);
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
  manner.value[PLAN_MANNER_ONE_PLUS] = _i % 3 == 1;
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
  gint64 rows = pass->dims[0], heads = pass->dims[1], kv = pass->dims[2];
  gint64 q_dim = pass->dims[3], k_dim = pass->dims[4], at = 0;

  for (gint64 row = 0; row < rows; row++)
    for (gint64 h = 0; h < heads + 2 * kv; h++)
      {
        gint64 d = h < heads ? q_dim : k_dim;
        const double *in = pass->in[0] + at, *gain = pass->in[1] + (h < heads ? 0 : q_dim);
        double sum = 0;

        for (gint64 i = 0; i < d; i++)
          sum += in[i] * in[i];
        for (gint64 i = 0; i < d; i++)
          pass->out[at + i] = h >= heads + kv ? in[i]
                                              : in[i] / sqrt (sum / (double)d + constants.norm_eps)
                                                    * gain_of (gain[i]);
        at += d;
      }
}

START_TEST (kernels_head_norm)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 kv = between (rand, 1, 2), heads = kv * between (rand, 1, 3);
  gint64 d = _i % 10 == 0 ? 260 : between (rand, 1, 12), rows = between (rand, 1, 3);
  gint64 key = _i % 5 == 3 ? between (rand, 1, 30) : d;
  guint64 n = (guint64)(rows * (heads * d + 2 * kv * key)), width = (guint64)(d + key);
  PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n, 2);
  g_auto (Tensor) q = tensor_random (rand, format, (guint64)d, 1);
  g_auto (Tensor) k = tensor_random (rand, format, (guint64)key, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) out = tensor_blank (format, n), din = tensor_blank (format, n);
  g_auto (Tensor) dq = tensor_blank (format, (guint64)d), dk = tensor_blank (format, (guint64)key);
  g_auto (Tensor) rstd = tensor_blank (PLAN_DTYPE_FP32, (guint64)(rows * (heads + kv)));
  g_autofree double *weights = g_new (double, width);
  Pass pass = { { rows, heads, kv, d, key }, { in.value, weights }, NULL, g_new (double, n), n };
  const gboolean has_weights = _i % 4 < 2;
  manner.value[PLAN_MANNER_ONE_PLUS] = has_weights && _i % 3 == 1;
  g_autofree double *want = pass.out;

  memcpy (weights, q.value, (gsize)d * sizeof *weights);
  memcpy (weights + d, k.value, (gsize)key * sizeof *weights);
  for (guint64 i = 0; !has_weights && i < width; i++)
    weights[i] = 1;
  g_autofree double *want_din = slow_gradient (slow_head_norm, &pass, 0, n, dout.value);
  g_autofree double *want_dweights = slow_gradient (slow_head_norm, &pass, 1, width, dout.value);
  slow_head_norm (&pass);
  run_kernel (PLAN_OP_HEAD_NORM,
              OPERANDS (&out, &rstd, &in, has_weights ? &q : NULL, has_weights ? &k : NULL),
              pass.dims, format);
  check_close (&out, want, 1e-6, "head_norm");
  if (!has_weights)
    {
      run_kernel (PLAN_OP_HEAD_NORM_BWD, OPERANDS (&din, NULL, NULL, &dout, &in, NULL, NULL, &rstd),
                  pass.dims, format);
      check_close (&din, want_din, 1e-4, "head_norm_bwd din without weights");
      return;
    }
  run_kernel (PLAN_OP_HEAD_NORM_BWD, OPERANDS (&din, &dq, &dk, &dout, &in, &q, &k, &rstd),
              pass.dims, format);
  check_close (&din, want_din, 1e-4, "head_norm_bwd din");
  check_close (&dq, want_dweights, 1e-5, "head_norm_bwd dq");
  check_close (&dk, want_dweights + d, 1e-5, "head_norm_bwd dk");
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

        const double limit
            = manner.value[PLAN_MANNER_LIMIT] > 0 ? manner.value[PLAN_MANNER_LIMIT] : INFINITY;

        pass->out[r * cols + c]
            = slow_activation ((PlanActivation)pass->dims[2], fmin (in[0], limit))
              * (gated ? fmax (fmin (in[cols], limit), -limit) + manner.value[PLAN_MANNER_OFFSET]
                       : 1);
      }
}

/* Every activation, gated or not, bounded or not. */
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

  manner.value[PLAN_MANNER_LIMIT] = gated && _i % 3 == 0 ? 0.9 : 0;
  manner.value[PLAN_MANNER_OFFSET] = gated && _i % 5 < 2 ? 0.75 : 0;
  g_autofree double *want_din = slow_gradient (slow_activate, &pass, 0, in_n, dout.value);

  slow_activate (&pass);
  run_kernel (PLAN_OP_ACTIVATE, OPERANDS (&out, &in), pass.dims, format);
  check_close (&out, want, 1e-6, "activate");
  run_kernel (PLAN_OP_ACTIVATE_BWD, OPERANDS (&din, &dout, &in), pass.dims, format);
  check_close (&din, want_din, 2e-6, "activate_bwd");
}
END_TEST

/* A product's bias is added before the single rounding. */
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

/* Rows of several sequences, with a table that is longer than a sequence. */
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

/* How far an element of a quantised matrix can be off, given the largest magnitude of its block and
 * of the matrix. */
static double
slack (PlanDtype dtype, double value, double block_max, double max)
{
  switch ((int)dtype)
    {
    case PLAN_DTYPE_E4M3: /* 3 bits of fraction, 448 / 2^-10 of range */
      return fabs (value) * 0x1p-4 + max / 448 * 0x1p-10;
    case PLAN_DTYPE_E5M2:
      return fabs (value) * 0x1p-3 + max / 57344 * 0x1p-17;
    case PLAN_DTYPE_MXFP8: /* scales are rounded up to a power of two */
      return fabs (value) * 0x1p-4 + 2 * block_max / 448 * 0x1p-10;
    default: /* the coarsest step is 2 of 6; scales round by 2^-4, or to the least of 2^-9 units */
      return block_max / 6 * (1 + 0x1p-4) + block_max * 0x1p-4 + max / 448 * 0x1p-9;
    }
}

/* Both directions, read by multiplying with the unit matrix: what a product reads is near the
 * original, the largest magnitude is kept, and a matrix of zeros stays one. */
START_TEST (kernels_quantize)
{
  static const PlanDtype formats[]
      = { PLAN_DTYPE_E4M3, PLAN_DTYPE_E5M2, PLAN_DTYPE_MXFP8, PLAN_DTYPE_NVFP4 };
  const PlanDtype format = formats[_i % 4], source = format_of (_i / 4);
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint64 rows = 32 * (guint64)between (rand, 1, 2),
                cols = 32 * (guint64)between (rand, 1, 3);
  const guint64 n = rows * cols, block = format == PLAN_DTYPE_MXFP8 ? 32 : 16;
  float scales[2] = { NAN, NAN };
  g_auto (Tensor) in = tensor_random (rand, source, n, _i < 40 ? exp2 (_i - 20) : 0);
  g_auto (Tensor) row = tensor_blank (format, n), col = tensor_blank (format, n);
  g_auto (Tensor) unit = tensor_blank (PLAN_DTYPE_FP32, cols * cols);
  g_auto (Tensor) turned_unit = tensor_blank (PLAN_DTYPE_FP32, rows * rows);
  g_auto (Tensor) out = tensor_blank (PLAN_DTYPE_FP32, n),
                  turned = tensor_blank (PLAN_DTYPE_FP32, n);
  double max = 0;

  row.scale = &scales[0];
  col.scale = &scales[1];
  for (guint64 i = 0; i < cols * cols; i++)
    ((float *)unit.data)[i] = i % (cols + 1) == 0;
  for (guint64 i = 0; i < rows * rows; i++)
    ((float *)turned_unit.data)[i] = i % (rows + 1) == 0;
  for (guint64 i = 0; i < n; i++)
    max = fmax (max, fabs (in.value[i]));
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&row, &col, &in),
              (gint64[]){ (gint64)rows, (gint64)cols }, source);
  run_kernel (PLAN_OP_GEMM, OPERANDS (&out, &row, &unit),
              (gint64[]){ (gint64)rows, (gint64)cols, (gint64)cols, 1 }, PLAN_DTYPE_BF16);
  run_kernel (PLAN_OP_GEMM, OPERANDS (&turned, &col, &turned_unit),
              (gint64[]){ (gint64)cols, (gint64)rows, (gint64)rows, 1 }, PLAN_DTYPE_BF16);
  for (guint64 r = 0; r < rows; r++)
    for (guint64 c = 0; c < cols; c++)
      {
        const double value = in.value[r * cols + c];
        double row_max = 0, col_max = 0;

        for (guint64 i = 0; i < block; i++)
          {
            row_max = fmax (row_max, fabs (in.value[r * cols + c / block * block + i]));
            col_max = fmax (col_max, fabs (in.value[(r / block * block + i) * cols + c]));
          }
        ck_assert_msg (fabs (tensor_get (&out, r * cols + c) - value)
                           <= slack (format, value, row_max, max) * 1.00001,
                       "%g became %g", value, tensor_get (&out, r * cols + c));
        ck_assert_msg (fabs (tensor_get (&turned, c * rows + r) - value)
                           <= slack (format, value, col_max, max) * 1.00001,
                       "%g became %g, turned", value, tensor_get (&turned, c * rows + r));
      }
}
END_TEST

/* Blocks whose scales and elements can be worked out by hand. */
START_TEST (kernels_quantize_known_bits)
{
  g_auto (Tensor) in = tensor_blank (PLAN_DTYPE_FP32, 32);
  g_auto (Tensor) mx = tensor_blank (PLAN_DTYPE_MXFP8, 32),
                  nv = tensor_blank (PLAN_DTYPE_NVFP4, 32);
  const guint8 *bits = mx.data;
  float scale = NAN;

  memset (in.data, 0, 32 * sizeof (float));
  ((float *)in.data)[0] = 448; /* the largest at a scale of 1 */
  ((float *)in.data)[1] = -1;
  ((float *)in.data)[2] = 17; /* half way between 16 and 18: to 16, the even one */
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&mx, NULL, &in), (gint64[]){ 1, 32 }, PLAN_DTYPE_FP32);
  ck_assert_uint_eq (bits[32], 127);
  ck_assert_uint_eq (bits[0], 0x7e);
  ck_assert_uint_eq (bits[1], 0xb8);
  ck_assert_uint_eq (bits[2], 0x58);
  ((float *)in.data)[0] = 449; /* the scale goes to 2, so that it fits */
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&mx, NULL, &in), (gint64[]){ 1, 32 }, PLAN_DTYPE_FP32);
  ck_assert_uint_eq (bits[32], 128);
  ck_assert_uint_eq (bits[0], 0x76); /* 224 */

  bits = nv.data;
  nv.scale = &scale;
  ((float *)in.data)[0] = 2688; /* 6 times 448: units of 1, the first block's scale is 448 */
  ((float *)in.data)[1] = -448;
  ((float *)in.data)[2] = 0;
  ((float *)in.data)[16] = 6;    /* the second one's is 1 */
  ((float *)in.data)[17] = 2.5f; /* half way between 2 and 3: to 2 */
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&nv, NULL, &in), (gint64[]){ 1, 32 }, PLAN_DTYPE_FP32);
  ck_assert_float_eq (scale, 1);
  ck_assert_uint_eq (bits[16], 0x7e);
  ck_assert_uint_eq (bits[17], 0x38);
  ck_assert_uint_eq (bits[0], 0xa7); /* 6, and -1 above it */
  ck_assert_uint_eq (bits[8], 0x47); /* 6, and 2 above it */
}
END_TEST

/* A parameter whose parts lie on several ranks gets the same bits as in one piece. */
START_TEST (kernels_param_quantize)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 9), cols = between (rand, 1, 9), n = rows * cols;
  const gint64 cut = between (rand, 0, (gint32)n);
  float scales[4] = { NAN, NAN, NAN, NAN };
  g_auto (Tensor) in = tensor_random (rand, PLAN_DTYPE_BF16, (guint64)n, _i % 7 ? exp2 (_i) : 0);
  g_auto (Tensor) whole = tensor_blank (PLAN_DTYPE_E4M3, (guint64)n);
  g_auto (Tensor) whole_col = tensor_blank (PLAN_DTYPE_E4M3, (guint64)n);
  g_auto (Tensor) parts = tensor_blank (PLAN_DTYPE_E4M3, (guint64)n);
  g_auto (Tensor) turned = tensor_blank (PLAN_DTYPE_E4M3, (guint64)n);
  g_auto (Tensor) amax = tensor_blank (PLAN_DTYPE_FP32, 1);
  Tensor in_rest = in, out_rest = parts;

  whole.scale = &scales[0];
  whole_col.scale = &scales[1];
  parts.scale = out_rest.scale = &scales[2];
  turned.scale = &scales[3];
  in_rest.data = (guint16 *)in.data + cut;
  out_rest.data = (guint8 *)parts.data + cut;
  *(float *)amax.data = 0;
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&whole, &whole_col, &in), (gint64[]){ rows, cols },
              PLAN_DTYPE_BF16);
  run_kernel (PLAN_OP_PARAM_AMAX, OPERANDS (&amax, &in_rest), (gint64[]){ n - cut, 1 },
              PLAN_DTYPE_BF16);
  run_kernel (PLAN_OP_PARAM_AMAX, OPERANDS (&amax, &in), (gint64[]){ cut, 1 }, PLAN_DTYPE_BF16);
  run_kernel (PLAN_OP_PARAM_QUANTIZE, OPERANDS (&parts, NULL, &in, &amax), (gint64[]){ cut, 1 },
              PLAN_DTYPE_BF16);
  run_kernel (PLAN_OP_PARAM_QUANTIZE, OPERANDS (&out_rest, NULL, &in_rest, &amax),
              (gint64[]){ n - cut, 1 }, PLAN_DTYPE_BF16);
  run_kernel (PLAN_OP_TRANSPOSE, OPERANDS (&turned, &parts), (gint64[]){ rows, cols },
              PLAN_DTYPE_BF16);
  ck_assert_mem_eq (parts.data, whole.data, (gsize)n);
  ck_assert_mem_eq (turned.data, whole_col.data, (gsize)n);
  for (guint i = 1; i < 4; i++)
    ck_assert_float_eq (scales[i], scales[0]);
}
END_TEST

/* Runs an op on elements `from` to `to` of a parameter, as the walk calls it. */
static void
run_on_part (PlanOpKind kind, const ExecParam *whole, guint64 from, guint64 to,
             const Tensor *const *operands)
{
  const guint64 n = whole->rows * whole->cols;
  PlanOp op = { .kind = kind, .dims = { (gint64)(to - from), (gint64)(2 * n / whole->block) } };
  ExecArgs args = { .op = &op, .param = { whole->rows, whole->cols, from, whole->block } };

  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    {
      if (operands[i] == NULL)
        continue;
      const guint64 at = operands[i]->count == n ? from : 0; /* magnitudes and scales are whole */

      args.dtype[i] = operands[i]->dtype;
      args.ptr[i] = (guint8 *)operands[i]->data + plan_dtype_bytes (operands[i]->dtype, at);
      args.scale[i] = operands[i]->scale;
    }
  exec_kernels_cpu.run[kind](&args);
}

static guint
code_at (const Tensor *self, guint64 i)
{
  const guint8 *bytes = self->data;
  return plan_dtype_bits (self->dtype) == 4 ? bytes[i / 2] >> 4 * (i % 2) & 0xf : bytes[i];
}

/* Blocks that lie in parts on two ranks get the same bits as in one piece, by rows and by
 * columns. */
START_TEST (kernels_param_quantize_blocks)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gboolean mx = _i % 2 == 0;
  const guint block = mx ? 32 : 16;
  const guint64 rows = block * (guint64)between (rand, 1, 3);
  const guint64 cols = block * (guint64)between (rand, 1, 3);
  const guint64 n = rows * cols, blocks = n / block;
  const ExecParam param = { rows, cols, 0, block };
  const guint64 cut = 2 * (guint64)between (rand, 0, (gint32)n / 2);
  const PlanDtype whole_format = mx ? PLAN_DTYPE_MXFP8 : PLAN_DTYPE_NVFP4;
  const PlanDtype format = mx ? PLAN_DTYPE_E4M3 : PLAN_DTYPE_E2M1;
  float whole_scales[2] = { NAN, NAN }, scale = NAN;
  g_auto (Tensor) in = tensor_random (rand, PLAN_DTYPE_BF16, n, _i % 7 ? exp2 (_i) : 0);
  g_auto (Tensor) whole = tensor_blank (whole_format, n), turned = tensor_blank (whole_format, n);
  g_auto (Tensor) row = tensor_blank (format, n), col = tensor_blank (format, n);
  g_auto (Tensor) amax = tensor_blank (PLAN_DTYPE_BF16, 2 * blocks);
  g_auto (Tensor) scales = tensor_blank (mx ? PLAN_DTYPE_E8M0 : PLAN_DTYPE_E4M3, 2 * blocks);
  const guint8 *row_scales = scales.data, *col_scales = row_scales + blocks;
  const guint64 elements = plan_dtype_bytes (format, n);

  whole.scale = &whole_scales[0];
  turned.scale = &whole_scales[1];
  row.scale = col.scale = &scale;
  memset (amax.data, 0, 2 * blocks * sizeof (guint16));
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&whole, &turned, &in),
              (gint64[]){ (gint64)rows, (gint64)cols }, PLAN_DTYPE_BF16);
  run_on_part (PLAN_OP_PARAM_AMAX, &param, cut, n, OPERANDS (&amax, &in));
  run_on_part (PLAN_OP_PARAM_AMAX, &param, 0, cut, OPERANDS (&amax, &in));
  run_on_part (PLAN_OP_PARAM_QUANTIZE, &param, 0, cut, OPERANDS (&row, &col, &in, &amax, &scales));
  run_on_part (PLAN_OP_PARAM_QUANTIZE, &param, cut, n, OPERANDS (&row, &col, &in, &amax, &scales));
  ck_assert_mem_eq (row.data, whole.data, elements);
  ck_assert_mem_eq (row_scales, (guint8 *)whole.data + elements, blocks);
  if (!mx)
    ck_assert (scale == whole_scales[0] && scale == whole_scales[1]);
  for (guint64 r = 0; r < rows; r++)
    for (guint64 c = 0; c < cols; c++)
      {
        const guint64 at = c * rows + r;

        ck_assert_uint_eq (code_at (&col, r * cols + c), code_at (&turned, at));
        ck_assert_uint_eq (col_scales[r / block * cols + c],
                           ((guint8 *)turned.data)[elements + at / block]);
      }
}
END_TEST

/* A NaN in a rank's part makes the largest magnitude NaN. */
START_TEST (kernels_param_amax_keeps_nan)
{
  g_auto (Tensor) in = tensor_blank (PLAN_DTYPE_FP32, 3), amax = tensor_blank (PLAN_DTYPE_FP32, 1);

  ((float *)in.data)[0] = 7;
  ((float *)in.data)[1] = -9;
  *(float *)amax.data = 2;
  run_kernel (PLAN_OP_PARAM_AMAX, OPERANDS (&amax, &in), (gint64[]){ 2, 1 }, PLAN_DTYPE_FP32);
  ck_assert_float_eq (*(float *)amax.data, 9);
  run_kernel (PLAN_OP_PARAM_AMAX, OPERANDS (&amax, &in), (gint64[]){ 3, 1 }, PLAN_DTYPE_FP32);
  ck_assert (isnan (*(float *)amax.data)); /* a blank tensor is NaN */
  run_kernel (PLAN_OP_PARAM_AMAX, OPERANDS (&amax, &in), (gint64[]){ 2, 1 }, PLAN_DTYPE_FP32);
  ck_assert (isnan (*(float *)amax.data));
}
END_TEST

static guint8
rounded (PlanDtype format, float value)
{
  return format == PLAN_DTYPE_E4M3 ? exec_number_to_e4m3 ((double)value)
                                   : exec_number_to_e5m2 ((double)value);
}

/* Quantising by the scale of an earlier step: every element is multiplied in fp32 and rounded,
 * saturating; the site records the largest magnitude of the elements before that. A part of a
 * parameter gets the same bits. */
START_TEST (kernels_quantize_by_scale)
{
  const PlanDtype format = _i % 2 ? PLAN_DTYPE_E5M2 : PLAN_DTYPE_E4M3;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 9), cols = between (rand, 1, 9), n = rows * cols;
  float scales[3], scale_value = (float)exp2 (g_rand_double_range (rand, -9, 9));
  g_auto (Tensor) in = tensor_random (rand, format_of (_i / 2), (guint64)n, exp2 (_i % 9));
  g_auto (Tensor) row = tensor_blank (format, (guint64)n), col = tensor_blank (format, (guint64)n);
  g_auto (Tensor) part = tensor_blank (format, (guint64)n);
  g_auto (Tensor) scale = tensor_blank (PLAN_DTYPE_FP32, 1);
  g_auto (Tensor) amax = tensor_blank (PLAN_DTYPE_FP32, 1);
  float largest = _i % 3 ? 0 : 100;

  row.scale = &scales[0];
  col.scale = &scales[1];
  part.scale = &scales[2];
  *(float *)scale.data = scale_value;
  *(float *)amax.data = largest;
  for (gint64 i = 0; i < n; i++)
    largest = fmaxf (largest, (float)fabs (in.value[i]));
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&row, &col, &in, &scale, &amax), (gint64[]){ rows, cols },
              PLAN_DTYPE_FP32);
  ck_assert_float_eq (*(float *)amax.data, largest);
  run_kernel (PLAN_OP_PARAM_QUANTIZE, OPERANDS (&part, NULL, &in, NULL, NULL, &scale, NULL),
              (gint64[]){ n, 1 }, PLAN_DTYPE_FP32);
  for (guint i = 0; i < 3; i++)
    ck_assert_float_eq (scales[i], 1 / scale_value);
  for (gint64 i = 0; i < n; i++)
    {
      const guint8 want = rounded (format, (float)in.value[i] * scale_value);
      ck_assert_uint_eq (((guint8 *)row.data)[i], want);
      ck_assert_uint_eq (((guint8 *)part.data)[i], want);
      ck_assert_uint_eq (((guint8 *)col.data)[i % cols * rows + i / cols], want);
    }
}
END_TEST

/* A norm that makes its result in the format of products rounds once, from fp32. */
START_TEST (kernels_norms_quantize)
{
  const PlanOpKind kind = _i % 2 ? PLAN_OP_LAYERNORM : PLAN_OP_RMSNORM;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 5), cols = between (rand, 1, 600);
  const guint64 n = (guint64)(rows * cols);
  const gint64 *dims = (gint64[]){ rows, cols };
  float inverse, scale_value = (float)exp2 (g_rand_double_range (rand, 0, 8)), largest = 0;
  g_auto (Tensor) in = tensor_random (rand, PLAN_DTYPE_BF16, n, 1);
  g_auto (Tensor) gain = tensor_random (rand, PLAN_DTYPE_BF16, (guint64)cols, 1);
  g_auto (Tensor) stats = tensor_blank (PLAN_DTYPE_FP32, 2 * (guint64)rows);
  g_auto (Tensor) wide = tensor_blank (PLAN_DTYPE_FP32, n), out = tensor_blank (PLAN_DTYPE_E4M3, n);
  g_auto (Tensor) scale = tensor_blank (PLAN_DTYPE_FP32, 1);
  g_auto (Tensor) amax = tensor_blank (PLAN_DTYPE_FP32, 1);

  out.scale = &inverse;
  *(float *)scale.data = scale_value;
  *(float *)amax.data = 0;
  run_kernel (kind, OPERANDS (&wide, &stats, &in, &gain), dims, PLAN_DTYPE_BF16);
  run_kernel (kind,
              kind == PLAN_OP_RMSNORM ? OPERANDS (&out, &stats, &in, &gain, &scale, &amax)
                                      : OPERANDS (&out, &stats, &in, &gain, NULL, &scale, &amax),
              dims, PLAN_DTYPE_BF16);
  for (guint64 i = 0; i < n; i++)
    {
      const float value = ((const float *)wide.data)[i];
      largest = fmaxf (largest, fabsf (value));
      ck_assert_uint_eq (((guint8 *)out.data)[i], rounded (PLAN_DTYPE_E4M3, value * scale_value));
    }
  ck_assert_float_eq (*(float *)amax.data, largest);
  ck_assert_float_eq (inverse, 1 / scale_value);
}
END_TEST

static void
check_equal (const Tensor *got, const Tensor *want, const char *what)
{
  ck_assert_msg (memcmp (got->data, want->data, plan_dtype_bytes (want->dtype, want->count)) == 0,
                 "%s (%s) differs from what single ops leave", what, plan_dtype_name (want->dtype));
}

/* A sum and its norm by one kernel have the bits of two kernels, whatever the formats; also where
 * the result is in the format of products. */
START_TEST (kernels_add_norm)
{
  const gboolean has_mean = _i % 2;
  const PlanOpKind plain = has_mean ? PLAN_OP_LAYERNORM : PLAN_OP_RMSNORM;
  const PlanOpKind fused = has_mean ? PLAN_OP_ADD_LAYERNORM : PLAN_OP_ADD_RMSNORM;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 7), cols = between (rand, 1, _i % 3 ? 40 : 700);
  const guint64 n = (guint64)(rows * cols), width = (guint64)cols, depth = (guint64)rows * 2;
  const gint64 *dims = (gint64[]){ rows, cols };
  const gboolean quantises = _i % 4 > 1;
  const PlanDtype out_format = quantises ? PLAN_DTYPE_E4M3 : format_of (between (rand, 0, 1));
  float inverse[2] = { 0 };
  g_auto (Tensor) a = tensor_random (rand, format_of (between (rand, 0, 1)), n, 2);
  g_auto (Tensor) b = tensor_random (rand, format_of (between (rand, 0, 1)), n, 2);
  g_auto (Tensor) gain = tensor_random (rand, format_of (between (rand, 0, 1)), width, 1);
  g_auto (Tensor) bias = tensor_random (rand, format_of (between (rand, 0, 1)), width, 1);
  g_auto (Tensor) want_sum = tensor_blank (format_of (between (rand, 0, 1)), n);
  g_auto (Tensor) want = tensor_blank (out_format, n), got = tensor_blank (out_format, n);
  g_auto (Tensor) got_sum = tensor_blank (want_sum.dtype, n);
  g_auto (Tensor) want_stats = tensor_blank (PLAN_DTYPE_FP32, depth);
  g_auto (Tensor) got_stats = tensor_blank (PLAN_DTYPE_FP32, depth);
  g_auto (Tensor) scale = tensor_blank (PLAN_DTYPE_FP32, 1);
  g_auto (Tensor) want_amax = tensor_blank (PLAN_DTYPE_FP32, 1);
  g_auto (Tensor) got_amax = tensor_blank (PLAN_DTYPE_FP32, 1);
  const Tensor *by = quantises ? &scale : NULL;
  const Tensor *offset = g_rand_boolean (rand) ? &bias : NULL;

  want.scale = &inverse[0];
  got.scale = &inverse[1];
  *(float *)scale.data = (float)exp2 (g_rand_double_range (rand, 0, 8));
  *(float *)want_amax.data = *(float *)got_amax.data = 0;
  run_kernel (PLAN_OP_ADD, OPERANDS (&want_sum, &a, &b), (gint64[]){ rows * cols },
              PLAN_DTYPE_BF16);
  run_kernel (plain,
              has_mean ? OPERANDS (&want, &want_stats, &want_sum, &gain, offset, by, &want_amax)
                       : OPERANDS (&want, &want_stats, &want_sum, &gain, by, &want_amax),
              dims, PLAN_DTYPE_BF16);
  run_kernel (fused,
              has_mean ? OPERANDS (&got, &got_stats, &got_sum, &a, &b, &gain, offset, by, &got_amax)
                       : OPERANDS (&got, &got_stats, &got_sum, &a, &b, &gain, by, &got_amax),
              dims, PLAN_DTYPE_BF16);
  check_equal (&got_sum, &want_sum, "sum");
  check_equal (&got, &want, "out");
  check_equal (&got_stats, &want_stats, "statistics");
  check_equal (&got_amax, &want_amax, "largest");
  ck_assert_float_eq (inverse[1], inverse[0]);
}
END_TEST

/* The gradient of a norm that is added to another gradient has the bits of two kernels, also where
 * it may lie in place of the sum. */
START_TEST (kernels_norm_bwd_adds)
{
  const gboolean has_mean = _i % 2, in_place = _i % 4 > 1;
  const PlanOpKind kind = has_mean ? PLAN_OP_LAYERNORM_BWD : PLAN_OP_RMSNORM_BWD;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 7), cols = between (rand, 1, _i % 3 ? 40 : 700);
  const guint64 n = (guint64)(rows * cols), width = (guint64)cols;
  const gint64 *dims = (gint64[]){ rows, cols };
  const PlanDtype format = format_of (between (rand, 0, 1));
  g_auto (Tensor) dout = tensor_random (rand, format_of (between (rand, 0, 1)), n, 1);
  g_auto (Tensor) in = tensor_random (rand, format_of (between (rand, 0, 1)), n, 2);
  g_auto (Tensor) gain = tensor_random (rand, format_of (between (rand, 0, 1)), width, 1);
  g_auto (Tensor) stats = tensor_random (rand, PLAN_DTYPE_FP32, 2 * (guint64)rows, 1);
  g_auto (Tensor) before
      = tensor_random (rand, in_place ? format : format_of (between (rand, 0, 1)), n, 1);
  g_auto (Tensor) share = tensor_blank (format, n), want = tensor_blank (format, n);
  g_auto (Tensor) got = in_place ? tensor_copy (&before) : tensor_blank (format, n);
  g_auto (Tensor) want_gain = tensor_blank (format, width), got_gain = tensor_blank (format, width);
  g_auto (Tensor) want_bias = tensor_blank (format, width), got_bias = tensor_blank (format, width);
  const Tensor *add = in_place ? &got : &before;

  run_kernel (kind,
              has_mean ? OPERANDS (&share, &want_gain, &want_bias, &dout, &in, &gain, &stats)
                       : OPERANDS (&share, &want_gain, &dout, &in, &gain, &stats),
              dims, PLAN_DTYPE_BF16);
  run_kernel (PLAN_OP_ADD, OPERANDS (&want, &before, &share), (gint64[]){ rows * cols },
              PLAN_DTYPE_BF16);
  run_kernel (kind,
              has_mean ? OPERANDS (&got, &got_gain, &got_bias, &dout, &in, &gain, &stats, add)
                       : OPERANDS (&got, &got_gain, &dout, &in, &gain, &stats, NULL, add),
              dims, PLAN_DTYPE_BF16);
  check_equal (&got, &want, "din");
  check_equal (&got_gain, &want_gain, "dweight");
  if (has_mean)
    check_equal (&got_bias, &want_bias, "dbias");
}
END_TEST

/* A largest magnitude that a step may record: mostly numbers, and some values that make no
 * scale. */
static float
seen_by (GRand *rand)
{
  static const float odd[] = { 0, 1e-42f, INFINITY, NAN };
  const gint32 draw = g_rand_int_range (rand, 0, 12);
  return draw < 4 ? odd[draw] : (float)exp2 (g_rand_double_range (rand, -40, 40));
}

/* Compares with a reference that has the magnitudes of all steps, of which the last ones count.
 * Every third site is in e5m2; zeros and NaNs leave the scale as it is. */
START_TEST (kernels_rescale)
{
  enum
  {
    SITES = 6,
    STEPS = 20
  };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 length = between (rand, 1, 7);
  g_auto (Tensor) scales = tensor_blank (PLAN_DTYPE_FP32, SITES);
  g_auto (Tensor) history = tensor_blank (PLAN_DTYPE_FP32, SITES * (guint64)length);
  g_auto (Tensor) amax = tensor_blank (PLAN_DTYPE_FP32, SITES);
  float seen[SITES][STEPS], want[SITES], *found = scales.data, *now = amax.data;

  memset (history.data, 0, SITES * (gsize)length * sizeof (float));
  for (guint site = 0; site < SITES; site++)
    found[site] = want[site] = 1;
  for (gint64 step = 0; step < STEPS; step++)
    {
      for (guint site = 0; site < SITES; site++)
        now[site] = seen[site][step] = seen_by (rand);
      run_kernel (PLAN_OP_RESCALE, OPERANDS (&scales, &history, &amax), (gint64[]){ SITES, length },
                  PLAN_DTYPE_FP32);
      for (guint site = 0; site < SITES; site++)
        {
          double most = 0;
          for (gint64 s = MAX (0, step + 1 - length); s <= step; s++)
            most = isnan (seen[site][s]) ? NAN : fmax ((double)seen[site][s], most) + 0 * most;
          if (most > 0 && isfinite (most))
            want[site] = (float)MIN ((site % 3 == 2 ? 57344 : 448) / most, (double)FLT_MAX);
          ck_assert_float_eq (found[site], want[site]);
          ck_assert_float_eq (now[site], 0);
          ck_assert_mem_eq (&((float *)history.data)[site * (guint)length], &seen[site][step],
                            sizeof (float));
        }
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-wide");
  TCase *tcase = kernels_case ("cpu");
  exec_gemm_open ();
  tcase_add_loop_test (tcase, kernels_layernorm, 0, 20);
  tcase_add_loop_test (tcase, kernels_head_norm, 0, 20);
  tcase_add_loop_test (tcase, kernels_activate, 0, 48);
  tcase_add_loop_test (tcase, kernels_bias, 0, 20);
  tcase_add_loop_test (tcase, kernels_positions, 0, 20);
  tcase_add_loop_test (tcase, kernels_quantize, 0, 48);
  tcase_add_test (tcase, kernels_quantize_known_bits);
  tcase_add_loop_test (tcase, kernels_param_quantize, 0, 40);
  tcase_add_loop_test (tcase, kernels_param_quantize_blocks, 0, 20);
  tcase_add_test (tcase, kernels_param_amax_keeps_nan);
  tcase_add_loop_test (tcase, kernels_quantize_by_scale, 0, 40);
  tcase_add_loop_test (tcase, kernels_norms_quantize, 0, 20);
  tcase_add_loop_test (tcase, kernels_add_norm, 0, 60);
  tcase_add_loop_test (tcase, kernels_norm_bwd_adds, 0, 60);
  tcase_add_loop_test (tcase, kernels_rescale, 0, 20);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
