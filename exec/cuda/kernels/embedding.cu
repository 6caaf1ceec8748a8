/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up rows of tables by token and by position; gradients of these tables. A rank may have a
 * part of the table of tokens: there the row of a token of another part is 0, and has no gradient.
 *
 * Launch shape   embed, positions and the gradients: pieces of 8 columns along x in blocks of whole
 *                warps up to 256 threads, rows (of the result) along y. embed_bwd first sorts the
 *                rows by token: 256 threads and 1 KiB of shared memory a block, a thread per row;
 *                then a thread per token of the vocabulary finds where its rows begin.
 * Per call       s: bytes per element, of each operand's own format
 *   op             bytes                                     FLOPs
 *   embed          rows cols (s + s) + 4 rows                -
 *   embed_bwd      vocab cols s + rows cols s                rows cols; to sort, rows^2
 *                                                            comparisons of integers
 *   positions      rows cols (2 s) + seq cols s              rows cols
 *   positions_bwd  rows cols s + seq cols s                  rows cols
 * Checked with   exec_kernels_cpu (kernels-cpu.c, kernels-cpu-positions.c), by tests/fake and
 *                tests/gpu.
 *                A row of a gradient is summed in the order of the tokens, as there: equal bit for
 *                bit.
 *
 * Tokens are in [0, vocab), or in [0, whole) where the table is in parts: whoever loads the tokens
 * checks that. */
#include "exec/cuda/kernels/places.cuh"

namespace
{

__global__ void
embed (uint64_t rows, uint64_t cols, uint64_t vocab, uint32_t before, Array out, Array table,
       const int32_t *tokens)
{
  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, cols);
        uint32_t place = (uint32_t)tokens[row] - before;

        write (out, row * cols + col, n,
               place < vocab ? read (table, place * cols + col, n) : Piece{});
      }
}

/* order: the rows sorted by token, those of one token in ascending order. A row's place is the
 * number of rows that belong before it. Counting them needs no memory, and the result does not
 * depend on the order of threads. */
__global__ void
sort_rows (uint64_t rows, const int32_t *tokens, uint32_t *order)
{
  __shared__ int32_t some[THREADS];

  for (uint64_t base = (uint64_t)blockIdx.x * THREADS; base < rows;
       base += (uint64_t)gridDim.x * THREADS)
    {
      uint64_t row = base + threadIdx.x;
      int32_t token = row < rows ? tokens[row] : 0;
      uint32_t place = 0;

      for (uint64_t first = 0; first < rows; first += THREADS)
        {
          unsigned n = (unsigned)at_most (rows - first, THREADS);

          __syncthreads (); /* the last tokens have been counted */
          if (threadIdx.x < n)
            some[threadIdx.x] = tokens[first + threadIdx.x];
          __syncthreads ();
          for (unsigned i = 0; i < n; i++)
            place += some[i] < token || (some[i] == token && first + i < row);
        }
      if (row < rows)
        order[place] = (uint32_t)row;
    }
}

/* start[v]: the first place in `order` whose token is not below the v-th token of this part. */
__global__ void
find_starts (uint64_t rows, uint64_t vocab, uint32_t before, const int32_t *tokens,
             const uint32_t *order, uint32_t *start)
{
  for (uint64_t v = first_x (); v <= vocab; v += stride_x ())
    {
      uint64_t low = 0, high = rows;

      while (low < high)
        {
          uint64_t middle = (low + high) / 2;

          if ((uint64_t)tokens[order[middle]] < before + v)
            low = middle + 1;
          else
            high = middle;
        }
      start[v] = (uint32_t)low;
    }
}

__global__ void
embed_bwd (uint64_t vocab, uint64_t cols, Array dtable, Array dout, const uint32_t *start,
           const uint32_t *order)
{
  for (uint64_t v = blockIdx.y; v < vocab; v += gridDim.y)
    for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, cols);
        uint32_t end = start[v + 1];
        Piece sum = {};

        EXEC_CUDA_UNROLL
        for (uint32_t k = start[v]; k < end; k++)
          {
            Piece d = read (dout, order[k] * cols + col, n);

            for (unsigned i = 0; i < PIECE; i++)
              sum.at[i] += d.at[i];
          }
        write (dtable, v * cols + col, n, sum);
      }
}

