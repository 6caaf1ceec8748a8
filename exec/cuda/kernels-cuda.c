/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/layers.h"

#include "exec/cuda/attention-batched.h"
#include "exec/cuda/attention-fused.h"
#include "exec/cuda/device-cuda.h"
#include "exec/cuda/gemm-grouped.h"
#include "exec/cuda/gemm-lt.h"
#include "exec/cuda/kernels/experts.h"
#include "planner/base/error.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

/* Says which CUDA the driver is for, where that is too old for this program; or that there is no
 * driver, of which the runtime says version 0. Empty for other errors. The caller frees. */
static char *
describe_driver (cudaError_t code)
{
  int driver = 0, own = 0;
  if (code != cudaErrorInsufficientDriver || cudaDriverGetVersion (&driver) != cudaSuccess
      || cudaRuntimeGetVersion (&own) != cudaSuccess)
    return g_strdup ("");
  if (driver == 0)
    return g_strdup (": there is none here, or no libcuda.so.1 where libraries are looked for");
  return g_strdup_printf (": it is for CUDA %d.%d, and this program needs one for %d.%d",
                          driver / 1000, driver % 1000 / 10, own / 1000, own % 1000 / 10);
}

static gboolean
open_cuda (GError **error)
{
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount (&devices);
  if (code == cudaSuccess && devices > 0)
    return TRUE;
  g_autofree char *driver = describe_driver (code);
  cudaGetLastError (); /* clears the error, which is reported here */
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "no CUDA device: %s%s",
               cudaGetErrorString (code == cudaSuccess ? cudaErrorNoDevice : code), driver);
  return FALSE;
}

#define FIRST_WITH_BLOCKS 100 /* compute capability times 10, of Blackwell */

/* The compute capability of this thread's GPU, times 10. */
static int
capability (void)
{
  int device, major = 0, minor = 0;
  if (cudaGetDevice (&device) != cudaSuccess
      || cudaDeviceGetAttribute (&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess
      || cudaDeviceGetAttribute (&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    cudaGetLastError (); /* clears the error */
  return 10 * major + minor;
}

#define HOPPER 90
#define FIRST_LT_WITH_FP32_SCALES 120900

static gboolean
has_fp32_scales (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP8_1X128 || dtype == PLAN_DTYPE_FP8_128X128;
}

/* Refuses a buffer in a format with fp32 scales, of 128 elements or of 128 x 128, where cuBLASLt
 * cannot multiply it: it does so on Hopper alone, without emulation elsewhere. */
static gboolean
check_fp32_scales (const PlanBuffer *buffer, GError **error)
{
  if (!has_fp32_scales (buffer->dtype)
      || (capability () == HOPPER && cublasLtGetVersion () >= FIRST_LT_WITH_FP32_SCALES))
    return TRUE;
  if (capability () == HOPPER)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                 "this plan keeps %s in %s, which cuBLASLt multiplies from 12.9 on: this one is "
                 "%zu, compute must be fp32, bf16, fp8-delayed or fp8-tensorwise",
                 buffer->name, plan_dtype_name (buffer->dtype), cublasLtGetVersion ());
  else
    g_set_error (
        error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
        "this plan keeps %s in %s, which cuBLASLt multiplies on GPUs of compute "
        "capability 9.0 alone: this one has %d.%d, compute must be fp32, bf16%s",
        buffer->name, plan_dtype_name (buffer->dtype), capability () / 10, capability () % 10,
        capability () >= FIRST_WITH_BLOCKS ? ", fp8-delayed, fp8-tensorwise, mxfp8 or nvfp4"
        : capability () >= 89              ? ", fp8-delayed or fp8-tensorwise"
                                           : "");
  return FALSE;
}

static gboolean
has_blocks (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_MXFP8 || dtype == PLAN_DTYPE_NVFP4 || dtype == PLAN_DTYPE_E8M0
         || dtype == PLAN_DTYPE_E2M1;
}

static gboolean
check_router (const PlanOp *op, GError **error)
{
  const gint64 experts = op->dims[PLAN_DIM_ROUTE_experts];
  if (op->kind != PLAN_OP_ROUTE || experts <= EXEC_CUDA_MOST_EXPERTS)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "a router of %" G_GINT64_FORMAT " experts is modelled and not executed by cuda yet: "
               "there may be %d at most",
               experts, EXEC_CUDA_MOST_EXPERTS);
  return FALSE;
}

/* Refuses a copy to or from the host that would round: the link moves bytes. */
static gboolean
check_copy (const PlanSchedule *schedule, const PlanOp *op, GError **error)
{
  if (op->kind != PLAN_OP_COPY
      || plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_COPY_out].array)->dtype
             == plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_COPY_in].array)->dtype)
    return TRUE;
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                       "this plan needs the op copy between number formats, which is modelled and "
                       "not executed by cuda yet");
  return FALSE;
}

