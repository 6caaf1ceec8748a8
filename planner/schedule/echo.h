/* PlanEcho: a part of a schedule that happens again at another place.
 *
 * In a pipeline a pass over a stage recurs with every micro batch, with the same ops but for the
 * row of activations that they use. A brief schedule (plan_lower_brief) has such a pass once, and
 * echoes of it. So it tells times and live bytes, which know no rows; it cannot be run, printed or
 * checked. Cursors go through echoes like through anything else. */
#pragma once
#include "planner/schedule/schedule.h"
G_BEGIN_DECLS

/* Nodes [begin, end), none of which is in an echo, happen before node `at`, with as many repeats
 * around them. */
typedef struct
{
  guint32 at, begin, end;
} PlanEcho;

/* Makes nodes [begin, end) happen again behind all that was added so far. */
void plan_schedule_add_echo (PlanSchedule *self, guint begin, guint end);

/* The number of the first echo at a node or behind it; the echo with a number, NULL past the
 * last. */
guint plan_schedule_find_echo (const PlanSchedule *self, guint node);
const PlanEcho *plan_schedule_echo (const PlanSchedule *self, guint number);

/* The echo with a number if it is at that node; else NULL. */
const PlanEcho *plan_schedule_echo_at (const PlanSchedule *self, guint number, guint node);

/* The echo that a cursor goes into next; NULL where it goes into none. The cursor may leave it out.
 */
const PlanEcho *plan_cursor_echo (const PlanCursor *self);
void plan_cursor_skip_echo (PlanCursor *self);

/* Finds the body, nodes [begin, end), of the step's first repeat of a variable with that name,
 * which no other repeat is around. FALSE where there is none. */
gboolean plan_schedule_find_repeat (const PlanSchedule *self, const char *variable,
                                    guint *out_begin, guint *out_end);

G_END_DECLS
