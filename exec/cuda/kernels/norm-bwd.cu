/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of norms of rows. With normal = out / weight, before the bias, and
 * scaled = dout * weight:
 *
 *   din = rstd * (scaled - mean (scaled) - normal * mean (scaled * normal)), the first mean for
 *         layernorm alone; where there is `add`, it is added to din once din is rounded
 *   dweight, dbias = sums over rows of dout * normal, dout
 *
 * Launch shape   a block of up to 1024 threads per part of the rows, whose columns it sums in
 *                passing; a thread has one piece of 8 elements of a row, or up to 4; at most 2048
 *                parts; 128 bytes of shared memory. Then the sum of the parts: a block of 512
 *                threads per strip of 8 to 32 columns; 18 KiB of shared memory.
 * Per call       s: bytes per element, of each operand's own format; n = rows cols, p = parts cols
 *   op             bytes                                   FLOPs
 *   rmsnorm_bwd    n (s + 2 s) + 8 p + 2 cols s + 4 rows   11 n
 *   layernorm_bwd  n (s + 2 s) + 16 p + 3 cols s + 8 rows  16 n
 *   with add       n s more than without: 2 of the 8 n s of two kernels are saved      n more
 *   of long rows   2 n s more, for rows of over 12,288 elements (rmsnorm in bf16: 16,384), and
 *                  where there is no scratch
 * Checked with   exec_cpu_rmsnorm_bwd and exec_cpu_layernorm_bwd, by tests/fake and tests/gpu. Sums
 *                are in another order, which depends on rows and cols alone. With u = 2^-24: sums
 *                over a row are off by at most (cols / 8 + 32) u, sums over rows by (rows + 32) u,
 *                of the sum of their terms' magnitudes.
 *
 * A row is read once if its operands are whole pieces of bf16, otherwise again from cache. */
#include "exec/cuda/kernels/narrow.cuh"
#include "exec/cuda/kernels/parts.cuh"

namespace
{

/* most_pieces: the most pieces of a row that a thread has, as its registers must hold the sums of
 * all of them. most_threads: the most threads of a block, for so many pieces. */
constexpr unsigned
most_pieces (bool has_mean, bool plain)
{
  return has_mean || !plain ? 3 : 4;
}

constexpr unsigned
most_threads (unsigned pieces, bool has_mean)
{
  return pieces == 0 ? (unsigned)THREADS : pieces > 1 ? 512 : has_mean ? 768 : 1024;
}

/* What a norm keeps of each row for its backward pass: rstd, or the mean and rstd. */
template <bool has_mean> struct Statistics
{
  const float *at;

  __device__ float
  mean (uint64_t row) const
  {
    return has_mean ? at[2 * row] : 0.0f;
  }
  __device__ float
  rstd (uint64_t row) const
  {
    return has_mean ? at[2 * row + 1] : at[row];
  }
};

/* Subtracting 0 changes nothing but the sign of a zero, so rmsnorm is layernorm without means. */
template <bool has_mean>
__device__ inline float
normal_of (float x, float mean, float rstd)
{
  return (has_mean ? x - mean : x) * rstd;
}

/* din may be the same memory as `add` or dout. */
template <bool has_mean, bool plain> struct NormBwd
{
  uint64_t rows, cols, pitch; /* pitch: from one row of in, din and add to the next */
  Array din, dout, in, weight, add;
  float plus; /* what is added to weights to give gains */
  Statistics<has_mean> statistics;
  uint32_t *amax; /* of din, for the op that quantises it next; or NULL */

  __device__ unsigned
  length (uint64_t col) const
  {
    return plain ? (unsigned)PIECE : piece_of (col, cols);
  }
};

template <bool has_mean, bool plain>
__device__ inline NormBwd<has_mean, plain>
known_norm (const NormBwd<has_mean, plain> &norm)
{
  return { norm.rows,
           norm.cols,
           norm.pitch,
           known<plain> (norm.din),
           known<plain> (norm.dout),
           known<plain> (norm.in),
           known<plain> (norm.weight),
           known<plain> (norm.add),
           norm.plus,
           norm.statistics,
           norm.amax };
}

/* Visits this thread's pieces of a row: `pieces` of them, known when this is compiled, so that what
 * is kept of each stays in registers; or any number, if it is 0. */
template <unsigned pieces, typename Visit>
__device__ inline void
each_piece (uint64_t cols, Visit visit)
{
  if constexpr (pieces == 0)
    for (uint64_t col = first_col (); col < cols; col += col_stride ())
      visit (0u, col);
  else
    {
      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < pieces; k++)
        if (first_col () + k * col_stride () < cols)
          visit (k, first_col () + k * col_stride ());
    }
}

