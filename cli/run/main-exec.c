/* SPDX-License-Identifier: Apache-2.0 */
/* The main program of a backend, which "fsdplan run" executes in its place. */
#include "config.h"

#include "advise/timings.h"
#include "advise/workspaces.h"
#include "cli/io/commands.h"
#include "cli/io/limits.h"
#include "cli/io/options.h"
#include "cli/io/output.h"
#include "cli/io/watch.h"
#include "cli/run/ask.h"
#include "cli/run/backend.h"
#include "cli/run/bench.h"
#include "cli/run/data.h"
#include "cli/run/export.h"
#include "cli/run/ranks.h"
#include "cli/run/resume.h"
#include "cli/run/told.h"
#include "cli/run/train.h"
#include "exec/probe/probe.h"
#include "exec/walk/runnable.h"
#include "exec/walk/stop.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/lower/lower.h"
#include "planner/schedule/arena.h"

#include <stdio.h>
#include <string.h>

/* Runs that are predicted to take longer than this time ops first, if none was timed yet. */
#define WORTH_TIMING_S 60

/* Options of a run that are not fields of a plan. X (FIELD, "name", "value", "meaning") */
#define RUN_OPTION_LIST(X) \
  X (ranks, "ranks", "N", \
     "ranks; the launcher's number, without one the plan's where it is for CPUs of " \
     "one machine, else 1") \
  X (threads, "threads", "N", \
     "threads that compute in each rank on processors; its share of the cores by default") \
  X (steps, "steps", "N", "training steps, those before --resume included; 10 by default") \
  X (seed, "seed", "N", "of weights and data; 1 by default") \
  X (lr, "lr", "RATE", "learning rate; 0.001 by default") \
  X (warmup, "warmup", "N", "steps in which the learning rate rises; 0 by default") \
  X (decay, "decay", "none|linear|cosine|minus_sqrt", \
     "how it falls until the last step; none by default") \
  X (decay_steps, "decay-steps", "N", \
     "last steps in which it falls, held until then (WSD); all after the warm-up by default") \
  X (min_lr, "min-lr", "RATE", "to what it falls; 0 by default") \
  X (clip, "clip", "NORM", \
     "gradient norm from which gradients are scaled down; 1 by default, 0 never") \
  X (beta1, "beta1", "SHARE", "of AdamW's mean of gradients, or SGD's momentum; 0.9 by default") \
  X (beta2, "beta2", "SHARE", "of AdamW's mean of squared gradients; 0.95 by default") \
  X (eps, "eps", "VALUE", "of AdamW; 1e-8 by default") \
  X (weight_decay, "weight-decay", "RATE", "of the optimizer; 0.1 by default") \
  X (decay_of, "weight-decay-of", "matrices|all", \
     "whether gains and biases decay, too; matrices by default") \
  X (bias_rate, "bias-rate", "RATE", \
     "by which biases of routers that balance by them move in each step; 0.001 by default") \
  X (epochs, "epochs", "N", "in place of --steps: as many as see no --data more than N times") \
  X (data, "data", "FILE", \
     "tokens to train on: a data set of Megatron-LM (PREFIX.bin and PREFIX.idx), else tokens of " \
     "16 bits, of 32 in a .u32 file or for a large vocabulary; several as " \
     "WEIGHT:FILE,WEIGHT:FILE; " \
     "else synthetic text") \
  X (eval_data, "eval-data", "FILE", \
     "the same to evaluate on, always from its beginning; else synthetic text of the same kind") \
  X (document_end, "document-end", "TOKEN", \
     "what documents of --data end with, where attention stays within them (doc_tokens), unless " \
     "their index says it, or what comes behind it is not learned (eod_mask_loss)") \
  X (eval_every, "eval-every", "N", "evaluate every N steps") \
  X (eval_batches, "eval-batches", "N", \
     "global batches that an evaluation is the mean of; 1 by default") \
  X (init, "init", "FOLDER", \
     "begin with these weights: safetensors by Hugging Face's names, or a checkpoint's") \
  X (save, "save", "FOLDER", "keep a checkpoint there, after the last step at least") \
  X (save_every, "save-every", "N", "steps between checkpoints") \
  X (keep, "keep", "N", "how many of them to keep; 2 by default") \
  X (skip_nonfinite, "skip-nonfinite", "N", \
     "go on after so many steps without a finite loss and gradient norm, which change no weight; " \
     "0 by default") \
  X (resume, "resume", "FOLDER", "go on from the checkpoint there, on any number of ranks") \
  X (record, "record", "FILE", \
     "write the run there, for fsdplan import to take, instead of into the store") \
  X (log, "log", "FILE", \
     "append each step there as a line of JSON, for fsdplan import and plot loss to read") \
  X (log_every, "log-every", "N", \
     "a line on standard error every N steps; by default each step has one, and on a terminal " \
     "they share it") \
  X (tensorboard, "tensorboard", "FOLDER", "write TensorBoard's events there") \
  X (timeout, "timeout", "SECONDS", \
     "how long ranks wait for one that does not come; 600 by default, 0 for ever") \
  X (backend, "backend", "cpu|cuda", \
     "what computes: processors, or GPUs in a build with CUDA; cpu by default") \
  X (comm, "comm", "self|threads|mpi|nccl", \
     "what joins the ranks; mpi or, between GPUs, nccl under a launcher, else threads, for one " \
     "rank self")

