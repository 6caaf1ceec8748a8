/* SPDX-License-Identifier: Apache-2.0 */
/* Every buffer carries a tag: taken or not, written or not, and for weights how many optimizer
 * updates they have seen. A kernel that would read something released, unwritten or of another step
 * is not run: the walk stops with an error that names the op. */
#include "config.h"

#include "exec/walk-private.h"

#include "exec/exact.h"
#include "exec/runnable.h"
#include "exec/source.h"
#include "planner/error.h"
#include "planner/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POISON 0xff /* a NaN in every float format */

gint64
exec_walk_now_ns (void)
{
  struct timespec t;
  clock_gettime (CLOCK_MONOTONIC, &t);
  return (gint64)t.tv_sec * G_GINT64_CONSTANT (1000000000) + t.tv_nsec;
}

G_GNUC_PRINTF (4, 5)
static gboolean
fail (const ExecWalk *walk, const PlanCursor *cursor, GError **error, const char *format, ...)
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
  return buffer->category == PLAN_CATEGORY_WEIGHTS || buffer->category == PLAN_CATEGORY_GATHERED
         || buffer->category == PLAN_CATEGORY_DERIVED;
}

/* Ops that move weights about keep the version of what they read; kernels want this step's. */
static gboolean
moves_weights (PlanOpKind kind)
{
  return kind == PLAN_OP_CAST || kind == PLAN_OP_ALL_GATHER || kind == PLAN_OP_QUANTIZE;
}

static gboolean
apply_memory (ExecWalk *walk, const PlanCursor *cursor, PlanSection section, const PlanOp *op,
              GError **error)
{
  const guint array = (guint)op->refs[0].array;
  const guint64 bytes = plan_schedule_buffer_bytes (walk->schedule, array);
  const guint64 taken = plan_units_round_up (bytes, PLAN_ARENA_ALIGNMENT);
  ExecTag *tag = &walk->tags[plan_cursor_buffer (cursor, &op->refs[0])];

  if ((tag->bytes != NULL) == (op->kind == PLAN_OP_ALLOC))
    return fail (walk, cursor, error, "%s is %s",
                 plan_schedule_buffer (walk->schedule, array)->name,
                 tag->bytes ? "taken already" : "not taken");
  if (walk->poisons && tag->bytes)
    memset (tag->bytes, POISON, bytes);
  *tag = (ExecTag){ 0 };
  if (op->kind == PLAN_OP_ALLOC)
    tag->bytes
        = walk->memory + g_array_index (walk->arena.offsets[section], guint64, walk->next_alloc++);
  if (walk->poisons && tag->bytes)
    memset (tag->bytes, POISON, bytes);
  const PlanCategory category = plan_meter_apply (&walk->meter, cursor, op, taken);
  if (walk->trace)
    plan_trace_add_sample (walk->trace, category, exec_walk_now_ns () - walk->begin_ns,
                           (gint64)walk->meter.live[category]);
  return TRUE;
}

/* Turns references into pointers and checks the tags of what is read. */
static gboolean
resolve (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, ExecArgs *args, GError **error)
{
  *args = (ExecArgs){ .op = op, .constants = &walk->constants };
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      if (op->refs[i].array < 0)
        continue;
      const PlanBuffer *buffer = plan_schedule_buffer (walk->schedule, (guint)op->refs[i].array);
      ExecTag *tag = &walk->tags[plan_cursor_buffer (cursor, &op->refs[i])];
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
      args->scale[i] = &tag->scale;
    }
  return TRUE;
}

static void
mark_written (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op)
{
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      const char access = plan_op_ref_access (op->kind, i);
      if (op->refs[i].array < 0 || (access != 'w' && access != 'u'))
        continue;
      ExecTag *tag = &walk->tags[plan_cursor_buffer (cursor, &op->refs[i])];
      tag->is_written = TRUE;
      const guint source = op->kind == PLAN_OP_QUANTIZE ? 2 : 1;
      if (moves_weights (op->kind))
        tag->version = walk->tags[plan_cursor_buffer (cursor, &op->refs[source])].version;
      else if (op->kind == PLAN_OP_ADAMW || op->kind == PLAN_OP_SGD)
        tag->version = walk->step + 1;
      else if (op->kind == PLAN_OP_INIT)
        tag->version = walk->step;
    }
}

