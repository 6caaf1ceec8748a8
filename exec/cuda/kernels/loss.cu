/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross entropy over the vocabulary. A row's loss is added to an exact sum. Its softmax
 * is stored for the gradient (cross_entropy), or becomes the gradient at once, in place of the
 * logits (loss_grad). Rows whose target is negative count for nothing. Where the vocabulary is in
 * parts, each rank makes three numbers of its part of a row (row_stat), and from the three over all
 * parts its part of the softmax; columns that pad the vocabulary have probability 0. The rank that
 * has a row's target adds its loss.
 *
 * Launch shape   cross_entropy, loss_grad: a block per row of up to 1024 threads, a piece of 8
 *                logits each, or up to 512 where those keep a row in registers, at most 2048
 *                blocks; 256 bytes of shared memory. row_stat likewise, but a thread per row for
 *                targets' logits. cross_entropy_bwd, and cross_entropy and loss_grad of a part of
 *                the vocabulary: pieces along x in blocks of whole warps up to 256 threads, rows
 *                along y.
 * Per call       s: bytes per element, of each operand's own format
 *   op                  bytes                          instructions
 *   cross_entropy       rows cols (s + s + 4)          about 20 per logit, two of them 2^x; the
 *                                                      second reading of a row is mostly from cache
 *   cross_entropy_bwd   rows cols (4 + s)              -
 *   loss_grad           rows cols (s + s)              about 20 per logit, two of them 2^x; of a
 *                                                      row the first 65,536 logits (fp32: 32,768)
 *                                                      stay in registers, the rest is read again,
 *                                                      the last first, mostly from cache
 *   row_stat            rows cols s, or rows s         about 3 per logit, with maxima about 6, one
 *                                                      of them 2^x
 *   cross_entropy and loss_grad of a part of the vocabulary: the same bytes, about 10 instructions
 *   per logit, one of them 2^x
 * Checked with   the same ops of exec/cpu/kernels-cpu-loss.c, by tests/fake and tests/gpu.
 *                loss_grad gives the bits of cross_entropy and its gradient. Maxima are exact. Sums
 *                of exponentials are added in another order, and rescaled when a larger logit
 *                comes: with u = 2^-24 they differ by at most (cols / 8 + 64 + 8 pieces) u of
 *                themselves, where a thread goes through pieces = cols / (8 threads). Probabilities
 *                differ by as much and by the error of power_of_e. A row's loss, which is the log
 *                of its sum, differs by as many u (not of itself) and by its own rounding. The sum
 *                of the losses, and the gradient as made of the probabilities, are exact. */
#include "exec/cuda/kernels/exact.cuh"
#include "exec/cuda/kernels/powers.cuh"
#include "exec/cuda/kernels/reduce.cuh"

namespace
{

enum : unsigned
{
  LOSS_THREADS = 1024,
  KEPT_BYTES = 128, /* of a row, that a thread keeps in registers */
  AHEAD = 2         /* pieces that a thread loads before it waits for the first */
};

/* KEPT_BYTES in pieces. */
__host__ __device__ constexpr unsigned
kept_pieces (bool is_half)
{
  return KEPT_BYTES / PIECE / (is_half ? 2 : 4);
}

/* Threads for a row: half as many if their registers keep the row whole. Then two blocks share an
 * SM, and one reads while the other writes. */
inline unsigned
threads_of (uint64_t cols, bool is_half)
{
  uint64_t few = LOSS_THREADS / 2, pieces = pieces_of (cols);
  uint64_t most = pieces > few * kept_pieces (is_half) ? (uint64_t)LOSS_THREADS : few;

  return (unsigned)at_most ((pieces + WARP - 1) / WARP * WARP, most);
}

/* The same number, of which the compiler does not know that it is the same: so it keeps nothing
 * that it computed from it, and the registers are left for the row. */
__device__ inline unsigned
opaque (unsigned value)
{
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(value));
#endif
  return value;
}

