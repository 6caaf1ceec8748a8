/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of columns, by kernels that go through all rows anyway: each block leaves the sums over a
 * part of the rows in scratch. These are then summed in an order that the shape alone decides. */
#pragma once
#include "exec/cuda/kernels/reduce.cuh"
#include "planner/schedule/scratch.h"

namespace
{

/* The sums of parts in scratch. Where `count` is 0 the kernel does not sum. */
struct RowParts
{
  uint64_t count, rows_each;
  uint64_t cols;
  unsigned sums; /* rows of `cols` sums that each part has */
  Array at;
};

/* As many parts as have room in the operand `work` of a norm's gradient. */
inline RowParts
parts_of (const Operands &operands, int work, uint64_t rows, uint64_t cols)
{
  const ExecArgs *args = operands.args;
  uint64_t all = plan_scratch_norm_columns (args->op->kind, args->op->dims);
  uint64_t room = args->ptr[work] != NULL ? args->scratch_bytes / sizeof (float) / all : 0;
  uint64_t count = at_most (plan_scratch_norm_parts (rows, all), room);
  bool is_wide = is_aligned (args->ptr[work]) && cols % PIECE == 0;

  return { count, count > 0 ? (rows + count - 1) / count : 0, cols, (unsigned)(all / cols),
           array_of (args->ptr[work], PLAN_DTYPE_FP32, is_wide) };
}

__device__ inline uint64_t
sum_place (const RowParts &parts, uint64_t part, unsigned sum, uint64_t col)
{
  return (part * parts.sums + sum) * parts.cols + col;
}

/* A term for `columns`, whose rows are the parts. */
struct PartTerm
{
  RowParts parts;

  struct Row
  {
    Words first, second;
  };

  __device__ Row
  fetch (uint64_t part, uint64_t col, unsigned n) const
  {
    return { ::fetch (parts.at, sum_place (parts, part, 0, col), n),
             parts.sums > 1 ? ::fetch (parts.at, sum_place (parts, part, 1, col), n) : Words{} };
  }

  __device__ void
  add (const Row &row, Piece *first, Piece *second) const
  {
    Piece a = widen (parts.at, row.first), b = widen (parts.at, row.second);

    for (unsigned i = 0; i < PIECE; i++)
      {
        first->at[i] += a.at[i];
        second->at[i] += b.at[i];
      }
  }
};

inline int
launch_parts (const RowParts &parts, Array first, Array second, void *stream)
{
  Columns sums = columns_of (parts.count, parts.cols, first, second);
  PartTerm term = { parts };

  return EXEC_CUDA_LAUNCH (columns, shape_of_columns (sums), stream, sums, term);
}

}
