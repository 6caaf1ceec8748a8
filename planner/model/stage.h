/* PlanStage: the part of a model that one stage of a pipeline holds.
 *
 * Layers are dealt out in order; what stands before them goes with the first stage, what stands
 * behind them with the last one, or the last few: so do prediction modules, whose layers are
 * counted with its own. Where stages are interleaved, a stage consists of several virtual stages:
 * micro batches go through the first of every stage, then through the second, and so on. */
#pragma once
#include "planner/model/model.h"
G_BEGIN_DECLS

typedef struct
{
  gint64 first, layers;             /* its first layer; layers of all its virtual stages together */
  gboolean has_embedding, has_head; /* the latter: final norm and output layer */
  gboolean has_cast, has_loss; /* what makes logits fp32, and what reads them: with the head, but
                                * where a stack deals out these, too */
  gint64 modules; /* of its layers, the last ones: of prediction modules, which are with the head */
  gint64 n_virtual;
  gint64 each;     /* layers of a virtual stage; the first one is short of `missing` */
  gint64 missing;  /* the last one has what is left */
  gint64 distance; /* from a virtual stage to the next one, in layers of the whole model */
} PlanStage;

/* That part as a model of its own; what the whole one owns stays its. Where embedding and output
 * layer are one matrix, the last stage has a copy of it as its output layer; where there are
 * prediction modules, it has a copy of the embedding besides. */
PlanModel plan_stage_model (const PlanStage *self, const PlanModel *whole);

/* Whether it holds nothing that anything could go through, and whether logits are what it reads:
 * it has no parameters. */
gboolean plan_stage_is_empty (const PlanStage *self);
gboolean plan_stage_reads_logits (const PlanStage *self);

/* One of its virtual stages, or all of it, with layers counted among the stage's own. */
PlanStage plan_stage_virtual (const PlanStage *self, gint64 number);
PlanStage plan_stage_whole (const PlanStage *self);

/* A layer of it among those of the whole model. */
gint64 plan_stage_layer (const PlanStage *self, gint64 layer);

G_END_DECLS