/* A running sum of e^(x - max). max is minus infinity while nothing has been added. */
struct Softmax
{
  float max, sum;
};

__device__ inline void
add_piece (Softmax *softmax, const Piece &logits)
{
  float max = softmax->max, shift;

  for (unsigned i = 0; i < PIECE; i++)
    max = logits.at[i] > max ? logits.at[i] : max;
  if (max > softmax->max && softmax->sum != 0)
    softmax->sum *= power_of_e (softmax->max - max);
  softmax->max = max;
  shift = max == -INFINITY ? 0.0f : max;
  for (unsigned i = 0; i < PIECE; i++)
    softmax->sum += power_of_e (logits.at[i] - shift);
}

/* A piece with minus infinity behind the end of the row, which adds nothing to a sum. */
__device__ inline Piece
without_rest (Piece logits, unsigned n)
{
  for (unsigned i = 0; i < PIECE; i++)
    logits.at[i] = i < n ? logits.at[i] : -INFINITY;
  return logits;
}

/* Pieces of a row: at `col`, and then `stride` apart; empty behind the end of the row. */
template <unsigned pieces> struct RowPieces
{
  Words words[pieces];

  __device__ static unsigned
  length (unsigned col, unsigned cols)
  {
    return col < cols ? piece_of (col, cols) : 0;
  }

  __device__ void
  fetch_all (const Array &logits, uint64_t begin, unsigned col, unsigned stride, unsigned cols)
  {
    EXEC_CUDA_UNROLL_ALL
    for (unsigned k = 0; k < pieces; k++, col = opaque (col + stride))
      words[k] = fetch (logits, begin + col, length (col, cols));
  }

  __device__ void
  add_to (Softmax *softmax, const Array &logits, unsigned col, unsigned stride, unsigned cols) const
  {
    EXEC_CUDA_UNROLL_ALL
    for (unsigned k = 0; k < pieces; k++, col = opaque (col + stride))
      {
        unsigned n = length (col, cols);

        if (n == PIECE)
          add_piece (softmax, widen (logits, words[k]));
        else if (n > 0)
          add_piece (softmax, without_rest (widen (logits, words[k]), n));
      }
  }
};

/* The softmax of a row: the block's maximum and sum, and 1 / sum, by which all threads multiply. */
struct RowSoftmax
{
  float max, sum, inverse;
};

__device__ inline RowSoftmax
join (const Softmax &own)
{
  float max = block_max (own.max);
  float sum = block_sum (own.max == -INFINITY ? own.sum : own.sum * power_of_e (own.max - max));

  return { max, sum, 1.0f / sum };
}

__device__ inline Piece
probabilities_of (Piece logits, const RowSoftmax &row)
{
  for (unsigned i = 0; i < PIECE; i++)
    logits.at[i] = power_of_e (logits.at[i] - row.max) * row.inverse;
  return logits;
}

/* The array, with its width known to the compiler: kernels are compiled for each width, because
 * that takes fewer registers. */
template <bool is_half>
__device__ inline Array
of_width (const Array &array)
{
  return { array.at, is_half, is_half && array.is_fp16, array.is_wide };
}

template <bool is_half>
__global__ void
__launch_bounds__ (LOSS_THREADS) cross_entropy (uint64_t rows, unsigned cols, Limb *loss, Array out,
                                                Array given, const int32_t *targets)
{
  Array logits = of_width<is_half> (given), prob = of_width<false> (out);
  unsigned first = threadIdx.x * PIECE, stride = blockDim.x * PIECE;

  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      uint64_t begin = row * cols;
      Softmax own = { -INFINITY, 0 };
      bool counts = targets[row] >= 0;
      float target = counts ? read_one (logits, begin + (unsigned)targets[row]) : 0.0f;

      for (unsigned col = first; col < cols; col += AHEAD * stride)
        {
          RowPieces<AHEAD> some;

          some.fetch_all (logits, begin, col, stride, cols);
          some.add_to (&own, logits, col, stride, cols);
        }
      RowSoftmax all = join (own);
      for (unsigned col = first; col < cols; col += stride)
        {
          unsigned n = piece_of (col, cols);

          write (prob, begin + col, n, probabilities_of (read (logits, begin + col, n), all));
        }
      if (threadIdx.x == 0 && counts)
        exact_add_float (loss, logf (all.sum) - (target - all.max));
    }
}

