/* SPDX-License-Identifier: Apache-2.0 */
/* The sum over ranks that share a GPU: in fp32, in rank order, rounded once.
 *
 * Launch shape   a thread per piece of 8 elements, 256 a block, at most 2048 blocks.
 * Per call       bytes: count (s + ranks s); FLOPs: count (ranks - 1). s: bytes per element.
 * Checked with   exec_comm_sum of exec/comm.c, by tests/fake and tests/gpu: the same operations in
 *                the same order, equal bit for bit. */
#include "exec/cuda/sum.h"

#include "exec/cuda/launch.cuh"

namespace
{

struct Summed
{
  Array of_rank[EXEC_CUDA_MAX_SUMMED];
};

/* out may be one of those that are summed, or begin inside of one where others do not. */
__global__ void
sum (uint64_t count, unsigned ranks, Array out, Summed in)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Piece total = read (in.of_rank[0], at, n);

      for (unsigned rank = 1; rank < ranks; rank++)
        {
          Piece term = read (in.of_rank[rank], at, n);

          for (unsigned i = 0; i < PIECE; i++)
            total.at[i] += term.at[i];
        }
      write (out, at, n, total);
    }
}

Array
array_of (const void *at, PlanDtype dtype)
{
  return { (void *)at, dtype == PLAN_DTYPE_BF16, is_aligned (at) };
}

}

extern "C" int
exec_cuda_sum (void *out, const void *const *in, unsigned ranks, uint64_t count, PlanDtype dtype,
               void *stream)
{
  Summed summed = {};

  if ((dtype != PLAN_DTYPE_FP32 && dtype != PLAN_DTYPE_BF16) || ranks > EXEC_CUDA_MAX_SUMMED)
    return (int)cudaErrorInvalidValue;
  if (count == 0)
    return (int)cudaSuccess;
  for (unsigned rank = 0; rank < ranks; rank++)
    summed.of_rank[rank] = array_of (in[rank], dtype);
  return EXEC_CUDA_LAUNCH (sum, shape_of_pieces (count), stream, count, ranks,
                           array_of (out, dtype), summed);
}
