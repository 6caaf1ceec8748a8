/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/kernels.h"
#include "exec/number/exact.h"
#include "exec/number/number.h"
#include "tests/share.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Compares every kernel with a plain double-precision reference, and every gradient with finite
 * differences of that reference. Odd seeds store in bf16, even ones in fp32. */

/* --- references --------------------------------------------------------------------------- */

static void
slow_rmsnorm (Pass *pass)
{
  gint64 rows = pass->dims[0], cols = pass->dims[1];

  for (gint64 r = 0; r < rows; r++)
    {
      const double *in = pass->in[0] + r * cols;
      double sum = 0;

      for (gint64 c = 0; c < cols; c++)
        sum += in[c] * in[c];
      for (gint64 c = 0; c < cols; c++)
        pass->out[r * cols + c]
            = in[c] / sqrt (sum / (double)cols + constants.norm_eps) * gain_of (pass->in[1][c]);
    }
}

static void
slow_swiglu (Pass *pass)
{
  gint64 rows = pass->dims[0], cols = pass->dims[1];

  for (gint64 r = 0; r < rows; r++)
    for (gint64 c = 0; c < cols; c++)
      {
        double gate = pass->in[0][2 * r * cols + c], up = pass->in[0][2 * r * cols + cols + c];

        pass->out[r * cols + c] = gate / (1 + exp (-gate)) * up;
      }
}

static void
slow_gemm (Pass *pass)
{
  gint64 m = pass->dims[0], n = pass->dims[1], k = pass->dims[2], layout = pass->dims[3];

  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++)
      {
        double sum = 0;

        for (gint64 p = 0; p < k; p++)
          sum += pass->in[0][layout == 2 ? p * m + i : i * k + p]
                 * pass->in[1][layout == 1 ? j * k + p : p * n + j];
        pass->out[i * n + j] = sum;
      }
}

/* out: loss of every row, 0 where it is ignored. */
static void
slow_cross_entropy (Pass *pass)
{
  gint64 rows = pass->dims[0], cols = pass->dims[1];

  for (gint64 r = 0; r < rows; r++)
    {
      const double *logits = pass->in[0] + r * cols;
      double sum = 0;

      for (gint64 c = 0; c < cols; c++)
        sum += exp (logits[c]);
      pass->out[r] = pass->tokens[r] < 0 ? 0 : log (sum) - logits[pass->tokens[r]];
    }
}

/* --- element-wise ------------------------------------------------------------------------- */

START_TEST (kernels_elementwise)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 count[] = { between (rand, 1, 700) };
  guint64 n = (guint64)count[0];
  PlanDtype formats[3] = { format_of (_i), format_of (_i / 2), format_of (_i / 4) };
  g_auto (Tensor) a = tensor_random (rand, formats[0], n, 1);
  g_auto (Tensor) b = tensor_random (rand, formats[1], n, 1);
  g_auto (Tensor) out = tensor_blank (formats[2], n);
  g_auto (Tensor) sum = tensor_copy (&a);
  g_autofree double *want = g_new (double, n);

  for (guint64 i = 0; i < n; i++)
    want[i] = a.value[i] + b.value[i];
  run_kernel (PLAN_OP_ADD, OPERANDS (&out, &a, &b), count, PLAN_DTYPE_FP32);
  check_close (&out, want, 1e-7, "add");
  run_kernel (PLAN_OP_ACCUMULATE, OPERANDS (&sum, &b), count, PLAN_DTYPE_FP32);
  check_close (&sum, want, 1e-7, "accumulate");
  run_kernel (PLAN_OP_CAST, OPERANDS (&out, &a), count, PLAN_DTYPE_FP32);
  check_close (&out, a.value, 0, "cast");
  run_kernel (PLAN_OP_COPY, OPERANDS (&out, &b), count, PLAN_DTYPE_FP32);
  check_close (&out, b.value, 0, "copy");
  run_kernel (PLAN_OP_ZERO, OPERANDS (&out), count, PLAN_DTYPE_FP32);
  memset (want, 0, n * sizeof *want);
  check_close (&out, want, 0, "zero");
}
END_TEST

static void
slow_softcap (Pass *pass)
{
  const double cap = manner.value[PLAN_MANNER_CAP];

  for (gint64 i = 0; i < pass->dims[0]; i++)
    pass->out[i] = cap * tanh (pass->in[0][i] / cap);
}

