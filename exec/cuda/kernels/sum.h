/* The sum, and the largest, over ranks that share a GPU, as exec_comm_sum and exec_comm_max are
 * those of ranks on the host. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
#include <stdint.h>
G_BEGIN_DECLS

/* Ranks at most: their addresses are arguments of the kernel. */
#define EXEC_CUDA_MAX_SUMMED 64

/* out = the sum of `ranks` arrays of `count` elements in fp32, bf16 or fp16, in order, in fp32,
 * rounded once. The stream is a cudaStream_t, the result a cudaError_t. */
int exec_cuda_sum (void *out, const void *const *in, unsigned ranks, uint64_t count,
                   PlanDtype dtype, void *stream);

/* The same of the largest; a NaN where one is. */
int exec_cuda_max (void *out, const void *const *in, unsigned ranks, uint64_t count,
                   PlanDtype dtype, void *stream);

/* NaNs in any of these formats become infinity, which no maximum drops. */
int exec_cuda_seal (void *buf, uint64_t count, PlanDtype dtype, void *stream);

G_END_DECLS
