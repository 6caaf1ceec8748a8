/* SPDX-License-Identifier: Apache-2.0 */
/* Converts to and from the formats with scales of exec/cpu/kernels-cpu-quantize.c: e4m3 and e5m2
 * with one scale per tensor, mxfp8 and nvfp4 with a scale per block along a row. A matrix is read
 * once for both its copy and its transposed copy, which is for products over the other dimension.
 * Also here: transposes of bytes.
 *
 * Launch shape   largest: a thread per 4 pieces of 8 elements, 256 a block, at most 512 blocks; one
 *                thread then makes the scale of that. quantize: 256 threads per square of 128 x
 *                128, at most 2048 blocks; 24 KiB of shared memory; each thread holds 8 rows of 8
 *                elements. dequantize: a thread per piece. transpose: 256 threads per tile of 64 x
 *                64, 5 KiB of shared memory.
 * Per call       s: bytes per element of `in`, q: of the result with its scales; n = rows cols
 *   op                       bytes                 instructions
 *   quantize, mxfp8          n (s + q), with col   a comparison and a product in fp32 per element
 *                            n (s + 2 q)           and copy, half an instruction to round it (about
 *                                                  25 before sm_89)
 *   quantize, by a given     as mxfp8              the same, once for both copies
 *   scale
 *   swiglu_quantize, by a    as that of swiglu's   the same, and those of swiglu in elementwise.cu;
 *   given scale              operands and both     of its gradient twice, for gates and for ups
 *   swiglu_bwd_quantize      copies
 *   quantize, the others     n s more: scales      quotients in fp32, of 9 instructions once for
 *                            need the largest      both copies, or for nvfp4 some 20 for each
 *                            element first, if
 *                            no op found it
 *   dequantize               n (q + s)             a conversion and a product per element, or two
 *   transpose, of bytes      2 n
 * Checked with   exec_cpu_quantize, exec_cpu_dequantize and exec_cpu_transpose, by tests/fake and
 * tests/gpu: equal byte for byte, but any NaN will do. Quotients, which the CPU makes in fp64, are
 * here in fp32, with bits that tell of a remainder: see quotient_of. */
#include "exec/cuda/kernels/patch.cuh"

