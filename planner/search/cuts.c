/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/search/cuts.h"

static gboolean
can_be_cut (const PlanModel *model, gint64 parts, gboolean counts_ends)
{
  return (model->layers + (counts_ends ? 2 : 0)) % parts == 0;
}

/* Where weights are gathered beside compute, stages gather theirs one after the other as the
 * pipeline fills, and virtual ones all at once; else all gather at once before they compute. */
static void
add_cut (GArray *cuts, const PlanModel *model, gint64 stages, gint64 n_virtual)
{
  const gint64 parts = stages * n_virtual;
  PlanCut cut = { stages, n_virtual, .gathers_beside = TRUE };
  cut.counts_ends = !can_be_cut (model, parts, FALSE) && can_be_cut (model, parts, TRUE);
  g_array_append_val (cuts, cut);
  cut.gathers_beside = FALSE;
  if (stages > 1 && n_virtual == 1)
    g_array_append_val (cuts, cut);
}

static void
add_cuts (GArray *cuts, const PlanModel *model, gint64 stages, gboolean is_told)
{
  gint64 last = 0;
  for (gint64 n = 1; n <= (stages > 1 ? model->layers / stages : 1); n++)
    {
      const gint64 parts = stages * n;
      const gboolean is_even = can_be_cut (model, parts, FALSE) || can_be_cut (model, parts, TRUE);
      if (is_told ? n == 1 && !is_even : !is_even || n < 2 * last)
        continue;
      add_cut (cuts, model, stages, n);
      last = n;
    }
}

GArray *
plan_cuts_of (const PlanModel *model, const PlanCluster *cluster, const PlanStack *stack,
              gboolean is_told)
{
  GArray *cuts = g_array_new (FALSE, FALSE, sizeof (PlanCut));
  const gint64 most = MIN (model->layers, plan_cluster_devices (cluster));
  for (gint64 stages = 1; stages <= most; stages *= 2)
    {
      const PlanCut cut = { .stages = stages, .n_virtual = 1 };
      if (stack->stages_by_cost)
        g_array_append_val (cuts, cut);
      else
        add_cuts (cuts, model, stages, is_told);
    }
  return cuts;
}

static gboolean
has_layers_to_recompute (const Plan *plan, const Plan *base, const PlanModel *model)
{
  const gint64 n = plan->value[PLAN_RECOMPUTE_LAYERS];
  const gint64 parts = plan->value[PLAN_PP] * plan->value[PLAN_VPP];
  return n == base->value[PLAN_RECOMPUTE_LAYERS] || parts < 2
         || n <= (model->layers + 2 + parts - 1) / parts;
}

static gboolean
gains_by_virtual (const Plan *plan, const Plan *base, const PlanCluster *cluster)
{
  const gint64 *value = plan->value, n = value[PLAN_VPP];
  const gint64 per_rank = value[PLAN_GBS] / MAX (plan_data_parallel (plan, cluster), 1);
  return n == base->value[PLAN_VPP]
         || per_rank / value[PLAN_MBS] * n <= 2 * 100 * (value[PLAN_PP] - 1);
}

gboolean
plan_cut_may_help (const Plan *plan, const Plan *base, const PlanModel *model,
                   const PlanCluster *cluster)
{
  return has_layers_to_recompute (plan, base, model) && gains_by_virtual (plan, base, cluster);
}
