/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements dropout zeroes: exec/number/random.c, for devices. */
#pragma once
#include "exec/cuda/kernels/launch.cuh"
#include "exec/number/random.h"

namespace
{

enum : unsigned
{
  PER_BLOCK = 4 /* numbers of a counter */
};

struct Numbers
{
  uint32_t at[PER_BLOCK];
};

/* Philox 4x32-10. */
__device__ inline Numbers
random_block (const uint32_t *key, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
  uint32_t left = key[0], right = key[1];

  EXEC_CUDA_UNROLL_ALL
  for (unsigned round = 0; round < 10; round++)
    {
      uint64_t x = (uint64_t)0xd2511f53u * a, y = (uint64_t)0xcd9e8d57u * c;

      a = (uint32_t)(y >> 32) ^ b ^ left;
      b = (uint32_t)y;
      c = (uint32_t)(x >> 32) ^ d ^ right;
      d = (uint32_t)x;
      left += 0x9e3779b9u;
      right += 0xbb67ae85u;
    }
  return { { a, b, c, d } };
}

__device__ inline uint32_t
number_at (const Numbers &numbers, uint64_t at)
{
  uint32_t low = at % 2 ? numbers.at[1] : numbers.at[0];
  uint32_t high = at % 2 ? numbers.at[3] : numbers.at[2]; /* an index would need memory */

  return at % PER_BLOCK < 2 ? low : high;
}

/* The factors, 0 or `scale`, of the elements of a row from column `first` on, a multiple of
 * PER_BLOCK. The row is that of token number `token` of the run; `dropout.key` is in device
 * memory. */
__device__ inline Piece
dropout_factors (const ExecDropout &dropout, uint64_t token, uint64_t first)
{
  Piece factors;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i += PER_BLOCK)
    {
      Numbers numbers = random_block (dropout.key, (uint32_t)((first + i) / PER_BLOCK),
                                      (uint32_t)token, (uint32_t)(token >> 32), dropout.site);

      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < PER_BLOCK; k++)
        factors.at[i + k] = numbers.at[k] < dropout.limit ? 0 : dropout.scale;
    }
  return factors;
}

}
