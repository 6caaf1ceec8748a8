/* SPDX-License-Identifier: Apache-2.0 */
/* The checks by which the fake cuBLASLt refuses what the real one does. Sources: the cuBLAS 13
 * documentation of cublasLtMatmul (the tables of supported types, the requirements of FP8 kernels,
 * the overview of scaling modes) and the comments in cublasLt.h 13.1. */
#include "config.h"

#include "tests/fake/cublaslt.hpp"

namespace fake
{

namespace
{

/* Types that can be combined when sums are fp32; `bias` is the type that the epilogue may add. */
const struct Row
{
  gint32 a, b, c, d, bias;
} rows[] = {
  { CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F },
  { CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF },
  { CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F },
  { CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F },
  { CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_8F_E4M3, CUDA_R_16BF },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16F, CUDA_R_8F_E4M3, CUDA_R_16F },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16BF, CUDA_R_8F_E4M3, CUDA_R_16BF },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16BF, CUDA_R_8F_E5M2, CUDA_R_16BF },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16F, CUDA_R_8F_E4M3, CUDA_R_16F },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16F, CUDA_R_8F_E5M2, CUDA_R_16F },
  { CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF },
  { CUDA_R_4F_E2M1, CUDA_R_4F_E2M1, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF },
  { CUDA_R_4F_E2M1, CUDA_R_4F_E2M1, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F },
  { CUDA_R_4F_E2M1, CUDA_R_4F_E2M1, CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF },
};

/* The row of the product's types; NULL: they cannot be combined. The two fp8 formats may change
 * places. */
const Row *
find_row (const Product &self)
{
  for (const Row &row : rows)
    if (((row.a == self.a.type && row.b == self.b.type)
         || (row.b == self.a.type && row.a == self.b.type))
        && row.c == self.c.type && row.d == self.d.type)
      return &row;
  return nullptr;
}

guint64
bits_of (gint32 type)
{
  return type == CUDA_R_32F ? 32 : type == CUDA_R_4F_E2M1 ? 4 : is_fp8 (type) ? 8 : 16;
}

bool
is_narrow (gint32 type)
{
  return bits_of (type) <= 8;
}

bool
is_layout (const FakeMatrixLayout &layout)
{
  guint64 along = layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.cols;

  return layout.rows > 0 && layout.cols > 0 && layout.ld > 0 && (guint64)layout.ld >= along
         && layout.batches > 0;
}

/* Whether two matrices of a batch have an element in common. Lines of one matrix may lie between
 * those of another. */
bool
overlap (const FakeMatrixLayout &layout)
{
  bool by_column = layout.order == CUBLASLT_ORDER_COL;
  guint64 length = by_column ? layout.rows : layout.cols;
  guint64 lines = by_column ? layout.cols : layout.rows, ld = (guint64)layout.ld;

  for (gint32 i = 1; i < layout.batches; i++)
    {
      guint64 apart = (guint64)(ABS (layout.batch_stride) * i);

      if ((apart % ld < length && apart / ld < lines)
          || (ld - apart % ld < length && apart / ld + 1 < lines))
        return true;
    }
  return false;
}

