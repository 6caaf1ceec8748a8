/* What Megatron-LM makes of combinations of its flags: what it refuses, what it silently does
 * otherwise, and what no longer acts. */
#pragma once
#include "planner/megatron/megatron-settings.h"
#include <glib.h>
G_BEGIN_DECLS

/* Adds a note per rule that is broken. `date` (yyyymmdd) is the version's. */
void plan_megatron_rules_check (const PlanMegatronSettings *settings, gint64 date,
                                GPtrArray *notes);

/* TRUE for Megatron-FSDP, under its present or its first name. */
gboolean plan_megatron_is_fsdp (const PlanMegatronSettings *settings);

G_END_DECLS
