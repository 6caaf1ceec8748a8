/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/train.h"

#include "advise/timings.h"
#include "cli/io/prediction-json.h"
#include "cli/io/watch.h"
#include "cli/run/data.h"
#include "cli/run/ranks.h"
#include "cli/run/run-log.h"
#include "cli/run/stages.h"
#include "cli/run/told.h"
#include "db/runs.h"
#include "db/traces.h"
#include "db/transfer.h"
#include "planner/base/error.h"
#include "planner/plan/rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SHOWN_STEPS 12 /* most lines of the step table, with first and last */

/* Steps are stored while the run goes on, so that a killed run leaves them, but not more often than
 * this. A thread stores them, since a commit waits for the disk, and all ranks would wait for rank
 * 0. */
#define STORE_EVERY_US (G_USEC_PER_SEC / 2)

/* Records are written less often, because each time the whole record is written. */
#define RECORD_EVERY_US (10 * G_USEC_PER_SEC)

/* What rank 0 keeps to show and store steps. */
typedef struct
{
  const CliTraining *training;
  DbStore *store; /* NULL: nothing is stored */
  gint64 run_id;
  GThread *storing; /* the thread that stores, which owns the store meanwhile; NULL: none */
  GMutex mutex;     /* guards the members down to `ends` */
  GCond changed;
  GArray *pending; /* DbStep: not stored yet */
  gboolean ends;
  gint64 begin_us, stored_us, recorded_us;
  CliRunLog *log;
  gboolean draws_progress;           /* progress is one line that is redrawn */
  PlanTrace *others[SIM_MAX_STAGES]; /* traces of the stages after the first */
} Recorder;

static gboolean
is_root (const CliTraining *self)
{
  return !self->comm || self->comm->rank == 0;
}

void
cli_training_clear (CliTraining *self)
{
  g_clear_pointer (&self->eval_of, plan_case_free);
  advise_prediction_clear (&self->prediction);
  g_clear_pointer (&self->resume, exec_checkpoint_free);
  g_clear_pointer (&self->weights, exec_weights_free);
  g_clear_pointer (&self->tokens, exec_blend_free);
  g_clear_pointer (&self->eval_tokens, exec_blend_free);
  g_clear_pointer (&self->data, g_free);
  g_clear_pointer (&self->save, g_free);
  g_clear_pointer (&self->settings, g_strfreev);
  if (self->save_lock >= 0)
    close (self->save_lock);
}

static gint64
tokens_per_step (const CliTraining *self)
{
  const Plan *plan = &self->prediction.of->plan;
  return plan->value[PLAN_GBS] * plan->value[PLAN_SEQ];
}

/* Shows progress: on a terminal in one line that is redrawn, else one line every so many steps. The
 * time left is estimated from all time so far, including evaluations and checkpoints. */
static void
show_progress (const Recorder *recorder, const ExecStep *step)
{
  const CliTraining *self = recorder->training;
  const gint64 last = self->job.first_step + self->job.steps;
  const gboolean is_last = step->step + 1 == last, draws = recorder->draws_progress;
  if (!is_last && (draws ? !cli_watch_is_due () : (step->step + 1) % MAX (self->log_every, 1) != 0))
    return;
  const double done = (double)(step->step + 1 - self->job.first_step);
  const double spent = 1e-6 * (double)(g_get_monotonic_time () - recorder->begin_us);
  g_autofree char *eval = isfinite (step->eval_loss)
                              ? g_strdup_printf ("  eval %.4f", step->eval_loss)
                              : g_strdup ("");
  fprintf (stderr,
           "%sstep %" G_GINT64_FORMAT "/%" G_GINT64_FORMAT
           "  loss %.4f%s  norm %.4f  lr %.3g  %.0f tokens/s  %.0f s left%s%s",
           draws ? "\r" : "", step->step + 1, last, step->loss, eval, step->grad_norm, step->lr,
           1e9 * (double)tokens_per_step (self) / (double)step->step_ns,
           spent / done * (double)(last - step->step - 1), draws ? " \033[K" : "",
           draws && !is_last ? "" : "\n");
}

static void
append_text (const char *text, gpointer string)
{
  g_string_append (string, text);
}

