/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's experts one after the other, each an MLP by itself (Megatron-LM's experts.py,
 * SequentialMLP, at d98e8a64). In the forward pass each op is done for all experts before the next
 * op. The backward pass goes from the last expert to the first, each through both products and the
 * activation between them, and frees what the expert kept as it goes. Experts read views of one
 * buffer of rows; their outputs, and the gradients of their inputs, are joined by a copy. */
#include "config.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-step.h"

#define REF(array) plan_lower_ref (lower->array)

gboolean
plan_lower_is_sequential (const PlanLower *self)
{
  return self->plan->value[PLAN_MOE_GROUPED_GEMM] == PLAN_MOE_GROUPED_GEMM_OFF
         && self->sizes->experts > 1;
}

/* The first row of an expert, of rows that are shared out as evenly as can be. */
static gint64
first_row (const PlanLower *self, gint64 expert)
{
  return self->sizes->expert_rows * expert / self->sizes->experts;
}

static gint64
rows_of (const PlanLower *self, gint64 expert)
{
  return first_row (self, expert + 1) - first_row (self, expert);
}

/* Declares an array `cols` wide for each expert, and returns the first of these arrays. */
static gint32
declare_each (PlanLower *self, const char *name, gint64 count, gint64 cols)
{
  gint32 first = -1;
  for (gint64 e = 0; e < self->sizes->experts; e++)
    {
      g_autofree char *of = g_strdup_printf ("%s.%d", name, (int)e);
      const gint32 array = plan_schedule_add_buffer (
          self->schedule, of, (guint32)count, (guint64)(rows_of (self, e) * cols),
          self->sizes->compute, PLAN_CATEGORY_ACTIVATIONS);
      first = e == 0 ? array : first;
    }
  return first;
}

static gint32
declare_one (PlanLower *self, const char *name, gint64 rows, gint64 cols)
{
  return plan_schedule_add_buffer (self->schedule, name, 1, (guint64)(rows * cols),
                                   self->sizes->compute, PLAN_CATEGORY_ACTIVATIONS);
}

void
plan_lower_declare_sequential (PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const gint64 ffn = sizes->expert_ffn, up = self->model->gated ? 2 * ffn : ffn;
  PlanLowerSequential *each = &self->experts.sequential;
  *each = (PlanLowerSequential){ -1, -1, -1, -1, -1, -1 };
  if (!plan_lower_is_sequential (self) || self->stage.layers == 0)
    return;
  const gint64 most = (sizes->expert_rows + sizes->experts - 1) / sizes->experts;
  each->up = declare_each (self, "expert.gate_up", self->rows * self->stage.layers, up);
  each->act = declare_each (self, "expert.act", self->rows * self->stage.layers, ffn);
  each->out = declare_one (self, "expert.outs", sizes->expert_rows,
                           plan_model_expert_width (self->model));
  each->dup = declare_one (self, "d.expert.gate_up", most, up);
  each->dact = declare_one (self, "d.expert.act", most, ffn);
  each->din = declare_each (self, "d.rows.of", 1, plan_model_expert_width (self->model));
}

/* An expert's own buffer of EXPERT_UP or EXPERT_ACT, the activation's input and output; none for
 * any other value. */
static PlanRef
kept_by (const PlanLayer *self, PlanValueId id, gint64 expert)
{
  const PlanLower *lower = self->lower;
  const gint32 first = id == PLAN_VALUE_EXPERT_UP    ? lower->experts.sequential.up
                       : id == PLAN_VALUE_EXPERT_ACT ? lower->experts.sequential.act
                                                     : -1;
  return first < 0 ? PLAN_REF_NONE
                   : plan_lower_in_row (
                       lower, plan_lower_unit_ref (first + (gint32)expert, self->unit, 0));
}

