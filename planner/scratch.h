/* Scratch that our own kernels want, in fp32 elements, as a function of an op's dims and the device
 * alone: lowering provides it, the kernels use no other memory. */
#pragma once
#include "planner/cluster.h"
#include "planner/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* fp32 elements for the op on a CPU when its matrices are held in `dtype`; 0 if it needs none. */
guint64 plan_scratch_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype);

/* The same on the cluster's GPUs, where products want cuBLASLt's workspace, as large as NVIDIA
 * recommends. */
guint64 plan_scratch_gpu_elements (PlanOpKind kind, const gint64 *dims, const PlanCluster *cluster);

G_END_DECLS
