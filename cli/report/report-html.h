/* HTML that is also XML: escaped text that cannot become markup, and pictures that can share a
 * page. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Escapes any bytes as text between tags or in quotes. What XML does not allow, and characters that
 * change the direction of writing, become U+FFFD, so that no text is shown in another order than it
 * has. The caller frees. */
char *cli_html_escape (const char *text);

/* Adds `text`, escaped, between two pieces of markup. */
void cli_html_add (GString *html, const char *before, const char *text, const char *after);

/* Adds an SVG picture, with the markup `more` on top of it. Its ids get the prefix `prefix`, which
 * must be unique in the page; scripts, links and titles of elements are dropped. `label` describes
 * it to screen readers. */
gboolean cli_html_add_svg (GString *html, const char *svg, const char *prefix, const char *label,
                           const char *more, GError **error);

G_END_DECLS
