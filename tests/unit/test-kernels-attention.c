/* SPDX-License-Identifier: Apache-2.0 */
/* Compares attention with loops in double precision, and its gradients with finite differences of
 * these. */
#include "config.h"

#include "exec/kernels.h"
#include "tests/share.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A score, and its derivative with respect to the product of query and key. */
typedef struct
{
  double value, slope;
} Score;

/* The slope of a head, as in build_alibi_tensor of transformers' BLOOM. */
static double
fall_of (gint64 head, gint64 heads)
{
  const double closest = pow (2, floor (log2 ((double)heads)));
  const double base = pow (2, -pow (2, -(log2 (closest) - 3)));
  const double extra = pow (2, -pow (2, -(log2 (2 * closest) - 3)));

  return (double)head < closest ? pow (base, (double)head + 1)
                                : pow (extra, 2 * ((double)head - closest) + 1);
}

/* The score of a product of a query with a key `behind` places before it. */
static Score
score_of (double product, gint64 d, gint64 behind, gint64 head, gint64 heads)
{
  const double scalar = manner.value[PLAN_MANNER_SCALAR], cap = manner.value[PLAN_MANNER_CAP];
  const double root = sqrt (scalar > 0 ? scalar : (double)d);
  Score score = { product / root, 1 / root };

  if (cap > 0)
    {
      score.slope /= pow (cosh (score.value / cap), 2);
      score.value = cap * tanh (score.value / cap);
    }
  if (manner.value[PLAN_MANNER_ALIBI] > 0)
    score.value -= (double)behind * fall_of (head, heads);
  return score;
}

/* The first key that query t sees. */
static gint64
first_key (gint64 t)
{
  const gint64 window = (gint64)manner.value[PLAN_MANNER_WINDOW],
               chunk = (gint64)manner.value[PLAN_MANNER_CHUNK];
  gint64 first = t;

  while (first > 0 && (window == 0 || first > t + 1 - window) && (chunk == 0 || first % chunk != 0))
    first--;
  return first;
}

/* in: rows of q, k and v heads; out: attention, then log-sum-exp. */
static void
slow_attention (Pass *pass)
{
  gint64 batch = pass->dims[0], seq = pass->dims[1], heads = pass->dims[2], kv = pass->dims[3];
  gint64 d = pass->dims[4], width = (heads + 2 * kv) * d;
  g_autofree double *p = g_new (double, seq);

  memset (pass->out, 0, (gsize)(batch * seq * heads * d) * sizeof (double));
  for (gint64 row = 0; row < batch * seq; row++)
    for (gint64 h = 0; h < heads; h++)
      {
        gint64 t = row % seq, key = heads + h / (heads / kv);
        const double *q = pass->in[0] + row * width + h * d;
        double *out = pass->out + row * heads * d + h * d, sum = 0;

        for (gint64 s = first_key (t); s <= t; s++)
          {
            const double *k = pass->in[0] + (row - t + s) * width + key * d;
            double score = 0;

            for (gint64 i = 0; i < d; i++)
              score += q[i] * k[i];
            p[s] = exp (score_of (score, d, t - s, h, heads).value);
            sum += p[s];
          }
        for (gint64 s = first_key (t); s <= t; s++)
          for (gint64 i = 0; i < d; i++)
            out[i] += p[s] / sum * pass->in[0][(row - t + s) * width + (key + kv) * d + i];
        pass->out[batch * seq * heads * d + (row / seq * heads + h) * seq + t] = log (sum);
      }
}

/* Sets how scores are made: plain in one of four cases, otherwise with another divisor, bounded, or
 * falling with distance. */
static void
bend (int seed, gint64 d)
{
  if (seed & 1)
    manner.value[PLAN_MANNER_SCALAR] = 1.7 * (double)d;
  if (seed & 2)
    manner.value[PLAN_MANNER_CAP] = 0.6;
  if (seed & 4)
    manner.value[PLAN_MANNER_ALIBI] = 1;
}

