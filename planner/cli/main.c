/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/commands.h"

#include "planner/error.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

static const struct
{
  const char *name;
  int (*function) (int argc, char **argv, GError **error);
  const char *summary;
} commands[] = {
#define X(name, function, summary, arguments) { name, function, summary },
  CLI_COMMAND_LIST (X)
#undef X
};

static void
print_help (FILE *out)
{
  fputs ("Usage: fsdplan COMMAND [OPTION...]\n\n"
         "Which fully sharded data-parallel configuration to run, what it will cost in memory and\n"
         "time, and what it cost when it ran.\n\nCommands:\n",
         out);
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++)
    fprintf (out, "  %-8s %s\n", commands[i].name, commands[i].summary);
  fputs ("\nOptions:\n"
         "  --help      this text; fsdplan COMMAND --help for a command's\n"
         "  --version   the version\n"
         "\nExit status: 0 done, 1 failed, 2 wrong usage, 3 nothing feasible.\n",
         out);
}

static int
run_command (int argc, char **argv, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++)
    if (strcmp (argv[1], commands[i].name) == 0)
      {
        g_autofree char *name = g_strconcat ("fsdplan ", commands[i].name, NULL);
        g_set_prgname (name); /* as help shows it */
        return commands[i].function (argc - 1, argv + 1, error);
      }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "there is no command '%s'; see fsdplan --help", argv[1]);
  return CLI_FAILED;
}

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  setlocale (LC_CTYPE, "");
  g_set_prgname ("fsdplan");
  if (argc < 2)
    {
      print_help (stderr);
      return 2;
    }
  if (strcmp (argv[1], "--help") == 0 || strcmp (argv[1], "-h") == 0)
    {
      print_help (stdout);
      return 0;
    }
  if (strcmp (argv[1], "--version") == 0)
    {
      puts ("fsdplan " PACKAGE_VERSION);
      return 0;
    }
  const int result = run_command (argc, argv, &error);
  if (!error)
    return result;
  fprintf (stderr, "fsdplan: %s\n", error->message);
  return cli_exit_code (error);
}
