/* How Megatron-LM deals layers out to virtual pipeline stages, where it says so by their layers, or
 * one by one (--pipeline-model-parallel-layout). */
#pragma once
#include "planner/megatron/megatron-settings.h"
#include "planner/plan/plan.h"
G_BEGIN_DECLS

/* Sets vpp and what else says the same; the plan has pp. An error names the flag, and what of it
 * cannot be. */
gboolean plan_megatron_set_stages (Plan *plan, const PlanMegatronSettings *settings,
                                   GError **error);

G_END_DECLS
