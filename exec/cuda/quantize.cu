/* SPDX-License-Identifier: Apache-2.0 */
/* To and from the formats with scales of exec/kernels-cpu-quantize.c: e4m3 and e5m2 with one scale
 * per tensor, mxfp8 and nvfp4 in blocks along a row. The copy for products over the other dimension
 * is made from the same reading, turned.
 *
 * Launch shape   largest: a thread per piece of 8 elements, 256 a block, at most 2048 blocks; a
 *                thread then makes the scale of it. quantize: 256 threads per tile of 64 x 64, at
 *                most 2048 blocks; 17 KiB of shared memory. dequantize: a thread per piece.
 * Per call       s: bytes per element of `in`, q: of the result with its scales; n = rows cols
 *   op                       bytes                   instructions
 *   quantize, mxfp8          n (s + q), with col     a product in fp32 per element and copy, half
 * an n (s + 2 q)             instruction to round it (about 25 before sm_89) quantize, by a given
 * scale: as mxfp8 quantize, the others     n s more: their scales need the largest element first; a
 * product in fp64, two conversions, and for nvfp4 about 25 of integers dequantize               n
 * (q + s)               a product per element Checked with   exec_cpu_quantize and
 * exec_cpu_dequantize, by tests/fake and tests/gpu: equal byte for byte, whichever NaN. What the
 * CPU divides in fp64 is multiplied here by the inverse and freed of the error that makes: see
 * settle. */
#include "exec/cuda/narrow.cuh"

