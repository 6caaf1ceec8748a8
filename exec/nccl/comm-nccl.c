/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on streams. NCCL's calls never block: they answer "in progress", and a collective
 * ends when the other ranks have come. So every call is settled, which means polled until NCCL has
 * done it, which is soon; and every collective is followed by an event. Whoever waits for the
 * device calls `check` again and again, which sees NCCL's errors, a rank that said it failed, and a
 * deadline that passed. In each case all communicators of this rank are aborted together, which is
 * what ends their kernels.
 *
 * A stream takes about a thousand operations behind one that has not ended; the driver then blocks
 * the thread that issues the next one (https://forums.developer.nvidia.com/t/68937). A rank that
 * issues many micro batches behind a collective that never ends polls nothing any more, so a thread
 * of its own watches meanwhile. */
#include "config.h"

#include "exec/cuda/kernels/sum.h"
#include "exec/nccl/comm-nccl-try.h"
#include "planner/base/error.h"

#include <string.h>

#define POLLS_BEFORE_SLEEP 1000
#define SLEEP_US 50
#define WATCH_US 500000

#define OP "%s (op %u, unit %" G_GINT64_FORMAT ") among %s"

/* From this number of pending collectives on, events of those that have ended are used again. */
#define MANY_PENDING 4096

static gint64
now_ns (void)
{
  return g_get_monotonic_time () * 1000;
}

gboolean
exec_comm_nccl_check_cuda (cudaError_t code, const char *call, GError **error)
{
  if (code == cudaSuccess)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "%s: %s", call, cudaGetErrorString (code));
  return FALSE;
}

/* How long ranks wait for one another now: the timeout of the first communicator, which may
 * change. */
static gint64
timeout_ns (const NcclWorld *world)
{
  const NcclComm *first = world->comms->pdata[0];

  return first->comm.timeout_s > 0 ? first->comm.timeout_s * G_GINT64_CONSTANT (1000000000)
                                   : G_MAXINT64;
}

static void
pause_poll (guint *polls)
{
  if (++*polls > POLLS_BEFORE_SLEEP)
    g_usleep (SLEEP_US);
  else
    g_thread_yield ();
}

/* Aborts all communicators in one group, which stops the kernels of all before it waits for any: an
 * abort frees memory, so it waits for all that the GPU does, in other communicators too (NCCL's
 * issues 549 and 564). */
static gpointer
abort_all (gpointer data)
{
  NcclWorld *world = data;

  cudaSetDevice (world->device); /* NCCL makes this device current again after each call */
  ncclGroupStart ();
  for (guint i = 0; i < world->aborted->len; i++)
    ncclCommAbort (world->aborted->pdata[i]);
  g_atomic_int_set (&world->is_stopped, TRUE);
  if (ncclGroupEnd () != ncclSuccess)
    g_debug ("NCCL does not abort the communicators of rank %u", world->rank);
  return NULL;
}

/* Lets another thread abort all communicators, and returns once their kernels have been told to
 * end. The abort itself also waits until no graph has a collective of the communicator
 * (localPersistentRefs in NCCL's init.cc), and the calling thread has to destroy those graphs. */
void
exec_comm_nccl_give_up (NcclWorld *world, const char *reason)
{
  guint polls = 0;

  if (world->reason != NULL)
    return;
  world->reason = g_strdup (reason);
  for (guint i = world->comms->len; i-- > 0;) /* groups before their parents */
    {
      NcclComm *comm = world->comms->pdata[i];

      if (comm->handle != NULL)
        g_ptr_array_add (world->aborted, comm->handle);
      comm->handle = NULL;
    }
  world->aborting = g_thread_new ("nccl-abort", abort_all, world);
  while (!g_atomic_int_get (&world->is_stopped))
    pause_poll (&polls);
}

void
exec_comm_nccl_end_abort (NcclWorld *world)
{
  if (world->aborting != NULL)
    g_thread_join (g_steal_pointer (&world->aborting));
}

