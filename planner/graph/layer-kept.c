/* SPDX-License-Identifier: Apache-2.0 */
/* What a layer keeps for its backward pass. */
#include "config.h"

#include "planner/graph/layer-builder.h"

#define BIT(member) plan_value_bit (node->member)

/* The values that the backward pass of a node reads. */
static PlanValueSet
needs (const PlanNode *node)
{
  switch (node->kind)
    {
    case PLAN_NODE_NORM:
    case PLAN_NODE_HEAD_NORM:
    case PLAN_NODE_ACTIVATE:
    case PLAN_NODE_DELTA_CONV:
    case PLAN_NODE_SSM_CONV:
    case PLAN_NODE_GROUP_NORM:
    case PLAN_NODE_DELTA_GATES:
    case PLAN_NODE_EXPERT_ACTIVATE:
    case PLAN_NODE_SINK:
    case PLAN_NODE_GATE:
    case PLAN_NODE_GATE_HEADS:
    case PLAN_NODE_SSM_SCAN:
      return BIT (in) | BIT (other) | BIT (stats);
    case PLAN_NODE_ATTENTION:
      return BIT (in) | BIT (out) | BIT (col) | BIT (stats);
    case PLAN_NODE_LINEAR:
    case PLAN_NODE_EXPERT_LINEAR:
      return BIT (kept) | BIT (saved) | BIT (other) | BIT (map);
    case PLAN_NODE_SCALE_ROWS:
      return BIT (other) | (node->stats == PLAN_NO_VALUE ? BIT (in) : BIT (stats));
    case PLAN_NODE_LATENT_ATTENTION:
      return BIT (in) | BIT (other) | BIT (latent) | BIT (out) | BIT (stats);
    case PLAN_NODE_ROUTE:
      return BIT (in) | BIT (col) | BIT (stats);
    case PLAN_NODE_PERMUTE:
      return BIT (stats) | BIT (places) | (node->selects_by_mask ? BIT (other) | BIT (map) : 0);
    case PLAN_NODE_UNPERMUTE:
      return BIT (map);
    case PLAN_NODE_DELTA_KEYS:
      return BIT (col) | BIT (stats);
    case PLAN_NODE_DELTA_RULE:
      return BIT (in) | BIT (other) | BIT (latent) | BIT (stats);
    case PLAN_NODE_DELTA_NORM:
      return BIT (in) | BIT (other) | BIT (col) | BIT (stats);
    case PLAN_NODE_ADD:
    case PLAN_NODE_DROP:
      return BIT (stats);
    case PLAN_NODE_SPLIT:
    case PLAN_NODE_QUANTIZE:
    case PLAN_NODE_TRANSPOSE:
    case PLAN_NODE_GATHER_SEQ:
    case PLAN_NODE_GATHER_KEYS:
    case PLAN_NODE_COPY_TP:
    case PLAN_NODE_ROPE:
    case PLAN_NODE_REPEAT:
    case PLAN_NODE_REDUCE_TP:
    case PLAN_NODE_LATENT_ROPE:
    case PLAN_NODE_SEND_ROWS:
    case PLAN_NODE_GATHER_ROWS:
    case PLAN_NODE_REDUCE_ROWS:
    case PLAN_NODE_GATHER_TOKENS:
    case PLAN_NODE_OWN_EXPERTS:
      return 0;
    }
  g_assert_not_reached ();
}

/* Whether op-by-op recompute keeps what a node makes, beside products: results of attention and of
 * communication. */
static gboolean
is_kept_op (const PlanSizes *sizes, const PlanNode *node)
{
  switch (node->kind)
    {
    case PLAN_NODE_ATTENTION:
    case PLAN_NODE_LATENT_ATTENTION:
      return (sizes->sac & PLAN_SAC_CUDNN) != 0;
    case PLAN_NODE_SEND_ROWS:
      return (sizes->sac & PLAN_SAC_ROWS) != 0;
    default:
      return node->kind == PLAN_NODE_REDUCE_TP;
    }
}

#define HAS_MODULE(value, id) ((value)[PLAN_RECOMPUTE_MODULES] >> PLAN_RECOMPUTE_MODULES_##id & 1)

