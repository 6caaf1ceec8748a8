/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/report/report-html.h"

#include "planner/base/error.h"

#include <string.h>

#define REPLACEMENT 0xfffd

/* Whether a page may contain a character. Excluded are characters that XML 1.0 does not have
 * (section 2.2), controls, and marks that embed, override or isolate text direction (Unicode
 * Standard Annex 9). */
static gboolean
is_text (gunichar c)
{
  if (c < 0x20)
    return c == '\t' || c == '\n';
  return !(c >= 0x7f && c <= 0x9f) && !(c >= 0x202a && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069)
         && (c & 0xfffe) != 0xfffe;
}

char *
cli_html_escape (const char *text)
{
  g_autofree char *valid = g_utf8_make_valid (text, -1);
  GString *escaped = g_string_new (NULL);
  for (const char *s = valid; *s; s = g_utf8_next_char (s))
    {
      const gunichar c = g_utf8_get_char (s);
      if (c == '&')
        g_string_append (escaped, "&amp;");
      else if (c == '<')
        g_string_append (escaped, "&lt;");
      else if (c == '>')
        g_string_append (escaped, "&gt;");
      else if (c == '"')
        g_string_append (escaped, "&quot;");
      else if (c == '\'')
        g_string_append (escaped, "&#39;");
      else
        g_string_append_unichar (escaped, is_text (c) ? c : REPLACEMENT);
    }
  return g_string_free (escaped, FALSE);
}

void
cli_html_add (GString *html, const char *before, const char *text, const char *after)
{
  g_autofree char *escaped = cli_html_escape (text);
  g_string_append (html, before);
  g_string_append (html, escaped);
  g_string_append (html, after);
}

/* An SVG picture while it is copied into a page. */
typedef struct
{
  GString *html;
  const char *prefix, *label, *more;
  guint depth, left_out; /* open elements; depth of the one that is left out, or 0 */
  gboolean is_open;      /* the last start tag still lacks its ">" */
} Picture;

static gboolean
is_left_out (const char *element)
{
  static const char *const names[] = { "title", "desc", "script", "a", "foreignObject", NULL };
  return g_strv_contains (names, element);
}

static void
end_tag (Picture *self)
{
  if (self->is_open)
    g_string_append_c (self->html, '>');
  self->is_open = FALSE;
}

/* Adds an attribute. Ids, and references to ids, get the picture's prefix; scripts and outside
 * links are dropped. */
static void
add_attribute (Picture *self, const char *name, const char *value)
{
  const gboolean is_id = strcmp (name, "id") == 0;
  const gboolean is_link = g_str_has_suffix (name, "href");
  g_autofree char *prefix = g_strconcat ("url(#", self->prefix, "-", NULL);
  g_auto (GStrv) parts = g_strsplit (value, "url(#", -1);
  g_autofree char *referring = g_strjoinv (prefix, parts);
  if (g_str_has_prefix (name, "on") || (is_link && *value != '#'))
    return;
  g_string_append_printf (self->html, " %s=\"", name);
  if (is_id || is_link)
    g_string_append_printf (self->html, "%s%s-", is_link ? "#" : "", self->prefix);
  cli_html_add (self->html, "", is_link ? value + 1 : referring, "\"");
}

static void
start_element (G_GNUC_UNUSED GMarkupParseContext *context, const char *name, const char **names,
               const char **values, gpointer user_data, G_GNUC_UNUSED GError **error)
{
  Picture *self = user_data;
  self->depth++;
  if (self->left_out == 0 && is_left_out (name))
    self->left_out = self->depth;
  if (self->left_out > 0)
    return;
  end_tag (self);
  g_string_append_printf (self->html, "<%s", name);
  for (; *names; names++, values++)
    add_attribute (self, *names, *values);
  if (self->depth == 1)
    cli_html_add (self->html, " role=\"img\" aria-label=\"", self->label, "\"");
  self->is_open = TRUE;
}

static void
end_element (G_GNUC_UNUSED GMarkupParseContext *context, const char *name, gpointer user_data,
             G_GNUC_UNUSED GError **error)
{
  Picture *self = user_data;
  const guint depth = self->depth--;
  if (self->left_out > 0)
    {
      self->left_out = self->left_out == depth ? 0 : self->left_out;
      return;
    }
  if (depth == 1)
    {
      end_tag (self);
      g_string_append (self->html, self->more);
    }
  if (self->is_open)
    g_string_append (self->html, "/>\n");
  else
    g_string_append_printf (self->html, "</%s>\n", name);
  self->is_open = FALSE;
}

/* Adds text. Outside of elements with words there is only white space, which is dropped. */
static void
add_text (GMarkupParseContext *context, const char *text, gsize length, gpointer user_data,
          G_GNUC_UNUSED GError **error)
{
  Picture *self = user_data;
  const char *const element = g_markup_parse_context_get_element (context);
  g_autofree char *words = g_strndup (text, length);
  if (self->left_out > 0
      || (strcmp (element, "text") != 0 && strcmp (element, "tspan") != 0
          && strcmp (element, "style") != 0))
    return;
  end_tag (self);
  cli_html_add (self->html, "", words, "");
}

gboolean
cli_html_add_svg (GString *html, const char *svg, const char *prefix, const char *label,
                  const char *more, GError **error)
{
  static const GMarkupParser parser = { start_element, end_element, add_text, NULL, NULL };
  Picture self = { .html = html, .prefix = prefix, .label = label, .more = more };
  GError *why = NULL;
  g_autoptr (GMarkupParseContext) context
      = g_markup_parse_context_new (&parser, G_MARKUP_TREAT_CDATA_AS_TEXT, &self, NULL);
  if (g_markup_parse_context_parse (context, svg, -1, &why)
      && g_markup_parse_context_end_parse (context, &why))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "%s: a picture cannot be read: %s", label,
               why->message);
  g_error_free (why);
  return FALSE;
}
