/* AdviseFloors: lower bounds of the time of a plan's micro batches, for a search.
 *
 * A bound is a sum of costs; it is simulated only where activations go to the host. Every plan with
 * the same activations contains the same micro batch without data-parallel communication, and plans
 * that shard alike contain the same gathers and reductions, so that one bound serves many plans.
 * Safe in several threads. */
#pragma once
#include "advise/input.h"
G_BEGIN_DECLS

typedef struct _AdviseFloors AdviseFloors;

/* The input must outlive it. */
AdviseFloors *advise_floors_new (const AdviseInput *input);
void advise_floors_free (AdviseFloors *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (AdviseFloors, advise_floors_free)

/* A lower bound, in nanoseconds, of a step of any plan with this plan's activations; a value above
 * `enough_ns` need not be exact. 0 on a CPU, where ops that were timed may be faster. */
gint64 advise_floors_ns (AdviseFloors *self, const Plan *resolved, gint64 enough_ns);

/* The same of this plan alone, with its gathers and reductions; equal for plans of a block that
 * plan_bound_distil_exchange makes alike. */
gint64 advise_floors_beside_ns (AdviseFloors *self, const Plan *resolved);

G_END_DECLS