/* In place, both ways. */
/* Columns of rows are copied out of them, and others added to them. */
START_TEST (kernels_columns)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 40), piece = between (rand, 1, 300);
  const gint64 width = piece + between (rand, 0, 20), n = rows * piece;
  const PlanDtype formats[] = { format_of (_i), format_of (_i / 2) };
  g_auto (Tensor) wide = tensor_random (rand, formats[0], (guint64)(rows * width), 1);
  g_auto (Tensor) in = tensor_random (rand, formats[1], (guint64)n, 1);
  g_auto (Tensor) out = tensor_blank (formats[1], (guint64)n);
  g_autofree double *want = g_new (double, n),
                    *sum = g_memdup2 (wide.value, (gsize)(rows * width) * sizeof *sum);
  manner.value[PLAN_MANNER_PIECE] = piece;
  manner.value[PLAN_MANNER_WIDTH] = width;
  for (gint64 i = 0; i < n; i++)
    {
      want[i] = wide.value[i / piece * width + i % piece];
      sum[i / piece * width + i % piece] += in.value[i];
    }
  run_kernel (PLAN_OP_CAST, OPERANDS (&out, &wide), &n, PLAN_DTYPE_FP32);
  check_close (&out, want, 0, "cast");
  run_kernel (PLAN_OP_ACCUMULATE, OPERANDS (&wide, &in), &n, PLAN_DTYPE_FP32);
  check_close (&wide, sum, 1e-7, "accumulate");
}
END_TEST

START_TEST (kernels_softcap)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 count = between (rand, 1, 700);
  const guint64 n = (guint64)count;
  const PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n, 4), out = tensor_copy (&in);
  g_auto (Tensor) grad = tensor_random (rand, format, n, 1);
  Pass pass = { { count }, { in.value }, NULL, g_new (double, n), n };
  g_autofree double *want = pass.out;
  manner.value[PLAN_MANNER_CAP] = 1.5;
  g_autofree double *want_grad = slow_gradient (slow_softcap, &pass, 0, n, grad.value);

  slow_softcap (&pass);
  run_kernel (PLAN_OP_SOFTCAP, OPERANDS (&out), pass.dims, format);
  check_close (&out, want, 1e-6, "softcap");
  run_kernel (PLAN_OP_SOFTCAP_BWD, OPERANDS (&grad, &out), pass.dims, format);
  check_close (&grad, want_grad, format == PLAN_DTYPE_BF16 ? 0x1p-7 : 1e-6, "softcap_bwd");
}
END_TEST

/* Scales by the op's divisor, or where it has none by the number of ranks. */
START_TEST (kernels_scale)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 count[] = { between (rand, 1, 700) };
  g_auto (Tensor) in = tensor_random (rand, format_of (_i), (guint64)count[0], 1);
  g_auto (Tensor) out = tensor_copy (&in);
  g_autofree double *want = g_new (double, count[0]);

  constants.grad_divisor = 3;
  manner.value[PLAN_MANNER_FACTOR] = _i / 2 ? 7.25 : 0;
  for (gint64 i = 0; i < count[0]; i++)
    want[i] = in.value[i] * (_i / 2 ? 7.25 : 1.0 / 3);
  run_kernel (PLAN_OP_SCALE, OPERANDS (&out), count, PLAN_DTYPE_FP32);
  check_close (&out, want, 1e-7, "scale");
}
END_TEST

START_TEST (kernels_embed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 dims[] = { between (rand, 1, 40), between (rand, 1, 300), between (rand, 1, 30) };
  gint64 rows = dims[0], cols = dims[1], vocab = dims[2];
  PlanDtype format = format_of (_i);
  g_auto (Tensor) table = tensor_random (rand, format, (guint64)(vocab * cols), 1);
  g_auto (Tensor) tokens = tensor_tokens (rand, (guint64)rows, 0, (gint32)vocab);
  g_auto (Tensor) out = tensor_blank (format, (guint64)(rows * cols));
  g_auto (Tensor) dout = tensor_random (rand, format, (guint64)(rows * cols), 1);
  g_auto (Tensor) dtable = tensor_blank (format, (guint64)(vocab * cols));
  g_autofree double *want = g_new (double, rows *cols);
  g_autofree double *dwant = g_new0 (double, vocab *cols);

  for (gint64 i = 0; i < rows * cols; i++)
    {
      gint64 from = ((gint32 *)tokens.data)[i / cols] * cols + i % cols;

      want[i] = table.value[from];
      dwant[from] += dout.value[i];
    }
  run_kernel (PLAN_OP_EMBED, OPERANDS (&out, &table, &tokens), dims, format);
  check_close (&out, want, 0, "embed");
  run_kernel (PLAN_OP_EMBED_BWD, OPERANDS (&dtable, &dout, &tokens), dims, format);
  check_close (&dtable, dwant, 1e-6, "embed_bwd");
}
END_TEST

