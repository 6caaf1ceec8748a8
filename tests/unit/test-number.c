/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/number/number.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static guint32
bits_of (float value)
{
  guint32 bits;

  memcpy (&bits, &value, sizeof bits);
  return bits;
}

static float
float_of (guint32 bits)
{
  float value;

  memcpy (&value, &bits, sizeof value);
  return value;
}

/* Rounds to the nearer of two neighbours, and a tie to the even one; 2^128 stands for infinity. */
static guint16
slow_round (float value)
{
  guint16 low = (guint16)(bits_of (value) >> 16), high = (guint16)(low + 1);
  double below = exec_number_from_bf16 (low), above = exec_number_from_bf16 (high);

  if (isinf (value))
    return low;
  if (isinf (above))
    above = copysign (ldexp (1, 128), value);
  double to_low = fabs ((double)value - below), to_high = fabs (above - (double)value);
  if (to_low != to_high)
    return to_low < to_high ? low : high;
  return low % 2 == 0 ? low : high;
}

START_TEST (number_bf16_survives_widening)
{
  for (guint32 bits = 0; bits < 0x10000; bits++)
    {
      float value = exec_number_from_bf16 ((guint16)bits);

      ck_assert_uint_eq (bits_of (value), bits << 16);
      ck_assert_uint_eq (exec_number_to_bf16 (value), isnan (value) ? bits | 0x40 : bits);
    }
}
END_TEST

START_TEST (number_rounds_to_nearest_even)
{
  for (guint32 upper = 0; upper < 0x10000; upper++)
    {
      static const guint32 lowers[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };

      for (guint i = 0; i < G_N_ELEMENTS (lowers); i++)
        {
          float value = float_of (upper << 16 | lowers[i]);

          if (isnan (value))
            ck_assert (isnan (exec_number_from_bf16 (exec_number_to_bf16 (value))));
          else
            ck_assert_uint_eq (exec_number_to_bf16 (value), slow_round (value));
        }
    }
}
END_TEST

START_TEST (number_rounds_random_patterns)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);

  for (guint i = 0; i < 10000; i++)
    {
      float value = float_of (g_rand_int (rand));

      if (isnan (value))
        ck_assert (isnan (exec_number_from_bf16 (exec_number_to_bf16 (value))));
      else
        ck_assert_uint_eq (exec_number_to_bf16 (value), slow_round (value));
    }
}
END_TEST

/* For every number of the format, the midpoint to the next one is rounded to the even one, and
 * numbers beside the midpoint to the nearer one. */
START_TEST (number_fp16_rounds_to_nearest_even)
{
  for (guint32 bits = 0; bits < 0x10000; bits++)
    {
      float value = exec_number_from_fp16 ((guint16)bits), next, middle;

      if (isnan (value))
        {
          ck_assert (isnan (exec_number_from_fp16 (exec_number_to_fp16 (value))));
          continue;
        }
      ck_assert_uint_eq (exec_number_to_fp16 (value), bits);
      if ((bits & 0x7fff) >= 0x7bff)
        continue;
      next = exec_number_from_fp16 ((guint16)(bits + 1));
      ck_assert (bits & 0x8000 ? next < value : next > value);
      middle = (value + next) / 2; /* exact */
      ck_assert_uint_eq (exec_number_to_fp16 (middle), bits % 2 ? bits + 1 : bits);
      ck_assert_uint_eq (exec_number_to_fp16 (nextafterf (middle, value)), bits);
      ck_assert_uint_eq (exec_number_to_fp16 (nextafterf (middle, next)), bits + 1);
    }
}
END_TEST

START_TEST (number_fp16_known_values)
{
  ck_assert_float_eq (exec_number_from_fp16 (0x3c00), 1.0f);
  ck_assert_float_eq (exec_number_from_fp16 (0x0001), 0x1p-24f);
  ck_assert_float_eq (exec_number_from_fp16 (0x7bff), 65504.0f);
  ck_assert (isinf (exec_number_from_fp16 (0xfc00)));
  ck_assert_uint_eq (exec_number_to_fp16 (65519.996f), 0x7bff);
  ck_assert_uint_eq (exec_number_to_fp16 (65520.0f), 0x7c00);
  ck_assert_uint_eq (exec_number_to_fp16 (-1e10f), 0xfc00);
  ck_assert_uint_eq (exec_number_to_fp16 (0x1p-25f), 0); /* a tie */
  ck_assert_uint_eq (exec_number_to_fp16 (-0.0f), 0x8000);
}
END_TEST

