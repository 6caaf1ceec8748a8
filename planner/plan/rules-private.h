/* What the tables of rules, and of hazards, share: the facts that a predicate reads, and the form
 * of a row. */
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
  const PlanStack *stack;     /* NULL: the stack is not modelled */
  const struct _PlanCase *of; /* for hazards, which also ask where parameters lie; else NULL */
} PlanFacts;

#define IS(facts, field, id) ((facts)->value[PLAN_##field] == PLAN_##field##_##id)
#define HAS_MODULE(facts, field, id) \
  (((facts)->value[PLAN_##field] >> PLAN_##field##_##id & 1) != 0)

static inline gboolean
is_stack (const PlanFacts *f, gint64 id)
{
  return f->value[PLAN_STACK] % PLAN_STACK_BASE == id;
}

/* What the message of a broken rule adds to the values of the fields that it shows. */
typedef enum
{
  PLAN_ADD_NOTHING,
  PLAN_ADD_DEVICES,
  PLAN_ADD_BATCHES, /* the devices, and the batches next to it that would be split evenly */
  PLAN_ADD_MODEL,   /* all that is known of the model, as for a rule about its sizes */
  PLAN_ADD_NAME,    /* the model's name, or all that is known of it if it has none */
  PLAN_ADD_CHANGED, /* nothing, and it leaves out fields that have their default */
} PlanRuleAddition;

typedef struct
{
  PlanRule rule;
  gboolean (*is_broken) (const PlanFacts *f);
  PlanRuleAddition addition;
  guint n_shown;
  PlanField shown[14];
  PlanHazardLevel level; /* of a hazard */
  gboolean of_blocks;    /* it reads only fields that all plans of a block of PlanSpace share */
  gboolean (*breaks_blocks) (const PlanFacts *f); /* or whether it is broken by these alone */
  gboolean of_model; /* it is about parts of a model that stacks lack: it is said before others */
} PlanRuleEntry;

#define PLAN_SHOW(...) \
  .n_shown = sizeof ((PlanField[]){ __VA_ARGS__ }) / sizeof (PlanField), .shown = { __VA_ARGS__ }
#define PLAN_OF_BLOCKS .of_blocks = TRUE
#define PLAN_BREAKS_BLOCKS(is_broken) .breaks_blocks = is_broken
#define PLAN_OF_MODEL .of_model = TRUE
#define PLAN_LEVEL(id) .level = PLAN_HAZARD_##id

typedef struct
{
  const PlanRuleEntry *entries;
  guint n;
} PlanRuleTable;

/* The tables in the order in which they are tried (rules.c). */
extern const PlanRuleTable plan_rules_illegal;           /* what is wrong in any framework */
extern const PlanRuleTable plan_rules_of_experts;        /* the same, about experts */
extern const PlanRuleTable plan_rules_of_pipelines;      /* the same, about pipelines */
extern const PlanRuleTable plan_rules_of_stacks;         /* what the plan's stack cannot do */
extern const PlanRuleTable plan_rules_of_graphs;         /* the same, about graphs of modules */
extern const PlanRuleTable plan_rules_unbuilt;           /* what this version does not model yet */
extern const PlanRuleTable plan_rules_unbuilt_pipelines; /* the same, about pipelines */

/* The facts of a plan. The text of a broken rule with the values that it shows; the caller
 * frees. */
PlanFacts plan_rules_facts (const Plan *plan, const PlanModel *model, const PlanCluster *cluster);
char *plan_rules_describe (const PlanRuleEntry *entry, const PlanFacts *facts);

/* Whether the product of some degrees of parallelism divides the number of devices. */
gboolean plan_rules_degrees_divide (const PlanFacts *f, const PlanField *degrees, guint n);

G_END_DECLS
