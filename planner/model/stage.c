/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/model/stage.h"

PlanModel
plan_stage_model (const PlanStage *self, const PlanModel *whole)
{
  const gboolean is_whole = self->has_embedding && self->has_head;
  PlanModel part = *whole;
  part.layers = self->layers;
  part.cut = (PlanModelCut){ .first_layer = self->first,
                             .no_embedding = !self->has_embedding,
                             .no_head = !self->has_head,
                             .shares_embedding = whole->tied_embeddings && !is_whole
                                                 && (self->has_embedding || self->has_head) };
  part.tied_embeddings = whole->tied_embeddings && is_whole;
  return part;
}