START_TEST (kernels_attention)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 batch = between (rand, 1, 2), seq = between (rand, 1, 7), kv = between (rand, 1, 2);
  gint64 heads = kv * between (rand, 1, 3), d = between (rand, 1, 6);
  guint64 rows = (guint64)(batch * seq), n_qkv = rows * (guint64)((heads + 2 * kv) * d);
  guint64 n_out = rows * (guint64)(heads * d), n_lse = rows * (guint64)heads;
  PlanDtype format = format_of (_i);
  gboolean is_bf16 = format == PLAN_DTYPE_BF16;
  g_auto (Tensor) qkv = tensor_random (rand, format, n_qkv, 1);
  g_auto (Tensor) out = tensor_blank (format, n_out), dqkv = tensor_blank (format, n_qkv);
  g_auto (Tensor) dout = tensor_random (rand, format, n_out, 1);
  g_auto (Tensor) lse = tensor_blank (PLAN_DTYPE_FP32, n_lse);
  Pass pass = {
    { batch, seq, heads, kv, d, seq }, { qkv.value }, NULL, g_new (double, n_out + n_lse), n_out
  };
  g_autofree double *want = pass.out;
  manner.value[_i % 3 == 0 ? PLAN_MANNER_CHUNK : PLAN_MANNER_WINDOW]
      = between (rand, 0, (gint32)seq);
  bend (_i, d);
  g_autofree double *want_dqkv = slow_gradient (slow_attention, &pass, 0, n_qkv, dout.value);

  slow_attention (&pass);
  run_kernel (PLAN_OP_ATTENTION, OPERANDS (&out, &lse, &qkv), pass.dims, format);
  check_close (&out, want, 1e-6, "attention");
  check_close (&lse, want + n_out, 1e-6, "attention lse");

  /* The gradient reads `out` as it was rounded. */
  run_kernel (PLAN_OP_ATTENTION_BWD, OPERANDS (&dqkv, &dout, &out, &lse, &qkv), pass.dims, format);
  check_close (&dqkv, want_dqkv, is_bf16 ? 0x1p-7 : 5e-6, "attention_bwd");
}
END_TEST

/* Sequences longer than one piece of any loop; forward only. */
START_TEST (kernels_attention_long)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  static const gint64 windows[] = { 0, 0, 1, 50, 130 };
  gint64 seq = 131, heads = 3, d = 37;
  guint64 n_out = (guint64)(seq * heads * d), n_qkv = 5 * n_out / 3;
  g_auto (Tensor) qkv = tensor_random (rand, format_of (_i), n_qkv, 1);
  g_auto (Tensor) out = tensor_blank (format_of (_i), n_out);
  g_auto (Tensor) lse = tensor_blank (PLAN_DTYPE_FP32, (guint64)(seq * heads));
  Pass pass = { { 1, seq, heads, 1, d },
                { qkv.value },
                NULL,
                g_new (double, n_out + (guint64)(seq * heads)),
                n_out };
  g_autofree double *want = pass.out;

  manner.value[PLAN_MANNER_WINDOW] = windows[_i];
  bend (_i, d);
  slow_attention (&pass);
  run_kernel (PLAN_OP_ATTENTION, OPERANDS (&out, &lse, &qkv), pass.dims, format_of (_i));
  check_close (&out, want, 2e-6, "attention");
  check_close (&lse, want + n_out, 1e-6, "attention lse");
}
END_TEST

/* The gradients of rows of q, k and v, by the formula. */
static void
slow_attention_bwd (const Pass *pass, const double *dout, double *dqkv)
{
  const gint64 seq = pass->dims[1], heads = pass->dims[2], kv = pass->dims[3], d = pass->dims[4];
  const gint64 width = (heads + 2 * kv) * d, rows = pass->dims[0] * seq;
  const double *lse = pass->out + rows * heads * d;

  memset (dqkv, 0, (gsize)(rows * width) * sizeof *dqkv);
  for (gint64 row = 0; row < rows; row++)
    for (gint64 h = 0; h < heads; h++)
      {
        const gint64 t = row % seq, key = (heads + h / (heads / kv)) * d;
        const double *grad = dout + (row * heads + h) * d, *out = pass->out + (row * heads + h) * d;
        const double *q = pass->in[0] + row * width + h * d;
        double dot = 0;

        for (gint64 i = 0; i < d; i++)
          dot += grad[i] * out[i];
        for (gint64 s = first_key (t); s <= t; s++)
          {
            const gint64 at = (row - t + s) * width + key;
            const double *k = pass->in[0] + at, *v = k + kv * d;
            double score = 0, dprob = 0;

            for (gint64 i = 0; i < d; i++)
              {
                score += q[i] * k[i];
                dprob += grad[i] * v[i];
              }
            const Score bent = score_of (score, d, t - s, h, heads);
            const double prob = exp (bent.value - lse[(row / seq * heads + h) * seq + t]);
            const double dscore = prob * (dprob - dot) * bent.slope;

            for (gint64 i = 0; i < d; i++)
              {
                dqkv[row * width + h * d + i] += dscore * k[i];
                dqkv[at + i] += dscore * q[i];
                dqkv[at + kv * d + i] += prob * grad[i];
              }
          }
      }
}

