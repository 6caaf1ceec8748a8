/* SPDX-License-Identifier: Apache-2.0 */
/* What attention does between batched products: softmax, its gradient, and rounding of fp32 sums.
 *
 * Launch shape   softmax, softmax_bwd: a block of at most 256 threads per row of scores, each with
 *                a piece of 8 scores at a time; at most 2048 blocks. round_sums: a thread per
 *                piece.
 * Per call       s: bytes per element; seen: scores of keys that queries see
 *   op              bytes                                       FLOPs
 *   softmax         12 seen read (8 of them from cache where    2 exponentials and 4 seen
 *                   a row fits), s keys written
 *   softmax_bwd     8 seen and 2 dim s per row read, 2 s keys   1 exponential and 4 seen, 2 dim per
 *                   written                                     row
 *   round_sums      4 read and s written per element            none
 * Checked with   exec_cpu_attention and exec_cpu_attention_bwd by tests/fake and tests/gpu,
 *                products included. Sums are in an order that a row's length decides. With
 *                u = 2^-24 a probability differs by (keys / 256 + 16) u of itself and by the error
 *                of its score; probabilities are then rounded once to the format of qkv. */
#include "exec/cuda/kernels/reduce.cuh"
#include "exec/cuda/kernels/scores.cuh"

namespace
{

/* Rows of `dim` elements, which follow one another or lie a multiple of 16 bytes apart. */
inline Array
rows_at (const void *at, PlanDtype dtype, uint64_t dim)
{
  return array_of (at, dtype, is_aligned (at) && dim % PIECE == 0);
}

/* A row of one head's scores: in fp32 as products write them, and in the format that products
 * read. */
struct ScoreRow
{
  uint64_t unseen, seen, keys; /* keys in [unseen, seen) are seen; keys: all of the row */
  uint64_t from, place;        /* the row's first key and its query in the sequence */
  HeadRule rule;
  Array scores, results;
};

__device__ inline ScoreRow
row_of (const ExecCudaSoftmax &shape, float *scores, bool is_wide, uint64_t item)
{
  uint64_t query = item % shape.queries;
  float *at = scores + item / shape.queries * shape.stride + query * shape.pitch;

  /* Keys are counted from the first one at hand, `from` places into the sequence. A query sees the
   * keys up to its own, of its chunk, its window and its document. */
  uint64_t seen = shape.first + query + 1, place = shape.from + shape.first + query;
  HeadRule rule = head_rule (shape.rule, shape.seq, shape.sequence,
                             shape.first_head + item / shape.queries * shape.apart);
  uint64_t begin = place - place % shape.rule.chunk, document = document_of (rule, place),
           window = seen > shape.rule.window ? seen - shape.rule.window : 0;

  begin = document > begin ? document : begin;
  uint64_t unseen = begin > shape.from + window ? begin - shape.from : window;

  return { unseen,
           seen,
           shape.first + shape.queries,
           shape.from,
           place,
           rule,
           array_of (at, PLAN_DTYPE_FP32, is_wide),
           array_of (at, shape.dtype, is_wide) };
}

__device__ inline float *
lse_of (const ExecCudaSoftmax &shape, uint64_t item)
{
  return shape.lse + item / shape.queries * shape.lse_stride + item % shape.queries;
}

/* Elements of a row that a block handles per turn. A block reads all of them before it writes any,
 * and its results, which are no wider than scores, lie below the scores that it reads next. */
__device__ inline uint64_t
turn_size ()
{
  return (uint64_t)blockDim.x * PIECE;
}

__device__ inline bool
is_seen (const ScoreRow &row, uint64_t key)
{
  return key >= row.unseen && key < row.seen;
}

/* The scores of the thread's piece from `at` on; minus infinity for keys that are not seen. */
__device__ inline Piece
read_seen (const ScoreRow &row, uint64_t at)
{
  Piece piece = {};

  if (at < row.seen)
    piece = read (row.scores, at, piece_of (at, row.seen));
  for (unsigned i = 0; i < PIECE; i++)
    if (!is_seen (row, at + i))
      piece.at[i] = -INFINITY;
  return piece;
}

/* The largest score of a row. Bent scores take the place of products, which saves making them
 * again: a thread always reads the pieces that it has written. */
__device__ inline float
largest_of (const ExecCudaSoftmax &shape, const ScoreRow &row, bool is_bent)
{
  float max = -INFINITY;

  for (uint64_t at = threadIdx.x * (uint64_t)PIECE; at < row.seen; at += turn_size ())
    {
      Piece piece = read_seen (row, at);

      for (unsigned i = 0; i < PIECE; i++)
        {
          if (is_bent && is_seen (row, at + i))
            piece.at[i] = bend (shape.rule, row.rule, piece.at[i], row.seen - 1 - (at + i));
          max = fmaxf (max, piece.at[i]);
        }
      if (is_bent)
        write (row.scores, at, piece_of (at, row.seen), piece);
    }
  return block_max (max);
}

/* What dropout multiplies the weights of the keys from `at` on by. */
__device__ inline Piece
factors_of (const ScoreRow &row, uint64_t at)
{
  const ExecDropout &dropout = row.rule.dropout;
  uint64_t token = row.rule.token + row.place, column = row.rule.token + row.from + at;
  Numbers numbers = {};
  Piece factors;

  for (unsigned i = 0; i < PIECE; i++)
    {
      if (dropout.key != NULL && (i == 0 || (column + i) % PER_BLOCK == 0))
        numbers = random_block (dropout.key, (uint32_t)((column + i) / PER_BLOCK), (uint32_t)token,
                                (uint32_t)(token >> 32), dropout.site);
      bool is_dropped = dropout.key != NULL && number_at (numbers, column + i) < dropout.limit;
      factors.at[i] = dropout.key == NULL ? 1.0f : is_dropped ? 0.0f : dropout.scale;
    }
  return factors;
}

__device__ inline float
sum_of (const ScoreRow &row, float scale, float max)
{
  float sum = 0;

  for (uint64_t at = threadIdx.x * (uint64_t)PIECE; at < row.seen; at += turn_size ())
    {
      Piece piece = read_seen (row, at);

      for (unsigned i = 0; i < PIECE; i++)
        sum += expf (piece.at[i] * scale - max);
    }
  return block_sum (sum);
}

__global__ void
__launch_bounds__ (THREADS) softmax (ExecCudaSoftmax shape, bool is_wide)
{
  for (uint64_t item = blockIdx.x; item < shape.heads * shape.queries; item += gridDim.x)
    {
      ScoreRow row = row_of (shape, shape.scores, is_wide, item);
      bool is_bent = shape.rule.cap > 0 || shape.rule.slopes > 0;
      float scale = is_bent ? 1.0f : shape.rule.scale;
      float max = largest_of (shape, row, is_bent) * scale, sum = sum_of (row, scale, max);

      for (uint64_t from = 0; from < row.keys; from += turn_size ())
        {
          uint64_t at = from + threadIdx.x * (uint64_t)PIECE;
          Piece piece = read_seen (row, at), factors = factors_of (row, at);

          for (unsigned i = 0; i < PIECE; i++)
            piece.at[i] = expf (piece.at[i] * scale - max) / sum * factors.at[i];
          __syncthreads ();
          if (at < row.keys)
            write (row.results, at, piece_of (at, row.keys), piece);
        }
      if (threadIdx.x == 0)
        *lse_of (shape, item) = max + logf (sum);
    }
}

/* --- backward ----------------------------------------------------------------------------- */

struct SoftmaxGradient
{
  ExecCudaSoftmax of;
  float *dscores;
  Array dout, out;
  uint64_t dim, row_pitch, head_stride;
  bool is_wide;
};

/* The dot product of a row of dout with that of out. */
__device__ inline float
dot_of_row (const SoftmaxGradient &shape, uint64_t item)
{
  uint64_t at
      = item / shape.of.queries * shape.head_stride + item % shape.of.queries * shape.row_pitch;
  float sum = 0;

  for (uint64_t d = threadIdx.x * (uint64_t)PIECE; d < shape.dim; d += turn_size ())
    {
      Piece dout = read (shape.dout, at + d, piece_of (d, shape.dim));
      Piece out = read (shape.out, at + d, piece_of (d, shape.dim));

      for (unsigned i = 0; i < PIECE; i++)
        sum = fmaf (dout.at[i], out.at[i], sum);
    }
  return block_sum (sum);
}

__global__ void
__launch_bounds__ (THREADS) softmax_bwd (SoftmaxGradient shape)
{
  for (uint64_t item = blockIdx.x; item < shape.of.heads * shape.of.queries; item += gridDim.x)
    {
      ScoreRow row = row_of (shape.of, shape.of.scores, shape.is_wide, item);
      ScoreRow drow = row_of (shape.of, shape.dscores, shape.is_wide, item);
      float dot = dot_of_row (shape, item), lse = *lse_of (shape.of, item);

      for (uint64_t from = 0; from < row.keys; from += turn_size ())
        {
          uint64_t at = from + threadIdx.x * (uint64_t)PIECE;
          Piece weight = read_seen (row, at), factors = factors_of (row, at), dscore = {};

          if (at < row.seen)
            dscore = read (drow.scores, at, piece_of (at, row.seen));
          for (unsigned i = 0; i < PIECE; i++)
            {
              const ExecCudaScores &rule = shape.of.rule;
              float product = weight.at[i], factor = factors.at[i];
              bool sees = is_seen (row, at + i);
              float prob
                  = sees ? expf (bend (rule, row.rule, product, row.seen - 1 - (at + i)) - lse)
                         : 0.0f;

              weight.at[i] = prob * factor;
              dscore.at[i] = sees ? prob * (dscore.at[i] * factor - dot) * rule.scale
                                        * bend_derivative (rule, product)
                                  : 0.0f;
            }
          __syncthreads ();
          if (at >= row.keys)
            continue;
          write (row.results, at, piece_of (at, row.keys), weight);
          write (drow.results, at, piece_of (at, row.keys), dscore);
        }
    }
}

/* --- sums --------------------------------------------------------------------------------- */

struct RoundedSums
{
  uint64_t heads, rows, dim, from_stride, pitch, stride;
  Array from, to;
};

__global__ void
__launch_bounds__ (THREADS) round_sums (RoundedSums shape)
{
  uint64_t each = pieces_of (shape.dim);

  for (uint64_t item = first_x (); item < shape.heads * shape.rows * each; item += stride_x ())
    {
      uint64_t d = item % each * PIECE, row = item / each % shape.rows;
      uint64_t head = item / each / shape.rows;
      unsigned n = piece_of (d, shape.dim);

      write (shape.to, head * shape.stride + row * shape.pitch + d, n,
             read (shape.from, head * shape.from_stride + row * shape.dim + d, n));
    }
}

}

