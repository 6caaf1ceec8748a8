/* Macros for the functions of the NCCL backend: to hold its mutex, and to make calls that may
 * fail. */
#pragma once
#include "exec/nccl/comm-nccl-private.h"
G_BEGIN_DECLS

/* Holds the mutex until the function returns: for functions that the rank's thread enters by
 * ExecCommOps. */
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

/* The same without the mutex meanwhile, for a call in which the driver may block the thread until
 * the device gets on. */
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
