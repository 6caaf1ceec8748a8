/* SPDX-License-Identifier: Apache-2.0 */
/* ExecComm of ranks that are threads of one process and share a GPU, each with streams of its own.
 * In a collective the ranks tell each other, by the threads' communicator, where their buffers are.
 * Each rank's stream waits for the "ready" events of all, reads the others' memory, and then waits
 * for the "done" events of all. Hosts meet and streams wait by events; no host waits for the GPU.
 *
 * An event is recorded again at the next collective: by then all ranks have met, and so have issued
 * their waits for its earlier record. A trade is between two ranks, while others may be at another
 * trade, so each pair of ranks has events of its own for trades. */
#include "config.h"

#include "exec/cuda/cuda-check.h"
#include "exec/cuda/device-cuda.h"
#include "exec/cuda/kernels/sum.h"
#include "planner/base/error.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* The state that all ranks of a communicator share. The last rank to close frees it with all
 * events, because another rank's streams may still have to wait for this one's. */
typedef struct
{
  gatomicrefcount open;
  guint ranks;
  cudaEvent_t *ready, *done;   /* one per rank */
  cudaEvent_t *given, *traded; /* of trades: one per rank and peer */
} Shared;

typedef struct
{
  ExecComm comm;
  ExecComm *host; /* the same ranks as threads: how their hosts meet */
  Shared *shared;
} CudaComm;

/* What a rank tells the others of its part in a collective. */
typedef struct
{
  char name[16];
  guint64 count;
  gint64 dtype;
  guint8 *out;
  const guint8 *in;
} Post;

static Shared *
shared_new (guint ranks)
{
  Shared *self = g_new0 (Shared, 1);
  g_atomic_ref_count_init (&self->open);
  for (guint i = 1; i < ranks; i++)
    g_atomic_ref_count_inc (&self->open);
  self->ranks = ranks;
  self->ready = g_new0 (cudaEvent_t, ranks);
  self->done = g_new0 (cudaEvent_t, ranks);
  self->given = g_new0 (cudaEvent_t, (gsize)ranks * ranks);
  self->traded = g_new0 (cudaEvent_t, (gsize)ranks * ranks);
  return self;
}

static void
destroy_events (cudaEvent_t *events, guint n)
{
  for (guint i = 0; i < n; i++)
    if (events[i])
      CUDA_WARN (cudaEventDestroy (events[i]));
  g_free (events);
}

static void
shared_close (Shared *self)
{
  if (!g_atomic_ref_count_dec (&self->open))
    return;
  destroy_events (self->ready, self->ranks);
  destroy_events (self->done, self->ranks);
  destroy_events (self->given, self->ranks * self->ranks);
  destroy_events (self->traded, self->ranks * self->ranks);
  g_free (self);
}

/* --- meeting ------------------------------------------------------------------------------ */

static gboolean
record (cudaEvent_t *event, cudaStream_t stream, GError **error)
{
  if (!*event)
    CUDA_TRY (cudaEventCreateWithFlags (event, cudaEventDisableTiming), error);
  CUDA_TRY (cudaEventRecord (*event, stream), error);
  return TRUE;
}

static gboolean
wait_for_others (const CudaComm *self, const cudaEvent_t *events, cudaStream_t stream,
                 GError **error)
{
  for (guint rank = 0; rank < self->comm.ranks; rank++)
    if (rank != self->comm.rank)
      CUDA_TRY (cudaStreamWaitEvent (stream, events[rank], 0), error);
  return TRUE;
}

/* Whether all ranks call the same collective, with the same count and format. */
static gboolean
posts_agree (const Post *posts, guint ranks, GError **error)
{
  for (guint rank = 1; rank < ranks; rank++)
    if (strcmp (posts[rank].name, posts[0].name) != 0 || posts[rank].count != posts[0].count
        || posts[rank].dtype != posts[0].dtype)
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND,
                     "the ranks do not call the same collective: %s of %" G_GUINT64_FORMAT
                     " %s on rank 0, %s of %" G_GUINT64_FORMAT " %s on rank %u",
                     posts[0].name, posts[0].count, plan_dtype_name ((PlanDtype)posts[0].dtype),
                     posts[rank].name, posts[rank].count,
                     plan_dtype_name ((PlanDtype)posts[rank].dtype), rank);
        return FALSE;
      }
  return TRUE;
}

/* Begins a collective: meets the other ranks. Afterwards this rank's stream waits for all that any
 * rank did to its buffers before the collective. */