/* Refuses an op that this GPU cannot do. Formats with scales of blocks are multiplied from
 * Blackwell on. */
static gboolean
check_cuda (const PlanSchedule *schedule, const PlanOp *op, GError **error)
{
  if (!check_router (op, error) || !check_copy (schedule, op, error))
    return FALSE;
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      const PlanRef *ref = &op->refs[i];
      const PlanBuffer *buffer
          = ref->array >= 0 ? plan_schedule_buffer (schedule, (guint)ref->array) : NULL;
      if (buffer && !check_fp32_scales (buffer, error))
        return FALSE;
      if (!buffer || !has_blocks (buffer->dtype) || capability () >= FIRST_WITH_BLOCKS)
        continue;
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "this plan keeps %s in %s, which cuBLASLt multiplies on GPUs of compute "
                   "capability 10.0 and later: this one has %d.%d, compute must be fp32, bf16, "
                   "fp8-delayed or fp8-tensorwise",
                   buffer->name, plan_dtype_name (buffer->dtype), capability () / 10,
                   capability () % 10);
      return FALSE;
    }
  return TRUE;
}

static char *
describe_cuda (void)
{
  struct cudaDeviceProp properties;
  int device;
  if (cudaGetDevice (&device) != cudaSuccess
      || cudaGetDeviceProperties (&properties, device) != cudaSuccess)
    return g_strdup ("an unknown GPU");
  const guint cudnn = exec_cuda_fused_version ();
  g_autofree char *attention = cudnn > 0 ? g_strdup_printf (", cuDNN %u", cudnn) : g_strdup ("");
  return g_strdup_printf ("%s, cuBLASLt %zu%s", properties.name, cublasLtGetVersion (), attention);
}

