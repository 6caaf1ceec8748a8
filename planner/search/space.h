/* PlanSpace: the plans that a search may choose from.
 *
 * It has a base plan and axes. An axis is a short list of choices, each of which sets one or more
 * fields. A point is one choice per axis. No choice changes a field that was pinned, or belongs to
 * a class (PLAN_ALLOW_LIST) that was not allowed. */
#pragma once
#include "planner/case/case.h"
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* Classes of choices that a search makes only when the user allows them: those that change
 * arithmetic, those that depend on the host (no published run says how well offloading overlaps),
 * and plans with hazards. X (ID, "name", "summary"). */
#define PLAN_ALLOW_LIST(X) \
  X (MIXED, "mixed", "bf16 sums and bf16 main gradients") \
  X (LOWBIT, "lowbit", "fp8, mxfp8 and nvfp4 recipes") \
  X (MOMENTS, "moments", "optimizer states in less than fp32") \
  X (OFFLOAD, "offload", "optimizer states and activations on the host") \
  X (HAZARDS, "hazards", \
     "plans that cannot be run yet or as fast as predicted, or whose known faults change what is " \
     "learned")

typedef enum
{
#define X(id, name, summary) PLAN_ALLOW_##id,
  PLAN_ALLOW_LIST (X)
#undef X
      PLAN_N_ALLOW
} PlanAllow;

#define PLAN_MAX_SET 8 /* most fields that one choice sets */

typedef struct
{
  guint n;
  PlanField field[PLAN_MAX_SET];
  gint64 value[PLAN_MAX_SET];
} PlanChoice;

typedef struct _PlanSpace PlanSpace;

/* Makes the space around `base`, which is not resolved. Choices that the stack of `base` does not
 * offer are left out; `pinned` marks the fields that keep their value of `base`; `allow` is a bit
 * mask of PlanAllow. */
PlanSpace *plan_space_new (const PlanModel *model, const PlanCluster *cluster, const Plan *base,
                           const gboolean pinned[PLAN_N_FIELDS], guint allow);
void plan_space_free (PlanSpace *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanSpace, plan_space_free)

/* Leaves only the given values of a field. INVALID where the field's choices set other fields as
 * well and none of them has such a value. */
gboolean plan_space_restrict (PlanSpace *self, PlanField field, const gint64 *values, guint n,
                              GError **error);

/* Whether a field has that value in some choice. */
gboolean plan_space_chooses (const PlanSpace *self, PlanField field, gint64 value);

/* Names of PLAN_ALLOW_LIST joined by commas. */
gboolean plan_space_allow_parse (const char *text, guint *out_allow, GError **error);
char *plan_space_allow_print (guint allow); /* the caller frees */

guint64 plan_space_size (const PlanSpace *self);

/* Points come in blocks of this many. The plans of a block differ in how state is sharded and
 * communicated, and in nothing that a micro batch computes. The first plan_space_n_plain_blocks
 * blocks are plain: their plans use no CUDA graph, context parallelism, chunked loss or offloading
 * beyond what the base has. */
guint64 plan_space_block_size (const PlanSpace *self);
guint64 plan_space_n_plain_blocks (const PlanSpace *self);

/* Gives the plan at a point, not resolved. FALSE where the plan would sum in a format that is not
 * allowed, recompute more layers than a stage has, or use more virtual stages than help. */
gboolean plan_space_at (const PlanSpace *self, guint64 point, Plan *out_plan);

/* Gives a plan that takes no less time, for where `plan` does not fit: GEMMs that leave a gradient
 * unused when they add to the main ones no longer do so, which mostly takes less memory. FALSE
 * where that changes nothing, or the field was given. */
gboolean plan_space_slim (const PlanSpace *self, const Plan *plan, Plan *out_slim);

/* Whether a legal plan may be recommended. FALSE where it has a hazard that is more than a cost,
 * and PLAN_ALLOW_HAZARDS is not allowed. `of` is its case; without one, which costs more than all
 * else here, a host is taken to have the memory that is asked of it. */
gboolean plan_space_admits (const PlanSpace *self, const Plan *resolved, const PlanCase *of);

/* Lists every plan that is one choice away from this one, not resolved: by the axes, and by fields
 * that are not searched. Pinned fields stay, and sums are no less exact than this plan's or than
 * what is allowed. */
GArray *plan_space_neighbours (const PlanSpace *self, const Plan *plan); /* of Plan */

G_END_DECLS
