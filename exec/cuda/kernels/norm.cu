/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of rows, and sums of columns.
 *
 *   rmsnorm        rstd = 1 / sqrt (mean (in^2) + eps), out = in * rstd * weight
 *   layernorm      mean, rstd = 1 / sqrt (variance + eps), out = (in - mean) * rstd * weight + bias
 *   add_ either    sum = a + b rounded to its format, then the norm of that as `in`
 *   bias_bwd       dbias = sums over rows of dout
 *
 * Launch shape   rows: a block per row of up to 256 threads, a piece of 8 elements each, at most
 *                2048 blocks; 128 bytes of shared memory. columns: a block of 512 threads per strip
 *                of 8 to 32 columns; 18 KiB of shared memory.
 * Per call       s: bytes per element, of each operand's own format; n = rows cols. A row is
 *                read again from cache, and a + b added again.
 *   op             bytes                                       FLOPs
 *   rmsnorm        n (s + s) + cols s + 4 rows                 4 n
 *   layernorm      n (s + s) + 2 cols s + 8 rows               7 n
 *   add_ either    2 n s more (as two kernels 3 n s more)      n more
 *   bias_bwd       n s + cols s                                n
 * Checked with   exec_cpu_rmsnorm and the others of exec/cpu/kernels-cpu-norm.c, run_bias_bwd of
 *                exec/cpu/kernels-cpu.c, by tests/fake and tests/gpu. Sums are in another order,
 *                which depends on rows and cols alone. With u = 2^-24: sums over a row are off by
 *                at most (cols / 8 + 32) u, sums over rows by (rows + 32) u, of the sum of their
 *                terms' magnitudes; rstd is off by half as much of itself. */
#include "exec/cuda/kernels/narrow.cuh"
#include "exec/cuda/kernels/reduce.cuh"

namespace
{

struct Norm
{
  uint64_t rows, cols, pitch; /* pitch: elements from one input row to the next */
  float eps, plus;            /* plus: what is added to weights to give gains */
};

Norm
norm_of (const Operands &operands)
{
  uint64_t pitch = (uint64_t)exec_manner (operands.args, PLAN_MANNER_PITCH);

  return { operands.dim (0), operands.dim (1), pitch > 0 ? pitch : operands.dim (1),
           (float)operands.args->constants->norm_eps,
           (float)exec_manner (operands.args, PLAN_MANNER_ONE_PLUS) };
}

/* Where a norm writes: numbers, or codes for a product, if a site gives their scale. */
struct NormOut
{
  Array plain;
  uint8_t *codes; /* NULL: numbers go to `plain` */
  PlanDtype dtype;
  float *tensor_scale;
  Site site; /* without a scale: `amax` is for the op that quantises the numbers next */
};

/* Writes a piece, and raises *own to the largest magnitude that this thread has written. */
__device__ inline void
write_norm (const NormOut &out, uint64_t at, unsigned n, const Piece &piece, uint32_t *own)
{
  if (out.codes == NULL)
    {
      write (out.plain, at, n, piece);
      find_stored (out.site.amax, n, piece, own);
      return;
    }
  for (unsigned i = 0; i < PIECE; i++)
    if (i < n)
      *own = larger (*own, magnitude_of (piece.at[i]));
  store_codes (out.codes + at, site_codes (narrow_of (out.dtype), piece, *out.site.scale), n);
}

/* After the last row: stores the scale of the codes, and raises the site's largest magnitude. */
__device__ inline void
finish_norm (const NormOut &out, uint32_t own)
{
  if (out.codes != NULL && first_x () == 0)
    *out.tensor_scale = 1.0f / *out.site.scale;
  if (out.codes == NULL)
    raise_stored (out.site.amax, out.plain, own);
  else if (out.site.amax != NULL)
    raise_max (out.site.amax, own);
}

NormOut
norm_out (Operands *operands, uint64_t cols, int scale)
{
  const ExecArgs *args = operands->args;

  if (args->ptr[scale] == NULL)
    return { operands->rows_of (0, cols), NULL, args->dtype[0], NULL, site_of (args, scale) };
  if (args->dtype[0] != PLAN_DTYPE_E5M2)
    operands->need (0, PLAN_DTYPE_E4M3);
  return { {}, (uint8_t *)args->ptr[0], args->dtype[0], args->scale[0], site_of (args, scale) };
}

/* What a norm reads: `in`, or the sum of a and b, which it stores in `in`. */
struct NormIn
{
  Array in;   /* the input, or where the sum is stored */
  Array a, b; /* NULL: no sum */
};

/* Reads a piece. A sum is added up again and not read back: loads stay in the nearest cache, stores
 * do not. */
__device__ inline Piece
read_in (const NormIn &from, uint64_t at, unsigned n)
{
  if (from.a.at == NULL)
    return read (from.in, at, n);
  Words as = fetch (from.a, at, n), bs = fetch (from.b, at, n);
  Piece x = widen (from.a, as), y = widen (from.b, bs);

  for (unsigned i = 0; i < PIECE; i++)
    x.at[i] += y.at[i];
  return rounded (from.in, x);
}

/* Reads a piece for the first time, and stores it if it is a sum. */
__device__ inline Piece
read_first (const NormIn &from, uint64_t at, unsigned n)
{
  Piece x = read_in (from, at, n);

  if (from.a.at != NULL)
    write (from.in, at, n, x);
  return x;
}

/* The same arrays, whose format the compiler knows if they are plain: bf16 in whole pieces. */
template <bool plain>
__device__ inline NormOut
known_out (const NormOut &out)
{
  return { known<plain> (out.plain), out.codes, out.dtype, out.tensor_scale, out.site };
}

template <bool plain>
__device__ inline NormIn
known_in (const NormIn &from)
{
  return { known<plain> (from.in), known<plain> (from.a), known<plain> (from.b) };
}

/* How many elements the piece at a column has. */
template <bool plain>
__device__ inline unsigned
length (uint64_t col, const Norm &shape)
{
  return plain ? (unsigned)PIECE : piece_of (col, shape.cols);
}

template <bool plain>
__global__ void
rmsnorm (Norm shape, NormOut to, float *rstd, NormIn given, Array gain)
{
  NormOut out = known_out<plain> (to);
  NormIn from = known_in<plain> (given);
  Array weight = known<plain> (gain);
  uint32_t own = 0;

  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    {
      float squares = 0;

      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          Piece x = read_first (from, row * shape.pitch + col, length<plain> (col, shape));

          for (unsigned i = 0; i < PIECE; i++)
            squares += x.at[i] * x.at[i];
        }
      float scale = 1.0f / sqrtf (block_sum (squares) / (float)shape.cols + shape.eps);
      if (threadIdx.x == 0)
        rstd[row] = scale;
      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          unsigned n = length<plain> (col, shape);
          Words weights = fetch (weight, col, n);
          Piece x = read_in (from, row * shape.pitch + col, n);
          Piece w = gains_of (widen (weight, weights), shape.plus);

          for (unsigned i = 0; i < PIECE; i++)
            x.at[i] = x.at[i] * scale * w.at[i];
          write_norm (out, row * shape.cols + col, n, x, &own);
        }
    }
  finish_norm (out, own);
}