namespace
{

/* --- the scale of a tensor ---------------------------------------------------------------- */

/* *max: 0, or what others found. */
__global__ void
largest (uint64_t count, uint32_t *max, Array in)
{
  raise_max (max, largest_here (in, count));
}

/* One of the results. */
struct Target
{
  uint8_t *at; /* elements, then scales of blocks */
  PlanDtype dtype;
  float *scale; /* of the tensor */
  uint64_t cols, count;
  ScalePlaces places;
  const float *given; /* what elements are multiplied with; NULL: see inverse_of */
};

__device__ inline double
limit_of (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_E5M2 ? 57344.0 : dtype == PLAN_DTYPE_NVFP4 ? 6.0 * 448.0 : 448.0;
}

/* Turns the largest magnitude, in row's place, into both scales. By one thread. */
__global__ void
set_scales (Target row, Target col)
{
  double max = (double)*row.scale;
  float scale = max == 0 ? 1.0f : (float)(max / limit_of (row.dtype));

  *row.scale = scale;
  if (col.at != NULL)
    *col.scale = scale;
}

/* The same of a scale that is given. */
__global__ void
set_given (Target row, Target col)
{
  *row.scale = 1.0f / *row.given;
  if (col.at != NULL)
    *col.scale = *row.scale;
}

/* --- tiles -------------------------------------------------------------------------------- */

enum : unsigned
{
  QUANTIZE_TILE = 64,
  SEGMENT = NV_BLOCK /* elements that a thread converts: a block of nvfp4, half one of mxfp8 */
};

struct QuantizeTile
{
  float at[QUANTIZE_TILE][QUANTIZE_TILE + 1];
};

__device__ inline QuantizeTile &
quantize_tile ()
{
  __shared__ QuantizeTile shared;

  return shared;
}

struct Segment
{
  float at[SEGMENT];
};

/* This thread's part of a row of the tile, or of a column; zeros behind the end. */
__device__ inline Segment
segment_of (bool is_turned)
{
  const QuantizeTile &tile = quantize_tile ();
  unsigned row = threadIdx.x / 4, col = threadIdx.x % 4 * SEGMENT;
  Segment segment;

  for (unsigned i = 0; i < SEGMENT; i++)
    segment.at[i] = is_turned ? tile.at[col + i][row] : tile.at[row][col + i];
  return segment;
}

__device__ inline uint32_t
largest_of (const Segment &segment)
{
  uint32_t max = 0;

  for (unsigned i = 0; i < SEGMENT; i++)
    max = larger (max, magnitude_of (segment.at[i]));
  return max;
}

/* What elements are multiplied with; stores the scale of a block. Every thread of a warp comes
 * here. */
__device__ inline double
inverse_of (const Target &to, const Segment &segment, uint64_t row, uint64_t col, unsigned n)
{
  double tensor = to.dtype == PLAN_DTYPE_MXFP8 ? 1.0 : (double)*to.scale, scale;
  uint32_t max;
  unsigned code;

  if (to.dtype == PLAN_DTYPE_E4M3 || to.dtype == PLAN_DTYPE_E5M2)
    return 1.0 / tensor;
  max = largest_of (segment);
  if (to.dtype == PLAN_DTYPE_MXFP8)
    {
      max = larger (max, __shfl_xor_sync (0xffffffffu, max, 1));
      code = to_e8m0_up ((double)float_of (max) / 448.0);
      if (n > 0 && col % MX_BLOCK == 0)
        to.at[to.count + place_of (to.places, row, col / MX_BLOCK)] = (uint8_t)code;
      return (double)inverse_of_power (from_e8m0 (code));
    }
  code = to_narrow (narrow_of (PLAN_DTYPE_E4M3), (double)float_of (max) / 6.0 / tensor);
  if (n > 0)
    to.at[to.count / 2 + place_of (to.places, row, col / SEGMENT)] = (uint8_t)code;
  scale = (double)from_narrow (narrow_of (PLAN_DTYPE_E4M3), code) * tensor;
  return scale == 0 ? 0.0 : 1.0 / scale;
}

/* Eight elements from the first-th on as codes are made of them. By a power of two products are
 * exact in fp32, where they are not too small for a code. */
__device__ inline Piece
scaled_piece (const Target &to, const Segment &segment, unsigned first, double inverse)
{
  Piece piece;

  for (unsigned i = 0; i < PIECE; i++)
    {
      float value = segment.at[first + i];

      if (to.given != NULL)
        piece.at[i] = value * *to.given;
      else if (to.dtype == PLAN_DTYPE_MXFP8)
        piece.at[i] = value * (float)inverse;
      else
        piece.at[i] = cut (settle ((double)value * inverse));
    }
  return piece;
}

/* Stores n elements from a column of a row on as codes, n being SEGMENT wherever codes have half a
 * byte. */
__device__ inline void
convert (const Target &to, const Segment &segment, uint64_t row, uint64_t col, unsigned n)
{
  Narrow format = narrow_of (to.dtype);
  double inverse = to.given != NULL ? 0.0 : inverse_of (to, segment, row, col, n);
  unsigned bits = to.dtype == PLAN_DTYPE_NVFP4 ? 4 : 8;
  uint8_t *at = to.at + (row * to.cols + col) * bits / 8;
  Quad codes = {};

  if (bits == 4)
    {
      for (unsigned i = 0; i < SEGMENT && inverse != 0; i++)
        codes.word[i / 8] |= to_narrow (format, settle ((double)segment.at[i] * inverse))
                             << i % 8 * 4;
    }
  else
    for (unsigned i = 0; i < SEGMENT; i += PIECE)
      {
        Pair half = to_codes (format, scaled_piece (to, segment, i, inverse));

        codes.word[i / 4] = half.word[0];
        codes.word[i / 4 + 1] = half.word[1];
      }
  if (n == SEGMENT && bits == 8 && (uintptr_t)at % sizeof (Quad) == 0)
    *(Quad *)at = codes;
  else if (n == SEGMENT && bits == 4 && (uintptr_t)at % sizeof (Pair) == 0)
    *(Pair *)at = { { codes.word[0], codes.word[1] } };
  else
    for (unsigned i = 0; i < SEGMENT; i++)
      if (i < n * bits / 8)
        at[i] = (uint8_t)(codes.word[i / 4] >> i % 4 * 8);
}

/* Elements of a segment that begins at `at` of a row of `count`. */
__device__ inline unsigned
segment_length (uint64_t at, uint64_t count)
{
  return at >= count ? 0 : count - at < SEGMENT ? (unsigned)(count - at) : (unsigned)SEGMENT;
}

/* Where one of a thread's pieces is in the tile. */
struct PiecePlace
{
  unsigned row, col;
};

__device__ inline PiecePlace
place_in_tile (unsigned round)
{
  unsigned i = round * THREADS + threadIdx.x;

  return { i / (QUANTIZE_TILE / PIECE), i % (QUANTIZE_TILE / PIECE) * PIECE };
}

/* Threads ask for all of their pieces before they wait for the first. */
__device__ inline void
load_tile (uint64_t rows, uint64_t cols, const Array &in, uint64_t first_row, uint64_t first_col)
{
  const unsigned rounds = QUANTIZE_TILE * QUANTIZE_TILE / PIECE / THREADS;
  QuantizeTile &tile = quantize_tile ();
  Words words[rounds];

  EXEC_CUDA_UNROLL
  for (unsigned round = 0; round < rounds; round++)
    {
      PiecePlace place = place_in_tile (round);
      uint64_t r = first_row + place.row, c = first_col + place.col;

      words[round] = r < rows && c < cols ? fetch (in, r * cols + c, piece_of (c, cols)) : Words{};
    }
  EXEC_CUDA_UNROLL
  for (unsigned round = 0; round < rounds; round++)
    {
      PiecePlace place = place_in_tile (round);
      Piece piece = widen (in, words[round]);

      for (unsigned k = 0; k < PIECE; k++)
        tile.at[place.row][place.col + k] = piece.at[k];
    }
}

__global__ void
quantize (uint64_t rows, uint64_t cols, Target row, Target col, Array in, uint32_t *amax)
{
  uint32_t own = 0;
  uint64_t across = (cols + QUANTIZE_TILE - 1) / QUANTIZE_TILE;
  uint64_t tiles = (rows + QUANTIZE_TILE - 1) / QUANTIZE_TILE * across;

  for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    {
      uint64_t r = tile / across * QUANTIZE_TILE, c = tile % across * QUANTIZE_TILE;
      unsigned line = threadIdx.x / 4, part = threadIdx.x % 4 * SEGMENT;

      __syncthreads (); /* the last tile has been read */
      load_tile (rows, cols, in, r, c);
      __syncthreads ();
      if (amax != NULL)
        own = larger (own, largest_of (segment_of (false)));
      convert (row, segment_of (false), r + line, c + part,
               r + line < rows ? segment_length (c + part, cols) : 0);
      if (col.at != NULL)
        convert (col, segment_of (true), c + line, r + part,
                 c + line < cols ? segment_length (r + part, rows) : 0);
    }
  if (amax != NULL)
    raise_max (amax, own);
}

/* --- back --------------------------------------------------------------------------------- */

__global__ void
dequantize (uint64_t count, Array out, const uint8_t *in, PlanDtype dtype, const float *scale)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Piece piece = {};

