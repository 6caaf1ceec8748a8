/* SPDX-License-Identifier: Apache-2.0 */
/* Quantises to e4m3 with an fp32 scale per 128 elements of a row, or per square of 128 x 128. A
 * matrix is read once, square by square, for both its copy and its transposed copy; a rank's part
 * of a parameter is quantised by the magnitudes of whole squares. Also transposes scales of
 * squares.
 *
 * Launch shape   quantize_128: 256 threads per square of 128 x 128, at most 2048 blocks; 25 KiB of
 *                shared memory; each thread holds 8 rows of 8 elements, as in amax_whole_squares.
 *                amax_squares, of parts that do not begin at a multiple of 8 elements, and
 *                quantize_squares: a thread per piece, 256 a block, about 2048 blocks, shared out
 *                among all parameters of a unit as params.cuh says.
 *                scale_squares, transpose_squares: one per scale.
 * Per call       s: bytes per element of `in`, q = 1 + 1 / 32; n elements
 *   op                    bytes                    instructions
 *   quantize              n (s + q), with col      a comparison and a product in fp32 per element
 *                         n (s + 2 q)              and copy, half an instruction to round it (about
 *                                                  25 before sm_89): some 10 in all
 *   param_amax            count s                  a comparison per element, one atomic a square
 *   param_quantize        count (s + 1)            as quantize, of one copy; 4 per element to find
 *                                                  its square
 * Checked with   exec_cpu_quantize, exec_cpu_param_amax, exec_cpu_param_quantize and
 *                exec_cpu_transpose, by tests/fake and tests/gpu: equal byte for byte, but any
 *                NaN will do. Scales are powers of two: a product with an inverse is the CPU's
 *                quotient.
 */
#include "exec/cuda/kernels/params.cuh"
#include "exec/cuda/kernels/patch.cuh"

namespace
{

/* The scale of elements whose largest magnitude is `max`. */
__device__ inline float
square_scale (uint32_t max)
{
  unsigned code = to_e8m0_of_448 (max);

  return max == 0 ? 1.0f : from_e8m0 (code > 0 ? code : 1);
}

/* Codes of a piece times a power of two. These products are exact, where they are not too small for
 * a code. */
__device__ inline Pair
square_codes (Piece piece, float inverse)
{
  for (unsigned i = 0; i < PIECE; i++)
    piece.at[i] *= inverse;
  return to_codes (narrow_of (PLAN_DTYPE_E4M3), piece);
}

/* --- a matrix ----------------------------------------------------------------------------- */

/* One of the two results: rows of `cols` codes, then scales. */
struct SquareTarget
{
  uint8_t *at;
  float *scales;
  uint64_t rows, cols;
};

__device__ inline float *
column_inverses ()
{
  __shared__ float shared[SQUARE_SIDE];

  return shared;
}

/* The largest magnitude of row threadIdx.x % 8 of a patch, over the 16 threads that share its rows.
 * In each round two threads swap, and each goes on with half of the rows. */
__device__ inline uint32_t
largest_of_row (const Patch &patch)
{
  uint32_t max[PIECE];

  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    max[k] = largest_of_piece (patch.row[k]);
  EXEC_CUDA_UNROLL_ALL
  for (unsigned half = PIECE / 2; half > 0; half /= 2)
    {
      bool takes_upper = (threadIdx.x & half) != 0;

      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < half; k++)
        {
          uint32_t own = takes_upper ? max[k + half] : max[k];
          uint32_t given = takes_upper ? max[k] : max[k + half];

          max[k] = larger (own, __shfl_xor_sync (0xffffffffu, given, (int)half));
        }
    }
  return larger (max[0], __shfl_xor_sync (0xffffffffu, max[0], (int)PIECE));
}

/* Stores the rows of a patch as codes. `own` is the inverse of the scale of row threadIdx.x % 8. */
__device__ inline void
store_rows (const SquareTarget &to, const Patch &patch, const PatchPlace &place, float own)
{
  uint8_t *at = to.at + place.row * to.cols + place.col;
  unsigned first = threadIdx.x % WARP / SQUARE_PIECES * SQUARE_PIECES;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    {
      float inverse = __shfl_sync (0xffffffffu, own, (int)(first + k));

      store_codes (at + k * to.cols, square_codes (patch.row[k], inverse), PIECE);
    }
}

