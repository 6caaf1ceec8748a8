/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cuda's kernels, unchanged, compiled for the fake device. */
#include "config.h"

#include "tests/fake/cuda-fake.h"

/* so few blocks that each works on more than one piece */
#define EXEC_CUDA_MAX_BLOCKS 5

#include "exec/cuda/kernels/adam-fp8.cu"
#include "exec/cuda/kernels/attention-softmax.cu"
#include "exec/cuda/kernels/attention.cu"
#include "exec/cuda/kernels/dropout.cu"
#include "exec/cuda/kernels/elementwise.cu"
#include "exec/cuda/kernels/embedding.cu"
#include "exec/cuda/kernels/expert-bias.cu"
#include "exec/cuda/kernels/experts.cu"
#include "exec/cuda/kernels/gemm-plain.cu"
#include "exec/cuda/kernels/head-norm.cu"
#include "exec/cuda/kernels/latent-rope.cu"
#include "exec/cuda/kernels/loss.cu"
#include "exec/cuda/kernels/norm-bwd.cu"
#include "exec/cuda/kernels/norm.cu"
#include "exec/cuda/kernels/optimizer.cu"
#include "exec/cuda/kernels/param.cu"
#include "exec/cuda/kernels/quantize-128x128.cu"
#include "exec/cuda/kernels/quantize.cu"
#include "exec/cuda/kernels/router.cu"
#include "exec/cuda/kernels/row-map.cu"
#include "exec/cuda/kernels/sum.cu"
