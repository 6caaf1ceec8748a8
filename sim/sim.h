/* sim_run: simulates a schedule with given costs and returns a trace. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/plan/stack.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include "sim/cost/cost.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

/* Most steps that are run until one is steady. A step is steady once every stream is as far ahead
 * of the host at its end as at the end of the step before; what one step leaves to the next usually
 * settles in two steps. */
#define SIM_MAX_STEPS 16

/* Runs the schedule until its period is steady and returns one steady step. With a stack the
 * trace's memory follows its allocator; `stack` may be NULL: then it is live bytes only. */
PlanTrace *sim_run (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
                    GError **error);

/* As sim_run, of a pipeline: takes one rank of every stage and their costs. Returns one steady step
 * of each stage, all of the same length, and when each stage begins it, counted from the earliest
 * one; `out_offsets` may be NULL. */
gboolean sim_run_stages (const SimPipeline *pipeline, const SimCost *const *costs,
                         const PlanStack *stack, PlanTrace **out_traces, gint64 *out_offsets,
                         GError **error);

/* As sim_run_stages but without memory, which sim/fast/measure.h finds faster. Also gives the
 * number of steps simulated. */
gboolean sim_time_stages (const SimPipeline *pipeline, const SimCost *const *costs,
                          PlanTrace **out_traces, guint *out_n_steps, GError **error);

G_END_DECLS
