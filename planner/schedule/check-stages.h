/* What must hold between the schedules of a pipeline's stages. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* Walks a step of one rank of every stage, in order: what one sends another takes, as much of it
 * and no other, sums over several stages find them all, and nobody waits for ever. Names the ops
 * that do not. */
gboolean plan_schedule_check_stages (const PlanSchedule *const *stages, guint n, GError **error);

G_END_DECLS
