/* SPDX-License-Identifier: Apache-2.0 */
/* Row maps: the permutation that sorts rows by expert. It is computed from the experts that the
 * router chose, or from the number of rows that each rank sent. Before, a capacity may drop rows.
 *
 * Launch shape   by routes: a block of 256 threads per expert, which goes through all rows twice,
 *                once to count its own and once to place them; then one block. By arrivals: a
 *                block per rank and expert. drop_tokens: a block per expert, which goes through
 *                all rows five times. At most 2048 blocks.
 * Per call       bytes: 2 rows experts, and rows topk experts / 2 to find the slots, mostly from
 *                cache; 4 entries twice. FLOPs: none
 *                drop_tokens: rows experts (6 s + 7), half of it from cache
 * Checked with   exec_cpu_row_map and exec_cpu_drop_tokens of exec/cpu/kernels-cpu-experts.c, by
 *                tests/fake and tests/gpu: equal bit for bit, since all of it is counting. */
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/row-map.cuh"

namespace
{

struct MapShape
{
  uint64_t rows, experts, ranks, entries, multiple; /* at which rows of an expert begin */
  uint64_t capacity; /* rows that each expert has of each rank; 0: as many as chose it */
};

__device__ inline uint64_t
round_up (const MapShape &shape, uint64_t rows)
{
  return (rows + shape.multiple - 1) / shape.multiple * shape.multiple;
}

/* Rows that an expert takes of this rank's: its own, and rows of zeros behind them. */
__device__ inline uint64_t
rows_taken (const MapShape &shape, uint64_t rows)
{
  return round_up (shape, shape.capacity > 0 ? shape.capacity : rows);
}

/* How many sorted rows a map has room for, if each row is copied to `slots` experts. */
__device__ inline uint64_t
sorted_of (const MapShape &shape, int32_t slots)
{
  return shape.entries - PLAN_ROW_MAP_HEAD - shape.rows * (uint64_t)slots - shape.experts;
}

__device__ inline int32_t *
counts_of (const MapShape &shape, int32_t *map)
{
  return map + shape.entries - shape.experts;
}

struct Scan
{
  unsigned before, all;
};

/* Sums over the threads before this one, and over all of them. */
__device__ inline Scan
block_scan (unsigned value)
{
  __shared__ unsigned of_warp[WARP];
  unsigned lane = threadIdx.x % WARP, sum = value;

  for (unsigned distance = 1; distance < WARP; distance *= 2)
    {
      unsigned other = __shfl_up_sync (0xffffffffu, sum, distance);

      sum += lane >= distance ? other : 0;
    }
  __syncthreads (); /* the last call's sums have been read */
  if (lane == WARP - 1)
    of_warp[threadIdx.x / WARP] = sum;
  __syncthreads ();
  Scan scan = { sum - value, 0 };
  for (unsigned warp = 0; warp < THREADS / WARP; warp++)
    {
      scan.before += warp < threadIdx.x / WARP ? of_warp[warp] : 0;
      scan.all += of_warp[warp];
    }
  return scan;
}

/* Counts the rows of each expert, also those that a rank has no room for, and writes the head. */
__global__ void
count_routes (MapShape shape, const uint8_t *routes, int32_t *map)
{
  int32_t *counts = counts_of (shape, map);

  for (uint64_t e = blockIdx.x; e < shape.experts; e += gridDim.x)
    {
      unsigned n = 0, dropped = 0;

      for (uint64_t row = threadIdx.x; row < shape.rows; row += THREADS)
        {
          n += routes[row * shape.experts + e] == EXEC_ROUTE_TAKEN;
          dropped += routes[row * shape.experts + e] == EXEC_ROUTE_DROPPED;
        }
      n = block_scan (n).all;
      if (threadIdx.x == 0)
        counts[e] = (int32_t)n;
      dropped = block_scan (dropped).all;
      if (threadIdx.x == 0 && dropped > 0)
        atomicAdd (&map[EXEC_ROW_MAP_DROPPED], (int32_t)dropped);
    }
  if (first_x () == 0)
    {
      int32_t slots = 0; /* the experts of a row, equally many for every row */

      for (uint64_t e = 0; e < shape.experts; e++)
        slots += routes[e] != 0;
      map[EXEC_ROW_MAP_SLOTS] = slots;
      map[EXEC_ROW_MAP_COLUMNS] = (int32_t)shape.experts;
      map[EXEC_ROW_MAP_MOST] = 0;
    }
}

/* Places an expert's rows behind those of the experts before it on the same rank. */
__global__ void
sort_routes (MapShape shape, const uint8_t *routes, int32_t *map)
{
  uint64_t sorted = sorted_of (shape, map[EXEC_ROW_MAP_SLOTS]);
  uint64_t each = shape.experts / shape.ranks, room = sorted / shape.ranks;
  const int32_t *counts = counts_of (shape, map);
  RowMap out = row_map_of (map, sorted);

  for (uint64_t e = blockIdx.x; e < shape.experts; e += gridDim.x)
    {
      uint64_t rank = e / each, n = 0;

      for (uint64_t other = rank * each; other < e; other++)
        n += rows_taken (shape, (uint64_t)counts[other]);
      for (uint64_t base = 0; base < shape.rows; base += THREADS)
        {
          uint64_t row = base + threadIdx.x;
          const uint8_t *of_row = routes + row * shape.experts;
          bool is_there = row < shape.rows && of_row[e] == EXEC_ROUTE_TAKEN;
          Scan scan = block_scan (is_there);
          uint64_t at = n + scan.before, slot = 0;

          for (uint64_t other = 0; other < e && is_there; other++)
            slot += of_row[other] == EXEC_ROUTE_TAKEN;
          if (is_there)
            out.place[row * out.slots + slot] = at < room ? (int32_t)(rank * room + at) : -1;
          if (is_there && at < room)
            out.source[rank * room + at] = (int32_t)(row * shape.experts + e);
          n += scan.all;
        }
    }
}

/* Limits the counts of rows to what each rank has room for, rounds them up, and stores in the map's
 * head how many the fullest rank would have got. */
__global__ void
clip_counts (MapShape shape, int32_t *map)
{
  uint64_t sorted = sorted_of (shape, map[EXEC_ROW_MAP_SLOTS]);
  uint64_t each = shape.experts / shape.ranks, room = sorted / shape.ranks;
  int32_t *counts = counts_of (shape, map);

  for (uint64_t rank = threadIdx.x; rank < shape.ranks; rank += THREADS)
    {
      uint64_t n = 0, all = 0;

      for (uint64_t e = rank * each; e < (rank + 1) * each; e++)
        {
          uint64_t own = (uint64_t)counts[e];

          counts[e] = n < room ? (int32_t)rows_taken (shape, at_most (own, room - n)) : 0;
          n += rows_taken (shape, own);
          all += own;
        }
      atomicMax (&map[EXEC_ROW_MAP_MOST], (int32_t)all);
    }
}

/* The number of rows that came for an expert from a rank. */
__device__ inline uint64_t
rows_from (const MapShape &shape, const int32_t *came, uint64_t rank, uint64_t expert)
{
  return came != NULL ? (uint64_t)came[rank * shape.experts + expert] : shape.capacity;
}

/* Sums the rows that came for an expert from the first `ranks` ranks. */
__device__ inline uint64_t
rows_of (const MapShape &shape, const int32_t *came, uint64_t expert, uint64_t ranks)
{
  uint64_t all = 0;

  for (uint64_t rank = 0; rank < ranks; rank++)
    all += rows_from (shape, came, rank, expert);
  return all;
}

/* Sorts the rows that came by expert; came[rank][expert] says how many there are; NULL: as many as
 * the capacity. */
__global__ void
sort_arrivals (MapShape shape, const int32_t *came, int32_t *map)
{
  uint64_t sorted = sorted_of (shape, 1), room = shape.rows / shape.ranks;
  uint64_t pairs = shape.experts * shape.ranks;
  RowMap out = row_map_of (map, sorted);

  for (uint64_t pair = blockIdx.x; pair < pairs; pair += gridDim.x)
    {
      uint64_t e = pair / shape.ranks, rank = pair % shape.ranks, row = rank * room;
      uint64_t at = rows_of (shape, came, e, rank);

      for (uint64_t other = 0; other < e; other++)
        {
          row += rows_from (shape, came, rank, other);
          at += round_up (shape, rows_of (shape, came, other, shape.ranks));
        }
      uint64_t n = rows_from (shape, came, rank, e);
      for (uint64_t i = threadIdx.x; i < n; i += THREADS)
        {
          out.source[at + i] = (int32_t)(row + i);
          out.place[row + i] = (int32_t)(at + i);
        }
      if (rank == 0 && threadIdx.x == 0)
        counts_of (shape, map)[e]
            = (int32_t)round_up (shape, rows_of (shape, came, e, shape.ranks));
    }
  if (first_x () == 0)
    {
      map[EXEC_ROW_MAP_SLOTS] = map[EXEC_ROW_MAP_COLUMNS] = 1;
      map[EXEC_ROW_MAP_MOST] = map[EXEC_ROW_MAP_DROPPED] = 0;
    }
}

/* Operands of drop_tokens: `in` and `routes` are the router's probabilities and choices, `probs`
 * and `map` those that stay. */
struct Dropping
{
  Array in, probs;
  const uint8_t *routes;
  uint8_t *map;
  uint64_t rows, experts, capacity;
  bool by_position;
};

/* The key of a token: an expert keeps the tokens with the largest keys. The key is the bits of the
 * token's probability, which order as it does since it is not negative; a NaN counts as 0. */
__device__ inline uint32_t
key_of (const Dropping &of, uint64_t at)
{
  float prob = of.by_position ? 0.0f : read_one (of.in, at);

  return prob > 0 ? __float_as_uint (prob) : 0;
}

/* An expert's least key that stays, and how many tokens with just that key do, the first ones. */
struct Bar
{
  uint32_t key, n;
};

/* Finds the bar of an expert by a radix select: eight bits of the key at a time, from a histogram
 * of the keys that agree in the bits before. */
__device__ inline Bar
find_bar (const Dropping &of, uint64_t expert, unsigned *counts)
{
  Bar bar = { 0, (uint32_t)of.capacity };

  for (int shift = 24; shift >= 0; shift -= 8)
    {
      uint32_t above = shift == 24 ? 0 : 0xffffffffu << (shift + 8), digit = 255;

      __syncthreads ();
      counts[threadIdx.x] = 0;
      __syncthreads ();
      for (uint64_t row = threadIdx.x; row < of.rows; row += THREADS)
        {
          uint64_t at = row * of.experts + expert;
          uint32_t key = of.routes[at] != 0 ? key_of (of, at) : 0;

          if (of.routes[at] != 0 && (key & above) == bar.key)
            atomicAdd (&counts[key >> shift & 255], 1u);
        }
      __syncthreads ();
      for (; digit > 0 && counts[digit] < bar.n; digit--)
        bar.n -= counts[digit];
      bar.key |= digit << shift;
    }
  return bar;
}

/* Drops the tokens of each expert beyond its capacity. */
__global__ void
drop_tokens (Dropping of)
{
  __shared__ unsigned counts[THREADS];

  for (uint64_t e = blockIdx.x; e < of.experts; e += gridDim.x)
    {
      const Bar bar = find_bar (of, e, counts);
      uint64_t before = 0; /* tokens with the bar's key */

      for (uint64_t base = 0; base < of.rows; base += THREADS)
        {
          uint64_t row = base + threadIdx.x, at = row * of.experts + e;
          bool is_there = row < of.rows && of.routes[at] != 0;
          uint32_t key = is_there ? key_of (of, at) : 0;
          Scan scan = block_scan (is_there && key == bar.key);
          bool stays
              = is_there && (key > bar.key || (key == bar.key && before + scan.before < bar.n));

          if (row < of.rows)
            {
              of.map[at] = stays ? EXEC_ROUTE_TAKEN : is_there ? EXEC_ROUTE_DROPPED : 0;
              write_one (of.probs, at, stays ? read_one (of.in, at) : 0.0f);
            }
          before += scan.all;
        }
    }
}

}

