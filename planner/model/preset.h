/* The shipped models, by their own names and by those that they have on huggingface.co. */
#pragma once
#include "planner/model/model.h"
G_BEGIN_DECLS

/* Names of the shipped models, in a fixed order. */
const char *const *plan_model_presets (void);

/* The shipped model that `name` means: its own name or one on huggingface.co, with or without the
 * organisation. Case and punctuation do not matter, nor does an end such as -Instruct or -2507.
 * NULL if there is none. */
const char *plan_model_preset_named (const char *name);

/* The shipped model that `name` means; the error suggests the nearest name. */
PlanModel *plan_model_new_preset (const char *name, GError **error);

G_END_DECLS
