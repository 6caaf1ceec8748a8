/* Kinds of layer: the combinations of properties in which the layers of one model differ. */
#pragma once
#include "planner/model/model.h"
G_BEGIN_DECLS

/* Properties, as bits of a kind. A window that is at least `seq` tokens wide counts as none. */
#define PLAN_LAYER_WINDOWED 1u
#define PLAN_LAYER_EXPERTS 2u
#define PLAN_N_LAYER_KINDS 4
guint plan_model_layer_kind (const PlanModel *self, gint64 layer, gint64 seq);

/* Counts the layers of each kind. Kinds recur with the period that plan_model_kinds_period returns,
 * except before the first layer with a window or experts. */
void plan_model_count_kinds (const PlanModel *self, gint64 seq, gint64 *out_layers);
gint64 plan_model_kinds_period (const PlanModel *self, gint64 seq);

G_END_DECLS
