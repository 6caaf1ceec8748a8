/* sim_measure: what sim_run finds, without its trace, for those who ask thousands of times. */
#pragma once
#include "planner/plan/stack.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include "sim/cost/cost.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

/* The totals of a PlanTrace. */
typedef struct
{
  gint64 step_ns;
  gint64 compute_ns, exposed_tensor_ns, exposed_gather_ns, exposed_reduce_ns, exposed_copy_ns,
      host_ns, idle_ns;
  PlanMemory memory;
  guint64 n_ops, n_walked; /* timed ops of all steps; those that were gone through one by one */
} SimSummary;

/* Memory to work in; grows to what the largest schedule needs. One per thread. */
typedef struct _SimWorkspace SimWorkspace;

SimWorkspace *sim_workspace_new (void);
void sim_workspace_free (SimWorkspace *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimWorkspace, sim_workspace_free)

/* As sim_run; `stack` may be NULL as there. */
gboolean sim_measure (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
                      SimWorkspace *workspace, SimSummary *out_summary, GError **error);

/* What the ops of each node took, as they ran beside others, in the steady step that sim_measure
 * was last asked for, all repeats together; until the workspace is used again. */
const gint64 *sim_measure_node_ns (const SimWorkspace *self);

/* The steady step's time alone; and what it takes on the device, for those who then want that, too:
 * any bytes above `enough_bytes` will do that it takes at least. `out_is_settled`: whatever the
 * times, the schedule takes that. */
gint64 sim_measure_step (const PlanSchedule *schedule, const SimCost *cost,
                         SimWorkspace *workspace);
gboolean sim_measure_device_bytes (const PlanSchedule *schedule, const SimCost *cost,
                                   const PlanStack *stack, guint64 enough_bytes,
                                   SimWorkspace *workspace, guint64 *out_bytes,
                                   gboolean *out_is_settled, GError **error);

/* The same of a pipeline by the quickest of the ways to find it, and how many steps that took;
 * below 0 where none tells. It drains where nothing of one stage is under way as it meets another.
 */
gint64 sim_measure_stages_step (const SimMeeting *meeting, const SimCost *const *costs,
                                gboolean drains, guint *out_n_steps);

/* Memory alone of a schedule whose steps were timed otherwise: after that many of them. */
gboolean sim_measure_memory (const PlanSchedule *schedule, const SimCost *cost,
                             const PlanStack *stack, guint n_steps, guint64 enough_bytes,
                             SimWorkspace *workspace, PlanMemory *out_memory, GError **error);

/* Bytes that any allocator holds on the device at least, without a simulation. */
guint64 sim_measure_least_bytes (const PlanSchedule *schedule, const PlanStack *stack);

/* Bytes that live tensors take between steps, as PlanMemory has them, likewise. */
guint64 sim_measure_resting_bytes (const PlanSchedule *schedule, const PlanStack *stack);

G_END_DECLS
