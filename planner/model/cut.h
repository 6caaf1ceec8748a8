/* PlanModelCut: what a part of a model lacks (planner/model/stage.h); all 0 in a whole one. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 first_layer; /* of the whole model's layers */
  /* Virtual stages have `run_layers` neighbouring layers each, the first one `missing` fewer, the
   * last one what is left, maybe none; other stages hold `gap` layers between one and the next. 0:
   * there is only one. */
  gint64 run_layers, missing, gap;
  gint64 runs;    /* of them */
  gint64 modules; /* prediction modules: behind the whole model's layers, the last of this part's */
  gboolean no_embedding, no_head;
  gboolean shares_embedding; /* its embedding or its output layer is a copy of the other one's */
} PlanModelCut;

/* The virtual stage that a layer of the part is in, and its place among the whole model's layers.
 */
static inline gint64
plan_model_cut_run (const PlanModelCut *self, gint64 layer)
{
  return self->run_layers > 0 ? MIN ((layer + self->missing) / self->run_layers, self->runs - 1)
                              : 0;
}

static inline gint64
plan_model_cut_place (const PlanModelCut *self, gint64 layer)
{
  return self->first_layer + layer + plan_model_cut_run (self, layer) * self->gap;
}

/* Layers from that one on in its virtual stage, itself counted, of a part that has `layers`. */
static inline gint64
plan_model_cut_rest (const PlanModelCut *self, gint64 layer, gint64 layers)
{
  const gint64 run = plan_model_cut_run (self, layer);
  return run + 1 < self->runs ? MIN ((run + 1) * self->run_layers - self->missing, layers) - layer
                              : layers - layer;
}

G_END_DECLS
