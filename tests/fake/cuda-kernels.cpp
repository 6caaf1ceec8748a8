/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cuda's kernels as they are, for the fake device. */
#include "config.h"

#include "tests/fake/cuda-fake.h"

/* So few that blocks go round more than once. */
#define EXEC_CUDA_MAX_BLOCKS 5

#include "exec/cuda/attention.cu"
#include "exec/cuda/attention-softmax.cu"
#include "exec/cuda/elementwise.cu"
#include "exec/cuda/embedding.cu"
#include "exec/cuda/gemm-plain.cu"
#include "exec/cuda/head-norm.cu"
#include "exec/cuda/loss.cu"
#include "exec/cuda/adam-fp8.cu"
#include "exec/cuda/norm.cu"
#include "exec/cuda/norm-bwd.cu"
#include "exec/cuda/optimizer.cu"
#include "exec/cuda/param.cu"
#include "exec/cuda/quantize.cu"
#include "exec/cuda/quantize-128x128.cu"
#include "exec/cuda/sum.cu"
