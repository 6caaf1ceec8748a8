/* SPDX-License-Identifier: Apache-2.0 */
/* Root-mean-square norm of every head of q and k, and its gradients; v is copied.
 *
 * Heads of q may be of another size than those of k and v, which are all of one.
 *
 * Launch shape   as many lanes of a warp per head as the larger has pieces of 8 elements, up to 32.
 *                head_norm: the lanes of a row's heads along x in blocks of up to 256 threads, rows
 *                along y. head_norm_bwd: such a block per part of the rows, which it goes through
 *                and sums; 8 KiB of shared memory. Then the sums of the parts, as in norm-bwd.cu: a
 *                block of 512 threads per 8 elements of a head.
 * Per call       s: bytes per element, of each operand's own format; n = rows (heads q_dim +
 *                2 kv_heads k_dim), h = rows (heads + kv_heads), head_dim = q_dim or k_dim
 *   op              bytes                       FLOPs
 *   head_norm       n (s + s) + 4 h             4 h head_dim
 *   head_norm_bwd   n (s + 2 s) + 4 h, and      11 h head_dim
 *                   8 parts (q_dim + k_dim)     of at most 2048; heads of over 256 elements, or
 *                                               of two sizes, or without scratch, are read twice
 * Checked with   exec_cpu_head_norm and exec_cpu_head_norm_bwd of exec/cpu/kernels-cpu-norm.c, by
 *                tests/fake and tests/gpu. Sums are in another order, which depends on the dims
 *                alone. With u = 2^-24: sums over a head are off by at most (head_dim / 8 + 32) u,
 *                those over heads by (rows heads + 32) u, of the sum of their terms' magnitudes. */
#include "exec/cuda/kernels/parts.cuh"

