/* Cases with the workspaces that cuDNN asks for attention, by rows of the store and shipped ones.
 */
#pragma once
#include "advise/input.h"
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* The workspaces that are known for the cluster's GPUs; NULL: none, or they are processors. Read
 * once, and owned by this module. Any thread may ask. */
const PlanWorkspaces *advise_workspaces (const AdviseInput *input);

/* The case of a plan for the input's model and cluster, which have to outlive it, with these
 * workspaces. */
PlanCase *advise_case (const AdviseInput *input, const Plan *plan, GError **error);

/* "attention backwards works in 65.5MiB, as cuDNN 9.19.0 says", or by which rule it is taken to;
 * NULL where no such pass is. The caller frees. */
char *advise_describe_workspace (const PlanCase *of, const PlanSchedule *schedule);

G_END_DECLS
