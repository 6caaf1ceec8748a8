/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of rows and their gradients, and sums of columns.
 *
 *   rmsnorm        rstd = 1 / sqrt (mean (in^2) + eps), out = in * rstd * weight
 *   layernorm      mean, rstd = 1 / sqrt (variance + eps), out = (in - mean) * rstd * weight + bias
 *   add_ either    sum = a + b rounded to its format, and the same with that as `in`
 *   their bwd      with normal = out / weight before the bias and scaled = dout * weight:
 *                  din = rstd * (scaled - mean (scaled) - normal * mean (scaled * normal)), the
 *                  first mean for layernorm alone, and where there is `add` din, rounded, + add;
 *                  dweight, dbias = sums over rows of dout * normal, dout
 *   bias_bwd       dbias = sums over rows of dout
 *
 * Launch shape   rows: a block per row of up to 256 threads, a piece of 8 elements each, at most
 *                2048 blocks; 128 bytes of shared memory. Gradients of rows: a block of up to 1024
 *                threads per part of the rows, whose columns it sums in passing, at most 2048
 * parts. columns: a block of 512 threads per strip of 8 to 32 columns; 18 KiB of shared memory. Per
 * call       s: bytes per element, of each operand's own format; n = rows cols, p = parts cols.
 *                Later readings of a row are from cache; what is added up is then added up again.
 *   op             bytes                                       FLOPs
 *   rmsnorm        n (s + s) + cols s + 4 rows                 4 n
 *   rmsnorm_bwd    n (s + 2 s) + 8 p + 2 cols s + 4 rows       11 n
 *   layernorm      n (s + s) + 2 cols s + 8 rows               7 n
 *   layernorm_bwd  n (s + 2 s) + 16 p + 3 cols s + 8 rows      16 n
 *   add_ either    n 2 s more than without: 1 of the 5 n s of two kernels is saved      n more
 *   bwd with add   n s more than without: 2 of the 8 n s of two kernels are saved       n more
 *   bias_bwd       n s + cols s                                n
 *   bwd of rows of over 16,384 elements, or without scratch, read dout and in another time: n 2 s
 * Checked with   run_rmsnorm and so on of exec/kernels-cpu-norm.c, run_bias_bwd of
 *                exec/kernels-cpu.c, by tests/fake and tests/gpu. Sums are in another order, which
 *                depends on rows and cols alone. With u = 2^-24: sums over a row are off by at most
 *                (cols / 8 + 32) u, sums over rows by (rows + 32) u, of the sum of their terms'
 *                magnitudes; rstd by half of that of itself. */
#include "exec/cuda/narrow.cuh"
#include "exec/cuda/parts.cuh"