cublasStatus_t
check_shapes (Product &self, std::string &why)
{
  bool op_a = self.desc.op_a != CUBLAS_OP_N, op_b = self.desc.op_b != CUBLAS_OP_N;

  why = "a layout is not possible";
  if (!is_layout (self.a) || !is_layout (self.b) || !is_layout (self.c) || !is_layout (self.d))
    return CUBLAS_STATUS_INVALID_VALUE;
  self.m = op_a ? self.a.cols : self.a.rows;
  self.k = op_a ? self.a.rows : self.a.cols;
  self.n = op_b ? self.b.rows : self.b.cols;
  why = "sizes do not agree";
  if (self.k != (op_b ? self.b.cols : self.b.rows) || self.m != self.d.rows || self.n != self.d.cols
      || self.c.rows != self.d.rows || self.c.cols != self.d.cols || self.desc.op_c != CUBLAS_OP_N)
    return CUBLAS_STATUS_INVALID_VALUE;
  why = "batch counts do not agree";
  if (self.a.batches != self.d.batches || self.b.batches != self.d.batches
      || self.c.batches != self.d.batches)
    return CUBLAS_STATUS_INVALID_VALUE;
  why = "results of a batch lie on one another";
  if (overlap (self.d))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
check_epilogue (const Product &self, const Row &row, std::string &why)
{
  gint32 type = self.desc.bias_type < 0 ? self.d.type : self.desc.bias_type;

  if (self.desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_SUCCESS;
  why = "an epilogue that is not known here";
  if (self.desc.epilogue != CUBLASLT_EPILOGUE_BIAS)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (self.desc.bias_type < 0 && is_fp8 (self.d.type))
    type = row.bias;
  why = "the bias does not go with the other types";
  return type == row.bias ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool
is_of_128 (gint32 mode)
{
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
         || mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

/* Scales are for narrow formats only. */
cublasStatus_t
check_scales (const Product &self, std::string &why)
{
  const FakeMatmulDesc &desc = self.desc;
  bool is_block = desc.mode_a != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  int major = runtime.machine.major;

  why = "a scale for a format that has none";
  if ((desc.scale_a != nullptr && !is_narrow (self.a.type))
      || (desc.scale_b != nullptr && !is_narrow (self.b.type)) || desc.scale_c != nullptr
      || ((desc.scale_d != nullptr || desc.amax_d != nullptr) && !is_fp8 (self.d.type)))
    return CUBLAS_STATUS_INVALID_VALUE;
  why = "scale modes that do not go together";
  if ((desc.mode_a != desc.mode_b && !(is_of_128 (desc.mode_a) && is_of_128 (desc.mode_b)))
      || (desc.mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F && desc.mode_a == desc.mode_b)
      || desc.mode_c != 0 || desc.mode_d != 0 || (is_block && is_narrow (self.d.type)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  why = "a scale mode that this device or format does not have";
  switch (desc.mode_a)
    {
    case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F:
      return self.a.type != CUDA_R_4F_E2M1 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      if (!is_fp8 (self.a.type) || major != 9)
        return CUBLAS_STATUS_NOT_SUPPORTED;
      break;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
      if (!is_fp8 (self.a.type) || major < 10 || self.k % 32 != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
      break;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3:
      if (self.a.type != CUDA_R_4F_E2M1 || major < 10 || self.k % 32 != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
      break;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      if (!is_fp8 (self.a.type) || major != 9 || self.m % 4 != 0 || self.n % 4 != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
      why = "fast accumulation, which blocks of 128 do not have";
      if (desc.fast_accumulation != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
      break;
    default:
      why = "a scale mode that is not known here";
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  why = "scales of blocks that do not begin on 16 bytes";
  if (desc.mode_a != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
      && ((guintptr)desc.scale_a % 16 != 0 || (guintptr)desc.scale_b % 16 != 0))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  why = "no scales for a mode that needs them";
  return desc.scale_a != nullptr && desc.scale_b != nullptr ? CUBLAS_STATUS_SUCCESS
                                                            : CUBLAS_STATUS_INVALID_VALUE;
}

bool
is_multiple_of_16_bytes (guint64 elements, gint32 type)
{
  return elements * bits_of (type) % 128 == 0;
}

/* The requirements of kernels for fp8 and narrower. */
cublasStatus_t
check_narrow (const Product &self, std::string &why)
{
  int version = runtime.machine.major * 10 + runtime.machine.minor;
  bool is_tn = self.desc.op_a != CUBLAS_OP_N && self.desc.op_b == CUBLAS_OP_N;

  why = "the device has no such products";
  if (version < (self.a.type == CUDA_R_4F_E2M1 ? 100 : 89))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  why = "A must be transposed and B not";
  if (!is_tn && (version < 100 || version >= 120 || self.a.type == CUDA_R_4F_E2M1))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  why = "rows and leading dimensions must be multiples of 16 bytes, m and k of 16 elements";
  for (const FakeMatrixLayout *layout : { &self.a, &self.b, &self.c, &self.d })
    if (!is_multiple_of_16_bytes ((guint64)layout->ld, layout->type)
        || !is_multiple_of_16_bytes ((guint64)layout->batch_stride, layout->type)
        || layout->order != CUBLASLT_ORDER_COL)
      return CUBLAS_STATUS_NOT_SUPPORTED;
  return self.m % 16 == 0 && self.k % 16 == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

}

bool
is_fp8 (gint32 type)
{
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

const char *
name_of_type (gint32 type)
{
  switch (type)
    {
    case CUDA_R_32F:
      return "fp32";
    case CUDA_R_16BF:
      return "bf16";
    case CUDA_R_16F:
      return "fp16";
    case CUDA_R_8F_E4M3:
      return "e4m3";
    case CUDA_R_8F_E5M2:
      return "e5m2";
    case CUDA_R_4F_E2M1:
      return "e2m1";
    default:
      return "?";
    }
}

cublasStatus_t
check_product (Product &self, std::string &why)
{
  cublasStatus_t status = check_shapes (self, why);
  const Row *row = find_row (self);

  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  why = "sums and scales are not fp32";
  if ((self.desc.compute != CUBLAS_COMPUTE_32F && self.desc.compute != CUBLAS_COMPUTE_32F_PEDANTIC
       && (self.desc.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || self.a.type != CUDA_R_32F))
      || self.desc.scale_type != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  why = "formats that do not go together";
  if (row == nullptr)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  why = "a negative number of multiprocessors";
  if (self.desc.sms < 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  status = check_scales (self, why);
  if (status == CUBLAS_STATUS_SUCCESS && is_narrow (self.a.type))
    status = check_narrow (self, why);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = check_epilogue (self, *row, why);
  return status;
}

cublasStatus_t
check_operands (const Product &product, const Operands &operands, const guint16 alignment[4],
                std::string &why)
{
  const void *at[] = { operands.a, operands.b, operands.c, operands.d };
  const FakeMatrixLayout *layout[] = { &product.a, &product.b, &product.c, &product.d };

  for (guint i = 0; i < G_N_ELEMENTS (at); i++)
    {
      bool is_unused = i == 2 && operands.beta == nullptr && operands.host_beta == 0;

      why = "an operand is missing";
      if (at[i] == nullptr && !is_unused)
        return CUBLAS_STATUS_INVALID_VALUE;
      why = "an operand is less aligned than its format, or than the algorithm was chosen for";
      if (!is_unused
          && ((guintptr)at[i] % MAX (alignment[i], 1) != 0
              || (guintptr)at[i] % MAX (bits_of (layout[i]->type) / 8, 1) != 0))
        return CUBLAS_STATUS_INVALID_VALUE;
      why = "matrices of a batch are less aligned than the algorithm was chosen for";
      if (layout[i]->batches > 1
          && (guint64)layout[i]->batch_stride * bits_of (layout[i]->type) / 8
                     % MAX (alignment[i], 1)
                 != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    }
  why = "the bias is missing";
  if (product.desc.epilogue == CUBLASLT_EPILOGUE_BIAS && product.desc.bias == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  why = "C and D are the same memory with different layouts";
  if (operands.c == operands.d
      && (product.c.type != product.d.type || product.c.ld != product.d.ld
          || product.c.batch_stride != product.d.batch_stride))
    return CUBLAS_STATUS_INVALID_VALUE;
  why = "the workspace is missing, or not on 256 bytes";
  if (operands.workspace_bytes > 0
      && (operands.workspace == nullptr || (guintptr)operands.workspace % 256 != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

}
