/* SPDX-License-Identifier: Apache-2.0 */
/* A step as a CUDA graph. Ranks that share a GPU are captured into one graph, because they wait for
 * each other's events: capture begins on the first rank's compute stream, from which all streams of
 * all ranks fork and which they join again. The first rank has the graph and launches it for all.
 * Ranks with a GPU each have graphs of their own, with NCCL's collectives in them: all ranks
 * capture the same step, and launch it equally often.
 *
 * A step is one graph, or two where the host waits for something within the step, such as the loss:
 * the first ends where that is known, so that the host can wait for its end, and issue the next
 * step while the second one runs.
 *
 * A graph is made once, because nothing moves that it uses: buffers lie where the arena has them,
 * and each step stages its copies where the step before did. What changes from step to step is
 * copied: the batches, and those of the optimizer's constants that change. */
#include "config.h"

#include "exec/cuda/cuda-check.h"
#include "exec/cuda/device-private.h"

#include <string.h>

gboolean
exec_cuda_graph_open (CudaDevice *self, GError **error)
{
  void *own, *host;
  CUDA_TRY (cudaEventCreateWithFlags (&self->tail, cudaEventDisableTiming), error);
  CUDA_TRY (cudaMalloc (&own, sizeof *self->varying), error);
  self->varying = own;
  CUDA_TRY (cudaMallocHost (&host, sizeof *self->varying_host), error);
  self->varying_host = host;
  return TRUE;
}

static gboolean
has_own_graph (const CudaDevice *self)
{
  return self->comm->ops->has_graphs_apart;
}

/* Whether this rank captures and launches a graph. */
static gboolean
leads (const CudaDevice *self)
{
  return has_own_graph (self) || self->comm->rank == 0;
}

/* Drops a capture that was never ended. */
static void
drop_capture (CudaDevice *self)
{
  cudaGraph_t graph = NULL;
  if (self->keeping == 0 || !leads (self))
    return;
  cudaStreamEndCapture (self->streams[PLAN_STREAM_COMPUTE], &graph);
  cudaGetLastError (); /* clears the error, whose cause is known */
  if (graph)
    CUDA_WARN (cudaGraphDestroy (graph));
}

void
exec_cuda_graph_close (CudaDevice *self)
{
  drop_capture (self);
  for (guint i = 0; i < EXEC_CUDA_PARTS; i++)
    if (self->graphs[i])
      {
        CUDA_WARN (cudaStreamSynchronize (self->streams[PLAN_STREAM_COMPUTE]));
        CUDA_WARN (cudaGraphExecDestroy (self->graphs[i]));
      }
  if (self->tail)
    CUDA_WARN (cudaEventDestroy (self->tail));
  if (self->varying)
    {
      CUDA_WARN (cudaDeviceSynchronize ());
      CUDA_WARN (cudaFree (self->varying));
    }
  if (self->varying_host)
    CUDA_WARN (cudaFreeHost (self->varying_host));
}

gboolean
exec_cuda_graph_vary (ExecDevice *device, const ExecConstants *constants, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  *self->varying_host = exec_cuda_varying (constants);
  return exec_cuda_copy_across (self, self->varying, self->varying_host, sizeof *self->varying_host,
                                cudaMemcpyHostToDevice, PLAN_STREAM_COMPUTE, error);
}

/* --- all streams of all ranks ------------------------------------------------------------- */

/* Lets this rank's compute stream wait for its other streams. */
static gboolean
join_streams (const CudaDevice *self, GError **error)
{
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    if (self->streams[s] && s != PLAN_STREAM_COMPUTE)
      {
        CUDA_TRY (cudaEventRecord (self->copied[s], self->streams[s]), error);
        CUDA_TRY (cudaStreamWaitEvent (self->streams[PLAN_STREAM_COMPUTE], self->copied[s], 0),
                  error);
      }
  return TRUE;
}

/* Lets the other streams wait for an event. */
static gboolean
fork_streams (const CudaDevice *self, cudaEvent_t after, GError **error)
{
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    if (self->streams[s] && s != PLAN_STREAM_COMPUTE)
      CUDA_TRY (cudaStreamWaitEvent (self->streams[s], after, 0), error);
  return TRUE;
}

/* Gathers the tail events of all ranks. The ranks' hosts meet at this. */
static gboolean
gather_tails (const CudaDevice *self, cudaEvent_t *tails, GError **error)
{
  return self->comm->ops->all_gather (self->comm, tails, &self->tail, sizeof self->tail,
                                      PLAN_DTYPE_U8, NULL, error);
}

static gboolean
record_tail (const CudaDevice *self, GError **error)
{
  CUDA_TRY (cudaEventRecord (self->tail, self->streams[PLAN_STREAM_COMPUTE]), error);
  return TRUE;
}