namespace
{

/* Of a block that sums columns in passing: threads with a piece of a row each, or for rows that are
 * longer fewer with so many; as many as registers hold the sums of. */
constexpr unsigned
most_pieces (bool has_mean)
{
  return has_mean ? 3 : 4;
}

constexpr unsigned
most_threads (unsigned pieces, bool has_mean)
{
  return pieces > 1 ? 512 : has_mean ? 768 : 1024;
}

struct Norm
{
  uint64_t rows, cols;
  float eps;
};

Norm
norm_of (const Operands &operands)
{
  return { operands.dim (0), operands.dim (1), (float)operands.args->constants->norm_eps };
}

/* This thread's pieces of a row. */
__device__ inline uint64_t
first_col ()
{
  return threadIdx.x * (uint64_t)PIECE;
}

__device__ inline uint64_t
col_stride ()
{
  return blockDim.x * (uint64_t)PIECE;
}

/* Numbers, or where a site says how what a product multiplies. */
struct NormOut
{
  Array plain;
  uint8_t *codes; /* NULL: plain */
  PlanDtype dtype;
  float *tensor_scale;
  Site site;
};

/* `own`: the largest magnitude that this thread has written. */
__device__ inline void
write_norm (const NormOut &out, uint64_t at, unsigned n, const Piece &piece, uint32_t *own)
{
  if (out.codes == NULL)
    {
      write (out.plain, at, n, piece);
      return;
    }
  for (unsigned i = 0; i < PIECE; i++)
    if (i < n)
      *own = larger (*own, magnitude_of (piece.at[i]));
  store_codes (out.codes + at, site_codes (narrow_of (out.dtype), piece, *out.site.scale), n);
}

/* After the last row. */
__device__ inline void
finish_norm (const NormOut &out, uint32_t own)
{
  if (out.codes != NULL && first_x () == 0)
    *out.tensor_scale = 1.0f / *out.site.scale;
  if (out.codes != NULL && out.site.amax != NULL)
    raise_max (out.site.amax, own);
}

NormOut
norm_out (Operands *operands, uint64_t cols, int scale)
{
  const ExecArgs *args = operands->args;

  if (args->ptr[scale] == NULL)
    return { operands->rows_of (0, cols), NULL, args->dtype[0], NULL, {} };
  if (args->dtype[0] != PLAN_DTYPE_E5M2)
    operands->need (0, PLAN_DTYPE_E4M3);
  return { {}, (uint8_t *)args->ptr[0], args->dtype[0], args->scale[0], site_of (args, scale) };
}

/* What a norm reads: what lies there, or a sum. */
struct NormIn
{
  Array in;   /* or where the sum goes */
  Array a, b; /* NULL: no sum */
};

/* As it is once it has been stored. */
__device__ inline float
rounded (const Array &array, float value)
{
  return array.is_half ? from_half (array, to_half (array, value)) : value;
}

/* Loads stay in the nearest cache, stores do not: what lies there is never read back. */
__device__ inline Piece
read_in (const NormIn &from, uint64_t at, unsigned n)
{
  if (from.a.at == NULL)
    return read (from.in, at, n);
  Words as = fetch (from.a, at, n), bs = fetch (from.b, at, n);
  Piece x = widen (from.a, as), y = widen (from.b, bs);

  for (unsigned i = 0; i < PIECE; i++)
    x.at[i] = rounded (from.in, x.at[i] + y.at[i]);
  return x;
}

/* The same, the first time. */
__device__ inline Piece
read_first (const NormIn &from, uint64_t at, unsigned n)
{
  Piece x = read_in (from, at, n);

  if (from.a.at != NULL)
    write (from.in, at, n, x);
  return x;
}

__global__ void
rmsnorm (Norm shape, NormOut out, float *rstd, NormIn from, Array weight)
{
  uint32_t own = 0;

  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    {
      float squares = 0;

      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          Piece x = read_first (from, row * shape.cols + col, piece_of (col, shape.cols));

          for (unsigned i = 0; i < PIECE; i++)
            squares += x.at[i] * x.at[i];
        }
      float scale = 1.0f / sqrtf (block_sum (squares) / (float)shape.cols + shape.eps);
      if (threadIdx.x == 0)
        rstd[row] = scale;
      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          unsigned n = piece_of (col, shape.cols);
          uint64_t at = row * shape.cols + col;
          Words weights = fetch (weight, col, n);
          Piece x = read_in (from, at, n), w = widen (weight, weights);

          for (unsigned i = 0; i < PIECE; i++)
            x.at[i] = x.at[i] * scale * w.at[i];
          write_norm (out, at, n, x, &own);
        }
    }
  finish_norm (out, own);
}

