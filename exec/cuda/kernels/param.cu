/* SPDX-License-Identifier: Apache-2.0 */
/* Quantises a rank's part of a parameter by magnitudes of the whole parameter: to e4m3 and e5m2 by
 * one magnitude (or by a scale that is known before), to mxfp8 and nvfp4 by those of blocks of each
 * row, and in a second copy of each column. Also here: scales of sites, transposes of bytes, and
 * the product of two tensors' scales.
 *
 * Launch shape   param_amax: a thread per 4 pieces of 8 elements, 256 a block, at most 512 blocks.
 *                For formats with blocks: a thread per piece, then a thread per 8 columns of a
 *                block of rows, at most 2048 blocks; for parts that cut pieces a thread per block
 *                of a row, then of a column. param_quantize: one per magnitude, then one per piece.
 *                rescale: a warp per site. transpose: 256 threads per tile of 64 x 64, 5 KiB of
 *                shared memory.
 * Per call       s: bytes per element of `in`, q: of the result, b: elements of a block
 *   op                    bytes                      instructions
 *   param_amax            count s                    a comparison per element
 *     of blocks           2 count s, 8 count / b     the same, twice
 *   param_quantize        count (s + q)              a quotient in fp32: 13 per element (on GPUs
 *                                                    before sm_89 about 35)
 *     by a given scale    count (s + q)              a product in fp32, half an instruction to
 *                                                    round it
 *     of mxfp8            count (s + 2 q), 3 parts   the same per element and copy, 6 for scales
 *     of nvfp4            count (s + 2 q), 3 parts   some 25 per element and copy
 *   rescale               8 count length             a comparison per number
 *   transpose             2 rows cols
 * Checked with   exec_cpu_param_amax, exec_cpu_param_quantize, exec_cpu_rescale and
 *                exec_cpu_transpose, by tests/fake and tests/gpu: equal byte for byte, but any
 *                NaN will do. Divisions: see quotient_of, and settle. */
#include "exec/cuda/kernels/narrow.cuh"

#include "planner/schedule/quantizers.h"

namespace
{

/* A part of a parameter, and how the whole parameter is cut into blocks. */
struct Part
{
  Divisor cols;
  uint64_t first, count, block;
  unsigned shift;      /* log2 of a block's elements */
  uint64_t row_blocks; /* in the whole parameter; their magnitudes come before those of columns */
};

Part
part_of (const ExecArgs *args)
{
  const ExecParam &param = args->param;
  uint64_t block = param.block, row_blocks = block > 0 ? param.rows * param.cols / block : 0;

  return { divisor_of (param.cols), param.first, (uint64_t)args->op->dims[0], block,
           block == 32 ? 5u : 4u,   row_blocks };
}

/* Whether each piece of the parameter is a piece of the part, and within one row. */
__host__ __device__ inline bool
is_of_pieces (const Part &part)
{
  return part.first % PIECE == 0 && part.cols.by % PIECE == 0;
}

/* --- magnitudes --------------------------------------------------------------------------- */

__device__ inline uint32_t
magnitude_at (const Array &in, uint64_t at)
{
  return magnitude_of (read_one (in, at));
}

/* Raises *amax, which is 0 or what earlier launches found, to the largest magnitude of `in`. */
__global__ void
param_amax (uint64_t count, uint32_t *amax, Array in)
{
  raise_max (amax, largest_here (in, count));
}

/* Raises the magnitude of a block, of which no other thread has elements. */
__device__ inline void
raise_to (const Array &amax, uint64_t at, uint32_t word)
{
  if (word > magnitude_at (amax, at))
    write_one (amax, at, float_of (word));
}

/* A thread per piece; the threads of one block of elements are neighbours. */
__global__ void
param_amax_pieces (Part part, Array amax, Array in)
{
  uint64_t from = part.first >> part.shift << part.shift, end = part.first + part.count;

  for (uint64_t begin = from; begin < end; begin += piece_stride ())
    {
      uint64_t e = begin + first_piece ();
      bool is_in = e >= part.first && e < end;
      uint32_t max = is_in ? largest_of_piece (read (in, e - part.first, piece_of (e, end))) : 0;

      for (unsigned distance = 1; distance < part.block / PIECE; distance *= 2)
        max = larger (max, __shfl_xor_sync (0xffffffffu, max, (int)distance));
      if (e < end && e % part.block == 0)
        raise_to (amax, e >> part.shift, max);
    }
}

enum : unsigned
{
  STRIP_ROWS = 4 /* rows that a thread loads before it waits for the first */
};

/* Raises `largest` to the largest magnitude of each of eight columns, in a block of rows. */
__device__ inline void
largest_of_columns (const Part &part, const Array &in, uint64_t begin, uint32_t largest[PIECE])
{
  uint64_t end = part.first + part.count;

  for (uint64_t row = 0; row < part.block; row += STRIP_ROWS)
    {
      Words words[STRIP_ROWS];

      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < STRIP_ROWS; k++)
        {
          uint64_t e = begin + (row + k) * part.cols.by;
          bool is_in = e >= part.first && e < end;

          words[k] = is_in ? fetch (in, e - part.first, piece_of (e, end)) : Words{};
        }
      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < STRIP_ROWS; k++)
        {
          Piece piece = widen (in, words[k]);

          EXEC_CUDA_UNROLL_ALL
          for (unsigned i = 0; i < PIECE; i++)
            largest[i] = larger (largest[i], magnitude_of (piece.at[i]));
        }
    }
}