extern "C" int
exec_cuda_drop_tokens (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const Dropping of = { operands.array (PLAN_REF_DROP_TOKENS_in),
                        operands.array (PLAN_REF_DROP_TOKENS_probs),
                        (const uint8_t *)args->ptr[PLAN_REF_DROP_TOKENS_routes],
                        (uint8_t *)args->ptr[PLAN_REF_DROP_TOKENS_map],
                        operands.dim (PLAN_DIM_DROP_TOKENS_rows),
                        operands.dim (PLAN_DIM_DROP_TOKENS_experts),
                        operands.dim (PLAN_DIM_DROP_TOKENS_capacity),
                        exec_manner (args, PLAN_MANNER_BY_POSITION) > 0 };

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (drop_tokens, shape_of_blocks (of.experts, THREADS), stream, of);
}

extern "C" int
exec_cuda_sort_rows (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const double multiple = exec_manner (args, PLAN_MANNER_MULTIPLE);
  MapShape shape = {
    operands.dim (PLAN_DIM_ROW_MAP_rows),  operands.dim (PLAN_DIM_ROW_MAP_experts),
    operands.dim (PLAN_DIM_ROW_MAP_ranks), operands.dim (PLAN_DIM_ROW_MAP_entries),
    multiple > 1 ? (uint64_t)multiple : 1, (uint64_t)exec_manner (args, PLAN_MANNER_CAPACITY)
  };
  int32_t *map = operands.ints (PLAN_REF_ROW_MAP_map);
  const uint8_t *routes = (const uint8_t *)args->ptr[PLAN_REF_ROW_MAP_routes];
  const int32_t *came = routes == NULL ? operands.ints (PLAN_REF_ROW_MAP_came) : NULL;
  Shape each = shape_of_blocks (shape.experts, THREADS);

  if (operands.code != 0 || shape.entries >= (uint64_t)1 << 31
      || shape.rows * shape.experts >= (uint64_t)1 << 31 || shape.entries * shape.ranks == 0)
    return (int)cudaErrorInvalidValue;
  int code = (int)cudaMemsetAsync (map, 0xff, shape.entries * sizeof *map, (cudaStream_t)stream);
  if (code == 0 && routes == NULL)
    return EXEC_CUDA_LAUNCH (sort_arrivals, shape_of_blocks (shape.experts * shape.ranks, THREADS),
                             stream, shape, came, map);
  if (code == 0)
    code = (int)cudaMemsetAsync (map + EXEC_ROW_MAP_DROPPED, 0, sizeof *map, (cudaStream_t)stream);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (count_routes, each, stream, shape, routes, map);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (sort_routes, each, stream, shape, routes, map);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (clip_counts, shape_of_blocks (1, THREADS), stream, shape, map);
  return code;
}
