/* --sweep: variants of a plan. */
#pragma once
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* All combinations of the values given as FIELD=V1,V2,… (without a list, all values of an enum
 * field), each as a copy of `plan` with those fields set. */
GArray *cli_sweep (const Plan *plan, char *const *sweeps, GError **error); /* of Plan */

/* The swept fields of a variant, as "recompute=full", without strategy and mbs, which have columns
 * of their own; the caller frees. */
char *cli_describe_swept (const Plan *plan, char *const *sweeps);

G_END_DECLS