namespace
{

/* --- the scale of a tensor ---------------------------------------------------------------- */

/* Raises *max, which begins as 0, to the largest magnitude. */
__global__ void
largest (uint64_t count, uint32_t *max, Array in)
{
  raise_max (max, largest_here (in, count, first_piece (), piece_stride ()));
}

/* One of the two copies that are made. */
struct Target
{
  uint8_t *at; /* elements, then scales of blocks */
  PlanDtype dtype;
  float *scale; /* of the tensor */
  uint64_t cols, count;
  ScalePlaces places;
  const float *given; /* what elements are multiplied with; NULL: see tensor_scaling */
};

__device__ inline double
limit_of (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_E5M2 ? 57344.0 : dtype == PLAN_DTYPE_NVFP4 ? 6.0 * 448.0 : 448.0;
}

/* Turns the largest magnitude into the scales of both copies. It is where row's scale belongs, or
 * where the op that made the tensor has found it, which begins afresh. Launched with one thread. */
__global__ void
set_scales (Target row, Target col, float *found)
{
  double max = (double)(found != NULL ? *found : *row.scale);
  float scale = max == 0 ? 1.0f : (float)(max / limit_of (row.dtype));

  *row.scale = scale;
  if (col.at != NULL)
    *col.scale = scale;
  if (found != NULL)
    *found = 0;
}

/* Sets the scales of both copies where the scale is given. Launched with one thread. */
__global__ void
set_given (Target row, Target col)
{
  *row.scale = 1.0f / *row.given;
  if (col.at != NULL)
    *col.scale = *row.scale;
}

/* --- eight rows at a time, or columns ----------------------------------------------------- */

/* Eight rows of a copy, of eight elements each: where they begin, and how many rows and columns are
 * there. */
struct Lines
{
  uint64_t row, col;
  unsigned rows, cols;
};

__device__ inline Lines
lines_at (uint64_t row, uint64_t col, uint64_t rows, uint64_t cols)
{
  return { row, col, row < rows ? piece_of (row, rows) : 0, col < cols ? piece_of (col, cols) : 0 };
}

/* The codes of eight rows: of a byte each, or of half a byte each in the first word. */
struct PatchCodes
{
  Pair row[PIECE];
};

__device__ inline bool
has_blocks (const Target &to)
{
  return to.dtype == PLAN_DTYPE_MXFP8 || to.dtype == PLAN_DTYPE_NVFP4;
}

/* How many threads share a block, along a row or down a column. */
__device__ inline unsigned
block_threads (const Target &to)
{
  return (to.dtype == PLAN_DTYPE_MXFP8 ? MX_BLOCK : NV_BLOCK) / PIECE;
}

/* How elements are scaled by the tensor's scale; for nvfp4, how the largest magnitudes of blocks
 * are. */
__device__ inline Scaling
tensor_scaling (const Target &to)
{
  float unit, high;

  if (to.given != NULL)
    return product_with (*to.given);
  if (to.dtype == PLAN_DTYPE_MXFP8)
    return product_with (1.0f);
  if (to.dtype != PLAN_DTYPE_NVFP4)
    return quotient_by_float (*to.scale);
  unit = unit_of (*to.scale);
  high = *to.scale * unit * 6.0f;
  return quotient_by (high, fmaf (*to.scale * unit, 6.0f, -high), unit);
}

/* Codes of the scales of eight blocks that have these largest magnitudes. */
__device__ inline Pair
block_scales (const Target &to, const Scaling &tensor, const uint32_t largest[PIECE])
{
  Pair codes = {};
  Piece piece;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    {
      if (to.dtype == PLAN_DTYPE_MXFP8)
        codes.word[k / 4] |= to_e8m0_of_448 (largest[k]) << k % 4 * 8;
      piece.at[k] = float_of (largest[k]);
    }
  if (to.dtype == PLAN_DTYPE_MXFP8)
    return codes;
  return to_codes (narrow_of (PLAN_DTYPE_E4M3), scaled_piece (piece, tensor, true));
}

/* Stores the scales of blocks, in the thread that has the beginning of the blocks. */
__device__ inline void
store_scales (const Target &to, const Lines &lines, const Pair &codes)
{
  unsigned block = to.dtype == PLAN_DTYPE_MXFP8 ? MX_BLOCK : NV_BLOCK;
  uint8_t *at = to.at + (to.dtype == PLAN_DTYPE_MXFP8 ? to.count : to.count / 2);
  uint64_t place = place_of (to.places, lines.row, lines.col / block),
           step = place_step (to.places);

  if (lines.cols > 0 && lines.col % block == 0)
    for (unsigned k = 0; k < PIECE; k++)
      if (k < lines.rows)
        at[place + k * step] = (uint8_t)(codes.word[k / 4] >> k % 4 * 8);
}

/* Rounds eight elements that share a scale to codes of half a byte. */
__device__ inline uint32_t
half_codes (const Piece &piece, const Scaling &by)
{
  Piece scaled = scaled_piece (piece, by, true);
  uint32_t codes = 0;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    codes |= to_e2m1 (scaled.at[i]) << i * 4;
  return is_of_zeros (by) ? 0 : codes;
}

/* The codes of a patch by scales of blocks. A product with a power of two is exact in fp32, where
 * it is not too small for a code. */
__device__ inline PatchCodes
codes_of_blocks (const Target &to, const Patch &patch, const Pair &scales)
{
  PatchCodes codes = {};

  if (to.dtype == PLAN_DTYPE_MXFP8)
    {
      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < PIECE; k++)
        {
          float scale = from_e8m0 (scales.word[k / 4] >> k % 4 * 8 & 0xff);

          codes.row[k]
              = site_codes (narrow_of (PLAN_DTYPE_E4M3), patch.row[k], inverse_of_power (scale));
        }
    }
  else
    {
      Piece scale = from_codes (narrow_of (PLAN_DTYPE_E4M3), scales);

      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < PIECE; k++)
        codes.row[k].word[0] = half_codes (patch.row[k], half_scaling (scale.at[k], *to.scale));
    }
  return codes;
}

__device__ inline PatchCodes
codes_of_tensor (const Target &to, const Scaling &tensor, const Patch &patch)
{
  Narrow format = narrow_of (to.dtype);
  PatchCodes codes;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    codes.row[k] = to_codes (format, scaled_piece (patch.row[k], tensor, false));
  return codes;
}

/* Transposes a patch of codes of a byte each. */
__device__ inline PatchCodes
transposed_codes (const PatchCodes &codes)
{
  PatchCodes transposed = {};

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    {
      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < PIECE; k++)
        transposed.row[i].word[k / 4] |= (codes.row[k].word[i / 4] >> i % 4 * 8 & 0xff)
                                         << k % 4 * 8;
    }
  return transposed;
}

