/* SPDX-License-Identifier: Apache-2.0 */
/* The walk. Every buffer carries a tag: taken or not, written or not, and for weights how many
 * optimizer updates they have seen. A kernel that would read something released, unwritten or of
 * another step is not run: the walk stops with an error that names the op. */
#include "config.h"

#include "exec/exec.h"

#include "exec/data.h"
#include "exec/exact.h"
#include "exec/number.h"
#include "exec/runnable.h"
#include "planner/arena.h"
#include "planner/error.h"
#include "planner/lower.h"
#include "planner/meter.h"
#include "planner/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POISON 0xff /* a NaN in every float format */

typedef struct
{
  guint8 *bytes; /* NULL: not taken */
  gboolean is_written;
  gint64 version; /* optimizer updates seen; weights only */
} Tag;

/* Where a bucket's main weights are, as its init op said. */
typedef struct
{
  guint32 buffer;
  PlanDtype dtype;
  guint64 at, count; /* elements */
} MainShard;

typedef struct
{
  const ExecJob *job;
  ExecComm *comm;                   /* of all ranks */
  ExecComm *group[PLAN_MAX_GROUPS]; /* of the schedule's groups */
  const PlanSchedule *schedule;
  PlanLayout layout;
  PlanArena arena;
  guint8 *memory;
  Tag *tags;
  GArray *mains; /* MainShard, in init order */
  PlanMeter meter;
  PlanTrace *trace; /* NULL unless this step is recorded */
  ExecConstants constants;
  gint64 step;        /* from 0 */
  gint64 micro_batch; /* loaded so far in this step */
  guint next_alloc;   /* in this section */
  gint64 begin_ns;    /* of this step */
  double loss, grad_norm;
  gint32 suspect; /* array of a gradient that is not a number; -1: none is */
  gboolean poisons;
} Walk;

static gint64
now_ns (void)
{
  struct timespec t;
  clock_gettime (CLOCK_MONOTONIC, &t);
  return (gint64)t.tv_sec * G_GINT64_CONSTANT (1000000000) + t.tv_nsec;
}

G_GNUC_PRINTF (4, 5)
static gboolean
fail (const Walk *walk, const PlanCursor *cursor, GError **error, const char *format, ...)
{
  const PlanOp *op = plan_schedule_node (walk->schedule, cursor->node);
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
               "rank %u, step %" G_GINT64_FORMAT ", op %u (%s, unit %" G_GINT64_FORMAT "): %s",
               walk->comm->rank, walk->step + 1, cursor->node, plan_op_name (op->kind),
               plan_cursor_unit (cursor, op), message);
  return FALSE;
}

static gboolean
is_weights (const PlanBuffer *buffer)
{
  return buffer->category == PLAN_CATEGORY_WEIGHTS || buffer->category == PLAN_CATEGORY_GATHERED;
}

/* Ops that move weights about keep the version of what they read; kernels want this step's. */
static gboolean
moves_weights (PlanOpKind kind)
{
  return kind == PLAN_OP_CAST || kind == PLAN_OP_ALL_GATHER;
}

static gboolean
apply_memory (Walk *walk, const PlanCursor *cursor, PlanSection section, const PlanOp *op,
              GError **error)
{
  const guint array = (guint)op->refs[0].array;
  const guint64 bytes = plan_schedule_buffer_bytes (walk->schedule, array);
  const guint64 taken = plan_units_round_up (bytes, PLAN_ARENA_ALIGNMENT);
  Tag *tag = &walk->tags[plan_cursor_buffer (cursor, &op->refs[0])];

  if ((tag->bytes != NULL) == (op->kind == PLAN_OP_ALLOC))
    return fail (walk, cursor, error, "%s is %s",
                 plan_schedule_buffer (walk->schedule, array)->name,
                 tag->bytes ? "taken already" : "not taken");
  if (walk->poisons && tag->bytes)
    memset (tag->bytes, POISON, bytes);
  *tag = (Tag){ 0 };
  if (op->kind == PLAN_OP_ALLOC)
    tag->bytes
        = walk->memory + g_array_index (walk->arena.offsets[section], guint64, walk->next_alloc++);
  if (walk->poisons && tag->bytes)
    memset (tag->bytes, POISON, bytes);
  const PlanCategory category = plan_meter_apply (&walk->meter, cursor, op, taken);
  if (walk->trace)
    plan_trace_add_sample (walk->trace, category, now_ns () - walk->begin_ns,
                           (gint64)walk->meter.live[category]);
  return TRUE;
}

