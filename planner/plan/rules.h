/* Rules of a plan: which combinations are illegal, why, and what would make them legal; and which
 * are legal and likely to surprise.
 *
 * Fixed tables, in the order in which rules are tried: first what no version could do, then what
 * this one does not model yet. */
#pragma once
#include "planner/base/error.h"
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *name;     /* "hfsdp-needs-full-sharding" */
  const char *reason;   /* the rule as a sentence, with what would be legal */
  const char *citation; /* where it comes from */
  PlanErrorCode code;   /* of the error when it is broken; of hazards it means nothing */
} PlanRule;

/* Checks a resolved plan; the error starts with "rule NAME: " of the first rule it breaks. */
gboolean plan_rules_check (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster,
                           GError **error);

/* Whether such a plan can become legal by fields that differ within a block of PlanSpace, as far as
 * rules of blocks tell. */
gboolean plan_rules_check_block (const Plan *resolved, const PlanModel *model,
                                 const PlanCluster *cluster);

/* FALSE where a rule of the stack that looks at one of these fields is broken: the stack has no
 * such value. The plan need not be resolved. */
gboolean plan_rules_stack_has (const Plan *plan, const PlanField *fields, guint n,
                               const PlanModel *model, const PlanCluster *cluster);

guint plan_rules_n (void);
const PlanRule *plan_rules_get (guint i);

/* How grave a hazard is: X (ID, "what its text begins with"). */
#define PLAN_HAZARD_LEVELS(X) \
  X (COST, "")                              /* time, memory, or a rounding that was asked for */ \
  X (LEARNING, "changes what is learned: ") /* wrong gradients or norms, lost updates */ \
  X (NOT_RUN, "cannot be run yet: ")        /* by the stack that the plan is for */

typedef enum
{
#define X(id, words) PLAN_HAZARD_##id,
  PLAN_HAZARD_LEVELS (X)
#undef X
} PlanHazardLevel;

G_END_DECLS
