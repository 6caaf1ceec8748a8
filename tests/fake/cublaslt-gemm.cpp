/* SPDX-License-Identifier: Apache-2.0 */
/* The product itself, in the plainest way: every element is the fp32 sum over ascending k, as
 * exec/cpu/gemm-plain.c has it, and is rounded once. */
#include "config.h"

#include "exec/number/number.h"
#include "tests/fake/cublaslt.hpp"

#include <cmath>
#include <cstring>

namespace fake
{

namespace
{

/* --- elements ----------------------------------------------------------------------------- */

guint64
bytes_of_elements (gint32 type, guint64 count)
{
  switch (type)
    {
    case CUDA_R_32F:
      return 4 * count;
    case CUDA_R_16BF:
    case CUDA_R_16F:
      return 2 * count;
    case CUDA_R_4F_E2M1:
      return (count + 1) / 2;
    default:
      return count;
    }
}

float
load (const void *base, gint32 type, guint64 at)
{
  const guint8 *memory = (const guint8 *)base + bytes_of_elements (type, at);
  guint16 half;
  float value;

  switch (type)
    {
    case CUDA_R_32F:
      memcpy (&value, memory, sizeof value);
      return value;
    case CUDA_R_16BF:
      memcpy (&half, memory, sizeof half);
      return exec_number_from_bf16 (half);
    case CUDA_R_16F:
      memcpy (&half, memory, sizeof half);
      return exec_number_from_fp16 (half);
    case CUDA_R_8F_E4M3:
      return exec_number_from_e4m3 (*memory);
    case CUDA_R_8F_E5M2:
      return exec_number_from_e5m2 (*memory);
    default: /* two to a byte, the first in the low bits */
      return exec_number_from_e2m1 (((const guint8 *)base)[at / 2] >> (at % 2 * 4) & 0xf);
    }
}

void
store (void *base, gint32 type, guint64 at, float value)
{
  guint8 *memory = (guint8 *)base + bytes_of_elements (type, at);
  guint16 half;

  switch (type)
    {
    case CUDA_R_32F:
      memcpy (memory, &value, sizeof value);
      return;
    case CUDA_R_16BF:
      half = exec_number_to_bf16 (value);
      memcpy (memory, &half, sizeof half);
      return;
    case CUDA_R_16F:
      half = exec_number_to_fp16 (value);
      memcpy (memory, &half, sizeof half);
      return;
    case CUDA_R_8F_E4M3:
      *memory = exec_number_to_e4m3 ((double)value);
      return;
    default:
      *memory = exec_number_to_e5m2 ((double)value);
      return;
    }
}

guint64
place (const FakeMatrixLayout &layout, guint64 row, guint64 col)
{
  return layout.order == CUBLASLT_ORDER_COL ? col * (guint64)layout.ld + row
                                            : row * (guint64)layout.ld + col;
}

/* Declares a matrix: what lies between its columns (or rows) is not used. */
bool
declare (Op &op, const FakeMatrixLayout &layout, const void *at, bool is_write)
{
  bool by_column = layout.order == CUBLASLT_ORDER_COL, is_fine = true;
  guint64 length = by_column ? layout.rows : layout.cols;
  guint64 lines = by_column ? layout.cols : layout.rows;

  if ((guint64)layout.ld == length)
    {
      length *= lines;
      lines = 1;
    }
  for (guint64 i = 0; i < lines && is_fine; i++)
    is_fine
        = touch (op, (const guint8 *)at + bytes_of_elements (layout.type, i * (guint64)layout.ld),
                 bytes_of_elements (layout.type, length), is_write);
  return is_fine;
}

/* --- scales ------------------------------------------------------------------------------- */

/* Elements along k that share a scale in memory; 0: none do. */
guint64
block_of (gint32 mode)
{
  switch (mode)
    {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
      return 32;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3:
      return 16;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return 128;
    default:
      return 0;
    }
}

guint64
tiles (guint64 count, guint64 tile)
{
  return (count + tile - 1) / tile;
}

/* Scales of blocks lie in tiles of 128 rows by 4 (cuBLAS documentation, scaling factors layouts).
 */
guint64
place_of_scale (guint64 outer, guint64 inner, guint64 inner_count)
{
  guint64 tile = outer / 128 * tiles (inner_count, 4) + inner / 4;

  return tile * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 + inner % 4;
}

/* The index of an fp32 scale. Scales of vectors of 128 lie block by block, those of all rows
 * together; scales of squares lie row by row, each row padded to a multiple of four. */
guint64
place_of_128 (gint32 mode, guint64 outer, guint64 p, guint64 outers, guint64 k)
{
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
             ? p / 128 * outers + outer
             : outer / 128 * (4 * tiles (k, 512)) + p / 128;
}

guint64
bytes_of_scales (gint32 mode, guint64 outer, guint64 k)
{
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F)
    return 4 * outer * tiles (k, 128);
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
    return 4 * tiles (outer, 128) * (4 * tiles (k, 512));
  if (block_of (mode) > 0)
    return tiles (outer, 128) * tiles (k / block_of (mode), 4) * 512;
  return 4 * (mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? outer : 1);
}

double
scale_of_block (const void *scales, gint32 mode, guint64 outer, guint64 p, guint64 outers,
                guint64 k)
{
  guint64 block = block_of (mode);
  guint8 bits;

  if (block == 0)
    return 1;
  if (block == 128)
    return (double)((const float *)scales)[place_of_128 (mode, outer, p, outers, k)];
  bits = ((const guint8 *)scales)[place_of_scale (outer, p / block, k / block)];
  return block == 32 ? exec_number_from_e8m0 (bits) : (double)exec_number_from_e4m3 (bits);
}

/* What multiplies the sum for row or column `outer` of one factor. */
float
scale_of_sum (const void *scales, gint32 mode, guint64 outer)
{
  if (scales == nullptr || block_of (mode) > 0)
    return 1;
  return ((const float *)scales)[mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? outer : 0];
}

/* --- a product ---------------------------------------------------------------------------- */

/* One factor in fp32, its elements of one p together: [k][outer]. */
std::vector<float>
widen (const FakeMatrixLayout &layout, const void *at, bool outer_is_row, guint64 outer, guint64 k,
       const void *scales, gint32 mode)
{
  std::vector<float> out (outer * k);

  for (guint64 p = 0; p < k; p++)
    for (guint64 i = 0; i < outer; i++)
      {
        float value
            = load (at, layout.type, outer_is_row ? place (layout, i, p) : place (layout, p, i));

        out[p * outer + i]
            = block_of (mode) == 0
                  ? value
                  : (float)((double)value * scale_of_block (scales, mode, i, p, outer, k));
      }
  return out;
}

/* Adds up one column of the product for p in [from, to). */
void
add_column (std::vector<float> &sum, const std::vector<float> &a, const std::vector<float> &b,
            const Product &self, guint64 j, guint64 from, guint64 to)
{
  for (guint64 p = from; p < to; p++)
    {
      const float *column = &a[p * self.m];
      float factor = b[p * self.n + j];

      for (guint64 i = 0; i < self.m; i++)
        sum[i] += column[i] * factor;
    }
}

void
round_all (std::vector<float> &values, gint32 type)
{
  guint8 memory[sizeof (float)];

  for (float &value : values)
    {
      store (memory, type, 0, value);
      value = load (memory, type, 0);
    }
}

/* The parts of k that an algorithm sums apart are added in order. */
std::vector<float>
sum_column (const std::vector<float> &a, const std::vector<float> &b, const Product &self,
            guint64 j, unsigned split, bool rounds)
{
  std::vector<float> sum (self.m);

  add_column (sum, a, b, self, j, 0, self.k / split);
  if (rounds)
    round_all (sum, self.d.type);
  for (unsigned part = 1; part < split; part++)
    {
      std::vector<float> more (self.m);

      add_column (more, a, b, self, j, self.k * part / split, self.k * (part + 1) / split);
      if (rounds)
        round_all (more, self.d.type);
      for (guint64 i = 0; i < self.m; i++)
        sum[i] += more[i];
    }
  return sum;
}

struct Batch
{
  const void *a, *b, *c;
  void *d;
  float alpha, beta;
};

/* Returns the largest magnitude, before the scale of D. */
float
multiply_one (const Product &self, const Batch &batch, unsigned split, bool rounds)
{
  const FakeMatmulDesc &desc = self.desc;
  std::vector<float> a = widen (self.a, batch.a, desc.op_a == CUBLAS_OP_N, self.m, self.k,
                                desc.scale_a, desc.mode_a);
  std::vector<float> b = widen (self.b, batch.b, desc.op_b != CUBLAS_OP_N, self.n, self.k,
                                desc.scale_b, desc.mode_b);
  float scale_d = scale_of_sum (desc.scale_d, 0, 0), amax = 0;
  gint32 bias_type = desc.bias_type >= 0    ? desc.bias_type
                     : is_fp8 (self.d.type) ? self.c.type
                                            : self.d.type;

  for (guint64 j = 0; j < self.n; j++)
    {
      std::vector<float> sum = sum_column (a, b, self, j, split, rounds);

      for (guint64 i = 0; i < self.m; i++)
        {
          float scale = scale_of_sum (desc.scale_a, desc.mode_a, i)
                        * scale_of_sum (desc.scale_b, desc.mode_b, j);
          float value = batch.alpha * scale * sum[i];

          if (batch.beta != 0)
            value += batch.beta * load (batch.c, self.c.type, place (self.c, i, j));
          if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
            value += load (desc.bias, bias_type, i);
          amax = std::fmax (amax, std::fabs (value));
          store (batch.d, self.d.type, place (self.d, i, j), value * scale_d);
        }
    }
  return amax;
}

/* The i-th matrix of a batch. */
const void *
in_batch (const FakeMatrixLayout &layout, const void *base, gint32 i)
{
  return (const guint8 *)base
         + bytes_of_elements (layout.type, (guint64)(layout.batch_stride * (gint64)i));
}

bool
declare_extras (Op &op, const Product &self, const Operands &operands)
{
  const FakeMatmulDesc &desc = self.desc;
  gint32 bias_type = desc.bias_type >= 0 ? desc.bias_type : self.c.type;

  return (desc.scale_a == nullptr
          || op.read (desc.scale_a, bytes_of_scales (desc.mode_a, self.m, self.k)))
         && (desc.scale_b == nullptr
             || op.read (desc.scale_b, bytes_of_scales (desc.mode_b, self.n, self.k)))
         && (desc.scale_d == nullptr || op.read (desc.scale_d, sizeof (float)))
         && (desc.amax_d == nullptr || op.write (desc.amax_d, sizeof (float)))
         && (desc.epilogue != CUBLASLT_EPILOGUE_BIAS
             || op.read (desc.bias, bytes_of_elements (bias_type, self.m)))
         && (operands.alpha == nullptr
             || (op.read (operands.alpha, sizeof (float))
                 && op.read (operands.beta, sizeof (float))))
         && (operands.workspace_bytes == 0
             || op.write (operands.workspace, operands.workspace_bytes));
}

}