START_TEST (kernels_rmsnorm)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 rows = between (rand, 1, 5), cols = between (rand, 1, _i % 5 == 0 ? 300 : 40);
  guint64 n = (guint64)(rows * cols), width = (guint64)cols;
  PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n, 2);
  g_auto (Tensor) weight = tensor_random (rand, format, width, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) out = tensor_blank (format, n), din = tensor_blank (format, n);
  g_auto (Tensor) rstd = tensor_blank (PLAN_DTYPE_FP32, (guint64)rows);
  g_auto (Tensor) dweight = tensor_blank (format, width);
  Pass pass = { { rows, cols }, { in.value, weight.value }, NULL, g_new (double, n), n };
  g_autofree double *want = pass.out;
  manner.value[PLAN_MANNER_ONE_PLUS] = _i % 3 == 1;
  g_autofree double *want_din = slow_gradient (slow_rmsnorm, &pass, 0, n, dout.value);
  g_autofree double *want_dweight = slow_gradient (slow_rmsnorm, &pass, 1, width, dout.value);

  slow_rmsnorm (&pass);
  run_kernel (PLAN_OP_RMSNORM, OPERANDS (&out, &rstd, &in, &weight), pass.dims, format);
  check_close (&out, want, 5e-7, "rmsnorm");
  run_kernel (PLAN_OP_RMSNORM_BWD, OPERANDS (&din, &dweight, &dout, &in, &weight, &rstd), pass.dims,
              format);
  check_close (&din, want_din, 2e-5, "rmsnorm_bwd din");
  check_close (&dweight, want_dweight, 2e-6, "rmsnorm_bwd dweight");
}
END_TEST

START_TEST (kernels_swiglu)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 rows = between (rand, 1, 4), cols = between (rand, 1, _i % 5 == 0 ? 300 : 30);
  guint64 n = (guint64)(rows * cols);
  PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, 2 * n, 4);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) out = tensor_blank (format, n), din = tensor_blank (format, 2 * n);
  Pass pass = { { rows, cols }, { in.value }, NULL, g_new (double, n), n };
  g_autofree double *want = pass.out;
  g_autofree double *want_din = slow_gradient (slow_swiglu, &pass, 0, 2 * n, dout.value);

  slow_swiglu (&pass);
  run_kernel (PLAN_OP_SWIGLU, OPERANDS (&out, &in), pass.dims, format);
  check_close (&out, want, 5e-7, "swiglu");
  run_kernel (PLAN_OP_SWIGLU_BWD, OPERANDS (&din, &dout, &in), pass.dims, format);
  check_close (&din, want_din, 1e-6, "swiglu_bwd");
}
END_TEST

/* --- matrix products ---------------------------------------------------------------------- */

START_TEST (kernels_gemm)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint32 most = _i % 10 == 0 ? 300 : 40;
  gint64 m = between (rand, 1, most), n = between (rand, 1, most), k = between (rand, 1, most);
  Pass pass = { { m, n, k, _i % 3 }, { NULL }, NULL, g_new (double, m *n), (guint64)(m * n) };
  g_autofree double *want = pass.out;
  PlanDtype formats[3] = { format_of (_i / 3), format_of (_i / 6), format_of (_i / 12) };
  gboolean all_fp32 = formats[0] == PLAN_DTYPE_FP32 && formats[1] == PLAN_DTYPE_FP32
                      && formats[2] == PLAN_DTYPE_FP32;
  g_auto (Tensor) a = tensor_random (rand, formats[0], (guint64)(m * k), 1);
  g_auto (Tensor) b = tensor_random (rand, formats[1], (guint64)(k * n), 1);
  g_auto (Tensor) out = tensor_blank (formats[2], (guint64)(m * n));

  pass.in[0] = a.value;
  pass.in[1] = b.value;
  slow_gemm (&pass);
  run_kernel (PLAN_OP_GEMM, OPERANDS (&out, &a, &b), pass.dims,
              all_fp32 ? PLAN_DTYPE_FP32 : PLAN_DTYPE_BF16);
  check_close (&out, want, 2e-6, "gemm");
}
END_TEST

/* More than one block of either factor and run of terms, and edges that are no whole tiles: for
 * processors that multiply bf16 themselves. */
