/* What fsdplan's own runtime executes of what is modelled. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* Whether `fsdplan run` executes such plans on such devices; UNSUPPORTED names the field or
 * property of the model that it does not execute yet, and what it must be. Formats and shapes that
 * some kernels lack are for the kernels to say. `ranks` is the data-parallel size. */
gboolean plan_native_runs (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster,
                           gint64 ranks, GError **error);

G_END_DECLS