static gboolean
begin (CudaComm *self, const char *name, void *out, const void *in, guint64 count, PlanDtype dtype,
       cudaStream_t stream, Post *posts, GError **error)
{
  Post own = { .count = count, .dtype = dtype, .out = out, .in = in };
  g_strlcpy (own.name, name, sizeof own.name);
  return record (&self->shared->ready[self->comm.rank], stream, error)
         && self->host->ops->all_gather (self->host, posts, &own, sizeof own, PLAN_DTYPE_U8, NULL,
                                         error)
         && posts_agree (posts, self->comm.ranks, error)
         && wait_for_others (self, self->shared->ready, stream, error);
}

/* Meets the other ranks again, to end a collective. Afterwards the stream waits for all that ranks
 * read and wrote in the collective. */
static gboolean
meet_again (CudaComm *self, cudaStream_t stream, GError **error)
{
  return record (&self->shared->done[self->comm.rank], stream, error)
         && self->host->ops->barrier (self->host, error)
         && wait_for_others (self, self->shared->done, stream, error);
}

static gboolean
copy (void *to, const void *from, guint64 bytes, cudaStream_t stream, GError **error)
{
  if (to != from && bytes > 0)
    CUDA_TRY (cudaMemcpyAsync (to, from, bytes, cudaMemcpyDeviceToDevice, stream), error);
  return TRUE;
}

/* Combines the arrays of all ranks into one, element by element: exec_cuda_sum or exec_cuda_max. */
typedef int (*Fold) (void *out, const void *const *in, unsigned ranks, uint64_t count,
                     PlanDtype dtype, void *stream);

/* out = elements [from, from + count) of what all ranks brought, combined by `fold`. */
static gboolean
fold_posts (const CudaComm *self, const Post *posts, Fold fold, void *out, guint64 from,
            guint64 count, PlanDtype dtype, cudaStream_t stream, GError **error)
{
  const void *in[EXEC_CUDA_MAX_SUMMED];
  for (guint rank = 0; rank < self->comm.ranks; rank++)
    in[rank] = posts[rank].in + plan_dtype_bytes (dtype, from);
  return exec_cuda_check (fold (out, in, self->comm.ranks, count, dtype, stream),
                          fold == exec_cuda_sum ? "the sum over ranks" : "the maximum over ranks",
                          error);
}

/* --- collectives -------------------------------------------------------------------------- */

static gboolean
cuda_all_gather (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                 void *stream, GError **error)
{
  CudaComm *self = (CudaComm *)comm;
  const guint64 bytes = plan_dtype_bytes (dtype, count);
  g_autofree Post *posts = g_new0 (Post, comm->ranks);
  if (!stream)
    return self->host->ops->all_gather (self->host, out, in, count, dtype, NULL, error);
  if (!begin (self, "all_gather", out, in, count, dtype, stream, posts, error))
    return FALSE;
  for (guint rank = 0; rank < comm->ranks; rank++)
    if (!copy ((guint8 *)out + rank * bytes, posts[rank].in, bytes, stream, error))
      return FALSE;
  return meet_again (self, stream, error);
}

static gboolean
cuda_reduce_scatter (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                     void *stream, GError **error)
{
  CudaComm *self = (CudaComm *)comm;
  g_autofree Post *posts = g_new0 (Post, comm->ranks);
  if (!stream)
    return self->host->ops->reduce_scatter (self->host, out, in, count, dtype, NULL, error);
  return begin (self, "reduce_scatter", out, in, count, dtype, stream, posts, error)
         && fold_posts (self, posts, exec_cuda_sum, out, comm->rank * count, count, dtype, stream,
                        error)
         && meet_again (self, stream, error);
}

static gboolean
cuda_all_to_all (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                 void *stream, GError **error)
{
  CudaComm *self = (CudaComm *)comm;
  const guint64 bytes = plan_dtype_bytes (dtype, count);
  g_autofree Post *posts = g_new0 (Post, comm->ranks);
  if (!stream)
    return self->host->ops->all_to_all (self->host, out, in, count, dtype, NULL, error);
  if (!begin (self, "all_to_all", out, in, count, dtype, stream, posts, error))
    return FALSE;
  for (guint rank = 0; rank < comm->ranks; rank++)
    if (!copy ((guint8 *)out + rank * bytes, posts[rank].in + comm->rank * bytes, bytes, stream,
               error))
      return FALSE;
  return meet_again (self, stream, error);
}

