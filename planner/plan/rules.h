/* Rules: which plans are illegal, why, and what would make them legal. Hazards: what is legal and
 * likely to surprise.
 *
 * Rules are fixed tables, tried in their order: first what no framework or the plan's stack cannot
 * do, then what this version does not model yet. */
#pragma once
#include "planner/base/error.h"
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *name;     /* as in "hfsdp-needs-full-sharding" */
  const char *reason;   /* the rule as a sentence that says what is legal */
  const char *citation; /* source of the rule */
  PlanErrorCode code;   /* code of the error if the rule is broken; not used by hazards */
} PlanRule;

/* Checks a resolved plan. The error starts with "rule NAME: ", the first rule that it breaks, or
 * the first about parts of the model that its stack lacks: no other plan would mend that. */
gboolean plan_rules_check (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster,
                           GError **error);

/* Whether a plan of a block of PlanSpace may be legal, or become so by the fields that differ
 * within the block. Looks only at rules that read what the block shares. */
gboolean plan_rules_check_block (const Plan *resolved, const PlanModel *model,
                                 const PlanCluster *cluster);

/* Whether a resolved plan of a block that plan_rules_check_block allows is legal. */
gboolean plan_rules_check_in_block (const Plan *resolved, const PlanModel *model,
                                    const PlanCluster *cluster);

/* Whether the stack has the plan's values of these fields: FALSE if a rule of the stack is broken
 * that shows one of them. The plan need not be resolved. */
gboolean plan_rules_stack_has (const Plan *plan, const PlanField *fields, guint n,
                               const PlanModel *model, const PlanCluster *cluster);

guint plan_rules_n (void);
const PlanRule *plan_rules_get (guint i);

/* How grave a hazard is: X (ID, "what its text begins with"). */
#define PLAN_HAZARD_LEVELS(X) \
  X (COST, "")                              /* time, memory or a rounding that was asked for */ \
  X (LEARNING, "changes what is learned: ") /* wrong gradients or norms, or lost updates */ \
  X (NOT_TIMED, \
     "takes longer than predicted: ") /* where a kernel is not the one whose time is known */ \
  X (STOPS, "stops a run early: ")    /* where memory may hold less than comes */ \
  X (NOT_RUN, "cannot be run yet: ")  /* by the plan's stack */

typedef enum
{
#define X(id, words) PLAN_HAZARD_##id,
  PLAN_HAZARD_LEVELS (X)
#undef X
} PlanHazardLevel;

G_END_DECLS
