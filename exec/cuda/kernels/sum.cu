/* SPDX-License-Identifier: Apache-2.0 */
/* Sum and maximum over ranks that share a GPU; the sum is in fp32, in rank order, rounded once.
 * nan_to_infinity replaces NaNs before a maximum by NCCL, which would drop them.
 *
 * Launch shape   a thread per piece of 8 elements, 256 a block, at most 2048 blocks.
 * Per call       bytes: count (s + ranks s), and 2 count s of nan_to_infinity; FLOPs:
 *                count (ranks - 1). s: bytes per element.
 * Checked with   exec_comm_sum and exec_comm_max of exec/comm/comm.c, by tests/fake and tests/gpu:
 *                the same operations in the same order, equal bit for bit. */
#include "exec/cuda/kernels/sum.h"

#include "exec/cuda/kernels/launch.cuh"

namespace
{

struct RankArrays
{
  Array of_rank[EXEC_CUDA_MAX_SUMMED];
};

/* The larger of two numbers; NaN where one of them is. */
__device__ inline float
larger_of (float max, float term)
{
  return term <= max || isnan (max) ? max : term;
}

/* `out` may be one of the arrays in `in`, or begin inside of one where no other rank reads it. */
__global__ void
fold (uint64_t count, unsigned ranks, bool adds, Array out, RankArrays in)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Piece total = read (in.of_rank[0], at, n);

      for (unsigned rank = 1; rank < ranks; rank++)
        {
          Piece term = read (in.of_rank[rank], at, n);

          for (unsigned i = 0; i < PIECE; i++)
            total.at[i] = adds ? total.at[i] + term.at[i] : larger_of (total.at[i], term.at[i]);
        }
      write (out, at, n, total);
    }
}

/* Turns NaNs into infinity. Without their sign, bits of NaNs are above those of infinity. */
template <typename Word>
__global__ void
nan_to_infinity (uint64_t count, Word *buf, Word infinity)
{
  const Word magnitude = sizeof (Word) == 2 ? (Word)0x7fff : (Word)0x7fffffff;

  for (uint64_t at = first_x (); at < count; at += stride_x ())
    if ((buf[at] & magnitude) > infinity)
      buf[at] = infinity;
}

int
fold_ranks (void *out, const void *const *in, unsigned ranks, uint64_t count, PlanDtype dtype,
            bool adds, void *stream)
{
  RankArrays arrays = {};

  if (!is_format (dtype) || ranks > EXEC_CUDA_MAX_SUMMED)
    return (int)cudaErrorInvalidValue;
  if (count == 0)
    return (int)cudaSuccess;
  for (unsigned rank = 0; rank < ranks; rank++)
    arrays.of_rank[rank] = array_of (in[rank], dtype, is_aligned (in[rank]));
  return EXEC_CUDA_LAUNCH (fold, shape_of_pieces (count), stream, count, ranks, adds,
                           array_of (out, dtype, is_aligned (out)), arrays);
}

}

extern "C" int
exec_cuda_sum (void *out, const void *const *in, unsigned ranks, uint64_t count, PlanDtype dtype,
               void *stream)
{
  return fold_ranks (out, in, ranks, count, dtype, true, stream);
}

extern "C" int
exec_cuda_max (void *out, const void *const *in, unsigned ranks, uint64_t count, PlanDtype dtype,
               void *stream)
{
  return fold_ranks (out, in, ranks, count, dtype, false, stream);
}

extern "C" int
exec_cuda_nan_to_infinity (void *buf, uint64_t count, PlanDtype dtype, void *stream)
{
  uint16_t infinity = dtype == PLAN_DTYPE_BF16 ? 0x7f80 : 0x7c00;

  if (!is_format (dtype))
    return (int)cudaErrorInvalidValue;
  if (count == 0)
    return (int)cudaSuccess;
  if (dtype == PLAN_DTYPE_FP32)
    return EXEC_CUDA_LAUNCH (nan_to_infinity<uint32_t>, shape_of_items (count), stream, count,
                             (uint32_t *)buf, 0x7f800000u);
  return EXEC_CUDA_LAUNCH (nan_to_infinity<uint16_t>, shape_of_items (count), stream, count,
                           (uint16_t *)buf, infinity);
}
