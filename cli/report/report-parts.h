/* CliReport: what a page of HTML is put together from. begin -> parts in their order -> end. */
#pragma once
#include "cli/io/output.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  GString *html;
  char *folder; /* in which pictures are drawn */
} CliReport;

/* The head of a page of that title. */
gboolean cli_report_begin (CliReport *out, const char *title, GError **error);

/* The page, which the caller frees; NULL where it is not whole. */
char *cli_report_end (CliReport *self, gboolean is_whole);

/* A section of its own; what comes next is in it. */
void cli_report_add_heading (CliReport *self, const char *title);
void cli_report_add_paragraph (CliReport *self, const char *text);
void cli_report_add_rows (CliReport *self, const GArray *rows);
void cli_report_add_table (CliReport *self, const CliTable *table);

/* The file that a picture is drawn into, and the picture there, as cli_html_add_svg takes it. */
char *cli_report_picture_path (const CliReport *self);
gboolean cli_report_add_picture (CliReport *self, const char *name, const char *label,
                                 const char *more, GError **error);

G_END_DECLS
