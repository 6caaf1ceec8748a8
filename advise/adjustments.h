/* The set of fitted parameters in force. */
#pragma once
#include "db/tables.h"
#include "planner/cluster/cluster.h"
#include "planner/plan/stack.h"
#include "sim/cost/adjust.h"
#include <glib.h>
G_BEGIN_DECLS

/* The word for no set at all: each device's defaults. */
#define ADVISE_NO_ADJUSTMENTS "defaults"

/* The set of that id in the store or shipped; for NULL the newest in the store, else the shipped
 * one. NULL without an error: none. Read once and kept; safe in several threads. */
const SimAdjustments *advise_adjustments (const char *id, const char *db, GError **error);

/* The id of the first of these sets that cannot be read, which would end every prediction with it
 * in force; NULL: all can. */
const char *advise_adjustments_unreadable (const DbTable *sets, GError **why);

/* Refuses rows of `origin` among which there is one; see DbSource. */
gboolean advise_adjustments_accept (const DbTable *table, const char *origin, GError **error);

/* The shipped set, whatever else is in force; NULL where it cannot be read. */
const SimAdjustments *advise_adjustments_shipped (void);

/* The parameters of a cluster's devices on a stack; `set` may be NULL. */
SimParams advise_params (const SimAdjustments *set, const PlanCluster *cluster,
                         const PlanStack *stack);

G_END_DECLS
