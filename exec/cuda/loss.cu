/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross entropy over the vocabulary: a row's loss goes to an exact sum, its softmax
 * stays for the gradient, or becomes it at once where its logits were. Rows whose target is
 * negative count for nothing.
 *
 * Launch shape   cross_entropy, loss_grad: a block per row of up to 512 threads, a piece of 8
 *                logits each, at most 2048 blocks; 256 bytes of shared memory. cross_entropy_bwd:
 *                pieces along x in blocks of whole warps up to 256 threads, rows along y.
 * Per call       s: bytes per element, of each operand's own format
 *   op                  bytes                          FLOPs
 *   cross_entropy       rows cols (s + s + 4)          5 rows cols, two of them expf; the second
 *                                                      reading of a row is mostly from cache
 *   cross_entropy_bwd   rows cols (4 + s)              -
 *   loss_grad           rows cols (s + s)              5 rows cols, two of them expf; of a row
 *                                                      the first 16,384 logits stay in
 *                                                      registers, the rest is read again, mostly
 *                                                      from cache
 * Checked with   run_cross_entropy, run_cross_entropy_bwd and run_loss_grad of exec/kernels-cpu.c,
 *                by tests/fake and tests/gpu; loss_grad leaves the bits of the other two. Maxima
 * are exact. Sums of exponentials are added in another order and rescaled when a larger logit
 * comes: with u = 2^-24 they differ by at most (cols / 8 + 64 + 8 pieces) u of themselves, pieces =
 * cols / (8 threads) being what a thread goes through, and the probabilities by as much; a row's
 * loss by that of 1 + its own rounding. The sum of the losses, and the gradient, are exact. */
#include "exec/cuda/exact.cuh"
#include "exec/cuda/reduce.cuh"

namespace
{

enum : unsigned
{
  LOSS_THREADS = 512,
  KEPT = 4, /* pieces that a thread does not read twice */
  AHEAD = 2 /* that it asks for before it waits for the first */
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

/* Of a row that begins at `begin` the pieces at `col` and so on, `stride` apart. */
template <unsigned pieces>
__device__ inline void
add_pieces (Softmax *softmax, const Array &logits, uint64_t begin, uint64_t col, uint64_t stride,
            uint64_t cols)
{
  Words words[pieces];
  unsigned n[pieces];

  EXEC_CUDA_UNROLL
  for (unsigned k = 0; k < pieces; k++)
    {
      uint64_t at = col + k * stride;

      n[k] = at < cols ? piece_of (at, cols) : 0;
      words[k] = fetch (logits, begin + at, n[k]);
    }
  EXEC_CUDA_UNROLL
  for (unsigned k = 0; k < pieces; k++)
    add_piece (softmax, widen (logits, words[k]), n[k]);
}

__global__ void
__launch_bounds__ (LOSS_THREADS, 2) cross_entropy (uint64_t rows, uint64_t cols, Limb *loss,
                                                   Array prob, Array logits, const int32_t *targets)
{
  uint64_t first = threadIdx.x * (uint64_t)PIECE, stride = blockDim.x * (uint64_t)PIECE;

  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      Softmax own = { -INFINITY, 0 };
      bool counts = targets[row] >= 0;
      float target = counts ? read_one (logits, row * cols + (uint64_t)targets[row]) : 0.0f;

      for (uint64_t col = first; col < cols; col += AHEAD * stride)
        add_pieces<AHEAD> (&own, logits, row * cols, col, stride, cols);
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

/* The gradient of a piece of a row that begins at `col`. */
__device__ inline Piece
gradient_of (const Piece &logits, float max, float sum, uint64_t col, uint64_t target)
{
  Piece piece;

  for (unsigned i = 0; i < PIECE; i++)
    piece.at[i] = expf (logits.at[i] - max) / sum - (target == col + i ? 1.0f : 0.0f);
  return piece;
}

/* Threads write where they alone read, but for the target's logit: all have read that when the
 * block's maximum is known. */
__global__ void
__launch_bounds__ (LOSS_THREADS)
    loss_grad (uint64_t rows, uint64_t cols, Limb *loss, Array logits, const int32_t *targets)
{
  uint64_t first = threadIdx.x * (uint64_t)PIECE, stride = blockDim.x * (uint64_t)PIECE;

  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      uint64_t begin = row * cols, rest = first + KEPT * stride;

      if (targets[row] < 0)
        {
          for (uint64_t col = first; col < cols; col += stride)
            write (logits, begin + col, piece_of (col, cols), Piece{});
          continue;
        }
      uint64_t target = (uint64_t)targets[row];
      float logit = read_one (logits, begin + target);
      Softmax own = { -INFINITY, 0 };
      Words kept[KEPT];

      EXEC_CUDA_UNROLL
      for (unsigned k = 0; k < KEPT; k++)
        {
          uint64_t col = first + k * stride;
          unsigned n = col < cols ? piece_of (col, cols) : 0;

          kept[k] = fetch (logits, begin + col, n);
        }
      EXEC_CUDA_UNROLL
      for (unsigned k = 0; k < KEPT; k++)
        {
          uint64_t col = first + k * stride;

          add_piece (&own, widen (logits, kept[k]), col < cols ? piece_of (col, cols) : 0);
        }
      for (uint64_t col = rest; col < cols; col += AHEAD * stride)
        add_pieces<AHEAD> (&own, logits, begin, col, stride, cols);
      float max = block_max (own.max);
      float sum = block_sum (own.max == -INFINITY ? own.sum : own.sum * expf (own.max - max));

      EXEC_CUDA_UNROLL
      for (unsigned k = 0; k < KEPT; k++)
        {
          uint64_t col = first + k * stride;

          if (col < cols)
            write (logits, begin + col, piece_of (col, cols),
                   gradient_of (widen (logits, kept[k]), max, sum, col, target));
        }
      for (uint64_t col = rest; col < cols; col += stride)
        {
          unsigned n = piece_of (col, cols);

          write (logits, begin + col, n,
                 gradient_of (read (logits, begin + col, n), max, sum, col, target));
        }
      if (threadIdx.x == 0)
        exact_add_float (loss, logf (sum) - (logit - max));
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

extern "C" int
exec_cuda_loss_grad (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array logits = operands.rows_of (1, cols);
  const int32_t *targets = operands.ints (2);
  Limb *loss = (Limb *)args->ptr[0];
  uint64_t threads = at_most ((pieces_of (cols) + WARP - 1) / WARP * WARP, LOSS_THREADS);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (loss_grad, shape_of_blocks (rows, (unsigned)threads), stream, rows, cols,
                           loss, logits, targets);
}
