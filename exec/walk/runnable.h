/* What these kernels run of a schedule, and what a plan asks for beyond: refused by name before
 * anything is taken. */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* UNSUPPORTED, with the model's property, the plan's field, the number format or the op. */
gboolean exec_runnable_check (const ExecJob *job, const PlanCase *of, const PlanSchedule *schedule,
                              GError **error);

G_END_DECLS
