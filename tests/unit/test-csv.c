/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/csv.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Appends "LINE[cell|cell]" or "LINE!what is broken"; NULL cells are "-". */
static void
note (guint64 line, GPtrArray *cells, const char *broken, gpointer user_data)
{
  GString *out = user_data;
  g_string_append_printf (out, "%" G_GUINT64_FORMAT "%s", line, broken ? "!" : "[");
  g_string_append (out, broken ? broken : "");
  for (guint i = 0; cells && i < cells->len; i++)
    {
      const char *cell = g_ptr_array_index (cells, i);
      g_string_append_printf (out, "%s%s", i ? "|" : "", cell ? cell : "-");
    }
  g_string_append (out, broken ? "\n" : "]\n");
}

static char *
read_in_pieces (const char *text, gsize length, gsize piece)
{
  GString *out = g_string_new (NULL);
  g_autoptr (PlanCsv) csv = plan_csv_new (note, out);
  for (gsize at = 0; at < length; at += piece)
    plan_csv_feed (csv, text + at, MIN (piece, length - at));
  plan_csv_end (csv);
  return g_string_free (out, FALSE);
}

static const struct
{
  const char *text, *expected;
} cases[] = {
  { "", "" },
  { "a,b\n1,2\n", "1[a|b]\n2[1|2]\n" },
  { "a,b\n1,2", "1[a|b]\n2[1|2]\n" },
  { "a,b\r\n1,2\r\n", "1[a|b]\n2[1|2]\n" },
  { "\n\r\na\n\n", "3[a]\n" },
  { ",\n", "1[-|-]\n" },
  { "\"\",x\n", "1[|x]\n" },
  { "\"a,\"\"b\"\"\",c\n", "1[a,\"b\"|c]\n" },
  { "\"two\nlines\",x\ny,z\n", "1[two\nlines|x]\n3[y|z]\n" },
  { "\"a\r\nb\"\n", "1[a\r\nb]\n" },
  { "\xef\xbb\xbfrow,x\n1,2\n", "1[row|x]\n2[1|2]\n" },
  { "a\"b,c\nd,e\n", "1!a quote within a cell that does not begin with one\n2[d|e]\n" },
  { "\"a\"b,c\nd\n", "1!a quoted cell goes on after its end\n2[d]\n" },
  { "a\rb\nc\n", "1!a carriage return within a line\n2[c]\n" },
  { "a\n\"b,c\nd\n", "1[a]\n2!a quoted cell does not end\n" },
};

START_TEST (records_do_not_depend_on_pieces)
{
  const gsize length = strlen (cases[_i].text);
  for (gsize piece = 1; piece <= length + 1; piece++)
    {
      g_autofree char *got = read_in_pieces (cases[_i].text, length, piece);
      ck_assert_str_eq (got, cases[_i].expected);
    }
}
END_TEST

START_TEST (nul_bytes_break_a_record)
{
  g_autofree char *got = read_in_pieces ("a,\0,c\nd\n", 8, 3);
  ck_assert_str_eq (got, "1!a NUL byte, which no text has\n2[d]\n");
}
END_TEST

START_TEST (a_nul_byte_is_no_part_of_the_mark)
{
  g_autofree char *got = read_in_pieces ("\xef\xbb\xbf\0\0a\nb\n", 9, 2);
  ck_assert_str_eq (got, "1!a NUL byte, which no text has\n2[b]\n");
}
END_TEST

/* A forgotten quote does not make the rest of a file one cell: at the limit of a cell's length
 * reading resumes with the next line. */
START_TEST (cells_are_bounded)
{
  g_autoptr (GString) text = g_string_new ("a\n\"");
  while (text->len < 1100000)
    g_string_append (text, "0123456789");
  g_string_append (text, "\nb\n");
  g_autofree char *got = read_in_pieces (text->str, text->len, 4096);
  ck_assert_str_eq (got, "1[a]\n2!a cell of more than 1 MiB: a quote is missing\n3[b]\n");
  g_string_assign (text, "");
  for (guint i = 0; i < 5000; i++)
    g_string_append (text, "x,");
  g_string_append (text, "\nb\n");
  g_autofree char *many = read_in_pieces (text->str, text->len, 4096);
  ck_assert_str_eq (many, "1!too many cells\n2[b]\n");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("csv");
  TCase *tcase = tcase_create ("csv");
  tcase_add_loop_test (tcase, records_do_not_depend_on_pieces, 0, G_N_ELEMENTS (cases));
  tcase_add_test (tcase, nul_bytes_break_a_record);
  tcase_add_test (tcase, a_nul_byte_is_no_part_of_the_mark);
  tcase_add_test (tcase, cells_are_bounded);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
