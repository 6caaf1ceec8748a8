/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/model/stage.h"

static PlanModelCut
cut_of (const PlanStage *self)
{
  PlanModelCut cut = { .first_layer = self->first,
                       .modules = self->modules,
                       .no_embedding = !self->has_embedding,
                       .no_head = !self->has_head };
  if (self->n_virtual > 1)
    {
      cut.runs = self->n_virtual;
      cut.dealt = self->dealt;
      cut.run_layers = self->each;
      cut.missing = self->missing;
      cut.gap = self->distance - self->each;
    }
  return cut;
}

PlanModel
plan_stage_model (const PlanStage *self, const PlanModel *whole)
{
  const gboolean is_whole = self->has_embedding && self->has_head;
  PlanModel part = *whole;
  part.layers = self->layers;
  part.cut = cut_of (self);
  part.cut.shares_embedding = (whole->tied_embeddings || whole->mtp > 0) && !is_whole
                              && (self->has_embedding || self->has_head);
  part.tied_embeddings = whole->tied_embeddings && is_whole;
  return part;
}

gboolean
plan_stage_is_empty (const PlanStage *self)
{
  return self->layers < 1 && !self->has_embedding && !self->has_head && !self->has_cast
         && !self->has_loss;
}

gboolean
plan_stage_reads_logits (const PlanStage *self)
{
  return !self->has_head && (self->has_cast || self->has_loss);
}

static gint64
first_of (const PlanStage *self, gint64 number)
{
  if (self->dealt.before)
    return plan_model_dealt_first (&self->dealt, number);
  return number == 0 ? 0 : number * self->each - self->missing;
}

PlanStage
plan_stage_virtual (const PlanStage *self, gint64 number)
{
  const gboolean is_last = number + 1 == self->n_virtual;
  const gint64 first = first_of (self, number);
  const gint64 end = is_last ? self->layers : first_of (self, number + 1);
  return (PlanStage){ .first = first,
                      .layers = end - first,
                      .has_embedding = self->has_embedding && number == 0,
                      .has_head = self->has_head && is_last,
                      .has_cast = self->has_cast && is_last,
                      .has_loss = self->has_loss && is_last,
                      .modules = is_last ? self->modules : 0,
                      .n_virtual = 1 };
}

PlanStage
plan_stage_whole (const PlanStage *self)
{
  return (PlanStage){ .layers = self->layers,
                      .has_embedding = self->has_embedding,
                      .has_head = self->has_head,
                      .has_cast = self->has_cast,
                      .has_loss = self->has_loss,
                      .modules = self->modules,
                      .n_virtual = 1 };
}

gint64
plan_stage_layer (const PlanStage *self, gint64 layer)
{
  const PlanModelCut cut = cut_of (self);
  return plan_model_cut_place (&cut, layer);
}
