/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/commands.h"
#include "cli/io/context.h"
#include "planner/base/error.h"

#include <stdio.h>
#include <string.h>

static const struct
{
  const char *shell, *script;
} scripts[] = {
  {
      "bash",
#include "cli/completion.bash.inc"
  },
  {
      "zsh",
#include "cli/completion.zsh.inc"
  },
  {
      "fish",
#include "cli/completion.fish.inc"
  },
};

int
cmd_completion (int argc, char **argv, GError **error)
{
  g_autoptr (CliContext) context
      = cli_context_new ("bash|zsh|fish", "print the completion script of bash, zsh or fish");
  cli_context_describe (context, "It is installed with the program; to try it at once:\n"
                                 "  source <(fsdplan completion bash)\n"
                                 "  fsdplan completion fish | source");
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  for (guint i = 0; argc == 2 && i < G_N_ELEMENTS (scripts); i++)
    if (strcmp (argv[1], scripts[i].shell) == 0)
      {
        fputs (scripts[i].script, stdout);
        return CLI_DONE;
      }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "completion: one shell is needed: bash, zsh or fish");
  return CLI_FAILED;
}
