/* SPDX-License-Identifier: Apache-2.0 */
/* e4m3 in blocks of 128 along a row and in squares of that side, each with an fp32 scale: matrices,
 * both ways round from one square at a time; a rank's part of a parameter, by the magnitudes of
 * whole squares; and the scales of a parameter that is turned.
 *
 * Launch shape   quantize_128: 256 threads per square of 128 x 128, at most 2048 blocks; 26 KiB of
 *                shared memory. amax_squares, quantize_squares: a thread per piece of 8 elements,
 *                256 a block, at most 2048 blocks. scale_squares, turn_squares: one per scale.
 * Per call       s: bytes per element of `in`, q = 1 + 1 / 32; n elements
 *   op                    bytes                    instructions
 *   quantize              n (s + q), with col      a product in fp32 per element and copy, half an
 *                         n (s + 2 q)              instruction to round it (about 25 before sm_89);
 *                                                  a square is read twice, the second time from
 *                                                  cache
 *   param_amax            count s                  a comparison per element
 *   param_quantize        count (s + 1)            as quantize
 * Checked with   exec_cpu_quantize, exec_cpu_param_amax, exec_cpu_param_quantize and
 *                exec_cpu_transpose, by tests/fake and tests/gpu: equal byte for byte, whichever
 *                NaN. Scales are powers of two: a product with an inverse is what the CPU divides.
 */
#include "exec/cuda/narrow.cuh"