typedef struct
{
#define X(field, name, value, meaning) char *field;
  RUN_OPTION_LIST (X)
#undef X
  gboolean is_forced, is_shuffled, shuffles_documents;
} RunOptions;

static void
run_options_clear (RunOptions *self)
{
#define X(field, name, value, meaning) g_clear_pointer (&self->field, g_free);
  RUN_OPTION_LIST (X)
#undef X
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (RunOptions, run_options_clear)

static void
run_options_add (RunOptions *self, CliContext *context)
{
  const GOptionEntry entries[] = {
#define X(field, name, value, meaning) \
  { name, 0, 0, G_OPTION_ARG_STRING, &self->field, meaning, value },
    RUN_OPTION_LIST (X)
#undef X
        { "force", 0, 0, G_OPTION_ARG_NONE, &self->is_forced,
          "resume though the data or the optimizer is another than before", NULL },
    { "shuffle", 0, 0, G_OPTION_ARG_NONE, &self->is_shuffled,
      "sequences of --data in an order of the seed's, another in every epoch", NULL },
    { "shuffle-documents", 0, 0, G_OPTION_ARG_NONE, &self->shuffles_documents,
      "the same of documents, before sequences are cut out of them, and of those; as an index says",
      NULL },
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
open_process (const RunOptions *options, CliTraining *training, gint64 *ranks, guint timeout_s,
              GError **error)
{
  if (!(training->comm = cli_backend.open_process (timeout_s, error)))
    return FALSE;
  if (options->ranks && *ranks != training->comm->ranks)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--ranks %" G_GINT64_FORMAT ": the launcher started %u", *ranks,
                   training->comm->ranks);
      return FALSE;
    }
  *ranks = training->comm->ranks;
  return TRUE;
}

static gboolean
open_comm (const RunOptions *options, CliTraining *training, gint64 *ranks, guint timeout_s,
           GError **error)
{
  const char *processes = cli_backend.process_comm;
  const char *comm = options->comm                ? options->comm
                     : cli_backend.is_launched () ? processes
                     : *ranks > 1                 ? "threads"
                                                  : "self";
  training->comm_name = comm;
  if (!options->comm && strcmp (comm, processes) != 0
      && !cli_ranks_check_launcher (processes, error))
    return FALSE;
  training->joins
      = strcmp (comm, processes) == 0 && cli_backend.join && !cli_backend.is_launched ();
  if (training->joins && cli_backend.before_join)
    cli_backend.before_join ();
  if (!cli_backend.kernels->open (error))
    return FALSE;
  if (training->joins)
    return TRUE;
  if (strcmp (comm, processes) == 0)
    return open_process (options, training, ranks, timeout_s, error);
  if (strcmp (comm, "threads") == 0)
    return TRUE;
  if (strcmp (comm, "self") != 0)
    {
      g_autofree char *shown = plan_text_quote (comm);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--comm: %s is not one of self, threads, %s", shown, processes);
      return FALSE;
    }
  if (*ranks > 1)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--comm self is one rank: use threads or %s for %" G_GINT64_FORMAT, processes,
                   *ranks);
      return FALSE;
    }
  training->comm = exec_comm_self_open ();
  return TRUE;
}

