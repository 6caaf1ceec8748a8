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

/* Elements that the optimizer of a rank updates. */
static guint64
own_elements (const PlanCase *self)
{
  const gint64 *const v = self->plan.value;
  const guint64 replicas
      = v[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM ? (guint64)v[PLAN_DP_OUTER] : 1;
  guint64 own = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    {
      const PlanBucket *const b = &self->layout.buckets[kind];
      own += b->padded * (guint64)b->units
             / (plan_shards_optimizer (&self->plan) ? MAX (b->shards, 1) * replicas : 1);
    }
  return own;
}

gboolean
plan_case_fits_host (const PlanCase *self)
{
  static const PlanField formats[]
      = { PLAN_MAIN_PARAMS, PLAN_EXP_AVG, PLAN_EXP_AVG_SQ, PLAN_MAIN_GRADS };
  const gint64 share = self->plan.value[PLAN_OFFLOAD_OPTIMIZER]; /* in millionths */
  const guint64 own = share > 0 ? own_elements (self) : 0,
                there_is = self->cluster->host_memory_bytes;
  guint64 bytes = 0;
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    bytes += plan_dtype_bytes (self->stack->optimizer.host == PLAN_HOST_WIDE
                                   ? PLAN_DTYPE_FP32
                                   : plan_field_dtype (&self->plan, formats[i]),
                               own);
  return there_is == 0
         || (double)bytes * (double)share / 1e6 * (double)self->cluster->devices_per_node
                <= (double)there_is;
}

void
plan_case_free (PlanCase *self)
{
  if (self)
    plan_layer_graphs_clear (&self->graphs);
  g_free (self);
}