/* Turns references into pointers and checks the tags of what is read. */
static gboolean
resolve (Walk *walk, const PlanCursor *cursor, const PlanOp *op, ExecArgs *args, GError **error)
{
  *args = (ExecArgs){ .op = op, .constants = &walk->constants };
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      if (op->refs[i].array < 0)
        continue;
      const PlanBuffer *buffer = plan_schedule_buffer (walk->schedule, (guint)op->refs[i].array);
      const Tag *tag = &walk->tags[plan_cursor_buffer (cursor, &op->refs[i])];
      const char access = plan_op_ref_access (op->kind, i);
      if (!tag->bytes)
        return fail (walk, cursor, error, "%s is not taken", buffer->name);
      if ((access == 'r' || access == 'u') && !tag->is_written)
        return fail (walk, cursor, error, "%s is read before anything wrote it", buffer->name);
      if (access == 'r' && is_weights (buffer) && !moves_weights (op->kind)
          && tag->version != walk->step)
        return fail (walk, cursor, error, "%s holds weights of step %" G_GINT64_FORMAT,
                     buffer->name, tag->version + 1);
      args->ptr[i] = tag->bytes + plan_dtype_bytes (buffer->dtype, op->refs[i].at);
      args->dtype[i] = buffer->dtype;
    }
  return TRUE;
}

static void
mark_written (Walk *walk, const PlanCursor *cursor, const PlanOp *op)
{
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      const char access = plan_op_ref_access (op->kind, i);
      if (op->refs[i].array < 0 || (access != 'w' && access != 'u'))
        continue;
      Tag *tag = &walk->tags[plan_cursor_buffer (cursor, &op->refs[i])];
      tag->is_written = TRUE;
      if (moves_weights (op->kind))
        tag->version = walk->tags[plan_cursor_buffer (cursor, &op->refs[1])].version;
      else if (op->kind == PLAN_OP_ADAMW || op->kind == PLAN_OP_SGD)
        tag->version = walk->step + 1;
      else if (op->kind == PLAN_OP_INIT)
        tag->version = walk->step;
    }
}

/* One shard of a bucket's main weights, padding zero. */
static void
run_init (Walk *walk, const PlanCursor *cursor, const ExecArgs *args)
{
  const PlanOp *op = args->op;
  const PlanBucket *bucket = &walk->layout.buckets[op->dims[0]];
  const guint64 part = bucket->padded / (guint64)op->dims[2];
  const guint64 first = part * (guint64)op->dims[1];
  const gint64 unit = MAX (plan_cursor_unit (cursor, op), 0);
  const PlanDtype dtype = args->dtype[0];
  guint8 *const out = args->ptr[0];
  const MainShard shard = { .buffer = plan_cursor_buffer (cursor, &op->refs[0]),
                            .dtype = dtype,
                            .at = op->refs[0].at,
                            .count = part };

  memset (out, 0, plan_dtype_bytes (dtype, part));
  for (guint s = 0; s < bucket->n_slots; s++)
    {
      const PlanSlot *slot = &bucket->slots[s];
      const guint64 end = slot->offset + slot->tensor.rows * slot->tensor.cols;
      for (guint64 i = MAX (first, slot->offset); i < MIN (first + part, end); i++)
        {
          const float weight = exec_data_weight (walk->job->seed, walk->job->model,
                                                 slot->tensor.role, unit, i - slot->offset);
          exec_number_narrow (out + plan_dtype_bytes (dtype, i - first), dtype, &weight, 1);
        }
    }
  g_array_append_val (walk->mains, shard);
}