/* A thread per eight columns of a block of rows. */
__global__ void
param_amax_strips (Part part, Array amax, Array in)
{
  uint64_t end = part.first + part.count, height = part.block * part.cols.by;
  uint64_t from = part.first / height, across = part.cols.by / PIECE;
  uint64_t strips = ((end - 1) / height - from + 1) * across;

  for (uint64_t strip = first_x (); strip < strips; strip += stride_x ())
    {
      uint64_t block = from + strip / across, col = strip % across * PIECE;
      uint32_t largest[PIECE] = {};

      largest_of_columns (part, in, block * height + col, largest);
      EXEC_CUDA_UNROLL_ALL
      for (unsigned i = 0; i < PIECE; i++)
        if (largest[i] > 0)
          raise_to (amax, part.row_blocks + block * part.cols.by + col + i, largest[i]);
    }
}

/* A thread per block of a row, for parts that cut pieces. */
__global__ void
param_amax_rows (Part part, Array amax, Array in)
{
  uint64_t from = part.first / part.block, end = part.first + part.count;

  for (uint64_t b = from + first_x (); b * part.block < end; b += stride_x ())
    {
      uint64_t begin = b * part.block, stop = at_most (begin + part.block, end);
      uint32_t max = 0;

      for (uint64_t e = begin > part.first ? begin : part.first; e < stop; e++)
        max = larger (max, magnitude_at (in, e - part.first));
      raise_to (amax, b, max);
    }
}

/* A thread per block of a column, for parts that cut pieces. Neighbouring threads have neighbouring
 * columns. */
__global__ void
param_amax_columns (Part part, Array amax, Array in)
{
  uint64_t end = part.first + part.count, height = part.block * part.cols.by;
  uint64_t from = part.first / height * part.cols.by; /* the first block that may have an element */

  for (uint64_t b = from + first_x (); b / part.cols.by * height < end; b += stride_x ())
    {
      uint64_t begin = b / part.cols.by * height + b % part.cols.by;
      uint32_t max = 0;

      for (uint64_t e = begin; e < begin + height; e += part.cols.by)
        if (e >= part.first && e < end)
          max = larger (max, magnitude_at (in, e - part.first));
      if (max > 0)
        raise_to (amax, part.row_blocks + b, max);
    }
}

/* --- one scale for all -------------------------------------------------------------------- */

__device__ inline float
tensor_scale (float max, double limit)
{
  return max == 0 ? 1.0f : (float)((double)max / limit);
}

__global__ void
param_quantize (uint64_t count, uint8_t *out, PlanDtype dtype, float *scale, Array amax, Array in)
{
  Narrow format = narrow_of (dtype);
  float own = tensor_scale (read_one (amax, 0), dtype == PLAN_DTYPE_E4M3 ? 448.0 : 57344.0);
  Scaling by = quotient_by_float (own);

  if (first_x () == 0)
    *scale = own;
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);

      store_codes (out + at, to_codes (format, scaled_any (read (in, at, n), by)), n);
    }
}