/* Writes everything stored so far to the file of --record. */
static gboolean
write_record (Recorder *self, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);
  self->recorded_us = g_get_monotonic_time ();
  return !self->training->record || !self->store
         || (db_store_dump (self->store, append_text, text, error)
             && cli_write (self->training->record, text->str, error));
}

/* Stores steps. After a failure the store is closed and the run goes on without it. */
static void
store_steps (Recorder *self, const GArray *steps)
{
  g_autoptr (GError) why = NULL;
  if (self->store && steps->len
      && (!db_store_add_steps (self->store, self->run_id, (const DbStep *)(gpointer)steps->data,
                               steps->len, &why)
          || (g_get_monotonic_time () - self->recorded_us >= RECORD_EVERY_US
              && !write_record (self, &why))))
    {
      cli_output_not_kept ("no more of this run will be kept", why);
      g_clear_pointer (&self->store, db_store_close);
    }
  self->stored_us = g_get_monotonic_time ();
}

/* Waits until there are steps to store and STORE_EVERY_US is over, or until the run ends. The mutex
 * is held. */
static void
await_steps (Recorder *self)
{
  while (!self->ends && self->pending->len == 0)
    g_cond_wait (&self->changed, &self->mutex);
  while (!self->ends
         && g_cond_wait_until (&self->changed, &self->mutex, self->stored_us + STORE_EVERY_US))
    ;
}

static gpointer
store_all (gpointer data)
{
  Recorder *self = data;
  gboolean ends;
  do
    {
      g_mutex_lock (&self->mutex);
      await_steps (self);
      g_autoptr (GArray) steps = self->pending;
      self->pending = g_array_new (FALSE, FALSE, sizeof (DbStep));
      ends = self->ends;
      g_mutex_unlock (&self->mutex);
      store_steps (self, steps);
    }
  while (!ends);
  return NULL;
}

/* Ends the storing thread, which stores the remaining steps first. */
static void
end_storing (Recorder *self)
{
  if (!self->storing)
    return;
  g_mutex_lock (&self->mutex);
  self->ends = TRUE;
  g_cond_signal (&self->changed);
  g_mutex_unlock (&self->mutex);
  g_thread_join (g_steal_pointer (&self->storing));
}

static void
note_step (gpointer user_data, const ExecStep *step)
{
  Recorder *self = user_data;
  const DbStep done = { .step = step->step + 1,
                        .loss = step->loss,
                        .grad_norm = step->grad_norm,
                        .step_ns = step->step_ns,
                        .eval_loss = step->eval_loss };
  g_mutex_lock (&self->mutex);
  g_array_append_val (self->pending, done);
  g_cond_signal (&self->changed);
  g_mutex_unlock (&self->mutex);
  if (self->log)
    cli_run_log_step (self->log, step, tokens_per_step (self->training));
  show_progress (self, step);
}

static int
compare_ns (const void *a, const void *b)
{
  const gint64 x = *(const gint64 *)a, y = *(const gint64 *)b;
  return (x > y) - (x < y);
}

/* A quantile of the step times, without the first step, which warms up. */
static double
step_ms (const CliTraining *self, const ExecResult *result, double quantile)
{
  const gint64 skipped = self->job.steps > 1 ? 1 : 0, n = self->job.steps - skipped;
  g_autofree gint64 *sorted = g_memdup2 (result->step_ns + skipped, (gsize)n * sizeof (gint64));
  qsort (sorted, (gsize)n, sizeof (gint64), compare_ns);
  return 1e-6 * (double)sorted[(gint64)(quantile * (double)(n - 1) + 0.5)];
}

static void
fill_run (const CliTraining *self, DbRun *run)
{
  g_autofree char *library = self->job.kernels->describe ();
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  *run = (DbRun){ .uid = g_uuid_string_random (),
                  .created = g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ"),
                  .pid = getpid (),
                  .program_version = g_strdup (PACKAGE_VERSION),
                  .backend = g_strdup (self->job.kernels->name),
                  .comm = g_strdup (self->comm_name),
                  .device = g_strdup_printf ("%u ranks on %s, %s", self->ranks,
                                             self->input->cluster->device_name, library),
                  .host = g_strdup (g_get_host_name ()),
                  .model_text = plan_model_print (self->input->model),
                  .cluster_text = plan_cluster_print (self->input->cluster),
                  .plan_text = plan_print (&self->prediction.of->plan),
                  .plan_hash = plan_hash (&self->prediction.of->plan),
                  .schedule_hash = plan_schedule_hash (cli_stages_predicted (self, 0).schedule),
                  .ranks = self->ranks,
                  .steps = self->job.first_step + self->job.steps,
                  .seed = (gint64)self->job.seed,
                  .data = g_strdup (self->data ? self->data : "synthetic"),
                  .settings = cli_ranks_print_settings (&self->job),
                  .params_id = g_strdup (self->prediction.params_id),
                  .predicted_step_ns = self->prediction.trace->step_ns };
}

