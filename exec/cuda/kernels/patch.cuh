/* SPDX-License-Identifier: Apache-2.0 */
/* Squares of 128 x 128 elements that a block of 256 threads reads once: each thread holds a patch
 * of 8 x 8 in registers, and what it makes of its columns goes through shared memory. */
#pragma once
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/narrow.cuh"

namespace
{

enum : unsigned
{
  SQUARE_PIECES = SQUARE_SIDE / PIECE,   /* pieces of a row of a square; a thread each */
  SQUARE_LINES = THREADS / SQUARE_PIECES /* lines of so many threads; a line has PIECE rows */
};

struct Patch
{
  Piece row[PIECE];
};

/* Where a thread's patch is: its line and piece in the square, its first row and column in the
 * matrix. */
struct PatchPlace
{
  unsigned line, piece;
  uint64_t row, col;
};

__device__ inline PatchPlace
patch_place (uint64_t r, uint64_t c)
{
  unsigned line = threadIdx.x / SQUARE_PIECES, piece = threadIdx.x % SQUARE_PIECES;

  return { line, piece, r + line * PIECE, c + piece * PIECE };
}

/* Reads a patch. The thread loads all of its rows before it waits for the first. */
__device__ inline Patch
read_patch (const Array &in, uint64_t at, uint64_t cols)
{
  Words words[PIECE];
  Patch patch;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    words[k] = fetch (in, at + k * cols, PIECE);
  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    patch.row[k] = widen (in, words[k]);
  return patch;
}

/* Matrices that are quantised: as they lie, or what swiglu, or its gradient, makes of others in
 * passing, rounded to the format of those. `within` reads a thread's patch, with zeros behind the
 * end of a matrix, `patch` one that is inside. */
struct Stored
{
  static const bool is_made = false;
  Array in;
  uint64_t cols;

  __device__ Patch
  patch (const PatchPlace &place) const
  {
    return read_patch (in, place.row * cols + place.col, cols);
  }

  __device__ Patch
  within (const PatchPlace &place, uint64_t rows) const
  {
    uint64_t bottom = place.row - place.line * PIECE + SQUARE_SIDE;
    uint64_t right = place.col - place.piece * PIECE + SQUARE_SIDE;
    Patch patch;

    if (bottom <= rows && right <= cols)
      return read_patch (in, place.row * cols + place.col, cols);
    EXEC_CUDA_UNROLL_ALL
    for (unsigned k = 0; k < PIECE; k++)
      {
        bool is_in = place.row + k < rows && place.col < cols;
        uint64_t at = (place.row + k) * cols + place.col;

        patch.row[k] = is_in ? read (in, at, piece_of (place.col, cols)) : Piece{};
      }
    return patch;
  }
};

/* A matrix that is computed while it is quantised: Made::row computes a piece of it. Its inputs are
 * in bf16 and in whole pieces, since other formats would need more registers than there are. */
template <typename Made> struct Passing
{
  static const bool is_made = true;
  Made made;
  uint64_t cols;

  __device__ Patch
  patch (const PatchPlace &place) const
  {
    Patch patch;

    EXEC_CUDA_UNROLL_ALL
    for (unsigned k = 0; k < PIECE; k++)
      patch.row[k] = made.row (place.row + k, place.col);
    return patch;
  }

  __device__ Patch
  within (const PatchPlace &place, uint64_t rows) const
  {
    Patch patch;

    EXEC_CUDA_UNROLL_ALL
    for (unsigned k = 0; k < PIECE; k++)
      {
        bool is_in = place.row + k < rows && place.col < cols;

        patch.row[k] = is_in ? made.row (place.row + k, place.col) : Piece{};
      }
    return patch;
  }
};

struct Swiglu
{
  Array given;
  uint64_t cols;

  __device__ Piece
  row (uint64_t row, uint64_t col) const
  {
    Array in = known<true> (given);
    uint64_t at = 2 * row * cols + col;
    Words gates = fetch (in, at, PIECE), ups = fetch (in, at + cols, PIECE);

    return rounded (in, swiglu_piece (widen (in, gates), widen (in, ups)));
  }
};

/* Gradients of gates, then of ups, each `half` columns. */
struct SwigluBwd
{
  Array given, given_dout;
  uint64_t half;