gboolean
exec_comm_nccl_is_usable (const NcclComm *self, GError **error)
{
  if (self->world->reason == NULL)
    return TRUE;
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_BACKEND, self->world->reason);
  return FALSE;
}

/* Gives up with this message, behind the number of the rank, as the reason. Always FALSE. */
G_GNUC_PRINTF (3, 4)
static gboolean
fail (const NcclComm *self, GError **error, const char *format, ...)
{
  NcclWorld *world = self->world;
  va_list args;

  va_start (args, format);
  g_autofree char *what = g_strdup_vprintf (format, args);
  va_end (args);
  g_autofree char *reason = g_strdup_printf ("rank %u: %s", world->rank, what);
  exec_comm_nccl_give_up (world, reason);
  return exec_comm_nccl_is_usable (self, error);
}

/* The same where another rank may be lost, which is named where it can be found out. */
static gboolean
fail_with_roll (const NcclComm *self, const char *what, GError **error)
{
  g_autofree char *missing = exec_comm_nccl_call_roll (self->world, what);

  return fail (self, error, "%s: %s", what, missing != NULL ? missing : "a rank is lost, or late");
}

static gboolean
fail_late (const NcclComm *self, const char *what, gint64 limit_ns, GError **error)
{
  g_autofree char *late
      = g_strdup_printf ("%s has not ended after %.3g s", what, 1e-9 * (double)limit_ns);

  return fail_with_roll (self, late, error);
}

/* Names a call in a message, with its op if it is a collective of the schedule, and without its
 * arguments. The caller frees. */
static char *
describe (const NcclComm *self, const char *text, gboolean is_op)
{
  const char *arguments = strstr (text, " (");
  g_autofree char *call = g_strndup (text, arguments ? (gsize)(arguments - text) : strlen (text));

  return is_op ? g_strdup_printf (OP, call, self->comm.node, self->comm.unit, self->name)
               : g_strdup_printf ("%s among %s", call, self->name);
}

static gboolean
fail_nccl (const NcclComm *self, ncclResult_t result, const char *what, GError **error)
{
  const char *last = ncclGetLastError (self->handle);
  const gboolean has_more = last != NULL && *last != '\0';

  g_autofree char *text = g_strdup_printf ("%s: %s%s%s", what, ncclGetErrorString (result),
                                           has_more ? ": " : "", has_more ? last : "");

  if (result == ncclRemoteError)
    return fail_with_roll (self, text, error);
  return fail (self, error, "%s", text);
}

/* Gives up, and is FALSE, if another rank said that it failed. */
static gboolean
others_are_well (const NcclComm *self, GError **error)
{
  ExecComm *carrier = self->world->carrier;
  g_autoptr (GError) why = NULL;

  if (carrier == NULL || carrier->ops->check == NULL || carrier->ops->check (carrier, &why))
    return TRUE;
  exec_comm_nccl_give_up (self->world, why->message);
  return exec_comm_nccl_is_usable (self, error);
}

/* Polls until NCCL is done; FALSE if another rank failed or the deadline passed. */
static gboolean
await_nccl (const NcclComm *self, ncclResult_t *result, const char *call, gboolean is_op,
            GError **error)
{
  const gint64 begin_ns = now_ns (), limit_ns = timeout_ns (self->world);
  guint polls = 0;

  while (*result == ncclInProgress)
    {
      const ncclResult_t asked = ncclCommGetAsyncError (self->handle, result);

      if (asked != ncclSuccess)
        *result = asked;
      if (*result != ncclInProgress)
        break;
      if (!others_are_well (self, error))
        return FALSE;
      if (now_ns () - begin_ns > limit_ns)
        {
          g_autofree char *what = describe (self, call, is_op);

          return fail_late (self, what, limit_ns, error);
        }
      pause_poll (&polls);
    }
  return TRUE;
}

/* Waits for a call, even if it answered "success": calls that make communicators and windows do so
 * while a thread of NCCL's is still at it, and give what they make when it ends (ncclCommSplit and
 * ncclCommWindowRegister of NCCL 2.28 drop what ncclGroupEndInternal says). */