/* Stores the predicted and the measured trace of each stage. */
static gboolean
store_traces (const Recorder *recorder, const ExecResult *result, GError **error)
{
  const CliTraining *self = recorder->training;
  DbStore *store = recorder->store;
  const gint64 id = recorder->run_id;
  for (guint stage = 0; !self->job.totals_only && stage < cli_stages_n (self); stage++)
    {
      const PlanTraceView predicted = cli_stages_predicted (self, stage);
      const PlanTrace *measured = stage > 0 ? recorder->others[stage] : result->trace;
      const gint64 rank = cli_stages_rank (self, stage);
      if (!db_store_add_trace (store, id, rank, predicted.trace, predicted.schedule, error)
          || !db_store_add_trace (store, id, rank, measured, predicted.schedule, error))
        return FALSE;
    }
  g_autofree char *told = cli_told_text ();
  return db_store_finish_run (store, id, "done", told, self->prediction.trace->step_ns,
                              (gint64)(1e6 * step_ms (self, result, 0.5)), error);
}

static void
add_numbers (JsonBuilder *b, const char *name, const double *values, gint64 n)
{
  json_builder_set_member_name (b, name);
  json_builder_begin_array (b);
  for (gint64 i = 0; i < n; i++)
    if (isfinite (values[i]))
      json_builder_add_double_value (b, values[i]);
    else
      json_builder_add_null_value (b);
  json_builder_end_array (b);
}

static void
add_number (JsonBuilder *b, const char *name, double value)
{
  json_builder_set_member_name (b, name);
  json_builder_add_double_value (b, value);
}

static double
tokens_per_s (const CliTraining *self, const ExecResult *result)
{
  return 1e3 * (double)tokens_per_step (self) / step_ms (self, result, 0.5);
}

/* Whether any op was timed on this machine, so that predictions can use that. */
static gboolean
is_timed_here (const CliTraining *self)
{
  return advise_timings (self->input->cluster, self->prediction.of->stack, self->input->db,
                         self->input->comm)
         != NULL;
}

/* Memory of this process in MiB, predicted from its ranks' plans and measured as the system's peak
 * resident size. A GPU's memory is not in it. */
typedef struct
{
  double predicted_mib, beside_mib; /* by the plan; beyond the plan, at most */
  double measured_mib;              /* 0: unknown */
} Resident;

static Resident
resident_of (const CliTraining *self)
{
  const gboolean is_alone = self->comm && self->comm->ranks > 1;
  const guint ranks = is_alone ? 1 : self->ranks;
  struct rusage usage;
  if (self->input->cluster->kind != PLAN_DEVICE_CPU || getrusage (RUSAGE_SELF, &usage) != 0)
    return (Resident){ 0 };
  return (Resident){ .predicted_mib = advise_mib (is_alone ? cli_stages_memory (self, 0)->device
                                                           : cli_stages_device (self)),
                     .beside_mib = advise_mib (ranks * self->beside_bytes),
                     .measured_mib = (double)usage.ru_maxrss / 1024 };
}

/* The measured memory of the stage that is predicted to need most. */
static const PlanMemory *
measured_memory (const CliTraining *self, const ExecRankTime *times)
{
  return &times[cli_stages_rank (self, self->prediction.fullest)].memory;
}

