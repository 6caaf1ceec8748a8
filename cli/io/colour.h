/* Colour on a terminal, as --color, NO_COLOR and TERM say. Other outputs have none, unless
 * --color=always was said; JSON, CSV and files never have. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  CLI_PLAIN,
  CLI_BEST,  /* what is recommended: bold */
  CLI_NOTE,  /* what is likely to surprise: yellow */
  CLI_ERROR, /* what went wrong, or does not fit: red */
} CliColour;

/* Takes the value of --color, "auto", "always" or "never", which the functions below go by. */
gboolean cli_colour_choose (const char *when, GError **error);

/* Whether there is colour on this stream, STDOUT_FILENO or STDERR_FILENO. */
gboolean cli_colour_is_on (int fd);

/* The text that begins a colour on a stream, and the one that ends it: "" where there is no
 * colour. */
const char *cli_colour_begin (CliColour colour, int fd);
const char *cli_colour_end (int fd);

/* Prints "note: ", in its colour, and the text, as a line on standard output. */
void cli_print_note (const char *text);

G_END_DECLS