/* Reads the plan and adapts it to what is here: this machine's ranks and our own runtime. */
static gboolean
bring_here (AdviseInput *input, const CliOptions *options, CliTraining *training, gint64 threads,
            gboolean is_root, GError **error)
{
  static PlanWorkspaces *asked; /* must live as long as plans are made */
  const gint64 ranks = training->ranks, nodes = exec_placement_nodes (training->placement);
  const gboolean shares = strcmp (training->comm_name, cli_backend.process_comm) != 0;
  g_autofree char *unsaid = g_strdup_printf ("local-cpu:%" G_GINT64_FORMAT, ranks);
  if (!cli_input_read (options, unsaid, input, error))
    return FALSE;
  const gboolean is_said = g_strcmp0 (input->cluster_spec, unsaid) != 0;
  if (is_said && !cli_ranks_check_cluster (training, input->cluster, error))
    return FALSE;
  if (input->cluster->kind != cli_backend.device || plan_cluster_devices (input->cluster) != ranks
      || (!is_said && nodes > 1))
    {
      PlanCluster *here
          = cli_ranks_describe (training->ranks, training->placement, shares, threads, error);
      if (!here)
        return FALSE;
      if (is_root && is_said)
        fprintf (stderr,
                 "fsdplan: the plan is for %s with %" G_GINT64_FORMAT
                 " devices; it runs here on %" G_GINT64_FORMAT " ranks\n",
                 input->cluster->name, plan_cluster_devices (input->cluster), ranks);
      plan_cluster_free (input->cluster);
      input->cluster = here;
    }
  else if (input->cluster->kind == PLAN_DEVICE_CPU && (threads > 0 || !is_said))
    exec_probe_set_threads (input->cluster, threads > 0 ? threads : training->placement->threads);
  input->comm = training->comm_name;
  input->cudnn = cli_backend.cudnn ? cli_backend.cudnn->version () : 0;
  input->is_of_many = training->comm && training->comm->ranks > 1;
  if (!plan_set (&input->plan, "stack", "native", error))
    return FALSE;
  input->asked = asked = cli_ask_linked (input);
  return TRUE;
}

static gboolean
is_stopping (void)
{
  return exec_stop_is_asked () || cli_watch_is_interrupted ();
}

static gboolean
parse_real (const char *text, const char *what, double max, double *out, GError **error)
{
  return !text || plan_units_parse_real (text, what, 0, max, out, error);
}

/* Finds the index of `text` in `words`, which end with NULL; 0 where the option is absent. */
static gboolean
parse_word (const char *text, const char *what, const char *const *words, guint *out,
            GError **error)
{
  for (*out = 0; text && words[*out] && !g_str_equal (text, words[*out]);)
    ++*out;
  if (!text || words[*out])
    return TRUE;
  g_autofree char *shown = plan_text_quote (text);
  g_autofree char *all = g_strjoinv (", ", (char **)words);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s is not one of %s", what, shown, all);
  return FALSE;
}

static gboolean
parse_rate (const RunOptions *options, double lr, gint64 last_step, ExecRate *out, GError **error)
{
  double min_lr = 0;
  guint decay;
  *out = (ExecRate){ .last_step = last_step };
  if (!parse_word (options->decay, "--decay", exec_decay_names, &decay, error)
      || !parse_int (options->warmup, "--warmup", 0, last_step, 0, &out->warmup_steps, error)
      || !parse_int (options->decay_steps, "--decay-steps", 1, last_step - out->warmup_steps, 0,
                     &out->decay_steps, error)
      || !parse_real (options->min_lr, "--min-lr", lr, &min_lr, error))
    return FALSE;
  out->decay = (ExecDecay)decay;
  out->min_share = lr > 0 ? min_lr / lr : 0;
  if (out->decay != EXEC_DECAY_NONE || (!options->decay_steps && !options->min_lr))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: acts only where the learning rate falls: say how with --decay",
               options->decay_steps ? "--decay-steps" : "--min-lr");
  return FALSE;
}

/* Parses the decay rate of a running mean, such as Adam's moments: at least 0 and below 1. */
static gboolean
parse_beta (const char *text, const char *what, double *out, GError **error)
{
  if (!parse_real (text, what, 1, out, error))
    return FALSE;
  if (*out < 1)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: must be below 1, at which nothing new would count", what);
  return FALSE;
}

