/* SPDX-License-Identifier: Apache-2.0 */
/* The program that runs plans: "fsdplan run" replaces itself by it. */
#include "config.h"

#include "planner/cli/commands.h"
#include "planner/cli/train.h"
#include "planner/error.h"
#include "planner/units.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

/* Run-time options: not fields of a plan. */
typedef struct
{
  char *ranks, *steps, *seed, *lr, *backend, *comm;
} RunOptions;

static void
run_options_clear (RunOptions *self)
{
  char **const texts[]
      = { &self->ranks, &self->steps, &self->seed, &self->lr, &self->backend, &self->comm };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_clear_pointer (texts[i], g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (RunOptions, run_options_clear)

static void
run_options_add (RunOptions *self, CliContext *context)
{
  const GOptionEntry entries[] = {
    { "ranks", 0, 0, G_OPTION_ARG_STRING, &self->ranks,
      "data-parallel ranks; the launcher's number, without one 1", "N" },
    { "steps", 0, 0, G_OPTION_ARG_STRING, &self->steps, "training steps; 10 unless said", "N" },
    { "seed", 0, 0, G_OPTION_ARG_STRING, &self->seed, "of weights and data; 1 unless said", "N" },
    { "lr", 0, 0, G_OPTION_ARG_STRING, &self->lr, "learning rate; 0.001 unless said", "RATE" },
    { "backend", 0, 0, G_OPTION_ARG_STRING, &self->backend,
      "what computes; cpu, the only one of this version, unless said", "cpu" },
    { "comm", 0, 0, G_OPTION_ARG_STRING, &self->comm,
      "what joins the ranks; mpi under its launcher, else threads, for one rank self",
      "self|threads|mpi" },
    G_OPTION_ENTRY_NULL,
  };
  cli_context_add (context, entries);
}

static gboolean
parse_int (const char *text, const char *what, gint64 min, gint64 max, gint64 initial, gint64 *out,
           GError **error)
{
  *out = initial;
  return !text || plan_units_parse_int (text, what, min, max, out, error);
}

static gboolean
open_comm (const RunOptions *options, CliTraining *training, gint64 *ranks, GError **error)
{
  const char *comm = options->comm                  ? options->comm
                     : exec_comm_mpi_is_launched () ? "mpi"
                     : *ranks > 1                   ? "threads"
                                                    : "self";
  if (strcmp (comm, "mpi") == 0)
    {
      if (!(training->comm = exec_comm_mpi_open (error)))
        return FALSE;
      if (options->ranks && *ranks != training->comm->ranks)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "--ranks %" G_GINT64_FORMAT ": the launcher started %u", *ranks,
                       training->comm->ranks);
          return FALSE;
        }
      *ranks = training->comm->ranks;
    }
  else if (strcmp (comm, "self") == 0)
    {
      if (*ranks > 1)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "--comm self is one rank: use threads or mpi for %" G_GINT64_FORMAT, *ranks);
          return FALSE;
        }
      training->comm = exec_comm_self_open ();
    }
  else if (strcmp (comm, "threads") != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--comm: '%s' is not one of self, threads, mpi", comm);
      return FALSE;
    }
  training->comm_name = comm;
  return TRUE;
}

/* The plan as it can run here: on this machine's ranks and by our own runtime. */
static gboolean
bring_here (CliInput *input, const CliOptions *options, gint64 ranks, gboolean is_root,
            GError **error)
{
  g_autofree char *local = g_strdup_printf ("local-cpu:%" G_GINT64_FORMAT, ranks);
  if (!cli_input_read (options, local, input, error))
    return FALSE;
  if (input->cluster->kind != PLAN_DEVICE_CPU || plan_cluster_devices (input->cluster) != ranks)
    {
      if (is_root)
        fprintf (stderr,
                 "fsdplan: the plan is for %s with %" G_GINT64_FORMAT
                 " devices; it runs here on %" G_GINT64_FORMAT " ranks\n",
                 input->cluster->name, plan_cluster_devices (input->cluster), ranks);
      plan_cluster_free (input->cluster);
      input->cluster = NULL;
      if (!(input->cluster = cli_cluster_new (local, options->db, error)))
        return FALSE;
    }
  return plan_set (&input->plan, "stack", "native", error);
}

static gboolean
prepare (CliTraining *training, CliInput *input, const RunOptions *options, GError **error)
{
  gint64 steps, seed;
  double lr = 1e-3;
  if (!parse_int (options->steps, "--steps", 1, 1000000000, 10, &steps, error)
      || !parse_int (options->seed, "--seed", 0, G_MAXINT64, 1, &seed, error)
      || (options->lr && !plan_units_parse_real (options->lr, "--lr", 0, 1e6, &lr, error))
      || !cli_predict (input, &training->prediction, error))
    return FALSE;
  if (!training->prediction.fits)
    {
      g_autofree char *needs = plan_units_format_size (training->prediction.trace->memory.device);
      g_autofree char *has = plan_units_format_size (input->cluster->memory_bytes);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "each rank needs %s and this machine has %s for it", needs, has);
      return FALSE;
    }
  training->input = input;
  training->job = (ExecJob){ .model = input->model,
                             .plan = &training->prediction.plan,
                             .cluster = input->cluster,
                             .kernels = &exec_kernels_cpu,
                             .seed = (guint64)seed,
                             .steps = steps,
                             .constants = { .norm_eps = input->model->norm_eps,
                                            .rope_theta = input->model->rope_theta,
                                            .lr = lr,
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .adam_eps = 1e-8,
                                            .weight_decay = 0.1,
                                            .max_norm = 1.0 } };
  return TRUE;
}

static gboolean
run (int argc, char **argv, CliTraining *training, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (RunOptions) run_options = { 0 };
  g_auto (CliInput) input = { 0 };
  CliFormat format;
  gint64 ranks;
  g_autoptr (CliContext) context = cli_context_new (
      NULL, "train here by a plan, store the trace, compare with the prediction");
  run_options_add (&run_options, context);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error == NULL;
  if (run_options.backend && strcmp (run_options.backend, "cpu") != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "--backend: this program is cpu");
      return FALSE;
    }
  if (!cli_format_parse (options.format, &format, error)
      || !parse_int (run_options.ranks, "--ranks", 1, 4096, 1, &ranks, error)
      || !open_comm (&run_options, training, &ranks, error))
    return FALSE;
  const gboolean is_root = !training->comm || training->comm->rank == 0;
  training->ranks = (guint)ranks;
  training->db = options.db;
  return bring_here (&input, &options, ranks, is_root, error)
         && prepare (training, &input, &run_options, error) && cli_train (training, format, error);
}

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  CliTraining training = { 0 };
  setlocale (LC_CTYPE, "");
  g_set_prgname ("fsdplan run");
  const gboolean names_command = argc > 1 && strcmp (argv[1], "run") == 0;
  const gboolean ok = run (argc - names_command, argv + names_command, &training, &error);
  const gboolean is_root = !training.comm || training.comm->rank == 0;
  if (!ok && is_root)
    fprintf (stderr, "fsdplan: %s\n", error->message);
  cli_prediction_clear (&training.prediction);
  if (training.comm)
    {
      if (!ok)
        training.comm->ops->abort (training.comm, error->message);
      training.comm->ops->close (training.comm);
    }
  return ok ? 0 : cli_exit_code (error);
}
