/* The set of fitted cost parameters that is in use. */
#pragma once
#include "db/tables.h"
#include "planner/cluster/cluster.h"
#include "planner/plan/stack.h"
#include "sim/cost/adjust.h"
#include <glib.h>
G_BEGIN_DECLS

/* The word for no set: every device then has its defaults. */
#define ADVISE_NO_ADJUSTMENTS "defaults"

/* The set with that id, in the store or shipped. For NULL it is the newest in the store, or else
 * the shipped one; NULL without an error where there is none. Each is read once and kept. Safe in
 * several threads. */
const SimAdjustments *advise_adjustments (const char *id, const char *db, GError **error);

/* The id of the first of these sets that cannot be read, which would break every prediction once it
 * is in use; NULL where all can be read. */
const char *advise_adjustments_unreadable (const DbTable *sets, GError **why);

/* Refuses the rows of `origin` if one of these sets cannot be read; see DbSource. */
gboolean advise_adjustments_accept (const DbTable *table, const char *origin, GError **error);

/* The shipped set, whichever is in use; NULL where it cannot be read. */
const SimAdjustments *advise_adjustments_shipped (void);

/* The cost parameters of a cluster's devices on a stack; `set` may be NULL. */
SimParams advise_params (const SimAdjustments *set, const PlanCluster *cluster,
                         const PlanStack *stack);

G_END_DECLS
