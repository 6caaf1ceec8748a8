/* sim_measure: the totals of sim_run without its trace, for callers that ask thousands of times. */
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
  guint64 n_ops, n_walked; /* timed ops of all steps; those that were issued one by one */
} SimSummary;

/* Memory to work in, which grows to what the largest schedule needs. One per thread. */
typedef struct _SimWorkspace SimWorkspace;

SimWorkspace *sim_workspace_new (void);
void sim_workspace_free (SimWorkspace *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimWorkspace, sim_workspace_free)

/* As sim_run; `stack` may be NULL as there. */
gboolean sim_measure (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
                      SimWorkspace *workspace, SimSummary *out_summary, GError **error);

/* The time of each node's ops as they ran beside others, summed over all repeats, in the steady
 * step that sim_measure was last asked for. Valid until the workspace is used again. */
const gint64 *sim_measure_node_ns (const SimWorkspace *self);

/* sim_measure_step gives only the time of the steady step. sim_measure_device_bytes then gives the
 * device bytes of the same schedule. Where these exceed `enough_bytes`, it may give a lower bound
 * of them instead that exceeds `enough_bytes`, too. `out_is_settled`: the bytes do not depend on
 * costs. */
gint64 sim_measure_step (const PlanSchedule *schedule, const SimCost *cost,
                         SimWorkspace *workspace);
gboolean sim_measure_device_bytes (const PlanSchedule *schedule, const SimCost *cost,
                                   const PlanStack *stack, guint64 enough_bytes,
                                   SimWorkspace *workspace, guint64 *out_bytes,
                                   gboolean *out_is_settled, GError **error);

/* The steady step of a pipeline, by the fastest way that works, and the number of steps it took;
 * below 0 where none works. `drains`: whatever a stage began is over when it exchanges with another
 * (see stages.h). */
gint64 sim_measure_stages_step (const SimPipeline *pipeline, const SimCost *const *costs,
                                gboolean drains, guint *out_n_steps);

/* The memory alone of a schedule, after `n_steps` steps, whose times are known otherwise. */
gboolean sim_measure_memory (const PlanSchedule *schedule, const SimCost *cost,
                             const PlanStack *stack, guint n_steps, guint64 enough_bytes,
                             SimWorkspace *workspace, PlanMemory *out_memory, GError **error);

/* A lower bound of the device bytes with any allocator, without a simulation. */
guint64 sim_measure_least_bytes (const PlanSchedule *schedule, const PlanStack *stack);

/* The bytes of live tensors between steps, as in PlanMemory, without a simulation. */
guint64 sim_measure_resting_bytes (const PlanSchedule *schedule, const PlanStack *stack);

G_END_DECLS
