/* SPDX-License-Identifier: Apache-2.0 */
/* What every kernel file uses: the one launch macro, launch shapes, number formats, and operands
 * read and written in pieces of 16 bytes. Indices have 64 bits; every loop strides over the grid,
 * so that any grid gives the same result. */
#pragma once
#include "exec/cuda/kernels/kernels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Issues kernel (arguments...); its value is the error code of the launch. Template arguments
 * follow from the arguments. The tests' fake device brings a macro of its own. */
#ifndef EXEC_CUDA_LAUNCH
#define EXEC_CUDA_LAUNCH(kernel, shape, stream, ...) \
  (kernel<<<(shape).grid, (shape).block, 0, (cudaStream_t)(stream)>>> (__VA_ARGS__), \
   (int)cudaGetLastError ())
#endif

/* The most blocks along x: more than any device runs at once. Results do not depend on it. */
#ifndef EXEC_CUDA_MAX_BLOCKS
#define EXEC_CUDA_MAX_BLOCKS 2048
#endif

/* UNROLL is for loops that should have several iterations in flight at once, UNROLL_ALL for loops
 * that have to be unrolled completely so that the arrays that they index stay in registers. */
#ifdef __CUDACC__
#define EXEC_CUDA_UNROLL _Pragma ("unroll 4")
#define EXEC_CUDA_UNROLL_ALL _Pragma ("unroll")
#else
#define EXEC_CUDA_UNROLL
#define EXEC_CUDA_UNROLL_ALL
#endif

namespace
{

/* --- shapes ------------------------------------------------------------------------------- */

enum : unsigned
{
  WARP = 32,
  THREADS = 256, /* of a block */
  MAX_BLOCKS = EXEC_CUDA_MAX_BLOCKS,
  MAX_BLOCKS_Y = 65535 /* what the hardware takes */
};

struct Shape
{
  dim3 grid, block;
};

__host__ __device__ inline uint64_t
at_most (uint64_t value, uint64_t limit)
{
  return value < limit ? value : limit;
}

/* A thread per item. */
inline Shape
shape_of_items (uint64_t count)
{
  uint64_t blocks = at_most (count / THREADS + (count % THREADS != 0), MAX_BLOCKS);

  return { dim3 (blocks > 0 ? (unsigned)blocks : 1), dim3 (THREADS) };
}

/* A block per item. */
inline Shape
shape_of_blocks (uint64_t count, unsigned threads)
{
  return { dim3 (count > 0 ? (unsigned)at_most (count, MAX_BLOCKS) : 1), dim3 (threads) };
}

/* Columns along x in whole warps, rows along y: no index needs a division. */
inline Shape
shape_of_matrix (uint64_t rows, uint64_t cols)
{
  unsigned threads = (unsigned)at_most ((cols + WARP - 1) / WARP * WARP, THREADS);
  uint64_t blocks = at_most (cols / THREADS + (cols % THREADS != 0), MAX_BLOCKS);

  return { dim3 (blocks > 0 ? (unsigned)blocks : 1,
                 rows > 0 ? (unsigned)at_most (rows, MAX_BLOCKS_Y) : 1),
           dim3 (threads > 0 ? threads : WARP) };
}

__device__ inline uint64_t
first_x ()
{
  return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline uint64_t
stride_x ()
{
  return (uint64_t)gridDim.x * blockDim.x;
}

/* --- number formats, bit for bit those of exec/number/number.c ----------------------------- */

__device__ inline float
float_of (uint32_t word)
{
  float value;

  memcpy (&value, &word, sizeof value);
  return value;
}

__device__ inline uint32_t
word_of (float value)
{
  uint32_t word;

  memcpy (&word, &value, sizeof word);
  return word;
}

__device__ inline uint16_t
to_bf16 (float value)
{
  uint32_t word = word_of (value);

  if ((word & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)(word >> 16 | 0x40); /* rounding could turn a NaN into inf */
  return (uint16_t)((word + 0x7fffu + (word >> 16 & 1)) >> 16);
}

#ifdef __CUDA_ARCH__
/* The hardware converts as the code below does, but may give another NaN. */
__device__ inline float
from_fp16 (uint32_t bits)
{
  float value;

  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)bits));
  return value;
}

__device__ inline uint16_t
to_fp16 (float value)
{
  uint16_t bits;

  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
__device__ inline float
from_fp16 (uint32_t bits)
{
  uint32_t sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;

  if (rest < 0x400) /* a multiple of 2^-24 */
    return float_of (word_of ((float)rest * 0x1p-24f) | sign);
  return float_of (((rest << 13) + (rest >= 0x7c00 ? 0x70000000u : 0x38000000u)) | sign);
}

/* Rounds to nearest, ties to even; what is too large becomes infinite. */
__device__ inline uint16_t
to_fp16 (float value)
{
  uint32_t word = word_of (value), sign = word >> 16 & 0x8000, magnitude = word & 0x7fffffffu;

  if (magnitude > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000u) /* half way past 65504, the largest */
    return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x38800000u) /* in units of 2^-24, the last bit of a float in [0.5, 1) */
    return (uint16_t)(sign | (word_of (float_of (magnitude) + 0.5f) - 0x3f000000u));
  return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13);
}
#endif