/* Stores the scales of the rows of a patch, then the rows. */
__device__ inline void
convert_rows (const SquareTarget &to, const Patch &patch, const PatchPlace &place)
{
  float scale = square_scale (largest_of_row (patch));

  if (place.piece < PIECE)
    to.scales[place.col / SQUARE_SIDE * to.rows + place.row + place.piece] = scale;
  store_rows (to, patch, place, inverse_of_power (scale));
}

/* Finds the scales of the square's columns, and stores them. */
__device__ inline void
scale_columns (const SquareTarget &to, const Patch &patch, const PatchPlace &place, uint64_t r,
               uint64_t c)
{
  unsigned x = threadIdx.x;

  share_largest (patch, place);
  __syncthreads ();
  if (x < SQUARE_SIDE)
    {
      uint32_t max = 0;

      for (unsigned line = 0; line < SQUARE_LINES; line++)
        max = larger (max, square_tile ().largest[line][x]);
      float scale = square_scale (max);
      column_inverses ()[x] = inverse_of_power (scale);
      to.scales[r / SQUARE_SIDE * to.rows + c + x] = scale;
    }
  __syncthreads ();
}

/* Puts the columns of a patch into shared memory as codes. `inverse`: of the scale of the square,
 * if squares have one. */
__device__ inline void
share_columns (const Patch &patch, const PatchPlace &place, bool is_square, float inverse)
{
  Patch transposed = transposed_patch (patch);

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    {
      float own = is_square ? inverse : column_inverses ()[place.piece * PIECE + i];

      share_column (place, i, square_codes (transposed.row[i], own));
    }
}

/* Stores the columns of a square as rows of the transposed result. */
__device__ inline void
store_columns (const SquareTarget &to, uint64_t r, uint64_t c)
{
  unsigned piece = threadIdx.x % SQUARE_PIECES;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned round = 0; round < PIECE; round++)
    {
      unsigned x = round * SQUARE_LINES + threadIdx.x / SQUARE_PIECES;

      store_codes (to.at + (c + x) * to.cols + r + piece * PIECE, shared_column (x, piece), PIECE);
    }
}

/* Stores the scale of a square. The block that has the last square of a row also fills up the row
 * of scales. */
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

/* Finds and stores the scale of a square, stores its rows, and returns the scale's inverse. */
__device__ inline float
convert_square (const SquareTarget &row, const SquareTarget &col, const Patch &patch,
                const PatchPlace &place, uint64_t r, uint64_t c)
{
  float scale = square_scale (largest_of_block (largest_of_patch (patch)));
  float inverse = inverse_of_power (scale);

  store_rows (row, patch, place, inverse);
  if (threadIdx.x == 0)
    {
      store_square_scale (row, r, c, scale);
      if (col.at != NULL)
        store_square_scale (col, c, r, scale);
    }
  return inverse;
}

/* Two barriers lie between a write to shared memory and the next round's write to the same place,
 * so that all threads have read it by then. */
template <typename Source>
__global__ void
__launch_bounds__ (THREADS, 2)
    quantize_128 (SquareTarget row, SquareTarget col, Source in, bool is_square)
{
  uint64_t across = row.cols / SQUARE_SIDE, squares = row.rows / SQUARE_SIDE * across;

  for (uint64_t square = blockIdx.x; square < squares; square += gridDim.x)
    {
      uint64_t r = square / across * SQUARE_SIDE, c = square % across * SQUARE_SIDE;
      PatchPlace place = patch_place (r, c);
      Patch patch = in.patch (place);
      float inverse = 0.0f;

      if (is_square)
        inverse = convert_square (row, col, patch, place, r, c);
      else
        convert_rows (row, patch, place);
      if (col.at == NULL)
        continue;
      if (!is_square)
        scale_columns (col, patch, place, r, c);
      share_columns (patch, place, is_square, inverse);
      __syncthreads ();
      store_columns (col, r, c);
    }
}

/* --- parts of parameters ------------------------------------------------------------------ */

/* The row and column of an element of the parameter. */
struct SquarePlace
{
  uint64_t row, col;
};

__device__ inline SquarePlace
place_in (const Part &part, uint64_t element)
{
  Quotient place = divide (element, part.cols);

  return { place.whole, place.rest };
}

__device__ inline void
advance (const Part &part, SquarePlace &place)
{
  if (++place.col < part.cols.by)
    return;
  place.col = 0;
  place.row++;
}

/* Whether n elements of a part that follow each other are in one row and one square. */
__device__ inline bool
are_together (const Part &part, const SquarePlace &place, unsigned n)
{
  return place.col + n <= part.cols.by && place.col % SQUARE_SIDE + n <= SQUARE_SIDE;
}

