/* SPDX-License-Identifier: Apache-2.0 */
/* Biases of experts: each is added to the rows of its expert, and the rows lie in order of experts.
 * And sinks of attention: learned scores beside those of tokens.
 *
 *   add_expert_bias      out += share * bias
 *   add_expert_bias_bwd  dbias: columns of share * dout summed over the expert's rows; dprobs: the
 *                        inner product of a row's dout and the bias
 *   attention_sink       out *= share of tokens, not the sink, in a query's sum of exponentials;
 *                        lse then is the log of the sum with the sink
 *   attention_sink_bwd   dsinks: minus the sum over queries of the sink's share times the inner
 *                        product of out and dout
 *
 * Launch shape   add_expert_bias: pieces of 8 columns along x in blocks of whole warps up to 256
 *                threads, rows along y. dbias: a block of 512 threads per expert and strip of
 *                columns; 18 KiB of shared memory. dprobs: a block per row. attention_sink: a block
 *                per row and head. attention_sink_bwd: a block of 256 threads per head, a thread
 *                per query.
 * Per call       s: bytes per element, of each operand's own format
 *   op                   bytes                               FLOPs
 *   add_expert_bias      rows cols 2 s, biases from cache    2 rows cols
 *   add_expert_bias_bwd  rows cols s, twice with shares      2 rows cols, twice with shares
 *   attention_sink       rows heads dim 2 s                  rows heads dim
 *   attention_sink_bwd   rows heads dim 2 s                  2 rows heads dim
 * Checked with   exec/cpu/kernels-cpu-experts.c and kernels-cpu-attention.c, by tests/fake and
 *                tests/gpu. Sums are made in another order, and e^x is the device's. */
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/reduce.cuh"

