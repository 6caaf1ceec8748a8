/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job: sets the walk up, trains with evaluations and checkpoints between the steps, tears
 * down; and runs ranks as threads. */
#include "config.h"

#include "exec/walk/exec.h"

#include "exec/number/exact.h"
#include "exec/walk/source.h"
#include "exec/walk/walk-update.h"
#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/lower/lower.h"

#include <math.h>
#include <string.h>
#include <time.h>

gint64
exec_walk_now_ns (void)
{
  struct timespec t;
  clock_gettime (CLOCK_MONOTONIC, &t);
  return (gint64)t.tv_sec * G_GINT64_CONSTANT (1000000000) + t.tv_nsec;
}

/* Counts those tokens of this rank's part of a batch that are not masked, so that the loss has a
 * term for them. */
static gboolean
count_own (ExecWalk *walk, gint64 *out_count, GError **error)
{
  const Plan *plan = &walk->of->plan;
  const gint64 n = plan->value[PLAN_MBS] * plan->value[PLAN_SEQ] / plan->value[PLAN_CP];
  g_autofree gint32 *tokens = g_new (gint32, n), *targets = g_new (gint32, n);
  ExecLoad load = { .tokens = tokens, .targets = targets };
  *out_count = 0;
  for (; load.micro_batch < plan_micro_batches (plan, walk->of->cluster); load.micro_batch++)
    {
      if (!exec_walk_fill_batch (walk, &load, error))
        return FALSE;
      for (gint64 i = 0; i < n; i++)
        *out_count += targets[i] >= 0;
    }
  return TRUE;
}

#define LOW_BITS 12

/* Counts the tokens of the global batch that are not masked, before a step or a batch of an
 * evaluation. The count is sent as two floats, its lowest LOW_BITS bits and the rest, so that sums
 * in fp32 are exact. Loss and gradients are divided by it, as Megatron-LM does with
 * --calculate-per-token-loss (finalize_model_grads.py); those of a batch without any such token are
 * divided by 1. */
static gboolean
count_tokens (ExecWalk *walk, GError **error)
{
  gint64 own;
  if (!exec_source_masks (walk->job))
    return TRUE;
  if (!count_own (walk, &own, error))
    return FALSE;
  float sums[] = { (float)(own >> LOW_BITS), (float)(own % (1 << LOW_BITS)) };
  const gint64 begin_ns = exec_walk_now_ns ();
  if (!walk->comm->ops->all_reduce (walk->comm, sums, G_N_ELEMENTS (sums), PLAN_DTYPE_FP32, NULL,
                                    error))
    return FALSE;
  walk->collective_ns += exec_walk_now_ns () - begin_ns;
  /* Ranks of a tensor-parallel group read the same tokens, and so do all stages, so each token was
   * counted tp x pp times. */
  const gint64 *value = walk->of->plan.value;
  walk->constants.tokens = MAX (
      (((gint64)sums[0] << LOW_BITS) + (gint64)sums[1]) / (value[PLAN_TP] * value[PLAN_PP]), 1);
  return TRUE;
}

/* Adds up the losses of all ranks, which the schedule left on the device: each rank's is the first
 * of its two exact sums. */
static gboolean
sum_loss (const ExecWalk *walk, double *out_loss, GError **error)
{
  const guint ranks = walk->comm->ranks;
  g_autofree ExecExact *sums = g_new0 (ExecExact, 2 * ranks);
  ExecExact loss = { 0 };
  for (guint i = 0; i < plan_schedule_n_buffers (walk->schedule); i++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (walk->schedule, i);
      if (g_str_equal (buffer->name, ranks > 1 ? "all_sums" : "sums")
          && !exec_device_read (walk->device, sums, walk->tags[buffer->first].bytes,
                                2 * ranks * sizeof *sums, error))
        return FALSE;
    }
  for (guint rank = 0; rank < ranks; rank++)
    exec_exact_merge (&loss, &sums[2 * rank]);
  *out_loss = exec_exact_value (&loss);
  return TRUE;
}

