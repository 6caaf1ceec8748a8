/* Sum and maximum over ranks that share a GPU: what exec_comm_sum and exec_comm_max are for ranks
 * on the host. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
#include <stdint.h>
G_BEGIN_DECLS

/* The most ranks that may share a GPU: the addresses of their arrays are arguments of the
 * kernel. */
#define EXEC_CUDA_MAX_SUMMED 64

/* out = the sum of `ranks` arrays of `count` elements in fp32, bf16 or fp16, in order, in fp32,
 * rounded once. The stream is a cudaStream_t, the result a cudaError_t. */
int exec_cuda_sum (void *out, const void *const *in, unsigned ranks, uint64_t count,
                   PlanDtype dtype, void *stream);

/* out = the largest of them, element by element; NaN where one of them is. */
int exec_cuda_max (void *out, const void *const *in, unsigned ranks, uint64_t count,
                   PlanDtype dtype, void *stream);

/* Turns NaNs in any of these formats into infinity, which NCCL's maximum keeps, while it may drop
 * NaNs. */
int exec_cuda_nan_to_infinity (void *buf, uint64_t count, PlanDtype dtype, void *stream);

G_END_DECLS
