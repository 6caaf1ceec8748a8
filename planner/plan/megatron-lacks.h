/* What Megatron-LM's flags cannot say of a model. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* The i-th reason why Megatron-LM cannot build this model: the property, and what would be right;
 * NULL past the last one. */
const char *plan_megatron_lacks (const PlanModel *model, guint i);

G_END_DECLS