START_TEST (kernels_gemm_of_tiles)
{
  const gint64 sizes[][3]
      = { { 32, 32, 32 },    { 70, 100, 1100 },  { 600, 33, 70 }, { 513, 48, 33 }, { 31, 47, 2049 },
          { 545, 95, 1025 }, { 557, 549, 1030 }, { 20, 32, 40 },  { 45, 32, 2049 } };
  const guint64 behind = 32 * 32 * sizeof (float); /* the bytes that a tile store writes at once */
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 *size = sizes[_i / 6];
  const gint64 m = size[0], n = size[1], k = size[2];
  Pass pass = { { m, n, k, _i % 3 }, { NULL }, NULL, g_new (double, m *n), (guint64)(m * n) };
  g_autofree double *want = pass.out;
  g_auto (Tensor) a = tensor_random (rand, PLAN_DTYPE_BF16, (guint64)(m * k), 1);
  g_auto (Tensor) b = tensor_random (rand, PLAN_DTYPE_BF16, (guint64)(k * n), 1);
  const PlanDtype format = _i % 6 < 3 ? PLAN_DTYPE_FP32 : PLAN_DTYPE_BF16;
  g_auto (Tensor) out = tensor_blank (format, (guint64)(m * n) + behind);
  guint8 *end = (guint8 *)out.data + plan_dtype_bytes (format, (guint64)(m * n));

  pass.in[0] = a.value;
  pass.in[1] = b.value;
  slow_gemm (&pass);
  out.count = (guint64)(m * n);
  memset (end, 0x5a, behind);
  run_kernel (PLAN_OP_GEMM, OPERANDS (&out, &a, &b), pass.dims, PLAN_DTYPE_BF16);
  check_close (&out, want, 5e-6, "gemm of tiles");
  for (guint64 i = 0; i < behind; i++)
    ck_assert_uint_eq (end[i], 0x5a);
}
END_TEST

/* Rounds once: the sum, not the product before it. */
START_TEST (kernels_gemm_add)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint32 most = _i % 10 == 0 ? 90 : 20;
  gint64 m = between (rand, 1, most), n = between (rand, 1, most), k = between (rand, 1, most);
  Pass pass = { { m, n, k, _i % 3 }, { NULL }, NULL, g_new (double, m *n), (guint64)(m * n) };
  g_autofree double *want = pass.out;
  PlanDtype factors = format_of (_i / 3);
  g_auto (Tensor) a = tensor_random (rand, factors, (guint64)(m * k), 1);
  g_auto (Tensor) b = tensor_random (rand, factors, (guint64)(k * n), 1);
  g_auto (Tensor) out = tensor_random (rand, format_of (_i / 6), (guint64)(m * n), 1);

  pass.in[0] = a.value;
  pass.in[1] = b.value;
  slow_gemm (&pass);
  for (gint64 i = 0; i < m * n; i++)
    want[i] += out.value[i];
  run_kernel (PLAN_OP_GEMM_ADD, OPERANDS (&out, &a, &b), pass.dims, factors);
  check_close (&out, want, 2e-6, "gemm_add");
}
END_TEST

/* The same factors at another address give the same bits. */
START_TEST (kernels_gemm_ignores_addresses)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 m = between (rand, 1, 150), n = between (rand, 1, 150), k = between (rand, 1, 600);
  g_auto (Tensor) a = tensor_random (rand, PLAN_DTYPE_FP32, (guint64)(m * k), 1);
  g_auto (Tensor) b = tensor_random (rand, PLAN_DTYPE_FP32, (guint64)(k * n), 1);
  g_autofree float *a_moved = g_new (float, m *k + 16), *b_moved = g_new (float, k *n + 16);
  g_autofree float *out = g_new (float, m *n), *out_moved = g_new (float, m *n + 16);

  for (int layout = 0; layout < 3; layout++)
    {
      guint64 by = (guint64)between (rand, 1, 15);

      memcpy (a_moved + by, a.data, (gsize)(m * k) * sizeof (float));
      memcpy (b_moved + 16 - by, b.data, (gsize)(k * n) * sizeof (float));
      exec_gemm_fp32 (m, n, k, layout, a.data, b.data, out);
      exec_gemm_fp32 (m, n, k, layout, a_moved + by, b_moved + 16 - by, out_moved + by);
      ck_assert (memcmp (out, out_moved + by, (gsize)(m * n) * sizeof (float)) == 0);
      if (!exec_gemm_bf16_is_available ())
        continue;
      /* Halves of fp32 are bf16, too: most of them finite, and all the same. */
      exec_gemm_bf16 (m, n, k, layout, a.data, b.data, FALSE, out, NULL);
      exec_gemm_bf16 (m, n, k, layout, a_moved + by, b_moved + 16 - by, FALSE, out_moved + by,
                      NULL);
      ck_assert (memcmp (out, out_moved + by, (gsize)(m * n) * sizeof (float)) == 0);
      exec_gemm_bf16 (m, n, k, layout, a.data, b.data, TRUE, out, NULL);
      exec_gemm_bf16 (m, n, k, layout, a_moved + by, b_moved + 16 - by, TRUE, out_moved + by, NULL);
      ck_assert (memcmp (out, out_moved + by, (gsize)(m * n) * sizeof (float)) == 0);
    }
}
END_TEST

