/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout: the generator of random numbers compared with its published answers; the rate of drops;
 * and kernels that drop compared with loops that draw one number at a time. */
#include "config.h"

#include "exec/number/random.h"
#include "planner/schedule/sequence.h"
#include "tests/share.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Random123 1.14, kat_vectors: philox4x32 of 10 rounds. */
START_TEST (philox_gives_its_known_answers)
{
  static const struct
  {
    guint32 counter[4], key[2], want[4];
  } known[] = { { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
                { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
                  { 0xffffffff, 0xffffffff },
                  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
                { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
                  { 0xa4093822, 0x299f31d0 },
                  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } } };
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    {
      guint32 got[4];
      exec_random_block (known[i].key, known[i].counter, got);
      ck_assert_mem_eq (got, known[i].want, sizeof got);
    }
}
END_TEST

/* What an element is multiplied by, from the words of its counter. */
static double
factor_of (const guint32 *key, guint64 token, guint32 site, guint64 col, double rate)
{
  const guint32 counter[]
      = { (guint32)(col / 4), (guint32)(token % (1ul << 32)), (guint32)(token >> 32), site };
  guint32 words[4];
  exec_random_block (key, counter, words);
  return ldexp (words[col % 4], -32) < rate ? 0 : 1 / (1 - rate);
}

/* Factors from any column on, in rows of any length. */
START_TEST (rows_are_made_of_blocks)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint32 key[] = { g_rand_int (rand), g_rand_int (rand) }, site = g_rand_int (rand);
  const guint64 token = (guint64)g_rand_int (rand) << 16 | g_rand_int_range (rand, 0, 1 << 16);
  const guint64 first = (guint64)between (rand, 0, 300), n = (guint64)between (rand, 1, 300);
  const double rate = g_rand_double (rand);
  const ExecDropout dropout = exec_dropout (key, site, rate);
  float got[300];
  exec_dropout_factors (&dropout, token, first, n, got);
  for (guint64 i = 0; i < n; i++)
    ck_assert_float_eq (got[i], (float)factor_of (key, token, site, first + i, rate));
}
END_TEST

/* Counts the elements that the first place keeps, and those that both places keep. */
static void
count_kept (const ExecDropout places[2], guint64 tokens, guint64 cols, guint64 out[2])
{
  g_autofree float *a = g_new (float, cols), *b = g_new (float, cols);
  out[0] = out[1] = 0;
  for (guint64 token = 0; token < tokens; token++)
    {
      exec_dropout_factors (&places[0], token, 0, cols, a);
      exec_dropout_factors (&places[1], token, 0, cols, b);
      for (guint64 i = 0; i < cols; i++)
        {
          ck_assert (a[i] == 0 || a[i] == places[0].scale);
          out[0] += a[i] > 0;
          out[1] += a[i] > 0 && b[i] > 0;
        }
    }
}

/* Elements are dropped as often as by a coin of that rate, within five standard deviations; and
 * independently in two places that differ in site, layer or seed. */
START_TEST (elements_are_kept_as_often_as_said)
{
  static const double rates[] = { 0.01, 0.1, 0.5, 0.9 };
  const guint64 tokens = 400, cols = 500;
  const double rate = rates[_i % 4], n = (double)(tokens * cols);
  guint32 key[2][PLAN_RANDOM_KEY];
  guint64 kept[2];
  exec_random_key (1, _i, key[0]);
  exec_random_key (_i % 3 == 2 ? 2 : 1, _i % 3 == 1 ? _i + 1 : _i, key[1]);
  const ExecDropout places[]
      = { exec_dropout (key[0], 0, rate), exec_dropout (key[1], _i % 3 == 0, rate) };
  count_kept (places, tokens, cols, kept);
  for (guint i = 0; i < 2; i++)
    {
      const double share = pow (1 - rate, i + 1);
      ck_assert_double_le (fabs ((double)kept[i] - n * share), 5 * sqrt (n * share * (1 - share)));
    }
  ck_assert_float_eq (places[0].scale, (float)(1 / (1 - rate)));
}
END_TEST

/* Each pair of a seed and a layer has a key of its own. */
START_TEST (keys_differ)
{
  guint32 keys[24][PLAN_RANDOM_KEY];
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    {
      exec_random_key (i / 8 == 2 ? G_GUINT64_CONSTANT (1) << 32 : i / 8, (gint64)(i % 8) - 1,
                       keys[i]);
      for (guint k = 0; k < i; k++)
        ck_assert_mem_ne (keys[i], keys[k], sizeof keys[i]);
    }
}
END_TEST

