/* SimStages: the steady step of a pipeline, found from what its stages do between the ops at which
 * they meet.
 *
 * Where whatever a stage began is over once it meets others (sim/meet.h), what it does from one
 * meeting to the next takes the same time whenever it begins: it is simulated once, and once for
 * all stages and micro batches that do the same. A step is then a walk over meetings. Equals
 * sim_run_stages, to the nanosecond. */
#pragma once
#include "sim/cost/cost.h"
#include "sim/fast/exposed.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _SimStages SimStages;

/* Schedules and costs must outlive it. */
SimStages *sim_stages_new (const SimMeeting *meeting, const SimCost *const *costs);
void sim_stages_free (SimStages *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimStages, sim_stages_free)

/* FALSE where something is still under way as stages meet: only sim_run_stages tells then. */
gboolean sim_stages_run (SimStages *self);

gint64 sim_stages_step_ns (const SimStages *self);
guint sim_stages_n_steps (const SimStages *self); /* taken until they were steady, and one */

/* How a stage's step is spent; what it waits for others is `idle`. What the ops of each of its
 * nodes took in it, all repeats together: until the next call for any stage. */
void sim_stages_split (SimStages *self, guint stage, SimShares *out_shares, gint64 *out_idle_ns);
const gint64 *sim_stages_node_ns (SimStages *self, guint stage);

/* Ops that were simulated to find all this. */
guint64 sim_stages_n_issued (const SimStages *self);

G_END_DECLS
