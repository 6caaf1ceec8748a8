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

__global__ void
copy (float *out, const float *in, unsigned count)
{
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
    out[i] = in[i];
}

struct __attribute__ ((aligned (16))) Quad
{
  float at[4];
};

__global__ void __attribute__ ((no_sanitize ("undefined"))) /* some addresses are not aligned */
copy_quads (Quad *out, const Quad *in, unsigned count)
{
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
    out[i] = in[i];
}

__global__ void
copy_long (char *out, const char *in, unsigned count)
{
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
    memcpy (out + 24 * i, in + 24 * i, 24);
}

__global__ void
sum (float *total, const float *in, unsigned count)
{
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
    atomicAdd (total, in[i]);
}

/* Races that no order of whole threads shows: whichever thread comes first, the same is written. */
__global__ void
one_slot (float *out)
{
  slots[threadIdx.x / 2] = 1;
  __syncthreads ();
  out[threadIdx.x] = slots[threadIdx.x / 2];
}

__global__ void
both_blocks (float *out)
{
  out[threadIdx.x] = 1;
}

__global__ void
read_beside_atomics (float *out)
{
  atomicAdd (out, 0.0f);
  if (threadIdx.x == 5)
    out[1] = out[0] > 0;
}

/* Each lane writes, then reads what its neighbour has written. */
__global__ void
within_warps (float *out, bool syncs)
{
  slots[threadIdx.x] = (float)threadIdx.x;
  if (syncs)
    __syncwarp ();
  else
    __shfl_sync (0xffffffffu, 0, 0);
  out[threadIdx.x] = slots[threadIdx.x ^ 1];
}

/* Two rounds, with or without a barrier before the second one overwrites what the first one has
 * read. */
__global__ void
two_rounds (float *out, bool waits)
{
  for (unsigned round = 0; round < 2; round++)
    {
      slots[threadIdx.x] = (float)threadIdx.x;
      __syncthreads ();
      out[threadIdx.x] = slots[63 - threadIdx.x];
      if (waits)
        __syncthreads ();
    }
}

__global__ void
dynamic (float *out)
{
  EXEC_CUDA_DYNAMIC_SHARED (float, own);

  own[threadIdx.x] = (float)threadIdx.x;
  __syncthreads ();
  out[threadIdx.x] = own[63 - threadIdx.x];
}

const struct
{
  dim3 grid, block;
} shape = { dim3 (1), dim3 (64) }, two_blocks = { dim3 (2), dim3 (64) };

}

int
planted_reverse (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (reverse, shape, stream, out);
}

int
planted_no_barrier (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (no_barrier, shape, stream, out);
}

int
planted_half_barrier (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (half_barrier, shape, stream, out);
}

int
planted_two_barriers (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (two_barriers, shape, stream, out);
}

int
planted_half_shuffle (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (half_shuffle, shape, stream, out);
}

int
planted_shuffle_down (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (shuffle_down, shape, stream, out);
}

int
planted_copy (float *out, const float *in, guint count, void *stream)
{
  return EXEC_CUDA_LAUNCH (copy, shape, stream, out, in, count);
}

int
planted_copy_quads (float *out, const float *in, guint count, void *stream)
{
  return EXEC_CUDA_LAUNCH (copy_quads, shape, stream, (Quad *)out, (const Quad *)in, count / 4);
}

int
planted_copy_long (float *out, const float *in, guint count, void *stream)
{
  return EXEC_CUDA_LAUNCH (copy_long, shape, stream, (char *)out, (const char *)in, count / 6);
}

int
planted_sum (float *total, const float *in, guint count, void *stream)
{
  return EXEC_CUDA_LAUNCH (sum, shape, stream, total, in, count);
}

int
planted_one_slot (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (one_slot, shape, stream, out);
}

int
planted_both_blocks (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (both_blocks, two_blocks, stream, out);
}

int
planted_read_beside_atomics (float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (read_beside_atomics, shape, stream, out);
}

int
planted_within_warps (float *out, gboolean syncs, void *stream)
{
  return EXEC_CUDA_LAUNCH (within_warps, shape, stream, out, syncs);
}

int
planted_two_rounds (float *out, gboolean waits, void *stream)
{
  return EXEC_CUDA_LAUNCH (two_rounds, shape, stream, out, waits);
}

int
planted_dynamic (float *out, gsize bytes, void *stream)
{
  return EXEC_CUDA_LAUNCH_SHARED (dynamic, shape, bytes, stream, out);
}