static gboolean
settle (const NcclComm *self, ncclResult_t result, const char *call, gboolean is_op, GError **error)
{
  g_autofree char *what = NULL;

  if (result == ncclSuccess)
    result = ncclInProgress;
  if (!await_nccl (self, &result, call, is_op, error))
    return FALSE;
  if (result == ncclSuccess)
    return TRUE;
  what = describe (self, call, is_op);
  return fail_nccl (self, result, what, error);
}

gboolean
exec_comm_nccl_settle (NcclComm *self, ncclResult_t result, const char *call, GError **error)
{
  return settle (self, result, call, FALSE, error);
}

/* --- what is under way -------------------------------------------------------------------- */

static char *
describe_pending (const NcclPending *pending)
{
  return g_strdup_printf (OP, pending->call, pending->node, pending->unit, pending->comm->name);
}

/* Forgets pending collectives that have ended, from the oldest to the first that has not. */
static gboolean
reap (NcclWorld *world, GError **error)
{
  const NcclPending *oldest;

  while ((oldest = g_queue_peek_head (&world->pending)) != NULL)
    {
      const cudaError_t state = cudaEventQuery (oldest->done);

      if (state == cudaErrorNotReady)
        break;
      if (state != cudaSuccess)
        {
          g_autofree char *what = describe_pending (oldest);

          return fail (oldest->comm, error, "%s: %s", what, cudaGetErrorString (state));
        }
      world->ended_ns = now_ns ();
      g_ptr_array_add (world->spare, g_queue_pop_head (&world->pending));
    }
  return TRUE;
}

static gboolean
check_nccl (const NcclWorld *world, GError **error)
{
  for (guint i = 0; i < world->comms->len; i++)
    {
      const NcclComm *comm = world->comms->pdata[i];
      ncclResult_t state = ncclSuccess, asked = ncclCommGetAsyncError (comm->handle, &state);

      if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
        return fail_nccl (comm, asked != ncclSuccess ? asked : state, comm->name, error);
    }
  return TRUE;
}

/* Whether the oldest pending collective was issued longer ago than ranks wait; it may have ended.
 */
static gboolean
seems_late (const NcclWorld *world)
{
  const NcclPending *oldest = world->pending.head != NULL ? world->pending.head->data : NULL;

  return oldest != NULL
         && now_ns () - MAX (oldest->issued_ns, world->ended_ns) > timeout_ns (world);
}

/* Whether the oldest pending collective is within the deadline. Events are queried only when it
 * seems not to be: a query that finds an event done also orders the host behind it, and whether it
 * does that should not depend on timing. So a missed deadline may be seen only after twice the
 * time. */
static gboolean
is_in_time (NcclWorld *world, GError **error)
{
  const gint64 limit_ns = timeout_ns (world);
  const NcclPending *oldest = g_queue_peek_head (&world->pending);
  g_autofree char *what = NULL;

  if (!seems_late (world))
    return TRUE;
  if (!reap (world, error))
    return FALSE;
  if (g_queue_peek_head (&world->pending) != oldest)
    return TRUE;
  what = describe_pending (oldest);
  return fail_late (oldest->comm, what, limit_ns, error);
}

static gboolean
check_all (const NcclComm *self, GError **error)
{
  return exec_comm_nccl_is_usable (self, error) && others_are_well (self, error)
         && check_nccl (self->world, error) && is_in_time (self->world, error);
}

static gboolean
nccl_check (ExecComm *comm, GError **error)
{
  INSIDE (comm);

  return check_all ((const NcclComm *)comm, error);
}

/* What the rank's own thread would do if it could. Events are asked for on the rank's GPU, so that
 * CUDA makes no context on another one for this thread. */
