/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/context.h"

#include "cli/io/output.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#define ASCII "ANSI_X3.4-1968" /* the encoding of the locale C, as glibc names it */

struct _CliContext
{
  GOptionContext *context;
  GArray *entries; /* GOptionEntry: all options added so far */
  const char *arguments;
  gboolean is_quiet, is_verbose;
  char *colour;
};

CliContext *
cli_context_new (const char *arguments, const char *summary)
{
  CliContext *self = g_new0 (CliContext, 1);
  g_autofree char *sentence = g_strdup_printf ("%c%s.", g_ascii_toupper (summary[0]), summary + 1);
  self->context = g_option_context_new (arguments);
  self->entries = g_array_new (FALSE, FALSE, sizeof (GOptionEntry));
  self->arguments = arguments;
  g_option_context_set_summary (self->context, sentence);
  g_option_context_set_help_enabled (self->context, FALSE);
  return self;
}

void
cli_context_free (CliContext *self)
{
  if (!self)
    return;
  g_option_context_free (self->context);
  g_array_unref (self->entries);
  g_free (self->colour);
  g_free (self);
}

void
cli_context_add (CliContext *self, const GOptionEntry *entries)
{
  g_option_context_add_main_entries (self->context, entries, NULL);
  for (; entries->long_name; entries++)
    g_array_append_vals (self->entries, entries, 1);
}

void
cli_context_describe (CliContext *self, const char *text)
{
  g_option_context_set_description (self->context, text);
}

static const GOptionEntry *
find_entry (const CliContext *self, const char *word)
{
  const gboolean is_long = word[1] == '-';
  const gsize length = strcspn (word + 2, "=");
  for (guint i = 0; i < self->entries->len; i++)
    {
      const GOptionEntry *entry = &g_array_index (self->entries, GOptionEntry, i);
      if (is_long ? strlen (entry->long_name) == length
                        && strncmp (entry->long_name, word + 2, length) == 0
                  : entry->short_name == word[1])
        return entry;
    }
  return NULL;
}

static gboolean
refuse_unknown (const CliContext *self, const char *word, GError **error)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
  for (guint i = 0; i < self->entries->len; i++)
    g_ptr_array_add (
        names, g_strconcat ("--", g_array_index (self->entries, GOptionEntry, i).long_name, NULL));
  g_ptr_array_add (names, g_strdup ("--help"));
  g_ptr_array_add (names, NULL);
  g_autofree char *name = g_strndup (word, strcspn (word, "="));
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_text_suggest (name, (const char *const *)names->pdata);
  if (g_str_has_prefix (hint, "did"))
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "there is no option %s: %s", shown, hint);
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "there is no option %s; see %s --help",
                 shown, g_get_prgname ());
  return FALSE;
}

/* The value in the option's own word, as in "--gbs=8" or "-oFILE"; NULL where there is none. */
static const char *
find_joined (const char *word)
{
  const char *const equals = strchr (word, '=');
  if (word[1] == '-')
    return equals ? equals + 1 : NULL;
  return word[2] ? word + 2 : NULL;
}

static gboolean
names_file (const GOptionEntry *entry)
{
  return strstr (entry->arg_description, "FILE") || strstr (entry->arg_description, "FOLDER");
}

void
cli_context_take_locale (void)
{
  if (!setlocale (LC_CTYPE, "") || strcmp (nl_langinfo (CODESET), ASCII) == 0)
    setlocale (LC_CTYPE, "C.UTF-8");
}

/* Checks that an option's value is UTF-8. GLib checks that as well, but its message names neither
 * the option nor the fault. */
static gboolean
check_encoding (const GOptionEntry *entry, const char *value, GError **error)
{
  if (entry->arg == G_OPTION_ARG_FILENAME || g_utf8_validate (value, -1, NULL))
    return TRUE;
  g_autofree char *shown = plan_text_quote (value);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--%s: %s is not UTF-8", entry->long_name,
               shown);
  return FALSE;
}

/* Checks the words before GLib parses them, for better messages than GLib's: unknown options,
 * values that are missing or not allowed, unexpected arguments. */
