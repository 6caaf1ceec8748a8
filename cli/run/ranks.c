/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/ranks.h"

#include "cli/run/backend.h"
#include "exec/probe/probe.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static gboolean
are_processes (const CliTraining *training)
{
  return training->comm && training->comm->ranks > 1;
}

/* The value of an environment variable if it is a number above 1; else 0. */
static guint64
many (const char *variable)
{
  const char *text = g_getenv (variable);
  const guint64 n = text ? g_ascii_strtoull (text, NULL, 10) : 0;
  return n > 1 ? n : 0;
}

gboolean
cli_ranks_check_launcher (const char *processes, GError **error)
{
  const guint64 world = g_getenv ("RANK") ? many ("WORLD_SIZE") : 0;
  const gboolean is_mpi = g_getenv ("OMPI_COMM_WORLD_SIZE") || g_getenv ("PMI_SIZE");
  const guint64 tasks = is_mpi ? 0 : many ("SLURM_STEP_NUM_TASKS");
  if (world > 0)
    g_set_error (
        error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
        "a launcher started %" G_GUINT64_FORMAT
        " processes (WORLD_SIZE) that only %s could join here: start them by mpirun or srun "
        "--mpi=pmix, or one process with --ranks %" G_GUINT64_FORMAT,
        world, processes, world);
  else if (tasks > 0)
    g_set_error (
        error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
        "srun started %" G_GUINT64_FORMAT
        " tasks and nothing that joins them: start them by srun --mpi=pmix, or one task with "
        "--ranks %" G_GUINT64_FORMAT,
        tasks, tasks);
  return world == 0 && tasks == 0;
}

/* Whether all ranks know of a failure: errors in what they exchanged are found by all of them, but
 * the loss of a rank (BACKEND) is not. */
static gboolean
have_failed_together (const GError *error)
{
  return !g_error_matches (error, PLAN_ERROR, PLAN_ERROR_BACKEND);
}

/* The least number of seconds that ranks are given to start: programs that many hosts read from one
 * file system start at different times. */
#define LEAST_START_S 10

static char *too_late; /* the message when time is over */

static void
end_late (int number)
{
  (void)number;
  for (gsize left = strlen (too_late), at = 0; left > 0;)
    {
      const gssize written = write (STDERR_FILENO, too_late + at, left);
      if (written <= 0)
        break;
      at += (gsize)written;
      left -= (gsize)written;
    }
  _exit (EXIT_FAILURE);
}

ExecComm *
cli_ranks_open_mpi (guint timeout_s, GError **error)
{
  static const char *const variables[]
      = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK" };
  const char *rank = NULL;
  for (guint i = 0; i < G_N_ELEMENTS (variables) && !rank; i++)
    rank = g_getenv (variables[i]);
  const guint start_s = timeout_s > 0 ? MAX (timeout_s, LEAST_START_S) : 0;
  too_late = g_strdup_printf (
      "fsdplan: rank %s on %s has waited %u s for the others to start: a rank that prints no such "
      "line has not started, was stopped, or cannot be reached from here\n",
      rank ? rank : "?", g_get_host_name (), start_s);
  signal (SIGALRM, end_late);
  alarm (start_s);
  ExecComm *comm = exec_comm_mpi_open (error);
  alarm (0);
  g_clear_pointer (&too_late, g_free);
  if (comm)
    comm->timeout_s = timeout_s;
  return comm;
}

gboolean
cli_ranks_meet (CliTraining *training, GError **error)
{
  if (!are_processes (training))
    {
      training->placement = exec_placement_new_local (training->ranks);
      return TRUE;
    }
  training->placement = exec_placement_gather (training->comm, error);
  training->comm->placement = training->placement;
  if (!training->placement)
    training->failed_together = have_failed_together (*error);
  return training->placement != NULL;
}

gboolean
cli_ranks_check_cluster (CliTraining *training, const PlanCluster *asked, GError **error)
{
  if (!are_processes (training) || exec_placement_check (training->placement, asked, error))
    return TRUE;
  training->failed_together = TRUE;
  return FALSE;
}

char *
cli_ranks_print_settings (const ExecJob *job)
{
  const ExecConstants *constants = &job->constants;
  const struct
  {
    const char *name;
    double value;
  } settings[] = {
    { "lr", constants->lr },
    { "beta1", constants->beta1 },
    { "beta2", constants->beta2 },
    { "adam_eps", constants->adam_eps },
    { "weight_decay", constants->weight_decay },
    { "bias_rate", constants->bias_rate },
    { "decays_all", (double)constants->decays_all },
    { "max_norm", constants->max_norm },
    { "warmup_steps", (double)job->rate.warmup_steps },
    { "decay", (double)job->rate.decay },
    { "decay_steps", (double)job->rate.decay_steps },
    { "min_lr", job->rate.min_share * constants->lr },
    { "first_step", (double)job->first_step },
  };
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < G_N_ELEMENTS (settings); i++)
    {
      g_autofree char *value = plan_units_format_real (settings[i].value);
      g_string_append_printf (text, "%s=%s\n", settings[i].name, value);
    }
  return g_string_free (text, FALSE);
}

gboolean
cli_ranks_vote (ExecComm *comm, gboolean can_begin, gboolean *out_failed_together, GError **error)
{
  float against = can_begin ? 0 : 1;
  if (!comm->ops->all_reduce (comm, &against, 1, PLAN_DTYPE_FP32, NULL, can_begin ? error : NULL))
    return FALSE;
  *out_failed_together = against == (float)comm->ranks;
  return can_begin;
}

static char *
describe_data (const ExecBlend *blend)
{
  return blend ? exec_blend_describe (blend) : g_strdup ("synthetic");
}