static gboolean
cuda_exchange (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
               guint distance, void *stream, GError **error)
{
  CudaComm *self = (CudaComm *)comm;
  const guint before = exec_comm_behind (comm, distance);
  g_autofree Post *posts = g_new0 (Post, comm->ranks);
  if (!stream)
    return self->host->ops->exchange (self->host, out, in, count, dtype, distance, NULL, error);
  return begin (self, "exchange", out, in, count, dtype, stream, posts, error)
         && copy (out, posts[before].in, plan_dtype_bytes (dtype, count), stream, error)
         && meet_again (self, stream, error);
}

/* First element of a rank's slice of `count` elements. */
static guint64
slice_start (const ExecComm *comm, guint rank, guint64 count)
{
  return count / comm->ranks * rank + MIN (rank, count % comm->ranks);
}

/* Each rank folds one slice into its own buffer, in place, because no other rank reads that slice
 * there. Then all ranks copy each other's slices. */
static gboolean
fold_everywhere (CudaComm *self, const char *name, Fold fold, void *buf, guint64 count,
                 PlanDtype dtype, cudaStream_t stream, GError **error)
{
  const ExecComm *comm = &self->comm;
  const guint64 from = slice_start (comm, comm->rank, count);
  const guint64 n = slice_start (comm, comm->rank + 1, count) - from;
  g_autofree Post *posts = g_new0 (Post, comm->ranks);
  if (!begin (self, name, buf, buf, count, dtype, stream, posts, error)
      || !fold_posts (self, posts, fold, (guint8 *)buf + plan_dtype_bytes (dtype, from), from, n,
                      dtype, stream, error)
      || !meet_again (self, stream, error)
      || !begin (self, name, buf, buf, count, dtype, stream, posts, error))
    return FALSE;
  for (guint rank = 0; rank < comm->ranks; rank++)
    {
      const guint64 start = slice_start (comm, rank, count);
      const guint64 at = plan_dtype_bytes (dtype, start);
      const guint64 end = plan_dtype_bytes (dtype, slice_start (comm, rank + 1, count));
      if (!copy ((guint8 *)buf + at, posts[rank].in + at, end - at, stream, error))
        return FALSE;
    }
  return meet_again (self, stream, error);
}

static gboolean
cuda_all_reduce (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                 GError **error)
{
  CudaComm *self = (CudaComm *)comm;
  if (!stream)
    return self->host->ops->all_reduce (self->host, buf, count, dtype, NULL, error);
  return fold_everywhere (self, "all_reduce", exec_cuda_sum, buf, count, dtype, stream, error);
}

static gboolean
cuda_all_reduce_max (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                     GError **error)
{
  CudaComm *self = (CudaComm *)comm;
  if (!stream)
    return self->host->ops->all_reduce_max (self->host, buf, count, dtype, NULL, error);
  return fold_everywhere (self, "all_reduce_max", exec_cuda_max, buf, count, dtype, stream, error);
}

/* A rank's part in a trade as text, "gives and takes 5 fp32". The caller frees. */
static char *
describe_trade (const Post *post)
{
  return g_strdup_printf ("%s%s%s %" G_GUINT64_FORMAT " %s", post->in ? "gives" : "",
                          post->in && post->out ? " and " : "", post->out ? "takes" : "",
                          post->count, plan_dtype_name ((PlanDtype)post->dtype));
}

/* Whether each rank gives what the other one takes. */
static gboolean
trade_agrees (const CudaComm *self, const Post *own, guint peer, const Post *other, GError **error)
{
  if (!own->in == !other->out && !own->out == !other->in && own->count == other->count
      && own->dtype == other->dtype)
    return TRUE;
  g_autofree char *one = describe_trade (own), *two = describe_trade (other);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND,
               "two ranks do not trade with each other: rank %u %s, rank %u %s", self->comm.rank,
               one, peer, two);
  return FALSE;
}

/* Records this rank's event of `events` on the stream, exchanges posts with the peer, and lets the
 * stream wait for the peer's event. Both hosts meet, so both events are recorded by then. */
static gboolean
meet_peer (CudaComm *self, cudaEvent_t *events, guint peer, const Post *own, Post *other,
           cudaStream_t stream, GError **error)
{
  const ExecComm *comm = &self->comm;
  if (!record (&events[comm->rank * comm->ranks + peer], stream, error)
      || !self->host->ops->trade (self->host, other, own, sizeof *own, PLAN_DTYPE_U8, peer, NULL,
                                  error)
      || !trade_agrees (self, own, peer, other, error))
    return FALSE;
  CUDA_TRY (cudaStreamWaitEvent (stream, events[peer * comm->ranks + comm->rank], 0), error);
  return TRUE;
}

