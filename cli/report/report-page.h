/* The page of HTML that tells all about a question and its answers. */
#pragma once
#include "cli/query/query.h"
G_BEGIN_DECLS

/* `query` has an answer; the best is expanded for its pictures. Nothing of the page depends on the
 * clock, and it needs no other file. The caller frees. */
char *cli_report_page (AdviseQuery *query, const AdviseChoice *choice, GError **error);

G_END_DECLS
