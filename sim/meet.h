/* Meetings: ops in which several stages of a pipeline take part. These are trades between two
 * stages (PLAN_OP_TRADE), and collectives over groups that reach over several stages. None starts
 * before all participants have come to it. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_MAX_STAGES 128

/* The schedules of one rank of every stage, in the order of stages. */
typedef struct
{
  const PlanSchedule *const *schedules;
  guint n;
} SimPipeline;

/* Whether an op of stage `stage` is a meeting. */
gboolean sim_meet_is_meeting (const SimPipeline *self, guint stage, const PlanOp *op);

/* Whether stage `other` takes part in that op. Stage `stage` itself always does. */
gboolean sim_meet_reaches (const SimPipeline *self, guint stage, const PlanOp *op, guint other);

/* How many stages take part in the op of stage `stage`; 0 while one of them has not come to it.
 * `ops` has the op at which each stage waits, NULL for none. Lists the participants in
 * `out_who`. */
guint sim_meet_all (const SimPipeline *self, guint stage, const PlanOp *const *ops, guint *out_who);

G_END_DECLS