namespace
{

/* --- biases ------------------------------------------------------------------------------- */

struct Biases
{
  uint64_t rows, cols, groups;
  Array bias, probs;     /* probs: shares; absent where biases have none */
  const int32_t *counts; /* NULL: experts have equally many rows */
};

__device__ inline uint64_t
rows_of_expert (const Biases &shape, uint64_t group)
{
  return shape.counts != NULL ? (uint64_t)shape.counts[group] : shape.rows / shape.groups;
}

/* An expert, and the row behind its last. */
struct OfExpert
{
  uint64_t number, end;
};

/* Advances *group to the expert that a row belongs to. Its number becomes `groups` if the row
 * belongs to none. */
__device__ inline void
find_expert (const Biases &shape, uint64_t row, OfExpert *group)
{
  while (group->number < shape.groups && row >= group->end)
    {
      group->number++;
      if (group->number < shape.groups)
        group->end += rows_of_expert (shape, group->number);
    }
}

__device__ inline OfExpert
first_expert (const Biases &shape)
{
  return { 0, rows_of_expert (shape, 0) };
}

__device__ inline float
share_of (const Biases &shape, uint64_t row)
{
  return shape.probs.at != NULL ? read_one (shape.probs, row) : 1.0f;
}

__global__ void
add_expert_bias (Biases shape, Array out)
{
  OfExpert group = first_expert (shape);

  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    {
      find_expert (shape, row, &group);
      if (group.number >= shape.groups)
        return;
      float share = share_of (shape, row);

      for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
        {
          unsigned n = piece_of (col, shape.cols);
          Words before = fetch (out, row * shape.cols + col, n);
          Piece bias = read (shape.bias, group.number * shape.cols + col, n);
          Piece sum = widen (out, before);

          for (unsigned i = 0; i < PIECE; i++)
            sum.at[i] += share * bias.at[i];
          write (out, row * shape.cols + col, n, sum);
        }
    }
}

/* An item is one strip of columns of one expert. */
__global__ void
__launch_bounds__ (COLUMN_THREADS) expert_bias_bwd (Biases shape, Columns of, Array dout)
{
  uint64_t strips = (pieces_of (shape.cols) + of.strip - 1) / of.strip;

  for (uint64_t item = blockIdx.x; item < shape.groups * strips; item += gridDim.x)
    {
      uint64_t group = item / strips, piece = item % strips * of.strip, row = 0, end;
      uint64_t col = (piece + threadIdx.x % of.strip) * PIECE;
      unsigned n = col < shape.cols ? piece_of (col, shape.cols) : 0;
      Piece sum = {};

      for (uint64_t before = 0; before < group; before++)
        row += rows_of_expert (shape, before);
      end = row + rows_of_expert (shape, group);
      for (row += threadIdx.x / of.strip; row < end && n > 0; row += COLUMN_THREADS / of.strip)
        {
          Piece term = read (dout, row * shape.cols + col, n);
          float share = share_of (shape, row);

          for (unsigned i = 0; i < PIECE; i++)
            sum.at[i] += share * term.at[i];
        }
      float total = sum_down (sum, of.strip);
      uint64_t at = piece * PIECE + threadIdx.x;
      if (threadIdx.x < of.strip * PIECE && at < shape.cols)
        write_one (of.first, group * shape.cols + at, total);
    }
}

__global__ void
expert_share_bwd (Biases shape, Array dprobs, Array dout)
{
  OfExpert group = first_expert (shape);

  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    {
      float sum = 0;

      find_expert (shape, row, &group);
      for (uint64_t col = first_col (); group.number < shape.groups && col < shape.cols;
           col += col_stride ())
        {
          unsigned n = piece_of (col, shape.cols);
          Words douts = fetch (dout, row * shape.cols + col, n);
          Piece bias = read (shape.bias, group.number * shape.cols + col, n);
          Piece d = widen (dout, douts);

          for (unsigned i = 0; i < PIECE; i++)
            if (i < n)
              sum += d.at[i] * bias.at[i];
        }
      sum = block_sum (sum);
      if (threadIdx.x == 0)
        write_one (dprobs, row, sum);
    }
}

/* --- sinks -------------------------------------------------------------------------------- */

struct Sink
{
  uint64_t rows, seq, heads, dim;
  Array out, sinks;
  float *lse;
};

/* Where the log of the sum of exponentials of a row's head lies: sequence by sequence, in each of
 * them head by head. */
__device__ inline uint64_t
place_of_lse (const Sink &shape, uint64_t row, uint64_t head)
{
  return (row / shape.seq * shape.heads + head) * shape.seq + row % shape.seq;
}

__global__ void
__launch_bounds__ (THREADS) sink (Sink shape)
{
  for (uint64_t item = blockIdx.x; item < shape.rows * shape.heads; item += gridDim.x)
    {
      uint64_t head = item % shape.heads, at = place_of_lse (shape, item / shape.heads, head);
      float of_tokens = shape.lse[at], of_sink = read_one (shape.sinks, head);
      float high = fmaxf (of_tokens, of_sink), low = fminf (of_tokens, of_sink);
      float joined = high + log1pf (expf (low - high));
      float share = expf (of_tokens - joined);

      for (uint64_t d = item * shape.dim + threadIdx.x; d < (item + 1) * shape.dim; d += blockDim.x)
        write_one (shape.out, d, share * read_one (shape.out, d));
      __syncthreads (); /* all have read lse */
      if (threadIdx.x == 0)
        shape.lse[at] = joined;
    }
}

__global__ void
__launch_bounds__ (THREADS) sink_bwd (Sink shape, Array dsinks, Array dout)
{
  for (uint64_t head = blockIdx.x; head < shape.heads; head += gridDim.x)
    {
      float score = read_one (shape.sinks, head), sum = 0;

      for (uint64_t row = threadIdx.x; row < shape.rows; row += blockDim.x)
        {
          uint64_t at = (row * shape.heads + head) * shape.dim;
          float product = 0;

          for (uint64_t d = 0; d < shape.dim; d += PIECE)
            {
              unsigned n = piece_of (d, shape.dim);
              Words outs = fetch (shape.out, at + d, n), douts = fetch (dout, at + d, n);
              Piece a = widen (shape.out, outs), b = widen (dout, douts);

              for (unsigned i = 0; i < PIECE; i++)
                if (i < n)
                  product += a.at[i] * b.at[i];
            }
          sum -= expf (score - shape.lse[place_of_lse (shape, row, head)]) * product;
        }
      sum = block_sum (sum);
      if (threadIdx.x == 0)
        write_one (dsinks, head, sum);
    }
}

/* --- launchers ---------------------------------------------------------------------------- */

Biases
biases_of (Operands *operands, int bias, int counts, int probs)
{
  const uint64_t cols = operands->dim (1);

  return { operands->dim (0),       cols,
           operands->dim (2),       operands->rows_of (bias, cols),
           operands->array (probs), operands->ints (counts) };
}

Sink
sink_of (Operands *operands, int out, int lse, int sinks)
{
  const uint64_t dim = operands->dim (3);

  return {
    operands->dim (0) * operands->dim (1), operands->dim (1),       operands->dim (2),     dim,
    operands->rows_of (out, dim),          operands->array (sinks), operands->floats (lse)
  };
}

}

