/* advise_serial: a lower bound of the time of a step whose host waits many times for a stream, as
 * it does in each layer with experts.
 *
 * Where the host waits, everything issued later starts later. So the stretches between two waits
 * follow one another, and each takes at least as long as the host needs for its ops, or as compute
 * needs when no op starts before it is issued. Tested with the floors of advise/floor.c by
 * tests/prop/prop-search.c. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
G_BEGIN_DECLS

/* Gives how long an op keeps the chain (compute and what it waits for at once) busy, and the host.
 * FALSE: the op may be left out. */
typedef gboolean (*AdviseSerialCost) (const PlanSchedule *schedule, const SimCost *cost, guint node,
                                      gint64 *out_ns, gint64 *out_launch_ns);

gint64 advise_serial_ns (const PlanSchedule *schedule, const SimCost *cost,
                         AdviseSerialCost cost_of);

G_END_DECLS