static gboolean
parse_optimizer (const RunOptions *options, ExecConstants *out, GError **error)
{
  static const char *const decayed[] = { "matrices", "all", NULL };
  guint of;
  if (!parse_beta (options->beta1, "--beta1", &out->beta1, error)
      || !parse_beta (options->beta2, "--beta2", &out->beta2, error)
      || !parse_real (options->eps, "--eps", 1, &out->adam_eps, error)
      || !parse_real (options->clip, "--clip", 1e30, &out->max_norm, error)
      || !parse_real (options->weight_decay, "--weight-decay", 1e6, &out->weight_decay, error)
      || !parse_real (options->bias_rate, "--bias-rate", 1, &out->bias_rate, error)
      || !parse_word (options->decay_of, "--weight-decay-of", decayed, &of, error))
    return FALSE;
  out->decays_all = of > 0;
  return TRUE;
}

static gboolean
parse_numbers (const RunOptions *options, ExecJob *job, GError **error)
{
  ExecConstants *c = &job->constants;
  const gint64 steps = job->steps > 0 ? job->steps : 10; /* --epochs may have set them */
  gint64 keep;
  if (!parse_int (options->steps, "--steps", 1, 1000000000, steps, &job->steps, error)
      || !parse_int (options->save_every, "--save-every", 1, G_MAXINT64, 0, &job->save_every, error)
      || !parse_int (options->keep, "--keep", 1, G_MAXINT32, EXEC_CHECKPOINT_KEEP, &keep, error)
      || !parse_int (options->skip_nonfinite, "--skip-nonfinite", 0, G_MAXINT64, 0,
                     &job->skip_nonfinite, error)
      || !parse_int (options->eval_every, "--eval-every", 1, G_MAXINT64, 0, &job->eval_every, error)
      || !parse_int (options->eval_batches, "--eval-batches", 1, 1000000, 1, &job->eval_batches,
                     error)
      || !parse_real (options->lr, "--lr", 1e6, &c->lr, error)
      || !parse_optimizer (options, c, error)
      || !parse_rate (options, c->lr, job->steps, &job->rate, error))
    return FALSE;
  job->keep = (guint)keep;
  if (options->eval_batches && !options->eval_every)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "--eval-batches: say when with --eval-every N");
      return FALSE;
    }
  if ((!options->save_every && !options->keep) || options->save)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: say where with --save FOLDER",
               options->save_every ? "--save-every" : "--keep");
  return FALSE;
}

static gboolean
is_root (const CliTraining *training)
{
  return !training->comm || training->comm->rank == 0;
}

/* Opens the checkpoint to resume from and the data, which decide how long the run is. */
static gboolean
open_data (CliTraining *training, const RunOptions *options, GError **error)
{
  const CliDataOptions asked = { .data = options->data,
                                 .eval_data = options->eval_data,
                                 .epochs = options->epochs,
                                 .steps = options->steps,
                                 .end = options->document_end,
                                 .is_shuffled = options->is_shuffled,
                                 .shuffles_documents = options->shuffles_documents };
  ExecJob *job = &training->job;
  gint64 seed;
  job->of = training->prediction.of;
  if (options->resume && options->init)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "--resume and --init each give the weights: use one");
      return FALSE;
    }
  if (!parse_int (options->seed, "--seed", 0, G_MAXINT64, 1, &seed, error)
      || (options->resume
          && !(training->resume = exec_checkpoint_open (options->resume, job->of->model, error))))
    return FALSE;
  job->resume = training->resume;
  job->seed = (guint64)seed;
  return cli_data_open (training, &asked, error);
}

/* Says where a run that begins anew saves beside checkpoints, which --resume of that folder no
 * longer finds then. */
static void
warn_of_checkpoints (const CliTraining *training, const char *folder)
{
  g_autoptr (ExecCheckpoint) there = training->job.resume || !is_root (training)
                                         ? NULL
                                         : exec_checkpoint_open (folder, NULL, NULL);
  g_autoptr (GPtrArray) names = there ? exec_checkpoint_names (there, folder) : NULL;
  if (!names || names->len == 0)
    return;
  const char *const newest = g_ptr_array_index (names, names->len - 1);
  g_message ("%s has a checkpoint of another run after step %" G_GINT64_FORMAT
             ": this one begins anew, as there is no --resume, and once it has saved that one is "
             "resumed as %s/%s alone",
             folder, exec_checkpoint_step (there), folder, newest);
}