extern "C" int
exec_cuda_add_expert_bias (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Biases shape = biases_of (&operands, PLAN_REF_ADD_EXPERT_BIAS_bias,
                            PLAN_REF_ADD_EXPERT_BIAS_counts, PLAN_REF_ADD_EXPERT_BIAS_probs);
  Array out = operands.rows_of (PLAN_REF_ADD_EXPERT_BIAS_out, shape.cols);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (add_expert_bias, shape_of_matrix (shape.rows, pieces_of (shape.cols)),
                           stream, shape, out);
}

extern "C" int
exec_cuda_add_expert_bias_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Biases shape
      = biases_of (&operands, PLAN_REF_ADD_EXPERT_BIAS_BWD_bias,
                   PLAN_REF_ADD_EXPERT_BIAS_BWD_counts, PLAN_REF_ADD_EXPERT_BIAS_BWD_probs);
  Array dbias = operands.array (PLAN_REF_ADD_EXPERT_BIAS_BWD_dbias);
  Array dout = operands.rows_of (PLAN_REF_ADD_EXPERT_BIAS_BWD_dout, shape.cols);
  Array dprobs = operands.array (PLAN_REF_ADD_EXPERT_BIAS_BWD_dprobs);
  Columns columns = columns_of (shape.rows, shape.cols, dbias, {});
  uint64_t strips = (pieces_of (shape.cols) + columns.strip - 1) / columns.strip;

  if (operands.code != 0)
    return operands.code;
  int code
      = EXEC_CUDA_LAUNCH (expert_bias_bwd, shape_of_blocks (shape.groups * strips, COLUMN_THREADS),
                          stream, shape, columns, dout);
  if (code != 0 || dprobs.at == NULL)
    return code;
  return EXEC_CUDA_LAUNCH (expert_share_bwd, shape_of_rows (shape.rows, shape.cols), stream, shape,
                           dprobs, dout);
}

extern "C" int
exec_cuda_attention_sink (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Sink shape = sink_of (&operands, PLAN_REF_ATTENTION_SINK_out, PLAN_REF_ATTENTION_SINK_lse,
                        PLAN_REF_ATTENTION_SINK_sinks);
  unsigned threads = (unsigned)at_most ((shape.dim + WARP - 1) / WARP * WARP, THREADS);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (sink, shape_of_blocks (shape.rows * shape.heads, threads), stream,
                           shape);
}

extern "C" int
exec_cuda_attention_sink_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Sink shape = sink_of (&operands, PLAN_REF_ATTENTION_SINK_BWD_out, PLAN_REF_ATTENTION_SINK_BWD_lse,
                        PLAN_REF_ATTENTION_SINK_BWD_sinks);
  Array dsinks = operands.array (PLAN_REF_ATTENTION_SINK_BWD_dsinks);
  Array dout = operands.rows_of (PLAN_REF_ATTENTION_SINK_BWD_dout, shape.dim);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (sink_bwd, shape_of_blocks (shape.heads, THREADS), stream, shape, dsinks,
                           dout);
}