START_TEST (kernels_gemm_says_its_name) { ck_assert_int_gt (strlen (exec_gemm_name ()), 0); }
END_TEST

/* --- loss and optimizer ------------------------------------------------------------------- */

START_TEST (kernels_cross_entropy)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 rows = between (rand, 1, 6), cols = between (rand, 1, _i % 5 == 0 ? 600 : 40);
  guint64 n = (guint64)(rows * cols);
  PlanDtype format = format_of (_i);
  g_auto (Tensor) logits = tensor_random (rand, format, n, 4);
  g_auto (Tensor) targets = tensor_tokens (rand, (guint64)rows, -1, (gint32)cols);
  g_auto (Tensor) prob = tensor_blank (PLAN_DTYPE_FP32, n);
  g_auto (Tensor) dlogits = tensor_blank (format, n);
  g_auto (Tensor) loss = tensor_blank (PLAN_DTYPE_I64, EXEC_EXACT_LIMBS);
  Pass pass
      = { { rows, cols }, { logits.value }, targets.data, g_new (double, rows), (guint64)rows };
  g_autofree double *want = pass.out, *ones = g_new (double, rows);
  double total = 0;

  for (gint64 r = 0; r < rows; r++)
    ones[r] = 1;
  g_autofree double *want_dlogits = slow_gradient (slow_cross_entropy, &pass, 0, n, ones);
  slow_cross_entropy (&pass);
  for (gint64 r = 0; r < rows; r++)
    total += want[r];
  memset (loss.data, 0, sizeof (ExecExact));
  for (guint repeat = 1; repeat <= 2; repeat++)
    {
      run_kernel (PLAN_OP_CROSS_ENTROPY, OPERANDS (&loss, &prob, &logits, &targets), pass.dims,
                  format);
      ck_assert_double_eq_tol (exec_exact_value (loss.data), repeat * total, 1e-5);
    }
  run_kernel (PLAN_OP_CROSS_ENTROPY_BWD, OPERANDS (&dlogits, &prob, &targets), pass.dims, format);
  check_close (&dlogits, want_dlogits, 1e-6, "cross_entropy_bwd");

  ExecExact twice;
  memcpy (&twice, loss.data, sizeof twice);
  memset (loss.data, 0, sizeof (ExecExact));
  for (guint repeat = 1; repeat <= 2; repeat++)
    {
      g_auto (Tensor) turned = tensor_random (rand, format, n, 4);
      memcpy (turned.data, logits.data, plan_dtype_bytes (format, n));
      run_kernel (PLAN_OP_LOSS_GRAD, OPERANDS (&loss, &turned, &targets), pass.dims, format);
      ck_assert_mem_eq (turned.data, dlogits.data, plan_dtype_bytes (format, n));
    }
  ck_assert_mem_eq (loss.data, &twice, sizeof twice);
}
END_TEST

START_TEST (kernels_norm_sq)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 count[] = { between (rand, 1, 2000) };
  g_auto (Tensor) in = tensor_random (rand, format_of (_i), (guint64)count[0], 1e-3);
  g_auto (Tensor) sum = tensor_blank (PLAN_DTYPE_I64, EXEC_EXACT_LIMBS);
  double want = 0;

  for (guint64 i = 0; i < in.count; i++)
    want += in.value[i] * in.value[i];
  memset (sum.data, 0, sizeof (ExecExact));
  run_kernel (PLAN_OP_NORM_SQ, OPERANDS (&sum, &in), count, PLAN_DTYPE_FP32);
  ck_assert_double_eq_tol (exec_exact_value (sum.data), want, 1e-12 * want);
}
END_TEST