static void
print_json (const CliTraining *self, const ExecResult *result, const ExecRankTime *times,
            gint64 run_id)
{
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  add_numbers (b, "losses", result->losses, self->job.steps);
  add_numbers (b, "grad_norms", result->grad_norms, self->job.steps);
  if (self->job.eval_every > 0)
    add_numbers (b, "eval_losses", result->eval_losses, self->job.steps);
  json_builder_set_member_name (b, "first_step");
  json_builder_add_int_value (b, self->job.first_step + 1);
  json_builder_set_member_name (b, "step_ms");
  json_builder_begin_object (b);
  add_number (b, "median", step_ms (self, result, 0.5));
  add_number (b, "p10", step_ms (self, result, 0.1));
  add_number (b, "p90", step_ms (self, result, 0.9));
  json_builder_end_object (b);
  add_number (b, "tokens_per_s", tokens_per_s (self, result));
  json_builder_set_member_name (b, "memory");
  cli_memory_to_json (measured_memory (self, times), self->prediction.schedule, b);
  const Resident resident = resident_of (self);
  if (resident.measured_mib > 0)
    add_number (b, "process_mib", resident.measured_mib);
  json_builder_set_member_name (b, "predicted");
  json_builder_begin_object (b);
  if (resident.measured_mib > 0)
    add_number (b, "process_mib", resident.predicted_mib);
  add_number (b, "step_ms", self->prediction.step_ms);
  json_builder_set_member_name (b, "is_timed_here");
  json_builder_add_boolean_value (b, is_timed_here (self));
  json_builder_set_member_name (b, "memory");
  cli_memory_to_json (&self->prediction.trace->memory, self->prediction.schedule, b);
  cli_provenance_to_json (&self->prediction, b);
  cli_hazards_to_json (self->prediction.hazards, b);
  json_builder_end_object (b);
  cli_data_to_json (self, b);
  json_builder_set_member_name (b, "backend");
  json_builder_add_string_value (b, self->job.kernels->name);
  json_builder_set_member_name (b, "comm");
  json_builder_add_string_value (b, self->comm_name);
  json_builder_set_member_name (b, "ranks");
  json_builder_add_int_value (b, self->ranks);
  json_builder_set_member_name (b, "threads");
  json_builder_add_int_value (b, MAX (self->input->cluster->threads, 1));
  json_builder_set_member_name (b, "rank_times");
  cli_ranks_to_json (self, times, b);
  if (cli_stages_n (self) > 1)
    {
      json_builder_set_member_name (b, "stages");
      cli_stages_to_json (self, times, b);
    }
  json_builder_set_member_name (b, "run_id");
  if (run_id > 0)
    json_builder_add_int_value (b, run_id);
  else
    json_builder_add_null_value (b);
  json_builder_end_object (b);
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  cli_print_json (root);
}

static CliTable *
step_table (const CliTraining *self, const ExecResult *result, CliFormat format)
{
  static const CliColumn columns[] = { { "step", TRUE },
                                       { "loss", TRUE },
                                       { "grad_norm", TRUE },
                                       { "step_ms", TRUE },
                                       { "eval_loss", TRUE } };
  const gboolean evaluates = self->job.eval_every > 0;
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns) - !evaluates);
  const gint64 n = self->job.steps;
  const int decimals = format == CLI_FORMAT_TABLE ? 5 : 7; /* fp32 has no more */
  const gint64 every
      = format == CLI_FORMAT_TABLE ? MAX ((n + SHOWN_STEPS - 2) / (SHOWN_STEPS - 1), 1) : 1;
  for (gint64 s = 0; s < n; s++)
    if (s % every == 0 || s == n - 1)
      {
        cli_table_add_int (table, self->job.first_step + s + 1);
        cli_table_add_real (table, result->losses[s], decimals);
        cli_table_add_real (table, result->grad_norms[s], decimals);
        cli_table_add_real (table, 1e-6 * (double)result->step_ns[s], 3);
        if (evaluates && isfinite (result->eval_losses[s]))
          cli_table_add_real (table, result->eval_losses[s], decimals);
        else if (evaluates)
          cli_table_add (table, NULL);
      }
  return table;
}

static void
add_pair (CliTable *table, const char *name, double predicted, double measured, int decimals)
{
  cli_table_add (table, name);
  cli_table_add_real (table, predicted, decimals);
  cli_table_add_real (table, measured, decimals);
  if (measured > 0)
    cli_table_add_real (table, 100.0 * (predicted - measured) / measured, 1);
  else
    cli_table_add (table, NULL);
}

/* Prints how uneven experts were: the fullest rank, beside what moe_imbalance reserved room for,
 * and what a capacity dropped. */
