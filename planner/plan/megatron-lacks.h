/* What models have that no flag of Megatron-LM can say. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* The i-th reason why Megatron-LM cannot build a model: the property, and which values it can have.
 * NULL past the last one. */
const char *plan_megatron_lacks (const PlanModel *model, guint i);

/* Whether Megatron Core has modules for all of a model, where flags cannot say it: a specification
 * of its layers puts them together, as llama4_utils.py of Megatron-Bridge does for Llama 4. */
gboolean plan_megatron_builds (const PlanModel *model);

G_END_DECLS
