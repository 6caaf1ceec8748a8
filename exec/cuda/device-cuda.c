/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/device-cuda.h"

#include "exec/comm/placement.h"
#include "exec/cpu/pool.h"
#include "exec/cuda/attention-batched.h"
#include "exec/cuda/attention-fused.h"
#include "exec/cuda/cuda-check.h"
#include "exec/cuda/device-private.h"
#include "exec/cuda/gemm-grouped.h"
#include "exec/cuda/gemm-lt.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <time.h>

/* Pinned memory is allocated in chunks of at least this size, which are kept. */
#define CHUNK_BYTES (G_GUINT64_CONSTANT (1) << 20)
#define CHUNK_ALIGNMENT 64

static gint64
now_ns (void)
{
  struct timespec t;
  clock_gettime (CLOCK_MONOTONIC, &t);
  return (gint64)t.tv_sec * G_GINT64_CONSTANT (1000000000) + t.tv_nsec;
}

static void *cuda_stage (ExecDevice *device, guint64 bytes, GError **error);

/* --- opening and closing ------------------------------------------------------------------ */

static gboolean
take_memory (CudaDevice *self, const ExecDeviceNeeds *needs, GError **error)
{
  const guint64 bytes = MAX (needs->memory_bytes, 1);
  size_t left, all;
  void *memory = NULL;
  if (needs->is_registered && self->comm->ops->take)
    {
      self->is_memory_of_comm = TRUE;
      self->device.memory = self->comm->ops->take (self->comm, bytes, error);
      return self->device.memory != NULL;
    }
  CUDA_TRY (cudaMemGetInfo (&left, &all), error);
  if (cudaMalloc (&memory, bytes) != cudaSuccess)
    {
      g_autofree char *size = plan_units_format_size (bytes), *has = plan_units_format_size (left);
      g_autofree char *of = plan_units_format_size (all);
      cudaGetLastError (); /* clears the error, which is reported here */
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "rank %u: GPU %u has no %s left: %s of its %s are free", self->comm->rank,
                   self->comm->gpu, size, has, of);
      return FALSE;
    }
  self->device.memory = memory;
  return TRUE;
}

/* Allocates pinned memory, which the GPU copies to and from while the host goes on, for buffers of
 * the host. */
static gboolean
take_host_memory (CudaDevice *self, const ExecDeviceNeeds *needs, GError **error)
{
  void *memory = NULL;
  if (needs->host_bytes == 0)
    return TRUE;
  if (cudaHostAlloc (&memory, needs->host_bytes, cudaHostAllocDefault) != cudaSuccess)
    {
      g_autofree char *size = plan_units_format_size (needs->host_bytes);
      cudaGetLastError (); /* clears the error, which is reported here */
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "rank %u: the host has no %s of memory left to pin for what is offloaded",
                   self->comm->rank, size);
      return FALSE;
    }
  self->device.host = memory;
  return TRUE;
}

static gboolean
has_scale (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_E4M3 || dtype == PLAN_DTYPE_E5M2 || dtype == PLAN_DTYPE_NVFP4;
}

/* Allocates a scale per buffer if there are formats that have a scale per tensor. */
static gboolean
take_scales (CudaDevice *self, const ExecDeviceNeeds *needs, GError **error)
{
  const PlanSchedule *schedule = needs->schedule;
  const gsize count = plan_schedule_n_buffer_ids (schedule) + needs->more_scales;
  gboolean any = needs->more_scales > 0;
  void *scales;
  for (guint i = 0; i < plan_schedule_n_buffers (schedule); i++)
    any |= has_scale (plan_schedule_buffer (schedule, i)->dtype);
  if (!any)
    return TRUE;
  CUDA_TRY (cudaMalloc (&scales, count * sizeof (float)), error);
  self->device.scales = scales;
  return TRUE;
}

/* Communication has the higher priority, where the GPU has priorities: the few blocks of a
 * collective would wait behind the many of a GEMM, and then compute would wait for the
 * collective. */