__device__ inline uint64_t
square_at (const Part &part, const SquarePlace &place)
{
  return place.row / SQUARE_SIDE * squares_apart (part.cols.by) + place.col / SQUARE_SIDE;
}

/* Raises the magnitude of a square. Neighbouring threads have neighbouring pieces: of those of a
 * warp that are in one square, the first raises it for all. All threads of a warp must call it. */
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

/* The largest magnitude among those elements of the part that this thread has of the square at (r,
 * c). For parts that begin at a multiple of 8 elements, of parameters with rows of a multiple of 8:
 * no piece of a square is cut by the part's beginning. */
__device__ inline uint32_t
largest_in_square (const Part &part, const Array &in, uint64_t r, uint64_t c)
{
  uint64_t end = part.first + part.count;
  PatchPlace place = patch_place (r, c);
  uint64_t at = place.row * part.cols.by + place.col;
  uint32_t max = 0;

  if (r * part.cols.by + c >= part.first
      && (r + SQUARE_SIDE - 1) * part.cols.by + c + SQUARE_SIDE <= end
      && c + SQUARE_SIDE <= part.cols.by)
    return largest_of_patch (read_patch (in, at - part.first, part.cols.by));
  for (unsigned k = 0; k < PIECE && place.col < part.cols.by; k++, at += part.cols.by)
    if (at >= part.first && at < end)
      max = larger (max, largest_of_piece (read (in, at - part.first, piece_of (at, end))));
  return max;
}

/* The squares that may have elements of a part. */
struct SquaresMet
{
  uint64_t first_row, rows, across;
};

__host__ __device__ inline SquaresMet
squares_met (const Part &part)
{
  uint64_t height = part.cols.by * SQUARE_SIDE, from = part.first / height;

  return { from, (part.first + part.count - 1) / height - from + 1,
           (part.cols.by + SQUARE_SIDE - 1) / SQUARE_SIDE };
}

/* A block per square, for the parts that largest_in_square reads. */
__device__ inline void
amax_whole_squares (const Part &part, const Work &work, uint32_t *amax, const Array &in)
{
  SquaresMet met = squares_met (part);

  for (uint64_t square = work.first / blockDim.x; square < met.rows * met.across;
       square += work.stride / blockDim.x)
    {
      uint64_t row = met.first_row + square / met.across, col = square % met.across;
      uint32_t max = largest_in_square (part, in, row * SQUARE_SIDE, col * SQUARE_SIDE);

      raise_max (amax + row * squares_apart (part.cols.by) + col, max);
    }
}

