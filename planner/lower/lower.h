/* plan_lower: from what is wanted to what one rank does.
 *
 * The only place that knows both a transformer and a sharding strategy. The plan
 * must be resolved; the schedule is checked when FSDPLAN_DEBUG_CHECK is set. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/workspaces.h"
#include <glib.h>
G_BEGIN_DECLS

PlanSchedule *plan_lower (const PlanModel *model, const PlanCluster *cluster, const Plan *plan,
                          guint rank, GError **error);

/* The same where cuDNN was asked about attention on these GPUs; `asked` may be NULL. */
PlanSchedule *plan_lower_asked (const PlanModel *model, const PlanCluster *cluster,
                                const PlanWorkspaces *asked, const Plan *plan, guint rank,
                                GError **error);

/* What was said of this plan's attention, in that pass; NULL: lowering goes by its rule. */
const PlanWorkspace *plan_lower_find_workspace (const PlanModel *model, const PlanCluster *cluster,
                                                const PlanWorkspaces *asked, const Plan *plan,
                                                PlanPass pass);

/* The plan with what comm_unit comes to in its place: plans for one model and cluster that are
 * equal then have equal schedules. Not one to lower. */
void plan_lower_distil (const PlanModel *model, const PlanCluster *cluster, const Plan *plan,
                        Plan *out_key);

/* Drops from such a key what schedules do not depend on, though their costs do: two plans that are
 * equal then have equal schedules. */
void plan_lower_distil_schedule (Plan *key);

G_END_DECLS