/* An algorithm may use all of the workspace it is given. */
cudaError_t
multiply (Op &op, const Product &self, const Operands &operands)
{
  float alpha = operands.host_alpha, beta = operands.host_beta, amax = 0;

  if (!declare_extras (op, self, operands))
    return cudaErrorIllegalAddress;
  if (operands.alpha != nullptr)
    {
      memcpy (&alpha, operands.alpha, sizeof alpha);
      memcpy (&beta, operands.beta, sizeof beta);
    }
  if (operands.workspace_bytes > 0)
    memset (operands.workspace, 0xff, MIN (operands.workspace_bytes, 4096));
  for (gint32 i = 0; i < self.d.batches; i++)
    {
      Batch batch = { in_batch (self.a, operands.a, i),
                      in_batch (self.b, operands.b, i),
                      in_batch (self.c, operands.c, i),
                      (void *)in_batch (self.d, operands.d, i),
                      alpha,
                      beta };

      if (!declare (op, self.a, batch.a, false) || !declare (op, self.b, batch.b, false)
          || (beta != 0 && !declare (op, self.c, batch.c, false))
          || !declare (op, self.d, batch.d, true))
        return cudaErrorIllegalAddress;
      amax = std::fmax (amax, multiply_one (self, batch, operands.split, operands.rounds));
    }
  if (self.desc.amax_d != nullptr)
    memcpy (self.desc.amax_d, &amax, sizeof amax);
  return cudaSuccess;
}

}
