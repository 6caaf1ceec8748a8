/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON: values, and refusals with the place in the text. */
#include "config.h"

#include "planner/base/json.h"

#include "planner/base/error.h"

#include <check.h>
#include <stdlib.h>

/* Texts that are refused, with the place in the message. */
static const struct
{
  const char *text, *message;
} refused[] = {
  { "{\"a\": 1,\n  \"b\": 0x10}", "f:2:8: 'b': a number must be decimal" },
  { "{\"a\": 9223372036854775808}", "f:1:7: 'a': a number past 64 bits" },
  { "{\"a\": 1234567890123456789.5}", "f:1:7: 'a': a number past 64 bits" },
  { "{\"a\": [1, NaN]}", "f:1:11: neither a value nor punctuation of JSON" },
  { "{\"a\": 1}\n]", "f:2:1: text after the end of the JSON value" },
  { "{\"a\": {\"b\": 1},\n\"a\": 2}", "f:2: 'a': given twice" },
  { "{\"a\": 1, \"\\u0061\": 2}", "f:1: 'a': given twice" },
  { "{\"a\": {\"b\": 1, \"b\": 2}}", "f:1: 'b': given twice" },
  { "[1]", "f: not a JSON object" },
  { "", "f: not a JSON object" },
};

START_TEST (refuses_with_place)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autoptr (GError) error = NULL;
  ck_assert_ptr_null (plan_json_load (parser, refused[_i].text, "f", &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_str_eq (error->message, refused[_i].message);
}
END_TEST

/* json-glib recurses with every bracket: without the check before it this would crash. */
START_TEST (refuses_depth)
{
  g_autofree char *brackets = g_strnfill (1000000, '[');
  g_autofree char *text = g_strconcat ("{\"runs\":\n", brackets, NULL);
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autoptr (GError) error = NULL;
  ck_assert_ptr_null (plan_json_load (parser, text, "f", &error));
  ck_assert_str_eq (error->message, "f:2:32: nested deeper than any such file");
}
END_TEST

START_TEST (reads_what_fits)
{
  static const char text[]
      = "{\"a\": 9223372036854775807, \"b\": [{\"a\": 1}, {\"a\": 2}], \"c\": {}}";
  g_autoptr (JsonParser) parser = json_parser_new ();
  JsonObject *root = plan_json_load (parser, text, "f", NULL);
  ck_assert_ptr_nonnull (root);
  ck_assert_int_eq (json_object_get_int_member (root, "a"), G_MAXINT64);
  ck_assert_uint_eq (json_object_get_size (root), 3);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("json");
  TCase *tcase = tcase_create ("json");
  tcase_add_loop_test (tcase, refuses_with_place, 0, G_N_ELEMENTS (refused));
  tcase_add_test (tcase, refuses_depth);
  tcase_add_test (tcase, reads_what_fits);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