static gpointer
watch (gpointer data)
{
  NcclWorld *world = data;

  g_mutex_lock (&world->watch_mutex);
  while (!world->is_closing)
    {
      g_autoptr (GError) error = NULL;

      g_cond_wait_until (&world->watch_ends, &world->watch_mutex,
                         g_get_monotonic_time () + WATCH_US);
      if (world->is_closing || !g_mutex_trylock (&world->mutex))
        continue;
      if (seems_late (world))
        cudaSetDevice (world->device);
      if (!check_all (world->comms->pdata[0], &error))
        g_debug ("%s", error->message); /* the rank's thread is told by its next call */
      g_mutex_unlock (&world->mutex);
    }
  g_mutex_unlock (&world->watch_mutex);
  return NULL;
}

void
exec_comm_nccl_begin_watch (NcclWorld *world)
{
  world->watch = g_thread_new ("nccl-watch", watch, world);
}

void
exec_comm_nccl_end_watch (NcclWorld *world)
{
  if (world->watch == NULL)
    return;
  g_mutex_lock (&world->watch_mutex);
  world->is_closing = TRUE;
  g_cond_signal (&world->watch_ends);
  g_mutex_unlock (&world->watch_mutex);
  g_thread_join (g_steal_pointer (&world->watch));
}

/* Whether the stream is being captured: the end of what is in a graph cannot be queried. */
static gboolean
is_captured (cudaStream_t stream, gboolean *out, GError **error)
{
  enum cudaStreamCaptureStatus status;

  CUDA_TRY (cudaStreamIsCapturing (stream, &status), error);
  *out = status != cudaStreamCaptureStatusNone;
  return TRUE;
}

/* Makes sure that there is a spare event. */
static gboolean
spare_event (NcclWorld *world, GError **error)
{
  NcclPending *made;

  if (world->spare->len == 0 && world->pending.length >= MANY_PENDING && !reap (world, error))
    return FALSE;
  if (world->spare->len > 0)
    return TRUE;
  made = g_new0 (NcclPending, 1);
  g_ptr_array_add (world->spare, made);
  CUDA_TRY (cudaEventCreateWithFlags (&made->done, cudaEventDisableTiming), error);
  return TRUE;
}

gboolean
exec_comm_nccl_follow (NcclComm *self, const char *call, cudaStream_t stream, GError **error)
{
  NcclWorld *world = self->world;
  gboolean captured;
  NcclPending *pending;

  if (!is_captured (stream, &captured, error))
    return FALSE;
  if (captured)
    return TRUE;
  if (!spare_event (world, error))
    return FALSE;
  pending = world->spare->pdata[world->spare->len - 1];
  CUDA_TRY_OUTSIDE (world, cudaEventRecord (pending->done, stream), error);
  *pending = (NcclPending){ .done = pending->done,
                            .comm = self,
                            .call = call,
                            .node = self->comm.node,
                            .unit = self->comm.unit,
                            .issued_ns = now_ns () };
  g_queue_push_tail (&world->pending, pending);
  g_ptr_array_set_size (world->spare, (int)world->spare->len - 1);
  return TRUE;
}

gboolean
exec_comm_nccl_wait (NcclComm *self, cudaStream_t stream, GError **error)
{
  cudaError_t state;
  guint polls = 0;

  while ((state = cudaStreamQuery (stream)) == cudaErrorNotReady)
    {
      if (!check_all (self, error))
        return FALSE;
      pause_poll (&polls);
    }
  CUDA_TRY (state, error);
  return TRUE;
}

gboolean
exec_comm_nccl_wait_for_all (NcclComm *self, GError **error)
{
  guint polls = 0;

  while (check_all (self, error) && reap (self->world, error))
    {
      if (g_queue_is_empty (&self->world->pending))
        return TRUE;
      pause_poll (&polls);
    }
  return FALSE;
}

/* --- collectives -------------------------------------------------------------------------- */

