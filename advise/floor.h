/* AdviseFloors: what a plan's micro batches take at least, for a search.
 *
 * Added up, and simulated only where activations go to the host: a micro batch without
 * communication between data-parallel ranks is in every plan with its activations, and so are
 * gathers and reductions in those that shard alike. Safe in several threads. */
#pragma once
#include "advise/input.h"
G_BEGIN_DECLS

typedef struct _AdviseFloors AdviseFloors;

/* The input must outlive it. */
AdviseFloors *advise_floors_new (const AdviseInput *input);
void advise_floors_free (AdviseFloors *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (AdviseFloors, advise_floors_free)

/* Nanoseconds that no plan with these activations can do a step of this plan in less than; any
 * above `enough_ns` will do. 0 on a CPU, where what is timed may be faster. */
gint64 advise_floors_ns (AdviseFloors *self, const Plan *resolved, gint64 enough_ns);

/* The same of this very plan, with what it gathers and reduces; equal for plans of a block that
 * plan_bound_distil_exchange makes alike. */
gint64 advise_floors_beside_ns (AdviseFloors *self, const Plan *resolved);

G_END_DECLS