/* Checks a small format by its list of values: each is itself; midpoints are rounded to the even
 * neighbour, numbers beside them to the nearer one, and numbers beyond the largest one to that. */
static void
check_small (guint8 (*narrow) (double), float (*widen) (guint8), guint largest, guint sign)
{
  for (guint bits = 0; bits <= largest; bits++)
    {
      double value = (double)widen ((guint8)bits), next, middle;

      ck_assert_uint_eq (narrow (value), bits);
      ck_assert_uint_eq (narrow (-value), bits | sign);
      ck_assert ((double)widen ((guint8)(bits | sign)) == -value);
      if (bits == largest)
        break;
      next = (double)widen ((guint8)(bits + 1));
      middle = (value + next) / 2;
      ck_assert (next > value);
      ck_assert_uint_eq (narrow (middle), bits % 2 ? bits + 1 : bits);
      ck_assert_uint_eq (narrow (nextafter (middle, 0)), bits);
      ck_assert_uint_eq (narrow (-nextafter (middle, INFINITY)), (bits + 1) | sign);
    }
  ck_assert_uint_eq (narrow (1e30), largest);
  ck_assert_uint_eq (narrow (-INFINITY), largest | sign);
}

START_TEST (number_small_formats)
{
  check_small (exec_number_to_e4m3, exec_number_from_e4m3, 0x7e, 0x80);
  check_small (exec_number_to_e5m2, exec_number_from_e5m2, 0x7b, 0x80);
  check_small (exec_number_to_e2m1, exec_number_from_e2m1, 0x7, 0x8);
  ck_assert_float_eq (exec_number_from_e4m3 (0x7e), 448);
  ck_assert_float_eq (exec_number_from_e4m3 (0x01), 0x1p-9f);
  ck_assert_float_eq (exec_number_from_e4m3 (0x38), 1);
  ck_assert_float_eq (exec_number_from_e5m2 (0x7b), 57344);
  ck_assert_float_eq (exec_number_from_e5m2 (0x01), 0x1p-16f);
  ck_assert_float_eq (exec_number_from_e2m1 (0x7), 6);
  ck_assert_float_eq (exec_number_from_e2m1 (0x1), 0.5f);
  ck_assert (isnan (exec_number_from_e4m3 (exec_number_to_e4m3 (NAN))));
  ck_assert (isnan (exec_number_from_e5m2 (exec_number_to_e5m2 (NAN))));
  ck_assert (isnan (exec_number_from_e4m3 (0xff)) && isinf (exec_number_from_e5m2 (0xfc)));
}
END_TEST

/* Every power of two is represented exactly, and the next number above it is rounded to the next
 * power. */
START_TEST (number_e8m0_rounds_up)
{
  for (guint bits = 1; bits < 254; bits++)
    {
      double value = exec_number_from_e8m0 ((guint8)bits);

      ck_assert (value == ldexp (1, (int)bits - 127));
      ck_assert_uint_eq (exec_number_to_e8m0_up (value), bits);
      ck_assert_uint_eq (exec_number_to_e8m0_up (nextafter (value, INFINITY)), bits + 1);
    }
  ck_assert_uint_eq (exec_number_to_e8m0_up (0), 0);
  ck_assert_uint_eq (exec_number_to_e8m0_up (1e-50), 0);
  ck_assert_uint_eq (exec_number_to_e8m0_up (1e50), 254);
  ck_assert_uint_eq (exec_number_to_e8m0_up (NAN), 0xff);
  ck_assert (isnan (exec_number_from_e8m0 (0xff)));
}
END_TEST