/* Where rows are a multiple of 16 bytes apart and the first one is aligned, the pieces of all of
 * them are wide (launch.cuh). */
extern "C" int
exec_cuda_softmax (const ExecCudaSoftmax *softmax_of, void *stream)
{
  ExecCudaSoftmax shape = *softmax_of;
  bool is_wide = is_aligned (shape.scores) && shape.pitch % 4 == 0;

  return EXEC_CUDA_LAUNCH (softmax,
                           shape_of_rows (shape.heads * shape.queries, shape.first + shape.queries),
                           stream, shape, is_wide);
}

extern "C" int
exec_cuda_softmax_bwd (const ExecCudaSoftmaxBwd *backward, void *stream)
{
  const ExecCudaSoftmax *of = &backward->of;
  SoftmaxGradient shape
      = { *of,
          backward->dscores,
          rows_at (backward->dout.at, backward->dout.dtype, backward->dim),
          rows_at (backward->out.at, backward->out.dtype, backward->dim),
          backward->dim,
          backward->row_pitch,
          backward->head_stride,
          is_aligned (of->scores) && is_aligned (backward->dscores) && of->pitch % 4 == 0 };

  return EXEC_CUDA_LAUNCH (
      softmax_bwd, shape_of_rows (of->heads * of->queries, of->first + of->queries), stream, shape);
}

extern "C" int
exec_cuda_round_sums (const ExecCudaSums *sums, void *stream)
{
  RoundedSums shape = { sums->heads,
                        sums->rows,
                        sums->dim,
                        sums->from_stride,
                        sums->pitch,
                        sums->stride,
                        rows_at (sums->from, PLAN_DTYPE_FP32, sums->dim),
                        rows_at (sums->to, sums->dtype, sums->dim) };

  return EXEC_CUDA_LAUNCH (
      round_sums, shape_of_items (sums->heads * sums->rows * pieces_of (sums->dim)), stream, shape);
}
