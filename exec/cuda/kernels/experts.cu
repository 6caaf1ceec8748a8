/* SPDX-License-Identifier: Apache-2.0 */
/* Experts: rows sorted by expert and back, activations times the experts' shares. The router is in
 * router.cu, the products of experts are exec/cuda/gemm-grouped.c's.
 *
 * Launch shape   permute, unpermute, expert_activate, scale_rows: pieces of 8 columns along x in
 *                blocks of whole warps up to 256 threads, rows of the result along y.
 *                expert_activate_bwd, scale_rows_bwd, gate, gate_bwd: a block per row, 256 threads
 *                at most.
 * Per call       s: bytes per element, of each operand's own format
 *   op                   bytes                               FLOPs
 *   permute              out_rows cols (s + s)               -
 *   unpermute            in_rows cols s + rows cols s        in_rows cols
 *   expert_activate      rows cols (s + s), gated (s + 2 s)  up to 20 rows cols, one of them
 *   expert_activate_bwd  rows cols (2 s + s + 2 s), gated    e^x
 *   scale_rows           rows cols (s + s)                   rows cols
 *   scale_rows_bwd       rows cols (2 s + s)                 3 rows cols
 *   gate                 rows cols (s + s)                   rows cols
 *   gate_bwd             rows cols (2 s + s)                 3 rows cols
 * Checked with   exec/cpu/kernels-cpu-experts.c and kernels-cpu-activation.c, by tests/fake and
 *                tests/gpu. Rows are added up in the same order: permute, unpermute and scale_rows
 *                are equal bit for bit. Sums over a row are made in another order, and e^x is
 *                the device's. */
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/reduce.cuh"
#include "exec/cuda/kernels/row-map.cuh"

namespace
{

/* --- sorting rows ------------------------------------------------------------------------- */

/* The first three dims of permute and of unpermute. */
struct Move
{
  uint64_t rows, sorted, cols;
};

__global__ void
permute (Move shape, Array out, Array in, int32_t *map, Array row_probs, Array probs)
{
  RowMap by = row_map_of (map, shape.sorted);

  for (uint64_t row = blockIdx.y; row < shape.sorted; row += gridDim.y)
    {
      int32_t source = by.source[row];
      uint64_t from = source >= 0 ? (uint64_t)source / by.columns : 0;

      for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
        {
          unsigned n = piece_of (col, shape.cols);

          write (out, row * shape.cols + col, n,
                 source >= 0 ? read (in, from * shape.cols + col, n) : Piece{});
        }
      if (row_probs.at != NULL && first_x () == 0)
        write_one (row_probs, row, source >= 0 ? read_one (probs, (uint64_t)source) : 0.0f);
    }
}

/* Adds up, in the order of experts, the sorted rows that came from one row. */
__global__ void
unpermute (Move shape, Array out, Array in, int32_t *map)
{
  RowMap by = row_map_of (map, shape.sorted);

  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, shape.cols);
        Piece sum = {};

        for (uint64_t k = 0; k < by.slots; k++)
          {
            int32_t place = by.place[row * by.slots + k];

            if (place < 0)
              continue;
            Piece term = read (in, (uint64_t)place * shape.cols + col, n);
            for (unsigned i = 0; i < PIECE; i++)
              sum.at[i] += term.at[i];
          }
        write (out, row * shape.cols + col, n, sum);
      }
}

/* The gradients of routing weights are 0 but for those of rows that were sorted. */
__global__ void
clear_shares (Move shape, int32_t *map, Array dprobs)
{
  for (uint64_t i = first_x (); i < shape.rows * (uint64_t)map[EXEC_ROW_MAP_COLUMNS];
       i += stride_x ())
    write_one (dprobs, i, 0);
}

__global__ void
gather_shares (Move shape, int32_t *map, Array dprobs, Array row_dprobs)
{
  RowMap by = row_map_of (map, shape.sorted);

  for (uint64_t row = first_x (); row < shape.sorted; row += stride_x ())
    if (by.source[row] >= 0)
      write_one (dprobs, (uint64_t)by.source[row], read_one (row_dprobs, row));
}

Move
move_of (const Operands &operands)
{
  return { operands.dim (0), operands.dim (1), operands.dim (2) };
}

/* --- rows times shares -------------------------------------------------------------------- */

__global__ void
scale_rows (uint64_t rows, uint64_t cols, Array out, Array in, Array probs)
{
  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    {
      float share = read_one (probs, row);

      for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
        {
          unsigned n = piece_of (col, cols);
          Piece value = read (in, row * cols + col, n);

          for (unsigned i = 0; i < PIECE; i++)
            value.at[i] *= share;
          write (out, row * cols + col, n, value);
        }
    }
}

struct RowGrads
{
  Array din, dscore, dout, in, score;
};

