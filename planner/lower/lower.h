/* plan_lower: from what is wanted to what one rank does.
 *
 * The only place that knows both a transformer and a sharding strategy. The
 * schedule is checked when FSDPLAN_DEBUG_CHECK is set. */
#pragma once
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

PlanSchedule *plan_lower (const PlanCase *of, guint rank, GError **error);

/* What cuDNN said of this attention, in that pass; NULL: lowering goes by its rule. */
const PlanWorkspace *plan_lower_find_workspace (const PlanCase *of, PlanPass pass);

/* The plan with what comm_unit comes to in its place: plans for one model and cluster that are
 * equal then have equal schedules. Not one to lower. */
void plan_lower_distil (const PlanCase *of, Plan *out_key);

/* Drops from such a key what schedules do not depend on, though their costs do: two plans that are
 * equal then have equal schedules. */
void plan_lower_distil_schedule (Plan *key);

G_END_DECLS