/* What a thread loads of a row. */
struct RowWords
{
  Words dout, in, weight;
};

template <bool has_mean, bool plain>
__device__ inline RowWords
fetch_row (const NormBwd<has_mean, plain> &norm, uint64_t row, uint64_t col)
{
  unsigned n = norm.length (col);

  return { fetch (norm.dout, row * norm.cols + col, n), fetch (norm.in, row * norm.pitch + col, n),
           fetch (norm.weight, col, n) };
}

/* What is subtracted from every scaled gradient: `shift`, and `slope` times its normal. */
struct Slopes
{
  float shift, slope;
};

template <unsigned pieces, bool has_mean, bool plain>
__device__ inline Slopes
slopes_of (const NormBwd<has_mean, plain> &norm, uint64_t row, RowWords *kept)
{
  float mean = norm.statistics.mean (row), rstd = norm.statistics.rstd (row);
  float cols = (float)norm.cols, sum = 0, products = 0;
  Slopes slopes = {};

  each_piece<pieces> (norm.cols, [&] (unsigned k, uint64_t col) {
    RowWords words = fetch_row (norm, row, col);
    Piece d = widen (norm.dout, words.dout), x = widen (norm.in, words.in);
    Piece w = gains_of (widen (norm.weight, words.weight), norm.plus);

    kept[k] = words;
    for (unsigned i = 0; i < PIECE; i++)
      {
        float scaled = d.at[i] * w.at[i]; /* 0 behind the end */

        sum += scaled;
        products += scaled * normal_of<has_mean> (x.at[i], mean, rstd);
      }
  });
  slopes.slope = block_sum (products) / cols;
  if (has_mean)
    slopes.shift = block_sum (sum) / cols;
  return slopes;
}

/* A thread's sums over rows, for each of its pieces: of dout * normal, and of dout. */
template <unsigned pieces> struct OwnSums
{
  Piece weight[pieces], bias[pieces];
};

template <> struct OwnSums<0>
{
};

/* The largest magnitude that a thread has stored. It is in shared memory, as registers are used
 * up. */
__device__ inline uint32_t *
own_largest ()
{
  __shared__ uint32_t of_thread[1024];

  return &of_thread[threadIdx.x];
}

template <bool has_mean, bool plain>
__device__ inline void
write_din (const NormBwd<has_mean, plain> &norm, uint64_t at, unsigned n, Piece piece)
{
  if (norm.add.at != NULL)
    {
      Piece before = read (norm.add, at, n);

      piece = rounded (norm.din, piece);
      for (unsigned i = 0; i < PIECE; i++)
        piece.at[i] += before.at[i];
    }
  write (norm.din, at, n, piece);
  if (plain)
    find_stored (norm.amax, n, piece, own_largest ());
}

/* Reads a row back that the thread has written, in other formats: until a part's sums are stored
 * there are no registers left to find the largest magnitude. */
template <bool has_mean>
__device__ inline void
find_again (const NormBwd<has_mean, false> &norm, uint64_t row)
{
  if (norm.amax != NULL)
    each_piece<0> (norm.cols, [&] (unsigned, uint64_t col) {
      unsigned n = norm.length (col);

      find_stored (norm.amax, n, read (norm.din, row * norm.pitch + col, n), own_largest ());
    });
}