/* Quantises by a scale that is known before. */
__global__ void
param_quantize_given (uint64_t count, uint8_t *out, PlanDtype dtype, float *scale, Site site,
                      Array in)
{
  Narrow format = narrow_of (dtype);
  float given = *site.scale;
  uint32_t own = 0;

  if (first_x () == 0)
    *scale = 1.0f / given;
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Piece piece = read (in, at, n);

      own = larger (own, largest_of_piece (piece));
      store_codes (out + at, site_codes (format, piece, given), n);
    }
  if (site.amax != NULL)
    raise_max (site.amax, own);
}

/* A warp per site. The newest magnitude becomes the first of the history, the oldest is dropped,
 * and the next scale follows from the largest. Infinity and NaN stay in the history, and leave the
 * scale as it is until they have been dropped. */
__global__ void
rescale (uint64_t count, uint64_t length, float *scales, float *history, float *amax)
{
  for (uint64_t site = blockIdx.x; site < count; site += gridDim.x)
    {
      float *own = history + site * length, newest = amax[site];
      uint32_t max = 0;

      for (uint64_t chunk = (length + WARP - 1) / WARP; chunk-- > 0;)
        {
          uint64_t i = chunk * WARP + threadIdx.x;
          float moved = i >= length ? 0.0f : i > 0 ? own[i - 1] : newest;

          max = larger (max, magnitude_of (moved));
          __syncwarp (); /* all lanes have read what others overwrite */
          if (i < length)
            own[i] = moved;
        }
      for (int distance = WARP / 2; distance > 0; distance /= 2)
        max = larger (max, __shfl_xor_sync (0xffffffffu, max, distance));
      if (threadIdx.x == 0)
        {
          float limit
              = site % PLAN_QUANTIZERS_OF_PRODUCT == PLAN_QUANTIZER_GRADIENT ? 57344.0f : 448.0f;

          amax[site] = 0;
          if (max > 0 && max < 0x7f800000u)
            scales[site] = fminf (limit / float_of (max), float_of (0x7f7fffffu));
        }
    }
}

/* --- scales of blocks --------------------------------------------------------------------- */

/* Turns the largest of all magnitudes, which is in *scale, into a scale. Launched with one
 * thread. */
__global__ void
param_unit (float *scale)
{
  *scale = tensor_scale (*scale, 6.0 * 448.0);
}

/* The scales of blocks of rows and of columns: their unit, and where they lie. */
struct BlockScales
{
  uint8_t *at;
  const float *unit; /* nvfp4: the tensor's scale; mxfp8: NULL */
  ScalePlaces rows, columns;
};

/* The place of the scale of a block, counted over all rows, that is in row `row`. A row may not
 * consist of whole blocks. */
__device__ inline uint64_t
place_by_row (const BlockScales &scales, uint64_t block, uint64_t row)
{
  return scales.rows.is_tiled ? place_of (scales.rows, row, block - row * scales.rows.inners)
                              : block;
}

/* The place of the scale of a block of a column; those lie behind the scales of all rows. */
__device__ inline uint64_t
place_by_column (const BlockScales &scales, const Part &part, uint64_t row_block, uint64_t col)
{
  return part.row_blocks + place_of (scales.columns, col, row_block);
}

__global__ void
param_scales (uint64_t magnitudes, Part part, BlockScales scales, Array amax)
{
  for (uint64_t i = first_x (); i < magnitudes; i += stride_x ())
    {
      double max = (double)read_one (amax, i);
      unsigned code = scales.unit == NULL ? to_e8m0_up (max / 448.0)
                                          : to_narrow (narrow_of (PLAN_DTYPE_E4M3),
                                                       max / 6.0 / (double)*scales.unit);

      uint64_t column = i - part.row_blocks;

      scales.at[i < part.row_blocks
                    ? place_by_row (scales, i, (i << part.shift) / part.cols.by)
                    : place_by_column (scales, part, column / part.cols.by, column % part.cols.by)]
          = (uint8_t)code;
    }
}

/* The inverse of a block's scale, with which its elements are multiplied. */
__device__ inline double
inverse_at (const BlockScales &scales, uint64_t place)
{
  unsigned code = scales.at[place];
  double scale;

  if (scales.unit == NULL)
    return (double)inverse_of_power (from_e8m0 (code));
  scale = (double)from_narrow (narrow_of (PLAN_DTYPE_E4M3), code) * (double)*scales.unit;
  return scale == 0 ? 0.0 : 1.0 / scale;
}

