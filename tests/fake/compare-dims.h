/* Which sizes a kernel is called with when it is compared. */
#pragma once
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

/* From 1 on: next to the sizes of pieces, warps and blocks, or anything. */
gint64 compare_odd_size (GRand *rand, gint32 most);

void compare_draw_dims (PlanOpKind kind, GRand *rand, gint64 out_dims[PLAN_MAX_DIMS]);

/* Makes rows, or heads, of whole pieces of 8 elements. */
void compare_whole_dims (PlanOpKind kind, gint64 out_dims[PLAN_MAX_DIMS]);

/* Of matrices of rows of 4096 elements, or nearly so; fewer rows of what takes long. */
void compare_speed_dims (PlanOpKind kind, gint64 rows, gint64 out_dims[PLAN_MAX_DIMS]);

G_END_DECLS
