/* SPDX-License-Identifier: Apache-2.0 */
/* Root-mean-square norm: rstd = 1 / sqrt (mean (in^2) + eps), out = in * rstd * weight.
 *
 * Launch shape   a block of 256 threads per row, at most 2048 blocks; 32 floats of shared memory.
 * Per call       bytes: rows cols (s + s) + cols s + 4 rows, the second reading of a row being from
 *                cache; FLOPs: 4 rows cols. s: bytes per element, of each operand's own format.
 * Checked with   run_rmsnorm of exec/kernels-cpu.c, by tests/fake and tests/gpu. The squares are
 *                added in another order: with u = 2^-24, rstd differs by at most (cols / 8 + 16) u
 *                of itself (both sums are of positive terms, cols / 8 and cols / 256 deep), out by
 *                4 u more and the rounding of its format. */
#include "exec/cuda/launch.cuh"

namespace
{

__device__ inline float
warp_sum (float value)
{
  for (int distance = WARP / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync (0xffffffffu, value, distance);
  return value;
}

/* The sum over the block, the same bits in every thread: each adds the same tree. */
__device__ inline float
block_sum (float value)
{
  __shared__ float of_warp[WARP];
  unsigned lane = threadIdx.x % WARP;

  value = warp_sum (value);
  __syncthreads (); /* the last call's sums have been read */
  if (lane == 0)
    of_warp[threadIdx.x / WARP] = value;
  __syncthreads ();
  return warp_sum (lane < blockDim.x / WARP ? of_warp[lane] : 0.0f);
}

template <typename Out, typename In, typename Weight>
__global__ void
rmsnorm (uint64_t rows, uint64_t cols, float eps, Out *out, float *rstd, const In *in,
         const Weight *weight)
{
  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      const In *from = in + row * cols;
      Out *to = out + row * cols;
      float squares = 0;

      for (uint64_t col = threadIdx.x; col < cols; col += blockDim.x)
        squares += load (from + col) * load (from + col);
      float scale = 1.0f / sqrtf (block_sum (squares) / (float)cols + eps);
      if (threadIdx.x == 0)
        rstd[row] = scale;
      for (uint64_t col = threadIdx.x; col < cols; col += blockDim.x)
        store (to + col, load (from + col) * scale * load (weight + col));
    }
}

}

extern "C" int
exec_cuda_rmsnorm (const ExecArgs *args, void *stream)
{
  uint64_t rows = (uint64_t)args->op->dims[0], cols = (uint64_t)args->op->dims[1];
  float eps = (float)args->constants->norm_eps;
  float *rstd = (float *)args->ptr[1];
  Shape shape = { dim3 (rows > 0 ? (unsigned)at_most (rows, MAX_BLOCKS) : 1), dim3 (THREADS) };

  return with_types (
      args,
      [=] (auto *out, auto *in, auto *weight) {
        return EXEC_CUDA_LAUNCH (rmsnorm, shape, stream, rows, cols, eps, out, rstd, in, weight);
      },
      0, 2, 3);
}
