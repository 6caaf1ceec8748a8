/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/colour.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum { AUTO, ALWAYS, NEVER } choice;

gboolean
cli_colour_choose (const char *when, GError **error)
{
  static const char *const names[] = { "auto", "always", "never" };
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (strcmp (when, names[i]) == 0)
      {
        choice = i;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (when);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--color: %s is not one of auto, always, never", shown);
  return FALSE;
}

/* NO_COLOR says no where it is not empty (no-color.org). */
gboolean
cli_colour_is_on (int fd)
{
  const char *const no = g_getenv ("NO_COLOR"), *const term = g_getenv ("TERM");
  if (choice != AUTO)
    return choice == ALWAYS;
  return isatty (fd) && !(no && *no) && term && *term && strcmp (term, "dumb") != 0;
}

const char *
cli_colour_begin (CliColour colour, int fd)
{
  static const char *const codes[] = {
    [CLI_PLAIN] = "", [CLI_BEST] = "\033[1m", [CLI_NOTE] = "\033[33m", [CLI_ERROR] = "\033[1;31m"
  };
  return cli_colour_is_on (fd) ? codes[colour] : "";
}

const char *
cli_colour_end (int fd)
{
  return cli_colour_is_on (fd) ? "\033[0m" : "";
}

void
cli_print_note (const char *text)
{
  printf ("%snote:%s %s\n", cli_colour_begin (CLI_NOTE, STDOUT_FILENO),
          cli_colour_end (STDOUT_FILENO), text);
}
