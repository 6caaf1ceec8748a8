/* HTML that is XML, too: text that cannot become markup, and pictures that can share a page. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Any bytes as text between tags or in quotes: what is no character of XML becomes U+FFFD, and what
 * changes the direction of writing, too, so that nothing reads otherwise than it is. The caller
 * frees. */
char *cli_html_escape (const char *text);

/* `text`, escaped, between markup as it is. */
void cli_html_add (GString *html, const char *before, const char *text, const char *after);

/* A picture, with `more` markup on top of it. Its ids begin with `prefix`, which no other picture
 * of the page has; programs, links, and titles of its parts are left out. `label` is for those who
 * cannot see it. */
gboolean cli_html_add_svg (GString *html, const char *svg, const char *prefix, const char *label,
                           const char *more, GError **error);

G_END_DECLS
