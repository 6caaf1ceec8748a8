/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/number/exact.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 500

/* Any finite float, with all exponents equally likely. */
static float
random_float (GRand *rand)
{
  guint32 bits;
  float value;

  do
    {
      bits = g_rand_int (rand);
      memcpy (&value, &bits, sizeof value);
    }
  while (!isfinite (value));
  return value;
}

static void
shuffle (GRand *rand, float *values, guint count)
{
  for (guint i = count - 1; i > 0; i--)
    {
      guint j = (guint)g_rand_int_range (rand, 0, (gint32)i + 1);
      float kept = values[i];

      values[i] = values[j];
      values[j] = kept;
    }
}

static void
add_all (ExecExact *self, const float *values, guint count, gboolean squares)
{
  for (guint i = 0; i < count; i++)
    if (squares)
      exec_exact_add_square (self, values[i]);
    else
      exec_exact_add_float (self, values[i]);
}

START_TEST (exact_single_terms)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);

  for (guint i = 0; i < 2000; i++)
    {
      float value = random_float (rand);
      ExecExact sum = { 0 }, square = { 0 };

      exec_exact_add_float (&sum, value);
      exec_exact_add_square (&square, value);
      ck_assert_double_eq (exec_exact_value (&sum), (double)value);
      ck_assert_double_eq (exec_exact_value (&square), (double)value * (double)value);
    }
}
END_TEST

START_TEST (exact_edges)
{
  static const float edges[]
      = { 0, -0.0f, FLT_MIN, FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MAX, -FLT_MAX };

  for (guint i = 0; i < G_N_ELEMENTS (edges); i++)
    {
      ExecExact sum = { 0 }, square = { 0 };

      exec_exact_add_float (&sum, edges[i]);
      exec_exact_add_square (&square, edges[i]);
      ck_assert_double_eq (exec_exact_value (&sum), (double)edges[i]);
      ck_assert_double_eq (exec_exact_value (&square), (double)edges[i] * (double)edges[i]);
    }
}
END_TEST

/* Compares with fixed-point sums that fit into 128 bits. */
START_TEST (exact_equals_wide_integers)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  ExecExact sum = { 0 }, squares = { 0 };
  __int128 total = 0, total_squares = 0; /* in 2^-40 and 2^-80 */

  for (guint i = 0; i < 1000; i++)
    {
      gint64 mantissa = g_rand_int_range (rand, -(1 << 24), 1 << 24);
      int shift = g_rand_int_range (rand, 0, 30);
      float value = ldexpf ((float)mantissa, shift - 40);

      exec_exact_add_float (&sum, value);
      exec_exact_add_square (&squares, value);
      total += (__int128)mantissa * ((gint64)1 << shift);
      total_squares += (__int128)(mantissa * mantissa) * ((gint64)1 << 2 * shift);
    }
  ck_assert_double_eq (exec_exact_value (&sum), ldexp ((double)total, -40));
  ck_assert_double_eq (exec_exact_value (&squares), ldexp ((double)total_squares, -80));
}
END_TEST

START_TEST (exact_is_nearest_even)
{
  ExecExact sum = { 0 };

  exec_exact_add_float (&sum, 0x1p53f);
  exec_exact_add_float (&sum, 1); /* a tie */
  ck_assert_double_eq (exec_exact_value (&sum), 0x1p53);
  exec_exact_add_float (&sum, FLT_TRUE_MIN); /* just above it, 200 bits further down */
  ck_assert_double_eq (exec_exact_value (&sum), 0x1p53 + 2);
  exec_exact_add_float (&sum, -2 * FLT_TRUE_MIN);
  ck_assert_double_eq (exec_exact_value (&sum), 0x1p53);
  exec_exact_add_float (&sum, 2); /* just below the tie between 2^53 + 2 and 2^53 + 4 */
  ck_assert_double_eq (exec_exact_value (&sum), 0x1p53 + 2);
  exec_exact_add_float (&sum, FLT_TRUE_MIN); /* the tie itself goes to the even one */
  ck_assert_double_eq (exec_exact_value (&sum), 0x1p53 + 4);
  exec_exact_add_float (&sum, -0x1p54f);
  exec_exact_add_float (&sum, -6);
  ck_assert_double_eq (exec_exact_value (&sum), -0x1p53 - 4); /* -(2^53 + 3), a tie */
}
END_TEST

/* Many squares added at once give what they give one by one: for numbers of all exponents, of near
 * ones, of few bits, with some zeros, and with NaNs and infinities. */
START_TEST (exact_squares_at_once)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);

  for (guint repeat = 0; repeat < 50; repeat++)
    {
      float values[256];
      guint count = (guint)g_rand_int_range (rand, 0, 257);
      ExecExact at_once = { 0 }, single = { 0 }, zero = { 0 };

      for (guint i = 0; i < count; i++)
        {
          values[i] = repeat % 3 == 0   ? random_float (rand)
                      : repeat % 3 == 1 ? (float)g_rand_double_range (rand, -1e-3, 1e-3)
                                        : (float)g_rand_int_range (rand, -3, 4) * FLT_TRUE_MIN;
          if (repeat % 7 == 0 && g_rand_int_range (rand, 0, 100) == 0)
            values[i] = repeat % 2 ? NAN : -INFINITY;
          exec_exact_add_square (&single, values[i]);
        }
      exec_exact_add_squares (&at_once, values, count);
      exec_exact_merge (&at_once, &zero);
      exec_exact_merge (&single, &zero);
      ck_assert_mem_eq (&at_once, &single, sizeof single);
    }
}
END_TEST

