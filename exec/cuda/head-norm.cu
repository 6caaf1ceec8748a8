/* SPDX-License-Identifier: Apache-2.0 */
/* Root-mean-square norm of every head of q and k, v being copied, and its gradients.
 *
 * Launch shape   heads: as many lanes of a warp per head as it has pieces of 8 elements, up to 32,
 *                256 threads a block, at most 2048 blocks. dq, dk: sums of columns as in norm.cu,
 *                a block of 512 threads per 8 elements of a head.
 * Per call       s: bytes per element, of each operand's own format; n = rows (heads + 2 kv_heads)
 *                head_dim, h = rows (heads + kv_heads)
 *   op              bytes                       FLOPs
 *   head_norm       n (s + s) + 4 h             4 h head_dim
 *   head_norm_bwd   n (s + 2 s) + 8 h, and      11 h head_dim
 *                   2 s h head_dim
 * Checked with   exec_cpu_head_norm and exec_cpu_head_norm_bwd of exec/kernels-cpu-norm.c, by
 *                tests/fake and tests/gpu. Sums are in another order, which depends on the dims
 *                alone. With u = 2^-24: sums over a head are off by at most (head_dim / 8 + 32) u,
 *                those over heads by (rows heads + 32) u, of the sum of their terms' magnitudes. v
 *                is moved. */
#include "exec/cuda/reduce.cuh"

