/* SPDX-License-Identifier: Apache-2.0 */
/* Squares of 128 x 128 elements that a block of 256 threads reads once: each thread holds a patch
 * of 8 x 8 in registers, and what it makes of its columns goes through shared memory. */
#pragma once
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