/* Writes the gradient of a row that was multiplied by `scale`, and returns that of the scale. */
__device__ inline float
unscale_row (const RowGrads &of, uint64_t row, uint64_t cols, float scale)
{
  float sum = 0;

  for (uint64_t col = first_col (); col < cols; col += col_stride ())
    {
      unsigned n = piece_of (col, cols);
      Piece in = read (of.in, row * cols + col, n);
      Piece dout = read (of.dout, row * cols + col, n);

      for (unsigned i = 0; i < PIECE; i++)
        {
          if (i < n)
            sum += dout.at[i] * in.at[i];
          dout.at[i] *= scale;
        }
      write (of.din, row * cols + col, n, dout);
    }
  return block_sum (sum);
}

__global__ void
scale_rows_bwd (uint64_t rows, uint64_t cols, RowGrads of)
{
  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      float sum = unscale_row (of, row, cols, read_one (of.score, row));

      if (threadIdx.x == 0)
        write_one (of.dscore, row, sum);
    }
}

/* --- activations times shares ------------------------------------------------------------- */

template <PlanActivation kind>
__global__ void
expert_activate (Activation shape, Array out, Array in, Array probs)
{
  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, shape.cols);
        uint64_t at = row * shape.width + col;
        Words gates = fetch (in, at, n), ups = {};
        Piece gate, up, value;
        float share = read_one (probs, row);

        if (shape.is_gated)
          ups = fetch (in, at + shape.cols, n);
        gate = widen (in, gates);
        up = widen (in, ups);
        for (unsigned i = 0; i < PIECE; i++)
          value.at[i] = point_of<kind> (bound_gate (shape, gate.at[i])).value
                        * factor_of (shape, up.at[i]) * share;
        write (out, row * shape.cols + col, n, value);
      }
}

struct ExpertGrads
{
  Array din, dprobs, dout, in, probs;
};

template <PlanActivation kind>
__global__ void
expert_activate_bwd (Activation shape, ExpertGrads of)
{
  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    {
      float share = read_one (of.probs, row), sum = 0;

      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          unsigned n = piece_of (col, shape.cols);
          uint64_t at = row * shape.width + col;
          Words gates = fetch (of.in, at, n), ups = {};
          Words douts = fetch (of.dout, row * shape.cols + col, n);
          Piece gate, up, d, dgate, dup;

          if (shape.is_gated)
            ups = fetch (of.in, at + shape.cols, n);
          gate = widen (of.in, gates);
          up = widen (of.in, ups);
          d = widen (of.dout, douts);
          for (unsigned i = 0; i < PIECE; i++)
            {
              Point point = point_of<kind> (bound_gate (shape, gate.at[i]));
              float factor = factor_of (shape, up.at[i]), dact = d.at[i] * share;

              if (i < n)
                sum += d.at[i] * point.value * factor;
              dup.at[i] = point.value * dact;
              dgate.at[i] = point.slope * (dact * factor);
              stop_beyond (shape, gate.at[i], up.at[i], &dgate.at[i], &dup.at[i]);
            }
          write (of.din, at, n, dgate);
          if (shape.is_gated)
            write (of.din, at + shape.cols, n, dup);
        }
      sum = block_sum (sum);
      if (threadIdx.x == 0)
        write_one (of.dprobs, row, sum);
    }
}

/* --- the gate of shared experts ----------------------------------------------------------- */

/* Rows are multiplied by the sigmoid as it is rounded. */
__global__ void
gate (uint64_t rows, uint64_t cols, Array out, Array score, Array in)
{
  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      float scale = sigmoid (read_one (score, row));

      __syncthreads ();
      if (threadIdx.x == 0)
        write_one (score, row, scale);
      __syncthreads ();
      scale = read_one (score, row);
      for (uint64_t col = first_col (); col < cols; col += col_stride ())
        {
          unsigned n = piece_of (col, cols);
          Piece value = read (in, row * cols + col, n);

          for (unsigned i = 0; i < PIECE; i++)
            value.at[i] *= scale;
          write (out, row * cols + col, n, value);
        }
    }
}

__global__ void
gate_bwd (uint64_t rows, uint64_t cols, RowGrads of)
{
  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      float scale = read_one (of.score, row), sum = unscale_row (of, row, cols, scale);

      if (threadIdx.x == 0)
        write_one (of.dscore, row, sum * scale * (1.0f - scale));
    }
}

}

extern "C" int
exec_cuda_permute (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Move shape = move_of (operands);
  Array out = operands.rows_of (PLAN_REF_PERMUTE_out, shape.cols);
  Array in = operands.rows_of (PLAN_REF_PERMUTE_in, shape.cols);
  int32_t *map = operands.ints (PLAN_REF_PERMUTE_map);
  Array row_probs = operands.array (PLAN_REF_PERMUTE_row_probs);
  Array probs = operands.array (PLAN_REF_PERMUTE_probs);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (permute, shape_of_matrix (shape.sorted, pieces_of (shape.cols)), stream,
                           shape, out, in, map, row_probs, probs);
}

