/* Sharing: how ops that run side by side slow one another down.
 *
 * An op shares the device with ops of other streams that were issued before it. Of each resource
 * (processors, memory bandwidth, links, network) it gets what they leave or its even part,
 * whichever is more, and they keep their pace. So an op that is issued later never changes the time
 * of one issued before, and time stays a function of issue order; the price is that of two ops side
 * by side it is always the later one that is slowed. Ops of the compute stream slow nobody: they
 * take the processors that the others leave.
 *
 * A spell is a time for which a stream is busy without a break with ops of the same load. Of each
 * stream the last SIM_SPELLS spells count, except those that were over when the compute stream last
 * began an op. */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

/* No op takes longer than this multiple of its time alone. */
#define SIM_SLOWEST PLAN_N_STREAMS

/* Returns how long an op that starts at `start` takes, and adds it to the spells that later ops
 * share with. */
gint64 sim_sharing_run (SimEngine *self, const SimIssue *issue, const SimClock *start);

/* Adds a spell to a stream, behind its other spells, of which there must be fewer than
 * SIM_SPELLS. */
void sim_sharing_add (SimEngine *self, PlanStream stream, const SimLoad *load,
                      const SimClock *begin, const SimClock *end);

G_END_DECLS