static void
print_imbalance (const CliTraining *self, const ExecResult *result)
{
  const gint64 *value = self->job.of->plan.value;
  if (result->imbalance > 0 && value[PLAN_MOE_PAD_TO_CAPACITY] == PLAN_MOE_PAD_TO_CAPACITY_OFF)
    printf (
        "experts: one rank had up to %.3g times the mean of rows for another one; all had room: "
        "moe_imbalance=%.6g reserves for them\n",
        result->imbalance, (double)value[PLAN_MOE_IMBALANCE] / 1e6);
  if (value[PLAN_MOE_CAPACITY] > 0)
    printf ("experts: of its rows a rank lost up to %.3g %% to moe_capacity=%.6g\n",
            100 * result->dropped, (double)value[PLAN_MOE_CAPACITY] / 1e6);
}

static void
print_resident (const CliTraining *self)
{
  const Resident resident = resident_of (self);
  if (resident.measured_mib <= 0)
    return;
  printf ("the process took %.0f MiB: %.0f MiB of the plan, ", resident.measured_mib,
          resident.predicted_mib);
  if (resident.beside_mib > 0)
    printf ("up to %.0f MiB of evaluations and of checkpoints on their way, the rest",
            resident.beside_mib);
  else
    printf ("%.0f MiB", resident.measured_mib - resident.predicted_mib);
  puts (" of the program, its libraries and stacks");
}

/* Whether each rank has a GPU of its own, so that all memory in use there is that rank's. */
static gboolean
has_own_gpu (const CliTraining *self)
{
  return self->input->cluster->kind == PLAN_DEVICE_GPU
         && (self->comm || self->joins || self->ranks == 1);
}

/* The table of predicted and measured values: time, then memory by category. */
static CliTable *
comparison_table (const CliTraining *self, const ExecResult *result, const ExecRankTime *times)
{
  static const CliColumn columns[] = {
    { "quantity", FALSE }, { "predicted", TRUE }, { "measured", TRUE }, { "error_pct", TRUE }
  };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  const PlanMemory *p = &self->prediction.trace->memory, *m = measured_memory (self, times);
  add_pair (table, "step_ms", self->prediction.step_ms, step_ms (self, result, 0.5), 3);
  add_pair (table, "allocated_mib", advise_mib (p->allocated), advise_mib (m->allocated), 3);
  add_pair (table, "max_allocated_mib", advise_mib (p->max_allocated),
            advise_mib (m->max_allocated), 3);
  add_pair (table, "reserved_mib", advise_mib (p->reserved), advise_mib (m->reserved), 3);
  if (has_own_gpu (self))
    add_pair (table, "device_mib", advise_mib (p->device), advise_mib (m->device), 3);
  if (p->host || m->host)
    add_pair (table, "host_mib", advise_mib (p->host), advise_mib (m->host), 3);
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    {
      g_autofree char *name = g_strdup_printf ("  %s at peak", plan_category_name (c));
      if (p->by_category[c] || m->by_category[c])
        add_pair (table, name, advise_mib (p->by_category[c]), advise_mib (m->by_category[c]), 3);
    }
  return table;
}

static void
print_what_is_untimed (const CliTraining *self)
{
  const gboolean is_gpu = self->input->cluster->kind == PLAN_DEVICE_GPU;
  g_autofree char *threads
      = g_strdup_printf (" --threads %" G_GINT64_FORMAT, MAX (self->input->cluster->threads, 1));
  if (!is_timed_here (self))
    {
      g_autofree char *text = g_strdup_printf (
          "no op was timed on this machine, so the predicted step_ms is a guess: fsdplan bench "
          "--ranks %u%s%s%s times them, and the next prediction rests on that",
          self->ranks, is_gpu ? " --backend cuda" : threads, self->db ? " --db " : "",
          self->db ? self->db : "");
      cli_print_note (text);
    }
}

/* Prints where the run is stored, and the commands that draw it and learn from it. */
static void
print_place (const CliTraining *self, gint64 run_id)
{
  g_autofree char *db = self->db ? g_strconcat (" --db ", self->db, NULL) : g_strdup ("");
  if (self->record)
    printf ("recorded in %s: fsdplan import %s\n", self->record, self->record);
  else if (run_id > 0 && self->job.totals_only)
    printf ("stored as run %" G_GINT64_FORMAT ", without a timeline: a step has %" G_GUINT64_FORMAT
            " ops, and at most %d are listed one by one; fsdplan calibrate%s fits to it\n",
            run_id, advise_prediction_n_ops (&self->prediction), ADVISE_MAX_SPANS, db);
  else if (run_id > 0)
    printf ("stored as run %" G_GINT64_FORMAT ": fsdplan plot timeline --run %" G_GINT64_FORMAT
            "%s draws it, fsdplan calibrate%s fits to it\n",
            run_id, run_id, db, db);
}