template <unsigned pieces, bool has_mean, bool plain>
__device__ inline void
norm_bwd_row (const NormBwd<has_mean, plain> &norm, uint64_t row, OwnSums<pieces> *sums)
{
  float mean = norm.statistics.mean (row), rstd = norm.statistics.rstd (row);
  RowWords kept[pieces > 0 ? pieces : 1];
  Slopes slopes = slopes_of<pieces> (norm, row, kept);

  each_piece<pieces> (norm.cols, [&] (unsigned k, uint64_t col) {
    RowWords words = plain && pieces > 0 ? kept[k] : fetch_row (norm, row, col);
    Piece d = widen (norm.dout, words.dout), x = widen (norm.in, words.in);
    Piece w = gains_of (widen (norm.weight, words.weight), norm.plus);

    for (unsigned i = 0; i < PIECE; i++)
      {
        float normal = normal_of<has_mean> (x.at[i], mean, rstd);
        float scaled = d.at[i] * w.at[i];

        if constexpr (pieces > 0)
          {
            sums->weight[k].at[i] += d.at[i] * normal;
            sums->bias[k].at[i] += d.at[i];
          }
        if (has_mean)
          scaled -= slopes.shift;
        x.at[i] = rstd * (scaled - normal * slopes.slope);
      }
    write_din (norm, row * norm.pitch + col, norm.length (col), x);
  });
}

/* Prefetches a row before the block needs it, because a block waits for its sums in every row. */
template <unsigned pieces, bool has_mean, bool plain>
__device__ inline void
prefetch_row (const NormBwd<has_mean, plain> &norm, uint64_t row)
{
  each_piece<pieces> (norm.cols, [&] (unsigned, uint64_t col) {
    uint64_t at = row * norm.pitch + col;

    prefetch (norm.dout, row * norm.cols + col);
    prefetch (norm.in, at);
    if (norm.add.at != NULL)
      prefetch (norm.add, at);
  });
}

/* A block goes through parts of the rows and sums their columns. Without parts it goes through
 * rows, and another kernel does the sums. */
template <unsigned pieces, bool has_mean, bool plain>
__global__ void
__launch_bounds__ (most_threads (pieces, has_mean))
    norm_bwd (NormBwd<has_mean, plain> given, RowParts parts)
{
  NormBwd<has_mean, plain> norm = known_norm (given);
  uint64_t count = pieces > 0 ? parts.count : norm.rows, each = pieces > 0 ? parts.rows_each : 1;

  if (norm.amax != NULL)
    *own_largest () = 0;
  for (uint64_t part = blockIdx.x; part < count; part += gridDim.x)
    {
      uint64_t end = at_most ((part + 1) * each, norm.rows);
      OwnSums<pieces> sums = {};

      for (uint64_t row = part * each; row < end; row++)
        {
          if (row + 1 < end)
            prefetch_row<pieces> (norm, row + 1);
          norm_bwd_row<pieces> (norm, row, &sums);
        }
      if constexpr (pieces > 0)
        each_piece<pieces> (norm.cols, [&] (unsigned k, uint64_t col) {
          unsigned n = norm.length (col);

          write (parts.at, sum_place (parts, part, 0, col), n, sums.weight[k]);
          if (has_mean)
            write (parts.at, sum_place (parts, part, 1, col), n, sums.bias[k]);
        });
      if constexpr (!plain)
        for (uint64_t row = part * each; row < end; row++)
          find_again (norm, row);
    }
  if (norm.amax != NULL)
    raise_stored (norm.amax, norm.din, *own_largest ());
}

/* --- sums by themselves ------------------------------------------------------------------- */

/* The terms of the gradients of the weight and of the bias: dout * normal, and dout. */
template <bool has_mean> struct NormTerm
{
  uint64_t cols, pitch;
  Array dout, in;
  Statistics<has_mean> statistics;

  struct Row
  {
    Words dout, in;
    float mean, rstd;
  };

  __device__ Row
  fetch (uint64_t row, uint64_t col, unsigned n) const
  {
    return { ::fetch (dout, row * cols + col, n), ::fetch (in, row * pitch + col, n),
             statistics.mean (row), statistics.rstd (row) };
  }

  __device__ void
  add (const Row &row, Piece *first, Piece *second) const
  {
    Piece d = widen (dout, row.dout), x = widen (in, row.in);

    for (unsigned i = 0; i < PIECE; i++)
      {
        first->at[i] += d.at[i] * normal_of<has_mean> (x.at[i], row.mean, row.rstd);
        second->at[i] += d.at[i];
      }
  }
};