static gboolean
make_streams (CudaDevice *self, const PlanSchedule *schedule, GError **error)
{
  int least, greatest;
  CUDA_TRY (cudaDeviceGetStreamPriorityRange (&least, &greatest), error);
  for (guint i = 0; i < plan_schedule_n_nodes (schedule); i++)
    {
      const PlanOp *op = plan_schedule_node (schedule, i);
      if (op->kind >= PLAN_N_OPS || op->stream == PLAN_STREAM_HOST || self->streams[op->stream])
        continue;
      CUDA_TRY (cudaStreamCreateWithPriority (&self->streams[op->stream], cudaStreamNonBlocking,
                                              op->stream == PLAN_STREAM_COMPUTE ? least : greatest),
                error);
      CUDA_TRY (cudaEventCreateWithFlags (&self->copied[op->stream], cudaEventDisableTiming),
                error);
    }
  return TRUE;
}

static gboolean
make_events (CudaDevice *self, const PlanSchedule *schedule, GError **error)
{
  self->n_events = plan_schedule_n_event_ids (schedule);
  self->events = g_new0 (cudaEvent_t, self->n_events + 1);
  for (guint i = 0; i < self->n_events; i++)
    CUDA_TRY (cudaEventCreateWithFlags (&self->events[i], cudaEventDisableTiming), error);
  self->was_kept = g_new0 (guint8, self->n_events + 1);
  CUDA_TRY (cudaEventCreate (&self->begin), error);
  return TRUE;
}

static void
destroy_event (cudaEvent_t event)
{
  if (event)
    CUDA_WARN (cudaEventDestroy (event));
}

static void
give_memory_back (CudaDevice *self)
{
  if (self->device.memory && self->is_memory_of_comm)
    self->comm->ops->give_back (self->comm, self->device.memory);
  else if (self->device.memory)
    CUDA_WARN (cudaFree (self->device.memory));
  if (self->device.scales)
    CUDA_WARN (cudaFree (self->device.scales));
  if (self->device.host)
    CUDA_WARN (cudaFreeHost (self->device.host));
  for (guint i = 0; i < self->chunks->len; i++)
    CUDA_WARN (cudaFreeHost (g_array_index (self->chunks, Chunk, i).bytes));
}

/* Waits for all streams before what they use is freed: after an error ops may still be running, and
 * those of ranks that share the GPU may use this rank's memory. */
static void
drain (const CudaDevice *self)
{
  cudaError_t code = cudaSuccess;
  for (guint s = 0; s < PLAN_N_STREAMS && code == cudaSuccess; s++)
    if (self->streams[s])
      code = cudaStreamSynchronize (self->streams[s]);
  if (code != cudaSuccess)
    CUDA_WARN (cudaDeviceSynchronize ());
}

static void
cuda_close (ExecDevice *device)
{
  CudaDevice *self = (CudaDevice *)device;
  exec_cuda_graph_close (self);
  drain (self);
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    if (self->streams[s])
      CUDA_WARN (cudaStreamDestroy (self->streams[s]));
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    destroy_event (self->copied[s]);
  for (guint i = 0; i < self->n_events; i++)
    destroy_event (self->events[i]);
  for (guint i = 0; i < self->clocks->len; i++)
    destroy_event (self->clocks->pdata[i]);
  destroy_event (self->begin);
  give_memory_back (self);
  if (self->has_pool)
    exec_pool_close ();
  exec_cuda_fused_close ();
  exec_cuda_batched_attention_close ();
  exec_cuda_grouped_close ();
  exec_cuda_gemm_close ();
  g_free (self->events);
  g_free (self->was_kept);
  g_array_unref (self->chunks);
  g_array_unref (self->stamps);
  g_ptr_array_unref (self->clocks);
  g_free (self);
}

/* Allocating pinned memory may wait for GPUs, also for those of other ranks of the process: so the
 * first chunk, which is enough for most steps, is allocated before anything is under way. */
static gboolean
take_first_chunk (CudaDevice *self, GError **error)
{
  const gboolean ok = cuda_stage (&self->device, CHUNK_BYTES, error) != NULL;
  for (guint i = 0; i < self->chunks->len; i++)
    g_array_index (self->chunks, Chunk, i).used = 0;
  return ok;
}

