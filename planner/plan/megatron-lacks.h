/* What models have that no flag of Megatron-LM can say. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* The i-th reason why Megatron-LM cannot build a model: the property, and which values it can have.
 * NULL past the last one. */
const char *plan_megatron_lacks (const PlanModel *model, guint i);

G_END_DECLS