/* Writes the gradient of the piece at column `col` of the row that begins at `begin`. */
__device__ inline void
write_gradient (const Array &logits, const Words &words, const RowSoftmax &row, uint64_t begin,
                unsigned col, unsigned cols, unsigned target)
{
  Piece piece = probabilities_of (widen (logits, words), row);

  if (target - col < PIECE)
    for (unsigned i = 0; i < PIECE; i++)
      piece.at[i] -= target == col + i ? 1.0f : 0.0f;
  write (logits, begin + col, piece_of (col, cols), piece);
}

/* Writes the gradient of pieces from `rest` on. The last one that was read comes first, because it
 * is most likely still in a cache. */
__device__ inline void
write_rest (const Array &logits, const RowSoftmax &row, uint64_t begin, unsigned rest,
            unsigned stride, unsigned cols, unsigned target)
{
  if (rest >= cols)
    return;
  for (unsigned left = (cols - rest + stride - 1) / stride; left-- > 0;)
    {
      unsigned col = rest + left * stride;

      write_gradient (logits, fetch (logits, begin + col, piece_of (col, cols)), row, begin, col,
                      cols, target);
    }
}

/* Threads overwrite only logits that they alone read, except the target's: all threads have read
 * that once the block's maximum is known. */
template <bool is_half>
__global__ void
__launch_bounds__ (LOSS_THREADS)
    loss_grad (uint64_t rows, unsigned cols, Limb *loss, Array given, const int32_t *targets)
{
  const unsigned n_kept = kept_pieces (is_half);
  Array logits = of_width<is_half> (given);
  unsigned first = threadIdx.x * PIECE, stride = blockDim.x * PIECE;
  unsigned rest = first + n_kept * stride;

  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      uint64_t begin = row * cols;

      if (targets[row] < 0)
        {
          for (unsigned col = first; col < cols; col += stride)
            write (logits, begin + col, piece_of (col, cols), Piece{});
          continue;
        }
      unsigned target = (unsigned)targets[row];
      float logit = read_one (logits, begin + target);
      Softmax own = { -INFINITY, 0 };
      RowPieces<n_kept> kept;

      kept.fetch_all (logits, begin, first, stride, cols);
      kept.add_to (&own, logits, first, stride, cols);
      for (unsigned col = rest; col < cols; col += AHEAD * stride)
        {
          RowPieces<AHEAD> some;

          some.fetch_all (logits, begin, col, stride, cols);
          some.add_to (&own, logits, col, stride, cols);
        }
      RowSoftmax all = join (own);
      write_rest (logits, all, begin, rest, stride, cols, target);
      unsigned col = first;
      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < n_kept; k++, col = opaque (col + stride))
        if (col < cols)
          write_gradient (logits, kept.words[k], all, begin, col, cols, target);
      if (threadIdx.x == 0)
        exact_add_float (loss, logf (all.sum) - (logit - all.max));
    }
}

__global__ void
cross_entropy_bwd (uint64_t rows, uint64_t cols, uint32_t before, Array dlogits, Array prob,
                   const int32_t *targets)
{
  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
      {
        int32_t target = targets[row];
        unsigned n = piece_of (col, cols);
        Piece piece = target < 0 ? Piece{} : read (prob, row * cols + col, n);

        for (unsigned i = 0; i < PIECE; i++)
          if (target >= 0 && (uint64_t)target - before == col + i)
            piece.at[i] -= 1.0f;
        write (dlogits, row * cols + col, n, piece);
      }
}

/* --- of a part of a vocabulary ------------------------------------------------------------ */

