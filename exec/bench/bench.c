/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/bench/bench.h"

#include "exec/number/number.h"
#include "exec/walk/runnable.h"
#include "exec/walk/walk-update.h"
#include "planner/base/error.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Elements of the pattern that fills operands. */
#define PATTERN 4096

#define FILLER "filler" /* buffer that is written to keep the device busy */

/* Each byte of an operand in a narrow format (8 bits or fewer) is NARROW_BYTE, with bits drawn at
 * random where NARROW_RANDOM_BITS are. As a number of any such format, or as a scale, it is neither
 * large nor zero nor NaN. */
#define NARROW_BYTE 0x30
#define NARROW_RANDOM_BITS 0x0f

/* --- one op as a schedule ----------------------------------------------------------------- */

static gboolean
is_read (PlanOpKind kind, guint operand)
{
  const char access = plan_op_ref_access (kind, operand);
  return access == 'r' || access == 'u';
}

static guint64
elements_of (const ExecBenchOp *self, guint operand)
{
  if (self->op.kind == PLAN_OP_PARAM_AMAX && operand == PLAN_REF_PARAM_AMAX_amax)
    return (guint64)self->op.dims[PLAN_DIM_PARAM_AMAX_parts]; /* all magnitudes of the parameters */
  return MAX (plan_op_ref_access (self->op.kind, operand) == 's'
                  ? self->scratch
                  : plan_op_ref_elements (&self->op, operand, self->ranks),
              1);
}

static void
add_alloc_or_free (PlanSchedule *schedule, PlanOpKind kind, PlanRef ref, gint32 turn)
{
  PlanOp *op = plan_schedule_add_op (schedule, kind, PLAN_STREAM_COMPUTE);
  op->refs[PLAN_REF_ALLOC_buf] = (PlanRef){ .array = ref.array, .offset = turn, .loop = -1 };
}

static void
add_zero (PlanSchedule *schedule, PlanRef ref, gint32 turn, guint64 elements)
{
  PlanOp *op = plan_schedule_add_op (schedule, PLAN_OP_ZERO, PLAN_STREAM_COMPUTE);
  op->refs[PLAN_REF_ZERO_out] = (PlanRef){ .array = ref.array, .offset = turn, .loop = -1 };
  op->dims[PLAN_DIM_ZERO_count] = (gint64)elements;
}

static guint
turns_at (const PlanRef *ref)
{
  return MAX (ref->modulus, 1);
}

/* Adds buffers for the operands, `turns` of each, which a loop uses in turns. The ops of a batch
 * are unrolled; the loop advances by whole batches. */
static void
add_operands (const ExecBenchOp *self, PlanSchedule *schedule, PlanOp *op)
{
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array >= 0)
      {
        const guint n = plan_op_ref_access (op->kind, i) == 's' ? 1 : self->turns;
        op->refs[i].array = plan_schedule_add_buffer (schedule, plan_op_ref_name (op->kind, i), n,
                                                      elements_of (self, i), self->dtype[i],
                                                      PLAN_CATEGORY_WORKSPACE);
        op->refs[i].loop = n > 1 ? 0 : -1;
        op->refs[i].modulus = (guint8)(n > 1 ? n : 0);
      }
}

static void
add_batch (const ExecBenchOp *self, PlanSchedule *schedule, const PlanOp *op, PlanRef filler)
{
  for (guint p = 0; p < self->fillers; p++)
    add_zero (schedule, filler, 0, self->filler_bytes / sizeof (float));
  for (guint b = 0; b < self->batch; b++)
    {
      PlanOp next = *op;
      for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
        if (next.refs[i].modulus > 0)
          next.refs[i].offset = (gint32)b;
      plan_schedule_add (schedule, &next);
    }
}

