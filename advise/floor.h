/* AdviseFloors: lower bounds ("floors") of the step time of plans, from costs of a few micro
 * batches, for a search.
 *
 * A floor is a sum of the costs of ops; only where activations are offloaded to the host is a step
 * simulated. One floor serves many plans: every plan with the same activations contains the same
 * micro batch without data-parallel communication, and plans that shard alike contain the same
 * gathers and reductions. floor.c states the claim and the assumptions. Safe in several threads. */
#pragma once
#include "advise/input.h"
G_BEGIN_DECLS

typedef struct _AdviseFloors AdviseFloors;

/* The input must outlive it. */
AdviseFloors *advise_floors_new (const AdviseInput *input);
void advise_floors_free (AdviseFloors *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (AdviseFloors, advise_floors_free)

/* A lower bound, in nanoseconds, of the step time of any plan with this plan's activations. A value
 * above `enough_ns` may be lower than the best bound. It is 0 on a CPU, where measured ops may be
 * faster than their costs. */
gint64 advise_floors_ns (AdviseFloors *self, const Plan *resolved, gint64 enough_ns);

/* A lower bound of the step time of this plan alone, with its gathers and reductions. It is equal
 * for plans of a block that plan_bound_distil_exchange makes equal. */
gint64 advise_floors_beside_ns (AdviseFloors *self, const Plan *resolved);

G_END_DECLS