/* A rank's part of the vocabulary: `cols` columns, of which the first `here` are no padding, behind
 * `before` columns of other parts. target - before, without a sign, is below `here` for targets of
 * this part alone, and not for negative ones. */
struct Vocabulary
{
  uint64_t rows;
  unsigned cols, here;
  uint32_t before;
};

/* The largest logit of a row; or, where `max` has that over all parts, the sum of e^(x - max). */
template <bool is_half>
__global__ void
__launch_bounds__ (LOSS_THREADS)
    row_stat (Vocabulary part, float *out, Array given, const float *max)
{
  Array logits = of_width<is_half> (given);
  unsigned first = threadIdx.x * PIECE, stride = blockDim.x * PIECE;

  for (uint64_t row = blockIdx.x; row < part.rows; row += gridDim.x)
    {
      float shift = max != NULL ? max[row] : 0, found = max != NULL ? 0 : -INFINITY;

      for (unsigned col = first; col < part.here; col += AHEAD * stride)
        {
          RowPieces<AHEAD> some;

          some.fetch_all (logits, row * part.cols, col, stride, part.here);
          EXEC_CUDA_UNROLL_ALL
          for (unsigned k = 0; k < AHEAD; k++)
            {
              unsigned n = some.length (col + k * stride, part.here);
              Piece piece = without_rest (widen (logits, some.words[k]), n);

              for (unsigned i = 0; i < PIECE; i++)
                if (max == NULL)
                  found = piece.at[i] > found ? piece.at[i] : found;
                else if (i < n)
                  found += power_of_e (piece.at[i] - shift);
            }
        }
      found = max != NULL ? block_sum (found) : block_max (found);
      if (threadIdx.x == 0)
        out[row] = found;
    }
}

/* The logit of each row's target; 0 where the target is in another part. */
__global__ void
target_logits (Vocabulary part, float *out, Array logits, const int32_t *targets)
{
  for (uint64_t row = first_x (); row < part.rows; row += stride_x ())
    {
      uint32_t place = (uint32_t)targets[row] - part.before;

      out[row] = place < part.here ? read_one (logits, row * part.cols + place) : 0.0f;
    }
}

/* The softmax by `stats` of whole rows: the maxima of all rows, then their sums, then their
 * targets' logits. If makes_gradient, `out` are the logits themselves and become their gradient. */
template <bool makes_gradient>
__global__ void
softmax_of_part (Vocabulary part, Limb *loss, Array out, Array logits, const int32_t *targets,
                 const float *stats)
{
  for (uint64_t row = blockIdx.y; row < part.rows; row += gridDim.y)
    {
      uint64_t begin = row * part.cols;
      uint32_t place = (uint32_t)targets[row] - part.before;
      float max = stats[row], sum = stats[part.rows + row];
      RowSoftmax all = { max, sum, 1.0f / sum };

      for (uint64_t col = first_piece (); col < part.cols; col += piece_stride ())
        {
          unsigned n = piece_of (col, part.cols);
          bool is_nothing = col >= part.here || (makes_gradient && targets[row] < 0);
          Piece piece
              = is_nothing ? Piece{} : probabilities_of (read (logits, begin + col, n), all);

          for (unsigned i = 0; i < PIECE; i++)
            if (col + i >= part.here)
              piece.at[i] = 0;
            else if (makes_gradient && place == col + i)
              piece.at[i] -= 1.0f;
          write (out, begin + col, n, piece);
        }
      if (first_x () == 0 && place < part.here)
        exact_add_float (loss, logf (sum) - (stats[2 * part.rows + row] - max));
    }
}

/* The op's part of the vocabulary; for an op without parts, all of it. */
inline Vocabulary
vocabulary_of (const Operands &operands)
{
  const double whole = exec_manner (operands.args, PLAN_MANNER_WHOLE);
  const uint64_t rows = operands.dim (0), cols = operands.dim (1), first = operands.first ();
  const uint64_t left = whole <= 0       ? cols
                        : whole <= first ? 0
                                         : at_most ((uint64_t)whole - first, cols);

  return { rows, (unsigned)cols, (unsigned)left, (uint32_t)first };
}