/* Sequences are dealt out by micro batch, then rank. */
static void
run_load (Walk *walk, const ExecArgs *args)
{
  const Plan *plan = walk->job->plan;
  const gint64 seq = plan->value[PLAN_SEQ], mbs = plan->value[PLAN_MBS];
  const gint64 turn = walk->micro_batch++ * walk->comm->ranks + walk->comm->rank;
  for (gint64 i = 0; i < mbs; i++)
    exec_data_sequence (walk->job->seed, walk->job->model->vocab,
                        walk->step * plan->value[PLAN_GBS] + turn * mbs + i, seq,
                        (gint32 *)args->ptr[0] + i * seq, (gint32 *)args->ptr[1] + i * seq);
}

static gboolean
run_collective (Walk *walk, const ExecArgs *args, GError **error)
{
  const guint64 count = (guint64)args->op->dims[0];
  ExecComm *comm = walk->group[args->op->group];
  switch ((int)args->op->kind)
    {
    case PLAN_OP_ALL_TO_ALL:
      return comm->ops->all_to_all (comm, args->ptr[0], args->ptr[1], count, args->dtype[0], error);
    case PLAN_OP_ALL_GATHER:
      return comm->ops->all_gather (comm, args->ptr[0], args->ptr[1], count, args->dtype[0], error);
    case PLAN_OP_REDUCE_SCATTER:
      return comm->ops->reduce_scatter (comm, args->ptr[0], args->ptr[1], count, args->dtype[0],
                                        error);
    default:
      return comm->ops->all_reduce (comm, args->ptr[0], count, args->dtype[0], error);
    }
}

/* What a parameter's gradient, in an array named raw.PARAMETER, turned out to be. */
static gboolean
blame (const Walk *walk, const PlanCursor *cursor, const PlanRef *destination, GError **error)
{
  const PlanBuffer *raw = plan_schedule_buffer (walk->schedule, (guint)walk->suspect);
  const PlanBuffer *buffer = plan_schedule_buffer (walk->schedule, (guint)destination->array);
  const gint64 layer
      = destination->offset + (destination->loop >= 0 ? cursor->loop[destination->loop].value : 0);
  g_autofree char *where
      = buffer->count > 1 ? g_strdup_printf (" of layer %" G_GINT64_FORMAT, layer) : g_strdup ("");
  return fail (walk, cursor, error,
               "nan_check: the gradient of %s%s is not finite in micro batch %" G_GINT64_FORMAT,
               strchr (raw->name, '.') ? strchr (raw->name, '.') + 1 : raw->name, where,
               walk->micro_batch);
}

/* What the host reads of an op's results: the loss, and with nan_check whether numbers are ones.
 * Which layer a gradient belongs to shows where it is put next. */
static gboolean
look (Walk *walk, const PlanCursor *cursor, const ExecArgs *args, GError **error)
{
  const PlanOp *op = args->op;
  const gint64 checks = walk->job->plan->value[PLAN_NAN_CHECK];
  if (op->kind == PLAN_OP_CLIP)
    {
      const float *coef = args->ptr[0];
      walk->grad_norm = (double)coef[1];
      walk->loss = (double)coef[2];
    }
  if (checks == PLAN_NAN_CHECK_LOSS && op->kind == PLAN_OP_CROSS_ENTROPY
      && !isfinite (exec_exact_value (args->ptr[0])))
    return fail (walk, cursor, error,
                 "nan_check: the loss is not finite in micro batch %" G_GINT64_FORMAT,
                 walk->micro_batch);
  if (checks != PLAN_NAN_CHECK_PARAMS)
    return TRUE;
  if (walk->suspect >= 0 && plan_op_n_refs (op->kind) > 1 && op->refs[1].array == walk->suspect)
    return blame (walk, cursor, &op->refs[0], error);
  if (op->kind == PLAN_OP_NORM_SQ && op->refs[0].at == 0 /* others add to the sums of the norm */
      && !isfinite (exec_exact_value (args->ptr[0])))
    walk->suspect = op->refs[1].array;
  return TRUE;
}

