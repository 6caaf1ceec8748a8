/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm.h"
#include "exec/comm/placement.h"
#include "exec/mpi/wait.h"
#include "planner/base/error.h"

#include <mpi.h>
#include <string.h>

/* Reductions exchange pieces by all-to-all and add them up in rank order. Pieces pass through a
 * staging buffer of this size, so that neither memory nor MPI's 32-bit counts grow with the
 * buffers. */
#define STAGE_BYTES (G_GUINT64_CONSTANT (16) << 20)

/* Most bytes that one call gathers from a rank. */
#define GATHER_BYTES (G_GUINT64_CONSTANT (1) << 30)

typedef struct
{
  ExecComm comm;
  MPI_Comm handle;
  guint8 *send, *receive; /* staging buffers; NULL until first used */
  const void **pieces;    /* the ranks' pieces in `receive` */
} MpiComm;

/* Gathers `count` bytes of each rank into `out`, at places `stride` bytes apart. With `in` it is an
 * all-to-all instead: rank r gets the bytes at place r of `in`. */
static gboolean
exchange_strided (const MpiComm *self, guint8 *out, const guint8 *in, guint64 count, guint64 stride,
                  GError **error)
{
  MPI_Datatype piece, place;
  MPI_Request request;

  MPI_TRY (MPI_Type_contiguous ((int)count, MPI_BYTE, &piece), error);
  MPI_TRY (MPI_Type_create_resized (piece, 0, (MPI_Aint)stride, &place), error);
  MPI_TRY (MPI_Type_commit (&place), error);
  if (in != NULL)
    MPI_TRY (MPI_Ialltoall (in, 1, place, out, 1, place, self->handle, &request), error);
  else
    MPI_TRY (
        MPI_Iallgather (MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 1, place, self->handle, &request),
        error);
  MPI_TRY (MPI_Type_free (&place), error);
  MPI_TRY (MPI_Type_free (&piece), error);
  return exec_mpi_wait (&self->comm, &request, in != NULL ? "all_to_all" : "all_gather", error);
}

/* Gathers `bytes` bytes of every rank in place. */
static gboolean
gather_whole (const MpiComm *self, void *out, int bytes, GError **error)
{
  MPI_Request request;

  MPI_TRY (MPI_Iallgather (MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, bytes, MPI_BYTE, self->handle,
                           &request),
           error);
  return exec_mpi_wait (&self->comm, &request, "all_gather", error);
}

static gboolean
mpi_all_gather (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                void *stream, GError **error)
{
  const MpiComm *self = (const MpiComm *)comm;
  guint64 bytes = plan_dtype_bytes (dtype, count);
  guint8 *own = (guint8 *)out + comm->rank * bytes;

  if (own != in)
    memcpy (own, in, bytes);
  if (bytes <= GATHER_BYTES)
    return gather_whole (self, out, (int)bytes, error);
  for (guint64 at = 0; at < bytes; at += GATHER_BYTES)
    if (!exchange_strided (self, (guint8 *)out + at, NULL, MIN (GATHER_BYTES, bytes - at), bytes,
                           error))
      return FALSE;
  return TRUE;
}

static gboolean
mpi_all_to_all (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                void *stream, GError **error)
{
  guint64 bytes = plan_dtype_bytes (dtype, count);

  for (guint64 at = 0; at < bytes; at += GATHER_BYTES)
    if (!exchange_strided ((const MpiComm *)comm, (guint8 *)out + at, (const guint8 *)in + at,
                           MIN (GATHER_BYTES, bytes - at), bytes, error))
      return FALSE;
  return TRUE;
}

/* Most elements of one rank's piece of the staging buffer. */
static guint64
piece_limit (const MpiComm *self, PlanDtype dtype)
{
  return MAX (STAGE_BYTES / self->comm.ranks / plan_dtype_bytes (dtype, 1), 1);
}

static void
take_stage (MpiComm *self)
{
  if (self->send != NULL)
    return;
  /* At least one element of any number format per rank. */
  guint64 bytes = MAX (STAGE_BYTES, sizeof (gint64) * self->comm.ranks);

  self->send = g_malloc (bytes);
  self->receive = g_malloc (bytes);
  self->pieces = g_new (const void *, self->comm.ranks);
}

/* Sends each rank its piece of `send`, of `count` elements. `out` becomes the fold, such as the
 * sum, of the pieces that all ranks sent to this one. */
static gboolean
exchange_and_fold (MpiComm *self, ExecCommFold fold, void *out, const void *send, guint64 count,
                   PlanDtype dtype, GError **error)
{
  int bytes = (int)plan_dtype_bytes (dtype, count);
  MPI_Request request;

  MPI_TRY (
      MPI_Ialltoall (send, bytes, MPI_BYTE, self->receive, bytes, MPI_BYTE, self->handle, &request),
      error);
  if (!exec_mpi_wait (&self->comm, &request, "all_to_all", error))
    return FALSE;
  for (guint rank = 0; rank < self->comm.ranks; rank++)
    self->pieces[rank] = self->receive + (gsize)rank * (gsize)bytes;
  fold (out, self->pieces, self->comm.ranks, count, dtype);
  return TRUE;
}

