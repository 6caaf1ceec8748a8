/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/lt.h"

#include <cuda_runtime_api.h>

gboolean
exec_cuda_lt_open (cublasLtHandle_t *out_handle, guint16 *out_sms, GError **error)
{
  int device, sms;
  CUDA_TRY (cudaGetDevice (&device), error);
  CUDA_TRY (cudaDeviceGetAttribute (&sms, cudaDevAttrMultiProcessorCount, device), error);
  CUDA_TRY (exec_cuda_lt_code ((int)cublasLtCreate (out_handle)), error);
  *out_sms = (guint16)sms;
  return TRUE;
}

/* Larger alignments do not count: kernels load at most 16 bytes at once, and copies of whole tiles
 * begin on 16 bytes. If they did, the same product at another address could be given another
 * algorithm, and so other digits. */
#define WIDEST_ACCESS 16

guint8
exec_cuda_lt_alignment (guint64 address)
{
  return (guint8)MIN (address & -address, WIDEST_ACCESS);
}

cudaDataType_t
exec_cuda_lt_type (PlanDtype dtype)
{
  switch ((int)dtype)
    {
    case PLAN_DTYPE_BF16:
      return CUDA_R_16BF;
    case PLAN_DTYPE_FP16:
      return CUDA_R_16F;
    case PLAN_DTYPE_E4M3:
    case PLAN_DTYPE_MXFP8:
    case PLAN_DTYPE_FP8_1X128:
    case PLAN_DTYPE_FP8_128X128:
      return CUDA_R_8F_E4M3;
    case PLAN_DTYPE_NVFP4:
#if CUBLAS_VERSION >= 120800
      return CUDA_R_4F_E2M1;
#else
      return CUDA_R_8F_E4M3; /* never used: mode_of in gemm-lt.c has nothing for nvfp4 then */
#endif
    case PLAN_DTYPE_E5M2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
    }
}

int
exec_cuda_lt_describe (guint layout, guint sms, cublasLtMatmulDesc_t *out)
{
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const gint32 target = (gint32)sms;
  LT_TRY (cublasLtMatmulDescCreate (out, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  if (layout == 1)
    LT_SET (*out, CUBLASLT_MATMUL_DESC_TRANSA, transposed);
  if (layout == 2)
    LT_SET (*out, CUBLASLT_MATMUL_DESC_TRANSB, transposed);
  if (target > 0)
    LT_SET (*out, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, target);
  return 0;
}

static int
set_preference (cublasLtMatmulPreference_t preference, const ExecCudaQuestion *question)
{
  const struct
  {
    cublasLtMatmulPreferenceAttributes_t attribute;
    guint8 bytes;
  } alignments[] = { { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, question->first_alignment },
                     { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, question->second_alignment },
                     { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, question->out_alignment },
                     { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, question->out_alignment } };
  /* Otherwise parts of a sum could be added in the format of the result, rounded each time. */
  const guint32 reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  LT_TRY (cublasLtMatmulPreferenceSetAttribute (preference,
                                                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &question->workspace, sizeof question->workspace));
  LT_TRY (cublasLtMatmulPreferenceSetAttribute (
      preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
  for (guint i = 0; i < G_N_ELEMENTS (alignments); i++)
    {
      const guint32 bytes = alignments[i].bytes > 0 ? alignments[i].bytes : 256;
      LT_TRY (cublasLtMatmulPreferenceSetAttribute (preference, alignments[i].attribute, &bytes,
                                                    sizeof bytes));
    }
  return 0;
}

/* Drops results that cannot be used: by the documentation, those whose state is not success. */
static int
keep_usable (cublasLtMatmulHeuristicResult_t *results, int found)
{
  int kept = 0;
  for (int i = 0; i < found; i++)
    if (results[i].state == CUBLAS_STATUS_SUCCESS)
      results[kept++] = results[i];
  return kept;
}

int
exec_cuda_lt_propose (cublasLtHandle_t handle, const ExecCudaQuestion *question, int most,
                      cublasLtMatmulHeuristicResult_t *out_results, int *out_found)
{
  cublasLtMatmulPreference_t preference;
  LT_TRY (cublasLtMatmulPreferenceCreate (&preference));
  int code = set_preference (preference, question);
  if (code == 0)
    code = exec_cuda_lt_code ((int)cublasLtMatmulAlgoGetHeuristic (
        handle, question->desc, question->first, question->second, question->out, question->out,
        preference, most, out_results, out_found));
  cublasLtMatmulPreferenceDestroy (preference);
  if (code == 0)
    *out_found = keep_usable (out_results, *out_found);
  return code == 0 && *out_found == 0 ? exec_cuda_lt_code (CUBLAS_STATUS_NOT_SUPPORTED) : code;
}

gboolean
exec_cuda_lt_is_refusal (int code)
{
  return code == exec_cuda_lt_code (CUBLAS_STATUS_NOT_SUPPORTED);
}

gboolean
exec_cuda_lt_refuses_algo (int code)
{
  return code == exec_cuda_lt_code (CUBLAS_STATUS_NOT_SUPPORTED)
         || code == exec_cuda_lt_code (CUBLAS_STATUS_INVALID_VALUE)
         || code == exec_cuda_lt_code (CUBLAS_STATUS_ARCH_MISMATCH);
}

guint
exec_cuda_lt_hash (gconstpointer data, gsize bytes)
{
  const guint8 *byte = data;
  guint32 hash = 2166136261u; /* FNV-1a */
  for (gsize i = 0; i < bytes; i++)
    hash = (hash ^ byte[i]) * 16777619u;
  return hash;
}
