/* Which communicator the ops of a schedule's group use. */
#pragma once
#include "exec/comm.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* Finds or makes the communicator of a group, from the communicator of all ranks, which owns it.
 * All ranks must call this for the same groups in the same order. */
ExecComm *exec_links_find (ExecComm *all, const PlanGroup *group, GError **error);

G_END_DECLS
