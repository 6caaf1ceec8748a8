/* Turns errors of the CUDA runtime and of cuBLASLt into GErrors with the call's text; waits for
 * events that may never happen. */
#pragma once
#include "exec/comm.h"
#include <glib.h>
G_BEGIN_DECLS

/* TRUE for code 0; else an error: INFEASIBLE where the device has no memory left, BACKEND
 * otherwise. `what` says what was tried; `code` is a cudaError_t, or comes from one of the next two
 * functions. */
gboolean exec_cuda_check (int code, const char *what, GError **error);

/* A cublasStatus_t as a code that no cudaError_t has. */
int exec_cuda_lt_code (int status);

/* Keeps an error that says more than a number, and gives a code for which the next exec_cuda_check
 * of this thread reports it. Takes the error. */
int exec_cuda_error_code (GError *error);

/* Waits for a cudaEvent_t. Meanwhile it asks the communicator, unless that is NULL, whether a rank
 * is lost: what waits for that rank on the GPU would never end. */
gboolean exec_cuda_await (ExecComm *comm, void *event, GError **error);

/* Leaves the function when the call fails; its text is in the message. */
#define CUDA_TRY(call, error) \
  G_STMT_START \
  { \
    if (!exec_cuda_check ((int)(call), #call, error)) \
      return FALSE; \
  } \
  G_STMT_END

/* Warns if the call fails: for cleaning up, which goes on anyway. */
#define CUDA_WARN(call) \
  G_STMT_START { exec_cuda_warn ((int)(call), #call); } \
  G_STMT_END

/* Warns, unless the device is lost: then every call fails, and the cause has been reported. */
void exec_cuda_warn (int code, const char *what);

G_END_DECLS
