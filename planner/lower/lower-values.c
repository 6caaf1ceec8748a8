/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the buffers of what the nodes of layers make, and of its gradients. */
#include "config.h"

#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-step.h"

static gint32
activation (PlanLower *self, const char *name, gint64 count, guint64 elements, PlanDtype dtype)
{
  return plan_schedule_add_buffer (self->schedule, name, (guint32)count, elements, dtype,
                                   PLAN_CATEGORY_ACTIVATIONS);
}

/* Whether the backward pass of a norm adds its share of its input's gradient to a share that a
 * later node made. */
static gboolean
adds_share (const PlanLower *self, const PlanLayerGraph *net, guint node)
{
  const PlanNode *norm = &net->nodes[node];
  PlanValueSet behind = 0;
  for (guint i = node + 1; i < net->n_nodes; i++)
    behind |= net->nodes[i].reads;
  return self->stack->layer.kernels == PLAN_KERNELS_OWN && norm->kind == PLAN_NODE_NORM
         && (behind & plan_value_bit (norm->in));
}

/* Buffers for shares of a value's gradient: two if several nodes make shares and the sum has no
 * buffer of its own. */
static gint64
n_shares (const PlanLower *self, PlanValueId v)
{
  guint most = 0;
  if (v == PLAN_VALUE_X || v == PLAN_VALUE_HIDDEN2)
    return 1;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    {
      const PlanLayerGraph *net = self->graphs->of[kind];
      guint n = 0;
      for (guint i = 0; i < net->n_nodes; i++)
        {
          const PlanNode *node = &net->nodes[i];
          const gboolean leaves
              = node->out != node->in && !node->is_lazy && node->kind != PLAN_NODE_ADD
                && node->kind != PLAN_NODE_TRANSPOSE && node->kind != PLAN_NODE_DELTA_CONV
                && node->kind != PLAN_NODE_SSM_CONV && !adds_share (self, net, i);
          n += leaves && (node->in == v || node->latent == v);
        }
      most = MAX (most, n);
    }
  return most > 1 ? 2 : 1;
}

/* Declares a share of a value's gradient, which the backward pass of one node makes. */
static void
declare_gradient_of (PlanLower *self, PlanValueId v)
{
  const gboolean is_of_each = plan_lower_is_sequential (self)
                              && (v == PLAN_VALUE_EXPERT_UP || v == PLAN_VALUE_EXPERT_ACT);
  if (self->layer.grad[v] >= 0 || is_of_each)
    return;
  g_autofree char *name = g_strconcat ("d.", plan_value_name (v), NULL);
  const gboolean is_wide = v == PLAN_VALUE_PROBS || v == PLAN_VALUE_LEFT_PROBS
                           || v == PLAN_VALUE_ROW_PROBS || v == PLAN_VALUE_SENT_PROBS
                           || v == PLAN_VALUE_CAME_PROBS || v == PLAN_VALUE_JOINED_PROBS
                           || v == PLAN_VALUE_OWN_PROBS || v == PLAN_VALUE_DELTA_DECAY;
  self->layer.grad[v]
      = activation (self, name, n_shares (self, v), self->graphs->values[v].elements,
                    is_wide ? PLAN_DTYPE_FP32 : self->sizes->compute);
}

/* Declares one static buffer for all gathered sequences, and one for their gradients. */
static void
declare_gathered (PlanLower *self)
{
  const guint64 elements = (guint64)(self->sizes->rows * self->model->hidden);
  const gboolean is_used = self->stage.layers > 0 || self->stage.has_head;
  const gboolean exist = is_used && self->stack->layer.sequences == PLAN_SEQUENCES_STATIC
                         && self->sizes->split_rows < self->sizes->rows;
  self->work.gathered[FALSE] = self->work.gathered[TRUE] = -1;
  if (!exist)
    return;
  self->work.gathered[FALSE] = activation (self, "gathered", 1, elements, self->sizes->compute);
  if (!self->policy.is_eval)
    self->work.gathered[TRUE] = activation (self, "d.gathered", 1, elements, self->sizes->compute);
  self->layer.value[PLAN_VALUE_NORM1_FULL] = self->layer.value[PLAN_VALUE_NORM2_FULL]
      = self->work.gathered[FALSE];
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    for (guint i = 0; i < self->graphs->of[kind]->n_nodes; i++)
      if (self->graphs->of[kind]->nodes[i].kind == PLAN_NODE_REDUCE_TP)
        self->layer.grad[self->graphs->of[kind]->nodes[i].in] = self->work.gathered[TRUE];
}

