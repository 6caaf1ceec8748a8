/* Which collectives are issued together, as one call. A layer's parameters that stay in the format
 * of activations are gathered, and their gradients reduced, right behind those that are quantised:
 * a few KiB behind some MiB, which are worth no launch of their own. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* The node of the collective that is issued together with the one of `node`, right behind it; 0: it
 * ends its call. Both are gathers, or both are reductions, of the same group on the same stream,
 * wait for the same events, and the second has a small share of the bytes. Between them memory is
 * taken and events are recorded, nothing else. */
guint plan_joined_next (const PlanSchedule *self, guint node);

G_END_DECLS
