/* Scratch that our own kernels want, in fp32 elements, as a function of an op's dims and the device
 * alone: lowering provides it, the kernels use no other memory. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* What cuDNN's engines for attention take for themselves, in fp32 elements: 256 bytes. */
#define PLAN_SCRATCH_CUDNN_ELEMENTS 64

/* Libraries' workspaces begin at a multiple of so many fp32 elements, 256 bytes; buffers need not,
 * and are larger by as much. */
#define PLAN_SCRATCH_ALIGNMENT 64

/* fp32 elements for the op on a CPU when its matrices are held in `dtype`; 0 if it needs none. */
guint64 plan_scratch_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype);

/* The same on the cluster's GPUs, where products want cuBLASLt's workspace, as large as NVIDIA
 * recommends. */
guint64 plan_scratch_gpu_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype,
                                   const PlanCluster *cluster);

/* What cuDNN's fused backward pass of attention wants for an attention op's dims on a GPU of this
 * compute capability (90 is 9.0), once it is aligned. */
guint64 plan_scratch_attention_elements (const gint64 *dims, gint64 capability,
                                         gboolean is_deterministic);

/* Whether cuDNN has an engine for an attention op with these dims, as far as shape and format say.
 */
gboolean plan_scratch_attention_is_fused (PlanOpKind kind, const gint64 *dims, PlanDtype dtype,
                                          gint64 capability);

/* A GPU sums the gradients of a norm's parameters, so many columns, by parts of the rows, and then
 * those: 0 of other ops. */
guint64 plan_scratch_norm_columns (PlanOpKind kind, const gint64 *dims);
guint64 plan_scratch_norm_parts (guint64 rows, guint64 columns);
guint64 plan_scratch_norm_elements (PlanOpKind kind, const gint64 *dims);

/* Where it has none, products in batches take heads and queries in turns, in these fp32 elements.
 */
guint64 plan_scratch_batched_elements (PlanOpKind kind, const gint64 *dims);

/* Of one sequence: so many key heads, and queries of each head, at once; scores of a query are
 * `pitch` elements apart, gradients of a key head's keys, and of its values, `image`. */
typedef struct
{
  gint64 heads, queries;
  guint64 pitch, image;
} PlanBatchedTurn;

/* As many as there is room for; FALSE: not for one query. */
gboolean plan_scratch_batched_turn (PlanOpKind kind, const gint64 *dims, guint64 elements,
                                    PlanBatchedTurn *out);

/* Less than this no device takes for the op: schedules do not say whose they are. */
guint64 plan_scratch_least_elements (PlanOpKind kind, const gint64 *dims);

G_END_DECLS
