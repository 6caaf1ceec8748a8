/* PlanModelCut: what a part of a model (see stage.h) lacks of the whole one; all 0 in a whole
 * model. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Virtual stages with any numbers of layers: before[i * stride] layers of the whole model are in
 * front of the part's virtual stage i, and before[i * stride + 1] in front of what follows it.
 * before NULL: they have equally many, see below. */
typedef struct
{
  const gint64 *before;
  gint64 stride;
} PlanModelDealt;

typedef struct
{
  gint64 first_layer; /* index of its first layer in the whole model */
  /* Interleaved stages: each virtual stage has `run_layers` neighbouring layers, but the first one
   * `missing` fewer, and the last one what is left, possibly none. Between two of them other stages
   * hold `gap` layers. run_layers 0: there is one virtual stage. */
  gint64 run_layers, missing, gap;
  PlanModelDealt dealt;
  gint64 runs;    /* number of virtual stages */
  gint64 modules; /* the last of its layers that belong to multi-token-prediction modules */
  gboolean no_embedding, no_head;
  gboolean shares_embedding; /* its embedding or output layer is a copy of another stage's */
} PlanModelCut;

/* The layers of a virtual stage without those of prediction modules, where they are dealt out. */
static inline gint64
plan_model_dealt_layers (const PlanModelDealt *self, gint64 run)
{
  return self->before[run * self->stride + 1] - self->before[run * self->stride];
}

/* The part's layers in front of a virtual stage. */
static inline gint64
plan_model_dealt_first (const PlanModelDealt *self, gint64 run)
{
  gint64 first = 0;
  for (gint64 i = 0; i < run; i++)
    first += plan_model_dealt_layers (self, i);
  return first;
}

static inline gint64
plan_model_dealt_run (const PlanModelDealt *self, gint64 layer, gint64 runs)
{
  gint64 run = 0;
  for (gint64 end = plan_model_dealt_layers (self, 0); layer >= end && run + 1 < runs;)
    end += plan_model_dealt_layers (self, ++run);
  return run;
}

/* The virtual stage that holds a layer of the part; plan_model_cut_place gives the layer's index in
 * the whole model. */
static inline gint64
plan_model_cut_run (const PlanModelCut *self, gint64 layer)
{
  if (self->dealt.before)
    return plan_model_dealt_run (&self->dealt, layer, self->runs);
  return self->run_layers > 0 ? MIN ((layer + self->missing) / self->run_layers, self->runs - 1)
                              : 0;
}

static inline gint64
plan_model_cut_place (const PlanModelCut *self, gint64 layer)
{
  if (self->dealt.before)
    {
      const gint64 run = plan_model_cut_run (self, layer);
      return self->dealt.before[run * self->dealt.stride] + layer
             - plan_model_dealt_first (&self->dealt, run);
    }
  return self->first_layer + layer + plan_model_cut_run (self, layer) * self->gap;
}

/* The number of layers from a layer to the end of its virtual stage, itself included. `layers`: of
 * the part. */
static inline gint64
plan_model_cut_rest (const PlanModelCut *self, gint64 layer, gint64 layers)
{
  const gint64 run = plan_model_cut_run (self, layer);
  if (self->dealt.before && run + 1 < self->runs)
    return plan_model_dealt_first (&self->dealt, run + 1) - layer;
  return run + 1 < self->runs ? MIN ((run + 1) * self->run_layers - self->missing, layers) - layer
                              : layers - layer;
}

G_END_DECLS