static gboolean
type_of (PlanDtype dtype, ncclDataType_t *out, GError **error)
{
  switch ((int)dtype)
    {
    case PLAN_DTYPE_FP32:
      *out = ncclFloat32;
      return TRUE;
    case PLAN_DTYPE_BF16:
      *out = ncclBfloat16;
      return TRUE;
    case PLAN_DTYPE_FP16:
      *out = ncclFloat16;
      return TRUE;
    default:
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "NCCL sums fp32, bf16 and fp16 here, not %s", plan_dtype_name (dtype));
      return FALSE;
    }
}

/* Settles a collective that was issued, and follows it by an event. All collectives on streams end
 * with this. */
static gboolean
finish_issue (NcclComm *self, ncclResult_t result, const char *call, cudaStream_t stream,
              GError **error)
{
  return settle (self, result, call, TRUE, error)
         && exec_comm_nccl_follow (self, call, stream, error);
}

static gboolean
nccl_all_gather (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                 void *stream, GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  const guint64 bytes = plan_dtype_bytes (dtype, count);

  if (!exec_comm_nccl_is_usable (self, error))
    return FALSE;
  if (stream == NULL)
    return exec_comm_nccl_host_gather (self, out, in, bytes, error);
  return finish_issue (self, ncclAllGather (in, out, bytes, ncclUint8, self->handle, stream),
                       "all_gather", stream, error);
}

static gboolean
nccl_reduce_scatter (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                     void *stream, GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  ncclDataType_t type;

  if (!exec_comm_nccl_is_usable (self, error))
    return FALSE;
  if (stream == NULL)
    return exec_comm_nccl_host_scatter (self, exec_comm_sum, out, in, count, dtype, error);
  return type_of (dtype, &type, error)
         && finish_issue (self,
                          ncclReduceScatter (in, out, count, type, ncclSum, self->handle, stream),
                          "reduce_scatter", stream, error);
}

/* Issues one gather or reduction, alone or in an open group. */
static ncclResult_t
issue_part (const NcclComm *self, gboolean reduces, const ExecCommPart *part, ncclDataType_t type,
            cudaStream_t stream)
{
  return reduces ? ncclReduceScatter (part->in, part->out, part->count, type, ncclSum, self->handle,
                                      stream)
                 : ncclAllGather (part->in, part->out, plan_dtype_bytes (part->dtype, part->count),
                                  ncclUint8, self->handle, stream);
}

/* Issues several as one group, for which NCCL makes one thread and launches one kernel. Within it
 * "in progress" is a success: nothing starts before the group ends. */
static ncclResult_t
issue_parts (const NcclComm *self, gboolean reduces, const ExecCommPart *parts,
             const ncclDataType_t *types, guint n, cudaStream_t stream)
{
  ncclResult_t result = ncclGroupStart (), ended;

  for (guint i = 0; i < n && (result == ncclSuccess || result == ncclInProgress); i++)
    result = issue_part (self, reduces, &parts[i], types[i], stream);
  ended = ncclGroupEnd ();
  return result != ncclSuccess && result != ncclInProgress ? result : ended;
}

static gboolean
nccl_together (ExecComm *comm, gboolean reduces, const ExecCommPart *parts, guint n, void *stream,
               GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  g_autofree ncclDataType_t *types = g_new0 (ncclDataType_t, n);

  if (!exec_comm_nccl_is_usable (self, error))
    return FALSE;
  for (guint i = 0; reduces && i < n; i++)
    if (!type_of (parts[i].dtype, &types[i], error))
      return FALSE;
  return finish_issue (self, issue_parts (self, reduces, parts, types, n, stream),
                       reduces ? "reduce_scatter" : "all_gather", stream, error);
}

/* Adds to the open group a send of `bytes` to a rank and a receive of as many from one; what is
 * NULL of `in` and `out` is left out. Nothing starts before the group ends, so "in progress" is a
 * success. */
static ncclResult_t
transfer (const NcclComm *self, void *out, guint from, const void *in, guint to, guint64 bytes,
          cudaStream_t stream)
{
  ncclResult_t result = ncclSuccess;

  if (in != NULL)
    result = ncclSend (in, bytes, ncclUint8, (int)to, self->handle, stream);
  if (out != NULL && (result == ncclSuccess || result == ncclInProgress))
    result = ncclRecv (out, bytes, ncclUint8, (int)from, self->handle, stream);
  return result == ncclInProgress ? ncclSuccess : result;
}

