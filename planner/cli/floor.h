/* CliFloors: what a plan's micro batches take at least, for a search.
 *
 * Added up, and simulated only where activations go to the host: a micro batch without
 * communication between data-parallel ranks is in every plan with its activations, and so are
 * gathers and reductions in those that shard alike. Safe in several threads. */
#pragma once
#include "planner/cli/options.h"
G_BEGIN_DECLS

typedef struct _CliFloors CliFloors;

/* The input must outlive it. */
CliFloors *cli_floors_new (const CliInput *input);
void cli_floors_free (CliFloors *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliFloors, cli_floors_free)

/* Nanoseconds that no plan with these activations can do a step of this plan in less than; any
 * above `enough_ns` will do. 0 on a CPU, where what is timed may be faster. */
gint64 cli_floors_ns (CliFloors *self, const Plan *resolved, gint64 enough_ns);

/* The same of this very plan, with what it gathers and reduces; equal for plans of a block that
 * plan_bound_distil_exchange makes alike. */
gint64 cli_floors_beside_ns (CliFloors *self, const Plan *resolved);

G_END_DECLS
