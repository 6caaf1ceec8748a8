/* CliReport: an HTML page in the making: cli_report_begin, then its parts in order, then
 * cli_report_end. */
#pragma once
#include "cli/io/output.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  GString *html;
  char *folder; /* temporary folder in which pictures are drawn */
} CliReport;

/* Begins a page with this title. */
gboolean cli_report_begin (CliReport *out, const char *title, GError **error);

/* Ends the page and returns it, for the caller to free; NULL unless `is_whole`, which says that no
 * part of the page failed. */
char *cli_report_end (CliReport *self, gboolean is_whole);

/* Begins a new section with this heading; what is added next belongs to it. */
void cli_report_add_heading (CliReport *self, const char *title);
void cli_report_add_paragraph (CliReport *self, const char *text);
void cli_report_add_rows (CliReport *self, const GArray *rows); /* of CliRow */
void cli_report_add_table (CliReport *self, const CliTable *table);

/* The path of the file into which a picture is drawn; the caller frees. */
char *cli_report_picture_path (const CliReport *self);

/* Adds the picture in that file; the words are those of cli_html_add_svg. */
gboolean cli_report_add_picture (CliReport *self, const char *name, const char *label,
                                 const char *more, GError **error);

G_END_DECLS