/* Declares gradients of what the nodes of a layer read, and their quantised forms. */
static void
declare_gradients_of_nodes (PlanLower *self, const PlanLayerGraph *net)
{
  const PlanDtype grad
      = self->sizes->quantises ? plan_grad_dtype (self->plan) : self->sizes->compute;
  for (guint i = 0; i < net->n_nodes; i++)
    if (net->nodes[i].kind != PLAN_NODE_ADD && !adds_share (self, net, i))
      declare_gradient_of (self, net->nodes[i].in);
  for (guint i = 0; i < net->n_nodes; i++)
    {
      const PlanNode *node = &net->nodes[i];
      if (node->other != PLAN_NO_VALUE && (node->kind != PLAN_NODE_ADD || node->drops))
        declare_gradient_of (self, node->other);
      if (node->latent != PLAN_NO_VALUE)
        declare_gradient_of (self, node->latent);
    }
  for (guint i = 0; self->sizes->quantises && i < net->n_nodes; i++)
    {
      const PlanNode *node = &net->nodes[i];
      if (!plan_node_is_product (node) || self->layer.quantised_grad[node->out] >= 0)
        continue;
      g_autofree char *row = g_strconcat ("q.", plan_value_name (node->out), NULL);
      g_autofree char *col = g_strconcat (row, ".col", NULL);
      const guint64 elements = (guint64)(node->rows * node->cols);
      self->layer.quantised_grad[node->out] = activation (self, row, 1, elements, grad);
      if (self->sizes->has_columns)
        self->layer.quantised_grad_col[node->out] = activation (self, col, 1, elements, grad);
    }
}

/* Static memory of layers' CUDA graphs, as Transformer Engine's graph.py shares it between graphs
 * (_reuse_graph_input_output_buffers, at d0067d0d): what a graph reads for each layer and micro
 * batch under way, and the gradients that backward passes read once for all of a size. */
static void
declare_graph_memory (PlanLower *self)
{
  const PlanValue *x = &self->graphs->values[PLAN_VALUE_X];
  PlanValueSet outside = 0;
  self->layer.graph_in = -1;
  for (PlanValueId v = 0; v < PLAN_N_VALUES; v++)
    self->layer.graph_grad[v] = -1;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    if (self->graphs->layers[kind] > 0 && self->graphs->of[kind]->captured)
      outside |= self->graphs->of[kind]->outside;
  if (self->stage.layers == 0 || outside == 0)
    return;
  self->layer.graph_in = activation (self, "graph.in", self->rows * self->stage.layers, x->elements,
                                     self->sizes->compute);
  while (outside)
    {
      const PlanValueId v = plan_value_pop (&outside);
      const PlanValue *value = &self->graphs->values[v];
      g_autofree char *name = g_strconcat ("graph.d", plan_value_name (v), NULL);
      if (value->dtype <= PLAN_DTYPE_FP16) /* what has a gradient */
        self->layer.graph_grad[v] = plan_schedule_add_buffer (
            self->schedule, name, 1, value->elements, value->dtype, PLAN_CATEGORY_WORKSPACE);
    }
}

static PlanRef
graph_input (const PlanLayer *self)
{
  const PlanLower *lower = self->lower;
  return plan_lower_in_row (lower, plan_lower_unit_ref (lower->layer.graph_in, self->unit, 0));
}

/* Whether the input that a layer's graph reads is there beside the output of the layer before,
 * which is static, too: where graphs hold whole layers. Else the one takes the other's place. */
static gboolean
keeps_graph_input (const PlanLayer *self)
{
  return self->net->captured && (self->net->outside & plan_value_bit (PLAN_VALUE_OUT));
}

