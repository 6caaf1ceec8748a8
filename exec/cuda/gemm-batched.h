/* Products of several matrices of one shape at once, by cuBLASLt: row-major, summed in fp32,
 * rounded once. Descriptors are made once per shape and thread. The algorithm is always the first
 * that the library proposes, without a workspace, so it is the same one in every run. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

/* Matrices in device memory, in fp32, bf16 or fp16. `pitch` is from one row to the next, `stride`
 * from one matrix to the next, in elements. */
typedef struct
{
  void *at;
  PlanDtype dtype;
  gint64 pitch, stride;
} ExecCudaMatrices;

/* out[m, n] = a b, for each of `count` matrices. The layout is as in the op list: 0 is
 * a[m, k] b[k, n], 1 is a[m, k] b[n, k], 2 is a[k, m] b[k, n]. */
typedef struct
{
  gint64 m, n, k;
  guint count, layout;
  gboolean accumulates; /* adds to what is in out */
  guint taken_sms;      /* SMs that other kernels may use meanwhile */
  ExecCudaMatrices out, a, b;
} ExecCudaBatch;

/* Prepares the calling thread for its current CUDA device. Each open is followed by a close. */
gboolean exec_cuda_batched_open (GError **error);
void exec_cuda_batched_close (void);

/* Issues the batch on a CUDA stream. The code is one for exec_cuda_check: a refusal (see
 * exec_cuda_lt_is_refusal) where cuBLASLt has no such product. */
int exec_cuda_batched (const ExecCudaBatch *batch, void *stream);

G_END_DECLS