/* Sizes at which a processor's matrix units are used if it has any, and one at which they are not:
 * runs of 32, 64 and 128 queries. */
START_TEST (kernels_attention_of_tiles)
{
  const gint64 sizes[][2] = { { 160, 64 }, { 256, 32 }, { 384, 64 }, { 170, 64 } };
  const gint64 windows[] = { 0, 0, 0, 0, 70, 33, 192, 5 };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 seq = sizes[_i % 4][0], d = sizes[_i % 4][1], batch = 2, kv = 1, heads = 2;
  const guint64 rows = (guint64)(batch * seq), n_qkv = rows * (guint64)((heads + 2 * kv) * d);
  const guint64 n_out = rows * (guint64)(heads * d), n_lse = rows * (guint64)heads;
  const PlanDtype format = PLAN_DTYPE_BF16;
  g_auto (Tensor) qkv = tensor_random (rand, format, n_qkv, 1);
  g_auto (Tensor) out = tensor_blank (format, n_out), dqkv = tensor_blank (format, n_qkv);
  g_auto (Tensor) dout = tensor_random (rand, format, n_out, 1);
  g_auto (Tensor) lse = tensor_blank (PLAN_DTYPE_FP32, n_lse);
  Pass pass
      = { { batch, seq, heads, kv, d }, { qkv.value }, NULL, g_new (double, n_out + n_lse), n_out };
  g_autofree double *want = pass.out, *want_dqkv = g_new (double, n_qkv);

  manner.value[_i % 4 < 2 ? PLAN_MANNER_CHUNK : PLAN_MANNER_WINDOW] = windows[_i / 2];
  bend (_i, d);
  slow_attention (&pass);
  slow_attention_bwd (&pass, dout.value, want_dqkv);
  run_kernel (PLAN_OP_ATTENTION, OPERANDS (&out, &lse, &qkv), pass.dims, format);
  check_close (&out, want, 0x1p-15, "attention of tiles");
  check_close (&lse, want + n_out, 2e-6, "attention of tiles: lse");
  run_kernel (PLAN_OP_ATTENTION_BWD, OPERANDS (&dqkv, &dout, &out, &lse, &qkv), pass.dims, format);
  check_close (&dqkv, want_dqkv, 0x1p-9, "attention_bwd of tiles");
}
END_TEST

/* --- parts of sequences ------------------------------------------------------------------- */

/* Sequences that are split over `parts` ranks in 2 * parts pieces. */
typedef struct
{
  gint64 batch, seq, parts, heads, kv, d;
  PlanDtype format;
  Tensor qkv, out, lse, dout; /* `qkv` and `dout` of whole sequences; `out` and `lse` of one part */
} Parts;

/* The row, among those of whole sequences, of a row of a part. */
static guint64
row_in_whole (const Parts *self, gint64 part, gint64 row)
{
  const gint64 each = self->seq / self->parts, piece = each / 2, at = row % each;
  const gint64 place = at < piece ? part * piece + at : self->seq - (part + 1) * piece + at - piece;

  return (guint64)(row / each * self->seq + place);
}

/* Columns `from` to `from + cols` of a part's rows of a matrix of `width` columns. */
static Tensor
take_part (const Parts *self, const Tensor *whole, gint64 part, gint64 width, gint64 from,
           gint64 cols)
{
  const gint64 rows = self->batch * self->seq / self->parts;
  const guint64 size = plan_dtype_bytes (whole->dtype, 1);
  Tensor out = tensor_blank (whole->dtype, (guint64)(rows * cols));

  for (gint64 row = 0; row < rows; row++)
    memcpy ((guint8 *)out.data + (guint64)(row * cols) * size,
            (guint8 *)whole->data
                + (row_in_whole (self, part, row) * (guint64)width + (guint64)from) * size,
            (guint64)cols * size);
  return out;
}

/* Adds a part's gradients of some columns to those of the whole. */
static void
add_part (const Parts *self, double *sum, const Tensor *in, gint64 part, gint64 width, gint64 from,
          gint64 cols)
{
  for (guint64 i = 0; i < in->count; i++)
    sum[row_in_whole (self, part, (gint64)i / cols) * (guint64)width + (guint64)from
        + i % (guint64)cols]
        += tensor_get (in, i);
}

