/* PlanWords: what other frameworks call the fields of a plan and their values. */
#pragma once
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* The field's own value that a word stands for: "zero3" of strategy is "optim_grads_params",
 * "bfloat16" is "bf16", "True" is "on". NULL where it stands for none; then `out_advice`, if not
 * NULL, is what to write instead. */
const char *plan_words_find_value (PlanField field, const char *word, const char **out_advice);

/* The field that such a name means, "gbs" for "global_batch_size"; NULL where it means none. */
const char *plan_words_find_field (const char *name);

G_END_DECLS
