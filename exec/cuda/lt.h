/* What single and batched products by cuBLASLt have in common: how a product is described to the
 * library, and what the library is asked. cuBLASLt's matrices are column-major, so its first factor
 * is our b and its second our a. Functions return codes for exec_cuda_check. */
#pragma once
#include "exec/cuda/cuda-check.h"
#include "planner/base/dtype.h"
#include <glib.h>

#include <cublasLt.h>
G_BEGIN_DECLS

/* Returns the code from the function if the call fails. */
#define LT_TRY(call) \
  G_STMT_START \
  { \
    const cublasStatus_t status_ = (call); \
    if (status_ != CUBLAS_STATUS_SUCCESS) \
      return exec_cuda_lt_code ((int)status_); \
  } \
  G_STMT_END

#define LT_SET(desc, attribute, value) \
  LT_TRY (cublasLtMatmulDescSetAttribute (desc, attribute, &(value), sizeof (value)))

/* Makes a handle on the current CUDA device, and says how many SMs that has. */
gboolean exec_cuda_lt_open (cublasLtHandle_t *out_handle, guint16 *out_sms, GError **error);

/* The largest power of two up to 16 that an address (or several, or-ed) is a multiple of; 0 for no
 * address. */
guint8 exec_cuda_lt_alignment (guint64 address);

cudaDataType_t exec_cuda_lt_type (PlanDtype dtype);

/* Describes a product with fp32 sums, on `sms` SMs (0: all). The layout is as in the op list. */
int exec_cuda_lt_describe (guint layout, guint sms, cublasLtMatmulDesc_t *out);

/* A product for which cuBLASLt is asked to propose algorithms. */
typedef struct
{
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t first, second, out;
  guint8 first_alignment, second_alignment, out_alignment;
  guint64 workspace; /* that an algorithm may use, in bytes */
} ExecCudaQuestion;

/* Gives cuBLASLt's proposals, best first, `most` at most; a refusal if there is none. */
int exec_cuda_lt_propose (cublasLtHandle_t handle, const ExecCudaQuestion *question, int most,
                          cublasLtMatmulHeuristicResult_t *out_results, int *out_found);

/* Whether the code says that cuBLASLt has no such product. */
gboolean exec_cuda_lt_is_refusal (int code);

/* Whether the code refuses an algorithm, although it had been proposed: another one may do. */
gboolean exec_cuda_lt_refuses_algo (int code);

/* A hash of a key that is compared byte by byte. */
guint exec_cuda_lt_hash (gconstpointer data, gsize bytes);

G_END_DECLS