__device__ inline unsigned
block_code (const Narrow &format, float value, double inverse)
{
  if (is_e2m1 (format) && inverse == 0)
    return 0;
  return to_narrow (format, settle ((double)value * inverse));
}

/* Stores the first n codes of a piece. If has_pairs there are two in a byte, as in e2m1, the first
 * in its lower half, and n is even. */
__device__ inline void
store_piece (uint8_t *out, uint64_t at, const uint8_t codes[PIECE], unsigned n, bool has_pairs)
{
  if (!has_pairs)
    {
      Pair packed = {};

      for (unsigned i = 0; i < PIECE; i++)
        packed.word[i / 4] |= (uint32_t)codes[i] << i % 4 * 8;
      store_codes (out + at, packed, n);
    }
  else
    for (unsigned i = 0; i < PIECE; i += 2)
      if (i < n)
        out[(at + i) / 2] = (uint8_t)(codes[i] | codes[i + 1] << 4);
}

/* The scale of a block as a Scaling, for many elements. */
__device__ inline Scaling
scaling_of (const BlockScales &scales, unsigned code)
{
  return scales.unit == NULL
             ? product_with (inverse_of_power (from_e8m0 (code)))
             : half_scaling (from_narrow (narrow_of (PLAN_DTYPE_E4M3), code), *scales.unit);
}

/* Rounds a piece to eight codes, of a byte or of half a byte each. */
__device__ inline Pair
pack (const Narrow &format, const Piece &piece)
{
  Pair codes = {};

  if (!is_e2m1 (format))
    return to_codes (format, piece);
  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    codes.word[0] |= to_e2m1 (piece.at[i]) << i * 4;
  return codes;
}

__device__ inline void
store_whole (uint8_t *out, uint64_t at, const Pair &codes, bool has_pairs)
{
  if (!has_pairs)
    store_codes (out + at, codes, PIECE);
  else if ((uintptr_t)out % sizeof (uint32_t) == 0 && at % PIECE == 0)
    *(uint32_t *)(out + at / 2) = codes.word[0];
  else
    store_codes (out + at / 2, codes, PIECE / 2);
}

/* Where a piece, or an element, lies: in the part, in the parameter, and in which row and column of
 * that. */
struct PartPlace
{
  uint64_t at, element, row, col;
};

/* The codes of the scales of eight neighbouring columns, in a block of rows. */
__device__ inline Pair
column_codes (const Part &part, const BlockScales &scales, const PartPlace &place)
{
  uint64_t at = place_by_column (scales, part, place.row >> part.shift, place.col);
  uint64_t step = place_step (scales.columns);
  Pair codes = {};

  if (step == 1)
    return load_codes (scales.at + at, PIECE);
  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    codes.word[i / 4] |= (uint32_t)scales.at[at + i * step] << i % 4 * 8;
  return codes;
}

__device__ inline void
quantize_piece (const Part &part, uint8_t *out, uint8_t *col, const Narrow &format,
                const BlockScales &scales, const PartPlace &place, const Piece &piece)
{
  bool has_pairs = is_e2m1 (format);
  unsigned own = scales.at[place_by_row (scales, place.element >> part.shift, place.row)];
  Pair codes = column_codes (part, scales, place);
  Piece down;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    down.at[i]
        = scaled_value (piece.at[i], scaling_of (scales, codes.word[i / 4] >> i % 4 * 8 & 0xff));
  store_whole (out, place.at, pack (format, scaled_any (piece, scaling_of (scales, own))),
               has_pairs);
  store_whole (col, place.at, pack (format, down), has_pairs);
}

/* Quantises a piece element by element, because the part or its rows do not consist of whole
 * pieces. */