static gboolean
run_op (Walk *walk, const PlanCursor *cursor, const PlanOp *op, GError **error)
{
  const gint64 start_ns = now_ns ();
  ExecArgs args;
  if (!resolve (walk, cursor, op, &args, error))
    return FALSE;
  if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
    {
      if (!run_collective (walk, &args, error))
        return FALSE;
    }
  else if (op->kind == PLAN_OP_INIT)
    run_init (walk, cursor, &args);
  else if (op->kind == PLAN_OP_LOAD)
    run_load (walk, &args);
  else if (op->kind != PLAN_OP_SYNC && op->kind != PLAN_OP_WAIT) /* nothing is ever pending here */
    walk->job->kernels->run[op->kind](&args);
  mark_written (walk, cursor, op);
  if (!look (walk, cursor, &args, error))
    return FALSE;
  if (walk->trace)
    plan_trace_add_span (walk->trace, cursor->node, (gint32)plan_cursor_unit (cursor, op),
                         start_ns - walk->begin_ns, now_ns () - walk->begin_ns);
  return TRUE;
}

static gboolean
run_section (Walk *walk, PlanSection section, GError **error)
{
  const PlanOp *op;
  PlanCursor cursor;
  walk->next_alloc = 0;
  walk->micro_batch = 0;
  plan_cursor_start (&cursor, walk->schedule, section);
  while ((op = plan_cursor_next (&cursor)))
    if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY
            ? !apply_memory (walk, &cursor, section, op, error)
            : !run_op (walk, &cursor, op, error))
      return FALSE;
  return TRUE;
}

static gboolean
run_steps (Walk *walk, ExecProgress progress, gpointer user_data, ExecResult *result,
           GError **error)
{
  for (walk->step = 0; walk->step < walk->job->steps; walk->step++)
    {
      const gboolean records = walk->step == walk->job->steps - 1;
      walk->constants.step = walk->step + 1;
      if (!walk->comm->ops->barrier (walk->comm, error))
        return FALSE;
      plan_meter_begin_step (&walk->meter);
      walk->trace = records ? result->trace : NULL;
      walk->begin_ns = now_ns ();
      if (!run_section (walk, PLAN_SECTION_STEP, error))
        return FALSE;
      result->step_ns[walk->step] = now_ns () - walk->begin_ns;
      result->losses[walk->step] = walk->loss;
      result->grad_norms[walk->step] = walk->grad_norm;
      if (progress && walk->comm->rank == 0)
        progress (user_data, walk->step, walk->loss, walk->grad_norm, result->step_ns[walk->step]);
    }
  walk->trace = NULL;
  plan_meter_report (&walk->meter, 0, &result->trace->memory);
  result->trace->memory.reserved = result->trace->memory.device = walk->arena.size_bytes;
  result->trace->step_ns = result->step_ns[walk->job->steps - 1];
  plan_trace_attribute (result->trace, walk->schedule);
  return TRUE;
}

static void
keep_params (const Walk *walk, ExecResult *result)
{
  result->main_params = g_byte_array_new ();
  for (guint i = 0; i < walk->mains->len; i++)
    {
      const MainShard *shard = &g_array_index (walk->mains, MainShard, i);
      const guint8 *bytes = walk->tags[shard->buffer].bytes;
      const guint begin = result->main_params->len;
      g_byte_array_set_size (result->main_params, begin + (guint)(shard->count * sizeof (float)));
      exec_number_widen ((float *)(gpointer)(result->main_params->data + begin),
                         bytes + plan_dtype_bytes (shard->dtype, shard->at), shard->dtype,
                         shard->count);
    }
}

