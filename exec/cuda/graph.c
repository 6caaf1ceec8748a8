/* SPDX-License-Identifier: Apache-2.0 */
/* A step as a CUDA graph. Ranks that share a GPU are captured together, since each waits for the
 * others' events: the first one's compute stream begins, and all streams of all ranks go on from
 * there and end there. The first rank has the graph and launches it for all. Ranks with a GPU each
 * have graphs of their own, which meet in NCCL's collectives: all keep the same step, and launch it
 * equally often.
 *
 * Nothing that a launch uses changes place: buffers lie where the arena has them, and a step stages
 * what it copies where the step before did. So a graph is made once. What changes by step is
 * copied: batches, and what of the optimizer's constants does. */
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
is_alone (const CudaDevice *self)
{
  return self->comm->ops->has_graphs_apart;
}

/* Whether it has a graph. */
static gboolean
leads (const CudaDevice *self)
{
  return is_alone (self) || self->comm->rank == 0;
}

/* A capture that was never ended is given up. */
static void
give_up (CudaDevice *self)
{
  cudaGraph_t graph = NULL;
  if (!self->is_keeping || !leads (self))
    return;
  cudaStreamEndCapture (self->streams[PLAN_STREAM_COMPUTE], &graph);
  cudaGetLastError (); /* why it was not ended is known */
  if (graph)
    CUDA_WARN (cudaGraphDestroy (graph));
}

void
exec_cuda_graph_close (CudaDevice *self)
{
  give_up (self);
  if (self->graph)
    {
      CUDA_WARN (cudaStreamSynchronize (self->streams[PLAN_STREAM_COMPUTE]));
      CUDA_WARN (cudaGraphExecDestroy (self->graph));
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

/* This rank's compute stream goes on after its others. */
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

/* And the others after an event. */
static gboolean
fork_streams (const CudaDevice *self, cudaEvent_t after, GError **error)
{
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    if (self->streams[s] && s != PLAN_STREAM_COMPUTE)
      CUDA_TRY (cudaStreamWaitEvent (self->streams[s], after, 0), error);
  return TRUE;
}

/* Hosts meet, and tell each other their events. */
static gboolean
meet (const CudaDevice *self, cudaEvent_t *tails, GError **error)
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

/* The first rank's compute stream goes on after all ranks' tails, once all have met. */
static gboolean
gather_ranks (const CudaDevice *self, GError **error)
{
  g_autofree cudaEvent_t *tails = g_new0 (cudaEvent_t, self->comm->ranks);
  if (is_alone (self))
    return join_streams (self, error);
  if (!join_streams (self, error) || !record_tail (self, error) || !meet (self, tails, error))
    return FALSE;
  for (guint rank = 1; self->comm->rank == 0 && rank < self->comm->ranks; rank++)
    CUDA_TRY (cudaStreamWaitEvent (self->streams[PLAN_STREAM_COMPUTE], tails[rank], 0), error);
  return TRUE;
}

/* All streams of all ranks go on after what the first rank has on its compute stream. */
static gboolean
spread_ranks (const CudaDevice *self, GError **error)
{
  g_autofree cudaEvent_t *tails = g_new0 (cudaEvent_t, self->comm->ranks);
  if (is_alone (self))
    return record_tail (self, error) && fork_streams (self, self->tail, error);
  if ((self->comm->rank == 0 && !record_tail (self, error)) || !meet (self, tails, error))
    return FALSE;
  if (self->comm->rank != 0)
    CUDA_TRY (cudaStreamWaitEvent (self->streams[PLAN_STREAM_COMPUTE], tails[0], 0), error);
  return fork_streams (self, tails[0], error);
}

/* --- keeping and launching ---------------------------------------------------------------- */

gboolean
exec_cuda_graph_keep (ExecDevice *device, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  const ExecCommOps *ops = self->comm->ops;
  /* While it captures, a thread may not ask for the end of anything. */
  if ((ops->settle && !ops->settle (self->comm, error)) || !gather_ranks (self, error))
    return FALSE;
  if (leads (self))
    CUDA_TRY (cudaStreamBeginCapture (self->streams[PLAN_STREAM_COMPUTE],
                                      cudaStreamCaptureModeThreadLocal),
              error);
  self->is_keeping = TRUE;
  return spread_ranks (self, error);
}

static gboolean
end_capture (CudaDevice *self, GError **error)
{
  cudaGraph_t graph = NULL;
  self->is_keeping = FALSE;
  if (!leads (self))
    return TRUE;
  CUDA_TRY (cudaStreamEndCapture (self->streams[PLAN_STREAM_COMPUTE], &graph), error);
  const int code = (int)cudaGraphInstantiate (&self->graph, graph, 0);
  CUDA_WARN (cudaGraphDestroy (graph));
  return exec_cuda_check (code, "cudaGraphInstantiate", error);
}

/* Whoever waits for a copy of this rank's waits for the launch. */
static gboolean
mark_copies (CudaDevice *self, GError **error)
{
  memset (self->has_copies, 0, sizeof self->has_copies);
  CUDA_TRY (cudaEventRecord (self->copied[PLAN_STREAM_COMPUTE], self->streams[PLAN_STREAM_COMPUTE]),
            error);
  self->has_copies[PLAN_STREAM_COMPUTE] = TRUE;
  return TRUE;
}

/* A graph has collectives in it, whose ends nobody could ask for one by one. */
static gboolean
launch (const CudaDevice *self, GError **error)
{
  const ExecCommOps *ops = self->comm->ops;
  const cudaStream_t stream = self->streams[PLAN_STREAM_COMPUTE];
  if (!leads (self))
    return TRUE;
  CUDA_TRY (cudaGraphLaunch (self->graph, stream), error);
  return !ops->follow || ops->follow (self->comm, "the graph of a step", stream, error);
}

gboolean
exec_cuda_graph_launch (ExecDevice *device, const ExecConstants *constants, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  *self->varying_host = exec_cuda_varying (constants);
  return gather_ranks (self, error) && (!self->is_keeping || end_capture (self, error))
         && launch (self, error) && spread_ranks (self, error) && mark_copies (self, error);
}
