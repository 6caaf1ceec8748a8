/* PlanStage: the part of a model that one stage of a pipeline holds.
 *
 * Layers are dealt out in order. What comes before the layers (the embedding) goes to the first
 * stage, what comes behind them to the last one, or to the last few; multi-token-prediction modules
 * go with the head, and their layers count among that stage's layers. An interleaved stage consists
 * of several virtual stages: micro batches go through the first virtual stage of every stage, then
 * through the second, and so on. */
#pragma once
#include "planner/model/model.h"
G_BEGIN_DECLS

typedef struct
{
  gint64 first, layers; /* its first layer; number of layers in all its virtual stages */
  gboolean has_embedding, has_head; /* the head is the final norm and output layer */
  gboolean has_cast, has_loss; /* the cast of logits to fp32, and the loss: on the head's stage,
                                * unless the stack deals them out like layers */
  gint64 modules; /* how many of its last layers belong to prediction modules, which are with the
                     head */
  gint64 n_virtual;
  gint64 each;          /* layers of every virtual stage but the last, which has the remainder */
  gint64 missing;       /* by how many layers the first virtual stage has fewer than `each` */
  gint64 distance;      /* from one virtual stage to the next, in layers of the whole model */
  PlanModelDealt dealt; /* in place of these three where virtual stages differ otherwise */
} PlanStage;

/* That part as a model of its own, which shares the whole one's strings. Where embedding and output
 * layer are one matrix, the last stage has a copy of it as output layer; where there are prediction
 * modules, it has a copy of the embedding as well. */
PlanModel plan_stage_model (const PlanStage *self, const PlanModel *whole);

/* Whether the stage holds nothing at all; whether it has no parameters and reads logits. */
gboolean plan_stage_is_empty (const PlanStage *self);
gboolean plan_stage_reads_logits (const PlanStage *self);

/* One of its virtual stages, or all of it as one; layers are counted within the stage. */
PlanStage plan_stage_virtual (const PlanStage *self, gint64 number);
PlanStage plan_stage_whole (const PlanStage *self);

/* The index of a layer of the stage in the whole model. */
gint64 plan_stage_layer (const PlanStage *self, gint64 layer);

G_END_DECLS