/* Opens what else the run reads and writes: weights, checkpoint folder, settings. */
static gboolean
open_sources (CliTraining *training, const RunOptions *options, GError **error)
{
  ExecJob *job = &training->job;
  if (options->data && options->eval_every && !options->eval_data)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "--eval-every: say on what beside --data with --eval-data FILE");
      return FALSE;
    }
  if ((options->init
       && !(training->weights = exec_weights_open (options->init, job->of->model, error)))
      || (options->save && !exec_checkpoint_prepare (options->save, error))
      || (options->save && is_root (training)
          && (training->save_lock = exec_checkpoint_lock (options->save, error)) < 0))
    return FALSE;
  if (options->save)
    warn_of_checkpoints (training, options->save);
  job->weights = training->weights;
  job->save = training->save = g_strdup (options->save);
  training->settings = cli_resume_settings (job);
  job->settings = (const char *const *)training->settings;
  if (!job->resume)
    return TRUE;
  if (!cli_resume_take_up (training, options->is_forced, error))
    return FALSE;
  job->steps -= job->first_step;
  if (job->steps > 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--steps: the checkpoint in %s has %" G_GINT64_FORMAT
               " steps behind it already: give more",
               options->resume, job->first_step);
  return FALSE;
}

/* Whether an evaluation's memory fits beside the memory that training keeps meanwhile. */
static gboolean
evaluation_fits (const CliTraining *training, const AdviseInput *input, guint64 *out_bytes,
                 GError **error)
{
  g_auto (PlanArena) arena = { 0 };
  g_autoptr (PlanSchedule) schedule = plan_lower (training->eval_of, 0, error);
  if (!schedule || !plan_arena_init (&arena, schedule, error))
    return FALSE;
  const guint64 needs = arena.size_bytes + training->prediction.trace->memory.device;
  *out_bytes = arena.size_bytes;
  if (needs <= input->cluster->memory_bytes)
    return TRUE;
  g_autofree char *all = plan_units_format_size (needs);
  g_autofree char *has = plan_units_format_size (input->cluster->memory_bytes);
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
      "each rank needs %s with an evaluation's memory beside its own, and this machine has "
      "%s for it",
      all, has);
  return FALSE;
}

/* Whether there is memory for a copy of a rank's part of a checkpoint while a thread writes it: on
 * CPUs beside everything else, for GPUs in their host. */
static gboolean
has_room_for_copy (const CliTraining *training, const AdviseInput *input, guint64 copy)
{
  const PlanCluster *cluster = input->cluster;
  const guint64 others = training->prediction.trace->memory.device + training->beside_bytes;
  return cluster->kind == PLAN_DEVICE_CPU
             ? others + copy <= cluster->memory_bytes
             : (copy + training->prediction.trace->memory.host) * (guint64)cluster->devices_per_node
                   <= cluster->host_memory_bytes;
}

/* Decides whether checkpoints are written behind training from a copy, and counts the copy's
 * memory. */
static void
plan_saving (CliTraining *training, const AdviseInput *input)
{
  const guint64 *bytes = training->prediction.trace->memory.by_category;
  const guint64 copy = bytes[PLAN_CATEGORY_MAIN_PARAMS] + bytes[PLAN_CATEGORY_OPTIMIZER];
  training->job.saves_behind = training->job.save && training->job.save_every > 0
                               && has_room_for_copy (training, input, copy);
  if (training->job.saves_behind && input->cluster->kind == PLAN_DEVICE_CPU)
    training->beside_bytes += copy;
}

/* Makes the case of evaluations: the same plan with task=eval. */
static gboolean
plan_evaluation (CliTraining *training, const AdviseInput *input, GError **error)
{
  Plan plan = training->job.of->plan;
  if (training->job.eval_every == 0)
    return TRUE;
  plan.value[PLAN_TASK] = PLAN_TASK_EVAL;
  training->job.eval_of = training->eval_of = advise_case (input, &plan, error);
  if (training->eval_of && evaluation_fits (training, input, &training->beside_bytes, error))
    return TRUE;
  g_prefix_error (error, "--eval-every: ");
  return FALSE;
}

