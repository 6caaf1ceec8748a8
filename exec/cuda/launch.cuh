/* SPDX-License-Identifier: Apache-2.0 */
/* What every kernel file uses: the one launch macro, launch shapes, number formats, and the way
 * from a PlanDtype to a type. Indices have 64 bits; every loop strides over the grid, so that any
 * grid gives the same result. */
#pragma once
#include "exec/cuda/kernels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Issues kernel (arguments...) and is the error code of doing so. Kernels are templates whose types
 * follow from their arguments. A stand-in for the device brings a macro of its own. */
#ifndef EXEC_CUDA_LAUNCH
#define EXEC_CUDA_LAUNCH(kernel, shape, stream, ...) \
  (kernel<<<(shape).grid, (shape).block, 0, (cudaStream_t)(stream)>>> (__VA_ARGS__), \
   (int)cudaGetLastError ())
#endif

namespace
{

/* --- shapes ------------------------------------------------------------------------------- */

enum : unsigned
{
  WARP = 32,
  THREADS = 256,       /* of a block */
  MAX_BLOCKS = 2048,   /* along x: more than any device runs at once */
  MAX_BLOCKS_Y = 65535 /* what the hardware takes */
};

struct Shape
{
  dim3 grid, block;
};

inline uint64_t
at_most (uint64_t value, uint64_t limit)
{
  return value < limit ? value : limit;
}

/* A thread per element. */
inline Shape
shape_of_elements (uint64_t count)
{
  uint64_t blocks = at_most (count / THREADS + (count % THREADS != 0), MAX_BLOCKS);

  return { dim3 (blocks > 0 ? (unsigned)blocks : 1), dim3 (THREADS) };
}

/* Columns along x in whole warps, rows along y: no index needs a division. */
inline Shape
shape_of_matrix (uint64_t rows, uint64_t cols)
{
  unsigned threads = (unsigned)at_most ((cols + WARP - 1) / WARP * WARP, THREADS);
  uint64_t blocks = at_most (cols / THREADS + (cols % THREADS != 0), MAX_BLOCKS);

  return { dim3 (blocks > 0 ? (unsigned)blocks : 1,
                 rows > 0 ? (unsigned)at_most (rows, MAX_BLOCKS_Y) : 1),
           dim3 (threads > 0 ? threads : WARP) };
}

__device__ inline uint64_t
first_x ()
{
  return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline uint64_t
stride_x ()
{
  return (uint64_t)gridDim.x * blockDim.x;
}

/* --- number formats: bit for bit those of exec/number.c ----------------------------------- */

struct Bf16
{
  uint16_t bits;
};

__device__ inline float
load (const float *at)
{
  return *at;
}

__device__ inline float
load (const Bf16 *at)
{
  uint32_t word = (uint32_t)at->bits << 16;
  float value;

  memcpy (&value, &word, sizeof value);
  return value;
}

__device__ inline void
store (float *at, float value)
{
  *at = value;
}

__device__ inline void
store (Bf16 *at, float value)
{
  uint32_t word;

  memcpy (&word, &value, sizeof word);
  if ((word & 0x7fffffffu) > 0x7f800000u)
    at->bits = (uint16_t)(word >> 16 | 0x40); /* rounding could turn a NaN into inf */
  else
    at->bits = (uint16_t)((word + 0x7fffu + (word >> 16 & 1)) >> 16);
}

/* Calls body with the operands of the given numbers as pointers to their formats' types, and
 * returns what it does; a format that kernels do not compute in is refused. */
template <typename Body>
int
with_types (const ExecArgs *args, Body body)
{
  return body ();
}

template <typename Body, typename... Rest>
int
with_types (const ExecArgs *args, Body body, int operand, Rest... rest)
{
  void *at = args->ptr[operand];

  if (args->dtype[operand] == PLAN_DTYPE_FP32)
    return with_types (
        args, [=] (auto... more) { return body ((float *)at, more...); }, rest...);
  if (args->dtype[operand] == PLAN_DTYPE_BF16)
    return with_types (
        args, [=] (auto... more) { return body ((Bf16 *)at, more...); }, rest...);
  return (int)cudaErrorInvalidValue;
}

}
