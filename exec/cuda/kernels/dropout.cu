/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout, also with an addition after it, and its gradient. Which elements are zeroed is a
 * function of a token's number in the run and of the column: nothing is kept for the gradient.
 *
 * Launch shape   pieces of 8 columns along x in blocks of whole warps up to 256 threads, rows along
 *                y. A thread makes the eight random numbers of its piece, in two blocks of Philox
 *                4x32-10: 20 rounds of two 32-bit products each.
 * Per call       s: bytes per element, of each operand's own format
 *   op             bytes                     FLOPs
 *   dropout        rows cols (s + s)         rows cols
 *   dropout_add    rows cols (s + s + s)     2 rows cols
 *   dropout_bwd    rows cols (s + s)         rows cols
 * Checked with   exec/cpu/kernels-cpu-dropout.c, by tests/fake and tests/gpu: equal bit for bit. */
#include "exec/cuda/kernels/layers.h"
#include "exec/cuda/kernels/places.cuh"
#include "exec/cuda/kernels/random.cuh"

namespace
{

/* Which token of the run a row has. */
struct Tokens
{
  uint64_t seq, whole; /* tokens of a sequence: of this rank, of all ranks */
  uint64_t before;     /* rows of the op that other parts of it do */
  PlanSequencePart part;
  const int64_t *start; /* the number of the first token */
};

/* out = add + in * factor; `add` may be absent, and `out` may be `add` or `in`. */
__global__ void
drop (uint64_t rows, uint64_t cols, ExecDropout dropout, Tokens tokens, Array out, Array add,
      Array in)
{
  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    {
      uint64_t at = tokens.before + row;
      uint64_t token = (uint64_t)*tokens.start + at / tokens.seq * tokens.whole
                       + place_of (tokens.part, at % tokens.seq);

      for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
        {
          unsigned n = piece_of (col, cols);
          Words in_words = fetch (in, row * cols + col, n);
          Words add_words = add.at != NULL ? fetch (add, row * cols + col, n) : Words{};
          Piece piece = dropout_factors (dropout, token, col), of = widen (in, in_words);

          for (unsigned i = 0; i < PIECE; i++)
            piece.at[i] *= of.at[i];
          if (add.at != NULL)
            {
              Piece sum = widen (add, add_words);

              for (unsigned i = 0; i < PIECE; i++)
                piece.at[i] += sum.at[i];
            }
          write (out, row * cols + col, n, piece);
        }
    }
}

/* A negative `add` means that there is none. */
int
launch (const ExecArgs *args, void *stream, int out, int add, int in, int key, int start)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1), seq = operands.dim (2);
  Array to = operands.rows_of (out, cols), from = operands.rows_of (in, cols);
  Array sum = add < 0 ? Array{} : operands.rows_of (add, cols);
  ExecDropout dropout = exec_dropout (operands.ints (key), (uint32_t)operands.dim (3),
                                      exec_manner (args, PLAN_MANNER_RATE));
  Tokens tokens = { seq, seq * parts_of (args), operands.first (), part_of (args, seq, 0),
                    (const int64_t *)args->ptr[start] };

  operands.need (start, PLAN_DTYPE_I64);
  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (drop, shape_of_matrix (rows, pieces_of (cols)), stream, rows, cols,
                           dropout, tokens, to, sum, from);
}

}

extern "C" int
exec_cuda_dropout (const ExecArgs *args, void *stream)
{
  return launch (args, stream, PLAN_REF_DROPOUT_out, -1, PLAN_REF_DROPOUT_in, PLAN_REF_DROPOUT_key,
                 PLAN_REF_DROPOUT_start);
}

extern "C" int
exec_cuda_dropout_add (const ExecArgs *args, void *stream)
{
  return launch (args, stream, PLAN_REF_DROPOUT_ADD_out, PLAN_REF_DROPOUT_ADD_a,
                 PLAN_REF_DROPOUT_ADD_b, PLAN_REF_DROPOUT_ADD_key, PLAN_REF_DROPOUT_ADD_start);
}

extern "C" int
exec_cuda_dropout_bwd (const ExecArgs *args, void *stream)
{
  return launch (args, stream, PLAN_REF_DROPOUT_BWD_din, -1, PLAN_REF_DROPOUT_BWD_dout,
                 PLAN_REF_DROPOUT_BWD_key, PLAN_REF_DROPOUT_BWD_start);
}
