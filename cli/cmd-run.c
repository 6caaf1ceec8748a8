/* SPDX-License-Identifier: Apache-2.0 */
/* Runs plans in another program, since that needs libraries that planning does not. The backend's
 * program replaces this process (exec), so that launchers see a single process. */
#include "config.h"

#include "cli/io/commands.h"
#include "cli/io/context.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The path of a backend's program, which lies beside this one. The caller frees. */
static char *
program_for (const char *backend, GError **error)
{
  char self[4096];
  const gssize n = readlink ("/proc/self/exe", self, sizeof self - 1);
  if (n < 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "/proc/self/exe: %s", g_strerror (errno));
      return NULL;
    }
  self[n] = '\0';
  g_autofree char *folder = g_path_get_dirname (self);
  g_autofree char *name = g_strconcat ("fsdplan-exec-", backend, NULL);
  return g_build_filename (folder, name, NULL);
}

static const char *
backend_of (int argc, char **argv)
{
  for (int i = 1; i < argc && strcmp (argv[1], CLI_COMPLETE_OPTION) != 0; i++)
    {
      if (g_str_has_prefix (argv[i], "--backend="))
        return argv[i] + strlen ("--backend=");
      if (strcmp (argv[i], "--backend") == 0 && i + 1 < argc)
        return argv[i + 1];
    }
  return "cpu";
}

/* Executes the backend's program in place of this one; its argument 0 is the name of the
 * command. */
static int
hand_over (char **argv, const char *backend, GError **error)
{
  if (strcmp (backend, "cpu") != 0 && strcmp (backend, "cuda") != 0)
    {
      g_autofree char *shown = plan_text_quote (backend);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "there is no backend %s: use cpu or cuda",
                   shown);
      return CLI_FAILED;
    }
  g_autofree char *program = program_for (backend, error);
  if (!program)
    return CLI_FAILED;
  fflush (stdout);
  execv (program, argv);
  if (errno == ENOENT && strcmp (backend, "cuda") == 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                 "--backend cuda is not in this build: there is no %s, which is made where "
                 "./configure finds CUDA",
                 program);
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "%s: %s", program, g_strerror (errno));
  return CLI_FAILED;
}

int
cmd_run (int argc, char **argv, GError **error)
{
  return hand_over (argv, backend_of (argc, argv), error);
}

/* Exports by the CPU's program, which reads and writes weights. */
int
cmd_export (int argc, char **argv, GError **error)
{
  (void)argc;
  return hand_over (argv, "cpu", error);
}

/* Runs the bench of a backend. --workspaces asks cuDNN, which only the program for GPUs has. */
int
cmd_bench (int argc, char **argv, GError **error)
{
  for (int i = 1; i < argc && strcmp (argv[1], CLI_COMPLETE_OPTION) != 0; i++)
    if (strcmp (argv[i], CLI_BENCH_WORKSPACES) == 0)
      return hand_over (argv, "cuda", error);
  return hand_over (argv, backend_of (argc, argv), error);
}