/* Sends `bytes` to every rank, and receives as many from each, as one group. */
static ncclResult_t
send_to_all (const NcclComm *self, void *out, const void *in, guint64 bytes, cudaStream_t stream)
{
  ncclResult_t result = ncclGroupStart (), ended;

  for (guint peer = 0; peer < self->comm.ranks && result == ncclSuccess; peer++)
    result = transfer (self, (guint8 *)out + peer * bytes, peer, (const guint8 *)in + peer * bytes,
                       peer, bytes, stream);
  ended = ncclGroupEnd ();
  return result != ncclSuccess ? result : ended;
}

/* Sends and receives in one group: else ranks that all give would wait for each other to take. */
ncclResult_t
exec_comm_nccl_pass (const NcclComm *self, void *out, guint from, const void *in, guint to,
                     guint64 bytes, cudaStream_t stream)
{
  ncclResult_t result = ncclGroupStart (), ended;

  if (result == ncclSuccess)
    result = transfer (self, out, from, in, to, bytes, stream);
  ended = ncclGroupEnd ();
  return result != ncclSuccess ? result : ended;
}

static gboolean
nccl_all_to_all (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                 void *stream, GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  const guint64 bytes = plan_dtype_bytes (dtype, count);

  if (!exec_comm_nccl_is_usable (self, error))
    return FALSE;
  if (stream == NULL)
    return exec_comm_nccl_host_exchange (self, out, in, bytes, error);
  return finish_issue (self, send_to_all (self, out, in, bytes, stream), "all_to_all", stream,
                       error);
}

/* NCCL runs the ops of a communicator in the order of issue, whatever streams they are on
 * (ncclLaunchPrepare in its enqueue.cc), and connects two ranks at their first trade, for which
 * both must have come. Neither is a deadlock: plan_schedule_check_stages shows that in this order
 * all stages go on even if each waits at every trade until its peer is there. */
static gboolean
nccl_trade (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype, guint peer,
            void *stream, GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  const guint64 bytes = plan_dtype_bytes (dtype, count);

  if (!exec_comm_nccl_is_usable (self, error))
    return FALSE;
  if (stream == NULL)
    return exec_comm_nccl_host_pass (self, out, peer, in, peer, bytes, error);
  return finish_issue (self, exec_comm_nccl_pass (self, out, peer, in, peer, bytes, stream),
                       "trade", stream, error);
}

static gboolean
nccl_exchange (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
               guint distance, void *stream, GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  const guint64 bytes = plan_dtype_bytes (dtype, count);
  const guint from = exec_comm_behind (comm, distance), to = exec_comm_ahead (comm, distance);

  if (!exec_comm_nccl_is_usable (self, error))
    return FALSE;
  if (stream == NULL)
    return exec_comm_nccl_host_pass (self, out, from, in, to, bytes, error);
  return finish_issue (self, exec_comm_nccl_pass (self, out, from, in, to, bytes, stream),
                       "exchange", stream, error);
}

static gboolean
nccl_all_reduce (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                 GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  ncclDataType_t type;

  if (!exec_comm_nccl_is_usable (self, error))
    return FALSE;
  if (stream == NULL)
    return exec_comm_nccl_host_reduce (self, exec_comm_sum, buf, count, dtype, error);
  return type_of (dtype, &type, error)
         && finish_issue (self,
                          ncclAllReduce (buf, buf, count, type, ncclSum, self->handle, stream),
                          "all_reduce", stream, error);
}

