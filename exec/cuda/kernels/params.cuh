/* SPDX-License-Identifier: Apache-2.0 */
/* All parameters of a unit in one launch (exec/params.h): which part of which matrix a block of the
 * grid works on. Blocks are shared out by how much of a matrix the rank has, so each works on one
 * matrix alone. Matrices of which it has nothing get no blocks. */
#pragma once
#include "exec/cuda/kernels/narrow.cuh"

namespace
{

/* Matrices of one shape. */
struct Matrices
{
  Divisor cols, each; /* columns; magnitudes of each matrix */
  uint64_t n, rows, at, magnitude, site;
  float *scale;
};

struct Params
{
  uint64_t from, count, block;
  unsigned shift, n; /* log2 of a block's elements; shapes */
  Matrices of[EXEC_MAX_MATRICES];
};

/* How many blocks of the grid each matrix has of those that are worked on: of each shape `n` from
 * the one `first` on. */
struct Shares
{
  struct
  {
    uint64_t first;
    unsigned n, blocks;
  } of[EXEC_MAX_MATRICES];
};

inline uint64_t
clamped (uint64_t value, uint64_t least, uint64_t most)
{
  return value < least ? least : at_most (value, most);
}

inline Params
params_of (const ExecArgs *args)
{
  const ExecParam &one = args->param;
  uint64_t count = (uint64_t)args->op->dims[0], parts = (uint64_t)args->op->dims[1];
  ExecParams alone = { one.first, one.block, 1, {} };
  alone.of[0] = { 1, one.rows, one.cols, 0, 0, parts, 0, args->scale[0] };
  const ExecParams &all = args->params != NULL ? *args->params : alone;
  Params params = { all.from, count, all.block, all.block == MX_BLOCK ? 5u : 4u, all.n, {} };

  for (unsigned i = 0; i < all.n; i++)
    {
      const ExecMatrices &of = all.of[i];

      params.of[i] = { divisor_of (of.cols),
                       divisor_of (of.magnitudes),
                       of.n,
                       of.rows,
                       of.at,
                       of.magnitude,
                       of.site,
                       of.scale };
    }
  return params;
}

/* Shares out blocks for the matrices of which the rank has elements, so that each thread gets an
 * item: `items` says how many items so many elements of a matrix are. */
template <typename Items>
inline Shares
shares_of (const Params &params, uint64_t most, Items items)
{
  Shares shares = {};
  uint64_t last = params.from + params.count;

  for (unsigned i = 0; i < params.n && params.count > 0; i++)
    {
      const Matrices &of = params.of[i];
      uint64_t size = of.rows * of.cols.by, end = of.at + of.n * size;
      uint64_t from = clamped (of.at, params.from, last), to = clamped (end, from, last);

      if (from == to)
        continue;
      uint64_t own = at_most (size, to - from), limit = most * own / params.count;
      uint64_t blocks = (items (of, own) + THREADS - 1) / THREADS;

      shares.of[i].first = (from - of.at) / size;
      shares.of[i].n = (unsigned)((to - of.at - 1) / size - shares.of[i].first + 1);
      shares.of[i].blocks = (unsigned)clamped (blocks, 1, limit > 1 ? limit : 1);
    }
  return shares;
}

/* The same for work on magnitudes, which are those of whole matrices, of which the rank may have
 * nothing. */
inline Shares
shares_of_magnitudes (const Params &params, uint64_t most)
{
  Shares shares = {};
  uint64_t all = 0;

  for (unsigned i = 0; i < params.n; i++)
    all += params.of[i].n * params.of[i].each.by;
  for (unsigned i = 0; i < params.n; i++)
    {
      uint64_t own = params.of[i].each.by, limit = most * own / all;

      shares.of[i] = { 0, (unsigned)params.of[i].n,
                       (unsigned)clamped (pieces_of (own) / THREADS, 1, limit > 1 ? limit : 1) };
    }
  return shares;
}

inline Shape
shape_of_shares (const Shares &shares)
{
  unsigned blocks = 0;

  for (unsigned i = 0; i < EXEC_MAX_MATRICES; i++)
    blocks += shares.of[i].n * shares.of[i].blocks;
  return { dim3 (blocks > 0 ? blocks : 1), dim3 (THREADS) };
}

/* One matrix of those of a shape. A copy: a pointer to a kernel's parameter would move it all to
 * local memory. */
struct Matrix
{
  Matrices of;
  uint64_t number;
};

__device__ inline uint64_t
magnitude_of_matrix (const Matrix &matrix)
{
  return matrix.of.magnitude + matrix.number * matrix.of.each.by;
}

/* The matrix that has a magnitude, or which is the i-th of all. */
__device__ inline Matrix
matrix_with (const Params &params, uint64_t magnitude)
{
  unsigned i = 0;

  while (i + 1 < params.n && magnitude >= params.of[i + 1].magnitude)
    i++;
  return { params.of[i], divide (magnitude - params.of[i].magnitude, params.of[i].each).whole };
}

__device__ inline uint64_t
n_matrices (const Params &params)
{
  uint64_t n = 0;

  for (unsigned i = 0; i < params.n; i++)
    n += params.of[i].n;
  return n;
}

__device__ inline Matrix
matrix_at (const Params &params, uint64_t number)
{
  unsigned i = 0;

  for (; number >= params.of[i].n; i++)
    number -= params.of[i].n;
  return { params.of[i], number };
}

/* The matrix that a block of threads works on, and which of its elements this thread takes. */
struct Work
{
  Matrix matrix;
  uint64_t first, stride;
};

/* Whether this block has work. */
__device__ inline bool
find_work (const Params &params, const Shares &shares, Work *out)
{
  unsigned block = blockIdx.x, i = 0;

  while (i < params.n && block >= shares.of[i].n * shares.of[i].blocks)
    {
      block -= shares.of[i].n * shares.of[i].blocks;
      i++;
    }
  if (i == params.n)
    return false;
  *out = { { params.of[i], shares.of[i].first + block / shares.of[i].blocks },
           (uint64_t)(block % shares.of[i].blocks) * blockDim.x + threadIdx.x,
           (uint64_t)shares.of[i].blocks * blockDim.x };
  return true;
}

/* The rank's part of a matrix: elements from `first` on, which are in its arrays from `at` on. */
struct Part
{
  Divisor cols;
  uint64_t first, count, at, block;
  unsigned shift;      /* log2 of a block's elements */
  uint64_t row_blocks; /* in the whole parameter; their magnitudes come before those of columns */
};

__device__ inline Part
part_of (const Params &params, const Matrix &matrix)
{
  uint64_t size = matrix.of.rows * matrix.of.cols.by, begin = matrix.of.at + matrix.number * size;
  uint64_t last = params.from + params.count;
  uint64_t from = begin > params.from ? begin : params.from, to = at_most (begin + size, last);

  return { matrix.of.cols,
           from - begin,
           to > from ? to - from : 0,
           from - params.from,
           params.block,
           params.shift,
           params.block > 0 ? size >> params.shift : 0 };
}

/* Whether each piece of the parameter is a piece of the part, and within one row. */
__device__ inline bool
is_of_pieces (const Part &part)
{
  return part.first % PIECE == 0 && part.cols.by % PIECE == 0;
}

/* An array from an element on. */
__device__ inline Array
array_from (const Array &array, uint64_t at)
{
  uint8_t *from = (uint8_t *)array.at + at * (array.is_half ? 2 : 4);

  return { from, array.is_half, array.is_fp16,
           array.is_wide && (uintptr_t)from % sizeof (Quad) == 0 };
}

}
