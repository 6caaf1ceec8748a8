/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of factors in any format, computed in fp32: for what cuBLASLt refuses (shapes
 * that do not consist of whole pieces, or of whole tiles of scales), and to check its results.
 *
 * Launch shape   256 threads per tile of 64 x 64 of the result, at most 2048 blocks; 17 KiB of
 *                shared memory. A thread has 4 x 4 sums.
 * Per call       bytes: m n s, and m k s n / 64 + n k s m / 64, mostly from cache; FLOPs: 2 m n k.
 *                s: bytes per element, of each operand's own format
 * Checked with   exec_cpu_gemm and exec_cpu_gemm_add of exec/cpu/kernels-cpu.c, by tests/fake and
 * tests/gpu. A sum is made by one thread, in ascending k. A BLAS library has another order, so they
 * differ by at most 2 k u of the sum of the terms' magnitudes, u = 2^-24. */
#include "exec/cuda/kernels/narrow.cuh"

namespace
{

enum : unsigned
{
  GEMM_TILE = 64,
  GEMM_SLICE = 32, /* elements along k per turn */
  GEMM_SIDE = 16,  /* the block's threads are a square of this side */
  GEMM_MINE = 4    /* rows, and columns, of a thread; GEMM_SIDE apart */
};

/* A factor of a product: element (i, k) lies at i * i_step + k * k_step, and one of the steps is 1.
 * Blocks that share a scale run along rows in memory, or along k if places.is_transposed. */
struct Factor
{
  const void *at;
  PlanDtype dtype;
  const float *scale;
  uint64_t count, i_step, k_step, block; /* block: elements that share a scale byte; 1 if none do */
  const uint8_t *scales;                 /* scales of blocks */
  ScalePlaces places;
  PlanDtype format; /* the format that elements and scales are together */
  uint64_t rows, k; /* for scales per 128, whose blocks always run along k */
};

struct Product
{
  uint64_t m, n, k;
  Factor a, b;
  Array out, bias;
  bool adds; /* adds the product to what `out` holds */
};

/* What the product is added to: `out`, the bias, or nothing. */
__device__ inline float
base_of (const Product &shape, uint64_t row, uint64_t col)
{
  return shape.adds              ? read_one (shape.out, row * shape.n + col)
         : shape.bias.at != NULL ? read_one (shape.bias, col)
                                 : 0.0f;
}

struct GemmTiles
{
  float factor[2][GEMM_TILE][GEMM_SLICE + 1]; /* one column more against bank conflicts */
};

__device__ inline GemmTiles &
gemm_tiles ()
{
  __shared__ GemmTiles shared;

  return shared;
}

/* The fp32 scale of element (i, k): of a block of 128 along k, or of a square. */
__device__ inline float
scale_of_128 (const Factor &factor, uint64_t i, uint64_t k)
{
  const float *scales = (const float *)factor.scales;

  return factor.format == PLAN_DTYPE_FP8_1X128
             ? scales[k / SQUARE_SIDE * factor.rows + i]
             : scales[i / SQUARE_SIDE * squares_apart (factor.k) + k / SQUARE_SIDE];
}

__device__ inline float
element_of (const Factor &factor, uint64_t i, uint64_t k)
{
  uint64_t at = i * factor.i_step + k * factor.k_step;
  bool is_along_k = factor.k_step == 1 || factor.places.is_transposed;

  if (factor.dtype == PLAN_DTYPE_FP32)
    return ((const float *)factor.at)[at];
  if (factor.dtype == PLAN_DTYPE_BF16)
    return float_of ((uint32_t)((const uint16_t *)factor.at)[at] << 16);
  if (factor.dtype == PLAN_DTYPE_FP16)
    return from_fp16 (((const uint16_t *)factor.at)[at]);
  float code = code_at ((const uint8_t *)factor.at, factor.dtype, at);
  if (factor.block == SQUARE_SIDE)
    return code * scale_of_128 (factor, i, k);
  if (factor.block == 1)
    return code * *factor.scale;
  uint64_t outer = is_along_k ? i : k, inner = (is_along_k ? k : i) / factor.block;
  bool is_linear = !factor.places.is_tiled && !factor.places.is_transposed;
  uint64_t place = is_linear ? at / factor.block : place_of (factor.places, outer, inner);
  return scaled (code, factor.dtype, factor.scales[place], factor.scale);
}

/* Loads a slice of a factor. Neighbouring threads read neighbouring elements, however the factor
 * lies. */
__device__ inline void
load_factor (const Factor &factor, uint64_t first, uint64_t rows, uint64_t k, uint64_t depth,
             float (*to)[GEMM_SLICE + 1])
{
  for (unsigned e = threadIdx.x; e < GEMM_TILE * GEMM_SLICE; e += THREADS)
    {
      unsigned i = factor.k_step == 1 ? e / GEMM_SLICE : e % GEMM_TILE;
      unsigned j = factor.k_step == 1 ? e % GEMM_SLICE : e / GEMM_TILE;
      bool is_there = first + i < rows && k + j < depth;

      to[i][j] = is_there ? element_of (factor, first + i, k + j) : 0.0f;
    }
}

struct Sums
{
  float at[GEMM_MINE][GEMM_MINE];
};

__device__ inline Sums
multiply_tile (const Product &shape, uint64_t row, uint64_t col)
{
  GemmTiles &shared = gemm_tiles ();
  unsigned y = threadIdx.x / GEMM_SIDE, x = threadIdx.x % GEMM_SIDE;
  Sums sums = {};

  for (uint64_t k = 0; k < shape.k; k += GEMM_SLICE)
    {
      __syncthreads (); /* the last slices have been read */
      load_factor (shape.a, row, shape.m, k, shape.k, shared.factor[0]);
      load_factor (shape.b, col, shape.n, k, shape.k, shared.factor[1]);
      __syncthreads ();
      for (unsigned d = 0; d < GEMM_SLICE; d++)
        for (unsigned i = 0; i < GEMM_MINE; i++)
          for (unsigned j = 0; j < GEMM_MINE; j++)
            sums.at[i][j] = fmaf (shared.factor[0][y + GEMM_SIDE * i][d],
                                  shared.factor[1][x + GEMM_SIDE * j][d], sums.at[i][j]);
    }
  return sums;
}

__global__ void
__launch_bounds__ (THREADS) gemm_plain (Product shape)
{
  uint64_t across = (shape.n + GEMM_TILE - 1) / GEMM_TILE;
  uint64_t tiles = (shape.m + GEMM_TILE - 1) / GEMM_TILE * across;

  for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    {
      uint64_t row = tile / across * GEMM_TILE, col = tile % across * GEMM_TILE;
      Sums sums = multiply_tile (shape, row, col);

      EXEC_CUDA_UNROLL
      for (unsigned i = 0; i < GEMM_MINE; i++)
        EXEC_CUDA_UNROLL
      for (unsigned j = 0; j < GEMM_MINE; j++)
        {
          uint64_t r = row + threadIdx.x / GEMM_SIDE + GEMM_SIDE * i;
          uint64_t c = col + threadIdx.x % GEMM_SIDE + GEMM_SIDE * j;

          if (r < shape.m && c < shape.n)
            write_one (shape.out, r * shape.n + c, sums.at[i][j] + base_of (shape, r, c));
        }
    }
}

/* Describes a factor of `rows` by k, as the product reads it. Scales follow the elements, unless
 * args->blocks says that they lie elsewhere. */
Factor
factor_of (const ExecArgs *args, int i, uint64_t rows, uint64_t k, bool is_along_k)
{
  const ExecBlocks &apart = args->blocks[i];
  PlanDtype dtype = args->dtype[i];
  uint64_t count = rows * k, block = block_of (dtype);
  const uint8_t *at = (const uint8_t *)args->ptr[i], *scales = apart.scales;

  PlanDtype format = scales != NULL ? apart.format : dtype;

  if (is_of_128 (format))
    block = is_along_k ? (uint64_t)SQUARE_SIDE : 0; /* 0: is_factor refuses it */
  else if (scales != NULL)
    {
      block = block_of (format);
      is_along_k = is_along_k && !apart.is_transposed;
    }
  if (scales == NULL)
    scales = at + (dtype == PLAN_DTYPE_NVFP4 ? count / 2 : count);
  bool runs_along_k = is_along_k || apart.is_transposed;
  uint64_t outers = runs_along_k ? rows : k, inners = count / (outers > 0 ? outers : 1);
  return { at,
           dtype,
           args->scale[i],
           count,
           is_along_k ? k : 1u,
           is_along_k ? 1u : rows,
           block,
           scales,
           places_of (outers, block > 1 && inners % block == 0 ? inners / block : 1,
                      apart.is_transposed),
           format,
           rows,
           k };
}

bool
is_factor (const Factor &factor)
{
  return is_format (factor.dtype) || (factor.block != 0 && factor.count % factor.block == 0);
}

/* The op's scratch is not used. */
int
multiply (const ExecArgs *args, bool adds, void *stream)
{
  Operands operands (args);
  uint64_t m = operands.dim (0), n = operands.dim (1), k = operands.dim (2);
  uint64_t layout = operands.dim (3); /* 0: a[m,k] b[k,n], 1: a[m,k] b[n,k], 2: a[k,m] b[k,n] */
  Product shape = { m,
                    n,
                    k,
                    factor_of (args, 1, m, k, layout != 2),
                    factor_of (args, 2, n, k, layout == 1),
                    operands.array (0),
                    adds ? Array{} : operands.array (3),
                    adds };
  uint64_t tiles = (m + GEMM_TILE - 1) / GEMM_TILE * ((n + GEMM_TILE - 1) / GEMM_TILE);

  if (operands.code != 0 || !is_factor (shape.a) || !is_factor (shape.b))
    return (int)cudaErrorInvalidValue;
  return EXEC_CUDA_LAUNCH (gemm_plain, shape_of_blocks (tiles, THREADS), stream, shape);
}

}

extern "C" int
exec_cuda_gemm_plain (const ExecArgs *args, void *stream)
{
  return multiply (args, false, stream);
}

extern "C" int
exec_cuda_gemm_add_plain (const ExecArgs *args, void *stream)
{
  return multiply (args, true, stream);
}
