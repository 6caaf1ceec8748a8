/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/commands.h"
#include "cli/io/context.h"
#include "cli/io/limits.h"
#include "cli/io/output.h"
#include "cli/io/watch.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <stdio.h>
#include <string.h>

/* All commands; an entry without a function is the title of a group. */
static const struct
{
  const char *name;
  int (*function) (int argc, char **argv, GError **error);
  const char *summary;
} commands[] = {
#define GROUP(title) { title, NULL, NULL },
#define X(name, function, summary) { name, function, summary },
  CLI_COMMAND_LIST (GROUP, X)
#undef X
#undef GROUP
};

static void
print_help (FILE *out)
{
  fputs ("Usage: fsdplan COMMAND [OPTION…]\n\n"
         "Which fully sharded data-parallel configuration to run, what it will cost in memory and\n"
         "time, and what it cost when it ran.\n",
         out);
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++)
    if (commands[i].function)
      fprintf (out, "  %-10s  %s\n", commands[i].name, commands[i].summary);
    else
      fprintf (out, "\n%s:\n", commands[i].name);
  fputs ("\nOptions:\n"
         "  --help      this text; fsdplan COMMAND --help for a command's\n"
         "  --version   the version\n"
         "\nExit status: 0 done, 1 failed, 2 wrong usage, 3 nothing feasible, 4 ended early as "
         "SIGTERM asked, 5 done but not kept in the store, 130 ended by Ctrl-C.\n",
         out);
}

static int
run_command (int argc, char **argv, GError **error)
{
  const char *names[G_N_ELEMENTS (commands) + 1];
  guint n = 0;
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++)
    {
      if (!commands[i].function)
        continue;
      names[n++] = commands[i].name;
      if (strcmp (argv[0], commands[i].name) != 0)
        continue;
      g_autofree char *name = g_strconcat ("fsdplan ", commands[i].name, NULL);
      g_set_prgname (name); /* as help shows it */
      return commands[i].function (argc, argv, error);
    }
  names[n] = NULL;
  g_autofree char *shown = plan_text_quote (argv[0]);
  g_autofree char *hint = plan_text_suggest (argv[0], names);
  if (g_str_has_prefix (hint, "did"))
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "there is no command %s: %s", shown, hint);
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "there is no command %s; see fsdplan --help", shown);
  return CLI_FAILED;
}

int
cmd_help (int argc, char **argv, GError **error)
{
  if (argc > 2 && strcmp (argv[1], CLI_COMPLETE_OPTION) == 0)
    {
      for (guint i = 0; argc == 3 && i < G_N_ELEMENTS (commands); i++)
        if (commands[i].function)
          cli_complete_word (argv[2], commands[i].name, commands[i].summary);
      return CLI_DONE;
    }
  if (argc > 2)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "help: one command at a time");
      return CLI_FAILED;
    }
  if (argc == 2 && argv[1][0] != '-' && strcmp (argv[1], "help") != 0)
    {
      char option[] = "--help", *words[] = { argv[1], option, NULL };
      return run_command (2, words, error);
    }
  print_help (stdout);
  return CLI_DONE;
}

/* Completes the last of `words`, which follow "fsdplan". */
static int
complete (int n_words, char **words, GError **error)
{
  static const char *const options[][2]
      = { { "--help", "what there is" }, { "--version", "the version" } };
  if (n_words > 1)
    {
      g_autoptr (GPtrArray) line = g_ptr_array_new ();
      char option[] = CLI_COMPLETE_OPTION;
      g_ptr_array_add (line, words[0]);
      g_ptr_array_add (line, option);
      for (int i = 1; i < n_words; i++)
        g_ptr_array_add (line, words[i]);
      g_ptr_array_add (line, NULL);
      return run_command (n_words + 1, (char **)line->pdata, error);
    }
  for (guint i = 0; n_words == 1 && i < G_N_ELEMENTS (commands); i++)
    if (commands[i].function)
      cli_complete_word (words[0], commands[i].name, commands[i].summary);
  for (guint i = 0; n_words == 1 && words[0][0] == '-' && i < G_N_ELEMENTS (options); i++)
    cli_complete_word (words[0], options[i][0], options[i][1]);
  return CLI_DONE;
}

static int
run (int argc, char **argv, GError **error)
{
  if (argc < 2)
    {
      print_help (stderr);
      return 2;
    }
  if (strcmp (argv[1], "--help") == 0 || strcmp (argv[1], "-h") == 0)
    print_help (stdout);
  else if (strcmp (argv[1], "--version") == 0)
    puts ("fsdplan " PACKAGE_VERSION);
  else if (strcmp (argv[1], "__complete") == 0)
    return complete (argc - 2, argv + 2, error);
  else
    return run_command (argc - 1, argv + 1, error);
  return CLI_DONE;
}

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  g_autofree char **words = g_memdup2 (argv, ((gsize)argc + 1) * sizeof *argv); /* as typed */
  cli_output_begin ();
  cli_limits_begin (256 << 20);
  cli_context_take_locale ();
  g_set_prgname ("fsdplan");
  const int result = run (argc, argv, &error);
  if (!error)
    cli_tell ("done");
  if (!error && cli_watch_is_interrupted ())
    cli_watch_refuse ("this is the best so far", &error);
  cli_output_end (error ? NULL : &error);
  if (!error)
    return cli_output_status (result);
  cli_output_fail (argc, words, error, cli_exit_code (error));
  return cli_exit_code (error);
}