START_TEST (number_known_values)
{
  ck_assert_uint_eq (exec_number_to_bf16 (1.0f), 0x3f80);
  ck_assert_uint_eq (exec_number_to_bf16 (-0.0f), 0x8000);
  ck_assert_uint_eq (exec_number_to_bf16 (1.0f + 1.0f / 256), 0x3f80);     /* tie, down to even */
  ck_assert_uint_eq (exec_number_to_bf16 (1.0f + 3.0f / 256), 0x3f82);     /* tie, up to even */
  ck_assert_uint_eq (exec_number_to_bf16 (float_of (0x7f7fffff)), 0x7f80); /* largest: infinity */
  ck_assert_uint_eq (exec_number_to_bf16 (float_of (0x00000001)), 0x0000); /* smallest: zero */
  ck_assert_uint_eq (exec_number_to_bf16 (float_of (0x00018000)), 0x0002); /* denormal tie */
  ck_assert_uint_eq (exec_number_to_bf16 (float_of (0x007fffff)), 0x0080); /* up to a normal */
  ck_assert_uint_eq (exec_number_to_bf16 (float_of (0x7f800001)), 0x7fc0); /* quiet NaN */
  ck_assert_uint_eq (exec_number_to_bf16 (float_of (0xffffffff)), 0xffff); /* keeps its sign */
}
END_TEST

/* Arrays of every length around that of vectors agree with single elements. */
START_TEST (number_arrays_equal_elements)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  float in[80], wide[80];
  guint16 narrow[80];

  for (guint i = 0; i < G_N_ELEMENTS (in); i++)
    in[i] = float_of (g_rand_int (rand));
  for (guint count = 0; count < 70; count++)
    for (guint from = 0; from < 3; from++)
      {
        memset (narrow, 0, sizeof narrow);
        memset (wide, 0, sizeof wide);
        exec_number_narrow (narrow + from, PLAN_DTYPE_BF16, in + from, count);
        exec_number_widen (wide + from, narrow + from, PLAN_DTYPE_BF16, count);
        for (guint i = from; i < from + count; i++)
          {
            ck_assert_uint_eq (narrow[i], exec_number_to_bf16 (in[i]));
            ck_assert_uint_eq (bits_of (wide[i]), (guint32)narrow[i] << 16);
          }
        ck_assert_uint_eq (narrow[from + count], 0);
        ck_assert_uint_eq (bits_of (wide[from + count]), 0);
      }
}
END_TEST

/* Narrowing and widening what has been narrowed and widened changes nothing, with the scale of the
 * first result; the largest magnitude keeps its value but for the last bits, and nothing becomes
 * larger. */
START_TEST (number_scaled_survives_widening)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  float in[40], once[40], twice[40], scale, again;
  guint8 bits[40], bits_again[40];
  const double size = exp2 (_i - 140);

  for (guint i = 0; i < 40; i++)
    in[i] = (float)(size * g_rand_double_range (rand, -1, 1));
  scale = exec_number_scale (exec_number_largest (in, 40));
  exec_number_narrow_scaled (bits, PLAN_DTYPE_E4M3, in, scale, 40);
  exec_number_widen_scaled (once, PLAN_DTYPE_E4M3, bits, scale, 40);
  again = exec_number_scale (exec_number_largest (once, 40));
  exec_number_narrow_scaled (bits_again, PLAN_DTYPE_E4M3, once, again, 40);
  exec_number_widen_scaled (twice, PLAN_DTYPE_E4M3, bits_again, again, 40);
  if (exec_number_largest (once, 40) > 0)
    ck_assert_float_eq (scale, again);
  ck_assert_mem_eq (bits, bits_again, sizeof bits);
  ck_assert_mem_eq (once, twice, sizeof once);
  if (scale > FLT_MIN)
    ck_assert_double_eq_tol ((double)exec_number_largest (once, 40),
                             (double)exec_number_largest (in, 40),
                             0x1p-20 * (double)exec_number_largest (in, 40));
  for (guint i = 0; i < 40; i++)
    ck_assert_double_eq_tol ((double)once[i], (double)in[i],
                             fabs ((double)in[i]) * 0x1p-4 + (double)scale * 0x1p-10);
}
END_TEST