namespace
{

/* The pieces of a head are shared out among its lanes. A row holds the heads of q, then k, then
 * v. */
struct HeadNorm
{
  uint64_t rows, q_dim, k_dim, width; /* width: elements of a row */
  unsigned heads, kv_heads;
  unsigned lanes, lane_bits; /* of a head: lanes = 2^lane_bits */
  float eps, plus;           /* plus: what is added to weights to give gains */
};

HeadNorm
head_norm_of (const Operands &operands)
{
  HeadNorm shape;

  shape.rows = operands.dim (0);
  shape.heads = (unsigned)operands.dim (1);
  shape.kv_heads = (unsigned)operands.dim (2);
  shape.q_dim = operands.dim (3);
  shape.k_dim = operands.dim (4);
  shape.width = operands.dim (1) * shape.q_dim + 2 * operands.dim (2) * shape.k_dim;
  shape.eps = (float)operands.args->constants->norm_eps;
  shape.plus = (float)exec_manner (operands.args, PLAN_MANNER_ONE_PLUS);
  uint64_t largest = shape.q_dim > shape.k_dim ? shape.q_dim : shape.k_dim;
  for (shape.lane_bits = 0;
       1u << shape.lane_bits < WARP && 1u << shape.lane_bits < pieces_of (largest);)
    shape.lane_bits++;
  shape.lanes = 1u << shape.lane_bits;
  return shape;
}

/* A number of elements that divides by the size of a piece if heads of either size do. */
inline uint64_t
common_dim (const HeadNorm &shape)
{
  return shape.q_dim % PIECE != 0 ? shape.q_dim : shape.k_dim;
}

/* Lanes for all heads of a row. */
__host__ __device__ inline unsigned
lanes_of_row (const HeadNorm &shape)
{
  return (shape.heads + 2 * shape.kv_heads) * shape.lanes;
}

/* The lanes of a row's heads along x, in whole warps; rows along y. */
inline Shape
shape_of_heads (const HeadNorm &shape)
{
  return shape_of_matrix (shape.rows, lanes_of_row (shape));
}

/* The first element of a head in its row. */
__host__ __device__ inline uint64_t
head_at (const HeadNorm &shape, uint64_t head)
{
  return head < shape.heads ? head * shape.q_dim
                            : shape.heads * shape.q_dim + (head - shape.heads) * shape.k_dim;
}

/* One head of one row, which a few lanes share. */
struct RowHead
{
  uint64_t row, at, dim; /* at: the head's first element */
  unsigned head;
  bool is_there, is_key, is_value;
};

__device__ inline RowHead
row_head_of (const HeadNorm &shape, uint64_t row, unsigned lane)
{
  RowHead head;

  head.row = row;
  head.head = lane >> shape.lane_bits;
  head.is_there = head.head < shape.heads + 2 * shape.kv_heads;
  head.is_value = head.head >= shape.heads + shape.kv_heads;
  head.is_key = !head.is_value && head.head >= shape.heads;
  head.dim = head.head < shape.heads ? shape.q_dim : shape.k_dim;
  head.at = row * shape.width + head_at (shape, head.head);
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

/* The weight of a head, as a copy: a reference to an argument of the kernel would put the arguments
 * in local memory. */
__device__ inline Array
weight_of (const RowHead &head, const Array &q, const Array &k)
{
  return { head.is_key ? k.at : q.at, head.is_key ? k.is_half : q.is_half,
           head.is_key ? k.is_fp16 : q.is_fp16, head.is_key ? k.is_wide : q.is_wide };
}

/* The factors of a piece of a head: the weights of its norm, or 1 where it has none. */
__device__ inline Piece
gains_at (const Array &weight, const Words &words, float plus)
{
  Piece gains = gains_of (widen (weight, words), plus);

  for (unsigned i = 0; i < PIECE && weight.at == NULL; i++)
    gains.at[i] = 1;
  return gains;
}

__device__ inline Words
fetch_weights (const Array &weight, uint64_t at, unsigned n)
{
  return weight.at == NULL ? Words{} : fetch (weight, at, n);
}

/* All lanes of a warp go through the same number of rounds, because they sum together. A lane keeps
 * its first piece of a head in registers. */
__global__ void
head_norm (HeadNorm shape, Array out, float *rstd, Array in, Array q, Array k)
{
  uint64_t first = threadIdx.x % shape.lanes * PIECE, stride = shape.lanes * PIECE;

  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    for (unsigned lane = (unsigned)first_x (); lane - threadIdx.x % WARP < lanes_of_row (shape);
         lane += (unsigned)stride_x ())
      {
        RowHead head = row_head_of (shape, row, lane);
        Array weight = weight_of (head, q, k);
        unsigned n = head.is_there && first < head.dim ? piece_of (first, head.dim) : 0;
        Words kept = fetch (in, head.at + first, n);
        float squares = 0;

        for (uint64_t d = first; d < head.dim && head.is_there; d += stride)
          {
            Piece x
                = d == first ? widen (in, kept) : read (in, head.at + d, piece_of (d, head.dim));

            for (unsigned i = 0; i < PIECE; i++)
              squares += x.at[i] * x.at[i];
          }
        float scale = 1.0f / sqrtf (lanes_sum (squares, shape.lanes) / (float)head.dim + shape.eps);
        if (first == 0 && head.is_there && !head.is_value)
          rstd[rstd_at (shape, head)] = scale;
        for (uint64_t d = first; d < head.dim && head.is_there; d += stride)
          {
            n = piece_of (d, head.dim);
            Piece x = d == first ? widen (in, kept) : read (in, head.at + d, n);
            Piece w = gains_at (weight, fetch_weights (weight, d, n), shape.plus);

            for (unsigned i = 0; i < PIECE; i++)
              x.at[i] = head.is_value ? x.at[i] : x.at[i] * scale * w.at[i];
            write (out, head.at + d, n, x);
          }
      }
}

/* --- gradients ---------------------------------------------------------------------------- */

template <bool plain> struct HeadNormBwd
{
  HeadNorm shape;
  Array din, dout, in, q, k;
  const float *rstd;
};

template <bool plain>
__device__ inline HeadNormBwd<plain>
known_norm (const HeadNormBwd<plain> &norm)
{
  return { norm.shape,
           known<plain> (norm.din),
           known<plain> (norm.dout),
           known<plain> (norm.in),
           known<plain> (norm.q),
           known<plain> (norm.k),
           norm.rstd };
}

/* Sums of dout * normal for a lane's piece, over heads and rows. */
struct HeadSums
{
  Piece q, k;
};

/* din = rstd * (scaled - normal * mean (scaled * normal)), scaled = dout * weight: for the one
 * piece of a head that a lane has, if it has one. */
template <bool plain>
__device__ inline void
head_norm_bwd_piece (const HeadNormBwd<plain> &norm, const RowHead &head, HeadSums *own)
{
  const HeadNorm &shape = norm.shape;
  uint64_t first = threadIdx.x % shape.lanes * PIECE;
  bool is_there = head.is_there && first < head.dim;
  unsigned n = !is_there ? 0 : plain ? (unsigned)PIECE : piece_of (first, head.dim);
  Array weight = weight_of (head, norm.q, norm.k);
  float scale = is_there && !head.is_value ? norm.rstd[rstd_at (shape, head)] : 0.0f;
  Words douts = {}, ins = {}, weights = {};
  float products = 0;

  if (is_there)
    {
      douts = fetch (norm.dout, head.at + first, n);
      ins = fetch (norm.in, head.at + first, n);
      weights = fetch_weights (weight, first, n);
    }
  Piece g = widen (norm.dout, douts), x = widen (norm.in, ins),
        w = gains_at (weight, weights, shape.plus);
  for (unsigned i = 0; i < PIECE; i++)
    products += g.at[i] * w.at[i] * (x.at[i] * scale);
  float mean = lanes_sum (products, shape.lanes) / (float)head.dim;
  for (unsigned i = 0; i < PIECE; i++)
    {
      float normal = x.at[i] * scale, term = g.at[i] * normal;

      own->q.at[i] += head.is_key || head.is_value ? 0.0f : term;
      own->k.at[i] += head.is_key ? term : 0.0f;
      g.at[i] = head.is_value ? g.at[i] : scale * (g.at[i] * w.at[i] - normal * mean);
    }
  if (is_there)
    write (norm.din, head.at + first, n, g);
}

/* Stores a part's sums over all threads of the block: an element of a head is in the threads that
 * have its piece. */
__device__ inline void
store_sums (const RowParts &parts, uint64_t part, unsigned sum, const Piece &piece, unsigned lanes)
{
  __shared__ float of_thread[PIECE][THREADS + 1]; /* one column more against bank conflicts */

  __syncthreads (); /* those of the last call have been read */
  for (unsigned i = 0; i < PIECE; i++)
    of_thread[i][threadIdx.x] = piece.at[i];
  __syncthreads ();
  for (unsigned col = threadIdx.x; col < parts.cols; col += blockDim.x)
    {
      float total = 0;

      for (unsigned at = col / PIECE; at < blockDim.x; at += lanes)
        total += of_thread[col % PIECE][at];
      write_one (parts.at, sum_place (parts, part, sum, col), total);
    }
}

/* A block goes through parts of the rows. */
template <bool plain>
__global__ void
__launch_bounds__ (THREADS, plain ? 4 : 3)
    head_norm_bwd_parts (HeadNormBwd<plain> given, RowParts parts)
{
  HeadNormBwd<plain> norm = known_norm (given);
  const HeadNorm &shape = norm.shape;

  for (uint64_t part = blockIdx.x; part < parts.count; part += gridDim.x)
    {
      uint64_t end = at_most ((part + 1) * parts.rows_each, shape.rows);
      HeadSums own = {};

      for (uint64_t row = part * parts.rows_each; row < end; row++)
        for (unsigned lane = threadIdx.x; lane - threadIdx.x % WARP < lanes_of_row (shape);
             lane += blockDim.x)
          head_norm_bwd_piece (norm, row_head_of (shape, row, lane), &own);
      store_sums (parts, part, 0, own.q, shape.lanes);
      store_sums (parts, part, 1, own.k, shape.lanes);
    }
}

/* The gradient for heads of any number of pieces, without the sums for the weights. */
__global__ void
head_norm_bwd (HeadNormBwd<false> norm)
{
  const HeadNorm &shape = norm.shape;
  uint64_t first = threadIdx.x % shape.lanes * PIECE, stride = shape.lanes * PIECE;

  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    for (unsigned lane = (unsigned)first_x (); lane - threadIdx.x % WARP < lanes_of_row (shape);
         lane += (unsigned)stride_x ())
      {
        RowHead head = row_head_of (shape, row, lane);
        Array weight = weight_of (head, norm.q, norm.k);
        float scale = head.is_there && !head.is_value ? norm.rstd[rstd_at (shape, head)] : 0.0f;
        float products = 0, mean = 0;

        for (unsigned pass = 0; pass < 2; pass++)
          {
            for (uint64_t d = first; d < head.dim && head.is_there; d += stride)
              {
                unsigned n = piece_of (d, head.dim);
                Words douts = fetch (norm.dout, head.at + d, n);
                Words ins = fetch (norm.in, head.at + d, n);
                Piece g = widen (norm.dout, douts), x = widen (norm.in, ins);
                Piece w = gains_at (weight, fetch_weights (weight, d, n), shape.plus);

                for (unsigned i = 0; i < PIECE; i++)
                  {
                    float normal = x.at[i] * scale, scaled = g.at[i] * w.at[i];

                    products += scaled * normal;
                    g.at[i] = head.is_value ? g.at[i] : scale * (scaled - normal * mean);
                  }
                if (pass == 1)
                  write (norm.din, head.at + d, n, g);
              }
            if (pass == 0)
              mean = lanes_sum (products, shape.lanes) / (float)head.dim;
          }
      }
}

/* A term of the gradient of q's or k's weight alone, for `columns`: of each row, the `count` heads
 * from `first` on count as a row each. */
struct HeadTerm
{
  HeadNormBwd<false> norm;
  uint64_t first, count, dim;

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
    at = row * norm.shape.width + head_at (norm.shape, head) + col;
    return { ::fetch (norm.dout, at, n), ::fetch (norm.in, at, n),
             norm.rstd[row * (norm.shape.heads + norm.shape.kv_heads) + head] };
  }

  __device__ void
  add (const Row &row, Piece *sum, Piece *) const
  {
    Piece g = widen (norm.dout, row.dout), x = widen (norm.in, row.in);

    for (unsigned i = 0; i < PIECE; i++)
      sum->at[i] += g.at[i] * (x.at[i] * row.scale);
  }
};

int
launch_head_term (const HeadTerm &term, Array out, void *stream)
{
  Columns sums = columns_of (term.norm.shape.rows * term.count, term.dim, out, Array{});

  return EXEC_CUDA_LAUNCH (columns, shape_of_columns (sums), stream, sums, term);
}

/* The sums for the weights come first, because din may overwrite dout. */
int
launch_apart (const HeadNormBwd<false> &norm, Array dq, Array dk, void *stream)
{
  int code = launch_head_term ({ norm, 0, norm.shape.heads, norm.shape.q_dim }, dq, stream);

  if (code == 0)
    code = launch_head_term ({ norm, norm.shape.heads, norm.shape.kv_heads, norm.shape.k_dim }, dk,
                             stream);
  if (code != 0)
    return code;
  return EXEC_CUDA_LAUNCH (head_norm_bwd, shape_of_heads (norm.shape), stream, norm);
}

}

