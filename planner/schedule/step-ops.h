/* Facts about the ops of a step, by node: how often each runs, and which of them recompute for the
 * backward pass what the forward pass had. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* Both return an array by node; the caller frees it. */
gint64 *plan_schedule_step_times (const PlanSchedule *self);
gboolean *plan_schedule_recomputed (const PlanSchedule *self);

G_END_DECLS
