/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes of a layer one CUDA graph holds (graph_modules), as Megatron-LM's layers capture
 * themselves (transformer_layer.py 1263-1318, moe_layer.py 444-520 at d98e8a64): attention with its
 * norm and sum, then the MLP; of a layer with experts the whole branch, or the norm, the shared
 * experts that run by themselves and the router, then what the dispatcher does before it sends
 * anything. As these follow one another, a layer has one graph in each pass. */
#include "config.h"

#include "planner/graph/layer-builder.h"

#define HAS(plan, id) ((plan)->value[PLAN_GRAPH_MODULES] >> PLAN_GRAPH_MODULES_##id & 1)

/* Where the nodes of a branch of experts belong. */
typedef enum
{
  ROUTER,
  PREPROCESS,
  REST,
} Phase;

/* A dispatcher that sends each row to its expert by itself sorts rows before; libraries and the one
 * that gathers all tokens do nothing but name the experts (token_dispatcher.py,
 * dispatch_preprocess).
 */
static Phase
phase_of (const PlanNode *node, Phase phase, gboolean overlaps_shared)
{
  if (phase == ROUTER
      && (node->kind == PLAN_NODE_NORM || node->kind == PLAN_NODE_ROUTE
          || node->kind == PLAN_NODE_DROP
          || (node->module == PLAN_MODULE_SHARED && !overlaps_shared)))
    return ROUTER;
  if (phase == REST || node->kind == PLAN_NODE_SEND_ROWS || node->kind == PLAN_NODE_GATHER_TOKENS
      || node->kind == PLAN_NODE_OWN_EXPERTS || node->kind == PLAN_NODE_EXPERT_LINEAR
      || (node->kind == PLAN_NODE_PERMUTE && (!node->is_first_permute || node->selects_by_mask)))
    return REST;
  return PREPROCESS;
}

static gboolean
is_of_experts_captured (const Plan *plan, const PlanNode *node, Phase phase,
                        gboolean overlaps_shared)
{
  if (HAS (plan, MOE))
    return TRUE;
  if (phase == PREPROCESS && node->module == PLAN_MODULE_SHARED && overlaps_shared)
    return FALSE;
  return (phase == ROUTER && HAS (plan, MOE_ROUTER))
         || (phase == PREPROCESS && HAS (plan, MOE_PREPROCESS));
}

static PlanNodeSet
captured_nodes (const PlanLayerGraph *self, guint kind, const Plan *plan, gboolean is_ssm)
{
  const gboolean overlaps = plan->value[PLAN_MOE_SHARED_OVERLAP] == PLAN_MOE_SHARED_OVERLAP_ON;
  gboolean mixes = plan_layer_mixes (kind);
  PlanNodeSet captured = 0;
  Phase phase = ROUTER;
  for (guint i = 0; i < self->n_nodes; i++)
    {
      const PlanNode *node = &self->nodes[i];
      phase = mixes ? ROUTER : phase_of (node, phase, overlaps);
      const gboolean is_in
          = mixes ? (is_ssm && (kind & PLAN_LAYER_RECURRENT) ? HAS (plan, MAMBA) : HAS (plan, ATTN))
            : kind & PLAN_LAYER_EXPERTS ? is_of_experts_captured (plan, node, phase, overlaps)
                                        : HAS (plan, MLP);
      captured |= is_in ? plan_node_bit (i) : 0;
      mixes = mixes && node->out != PLAN_VALUE_HIDDEN2;
    }
  return captured;
}

/* What the graph's nodes make and others read: static memory, as it is where the graph was recorded
 * to write it. */
static PlanValueSet
values_outside (const PlanLayerGraph *self)
{
  PlanValueSet made = 0, read = plan_value_bit (PLAN_VALUE_OUT);
  for (guint i = 0; i < self->n_nodes; i++)
    if (self->captured >> i & 1)
      made |= self->nodes[i].makes;
    else
      read |= self->nodes[i].reads;
  return made & read;
}

void
plan_layer_find_captured (PlanLayerGraph *self, guint kind, const Plan *plan,
                          const PlanModel *model)
{
  self->captured = plan->value[PLAN_GRAPH_MODULES] == 0
                       ? 0
                       : captured_nodes (self, kind, plan, model->ssm.heads > 0);
  self->outside = values_outside (self);
}
