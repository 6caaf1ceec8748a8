/* The GPU of one rank, as its files share it: device-cuda.c is the device, graph.c captures a step
 * as a CUDA graph and launches it again. */
#pragma once
#include "exec/cuda/device-cuda.h"
#include "exec/cuda/kernels/kernels.h"
#include <cuda_runtime_api.h>
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint8 *bytes;
  guint64 size, used;
} Chunk;

/* When a stream got to a point: a timed event, or where that is NULL the host's clock. */
typedef struct
{
  cudaEvent_t event;
  gint64 host_ns;
} Stamp;

#define EXEC_CUDA_PARTS 2 /* of a captured step: until the host knows the loss, and the rest */

typedef struct
{
  ExecDevice device;
  const ExecKernels *kernels;
  ExecComm *comm;
  gboolean is_memory_of_comm;           /* the memory was taken from comm */
  gboolean has_pool;                    /* a thread pool for the host's AdamW */
  cudaStream_t streams[PLAN_N_STREAMS]; /* NULL: the schedule has no op there */
  cudaEvent_t copied[PLAN_N_STREAMS];   /* behind its last copy to or from the host */
  gboolean has_copies[PLAN_N_STREAMS];
  guint n_events;
  cudaEvent_t *events; /* one per event of the schedule */
  GArray *chunks;      /* Chunk */
  cudaEvent_t begin;   /* timed; when the section began */
  gint64 begin_ns;
  GArray *stamps;    /* Stamp */
  GPtrArray *clocks; /* timed events, of which stamps use the first n_clocks */
  guint n_clocks;

  /* Of a captured step; see graph.c. */
  ExecCudaVarying *varying, *varying_host; /* on the device; pinned, where it is copied from */
  cudaEvent_t tail; /* behind this rank's streams; NULL: no step is ever captured */
  cudaGraphExec_t graphs[EXEC_CUDA_PARTS]; /* of all ranks that share the GPU; the first of them has
                                              them */
  guint n_parts;                           /* of the captured step so far; one graph each */
  guint keeping;                           /* the part that is being captured, from 1; 0: none */
  gboolean ends_late;                      /* the last part has copies to or from the host, too */
  guint8 *was_kept; /* per event of the schedule: the part in which its last record was captured */
} CudaDevice;

/* exec/cuda/device-cuda.c: copies in the direction `kind`, and records the stream's `copied` event
 * behind it. */
gboolean exec_cuda_copy_across (CudaDevice *self, void *to, const void *from, guint64 bytes,
                                enum cudaMemcpyKind kind, PlanStream stream, GError **error);

/* exec/cuda/graph.c */
gboolean exec_cuda_graph_open (CudaDevice *self, GError **error);
void exec_cuda_graph_close (CudaDevice *self);
gboolean exec_cuda_graph_vary (ExecDevice *device, const ExecConstants *constants, GError **error);
gboolean exec_cuda_graph_keep (ExecDevice *device, GError **error);
gboolean exec_cuda_graph_launch (ExecDevice *device, const ExecConstants *constants,
                                 GError **error);

G_END_DECLS