/* Joins the attention of one part's queries to the keys of every part. */
static void
attend (Parts *self, gint64 part, const gint64 *dims, const Tensor *qkv)
{
  const gint64 width = (self->heads + 2 * self->kv) * self->d, keys = 2 * self->kv * self->d;

  turn = 0;
  run_kernel (PLAN_OP_ATTENTION, OPERANDS (&self->out, &self->lse, qkv), dims, self->format);
  for (turn = 1; turn < (guint64)self->parts; turn++)
    {
      const gint64 of = (part + self->parts - (gint64)turn) % self->parts;
      g_auto (Tensor) kv = take_part (self, &self->qkv, of, width, width - keys, keys);
      g_auto (Tensor) out = tensor_blank (self->format, self->out.count);
      g_auto (Tensor) lse = tensor_blank (PLAN_DTYPE_FP32, self->lse.count);

      run_kernel (PLAN_OP_ATTENTION, OPERANDS (&out, &lse, qkv, NULL, &kv), dims, self->format);
      run_kernel (PLAN_OP_ATTENTION_JOIN, OPERANDS (&self->out, &self->lse, &out, &lse),
                  (gint64[]){ dims[0], dims[1], dims[2], dims[4] }, self->format);
    }
}

/* Adds the share of one part's queries to all gradients. */
static void
attend_bwd (const Parts *self, gint64 part, const gint64 *dims, const Tensor *qkv, double *dqkv)
{
  const gint64 width = (self->heads + 2 * self->kv) * self->d, keys = 2 * self->kv * self->d;
  g_auto (Tensor) dout = take_part (self, &self->dout, part, width - keys, 0, width - keys);
  g_auto (Tensor) own = tensor_blank (self->format, qkv->count);

  turn = 0;
  run_kernel (PLAN_OP_ATTENTION_BWD, OPERANDS (&own, &dout, &self->out, &self->lse, qkv), dims,
              self->format);
  add_part (self, dqkv, &own, part, width, 0, width);
  for (turn = 1; turn < (guint64)self->parts; turn++)
    {
      const gint64 of = (part + self->parts - (gint64)turn) % self->parts;
      g_auto (Tensor) kv = take_part (self, &self->qkv, of, width, width - keys, keys);
      g_auto (Tensor) dkv = tensor_blank (self->format, kv.count);
      g_auto (Tensor) dq = tensor_blank (self->format, dout.count);

      run_kernel (PLAN_OP_ATTENTION_BWD,
                  OPERANDS (&dq, &dout, &self->out, &self->lse, qkv, NULL, &kv, &dkv), dims,
                  self->format);
      add_part (self, dqkv, &dq, part, width, 0, width - keys);
      add_part (self, dqkv, &dkv, of, width, width - keys, keys);
    }
}

/* Queries of each part with the keys of all parts give the same as whole sequences. */
START_TEST (kernels_attention_of_parts)
{
  static const gint64 pieces[] = { 1, 3, 40, 70 }, windows[] = { 0, 0, 5, 90 };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Parts self = { .batch = 2, .parts = 2 + _i % 3, .heads = 2, .kv = 1 + _i % 2, .d = 16 };
  self.format = format_of (_i / 4);
  self.seq = 2 * self.parts * pieces[_i % 4];
  const gint64 rows = self.batch * self.seq, each = rows / self.parts;
  const gint64 width = (self.heads + 2 * self.kv) * self.d, out_width = self.heads * self.d;
  const gint64 dims[] = { self.batch, self.seq / self.parts, self.heads, self.kv, self.d, 1 };
  const gboolean is_bf16 = self.format == PLAN_DTYPE_BF16;
  self.qkv = tensor_random (rand, self.format, (guint64)(rows * width), 1);
  self.dout = tensor_random (rand, self.format, (guint64)(rows * out_width), 1);
  self.out = tensor_blank (self.format, (guint64)(each * out_width));
  self.lse = tensor_blank (PLAN_DTYPE_FP32, (guint64)(each * self.heads));
  Pass pass = { { self.batch, self.seq, self.heads, self.kv, self.d },
                { self.qkv.value },
                NULL,
                g_new (double, rows *(out_width + self.heads)),
                (guint64)(rows * out_width) };
  g_autofree double *all = pass.out, *want = g_new (double, each *out_width);
  g_autofree double *want_dqkv = g_new (double, rows *width), *dqkv = g_new0 (double, rows *width);
  manner.value[_i % 2 == 0 ? PLAN_MANNER_CHUNK : PLAN_MANNER_WINDOW] = windows[_i / 3 % 4];
  bend (_i, self.d);
  slow_attention (&pass);
  slow_attention_bwd (&pass, self.dout.value, want_dqkv);
  manner.value[PLAN_MANNER_PARTS] = self.parts;
  for (gint64 part = 0; part < self.parts; part++)
    {
      g_auto (Tensor) qkv = take_part (&self, &self.qkv, part, width, 0, width);
      manner.value[PLAN_MANNER_PART] = part;
      attend (&self, part, dims, &qkv);
      for (gint64 i = 0; i < each * out_width; i++)
        want[i] = all[row_in_whole (&self, part, i / out_width) * (guint64)out_width
                      + (guint64)(i % out_width)];
      check_close (&self.out, want, is_bf16 ? 0x1p-7 : 2e-6, "attention of parts");
      attend_bwd (&self, part, dims, &qkv, dqkv);
    }
  double largest = 0;
  for (gint64 i = 0; i < rows * width; i++)
    largest = fmax (largest, fabs (want_dqkv[i]));
  for (gint64 i = 0; i < rows * width; i++)
    ck_assert_double_le (fabs (dqkv[i] - want_dqkv[i]), (is_bf16 ? 0x1p-6 : 1e-5) * largest);
  tensor_clear (&self.qkv);
  tensor_clear (&self.dout);
  tensor_clear (&self.out);
  tensor_clear (&self.lse);
}
END_TEST

