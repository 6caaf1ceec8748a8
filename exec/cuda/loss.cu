/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross entropy over the vocabulary: a row's loss goes to an exact sum, its softmax
 * stays for the gradient. Rows whose target is negative count for nothing.
 *
 * Launch shape   cross_entropy: a block per row of up to 512 threads, a piece of 8 logits each, at
 *                most 2048 blocks; 256 bytes of shared memory. cross_entropy_bwd: pieces along x in
 *                blocks of whole warps up to 256 threads, rows along y.
 * Per call       s: bytes per element, of each operand's own format
 *   op                  bytes                          FLOPs
 *   cross_entropy       rows cols (s + s + 4)          5 rows cols, two of them expf; the second
 *                                                      reading of a row is mostly from cache
 *   cross_entropy_bwd   rows cols (4 + s)              -
 * Checked with   run_cross_entropy and run_cross_entropy_bwd of exec/kernels-cpu.c, by tests/fake
 *                and tests/gpu. Maxima are exact. Sums of exponentials are added in another order
 *                and rescaled when a larger logit comes: with u = 2^-24 they differ by at most
 *                (cols / 8 + 64 + 8 pieces) u of themselves, pieces = cols / (8 threads) being what
 *                a thread goes through, and the probabilities by as much; a row's loss by that of
 *                1 + its own rounding. The sum of the losses, and the gradient, are exact. */
#include "exec/cuda/exact.cuh"
#include "exec/cuda/reduce.cuh"

namespace
{

enum : unsigned
{
  LOSS_THREADS = 512
};

/* A sum of exp (x - max); max is minus infinity while there are none. */
struct Softmax
{
  float max, sum;
};

__device__ inline void
add_piece (Softmax *softmax, const Piece &logits, unsigned n)
{
  float max = softmax->max;

  for (unsigned i = 0; i < PIECE; i++)
    if (i < n && logits.at[i] > max)
      max = logits.at[i];
  if (max > softmax->max && softmax->sum != 0)
    softmax->sum *= expf (softmax->max - max);
  softmax->max = max;
  for (unsigned i = 0; i < PIECE; i++)
    if (i < n)
      softmax->sum += expf (logits.at[i] - (max == -INFINITY ? 0.0f : max));
}

__global__ void
cross_entropy (uint64_t rows, uint64_t cols, Limb *loss, Array prob, Array logits,
               const int32_t *targets)
{
  uint64_t first = threadIdx.x * (uint64_t)PIECE, stride = blockDim.x * (uint64_t)PIECE;

  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      Softmax own = { -INFINITY, 0 };
      bool counts = targets[row] >= 0;
      float target = counts ? read_one (logits, row * cols + (uint64_t)targets[row]) : 0.0f;

      EXEC_CUDA_UNROLL
      for (uint64_t col = first; col < cols; col += stride)
        {
          unsigned n = piece_of (col, cols);

          add_piece (&own, read (logits, row * cols + col, n), n);
        }
      float max = block_max (own.max);
      float sum = block_sum (own.max == -INFINITY ? own.sum : own.sum * expf (own.max - max));
      for (uint64_t col = first; col < cols; col += stride)
        {
          unsigned n = piece_of (col, cols);
          Piece piece = read (logits, row * cols + col, n);

          for (unsigned i = 0; i < PIECE; i++)
            piece.at[i] = expf (piece.at[i] - max) / sum;
          write (prob, row * cols + col, n, piece);
        }
      if (threadIdx.x == 0 && counts)
        exact_add_float (loss, logf (sum) - (target - max));
    }
}

__global__ void
cross_entropy_bwd (uint64_t rows, uint64_t cols, Array dlogits, Array prob, const int32_t *targets)
{
  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
      {
        int32_t target = targets[row];
        unsigned n = piece_of (col, cols);
        Piece piece = target < 0 ? Piece{} : read (prob, row * cols + col, n);

        for (unsigned i = 0; i < PIECE; i++)
          if (target >= 0 && (uint64_t)target == col + i)
            piece.at[i] -= 1.0f;
        write (dlogits, row * cols + col, n, piece);
      }
}

}

extern "C" int
exec_cuda_cross_entropy (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array prob = operands.rows_of (1, cols), logits = operands.rows_of (2, cols);
  const int32_t *targets = operands.ints (3);
  Limb *loss = (Limb *)args->ptr[0];
  uint64_t threads = at_most ((pieces_of (cols) + WARP - 1) / WARP * WARP, LOSS_THREADS);

  operands.need (1, PLAN_DTYPE_FP32);
  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (cross_entropy, shape_of_blocks (rows, (unsigned)threads), stream, rows,
                           cols, loss, prob, logits, targets);
}

extern "C" int
exec_cuda_cross_entropy_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array dlogits = operands.rows_of (0, cols), prob = operands.rows_of (1, cols);
  const int32_t *targets = operands.ints (2);

  operands.need (1, PLAN_DTYPE_FP32);
  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (cross_entropy_bwd, shape_of_matrix (rows, pieces_of (cols)), stream,
                           rows, cols, dlogits, prob, targets);
}