namespace
{

enum : unsigned
{
  SQUARE_PIECES = SQUARE_SIDE / PIECE,      /* of a row of a square; of as many threads */
  SQUARE_ROWS = THREADS / SQUARE_PIECES,    /* rows that a block reads together */
  SQUARE_ROUNDS = SQUARE_SIDE / SQUARE_ROWS /* until it has read a square */
};

/* The scale of what has this largest magnitude. */
__device__ inline float
square_scale (uint32_t max)
{
  unsigned code = to_e8m0_up ((double)float_of (max) / 448.0);

  return max == 0 ? 1.0f : from_e8m0 (code > 0 ? code : 1);
}

/* Products with a power of two are exact, where they are not too small for a code. */
__device__ inline Pair
square_codes (Piece piece, float scale)
{
  float inverse = inverse_of_power (scale);

  for (unsigned i = 0; i < PIECE; i++)
    piece.at[i] *= inverse;
  return to_codes (narrow_of (PLAN_DTYPE_E4M3), piece);
}

/* --- a matrix ----------------------------------------------------------------------------- */

/* One of the results: rows of `cols` codes, then scales. */
struct SquareTarget
{
  uint8_t *at;
  float *scales;
  uint64_t rows, cols;
};

struct SquareTile
{
  uint32_t largest[SQUARE_ROWS][SQUARE_SIDE];        /* of the rows that a row of threads reads */
  float scale[SQUARE_SIDE];                          /* of columns */
  uint32_t turned[SQUARE_SIDE][SQUARE_SIDE / 4 + 1]; /* codes, and a word against bank conflicts */
};

__device__ inline SquareTile &
square_tile ()
{
  __shared__ SquareTile shared;

  return shared;
}

/* Of the 16 threads that have a row between them. */
__device__ inline uint32_t
largest_of_row (const Piece &piece)
{
  uint32_t max = 0;

  for (unsigned i = 0; i < PIECE; i++)
    max = larger (max, magnitude_of (piece.at[i]));
  for (unsigned distance = SQUARE_PIECES / 2; distance > 0; distance /= 2)
    max = larger (max, __shfl_xor_sync (0xffffffffu, max, (int)distance));
  return max;
}

/* Reads the square once: rows that have scales of their own are stored, columns measured. */
__device__ inline void
measure_square (const SquareTarget &row, const Array &in, uint64_t r, uint64_t c, bool is_square)
{
  SquareTile &tile = square_tile ();
  unsigned line = threadIdx.x / SQUARE_PIECES, col = threadIdx.x % SQUARE_PIECES * PIECE;
  uint32_t own[PIECE] = {};

  for (unsigned round = 0; round < SQUARE_ROUNDS; round++)
    {
      uint64_t at = r + round * SQUARE_ROWS + line;
      Piece piece = read (in, at * row.cols + c + col, PIECE);

      for (unsigned i = 0; i < PIECE; i++)
        own[i] = larger (own[i], magnitude_of (piece.at[i]));
      if (is_square)
        continue;
      float scale = square_scale (largest_of_row (piece));
      if (col == 0)
        row.scales[c / SQUARE_SIDE * row.rows + at] = scale;
      store_codes (row.at + at * row.cols + c + col, square_codes (piece, scale), PIECE);
    }
  for (unsigned i = 0; i < PIECE; i++)
    tile.largest[line][col + i] = own[i];
}

/* Each column's largest, then its scale, or that of all. */
__device__ inline void
scale_columns (bool is_square)
{
  SquareTile &tile = square_tile ();
  unsigned col = threadIdx.x;
  uint32_t max = 0;

  __syncthreads ();
  if (col < SQUARE_SIDE)
    {
      for (unsigned line = 0; line < SQUARE_ROWS; line++)
        max = larger (max, tile.largest[line][col]);
      tile.scale[col] = square_scale (max);
      tile.largest[0][col] = max; /* nobody else reads this column */
    }
  __syncthreads ();
  if (!is_square)
    return;
  if (col == 0)
    {
      for (unsigned i = 0; i < SQUARE_SIDE; i++)
        max = larger (max, tile.largest[0][i]);
      tile.scale[0] = square_scale (max);
    }
  __syncthreads ();
  if (col > 0 && col < SQUARE_SIDE)
    tile.scale[col] = tile.scale[0];
  __syncthreads ();
}

/* Reads it again: what waited for the scale is stored, and columns are collected. */
__device__ inline void
convert_square (const SquareTarget &row, const SquareTarget &col, const Array &in, uint64_t r,
                uint64_t c, bool is_square)
{
  SquareTile &tile = square_tile ();
  unsigned line = threadIdx.x / SQUARE_PIECES, first = threadIdx.x % SQUARE_PIECES * PIECE;

  for (unsigned round = 0; round < SQUARE_ROUNDS; round++)
    {
      unsigned y = round * SQUARE_ROWS + line;
      uint64_t at = (r + y) * row.cols + c + first;
      Piece piece = read (in, at, PIECE);

      if (is_square)
        store_codes (row.at + at, square_codes (piece, tile.scale[0]), PIECE);
      if (col.at == NULL)
        continue;
      for (unsigned i = 0; i < PIECE; i++)
        piece.at[i] *= inverse_of_power (tile.scale[first + i]);
      Pair codes = to_codes (narrow_of (PLAN_DTYPE_E4M3), piece);
      for (unsigned i = 0; i < PIECE; i++)
        ((uint8_t *)tile.turned[first + i])[y] = (uint8_t)(codes.word[i / 4] >> i % 4 * 8);
    }
}

/* Columns become rows, with their scales. */
__device__ inline void
store_columns (const SquareTarget &col, uint64_t r, uint64_t c, bool is_square)
{
  const SquareTile &tile = square_tile ();
  unsigned line = threadIdx.x / SQUARE_PIECES, first = threadIdx.x % SQUARE_PIECES * PIECE;

  for (unsigned round = 0; round < SQUARE_ROUNDS; round++)
    {
      unsigned x = round * SQUARE_ROWS + line;
      const uint32_t *codes = tile.turned[x] + first / 4;

      store_codes (col.at + (c + x) * col.cols + r + first, { { codes[0], codes[1] } }, PIECE);
    }
  if (threadIdx.x < SQUARE_SIDE && !is_square)
    col.scales[r / SQUARE_SIDE * col.rows + c + threadIdx.x] = tile.scale[threadIdx.x];
}

/* Whoever has the last square of a row fills the row of scales up. */
__device__ inline void
store_square_scale (const SquareTarget &to, uint64_t r, uint64_t c, float scale)
{
  uint64_t apart = squares_apart (to.cols), x = c / SQUARE_SIDE;
  float *at = to.scales + r / SQUARE_SIDE * apart;

  at[x] = scale;
  if (x == to.cols / SQUARE_SIDE - 1)
    while (++x < apart)
      at[x] = 1.0f;
}

__global__ void
quantize_128 (SquareTarget row, SquareTarget col, Array in, bool is_square)
{
  uint64_t across = row.cols / SQUARE_SIDE, squares = row.rows / SQUARE_SIDE * across;

  for (uint64_t square = blockIdx.x; square < squares; square += gridDim.x)
    {
      uint64_t r = square / across * SQUARE_SIDE, c = square % across * SQUARE_SIDE;

      __syncthreads (); /* the last square has been stored */
      measure_square (row, in, r, c, is_square);
      if (!is_square && col.at == NULL)
        continue;
      scale_columns (is_square);
      convert_square (row, col, in, r, c, is_square);
      __syncthreads ();
      if (col.at != NULL)
        store_columns (col, r, c, is_square);
      if (is_square && threadIdx.x == 0)
        {
          store_square_scale (row, r, c, square_tile ().scale[0]);
          if (col.at != NULL)
            store_square_scale (col, c, r, square_tile ().scale[0]);
        }
    }
}

/* --- parts of parameters ------------------------------------------------------------------ */

struct SquarePart
{
  uint64_t cols, first, count;
};

/* Where an element of the parameter is. */
struct SquarePlace
{
  uint64_t row, col;
};

__device__ inline SquarePlace
place_in (const SquarePart &part, uint64_t element)
{
  return { element / part.cols, element % part.cols };
}

__device__ inline void
go_on (const SquarePart &part, SquarePlace &place)
{
  if (++place.col < part.cols)
    return;
  place.col = 0;
  place.row++;
}

__device__ inline uint64_t
square_at (const SquarePart &part, const SquarePlace &place)
{
  return place.row / SQUARE_SIDE * squares_apart (part.cols) + place.col / SQUARE_SIDE;
}

/* Neighbouring threads have neighbouring pieces: the first of those that are in one square speaks
 * for all of them in its warp. Every thread of a warp comes here. */
__device__ inline void
raise_together (uint32_t *amax, uint64_t square, uint32_t max)
{
  uint32_t low = (uint32_t)square, high = (uint32_t)(square >> 32);
  unsigned lane = threadIdx.x % WARP;

  for (unsigned distance = 1; distance < WARP; distance *= 2)
    {
      uint32_t other = __shfl_down_sync (0xffffffffu, max, distance);
      uint32_t other_low = __shfl_down_sync (0xffffffffu, low, distance);
      uint32_t other_high = __shfl_down_sync (0xffffffffu, high, distance);

      if (lane + distance < WARP && other_low == low && other_high == high)
        max = larger (max, other);
    }
  uint32_t before_low = __shfl_up_sync (0xffffffffu, low, 1);
  uint32_t before_high = __shfl_up_sync (0xffffffffu, high, 1);
  if (max > 0 && (lane == 0 || before_low != low || before_high != high))
    atomicMax (amax + square, max);
}

__global__ void
amax_squares (SquarePart part, uint32_t *amax, Array in)
{
  uint64_t rounds = (part.count + piece_stride () - 1) / piece_stride ();

  for (uint64_t round = 0; round < rounds; round++)
    {
      uint64_t at = first_piece () + round * piece_stride ();
      unsigned n = at < part.count ? piece_of (at, part.count) : 0;
      Piece piece = n > 0 ? read (in, at, n) : Piece{};
      SquarePlace place = place_in (part, part.first + (n > 0 ? at : 0));
      uint64_t square = square_at (part, place);
      uint32_t max = 0;

      for (unsigned i = 0; i < PIECE; i++, go_on (part, place))
        {
          if (i >= n)
            continue;
          uint64_t own = square_at (part, place);

          if (own != square && max > 0)
            atomicMax (amax + square, max);
          max = larger (own != square ? 0 : max, magnitude_of (piece.at[i]));
          square = own;
        }
      raise_together (amax, square, max);
    }
}

__global__ void
scale_squares (uint64_t count, float *scales, const uint32_t *amax)
{
  for (uint64_t i = first_x (); i < count; i += stride_x ())
    scales[i] = square_scale (amax[i]);
}

__global__ void
quantize_squares (SquarePart part, uint8_t *out, const float *scales, Array in)
{
  for (uint64_t at = first_piece (); at < part.count; at += piece_stride ())
    {
      unsigned n = piece_of (at, part.count);
      Piece piece = read (in, at, n);

      SquarePlace place = place_in (part, part.first + at);

      for (unsigned i = 0; i < PIECE; i++)
        if (i < n)
          {
            piece.at[i] *= inverse_of_power (scales[square_at (part, place)]);
            go_on (part, place);
          }
      store_codes (out + at, to_codes (narrow_of (PLAN_DTYPE_E4M3), piece), n);
    }
}

/* Of [rows, cols] to [cols, rows]. */
__global__ void
turn_squares (uint64_t rows, uint64_t cols, float *out, const float *in)
{
  uint64_t from = squares_apart (cols), to = squares_apart (rows), count = cols / SQUARE_SIDE * to;

  for (uint64_t i = first_x (); i < count; i += stride_x ())
    out[i] = i % to < rows / SQUARE_SIDE ? in[i % to * from + i / to] : 1.0f;
}

SquareTarget
square_target (const ExecArgs *args, int i, uint64_t rows, uint64_t cols)
{
  uint8_t *at = (uint8_t *)args->ptr[i];

  return { at, (float *)(at + rows * cols), rows, cols };
}

}