const ExecKernels exec_kernels_cuda = {
  .name = "cuda",
  .summary = "NVIDIA GPUs: a kernel per op, products by cuBLASLt",
  .open = open_cuda,
  .describe = describe_cuda,
  .check = check_cuda,
  .device = &exec_device_cuda,
  .more_formats = 1u << PLAN_DTYPE_E8M0 | 1u << PLAN_DTYPE_E2M1 | 1u << PLAN_DTYPE_FP16,
  .launch = {
    [PLAN_OP_ZERO] = exec_cuda_zero,
    [PLAN_OP_CAST] = exec_cuda_cast,
    [PLAN_OP_COPY] = exec_cuda_copy,
    [PLAN_OP_ACCUMULATE] = exec_cuda_accumulate,
    [PLAN_OP_QUANTIZE] = exec_cuda_quantize,
    [PLAN_OP_GROUPED_QUANTIZE] = exec_cuda_grouped_quantize,
    [PLAN_OP_SWIGLU_QUANTIZE] = exec_cuda_quantize,
    [PLAN_OP_SWIGLU_BWD_QUANTIZE] = exec_cuda_quantize,
    [PLAN_OP_PARAM_AMAX] = exec_cuda_param_amax,
    [PLAN_OP_PARAM_QUANTIZE] = exec_cuda_param_quantize,
    [PLAN_OP_SCALE] = exec_cuda_scale,
    [PLAN_OP_RESCALE] = exec_cuda_rescale,
    [PLAN_OP_TRANSPOSE] = exec_cuda_transpose,
    [PLAN_OP_GROUPED_TRANSPOSE] = exec_cuda_grouped_transpose,
    [PLAN_OP_SUM_PARTS] = exec_cuda_sum_parts,
    [PLAN_OP_ADD] = exec_cuda_add,
    [PLAN_OP_DROPOUT] = exec_cuda_dropout,
    [PLAN_OP_DROPOUT_ADD] = exec_cuda_dropout_add,
    [PLAN_OP_DROPOUT_BWD] = exec_cuda_dropout_bwd,
    [PLAN_OP_SOFTCAP] = exec_cuda_softcap,
    [PLAN_OP_SOFTCAP_BWD] = exec_cuda_softcap_bwd,
    [PLAN_OP_POSITIONS] = exec_cuda_positions,
    [PLAN_OP_POSITIONS_BWD] = exec_cuda_positions_bwd,
    [PLAN_OP_EMBED] = exec_cuda_embed,
    [PLAN_OP_EMBED_BWD] = exec_cuda_embed_bwd,
    [PLAN_OP_RMSNORM] = exec_cuda_rmsnorm,
    [PLAN_OP_RMSNORM_BWD] = exec_cuda_rmsnorm_bwd,
    [PLAN_OP_LAYERNORM] = exec_cuda_layernorm,
    [PLAN_OP_LAYERNORM_BWD] = exec_cuda_layernorm_bwd,
    [PLAN_OP_ADD_RMSNORM] = exec_cuda_add_rmsnorm,
    [PLAN_OP_ADD_LAYERNORM] = exec_cuda_add_layernorm,
    [PLAN_OP_HEAD_NORM] = exec_cuda_head_norm,
    [PLAN_OP_HEAD_NORM_BWD] = exec_cuda_head_norm_bwd,
    [PLAN_OP_GEMM] = exec_cuda_gemm,
    [PLAN_OP_GEMM_ADD] = exec_cuda_gemm_add,
    [PLAN_OP_BIAS_BWD] = exec_cuda_bias_bwd,
    [PLAN_OP_ROPE] = exec_cuda_rope,
    [PLAN_OP_ATTENTION] = exec_cuda_fused_attention,
    [PLAN_OP_ATTENTION_BWD] = exec_cuda_fused_attention_bwd,
    [PLAN_OP_ATTENTION_JOIN] = exec_cuda_attention_join,
    [PLAN_OP_ATTENTION_SINK] = exec_cuda_attention_sink,
    [PLAN_OP_ATTENTION_SINK_BWD] = exec_cuda_attention_sink_bwd,
    [PLAN_OP_LATENT_ROPE] = exec_cuda_latent_rope,
    [PLAN_OP_LATENT_ROPE_BWD] = exec_cuda_latent_rope_bwd,
    [PLAN_OP_LATENT_ATTENTION] = exec_cuda_batched_latent,
    [PLAN_OP_LATENT_ATTENTION_BWD] = exec_cuda_batched_latent_bwd,
    [PLAN_OP_SWIGLU] = exec_cuda_swiglu,
    [PLAN_OP_SWIGLU_BWD] = exec_cuda_swiglu_bwd,
    [PLAN_OP_ACTIVATE] = exec_cuda_activate,
    [PLAN_OP_ACTIVATE_BWD] = exec_cuda_activate_bwd,
    [PLAN_OP_ROUTE] = exec_cuda_route,
    [PLAN_OP_DROP_TOKENS] = exec_cuda_drop_tokens,
    [PLAN_OP_BALANCE] = exec_cuda_balance,
    [PLAN_OP_ROUTE_BWD] = exec_cuda_route_bwd,
    [PLAN_OP_COUNT_ROUTES] = exec_cuda_count_routes,
    [PLAN_OP_ROW_MAP] = exec_cuda_row_map,
    [PLAN_OP_PERMUTE] = exec_cuda_permute,
    [PLAN_OP_UNPERMUTE] = exec_cuda_unpermute,
    [PLAN_OP_GROUPED_GEMM] = exec_cuda_grouped_gemm,
    [PLAN_OP_GROUPED_GEMM_ADD] = exec_cuda_grouped_gemm,
    [PLAN_OP_EXPERT_ACTIVATE] = exec_cuda_expert_activate,
    [PLAN_OP_EXPERT_ACTIVATE_BWD] = exec_cuda_expert_activate_bwd,
    [PLAN_OP_SCALE_ROWS] = exec_cuda_scale_rows,
    [PLAN_OP_SCALE_ROWS_BWD] = exec_cuda_scale_rows_bwd,
    [PLAN_OP_ADD_EXPERT_BIAS] = exec_cuda_add_expert_bias,
    [PLAN_OP_ADD_EXPERT_BIAS_BWD] = exec_cuda_add_expert_bias_bwd,
    [PLAN_OP_GATE] = exec_cuda_gate,
    [PLAN_OP_GATE_BWD] = exec_cuda_gate_bwd,
    [PLAN_OP_ROW_STAT] = exec_cuda_row_stat,
    [PLAN_OP_CROSS_ENTROPY] = exec_cuda_cross_entropy,
    [PLAN_OP_CROSS_ENTROPY_BWD] = exec_cuda_cross_entropy_bwd,
    [PLAN_OP_LOSS_GRAD] = exec_cuda_loss_grad,
    [PLAN_OP_NORM_SQ] = exec_cuda_norm_sq,
    [PLAN_OP_CLIP] = exec_cuda_clip,
    [PLAN_OP_ADAMW] = exec_cuda_adamw,
    [PLAN_OP_ADAMW_HOST] = exec_cuda_adamw_host,
    [PLAN_OP_SGD] = exec_cuda_sgd,
  },
};