typedef struct
{
  gint64 dims[4];
  guint32 key[PLAN_RANDOM_KEY];
  gint64 start;
  double rate;
} Case;

static Case
case_of (GRand *rand)
{
  Case c = { .key = { g_rand_int (rand), g_rand_int (rand) },
             .start = (gint64)g_rand_int (rand) * 5,
             .rate = g_rand_double_range (rand, 0, 0.9) };
  const gint64 parts = between (rand, 1, 3), seq = 2 * between (rand, 1, 4);
  c.dims[0] = between (rand, 1, 3 * seq);
  c.dims[1] = between (rand, 1, 300);
  c.dims[2] = seq;
  c.dims[3] = between (rand, 0, 1);
  manner.value[PLAN_MANNER_RATE] = c.rate;
  manner.value[PLAN_MANNER_FIRST] = (double)between (rand, 0, seq);
  manner.value[PLAN_MANNER_PARTS] = parts > 1 ? (double)parts : 0;
  manner.value[PLAN_MANNER_PART] = (double)between (rand, 0, (gint32)parts - 1);
  return c;
}

/* The factor of an element of the rows that the manner gives. */
static double
want_factor (const Case *c, guint64 i)
{
  const guint64 seq = (guint64)c->dims[2],
                parts = MAX ((guint64)manner.value[PLAN_MANNER_PARTS], 1),
                row = (guint64)manner.value[PLAN_MANNER_FIRST] + i / (guint64)c->dims[1];
  const PlanSequencePart part
      = plan_sequence_part ((guint64)manner.value[PLAN_MANNER_PART], parts, seq);
  const guint64 token
      = (guint64)c->start + row / seq * seq * parts + plan_sequence_place (&part, row % seq);
  return factor_of (c->key, token, (guint32)c->dims[3], i % (guint64)c->dims[1], c->rate);
}

/* Dropout multiplies by factors, so its backward pass of a tensor must be its forward pass of the
 * same tensor. */
START_TEST (kernels_drop_the_same_elements)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Case c = case_of (rand);
  const guint64 n = (guint64)(c.dims[0] * c.dims[1]);
  const Tensor key = { .dtype = PLAN_DTYPE_I32, .data = c.key },
               start = { .dtype = PLAN_DTYPE_I64, .data = &c.start };
  g_auto (Tensor) a = tensor_random (rand, format_of (_i), n, 1),
                  b = tensor_random (rand, format_of (_i / 2), n, 1),
                  out = tensor_blank (format_of (_i), n), sum = tensor_blank (format_of (_i), n),
                  din = tensor_blank (format_of (_i), n);
  g_autofree double *dropped = g_new (double, n), *added = g_new (double, n);

  for (guint64 i = 0; i < n; i++)
    {
      dropped[i] = b.value[i] * want_factor (&c, i);
      added[i] = a.value[i] + dropped[i];
    }
  run_kernel (PLAN_OP_DROPOUT, OPERANDS (&out, NULL, &b, &key, &start), c.dims, PLAN_DTYPE_FP32);
  run_kernel (PLAN_OP_DROPOUT_ADD, OPERANDS (&sum, NULL, &a, &b, &key, &start), c.dims,
              PLAN_DTYPE_FP32);
  run_kernel (PLAN_OP_DROPOUT_BWD, OPERANDS (&din, &b, NULL, &key, &start), c.dims,
              PLAN_DTYPE_FP32);
  check_close (&out, dropped, 1e-6, "dropout");
  check_close (&sum, added, 1e-6, "dropout_add");
  ck_assert_mem_eq (din.data, out.data, plan_dtype_bytes (out.dtype, n));
}
END_TEST

/* Attention of one part of a sequence to another part's keys, or of whole sequences to their
 * own. */
typedef struct
{
  gint64 dims[6];
  PlanSequencePart queries, keys;
  guint64 whole;
} Attended;

