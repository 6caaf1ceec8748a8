/* SPDX-License-Identifier: Apache-2.0 */
/* Attention within documents, and positions that restart in each document, compared with loops that
 * check for every pair of tokens whether both are in the same document. */
#include "config.h"

#include "tests/reference/rope.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sequences of documents: the document of each token, and its place there. */
typedef struct
{
  gint64 batch, seq, rows, heads, kv, d, window;
  gint *document;
  Tensor places;
} Case;

static void
case_init (Case *c, GRand *rand, gint64 seq, gint32 longest)
{
  *c = (Case){ .batch = between (rand, 1, 2), .seq = seq, .kv = between (rand, 1, 2) };
  c->heads = c->kv * between (rand, 1, 2);
  c->d = 2 * between (rand, 1, 4);
  c->rows = c->batch * seq;
  c->window = g_rand_boolean (rand) ? between (rand, 1, (gint32)seq) : 0;
  c->document = g_new (gint, c->rows);
  c->places = tensor_blank (PLAN_DTYPE_I32, (guint64)c->rows);
  gint64 left = 0;
  for (gint64 row = 0, n = 0, place = 0; row < c->rows; row++, place++, left--)
    {
      if (left == 0 || row % seq == 0)
        {
          left = between (rand, 1, longest);
          place = 0;
          n++;
        }
      c->document[row] = (gint)n;
      ((gint32 *)c->places.data)[row] = (gint32)place;
    }
  manner.value[PLAN_MANNER_WINDOW] = (double)c->window;
}