static gboolean
check_words (const CliContext *self, int argc, char **argv, GError **error)
{
  for (int i = 1; i < argc && strcmp (argv[i], "--") != 0; i++)
    {
      const char *const word = argv[i];
      if (word[0] != '-' || !word[1])
        {
          if (self->arguments)
            continue;
          g_autofree char *shown = plan_text_quote (word);
          if (word[0] == '@' && find_entry (self, "--plan"))
            g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                         "unexpected %s: a plan of the store is asked for by --plan %s", shown,
                         word);
          else
            g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "unexpected %s; see %s --help",
                         shown, g_get_prgname ());
          return FALSE;
        }
      const GOptionEntry *entry = find_entry (self, word);
      if (!entry)
        return refuse_unknown (self, word, error);
      const gboolean takes_value = entry->arg != G_OPTION_ARG_NONE;
      const char *const joined = find_joined (word);
      const char *const value = joined ? joined : takes_value && i + 1 < argc ? argv[i + 1] : NULL;
      if (takes_value != (value != NULL))
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--%s %s%s", entry->long_name,
                       takes_value ? "needs a value: " : "takes no value",
                       takes_value ? entry->arg_description : "");
          return FALSE;
        }
      if (value && !*value && names_file (entry))
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--%s: '' names no file",
                       entry->long_name);
          return FALSE;
        }
      if (value && !check_encoding (entry, value, error))
        return FALSE;
      i += takes_value && !joined;
    }
  return TRUE;
}

/* Prints help, with the usage on one line, as help2man expects it and most programs have it; GLib
 * puts it on two. */
static void
print_help (const CliContext *self)
{
  static const char broken[] = "Usage:\n  ";
  g_autofree char *help = g_option_context_get_help (self->context, FALSE, NULL);
  const gboolean is_broken = g_str_has_prefix (help, broken);
  printf ("%s%s", is_broken ? "Usage: " : "", help + (is_broken ? strlen (broken) : 0));
}

/* A colour that was asked for holds for what is wrong with the other words, too. */
static void
find_colour (int argc, char **argv)
{
  for (int i = 1; i < argc; i++)
    if (g_str_has_prefix (argv[i], "--color="))
      cli_colour_choose (argv[i] + strlen ("--color="), NULL);
}

gboolean
cli_context_parse (CliContext *self, int *argc, char ***argv, GError **error)
{
  const GOptionEntry last[] = {
    { "color", 0, 0, G_OPTION_ARG_STRING, &self->colour,
      "when there is colour: on a terminal, unless NO_COLOR is set (auto, the default), always or "
      "never",
      "auto|always|never" },
    { "quiet", 0, 0, G_OPTION_ARG_NONE, &self->is_quiet,
      "nothing on standard error but what went wrong", NULL },
    { "verbose", 0, 0, G_OPTION_ARG_NONE, &self->is_verbose,
      "also what was read from where, and after how many seconds what was done", NULL },
    G_OPTION_ENTRY_NULL,
  };
  cli_context_add (self, last);
  if (*argc > 2 && strcmp ((*argv)[1], CLI_COMPLETE_OPTION) == 0)
    {
      cli_complete ((const GOptionEntry *)(gpointer)self->entries->data, self->entries->len,
                    self->arguments, *argv + 2, (guint)*argc - 2);
      return FALSE;
    }
  find_colour (*argc, *argv);
  for (int i = 1; i < *argc; i++)
    if (strcmp ((*argv)[i], "--help") == 0 || strcmp ((*argv)[i], "-h") == 0)
      {
        print_help (self);
        return FALSE;
      }
  if (!check_words (self, *argc, *argv, error)
      || !g_option_context_parse (self->context, argc, argv, error)
      || (self->colour && !cli_colour_choose (self->colour, error)))
    return FALSE;
  if (self->is_quiet && self->is_verbose)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--quiet and --verbose: use one");
      return FALSE;
    }
  if (self->is_quiet)
    cli_output_quiet ();
  if (self->is_verbose)
    cli_output_verbose ();
  return TRUE;
}