/* The attention weights of a query; 0 for keys that it does not see. */
static void
weigh (const Attended *a, const Case *c, const Tensor *qkv, guint64 b, guint64 head, guint64 query,
       double *weights)
{
  const guint64 seq = (guint64)a->dims[1], heads = (guint64)a->dims[2], dim = (guint64)a->dims[4],
                width = (heads + 2 * (guint64)a->dims[3]) * dim,
                kv_head = head / (heads / (guint64)a->dims[3]),
                place = plan_sequence_place (&a->queries, query),
                start = (guint64)c->start + b * a->whole;
  const guint32 site = 2 + (guint32)manner.value[PLAN_MANNER_FIRST] + (guint32)head;
  double sum = 0;
  for (guint64 k = 0; k < seq; k++)
    {
      double score = 0;
      for (guint64 i = 0; i < dim; i++)
        score += qkv->value[(b * seq + query) * width + head * dim + i]
                 * qkv->value[(b * seq + k) * width + (heads + kv_head) * dim + i];
      weights[k]
          = plan_sequence_place (&a->keys, k) <= place ? exp (score / sqrt ((double)dim)) : 0;
      sum += weights[k];
    }
  for (guint64 k = 0; k < seq; k++)
    weights[k] *= factor_of (c->key, start + place, site, start + plan_sequence_place (&a->keys, k),
                             c->rate)
                  / (sum > 0 ? sum : 1);
}

static void
attend (const Attended *a, const Case *c, const Tensor *qkv, double *out)
{
  const guint64 seq = (guint64)a->dims[1], heads = (guint64)a->dims[2],
                kv_heads = (guint64)a->dims[3], dim = (guint64)a->dims[4],
                width = (heads + 2 * kv_heads) * dim, rows = (guint64)a->dims[0] * seq;
  g_autofree double *weights = g_new (double, seq);
  memset (out, 0, rows * heads * dim * sizeof *out);
  for (guint64 row = 0; row < rows; row++)
    for (guint64 head = 0; head < heads; head++)
      {
        const guint64 value = (heads + kv_heads + head / (heads / kv_heads)) * dim;
        weigh (a, c, qkv, row / seq, head, row % seq, weights);
        for (guint64 k = 0; k < seq; k++)
          for (guint64 i = 0; i < dim; i++)
            out[(row * heads + head) * dim + i]
                += weights[k] * qkv->value[(row / seq * seq + k) * width + value + i];
      }
}

/* The keys and values of the rows, as another rank would have sent them. */
static Tensor
keys_of (const Attended *a, const Tensor *qkv)
{
  const guint64 rows = (guint64)(a->dims[0] * a->dims[1]),
                queries = (guint64)(a->dims[2] * a->dims[4]),
                keys = (guint64)(2 * a->dims[3] * a->dims[4]);
  Tensor out = tensor_blank (qkv->dtype, rows * keys);
  for (guint64 row = 0; row < rows; row++)
    memcpy ((guint8 *)out.data + plan_dtype_bytes (out.dtype, row * keys),
            (const guint8 *)qkv->data
                + plan_dtype_bytes (out.dtype, row * (queries + keys) + queries),
            plan_dtype_bytes (out.dtype, keys));
  return out;
}

START_TEST (attention_drops_weights_of_the_softmax)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Case c = case_of (rand);
  const gint64 kv_heads = between (rand, 1, 2), seq = 2 * between (rand, 1, 40);
  const guint64 parts = MAX ((guint64)manner.value[PLAN_MANNER_PARTS], 1),
                part = (guint64)manner.value[PLAN_MANNER_PART];
  Attended a = { .dims = { between (rand, 1, 2), seq, kv_heads * between (rand, 1, 2), kv_heads,
                           between (rand, 1, 9), seq },
                 .whole = (guint64)seq * parts };
  const guint64 rows = (guint64)(a.dims[0] * seq), n = rows * (guint64)(a.dims[2] * a.dims[4]);
  const Tensor key = { .dtype = PLAN_DTYPE_I32, .data = c.key },
               start = { .dtype = PLAN_DTYPE_I64, .data = &c.start };
  g_auto (Tensor) qkv = tensor_random (rand, format_of (_i),
                                       rows * (guint64)((a.dims[2] + 2 * kv_heads) * a.dims[4]), 1);
  g_auto (Tensor) out = tensor_blank (PLAN_DTYPE_FP32, n),
                  lse = tensor_blank (PLAN_DTYPE_FP32, rows * (guint64)a.dims[2]),
                  kv = keys_of (&a, &qkv);
  g_autofree double *want = g_new (double, n);

  turn = (guint64)between (rand, 0, (gint32)parts - 1);
  a.queries = plan_sequence_part (part, parts, (guint64)seq);
  a.keys = plan_sequence_part ((part + parts - turn) % parts, parts, (guint64)seq);
  attend (&a, &c, &qkv, want);
  run_kernel (PLAN_OP_ATTENTION,
              OPERANDS (&out, &lse, &qkv, NULL, turn > 0 ? &kv : NULL, NULL, &key, &start), a.dims,
              PLAN_DTYPE_FP32);
  check_close (&out, want, _i % 2 ? 1e-4 : 1e-5, "attention");
}
END_TEST

