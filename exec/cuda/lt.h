/* What products by cuBLASLt have in common, one at a time or several at once: how one is described
 * to the library and what it is asked. Its matrices are column-major: its first factor is our b,
 * its second our a. Functions give codes for exec_cuda_check. */
#pragma once
#include "exec/cuda/cuda-check.h"
#include "planner/base/dtype.h"
#include <glib.h>

#include <cublasLt.h>
G_BEGIN_DECLS

/* Leaves the function with the code when the call fails. */
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

/* A handle on the device that is set, which has so many SMs. */
gboolean exec_cuda_lt_open (cublasLtHandle_t *out_handle, guint16 *out_sms, GError **error);

/* The largest power of two that an address (or several, or-ed) is a multiple of; 0 for 256 and
 * more.
 */
guint8 exec_cuda_lt_alignment (guint64 address);

cudaDataType_t exec_cuda_lt_type (PlanDtype dtype);

/* Of fp32 sums, by `sms` of the device (0: all); `layout` as in the op list. */
int exec_cuda_lt_describe (guint layout, guint sms, cublasLtMatmulDesc_t *out);

/* What the library is asked for. */
typedef struct
{
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t first, second, out;
  guint8 first_alignment, second_alignment, out_alignment;
  guint64 workspace; /* bytes, at most */
} ExecCudaQuestion;

/* As many of its proposals as it has, `most` at most, best first; a refusal if that is none. */
int exec_cuda_lt_propose (cublasLtHandle_t handle, const ExecCudaQuestion *question, int most,
                          cublasLtMatmulHeuristicResult_t *out_results, int *out_found);

/* The code where cuBLASLt has no such product. */
gboolean exec_cuda_lt_is_refusal (int code);

/* One that an algorithm may be told by which had been proposed: another one may do. */
gboolean exec_cuda_lt_is_of_algo (int code);

/* Of what is compared byte by byte. */
guint exec_cuda_lt_hash (gconstpointer data, gsize bytes);

G_END_DECLS
