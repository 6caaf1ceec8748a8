/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of eight bits and fewer, bit for bit those of exec/number/number-small.c, and arrays of
 * these with scales, as exec/cpu/kernels-cpu-quantize.c makes them. One thing differs: scales of
 * blocks lie in tiles of 128 rows by 4 blocks where those are whole, as cuBLASLt reads them (the
 * cuBLAS documentation, 1D block scaling). */
#pragma once
#include "exec/cuda/kernels/powers.cuh"

namespace
{

enum : unsigned
{
  MX_BLOCK = 32, /* elements that share a scale */
  NV_BLOCK = 16,
  SQUARE_SIDE = PLAN_DTYPE_SIDE /* elements of a row, or of a side of a square */
};

/* Eight codes of a byte each, or sixteen of half a byte. */
struct __attribute__ ((aligned (8), may_alias)) Pair
{
  uint32_t word[2];
};

/* Divides many numbers below 2^63 by the same one: by a product and one correction each. */
struct Divisor
{
  uint64_t by, inverse; /* inverse: 2^64 / by, or one less */
};

struct Quotient
{
  uint64_t whole, rest;
};

inline Divisor
divisor_of (uint64_t by)
{
  return { by, by > 0 ? UINT64_MAX / by : 0 };
}

__device__ inline Quotient
divide (uint64_t number, const Divisor &divisor)
{
  uint64_t whole = (uint64_t)((unsigned __int128)number * divisor.inverse >> 64);
  uint64_t rest = number - whole * divisor.by;

  return rest < divisor.by ? Quotient{ whole, rest } : Quotient{ whole + 1, rest - divisor.by };
}

struct Narrow
{
  unsigned fraction, bias; /* bits of the fraction; bias of the exponent */
  unsigned max, nan, sign; /* codes; e2m1 has no NaN: its scale is NaN instead */
};

__device__ inline Narrow
narrow_of (PlanDtype dtype)
{
  if (dtype == PLAN_DTYPE_E5M2)
    return { 2, 15, 0x7b, 0x7e, 0x80 };
  if (dtype == PLAN_DTYPE_NVFP4 || dtype == PLAN_DTYPE_E2M1)
    return { 1, 1, 0x7, 0x7, 0x8 };
  return { 3, 7, 0x7e, 0x7f, 0x80 };
}

/* Whether codes have half a byte: only in e2m1 is the sign the highest of four bits. */
__device__ inline bool
is_e2m1 (const Narrow &format)
{
  return format.sign == 0x8;
}

__device__ inline uint64_t
bits_of (double value)
{
  uint64_t bits;

  memcpy (&bits, &value, sizeof bits);
  return bits;
}

__device__ inline double
double_of (uint64_t bits)
{
  double value;

  memcpy (&value, &bits, sizeof value);
  return value;
}

/* Takes away the error of a product with an inverse. A quotient of two floats (or of a float and a
 * scale of 28 bits) that is not half way between two codes is at least 2^-36 of itself away from
 * there; the product with an inverse is 2^-51 off. Rounded to 40 bits, it is on the right side, or
 * exactly half way if the quotient is. */
__device__ inline double
settle (double product)
{
  return double_of ((bits_of (product) + 0x800) & ~(uint64_t)0xfff);
}

/* Rounds to nearest, ties to even; what is too large becomes the largest code. The upper half of a
 * double has all bits that matter, but for whether any lower one is set. */
__device__ inline unsigned
to_narrow (const Narrow &format, double value)
{
  uint64_t bits = bits_of (value);
  uint32_t word = (uint32_t)(bits >> 32) | ((uint32_t)bits != 0), magnitude = word & 0x7fffffffu;
  unsigned sign = word >> 31 != 0 ? format.sign : 0, drop = 20 - format.fraction, code;
  int exponent = (int)(magnitude >> 20) - 1023 + (int)format.bias;

  if (magnitude > 0x7ff00000u)
    return format.nan | sign;
  if (exponent >= 1)
    magnitude -= (1023 - format.bias) << 20;
  else /* subnormal: the smallest exponent, and fewer bits */
    {
      magnitude = (magnitude & 0xfffffu) | 0x100000u;
      drop += (unsigned)(1 - exponent);
      if (drop > 22)
        return sign;
    }
  code = (magnitude + (1u << (drop - 1)) - 1 + (magnitude >> drop & 1)) >> drop;
  return sign | (code < format.max ? code : format.max);
}

__device__ inline float
from_narrow (const Narrow &format, unsigned code)
{
  unsigned magnitude = code & (format.sign - 1), exponent = magnitude >> format.fraction;
  unsigned units = magnitude & ((1u << format.fraction) - 1);
  float unit; /* the value of the last bit */

  if (format.fraction == 3 && magnitude == format.nan)
    return NAN;
  if (format.fraction == 2 && magnitude >= 0x7c)
    return magnitude > 0x7c ? NAN : code & format.sign ? -INFINITY : INFINITY;
  if (exponent > 0)
    units += 1u << format.fraction;
  unit = float_of ((127 + (exponent > 0 ? exponent : 1) - format.bias - format.fraction) << 23);
  return code & format.sign ? -(float)units * unit : (float)units * unit;
}

/* The smallest power of two that is not below the value, as its exponent + 127. */
__device__ inline unsigned
to_e8m0_up (double value)
{
  uint64_t bits = bits_of (value);
  int exponent = (int)(bits >> 52) - 1023 + 127 + ((bits & 0xfffffffffffffull) != 0);

  if (bits >= 0x7ff0000000000000ull)
    return 0xff;
  return bits == 0 || exponent < 0 ? 0 : exponent > 254 ? 254 : (unsigned)exponent;
}

/* to_e8m0_up of a 448th of a magnitude, which is given as a word: 448 is 1.75 * 2^8. */
__device__ inline unsigned
to_e8m0_of_448 (uint32_t magnitude)
{
  unsigned code = (magnitude + 0x1fffff) >> 23; /* one more if the fraction is above .75 */

  if (magnitude >= 0x7f800000u)
    return 0xff;
  return code > 8 ? code - 8 : 0;
}

/* 2^(exponent - 127) */
__device__ inline float
from_e8m0 (unsigned code)
{
  return code == 0xff ? NAN : float_of (code > 0 ? code << 23 : 0x400000u);
}

/* 1 / power, of a power of two that from_e8m0 makes. */
__device__ inline float
inverse_of_power (float power)
{
  unsigned code = word_of (power) >> 23;

  return from_e8m0 (code > 254 ? 0xff : 254 - code);
}

/* Rounds a piece to eight codes of a byte each, to nearest. Any NaN may come out as any other. */
__device__ inline Pair
to_codes (const Narrow &format, const Piece &piece)
{
  Pair codes = {};

  for (unsigned i = 0; i < PIECE; i += 2)
    {
      float low = piece.at[i], high = piece.at[i + 1];
      uint32_t both;
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890 /* one instruction converts two numbers */
      uint16_t word;

      if (format.fraction == 2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(word) : "f"(high), "f"(low));
      else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(word) : "f"(high), "f"(low));
      both = word;
#else
      both = to_narrow (format, (double)low) | to_narrow (format, (double)high) << 8;
#endif
      codes.word[i / 4] |= both << i % 4 * 8;
    }
  return codes;
}

