/* SPDX-License-Identifier: Apache-2.0 */
/* Text and pictures in a page: text from outside never becomes markup, and the ids of several
 * pictures do not clash. */
#include "config.h"

#include "cli/report/report-html.h"
#include "planner/base/error.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct
{
  const char *text, *escaped;
} texts[] = {
  { "", "" },
  { "llama3-8b", "llama3-8b" },
  { "</pre><script>alert('x')</script>",
    "&lt;/pre&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" },
  { "\" onload=\"alert(1)", "&quot; onload=&quot;alert(1)" },
  { "a && b &amp; &#60;", "a &amp;&amp; b &amp;amp; &amp;#60;" },
  { "]]><!-- --><![CDATA[", "]]&gt;&lt;!-- --&gt;&lt;![CDATA[" },
  { "two\nlines\tand a tab", "two\nlines\tand a tab" },
  { "bell \a, escape \x1b[2J, delete \x7f, next line \xc2\x85",
    "bell \xef\xbf\xbd, escape \xef\xbf\xbd[2J, delete \xef\xbf\xbd, next line \xef\xbf\xbd" },
  { "no UTF-8: \xff\xfe<", "no UTF-8: \xef\xbf\xbd\xef\xbf\xbd&lt;" },
  { "no character: \xef\xbf\xbe\xef\xbf\xbf", "no character: \xef\xbf\xbd\xef\xbf\xbd" },
  { "turned \xe2\x80\xae"
    "fdp.exe\xe2\x81\xa9",
    "turned \xef\xbf\xbd"
    "fdp.exe\xef\xbf\xbd" },
  { "Größe 模型 …", "Größe 模型 …" },
};

START_TEST (text_is_never_markup)
{
  g_autofree char *escaped = cli_html_escape (texts[_i].text);
  ck_assert_str_eq (escaped, texts[_i].escaped);
}
END_TEST

static void
take_text (G_GNUC_UNUSED GMarkupParseContext *context, const char *text, gsize length,
           gpointer user_data, G_GNUC_UNUSED GError **error)
{
  g_string_append_len (user_data, text, (gssize)length);
}

/* A parser reads back what was written: every character that there is, in any order. */
START_TEST (parsers_read_text_back)
{
  static const char *const pieces[]
      = { "<", ">", "&", "\"", "'", "&lt;", "a", " ", "\n", "/", "]]>", "é", "\xe6\xa8\xa1", "=" };
  static const GMarkupParser parser = { .text = take_text };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GString) html = g_string_new (NULL);
  g_autoptr (GString) read = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  for (gint n = g_rand_int_range (rand, 1, 200); n > 0; n--)
    g_string_append (text, pieces[g_rand_int_range (rand, 0, G_N_ELEMENTS (pieces))]);
  cli_html_add (html, "<p title=\"", text->str, "\">");
  cli_html_add (html, "", text->str, "</p>");
  g_autoptr (GMarkupParseContext) context = g_markup_parse_context_new (&parser, 0, read, NULL);
  ck_assert_msg (g_markup_parse_context_parse (context, html->str, -1, &error)
                     && g_markup_parse_context_end_parse (context, &error),
                 "%s", error ? error->message : "");
  ck_assert_str_eq (read->str, text->str);
}
END_TEST

static const char picture[]
    = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<!DOCTYPE svg>\n"
      "<svg width=\"9\" onload=\"alert(1)\" xmlns=\"http://www.w3.org/2000/svg\">\n"
      "<title>Gnuplot</title><desc>by gnuplot</desc>\n"
      "<script>alert(2)</script>\n"
      "<defs><circle id='dot'/><pattern id='pat1'/></defs>\n"
      "<a xlink:href='http://example.org/'><text>gone</text></a>\n"
      "<image href='http://example.org/x.png'/>\n"
      "<g id=\"plot_1\"><title>plot_1</title><use xlink:href='#dot'/>\n"
      "<polygon fill = 'url(#pat1)' style='stroke:url(#pat1)' points='0,0 1,1'/>"
      "<text xml:space=\"preserve\"> a &lt; <tspan dy=\"1\">b</tspan></text></g>\n"
      "</svg>\n";
static const char inlined[]
    = "<svg width=\"9\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"a &lt; b\">"
      "<defs><circle id=\"p-dot\"/>\n<pattern id=\"p-pat1\"/>\n</defs>\n"
      "<image/>\n"
      "<g id=\"p-plot_1\"><use xlink:href=\"#p-dot\"/>\n"
      "<polygon fill=\"url(#p-pat1)\" style=\"stroke:url(#p-pat1)\" points=\"0,0 1,1\"/>\n"
      "<text xml:space=\"preserve\"> a &lt; <tspan dy=\"1\">b</tspan>\n</text>\n</g>\n"
      "<circle/></svg>\n";

/* An inlined picture has ids with its own prefix, and nothing of it runs, links or loads. */
START_TEST (pictures_are_inlined)
{
  g_autoptr (GString) html = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  ck_assert_msg (cli_html_add_svg (html, picture, "p", "a < b", "<circle/>", &error), "%s",
                 error ? error->message : "");
  ck_assert_str_eq (html->str, inlined);
}
END_TEST

START_TEST (broken_pictures_are_refused)
{
  static const char *const broken[]
      = { "", "<svg>", "<svg></g>", "no picture", "<svg><g a=1/></svg>" };
  g_autoptr (GString) html = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  ck_assert (!cli_html_add_svg (html, broken[_i], "p", "a front", "", &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_BACKEND));
  ck_assert (g_str_has_prefix (error->message, "a front: a picture cannot be read: "));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("report-html");
  TCase *tcase = tcase_create ("html");
  tcase_add_loop_test (tcase, text_is_never_markup, 0, G_N_ELEMENTS (texts));
  tcase_add_loop_test (tcase, parsers_read_text_back, 0, 20);
  tcase_add_test (tcase, pictures_are_inlined);
  tcase_add_loop_test (tcase, broken_pictures_are_refused, 0, 5);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