static gboolean
mpi_reduce_scatter (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                    void *stream, GError **error)
{
  MpiComm *self = (MpiComm *)comm;
  guint64 limit = piece_limit (self, dtype);

  take_stage (self);
  if (count <= limit)
    return exchange_and_fold (self, exec_comm_sum, out, in, count, dtype, error);
  for (guint64 at = 0; at < count; at += limit)
    {
      guint64 n = MIN (limit, count - at), bytes = plan_dtype_bytes (dtype, n);

      for (guint rank = 0; rank < comm->ranks; rank++)
        memcpy (self->send + rank * bytes,
                (const guint8 *)in + plan_dtype_bytes (dtype, rank * count + at), bytes);
      if (!exchange_and_fold (self, exec_comm_sum, (guint8 *)out + plan_dtype_bytes (dtype, at),
                              self->send, n, dtype, error))
        return FALSE;
    }
  return TRUE;
}

/* Folds a part of a buffer, as much as the staging buffer holds. */
static gboolean
reduce_part (MpiComm *self, ExecCommFold fold, guint8 *part, guint64 count, PlanDtype dtype,
             GError **error)
{
  guint64 ranks = self->comm.ranks, n = (count + ranks - 1) / ranks;
  guint64 bytes = plan_dtype_bytes (dtype, n), used = plan_dtype_bytes (dtype, count);

  memcpy (self->send, part, used);
  memset (self->send + used, 0, ranks * bytes - used);
  if (!exchange_and_fold (self, fold, self->send + self->comm.rank * bytes, self->send, n, dtype,
                          error))
    return FALSE;
  if (!gather_whole (self, self->send, (int)bytes, error))
    return FALSE;
  memcpy (part, self->send, used);
  return TRUE;
}

static gboolean
fold_everywhere (ExecComm *comm, ExecCommFold fold, void *buf, guint64 count, PlanDtype dtype,
                 GError **error)
{
  MpiComm *self = (MpiComm *)comm;
  guint64 limit = piece_limit (self, dtype) * comm->ranks;

  take_stage (self);
  for (guint64 at = 0; at < count; at += limit)
    if (!reduce_part (self, fold, (guint8 *)buf + plan_dtype_bytes (dtype, at),
                      MIN (limit, count - at), dtype, error))
      return FALSE;
  return TRUE;
}

static gboolean
mpi_all_reduce (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                GError **error)
{
  return fold_everywhere (comm, exec_comm_sum, buf, count, dtype, error);
}

static gboolean
mpi_all_reduce_max (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                    GError **error)
{
  return fold_everywhere (comm, exec_comm_max, buf, count, dtype, error);
}

static gboolean
mpi_barrier (ExecComm *comm, GError **error)
{
  MPI_Request request;

  MPI_TRY (MPI_Ibarrier (((MpiComm *)comm)->handle, &request), error);
  return exec_mpi_wait (comm, &request, "barrier", error);
}

/* A message each way: `out` is received from one rank, `in` is sent to another; either may be NULL.
 */
typedef struct
{
  guint8 *out;
  const guint8 *in;
  guint from, to;
  const char *call;
} Passing;

/* The receive is posted before the send, so that ranks that pass something to each other, or on in
 * a ring, do not deadlock. */
static gboolean
pass_part (MpiComm *self, const Passing *pass, guint64 at, guint64 bytes, GError **error)
{
  const gboolean takes = pass->out != NULL, gives = pass->in != NULL;
  MPI_Request receives, sends;

  if (takes)
    MPI_TRY (MPI_Irecv (pass->out + at, (int)bytes, MPI_BYTE, (int)pass->from, 0, self->handle,
                        &receives),
             error);
  if (gives)
    MPI_TRY (
        MPI_Isend (pass->in + at, (int)bytes, MPI_BYTE, (int)pass->to, 0, self->handle, &sends),
        error);
  return (!takes || exec_mpi_wait (&self->comm, &receives, pass->call, error))
         && (!gives || exec_mpi_wait (&self->comm, &sends, pass->call, error));
}

static gboolean
pass_on (ExecComm *comm, const Passing *pass, guint64 bytes, GError **error)
{
  for (guint64 at = 0; at < bytes; at += GATHER_BYTES)
    if (!pass_part ((MpiComm *)comm, pass, at, MIN (GATHER_BYTES, bytes - at), error))
      return FALSE;
  return TRUE;
}

