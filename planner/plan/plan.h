/* Plan: one point of the plan space, as an array of integers indexed by field.
 *
 * A plan is a plain value: it is copied, compared and hashed as memory. plan_resolve fills in what
 * was left open (`auto`, unset) from the model, the cluster and the stack; everything but the
 * command line sees resolved plans only. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan-fields.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_UNSET (-1)

/* The value of a STACK field: index of the name + PLAN_STACK_BASE * yyyymmdd (0: no date given). */
#define PLAN_STACK_BASE 16

typedef enum
{
#define X(id, name, type, values, initial, numerics, summary) PLAN_##id,
  PLAN_FIELD_LIST (X)
#undef X
      PLAN_N_FIELDS
} PlanField;

#define V(field, id, name) PLAN_##field##_##id,
#define X(id, name, type, values, initial, numerics, summary) \
  enum \
  { \
    values (V, id) PLAN_##id##_N_VALUES \
  };
PLAN_FIELD_LIST (X)
#undef X
#undef V

typedef struct
{
  gint64 value[PLAN_N_FIELDS];
} Plan;

/* Sets all fields to their defaults. */
void plan_init (Plan *self);

/* Sets one field from text, as `--set field=value` does. */
gboolean plan_set (Plan *self, const char *name, const char *value, GError **error);

/* Finds a field by name. */
gboolean plan_field_parse (const char *name, PlanField *out_field, GError **error);

const char *plan_field_name (PlanField field);
const char *plan_field_summary (PlanField field);

/* Whether a field has a meaning for a model: fields about experts have none if the model has no
 * experts. */
gboolean plan_field_is_of (PlanField field, const PlanModel *model);

/* The values the field takes, as help shows them: "off|on", "integer >= 1"; the caller frees. */
char *plan_field_values (PlanField field);

/* The names of the values of an ENUM, STACK or NAMES field, NULL-terminated; NULL for other
 * types. */
const char *const *plan_field_names (PlanField field);

/* The text of a value, "auto" if it was left open; the caller frees. */
char *plan_field_print (PlanField field, gint64 value);

/* "field=value" lines of every field that differs from its default, in list order. */
char *plan_print (const Plan *self);

/* Reads what plan_print writes; comments start with #. `origin` names the text in errors. */
gboolean plan_parse (const char *text, const char *origin, Plan *out_plan, GError **error);

/* The first 16 hex digits of the SHA-256 of the canonical text; the caller frees. */
char *plan_hash (const Plan *self);

/* Fills in everything that was left open, and checks every rule. */
gboolean plan_resolve (const Plan *self, const PlanModel *model, const PlanCluster *cluster,
                       Plan *out_plan, GError **error);

/* Checks the rules for all plans of a block of PlanSpace, of which this is one. FALSE only if none
 * of them can be legal. */
gboolean plan_resolve_block (const Plan *self, const PlanModel *model, const PlanCluster *cluster);

/* As plan_resolve, for a plan of a block that plan_resolve_block allows. */
gboolean plan_resolve_in_block (const Plan *self, const PlanModel *model,
                                const PlanCluster *cluster, Plan *out_plan);

/* Sizes that follow from a resolved plan: ranks of a data-parallel group, micro batches per
 * step. */
gint64 plan_data_parallel (const Plan *self, const PlanCluster *cluster);
gint64 plan_micro_batches (const Plan *self, const PlanCluster *cluster);

/* Whether each rank of the inner data-parallel group keeps only a shard, if the group has more than
 * one rank. */
gboolean plan_shards_optimizer (const Plan *self); /* with main weights */
gboolean plan_shards_grads (const Plan *self);
gboolean plan_shards_weights (const Plan *self);

/* Of a resolved plan: the tokens that attention reaches, those of a sequence or of a document. */
gint64 plan_attended_tokens (const Plan *self);

/* The format that a field of a resolved plan names: of main_params, main_grads or grad_comm, of a
 * moment, or of compute. With main_params=auto it is the weights' format. */
PlanDtype plan_field_dtype (const Plan *self, PlanField field);

/* Formats: of compute weights and activations; of quantised weights as they are gathered, without
 * scales; of copies of weights that GEMMs read; of the gradients that quantised GEMMs read. */
PlanDtype plan_weights_dtype (const Plan *self);
PlanDtype plan_gathered_dtype (const Plan *self);
PlanDtype plan_weight_copies_dtype (const Plan *self);
PlanDtype plan_grad_dtype (const Plan *self);

/* Whether a training step has dropout on the outputs of attention and MLP; the share it zeroes, and
 * that of attention's weights. */
gboolean plan_drops_hidden (const Plan *self);
double plan_hidden_dropout (const Plan *self);
double plan_attention_dropout (const Plan *self);

/* Whether gradients are divided by the data-parallel size by an op before `ranks` ranks sum them.
 * Collectives scale what they sum by themselves, but not in bf16. */
gboolean plan_scales_gradients (const Plan *self, gint64 ranks);

G_END_DECLS