/* The mean loss per token over all batches of an evaluation. */
static gboolean
evaluate_batches (ExecWalk *walk, double *out_loss, GError **error)
{
  const gint64 n = MAX (walk->job->eval_batches, 1);
  const gint64 *value = walk->of->plan.value;
  gint64 tokens = 0;
  double sum = 0, loss;
  for (walk->eval_batch = 0; walk->eval_batch < n; walk->eval_batch++)
    {
      if (!count_tokens (walk, error) || !exec_walk_run (walk, PLAN_SECTION_STEP, error)
          || !exec_walk_finish (walk, error) || !sum_loss (walk, &loss, error))
        return FALSE;
      sum += loss;
      tokens += exec_source_masks (walk->job) ? walk->constants.tokens
                                              : value[PLAN_GBS] * value[PLAN_SEQ];
    }
  *out_loss = sum / (double)tokens;
  return TRUE;
}

/* Evaluates the weights as they are after this step, by the schedule of `eval_of` and a walk of its
 * own, which starts with nothing gathered and so cannot read stale weights. */
static gboolean
evaluate (const ExecWalk *trained, double *out_loss, GError **error)
{
  const ExecJob *job = trained->job;
  ExecWalk walk;
  g_autoptr (PlanSchedule) schedule = plan_lower (job->eval_of, trained->comm->rank, error);
  if (!schedule)
    return FALSE;
  gboolean ok = exec_walk_open (&walk, job, job->eval_of, schedule, trained->comm, error);
  walk.trained = trained;
  ok = ok && exec_walk_run (&walk, PLAN_SECTION_SETUP, error)
       && evaluate_batches (&walk, out_loss, error)
       && exec_walk_run (&walk, PLAN_SECTION_TEARDOWN, error);
  exec_walk_close (&walk);
  return ok;
}

static gboolean
is_due (gint64 every, gint64 steps_done)
{
  return every > 0 && steps_done % every == 0;
}

/* Saves a checkpoint. `behind`: a thread may write it while training goes on. */
static gboolean
save (ExecWalk *walk, gint64 steps_done, gboolean behind, GError **error)
{
  g_autoptr (GError) why = NULL;
  if (exec_walk_save (walk, steps_done, behind, &why))
    return TRUE;
  if (g_error_matches (why, PLAN_ERROR, PLAN_ERROR_BACKEND))
    g_prefix_error (&why, "rank %u, checkpoint of step %" G_GINT64_FORMAT ": ", walk->comm->rank,
                    steps_done);
  g_propagate_error (error, g_steal_pointer (&why));
  return FALSE;
}

/* Publishes a checkpoint that a thread is writing, once all ranks have written their files. If the
 * last step was not sound (its loss or gradient norm is not finite), the run may be about to end:
 * then this waits for the files and publishes at once. */
static gboolean
settle_saving (ExecWalk *walk, GError **error)
{
  float told[2];
  if (!walk->saving)
    return TRUE;
  told[0] = exec_saving_is_written (walk->saving) ? 0 : 1;
  told[1] = walk->is_sound ? 0 : 1;
  if (!walk->comm->ops->all_reduce_max (walk->comm, told, 2, PLAN_DTYPE_FP32, NULL, error))
    return FALSE;
  return (told[0] > 0 && told[1] <= 0) || exec_walk_finish_saving (walk, error);
}

/* Decides whether the run goes on after a step whose loss or gradient norm was not finite. Such a
 * step has changed no weights and no checkpoint is made of it: one that was due is made after the
 * next sound step. */