/* The rank that receives copies from the peer's memory between two meetings: after the first one
 * the data is there, after the second one nobody reads or writes it any more. */
static gboolean
cuda_trade (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype, guint peer,
            void *stream, GError **error)
{
  CudaComm *self = (CudaComm *)comm;
  const Post own = { .name = "trade", .count = count, .dtype = dtype, .out = out, .in = in };
  Post other;
  if (!stream)
    return self->host->ops->trade (self->host, out, in, count, dtype, peer, NULL, error);
  return meet_peer (self, self->shared->given, peer, &own, &other, stream, error)
         && (!out || copy (out, other.in, plan_dtype_bytes (dtype, count), stream, error))
         && meet_peer (self, self->shared->traded, peer, &own, &other, stream, error);
}

static gboolean
cuda_barrier (ExecComm *comm, GError **error)
{
  const CudaComm *self = (const CudaComm *)comm;
  return self->host->ops->barrier (self->host, error);
}

static gboolean
cuda_check (ExecComm *comm, GError **error)
{
  const CudaComm *self = (const CudaComm *)comm;
  return self->host->ops->check (self->host, error);
}

static void
cuda_abort (ExecComm *comm, const char *why)
{
  const CudaComm *self = (const CudaComm *)comm;
  self->host->ops->abort (self->host, why);
}

static void
cuda_close (ExecComm *comm)
{
  CudaComm *self = (CudaComm *)comm;
  exec_comm_close_groups (comm);
  self->host->ops->close (self->host);
  shared_close (self->shared);
  g_free (self);
}

static ExecComm *cuda_group (ExecComm *comm, guint size, guint stride, GError **error);

static const ExecCommOps cuda_ops = {
  .name = "threads",
  .summary = "ranks as threads of one process that share a GPU",
  .has_graphs = TRUE,
  .all_gather = cuda_all_gather,
  .reduce_scatter = cuda_reduce_scatter,
  .all_to_all = cuda_all_to_all,
  .exchange = cuda_exchange,
  .all_reduce = cuda_all_reduce,
  .all_reduce_max = cuda_all_reduce_max,
  .barrier = cuda_barrier,
  .trade = cuda_trade,
  .check = cuda_check,
  .group = cuda_group,
  .abort = cuda_abort,
  .close = cuda_close,
};

/* --- opening ------------------------------------------------------------------------------ */

static CudaComm *
comm_new (ExecComm *host, Shared *shared)
{
  CudaComm *self = g_new0 (CudaComm, 1);
  self->comm = (ExecComm){ .ops = &cuda_ops, .rank = host->rank, .ranks = host->ranks };
  self->host = host;
  self->shared = shared;
  return self;
}

/* The first rank of a group makes what the group's ranks share, and sends them its address. */
static ExecComm *
cuda_group (ExecComm *comm, guint size, guint stride, GError **error)
{
  ExecComm *all = ((CudaComm *)comm)->host;
  ExecComm *host = all->ops->group (all, size, stride, error);
  g_autofree gpointer *shared = g_new0 (gpointer, size);
  if (!host)
    return NULL;
  gpointer own = host->rank == 0 ? shared_new (size) : NULL;
  if (host->ops->all_gather (host, shared, &own, sizeof own, PLAN_DTYPE_U8, NULL, error))
    return &comm_new (host, shared[0])->comm;
  for (guint rank = 0; own && rank < size; rank++)
    shared_close (own); /* no other rank got it */
  host->ops->close (host);
  return NULL;
}

gboolean
exec_comm_cuda_open (guint ranks, ExecComm **out_comms, GError **error)
{
  g_autofree ExecComm **hosts = g_new0 (ExecComm *, MAX (ranks, 1));
  if (ranks > EXEC_CUDA_MAX_SUMMED)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "%u ranks on one GPU: at most %d can share it", ranks, EXEC_CUDA_MAX_SUMMED);
      return FALSE;
    }
  if (!exec_comm_threads_open (ranks, hosts, error))
    return FALSE;
  Shared *shared = shared_new (ranks);
  for (guint rank = 0; rank < ranks; rank++)
    out_comms[rank] = &comm_new (hosts[rank], shared)->comm;
  return TRUE;
}
