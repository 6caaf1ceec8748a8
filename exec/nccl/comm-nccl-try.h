/* What functions of the NCCL backend are written with: its mutex, and calls that may fail. */
#pragma once
#include "exec/nccl/comm-nccl-private.h"
G_BEGIN_DECLS

/* The rest of the function has the mutex: the rank's thread is in a call of ExecComm's. */
#define INSIDE(comm) \
  G_GNUC_UNUSED g_autoptr (GMutexLocker) inside \
      = g_mutex_locker_new (&((NcclComm *)(comm))->world->mutex)

/* Leave the function when the call fails; its text is in the message. */
#define CUDA_TRY(call, error) \
  G_STMT_START \
  { \
    if (!exec_comm_nccl_check_cuda (call, #call, error)) \
      return FALSE; \
  } \
  G_STMT_END

/* The same for a call that the driver may keep until the device gets on: without the mutex. */
#define CUDA_TRY_OUTSIDE(world, call, error) \
  G_STMT_START \
  { \
    g_mutex_unlock (&(world)->mutex); \
    const cudaError_t cuda_code = (call); \
    g_mutex_lock (&(world)->mutex); \
    if (!exec_comm_nccl_check_cuda (cuda_code, #call, error)) \
      return FALSE; \
  } \
  G_STMT_END

#define NCCL_TRY(self, call, error) \
  G_STMT_START \
  { \
    if (!exec_comm_nccl_settle (self, call, #call, error)) \
      return FALSE; \
  } \
  G_STMT_END

G_END_DECLS