static gboolean
judge_step (ExecWalk *walk, gboolean is_last, GError **error)
{
  const ExecJob *job = walk->job;
  if (walk->is_sound)
    return TRUE;
  if (++walk->n_unsound <= job->skip_nonfinite && !(is_last && job->save))
    return TRUE;
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
      "step %" G_GINT64_FORMAT
      ": the loss is %g and the gradient norm %g: the weights are as they were before, and "
      "nothing is saved; --set nan_check=params names the gradient, --skip-nonfinite "
      "%" G_GINT64_FORMAT " goes on",
      walk->step + 1, walk->loss, walk->grad_norm, walk->n_unsound);
  return FALSE;
}

/* Makes all ranks agree on whether the step was sound, because replicas may have different gradient
 * norms, and a checkpoint must be made by all ranks or by none. */
static gboolean
agree (ExecWalk *walk, GError **error)
{
  float unsound = walk->is_sound ? 0 : 1;
  if (!walk->comm->ops->all_reduce_max (walk->comm, &unsound, 1, PLAN_DTYPE_FP32, NULL, error))
    return FALSE;
  walk->is_sound = unsound <= 0;
  return TRUE;
}

/* Does what is due between two steps: an evaluation, a checkpoint, or both. */
static gboolean
pause_training (ExecWalk *walk, gboolean is_last, double *out_eval_loss, GError **error)
{
  const ExecJob *job = walk->job;
  const gint64 done = walk->step + 1;
  const gboolean evaluates = is_due (job->eval_every, done);
  walk->owes_checkpoint
      = walk->owes_checkpoint || (job->save && (is_last || is_due (job->save_every, done)));
  if (walk->owes_checkpoint && !agree (walk, error))
    return FALSE;
  const gboolean saves = walk->owes_checkpoint && walk->is_sound;
  if ((evaluates || saves) && !exec_walk_finish (walk, error))
    return FALSE;
  if (saves)
    {
      walk->owes_checkpoint = FALSE;
      walk->saved_step = done;
    }
  return (!evaluates || evaluate (walk, out_eval_loss, error))
         && (!saves || save (walk, done, job->saves_behind && !is_last, error));
}

/* Whether a rank has been asked to end, of all ranks: before this step, or, where that would make
 * the host wait for the step before, before that one. */
static gboolean
ask_ranks (ExecComm *comm, gboolean is_asked, gboolean is_first, gboolean *out_stops,
           GError **error)
{
  float asked = is_asked ? 1 : 0;
  if (!is_first && comm->ops->vote)
    return comm->ops->vote (comm, is_asked, out_stops, error);
  if (!comm->ops->all_reduce_max (comm, &asked, 1, PLAN_DTYPE_FP32, NULL, error))
    return FALSE;
  *out_stops = asked > 0;
  return TRUE;
}

/* All ranks meet before a step and learn whether any of them was asked to end. */
static gboolean
meet (const ExecWalk *walk, gboolean is_first, gboolean *out_stops, GError **error)
{
  ExecComm *comm = walk->comm;
  const gboolean asks = walk->job->is_stopping != NULL;
  *out_stops = FALSE;
  const gboolean ok = asks ? ask_ranks (comm, walk->job->is_stopping (), is_first, out_stops, error)
                           : (!is_first && comm->ops->vote) || comm->ops->barrier (comm, error);
  if (!ok)
    g_prefix_error (error, "rank %u, before step %" G_GINT64_FORMAT ": ", comm->rank,
                    walk->step + 1);
  return ok;
}

/* Ends the run on request. It saves a checkpoint of the steps done, unless the last step has left
 * one. */
static gboolean
stop (ExecWalk *walk, gint64 steps, GError **error)
{
  const ExecJob *job = walk->job;
  const gint64 done = walk->step;
  const gboolean may_save = job->save && steps > 0;
  if (may_save && !agree (walk, error))
    return FALSE;
  const gboolean saves = may_save && walk->is_sound;
  if (!exec_walk_finish_saving (walk, error)
      || (saves && walk->saved_step != done
          && (!exec_walk_finish (walk, error) || !save (walk, done, FALSE, error))))
    return FALSE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_STOPPED,
               "asked to end: %" G_GINT64_FORMAT " steps are done%s%s%s", done,
               saves ? ", and --resume " : "", saves ? job->save : "",
               saves ? " goes on from there" : "");
  return FALSE;
}