static gboolean
take_memory (Walk *walk, GError **error)
{
  void *memory = NULL;
  if (posix_memalign (&memory, PLAN_ARENA_ALIGNMENT, MAX (walk->arena.size_bytes, 1)) != 0)
    {
      g_autofree char *size = plan_units_format_size (walk->arena.size_bytes);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE, "rank %u: this machine has no %s left",
                   walk->comm->rank, size);
      return FALSE;
    }
  walk->memory = memory;
  return TRUE;
}

static void
walk_clear (Walk *walk)
{
  plan_arena_clear (&walk->arena);
  free (walk->memory);
  g_free (walk->tags);
  g_array_unref (walk->mains);
}

static gboolean
find_groups (Walk *walk, GError **error)
{
  for (guint g = 0; g < plan_schedule_n_groups (walk->schedule); g++)
    {
      const PlanGroup *group = plan_schedule_group (walk->schedule, g);
      walk->group[g] = exec_comm_group (walk->comm, group->size, group->stride, error);
      if (!walk->group[g])
        return FALSE;
    }
  return TRUE;
}

static gboolean
run_walk (Walk *walk, gboolean keeps_params, ExecProgress progress, gpointer user_data,
          ExecResult *result, GError **error)
{
  const ExecJob *job = walk->job;
  const PlanStack *stack = plan_stack_of (job->plan, job->cluster->kind, error);
  if (!stack || !exec_runnable_check (job, walk->schedule, error) || !find_groups (walk, error)
      || !plan_arena_init (&walk->arena, walk->schedule, error) || !take_memory (walk, error)
      || !job->kernels->open (error))
    return FALSE;
  plan_layout_init (&walk->layout, job->model, stack, job->plan, walk->comm->ranks);
  result->losses = g_new0 (double, job->steps);
  result->grad_norms = g_new0 (double, job->steps);
  result->step_ns = g_new0 (gint64, job->steps);
  result->trace = plan_trace_new (job->kernels->name);
  result->arena_bytes = walk->arena.size_bytes;
  if (!run_section (walk, PLAN_SECTION_SETUP, error)
      || !run_steps (walk, progress, user_data, result, error))
    return FALSE;
  if (keeps_params)
    keep_params (walk, result);
  return run_section (walk, PLAN_SECTION_TEARDOWN, error);
}

gboolean
exec_run_schedule (const ExecJob *job, const PlanSchedule *schedule, ExecComm *comm,
                   gboolean keeps_params, ExecProgress progress, gpointer user_data,
                   ExecResult *out_result, GError **error)
{
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) why = NULL;
  Walk walk = { .job = job,
                .comm = comm,
                .schedule = schedule,
                .tags = g_new0 (Tag, plan_schedule_n_buffer_ids (schedule) + 1),
                .mains = g_array_new (FALSE, FALSE, sizeof (MainShard)),
                .constants = job->constants,
                .suspect = -1,
                .poisons = g_getenv ("FSDPLAN_DEBUG_CHECK") != NULL };
  const gboolean ok = run_walk (&walk, keeps_params, progress, user_data, &result, &why);
  walk_clear (&walk);
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
  g_autoptr (PlanSchedule) schedule
      = plan_lower (job->model, job->cluster, job->plan, comm->rank, error);
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
  g_clear_pointer (&self->step_ns, g_free);
  g_clear_pointer (&self->trace, plan_trace_free);
  g_clear_pointer (&self->main_params, g_byte_array_unref);
}

/* One rank's thread. */
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

static gpointer
run_rank_thread (gpointer data)
{
  Rank *rank = data;
  if (!exec_run_rank (rank->job, rank->comm, rank->keeps_params, rank->progress, rank->user_data,
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

  if (!exec_comm_threads_open (ranks, comms, error))
    return FALSE;
  for (guint r = 0; r < ranks; r++)
    {
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
