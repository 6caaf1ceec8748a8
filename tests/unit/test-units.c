/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/units.h"

#include <check.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static const struct
{
  const char *text;
  guint64 bytes;
} sizes[] = {
  { "0", 0 },
  { "1024", 1024 },
  { "1B", 1 },
  { "1 kB", 1000 },
  { "1KiB", 1024 },
  { "512MiB", 512 * PLAN_MIB },
  { "80GB", G_GUINT64_CONSTANT (80000000000) },
  { "72GiB", 72 * PLAN_GIB },
  { "79.1 GiB", G_GUINT64_CONSTANT (84932978278) },
  { "0.5TiB", 512 * PLAN_GIB },
  { "2 TB", G_GUINT64_CONSTANT (2000000000000) },
  { "18446744073709551615", G_MAXUINT64 },
  { "16777215.9999999 TiB", G_GUINT64_CONSTANT (18446744073709441665) },
};

START_TEST (reads_size)
{
  g_autoptr (GError) error = NULL;
  guint64 bytes = 7;
  ck_assert (plan_units_parse_size (sizes[_i].text, "memory", &bytes, &error));
  ck_assert_uint_eq (bytes, sizes[_i].bytes);
}
END_TEST

static const struct
{
  const char *text, *message;
} bad_sizes[] = {
  { "",
    "memory: '' is not a size: write for example 512MiB, 79.1 GiB, 80 GB or a number of bytes" },
  { "abc", "memory: 'abc' is not a size" },
  { "80 Gb", "memory: '80 Gb' is not a size" },
  { "80GB ", "is not a size" },
  { " 80GB", "is not a size" },
  { "80  GB", "is not a size" },
  { "80 ", "is not a size" },
  { "-1", "is not a size" },
  { "+1", "is not a size" },
  { "0x10", "is not a size" },
  { "1e9", "is not a size" },
  { ".5GB", "is not a size" },
  { "1.GB", "is not a size" },
  { "1.5", "memory: '1.5' is not a size: bytes come whole" },
  { "nan", "is not a size" },
  { "inf", "is not a size" },
  { "18446744073709551616", "memory: '18446744073709551616' does not fit 64 bits" },
  { "16777216 TiB", "memory: '16777216 TiB' does not fit 64 bits" },
  { "99999999999999999999999 TB", "does not fit 64 bits" },
};