template <bool plain>
__global__ void
layernorm (Norm shape, NormOut to, float *stats, NormIn given, Array gain, Array shift)
{
  NormOut out = known_out<plain> (to);
  NormIn from = known_in<plain> (given);
  Array weight = known<plain> (gain), bias = known<plain> (shift);
  uint32_t own = 0;

  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    {
      float sum = 0, squares = 0;

      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          Piece x = read_first (from, row * shape.cols + col, length<plain> (col, shape));

          for (unsigned i = 0; i < PIECE; i++)
            sum += x.at[i];
        }
      float mean = block_sum (sum) / (float)shape.cols;
      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          unsigned n = length<plain> (col, shape);
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
          unsigned n = length<plain> (col, shape);
          uint64_t at = row * shape.cols + col;
          Words weights = fetch (weight, col, n), biases = {};
          Piece x = read_in (from, at, n), w = gains_of (widen (weight, weights), shape.plus);

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

/* --- sums of columns ---------------------------------------------------------------------- */

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

/* Operand 2 is `in`. If the op adds, it is where the sum is stored, and operands 3 and 4 are a and
 * b. The weight and so on come behind them. */
NormIn
norm_in (Operands *operands, uint64_t cols, bool adds)
{
  Array in = operands->rows_of (2, cols);

  if (!adds)
    return { in, ABSENT, ABSENT };
  return { in, operands->rows_of (3, cols), operands->rows_of (4, cols) };
}

bool
are_plain (const NormOut &out, const NormIn &in)
{
  return is_plain (out.plain) && is_plain (in.in) && is_plain (in.a) && is_plain (in.b);
}

int
launch_rmsnorm (const ExecArgs *args, void *stream, bool adds)
{
  Operands operands (args);
  Norm shape = norm_of (operands);
  int next = adds ? 5 : 3;
  NormIn in = norm_in (&operands, shape.pitch, adds);
  Array weight = operands.rows_of (next, shape.cols);
  NormOut out = norm_out (&operands, shape.cols, next + 1);
  float *rstd = operands.floats (1);

  if (operands.code != 0)
    return operands.code;
  Shape launch = shape_of_rows (shape.rows, shape.cols);
  if (are_plain (out, in) && is_plain (weight))
    return EXEC_CUDA_LAUNCH (rmsnorm<true>, launch, stream, shape, out, rstd, in, weight);
  return EXEC_CUDA_LAUNCH (rmsnorm<false>, launch, stream, shape, out, rstd, in, weight);
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
  Shape launch = shape_of_rows (shape.rows, shape.cols);
  if (are_plain (out, in) && is_plain (weight) && is_plain (bias))
    return EXEC_CUDA_LAUNCH (layernorm<true>, launch, stream, shape, out, stats, in, weight, bias);
  return EXEC_CUDA_LAUNCH (layernorm<false>, launch, stream, shape, out, stats, in, weight, bias);
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
