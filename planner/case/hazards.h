/* Hazards: properties of legal plans that are likely to surprise. Some show only in a plan's
 * layout. */
#pragma once
#include "planner/case/case.h"
#include "planner/plan/rules.h"
#include <glib.h>
G_BEGIN_DECLS

/* The hazards of a legal plan, as texts "NAME: ...", those of the gravest level first. The array
 * owns them. */
GPtrArray *plan_hazards_of (const PlanCase *of);

/* The gravest level among a plan's hazards. A search asks this of every legal plan, so a case is
 * made only where the answer depends on the layout. */
PlanHazardLevel plan_hazards_level (const Plan *resolved, const PlanModel *model,
                                    const PlanCluster *cluster);

guint plan_hazards_n (void);
const PlanRule *plan_hazards_get (guint i, PlanHazardLevel *out_level); /* may be NULL */

G_END_DECLS
