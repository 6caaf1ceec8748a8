/* SPDX-License-Identifier: Apache-2.0 */
/* Claim: an interleaved step takes at least plan_detour_ns longer than the passes of its last
 * stage. A detour is a chain of passes on the stage before the last one, each of which waits for
 * the one before it. plan_detour_ns is the time of all detours, less that of the last stage's
 * passes that they replace.
 *
 * Why it holds. A turn is a forward and a backward pass; after its warm-up a stage does turn after
 * turn. For each group of micro batches the last stage does `group` turns on its last virtual
 * stage, which has the output layer and the loss, and then others * group turns on its other
 * virtual stages, which may have fewer layers than those of other stages. A detour replaces the
 * latter:
 *   - It begins with the backward pass on the stage before that takes the gradient of the last
 *     backward pass of the `group` turns.
 *   - It goes on with the turns that follow on that stage.
 *   - It ends with the forward pass there that sends the input of the next group's first forward
 *     pass on the last virtual stage. The stage before is `ahead` forward passes ahead of the last
 *     stage, so that pass comes `ahead` turns early.
 * So a detour has others * group - ahead turns. The passes at its ends make one more turn, where
 * all virtual stages of that stage are alike.
 *
 * Assumption: a layer takes as long in the last stage as layers of its kind do elsewhere. Where
 * recompute tells layers apart, the path is not taken.
 *
 * tests/prop/prop-floor.c checks it with the floors that use it. */
#include "config.h"

#include "planner/search/detour.h"

#include "planner/plan/stages.h"

PlanKinds
plan_kinds_of (const PlanModel *whole, const PlanStage *stage, const PlanStage *part, gint64 seq)
{
  const PlanModel model = plan_stage_model (stage, whole);
  PlanKinds kinds = { .layers = part->layers };
  for (gint64 layer = part->first; layer < part->first + part->layers; layer++)
    kinds.of[plan_model_layer_kind (&model, layer, seq)]++;
  return kinds;
}

gboolean
plan_kinds_cover (const PlanKinds *self, const PlanKinds *other)
{
  gboolean cover = TRUE;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    cover = cover && self->of[kind] >= other->of[kind];
  return cover;
}

gboolean
plan_kinds_are_share (const PlanKinds *part, const PlanKinds *whole)
{
  gboolean are_share = TRUE;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    are_share = are_share && part->of[kind] * whole->layers == whole->of[kind] * part->layers;
  return are_share;
}

gboolean
plan_kinds_are_alike (const PlanModel *whole, const PlanStage *stage, gint64 seq)
{
  const PlanStage first = plan_stage_virtual (stage, 0);
  const PlanKinds of_first = plan_kinds_of (whole, stage, &first, seq);
  gboolean are_alike = TRUE;
  for (gint64 i = 1; i < stage->n_virtual; i++)
    {
      const PlanStage part = plan_stage_virtual (stage, i);
      const PlanKinds kinds = plan_kinds_of (whole, stage, &part, seq);
      are_alike = are_alike && kinds.layers == of_first.layers
                  && plan_kinds_are_share (&kinds, &of_first);
    }
  return are_alike;
}

static gboolean
tells_layers_apart (const Plan *plan)
{
  return plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL
         && (plan->value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK
             || plan->value[PLAN_RECOMPUTE_LAYERS] > 1);
}

/* The layers of the last stage without those of its last virtual stage; below 0 where they, or
 * those of the stage before, are not of the same kinds as the inner stage's. */
static gint64
layers_left_out (const PlanModel *model, const PlanCluster *cluster, const Plan *resolved,
                 const PlanStage *inner)
{
  const gint64 seq = resolved->value[PLAN_SEQ], last = resolved->value[PLAN_PP] - 1;
  const PlanStack *stack = plan_stack_of (resolved, cluster->kind, NULL);
  const PlanStage end = plan_stage_of (model, stack, resolved, last);
  const PlanStage before = plan_stage_of (model, stack, resolved, last - 1);
  const PlanKinds of_inner = plan_kinds_of (model, inner, inner, seq);
  const PlanKinds of_before = plan_kinds_of (model, &before, &before, seq);
  gint64 layers = 0;
  if (of_before.layers != of_inner.layers || !plan_kinds_are_share (&of_before, &of_inner)
      || !plan_kinds_are_alike (model, &before, seq))
    return -1;
  for (gint64 i = 0; i + 1 < end.n_virtual; i++)
    {
      const PlanStage part = plan_stage_virtual (&end, i);
      const PlanKinds kinds = plan_kinds_of (model, &end, &part, seq);
      if (!plan_kinds_are_share (&kinds, &of_inner))
        return -1;
      layers += kinds.layers;
    }
  return layers;
}

gint64
plan_detour_ns (const PlanModel *model, const PlanCluster *cluster, const Plan *resolved,
                const PlanStage *inner, gint64 chain_ns, gint64 trade_ns)
{
  const gint64 *value = resolved->value;
  const gint64 n = plan_micro_batches (resolved, cluster), last = value[PLAN_PP] - 1;
  const gint64 group = plan_stage_group (resolved), others = value[PLAN_VPP] - 1;
  if (others == 0 || last < 2 || tells_layers_apart (resolved))
    return 0;
  const gint64 warm_up = plan_stage_warm_up (resolved, last, n);
  const gint64 ahead = plan_stage_warm_up (resolved, last - 1, n) - warm_up;
  const gint64 layers = layers_left_out (model, cluster, resolved, inner);
  if (layers < 0 || warm_up != others * group || n % group != 0
      || value[PLAN_PP_OVERLAP] == PLAN_PP_OVERLAP_OFF)
    return 0;
  const gint64 taken_ns = (others * group - ahead + 1) * (chain_ns / value[PLAN_VPP] + trade_ns);
  const gint64 left_out_ns
      = group * (chain_ns * layers / MAX (inner->layers, 1) + others * trade_ns);
  return MAX (n / group - 1, 0) * MAX (taken_ns - left_out_ns, 0);
}
