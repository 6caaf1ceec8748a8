/* Scratch memory that our own kernels need, in fp32 elements, as a function of an op's dims and the
 * device alone. Lowering provides it; the kernels use no other memory. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* The fp32 elements (256 bytes) that cuDNN's attention engines take for themselves. */
#define PLAN_SCRATCH_CUDNN_ELEMENTS 64

/* Alignment of libraries' workspaces in fp32 elements (256 bytes). Buffers need not be aligned so,
 * and are made larger by as much. */
#define PLAN_SCRATCH_ALIGNMENT 64

/* The fp32 elements that an op needs on a CPU whose matrices are in `dtype`; 0 if it needs none. */
guint64 plan_scratch_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype);

/* The fp32 elements that an op needs on the cluster's GPUs. GEMMs need cuBLASLt's workspace, of the
 * size that NVIDIA recommends. */
guint64 plan_scratch_gpu_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype,
                                   const PlanCluster *cluster);

/* The fp32 elements that cuDNN's fused backward pass of attention needs, once aligned, on a GPU of
 * this compute capability (90 is 9.0). */
guint64 plan_scratch_attention_elements (const gint64 *dims, gint64 capability,
                                         gboolean is_deterministic);

/* Whether cuDNN has an engine for an attention op, as far as its shape and format tell. */
gboolean plan_scratch_attention_is_fused (PlanOpKind kind, const gint64 *dims, PlanDtype dtype,
                                          gint64 capability);

/* The sums of a norm's parameter gradients on a GPU: how many columns they have (0 for other ops),
 * over how many parts of the rows they are first taken, and the elements of those partial sums. */
guint64 plan_scratch_norm_columns (PlanOpKind kind, const gint64 *dims);
guint64 plan_scratch_norm_parts (guint64 rows, guint64 columns);
guint64 plan_scratch_norm_elements (PlanOpKind kind, const gint64 *dims);

/* The fp32 elements for attention by batched GEMMs, where cuDNN has no engine: heads and queries
 * are then done in turns. */
guint64 plan_scratch_batched_elements (PlanOpKind kind, const gint64 *dims);

/* One turn: `queries` of each of `heads` key heads, within one sequence. Strides are in elements:
 * `query_stride` from one query's scores to the next one's, `key_stride` and `value_stride` from
 * the gradients of one key head's keys, or values, to those of the next head. */
typedef struct
{
  gint64 heads, queries;
  guint64 query_stride, key_stride, value_stride;
} PlanBatchedTurn;

/* The largest turn for which there is room. FALSE: there is not enough for one query. */
gboolean plan_scratch_batched_turn (PlanOpKind kind, const gint64 *dims, guint64 elements,
                                    PlanBatchedTurn *out);

/* The fp32 elements that the op needs on any device at least, for checks of schedules, which do not
 * name their device. */
guint64 plan_scratch_least_elements (PlanOpKind kind, const gint64 *dims);

G_END_DECLS
