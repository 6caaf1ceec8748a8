/* Checks whether the kernels of a backend can run a schedule. What they cannot run is refused by
 * name before memory is taken. */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* Fails with UNSUPPORTED and names the model's property, the plan's field, the number format or the
 * op that cannot be run. */
gboolean exec_runnable_check (const ExecJob *job, const PlanCase *of, const PlanSchedule *schedule,
                              GError **error);

G_END_DECLS