/* Eight codes of a byte each as floats. */
__device__ inline Piece
from_codes (const Narrow &format, const Pair &codes)
{
  Piece piece;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i += 2)
    {
      uint32_t both = codes.word[i / 4] >> i % 4 * 8;
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
      uint32_t halves;

      if (format.fraction == 2)
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)both));
      else
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)both));
      piece.at[i] = from_fp16 (halves & 0xffff);
      piece.at[i + 1] = from_fp16 (halves >> 16);
#else
      piece.at[i] = from_narrow (format, both & 0xff);
      piece.at[i + 1] = from_narrow (format, both >> 8 & 0xff);
#endif
    }
  return piece;
}

/* Stores the first n codes from `at` on. */
__device__ inline void
store_codes (uint8_t *at, const Pair &codes, unsigned n)
{
  if (n == PIECE && (uintptr_t)at % sizeof (Pair) == 0)
    *(Pair *)at = codes;
  else
    for (unsigned i = 0; i < PIECE; i++)
      if (i < n)
        at[i] = (uint8_t)(codes.word[i / 4] >> i % 4 * 8);
}

/* Loads the first n bytes from `at` on; the others are 0. */
__device__ inline Pair
load_codes (const uint8_t *at, unsigned n)
{
  Pair codes = {};

  if (n == PIECE && (uintptr_t)at % sizeof (Pair) == 0)
    return *(const Pair *)at;
  for (unsigned i = 0; i < PIECE; i++)
    if (i < n)
      codes.word[i / 4] |= (uint32_t)at[i] << i % 4 * 8;
  return codes;
}

/* Eight codes of half a byte as floats: as the upper bits of a float they count in units of
 * 2^-126. */
__device__ inline Piece
from_half_codes (uint32_t codes)
{
  Piece piece;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    {
      uint32_t code = codes >> i * 4;

      piece.at[i] = float_of ((code & 0x8) << 28 | (code & 0x7) << 22) * 0x1p126f;
    }
  return piece;
}