template <bool makes_gradient>
int
launch_part (Operands *operands, int out, int in, const int32_t *targets, void *stream)
{
  Vocabulary part = vocabulary_of (*operands);
  uint64_t cols = operands->dim (1);
  Array to = operands->rows_of (out, cols), logits = operands->rows_of (in, cols);
  const float *stats = operands->floats (4);

  if (operands->code != 0)
    return operands->code;
  Limb *loss = (Limb *)operands->args->ptr[0];
  return EXEC_CUDA_LAUNCH (softmax_of_part<makes_gradient>,
                           shape_of_matrix (part.rows, pieces_of (cols)), stream, part, loss, to,
                           logits, targets, stats);
}

}

extern "C" int
exec_cuda_row_stat (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Vocabulary part = vocabulary_of (operands);
  Array logits = operands.rows_of (1, part.cols);
  float *out = operands.floats (0);
  const float *max = args->ptr[2] != NULL ? operands.floats (2) : NULL;
  const int32_t *targets = args->ptr[3] != NULL ? operands.ints (3) : NULL;
  unsigned threads = threads_of (part.cols, logits.is_half);

  if (operands.code != 0)
    return operands.code;
  if (targets != NULL)
    return EXEC_CUDA_LAUNCH (target_logits, shape_of_items (part.rows), stream, part, out, logits,
                             targets);
  if (logits.is_half)
    return EXEC_CUDA_LAUNCH (row_stat<true>, shape_of_blocks (part.rows, threads), stream, part,
                             out, logits, max);
  return EXEC_CUDA_LAUNCH (row_stat<false>, shape_of_blocks (part.rows, threads), stream, part, out,
                           logits, max);
}

extern "C" int
exec_cuda_cross_entropy (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array prob = operands.rows_of (1, cols), logits = operands.rows_of (2, cols);
  const int32_t *targets = operands.ints (3);
  Limb *loss = (Limb *)args->ptr[0];
  unsigned threads = threads_of (cols, logits.is_half);

  operands.need (1, PLAN_DTYPE_FP32);
  if (args->ptr[4] != NULL)
    return launch_part<false> (&operands, 1, 2, targets, stream);
  if (operands.code != 0)
    return operands.code;
  if (logits.is_half)
    return EXEC_CUDA_LAUNCH (cross_entropy<true>, shape_of_blocks (rows, threads), stream, rows,
                             cols, loss, prob, logits, targets);
  return EXEC_CUDA_LAUNCH (cross_entropy<false>, shape_of_blocks (rows, threads), stream, rows,
                           cols, loss, prob, logits, targets);
}

extern "C" int
exec_cuda_cross_entropy_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array dlogits = operands.rows_of (0, cols), prob = operands.rows_of (1, cols);
  uint32_t before = operands.first ();
  const int32_t *targets = operands.ints (2);

  operands.need (1, PLAN_DTYPE_FP32);
  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (cross_entropy_bwd, shape_of_matrix (rows, pieces_of (cols)), stream,
                           rows, cols, before, dlogits, prob, targets);
}

extern "C" int
exec_cuda_loss_grad (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array logits = operands.rows_of (1, cols);
  const int32_t *targets = operands.ints (2);
  Limb *loss = (Limb *)args->ptr[0];
  unsigned threads = threads_of (cols, logits.is_half);

  if (args->ptr[4] != NULL)
    return launch_part<true> (&operands, 1, 1, targets, stream);
  if (operands.code != 0)
    return operands.code;
  if (logits.is_half)
    return EXEC_CUDA_LAUNCH (loss_grad<true>, shape_of_blocks (rows, threads), stream, rows, cols,
                             loss, logits, targets);
  return EXEC_CUDA_LAUNCH (loss_grad<false>, shape_of_blocks (rows, threads), stream, rows, cols,
                           loss, logits, targets);
}
