/* sim_run: schedule and costs in, trace out. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/plan/stack.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include "sim/cost/cost.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

/* A step is steady once it leaves every stream as far ahead of the host as the one before did; what
 * is carried from step to step settles in two. */
#define SIM_MAX_STEPS 16

/* Runs the schedule until its period is steady and returns one steady step. With a stack the memory
 * columns follow its allocator; `stack` may be NULL, then they are live bytes only. */
PlanTrace *sim_run (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
                    GError **error);

/* The same of a pipeline: one rank of every stage, and their costs. Returns one steady step of
 * each, all of the same length, and when each begins its own, beside the earliest; NULL where
 * nobody asks. */
gboolean sim_run_stages (const SimMeeting *meeting, const SimCost *const *costs,
                         const PlanStack *stack, PlanTrace **out_traces, gint64 *out_offsets,
                         GError **error);

/* The same without memory (sim/fast/measure.h finds that sooner), and how many steps it took. */
gboolean sim_time_stages (const SimMeeting *meeting, const SimCost *const *costs,
                          PlanTrace **out_traces, guint *out_n_steps, GError **error);

G_END_DECLS
