/* SimStages: the steady step of a pipeline, for stages that drain: the host waits for each meeting
 * (sim/meet.h), and whatever a stage began is over when it comes to the next one.
 *
 * Then what a stage does from one meeting to the next takes the same time whenever it begins. It is
 * simulated once for all stages and micro batches that do the same, and a step is a walk over
 * meetings. The result equals sim_run_stages to the nanosecond; tests/prop/prop-pipeline.c compares
 * them. */
#pragma once
#include "sim/cost/cost.h"
#include "sim/fast/exposed.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _SimStages SimStages;

/* Schedules and costs must outlive it. */
SimStages *sim_stages_new (const SimPipeline *pipeline, const SimCost *const *costs);
void sim_stages_free (SimStages *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimStages, sim_stages_free)

/* FALSE where something is still under way as stages meet; then only sim_run_stages can tell. */
gboolean sim_stages_run (SimStages *self);

gint64 sim_stages_step_ns (const SimStages *self);
guint sim_stages_n_steps (const SimStages *self); /* steps run until one was steady, and one more */

/* How a stage's step is spent, and for how long it waits for other stages (idle).
 * sim_stages_node_ns gives the time of the ops of each node, summed over all repeats; it is valid
 * until the next call for any stage. */
void sim_stages_split (SimStages *self, guint stage, SimShares *out_shares, gint64 *out_idle_ns);
const gint64 *sim_stages_node_ns (SimStages *self, guint stage);

/* How many ops were simulated. */
guint64 sim_stages_n_issued (const SimStages *self);

G_END_DECLS