gboolean
plan_node_is_again (const PlanSizes *sizes, const PlanNode *node, const Plan *plan,
                    gboolean is_in_block)
{
  const gint64 *value = plan->value;
  const gboolean is_block = value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK;
  if (value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL)
    return !is_block || is_in_block;
  if (value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_SELECTIVE)
    return FALSE;
  const gboolean is_of_experts = node->module == PLAN_MODULE_EXPERTS
                                 || node->module == PLAN_MODULE_EXPERT_ACT
                                 || node->module == PLAN_MODULE_SHARED;
  return (node->module == PLAN_MODULE_MLP && HAS_MODULE (value, MLP))
         || (is_of_experts && HAS_MODULE (value, MOE))
         || (node->module == PLAN_MODULE_EXPERT_ACT && HAS_MODULE (value, MOE_ACT))
         || (node->module == PLAN_MODULE_SHARED && HAS_MODULE (value, SHARED_EXPERTS))
         || (node->module == PLAN_MODULE_LATENT_UP && HAS_MODULE (value, MLA_UP_PROJ))
         || (node->module == PLAN_MODULE_NORM && HAS_MODULE (value, LAYERNORM))
         || (node->module == PLAN_MODULE_CORE_ATTN && HAS_MODULE (value, CORE_ATTN))
         || (HAS_MODULE (value, OP_SAC) && !is_kept_op (sizes, node));
}

PlanValueSet
plan_layer_graph_kept (const PlanLayerGraph *self, const PlanSizes *sizes, PlanNodeSet again,
                       guint n)
{
  PlanValueSet made_again = 0, discarded = 0, cheap = 0, needed = 0, kept = 0;
  for (guint i = 0; i < self->n_nodes; i++)
    {
      const PlanNode *node = &self->nodes[i];
      needed |= node->needs;
      cheap |= node->is_cheap ? node->makes : 0;
      discarded |= plan_node_discards (node) && (again >> i & 1) ? node->makes : 0;
      made_again |= node->is_cheap || (again >> i & 1) ? node->makes : 0;
    }
  /* A cheap node runs again, so what it reads is needed, too. */
  for (guint i = self->n_nodes; i-- > 0;)
    if (self->nodes[i].is_cheap && (self->nodes[i].makes & needed))
      needed |= self->nodes[i].reads;
  for (guint i = 0; i < n; i++)
    {
      const PlanNode *node = &self->nodes[i];
      const gboolean is_again = again >> i & 1;
      const PlanValueSet main = plan_value_bit (node->out) | plan_value_bit (node->col);
      if (is_again || (node->is_cheap && (main & needed)))
        kept |= node->reads & ~made_again;
      if (!is_again)
        kept |= node->needs & ~cheap & ~discarded & ~(sizes->per_op ? made_again : 0);
      kept |= plan_value_bit (node->saved);
      kept |= self->captured >> i & 1 ? self->outside : 0;
    }
  return kept;
}

void
plan_layer_save_product (PlanLayerBuilder *b, PlanValueId saved, const gint64 *parts)
{
  PlanNode *node = &b->graph->nodes[b->graph->n_nodes - 1];
  gint64 cols = 0;
  if (!b->sizes->per_op || b->hides_products)
    return;
  if (node->bias != PLAN_N_TENSORS)
    cols = b->sizes->sac & PLAN_SAC_BIASED ? node->cols : 0;
  else
    for (; *parts > 0; parts++)
      cols += b->products++ % 2 == 0 ? *parts : 0;
  if (cols == 0)
    return;
  node->saved = cols == node->cols ? node->out : saved;
  node->saved_cols = cols;
  if (node->saved == saved)
    plan_layer_define (b->graph, saved, node->rows * cols, b->sizes->compute);
}

void
plan_layer_save_whole_product (PlanLayerBuilder *b)
{
  const gint64 cols = b->graph->nodes[b->graph->n_nodes - 1].cols;
  plan_layer_save_product (b, PLAN_NO_VALUE, (gint64[]){ cols, 0 });
}

gboolean
plan_node_is_product (const PlanNode *node)
{
  return node->kind == PLAN_NODE_LINEAR || node->kind == PLAN_NODE_EXPERT_LINEAR;
}

gboolean
plan_node_discards (const PlanNode *node)
{
  return node->module == PLAN_MODULE_LATENT_UP || node->module == PLAN_MODULE_NORM
         || node->module == PLAN_MODULE_EXPERT_ACT;
}

void
plan_layer_list_values (PlanLayerGraph *self)
{
  for (guint i = 0; i < self->n_nodes; i++)
    {
      PlanNode *node = &self->nodes[i];
      node->reads = plan_value_bit (node->in) | plan_value_bit (node->other)
                    | plan_value_bit (node->latent) | plan_value_bit (node->map);
      node->makes = plan_value_bit (node->out) | plan_value_bit (node->stats)
                    | plan_value_bit (node->col) | plan_value_bit (node->saved)
                    | plan_value_bit (node->places);
      node->needs = needs (node);
    }
}