/* Adds to row `row` the table's row for its place in its sequence. */
__global__ void
positions (uint64_t rows, uint64_t cols, uint64_t seq, uint64_t before, PlanSequencePart part,
           const int32_t *places, Array out, Array table)
{
  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, cols);
        Words ins = fetch (out, row * cols + col, n);
        uint64_t place = position_of (places, row, part, (before + row) % seq);
        Words learned = fetch (table, place * cols + col, n);
        Piece in = widen (out, ins), added = widen (table, learned);

        for (unsigned i = 0; i < PIECE; i++)
          in.at[i] += added.at[i];
        write (out, row * cols + col, n, in);
      }
}

/* The gradient of the table's row of each place: the sum over the rows that have it. Of places in
 * documents all rows are looked at. */
__global__ void
positions_bwd (uint64_t rows, uint64_t cols, uint64_t seq, uint64_t before, PlanSequencePart part,
               const int32_t *places, Array dtable, Array dout)
{
  for (uint64_t place = blockIdx.y; place < seq; place += gridDim.y)
    for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, cols);
        uint64_t first = places != NULL ? 0 : (place + seq - before % seq) % seq;
        Piece sum = {};

        EXEC_CUDA_UNROLL
        for (uint64_t row = first; row < rows; row += places != NULL ? 1 : seq)
          {
            if (places != NULL && (uint64_t)places[row] != place)
              continue;
            Piece d = read (dout, row * cols + col, n);

            for (unsigned i = 0; i < PIECE; i++)
              sum.at[i] += d.at[i];
          }
        write (dtable, place_of (part, place) * cols + col, n, sum);
      }
}

}

extern "C" int
exec_cuda_embed (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1), vocab = operands.dim (2);
  Array out = operands.rows_of (0, cols), table = operands.rows_of (1, cols);
  const int32_t *tokens = operands.ints (2);
  uint32_t before = operands.first ();

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (embed, shape_of_matrix (rows, pieces_of (cols)), stream, rows, cols,
                           vocab, before, out, table, tokens);
}

extern "C" int
exec_cuda_embed_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1), vocab = operands.dim (2);
  Array dtable = operands.rows_of (0, cols), dout = operands.rows_of (1, cols);
  const int32_t *tokens = operands.ints (2);
  uint32_t before = operands.first ();
  uint32_t *start = (uint32_t *)args->ptr[3], *order = start + vocab + 1;
  int code = operands.code;

  if (code == 0)
    code = EXEC_CUDA_LAUNCH (sort_rows, shape_of_items (rows), stream, rows, tokens, order);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (find_starts, shape_of_items (vocab + 1), stream, rows, vocab, before,
                             tokens, order, start);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (embed_bwd, shape_of_matrix (vocab, pieces_of (cols)), stream, vocab,
                             cols, dtable, dout, start, order);
  return code;
}

extern "C" int
exec_cuda_positions (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1), seq = operands.dim (2);
  uint64_t before = operands.first ();
  PlanSequencePart part = part_of (args, seq, 0);
  Array out = operands.rows_of (0, cols), table = operands.rows_of (1, cols);
  const int32_t *places = args->ptr[2] != NULL ? operands.ints (2) : NULL;

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (positions, shape_of_matrix (rows, pieces_of (cols)), stream, rows, cols,
                           seq, before, part, places, out, table);
}

extern "C" int
exec_cuda_positions_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1), seq = operands.dim (2);
  uint64_t before = operands.first ();
  PlanSequencePart part = part_of (args, seq, 0);
  Array dtable = operands.rows_of (0, cols), dout = operands.rows_of (1, cols);
  const int32_t *places = args->ptr[2] != NULL ? operands.ints (2) : NULL;

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (positions_bwd, shape_of_matrix (seq, pieces_of (cols)), stream, rows,
                           cols, seq, before, part, places, dtable, dout);
}
