/* PlanStage: the part of a model that one stage of a pipeline holds.
 *
 * Layers are dealt out in order; what stands before them goes with the first stage, what stands
 * behind them with the last one. */
#pragma once
#include "planner/model/model.h"
G_BEGIN_DECLS

typedef struct
{
  gint64 first, layers;
  gboolean has_embedding, has_head;
} PlanStage;

/* That part as a model of its own; what the whole one owns stays its. Where embedding and output
 * layer are one matrix, the last stage has a copy of it as its output layer. */
PlanModel plan_stage_model (const PlanStage *self, const PlanModel *whole);

G_END_DECLS