extern "C" int
exec_cuda_unpermute (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Move shape = move_of (operands);
  Array out = operands.rows_of (PLAN_REF_UNPERMUTE_out, shape.cols);
  Array in = operands.rows_of (PLAN_REF_UNPERMUTE_in, shape.cols);
  int32_t *map = operands.ints (PLAN_REF_UNPERMUTE_map);
  Array dprobs = operands.array (PLAN_REF_UNPERMUTE_dprobs);
  Array row_dprobs = operands.array (PLAN_REF_UNPERMUTE_row_dprobs);

  if (operands.code != 0)
    return operands.code;
  int code = EXEC_CUDA_LAUNCH (unpermute, shape_of_matrix (shape.rows, pieces_of (shape.cols)),
                               stream, shape, out, in, map);
  if (code != 0 || dprobs.at == NULL)
    return code;
  code = EXEC_CUDA_LAUNCH (clear_shares, shape_of_items (shape.rows * WARP), stream, shape, map,
                           dprobs);
  return code != 0 ? code
                   : EXEC_CUDA_LAUNCH (gather_shares, shape_of_items (shape.sorted), stream, shape,
                                       map, dprobs, row_dprobs);
}

extern "C" int
exec_cuda_scale_rows (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array out = operands.rows_of (PLAN_REF_SCALE_ROWS_out, cols);
  Array in = operands.rows_of (PLAN_REF_SCALE_ROWS_in, cols);
  Array probs = operands.array (PLAN_REF_SCALE_ROWS_probs);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (scale_rows, shape_of_matrix (rows, pieces_of (cols)), stream, rows, cols,
                           out, in, probs);
}

extern "C" int
exec_cuda_scale_rows_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const uint64_t rows = operands.dim (0), cols = operands.dim (1);
  RowGrads of = { operands.rows_of (PLAN_REF_SCALE_ROWS_BWD_din, cols),
                  operands.array (PLAN_REF_SCALE_ROWS_BWD_dprobs),
                  operands.rows_of (PLAN_REF_SCALE_ROWS_BWD_dout, cols),
                  operands.rows_of (PLAN_REF_SCALE_ROWS_BWD_in, cols),
                  operands.array (PLAN_REF_SCALE_ROWS_BWD_probs) };

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (scale_rows_bwd, shape_of_rows (rows, cols), stream, rows, cols, of);
}

extern "C" int
exec_cuda_expert_activate (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Activation shape = activation_of (operands);
  Array out = operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_out, shape.cols);
  Array in = operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_in, shape.cols);
  Array probs = operands.array (PLAN_REF_EXPERT_ACTIVATE_probs);
  Shape launch = shape_of_matrix (shape.rows, pieces_of (shape.cols));

  if (operands.code != 0)
    return operands.code;
  return launch_kind (shape.kind, [&] (auto kind) {
    return EXEC_CUDA_LAUNCH (expert_activate<decltype (kind)::value>, launch, stream, shape, out,
                             in, probs);
  });
}

extern "C" int
exec_cuda_expert_activate_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Activation shape = activation_of (operands);
  ExpertGrads of = { operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_BWD_din, shape.cols),
                     operands.array (PLAN_REF_EXPERT_ACTIVATE_BWD_dprobs),
                     operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_BWD_dout, shape.cols),
                     operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_BWD_in, shape.cols),
                     operands.array (PLAN_REF_EXPERT_ACTIVATE_BWD_probs) };
  Shape launch = shape_of_rows (shape.rows, shape.cols);

  if (operands.code != 0)
    return operands.code;
  return launch_kind (shape.kind, [&] (auto kind) {
    return EXEC_CUDA_LAUNCH (expert_activate_bwd<decltype (kind)::value>, launch, stream, shape,
                             of);
  });
}

extern "C" int
exec_cuda_gate (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array out = operands.rows_of (PLAN_REF_GATE_out, cols);
  Array score = operands.array (PLAN_REF_GATE_score);
  Array in = operands.rows_of (PLAN_REF_GATE_in, cols);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (gate, shape_of_rows (rows, cols), stream, rows, cols, out, score, in);
}

extern "C" int
exec_cuda_gate_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const uint64_t rows = operands.dim (0), cols = operands.dim (1);
  RowGrads of
      = { operands.rows_of (PLAN_REF_GATE_BWD_din, cols), operands.array (PLAN_REF_GATE_BWD_dscore),
          operands.rows_of (PLAN_REF_GATE_BWD_dout, cols),
          operands.rows_of (PLAN_REF_GATE_BWD_in, cols), operands.array (PLAN_REF_GATE_BWD_score) };

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (gate_bwd, shape_of_rows (rows, cols), stream, rows, cols, of);
}