static void
copy_graph_input (PlanLayer *self, guint node)
{
  const PlanRef in = graph_input (self);
  plan_lower_alloc (self->lower, in);
  plan_lower_compute (self->lower, PLAN_OP_CAST,
                      PLAN_REFS (in, plan_layer_value (self, self->net->nodes[node].in)),
                      PLAN_DIMS ((gint64)self->net->values[PLAN_VALUE_X].elements));
  if (!keeps_graph_input (self))
    plan_lower_free (self->lower, in);
}

static void
copy_graph_gradients (PlanLayer *self)
{
  for (PlanValueSet left = self->net->outside; left;)
    {
      const PlanValueId v = plan_value_pop (&left);
      if (self->slot[v] >= 0 && self->lower->layer.graph_grad[v] >= 0)
        plan_lower_compute (self->lower, PLAN_OP_CAST,
                            PLAN_REFS (plan_lower_ref (self->lower->layer.graph_grad[v]),
                                       plan_layer_gradient (self, v)),
                            PLAN_DIMS ((gint64)self->net->values[v].elements));
    }
}

void
plan_layer_enter (PlanLayer *self, guint node, gboolean is_backward)
{
  if (!(self->net->captured >> node & 1))
    return;
  if (self->graph == PLAN_GRAPH_NONE)
    {
      if (is_backward)
        copy_graph_gradients (self);
      else
        copy_graph_input (self, node);
      self->graph = is_backward ? PLAN_GRAPH_BACKWARD : PLAN_GRAPH_FORWARD;
    }
  self->lower->now.graph = self->graph;
}

void
plan_layer_leave (PlanLayer *self, guint node, gboolean is_backward)
{
  if (!(self->net->captured >> node & 1))
    return;
  self->graph = self->lower->now.graph;
  self->lower->now.graph = PLAN_GRAPH_NONE;
  if (is_backward && keeps_graph_input (self)
      && (self->net->captured & (plan_node_bit (node) - 1)) == 0)
    plan_lower_free (self->lower, graph_input (self));
}

void
plan_lower_declare_values (PlanLower *self)
{
  const gint64 layers = self->stage.layers;
  /* The input of a prediction module's layer is not the output of the layer before it. */
  const gint64 between = layers + 1 + self->stage.modules;
  const gboolean has_any = !plan_stage_reads_logits (&self->stage);
  for (PlanValueId v = 0; v < PLAN_N_VALUES; v++)
    {
      const PlanValue *value = &self->graphs->values[v];
      self->layer.value[v] = self->layer.grad[v] = self->layer.grad_sum[v] = -1;
      self->layer.quantised_grad[v] = self->layer.quantised_grad_col[v] = -1;
      if (value->elements == 0 || v == PLAN_VALUE_OUT || plan_lower_is_static (self, v)
          || (layers == 0 && v != PLAN_VALUE_X) || !has_any
          || (plan_lower_is_sequential (self)
              && (v == PLAN_VALUE_EXPERT_UP || v == PLAN_VALUE_EXPERT_ACT)))
        continue;
      self->layer.value[v] = activation (self, plan_value_name (v),
                                         self->rows * (v == PLAN_VALUE_X ? between : layers),
                                         value->elements, value->dtype);
    }
  declare_gathered (self);
  declare_graph_memory (self);
  plan_lower_declare_sequential (self);
  for (guint kind = 0; layers > 0 && kind < PLAN_N_LAYER_KINDS; kind++)
    declare_gradients_of_nodes (self, self->graphs->of[kind]);
  self->layer.value[PLAN_VALUE_OUT] = self->layer.value[PLAN_VALUE_X];
  if (has_any)
    self->layer.grad_sum[PLAN_VALUE_X]
        = activation (self, "dx", self->policy.grad_rows * between,
                      self->graphs->values[PLAN_VALUE_X].elements, self->sizes->compute);
  if (layers > 0 && self->graphs->values[PLAN_VALUE_HIDDEN2].elements > 0)
    self->layer.grad_sum[PLAN_VALUE_HIDDEN2]
        = activation (self, "dhidden2", 1, self->graphs->values[PLAN_VALUE_HIDDEN2].elements,
                      self->sizes->compute);
}
