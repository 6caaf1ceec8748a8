/* Reads how Megatron-LM deals layers out to virtual pipeline stages: by layers per virtual stage,
 * or one by one (--pipeline-model-parallel-layout). */
#pragma once
#include "planner/megatron/megatron-settings.h"
#include "planner/plan/plan.h"
G_BEGIN_DECLS

/* Sets vpp and the fields that go with it, in a plan that has pp. Errors name the flag, and what
 * about it is not possible. */
gboolean plan_megatron_set_stages (Plan *plan, const PlanMegatronSettings *settings,
                                   GError **error);

G_END_DECLS