/* The losses of all ranks count, and the norms of the first `norms` ranks. */
START_TEST (kernels_clip)
{
  gint64 ranks = 3, norms = 1 + _i % 3, tokens = _i < 3 ? 7 : 1000000;
  gint64 dims[] = { ranks, norms, tokens };
  ExecExact sums[6] = { 0 };
  Tensor operand = { .dtype = PLAN_DTYPE_I64, .count = 6 * EXEC_EXACT_LIMBS, .data = sums };
  g_auto (Tensor) coef = tensor_blank (PLAN_DTYPE_FP32, 4);
  double loss = 0, square = 0;

  for (gint64 rank = 0; rank < ranks; rank++)
    {
      exec_exact_add_float (&sums[2 * rank], 1.25f + (float)rank);
      exec_exact_add_square (&sums[2 * rank + 1], 10 + (float)rank);
      loss += 1.25 + (double)rank;
      square += rank < norms ? (10 + (double)rank) * (10 + (double)rank) : 0;
    }
  double norm = sqrt (square) / (double)tokens;
  double factor = constants.max_norm / (norm + 1e-6);
  double want[] = { fmin (factor, 1) / (double)tokens, norm, loss / (double)tokens, 0 };
  run_kernel (PLAN_OP_CLIP, OPERANDS (&coef, &operand), dims, PLAN_DTYPE_FP32);
  for (guint i = 0; i < 4; i++)
    ck_assert_float_eq (((float *)coef.data)[i], (float)want[i]);

  constants.tokens = 3; /* tokens of the step that count */
  run_kernel (PLAN_OP_CLIP, OPERANDS (&coef, &operand), dims, PLAN_DTYPE_FP32);
  ck_assert_float_eq (((float *)coef.data)[1], (float)(sqrt (square) / 3));
  ck_assert_float_eq (((float *)coef.data)[2], (float)(loss / 3));
  constants.tokens = 0;

  exec_exact_add_square (&sums[1], NAN);
  run_kernel (PLAN_OP_CLIP, OPERANDS (&coef, &operand), dims, PLAN_DTYPE_FP32);
  ck_assert (isnan (((float *)coef.data)[0]) && isnan (((float *)coef.data)[1]));
  exec_exact_add_float (&sums[0], INFINITY);
  sums[1] = sums[3];
  run_kernel (PLAN_OP_CLIP, OPERANDS (&coef, &operand), dims, PLAN_DTYPE_FP32);
  ck_assert (isnan (((float *)coef.data)[0]) && isfinite (((float *)coef.data)[1]));
}
END_TEST

/* Rounded weights are those that a copy of the stored ones makes. */
static void
check_is_rounded (const Tensor *out, const Tensor *params)
{
  g_auto (Tensor) copy = tensor_blank (out->dtype, out->count);
  run_kernel (PLAN_OP_CAST, OPERANDS (&copy, params), (gint64[]){ (gint64)out->count },
              PLAN_DTYPE_FP32);
  ck_assert_mem_eq (out->data, copy.data, plan_dtype_bytes (copy.dtype, copy.count));
}

START_TEST (kernels_adamw)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 count[] = { between (rand, 1, 600) };
  guint64 n = (guint64)count[0];
  g_auto (Tensor) params = tensor_random (rand, format_of (_i), n, 1);
  g_auto (Tensor) avg = tensor_random (rand, PLAN_DTYPE_FP32, n, 1);
  g_auto (Tensor) avg_sq = tensor_random (rand, PLAN_DTYPE_FP32, n, 1);
  g_auto (Tensor) grad = tensor_random (rand, format_of (_i / 2), n, 1);
  g_auto (Tensor) coef = tensor_random (rand, PLAN_DTYPE_FP32, 4, 1);
  const gboolean is_host = _i >= 8, rounds = !is_host && _i % 4 < 2;
  g_auto (Tensor) out = tensor_blank (format_of (_i / 4 + 1), n);
  g_autofree double *want = g_new (double, 3 * n);
  double scale = coef.value[0];

  for (guint64 i = 0; i < n; i++)
    {
      double *m = want + n + i, *v = want + 2 * n + i, g = grad.value[i] * scale;

      ((float *)avg_sq.data)[i] = fabsf (((float *)avg_sq.data)[i]);
      *m = constants.beta1 * avg.value[i] + (1 - constants.beta1) * g;
      *v = constants.beta2 * fabs (avg_sq.value[i]) + (1 - constants.beta2) * g * g;
      want[i] = params.value[i]
                - constants.lr
                      * (*m / (1 - pow (constants.beta1, 3))
                             / (sqrt (*v / (1 - pow (constants.beta2, 3))) + constants.adam_eps)
                         + constants.weight_decay * params.value[i]);
    }
  run_kernel (is_host ? PLAN_OP_ADAMW_HOST : PLAN_OP_ADAMW,
              OPERANDS (&params, &avg, &avg_sq, &grad, &coef, rounds ? &out : NULL), count,
              PLAN_DTYPE_FP32);
  check_close (&params, want, 1e-6, "adamw");
  check_close (&avg, want + n, 5e-7, "adamw exp_avg");
  check_close (&avg_sq, want + 2 * n, 5e-7, "adamw exp_avg_sq");
  if (rounds)
    check_is_rounded (&out, &params);
}
END_TEST