  __device__ Piece
  row (uint64_t row, uint64_t col) const
  {
    Array in = known<true> (given), dout = known<true> (given_dout);
    uint64_t within = col < half ? col : col - half, at = 2 * row * half + within;
    Words gates = fetch (in, at, PIECE), ups = fetch (in, at + half, PIECE);
    Words douts = fetch (dout, row * half + within, PIECE);
    Piece dgate, dup;

    swiglu_slopes (widen (in, gates), widen (in, ups), widen (dout, douts), &dgate, &dup);
    return rounded (in, col < half ? dgate : dup);
  }
};

/* Calls `launch` with the matrix that the op quantises, of `cols` columns. */
template <typename Launch>
int
launch_source (Operands *operands, uint64_t cols, bool is_whole, Launch launch)
{
  const ExecArgs *args = operands->args;
  PlanOpKind kind = args->op->kind;

  if (kind == PLAN_OP_SWIGLU_QUANTIZE)
    {
      Swiglu made = { operands->rows_of (2, cols), cols };
      if (operands->code != 0 || !is_plain (made.given))
        return (int)cudaErrorInvalidValue;
      return launch (Passing<decltype (made)>{ made, cols });
    }
  if (kind == PLAN_OP_SWIGLU_BWD_QUANTIZE)
    {
      uint64_t half = cols / 2;
      SwigluBwd made = { operands->rows_of (2, half), operands->rows_of (5, half), half };
      if (operands->code != 0 || !is_plain (made.given) || !is_plain (made.given_dout))
        return (int)cudaErrorInvalidValue;
      return launch (Passing<decltype (made)>{ made, cols });
    }
  Stored source = { is_whole ? operands->array (2) : operands->rows_of (2, cols), cols };
  return operands->code != 0 ? operands->code : launch (source);
}

/* The columns of the matrix that the op quantises. */
inline uint64_t
quantized_cols (const Operands &operands)
{
  return (operands.args->op->kind == PLAN_OP_SWIGLU_BWD_QUANTIZE ? 2 : 1) * operands.dim (1);
}

__device__ inline Patch
transposed_patch (const Patch &patch)
{
  Patch transposed;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    {
      EXEC_CUDA_UNROLL_ALL
      for (unsigned k = 0; k < PIECE; k++)
        transposed.row[i].at[k] = patch.row[k].at[i];
    }
  return transposed;
}

__device__ inline uint32_t
largest_of_patch (const Patch &patch)
{
  uint32_t max = 0;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned k = 0; k < PIECE; k++)
    max = larger (max, largest_of_piece (patch.row[k]));
  return max;
}

/* A block's tile of a square, in shared memory. columns[x] holds the codes of column x, a piece per
 * line; the piece of line y is at y ^ x / 8, so that the threads of a warp store to different
 * banks, and read from different banks. */
struct SquareTile
{
  uint32_t largest[SQUARE_LINES][SQUARE_SIDE]; /* of each column, over the rows of a line */
  Pair columns[SQUARE_SIDE][SQUARE_LINES];
};

__device__ inline SquareTile &
square_tile ()
{
  __shared__ SquareTile shared;

  return shared;
}

__device__ inline void
share_largest (const Patch &patch, const PatchPlace &place)
{
  Patch transposed = transposed_patch (patch);

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    square_tile ().largest[place.line][place.piece * PIECE + i]
        = largest_of_piece (transposed.row[i]);
}

/* Stores the codes of column i of the thread's patch. */
__device__ inline void
share_column (const PatchPlace &place, unsigned i, const Pair &codes)
{
  square_tile ().columns[place.piece * PIECE + i][place.line ^ place.piece] = codes;
}

/* The codes of the square's column x in the rows of a line. */
__device__ inline Pair
shared_column (unsigned x, unsigned line)
{
  return square_tile ().columns[x][line ^ x / PIECE];
}

}