/* A thread per piece of the part, for all other parts: pieces may cross rows and squares. */
__device__ inline void
amax_cut_squares (const Part &part, const Work &work, uint32_t *amax, const Array &in)
{
  uint64_t stride = work.stride * PIECE, rounds = (part.count + stride - 1) / stride;

  for (uint64_t round = 0; round < rounds; round++)
    {
      uint64_t at = work.first * PIECE + round * stride;
      unsigned n = at < part.count ? piece_of (at, part.count) : 0;
      Piece piece = n > 0 ? read (in, at, n) : Piece{};
      SquarePlace place = place_in (part, part.first + (n > 0 ? at : 0));
      uint64_t square = square_at (part, place);
      uint32_t max = 0;

      for (unsigned i = 0; i < PIECE; i++, advance (part, place))
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
__launch_bounds__ (THREADS, 2) amax_squares (Params params, Shares shares, uint32_t *amax, Array in)
{
  Work work;

  if (!find_work (params, shares, &work))
    return;
  Part part = part_of (params, work.matrix);
  uint32_t *own = amax + magnitude_of_matrix (work.matrix);
  if (is_of_pieces (part))
    amax_whole_squares (part, work, own, array_from (in, part.at));
  else
    amax_cut_squares (part, work, own, array_from (in, part.at));
}

__global__ void
scale_squares (uint64_t count, float *scales, const uint32_t *amax)
{
  for (uint64_t i = first_x (); i < count; i += stride_x ())
    scales[i] = square_scale (amax[i]);
}

__global__ void
quantize_squares (Params params, Shares shares, uint8_t *out, const float *all_scales, Array in)
{
  Work work;

  if (!find_work (params, shares, &work))
    return;
  Part part = part_of (params, work.matrix);
  const float *scales = all_scales + magnitude_of_matrix (work.matrix);
  Array of = array_from (in, part.at);
  for (uint64_t at = work.first * PIECE; at < part.count; at += work.stride * PIECE)
    {
      unsigned n = piece_of (at, part.count);
      Piece piece = read (of, at, n);

      SquarePlace place = place_in (part, part.first + at);
      float inverse = inverse_of_power (scales[square_at (part, place)]);

      if (!are_together (part, place, n))
        {
          for (unsigned i = 0; i < PIECE; i++)
            if (i < n)
              {
                piece.at[i] *= inverse_of_power (scales[square_at (part, place)]);
                advance (part, place);
              }
          inverse = 1.0f;
        }
      store_codes (out + part.at + at, square_codes (piece, inverse), n);
    }
}

/* Transposes the scales of the squares of a [rows, cols] matrix. */
__global__ void
transpose_squares (uint64_t rows, uint64_t cols, float *out, const float *in)
{
  uint64_t from = squares_apart (cols), to = squares_apart (rows), count = cols / SQUARE_SIDE * to;

  for (uint64_t i = first_x (); i < count; i += stride_x ())
    out[i] = i % to < rows / SQUARE_SIDE ? in[i % to * from + i / to] : 1.0f;
}

/* A thread per piece; for squares that are read whole, as many blocks as there are squares, of
 * which the part may cut those at its ends. */
uint64_t
items_of_squares (const Matrices &of, uint64_t elements)
{
  uint64_t squares = of.cols.by * SQUARE_SIDE, rows = elements / squares + 2;
  uint64_t across = (of.cols.by + SQUARE_SIDE - 1) / SQUARE_SIDE;

  return of.cols.by % PIECE == 0 ? rows * across * THREADS : pieces_of (elements);
}

uint64_t
items_of_square_pieces (const Matrices &, uint64_t elements)
{
  return pieces_of (elements);
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
  uint64_t rows = operands.dim (0), cols = quantized_cols (operands);
  SquareTarget row = square_target (args, 0, rows, cols), col = square_target (args, 1, cols, rows);
  bool is_square = args->dtype[0] == PLAN_DTYPE_FP8_128X128;

  if (rows % SQUARE_SIDE != 0 || cols % SQUARE_SIDE != 0
      || (col.at != NULL && args->dtype[1] != args->dtype[0]) || args->ptr[3] != NULL)
    return (int)cudaErrorInvalidValue;
  return launch_source (&operands, cols, true, [&] (auto in) {
    return EXEC_CUDA_LAUNCH (quantize_128<decltype (in)>,
                             shape_of_blocks (rows / SQUARE_SIDE * (cols / SQUARE_SIDE), THREADS),
                             stream, row, col, in, is_square);
  });
}

extern "C" int
exec_cuda_param_amax_squares (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Array in = operands.array (1);
  Params params = params_of (args);
  Shares shares = shares_of (params, MAX_BLOCKS, items_of_squares);
  uint32_t *amax = (uint32_t *)operands.floats (0);

  if (operands.code != 0 || params.count == 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (amax_squares, shape_of_shares (shares), stream, params, shares, amax,
                           in);
}

extern "C" int
exec_cuda_param_quantize_squares (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t squares = operands.dim (1);
  Array in = operands.array (2);
  const uint32_t *amax = (const uint32_t *)operands.floats (3);
  float *scales = operands.floats (4);
  Params params = params_of (args);
  Shares shares = shares_of (params, MAX_BLOCKS, items_of_square_pieces);
  uint8_t *out = (uint8_t *)args->ptr[0];
  int code = operands.code;

  if (code != 0 || args->dtype[0] != PLAN_DTYPE_E4M3 || args->ptr[1] != NULL)
    return (int)cudaErrorInvalidValue;
  code = EXEC_CUDA_LAUNCH (scale_squares, shape_of_items (squares), stream, squares, scales, amax);
  if (code == 0 && params.count > 0)
    code = EXEC_CUDA_LAUNCH (quantize_squares, shape_of_shares (shares), stream, params, shares,
                             out, scales, in);
  return code;
}

extern "C" int
exec_cuda_transpose_squares (const ExecArgs *args, void *stream)
{
  uint64_t rows = (uint64_t)args->op->dims[0], cols = (uint64_t)args->op->dims[1];
  const uint8_t *apart = args->blocks[1].scales;
  const float *in
      = (const float *)(apart != NULL ? apart : (const uint8_t *)args->ptr[1] + rows * cols);
  float *out = (float *)((uint8_t *)args->ptr[0] + rows * cols);

  return EXEC_CUDA_LAUNCH (transpose_squares,
                           shape_of_items (cols / SQUARE_SIDE * squares_apart (rows)), stream, rows,
                           cols, out, in);
}