static void
case_clear (Case *c)
{
  g_free (c->document);
  tensor_clear (&c->places);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

static gboolean
sees (const Case *c, gint64 query, gint64 key)
{
  return c->document[query] == c->document[key] && key <= query
         && (c->window == 0 || query - key < c->window);
}

static gint64
width_of (const Case *c)
{
  return (c->heads + 2 * c->kv) * c->d;
}

static double
product (const double *a, const double *b, gint64 n)
{
  double sum = 0;
  for (gint64 i = 0; i < n; i++)
    sum += a[i] * b[i];
  return sum;
}

/* The attention of one query head of one token to every token. */
static void
slow_probabilities (const Case *c, const double *qkv, gint64 query, gint64 h, double *prob)
{
  const double *q = qkv + query * width_of (c) + h * c->d;
  double sum = 0;
  for (gint64 key = 0; key < c->rows; key++)
    {
      const double *k = qkv + key * width_of (c) + (c->heads + h / (c->heads / c->kv)) * c->d;
      prob[key] = sees (c, query, key) ? exp (product (q, k, c->d) / sqrt ((double)c->d)) : 0;
      sum += prob[key];
    }
  for (gint64 key = 0; key < c->rows; key++)
    prob[key] /= sum;
}

static void
slow_attention (const Case *c, const double *qkv, const double *dout, double *out, double *dqkv)
{
  g_autofree double *prob = g_new (double, c->rows);
  const gint64 width = width_of (c), d = c->d;
  memset (dqkv, 0, (gsize)(c->rows * width) * sizeof *dqkv);
  for (gint64 query = 0; query < c->rows; query++)
    for (gint64 h = 0; h < c->heads; h++)
      {
        const gint64 at = (query * c->heads + h) * d, k = (c->heads + h / (c->heads / c->kv)) * d;
        slow_probabilities (c, qkv, query, h, prob);
        for (gint64 i = 0; i < d; i++)
          out[at + i] = 0;
        for (gint64 key = 0; key < c->rows; key++)
          for (gint64 i = 0; i < d; i++)
            out[at + i] += prob[key] * qkv[key * width + k + c->kv * d + i];
        const double dot = product (dout + at, out + at, d);
        for (gint64 key = 0; key < c->rows; key++)
          {
            const double *v = qkv + key * width + k + c->kv * d;
            const double dscore = prob[key] * (product (dout + at, v, d) - dot) / sqrt ((double)d);
            for (gint64 i = 0; i < d; i++)
              {
                dqkv[query * width + h * d + i] += dscore * qkv[key * width + k + i];
                dqkv[key * width + k + i] += dscore * qkv[query * width + h * d + i];
                dqkv[key * width + k + c->kv * d + i] += prob[key] * dout[at + i];
              }
          }
      }
}

/* Sequences shorter and longer than a run of queries. */
START_TEST (attention_stays_in_documents)
{
  static const gint64 seqs[] = { 1, 9, 64, 200, 290 };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_auto (Case) c = { 0 };
  case_init (&c, rand, seqs[_i % 5], (gint32[]){ 1, 7, 50, 400 }[_i % 4]);
  const guint64 n_qkv = (guint64)(c.rows * width_of (&c)),
                n_out = (guint64)(c.rows * c.heads * c.d);
  const gint64 dims[] = { c.batch, c.seq, c.heads, c.kv, c.d, c.seq };
  const PlanDtype format = format_of (_i);
  g_auto (Tensor) qkv = tensor_random (rand, format, n_qkv, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n_out, 1);
  g_auto (Tensor) out = tensor_blank (format, n_out), dqkv = tensor_blank (format, n_qkv);
  g_auto (Tensor) lse = tensor_blank (PLAN_DTYPE_FP32, (guint64)(c.rows * c.heads));
  g_autofree double *want = g_new (double, n_out), *want_dqkv = g_new (double, n_qkv);
  slow_attention (&c, qkv.value, dout.value, want, want_dqkv);
  run_kernel (PLAN_OP_ATTENTION, OPERANDS (&out, &lse, &qkv, NULL, NULL, &c.places), dims, format);
  check_close (&out, want, 1e-6, "attention");
  run_kernel (PLAN_OP_ATTENTION_BWD,
              OPERANDS (&dqkv, &dout, &out, &lse, &qkv, NULL, NULL, NULL, &c.places), dims, format);
  check_close (&dqkv, want_dqkv, format == PLAN_DTYPE_BF16 ? 0x1p-7 : 5e-6, "attention_bwd");
}
END_TEST

START_TEST (positions_begin_anew)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_auto (Case) c = { 0 };
  case_init (&c, rand, between (rand, 1, 30), 12);
  const gint32 *places = c.places.data;
  const gint64 width = width_of (&c), cols = between (rand, 1, 300);
  const PlanDtype format = format_of (_i);
  g_auto (Tensor) qkv = tensor_random (rand, format, (guint64)(c.rows * width), 1);
  g_autofree double *want = g_memdup2 (qkv.value, (gsize)(c.rows * width) * sizeof *want);
  for (gint64 r = 0; r < c.rows; r++)
    for (gint64 h = 0; h < c.heads + c.kv; h++)
      for (gint64 i = 0; i < c.d / 2; i++)
        {
          double cosine, sine, *a = want + r * width + h * c.d + i, *b = a + c.d / 2;
          const double x = *a, y = *b;
          reference_rope_turn (&constants.rope, i, c.d, c.seq, places[r], &cosine, &sine);
          *a = x * cosine - y * sine;
          *b = y * cosine + x * sine;
        }
  run_kernel (PLAN_OP_ROPE, OPERANDS (&qkv, &c.places),
              (gint64[]){ c.rows, c.seq, c.heads, c.kv, c.d, 0 }, format);
  check_close (&qkv, want, 3e-7, "rope");

  g_auto (Tensor) x = tensor_random (rand, format, (guint64)(c.rows * cols), 1);
  g_auto (Tensor) dx = tensor_random (rand, format, (guint64)(c.rows * cols), 1);
  g_auto (Tensor) table = tensor_random (rand, format, (guint64)(c.seq * cols), 1);
  g_auto (Tensor) dtable = tensor_blank (format, (guint64)(c.seq * cols));
  g_autofree double *sum = g_new (double, c.rows *cols), *dsum = g_new0 (double, c.seq *cols);
  for (gint64 r = 0; r < c.rows; r++)
    for (gint64 i = 0; i < cols; i++)
      {
        sum[r * cols + i] = x.value[r * cols + i] + table.value[places[r] * cols + i];
        dsum[places[r] * cols + i] += dx.value[r * cols + i];
      }
  const gint64 dims[] = { c.rows, cols, c.seq };
  run_kernel (PLAN_OP_POSITIONS, OPERANDS (&x, &table, &c.places), dims, format);
  check_close (&x, sum, 1e-7, "positions");
  run_kernel (PLAN_OP_POSITIONS_BWD, OPERANDS (&dtable, &dx, &c.places), dims, format);
  check_close (&dtable, dsum, 1e-6, "positions_bwd");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-documents");
  TCase *tcase = kernels_case ("cpu");
  tcase_set_timeout (tcase, 0);
  tcase_add_loop_test (tcase, attention_stays_in_documents, 0, 20);
  tcase_add_loop_test (tcase, positions_begin_anew, 0, 20);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