__global__ void
layernorm (Norm shape, NormOut out, float *stats, NormIn from, Array weight, Array bias)
{
  uint32_t own = 0;

  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    {
      float sum = 0, squares = 0;

      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          Piece x = read_first (from, row * shape.cols + col, piece_of (col, shape.cols));

          for (unsigned i = 0; i < PIECE; i++)
            sum += x.at[i];
        }
      float mean = block_sum (sum) / (float)shape.cols;
      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          unsigned n = piece_of (col, shape.cols);
          Piece x = read_in (from, row * shape.cols + col, n);

          for (unsigned i = 0; i < PIECE; i++)
            if (i < n)
              squares += (x.at[i] - mean) * (x.at[i] - mean);
        }
      float rstd = 1.0f / sqrtf (block_sum (squares) / (float)shape.cols + shape.eps);
      if (threadIdx.x == 0)
        {
          stats[2 * row] = mean;
          stats[2 * row + 1] = rstd;
        }
      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          unsigned n = piece_of (col, shape.cols);
          uint64_t at = row * shape.cols + col;
          Words weights = fetch (weight, col, n), biases = {};
          Piece x = read_in (from, at, n), w = widen (weight, weights);

          if (bias.at != NULL)
            biases = fetch (bias, col, n);
          Piece b = widen (bias, biases);
          for (unsigned i = 0; i < PIECE; i++)
            {
              x.at[i] = (x.at[i] - mean) * rstd * w.at[i];
              if (bias.at != NULL)
                x.at[i] += b.at[i];
            }
          write_norm (out, at, n, x, &own);
        }
    }
  finish_norm (out, own);
}

/* --- gradients of rows -------------------------------------------------------------------- */

/* What a norm keeps for its backward pass: of each row rstd, or its mean and rstd. */
template <bool mean_too> struct Statistics
{
  static const bool has_mean = mean_too;
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

/* din may be where `add` is. */
__device__ inline void
write_input_gradient (const Array &din, const Array &add, uint64_t at, unsigned n, Piece piece)
{
  if (add.at != NULL)
    {
      Piece before = read (add, at, n);

      for (unsigned i = 0; i < PIECE; i++)
        piece.at[i] = before.at[i] + rounded (din, piece.at[i]);
    }
  write (din, at, n, piece);
}

/* What both gradients are made from. */
template <bool has_mean> struct NormBwd
{
  Norm shape;
  Array dout, in, weight;
  Statistics<has_mean> statistics;
};

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
      EXEC_CUDA_UNROLL
      for (unsigned k = 0; k < pieces; k++)
        if (first_col () + k * col_stride () < cols)
          visit (k, first_col () + k * col_stride ());
    }
}

/* What is taken off every element, and with its normal. */
struct Slopes
{
  float shift, slope;
};

