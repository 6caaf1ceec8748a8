/* The types and prototypes of cudnn.h, which includes this. */
#pragma once
#include "cudnn.h"

#ifndef FAKE_CUDA_REAL_TYPES
#define FAKE_CUDNN_VALUE(name, value) name = value,
#define FAKE_CUDNN_ENUM(type, list) \
  typedef enum \
  { \
    list (FAKE_CUDNN_VALUE) \
  } type;
FAKE_CUDNN_ENUMS (FAKE_CUDNN_ENUM)
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;
#endif

size_t cudnnGetVersion (void);
const char *cudnnGetErrorString (cudnnStatus_t status);
void cudnnGetLastErrorString (char *text, size_t bytes);
cudnnStatus_t cudnnCreate (cudnnHandle_t *out);
cudnnStatus_t cudnnDestroy (cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream (cudnnHandle_t handle, cudaStream_t stream);

cudnnStatus_t cudnnBackendCreateDescriptor (cudnnBackendDescriptorType_t type,
                                            cudnnBackendDescriptor_t *out);
cudnnStatus_t cudnnBackendDestroyDescriptor (cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendSetAttribute (cudnnBackendDescriptor_t descriptor,
                                        cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, int64_t count,
                                        const void *values);
cudnnStatus_t cudnnBackendGetAttribute (cudnnBackendDescriptor_t const descriptor,
                                        cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, int64_t requested,
                                        int64_t *count, void *values);
cudnnStatus_t cudnnBackendFinalize (cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendExecute (cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                   cudnnBackendDescriptor_t variant);
