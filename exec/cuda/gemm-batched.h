/* Products of several matrices of one shape at once, by cuBLASLt: row-major, fp32 inside, rounded
 * once. What is needed to issue one is made once per shape and thread; its algorithm is always the
 * first that the library proposes, without a workspace, and so the same one everywhere. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

/* Device memory, fp32, bf16 or fp16; in elements: from one row to the next, from one matrix to the
 * next.
 */
typedef struct
{
  void *at;
  PlanDtype dtype;
  gint64 pitch, stride;
} ExecCudaMatrices;

/* out[m, n] = a b, of each of `count`; `layout` as in the op list: 0 [m, k] [k, n],
 * 1 [m, k] [n, k], 2 [k, m] [k, n]. */
typedef struct
{
  gint64 m, n, k;
  guint count, layout;
  gboolean accumulates; /* to what is in out */
  guint taken_sms;      /* of the GPU's, by what may run meanwhile */
  ExecCudaMatrices out, a, b;
} ExecCudaBatch;

/* For the thread that calls; each open is followed by a close. The device is set. */
gboolean exec_cuda_batched_open (GError **error);
void exec_cuda_batched_close (void);

/* Issues it on a CUDA stream; the code is one for exec_cuda_check, a refusal where cuBLASLt has no
 * such product. */
int exec_cuda_batched (const ExecCudaBatch *batch, void *stream);

G_END_DECLS
