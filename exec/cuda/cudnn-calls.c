/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN, loaded when attention first asks for it. Where it is not found its version is 0, and
 * batched products do attention. */
#include "config.h"

#include "exec/comm/late.h"

#include <stdbool.h>

#include <cudnn.h>

static ExecLate library = { .name = "libcudnn.so.9", .remedy = "" };

#define CALLS(X) \
  X (cudnnCreate, (cudnnHandle_t * handle), (handle)) \
  X (cudnnDestroy, (cudnnHandle_t handle), (handle)) \
  X (cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream)) \
  X (cudnnBackendCreateDescriptor, \
     (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t * out), (type, out)) \
  X (cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t self), (self)) \
  X (cudnnBackendFinalize, (cudnnBackendDescriptor_t self), (self)) \
  X (cudnnBackendSetAttribute, \
     (cudnnBackendDescriptor_t self, cudnnBackendAttributeName_t name, \
      cudnnBackendAttributeType_t type, int64_t n, const void *values), \
     (self, name, type, n, values)) \
  X (cudnnBackendGetAttribute, \
     (cudnnBackendDescriptor_t const self, cudnnBackendAttributeName_t name, \
      cudnnBackendAttributeType_t type, int64_t asked, int64_t *n, void *values), \
     (self, name, type, asked, n, values)) \
  X (cudnnBackendExecute, \
     (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack), \
     (handle, plan, pack))

#define DEFINE(call, parameters, arguments) \
  cudnnStatus_t call parameters \
  { \
    typedef cudnnStatus_t (*Call) parameters; \
    const Call found = (Call)exec_late_find (&library, #call); \
    return found ? found arguments : CUDNN_STATUS_NOT_INITIALIZED; \
  }
CALLS (DEFINE)

size_t
cudnnGetVersion (void)
{
  typedef size_t (*Call) (void);
  const Call found = (Call)exec_late_find (&library, "cudnnGetVersion");
  return found ? found () : 0;
}

const char *
cudnnGetErrorString (cudnnStatus_t status)
{
  typedef const char *(*Call) (cudnnStatus_t);
  const Call found = (Call)exec_late_find (&library, "cudnnGetErrorString");
  return found ? found (status) : library.why;
}

void
cudnnGetLastErrorString (char *out, size_t bytes)
{
  typedef void (*Call) (char *, size_t);
  const Call found = (Call)exec_late_find (&library, "cudnnGetLastErrorString");
  if (found)
    found (out, bytes);
  else
    g_strlcpy (out, library.why, bytes);
}
