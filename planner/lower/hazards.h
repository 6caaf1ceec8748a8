/* Hazards: what is legal, and likely to surprise. Some show only in how a plan is laid out. */
#pragma once
#include "planner/plan/rules.h"
#include <glib.h>
G_BEGIN_DECLS

/* What to know about a legal plan before it runs: one text per hazard, "NAME: ...", those of the
 * gravest level first; owned by the array. */
GPtrArray *plan_hazards_of (const Plan *resolved, const PlanModel *model,
                            const PlanCluster *cluster);

/* The gravest level of its hazards. */
PlanHazardLevel plan_hazards_level (const Plan *resolved, const PlanModel *model,
                                    const PlanCluster *cluster);

guint plan_hazards_n (void);
const PlanRule *plan_hazards_get (guint i, PlanHazardLevel *out_level); /* may be NULL */

G_END_DECLS