/* Starts threads for the host's share of the optimizer, if it has one: this rank's part of the
 * host's cores. */
static gboolean
take_threads (CudaDevice *self, const ExecDeviceNeeds *needs, GError **error)
{
  const ExecPlacement *placement = self->comm->placement;
  for (guint i = 0; i < plan_schedule_n_nodes (needs->schedule) && !self->has_pool; i++)
    if (plan_schedule_node (needs->schedule, i)->kind == PLAN_OP_ADAMW_HOST)
      {
        if (!exec_pool_open (placement ? placement->threads
                                       : g_get_num_processors () / self->comm->ranks,
                             error))
          return FALSE;
        self->has_pool = TRUE;
      }
  return TRUE;
}

static gboolean
take_all (CudaDevice *self, const ExecDeviceNeeds *needs, GError **error)
{
  return take_first_chunk (self, error) && take_memory (self, needs, error)
         && take_host_memory (self, needs, error) && take_threads (self, needs, error)
         && take_scales (self, needs, error) && make_streams (self, needs->schedule, error)
         && make_events (self, needs->schedule, error)
         && (!needs->keeps_steps || exec_cuda_graph_open (self, error));
}

/* Opens the libraries that the calling thread computes by. */
static gboolean
open_libraries (const ExecDeviceNeeds *needs, GError **error)
{
  if (!exec_cuda_gemm_open (needs->comm, error))
    return FALSE;
  if (exec_cuda_grouped_open (needs->comm, needs->schedule, error))
    {
      if (exec_cuda_batched_attention_open (error))
        {
          if (exec_cuda_fused_open (needs, error))
            return TRUE;
          exec_cuda_batched_attention_close ();
        }
      exec_cuda_grouped_close ();
    }
  exec_cuda_gemm_close ();
  return FALSE;
}

static ExecDevice *
cuda_open (const ExecDeviceNeeds *needs, GError **error)
{
  CudaDevice *self;
  if (!exec_cuda_check ((int)cudaSetDevice ((int)needs->comm->gpu), "cudaSetDevice", error)
      || !open_libraries (needs, error))
    return NULL;
  self = g_new0 (CudaDevice, 1);
  self->device.ops = needs->kernels->device;
  self->kernels = needs->kernels;
  self->comm = needs->comm;
  self->chunks = g_array_new (FALSE, FALSE, sizeof (Chunk));
  self->stamps = g_array_new (FALSE, FALSE, sizeof (Stamp));
  self->clocks = g_ptr_array_new ();
  if (take_all (self, needs, error))
    return &self->device;
  cuda_close (&self->device);
  return NULL;
}

/* --- ops ---------------------------------------------------------------------------------- */

static void *
cuda_stream (ExecDevice *device, PlanStream stream)
{
  return ((const CudaDevice *)device)->streams[stream];
}

static gboolean
cuda_run (ExecDevice *device, const ExecArgs *args, PlanStream stream, GError **error)
{
  const CudaDevice *self = (const CudaDevice *)device;
  ExecArgs own = *args;
  own.varying = self->varying;
  return exec_cuda_check (self->kernels->launch[args->op->kind](&own, self->streams[stream]),
                          "cannot be issued", error);
}

/* Copies a tensor and, where its format has a scale per tensor, that scale. check_copy has seen
 * that both operands have the same format. */
int
exec_cuda_copy (const ExecArgs *args, void *stream)
{
  const PlanDtype dtype = args->dtype[PLAN_REF_COPY_out];
  const int code = (int)cudaMemcpyAsync (
      args->ptr[PLAN_REF_COPY_out], args->ptr[PLAN_REF_COPY_in],
      plan_dtype_bytes (dtype, (guint64)args->op->dims[PLAN_DIM_COPY_count]), cudaMemcpyDefault,
      stream);
  if (code != 0 || !has_scale (dtype))
    return code;
  return (int)cudaMemcpyAsync (args->scale[PLAN_REF_COPY_out], args->scale[PLAN_REF_COPY_in],
                               sizeof (float), cudaMemcpyDeviceToDevice, stream);
}