template <unsigned pieces, bool has_mean>
__device__ inline Slopes
slopes_of (const NormBwd<has_mean> &norm, uint64_t row)
{
  float mean = norm.statistics.mean (row), rstd = norm.statistics.rstd (row);
  float cols = (float)norm.shape.cols, sum = 0, products = 0;
  Slopes slopes = {};

  each_piece<pieces> (norm.shape.cols, [&] (unsigned, uint64_t col) {
    unsigned n = piece_of (col, norm.shape.cols);
    uint64_t at = row * norm.shape.cols + col;
    Words douts = fetch (norm.dout, at, n), ins = fetch (norm.in, at, n);
    Words weights = fetch (norm.weight, col, n);
    Piece d = widen (norm.dout, douts), x = widen (norm.in, ins), w = widen (norm.weight, weights);

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

/* Of a thread's pieces, over rows: dout * normal, and dout. */
template <unsigned pieces> struct OwnSums
{
  Piece weight[pieces], bias[pieces];
};

template <> struct OwnSums<0>
{
};

/* A row is read twice, the second time from cache. */
template <unsigned pieces, bool has_mean>
__device__ inline void
norm_bwd_row (const NormBwd<has_mean> &norm, const Array &din, const Array &add, uint64_t row,
              OwnSums<pieces> *sums)
{
  float mean = norm.statistics.mean (row), rstd = norm.statistics.rstd (row);
  Slopes slopes = slopes_of<pieces, has_mean> (norm, row);

  each_piece<pieces> (norm.shape.cols, [&] (unsigned k, uint64_t col) {
    unsigned n = piece_of (col, norm.shape.cols);
    uint64_t at = row * norm.shape.cols + col;
    Words douts = fetch (norm.dout, at, n), ins = fetch (norm.in, at, n);
    Words weights = fetch (norm.weight, col, n);
    Piece d = widen (norm.dout, douts), x = widen (norm.in, ins), w = widen (norm.weight, weights);

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
    write_input_gradient (din, add, at, n, x);
  });
}

/* Before a block needs it: it waits for its sums in every row. */
template <unsigned pieces, bool has_mean>
__device__ inline void
ask_for_row (const NormBwd<has_mean> &norm, const Array &add, uint64_t row)
{
  each_piece<pieces> (norm.shape.cols, [&] (unsigned, uint64_t col) {
    uint64_t at = row * norm.shape.cols + col;

    ask_for (norm.dout, at);
    ask_for (norm.in, at);
    if (add.at != NULL)
      ask_for (add, at);
  });
}

/* A block has a part of the rows; or without parts a row, whose sums are another kernel's. */
template <unsigned pieces, bool has_mean>
__global__ void
__launch_bounds__ (most_threads (pieces, has_mean))
    norm_bwd (NormBwd<has_mean> norm, Array din, Array add, RowParts parts)
{
  uint64_t count = pieces > 0 ? parts.count : norm.shape.rows;
  uint64_t each = pieces > 0 ? parts.rows_each : 1;

  for (uint64_t part = blockIdx.x; part < count; part += gridDim.x)
    {
      uint64_t end = at_most ((part + 1) * each, norm.shape.rows);
      OwnSums<pieces> sums = {};

      for (uint64_t row = part * each; row < end; row++)
        {
          if (row + 1 < end)
            ask_for_row<pieces, has_mean> (norm, add, row + 1);
          norm_bwd_row<pieces, has_mean> (norm, din, add, row, &sums);
        }
      if constexpr (pieces > 0)
        each_piece<pieces> (norm.shape.cols, [&] (unsigned k, uint64_t col) {
          unsigned n = piece_of (col, norm.shape.cols);

          write (parts.at, sum_place (parts, part, 0, col), n, sums.weight[k]);
          if (has_mean)
            write (parts.at, sum_place (parts, part, 1, col), n, sums.bias[k]);
        });
    }
}

/* --- gradients of parameters -------------------------------------------------------------- */

/* dout * normal, and dout. */
template <bool has_mean> struct NormTerm
{
  uint64_t cols;
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
    uint64_t at = row * cols + col;

    return { ::fetch (dout, at, n), ::fetch (in, at, n), statistics.mean (row),
             statistics.rstd (row) };
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

struct BiasTerm
{
  uint64_t cols;
  Array dout;

  typedef Words Row;

  __device__ Row
  fetch (uint64_t row, uint64_t col, unsigned n) const
  {
    return ::fetch (dout, row * cols + col, n);
  }

  __device__ void
  add (const Row &row, Piece *sum, Piece *) const
  {
    Piece d = widen (dout, row);

    for (unsigned i = 0; i < PIECE; i++)
      sum->at[i] += d.at[i];
  }
};

const Array ABSENT = {};

enum : int
{
  ADD_OPERAND = 7 /* of both gradients */
};

/* Where a norm has its operands; dout, in, weight and statistics follow each other. */
struct NormBwdOperands
{
  int dout, work;
  Array dweight, dbias;
};

/* The sums by themselves come first: din may lie where dout is. */
template <bool has_mean>
int
launch_apart (const NormBwd<has_mean> &norm, Array din, Array add, const NormBwdOperands &which,
              void *stream)
{
  Columns sums = columns_of (norm.shape.rows, norm.shape.cols, which.dweight, which.dbias);
  NormTerm<has_mean> term = { norm.shape.cols, norm.dout, norm.in, norm.statistics };
  int code = EXEC_CUDA_LAUNCH (columns, shape_of_columns (sums), stream, sums, term);

  if (code != 0)
    return code;
  return EXEC_CUDA_LAUNCH (norm_bwd<0>, shape_of_rows (norm.shape.rows, norm.shape.cols), stream,
                           norm, din, add, RowParts{});
}

template <bool has_mean>
int
launch_norm_bwd (Operands *operands, void *stream, const NormBwdOperands &which)
{
  Norm shape = norm_of (*operands);
  uint64_t cols = shape.cols, threads = (pieces_of (cols) + WARP - 1) / WARP * WARP;
  Array din = operands->rows_of (0, cols), add = operands->rows_of (ADD_OPERAND, cols);
  NormBwd<has_mean> norm = { shape,
                             operands->rows_of (which.dout, cols),
                             operands->rows_of (which.dout + 1, cols),
                             operands->rows_of (which.dout + 2, cols),
                             { operands->floats (which.dout + 3) } };
  RowParts parts = parts_of (*operands, which.work, shape.rows, cols);
  const unsigned most = most_pieces (has_mean), fewer = most_threads (most, has_mean);
  int code = operands->code;

  if (code != 0)
    return code;
  if (parts.count == 0 || threads > most * fewer)
    return launch_apart (norm, din, add, which, stream);
  if (threads <= most_threads (1, has_mean))
    code = EXEC_CUDA_LAUNCH (norm_bwd<1>, shape_of_blocks (parts.count, (unsigned)threads), stream,
                             norm, din, add, parts);
  else
    code = EXEC_CUDA_LAUNCH (norm_bwd<most>, shape_of_blocks (parts.count, fewer), stream, norm,
                             din, add, parts);
  return code != 0 ? code : launch_parts (parts, which.dweight, which.dbias, stream);
}

/* Operands from 2 on are in, or sum, a, b; then the weight, and so on. */
NormIn
norm_in (Operands *operands, uint64_t cols, bool adds)
{
  Array in = operands->rows_of (2, cols);

  if (!adds)
    return { in, ABSENT, ABSENT };
  return { in, operands->rows_of (3, cols), operands->rows_of (4, cols) };
}

int
launch_rmsnorm (const ExecArgs *args, void *stream, bool adds)
{
  Operands operands (args);
  Norm shape = norm_of (operands);
  int next = adds ? 5 : 3;
  NormIn in = norm_in (&operands, shape.cols, adds);
  Array weight = operands.rows_of (next, shape.cols);
  NormOut out = norm_out (&operands, shape.cols, next + 1);
  float *rstd = operands.floats (1);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (rmsnorm, shape_of_rows (shape.rows, shape.cols), stream, shape, out,
                           rstd, in, weight);
}

int
launch_layernorm (const ExecArgs *args, void *stream, bool adds)
{
  Operands operands (args);
  Norm shape = norm_of (operands);
  int next = adds ? 5 : 3;
  NormIn in = norm_in (&operands, shape.cols, adds);
  Array weight = operands.rows_of (next, shape.cols);
  Array bias = operands.rows_of (next + 1, shape.cols);
  NormOut out = norm_out (&operands, shape.cols, next + 2);
  float *stats = operands.floats (1);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (layernorm, shape_of_rows (shape.rows, shape.cols), stream, shape, out,
                           stats, in, weight, bias);
}

}

extern "C" int
exec_cuda_rmsnorm (const ExecArgs *args, void *stream)
{
  return launch_rmsnorm (args, stream, false);
}

extern "C" int
exec_cuda_add_rmsnorm (const ExecArgs *args, void *stream)
{
  return launch_rmsnorm (args, stream, true);
}

extern "C" int
exec_cuda_rmsnorm_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array dweight = operands.rows_of (1, operands.dim (1));

  return launch_norm_bwd<false> (&operands, stream, { 2, 6, dweight, ABSENT });
}

extern "C" int
exec_cuda_layernorm (const ExecArgs *args, void *stream)
{
  return launch_layernorm (args, stream, false);
}

extern "C" int
exec_cuda_add_layernorm (const ExecArgs *args, void *stream)
{
  return launch_layernorm (args, stream, true);
}

extern "C" int
exec_cuda_layernorm_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array dweight = operands.rows_of (1, operands.dim (1));
  Array dbias = operands.rows_of (2, operands.dim (1));

  return launch_norm_bwd<true> (&operands, stream, { 3, 8, dweight, dbias });
}

extern "C" int
exec_cuda_bias_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t cols = operands.dim (1);
  Array dbias = operands.rows_of (0, cols);
  BiasTerm term = { cols, operands.rows_of (1, cols) };
  Columns sums = columns_of (operands.dim (0), cols, dbias, ABSENT);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (columns, shape_of_columns (sums), stream, sums, term);
}
