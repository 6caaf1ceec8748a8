/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/scratch.h"

#include "planner/units.h"

guint64
plan_scratch_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype)
{
  switch ((int)kind)
    {
    case PLAN_OP_GEMM: /* fp32 images of both factors and the product */
      if (dtype == PLAN_DTYPE_FP32)
        return 0;
      return (guint64)dims[0] * dims[2] + (guint64)dims[2] * dims[1] + (guint64)dims[0] * dims[1];
    case PLAN_OP_ATTENTION: /* one head: scores, then q, k, v, out */
      return (guint64)dims[1] * dims[1] + 4 * (guint64)dims[1] * dims[4];
    case PLAN_OP_ATTENTION_BWD: /* one head: probabilities and their gradient, then q, k, v, out,
                                   dout, dq, dk, dv */
      return 2 * (guint64)dims[1] * dims[1] + 8 * (guint64)dims[1] * dims[4];
    case PLAN_OP_RMSNORM_BWD: /* dweight in fp32 */
      return (guint64)dims[1];
    case PLAN_OP_EMBED_BWD: /* counting sort of the rows by token, and one fp32 row */
      return (guint64)dims[0] + (guint64)dims[1] + (guint64)dims[2] + 1;
    default:
      return 0;
    }
}

/* cuBLAS's documentation, cublasSetWorkspace: 32 MiB on Hopper and Blackwell's 10.x, 12 MiB on
 * Blackwell's 12.x, 4 MiB before. */
static guint64
product_bytes (const PlanCluster *cluster)
{
  if (cluster->compute_capability >= 120)
    return 12 * PLAN_MIB;
  return cluster->compute_capability >= 90 ? 32 * PLAN_MIB : 4 * PLAN_MIB;
}

guint64
plan_scratch_gpu_elements (PlanOpKind kind, const gint64 *dims, const PlanCluster *cluster)
{
  switch ((int)kind)
    {
    case PLAN_OP_GEMM: /* which begins at a multiple of 256 bytes */
      return (product_bytes (cluster) + 256) / sizeof (float);
    case PLAN_OP_EMBED_BWD: /* the same sort */
      return plan_scratch_elements (kind, dims, PLAN_DTYPE_FP32);
    default:
      return 0;
    }
}
