/* SimPasses: the steady step of a pipeline, also where collectives or trades are under way as
 * stages meet.
 *
 * Every stage goes through its ops as in sim_time_stages. But where it begins what lies between two
 * meetings (sim/meet.h) in a state in which the same ops began before, the earlier outcome is
 * applied (stretch.h). A micro batch mostly finds the state that an earlier one found, and so does
 * another stage. The result equals sim_time_stages to the nanosecond; tests/prop/prop-pipeline.c
 * compares them. */
#pragma once
#include "planner/schedule/trace.h"
#include "sim/cost/cost.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 step_ns;
  guint n_steps;              /* steps run until one was steady, and one more */
  guint64 n_ops, n_simulated; /* ops of all steps; those of them that were simulated */
} SimPasses;

/* With `out_traces`, one step of each stage is recorded op by op, as by sim_time_stages. FALSE
 * where only sim_time_stages can tell the time: the ops between two meetings differ from iteration
 * to iteration, or stages wait for one another for ever. Then nothing was recorded. */
gboolean sim_passes_run (const SimPipeline *pipeline, const SimCost *const *costs,
                         PlanTrace **out_traces, SimPasses *out_passes);

G_END_DECLS
