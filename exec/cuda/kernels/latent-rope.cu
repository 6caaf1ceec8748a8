/* SPDX-License-Identifier: Apache-2.0 */
/* The queries, keys and values of latent attention, made from the results of products, and their
 * gradients.
 *
 *   latent_rope      k, v from kv; q's last columns rotated in place; k's from the common part
 *   latent_rope_bwd  dkv from dk, dv; dq's last columns rotated back; the common part's gradient
 *                    is the sum over heads, rotated back; the latent vector's is 0
 *
 * Launch shape   copies: a thread per element. rotations: a block of 256 threads per row, of at
 *                most 256 pairs at a time; 2 KiB of shared memory. At most 2048 blocks each.
 * Per call       s: bytes per element; n = rows heads
 *   op               bytes                                         FLOPs
 *   latent_rope      n s (2 (nope + v_dim) + 3 rope), and          6 n rope
 *                    down's last columns from cache
 *   latent_rope_bwd  n s (2 (nope + v_dim) + 3 rope) and           4 n rope
 *                    rows s (rank + rope)
 * Checked with   exec_cpu_latent_rope and exec_cpu_latent_rope_bwd of exec/cpu/kernels-cpu-rope.c,
 *                by tests/fake and tests/gpu: sines and cosines to 2^-22, the rest to the bit. */
#include "exec/cuda/kernels/launch.cuh"
#include "exec/cuda/kernels/places.cuh"
#include "exec/cuda/kernels/layers.h"