/* Stores the first n codes of a row from a column on; of codes of half a byte, all eight. */
__device__ inline void
store_line (const Target &to, uint64_t row, uint64_t col, const Pair &codes, unsigned n)
{
  uint64_t at = row * to.cols + col;

  if (to.dtype != PLAN_DTYPE_NVFP4)
    store_codes (to.at + at, codes, n);
  else if (n > 0 && (uintptr_t)to.at % sizeof (uint32_t) == 0)
    *(uint32_t *)(to.at + at / 2) = codes.word[0];
  else if (n > 0)
    store_codes (to.at + at / 2, codes, PIECE / 2);
}

/* --- both ways round ---------------------------------------------------------------------- */

/* Converts the rows of a patch to codes, and stores the scales of their blocks. */
__device__ inline PatchCodes
convert_rows (const Target &to, const Scaling &tensor, const Patch &patch, const Lines &lines)
{
  uint32_t largest[PIECE];

  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    {
      largest[k] = largest_of_piece (patch.row[k]);
      for (unsigned distance = 1; distance < block_threads (to); distance *= 2)
        largest[k] = larger (largest[k], __shfl_xor_sync (0xffffffffu, largest[k], (int)distance));
    }
  Pair scales = block_scales (to, tensor, largest);
  store_scales (to, lines, scales);
  return codes_of_blocks (to, patch, scales);
}

/* Converts the columns of a patch to codes, and stores the scales of their blocks. */
__device__ inline PatchCodes
convert_columns (const Target &to, const Scaling &tensor, const Patch &patch,
                 const PatchPlace &place, const Lines &lines)
{
  uint32_t largest[PIECE] = {};
  unsigned first = place.line / block_threads (to) * block_threads (to);

  share_largest (patch, place);
  __syncthreads ();
  for (unsigned line = first; line < first + block_threads (to); line++)
    {
      EXEC_CUDA_UNROLL_ALL
      for (unsigned i = 0; i < PIECE; i++)
        largest[i] = larger (largest[i], square_tile ().largest[line][place.piece * PIECE + i]);
    }
  Pair scales = block_scales (to, tensor, largest);
  store_scales (to, lines, scales);
  return codes_of_blocks (to, transposed_patch (patch), scales);
}

__device__ inline void
store_rows (const Target &to, const Lines &lines, const PatchCodes &codes)
{
  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    if (k < lines.rows)
      store_line (to, lines.row + k, lines.col, codes.row[k], lines.cols);
}

/* Stores the columns of a square as rows of the transposed copy. */
__device__ inline void
store_columns (const Target &to, uint64_t r, uint64_t c, uint64_t rows, uint64_t cols)
{
  unsigned line = threadIdx.x % SQUARE_PIECES;
  uint64_t row = r + line * PIECE;
  unsigned n = row < rows ? piece_of (row, rows) : 0;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned round = 0; round < PIECE; round++)
    {
      unsigned x = round * SQUARE_LINES + threadIdx.x / SQUARE_PIECES;

      if (c + x < cols)
        store_line (to, c + x, row, shared_column (x, line), n);
    }
}

template <typename Source>
__global__ void
__launch_bounds__ (THREADS, 2)
    quantize (uint64_t rows, uint64_t cols, Target row, Target col, Source in, uint32_t *amax)
{
  uint32_t own = 0;
  uint64_t across = (cols + SQUARE_SIDE - 1) / SQUARE_SIDE;
  uint64_t squares = (rows + SQUARE_SIDE - 1) / SQUARE_SIDE * across;
#ifdef __CUDA_ARCH__
  if (Source::is_made) /* by a given scale; what the compiler then leaves out spares registers */
    {
      __builtin_assume (row.dtype != PLAN_DTYPE_MXFP8 && row.dtype != PLAN_DTYPE_NVFP4);
      __builtin_assume (col.dtype != PLAN_DTYPE_MXFP8 && col.dtype != PLAN_DTYPE_NVFP4);
      __builtin_assume (row.given != NULL);
    }
#endif
  Scaling tensor = tensor_scaling (row);

  for (uint64_t square = blockIdx.x; square < squares; square += gridDim.x)
    {
      uint64_t r = square / across * SQUARE_SIDE, c = square % across * SQUARE_SIDE;
      PatchPlace place = patch_place (r, c);
      Patch patch = in.within (place, rows);

      if (amax != NULL)
        own = larger (own, largest_of_patch (patch));
      Lines lines = lines_at (place.row, place.col, rows, cols);
      PatchCodes codes = has_blocks (row) ? convert_rows (row, tensor, patch, lines)
                                          : codes_of_tensor (row, tensor, patch);
      store_rows (row, lines, codes);
      if (col.at == NULL)
        continue;
      lines = lines_at (place.col, place.row, cols, rows);
      codes = has_blocks (row) ? convert_columns (col, tensor, patch, place, lines)
                               : transposed_codes (codes);
      __syncthreads (); /* the last square's columns have been stored */
      EXEC_CUDA_UNROLL_ALL
      for (unsigned i = 0; i < PIECE; i++)
        share_column (place, i, codes.row[i]);
      __syncthreads ();
      store_columns (col, r, c, rows, cols);
    }
  if (amax != NULL)
    raise_max (amax, own);
}

