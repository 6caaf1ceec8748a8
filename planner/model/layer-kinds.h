/* Kinds of layer: the combinations of properties in which the layers of one model differ. */
#pragma once
#include "planner/model/model.h"
G_BEGIN_DECLS

/* Properties, as bits of a kind. A window that is at least `seq` tokens wide counts as none. */
#define PLAN_LAYER_WINDOWED 1u
#define PLAN_LAYER_EXPERTS 2u
#define PLAN_LAYER_NOPE 4u
#define PLAN_LAYER_RECURRENT 8u /* a state in place of attention: the delta rule's or Mamba-2's */
#define PLAN_LAYER_PART 16u     /* by a pattern: mixes tokens, or is an MLP or experts, alone */
#define PLAN_LAYER_MLP (PLAN_LAYER_PART | PLAN_LAYER_NOPE)
#define PLAN_N_LAYER_KINDS (PLAN_LAYER_PART + PLAN_LAYER_RECURRENT + 1)
guint plan_model_layer_kind (const PlanModel *self, gint64 layer, gint64 seq);

/* Whether layers of a kind mix tokens; whether they have an MLP or experts. */
static inline gboolean
plan_layer_feeds (guint kind)
{
  return !(kind & PLAN_LAYER_PART) || (kind & (PLAN_LAYER_EXPERTS | PLAN_LAYER_NOPE)) != 0;
}

static inline gboolean
plan_layer_mixes (guint kind)
{
  return !(kind & PLAN_LAYER_PART) || !plan_layer_feeds (kind);
}

/* Twice the number of pairs of a query and a token that it sees, of `attended` tokens in chunks. */
gint64 plan_model_pairs_in_chunks (const PlanModel *self, gint64 attended);

/* The model as sequences of `seq` tokens see it: without chunks that are at least as long. It
 * shares the strings of `self`. */
PlanModel plan_model_within (const PlanModel *self, gint64 seq);

/* Counts the layers of each kind. Kinds recur with the period that plan_model_kinds_period returns,
 * which is at most the number of layers, except before the first layer with a window or experts; of
 * layers by a pattern it is the period by which most of them recur. */
void plan_model_count_kinds (const PlanModel *self, gint64 seq, gint64 *out_layers);
gint64 plan_model_kinds_period (const PlanModel *self, gint64 seq);

G_END_DECLS