PlanSchedule *
exec_bench_schedule (const ExecBenchOp *self, guint rank, guint ranks, guint repeats)
{
  PlanSchedule *schedule = plan_schedule_new (rank, ranks);
  PlanOp op = self->op;
  PlanRef filler = PLAN_REF_NONE;
  const guint n_refs = plan_op_n_refs (op.kind);
  if (plan_op_class (op.kind) == PLAN_CLASS_COLLECTIVE)
    op.group = plan_schedule_add_group (schedule, "all", self->ranks, self->stride);
  add_operands (self, schedule, &op);
  if (self->fillers > 0)
    filler.array
        = plan_schedule_add_buffer (schedule, FILLER, 1, self->filler_bytes / sizeof (float),
                                    PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  for (guint i = 0; i < n_refs; i++)
    for (guint t = 0; op.refs[i].array >= 0 && t < turns_at (&op.refs[i]); t++)
      {
        add_alloc_or_free (schedule, PLAN_OP_ALLOC, op.refs[i], (gint32)t);
        add_zero (schedule, op.refs[i], (gint32)t, elements_of (self, i));
      }
  if (self->fillers > 0)
    add_alloc_or_free (schedule, PLAN_OP_ALLOC, filler, 0);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  plan_schedule_begin_repeat (schedule, "i", 0, EXEC_BENCH_WARM_UP + repeats, self->batch);
  add_batch (self, schedule, &op, filler);
  plan_schedule_end_repeat (schedule);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  if (self->fillers > 0)
    add_alloc_or_free (schedule, PLAN_OP_FREE, filler, 0);
  for (guint i = n_refs; i-- > 0;)
    for (guint t = turns_at (&op.refs[i]); op.refs[i].array >= 0 && t-- > 0;)
      add_alloc_or_free (schedule, PLAN_OP_FREE, op.refs[i], (gint32)t);
  return schedule;
}

/* --- values of operands ------------------------------------------------------------------- */

/* Makes the pattern. Indices, of tokens or of targets, are below the size of the vocabulary;
 * numbers in wide formats are between 1/4 and 1, so that no kernel meets a subnormal number or NaN.
 * They all differ, since a GPU that multiplies equal numbers takes less power and may run faster.
 */
static void
make_pattern (const ExecBenchOp *self, PlanDtype dtype, guint8 *out)
{
  const gint64 limit = self->op.kind == PLAN_OP_EMBED || self->op.kind == PLAN_OP_EMBED_BWD
                           ? self->op.dims[PLAN_DIM_EMBED_vocab]
                           : self->op.dims[PLAN_DIM_CROSS_ENTROPY_cols];
  const gboolean is_narrow = plan_dtype_bits (dtype) <= 8;
  float numbers[PATTERN];
  guint32 state = 1;
  for (guint i = 0; i < PATTERN; i++)
    {
      state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
      numbers[i] = 0.25f + 0.75f * (float)(state >> 8) / (float)(1 << 24);
      if (dtype == PLAN_DTYPE_I32)
        ((gint32 *)(gpointer)out)[i] = (gint32)((state >> 8) % (guint32)MAX (limit, 1));
      else if (is_narrow)
        out[i] = (guint8)(NARROW_BYTE | (state >> 8 & NARROW_RANDOM_BITS));
    }
  if (dtype != PLAN_DTYPE_I32 && !is_narrow)
    exec_number_narrow (out, dtype, numbers, PATTERN);
}

/* Fills an operand by repeating what is at its beginning, on the device: a copy from the host for
 * each repetition would take longer than what is timed. */
static gboolean
repeat (ExecDevice *device, guint8 *at, guint64 done, guint64 bytes, GError **error)
{
  for (guint64 n; done < bytes; done += n)
    {
      n = MIN (done, bytes - done);
      if (!device->ops->copy (device, at + done, at, n, PLAN_STREAM_COMPUTE, error))
        return FALSE;
    }
  return TRUE;
}

/* Fills one operand with the pattern. Exact sums (I64) stay as they are and begin with 0. */
static gboolean
fill_operand (ExecWalk *walk, const ExecBenchOp *self, guint operand, GError **error)
{
  const PlanBuffer *buffer = NULL;
  const char *name = plan_op_ref_name (self->op.kind, operand);
  for (guint i = 0; i < plan_schedule_n_buffers (walk->schedule); i++)
    if (g_str_equal (plan_schedule_buffer (walk->schedule, i)->name, name))
      buffer = plan_schedule_buffer (walk->schedule, i);
  if (buffer->dtype == PLAN_DTYPE_I64)
    return TRUE;
  const guint64 whole
      = plan_dtype_bits (buffer->dtype) <= 8 ? PATTERN : plan_dtype_bytes (buffer->dtype, PATTERN);
  const guint64 bytes = plan_dtype_bytes (buffer->dtype, buffer->elements);
  g_autofree guint8 *pattern = g_malloc (whole);
  make_pattern (self, buffer->dtype, pattern);
  for (guint turn = 0; turn < buffer->count; turn++)
    {
      guint8 *at = walk->tags[buffer->first + turn].bytes;
      const guint64 first = MIN (whole, bytes);
      if (!exec_device_write (walk->device, at, pattern, first, error)
          || !repeat (walk->device, at, first, bytes, error))
        return FALSE;
    }
  return TRUE;
}

/* Sets all scales to 1: those that the device has per buffer, and those of moments, which
 * follow. */
static gboolean
fill_scales (ExecWalk *walk, GError **error)
{
  const guint n = plan_schedule_n_buffer_ids (walk->schedule) + exec_walk_n_moment_scales (walk);
  g_autofree float *ones = g_new (float, n);
  for (guint i = 0; i < n; i++)
    ones[i] = 1;
  return !walk->device->scales
         || exec_device_write (walk->device, walk->device->scales, ones, n * sizeof *ones, error);
}

static gboolean
fill (ExecWalk *walk, const ExecBenchOp *self, GError **error)
{
  for (guint i = 0; i < plan_op_n_refs (self->op.kind); i++)
    if (self->op.refs[i].array >= 0 && is_read (self->op.kind, i)
        && !fill_operand (walk, self, i, error))
      return FALSE;
  return fill_scales (walk, error);
}

/* --- timing ------------------------------------------------------------------------------- */

static int
compare (const void *left, const void *right)
{
  const gint64 a = *(const gint64 *)left, b = *(const gint64 *)right;
  return (a > b) - (a < b);
}

static gint64
quantile (const gint64 *sorted, guint n, double share)
{
  return sorted[(guint)(share * (n - 1) + 0.5)];
}

ExecBenchTimes
exec_bench_summarise (gint64 *ns, guint n, gint64 work_ns)
{
  qsort (ns, n, sizeof *ns, compare);
  const gint64 median = quantile (ns, n, 0.50);
  if (work_ns > 0 && work_ns < median)
    for (guint i = 0; i < n; i++)
      ns[i] = MAX ((gint64)((double)ns[i] * (double)work_ns / (double)median), 1);
  return (ExecBenchTimes){ .p10_ns = quantile (ns, n, 0.10),
                           .q1_ns = quantile (ns, n, 0.25),
                           .median_ns = quantile (ns, n, 0.50),
                           .q3_ns = quantile (ns, n, 0.75),
                           .p90_ns = quantile (ns, n, 0.90),
                           .n = n };
}

/* CPU time of this thread so far. */
static gint64
own_ns (void)
{
  struct timespec t;
  clock_gettime (CLOCK_THREAD_CPUTIME_ID, &t);
  return (gint64)t.tv_sec * G_GINT64_CONSTANT (1000000000) + t.tv_nsec;
}

/* Computes times from a trace. An op takes from its start to the start of the next one, as in a
 * step, if nothing lies between them; the last op takes until its own end. CPU time is known for
 * all ops together, including those that warm up, but not where the thread waits for others. */
static ExecBenchTimes
times_of (const ExecBenchOp *op, const PlanTrace *trace, gboolean waits, gint64 computed_ns)
{
  const PlanSpan *span = (const PlanSpan *)(gpointer)trace->spans->data;
  const guint n = trace->spans->len;
  g_autoptr (GArray) ns = g_array_new (FALSE, FALSE, sizeof (gint64));
  for (guint i = EXEC_BENCH_WARM_UP; i < n; i++)
    {
      const gboolean is_followed = op->fillers == 0 && i + 1 < n;
      const gint64 end = is_followed ? span[i + 1].start_ns : span[i].end_ns;
      const gint64 took = MAX ((end - span[i].start_ns) / op->batch, 1);
      g_array_append_val (ns, took);
    }
  ExecBenchTimes times
      = exec_bench_summarise ((gint64 *)(gpointer)ns->data, ns->len, waits ? 0 : computed_ns / n);
  times.n *= op->batch;
  times.wall_ns = span[n - 1].end_ns - span[0].start_ns;
  times.own_ns = waits ? times.wall_ns : MIN (computed_ns, times.wall_ns);
  return times;
}

/* The nodes of one batch, which follow the fillers. */
static ExecTimed
timed_of (const ExecBenchOp *op, const PlanSchedule *schedule)
{
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (guint i = 0; i <= op->fillers; i++)
    plan_cursor_next (&cursor);
  return (ExecTimed){ .first = cursor.node, .last = cursor.node + op->batch - 1 };
}

/* Times one op. CPU time of this thread says what was computed only where ops are complete when
 * they are issued and no other thread takes part. */
static gboolean
walk_op (ExecWalk *walk, const ExecBenchOp *op, ExecBenchTimes *out_times, GError **error)
{
  g_autoptr (PlanTrace) trace = plan_trace_new (walk->job->kernels->name);
  const gboolean waits
      = plan_op_class (op->op.kind) == PLAN_CLASS_COLLECTIVE || !walk->device->ops->is_immediate;
  if (!exec_walk_run (walk, PLAN_SECTION_SETUP, error) || !fill (walk, op, error)
      || !walk->comm->ops->barrier (walk->comm, error))
    return FALSE;
  plan_meter_begin_step (&walk->meter);
  walk->trace = trace;
  walk->timed = timed_of (op, walk->schedule);
  const gint64 begin_ns = own_ns ();
  if (!exec_walk_run (walk, PLAN_SECTION_STEP, error))
    return FALSE;
  walk->trace = NULL;
  *out_times = times_of (op, trace, waits || walk->of->cluster->threads > 1, own_ns () - begin_ns);
  return exec_walk_run (walk, PLAN_SECTION_TEARDOWN, error);
}

/* Whether all ranks have memory for the op. */
static gboolean
agree_on_memory (ExecComm *comm, const GError *mine, gboolean *out_all, GError **error)
{
  float missing = mine ? 1 : 0;
  if (!comm->ops->all_reduce (comm, &missing, 1, PLAN_DTYPE_FP32, NULL, error))
    return FALSE;
  *out_all = missing == 0;
  return TRUE;
}

gboolean
exec_bench_run (const ExecBenchFrame *frame, const ExecBenchOp *op, guint repeats, ExecComm *comm,
                ExecBenchTimes *out_times, char **out_why, GError **error)
{
  g_autoptr (PlanSchedule) schedule = exec_bench_schedule (op, comm->rank, comm->ranks, repeats);
  g_autoptr (GError) why = NULL;
  gboolean all_open;
  ExecJob job = frame->job;
  ExecWalk walk;
  job.alone = op->params.n > 0 ? &op->params : NULL;
  *out_times = (ExecBenchTimes){ 0 };
  *out_why = NULL;
  if (!exec_walk_open (&walk, &job, job.of, schedule, comm, &why)
      && why->code != PLAN_ERROR_INFEASIBLE)
    {
      exec_walk_close (&walk);
      g_propagate_error (error, g_steal_pointer (&why));
      return FALSE;
    }
  gboolean ok = agree_on_memory (comm, why, &all_open, error);
  if (ok && all_open)
    ok = walk_op (&walk, op, out_times, error);
  else if (ok)
    *out_why = g_strdup (why ? why->message : "another rank's device has no memory for it");
  exec_walk_close (&walk);
  return ok;
}

gboolean
exec_bench_check (const ExecBenchFrame *frame, const ExecBenchOp *op, GError **error)
{
  g_autoptr (PlanSchedule) schedule
      = exec_bench_schedule (op, 0, (guint)plan_cluster_devices (frame->job.of->cluster), 1);
  return exec_runnable_check (&frame->job, frame->job.of, schedule, error);
}

/* --- ranks -------------------------------------------------------------------------------- */

/* Keeps an empty device open, so that what libraries allocated and tuned for this thread stays. */
gboolean
exec_bench_on_rank (const ExecBenchFrame *frame, ExecComm *comm, ExecBenchRank run,
                    gpointer user_data, GError **error)
{
  g_autoptr (PlanSchedule) nothing = plan_schedule_new (comm->rank, comm->ranks);
  const ExecKernels *kernels = frame->job.kernels;
  const ExecDeviceNeeds needs = { .kernels = kernels,
                                  .schedule = nothing,
                                  .comm = comm,
                                  .threads = (guint)frame->of->cluster->threads };
  if (!kernels->open (error))
    return FALSE;
  ExecDevice *device = kernels->device->open (&needs, error);
  if (!device)
    return FALSE;
  const gboolean ok = run (comm, user_data, error);
  device->ops->close (device);
  return ok;
}

/* What the thread of one rank is given. */
typedef struct
{
  const ExecBenchFrame *frame;
  ExecComm *comm;
  ExecBenchRank run;
  gpointer user_data;
  GError *error;
} Rank;

static gpointer
run_rank (gpointer data)
{
  Rank *self = data;
  if (!exec_join (&self->frame->job, &self->comm, &self->error)
      || !exec_bench_on_rank (self->frame, self->comm, self->run, self->user_data, &self->error))
    self->comm->ops->abort (self->comm, self->error->message);
  self->comm->ops->close (self->comm);
  return NULL;
}

gboolean
exec_bench_on_threads (const ExecBenchFrame *frame, guint ranks, ExecBenchRank run,
                       gpointer user_data, GError **error)
{
  g_autofree ExecComm **comms = g_new0 (ExecComm *, ranks);
  g_autofree Rank *rank = g_new0 (Rank, ranks);
  g_autofree GThread **threads = g_new0 (GThread *, ranks);
  GError *first = NULL;
  if (frame->job.join ? !exec_comm_threads_open (ranks, comms, error)
                      : !frame->job.kernels->device->open_comms (ranks, comms, error))
    return FALSE;
  for (guint r = 0; r < ranks; r++)
    {
      comms[r]->timeout_s = frame->job.timeout_s;
      rank[r] = (Rank){ .frame = frame, .comm = comms[r], .run = run, .user_data = user_data };
      threads[r] = g_thread_new ("rank", run_rank, &rank[r]);
    }
  for (guint r = 0; r < ranks; r++)
    {
      g_thread_join (threads[r]);
      if (rank[r].error && !first)
        first = rank[r].error;
      else
        g_clear_error (&rank[r].error);
    }
  if (first)
    g_propagate_error (error, first);
  return first == NULL;
}

/* --- what a walk needs beside a schedule -------------------------------------------------- */

gboolean
exec_bench_frame_init (ExecBenchFrame *self, const PlanCluster *cluster, const ExecKernels *kernels,
                       GError **error)
{
  Plan plan;
  g_autofree char *gbs = g_strdup_printf ("%" G_GINT64_FORMAT, plan_cluster_devices (cluster));
  *self = (ExecBenchFrame){ .model = plan_model_new ("llama-tiny", error) };
  plan_init (&plan);
  if (!self->model || !plan_set (&plan, "stack", "native", error)
      || !plan_set (&plan, "gbs", gbs, error) || !plan_set (&plan, "seq", "16", error)
      || !(self->of = plan_case_new (self->model, cluster, &plan, NULL, error)))
    return FALSE;
  self->job = (ExecJob){ .of = self->of,
                         .kernels = kernels,
                         .seed = 1,
                         .steps = 1,
                         .constants = { .lr = 1e-3,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .adam_eps = 1e-8,
                                        .weight_decay = 0.1,
                                        .decays_all = TRUE,
                                        .max_norm = 1,
                                        .norm_eps = self->model->norm_eps,
                                        .router_score = self->model->router_score,
                                        .pre_softmax = self->model->pre_softmax,
                                        .router_scale = self->model->router_scale,
                                        .bias_rate = 1e-3,
                                        .rope = self->model->rope,
                                        .step = 1 } };
  return TRUE;
}

void
exec_bench_frame_clear (ExecBenchFrame *self)
{
  g_clear_pointer (&self->of, plan_case_free);
  g_clear_pointer (&self->model, plan_model_free);
}