int
exec_cuda_adamw_host (const ExecArgs *args, void *stream)
{
  exec_cpu_adamw (args);
  return 0;
}

static gboolean
cuda_fill (ExecDevice *device, void *at, int byte, guint64 bytes, PlanStream stream, GError **error)
{
  CUDA_TRY (cudaMemsetAsync (at, byte, bytes, ((const CudaDevice *)device)->streams[stream]),
            error);
  return TRUE;
}

static gboolean
cuda_copy (ExecDevice *device, void *to, const void *from, guint64 bytes, PlanStream stream,
           GError **error)
{
  CUDA_TRY (cudaMemcpyAsync (to, from, bytes, cudaMemcpyDeviceToDevice,
                             ((const CudaDevice *)device)->streams[stream]),
            error);
  return TRUE;
}

/* --- in and out --------------------------------------------------------------------------- */

static void *
cuda_stage (ExecDevice *device, guint64 bytes, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  const guint64 size = plan_units_round_up (MAX (bytes, 1), CHUNK_ALIGNMENT);
  for (guint i = 0; i < self->chunks->len; i++)
    {
      Chunk *chunk = &g_array_index (self->chunks, Chunk, i);
      if (chunk->size - chunk->used < size)
        continue;
      chunk->used += size;
      return chunk->bytes + chunk->used - size;
    }
  Chunk chunk = { .size = MAX (size, CHUNK_BYTES), .used = size };
  void *pinned = NULL;
  if (!exec_cuda_check ((int)cudaMallocHost (&pinned, chunk.size), "pinned memory of the host",
                        error))
    return NULL;
  chunk.bytes = pinned;
  g_array_append_val (self->chunks, chunk);
  return chunk.bytes;
}

gboolean
exec_cuda_copy_across (CudaDevice *self, void *to, const void *from, guint64 bytes,
                       enum cudaMemcpyKind kind, PlanStream stream, GError **error)
{
  CUDA_TRY (cudaMemcpyAsync (to, from, bytes, kind, self->streams[stream]), error);
  CUDA_TRY (cudaEventRecord (self->copied[stream], self->streams[stream]), error);
  self->has_copies[stream] = TRUE;
  self->ends_late |= self->keeping > 1;
  return TRUE;
}

static gboolean
cuda_put (ExecDevice *device, void *to, const void *staged, guint64 bytes, PlanStream stream,
          GError **error)
{
  return exec_cuda_copy_across ((CudaDevice *)device, to, staged, bytes, cudaMemcpyHostToDevice,
                                stream, error);
}

static gboolean
cuda_get (ExecDevice *device, void *staged, const void *from, guint64 bytes, PlanStream stream,
          GError **error)
{
  return exec_cuda_copy_across ((CudaDevice *)device, staged, from, bytes, cudaMemcpyDeviceToHost,
                                stream, error);
}

/* --- order -------------------------------------------------------------------------------- */

static gboolean
cuda_record (ExecDevice *device, guint32 event, PlanStream stream, GError **error)
{
  const CudaDevice *self = (const CudaDevice *)device;
  CUDA_TRY (cudaEventRecord (self->events[event], self->streams[stream]), error);
  self->was_kept[event] = (guint8)self->keeping;
  return TRUE;
}

/* Waits if event and waiter are both in the same part of the captured step, or both outside. Else
 * there is nothing to wait for: a graph runs as a whole after all that was issued before it, and
 * before all that is issued after it. */
static gboolean
cuda_wait (ExecDevice *device, guint32 event, PlanStream stream, GError **error)
{
  const CudaDevice *self = (const CudaDevice *)device;
  if (self->was_kept[event] == self->keeping)
    CUDA_TRY (cudaStreamWaitEvent (self->streams[stream], self->events[event], 0), error);
  return TRUE;
}

/* An event that the host waits for in a captured step is in its first part, or the step has one
 * part alone. It has happened once that part has ended, behind which `copied` of the compute stream
 * is recorded. */
static gboolean
cuda_sync (ExecDevice *device, guint32 event, GError **error)
{
  const CudaDevice *self = (const CudaDevice *)device;
  return exec_cuda_await (
      self->comm, self->was_kept[event] ? self->copied[PLAN_STREAM_COMPUTE] : self->events[event],
      error);
}