extern "C" int
exec_cuda_quantize_128 (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  SquareTarget row = square_target (args, 0, rows, cols), col = square_target (args, 1, cols, rows);
  Array in = operands.array (2);
  bool is_square = args->dtype[0] == PLAN_DTYPE_FP8_128X128;

  if (operands.code != 0 || rows % SQUARE_SIDE != 0 || cols % SQUARE_SIDE != 0
      || (col.at != NULL && args->dtype[1] != args->dtype[0]) || args->ptr[3] != NULL)
    return (int)cudaErrorInvalidValue;
  return EXEC_CUDA_LAUNCH (quantize_128,
                           shape_of_blocks (rows / SQUARE_SIDE * (cols / SQUARE_SIDE), THREADS),
                           stream, row, col, in, is_square);
}

extern "C" int
exec_cuda_param_amax_squares (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array in = operands.array (1);
  SquarePart part = { args->param.cols, args->param.first, operands.dim (0) };
  uint32_t *amax = (uint32_t *)operands.floats (0);

  if (operands.code != 0 || part.count == 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (amax_squares, shape_of_pieces (part.count), stream, part, amax, in);
}

extern "C" int
exec_cuda_param_quantize_squares (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t squares = operands.dim (1);
  Array in = operands.array (2);
  const uint32_t *amax = (const uint32_t *)operands.floats (3);
  float *scales = operands.floats (4);
  SquarePart part = { args->param.cols, args->param.first, operands.dim (0) };
  uint8_t *out = (uint8_t *)args->ptr[0];
  int code = operands.code;

  if (code != 0 || args->dtype[0] != PLAN_DTYPE_E4M3 || args->ptr[1] != NULL)
    return (int)cudaErrorInvalidValue;
  code = EXEC_CUDA_LAUNCH (scale_squares, shape_of_items (squares), stream, squares, scales, amax);
  if (code == 0 && part.count > 0)
    code = EXEC_CUDA_LAUNCH (quantize_squares, shape_of_pieces (part.count), stream, part, out,
                             scales, in);
  return code;
}

extern "C" int
exec_cuda_turn_squares (const ExecArgs *args, void *stream)
{
  uint64_t rows = (uint64_t)args->op->dims[0], cols = (uint64_t)args->op->dims[1];
  const uint8_t *apart = args->blocks[1].scales;
  const float *in
      = (const float *)(apart != NULL ? apart : (const uint8_t *)args->ptr[1] + rows * cols);
  float *out = (float *)((uint8_t *)args->ptr[0] + rows * cols);

  return EXEC_CUDA_LAUNCH (turn_squares, shape_of_items (cols / SQUARE_SIDE * squares_apart (rows)),
                           stream, rows, cols, out, in);
}
