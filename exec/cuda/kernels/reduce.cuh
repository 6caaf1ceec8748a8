/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima in an order that the shape alone decides. */
#pragma once
#include "exec/cuda/kernels/launch.cuh"

namespace
{

__device__ inline float
warp_sum (float value)
{
  for (int distance = WARP / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync (0xffffffffu, value, distance);
  return value;
}

/* The sum over the block, in every thread. All threads add in the same tree, so they get the same
 * bits. */
__device__ inline float
block_sum (float value)
{
  __shared__ float of_warp[WARP];
  unsigned lane = threadIdx.x % WARP;

  value = warp_sum (value);
  __syncthreads (); /* the last call's sums have been read */
  if (lane == 0)
    of_warp[threadIdx.x / WARP] = value;
  __syncthreads ();
  return warp_sum (lane < blockDim.x / WARP ? of_warp[lane] : 0.0f);
}

/* The largest of the block, in every thread. */
__device__ inline float
block_max (float value)
{
  __shared__ float of_warp[WARP];
  unsigned lane = threadIdx.x % WARP;

  for (int round = 0; round < 2; round++)
    {
      for (int distance = WARP / 2; distance > 0; distance /= 2)
        {
          float other = __shfl_xor_sync (0xffffffffu, value, distance);

          value = other > value ? other : value;
        }
      if (round == 1)
        break;
      __syncthreads (); /* those of the last call have been read */
      if (lane == 0)
        of_warp[threadIdx.x / WARP] = value;
      __syncthreads ();
      value = lane < blockDim.x / WARP ? of_warp[lane] : -INFINITY;
    }
  return value;
}

/* A block per row, with a thread per piece in whole warps, up to THREADS. */
inline Shape
shape_of_rows (uint64_t rows, uint64_t cols)
{
  uint64_t threads = (pieces_of (cols) + WARP - 1) / WARP * WARP;

  return shape_of_blocks (rows, threads > 0 ? (unsigned)at_most (threads, THREADS) : WARP);
}

/* This thread's first piece of a row; col_stride () elements further is its next. */
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

/* --- sums of columns ---------------------------------------------------------------------- */

/* A block sums a strip of columns that is one, two or four pieces wide, its threads walking down
 * the rows side by side: 64 bytes of bf16 at a time, so that a few blocks keep the memory busy
 * without scratch. */
enum : unsigned
{
  COLUMN_THREADS = 512
};

struct Columns
{
  uint64_t rows, cols;
  unsigned strip;      /* the pieces that a strip is wide */
  Array first, second; /* results; the second may be absent */
};

inline Columns
columns_of (uint64_t rows, uint64_t cols, Array first, Array second)
{
  return { rows, cols, cols >= 2048 ? 4u : cols >= 1024 ? 2u : 1u, first, second };
}

inline Shape
shape_of_columns (const Columns &columns)
{
  uint64_t pieces = pieces_of (columns.cols);

  return shape_of_blocks ((pieces + columns.strip - 1) / columns.strip, COLUMN_THREADS);
}

/* Sums the pieces of all threads of a block: thread i gets the sum of column i of the strip. */
__device__ inline float
sum_down (const Piece &piece, unsigned strip)
{
  __shared__ float of_thread[PIECE][COLUMN_THREADS + 1]; /* one more against bank conflicts */
  __shared__ float of_part[COLUMN_THREADS];
  unsigned cols = strip * PIECE, col = threadIdx.x % cols, part = threadIdx.x / cols;
  float sum = 0;

  __syncthreads (); /* the last call's sums have been read */
  for (unsigned i = 0; i < PIECE; i++)
    of_thread[i][threadIdx.x] = piece.at[i];
  __syncthreads ();
  for (unsigned i = 0; i < PIECE; i++)
    sum += of_thread[col % PIECE][(part * PIECE + i) * strip + col / PIECE];
  of_part[threadIdx.x] = sum;
  __syncthreads ();
  for (unsigned i = 1; i < COLUMN_THREADS / cols && part == 0; i++)
    sum += of_part[i * cols + col];
  return sum;
}

__device__ inline void
write_strip (const Columns &shape, const Array &out, uint64_t begin, const Piece &piece)
{
  uint64_t col = begin * PIECE + threadIdx.x;
  float sum = sum_down (piece, shape.strip);

  if (threadIdx.x < shape.strip * PIECE && col < shape.cols)
    write_one (out, col, sum);
}

/* Rows that a thread loads before it waits for the first. */
enum : unsigned
{
  ROWS_AT_ONCE = 4
};

/* Sums columns: term.fetch (row, col, n) reads a piece, and term.add adds it to the two sums of its
 * columns. */
template <typename Term>
__global__ void
__launch_bounds__ (COLUMN_THREADS, 1) columns (Columns shape, Term term)
{
  uint64_t pieces = pieces_of (shape.cols);

  for (uint64_t begin = (uint64_t)blockIdx.x * shape.strip; begin < pieces;
       begin += (uint64_t)gridDim.x * shape.strip)
    {
      uint64_t col = (begin + threadIdx.x % shape.strip) * PIECE;
      uint64_t stride = COLUMN_THREADS / shape.strip;
      unsigned n = col < shape.cols ? piece_of (col, shape.cols) : 0;
      Piece first_sum = {}, second_sum = {};

      for (uint64_t row = threadIdx.x / shape.strip; row < shape.rows && n > 0;
           row += ROWS_AT_ONCE * stride)
        {
          typename Term::Row rows[ROWS_AT_ONCE];

          EXEC_CUDA_UNROLL
          for (unsigned i = 0; i < ROWS_AT_ONCE; i++)
            if (row + i * stride < shape.rows)
              rows[i] = term.fetch (row + i * stride, col, n);
          EXEC_CUDA_UNROLL
          for (unsigned i = 0; i < ROWS_AT_ONCE; i++)
            if (row + i * stride < shape.rows)
              term.add (rows[i], &first_sum, &second_sum);
        }
      write_strip (shape, shape.first, begin, first_sum);
      if (shape.second.at != NULL)
        write_strip (shape, shape.second, begin, second_sum);
    }
}

}