/* The logs of each token's sums of exponentials. */
static const double *sums_of_tokens;

/* The attention of a query whose sum of exponentials also has a sink's term. */
static void
slow_sinks (Pass *pass)
{
  const gint64 seq = pass->dims[1], heads = pass->dims[2], dim = pass->dims[3];

  for (gint64 row = 0; row < pass->dims[0] * seq; row++)
    for (gint64 head = 0; head < heads; head++)
      {
        const double lse = sums_of_tokens[(row / seq * heads + head) * seq + row % seq];
        const double share = 1 / (1 + exp (pass->in[1][head] - lse));

        for (gint64 d = (row * heads + head) * dim; d < (row * heads + head + 1) * dim; d++)
          pass->out[d] = share * pass->in[0][d];
      }
}

START_TEST (sinks_are_those_of_loops)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 batch = between (rand, 1, 3), seq = between (rand, 1, 9);
  const gint64 heads = between (rand, 1, 5), dim = between (rand, 1, _i % 4 == 0 ? 300 : 20);
  const guint64 rows = (guint64)(batch * seq * heads), n = rows * (guint64)dim;
  const PlanDtype format = format_of (_i), other = format_of (_i / 2);
  g_auto (Tensor) out = tensor_random (rand, format, n, 1);
  g_auto (Tensor) lse = tensor_random (rand, PLAN_DTYPE_FP32, rows, 4);
  g_auto (Tensor) sinks = tensor_random (rand, other, (guint64)heads, 4);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) made = tensor_blank (PLAN_DTYPE_FP32, n); /* `out`, not rounded further */
  g_auto (Tensor) dsinks = tensor_blank (other, (guint64)heads);
  g_autofree double *want = g_new (double, n), *want_lse = g_new (double, rows);
  Pass pass = { { batch, seq, heads, dim }, { out.value, sinks.value }, NULL, want, n };

  sums_of_tokens = lse.value;
  slow_sinks (&pass);
  for (guint64 i = 0; i < rows; i++)
    want_lse[i] = log (exp (lse.value[i]) + exp (sinks.value[i / (guint64)seq % (guint64)heads]));
  run_kernel (PLAN_OP_ATTENTION_SINK, OPERANDS (&out, &lse, &sinks), pass.dims, format);
  check_close (&out, want, 2e-6, "attention_sink");
  check_close (&lse, want_lse, 1e-6, "attention_sink, of sums");
  for (guint64 i = 0; i < n; i++)
    ((float *)made.data)[i] = (float)want[i];
  g_autofree double *want_dsinks = slow_gradient (slow_sinks, &pass, 1, (guint64)heads, dout.value);
  run_kernel (PLAN_OP_ATTENTION_SINK_BWD, OPERANDS (&dsinks, &dout, &made, &lse, &sinks), pass.dims,
              format);
  check_close (&dsinks, want_dsinks, 1e-5, "attention_sink_bwd");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-attention");
  TCase *tcase = kernels_case ("cpu");
  SRunner *runner;
  int failed;

  exec_gemm_open ();
  tcase_set_timeout (tcase, 60);
  test_add_runs (tcase, kernels_attention, 24);
  test_add_runs (tcase, kernels_attention_of_tiles, 16);
  tcase_add_loop_test (tcase, kernels_attention_long, 0, 5);
  test_add_runs (tcase, kernels_attention_of_parts, 24);
  test_add_runs (tcase, sinks_are_those_of_loops, 40);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
