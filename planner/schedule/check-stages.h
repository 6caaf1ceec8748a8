/* Checks what must hold between the schedules of a pipeline's stages. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* Walks a step of one rank of every stage, in order. Checks that each stage receives exactly what
 * another sends, that sums over several stages find all their members, and that no stage waits for
 * ever. Errors name the ops. */
gboolean plan_schedule_check_stages (const PlanSchedule *const *stages, guint n, GError **error);

G_END_DECLS