/* Copies columns [from, from + width) of rows of `pitch`. */
static Tensor
columns_of (const Tensor *all, guint64 rows, guint64 pitch, guint64 from, guint64 width)
{
  Tensor out = tensor_blank (all->dtype, rows * width);
  for (guint64 row = 0; row < rows; row++)
    memcpy ((guint8 *)out.data + plan_dtype_bytes (out.dtype, row * width),
            (const guint8 *)all->data + plan_dtype_bytes (out.dtype, row * pitch + from),
            plan_dtype_bytes (out.dtype, width));
  return out;
}

static void
check_columns (const Tensor *all, guint64 rows, guint64 pitch, guint64 from, const Tensor *want)
{
  const guint64 width = want->count / rows;
  g_auto (Tensor) found = columns_of (all, rows, pitch, from, width);
  ck_assert_mem_eq (found.data, want->data, plan_dtype_bytes (want->dtype, want->count));
}

/* Latent attention whose values are as wide as its keys is attention of as many key heads as query
 * heads: it drops the same weights, in both passes. */
START_TEST (latent_attention_drops_the_same_weights)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Case c = case_of (rand);
  const gint64 heads = between (rand, 1, 4), dim = between (rand, 1, 9),
               seq = between (rand, 1, 60);
  const gint64 dims[] = { between (rand, 1, 2), seq, heads, heads, dim, seq },
               latent[] = { dims[0], seq, heads, dim, dim, seq };
  const guint64 rows = (guint64)(dims[0] * seq), width = (guint64)(heads * dim), n = rows * width;
  const PlanDtype format = format_of (_i);
  const Tensor key = { .dtype = PLAN_DTYPE_I32, .data = c.key },
               start = { .dtype = PLAN_DTYPE_I64, .data = &c.start };
  g_auto (Tensor) qkv = tensor_random (rand, format, 3 * n, 1),
                  dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) q = columns_of (&qkv, rows, 3 * width, 0, width),
                  k = columns_of (&qkv, rows, 3 * width, width, width),
                  v = columns_of (&qkv, rows, 3 * width, 2 * width, width);
  g_auto (Tensor) lse = tensor_blank (PLAN_DTYPE_FP32, rows * (guint64)heads),
                  latent_lse = tensor_blank (PLAN_DTYPE_FP32, rows * (guint64)heads);
  g_auto (Tensor) out = tensor_blank (format, n), latent_out = tensor_blank (format, n),
                  dqkv = tensor_blank (format, 3 * n), dq = tensor_blank (format, n),
                  dk = tensor_blank (format, n), dv = tensor_blank (format, n);

  manner.value[PLAN_MANNER_PARTS] = manner.value[PLAN_MANNER_PART] = 0;
  run_kernel (PLAN_OP_ATTENTION, OPERANDS (&out, &lse, &qkv, NULL, NULL, NULL, &key, &start), dims,
              format);
  run_kernel (PLAN_OP_ATTENTION_BWD,
              OPERANDS (&dqkv, &dout, &out, &lse, &qkv, NULL, NULL, NULL, NULL, &key, &start), dims,
              format);
  run_kernel (PLAN_OP_LATENT_ATTENTION,
              OPERANDS (&latent_out, &latent_lse, &q, &k, &v, NULL, NULL, &key, &start), latent,
              format);
  run_kernel (PLAN_OP_LATENT_ATTENTION_BWD,
              OPERANDS (&dq, &dk, &dv, &dout, &latent_out, &latent_lse, &q, &k, &v, NULL, NULL,
                        &key, &start),
              latent, format);
  check_columns (&out, rows, width, 0, &latent_out);
  check_columns (&dqkv, rows, 3 * width, 0, &dq);
  check_columns (&dqkv, rows, 3 * width, width, &dk);
  check_columns (&dqkv, rows, 3 * width, 2 * width, &dv);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-dropout");
  TCase *tcase = kernels_case ("dropout");
  suite_add_tcase (suite, tcase);
  tcase_add_test (tcase, philox_gives_its_known_answers);
  test_add_runs (tcase, rows_are_made_of_blocks, 20);
  test_add_runs (tcase, elements_are_kept_as_often_as_said, 12);
  tcase_add_test (tcase, keys_differ);
  test_add_runs (tcase, kernels_drop_the_same_elements, 40);
  test_add_runs (tcase, attention_drops_weights_of_the_softmax, 40);
  test_add_runs (tcase, latent_attention_drops_the_same_weights, 30);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
