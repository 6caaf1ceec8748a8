/* The commands of fsdplan: X ("name", function, "summary", "arguments"). */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* clang-format off */
#define CLI_COMMAND_LIST(X)                                                                        \
  X ("show", cmd_show, "a model, cluster or plan as understood, with derived numbers", "")         \
  X ("sim", cmd_sim, "predict memory and time of a plan, or of several side by side", "")          \
  X ("diff", cmd_diff, "two plans side by side: where memory and time move", "[PLAN PLAN]")        \
  X ("lower", cmd_lower, "print a plan's schedule", "")                                            \
  X ("plot", cmd_plot, "draw a picture: timeline, memory or pareto", "KIND")                       \
  X ("run", cmd_run, "train here by a plan, store the trace, compare with the prediction", "")     \
  X ("db", cmd_db, "what is stored: list, show, export, import, delete or check it", "VERB")
/* clang-format on */

#define X(name, function, summary, arguments) int function (int argc, char **argv, GError **error);
CLI_COMMAND_LIST (X)
#undef X

/* A command's option context: "fsdplan NAME [OPTION…] ARGUMENTS" and its summary. */
GOptionContext *cli_context_new (const char *arguments, const char *summary);

/* What a command returns: an exit code, or CLI_FAILED with the error set. */
#define CLI_DONE 0
#define CLI_FAILED (-1)
#define CLI_NOT_FEASIBLE 3

/* Exit code for an error. */
int cli_exit_code (const GError *error);

G_END_DECLS