static gboolean
cuda_settle (ExecDevice *device, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    {
      if (self->has_copies[s] && !exec_cuda_await (self->comm, self->copied[s], error))
        return FALSE;
      self->has_copies[s] = FALSE;
    }
  return TRUE;
}

static gboolean
cuda_finish (ExecDevice *device, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    if (self->streams[s])
      {
        CUDA_TRY (cudaEventRecord (self->copied[s], self->streams[s]), error);
        if (!exec_cuda_await (self->comm, self->copied[s], error))
          return FALSE;
        self->has_copies[s] = FALSE;
      }
  return TRUE;
}

/* --- time --------------------------------------------------------------------------------- */

static gboolean
cuda_begin (ExecDevice *device, gboolean is_timed, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  if (!cuda_settle (device, error))
    return FALSE;
  for (guint i = 0; i < self->chunks->len; i++)
    g_array_index (self->chunks, Chunk, i).used = 0;
  g_array_set_size (self->stamps, 0);
  self->n_clocks = 0;
  if (!is_timed)
    return TRUE;
  CUDA_TRY (cudaEventRecord (self->begin, self->streams[PLAN_STREAM_COMPUTE]), error);
  self->begin_ns = now_ns ();
  return TRUE;
}

/* Finds, or creates, a timed event that no stamp of this section has. */
static gboolean
take_clock (CudaDevice *self, cudaEvent_t *out_event, GError **error)
{
  if (self->n_clocks == self->clocks->len)
    {
      cudaEvent_t made;
      CUDA_TRY (cudaEventCreate (&made), error);
      g_ptr_array_add (self->clocks, made);
    }
  *out_event = self->clocks->pdata[self->n_clocks++];
  return TRUE;
}

static gboolean
cuda_stamp (ExecDevice *device, PlanStream stream, guint *out_stamp, GError **error)
{
  CudaDevice *self = (CudaDevice *)device;
  Stamp stamp = { .host_ns = now_ns () - self->begin_ns };
  if (stream != PLAN_STREAM_HOST)
    {
      if (!take_clock (self, &stamp.event, error))
        return FALSE;
      CUDA_TRY (cudaEventRecord (stamp.event, self->streams[stream]), error);
    }
  *out_stamp = self->stamps->len;
  g_array_append_val (self->stamps, stamp);
  return TRUE;
}

static gint64
cuda_stamp_ns (ExecDevice *device, guint stamp)
{
  const CudaDevice *self = (const CudaDevice *)device;
  const Stamp *at = &g_array_index (self->stamps, Stamp, stamp);
  float ms = 0;
  if (!at->event)
    return at->host_ns;
  CUDA_WARN (cudaEventElapsedTime (&ms, self->begin, at->event));
  return MAX ((gint64)(1e6 * (double)ms), 0); /* on other streams it may be before `begin` */
}

static gboolean
cuda_taken (ExecDevice *device, guint64 *out_bytes, GError **error)
{
  size_t left, all;
  (void)device; /* the thread's current device is asked */
  CUDA_TRY (cudaMemGetInfo (&left, &all), error);
  *out_bytes = all - left;
  return TRUE;
}

const ExecDeviceOps exec_device_cuda = {
  .open_comms = exec_comm_cuda_open,
  .open = cuda_open,
  .close = cuda_close,
  .stream = cuda_stream,
  .run = cuda_run,
  .fill = cuda_fill,
  .copy = cuda_copy,
  .stage = cuda_stage,
  .put = cuda_put,
  .get = cuda_get,
  .record = cuda_record,
  .wait = cuda_wait,
  .sync = cuda_sync,
  .settle = cuda_settle,
  .finish = cuda_finish,
  .begin = cuda_begin,
  .vary = exec_cuda_graph_vary,
  .keep = exec_cuda_graph_keep,
  .launch = exec_cuda_graph_launch,
  .taken = cuda_taken,
  .stamp = cuda_stamp,
  .stamp_ns = cuda_stamp_ns,
};