/* NCCL's maximum drops NaNs, so they become infinity first. */
static gboolean
nccl_all_reduce_max (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                     GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  ncclDataType_t type;

  if (!exec_comm_nccl_is_usable (self, error))
    return FALSE;
  if (stream == NULL && dtype == PLAN_DTYPE_FP32)
    return exec_comm_nccl_host_max (self, buf, count, error);
  if (stream == NULL)
    return exec_comm_nccl_host_reduce (self, exec_comm_max, buf, count, dtype, error);
  if (!type_of (dtype, &type, error))
    return FALSE;
  CUDA_TRY_OUTSIDE (self->world, (cudaError_t)exec_cuda_nan_to_infinity (buf, count, dtype, stream),
                    error);
  return finish_issue (self, ncclAllReduce (buf, buf, count, type, ncclMax, self->handle, stream),
                       "all_reduce_max", stream, error);
}

/* A maximum over all ranks is known only when all have come. */
static gboolean
nccl_barrier (ExecComm *comm, GError **error)
{
  INSIDE (comm);
  float nothing = 0;

  return exec_comm_nccl_is_usable ((NcclComm *)comm, error)
         && exec_comm_nccl_host_max ((NcclComm *)comm, &nothing, 1, error);
}

static void
nccl_abort (ExecComm *comm, const char *why)
{
  NcclWorld *world = ((NcclComm *)comm)->world;
  g_autofree char *own = g_strdup_printf ("rank %u: ", world->rank);
  const char *what = g_str_has_prefix (why, own) ? why + strlen (own) : why;
  g_autofree char *reason = g_strdup_printf ("rank %u failed: %s", world->rank, what);

  g_mutex_lock (&world->mutex);
  exec_comm_nccl_give_up (world, reason);
  g_mutex_unlock (&world->mutex);
  if (world->carrier != NULL)
    world->carrier->ops->abort (world->carrier, what);
}

static gboolean
nccl_settle (ExecComm *comm, GError **error)
{
  INSIDE (comm);

  return exec_comm_nccl_wait_for_all ((NcclComm *)comm, error);
}

static gboolean
nccl_follow (ExecComm *comm, const char *what, void *stream, GError **error)
{
  INSIDE (comm);

  return exec_comm_nccl_follow ((NcclComm *)comm, what, stream, error);
}

/* All ranks must agree on whether a call is captured, and on which launch of the graph runs it (the
 * NCCL user guide, "Using NCCL with CUDA Graphs"): they capture the same step, after one that
 * connected them, and launch it equally often. */
const ExecCommOps exec_comm_nccl_ops = {
  .name = "nccl",
  .summary = "one GPU per rank, joined by NCCL",
  .has_graphs = TRUE,
  .has_graphs_apart = TRUE,
  .all_gather = nccl_all_gather,
  .reduce_scatter = nccl_reduce_scatter,
  .together = nccl_together,
  .all_to_all = nccl_all_to_all,
  .all_reduce = nccl_all_reduce,
  .all_reduce_max = nccl_all_reduce_max,
  .barrier = nccl_barrier,
  .vote = exec_comm_nccl_vote,
  .exchange = nccl_exchange,
  .trade = nccl_trade,
  .check = nccl_check,
  .settle = nccl_settle,
  .follow = nccl_follow,
  .take = exec_comm_nccl_take,
  .give_back = exec_comm_nccl_give_back,
  .group = exec_comm_nccl_group,
  .abort = nccl_abort,
  .close = exec_comm_nccl_close,
};

/* First-order bounds of the rounding errors of sums (Higham, Accuracy and Stability of Numerical
 * Algorithms, 4.2), of NCCL's sum and of exec_comm_sum's together. */
double
exec_comm_nccl_sum_error (guint ranks, PlanDtype dtype, gboolean is_symmetric)
{
  const double fp32 = 0x1p-24, adds = ranks - 1;
  const double stored = dtype == PLAN_DTYPE_BF16   ? 0x1p-8
                        : dtype == PLAN_DTYPE_FP16 ? 0x1p-11
                                                   : fp32;
  const double own = adds * fp32 + stored, other = is_symmetric ? own : adds * stored;

  return ranks == 1 ? 0 : (own + other) * (1 + own + other);
}