/* Code i of an array as a float, without any scale. */
__device__ inline float
code_at (const uint8_t *in, PlanDtype dtype, uint64_t i)
{
  Narrow format = narrow_of (dtype);

  return from_narrow (format, is_e2m1 (format) ? in[i / 2] >> i % 2 * 4 & 0xf : in[i]);
}

/* A code's float times the scale of its block, and that of the tensor, which mxfp8 does not
 * have. */
__device__ inline float
scaled (float code, PlanDtype dtype, unsigned scale, const float *tensor)
{
  if (dtype == PLAN_DTYPE_NVFP4 || dtype == PLAN_DTYPE_E2M1)
    return code * from_narrow (narrow_of (PLAN_DTYPE_E4M3), scale) * *tensor;
  return code * from_e8m0 (scale);
}

/* --- quotients ---------------------------------------------------------------------------- */

/* What elements that share a scale are multiplied with, or divided by. The divisor is high + low,
 * of 24 bits and a few more. Elements are first multiplied by `unit`, as the divisor has been, so
 * that no remainder is too small for fp32. */
struct Scaling
{
  bool is_product;
  float factor; /* of a product; for a quotient the inverse, smaller by 2^-22 to 2^-20 of it */
  float back;   /* minus the inverse, larger by 2^-21 of it or more */
  float high, low, unit;
};

__device__ inline Scaling
product_with (float factor)
{
  return { true, factor, 0.0f, 0.0f, 0.0f, 1.0f };
}

/* A power of two that makes a very small or very large number one of a middling size. */
__device__ inline float
unit_of (float scale)
{
  return scale < 0x1p-60f ? 0x1p100f : scale > 0x1p60f ? 0x1p-100f : 1.0f;
}

/* Division by high + low, which have been multiplied by `unit`. Division by 0, infinity or NaN is a
 * product with the inverse. */
__device__ inline Scaling
quotient_by (float high, float low, float unit)
{
  float inverse = inverse_of (high);

  if (!(high > 0.0f && high < INFINITY))
    return product_with (1.0f / high);
  return { false, inverse * (1.0f - 0x1p-21f), inverse * (-1.0f - 0x1p-20f), high, low, unit };
}

__device__ inline Scaling
quotient_by_float (float scale)
{
  float unit = unit_of (scale);

  return quotient_by (scale * unit, 0.0f, unit);
}

/* Division by an e4m3 scale times the tensor's scale. Elements with a scale of 0 become 0, never
 * -0. */
__device__ inline Scaling
half_scaling (float scale, float tensor)
{
  float unit = unit_of (tensor), high = scale * (tensor * unit);

  if (high == 0.0f)
    return { true, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f };
  return quotient_by (high, fmaf (scale, tensor * unit, -high), unit);
}

__device__ inline bool
is_of_zeros (const Scaling &by)
{
  return by.unit == 0.0f;
}

/* a * b + c, rounded once, towards 0. */
__device__ inline float
fma_down (float a, float b, float c)
{
#ifdef __CUDA_ARCH__
  return __fmaf_rz (a, b, c);
#else
  double product = (double)a * (double)b, sum = product + (double)c, part = sum - product;
  double error = (product - (sum - part)) + ((double)c - part); /* of the sum, exactly */
  float value = (float)sum;
  double beyond = ((double)value - sum) - error;

  if (value > 0 ? beyond > 0 : value < 0 && beyond < 0)
    value = float_of (word_of (value) - 1);
  return value;
#endif
}

/* value / by for a finite value, as a float that rounds to any format of at most five significant
 * bits as the exact quotient does. A quotient that is not half way between two such numbers is at
 * least 2^-31 of itself away from half way. So two things suffice: a float `below` that is not
 * above the quotient, and at most 2^-38 of it below; and bits, lower than those of the numbers,
 * that are not all 0 where there is a remainder. These are upper bits of the remainder, which is
 * exact where `below` is such a number. `is_long`: the divisor has more than 24 bits. */
__device__ inline float
quotient_of (float value, const Scaling &by, bool is_long)
{
  float scaled = value * by.unit, near = fma_down (scaled, by.factor, -0.0f);
  float over = fmaf (near, by.high, -scaled), below;

  if (is_long)
    over = fmaf (near, by.low, over);
  below = fma_down (over, by.back, near);
  over = fmaf (below, by.high, -scaled);
  if (is_long)
    over = fmaf (below, by.low, over);
  return float_of (word_of (below) | (word_of (over) >> 14 & 0x1ffff));
}