/* --- launches ----------------------------------------------------------------------------- */

/* dout, work, amax: numbers of operands; in, weight and statistics follow dout. */
struct NormBwdOperands
{
  int dout, work, amax;
  Array dweight, dbias;
};

enum : int
{
  ADD_OPERAND = 7 /* of rmsnorm_bwd and of layernorm_bwd */
};

/* The sums come first, because din may overwrite dout. */
template <bool has_mean>
int
launch_apart (const NormBwd<has_mean, false> &norm, const NormBwdOperands &which, void *stream)
{
  Columns sums = columns_of (norm.rows, norm.cols, which.dweight, which.dbias);
  NormTerm<has_mean> term = { norm.cols, norm.pitch, norm.dout, norm.in, norm.statistics };
  int code = EXEC_CUDA_LAUNCH (columns, shape_of_columns (sums), stream, sums, term);

  if (code != 0)
    return code;
  return EXEC_CUDA_LAUNCH (norm_bwd<0>, shape_of_rows (norm.rows, norm.cols), stream, norm,
                           RowParts{});
}

template <bool has_mean, bool plain>
int
launch_rows (const NormBwd<has_mean, plain> &norm, const RowParts &parts, uint64_t threads,
             void *stream)
{
  const unsigned most = most_pieces (has_mean, plain), fewer = most_threads (most, has_mean);

  if (threads <= most_threads (1, has_mean))
    return EXEC_CUDA_LAUNCH (norm_bwd<1>, shape_of_blocks (parts.count, (unsigned)threads), stream,
                             norm, parts);
  return EXEC_CUDA_LAUNCH (norm_bwd<most>, shape_of_blocks (parts.count, fewer), stream, norm,
                           parts);
}

template <bool has_mean>
int
launch_norm_bwd (Operands *operands, void *stream, const NormBwdOperands &which)
{
  uint64_t rows = operands->dim (0), cols = operands->dim (1);
  uint64_t threads = (pieces_of (cols) + WARP - 1) / WARP * WARP;
  uint64_t said = (uint64_t)exec_manner (operands->args, PLAN_MANNER_PITCH);
  uint64_t pitch = said > 0 ? said : cols;
  Array din = operands->rows_of (0, pitch), dout = operands->rows_of (which.dout, cols);
  Array in = operands->rows_of (which.dout + 1, pitch);
  Array weight = operands->rows_of (which.dout + 2, cols);
  Array add = operands->rows_of (ADD_OPERAND, pitch);
  float plus = (float)exec_manner (operands->args, PLAN_MANNER_ONE_PLUS);
  Statistics<has_mean> statistics = { operands->floats (which.dout + 3) };
  uint32_t *amax = (uint32_t *)operands->args->ptr[which.amax];
  NormBwd<has_mean, false> norm
      = { rows, cols, pitch, din, dout, in, weight, add, plus, statistics, amax };
  NormBwd<has_mean, true> plain
      = { rows, cols, pitch, din, dout, in, weight, add, plus, statistics, amax };
  RowParts parts = parts_of (*operands, which.work, rows, cols);
  bool all_plain
      = is_plain (din) && is_plain (dout) && is_plain (in) && is_plain (weight) && is_plain (add);
  unsigned most = most_pieces (has_mean, all_plain);
  int code = operands->code;

  if (code != 0)
    return code;
  if (parts.count == 0 || threads > most * most_threads (most, has_mean))
    return launch_apart (norm, which, stream);
  code = all_plain ? launch_rows (plain, parts, threads, stream)
                   : launch_rows (norm, parts, threads, stream);
  return code != 0 ? code : launch_parts (parts, which.dweight, which.dbias, stream);
}

}

extern "C" int
exec_cuda_rmsnorm_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array dweight = operands.rows_of (1, operands.dim (1));

  return launch_norm_bwd<false> (&operands, stream, { 2, 6, 8, dweight, {} });
}

extern "C" int
exec_cuda_layernorm_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array dweight = operands.rows_of (1, operands.dim (1));
  Array dbias = operands.rows_of (2, operands.dim (1));

  return launch_norm_bwd<true> (&operands, stream, { 3, 8, 9, dweight, dbias });
}