/* Moments in eight bits: parameters and moments are those of fp32 moments that start from the
 * stored values, and only then rounded by the scale of the largest one. */
START_TEST (kernels_adamw_scaled)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gboolean narrow[] = { _i % 3 != 1, _i % 3 != 2 };
  gint64 count[] = { between (rand, 1, 600) };
  guint64 n = (guint64)count[0];
  g_auto (Tensor) params = tensor_random (rand, PLAN_DTYPE_FP32, n, 1);
  g_auto (Tensor) grad = tensor_random (rand, format_of (_i / 2), n, 1);
  g_auto (Tensor) coef = tensor_random (rand, PLAN_DTYPE_FP32, 4, 1);
  g_auto (Tensor) wide_params = tensor_copy (&params);
  Tensor moment[2], wide[2];
  float scale[2];

  for (guint m = 0; m < 2; m++)
    {
      wide[m] = tensor_random (rand, PLAN_DTYPE_FP32, n, exp2 (_i % 5 * 10 - 20));
      for (guint64 i = 0; m == 1 && i < n; i++)
        ((float *)wide[m].data)[i] = fabsf (((float *)wide[m].data)[i]);
      moment[m] = narrow[m] ? tensor_blank (PLAN_DTYPE_E4M3, n) : tensor_copy (&wide[m]);
      moment[m].scale = &scale[m];
      scale[m] = exec_number_scale (exec_number_largest (wide[m].data, n));
      if (narrow[m])
        {
          exec_number_narrow_scaled (moment[m].data, PLAN_DTYPE_E4M3, wide[m].data, scale[m], n);
          exec_number_widen_scaled (wide[m].data, PLAN_DTYPE_E4M3, moment[m].data, scale[m], n);
        }
    }
  run_kernel (PLAN_OP_ADAMW, OPERANDS (&params, &moment[0], &moment[1], &grad, &coef), count,
              PLAN_DTYPE_FP32);
  run_kernel (PLAN_OP_ADAMW, OPERANDS (&wide_params, &wide[0], &wide[1], &grad, &coef), count,
              PLAN_DTYPE_FP32);
  ck_assert_mem_eq (params.data, wide_params.data, n * sizeof (float));
  for (guint m = 0; m < 2; m++)
    {
      g_autofree guint8 *want = g_malloc (n);
      if (narrow[m])
        {
          ck_assert_float_eq (scale[m], exec_number_scale (exec_number_largest (wide[m].data, n)));
          exec_number_narrow_scaled (want, PLAN_DTYPE_E4M3, wide[m].data, scale[m], n);
          ck_assert_mem_eq (moment[m].data, want, n);
        }
      else
        ck_assert_mem_eq (moment[m].data, wide[m].data, n * sizeof (float));
      tensor_clear (&moment[m]);
      tensor_clear (&wide[m]);
    }
}
END_TEST

START_TEST (kernels_sgd)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 count[] = { between (rand, 1, 600) };
  guint64 n = (guint64)count[0];
  g_auto (Tensor) params = tensor_random (rand, format_of (_i), n, 1);
  g_auto (Tensor) momentum = tensor_random (rand, format_of (_i / 2), n, 1);
  g_auto (Tensor) grad = tensor_random (rand, format_of (_i / 4), n, 1);
  g_auto (Tensor) coef = tensor_random (rand, PLAN_DTYPE_FP32, 4, 1);
  g_auto (Tensor) out = tensor_blank (format_of (_i / 8), n);
  g_autofree double *want = g_new (double, 2 * n);

  for (guint64 i = 0; i < n; i++)
    {
      want[n + i] = constants.beta1 * momentum.value[i] + grad.value[i] * coef.value[0]
                    + constants.weight_decay * params.value[i];
      want[i] = params.value[i] - constants.lr * want[n + i];
    }
  run_kernel (PLAN_OP_SGD, OPERANDS (&params, &momentum, &grad, &coef, _i % 2 ? &out : NULL), count,
              PLAN_DTYPE_FP32);
  if (_i % 2)
    check_is_rounded (&out, &params);
  check_close (&params, want, 5e-7, "sgd");
  check_close (&momentum, want + n, 5e-7, "sgd momentum");
}
END_TEST