/* Runs one step, whose time lasts from before the ranks met (`begin_ns`) until the loss is known.
 * The time of that meeting counts as collective time, not as the rank's own. `out_walked_ns` and
 * the trace begin with the schedule. */
static gboolean
run_step (ExecWalk *walk, gint64 begin_ns, ExecStep *step, gint64 *out_walked_ns, GError **error)
{
  walk->constants.step = walk->step + 1;
  walk->constants.lr = exec_source_rate (walk->job, walk->step);
  plan_meter_begin_step (&walk->meter);
  const gint64 walk_ns = exec_walk_now_ns ();
  if (!exec_walk_run (walk, PLAN_SECTION_STEP, error))
    return FALSE;
  *out_walked_ns = exec_walk_now_ns () - walk_ns;
  *step = (ExecStep){ .step = walk->step,
                      .loss = walk->loss,
                      .grad_norm = walk->grad_norm,
                      .lr = walk->constants.lr,
                      .eval_loss = NAN,
                      .step_ns = exec_walk_now_ns () - begin_ns };
  walk->is_sound = isfinite (walk->loss) && isfinite (walk->grad_norm);
  return TRUE;
}

static gboolean
run_steps (ExecWalk *walk, ExecProgress progress, gpointer user_data, ExecResult *result,
           GError **error)
{
  const ExecJob *job = walk->job;
  gboolean stops;
  ExecStep step = { 0 };
  for (gint64 i = 0; i < job->steps; i++)
    {
      const gboolean is_last = i == job->steps - 1;
      walk->step = job->first_step + i;
      walk->trace = is_last && !job->totals_only ? result->trace : NULL;
      const gint64 begin_ns = exec_walk_now_ns ();
      if (!meet (walk, i == 0, &stops, error) || (stops && !stop (walk, i, error)))
        return FALSE;
      walk->collective_ns = exec_walk_now_ns () - begin_ns;
      if (!count_tokens (walk, error)
          || !run_step (walk, begin_ns, &step, &result->trace->step_ns, error)
          || !settle_saving (walk, error) || !judge_step (walk, is_last, error)
          || !pause_training (walk, is_last, &step.eval_loss, error))
        return FALSE;
      result->losses[i] = step.loss;
      result->grad_norms[i] = step.grad_norm;
      result->eval_losses[i] = step.eval_loss;
      result->step_ns[i] = step.step_ns;
      result->own_ns[i] = step.step_ns - walk->collective_ns;
      if (progress && walk->comm->rank == 0)
        progress (user_data, &step);
    }
  walk->trace = NULL;
  plan_meter_report (&walk->meter, 0, &result->trace->memory);
  result->trace->memory.reserved = result->trace->memory.device = walk->arena.size_bytes;
  result->trace->memory.host = walk->arena.host_bytes;
  if (walk->of->stack->memory.is_host_memory)
    result->trace->memory.device += walk->arena.host_bytes;
  if (walk->device->ops->taken
      && !walk->device->ops->taken (walk->device, &result->trace->memory.device, error))
    return FALSE;
  if (!job->totals_only)
    plan_trace_attribute (result->trace, walk->schedule);
  return TRUE;
}

/* Finds the smallest moe_imbalance whose buffers would have had room for the most rows that any
 * rank sent to the experts of one rank. */
static gboolean
find_imbalance (ExecWalk *walk, double *out_imbalance, GError **error)
{
  const gint64 *value = walk->of->plan.value;
  const double rows = (double)(value[PLAN_MBS] * value[PLAN_SEQ] / value[PLAN_CP] / value[PLAN_TP]
                               * walk->of->model->topk);
  float most = (float)walk->most_rows;
  if (value[PLAN_EP] == 1)
    return TRUE;
  if (!walk->comm->ops->all_reduce_max (walk->comm, &most, 1, PLAN_DTYPE_FP32, NULL, error))
    return FALSE;
  *out_imbalance = (double)most * (double)value[PLAN_EP] / rows;
  return TRUE;
}