gboolean
plan_layer_take_each (PlanLayer *self, PlanValueId id, gboolean gives)
{
  PlanLower *lower = self->lower;
  if (kept_by (self, id, 0).array < 0)
    return FALSE;
  for (gint64 e = 0; e < lower->sizes->experts; e++)
    if (gives)
      plan_lower_free (lower, kept_by (self, id, e));
    else
      plan_lower_alloc (lower, kept_by (self, id, e));
  return TRUE;
}

static PlanRef
weight_of (const PlanLayer *self, const PlanNode *node, gint64 expert, gboolean is_backward,
           gint64 *out_layout)
{
  return plan_lower_at (
      plan_lower_product_weight (self->lower, node->weight, self->unit, is_backward, out_layout),
      (guint64)(expert * node->cols * node->depth));
}

static PlanRef
rows_at (const PlanLower *self, PlanRef all, gint64 expert, gint64 cols)
{
  return plan_lower_at (all, (guint64)(first_row (self, expert) * cols));
}

static void
join (PlanLower *lower, PlanRef out, PlanRef in, gint64 held)
{
  const gint64 count = lower->sizes->expert_rows * plan_model_expert_width (lower->model);
  plan_lower_compute (lower, PLAN_OP_JOIN_ROWS, PLAN_REFS (out, in),
                      PLAN_DIMS (count, lower->sizes->experts, held));
}

static void
activate (PlanLayer *self, const PlanNode *node, gint64 expert)
{
  PlanLower *lower = self->lower;
  const PlanModel *m = lower->model;
  plan_lower_compute (lower, PLAN_OP_EXPERT_ACTIVATE,
                      PLAN_REFS (kept_by (self, node->out, expert),
                                 kept_by (self, node->in, expert),
                                 rows_at (lower, plan_layer_value (self, node->other), expert, 1)),
                      PLAN_DIMS (rows_of (lower, expert), node->cols, m->activation, m->gated));
}

static void
multiply (PlanLayer *self, const PlanNode *node, gint64 expert)
{
  PlanLower *lower = self->lower;
  const gboolean is_up = node->weight == PLAN_TENSOR_EXPERT_GATE_UP;
  gint64 layout;
  const PlanRef weight = weight_of (self, node, expert, FALSE, &layout);
  const PlanRef in = is_up ? rows_at (lower, plan_layer_value (self, node->in), expert, node->depth)
                           : kept_by (self, node->in, expert);
  const PlanRef out = is_up ? kept_by (self, node->out, expert)
                            : rows_at (lower, REF (experts.sequential.out), expert, node->cols);
  plan_lower_compute (lower, PLAN_OP_GEMM, PLAN_REFS (out, in, weight, PLAN_REF_NONE),
                      PLAN_DIMS (rows_of (lower, expert), node->cols, node->depth, layout));
}

void
plan_layer_sequential (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const gboolean is_last = node->weight == PLAN_TENSOR_EXPERT_DOWN;
  if (is_last)
    plan_lower_alloc (lower, REF (experts.sequential.out));
  for (gint64 e = 0; e < lower->sizes->experts; e++)
    if (node->kind == PLAN_NODE_EXPERT_ACTIVATE)
      activate (self, node, e);
    else
      multiply (self, node, e);
  if (!is_last)
    return;
  join (lower, plan_layer_value (self, node->out), REF (experts.sequential.out),
        node->rows * node->cols);
  plan_lower_free (lower, REF (experts.sequential.out));
}

static const PlanNode *
node_before (const PlanNode *node, PlanNodeKind kind)
{
  do
    node--;
  while (node->kind != kind);
  return node;
}