__device__ inline void
quantize_elements (const Part &part, uint8_t *out, uint8_t *col, const Narrow &format,
                   const BlockScales &scales, PartPlace place, const Piece &piece, unsigned n)
{
  uint8_t by_row[PIECE] = {}, by_column[PIECE] = {};

  for (unsigned i = 0; i < n; i++, place.element++)
    {
      uint64_t by = place_by_row (scales, place.element >> part.shift, place.row);

      by_row[i] = (uint8_t)block_code (format, piece.at[i], inverse_at (scales, by));
      by = place_by_column (scales, part, place.row >> part.shift, place.col);
      by_column[i] = (uint8_t)block_code (format, piece.at[i], inverse_at (scales, by));
      if (++place.col == part.cols.by)
        {
          place.col = 0;
          place.row++;
        }
    }
  store_piece (out, place.at, by_row, n, is_e2m1 (format));
  store_piece (col, place.at, by_column, n, is_e2m1 (format));
}

__global__ void
param_quantize_blocks (Part part, uint8_t *out, uint8_t *col, PlanDtype dtype, BlockScales scales,
                       Array in)
{
  Narrow format = narrow_of (dtype);

  for (uint64_t at = first_piece (); at < part.count; at += piece_stride ())
    {
      unsigned n = piece_of (at, part.count);
      Piece piece = read (in, at, n);
      Quotient element = divide (part.first + at, part.cols);
      PartPlace place = { at, part.first + at, element.whole, element.rest };

      if (n == PIECE && is_of_pieces (part))
        quantize_piece (part, out, col, format, scales, place, piece);
      else
        quantize_elements (part, out, col, format, scales, place, piece, n);
    }
}

int
quantize_blocks (const ExecArgs *args, const Part &part, Array in, Array amax, void *stream)
{
  uint64_t magnitudes = (uint64_t)args->op->dims[1], rows = args->param.rows, cols = part.cols.by;
  PlanDtype dtype = args->dtype[0];
  uint8_t *out = (uint8_t *)args->ptr[0], *col = (uint8_t *)args->ptr[1];
  float *unit = dtype == PLAN_DTYPE_E2M1 ? args->scale[0] : NULL;
  BlockScales scales = { (uint8_t *)args->ptr[4], unit,
                         places_of (rows, cols % part.block == 0 ? cols / part.block : 1, false),
                         places_of (cols, rows / part.block, true) };
  int code = 0;

  if (unit != NULL)
    {
      uint32_t *word = (uint32_t *)unit;

      code = (int)cudaMemsetAsync (unit, 0, sizeof *unit, (cudaStream_t)stream);
      if (code == 0)
        code = EXEC_CUDA_LAUNCH (param_amax, shape_of_largest (magnitudes), stream, magnitudes,
                                 word, amax);
      if (code == 0)
        code = EXEC_CUDA_LAUNCH (param_unit, shape_of_blocks (1, 1), stream, unit);
    }
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (param_scales, shape_of_items (magnitudes), stream, magnitudes, part,
                             scales, amax);
  if (code == 0 && part.count > 0)
    code = EXEC_CUDA_LAUNCH (param_quantize_blocks, shape_of_pieces (part.count), stream, part, out,
                             col, dtype, scales, in);
  return code;
}

/* --- transposes --------------------------------------------------------------------------- */

enum : unsigned
{
  TRANSPOSE_TILE = 64
};

struct TransposeTile
{
  uint32_t at[TRANSPOSE_TILE][TRANSPOSE_TILE / 4 + 1]; /* one more against bank conflicts */
};

/* A matrix of bytes to transpose. `is_wide`: rows and columns consist of whole pieces of 16 bytes,
 * in memory that begins on 16 bytes. */
struct Transpose
{
  uint64_t rows, cols;
  uint8_t *out;
  const uint8_t *in;
  bool is_wide;
};

enum : unsigned
{
  TRANSPOSE_PIECE = sizeof (Quad),
  TRANSPOSE_PIECES = TRANSPOSE_TILE / TRANSPOSE_PIECE /* pieces of a row of a tile */
};

__device__ inline TransposeTile &
transpose_tile ()
{
  __shared__ TransposeTile shared;

  return shared;
}

