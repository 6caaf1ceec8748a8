/* Makes cases with the workspaces that cuDNN needs for attention, from rows of the store and
 * shipped ones. */
#pragma once
#include "advise/input.h"
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* The workspaces known for the cluster's GPUs; NULL: there are none, or the devices are processors.
 * Read once, and owned by this module. Any thread may ask. */
const PlanWorkspaces *advise_workspaces (const AdviseInput *input);

/* The case of a plan with these workspaces. The input's model and cluster must outlive it. */
PlanCase *advise_case (const AdviseInput *input, const Plan *plan, GError **error);

/* "attention backwards works in 65.5MiB, as cuDNN 9.19.0 says", or the rule by which it is assumed;
 * NULL where there is no such pass. The caller frees. */
char *advise_describe_workspace (const PlanCase *of, const PlanSchedule *schedule);

G_END_DECLS
