/* SPDX-License-Identifier: Apache-2.0 */
/* Compares kernels of latent attention with loops in double precision, and their gradients with
 * finite differences. Several operands of a kernel are one input of its loop, one after the other,
 * and so are its results. */
#include "config.h"

#include "exec/kernels.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* `count` elements of a tensor, from `from` on, as a tensor of their own. */
static Tensor
part_of (const Tensor *all, guint64 from, guint64 count)
{
  return (Tensor){ .dtype = all->dtype,
                   .count = count,
                   .data = (guint8 *)all->data + plan_dtype_bytes (all->dtype, from),
                   .value = all->value ? all->value + from : NULL };
}

/* --- positions ---------------------------------------------------------------------------- */

typedef struct
{
  gint64 rows, seq, heads, nope, rope, v_dim, rank, width, q, kv, down, v;
} Sizes;

static Sizes
sizes_of (const gint64 *dims)
{
  Sizes s = { dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], dims[6], 0, 0, 0, 0, 0 };

  s.width = s.nope + s.rope;
  s.q = s.rows * s.heads * s.width;
  s.kv = s.rows * s.heads * (s.nope + s.v_dim);
  s.down = s.rows * (s.rank + s.rope);
  s.v = s.rows * s.heads * s.v_dim;
  return s;
}

static void
turn_pair (const double *in, double *out, gint64 pairs, gint64 position)
{
  for (gint64 i = 0; i < pairs; i++)
    {
      const double angle
          = (double)position * pow (constants.rope.theta, -(double)i / (double)pairs);

      out[2 * i] = in[2 * i] * cos (angle) - in[2 * i + 1] * sin (angle);
      out[2 * i + 1] = in[2 * i] * sin (angle) + in[2 * i + 1] * cos (angle);
    }
}

static const gint32 *places; /* places of tokens in their documents; NULL: there are no documents */

/* in: q, kv, down; out: q, k, v. */
static void
slow_rope (Pass *pass)
{
  const Sizes s = sizes_of (pass->dims);
  const double *q = pass->in[0], *kv = q + s.q, *down = kv + s.kv;
  double *out_q = pass->out, *k = out_q + s.q, *v = k + s.q;

  for (gint64 row = 0; row < s.rows; row++)
    for (gint64 head = row * s.heads; head < (row + 1) * s.heads; head++)
      {
        const gint64 at = head * s.width, position = places ? places[row] : row % s.seq;
        const double *of = kv + head * (s.nope + s.v_dim);

        memcpy (out_q + at, q + at, (gsize)s.nope * sizeof *q);
        memcpy (k + at, of, (gsize)s.nope * sizeof *q);
        memcpy (v + head * s.v_dim, of + s.nope, (gsize)s.v_dim * sizeof *q);
        turn_pair (q + at + s.nope, out_q + at + s.nope, s.rope / 2, position);
        turn_pair (down + row * (s.rank + s.rope) + s.rank, k + at + s.nope, s.rope / 2, position);
      }
}

START_TEST (kernels_latent_rope)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 seq = between (rand, 1, 5), rows = seq * between (rand, 1, 2);
  const gint64 dims[] = { rows,
                          seq,
                          between (rand, 1, 3),
                          between (rand, 1, 5),
                          2 * between (rand, 1, _i == 0 ? 90 : 4),
                          between (rand, 1, 7),
                          _i % 3 == 0 ? 0 : between (rand, 1, 300) };
  const Sizes s = sizes_of (dims);
  const guint64 n_in = (guint64)(s.q + s.kv + s.down), n_out = (guint64)(2 * s.q + s.v);
  const PlanDtype format = format_of (_i);
  const double bound = 1e-6;
  g_auto (Tensor) in = tensor_random (rand, format, n_in, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n_out, 1);
  g_auto (Tensor) out = tensor_blank (format, n_out), din = tensor_blank (format, n_in);
  g_auto (Tensor) at = tensor_tokens (rand, (guint64)rows, 0, 9);
  Pass pass = { .in = { in.value }, .out = g_new0 (double, n_out), .out_count = n_out };
  g_autofree double *want = pass.out;

  memcpy (pass.dims, dims, sizeof dims);
  places = _i % 4 == 3 ? at.data : NULL;
  g_autofree double *want_din = slow_gradient (slow_rope, &pass, 0, n_in, dout.value);
  slow_rope (&pass);

  Tensor q = part_of (&out, 0, (guint64)s.q), k = part_of (&out, (guint64)s.q, (guint64)s.q),
         v = part_of (&out, (guint64)(2 * s.q), (guint64)s.v);
  const Tensor kv = part_of (&in, (guint64)s.q, (guint64)s.kv),
               down = part_of (&in, (guint64)(s.q + s.kv), (guint64)s.down);
  memcpy (q.data, in.data, plan_dtype_bytes (format, (guint64)s.q));
  run_kernel (PLAN_OP_LATENT_ROPE, OPERANDS (&q, &k, &v, &kv, &down, places ? &at : NULL), dims,
              format);
  check_close (&out, want, bound, "latent_rope");

  Tensor dq = part_of (&din, 0, (guint64)s.q), dkv = part_of (&din, (guint64)s.q, (guint64)s.kv),
         ddown = part_of (&din, (guint64)(s.q + s.kv), (guint64)s.down);
  const Tensor dk = part_of (&dout, (guint64)s.q, (guint64)s.q),
               dv = part_of (&dout, (guint64)(2 * s.q), (guint64)s.v);
  memcpy (dq.data, dout.data, plan_dtype_bytes (format, (guint64)s.q));
  run_kernel (PLAN_OP_LATENT_ROPE_BWD, OPERANDS (&dq, &dkv, &ddown, &dk, &dv, places ? &at : NULL),
              dims, format);
  check_close (&din, want_din, bound, "latent_rope_bwd");
}
END_TEST