/* Sequences are dealt out by micro batch, then rank. */
static gboolean
run_load (ExecWalk *walk, const ExecArgs *args, GError **error)
{
  const gint64 seq = walk->plan->value[PLAN_SEQ], mbs = walk->plan->value[PLAN_MBS];
  const gint64 turn = walk->micro_batch++ * walk->comm->ranks + walk->comm->rank;
  const gint64 first = exec_source_first_sequence (walk->job, walk->step) + turn * mbs;
  gint32 *tokens = args->ptr[0], *targets = args->ptr[1];
  for (gint64 i = 0; i < mbs; i++)
    if (!exec_source_sequence (walk->job, walk->trained != NULL, first + i, tokens + i * seq,
                               targets + i * seq, error))
      return FALSE;
  return TRUE;
}

static gboolean
run_collective (ExecWalk *walk, const ExecArgs *args, GError **error)
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
blame (const ExecWalk *walk, const PlanCursor *cursor, const PlanRef *destination, GError **error)
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
look (ExecWalk *walk, const PlanCursor *cursor, const ExecArgs *args, GError **error)
{
  const PlanOp *op = args->op;
  const gint64 checks = walk->plan->value[PLAN_NAN_CHECK];
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
run_op (ExecWalk *walk, const PlanCursor *cursor, const PlanOp *op, GError **error)
{
  const gint64 start_ns = exec_walk_now_ns ();
  ExecArgs args;
  if (!resolve (walk, cursor, op, &args, error))
    return FALSE;
  if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
    {
      if (!run_collective (walk, &args, error))
        return FALSE;
    }
  else if (op->kind == PLAN_OP_INIT)
    {
      if (!exec_walk_init_shard (walk, cursor, &args, error))
        return FALSE;
    }
  else if (op->kind == PLAN_OP_LOAD)
    {
      if (!run_load (walk, &args, error))
        return FALSE;
    }
  else if (op->kind != PLAN_OP_SYNC && op->kind != PLAN_OP_WAIT) /* nothing is ever pending here */
    walk->job->kernels->run[op->kind](&args);
  mark_written (walk, cursor, op);
  if (!look (walk, cursor, &args, error))
    return FALSE;
  if (walk->trace)
    plan_trace_add_span (walk->trace, cursor->node, (gint32)plan_cursor_unit (cursor, op),
                         start_ns - walk->begin_ns, exec_walk_now_ns () - walk->begin_ns);
  return TRUE;
}

gboolean
exec_walk_run (ExecWalk *walk, PlanSection section, GError **error)
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

/* --- opening and closing ------------------------------------------------------------------ */

static gboolean
take_memory (ExecWalk *walk, GError **error)
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

static gboolean
find_groups (ExecWalk *walk, GError **error)
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

gboolean
exec_walk_open (ExecWalk *self, const ExecJob *job, const Plan *plan, const PlanSchedule *schedule,
                ExecComm *comm, GError **error)
{
  *self = (ExecWalk){ .job = job,
                      .plan = plan,
                      .comm = comm,
                      .schedule = schedule,
                      .tags = g_new0 (ExecTag, plan_schedule_n_buffer_ids (schedule) + 1),
                      .shards = g_array_new (FALSE, FALSE, sizeof (ExecShard)),
                      .constants = job->constants,
                      .step = job->first_step,
                      .suspect = -1,
                      .poisons = g_getenv ("FSDPLAN_DEBUG_CHECK") != NULL };
  const PlanStack *stack = plan_stack_of (plan, job->cluster->kind, error);
  if (!stack || !exec_runnable_check (job, plan, schedule, error) || !find_groups (self, error)
      || !plan_arena_init (&self->arena, schedule, error) || !take_memory (self, error))
    return FALSE;
  plan_layout_init (&self->layout, job->model, stack, plan, comm->ranks);
  if (self->layout.by_size)
    plan_buckets_init (&self->buckets, job->model, &self->layout.rule);
  return TRUE;
}

void
exec_walk_close (ExecWalk *self)
{
  plan_arena_clear (&self->arena);
  plan_buckets_clear (&self->buckets);
  free (self->memory);
  g_free (self->tags);
  g_array_unref (self->shards);
}