/* --- operands ----------------------------------------------------------------------------- */

/* Kernels work on pieces of this many elements of a row: 16 bytes of bf16. */
enum : unsigned
{
  PIECE = 8
};

/* An array of fp32, bf16 or fp16. `is_wide`: each of its pieces begins on 16 bytes. The format is
 * looked at per piece, alike in every thread, so that no mix of formats needs code of its own. */
struct Array
{
  void *at;
  bool is_half, is_fp16, is_wide;
};

inline bool
is_format (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP32 || dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16;
}

__host__ __device__ inline Array
array_of (const void *at, PlanDtype dtype, bool is_wide)
{
  return { (void *)at, dtype != PLAN_DTYPE_FP32, dtype == PLAN_DTYPE_FP16, is_wide };
}

/* A number as bits of the array's 16-bit format, and back. */
__device__ inline uint32_t
to_half (const Array &array, float value)
{
  return array.is_fp16 ? to_fp16 (value) : to_bf16 (value);
}

__device__ inline float
from_half (const Array &array, uint32_t bits)
{
  return array.is_fp16 ? from_fp16 (bits) : float_of (bits << 16);
}

/* A piece as it lies in memory (Words), and in fp32 (Piece). Reading in these two steps lets a
 * thread issue all of its loads before it waits for the first. */
struct Words
{
  uint32_t at[PIECE];
};

struct Piece
{
  float at[PIECE];
};

struct __attribute__ ((aligned (16), may_alias)) Quad
{
  uint32_t word[4];
};

inline bool
is_aligned (const void *at)
{
  return (uintptr_t)at % sizeof (Quad) == 0;
}

__device__ inline uint64_t
first_piece ()
{
  return first_x () * PIECE;
}

__device__ inline uint64_t
piece_stride ()
{
  return stride_x () * PIECE;
}

/* How many of `count` elements are in the piece that begins at `at`. */
__device__ inline unsigned
piece_of (uint64_t at, uint64_t count)
{
  return count - at < PIECE ? (unsigned)(count - at) : (unsigned)PIECE;
}

/* How many pieces `count` elements are. */
__host__ __device__ inline uint64_t
pieces_of (uint64_t count)
{
  return count / PIECE + (count % PIECE != 0);
}

/* A thread per piece. */
inline Shape
shape_of_pieces (uint64_t count)
{
  return shape_of_items (pieces_of (count));
}

/* Loads the first n elements from `at` on; the others are 0. */
__device__ inline Words
fetch (const Array &array, uint64_t at, unsigned n)
{
  const uint16_t *halves = (const uint16_t *)array.at + at;
  const uint32_t *whole = (const uint32_t *)array.at + at;
  Words words = {};

  if (n == PIECE && array.is_wide)
    {
      const Quad *quads = array.is_half ? (const Quad *)halves : (const Quad *)whole;
      Quad low = quads[0], high = {};

      if (!array.is_half)
        high = quads[1];
      for (unsigned i = 0; i < 4; i++)
        {
          words.at[i] = low.word[i];
          words.at[4 + i] = high.word[i];
        }
    }
  else
    for (unsigned i = 0; i < PIECE; i++)
      if (i < n && array.is_half)
        words.at[i / 2] |= (uint32_t)halves[i] << i % 2 * 16;
      else if (i < n)
        words.at[i] = whole[i];
  return words;
}

/* Prefetches an element and its neighbours into L2. */
__device__ inline void
prefetch (const Array &array, uint64_t at)
{
#ifdef __CUDA_ARCH__
  asm("prefetch.global.L2 [%0];" : : "l"((const uint8_t *)array.at + at * (array.is_half ? 2 : 4)));
#else
  (void)array, (void)at;
#endif
}

__device__ inline Piece
widen (const Array &array, const Words &words)
{
  Piece piece;

  if (array.is_fp16)
    for (unsigned i = 0; i < PIECE; i++)
      piece.at[i] = from_fp16 (words.at[i / 2] >> i % 2 * 16 & 0xffff);
  else
    for (unsigned i = 0; i < PIECE; i++)
      piece.at[i] = float_of (array.is_half
                                  ? (i % 2 ? words.at[i / 2] & 0xffff0000u : words.at[i / 2] << 16)
                                  : words.at[i]);
  return piece;
}

__device__ inline Piece
read (const Array &array, uint64_t at, unsigned n)
{
  return widen (array, fetch (array, at, n));
}

/* The gains of a norm: weights, and what its op adds to each of them. */
__device__ inline Piece
gains_of (Piece weights, float plus)
{
  for (unsigned i = 0; i < PIECE && plus != 0; i++)
    weights.at[i] += plus;
  return weights;
}

__device__ inline float
read_one (const Array &array, uint64_t at)
{
  return array.is_half ? from_half (array, ((const uint16_t *)array.at)[at])
                       : ((const float *)array.at)[at];
}

