/* Errors of the CUDA runtime and of cuBLASLt become GErrors, with the call's text; how the host
 * waits for what may never end. */
#pragma once
#include "exec/comm.h"
#include <glib.h>
G_BEGIN_DECLS

/* TRUE for 0; else BACKEND, or INFEASIBLE where the device has no memory left. `what` is what was
 * tried, `code` a cudaError_t or what one of the functions below made. */
gboolean exec_cuda_check (int code, const char *what, GError **error);

/* A cublasStatus_t as a code that no cudaError_t has. */
int exec_cuda_lt_code (int status);

/* An error that says more than a number, as a code for the next exec_cuda_check of this thread,
 * which tells it. Takes the error. */
int exec_cuda_error_code (GError *error);

/* Waits for a cudaEvent_t. A communicator that can lose a rank is asked meanwhile: what waits for
 * that rank on the GPU would never end. NULL: there is none. */
gboolean exec_cuda_await (ExecComm *comm, void *event, GError **error);

/* Leaves the function when the call fails; its text is in the message. */
#define CUDA_TRY(call, error) \
  G_STMT_START \
  { \
    if (!exec_cuda_check ((int)(call), #call, error)) \
      return FALSE; \
  } \
  G_STMT_END

/* Where cleaning up goes on anyway. */
#define CUDA_WARN(call) \
  G_STMT_START { exec_cuda_warn ((int)(call), #call); } \
  G_STMT_END

/* Warns, unless the device is lost: then every call fails, and what did that is an error already.
 */
void exec_cuda_warn (int code, const char *what);

G_END_DECLS