namespace
{

/* One launch: the pairs from pair `first` on. */
struct LatentShape
{
  uint64_t rows, seq, heads, nope, rope, v_dim, rank, first;
  const int32_t *places; /* of rows in their documents; NULL: each sequence is one */
  unsigned pairs;
  Angles angles; /* of those pairs: a thread finds each */
};

struct LatentArrays
{
  Array q, k, v, kv, down; /* or their gradients */
};

/* The columns of keys without positions, and of values: out of kv, or back to it. */
template <bool back>
__global__ void
__launch_bounds__ (THREADS) latent_copy (LatentShape shape, LatentArrays at)
{
  uint64_t made = shape.nope + shape.v_dim, width = shape.nope + shape.rope;

  for (uint64_t item = first_x (); item < shape.rows * shape.heads * made; item += stride_x ())
    {
      uint64_t head = item / made, col = item % made;
      bool is_key = col < shape.nope;
      const Array side = is_key ? at.k : at.v;
      uint64_t there = is_key ? head * width + col : head * shape.v_dim + col - shape.nope;

      if (back)
        write_one (at.kv, item, read_one (side, there));
      else
        write_one (side, there, read_one (at.kv, item));
    }
}

/* Computes the sines and cosines of a row, in shared memory for the whole block. */
__device__ inline Rotations &
find_latent_rotations (const LatentShape &shape, uint64_t row)
{
  __shared__ Rotations rotations;

  __syncthreads (); /* those of the last row have been read */
  if (threadIdx.x < shape.pairs)
    {
      uint64_t place = shape.places != NULL ? (uint64_t)shape.places[row] : row % shape.seq;

      store_rotation (rotations, threadIdx.x, shape.angles, threadIdx.x, place);
    }
  __syncthreads ();
  return rotations;
}

/* Writes a rotated pair of neighbours. */
__device__ inline void
rotate_neighbours (const Rotations &rotations, unsigned pair, float a, float b, const Array &out,
                   uint64_t at)
{
  write_one (out, at, a * rotations.cosine[pair] - b * rotations.sine[pair]);
  write_one (out, at + 1, b * rotations.cosine[pair] + a * rotations.sine[pair]);
}

/* Rotates queries, or their gradients, of one row; each key head gets the common part. */
template <bool has_keys>
__device__ inline void
rotate_row (const LatentShape &shape, const LatentArrays &at, const Rotations &rotations,
            uint64_t row)
{
  uint64_t width = shape.nope + shape.rope;
  uint64_t common = row * (shape.rank + shape.rope) + shape.rank + 2 * shape.first;

  for (uint64_t i = threadIdx.x; i < shape.heads * shape.pairs; i += blockDim.x)
    {
      unsigned pair = (unsigned)(i % shape.pairs);
      uint64_t head = row * shape.heads + i / shape.pairs;
      uint64_t place = head * width + shape.nope + 2 * (shape.first + pair);
      float a = read_one (at.q, place), b = read_one (at.q, place + 1);

      rotate_neighbours (rotations, pair, a, b, at.q, place);
      if (has_keys)
        rotate_neighbours (rotations, pair, read_one (at.down, common + 2 * pair),
                           read_one (at.down, common + 2 * pair + 1), at.k, place);
    }
}

__global__ void
__launch_bounds__ (THREADS) latent_rotate (LatentShape shape, LatentArrays at)
{
  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    rotate_row<true> (shape, at, find_latent_rotations (shape, row), row);
}

__global__ void
__launch_bounds__ (THREADS) latent_rotate_bwd (LatentShape shape, LatentArrays at)
{
  uint64_t width = shape.nope + shape.rope;

  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    {
      const Rotations &rotations = find_latent_rotations (shape, row);
      uint64_t down = row * (shape.rank + shape.rope), pair = threadIdx.x;

      rotate_row<false> (shape, at, rotations, row);
      for (uint64_t col = threadIdx.x; col < shape.rank && shape.first == 0; col += blockDim.x)
        write_one (at.down, down + col, 0.0f);
      if (pair >= shape.pairs)
        continue;
      float sum[2] = {};
      for (uint64_t head = row * shape.heads; head < (row + 1) * shape.heads; head++)
        for (unsigned i = 0; i < 2; i++)
          sum[i] += read_one (at.k, head * width + shape.nope + 2 * (shape.first + pair) + i);
      rotate_neighbours (rotations, (unsigned)pair, sum[0], sum[1], at.down,
                         down + shape.rank + 2 * (shape.first + pair));
    }
}

LatentShape
latent_of (const Operands &operands)
{
  LatentShape shape = {};

  shape.rows = operands.dim (0);
  shape.seq = operands.dim (1);
  shape.heads = operands.dim (2);
  shape.nope = operands.dim (3);
  shape.rope = operands.dim (4);
  shape.v_dim = operands.dim (5);
  shape.rank = operands.dim (6);
  return shape;
}

/* Copies, and then rotates all pairs, some at a time. */
template <bool back>
int
launch_latent (const ExecArgs *args, Operands &operands, LatentArrays at, void *stream)
{
  int places = back ? (int)PLAN_REF_LATENT_ROPE_BWD_places : (int)PLAN_REF_LATENT_ROPE_places;
  LatentShape shape = latent_of (operands);
  uint64_t elements = shape.rows * shape.heads * (shape.nope + shape.v_dim);
  const PlanRope rope = exec_rope (args);
  Shape launch = shape_of_blocks (shape.rows, THREADS);

  shape.places = args->ptr[places] != NULL ? operands.ints (places) : NULL;
  int code = operands.code;
  if (code != 0)
    return code;
  shape.angles.magnitude = (float)plan_rope_magnitude (&rope);
  code = EXEC_CUDA_LAUNCH (latent_copy<back>, shape_of_items (elements), stream, shape, at);
  for (; code == 0 && shape.first < shape.rope / 2; shape.first += shape.pairs)
    {
      shape.pairs = (unsigned)at_most (shape.rope / 2 - shape.first, (unsigned)THREADS);
      for (unsigned i = 0; i < shape.pairs; i++)
        shape.angles.turns[i] = turns_of (
            (back ? -1 : 1) * plan_rope_frequency (&rope, shape.first + i, shape.rope, shape.seq));
      code = back ? EXEC_CUDA_LAUNCH (latent_rotate_bwd, launch, stream, shape, at)
                  : EXEC_CUDA_LAUNCH (latent_rotate, launch, stream, shape, at);
    }
  return code;
}

}

extern "C" int
exec_cuda_latent_rope (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  LatentArrays at
      = { operands.array (PLAN_REF_LATENT_ROPE_q), operands.array (PLAN_REF_LATENT_ROPE_k),
          operands.array (PLAN_REF_LATENT_ROPE_v), operands.array (PLAN_REF_LATENT_ROPE_kv),
          operands.array (PLAN_REF_LATENT_ROPE_down) };

  return launch_latent<false> (args, operands, at, stream);
}

extern "C" int
exec_cuda_latent_rope_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  LatentArrays at = { operands.array (PLAN_REF_LATENT_ROPE_BWD_dq),
                      operands.array (PLAN_REF_LATENT_ROPE_BWD_dk),
                      operands.array (PLAN_REF_LATENT_ROPE_BWD_dv),
                      operands.array (PLAN_REF_LATENT_ROPE_BWD_dkv),
                      operands.array (PLAN_REF_LATENT_ROPE_BWD_ddown) };

  return launch_latent<true> (args, operands, at, stream);
}
