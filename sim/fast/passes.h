/* SimPasses: how long the steady step of a pipeline takes, whatever is under way as stages meet.
 *
 * Every stage goes through its ops as sim_time_stages has it, but from meeting to meeting at once
 * where it did so before (stretch.h): a micro batch mostly finds what an earlier one did, and so
 * does another stage. Equals sim_time_stages, to the nanosecond. */
#pragma once
#include "planner/schedule/trace.h"
#include "sim/cost/cost.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 step_ns;
  guint n_steps;              /* taken until they were steady, and one */
  guint64 n_ops, n_simulated; /* of all of them; those that were not known yet */
} SimPasses;

/* With `out_traces`, one step of each stage is recorded op by op: as sim_time_stages does it. FALSE
 * where only that tells: ops between meetings are others in each iteration of a loop around them,
 * or stages wait for one another for ever. Then nothing was recorded. */
gboolean sim_passes_run (const SimMeeting *meeting, const SimCost *const *costs,
                         PlanTrace **out_traces, SimPasses *out_passes);

G_END_DECLS
