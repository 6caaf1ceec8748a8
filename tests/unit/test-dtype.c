/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/dtype.h"
#include "planner/base/error.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST (name_reads_back)
{
  PlanDtype dtype;
  const char *name = plan_dtype_name ((PlanDtype)_i);
  ck_assert (plan_dtype_parse (name, "x", &dtype, NULL));
  ck_assert_int_eq (dtype, _i);
}
END_TEST

START_TEST (facts)
{
  ck_assert_str_eq (plan_dtype_name (PLAN_DTYPE_BF16), "bf16");
  ck_assert_uint_eq (plan_dtype_bits (PLAN_DTYPE_FP32), 32);
  ck_assert_uint_eq (plan_dtype_bits (PLAN_DTYPE_E2M1), 4);
}
END_TEST

START_TEST (unknown_name_is_refused)
{
  g_autoptr (GError) error = NULL;
  PlanDtype dtype = PLAN_DTYPE_I64;
  ck_assert (!plan_dtype_parse ("bf61", "buffer dtype", &dtype, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_str_eq (error->message,
                    "buffer dtype: 'bf61' is not a number format: did you mean 'bf16'?");
  ck_assert_int_eq (dtype, PLAN_DTYPE_I64);
  g_clear_error (&error);
  ck_assert (!plan_dtype_parse ("quadruple", "x", &dtype, &error));
  ck_assert_str_eq (error->message,
                    "x: 'quadruple' is not a number format: known are fp32, bf16, "
                    "fp16, e4m3, e5m2, e8m0, e2m1, mxfp8, nvfp4, fp8-1x128, fp8-128x128, "
                    "i32, i64, u8");
}
END_TEST

START_TEST (bytes_round_up)
{
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_MXFP8, 0), 0);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_MXFP8, 1), 2);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_MXFP8, 32), 33);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_MXFP8, 33), 35);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_NVFP4, 16), 9);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_NVFP4, 17), 11);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_FP8_1X128, 128), 132);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_FP8_128X128, 128 * 128), 128 * 128 + 16);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_E2M1, 0), 0);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_E2M1, 1), 1);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_E2M1, 2), 1);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_E2M1, 3), 2);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_BF16, 3), 6);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_I64, 5), 40);
  /* the number of bits would overflow, the number of bytes does not */
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_U8, G_MAXUINT64), G_MAXUINT64);
  ck_assert_uint_eq (plan_dtype_bytes (PLAN_DTYPE_E2M1, G_MAXUINT64), G_GUINT64_CONSTANT (1) << 63);
}
END_TEST

/* Each row of squares has a multiple of four scales, all within the format's bytes. */
START_TEST (scales_of_squares)
{
  ck_assert_uint_eq (plan_dtype_square_scales (128, 128), 4);
  ck_assert_uint_eq (plan_dtype_square_scales (256, 512), 8);
  ck_assert_uint_eq (plan_dtype_square_scales (256, 513), 16);
  ck_assert_uint_eq (plan_dtype_square_scales (129, 1), 8);
  for (guint64 rows = 128; rows <= 1280; rows += 128)
    for (guint64 cols = 128; cols <= 1280; cols += 128)
      ck_assert_uint_le (rows * cols + 4 * plan_dtype_square_scales (rows, cols),
                         plan_dtype_bytes (PLAN_DTYPE_FP8_128X128, rows * cols));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("dtype");
  TCase *tcase = tcase_create ("dtype");
  tcase_add_loop_test (tcase, name_reads_back, 0, PLAN_N_DTYPES);
  tcase_add_test (tcase, facts);
  tcase_add_test (tcase, unknown_name_is_refused);
  tcase_add_test (tcase, bytes_round_up);
  tcase_add_test (tcase, scales_of_squares);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