/* Finds the largest share of a rank's rows that experts had no capacity for. */
static gboolean
find_dropped (ExecWalk *walk, double *out_share, GError **error)
{
  float share = (float)((double)walk->dropped_rows / (double)MAX (walk->rows, 1));
  if (walk->of->plan.value[PLAN_MOE_CAPACITY] == 0)
    return TRUE;
  if (!walk->comm->ops->all_reduce_max (walk->comm, &share, 1, PLAN_DTYPE_FP32, NULL, error))
    return FALSE;
  *out_share = (double)share;
  return TRUE;
}

/* Reports when a GPU holds more memory beside the arena than the plan counts: its figures for the
 * context and for NCCL's buffers are assumptions. Where ranks share a GPU the bytes of one rank are
 * not known, so nothing is said. */
static gboolean
tell_memory (const ExecWalk *walk, GError **error)
{
  const ExecComm *comm = walk->comm;
  const guint64 planned = plan_stack_outside_bytes (walk->of->stack, walk->schedule);
  guint64 taken;
  if (!walk->device->ops->taken || (comm->ranks > 1 && !comm->ops->has_graphs_apart))
    return TRUE;
  if (!walk->device->ops->taken (walk->device, &taken, error))
    return FALSE;
  if (taken > walk->arena.size_bytes + planned)
    {
      g_autofree char *beside = plan_units_format_size (taken - walk->arena.size_bytes);
      g_autofree char *counted = plan_units_format_size (planned);
      g_message (
          "GPU %u of rank %u holds %s beside the plan's buffers, where %s are counted for its "
          "context and NCCL: these take more, or another program uses the GPU, so plans have less "
          "room than predictions say",
          comm->gpu, comm->rank, beside, counted);
    }
  return TRUE;
}

static gboolean
run_walk (ExecWalk *walk, gboolean keeps_params, ExecProgress progress, gpointer user_data,
          ExecResult *result, GError **error)
{
  const ExecJob *job = walk->job;
  result->losses = g_new0 (double, job->steps);
  result->grad_norms = g_new0 (double, job->steps);
  result->eval_losses = g_new0 (double, job->steps);
  result->step_ns = g_new0 (gint64, job->steps);
  result->own_ns = g_new0 (gint64, job->steps);
  result->trace = plan_trace_new (job->kernels->name);
  result->arena_bytes = walk->arena.size_bytes;
  if (!exec_walk_run (walk, PLAN_SECTION_SETUP, error))
    return FALSE;
  if (!exec_walk_find_moments (walk, error) || !exec_walk_restore_moments (walk, error)
      || !run_steps (walk, progress, user_data, result, error))
    return FALSE;
  if (!exec_walk_finish (walk, error) || !find_imbalance (walk, &result->imbalance, error)
      || !find_dropped (walk, &result->dropped, error)
      || (keeps_params && !(result->main_params = exec_walk_main_params (walk, error))))
    return FALSE;
  return exec_walk_run (walk, PLAN_SECTION_TEARDOWN, error);
}

gboolean
exec_run_schedule (const ExecJob *job, const PlanSchedule *schedule, ExecComm *comm,
                   gboolean keeps_params, ExecProgress progress, gpointer user_data,
                   ExecResult *out_result, GError **error)
{
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) why = NULL;
  ExecWalk walk;
  if (job->of->plan.value[PLAN_TASK] != PLAN_TASK_TRAIN)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                           "task=eval is modelled and not executed by itself: it must be train, "
                           "and evaluations come between its steps");
      return FALSE;
    }
  if (!job->kernels->open (error))
    return FALSE;
  const gboolean ok = exec_walk_open (&walk, job, job->of, schedule, comm, &why)
                      && tell_memory (&walk, &why)
                      && run_walk (&walk, keeps_params, progress, user_data, &result, &why);
  exec_walk_close (&walk);
  if (!ok)
    {
      g_propagate_error (error, g_steal_pointer (&why));
      return FALSE;
    }
  *out_result = result;
  result = (ExecResult){ 0 };
  return TRUE;
}