static gboolean
mpi_trade (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype, guint peer,
           void *stream, GError **error)
{
  const Passing pass = { out, in, peer, peer, "trade" };

  return pass_on (comm, &pass, plan_dtype_bytes (dtype, count), error);
}

static gboolean
mpi_exchange (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
              guint distance, void *stream, GError **error)
{
  const Passing pass = { out, in, exec_comm_behind (comm, distance),
                         exec_comm_ahead (comm, distance), "exchange" };

  return pass_on (comm, &pass, plan_dtype_bytes (dtype, count), error);
}

/* Ends the run. MPI_Abort ends all processes, including this one, so the reason must be printed
 * now. */
static void
mpi_abort (ExecComm *comm, const char *why)
{
  if (comm->placement != NULL)
    g_warning ("rank %u on %s failed: %s", comm->rank,
               exec_placement_host (comm->placement, comm->rank), why);
  else
    g_warning ("rank %u failed: %s", comm->rank, why);
  MPI_Abort (MPI_COMM_WORLD, 1);
}

static gboolean
is_world (const MpiComm *self)
{
  return self->handle == MPI_COMM_WORLD;
}

static void
mpi_close (ExecComm *comm)
{
  MpiComm *self = (MpiComm *)comm;

  g_autoptr (GError) error = NULL;

  exec_comm_close_groups (comm);
  if (is_world (self) && !mpi_barrier (comm, &error)) /* MPI_Finalize has no deadline */
    mpi_abort (comm, error->message);
  if (!is_world (self) && MPI_Comm_free (&self->handle) != MPI_SUCCESS)
    g_warning ("MPI_Comm_free failed");
  else if (is_world (self) && MPI_Finalize () != MPI_SUCCESS)
    g_warning ("MPI_Finalize failed");
  g_free (self->send);
  g_free (self->receive);
  g_free (self->pieces);
  g_free (self);
}

static ExecComm *mpi_group (ExecComm *comm, guint size, guint stride, GError **error);

static const ExecCommOps mpi_ops = {
  .name = "mpi",
  .summary = "one process per rank, started by an MPI launcher",
  .all_gather = mpi_all_gather,
  .reduce_scatter = mpi_reduce_scatter,
  .all_to_all = mpi_all_to_all,
  .exchange = mpi_exchange,
  .all_reduce = mpi_all_reduce,
  .all_reduce_max = mpi_all_reduce_max,
  .barrier = mpi_barrier,
  .trade = mpi_trade,
  .roll = mpi_barrier,
  .group = mpi_group,
  .abort = mpi_abort,
  .close = mpi_close,
};

static ExecComm *
comm_new (MPI_Comm handle, guint rank, guint ranks)
{
  MpiComm *self = g_new0 (MpiComm, 1);

  self->comm = (ExecComm){ .ops = &mpi_ops, .rank = rank, .ranks = ranks };
  self->handle = handle;
  return &self->comm;
}

static MPI_Comm
split (ExecComm *comm, guint size, guint stride, GError **error)
{
  MPI_Comm handle;

  if (!mpi_barrier (comm, error)) /* MPI_Comm_split has no deadline: ranks meet first */
    return MPI_COMM_NULL;
  int code = MPI_Comm_split (((const MpiComm *)comm)->handle,
                             (int)exec_comm_group_of (comm->rank, size, stride), (int)comm->rank,
                             &handle);

  return exec_mpi_check (code, "MPI_Comm_split", error) ? handle : MPI_COMM_NULL;
}

static ExecComm *
mpi_group (ExecComm *comm, guint size, guint stride, GError **error)
{
  MPI_Comm handle = split (comm, size, stride, error);

  return handle != MPI_COMM_NULL ? comm_new (handle, comm->rank / stride % size, size) : NULL;
}

static gboolean
start (int *out_rank, int *out_ranks, GError **error)
{
  int is_initialized, provided;

  MPI_TRY (MPI_Initialized (&is_initialized), error);
  if (is_initialized)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_BACKEND,
                           "MPI can be opened once in a process");
      return FALSE;
    }
  /* The thread that watches NCCL may call the roll, while the driver blocks the rank's own thread.
   */
  MPI_TRY (MPI_Init_thread (NULL, NULL, MPI_THREAD_SERIALIZED, &provided), error);
  MPI_TRY (MPI_Comm_set_errhandler (MPI_COMM_WORLD, MPI_ERRORS_RETURN), error);
  MPI_TRY (MPI_Comm_rank (MPI_COMM_WORLD, out_rank), error);
  MPI_TRY (MPI_Comm_size (MPI_COMM_WORLD, out_ranks), error);
  return TRUE;
}

ExecComm *
exec_comm_mpi_open (GError **error)
{
  int rank, ranks;

  if (!start (&rank, &ranks, error))
    return NULL;
  return comm_new (MPI_COMM_WORLD, (guint)rank, (guint)ranks);
}