START_TEST (refuses_size)
{
  g_autoptr (GError) error = NULL;
  guint64 bytes = 7;
  ck_assert (!plan_units_parse_size (bad_sizes[_i].text, "memory", &bytes, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (strstr (error->message, bad_sizes[_i].message), "%s", error->message);
  ck_assert_uint_eq (bytes, 7);
}
END_TEST

START_TEST (reads_int)
{
  gint64 value = 0;
  ck_assert (plan_units_parse_int ("9223372036854775807", "x", 0, G_MAXINT64, &value, NULL));
  ck_assert_int_eq (value, G_MAXINT64);
  ck_assert (plan_units_parse_int ("-9223372036854775808", "x", G_MININT64, 0, &value, NULL));
  ck_assert_int_eq (value, G_MININT64);
  ck_assert (plan_units_parse_int ("007", "x", 7, 7, &value, NULL));
  ck_assert_int_eq (value, 7);
}
END_TEST

static const struct
{
  const char *text, *message;
} bad_ints[] = {
  { "", "gbs: '' is not a whole number in decimal digits: it must be from 1 to 100" },
  { "4e9", "gbs: '4e9' is not a whole number" },
  { "1k", "is not a whole number" },
  { "1.0", "is not a whole number" },
  { "-", "is not a whole number" },
  { "--1", "is not a whole number" },
  { "+1", "is not a whole number" },
  { " 1", "is not a whole number" },
  { "1 ", "is not a whole number" },
  { "0x1", "is not a whole number" },
  { "9223372036854775808", "gbs: '9223372036854775808' does not fit 64 bits" },
  { "-9223372036854775809", "does not fit 64 bits" },
  { "0", "gbs: '0' is out of range: it must be from 1 to 100" },
  { "101", "gbs: '101' is out of range" },
  { "-5", "gbs: '-5' is out of range" },
};

START_TEST (refuses_int)
{
  g_autoptr (GError) error = NULL;
  gint64 value = 7;
  ck_assert (!plan_units_parse_int (bad_ints[_i].text, "gbs", 1, 100, &value, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (strstr (error->message, bad_ints[_i].message), "%s", error->message);
  ck_assert_int_eq (value, 7);
}
END_TEST

START_TEST (open_range_reads_well)
{
  g_autoptr (GError) error = NULL;
  gint64 value;
  ck_assert (!plan_units_parse_int ("0", "gbs", 1, G_MAXINT64, &value, &error));
  ck_assert_str_eq (error->message, "gbs: '0' is out of range: it must be 1 or more");
}
END_TEST

START_TEST (reads_real)
{
  double value = 0;
  ck_assert (plan_units_parse_real ("1e-05", "x", 0, 1, &value, NULL));
  ck_assert (value == 1e-5);
  ck_assert (plan_units_parse_real ("-2.5E+1", "x", -100, 1, &value, NULL));
  ck_assert (value == -25);
  ck_assert (plan_units_parse_real ("5e-324", "x", 0, 1, &value, NULL));
  ck_assert (value > 0);
}
END_TEST

static const struct
{
  const char *text, *message;
} bad_reals[] = {
  { "", "eps: '' is not a decimal number such as 0.25 or 1e-05" },
  { "nan", "eps: 'nan' is not a decimal number" },
  { "inf", "is not a decimal number" },
  { "-inf", "is not a decimal number" },
  { "0x1p3", "is not a decimal number" },
  { "1,5", "is not a decimal number" },
  { "1e", "is not a decimal number" },
  { "1e+", "is not a decimal number" },
  { "1.", "is not a decimal number" },
  { ".5", "is not a decimal number" },
  { "1.5 ", "is not a decimal number" },
  { "1e999", "eps: '1e999' is too large for a double" },
  { "1.5", "eps: '1.5' is out of range: it must be from 0 to 1" },
  { "-0.001", "eps: '-0.001' is out of range" },
};

START_TEST (refuses_real)
{
  g_autoptr (GError) error = NULL;
  double value = 7;
  ck_assert (!plan_units_parse_real (bad_reals[_i].text, "eps", 0, 1, &value, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (strstr (error->message, bad_reals[_i].message), "%s", error->message);
  ck_assert (value == 7);
}
END_TEST

START_TEST (control_characters_are_shown_escaped)
{
  g_autoptr (GError) error = NULL;
  gint64 value;
  ck_assert (!plan_units_parse_int ("1\n\x1b[31m\xff", "gbs", 1, 9, &value, &error));
  ck_assert_msg (strstr (error->message, "'1\\x0a\\x1b[31m\\xff'"), "%s", error->message);
}
END_TEST

START_TEST (long_text_is_shown_short)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = g_strnfill (100000, 'x');
  gint64 value;
  ck_assert (!plan_units_parse_int (text, "gbs", 1, 9, &value, &error));
  ck_assert_uint_lt (strlen (error->message), 200);
}
END_TEST

#define ck_assert_text(call, expected) \
  do \
    { \
      g_autofree char *text_ = (call); \
      ck_assert_str_eq (text_, expected); \
    } \
  while (0)

START_TEST (formats_size)
{
  ck_assert_text (plan_units_format_size (0), "0 B");
  ck_assert_text (plan_units_format_size (1023), "1023 B");
  ck_assert_text (plan_units_format_size (1024), "1.0 KiB");
  ck_assert_text (plan_units_format_size (PLAN_MIB - 1), "1.0 MiB");
  ck_assert_text (plan_units_format_size (436273152), "416.1 MiB");
  ck_assert_text (plan_units_format_size (72 * PLAN_GIB), "72.0 GiB");
  ck_assert_text (plan_units_format_size (G_MAXUINT64), "16.0 EiB");
}
END_TEST

START_TEST (formats_time)
{
  ck_assert_text (plan_units_format_time (0), "0 ns");
  ck_assert_text (plan_units_format_time (999), "999 ns");
  ck_assert_text (plan_units_format_time (1000), "1.000 us");
  ck_assert_text (plan_units_format_time (1421000), "1.421 ms");
  ck_assert_text (plan_units_format_time (999999999), "1.000 s");
  ck_assert_text (plan_units_format_time (-1500), "-1.500 us");
  ck_assert_text (plan_units_format_time (G_MAXINT64), "9223372036.855 s");
}
END_TEST

START_TEST (formats_real_shortest)
{
  ck_assert_text (plan_units_format_real (0), "0");
  ck_assert_text (plan_units_format_real (0.1), "0.1");
  ck_assert_text (plan_units_format_real (1e-5), "1e-05");
  ck_assert_text (plan_units_format_real (500000), "500000");
  ck_assert_text (plan_units_format_real (-2.5), "-2.5");
  ck_assert_text (plan_units_format_real (1e300), "1e+300");
  ck_assert_text (plan_units_format_real (1.0 / 3), "0.3333333333333333");
}
END_TEST

/* Any locale with a decimal comma will do; where the machine has none, the plain locale is tried
 * again. */
START_TEST (locale_changes_nothing)
{
  static const char *const locales[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "C" };
  for (guint i = 0; i < G_N_ELEMENTS (locales) && !setlocale (LC_ALL, locales[i]); i++)
    ;
  guint64 bytes;
  double value;
  ck_assert (plan_units_parse_size ("1.5KiB", "x", &bytes, NULL) && bytes == 1536);
  ck_assert (plan_units_parse_real ("0.25", "x", 0, 1, &value, NULL) && value == 0.25);
  ck_assert_text (plan_units_format_real (0.25), "0.25");
  ck_assert_text (plan_units_format_size (1536), "1.5 KiB");
  ck_assert_text (plan_units_format_flops (6.61e9), "6.6 GFLOP/s");
}
END_TEST

START_TEST (formats_flops)
{
  ck_assert_text (plan_units_format_flops (5.234e14), "523.4 TFLOP/s");
  ck_assert_text (plan_units_format_flops (1e12), "1.0 TFLOP/s");
  ck_assert_text (plan_units_format_flops (9.4e11), "940.0 GFLOP/s");
  ck_assert_text (plan_units_format_flops (250000), "0.2 MFLOP/s");
}
END_TEST

START_TEST (multiplies)
{
  g_autoptr (GError) error = NULL;
  guint64 product = 7;
  ck_assert (plan_units_mul (G_MAXUINT32, G_MAXUINT32, "x", &product, &error));
  ck_assert_uint_eq (product, G_GUINT64_CONSTANT (18446744065119617025));
  product = 7;
  ck_assert (!plan_units_mul (G_GUINT64_CONSTANT (1) << 32, G_GUINT64_CONSTANT (1) << 32, "bucket",
                              &product, &error));
  ck_assert_str_eq (error->message, "bucket: 4294967296 times 4294967296 does not fit 64 bits");
  ck_assert_uint_eq (product, 7);
}
END_TEST

START_TEST (rounds_up)
{
  ck_assert_uint_eq (plan_units_round_up (0, 128), 0);
  ck_assert_uint_eq (plan_units_round_up (1, 128), 128);
  ck_assert_uint_eq (plan_units_round_up (128, 128), 128);
  ck_assert_uint_eq (plan_units_round_up (129, 128), 256);
  ck_assert_uint_eq (plan_units_round_up (G_MAXUINT64, 1), G_MAXUINT64);
}
END_TEST

START_TEST (finds_common_divisor)
{
  ck_assert_int_eq (plan_units_gcd (12, 18), 6);
  ck_assert_int_eq (plan_units_gcd (18, 12), 6);
  ck_assert_int_eq (plan_units_gcd (7, 9), 1);
  ck_assert_int_eq (plan_units_gcd (0, 5), 5);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("units");
  TCase *tcase = tcase_create ("units");
  tcase_add_loop_test (tcase, reads_size, 0, G_N_ELEMENTS (sizes));
  tcase_add_loop_test (tcase, refuses_size, 0, G_N_ELEMENTS (bad_sizes));
  tcase_add_test (tcase, reads_int);
  tcase_add_loop_test (tcase, refuses_int, 0, G_N_ELEMENTS (bad_ints));
  tcase_add_test (tcase, open_range_reads_well);
  tcase_add_test (tcase, reads_real);
  tcase_add_loop_test (tcase, refuses_real, 0, G_N_ELEMENTS (bad_reals));
  tcase_add_test (tcase, control_characters_are_shown_escaped);
  tcase_add_test (tcase, long_text_is_shown_short);
  tcase_add_test (tcase, formats_size);
  tcase_add_test (tcase, formats_time);
  tcase_add_test (tcase, formats_flops);
  tcase_add_test (tcase, formats_real_shortest);
  tcase_add_test (tcase, locale_changes_nothing);
  tcase_add_test (tcase, multiplies);
  tcase_add_test (tcase, rounds_up);
  tcase_add_test (tcase, finds_common_divisor);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
