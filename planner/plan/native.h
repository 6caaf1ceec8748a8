/* What fsdplan's own runtime can execute of the plans that are modelled. */
#pragma once
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* Whether `fsdplan run` can execute a plan. If not, the error (UNSUPPORTED) names the field or the
 * property of the model that it does not execute yet, and what it must be. Formats and shapes that
 * a kernel lacks are reported by the kernel. `ranks`: the data-parallel size. */
gboolean plan_native_runs (const Plan *resolved, const PlanModel *model, gint64 ranks,
                           GError **error);

/* Whether what products of a layer read is of whole blocks that share a scale, on each rank, where
 * the compute format has such blocks. Kernels refuse others. */
gboolean plan_native_has_whole_blocks (const Plan *resolved, const PlanModel *model);

G_END_DECLS
