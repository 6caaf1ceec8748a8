/* Hazards: what is legal, and likely to surprise. Some show only in how a plan is laid out. */
#pragma once
#include "planner/case/case.h"
#include "planner/plan/rules.h"
#include <glib.h>
G_BEGIN_DECLS

/* What to know about a legal plan before it runs: one text per hazard, "NAME: ...", those of the
 * gravest level first; owned by the array. */
GPtrArray *plan_hazards_of (const PlanCase *of);

/* The gravest level of its hazards. Searches ask this of every legal plan: a case is made of it
 * only where the answer depends on how it is laid out. */
PlanHazardLevel plan_hazards_level (const Plan *resolved, const PlanModel *model,
                                    const PlanCluster *cluster);

guint plan_hazards_n (void);
const PlanRule *plan_hazards_get (guint i, PlanHazardLevel *out_level); /* may be NULL */

G_END_DECLS