/* One expert's backward pass, from the gradient of its output to `din`, that of its input. */
static void
expert_backward (PlanLayer *self, const PlanNode *down, gint64 expert, PlanRef dout, PlanRef din)
{
  PlanLower *lower = self->lower;
  const PlanModel *m = lower->model;
  const PlanNode *act = node_before (down, PLAN_NODE_EXPERT_ACTIVATE);
  const PlanNode *up = node_before (act, PLAN_NODE_EXPERT_LINEAR);
  const gint64 rows = rows_of (lower, expert);
  const PlanRef kept_act = kept_by (self, act->out, expert),
                kept_up = kept_by (self, act->in, expert);
  const PlanRef in = rows_at (lower, plan_layer_value (self, up->kept), expert, up->depth);
  const PlanRef probs = rows_at (lower, plan_layer_value (self, act->other), expert, 1);
  const PlanRef dprobs = rows_at (lower, REF (layer.grad[PLAN_VALUE_ROW_PROBS]), expert, 1);
  gint64 layout;
  PlanRef weight = weight_of (self, down, expert, TRUE, &layout);
  plan_lower_alloc (lower, REF (experts.sequential.dact));
  plan_lower_compute (lower, PLAN_OP_GEMM,
                      PLAN_REFS (REF (experts.sequential.dact), dout, weight, PLAN_REF_NONE),
                      PLAN_DIMS (rows, down->depth, down->cols, layout));
  plan_lower_one_expert_weight_gradient (lower, down, self->unit, expert, rows,
                                         PLAN_REFS (dout, kept_act));
  plan_lower_free (lower, kept_act);
  if (expert == 0)
    plan_layer_drop_gradient (self, down->out);
  plan_lower_alloc (lower, REF (experts.sequential.dup));
  plan_lower_compute (lower, PLAN_OP_EXPERT_ACTIVATE_BWD,
                      PLAN_REFS (REF (experts.sequential.dup), dprobs,
                                 REF (experts.sequential.dact), kept_up, probs),
                      PLAN_DIMS (rows, act->cols, m->activation, m->gated));
  plan_lower_free (lower, REF (experts.sequential.dact));
  plan_lower_free (lower, kept_up);
  weight = weight_of (self, up, expert, TRUE, &layout);
  plan_lower_alloc (lower, din);
  plan_lower_compute (lower, PLAN_OP_GEMM,
                      PLAN_REFS (din, REF (experts.sequential.dup), weight, PLAN_REF_NONE),
                      PLAN_DIMS (rows, up->depth, up->cols, layout));
  plan_lower_one_expert_weight_gradient (lower, up, self->unit, expert, rows,
                                         PLAN_REFS (REF (experts.sequential.dup), in));
  plan_lower_free (lower, REF (experts.sequential.dup));
}

/* Frees the rows that all experts read, unless a node before the experts needs them. */
static void
give_input (PlanLayer *self, const PlanNode *up)
{
  PlanValueSet before = self->held;
  for (const PlanNode *node = self->net->nodes; node < up; node++)
    before |= node->needs;
  plan_layer_give (self, plan_value_bit (up->kept) & ~before);
}

void
plan_layer_sequential_backward (PlanLayer *self, const PlanNode *down)
{
  PlanLower *lower = self->lower;
  const PlanNode *act = node_before (down, PLAN_NODE_EXPERT_ACTIVATE);
  const PlanNode *up = node_before (act, PLAN_NODE_EXPERT_LINEAR);
  const PlanRef dout = plan_layer_gradient (self, down->out);
  const gint64 experts = lower->sizes->experts;
  plan_lower_alloc (lower, REF (layer.grad[PLAN_VALUE_ROW_PROBS]));
  for (gint64 e = experts; e-- > 0;)
    expert_backward (self, down, e, rows_at (lower, dout, e, down->cols),
                     plan_lower_ref (lower->experts.sequential.din + (gint32)e));
  self->live &= ~(plan_value_bit (act->in) | plan_value_bit (act->out));
  give_input (self, up);
  self->done_backward |= plan_node_bit ((guint)(act - self->net->nodes))
                         | plan_node_bit ((guint)(up - self->net->nodes));
  const PlanRef din = plan_layer_take_share (self, up->in);
  join (lower, din, REF (experts.sequential.din), rows_of (lower, 0) * up->depth);
  for (gint64 e = 0; e < experts; e++)
    plan_lower_free (lower, plan_lower_ref (lower->experts.sequential.din + (gint32)e));
  plan_layer_add_share (self, up->in, din);
}