extern "C" int
exec_cuda_head_norm (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  HeadNorm shape = head_norm_of (operands);
  Array out = operands.rows_of (0, common_dim (shape)),
        in = operands.rows_of (2, common_dim (shape));
  Array q = operands.rows_of (3, shape.q_dim), k = operands.rows_of (4, shape.k_dim);
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
  uint64_t dim = common_dim (shape);
  Array din = operands.rows_of (0, dim), dq = operands.rows_of (1, shape.q_dim);
  Array dk = operands.rows_of (2, shape.k_dim), dout = operands.rows_of (3, dim);
  Array in = operands.rows_of (4, dim), q = operands.rows_of (5, shape.q_dim);
  Array k = operands.rows_of (6, shape.k_dim);
  HeadNormBwd<false> norm = { shape, din, dout, in, q, k, operands.floats (7) };
  HeadNormBwd<true> plain = { shape, din, dout, in, q, k, norm.rstd };
  RowParts parts = parts_of (operands, 8, shape.rows, shape.q_dim);
  unsigned lanes = (unsigned)at_most (lanes_of_row (shape), THREADS);
  Shape launch = shape_of_blocks (parts.count, (lanes + WARP - 1) / WARP * WARP);
  int code = operands.code;

  if (code != 0)
    return code;
  if (dq.at == NULL) /* without weights: no sums over rows */
    return EXEC_CUDA_LAUNCH (head_norm_bwd, shape_of_heads (shape), stream, norm);
  if (parts.count == 0 || shape.q_dim != shape.k_dim || shape.q_dim > WARP * PIECE)
    return launch_apart (norm, dq, dk, stream);
  if (is_plain (din) && is_plain (dout) && is_plain (in) && is_plain (q) && is_plain (k))
    code = EXEC_CUDA_LAUNCH (head_norm_bwd_parts, launch, stream, plain, parts);
  else
    code = EXEC_CUDA_LAUNCH (head_norm_bwd_parts, launch, stream, norm, parts);
  return code != 0 ? code : launch_parts (parts, dq, dk, stream);
}
