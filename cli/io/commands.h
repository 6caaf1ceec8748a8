/* The commands of fsdplan, in groups: GROUP ("title"), then X ("name", function, "summary") of
 * each. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* clang-format off */
#define CLI_COMMAND_LIST(GROUP, X)                                                                 \
  GROUP ("Plan")                                                                                   \
  X ("query", cmd_query, "the recommended configurations, best first, with reasons")               \
  X ("show", cmd_show, "a model, cluster or plan as understood, with derived numbers")             \
  X ("sim", cmd_sim, "predict memory and time of a plan, or of several side by side")              \
  X ("diff", cmd_diff, "two plans side by side: what differs, and where memory and time move")     \
  X ("lower", cmd_lower, "print a plan's schedule")                                                \
  X ("emit", cmd_emit, "a plan as commands, calls and jobs of other programs")                       \
  X ("plot", cmd_plot, "draw a picture: where time and memory go, or how plans compare")           \
  X ("report", cmd_report, "what query answers, or a run, as one page of HTML with pictures")        \
  GROUP ("Run")                                                                                    \
  X ("run", cmd_run, "train here by a plan, store the trace, compare with the prediction")         \
  X ("bench", cmd_bench, "time this machine's ops one by one, and keep that for predictions")      \
  X ("export", cmd_export, "the weights of a checkpoint, for other programs")                      \
  X ("validate", cmd_validate, "predicted against measured, for a table of training runs")         \
  X ("calibrate", cmd_calibrate, "fit the cost model to measured runs")                            \
  X ("import", cmd_import, "measurements of other tools: training logs, nccl-tests, tables")       \
  X ("db", cmd_db, "what is stored: list, show, export, import, delete or check it")               \
  GROUP ("Help")                                                                                   \
  X ("help", cmd_help, "this text, or a command's: help COMMAND")                                  \
  X ("completion", cmd_completion, "print the completion script of bash, zsh or fish")
/* clang-format on */

#define GROUP(title)
#define X(name, function, summary) int function (int argc, char **argv, GError **error);
CLI_COMMAND_LIST (GROUP, X)
#undef X
#undef GROUP

/* The option that makes "bench" ask cuDNN for workspaces; only the program for GPUs can. */
#define CLI_BENCH_WORKSPACES "--workspaces"

/* What a command's function returns: an exit code, or CLI_FAILED with the error set. */
#define CLI_DONE 0
#define CLI_FAILED (-1)
#define CLI_NOT_FEASIBLE 3
#define CLI_NOT_KEPT 5

/* The exit code for an error. */
int cli_exit_code (const GError *error);

G_END_DECLS