/* Transposes a tile byte by byte. Neighbouring threads read, and write, neighbouring bytes. */
__device__ inline void
transpose_bytes (const Transpose &matrix, uint64_t r, uint64_t c)
{
  TransposeTile &tile = transpose_tile ();

  for (unsigned i = threadIdx.x; i < TRANSPOSE_TILE * TRANSPOSE_TILE; i += THREADS)
    if (r + i / TRANSPOSE_TILE < matrix.rows && c + i % TRANSPOSE_TILE < matrix.cols)
      ((uint8_t *)tile.at[i / TRANSPOSE_TILE])[i % TRANSPOSE_TILE]
          = matrix.in[(r + i / TRANSPOSE_TILE) * matrix.cols + c + i % TRANSPOSE_TILE];
  __syncthreads ();
  for (unsigned i = threadIdx.x; i < TRANSPOSE_TILE * TRANSPOSE_TILE; i += THREADS)
    if (c + i / TRANSPOSE_TILE < matrix.cols && r + i % TRANSPOSE_TILE < matrix.rows)
      matrix.out[(c + i / TRANSPOSE_TILE) * matrix.rows + r + i % TRANSPOSE_TILE]
          = ((const uint8_t *)tile.at[i % TRANSPOSE_TILE])[i / TRANSPOSE_TILE];
}

/* Transposes a tile: a thread reads a piece of a row and writes a piece of a column. The lanes of a
 * warp have two pieces of each of 16 columns, so they write whole sectors of memory and read shared
 * memory without bank conflicts. */
__device__ inline void
transpose_pieces (const Transpose &matrix, uint64_t r, uint64_t c)
{
  TransposeTile &tile = transpose_tile ();
  unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  unsigned row = threadIdx.x / TRANSPOSE_PIECES,
           from = threadIdx.x % TRANSPOSE_PIECES * TRANSPOSE_PIECE;
  unsigned col = warp % 4 * 16 + lane / 2, to = (warp / 4 * 2 + lane % 2) * TRANSPOSE_PIECE;
  Quad transposed = {};

  if (r + row < matrix.rows && c + from < matrix.cols)
    {
      Quad quad = *(const Quad *)(matrix.in + (r + row) * matrix.cols + c + from);

      for (unsigned i = 0; i < 4; i++)
        tile.at[row][from / 4 + i] = quad.word[i];
    }
  __syncthreads ();
  if (c + col >= matrix.cols || r + to >= matrix.rows)
    return;
  for (unsigned i = 0; i < TRANSPOSE_PIECE; i++)
    transposed.word[i / 4] |= (uint32_t)((const uint8_t *)tile.at[to + i])[col] << i % 4 * 8;
  *(Quad *)(matrix.out + (c + col) * matrix.rows + r + to) = transposed;
}

__global__ void
__launch_bounds__ (THREADS) transpose (Transpose matrix, float *out_scale, const float *in_scale)
{
  uint64_t across = (matrix.cols + TRANSPOSE_TILE - 1) / TRANSPOSE_TILE;
  uint64_t tiles = (matrix.rows + TRANSPOSE_TILE - 1) / TRANSPOSE_TILE * across;

  if (first_x () == 0 && out_scale != NULL && in_scale != NULL)
    *out_scale = *in_scale;
  for (uint64_t t = blockIdx.x; t < tiles; t += gridDim.x)
    {
      __syncthreads (); /* the last tile has been written */
      if (matrix.is_wide)
        transpose_pieces (matrix, t / across * TRANSPOSE_TILE, t % across * TRANSPOSE_TILE);
      else
        transpose_bytes (matrix, t / across * TRANSPOSE_TILE, t % across * TRANSPOSE_TILE);
    }
}

/* --- one factor --------------------------------------------------------------------------- */

__global__ void
multiply_scales (const float *a, const float *b, float addend, float *out)
{
  out[0] = *a * *b;
  out[1] = addend;
}

}

extern "C" int
exec_cuda_param_amax (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array amax = operands.array (0), in = operands.array (1);
  Part part = part_of (args);
  uint64_t count = part.count;
  uint32_t *word = (uint32_t *)args->ptr[0];
  int code = operands.code;

  if (part.block == SQUARE_SIDE)
    return exec_cuda_param_amax_squares (args, stream);
  if (part.block == 0 && args->dtype[0] != PLAN_DTYPE_FP32)
    return (int)cudaErrorInvalidValue;
  if (code != 0 || count == 0)
    return code;
  if (part.block == 0)
    return EXEC_CUDA_LAUNCH (param_amax, shape_of_largest (count), stream, count, word, in);
  if (is_of_pieces (part))
    {
      uint64_t strips = (count / (part.block * part.cols.by) + 2) * (part.cols.by / PIECE);

      code = EXEC_CUDA_LAUNCH (param_amax_pieces, shape_of_pieces (count + part.block), stream,
                               part, amax, in);
      return code != 0 ? code
                       : EXEC_CUDA_LAUNCH (param_amax_strips, shape_of_items (strips), stream, part,
                                           amax, in);
    }
  code = EXEC_CUDA_LAUNCH (param_amax_rows, shape_of_items (count / part.block + 2), stream, part,
                           amax, in);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (param_amax_columns,
                             shape_of_items (count / part.block + 2 * part.cols.by), stream, part,
                             amax, in);
  return code;
}

