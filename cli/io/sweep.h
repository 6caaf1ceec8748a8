/* --sweep: a plan with some fields changed, in every combination. */
#pragma once
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* Several plans: every combination of the values given as FIELD=V1,V2,… (all of an ENUM's values
 * where no list follows). Each is a copy of `plan` with some fields changed. */
GArray *cli_sweep (const Plan *plan, char *const *sweeps, GError **error); /* of Plan */

/* "recompute=full": the swept fields of one such plan, but for strategy and mbs, which have columns
 * of their own; the caller frees. */
char *cli_describe_swept (const Plan *plan, char *const *sweeps);

G_END_DECLS
