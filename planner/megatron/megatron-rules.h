/* Rules of Megatron-LM's flags: combinations that it refuses, that it silently changes, and flags
 * that no longer have an effect. */
#pragma once
#include "planner/megatron/megatron-settings.h"
#include <glib.h>
G_BEGIN_DECLS

/* Adds a note for every rule that is broken. `date` (yyyymmdd) is that of the version. */
void plan_megatron_rules_check (const PlanMegatronSettings *settings, gint64 date,
                                GPtrArray *notes);

/* Whether Megatron-FSDP is on, by its present or its first flag. */
gboolean plan_megatron_is_fsdp (const PlanMegatronSettings *settings);

G_END_DECLS