/* Scales a piece before it is rounded to codes. Where the scale is finite, so are all numbers of
 * the piece, as quotient_of needs; division by any other scale is a product. */
__device__ inline Piece
scaled_piece (Piece piece, const Scaling &by, bool is_long)
{
  if (by.is_product)
    for (unsigned i = 0; i < PIECE; i++)
      piece.at[i] *= by.factor;
  else
    for (unsigned i = 0; i < PIECE; i++)
      piece.at[i] = quotient_of (piece.at[i], by, is_long);
  return piece;
}

/* Scales any number by any scale. */
__device__ inline float
scaled_value (float value, const Scaling &by)
{
  float scaled = value * by.unit;

  if (by.is_product)
    return is_of_zeros (by) ? 0.0f : value * by.factor;
  return fabsf (scaled) == INFINITY ? scaled : quotient_of (value, by, true);
}

__device__ inline Piece
scaled_any (Piece piece, const Scaling &by)
{
  for (unsigned i = 0; i < PIECE; i++)
    piece.at[i] = scaled_value (piece.at[i], by);
  return piece;
}

/* Rounds to a code of half a byte, to nearest, ties to even: by a sum whose last bit is that of the
 * format. */
__device__ inline unsigned
to_e2m1 (float value)
{
  uint32_t word = word_of (value);
  float size = fminf (float_of (word & 0x7fffffffu), 6.0f);
  uint32_t place = word_of (fmaxf (size, 1.0f)) & 0x7f800000u; /* its power of two, at least 1 */
  uint32_t sum = word_of (size + float_of (place + (22u << 23)));

  return (word >> 28 & 0x8) | ((sum & 0x7) + (place >> 22) - 2 * 127);
}

/* --- scales that are known before --------------------------------------------------------- */

/* A site of delayed scaling: the scale by which it multiplies, and the largest magnitude that it
 * has seen. Both are NULL where there is no site. */
struct Site
{
  const float *scale;
  uint32_t *amax;
};

inline Site
site_of (const ExecArgs *args, int scale)
{
  return { (const float *)args->ptr[scale], (uint32_t *)args->ptr[scale + 1] };
}

/* Codes of a piece times a site's scale: rounded to fp32 once, as the product of two floats, and
 * then to the format. */
__device__ inline Pair
site_codes (const Narrow &format, Piece piece, float scale)
{
  for (unsigned i = 0; i < PIECE; i++)
    piece.at[i] *= scale;
  return to_codes (format, piece);
}

/* A magnitude as a word: words are in the order of the numbers, with NaN above all. */
__device__ inline uint32_t
magnitude_of (float value)
{
  return word_of (value) & 0x7fffffffu;
}

__device__ inline uint32_t
larger (uint32_t a, uint32_t b)
{
  return a > b ? a : b;
}

__device__ inline uint32_t
largest_of_piece (const Piece &piece)
{
  uint32_t max = 0;

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    max = larger (max, magnitude_of (piece.at[i]));
  return max;
}

__device__ inline uint32_t
largest_of_warp (uint32_t own)
{
  for (int distance = WARP / 2; distance > 0; distance /= 2)
    own = larger (own, __shfl_xor_sync (0xffffffffu, own, distance));
  return own;
}

/* The largest of the block, in every thread. All threads of the block must call it. */
__device__ inline uint32_t
largest_of_block (uint32_t own)
{
  __shared__ uint32_t of_warp[WARP];
  unsigned lane = threadIdx.x % WARP;

  own = largest_of_warp (own);
  __syncthreads (); /* those of the last call have been read */
  if (lane == 0)
    of_warp[threadIdx.x / WARP] = own;
  __syncthreads ();
  return largest_of_warp (lane < blockDim.x / WARP ? of_warp[lane] : 0);
}

/* Raises *max, to which other blocks do the same, to the largest of the block. One thread does it,
 * because atomics on one word wait for each other. All threads of the block must call it. */
__device__ inline void
raise_max (uint32_t *max, uint32_t own)
{
  own = largest_of_block (own);
  if (threadIdx.x == 0 && own > 0)
    atomicMax (max, own);
}

/* Largest magnitude of a kernel's output, for the op that quantises this output next. `asked` is
 * where the magnitude goes, or NULL if no op wants it. Rounding keeps the order of numbers, so the
 * largest is rounded once, at the end. All threads of the block must call raise_stored. */
__device__ inline void
find_stored (const uint32_t *asked, unsigned n, const Piece &piece, uint32_t *own)
{
  if (asked == NULL)
    return;
  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < PIECE; i++)
    if (i < n)
      *own = larger (*own, magnitude_of (piece.at[i]));
}