namespace
{

struct HeadNorm
{
  uint64_t rows, heads, kv_heads, dim, width; /* `width` of a row */
  unsigned lanes;                             /* of a head */
  float eps;
};

HeadNorm
head_norm_of (const Operands &operands)
{
  HeadNorm shape;

  shape.rows = operands.dim (0);
  shape.heads = operands.dim (1);
  shape.kv_heads = operands.dim (2);
  shape.dim = operands.dim (3);
  shape.width = (shape.heads + 2 * shape.kv_heads) * shape.dim;
  shape.eps = (float)operands.args->constants->norm_eps;
  for (shape.lanes = 1; shape.lanes < WARP && shape.lanes < pieces_of (shape.dim);)
    shape.lanes *= 2;
  return shape;
}

Shape
shape_of_heads (const HeadNorm &shape)
{
  return shape_of_items (shape.rows * (shape.heads + 2 * shape.kv_heads) * shape.lanes);
}

/* One head of one row, as a few lanes see it. */
struct RowHead
{
  uint64_t row, head, at; /* at: its first element */
  bool is_there, is_key, is_value;
};

__device__ inline RowHead
row_head_of (const HeadNorm &shape, uint64_t item)
{
  uint64_t all = shape.heads + 2 * shape.kv_heads;
  RowHead head;

  head.row = item / all;
  head.head = item % all;
  head.at = head.row * shape.width + head.head * shape.dim;
  head.is_there = head.row < shape.rows;
  head.is_value = head.head >= shape.heads + shape.kv_heads;
  head.is_key = !head.is_value && head.head >= shape.heads;
  return head;
}

__device__ inline float
lanes_sum (float value, unsigned lanes)
{
  for (unsigned distance = lanes / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync (0xffffffffu, value, distance);
  return value;
}

__device__ inline uint64_t
rstd_at (const HeadNorm &shape, const RowHead &head)
{
  return head.row * (shape.heads + shape.kv_heads) + head.head;
}

/* As a copy, not as a reference to what the launch was given: that would be put in local memory. */
__device__ inline Array
weight_of (const RowHead &head, const Array &q, const Array &k)
{
  return { head.is_key ? k.at : q.at, head.is_key ? k.is_half : q.is_half,
           head.is_key ? k.is_fp16 : q.is_fp16, head.is_key ? k.is_wide : q.is_wide };
}

/* Every lane of a warp goes through as many rounds as the others: they sum together. */
__global__ void
head_norm (HeadNorm shape, Array out, float *rstd, Array in, Array q, Array k)
{
  uint64_t all = shape.rows * (shape.heads + 2 * shape.kv_heads);
  uint64_t lane = threadIdx.x % shape.lanes * PIECE, stride = shape.lanes * PIECE;

  for (uint64_t item = first_x () / shape.lanes; item - threadIdx.x % WARP / shape.lanes < all;
       item += stride_x () / shape.lanes)
    {
      RowHead head = row_head_of (shape, item);
      Array weight = weight_of (head, q, k);
      float squares = 0;

      for (uint64_t d = lane; d < shape.dim && head.is_there; d += stride)
        {
          Piece x = read (in, head.at + d, piece_of (d, shape.dim));

          for (unsigned i = 0; i < PIECE; i++)
            squares += x.at[i] * x.at[i];
        }
      float scale = 1.0f / sqrtf (lanes_sum (squares, shape.lanes) / (float)shape.dim + shape.eps);
      if (lane == 0 && head.is_there && !head.is_value)
        rstd[rstd_at (shape, head)] = scale;
      for (uint64_t d = lane; d < shape.dim && head.is_there; d += stride)
        {
          unsigned n = piece_of (d, shape.dim);
          Piece x = read (in, head.at + d, n), w = read (weight, d, n);

          for (unsigned i = 0; i < PIECE; i++)
            x.at[i] = head.is_value ? x.at[i] : x.at[i] * scale * w.at[i];
          write (out, head.at + d, n, x);
        }
    }
}

/* din = rstd * (scaled - normal * mean (scaled * normal)), scaled = dout * weight. */
__global__ void
head_norm_bwd (HeadNorm shape, Array din, Array dout, Array in, Array q, Array k, const float *rstd)
{
  uint64_t all = shape.rows * (shape.heads + 2 * shape.kv_heads);
  uint64_t lane = threadIdx.x % shape.lanes * PIECE, stride = shape.lanes * PIECE;

  for (uint64_t item = first_x () / shape.lanes; item - threadIdx.x % WARP / shape.lanes < all;
       item += stride_x () / shape.lanes)
    {
      RowHead head = row_head_of (shape, item);
      Array weight = weight_of (head, q, k);
      float scale = head.is_there && !head.is_value ? rstd[rstd_at (shape, head)] : 0.0f;
      float sum = 0, mean = 0;

      for (unsigned pass = 0; pass < 2; pass++)
        {
          for (uint64_t d = lane; d < shape.dim && head.is_there; d += stride)
            {
              unsigned n = piece_of (d, shape.dim);
              Words douts = fetch (dout, head.at + d, n), ins = fetch (in, head.at + d, n);
              Piece g = widen (dout, douts), x = widen (in, ins);
              Piece w = read (weight, d, n);

              for (unsigned i = 0; i < PIECE; i++)
                {
                  float normal = x.at[i] * scale, scaled = g.at[i] * w.at[i];

                  sum += scaled * normal;
                  g.at[i] = head.is_value ? g.at[i] : scale * (scaled - normal * mean);
                }
              if (pass == 1)
                write (din, head.at + d, n, g);
            }
          if (pass == 0)
            mean = lanes_sum (sum, shape.lanes) / (float)shape.dim;
        }
    }
}

/* The gradient of q's or k's weight: of every row `count` heads from `first` on are a row each. */
struct HeadTerm
{
  HeadNorm shape;
  uint64_t first, count;
  Array dout, in;
  const float *rstd;

  struct Row
  {
    Words dout, in;
    float scale;
  };

  __device__ Row
  fetch (uint64_t row, uint64_t col, unsigned n) const
  {
    uint64_t head = first + row % count, at;

    row /= count;
    at = row * shape.width + head * shape.dim + col;
    return { ::fetch (dout, at, n), ::fetch (in, at, n),
             rstd[row * (shape.heads + shape.kv_heads) + head] };
  }

  __device__ void
  add (const Row &row, Piece *sum, Piece *) const
  {
    Piece g = widen (dout, row.dout), x = widen (in, row.in);

    for (unsigned i = 0; i < PIECE; i++)
      sum->at[i] += g.at[i] * (x.at[i] * row.scale);
  }
};

int
launch_head_term (const HeadTerm &term, Array out, void *stream)
{
  Columns sums = columns_of (term.shape.rows * term.count, term.shape.dim, out, Array{});

  return EXEC_CUDA_LAUNCH (columns, shape_of_columns (sums), stream, sums, term);
}

}

extern "C" int
exec_cuda_head_norm (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  HeadNorm shape = head_norm_of (operands);
  Array out = operands.rows_of (0, shape.dim), in = operands.rows_of (2, shape.dim);
  Array q = operands.rows_of (3, shape.dim), k = operands.rows_of (4, shape.dim);
  float *rstd = operands.floats (1);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (head_norm, shape_of_heads (shape), stream, shape, out, rstd, in, q, k);
}

extern "C" int
exec_cuda_head_norm_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  HeadNorm shape = head_norm_of (operands);
  Array din = operands.rows_of (0, shape.dim), dq = operands.rows_of (1, shape.dim);
  Array dk = operands.rows_of (2, shape.dim), dout = operands.rows_of (3, shape.dim);
  Array in = operands.rows_of (4, shape.dim), q = operands.rows_of (5, shape.dim);
  Array k = operands.rows_of (6, shape.dim);
  const float *rstd = operands.floats (7);
  HeadTerm q_term = { shape, 0, shape.heads, dout, in, rstd };
  HeadTerm k_term = { shape, shape.heads, shape.kv_heads, dout, in, rstd };
  int code = operands.code;

  /* First the sums: din may lie where dout is. */
  if (code == 0)
    code = launch_head_term (q_term, dq, stream);
  if (code == 0)
    code = launch_head_term (k_term, dk, stream);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (head_norm_bwd, shape_of_heads (shape), stream, shape, din, dout, in, q,
                             k, rstd);
  return code;
}