/* Whether to time ops before the run: where none was timed on these processors, and the run is long
 * enough. Predictions from guesses are off by half or more. */
static gboolean
is_worth_timing (const CliTraining *training, const AdviseInput *input)
{
  const double seconds = 1e-3 * training->prediction.step_ms * (double)training->job.steps;
  const gboolean is_kept = !training->record && g_strcmp0 (training->db, ":memory:") != 0;
  return cli_backend.device == PLAN_DEVICE_CPU && (!training->comm || training->comm->ranks == 1)
         && is_kept && seconds >= WORTH_TIMING_S
         && !advise_timings (input->cluster, training->prediction.of->stack, input->db,
                             input->comm);
}

/* Times ops briefly and predicts again. If they cannot be timed, the run goes on without. */
static gboolean
time_first (CliTraining *training, const AdviseInput *input, GError **error)
{
  g_autoptr (GError) why = NULL;
  fprintf (stderr, "fsdplan: no op was timed on this machine: times them for some seconds first, "
                   "which is kept for predictions\n");
  if (!cli_bench_briefly (training->ranks, input->cluster->threads, training->db, &why))
    {
      fprintf (stderr, "fsdplan: they are not timed: %s\n", why->message);
      return TRUE;
    }
  advise_timings_forget ();
  advise_prediction_clear (&training->prediction);
  if (!advise_predict (input, &training->prediction, error))
    return FALSE;
  training->job.of = training->prediction.of;
  return TRUE;
}

static gboolean
check_routers (const RunOptions *options, const PlanModel *model, GError **error)
{
  if (!options->bias_rate || (model->experts > 0 && model->router_bias))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--bias-rate: %s has no router that balances by a bias (router_bias=on)",
               model->name);
  return FALSE;
}

static gboolean
prepare (CliTraining *training, AdviseInput *input, const RunOptions *options, GError **error)
{
  training->job = (ExecJob){ .constants = { .lr = 1e-3,
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .adam_eps = 1e-8,
                                            .weight_decay = 0.1,
                                            .max_norm = 1.0,
                                            .bias_rate = 1e-3 } };
  if (!advise_predict (input, &training->prediction, error) || !open_data (training, options, error)
      || !parse_numbers (options, &training->job, error)
      || !check_routers (options, input->model, error)
      || (is_worth_timing (training, input) && !time_first (training, input, error)))
    return FALSE;
  if (!training->prediction.fits)
    {
      g_autofree char *needs = plan_units_format_size (training->prediction.trace->memory.device);
      g_autofree char *has = plan_units_format_size (input->cluster->memory_bytes);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "each rank needs %s and this machine has %s for it", needs, has);
      return FALSE;
    }
  training->job.totals_only = !advise_prediction_can_expand (&training->prediction);
  if (!training->job.totals_only && !advise_prediction_expand (&training->prediction, input, error))
    return FALSE;
  training->input = input;
  training->job.kernels = cli_backend.kernels;
  training->job.join = training->joins ? cli_backend.join : NULL;
  training->job.constants.norm_eps = input->model->norm_eps;
  training->job.constants.router_score = input->model->router_score;
  training->job.constants.pre_softmax = input->model->pre_softmax;
  training->job.constants.router_scale = input->model->router_scale;
  training->job.constants.rope = input->model->rope;
  if (!exec_runnable_check (&training->job, training->job.of, training->prediction.schedule, error))
    return FALSE;
  if (!open_sources (training, options, error) || !plan_evaluation (training, input, error))
    return FALSE;
  plan_saving (training, input);
  return TRUE;
}

/* The number of ranks of a plan for processors like this machine's; 1 for other plans, and for
 * those on standard input, which can be read only once. */
static gint64
ranks_of_plan (const CliOptions *options)
{
  g_auto (AdviseInput) input = { 0 };
  if (cli_backend.device != PLAN_DEVICE_CPU || cli_backend.is_launched ()
      || g_strcmp0 (options->plan, "-") == 0 || g_strcmp0 (options->from_megatron, "-") == 0
      || !cli_input_read (options, "local-cpu:1", &input, NULL)
      || input.cluster->kind != PLAN_DEVICE_CPU || input.cluster->nodes > 1)
    return 1;
  return plan_cluster_devices (input.cluster);
}

