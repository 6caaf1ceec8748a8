/* advise_serial: the least time of a step whose host waits again and again for its stream, as it
 * does in each layer with experts.
 *
 * Where the host waits, all that is issued later starts later. So the times between two such waits
 * add up, and each of them is as long as the host, and compute that starts no sooner than it is
 * issued, need for what lies between. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
G_BEGIN_DECLS

/* How long an op keeps compute and what follows at once, and the host; FALSE: it may be left out.
 */
typedef gboolean (*AdviseSerialCost) (const PlanSchedule *schedule, const SimCost *cost, guint node,
                                      gint64 *out_ns, gint64 *out_launch_ns);

gint64 advise_serial_ns (const PlanSchedule *schedule, const SimCost *cost,
                         AdviseSerialCost cost_of);

G_END_DECLS
