/* The NCCL backend, as its files share it: comm-nccl.c issues collectives and watches them, -host.c
 * does those on host memory, -memory.c takes registered memory, -open.c makes communicators,
 * -roll.c names the ranks that are lost. */
#pragma once
#include "exec/nccl/comm-nccl.h"
#include <cuda_runtime_api.h>
#include <glib.h>
#include <nccl.h>
G_BEGIN_DECLS

/* What NCCL's header lacks before 2.27; before 2.24 it names bf16 only where cuda_bf16.h is
 * included. */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
typedef void *ncclWindow_t;
#define ncclBfloat16 ((ncclDataType_t)9)
#endif
#ifndef NCCL_WIN_REQUIRED_ALIGNMENT
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#endif

/* State that all communicators of a rank share. The rank's thread holds the mutex during each call
 * of ExecComm's, except while the driver may block it. Meanwhile the thread `watch` checks
 * deadlines of pending collectives. */
typedef struct
{
  ExecNcclOptions options;
  GMutex mutex;
  GThread *watch; /* NULL: one rank waits for nobody */
  GMutex watch_mutex;
  GCond watch_ends;
  gboolean is_closing;  /* the watch is to end; under watch_mutex */
  int device;           /* the number of the rank's GPU, as CUDA counts in this process */
  gboolean is_one_host; /* all ranks are on one */
  guint rank;           /* of this process or thread among all */
  ExecComm *carrier;    /* by which ranks met and report failures; NULL: there is none */
  char *meeting;        /* HOST:PORT where they met without a carrier; NULL: they met otherwise */
  char **hosts;         /* of all ranks, one after the other; NULL: not known */
  GPtrArray *comms;     /* NcclComm, not owned, oldest first */
  GArray *blocks;       /* NcclBlock: memory taken by exec_comm_nccl_take */
  GQueue pending;       /* NcclPending, oldest first */
  GPtrArray *spare;     /* NcclPending with an event, to be used again */
  gint64 ended_ns;      /* when a pending one was last found to have ended */
  char *reason;         /* why nothing works any more; NULL while all is well */
  GPtrArray *aborted;   /* ncclComm_t: of all communicators, when this rank gave up */
  GThread *aborting;    /* the thread that aborts them; NULL: there is none */
  gint is_stopped;      /* atomic: the kernels of all communicators have been told to end */
  cudaStream_t stream;
  guint8 *stage[2]; /* device memory through which host memory is sent [0] and received [1] */
  gboolean has_voted;
  guint8 *pinned[2]; /* pinned memory, copied to stage[0] and from stage[1] */
} NcclWorld;

typedef struct
{
  ExecComm comm;
  NcclWorld *world;
  ncclComm_t handle; /* NULL after an abort */
  guint stride;      /* between its ranks, counted among all ranks */
  char name[32];
} NcclComm;

/* A collective on a stream that is not known to have ended. */
typedef struct
{
  cudaEvent_t done;
  const NcclComm *comm;
  const char *call;
  guint32 node;
  gint64 unit;
  gint64 issued_ns;
} NcclPending;

/* How one communicator knows a block: by a window, or by a handle. */
typedef struct
{
  const NcclComm *comm;
  ncclWindow_t window;
  void *handle;
} NcclRegistration;

typedef struct
{
  guint8 *memory;
  guint64 bytes;
  GArray *registrations; /* NcclRegistration; NULL where it is plain memory */
} NcclBlock;

/* exec/nccl/comm-nccl.c */
extern const ExecCommOps exec_comm_nccl_ops;
gboolean exec_comm_nccl_check_cuda (cudaError_t code, const char *call, GError **error);
/* Waits until NCCL has done `call` on this communicator, to which it answered `result`; what the
 * call issues on a stream has been issued then. Gives up if the call failed. */
gboolean exec_comm_nccl_settle (NcclComm *self, ncclResult_t result, const char *call,
                                GError **error);
gboolean exec_comm_nccl_is_usable (const NcclComm *self, GError **error);

/* exec_comm_nccl_follow records an event behind what was issued on a stream, to watch for its end.
 * The two others let the host wait: for a stream, and for all that is followed. */
gboolean exec_comm_nccl_follow (NcclComm *self, const char *call, cudaStream_t stream,
                                GError **error);
gboolean exec_comm_nccl_wait (NcclComm *self, cudaStream_t stream, GError **error);
gboolean exec_comm_nccl_wait_for_all (NcclComm *self, GError **error);
/* Receives `out` from one rank and sends `in` to another; either may be NULL. */
ncclResult_t exec_comm_nccl_pass (const NcclComm *self, void *out, guint from, const void *in,
                                  guint to, guint64 bytes, cudaStream_t stream);

void exec_comm_nccl_give_up (NcclWorld *world, const char *reason);

/* Starts, and ends, a thread that watches, and gives up, while the driver blocks the rank's own
 * thread. */
void exec_comm_nccl_begin_watch (NcclWorld *world);
void exec_comm_nccl_end_watch (NcclWorld *world);

/* Waits until the abort that giving up began has ended. Graphs with collectives in them have to be
 * destroyed before. */
void exec_comm_nccl_end_abort (NcclWorld *world);

/* exec/nccl/comm-nccl-roll.c: which ranks do not answer, such as "no sign of rank 2 on b", or that
 * all do. A rank asks when something, `what`, went wrong, and waits for up to the timeout. NULL:
 * that cannot be found out. The caller frees. */
char *exec_comm_nccl_call_roll (const NcclWorld *world, const char *what);

/* exec/nccl/comm-nccl-host.c */
gboolean exec_comm_nccl_take_stage (NcclWorld *world, GError **error);
gboolean exec_comm_nccl_host_gather (NcclComm *self, void *out, const void *in, guint64 bytes,
                                     GError **error);
gboolean exec_comm_nccl_host_exchange (NcclComm *self, void *out, const void *in, guint64 bytes,
                                       GError **error);
gboolean exec_comm_nccl_host_pass (NcclComm *self, void *out, guint from, const void *in, guint to,
                                   guint64 bytes, GError **error);
gboolean exec_comm_nccl_host_scatter (NcclComm *self, ExecCommFold fold, void *out, const void *in,
                                      guint64 count, PlanDtype dtype, GError **error);
gboolean exec_comm_nccl_host_reduce (NcclComm *self, ExecCommFold fold, void *buf, guint64 count,
                                     PlanDtype dtype, GError **error);
gboolean exec_comm_nccl_vote (ExecComm *comm, gboolean yes, gboolean *out_before, GError **error);
gboolean exec_comm_nccl_host_max (NcclComm *self, float *buf, guint64 count, GError **error);

/* exec/nccl/comm-nccl-memory.c */
void *exec_comm_nccl_take (ExecComm *comm, guint64 bytes, GError **error);
void exec_comm_nccl_give_back (ExecComm *comm, void *memory);
gboolean exec_comm_nccl_register_blocks (NcclComm *self, GError **error);
void exec_comm_nccl_forget_blocks (NcclComm *self);
void exec_comm_nccl_free_blocks (NcclWorld *world);

/* exec/nccl/comm-nccl-open.c */
ExecComm *exec_comm_nccl_group (ExecComm *comm, guint size, guint stride, GError **error);
void exec_comm_nccl_close (ExecComm *comm);

G_END_DECLS