/* The sum is in fp32, and rounded once after all parts, not after each. */
START_TEST (kernels_sum_parts)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 dims[] = { between (rand, 1, 600), between (rand, 1, 9) };
  guint64 n = (guint64)dims[0];
  g_auto (Tensor) in = tensor_random (rand, format_of (_i), n * (guint64)dims[1], 1);
  g_auto (Tensor) out = tensor_blank (format_of (_i), n);
  g_autofree double *want = g_new0 (double, n);

  for (guint64 i = 0; i < in.count; i++)
    want[i % n] += in.value[i];
  run_kernel (PLAN_OP_SUM_PARTS, OPERANDS (&out, &in), dims, PLAN_DTYPE_FP32);
  check_close (&out, want, 1e-6, "sum_parts");
}
END_TEST

/* Ops that only the model of a step has so far; running them is refused. */
static const PlanOpKind not_here[] = {
  PLAN_OP_REPEAT_HEADS, PLAN_OP_REPEAT_HEADS_BWD, PLAN_OP_SORT,        PLAN_OP_INDEX_ROWS,
  PLAN_OP_ADD_ROWS,     PLAN_OP_JOIN_ROWS,        PLAN_OP_EXPERT_BIAS, PLAN_OP_EXPERT_BIAS_BWD,
  PLAN_OP_SPLIT_COLS,   PLAN_OP_SPLIT_COLS_BWD,   PLAN_OP_GATE_HEADS,  PLAN_OP_GATE_HEADS_BWD,
  PLAN_OP_DELTA_CONV,   PLAN_OP_DELTA_CONV_BWD,   PLAN_OP_DELTA_KEYS,  PLAN_OP_DELTA_KEYS_BWD,
  PLAN_OP_DELTA_GATES,  PLAN_OP_DELTA_GATES_BWD,  PLAN_OP_DELTA_RULE,  PLAN_OP_DELTA_RULE_BWD,
  PLAN_OP_DELTA_NORM,   PLAN_OP_DELTA_NORM_BWD,   PLAN_OP_SSM_CONV,    PLAN_OP_SSM_CONV_BWD,
  PLAN_OP_SSM_SCAN,     PLAN_OP_SSM_SCAN_BWD,     PLAN_OP_GROUP_NORM,  PLAN_OP_GROUP_NORM_BWD
};

static gboolean
is_here (PlanOpKind kind)
{
  for (guint i = 0; i < G_N_ELEMENTS (not_here); i++)
    if (not_here[i] == kind)
      return FALSE;
  return plan_op_class (kind) == PLAN_CLASS_COMPUTE;
}

/* The table has a function for every op that computes except those, and for no other. */
START_TEST (kernels_table_is_full)
{
  g_autoptr (GError) error = NULL;

  ck_assert (exec_kernels_cpu.open (&error));
  for (guint kind = 0; kind < PLAN_N_OPS; kind++)
    ck_assert_msg ((exec_kernels_cpu.run[kind] != NULL) == is_here ((PlanOpKind)kind), "%s",
                   plan_op_name ((PlanOpKind)kind));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels");
  TCase *tcase = kernels_case ("cpu");
  SRunner *runner;
  int failed;

  exec_gemm_open ();
  tcase_set_timeout (tcase, 60);
  tcase_add_test (tcase, kernels_table_is_full);
  test_add_runs (tcase, kernels_elementwise, 16);
  test_add_runs (tcase, kernels_columns, 16);
  test_add_runs (tcase, kernels_softcap, 8);
  tcase_add_loop_test (tcase, kernels_scale, 0, 4);
  test_add_runs (tcase, kernels_embed, 20);
  test_add_runs (tcase, kernels_rmsnorm, 20);
  test_add_runs (tcase, kernels_swiglu, 20);
  test_add_runs (tcase, kernels_gemm, 48);
  test_add_runs (tcase, kernels_gemm_of_tiles, 54);
  test_add_runs (tcase, kernels_gemm_add, 60);
  test_add_runs (tcase, kernels_gemm_ignores_addresses, 20);
  tcase_add_test (tcase, kernels_gemm_says_its_name);
  test_add_runs (tcase, kernels_cross_entropy, 20);
  tcase_add_loop_test (tcase, kernels_norm_sq, 0, 4);
  tcase_add_loop_test (tcase, kernels_clip, 0, 6);
  test_add_runs (tcase, kernels_adamw, 16);
  test_add_runs (tcase, kernels_adamw_scaled, 30);
  test_add_runs (tcase, kernels_sgd, 8);
  test_add_runs (tcase, kernels_sum_parts, 8);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
