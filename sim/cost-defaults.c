/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter sets that hold until something is measured. For GPUs: public measurements of large
 * ops over the data sheet's rate, each with its source, and one assumption, marked as such. For
 * CPUs: assumptions all, of the right order. None was chosen to fit a training run. */
#include "config.h"

#include "sim/cost.h"

static const SimParams defaults[] = {
  [PLAN_DEVICE_GPU] = {
      .id = "default-gpu-1",
      .gemm_efficiency = 0.72,          /* a layer's products, forward and backward, bf16, H200 NVL:
                                           600 of 835 TFLOP/s (TransformerEngine, GEMM profiling) */
      .attention_efficiency = 0.65,     /* cuDNN 9.19 causal, 8192 x 64 x 128, H200: 644 of 989 */
      .attention_bwd_efficiency = 0.55, /* the same, backward: 541 of 989 */
      .memory_efficiency = 0.90,        /* device copy on H200: 4.3 of 4.8 TB/s */
      .link_efficiency = 0.73,          /* NCCL all-gather beside FSDP on 8 x H100, 32 to 128 MiB:
                                           330 of 450 GB/s (Megatron-LM PR #5596) */
      .nic_efficiency = 0.82,           /* NCCL all-gather on 2 x 8 H200 with 8 x 400 Gbit/s per node:
                                           328 of 400 GB/s (Google Cloud A3 Ultra) */
      .kernel_ns = 2000,                /* assumed: the shortest kernels take 2 to 3 us */
  },
  [PLAN_DEVICE_CPU] = {
      .id = "default-cpu-1",
      .gemm_efficiency = 0.70,          /* sgemm on one thread, mid-sized products */
      .attention_efficiency = 0.20,     /* products over the whole square and scalar softmax */
      .attention_bwd_efficiency = 0.20,
      .memory_efficiency = 0.40,        /* element-wise loops with conversions, one thread */
      .link_efficiency = 0.40,          /* copies through shared memory */
      .nic_efficiency = 0.80,
      .kernel_ns = 500,
  },
};

const SimParams *
sim_params_default (PlanDeviceKind kind)
{
  return &defaults[kind];
}
