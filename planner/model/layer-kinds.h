/* Kinds of layer: what the layers of one model differ in. */
#pragma once
#include "planner/model/model.h"
G_BEGIN_DECLS

/* What layers differ in, as bits: a kind of layer. A window that holds a sequence of `seq` tokens
 * makes no difference. */
#define PLAN_LAYER_WINDOWED 1u
#define PLAN_LAYER_EXPERTS 2u
#define PLAN_N_LAYER_KINDS 4
guint plan_model_layer_kind (const PlanModel *self, gint64 layer, gint64 seq);

/* Layers of each kind; after so many layers, kinds recur (but for those before the first layer with
 * a window or experts). */
void plan_model_count_kinds (const PlanModel *self, gint64 seq, gint64 *out_layers);
gint64 plan_model_kinds_period (const PlanModel *self, gint64 seq);

G_END_DECLS
