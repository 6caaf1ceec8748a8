/* What the tables of rules, and of hazards, share: the facts a rule looks at and the shape of a
 * row. */
#pragma once
#include "planner/plan/rules.h"
#include "planner/plan/stack.h"
G_BEGIN_DECLS

typedef struct
{
  const gint64 *value;
  const Plan *plan;
  const PlanModel *model;
  const PlanCluster *cluster;
  const PlanStack *stack;     /* NULL where it is not modelled */
  const struct _PlanCase *of; /* of hazards, which also ask where parameters lie; else NULL */
} PlanFacts;

#define IS(facts, field, id) ((facts)->value[PLAN_##field] == PLAN_##field##_##id)
#define HAS_MODULE(facts, field, id) \
  (((facts)->value[PLAN_##field] >> PLAN_##field##_##id & 1) != 0)

static inline gboolean
is_stack (const PlanFacts *f, gint64 id)
{
  return f->value[PLAN_STACK] % PLAN_STACK_BASE == id;
}

/* What a message adds beside the fields' values. */
typedef enum
{
  PLAN_ADD_NOTHING,
  PLAN_ADD_DEVICES,
  PLAN_ADD_MODEL,
  PLAN_ADD_CHANGED, /* nothing, and shows only those that are not as by default */
} PlanRuleAddition;

typedef struct
{
  PlanRule rule;
  gboolean (*is_broken) (const PlanFacts *f);
  PlanRuleAddition addition;
  guint n_shown;
  PlanField shown[13];
  PlanHazardLevel level; /* of hazards */
  gboolean of_blocks;    /* looks only at what the points of a block of PlanSpace share */
} PlanRuleEntry;

#define PLAN_SHOW(...) \
  .n_shown = sizeof ((PlanField[]){ __VA_ARGS__ }) / sizeof (PlanField), .shown = { __VA_ARGS__ }
#define PLAN_OF_BLOCKS .of_blocks = TRUE
#define PLAN_LEVEL(id) .level = PLAN_HAZARD_##id

/* The tables, in the order in which they are tried; an entry past the end is NULL. */
const PlanRuleEntry *plan_rules_illegal (guint i);      /* what no version could do */
const PlanRuleEntry *plan_rules_of_experts (guint i);   /* from those on */
const PlanRuleEntry *plan_rules_of_pipelines (guint i); /* and from those */
const PlanRuleEntry *plan_rules_of_stacks (guint i);    /* what its stack cannot do: their end */
const PlanRuleEntry *plan_rules_unbuilt (guint i);      /* what this one does not model yet */
const PlanRuleEntry *plan_rules_unbuilt_pipelines (guint i); /* their end */

/* What rules look at, and a broken rule's text with the values that it shows; the caller frees. */
PlanFacts plan_rules_facts (const Plan *plan, const PlanModel *model, const PlanCluster *cluster);
char *plan_rules_describe (const PlanRuleEntry *entry, const PlanFacts *facts);

/* Whether the product of these degrees of parallelism divides the cluster's devices. */
gboolean plan_rules_degrees_divide (const PlanFacts *f, const PlanField *degrees, guint n);

G_END_DECLS
