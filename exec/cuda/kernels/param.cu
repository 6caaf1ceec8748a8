/* SPDX-License-Identifier: Apache-2.0 */
/* Quantises a rank's part of a parameter by magnitudes of the whole parameter: to e4m3 and e5m2 by
 * one magnitude (or by a scale that is known before), to mxfp8 and nvfp4 by those of blocks of each
 * row, and in a second copy of each column. One launch does all parameters of a unit, among which
 * are the matrices of all experts. Also here: scales of sites, and the product of two tensors'
 * scales.
 *
 * Launch shape   Blocks of 256 threads, shared out as params.cuh says. param_amax: a thread per 4
 *                pieces of 8 elements, about 512 blocks. For formats with blocks: a thread per
 *                piece, then a thread per 8 columns of a block of rows, about 2048 blocks; for
 *                parts that cut pieces a thread per block of a row, then of a column.
 *                param_quantize: one per magnitude, then one per piece. rescale: a warp per site.
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
 * Checked with   exec_cpu_param_amax, exec_cpu_param_quantize and exec_cpu_rescale, by tests/fake
 *                and tests/gpu: equal byte for byte, but any NaN will do. Divisions: see
 * quotient_of, and settle. */
#include "exec/cuda/kernels/params.cuh"

#include "planner/schedule/quantizers.h"

