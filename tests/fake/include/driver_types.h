/* The CUDA runtime's types, as far as they are used here, under NVIDIA's names; none where the real
 * ones are there already (FAKE_CUDA_REAL_TYPES). */
#pragma once
#include "driver_values.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define FAKE_BEGIN_DECLS \
  extern "C" \
  {
#define FAKE_END_DECLS }
#else
#define FAKE_BEGIN_DECLS
#define FAKE_END_DECLS
#endif

#ifndef FAKE_CUDA_REAL_TYPES
#define CUDART_VERSION FAKE_CUDART_VERSION
#define FAKE_CUDA_VALUE(name, value) name = value,
#define FAKE_CUDA_FIELD(type, name, dimension) type name dimension;

typedef enum cudaError
{
  FAKE_CUDA_ERRORS (FAKE_CUDA_VALUE)
} cudaError_t;
enum cudaMemcpyKind
{
  FAKE_CUDA_MEMCPY_KINDS (FAKE_CUDA_VALUE)
};
enum cudaDeviceAttr
{
  FAKE_CUDA_DEVICE_ATTRIBUTES (FAKE_CUDA_VALUE)
};
enum cudaFuncAttribute
{
  FAKE_CUDA_FUNCTION_ATTRIBUTES (FAKE_CUDA_VALUE)
};
enum cudaMemoryType
{
  FAKE_CUDA_MEMORY_TYPES (FAKE_CUDA_VALUE)
};
enum cudaStreamCaptureMode
{
  FAKE_CUDA_CAPTURE_MODES (FAKE_CUDA_VALUE)
};
enum cudaStreamCaptureStatus
{
  FAKE_CUDA_CAPTURE_STATES (FAKE_CUDA_VALUE)
};
enum
{
  FAKE_CUDA_FLAGS (FAKE_CUDA_VALUE)
};

struct cudaDeviceProp
{
  FAKE_CUDA_PROPERTIES (FAKE_CUDA_FIELD)
};

struct cudaPointerAttributes
{
  enum cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef void (*cudaHostFn_t) (void *data);
#endif