gboolean
exec_run_rank (const ExecJob *job, ExecComm *comm, gboolean keeps_params, ExecProgress progress,
               gpointer user_data, ExecResult *out_result, GError **error)
{
  g_autoptr (PlanSchedule) schedule = plan_lower (job->of, comm->rank, error);
  if (!schedule)
    return FALSE;
  if (plan_schedule_ranks (schedule) != comm->ranks)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "the plan is for %u ranks and %u were started", plan_schedule_ranks (schedule),
                   comm->ranks);
      return FALSE;
    }
  return exec_run_schedule (job, schedule, comm, keeps_params, progress, user_data, out_result,
                            error);
}

void
exec_result_clear (ExecResult *self)
{
  g_clear_pointer (&self->losses, g_free);
  g_clear_pointer (&self->grad_norms, g_free);
  g_clear_pointer (&self->eval_losses, g_free);
  g_clear_pointer (&self->step_ns, g_free);
  g_clear_pointer (&self->own_ns, g_free);
  g_clear_pointer (&self->trace, plan_trace_free);
  g_clear_pointer (&self->main_params, g_byte_array_unref);
}

/* What the thread of one rank is given and what it leaves. */
typedef struct
{
  const ExecJob *job;
  ExecComm *comm;
  gboolean keeps_params;
  ExecProgress progress;
  gpointer user_data;
  ExecResult *result;
  GError *error;
} Rank;

gboolean
exec_join (const ExecJob *job, ExecComm **comm, GError **error)
{
  ExecComm *joined = job->join ? job->join (*comm, error) : *comm;
  if (joined)
    *comm = joined;
  return joined != NULL;
}

static gpointer
run_rank_thread (gpointer data)
{
  Rank *rank = data;
  if (!exec_join (rank->job, &rank->comm, &rank->error)
      || !exec_run_rank (rank->job, rank->comm, rank->keeps_params, rank->progress, rank->user_data,
                         rank->result, &rank->error))
    rank->comm->ops->abort (rank->comm, rank->error->message);
  rank->comm->ops->close (rank->comm);
  return NULL;
}

gboolean
exec_run_threads (const ExecJob *job, guint ranks, gboolean keeps_params, ExecProgress progress,
                  gpointer user_data, ExecResult *out_results, GError **error)
{
  g_autofree ExecComm **comms = g_new0 (ExecComm *, ranks);
  g_autofree Rank *rank = g_new0 (Rank, ranks);
  g_autofree GThread **threads = g_new0 (GThread *, ranks);
  GError *first = NULL;

  if (job->join ? !exec_comm_threads_open (ranks, comms, error)
                : !job->kernels->device->open_comms (ranks, comms, error))
    return FALSE;
  for (guint r = 0; r < ranks; r++)
    {
      comms[r]->timeout_s = job->timeout_s;
      rank[r] = (Rank){ .job = job,
                        .comm = comms[r],
                        .keeps_params = keeps_params,
                        .progress = progress,
                        .user_data = user_data,
                        .result = &out_results[r] };
      threads[r] = g_thread_new ("rank", run_rank_thread, &rank[r]);
    }
  for (guint r = 0; r < ranks; r++)
    {
      g_thread_join (threads[r]);
      if (rank[r].error && !first)
        first = rank[r].error;
      else
        g_clear_error (&rank[r].error);
    }
  if (!first)
    return TRUE;
  for (guint r = 0; r < ranks; r++)
    exec_result_clear (&out_results[r]);
  g_propagate_error (error, first);
  return FALSE;
}