/* The threads of each rank on processors, as " of 4 threads"; "" for GPUs. The caller frees. */
static char *
describe_threads (const CliTraining *self)
{
  const gint64 threads = self->input->cluster->threads;
  if (self->input->cluster->kind != PLAN_DEVICE_CPU)
    return g_strdup ("");
  return g_strdup_printf (" of %" G_GINT64_FORMAT " thread%s", MAX (threads, 1),
                          threads > 1 ? "s" : "");
}

static void
print_result (const CliTraining *self, const ExecResult *result, const ExecRankTime *times,
              gint64 run_id, CliFormat format)
{
  if (format == CLI_FORMAT_JSON)
    {
      print_json (self, result, times, run_id);
      return;
    }
  g_autoptr (CliTable) steps = step_table (self, result, format);
  cli_table_print (steps, format);
  if (format == CLI_FORMAT_CSV)
    return;
  g_autoptr (CliTable) comparison = comparison_table (self, result, times);
  g_autofree char *library = self->job.kernels->describe ();
  g_autofree char *costs = advise_describe_costs (&self->prediction);
  g_autofree char *threads = describe_threads (self);
  printf ("\n%.0f tokens/s with %u ranks (%s)%s, %s\n%s\n", tokens_per_s (self, result),
          self->ranks, self->comm_name, threads, library, costs);
  for (guint i = 0; i < self->prediction.hazards->len; i++)
    cli_print_note (self->prediction.hazards->pdata[i]);
  cli_ranks_print (self, times);
  print_what_is_untimed (self);
  putchar ('\n');
  cli_table_print (comparison, format);
  if (cli_stages_n (self) > 1)
    {
      g_autoptr (CliTable) stages = cli_stages_table (self, times);
      putchar ('\n');
      cli_table_print (stages, format);
      putchar ('\n');
    }
  print_imbalance (self, result);
  print_resident (self);
  print_place (self, run_id);
}

/* Trains this process's rank and gathers the times of all ranks. */
static gboolean
train_rank (CliTraining *self, Recorder *recorder, ExecResult *result, ExecRankTime **out_times,
            GError **error)
{
  ExecRankTime own;
  if (!exec_run_rank (&self->job, self->comm, FALSE, note_step, recorder, result, error))
    return FALSE;
  exec_rank_time (result, self->job.steps, &own);
  return (*out_times = exec_rank_times_gather (self->comm, &own, error)) != NULL
         && (self->job.totals_only
             || cli_stages_gather (self, result->trace, recorder->others, error));
}

/* Trains all ranks. Of those that are threads, the first one's result is kept, and traces and times
 * of the others. */
static gboolean
train_all (CliTraining *self, Recorder *recorder, ExecResult *result, ExecRankTime **out_times,
           GError **error)
{
  if (self->comm)
    return train_rank (self, recorder, result, out_times, error);
  g_autofree ExecResult *results = g_new0 (ExecResult, self->ranks);
  if (!exec_run_threads (&self->job, self->ranks, FALSE, note_step, recorder, results, error))
    return FALSE;
  *out_times = g_new0 (ExecRankTime, self->ranks);
  for (guint r = 0; r < self->ranks; r++)
    exec_rank_time (&results[r], self->job.steps, &(*out_times)[r]);
  *result = results[0];
  for (guint stage = 1; stage < cli_stages_n (self); stage++)
    recorder->others[stage] = g_steal_pointer (&results[cli_stages_rank (self, stage)].trace);
  for (guint r = 1; r < self->ranks; r++)
    exec_result_clear (&results[r]);
  return TRUE;
}

/* Opens the store and begins the run in it. If that fails the run goes on without a store. With
 * --record the store is in memory until the record is written. */
static DbStore *
open_store (const CliTraining *self, DbRun *run)
{
  g_autoptr (GError) why = NULL;
  g_autoptr (DbStore) store = db_store_open (self->record ? ":memory:" : self->db, &why);
  if (store && db_store_begin_run (store, run, &why))
    return g_steal_pointer (&store);
  cli_output_not_kept ("nothing will be kept", why);
  return NULL;
}