/* A part in e2m1 must begin and end between two bytes. */
extern "C" int
exec_cuda_param_quantize (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array in = operands.array (2), amax = operands.array (3);
  Part part = part_of (args);
  PlanDtype dtype = args->dtype[0];
  uint8_t *out = (uint8_t *)args->ptr[0];
  float *scale = args->scale[0];
  uint64_t count = part.count;
  Site site = site_of (args, 5);
  bool has_pairs = dtype == PLAN_DTYPE_E2M1;

  if (part.block == SQUARE_SIDE)
    return exec_cuda_param_quantize_squares (args, stream);
  if (operands.code != 0)
    return operands.code;
  if ((!has_pairs && dtype != PLAN_DTYPE_E5M2 && dtype != PLAN_DTYPE_E4M3)
      || (has_pairs && (count % 2 != 0 || part.first % 2 != 0))
      || (part.block != 0 && part.block != NV_BLOCK && part.block != MX_BLOCK))
    return (int)cudaErrorInvalidValue;
  if (part.block > 0)
    return quantize_blocks (args, part, in, amax, stream);
  if (site.scale != NULL)
    return EXEC_CUDA_LAUNCH (param_quantize_given, shape_of_pieces (count), stream, count, out,
                             dtype, scale, site, in);
  return EXEC_CUDA_LAUNCH (param_quantize, shape_of_pieces (count), stream, count, out, dtype,
                           scale, amax, in);
}

extern "C" int
exec_cuda_rescale (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t count = operands.dim (0), length = operands.dim (1);
  float *scales = operands.floats (0), *history = operands.floats (1), *amax = operands.floats (2);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (rescale, shape_of_blocks (count, WARP), stream, count, length, scales,
                           history, amax);
}

extern "C" int
exec_cuda_transpose (const ExecArgs *args, void *stream)
{
  uint64_t rows = (uint64_t)args->op->dims[0], cols = (uint64_t)args->op->dims[1];
  uint64_t tiles = (rows + TRANSPOSE_TILE - 1) / TRANSPOSE_TILE
                   * ((cols + TRANSPOSE_TILE - 1) / TRANSPOSE_TILE);
  uint8_t *out = (uint8_t *)args->ptr[0];
  const uint8_t *in = (const uint8_t *)args->ptr[1];
  float *out_scale = args->scale[0];
  const float *in_scale = args->scale[1];

  bool has_squares = args->dtype[0] == PLAN_DTYPE_FP8_128X128;
  PlanDtype from = args->blocks[1].scales != NULL ? args->blocks[1].format : args->dtype[1];

  if ((!has_squares && block_of (args->dtype[0]) != 1) || from != args->dtype[0]
      || (has_squares && (rows % SQUARE_SIDE != 0 || cols % SQUARE_SIDE != 0)))
    return (int)cudaErrorInvalidValue;
  int code = has_squares ? exec_cuda_transpose_squares (args, stream) : 0;
  if (code != 0)
    return code;

  bool is_wide = is_aligned (in) && is_aligned (out) && rows % TRANSPOSE_PIECE == 0
                 && cols % TRANSPOSE_PIECE == 0;
  Transpose matrix = { rows, cols, out, in, is_wide };
  return EXEC_CUDA_LAUNCH (transpose, shape_of_blocks (tiles, THREADS), stream, matrix,
                           has_squares ? NULL : out_scale, in_scale);
}

extern "C" int
exec_cuda_multiply_scales (const float *a, const float *b, float addend, float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (multiply_scales, shape_of_blocks (1, 1), stream, a, b, addend, out);
}