/* A whole piece in bf16. The device rounds two numbers by one instruction, which makes all NaNs
 * alike, so a piece with a NaN is converted number by number, as elsewhere. */
__device__ inline Quad
to_bf16_piece (const Piece &piece)
{
  Quad quad;
#ifdef __CUDA_ARCH__
  bool is_ordered = true; /* there is no NaN */

  for (unsigned i = 0; i < 4; i++)
    {
      float low = piece.at[2 * i], high = piece.at[2 * i + 1];

      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(quad.word[i]) : "f"(high), "f"(low));
      is_ordered &= low < high || low >= high;
    }
  if (is_ordered)
    return quad;
#endif
  for (unsigned i = 0; i < 4; i++)
    quad.word[i] = to_bf16 (piece.at[2 * i]) | (uint32_t)to_bf16 (piece.at[2 * i + 1]) << 16;
  return quad;
}

__device__ inline Quad
to_fp16_piece (const Piece &piece)
{
  Quad quad;

  for (unsigned i = 0; i < 4; i++)
    quad.word[i] = to_fp16 (piece.at[2 * i]) | (uint32_t)to_fp16 (piece.at[2 * i + 1]) << 16;
  return quad;
}

/* Rounds the first n elements once, and stores them from `at` on. */
__device__ inline void
write (const Array &array, uint64_t at, unsigned n, const Piece &piece)
{
  uint16_t *halves = (uint16_t *)array.at + at;
  float *whole = (float *)array.at + at;

  if (n == PIECE && array.is_wide)
    {
      Quad low, high;

      if (array.is_half)
        {
          *(Quad *)halves = array.is_fp16 ? to_fp16_piece (piece) : to_bf16_piece (piece);
          return;
        }
      for (unsigned i = 0; i < 4; i++)
        {
          low.word[i] = word_of (piece.at[i]);
          high.word[i] = word_of (piece.at[4 + i]);
        }
      ((Quad *)whole)[0] = low;
      ((Quad *)whole)[1] = high;
    }
  else
    for (unsigned i = 0; i < PIECE; i++)
      if (i < n && array.is_half)
        halves[i] = (uint16_t)to_half (array, piece.at[i]);
      else if (i < n)
        whole[i] = piece.at[i];
}

__device__ inline void
write_one (const Array &array, uint64_t at, float value)
{
  if (array.is_half)
    ((uint16_t *)array.at)[at] = (uint16_t)to_half (array, value);
  else
    ((float *)array.at)[at] = value;
}

/* A piece as it reads back after it has been stored. */
__device__ inline Piece
rounded (const Array &array, const Piece &piece)
{
  Words words = {};

  if (!array.is_half)
    return piece;
  Quad quad = array.is_fp16 ? to_fp16_piece (piece) : to_bf16_piece (piece);
  for (unsigned i = 0; i < 4; i++)
    words.at[i] = quad.word[i];
  return widen (array, words);
}

/* Whether an array, if there is one, consists of whole pieces of bf16. Kernels in which
 * instructions count are compiled once more for such arrays, and then check nothing per piece. */
inline bool
is_plain (const Array &array)
{
  return array.at == NULL || (array.is_half && !array.is_fp16 && array.is_wide);
}

/* The array itself, with a format that the compiler knows where it is plain. */
template <bool plain>
__device__ inline Array
known (const Array &array)
{
  return plain ? Array{ array.at, true, false, true } : array;
}

/* --- from ExecArgs ------------------------------------------------------------------------ */

/* The operands of one launch; `code` becomes an error if one is in a format that kernels do not
 * compute in. */
struct Operands
{
  const ExecArgs *args;
  int code;

  explicit Operands (const ExecArgs *from) : args (from), code ((int)cudaSuccess) {}

  uint64_t
  dim (int i) const
  {
    return (uint64_t)args->op->dims[i];
  }

  /* The first index that this rank has, of a vocabulary or of rows that are in parts. */
  uint32_t
  first () const
  {
    return (uint32_t)exec_manner (args, PLAN_MANNER_FIRST);
  }

  void
  need (int i, PlanDtype dtype)
  {
    if (args->dtype[i] != dtype)
      code = (int)cudaErrorInvalidValue;
  }

  /* An operand of rows of `cols` elements. Each row begins with a new piece. An absent operand is
   * NULL. */
  Array
  rows_of (int i, uint64_t cols)
  {
    void *at = args->ptr[i];

    if (at != NULL && !is_format (args->dtype[i]))
      code = (int)cudaErrorInvalidValue;
    return array_of (at, args->dtype[i], is_aligned (at) && cols % PIECE == 0);
  }

  Array
  array (int i)
  {
    return rows_of (i, PIECE);
  }

  /* Operands that have one format in every plan. */
  float *
  floats (int i)
  {
    need (i, PLAN_DTYPE_FP32);
    return (float *)args->ptr[i];
  }

  int32_t *
  ints (int i) /* NULL: absent */
  {
    if (args->ptr[i] != NULL)
      need (i, PLAN_DTYPE_I32);
    return (int32_t *)args->ptr[i];
  }
};

}