static void
recorder_clear (Recorder *self)
{
  end_storing (self);
  g_clear_pointer (&self->store, db_store_close);
  g_clear_pointer (&self->pending, g_array_unref);
  g_clear_pointer (&self->log, cli_run_log_free);
  for (guint stage = 0; stage < SIM_MAX_STAGES; stage++)
    g_clear_pointer (&self->others[stage], plan_trace_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Recorder, recorder_clear)

/* Stores that the run failed or was asked to end. */
static void
keep_failure (const CliTraining *self, Recorder *recorder, const GError *why)
{
  g_autoptr (GError) not_kept = NULL;
  if (recorder->log)
    cli_run_log_end (recorder->log, "failed", why->message, 0);
  if (recorder->store
      && (!db_store_finish_run (recorder->store, recorder->run_id, "failed", why->message,
                                self->prediction.trace->step_ns, 0, &not_kept)
          || !write_record (recorder, &not_kept)))
    cli_output_not_kept ("the run was not kept whole", not_kept);
}

static void
keep_result (const CliTraining *self, Recorder *recorder, const ExecResult *result)
{
  g_autoptr (GError) why = NULL;
  if (recorder->log)
    cli_run_log_end (recorder->log, "done", NULL, (gint64)(1e6 * step_ms (self, result, 0.5)));
  if (!recorder->store || (store_traces (recorder, result, &why) && write_record (recorder, &why)))
    return;
  cli_output_not_kept ("the run was not kept whole", why);
  g_clear_pointer (&recorder->store, db_store_close);
}

/* Opens logs and record; the run does not begin if one of them cannot be written. */
static gboolean
begin_recording (Recorder *self, DbRun *run, GError **error)
{
  const CliTraining *training = self->training;
  fill_run (training, run);
  self->store = open_store (training, run);
  self->run_id = run->id;
  if ((training->log || training->tensorboard)
      && (!(self->log = cli_run_log_new (training->log, training->tensorboard, error))
          || !cli_run_log_begin (self->log, run, error)))
    return FALSE;
  if (!write_record (self, error))
    return FALSE;
  self->storing = g_thread_new ("store", store_all, self);
  return TRUE;
}

/* Says before a run begins what may stop it early: other hazards are printed with its results. */
static void
tell_what_stops (const CliTraining *self)
{
#define X(id, words) [PLAN_HAZARD_##id] = words,
  static const char *const begins[] = { PLAN_HAZARD_LEVELS (X) };
#undef X
  const GPtrArray *hazards = self->prediction.hazards;
  for (guint i = 0; is_root (self) && i < hazards->len; i++)
    if (strstr (hazards->pdata[i], begins[PLAN_HAZARD_STOPS]))
      g_message ("%s", (const char *)hazards->pdata[i]);
}

gboolean
cli_train (CliTraining *self, CliFormat format, GError **error)
{
  g_auto (ExecResult) result = { 0 };
  g_auto (DbRun) run = { 0 };
  g_autofree ExecRankTime *times = NULL;
  g_auto (Recorder) recorder = { .training = self,
                                 .pending = g_array_new (FALSE, FALSE, sizeof (DbStep)),
                                 .begin_us = g_get_monotonic_time (),
                                 .stored_us = g_get_monotonic_time (),
                                 .draws_progress = self->log_every == 0 && isatty (STDERR_FILENO) };
  g_autoptr (GError) why = NULL;

  if (is_root (self) && !begin_recording (&recorder, &run, error))
    return FALSE;
  tell_what_stops (self);
  const gboolean ok = train_all (self, &recorder, &result, &times, &why);
  end_storing (&recorder);
  if (!ok)
    {
      keep_failure (self, &recorder, why);
      self->failed_together = g_error_matches (why, PLAN_ERROR, PLAN_ERROR_STOPPED);
      g_propagate_error (error, g_steal_pointer (&why));
      return FALSE;
    }
  if (!is_root (self))
    return TRUE;
  keep_result (self, &recorder, &result);
  /* A store in memory ends with this process, so the run has no number. */
  const gboolean is_kept = recorder.store && !self->record && g_strcmp0 (self->db, ":memory:") != 0;
  print_result (self, &result, times, is_kept ? run.id : 0, format);
  return TRUE;
}
