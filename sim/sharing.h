/* Sharing: how ops that run side by side slow one another down.
 *
 * An op shares with what was issued before it on other streams: it gets what they leave, or its
 * even part, and they keep their pace. So what is issued later never changes what was said of an op
 * before, and time stays a function of issue order; in return the slower of two is always the later
 * one. Compute slows nothing: it takes the processors that are left.
 *
 * Ops of a stream that touch and are alike are one spell. Of each stream the last SIM_SPELLS count,
 * but none that was over when the compute stream last began an op. */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

/* No op takes longer than this many times what it takes alone. */
#define SIM_SLOWEST PLAN_N_STREAMS

/* Says how long an op that starts then takes, and lets later ones know. */
gint64 sim_sharing_run (SimEngine *self, const SimIssue *issue, const SimClock *start);

/* Notes a spell of a stream behind those it has, of which there are fewer than SIM_SPELLS. */
void sim_sharing_add (SimEngine *self, PlanStream stream, const SimLoad *load,
                      const SimClock *begin, const SimClock *end);

G_END_DECLS
