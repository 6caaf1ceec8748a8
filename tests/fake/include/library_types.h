/* Number formats under NVIDIA's names and values; see driver_values.h. */
#pragma once

#define FAKE_CUDA_DATA_TYPES(X) \
  X (CUDA_R_32F, 0) \
  X (CUDA_R_64F, 1) \
  X (CUDA_R_16F, 2) \
  X (CUDA_R_8I, 3) \
  X (CUDA_R_32I, 10) \
  X (CUDA_R_16BF, 14) \
  X (CUDA_R_8F_E4M3, 28) \
  X (CUDA_R_8F_E5M2, 29) \
  X (CUDA_R_8F_UE8M0, 30) \
  X (CUDA_R_4F_E2M1, 33)

#ifndef FAKE_CUDA_REAL_TYPES
#define FAKE_CUDA_DATA_TYPE(name, value) name = value,
typedef enum cudaDataType_t
{
  FAKE_CUDA_DATA_TYPES (FAKE_CUDA_DATA_TYPE)
} cudaDataType;
typedef enum cudaDataType_t cudaDataType_t;
#endif
