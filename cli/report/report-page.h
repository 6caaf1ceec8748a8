/* The HTML page about a question and its answers. */
#pragma once
#include "cli/query/query.h"
G_BEGIN_DECLS

/* The page for `query`, which must have an answer; the best answer is expanded for its pictures.
 * The page does not depend on the clock and needs no other file. The caller frees. */
char *cli_report_page (AdviseQuery *query, const AdviseChoice *choice, GError **error);

G_END_DECLS
