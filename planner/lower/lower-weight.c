/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's weights as its products read them: quantised or transposed copies, and when these are
 * made. */
#include "config.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"

PlanRef
plan_lower_product_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit,
                           gboolean is_backward, gint64 *out_layout)
{
  const gboolean columns = is_backward && self->sizes->has_columns;
  *out_layout = !is_backward || columns ? 1 : 0;
  if (!self->sizes->quantises)
    return plan_lower_weight (self, role, unit);
  if (self->copies_weights && self->stack->quantises_on_use)
    return plan_lower_ref (columns ? self->copy_col[role] : self->copy[role]);
  if (self->copies_weights)
    return plan_lower_unit_ref (columns ? self->copy_col[role] : self->copy[role], unit, 0);
  if (!columns)
    return plan_lower_weight (self, role, unit);
  if (self->gathers_columns)
    return plan_lower_column (self, role, unit);
  return self->keeps_transposes ? plan_lower_unit_ref (self->transposed[role], unit, 0)
                                : plan_lower_ref (self->transposed[role]);
}

void
plan_lower_transpose_weight (PlanLower *self, const PlanNode *node, PlanLowerUnit unit)
{
  gint64 layout;
  const PlanRef out = plan_lower_product_weight (self, node->weight, unit, TRUE, &layout);
  plan_lower_alloc (self, out);
  plan_lower_compute (self, PLAN_OP_TRANSPOSE,
                      PLAN_REFS (out, plan_lower_weight (self, node->weight, unit)),
                      PLAN_DIMS (node->cols, node->depth));
}

void
plan_lower_drop_transposes (PlanLower *self, const PlanLayerGraph *net)
{
  if (self->transposes_weights)
    for (guint i = 0; i < net->n_nodes; i++)
      if (net->nodes[i].kind == PLAN_NODE_LINEAR)
        plan_lower_free (self, plan_lower_ref (self->transposed[net->nodes[i].weight]));
}

void
plan_lower_quantise_weight (PlanLower *self, const PlanNode *node, PlanLowerUnit unit)
{
  const PlanRef row = plan_lower_ref (self->copy[node->weight]);
  const PlanRef col = plan_lower_ref (self->copy_col[node->weight]);
  if (!self->copies_weights || !self->stack->quantises_on_use)
    return;
  plan_lower_alloc (self, row);
  if (col.array >= 0)
    plan_lower_alloc (self, col);
  plan_lower_quantise (self, node->weight, PLAN_QUANTIZER_WEIGHT, unit,
                       PLAN_REFS (row, col, plan_lower_weight (self, node->weight, unit)),
                       node->cols, node->depth);
}

void
plan_lower_drop_quantised_weight (PlanLower *self, const PlanNode *node)
{
  if (!self->copies_weights || !self->stack->quantises_on_use)
    return;
  plan_lower_free (self, plan_lower_ref (self->copy[node->weight]));
  if (self->copy_col[node->weight] >= 0)
    plan_lower_free (self, plan_lower_ref (self->copy_col[node->weight]));
}