      for (unsigned i = 0; i < PIECE; i++)
        if (i < n)
          piece.at[i] = narrow_at (in, dtype, scale, count, at + i);
      write (out, at, n, piece);
    }
}

}

namespace
{

Target
target_of (const ExecArgs *args, int i, uint64_t rows, uint64_t cols)
{
  uint64_t block = block_of (args->dtype[i]);

  return { (uint8_t *)args->ptr[i],
           args->dtype[i],
           args->scale[i],
           cols,
           rows * cols,
           places_of (rows, block > 1 ? cols / block : 0, false),
           site_of (args, 3).scale };
}

}

extern "C" int
exec_cuda_quantize (const ExecArgs *args, void *stream)
{
  if (is_of_128 (args->dtype[0]))
    return exec_cuda_quantize_128 (args, stream);

  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1), block = block_of (args->dtype[0]);
  Target row = target_of (args, 0, rows, cols), col = target_of (args, 1, cols, rows);
  Array in = operands.rows_of (2, cols);
  Array all = operands.array (2);
  uint32_t *amax = site_of (args, 3).amax;
  uint64_t tiles
      = (rows + QUANTIZE_TILE - 1) / QUANTIZE_TILE * ((cols + QUANTIZE_TILE - 1) / QUANTIZE_TILE);
  int code = operands.code;

  if (code != 0 || block == 0 || cols % block != 0
      || (col.at != NULL && (col.dtype != row.dtype || rows % block != 0))
      || (row.given != NULL && block != 1))
    return (int)cudaErrorInvalidValue;
  if (row.given != NULL)
    code = EXEC_CUDA_LAUNCH (set_given, shape_of_blocks (1, 1), stream, row, col);
  else if (row.dtype != PLAN_DTYPE_MXFP8)
    {
      code = (int)cudaMemsetAsync (row.scale, 0, sizeof *row.scale, (cudaStream_t)stream);
      if (code == 0)
        code = EXEC_CUDA_LAUNCH (largest, shape_of_largest (rows * cols), stream, rows * cols,
                                 (uint32_t *)row.scale, all);
      if (code == 0)
        code = EXEC_CUDA_LAUNCH (set_scales, shape_of_blocks (1, 1), stream, row, col);
    }
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (quantize, shape_of_blocks (tiles, THREADS), stream, rows, cols, row,
                             col, in, amax);
  return code;
}

extern "C" int
exec_cuda_dequantize (const void *in, PlanDtype dtype, const float *scale, guint64 count, void *out,
                      PlanDtype out_dtype, void *stream)
{
  Array to = array_of (out, out_dtype, is_aligned (out));
  const uint8_t *from = (const uint8_t *)in;
  uint64_t block = block_of (dtype);

  if (block == 0 || count % block != 0 || !is_format (out_dtype))
    return (int)cudaErrorInvalidValue;
  return EXEC_CUDA_LAUNCH (dequantize, shape_of_pieces (count), stream, count, to, from, dtype,
                           scale);
}