/* Whether all ranks that are processes can begin. */
static gboolean
vote (CliTraining *training, gboolean can_begin, GError **error)
{
  return training->comm && training->comm->ranks > 1 && !training->failed_together
             ? cli_ranks_vote (training->comm, can_begin, &training->failed_together, error)
             : can_begin;
}

static gboolean
run (int argc, char **argv, CliTraining *training, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (RunOptions) run_options = { 0 };
  g_auto (AdviseInput) input = { 0 };
  CliFormat format;
  gint64 ranks, threads, timeout;
  g_autoptr (CliContext) context = cli_context_new (
      NULL, "train here by a plan, store the trace, compare with the prediction");
  run_options_add (&run_options, context);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error == NULL;
  const char *own = cli_backend.kernels->name;
  if (run_options.backend && strcmp (run_options.backend, own) != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "--backend: this program is %s", own);
      return FALSE;
    }
  if (!cli_format_parse (options.format, &format, error)
      || !parse_int (run_options.ranks, "--ranks", 1, 4096,
                     run_options.ranks ? 1 : ranks_of_plan (&options), &ranks, error)
      || !cli_ranks_parse_threads (run_options.threads, &threads, error)
      || !parse_int (run_options.log_every, "--log-every", 1, G_MAXINT64, 0, &training->log_every,
                     error)
      || !parse_int (run_options.timeout, "--timeout", 0, 1000000, 600, &timeout, error))
    return FALSE;
  training->job.timeout_s = (guint)timeout;
  if (!open_comm (&run_options, training, &ranks, (guint)timeout, error))
    return FALSE;
  options.is_silent = !is_root (training);
  training->ranks = (guint)ranks;
  training->db = options.db;
  training->record = run_options.record;
  training->log = run_options.log;
  training->tensorboard = run_options.tensorboard;
  cli_told_begin (is_root (training));
  if (!cli_ranks_meet (training, error))
    return FALSE;
  const gboolean can_begin
      = bring_here (&input, &options, training, threads, is_root (training), error)
        && prepare (training, &input, &run_options, error);
  if (!vote (training, can_begin, error) || !cli_ranks_agree (training, error))
    return FALSE;
  if (is_root (training))
    cli_data_say (training);
  exec_stop_watch ();
  cli_watch_interrupts ();
  training->job.is_stopping = is_stopping;
  return cli_train (training, format, error);
}

/* Runs the command. The words from "fsdplan bench", "export" or "run" on are passed on by fsdplan;
 * the command may also be the first word after this program's name. */
static int
run_command (int argc, char **argv, CliTraining *training, GError **error)
{
  static const char *const commands[] = { "bench", "export", "run" };
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++)
    if (argc > 1 && strcmp (argv[1], commands[i]) == 0)
      {
        argc--;
        argv++;
        break;
      }
  if (strcmp (argv[0], "bench") == 0)
    {
      g_set_prgname ("fsdplan bench");
      return cli_bench (argc, argv, training, error);
    }
  if (strcmp (argv[0], "export") == 0)
    {
      g_set_prgname ("fsdplan export");
      return cli_export (argc, argv, error);
    }
  g_set_prgname ("fsdplan run");
  return run (argc, argv, training, error) ? CLI_DONE : CLI_FAILED;
}

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  CliTraining training = { .save_lock = -1 };
  g_autofree char **words = g_memdup2 (argv, ((gsize)argc + 1) * sizeof *argv); /* as typed */
  cli_output_begin ();
  /* With room for BLAS's buffers, which grow with the number of processors. */
  cli_limits_begin ((384 + 128 * (guint64)g_get_num_processors ()) << 20);
  cli_context_take_locale ();
  const gboolean ok
      = run_command (argc, argv, &training, &error) == CLI_DONE && cli_output_end (&error);
  if (!ok && (!training.comm || training.comm->rank == 0))
    cli_output_fail (argc, words, error, cli_exit_code (error));
  cli_training_clear (&training);
  if (training.comm)
    {
      if (!ok && !training.failed_together)
        training.comm->ops->abort (training.comm, error->message);
      training.comm->ops->close (training.comm);
    }
  exec_placement_free (training.placement);
  return ok ? cli_output_status (CLI_DONE) : cli_exit_code (error);
}
