/* Which sizes a kernel is called with when it is compared. */
#pragma once
#include "planner/schedule/manner.h"
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

/* A random size from 1 to `most`: often one more or less than the size of a piece, a warp or a
 * block. */
gint64 compare_odd_size (GRand *rand, gint32 most);

void compare_draw_dims (PlanOpKind kind, GRand *rand, gint64 out_dims[PLAN_MAX_DIMS]);

/* Rounds the length of rows, or of heads, to whole pieces of 8 elements. */
void compare_whole_dims (PlanOpKind kind, gint64 out_dims[PLAN_MAX_DIMS]);

/* Sizes at which a kernel is timed: rows of about 4096 elements, fewer rows where it is slow. */
void compare_speed_dims (PlanOpKind kind, gint64 rows, gint64 out_dims[PLAN_MAX_DIMS]);

gboolean compare_attends (PlanOpKind kind); /* whether the op is attention or its gradients */

/* Draws how an op works: each option half of the time, the bound of logits always. */
void compare_draw_manner (PlanManner *self, PlanOpKind kind, const gint64 *dims, GRand *rand);

G_END_DECLS