namespace
{

/* --- magnitudes --------------------------------------------------------------------------- */

__device__ inline uint32_t
magnitude_at (const Array &in, uint64_t at)
{
  return magnitude_of (read_one (in, at));
}

/* Raises the magnitude of each matrix, which is 0 or what earlier launches found, to the largest of
 * the rank's part of it. */
__global__ void
param_amax (Params params, Shares shares, uint32_t *amax, Array in)
{
  Work work;

  if (!find_work (params, shares, &work))
    return;
  Part part = part_of (params, work.matrix);
  raise_max (
      amax + magnitude_of_matrix (work.matrix),
      largest_here (array_from (in, part.at), part.count, work.first * PIECE, work.stride * PIECE));
}

/* Raises the magnitude of a block, of which no other thread has elements. */
__device__ inline void
raise_to (const Array &amax, uint64_t at, uint32_t word)
{
  if (word > magnitude_at (amax, at))
    write_one (amax, at, float_of (word));
}

/* A thread per piece; the threads of one block of elements are neighbours. */
__device__ inline void
amax_of_pieces (const Part &part, const Work &work, const Array &amax, const Array &in)
{
  uint64_t from = part.first >> part.shift << part.shift, end = part.first + part.count;
  uint64_t lane = work.first % blockDim.x, stride = work.stride * PIECE;

  for (uint64_t begin = from + (work.first - lane) * PIECE; begin < end; begin += stride)
    {
      uint64_t e = begin + lane * PIECE;
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
__device__ inline void
amax_of_strips (const Part &part, const Work &work, const Array &amax, const Array &in)
{
  uint64_t end = part.first + part.count, height = part.block * part.cols.by;
  uint64_t from = part.first / height, across = part.cols.by / PIECE;
  uint64_t strips = ((end - 1) / height - from + 1) * across;

  for (uint64_t strip = work.first; strip < strips; strip += work.stride)
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
__device__ inline void
amax_of_rows (const Part &part, const Work &work, const Array &amax, const Array &in)
{
  uint64_t from = part.first / part.block, end = part.first + part.count;

  for (uint64_t b = from + work.first; b * part.block < end; b += work.stride)
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
__device__ inline void
amax_of_columns (const Part &part, const Work &work, const Array &amax, const Array &in)
{
  uint64_t end = part.first + part.count, height = part.block * part.cols.by;
  uint64_t from = part.first / height * part.cols.by; /* the first block that may have an element */

  for (uint64_t b = from + work.first; b / part.cols.by * height < end; b += work.stride)
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

/* Magnitudes of blocks along rows, or along columns. */
template <bool along_rows>
__global__ void
param_amax_blocks (Params params, Shares shares, Array amax, Array in)
{
  Work work;

  if (!find_work (params, shares, &work))
    return;
  Part part = part_of (params, work.matrix);
  Array own = array_from (amax, magnitude_of_matrix (work.matrix)), of = array_from (in, part.at);
  if (is_of_pieces (part))
    along_rows ? amax_of_pieces (part, work, own, of) : amax_of_strips (part, work, own, of);
  else
    along_rows ? amax_of_rows (part, work, own, of) : amax_of_columns (part, work, own, of);
}

/* --- one scale for all -------------------------------------------------------------------- */

__device__ inline float
tensor_scale (float max, double limit)
{
  return max == 0 ? 1.0f : (float)((double)max / limit);
}

/* The first block also sets the scales of all matrices, of which the rank may have nothing. */
__global__ void
param_quantize (Params params, Shares shares, uint8_t *out, PlanDtype dtype, Array amax, Array in)
{
  Narrow format = narrow_of (dtype);
  double limit = dtype == PLAN_DTYPE_E4M3 ? 448.0 : 57344.0;
  uint64_t matrices = blockIdx.x == 0 ? n_matrices (params) : 0;
  Work work;

  for (uint64_t i = threadIdx.x; i < matrices; i += blockDim.x)
    {
      Matrix matrix = matrix_at (params, i);

      matrix.of.scale[matrix.number]
          = tensor_scale (read_one (amax, magnitude_of_matrix (matrix)), limit);
    }
  if (!find_work (params, shares, &work))
    return;
  Part part = part_of (params, work.matrix);
  Scaling by = quotient_by_float (
      tensor_scale (read_one (amax, magnitude_of_matrix (work.matrix)), limit));
  Array of = array_from (in, part.at);
  for (uint64_t at = work.first * PIECE; at < part.count; at += work.stride * PIECE)
    {
      unsigned n = piece_of (at, part.count);

      store_codes (out + part.at + at, to_codes (format, scaled_any (read (of, at, n), by)), n);
    }
}

/* Quantises by scales that are known before. */
__global__ void
param_quantize_given (Params params, Shares shares, uint8_t *out, PlanDtype dtype, Site site,
                      Array in)
{
  Narrow format = narrow_of (dtype);
  uint64_t matrices = blockIdx.x == 0 ? n_matrices (params) : 0;
  uint32_t own = 0;
  Work work;

  for (uint64_t i = threadIdx.x; i < matrices; i += blockDim.x)
    {
      Matrix matrix = matrix_at (params, i);

      matrix.of.scale[matrix.number] = 1.0f / site.scale[matrix.of.site];
    }
  if (!find_work (params, shares, &work))
    return;
  Part part = part_of (params, work.matrix);
  float given = site.scale[work.matrix.of.site];
  Array of = array_from (in, part.at);
  for (uint64_t at = work.first * PIECE; at < part.count; at += work.stride * PIECE)
    {
      unsigned n = piece_of (at, part.count);
      Piece piece = read (of, at, n);

      own = larger (own, largest_of_piece (piece));
      store_codes (out + part.at + at, site_codes (format, piece, given), n);
    }
  if (site.amax != NULL)
    raise_max (site.amax + work.matrix.of.site, own);
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

/* The scale of a matrix in nvfp4 begins as 0, becomes the largest of its magnitudes and then the
 * scale of that. */
__global__ void
param_units_begin (Params params)
{
  for (uint64_t i = first_x (); i < n_matrices (params); i += stride_x ())
    {
      Matrix matrix = matrix_at (params, i);

      matrix.of.scale[matrix.number] = 0;
    }
}

__global__ void
param_units_raise (Params params, Shares shares, Array amax)
{
  Work work;

  if (!find_work (params, shares, &work))
    return;
  Array own = array_from (amax, magnitude_of_matrix (work.matrix));
  raise_max ((uint32_t *)work.matrix.of.scale + work.matrix.number,
             largest_here (own, work.matrix.of.each.by, work.first * PIECE, work.stride * PIECE));
}

__global__ void
param_units_end (Params params)
{
  for (uint64_t i = first_x (); i < n_matrices (params); i += stride_x ())
    {
      Matrix matrix = matrix_at (params, i);
      float *scale = matrix.of.scale + matrix.number;

      *scale = tensor_scale (*scale, 6.0 * 448.0);
    }
}

/* The scales of blocks of rows and of columns of a matrix: their unit, and where they lie. */
struct BlockScales
{
  uint8_t *at;
  const float *unit; /* nvfp4: the tensor's scale; mxfp8: NULL */
  ScalePlaces rows, columns;
};

__device__ inline BlockScales
scales_of (const Params &params, const Matrix &matrix, uint8_t *scales, bool has_units)
{
  uint64_t rows = matrix.of.rows, cols = matrix.of.cols.by, across = cols >> params.shift;

  return { scales + magnitude_of_matrix (matrix),
           has_units ? matrix.of.scale + matrix.number : NULL,
           places_of (rows, across << params.shift == cols ? across : 1, false),
           places_of (cols, rows >> params.shift, true) };
}

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
param_scales (uint64_t magnitudes, Params params, uint8_t *out, bool has_units, Array amax)
{
  for (uint64_t all = first_x (); all < magnitudes; all += stride_x ())
    {
      Matrix matrix = matrix_with (params, all);
      BlockScales scales = scales_of (params, matrix, out, has_units);
      double max = (double)read_one (amax, all);
      unsigned code = scales.unit == NULL ? to_e8m0_up (max / 448.0)
                                          : to_narrow (narrow_of (PLAN_DTYPE_E4M3),
                                                       max / 6.0 / (double)*scales.unit);
      Part part = part_of (params, matrix);
      uint64_t i = all - magnitude_of_matrix (matrix), column = i - part.row_blocks;

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
param_quantize_blocks (Params params, Shares shares, uint8_t *out, uint8_t *col, PlanDtype dtype,
                       uint8_t *all_scales, Array in)
{
  Narrow format = narrow_of (dtype);
  Work work;

  if (!find_work (params, shares, &work))
    return;
  Part part = part_of (params, work.matrix);
  BlockScales scales = scales_of (params, work.matrix, all_scales, is_e2m1 (format));
  Array of = array_from (in, part.at);
  uint64_t byte = is_e2m1 (format) ? part.at / 2 : part.at;
  for (uint64_t at = work.first * PIECE; at < part.count; at += work.stride * PIECE)
    {
      unsigned n = piece_of (at, part.count);
      Piece piece = read (of, at, n);
      Quotient element = divide (part.first + at, part.cols);
      PartPlace place = { at, part.first + at, element.whole, element.rest };

      if (n == PIECE && is_of_pieces (part))
        quantize_piece (part, out + byte, col + byte, format, scales, place, piece);
      else
        quantize_elements (part, out + byte, col + byte, format, scales, place, piece, n);
    }
}

/* Items of work on a matrix of which the rank has so many elements. */
uint64_t
items_of_pieces (const Matrices &, uint64_t elements)
{
  return pieces_of (elements) + 1;
}

int
find_units (const Params &params, Array amax, void *stream)
{
  Shares shares = shares_of_magnitudes (params, LARGEST_BLOCKS);
  int code = EXEC_CUDA_LAUNCH (param_units_begin, shape_of_blocks (1, THREADS), stream, params);

  if (code == 0)
    code = EXEC_CUDA_LAUNCH (param_units_raise, shape_of_shares (shares), stream, params, shares,
                             amax);
  return code != 0
             ? code
             : EXEC_CUDA_LAUNCH (param_units_end, shape_of_blocks (1, THREADS), stream, params);
}

int
quantize_blocks (const ExecArgs *args, const Params &params, Array in, Array amax, void *stream)
{
  uint64_t magnitudes = (uint64_t)args->op->dims[1];
  PlanDtype dtype = args->dtype[0];
  bool has_units = dtype == PLAN_DTYPE_E2M1;
  uint8_t *out = (uint8_t *)args->ptr[0], *col = (uint8_t *)args->ptr[1];
  uint8_t *scales = (uint8_t *)args->ptr[4];
  Shares shares = shares_of (params, MAX_BLOCKS, items_of_pieces);
  int code = has_units ? find_units (params, amax, stream) : 0;

  if (code == 0)
    code = EXEC_CUDA_LAUNCH (param_scales, shape_of_items (magnitudes), stream, magnitudes, params,
                             scales, has_units, amax);
  if (code == 0 && params.count > 0)
    code = EXEC_CUDA_LAUNCH (param_quantize_blocks, shape_of_shares (shares), stream, params,
                             shares, out, col, dtype, scales, in);
  return code;
}

/* --- one factor --------------------------------------------------------------------------- */

__global__ void
multiply_scales (const float *a, const float *b, float addend, float *out)
{
  out[0] = *a * *b;
  out[1] = addend;
}

}

/* Of blocks along columns a thread has eight columns, or one where pieces are cut. */
uint64_t
items_of_columns (const Matrices &of, uint64_t elements)
{
  return elements / MX_BLOCK + 2 * of.cols.by;
}

extern "C" int
exec_cuda_param_amax (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array amax = operands.array (0), in = operands.array (1);
  Params params = params_of (args);
  uint32_t *words = (uint32_t *)args->ptr[0];
  int code = operands.code;

  if (params.block == SQUARE_SIDE)
    return exec_cuda_param_amax_squares (args, stream);
  if (params.block == 0 && args->dtype[0] != PLAN_DTYPE_FP32)
    return (int)cudaErrorInvalidValue;
  if (code != 0 || params.count == 0)
    return code;
  Shares shares = shares_of (
      params, params.block == 0 ? (uint64_t)LARGEST_BLOCKS : (uint64_t)MAX_BLOCKS, items_of_pieces);
  if (params.block == 0)
    return EXEC_CUDA_LAUNCH (param_amax, shape_of_shares (shares), stream, params, shares, words,
                             in);
  code = EXEC_CUDA_LAUNCH (param_amax_blocks<true>, shape_of_shares (shares), stream, params,
                           shares, amax, in);
  shares = shares_of (params, MAX_BLOCKS, items_of_columns);
  return code != 0 ? code
                   : EXEC_CUDA_LAUNCH (param_amax_blocks<false>, shape_of_shares (shares), stream,
                                       params, shares, amax, in);
}

/* Whether each matrix, and the rank's part, begins and ends between two bytes of e2m1. */
static bool
are_even (const Params &params)
{
  bool are = params.from % 2 == 0 && params.count % 2 == 0;

  for (unsigned i = 0; i < params.n; i++)
    are = are && params.of[i].at % 2 == 0 && params.of[i].rows * params.of[i].cols.by % 2 == 0;
  return are;
}

/* A part in e2m1 must begin and end between two bytes. */
extern "C" int
exec_cuda_param_quantize (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array in = operands.array (2), amax = operands.array (3);
  Params params = params_of (args);
  PlanDtype dtype = args->dtype[0];
  uint8_t *out = (uint8_t *)args->ptr[0];
  Site site = site_of (args, 5);
  bool has_pairs = dtype == PLAN_DTYPE_E2M1;

  if (params.block == SQUARE_SIDE)
    return exec_cuda_param_quantize_squares (args, stream);
  if (operands.code != 0)
    return operands.code;
  if ((!has_pairs && dtype != PLAN_DTYPE_E5M2 && dtype != PLAN_DTYPE_E4M3)
      || (has_pairs && !are_even (params))
      || (params.block != 0 && params.block != NV_BLOCK && params.block != MX_BLOCK))
    return (int)cudaErrorInvalidValue;
  if (params.block > 0)
    return quantize_blocks (args, params, in, amax, stream);
  Shares shares = shares_of (params, MAX_BLOCKS, items_of_pieces);
  if (site.scale != NULL)
    return EXEC_CUDA_LAUNCH (param_quantize_given, shape_of_shares (shares), stream, params, shares,
                             out, dtype, site, in);
  return EXEC_CUDA_LAUNCH (param_quantize, shape_of_shares (shares), stream, params, shares, out,
                           dtype, amax, in);
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
exec_cuda_multiply_scales (const float *a, const float *b, float addend, float *out, void *stream)
{
  return EXEC_CUDA_LAUNCH (multiply_scales, shape_of_blocks (1, 1), stream, a, b, addend, out);
}
