/* plan_lower: lowers a case (model, cluster and plan) to the schedule of one rank.
 *
 * This is the only place that knows both a transformer and a sharding strategy. With
 * FSDPLAN_DEBUG_CHECK set, every schedule is checked. */
#pragma once
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

PlanSchedule *plan_lower (const PlanCase *of, guint rank, GError **error);

/* The same in brief, for times and live bytes alone: in a pipeline, passes that do what an earlier
 * one did are its echoes (planner/schedule/echo.h). */
PlanSchedule *plan_lower_brief (const PlanCase *of, guint rank);

/* The workspace that cuDNN asked for when it was given this attention in that pass. NULL if nobody
 * asked: lowering then goes by a rule. */
const PlanWorkspace *plan_lower_find_workspace (const PlanCase *of, PlanPass pass);

/* Whether our own runtime computes attention's backward pass by batched GEMMs, because cuDNN has no
 * graph for it. */
gboolean plan_lower_attends_by_batches (const PlanCase *of);

/* Replaces comm_unit by the numbers of units gathered and reduced ahead that follow from it. Plans
 * for one model and cluster whose keys are equal have equal schedules. A key is for comparing, not
 * for lowering. */
void plan_lower_distil (const PlanCase *of, Plan *out_key);

/* Drops from a key the fields that change costs and not the schedule, so that plans with equal keys
 * have equal schedules. */
void plan_lower_distil_schedule (Plan *key);

G_END_DECLS