/* --- attention ---------------------------------------------------------------------------- */

/* The first key that a row sees. */
static gint64
first_key (const Pass *pass, gint64 row)
{
  return row - (places ? MIN (places[row], row % pass->dims[1]) : row % pass->dims[1]);
}

/* in: q, k, v; out: attention, then log-sum-exp. */
static void
slow_attention (Pass *pass)
{
  const gint64 seq = pass->dims[1], heads = pass->dims[2], d = pass->dims[3], v_dim = pass->dims[4];
  const gint64 rows = pass->dims[0] * seq, size = rows * heads * d;
  const double scalar = manner.value[PLAN_MANNER_SCALAR], cap = manner.value[PLAN_MANNER_CAP];
  const double *k = pass->in[0] + size, *v = k + size;
  double *lse = pass->out + rows * heads * v_dim;

  memset (pass->out, 0, (gsize)(rows * heads * v_dim) * sizeof (double));
  for (gint64 row = 0; row < rows; row++)
    for (gint64 h = 0; h < heads; h++)
      {
        double *out = pass->out + (row * heads + h) * v_dim, sum = 0;

        for (gint64 s = first_key (pass, row); s <= row; s++)
          {
            double score = 0;

            for (gint64 i = 0; i < d; i++)
              score += pass->in[0][(row * heads + h) * d + i] * k[(s * heads + h) * d + i];
            score /= sqrt (scalar > 0 ? scalar : (double)d);
            const double p = exp (cap > 0 ? cap * tanh (score / cap) : score);
            sum += p;
            for (gint64 i = 0; i < v_dim; i++)
              out[i] += p * v[(s * heads + h) * v_dim + i];
          }
        for (gint64 i = 0; i < v_dim; i++)
          out[i] /= sum;
        lse[(row / seq * heads + h) * seq + row % seq] = log (sum);
      }
}

/* Sets places for documents of `length` tokens. */
static void
set_places (Tensor *at, gint64 seq, gint64 length)
{
  for (guint64 i = 0; i < at->count; i++)
    ((gint32 *)at->data)[i] = (gint32)((gint64)i % seq % length);
}

static void
check_attention (GRand *rand, const gint64 dims[6], PlanDtype format, gboolean has_places,
                 double bound, double bwd_bound)
{
  const guint64 rows = (guint64)(dims[0] * dims[1]), heads = (guint64)dims[2];
  const guint64 size = rows * heads * (guint64)dims[3], v_size = rows * heads * (guint64)dims[4];
  const guint64 n_lse = rows * heads, n_in = 2 * size + v_size;
  g_auto (Tensor) in = tensor_random (rand, format, n_in, 1), din = tensor_blank (format, n_in);
  g_auto (Tensor) out = tensor_blank (format, v_size);
  g_auto (Tensor) dout = tensor_random (rand, format, v_size, 1);
  g_auto (Tensor) lse = tensor_blank (PLAN_DTYPE_FP32, n_lse);
  g_auto (Tensor) at = tensor_tokens (rand, rows, 0, 2);
  Pass pass = { .in = { in.value }, .out = g_new (double, v_size + n_lse), .out_count = v_size };
  g_autofree double *want = pass.out;
  const Tensor q = part_of (&in, 0, size), k = part_of (&in, size, size),
               v = part_of (&in, 2 * size, v_size);
  Tensor dq = part_of (&din, 0, size), dk = part_of (&din, size, size),
         dv = part_of (&din, 2 * size, v_size);

  memcpy (pass.dims, dims, 6 * sizeof *dims);
  set_places (&at, dims[1], 3);
  places = has_places ? at.data : NULL;
  g_autofree double *want_din = slow_gradient (slow_attention, &pass, 0, n_in, dout.value);
  slow_attention (&pass);
  run_kernel (PLAN_OP_LATENT_ATTENTION,
              OPERANDS (&out, &lse, &q, &k, &v, NULL, has_places ? &at : NULL), dims, format);
  check_close (&out, want, bound, "latent_attention");
  check_close (&lse, want + v_size, 2e-6, "latent_attention: lse");
  run_kernel (
      PLAN_OP_LATENT_ATTENTION_BWD,
      OPERANDS (&dq, &dk, &dv, &dout, &out, &lse, &q, &k, &v, NULL, has_places ? &at : NULL), dims,
      format);
  check_close (&din, want_din, bwd_bound, "latent_attention_bwd");
}

