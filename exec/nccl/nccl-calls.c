/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's calls, passed on to the library, which is loaded when ranks with a GPU each first meet:
 * one GPU does without. */
#include "config.h"

#include "exec/comm/late.h"

#include <nccl.h>

static ExecLate library
    = { .name = "libnccl.so.2",
        .remedy = "ranks with a GPU each need NCCL: NVIDIA's package libnccl2, or pip install "
                  "nvidia-nccl-cu12 with its folder in LD_LIBRARY_PATH" };

/* Declared again, because NCCL's header leaves open which parameters they take: none. */
ncclResult_t ncclGroupStart (void);
ncclResult_t ncclGroupEnd (void);

#define CALLS(X) \
  X (ncclGetVersion, (int *version), (version)) \
  X (ncclGetUniqueId, (ncclUniqueId * id), (id)) \
  X (ncclCommInitRankConfig, \
     (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config), \
     (comm, ranks, id, rank, config)) \
  X (ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config), \
     (comm, color, key, made, config)) \
  X (ncclCommFinalize, (ncclComm_t comm), (comm)) \
  X (ncclCommDestroy, (ncclComm_t comm), (comm)) \
  X (ncclCommAbort, (ncclComm_t comm), (comm)) \
  X (ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * state), (comm, state)) \
  X (ncclCommRegister, (const ncclComm_t comm, void *at, size_t bytes, void **handle), \
     (comm, at, bytes, handle)) \
  X (ncclCommDeregister, (const ncclComm_t comm, void *handle), (comm, handle)) \
  X (ncclMemAlloc, (void **out, size_t bytes), (out, bytes)) \
  X (ncclMemFree, (void *at), (at)) \
  X (ncclGroupStart, (void), ()) \
  X (ncclGroupEnd, (void), ()) \
  X (ncclAllGather, \
     (const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm, \
      cudaStream_t stream), \
     (in, out, count, type, comm, stream)) \
  X (ncclReduceScatter, \
     (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, \
      ncclComm_t comm, cudaStream_t stream), \
     (in, out, count, type, op, comm, stream)) \
  X (ncclAllReduce, \
     (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, \
      ncclComm_t comm, cudaStream_t stream), \
     (in, out, count, type, op, comm, stream)) \
  X (ncclSend, \
     (const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, \
      cudaStream_t stream), \
     (in, count, type, peer, comm, stream)) \
  X (ncclRecv, \
     (void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, \
      cudaStream_t stream), \
     (out, count, type, peer, comm, stream))

#define WINDOW_CALLS(X) \
  X (ncclCommWindowRegister, \
     (ncclComm_t comm, void *at, size_t bytes, ncclWindow_t *window, int flags), \
     (comm, at, bytes, window, flags)) \
  X (ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window))

#define DEFINE(call, parameters, arguments) \
  ncclResult_t call parameters \
  { \
    typedef ncclResult_t (*Call) parameters; \
    const Call found = (Call)exec_late_find (&library, #call); \
    return found ? found arguments : ncclSystemError; \
  }
CALLS (DEFINE)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
WINDOW_CALLS (DEFINE)
#endif

const char *
ncclGetErrorString (ncclResult_t result)
{
  typedef const char *(*Call) (ncclResult_t);
  const Call found = (Call)exec_late_find (&library, "ncclGetErrorString");
  return found ? found (result) : library.why;
}

const char *
ncclGetLastError (ncclComm_t comm)
{
  typedef const char *(*Call) (ncclComm_t);
  const Call found = (Call)exec_late_find (&library, "ncclGetLastError");
  return found ? found (comm) : library.why;
}
