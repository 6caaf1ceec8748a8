/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuBLASLt as its files share it: a product is gathered from its descriptors, checked, and
 * multiplied. */
#pragma once
#include "tests/fake/device.hpp"
#include "tests/fake/include/cublasLt.h"

struct FakeMatrixLayout
{
  gint32 type, order = CUBLASLT_ORDER_COL;
  guint64 rows, cols;
  gint64 ld;
  gint32 batches = 1;
  gint64 batch_stride = 0;
};

struct FakeMatmulDesc
{
  gint32 compute, scale_type, pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  gint32 op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N, op_c = CUBLAS_OP_N;
  guint32 epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void *bias = nullptr;
  gint32 bias_type = -1; /* -1: the type of D */
  gint32 sms = 0;        /* 0: all */
  gint8 fast_accumulation = 0;
  const void *scale_a = nullptr, *scale_b = nullptr, *scale_c = nullptr, *scale_d = nullptr;
  void *amax_d = nullptr;
  gint32 mode_a = 0, mode_b = 0, mode_c = 0, mode_d = 0;
};

struct FakeMatmulPreference
{
  guint32 search_mode = 0, reductions = 7;
  guint64 workspace = 0;
  guint32 alignment[4] = { 256, 256, 256, 256 }; /* of A, B, C, D */
};

namespace fake
{

/* D = alpha op(A) op(B) + beta C: all of it but the pointers. */
struct Product
{
  FakeMatmulDesc desc;
  FakeMatrixLayout a, b, c, d;
  guint64 m, n, k; /* set by check_product */
};

struct Operands
{
  const void *a, *b, *c;
  void *d;
  const void *alpha, *beta; /* on the device; NULL: the host's values below */
  float host_alpha, host_beta;
  void *workspace;
  size_t workspace_bytes;
  unsigned split; /* parts of k that are summed separately */
  bool rounds;    /* each part, and each sum of parts, is rounded to the result's format */
};

/* cublaslt-check.cpp: the status by which the real cuBLASLt refuses the product; `why` is a message
 * for people. */
cublasStatus_t check_product (Product &product, std::string &why);
cublasStatus_t check_operands (const Product &product, const Operands &operands,
                               const guint16 alignment[4], std::string &why);
const char *name_of_type (gint32 type);
bool is_fp8 (gint32 type);

/* cublaslt-gemm.cpp: runs the product. */
cudaError_t multiply (Op &op, const Product &product, const Operands &operands);

}
