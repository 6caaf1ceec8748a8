/* PlanModelCut: what a part of a model (see stage.h) lacks of the whole one; all 0 in a whole
 * model. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 first_layer; /* index of its first layer in the whole model */
  /* Interleaved stages: each virtual stage has `run_layers` neighbouring layers, but the first one
   * `missing` fewer, and the last one what is left, possibly none. Between two of them other stages
   * hold `gap` layers. run_layers 0: there is one virtual stage. */
  gint64 run_layers, missing, gap;
  gint64 runs;    /* number of virtual stages */
  gint64 modules; /* the last of its layers that belong to multi-token-prediction modules */
  gboolean no_embedding, no_head;
  gboolean shares_embedding; /* its embedding or output layer is a copy of another stage's */
} PlanModelCut;

/* The virtual stage that holds a layer of the part; plan_model_cut_place gives the layer's index in
 * the whole model. */
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

/* The number of layers from a layer to the end of its virtual stage, itself included. `layers`: of
 * the part. */
static inline gint64
plan_model_cut_rest (const PlanModelCut *self, gint64 layer, gint64 layers)
{
  const gint64 run = plan_model_cut_run (self, layer);
  return run + 1 < self->runs ? MIN ((run + 1) * self->run_layers - self->missing, layers) - layer
                              : layers - layer;
}

G_END_DECLS
