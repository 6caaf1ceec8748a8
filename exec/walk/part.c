/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/part.h"

#include "planner/plan/stages.h"

void
exec_part_init (ExecPart *self, const PlanCase *of, guint rank, guint ranks)
{
  const gint64 *value = of->plan.value;
  const guint stage_ranks = ranks / (guint)value[PLAN_PP], stage = rank / stage_ranks;
  self->whole = of->model;
  self->ranks = stage_ranks;
  self->place = rank % stage_ranks;
  self->stage = plan_stage_of (of->model, of->stack, &of->plan, stage);
  self->model = plan_stage_model (&self->stage, of->model);
  if (stage == 0)
    self->layout = of->layout;
  else
    plan_case_lay_out (of, &self->model, &self->layout);
}

gint64
exec_part_layer (const ExecPart *self, PlanBucketKind kind, gint64 layer)
{
  return plan_bucket_is_unit (kind) ? plan_stage_layer (&self->stage, layer) : layer;
}

gboolean
exec_part_is_copy (const ExecPart *self, PlanTensorRole role)
{
  return role == PLAN_TENSOR_OUTPUT && self->whole->tied_embeddings;
}
