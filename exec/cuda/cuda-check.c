/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/cuda-check.h"

#include "planner/base/error.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#define KEPT G_MININT

static __thread GError *kept;

int
exec_cuda_error_code (GError *error)
{
  g_clear_error (&kept);
  kept = error;
  return KEPT;
}

int
exec_cuda_lt_code (int status)
{
  return -status;
}

gboolean
exec_cuda_check (int code, const char *what, GError **error)
{
  if (code == 0)
    return TRUE;
  if (code == KEPT)
    g_propagate_prefixed_error (error, g_steal_pointer (&kept), "%s: ", what);
  else if (code < 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "%s: cuBLASLt: %s", what,
                 cublasLtGetStatusString ((cublasStatus_t)-code));
  else
    g_set_error (error, PLAN_ERROR,
                 code == cudaErrorMemoryAllocation ? PLAN_ERROR_INFEASIBLE : PLAN_ERROR_BACKEND,
                 "%s: %s (%s)", what, cudaGetErrorString ((cudaError_t)code),
                 cudaGetErrorName ((cudaError_t)code));
  return FALSE;
}

/* Checks the result of a wait. CUDA reports what goes wrong on the GPU to whoever waits next, not
 * to the op that caused it, so the message says that. */
static gboolean
check_wait (cudaError_t code, GError **error)
{
  return exec_cuda_check (
      (int)code, "an op before this one failed (CUDA_LAUNCH_BLOCKING=1 shows which)", error);
}

gboolean
exec_cuda_await (ExecComm *comm, void *event, GError **error)
{
  cudaError_t code;
  if (!comm || !comm->ops->check)
    return check_wait (cudaEventSynchronize (event), error);
  while ((code = cudaEventQuery (event)) == cudaErrorNotReady)
    {
      if (!comm->ops->check (comm, error))
        return FALSE;
      g_thread_yield ();
    }
  return check_wait (code, error);
}

/* Errors after which every call fails until the process ends. */
static gboolean
is_lost (int code)
{
  static const cudaError_t lost[] = { cudaErrorECCUncorrectable,
                                      cudaErrorNvlinkUncorrectable,
                                      cudaErrorIllegalAddress,
                                      cudaErrorLaunchTimeout,
                                      cudaErrorAssert,
                                      cudaErrorHardwareStackError,
                                      cudaErrorIllegalInstruction,
                                      cudaErrorMisalignedAddress,
                                      cudaErrorInvalidAddressSpace,
                                      cudaErrorInvalidPc,
                                      cudaErrorLaunchFailure };
  for (guint i = 0; i < G_N_ELEMENTS (lost); i++)
    if (code == (int)lost[i])
      return TRUE;
  return FALSE;
}

void
exec_cuda_warn (int code, const char *what)
{
  g_autoptr (GError) why = NULL;
  if (exec_cuda_check (code, what, &why))
    return;
  if (is_lost (code))
    g_debug ("%s", why->message);
  else
    g_warning ("%s", why->message);
}
