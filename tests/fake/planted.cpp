/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/cuda-fake.h"
#include "tests/fake/planted.h"

namespace
{

__shared__ float slots[64];

__global__ void
reverse (float *out)
{
  slots[threadIdx.x] = (float)threadIdx.x;
  __syncthreads ();
  out[threadIdx.x] = slots[63 - threadIdx.x];
}

__global__ void
no_barrier (float *out)
{
  slots[threadIdx.x] = (float)threadIdx.x;
  out[threadIdx.x] = slots[63 - threadIdx.x];
}

__global__ void
half_barrier (float *out)
{
  slots[threadIdx.x] = (float)threadIdx.x;
  if (threadIdx.x < 32)
    __syncthreads ();
  out[threadIdx.x] = slots[63 - threadIdx.x];
}

__global__ void
two_barriers (float *out)
{
  if (threadIdx.x < 32)
    __syncthreads ();
  else
    __syncthreads ();
  out[threadIdx.x] = 0;
}

__global__ void
half_shuffle (float *out)
{
  float value = (float)threadIdx.x;

  if (threadIdx.x % 32 < 16)
    value += __shfl_xor_sync (0xffffffffu, value, 1);
  out[threadIdx.x] = value;
}

__global__ void
shuffle_down (float *out)
{
  out[threadIdx.x] = __shfl_down_sync (0xffffffffu, (float)threadIdx.x, 1);
}

const struct
{
  dim3 grid, block;
} shape = { dim3 (1), dim3 (64) };

}

int
planted_reverse (float *out)
{
  return EXEC_CUDA_LAUNCH (reverse, shape, nullptr, out);
}

int
planted_no_barrier (float *out)
{
  return EXEC_CUDA_LAUNCH (no_barrier, shape, nullptr, out);
}

int
planted_half_barrier (float *out)
{
  return EXEC_CUDA_LAUNCH (half_barrier, shape, nullptr, out);
}

int
planted_two_barriers (float *out)
{
  return EXEC_CUDA_LAUNCH (two_barriers, shape, nullptr, out);
}

int
planted_half_shuffle (float *out)
{
  return EXEC_CUDA_LAUNCH (half_shuffle, shape, nullptr, out);
}

int
planted_shuffle_down (float *out)
{
  return EXEC_CUDA_LAUNCH (shuffle_down, shape, nullptr, out);
}
