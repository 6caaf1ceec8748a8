/* The GPU of one rank, as its files share it: device-cuda.c is the device, graph.c keeps a step and
 * runs it again. */
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

/* When a stream got somewhere: its event, or the host's clock where that is NULL. */
typedef struct
{
  cudaEvent_t event;
  gint64 host_ns;
} Stamp;

typedef struct
{
  ExecDevice device;
  const ExecKernels *kernels;
  ExecComm *comm;
  gboolean memory_is_comms;             /* taken from it */
  cudaStream_t streams[PLAN_N_STREAMS]; /* NULL: the schedule has no op there */
  cudaEvent_t copied[PLAN_N_STREAMS];   /* behind the last copy in or out */
  gboolean has_copies[PLAN_N_STREAMS];
  guint n_events;
  cudaEvent_t *events; /* of the schedule */
  GArray *chunks;      /* Chunk */
  cudaEvent_t begin;   /* timed */
  gint64 begin_ns;
  GArray *stamps;    /* Stamp */
  GPtrArray *clocks; /* timed events; the first of them are those of stamps */
  guint n_clocks;    /* in use */

  /* Of a step that is kept; see graph.c. */
  ExecCudaVarying *varying, *varying_host; /* the device's; what it is copied from, pinned */
  cudaEvent_t tail;                        /* of this rank's streams; NULL: nothing is kept ever */
  cudaGraphExec_t graph;                   /* of all ranks that share the GPU: the first one's */
  gboolean is_keeping;
  guint8 *was_kept; /* per event of the schedule: it was recorded last in what is kept */
} CudaDevice;

/* exec/cuda/device-cuda.c: copies by `kind`, and knows when all that is copied is there. */
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
