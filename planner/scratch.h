/* Scratch that the CPU kernels want, in fp32 elements, as a function of an op's dims alone:
 * lowering provides it, the kernels use no other memory. */
#pragma once
#include "planner/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* fp32 elements for the op when its matrices are held in `dtype`; 0 if it needs none. */
guint64 plan_scratch_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype);

G_END_DECLS
