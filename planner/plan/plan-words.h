/* PlanWords: what other frameworks call the fields of a plan and their values. */
#pragma once
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* The value of a field that another framework's word means: "zero3" of strategy is
 * "optim_grads_params", "bfloat16" is "bf16", "True" is "on". NULL if it means none; `out_advice`,
 * if given, is then what to write instead, or NULL. */
const char *plan_words_find_value (PlanField field, const char *word, const char **out_advice);

/* The field that another framework's name means: "gbs" for "global_batch_size". NULL if it means
 * none. */
const char *plan_words_find_field (const char *name);

G_END_DECLS