/* --- back --------------------------------------------------------------------------------- */

/* Eight elements of an array of `count` as floats. Blocks consist of whole pieces. */
__device__ inline Piece
narrow_piece (const uint8_t *in, PlanDtype dtype, const float *scale, uint64_t count, uint64_t at)
{
  unsigned n = piece_of (at, count);
  float block = dtype == PLAN_DTYPE_MXFP8 ? 1.0f : *scale;
  Piece piece;

  if (dtype == PLAN_DTYPE_NVFP4)
    {
      float inner = from_narrow (narrow_of (PLAN_DTYPE_E4M3), in[count / 2 + at / NV_BLOCK]);

      piece = from_half_codes (load_codes (in + at / 2, PIECE / 2).word[0]);
      for (unsigned i = 0; i < PIECE; i++)
        piece.at[i] *= inner;
    }
  else
    piece = from_codes (narrow_of (dtype), load_codes (in + at, n));
  if (dtype == PLAN_DTYPE_MXFP8)
    block = from_e8m0 (in[count + at / MX_BLOCK]);
  for (unsigned i = 0; i < PIECE; i++)
    piece.at[i] *= block;
  return piece;
}

__global__ void
dequantize (uint64_t count, Array out, const uint8_t *in, PlanDtype dtype, const float *scale)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    write (out, at, piece_of (at, count), narrow_piece (in, dtype, scale, count, at));
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

/* --- launches ----------------------------------------------------------------------------- */

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

/* Finds the scale of a tensor, unless the op that made it has found the largest magnitude. */
int
find_scale (const ExecArgs *args, uint64_t count, const Target &row, const Target &col,
            float *found, void *stream)
{
  Operands operands (args);
  Array in = operands.array (2);
  int code = operands.code;

  if (code == 0 && found == NULL)
    code = (int)cudaMemsetAsync (row.scale, 0, sizeof *row.scale, (cudaStream_t)stream);
  if (code == 0 && found == NULL)
    code = EXEC_CUDA_LAUNCH (largest, shape_of_largest (count), stream, count,
                             (uint32_t *)row.scale, in);
  return code != 0 ? code
                   : EXEC_CUDA_LAUNCH (set_scales, shape_of_blocks (1, 1), stream, row, col, found);
}

}

/* Of quantize, and of ops that make what they quantise. */
extern "C" int
exec_cuda_quantize (const ExecArgs *args, void *stream)
{
  bool is_made = args->op->kind != PLAN_OP_QUANTIZE;
  float *found = is_made ? NULL : (float *)args->ptr[PLAN_REF_QUANTIZE_largest];

  if (is_of_128 (args->dtype[0]))
    return found != NULL ? (int)cudaErrorInvalidValue : exec_cuda_quantize_128 (args, stream);

  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = quantized_cols (operands);
  uint64_t block = block_of (args->dtype[0]);
  Target row = target_of (args, 0, rows, cols), col = target_of (args, 1, cols, rows);
  uint32_t *amax = site_of (args, 3).amax;
  uint64_t squares
      = (rows + SQUARE_SIDE - 1) / SQUARE_SIDE * ((cols + SQUARE_SIDE - 1) / SQUARE_SIDE);
  int code = (int)cudaSuccess;

  if (block == 0 || cols % block != 0
      || (col.at != NULL && (col.dtype != row.dtype || rows % block != 0))
      || (row.given != NULL && block != 1) || (row.given == NULL && is_made)
      || (found != NULL && (row.given != NULL || row.dtype == PLAN_DTYPE_MXFP8)))
    return (int)cudaErrorInvalidValue;
  if (row.given != NULL)
    code = EXEC_CUDA_LAUNCH (set_given, shape_of_blocks (1, 1), stream, row, col);
  else if (row.dtype != PLAN_DTYPE_MXFP8)
    code = find_scale (args, rows * cols, row, col, found, stream);
  if (code != 0)
    return code;
  return launch_source (&operands, cols, false, [&] (auto in) {
    return EXEC_CUDA_LAUNCH (quantize<decltype (in)>, shape_of_blocks (squares, THREADS), stream,
                             rows, cols, row, col, in, amax);
  });
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