/* Terms of all exponents cancel, but for one that has no opposite. */
START_TEST (exact_cancels)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  float values[2 * N + 1];
  ExecExact sum = { 0 };

  for (guint i = 0; i < N; i++)
    {
      values[2 * i] = random_float (rand);
      values[2 * i + 1] = -values[2 * i];
    }
  values[2 * N] = random_float (rand);
  float rest = values[2 * N];
  shuffle (rand, values, G_N_ELEMENTS (values));
  add_all (&sum, values, G_N_ELEMENTS (values), FALSE);
  ck_assert_double_eq (exec_exact_value (&sum), (double)rest);
  exec_exact_add_float (&sum, -rest);
  ck_assert_double_eq (exec_exact_value (&sum), 0);
}
END_TEST

/* The sum is the same in any order and with any division into parts that are merged, by limb or by
 * call. */
START_TEST (exact_order_means_nothing)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gboolean squares = _i % 2;
  float values[N];
  ExecExact whole = { 0 }, zero = { 0 };

  for (guint i = 0; i < N; i++)
    values[i] = random_float (rand);
  add_all (&whole, values, N, squares);
  double value = exec_exact_value (&whole);
  exec_exact_merge (&whole, &zero);

  for (guint repeat = 0; repeat < 20; repeat++)
    {
      guint cut = (guint)g_rand_int_range (rand, 0, N + 1);
      ExecExact a = { 0 }, b = { 0 }, limbs;

      shuffle (rand, values, N);
      add_all (&a, values, cut, squares);
      add_all (&b, values + cut, N - cut, squares);
      for (guint i = 0; i < EXEC_EXACT_LIMBS; i++)
        limbs.limb[i] = a.limb[i] + b.limb[i];
      ck_assert_double_eq (exec_exact_value (&limbs), value);
      exec_exact_merge (&a, &b);
      ck_assert_mem_eq (&a, &whole, sizeof a);
      ck_assert_double_eq (exec_exact_value (&a), value);
    }
}
END_TEST

/* Merges limbs as full as 2^30 additions can make them: merging carries and never overflows. */
START_TEST (exact_merges_full_limbs)
{
  ExecExact full = { 0 }, sum = { 0 };

  for (guint i = 0; i + 2 < EXEC_EXACT_LIMBS; i++)
    full.limb[i] = G_GINT64_CONSTANT (0xffffffff) << 30;
  for (guint i = 0; i < 1024; i++)
    exec_exact_merge (&sum, &full);
  ck_assert_double_eq (exec_exact_value (&sum), 1024 * exec_exact_value (&full));
  for (guint i = 0; i + 2 < EXEC_EXACT_LIMBS; i++)
    full.limb[i] = -full.limb[i];
  for (guint i = 0; i < 1025; i++)
    exec_exact_merge (&sum, &full);
  ck_assert_double_eq (exec_exact_value (&sum), exec_exact_value (&full));
}
END_TEST

START_TEST (exact_keeps_nan)
{
  static const float bad[] = { NAN, INFINITY, -INFINITY };

  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    for (guint squares = 0; squares < 2; squares++)
      {
        ExecExact sum = { 0 }, other = { 0 }, limbs;

        add_all (&sum, &bad[i], 1, squares);
        exec_exact_add_float (&sum, -FLT_MAX);
        ck_assert (isnan (exec_exact_value (&sum)));
        exec_exact_add_float (&other, 1);
        for (guint k = 0; k < EXEC_EXACT_LIMBS; k++)
          limbs.limb[k] = sum.limb[k] + other.limb[k];
        ck_assert (isnan (exec_exact_value (&limbs)));
        exec_exact_merge (&other, &sum);
        exec_exact_merge (&other, &sum);
        ck_assert (isnan (exec_exact_value (&other)));
      }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("exact");
  TCase *tcase = tcase_create ("exact");
  SRunner *runner;
  int failed;

  tcase_add_loop_test (tcase, exact_single_terms, 0, 10);
  tcase_add_test (tcase, exact_edges);
  tcase_add_loop_test (tcase, exact_equals_wide_integers, 0, 20);
  tcase_add_loop_test (tcase, exact_squares_at_once, 0, 20);
  tcase_add_test (tcase, exact_is_nearest_even);
  tcase_add_loop_test (tcase, exact_cancels, 0, 20);
  tcase_add_loop_test (tcase, exact_order_means_nothing, 0, 20);
  tcase_add_test (tcase, exact_merges_full_limbs);
  tcase_add_test (tcase, exact_keeps_nan);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
