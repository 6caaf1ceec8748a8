/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/report/report-parts.h"

#include "cli/report/report-html.h"
#include "planner/base/error.h"

#include <glib/gstdio.h>

static const char style[] =
#include "cli/report/report.css.inc"
    ;

/* The Content-Security-Policy makes browsers load and run nothing, whatever the page contains. */
gboolean
cli_report_begin (CliReport *out, const char *title, GError **error)
{
  GError *why = NULL;
  char *folder = g_dir_make_tmp ("fsdplan-report-XXXXXX", &why);
  if (!folder)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "cannot draw: %s", why->message);
      g_error_free (why);
      return FALSE;
    }
  *out = (CliReport){ g_string_new (NULL), folder };
  g_string_append (out->html,
                   "<!DOCTYPE html>\n"
                   "<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
                   "<meta charset=\"utf-8\"/>\n"
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                   "<meta http-equiv=\"Content-Security-Policy\""
                   " content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n");
  cli_html_add (out->html, "<title>", title, "</title>\n");
  g_string_append_printf (out->html, "<style>\n%s</style>\n</head>\n<body>\n", style);
  return TRUE;
}

char *
cli_report_end (CliReport *self, gboolean is_whole)
{
  g_autofree char *path = cli_report_picture_path (self);
  g_string_append (self->html, "</section>\n</body>\n</html>\n");
  g_remove (path);
  g_rmdir (self->folder);
  g_free (self->folder);
  return g_string_free (self->html, !is_whole);
}

void
cli_report_add_heading (CliReport *self, const char *title)
{
  cli_html_add (self->html, "</section>\n<section>\n<h2>", title, "</h2>\n");
}

void
cli_report_add_paragraph (CliReport *self, const char *text)
{
  cli_html_add (self->html, "<p class=\"note\">", text, "</p>\n");
}

void
cli_report_add_rows (CliReport *self, const GArray *rows)
{
  g_string_append (self->html, "<table class=\"rows\">\n");
  for (guint i = 0; i < rows->len; i++)
    {
      const CliRow *row = &g_array_index (rows, CliRow, i);
      cli_html_add (self->html, "<tr><th scope=\"row\">", row->label, "</th>");
      cli_html_add (self->html, "<td>", row->text, "</td></tr>\n");
    }
  g_string_append (self->html, "</table>\n");
}

void
cli_report_add_table (CliReport *self, const CliTable *table)
{
  guint n;
  const CliColumn *const columns = cli_table_columns (table, &n);
  g_string_append (self->html, "<div class=\"wide\"><table>\n<thead><tr>");
  for (guint c = 0; c < n; c++)
    cli_html_add (self->html,
                  columns[c].is_number ? "<th scope=\"col\" class=\"number\">"
                                       : "<th scope=\"col\">",
                  columns[c].name, "</th>");
  g_string_append (self->html, "</tr></thead>\n<tbody>\n");
  for (guint r = 0; r < cli_table_n_rows (table); r++)
    {
      g_string_append (self->html, "<tr>");
      for (guint c = 0; c < n; c++)
        {
          const char *text = cli_table_cell (table, r, c);
          cli_html_add (self->html, columns[c].is_number ? "<td class=\"number\">" : "<td>",
                        text ? text : "", "</td>");
        }
      g_string_append (self->html, "</tr>\n");
    }
  g_string_append (self->html, "</tbody>\n</table></div>\n");
}

char *
cli_report_picture_path (const CliReport *self)
{
  return g_build_filename (self->folder, "picture.svg", NULL);
}

gboolean
cli_report_add_picture (CliReport *self, const char *name, const char *label, const char *more,
                        GError **error)
{
  g_autofree char *path = cli_report_picture_path (self);
  g_autofree char *svg = NULL;
  GError *why = NULL;
  if (!g_file_get_contents (path, &svg, NULL, &why))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "cannot draw: %s", why->message);
      g_error_free (why);
      return FALSE;
    }
  g_string_append (self->html, "<figure>\n");
  if (!cli_html_add_svg (self->html, svg, name, label, more, error))
    return FALSE;
  g_string_append (self->html, "</figure>\n");
  return TRUE;
}
