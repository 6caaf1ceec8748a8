/* Ops at which stages of a pipeline meet: exchanges between two of them, and collectives over
 * groups that reach over several. None starts before all that take part are there. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_MAX_STAGES 128

/* Schedules of one rank of every stage, in order. */
typedef struct
{
  const PlanSchedule *const *schedules;
  guint n;
} SimMeeting;

/* Whether stage `stage` meets others in that op of its schedule. */
gboolean sim_meet_is_meeting (const SimMeeting *self, guint stage, const PlanOp *op);

/* Whether the other stage takes part in it; every stage does in its own. */
gboolean sim_meet_reaches (const SimMeeting *self, guint stage, const PlanOp *op, guint other);

/* How many take part in stage `stage`'s op, 0 while not all of them are at it; `ops` is what each
 * stage is at, NULL for none. Lists them in `out_who`. */
guint sim_meet_all (const SimMeeting *self, guint stage, const PlanOp *const *ops, guint *out_who);

G_END_DECLS