/* All settings that ranks must agree on, as lines of KEY=VALUE: those that are stored with a run,
 * and those with columns of their own there. The caller frees. */
static char *
print_all_settings (const ExecJob *job)
{
  g_autofree char *settings = cli_ranks_print_settings (job);
  g_autofree char *data = describe_data (job->tokens);
  g_autofree char *eval_data = describe_data (job->eval_tokens);
  return g_strdup_printf (
      "%ssteps=%" G_GINT64_FORMAT "\nseed=%" G_GUINT64_FORMAT "\nsave_every=%" G_GINT64_FORMAT
      "\neval_every=%" G_GINT64_FORMAT "\neval_batches=%" G_GINT64_FORMAT
      "\nsave=%d\ndata=%s\neval_data=%s\ndocument_end=%" G_GINT64_FORMAT "\ninit=%d\n",
      settings, job->steps, job->seed, job->save_every, job->eval_every, job->eval_batches,
      job->save != NULL, data, eval_data, job->document_end, job->weights != NULL);
}

gboolean
cli_ranks_agree (CliTraining *training, GError **error)
{
  const ExecJob *job = &training->job;
  const gint64 outer = job->of->plan.value[PLAN_DP_OUTER];
  if (!are_processes (training))
    return TRUE;
  g_autofree char *model = plan_model_print (job->of->model);
  g_autofree char *plan = plan_print (&job->of->plan);
  g_autofree char *settings = print_all_settings (job);
  g_autofree char *schedule = plan_schedule_hash (training->prediction.schedule);
  const ExecAgreed agreed[] = {
    { "model", model }, { "plan", plan }, { "settings", settings }, { "schedule", schedule }
  };
  if (exec_placement_agree (training->placement, training->comm, agreed, G_N_ELEMENTS (agreed),
                            error)
      && (outer <= 1
          || exec_placement_check_group (training->placement, training->ranks / (guint)outer,
                                         error)))
    return TRUE;
  training->failed_together = have_failed_together (*error);
  return FALSE;
}

gboolean
cli_ranks_parse_threads (const char *text, gint64 *out, GError **error)
{
  *out = 0;
  if (!text)
    return TRUE;
  if (cli_backend.device == PLAN_DEVICE_CPU)
    return plan_units_parse_int (text, "--threads", 1, 1024, out, error);
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "--threads is for ranks on processors, and these are on GPUs");
  return FALSE;
}

PlanCluster *
cli_ranks_describe (guint ranks, const ExecPlacement *placement, gboolean shares, gint64 threads,
                    GError **error)
{
  PlanCluster *self = cli_backend.describe_machine (ranks, exec_placement_nodes (placement),
                                                    placement->per_host, shares, error);
  if (self && self->kind == PLAN_DEVICE_CPU)
    exec_probe_set_threads (self, threads > 0 ? threads : placement->threads);
  return self;
}

static double
ms (gint64 ns)
{
  return 1e-6 * (double)ns;
}

void
cli_ranks_print (const CliTraining *training, const ExecRankTime *times)
{
  const ExecPlacement *placement = training->placement;
  g_auto (ExecStragglers) spread = { 0 };
  if (!times || training->ranks < 2)
    return;
  exec_stragglers_init (&spread, times, training->ranks);
  printf ("slowest: rank %u on %s, %.3f ms of its own per step; spread %.1f %%\n", spread.slowest,
          exec_placement_host (placement, spread.slowest), ms (times[spread.slowest].own_ns),
          spread.spread_pct);
  for (guint i = 0; i < spread.stragglers->len; i++)
    {
      const guint rank = g_array_index (spread.stragglers, guint, i);
      printf ("straggler: rank %u on %s, %.1f %% over the median of %.3f ms\n", rank,
              exec_placement_host (placement, rank),
              exec_stragglers_over_pct (&spread, &times[rank]), ms (spread.median_own_ns));
    }
}

static void
add_number (JsonBuilder *b, const char *name, double value)
{
  json_builder_set_member_name (b, name);
  json_builder_add_double_value (b, value);
}

static void
add_rank (JsonBuilder *b, const CliTraining *training, const ExecStragglers *spread,
          const ExecRankTime *times, guint rank)
{
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "rank");
  json_builder_add_int_value (b, rank);
  json_builder_set_member_name (b, "host");
  json_builder_add_string_value (b, exec_placement_host (training->placement, rank));
  add_number (b, "own_ms", ms (times[rank].own_ns));
  add_number (b, "over_median_pct", exec_stragglers_over_pct (spread, &times[rank]));
  add_number (b, "step_ms", ms (times[rank].step_ns));
  add_number (b, "longest_step_ms", ms (times[rank].longest_step_ns));
  json_builder_end_object (b);
}

void
cli_ranks_to_json (const CliTraining *training, const ExecRankTime *times, JsonBuilder *b)
{
  g_auto (ExecStragglers) spread = { 0 };
  if (!times)
    {
      json_builder_add_null_value (b);
      return;
    }
  exec_stragglers_init (&spread, times, training->ranks);
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "slowest");
  json_builder_add_int_value (b, spread.slowest);
  add_number (b, "median_own_ms", ms (spread.median_own_ns));
  add_number (b, "spread_pct", spread.spread_pct);
  json_builder_set_member_name (b, "stragglers");
  json_builder_begin_array (b);
  for (guint i = 0; i < spread.stragglers->len; i++)
    json_builder_add_int_value (b, g_array_index (spread.stragglers, guint, i));
  json_builder_end_array (b);
  json_builder_set_member_name (b, "ranks");
  json_builder_begin_array (b);
  for (guint r = 0; r < training->ranks; r++)
    add_rank (b, training, &spread, times, r);
  json_builder_end_array (b);
  json_builder_end_object (b);
}