/* Values are narrower than keys, as wide, or wider. */
START_TEST (kernels_latent_attention)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 seq = between (rand, 1, 7);
  const gint64 dims[] = { between (rand, 1, 2), seq, between (rand, 1, 3), between (rand, 1, 6),
                          between (rand, 1, 6), seq };

  if (_i & 2)
    manner.value[PLAN_MANNER_SCALAR] = 1.7;
  if (_i & 4)
    manner.value[PLAN_MANNER_CAP] = 0.6;
  check_attention (rand, dims, format_of (_i), _i % 5 == 4, 1e-6, _i % 2 ? 0x1p-7 : 5e-6);
}
END_TEST

/* Sizes at which a processor's matrix units are used if it has any. */
START_TEST (kernels_latent_attention_of_tiles)
{
  static const gint64 widths[][2] = { { 24, 16 }, { 16, 32 }, { 8, 8 } };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 dims[] = { 1, 52, 1, widths[_i][0], widths[_i][1], 52 };

  check_attention (rand, dims, PLAN_DTYPE_BF16, FALSE, 0x1p-15, 0x1p-7);
}
END_TEST

/* --- norms of a part of rows -------------------------------------------------------------- */

/* in[0]: rows of `pitch` elements, of which the first `cols` are normed; in[1]: the weight. */
static void
slow_norm (Pass *pass)
{
  const gint64 rows = pass->dims[0], cols = pass->dims[1];
  const gint64 pitch = (gint64)manner.value[PLAN_MANNER_PITCH];

  for (gint64 row = 0; row < rows; row++)
    {
      const double *in = pass->in[0] + row * pitch;
      double sum = 0;

      for (gint64 c = 0; c < cols; c++)
        sum += in[c] * in[c];
      for (gint64 c = 0; c < cols; c++)
        pass->out[row * cols + c]
            = in[c] / sqrt (sum / (double)cols + constants.norm_eps) * gain_of (pass->in[1][c]);
    }
}

START_TEST (kernels_norm_of_part)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 dims[] = { between (rand, 1, 9), between (rand, 1, _i == 0 ? 300 : 20) };
  const gint64 pitch = dims[1] + between (rand, 1, 9);
  const guint64 n = (guint64)(dims[0] * dims[1]), n_in = (guint64)(dims[0] * pitch);
  const PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n_in, 1);
  g_auto (Tensor) weight = tensor_random (rand, format, (guint64)dims[1], 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1), out = tensor_blank (format, n);
  g_auto (Tensor) rstd = tensor_blank (PLAN_DTYPE_FP32, (guint64)dims[0]);
  g_auto (Tensor) din = tensor_random (rand, PLAN_DTYPE_FP32, n_in, 1);
  g_auto (Tensor) dweight = tensor_blank (PLAN_DTYPE_FP32, (guint64)dims[1]);
  Pass pass = { .in = { in.value, weight.value }, .out = g_new (double, n), .out_count = n };
  g_autofree double *want = pass.out;

  memcpy (pass.dims, dims, sizeof dims);
  manner.value[PLAN_MANNER_PITCH] = (double)pitch;
  g_autofree double *want_din = slow_gradient (slow_norm, &pass, 0, n_in, dout.value);
  g_autofree double *want_dweight
      = slow_gradient (slow_norm, &pass, 1, (guint64)dims[1], dout.value);
  for (guint64 i = 0; i < n_in; i++)
    want_din[i] += din.value[i];
  slow_norm (&pass);
  run_kernel (PLAN_OP_RMSNORM, OPERANDS (&out, &rstd, &in, &weight), dims, format);
  check_close (&out, want, 1e-6, "rmsnorm");
  run_kernel (PLAN_OP_RMSNORM_BWD,
              OPERANDS (&din, &dweight, &dout, &in, &weight, &rstd, NULL, &din), dims, format);
  check_close (&din, want_din, 5e-6, "rmsnorm_bwd");
  check_close (&dweight, want_dweight, 5e-6, "rmsnorm_bwd: dweight");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-latent");
  TCase *tcase = kernels_case ("cpu");
  SRunner *runner;
  int failed;

  exec_gemm_open ();
  tcase_set_timeout (tcase, 60);
  tcase_add_loop_test (tcase, kernels_latent_rope, 0, 16);
  tcase_add_loop_test (tcase, kernels_latent_attention, 0, 24);
  tcase_add_loop_test (tcase, kernels_latent_attention_of_tiles, 0, 3);
  tcase_add_loop_test (tcase, kernels_norm_of_part, 0, 8);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