/* Converting many elements at once equals converting each by itself: every code, and numbers near
 * and far from codes, in any quantity. */
START_TEST (number_blocks_are_their_elements)
{
  const gboolean is_e4m3 = _i % 2 == 0;
  const PlanDtype dtype = is_e4m3 ? PLAN_DTYPE_E4M3 : PLAN_DTYPE_E5M2;
  const guint count = 256 + (guint)_i;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const float scale = (float)exp2 (g_rand_double_range (rand, -20, 20));
  guint8 codes[512], bits[512];
  float wide[512], largest = 0;

  for (guint i = 0; i < count; i++)
    codes[i] = (guint8)i;
  exec_number_widen_scaled (wide, dtype, codes, scale, count);
  for (guint i = 0; i < count; i++)
    {
      const float one
          = is_e4m3 ? exec_number_from_e4m3 (codes[i]) : exec_number_from_e5m2 (codes[i]);

      ck_assert_msg (isnan (one) ? isnan (wide[i]) : wide[i] == one * scale, "code %u", i);
      if (i % 3 == 1)
        wide[i] *= (float)g_rand_double_range (rand, 0.9, 1.1);
      if (i % 3 == 2)
        wide[i] = (float)((double)scale * g_rand_double_range (rand, -1, 1)
                          * exp2 (g_rand_double_range (rand, -24, 20)));
    }
  exec_number_narrow_scaled (bits, dtype, wide, scale, count);
  for (guint i = 0; i < count; i++)
    {
      const double value = (double)wide[i] / (double)scale;

      ck_assert_uint_eq (bits[i],
                         is_e4m3 ? exec_number_to_e4m3 (value) : exec_number_to_e5m2 (value));
      if (!isnan (wide[i]))
        largest = fmaxf (largest, fabsf (wide[i]));
      else
        wide[i] = 0;
    }
  ck_assert_float_eq (exec_number_largest (wide, count), largest);
  wide[g_rand_int_range (rand, 0, (gint32)count)] = -NAN;
  ck_assert (isnan (exec_number_largest (wide, count)));
}
END_TEST

START_TEST (number_scales_what_is_no_number)
{
  const float odd[] = { 1, NAN, 2 };

  ck_assert_float_eq (exec_number_scale (0), 1);
  ck_assert (isnan (exec_number_scale (NAN)) && isinf (exec_number_scale (INFINITY)));
  ck_assert (isnan (exec_number_largest (odd, 3)));
  ck_assert_float_eq (exec_number_largest (odd, 0), 0);
}
END_TEST

START_TEST (number_fp32_is_copied)
{
  float in[] = { 1.5f, -0.0f, NAN, 3e-45f }, wide[4], narrow[4];

  exec_number_widen (wide, in, PLAN_DTYPE_FP32, 4);
  exec_number_narrow (narrow, PLAN_DTYPE_FP32, in, 4);
  ck_assert_mem_eq (wide, in, sizeof in);
  ck_assert_mem_eq (narrow, in, sizeof in);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("number");
  TCase *tcase = tcase_create ("bf16");
  SRunner *runner;
  int failed;

  tcase_add_test (tcase, number_bf16_survives_widening);
  tcase_add_test (tcase, number_rounds_to_nearest_even);
  tcase_add_loop_test (tcase, number_rounds_random_patterns, 0, 10);
  tcase_add_test (tcase, number_known_values);
  tcase_add_test (tcase, number_fp16_rounds_to_nearest_even);
  tcase_add_test (tcase, number_fp16_known_values);
  tcase_add_test (tcase, number_small_formats);
  tcase_add_test (tcase, number_e8m0_rounds_up);
  tcase_add_test (tcase, number_arrays_equal_elements);
  tcase_add_test (tcase, number_fp32_is_copied);
  tcase_add_loop_test (tcase, number_scaled_survives_widening, 0, 260);
  tcase_add_loop_test (tcase, number_blocks_are_their_elements, 0, 60);
  tcase_add_test (tcase, number_scales_what_is_no_number);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