/* Joins all ranks: the first rank's compute stream waits for the tails of all, once their hosts
 * have met. A rank with a graph of its own joins its own streams alone. */
static gboolean
join_ranks (const CudaDevice *self, GError **error)
{
  g_autofree cudaEvent_t *tails = g_new0 (cudaEvent_t, self->comm->ranks);
  if (has_own_graph (self))
    return join_streams (self, error);
  if (!join_streams (self, error) || !record_tail (self, error)
      || !gather_tails (self, tails, error))
    return FALSE;
  for (guint rank = 1; self->comm->rank == 0 && rank < self->comm->ranks; rank++)
    CUDA_TRY (cudaStreamWaitEvent (self->streams[PLAN_STREAM_COMPUTE], tails[rank], 0), error);
  return TRUE;
}

/* Forks all ranks: their streams wait for what the first rank's compute stream has been given. A
 * rank with a graph of its own forks its own streams alone. */
static gboolean
fork_ranks (const CudaDevice *self, GError **error)
{
  g_autofree cudaEvent_t *tails = g_new0 (cudaEvent_t, self->comm->ranks);
  if (has_own_graph (self))
    return record_tail (self, error) && fork_streams (self, self->tail, error);
  if ((self->comm->rank == 0 && !record_tail (self, error)) || !gather_tails (self, tails, error))
    return FALSE;
  if (self->comm->rank != 0)
    CUDA_TRY (cudaStreamWaitEvent (self->streams[PLAN_STREAM_COMPUTE], tails[0], 0), error);
  return fork_streams (self, tails[0], error);
}

/* --- keeping and launching ---------------------------------------------------------------- */

static gboolean
end_capture (const CudaDevice *self, cudaGraphExec_t *out, GError **error)
{
  cudaGraph_t graph = NULL;
  if (!leads (self))
    return TRUE;
  CUDA_TRY (cudaStreamEndCapture (self->streams[PLAN_STREAM_COMPUTE], &graph), error);
  const int code = (int)cudaGraphInstantiate (out, graph, 0);
  CUDA_WARN (cudaGraphDestroy (graph));
  return exec_cuda_check (code, "cudaGraphInstantiate", error);
}

/* Ends the part that is being captured, if there is one. */
static gboolean
end_part (CudaDevice *self, GError **error)
{
  const guint part = self->keeping;
  self->keeping = 0;
  return part == 0 || end_capture (self, &self->graphs[part - 1], error);
}

gboolean
exec_cuda_graph_keep (ExecDevice *device, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  const ExecCommOps *ops = self->comm->ops;
  g_assert (self->n_parts < EXEC_CUDA_PARTS);
  /* A thread that captures may not query events, so what is pending has to end before. */
  if ((self->keeping == 0 && ops->settle && !ops->settle (self->comm, error))
      || !join_ranks (self, error) || !end_part (self, error))
    return FALSE;
  if (leads (self))
    CUDA_TRY (cudaStreamBeginCapture (self->streams[PLAN_STREAM_COMPUTE],
                                      cudaStreamCaptureModeThreadLocal),
              error);
  self->keeping = ++self->n_parts;
  return fork_ranks (self, error);
}

/* To wait for a copy in the first part is to wait for the end of that. */
static gboolean
mark_copies (CudaDevice *self, GError **error)
{
  memset (self->has_copies, 0, sizeof self->has_copies);
  CUDA_TRY (cudaEventRecord (self->copied[PLAN_STREAM_COMPUTE], self->streams[PLAN_STREAM_COMPUTE]),
            error);
  self->has_copies[PLAN_STREAM_COMPUTE] = TRUE;
  return TRUE;
}

/* Launches a graph. The communicator follows it as a whole, because the ends of the collectives
 * in it cannot be queried one by one. */
static gboolean
launch (const CudaDevice *self, guint part, GError **error)
{
  const ExecCommOps *ops = self->comm->ops;
  const cudaStream_t stream = self->streams[PLAN_STREAM_COMPUTE];
  if (!leads (self))
    return TRUE;
  CUDA_TRY (cudaGraphLaunch (self->graphs[part], stream), error);
  return !ops->follow || ops->follow (self->comm, "the graph of a step", stream, error);
}

gboolean
exec_cuda_graph_launch (ExecDevice *device, const ExecConstants *constants, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  *self->varying_host = exec_cuda_varying (constants);
  for (guint part = 0; part < self->n_parts; part++)
    if (!join_ranks (self, error) || (part == 0 && !end_part (self, error))
        || !launch (self, part, error) || !fork_ranks (self, error)
        || ((part == 0 || self->ends_late) && !mark_copies (self, error)))
      return FALSE;
  return TRUE;
}