__device__ inline void
raise_stored (uint32_t *asked, const Array &out, uint32_t own)
{
  if (asked == NULL)
    return;
  if (out.is_half)
    own = magnitude_of (from_half (out, to_half (out, float_of (own))));
  raise_max (asked, own);
}

/* The shape of a launch whose blocks raise one word, each by itself. */
inline Shape
shape_of_raising (const Shape &shape, const uint32_t *asked)
{
  unsigned most = MAX_BLOCKS / shape.grid.x;

  if (asked == NULL || shape.grid.y <= most)
    return shape;
  return { dim3 (shape.grid.x, most > 0 ? most : 1), shape.block };
}

enum : unsigned
{
  LARGEST_AT_ONCE = 4, /* pieces that a thread loads before it waits for the first */
  LARGEST_BLOCKS = 512 /* enough to keep the memory busy; each raises one word */
};

inline Shape
shape_of_largest (uint64_t count)
{
  Shape shape = shape_of_pieces (count);

  shape.grid.x = (unsigned)at_most (shape.grid.x, LARGEST_BLOCKS);
  return shape;
}

/* The largest magnitude among those of `count` elements that this thread takes: pieces from
 * `begin` on, `stride` elements apart. */
__device__ inline uint32_t
largest_here (const Array &in, uint64_t count, uint64_t begin, uint64_t stride)
{
  uint32_t own = 0;

  for (uint64_t first = begin; first < count; first += LARGEST_AT_ONCE * stride)
    {
      Words words[LARGEST_AT_ONCE];

      EXEC_CUDA_UNROLL_ALL
      for (unsigned i = 0; i < LARGEST_AT_ONCE; i++)
        {
          uint64_t at = first + i * stride;

          words[i] = at < count ? fetch (in, at, piece_of (at, count)) : Words{};
        }
      EXEC_CUDA_UNROLL_ALL
      for (unsigned i = 0; i < LARGEST_AT_ONCE; i++)
        own = larger (own, largest_of_piece (widen (in, words[i])));
    }
  return own;
}

/* --- tiles of scales ---------------------------------------------------------------------- */

enum : unsigned
{
  SCALE_ROWS = EXEC_CUDA_SCALE_ROWS, /* rows of a tile */
  SCALE_COLS = EXEC_CUDA_SCALE_COLS
};

/* Where the scales of a matrix lie: those of `inners` blocks in each of `outers` rows. */
struct ScalePlaces
{
  uint64_t outers, inners;
  bool is_tiled, is_transposed; /* neither: row by row; is_transposed alone: block by block */
};

__host__ __device__ inline ScalePlaces
places_of (uint64_t outers, uint64_t inners, bool is_transposed)
{
  return { outers, inners, EXEC_CUDA_IS_TILED (outers, inners), is_transposed };
}

__device__ inline uint64_t
place_of (const ScalePlaces &places, uint64_t outer, uint64_t inner)
{
  uint64_t tile = outer / SCALE_ROWS * (places.inners / SCALE_COLS) + inner / SCALE_COLS;

  if (!places.is_tiled)
    return places.is_transposed ? inner * places.outers + outer : outer * places.inners + inner;
  return tile * (SCALE_ROWS * SCALE_COLS) + outer % 32 * 16 + outer % SCALE_ROWS / 32 * SCALE_COLS
         + inner % SCALE_COLS;
}

/* How far the scale of the next row is from that of a row, within eight rows of which the first is
 * a multiple of eight. */
__device__ inline uint64_t
place_step (const ScalePlaces &places)
{
  return places.is_tiled ? 16 : places.is_transposed ? 1 : places.inners;
}

/* The number of scales from one row of squares to the next, with padding: see
 * plan_dtype_squares_apart. */
__host__ __device__ inline uint64_t
squares_apart (uint64_t cols)
{
  return (cols + 4 * SQUARE_SIDE - 1) / (4 * SQUARE_SIDE) * 4;
}

inline bool
is_of_128 (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP8_1X128 || dtype == PLAN_DTYPE_FP8_128X128;
}

/* Elements that share a scale byte; 1 in formats with a scale per tensor, 0 in all others. */
inline uint64_t
block_of (PlanDtype dtype)
{
  if (dtype == PLAN_DTYPE_E4M3 || dtype == PLAN_DTYPE_E5M2)
    return 1;
  return dtype == PLAN_DTYPE_MXFP8   ? (uint64_t)MX_BLOCK
         : dtype == PLAN_DTYPE_NVFP4 ? (uint64_t)NV_BLOCK
                                     : 0;
}

}
