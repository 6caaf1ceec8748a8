/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/case/case.h"

#include "planner/plan/stages.h"

PlanCase *
plan_case_new (const PlanModel *model, const PlanCluster *cluster, const Plan *plan,
               const PlanWorkspaces *asked, GError **error)
{
  g_autoptr (PlanCase) self = g_new0 (PlanCase, 1);
  self->model = model;
  self->cluster = cluster;
  self->asked = asked;
  if (!plan_resolve (plan, model, cluster, &self->plan, error)
      || !(self->stack = plan_stack_of (&self->plan, cluster->kind, error)))
    return NULL;
  const PlanStage first = plan_stage_of (model, self->stack, &self->plan, 0);
  const PlanModel part = plan_stage_model (&first, model);
  plan_layer_graphs_init (&self->graphs, model, &self->plan, self->stack, cluster);
  plan_case_lay_out (self, &part, &self->layout);
  return g_steal_pointer (&self);
}

void
plan_case_lay_out (const PlanCase *self, const PlanModel *part, PlanLayout *out_layout)
{
  plan_layout_init (out_layout, part, self->stack, &self->plan,
                    plan_data_parallel (&self->plan, self->cluster) * self->plan.value[PLAN_CP]);
}

void
plan_case_free (PlanCase *self)
{
  if (self)
    plan_layer_graphs_clear (&self->graphs);
  g_free (self);
}
