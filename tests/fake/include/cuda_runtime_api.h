/* The calls of the CUDA runtime that are used here; NVIDIA's documentation says what they do, and
 * tests/fake/real-headers.c that these are their prototypes. */
#pragma once
#include "driver_types.h"

FAKE_BEGIN_DECLS

/* devices */
cudaError_t cudaDriverGetVersion (int *version);
cudaError_t cudaRuntimeGetVersion (int *version);
cudaError_t cudaGetDeviceCount (int *count);
cudaError_t cudaSetDevice (int device);
cudaError_t cudaGetDevice (int *device);
cudaError_t cudaGetDeviceProperties (struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute (int *value, enum cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceGetPCIBusId (char *id, int bytes, int device);
cudaError_t cudaDeviceGetStreamPriorityRange (int *least, int *greatest);
cudaError_t cudaDeviceCanAccessPeer (int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess (int peer, unsigned int flags);
cudaError_t cudaDeviceSynchronize (void);

/* errors */
cudaError_t cudaGetLastError (void);
cudaError_t cudaPeekAtLastError (void);
const char *cudaGetErrorName (cudaError_t error);
const char *cudaGetErrorString (cudaError_t error);

/* memory */
cudaError_t cudaMalloc (void **out, size_t bytes);
cudaError_t cudaFree (void *memory);
cudaError_t cudaMallocHost (void **out, size_t bytes);
cudaError_t cudaHostAlloc (void **out, size_t bytes, unsigned int flags);
cudaError_t cudaFreeHost (void *memory);
cudaError_t cudaMemGetInfo (size_t *free, size_t *total);
cudaError_t cudaPointerGetAttributes (struct cudaPointerAttributes *attributes, const void *at);
cudaError_t cudaMemcpy (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                             cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync (void *to, size_t to_pitch, const void *from, size_t from_pitch,
                               size_t width, size_t height, enum cudaMemcpyKind kind,
                               cudaStream_t stream);
cudaError_t cudaMemset (void *at, int byte, size_t bytes);
cudaError_t cudaMemsetAsync (void *at, int byte, size_t bytes, cudaStream_t stream);

/* streams */
cudaError_t cudaStreamCreate (cudaStream_t *out);
cudaError_t cudaStreamCreateWithFlags (cudaStream_t *out, unsigned int flags);
cudaError_t cudaStreamCreateWithPriority (cudaStream_t *out, unsigned int flags, int priority);
cudaError_t cudaStreamDestroy (cudaStream_t stream);
cudaError_t cudaStreamSynchronize (cudaStream_t stream);
cudaError_t cudaStreamQuery (cudaStream_t stream);
cudaError_t cudaStreamWaitEvent (cudaStream_t stream, cudaEvent_t event, unsigned int flags);
cudaError_t cudaLaunchHostFunc (cudaStream_t stream, cudaHostFn_t function, void *data);

/* events */
cudaError_t cudaEventCreate (cudaEvent_t *out);
cudaError_t cudaEventCreateWithFlags (cudaEvent_t *out, unsigned int flags);
cudaError_t cudaEventDestroy (cudaEvent_t event);
cudaError_t cudaEventRecord (cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery (cudaEvent_t event);
cudaError_t cudaEventSynchronize (cudaEvent_t event);
cudaError_t cudaEventElapsedTime (float *ms, cudaEvent_t begin, cudaEvent_t end);

/* graphs */
cudaError_t cudaStreamBeginCapture (cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture (cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaStreamIsCapturing (cudaStream_t stream, enum cudaStreamCaptureStatus *out);
cudaError_t cudaGraphInstantiate (cudaGraphExec_t *out, cudaGraph_t graph,
                                  unsigned long long flags);
cudaError_t cudaGraphLaunch (cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy (cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy (cudaGraph_t graph);

/* kernels */
cudaError_t cudaFuncSetAttribute (const void *function, enum cudaFuncAttribute attr, int value);

FAKE_END_DECLS
