/* SPDX-License-Identifier: Apache-2.0 */
/* One layer's graph as ops. What the forward pass does not keep, the backward pass computes again
 * when it first needs it: the nodes that lead to it from what was kept, in their order. */
#include "config.h"

#include "planner/lower-emit.h"
#include "planner/lower-layer.h"

#include <string.h>

#define ONE(array) plan_lower_ref (self->array)

/* A layer while it is lowered. */
typedef struct
{
  PlanLower *lower;
  const PlanNetwork *net;
  PlanLowerUnit unit;
  PlanValueSet live;
  gint8 slot[PLAN_N_VALUES]; /* gradient of each value: index below; -1 none yet */
  struct
  {
    PlanRef ref;
    guint holders;
  } gradients[2 * PLAN_N_VALUES];
  guint n_gradients;
  gint64 dims[PLAN_MAX_DIMS];
  gboolean is_replay;     /* products whose parts were saved make only the rest */
  const PlanNode *beside; /* whose gather goes on beside the product that follows */
  guint32 is_past;        /* nodes whose backward pass was made beside a product: bits */
} Layer;

gboolean
plan_lower_is_static (const PlanLower *self, PlanValueId id)
{
  return self->stack->static_gathers
         && (id == PLAN_VALUE_NORM1_FULL || id == PLAN_VALUE_NORM2_FULL);
}

static PlanRef
value_ref (const Layer *self, PlanValueId id)
{
  if (id == PLAN_NO_VALUE)
    return PLAN_REF_NONE;
  if (plan_lower_is_static (self->lower, id))
    return plan_lower_ref (self->lower->value[id]);
  return plan_lower_unit_ref (self->lower->value[id], self->unit, id == PLAN_VALUE_OUT ? 1 : 0);
}

/* Which values the forward pass leaves behind: those that are read as they are, and those from
 * which others are made again. */
static PlanValueSet
find_kept (const PlanNetwork *net, PlanLowerKeep keep)
{
  PlanValueSet made_again = 0, cheap = 0, needed = 0, kept = plan_value_bit (PLAN_VALUE_OUT);
  for (guint i = 0; i < net->n_nodes; i++)
    {
      const PlanNode *node = &net->nodes[i];
      needed |= node->needs;
      cheap |= node->is_cheap ? node->makes : 0;
      made_again |= node->is_cheap || (keep.again >> i & 1) ? node->makes : 0;
    }
  for (guint i = 0; i < net->n_nodes; i++)
    {
      const PlanNode *node = &net->nodes[i];
      const gboolean is_again = keep.again >> i & 1;
      const PlanValueSet main = plan_value_bit (node->out) | plan_value_bit (node->col);
      if (is_again || (node->is_cheap && (main & needed)))
        kept |= node->reads & ~made_again;
      if (!is_again)
        kept |= node->needs & ~cheap & ~(net->per_op ? made_again : 0);
      kept |= plan_value_bit (node->saved);
    }
  const PlanValueSet input = plan_value_bit (PLAN_VALUE_X);
  return keep.drops_input ? kept & ~input : kept | input;
}

PlanValueSet
plan_lower_kept (const PlanLower *self, PlanLowerKeep keep)
{
  return find_kept (&self->net, keep);
}

static gboolean
is_live (const Layer *self, PlanValueId id)
{
  return (self->live & plan_value_bit (id)) != 0;
}

static void
take (Layer *self, PlanValueId id)
{
  if (id == PLAN_NO_VALUE || is_live (self, id))
    return;
  plan_lower_alloc (self->lower, value_ref (self, id));
  self->live |= plan_value_bit (id);
}

static void
give (Layer *self, PlanValueSet values)
{
  for (values &= self->live; values;)
    {
      const PlanValueId id = plan_value_pop (&values);
      plan_lower_free (self->lower, value_ref (self, id));
      self->live &= ~plan_value_bit (id);
    }
}

/* The weight as a product reads it: forwards, or over its other dimension. */
static PlanRef
product_weight (const Layer *self, PlanTensorRole role, gboolean is_backward, gint64 *out_layout)
{
  const PlanLower *lower = self->lower;
  const gboolean columns = is_backward && self->net->has_columns;
  *out_layout = !is_backward || columns ? 1 : 0;
  if (!self->net->quantises)
    return plan_lower_weight (lower, role, self->unit);
  if (lower->copies_weights && lower->stack->quantises_on_use)
    return plan_lower_ref (columns ? lower->copy_col[role] : lower->copy[role]);
  if (lower->copies_weights)
    return plan_lower_unit_ref (columns ? lower->copy_col[role] : lower->copy[role], self->unit, 0);
  if (!columns)
    return plan_lower_weight (lower, role, self->unit);
  if (lower->gathers_columns)
    return plan_lower_column (lower, role, self->unit);
  return lower->keeps_transposes ? plan_lower_unit_ref (lower->transposed[role], self->unit, 0)
                                 : plan_lower_ref (lower->transposed[role]);
}

static void
transpose_weight (Layer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  gint64 layout;
  const PlanRef out = product_weight (self, node->weight, TRUE, &layout);
  plan_lower_alloc (lower, out);
  plan_lower_compute (lower, PLAN_OP_TRANSPOSE,
                      PLAN_REFS (out, plan_lower_weight (lower, node->weight, self->unit)),
                      PLAN_DIMS (node->cols, node->depth));
}

/* Transposes of the unit's weights: made by one pass over it, dropped with the weights. */
static void
drop_transposes (Layer *self)
{
  if (self->lower->transposes_weights)
    for (guint i = 0; i < self->net->n_nodes; i++)
      if (self->net->nodes[i].kind == PLAN_NODE_LINEAR)
        plan_lower_free (self->lower,
                         plan_lower_ref (self->lower->transposed[self->net->nodes[i].weight]));
}

/* Where quantised weights live for one product only, both forms are made for it. */
static void
quantise_weight (Layer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef row = plan_lower_ref (lower->copy[node->weight]);
  const PlanRef col = plan_lower_ref (lower->copy_col[node->weight]);
  if (!lower->copies_weights || !lower->stack->quantises_on_use)
    return;
  plan_lower_alloc (lower, row);
  if (col.array >= 0)
    plan_lower_alloc (lower, col);
  plan_lower_quantise (lower, node->weight, PLAN_SITE_WEIGHT, self->unit,
                       PLAN_REFS (row, col, plan_lower_weight (lower, node->weight, self->unit)),
                       node->cols, node->depth);
}

static void
drop_quantised_weight (Layer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  if (!lower->copies_weights || !lower->stack->quantises_on_use)
    return;
  plan_lower_free (lower, plan_lower_ref (lower->copy[node->weight]));
  if (lower->copy_col[node->weight] >= 0)
    plan_lower_free (lower, plan_lower_ref (lower->copy_col[node->weight]));
}

static void
linear_forward (Layer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  gint64 layout;
  const gint64 cols = node->cols - (self->is_replay ? node->saved_cols : 0);
  const PlanRef weight = product_weight (self, node->weight, FALSE, &layout);
  if (cols == 0)
    return;
  quantise_weight (self, node);
  plan_lower_compute (lower, PLAN_OP_GEMM,
                      PLAN_REFS (value_ref (self, node->out), value_ref (self, node->in), weight,
                                 plan_lower_weight (lower, node->bias, self->unit)),
                      PLAN_DIMS (node->rows, cols, node->depth, layout));
  drop_quantised_weight (self, node);
}

static void
rope (Layer *self, PlanRef qkv, gint64 inverse)
{
  const PlanNetwork *net = self->net;
  const gint64 *value = self->lower->plan->value;
  plan_lower_compute (self->lower, PLAN_OP_ROPE, PLAN_REFS (qkv),
                      PLAN_DIMS (net->rows, value[PLAN_SEQ] / value[PLAN_CP], net->heads,
                                 net->kv_heads, net->head_dim, inverse));
}

static const gint64 *
head_dims (Layer *self)
{
  const PlanNetwork *net = self->net;
  const gint64 dims[] = { net->rows, net->heads, net->kv_heads, net->head_dim };
  memcpy (self->dims, dims, sizeof dims);
  return self->dims;
}

static gboolean
is_swiglu (const PlanModel *model)
{
  return model->gated && model->activation == PLAN_ACTIVATION_SILU;
}

static void
activate (Layer *self, const PlanNode *node)
{
  const PlanModel *m = self->lower->model;
  const PlanRef out = value_ref (self, node->out), in = value_ref (self, node->in);
  if (node->stats != PLAN_NO_VALUE) /* the gate by itself, in a kernel of its own */
    plan_lower_compute (self->lower, PLAN_OP_CAST, PLAN_REFS (value_ref (self, node->stats), in),
                        PLAN_DIMS (node->rows * node->cols));
  if (is_swiglu (m))
    plan_lower_compute (self->lower, PLAN_OP_SWIGLU, PLAN_REFS (out, in),
                        PLAN_DIMS (node->rows, node->cols));
  else
    plan_lower_compute (self->lower, PLAN_OP_ACTIVATE, PLAN_REFS (out, in),
                        PLAN_DIMS (node->rows, node->cols, m->activation, m->gated));
}

static void
add_forward (Layer *self, const PlanNode *node)
{
  const PlanRef out = value_ref (self, node->out), in = value_ref (self, node->in);
  const PlanRef branch = value_ref (self, node->other), mask = value_ref (self, node->stats);
  const gint64 *dims = PLAN_DIMS (node->rows * node->cols);
  if (node->stats == PLAN_NO_VALUE)
    plan_lower_compute (self->lower, PLAN_OP_ADD, PLAN_REFS (out, in, branch), dims);
  else
    plan_lower_compute (self->lower, PLAN_OP_DROPOUT_ADD, PLAN_REFS (out, mask, in, branch), dims);
}

static void
gather_sequence (Layer *self, const PlanNode *node)
{
  plan_lower_begin_exchange (self->lower, PLAN_OP_ALL_GATHER,
                             PLAN_REFS (value_ref (self, node->out), value_ref (self, node->in)),
                             node->cols);
  if (node != self->beside)
    plan_lower_await_exchange (self->lower);
}

static void
node_forward (Layer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef in = value_ref (self, node->in), out = value_ref (self, node->out);
  take (self, node->out);
  take (self, node->col);
  take (self, node->stats);
  take (self, node->saved);
  switch (node->kind)
    {
    case PLAN_NODE_NORM:
      plan_lower_norm (lower, out, value_ref (self, node->stats), in, node->weight, node->bias,
                       node->feeds, self->unit, node->rows);
      return;
    case PLAN_NODE_QUANTIZE:
      plan_lower_quantise (lower, node->feeds, PLAN_SITE_INPUT, self->unit,
                           PLAN_REFS (out, value_ref (self, node->col), in), node->rows,
                           node->cols);
      return;
    case PLAN_NODE_TRANSPOSE:
      plan_lower_compute (lower, PLAN_OP_TRANSPOSE, PLAN_REFS (out, in),
                          PLAN_DIMS (node->rows, node->cols));
      return;
    case PLAN_NODE_GATHER_SEQ:
      gather_sequence (self, node);
      return;
    case PLAN_NODE_COPY_TP:
      return;
    case PLAN_NODE_LINEAR:
      linear_forward (self, node);
      return;
    case PLAN_NODE_HEAD_NORM:
      plan_lower_compute (
          lower, PLAN_OP_HEAD_NORM,
          PLAN_REFS (out, value_ref (self, node->stats), in,
                     plan_lower_weight (lower, PLAN_TENSOR_Q_NORM, self->unit),
                     plan_lower_weight (lower, PLAN_TENSOR_K_NORM, self->unit)),
          PLAN_DIMS (node->rows, self->net->heads, self->net->kv_heads, self->net->head_dim));
      return;
    case PLAN_NODE_ROPE:
      rope (self, in, 0);
      return;
    case PLAN_NODE_REPEAT:
      plan_lower_compute (lower, PLAN_OP_REPEAT_HEADS, PLAN_REFS (out, in), head_dims (self));
      return;
    case PLAN_NODE_ATTENTION:
      plan_lower_attention (lower, out, value_ref (self, node->stats), in);
      return;
    case PLAN_NODE_REDUCE_TP:
      if (node->in == node->out)
        plan_lower_exchange (lower, PLAN_OP_ALL_REDUCE, PLAN_REFS (in), node->cols);
      else
        plan_lower_exchange (lower, PLAN_OP_REDUCE_SCATTER, PLAN_REFS (out, in), node->cols);
      return;
    case PLAN_NODE_ACTIVATE:
      activate (self, node);
      return;
    case PLAN_NODE_ADD:
      add_forward (self, node);
      return;
    }
}

void
plan_lower_layer_forward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep)
{
  Layer layer = { .lower = self, .net = &self->net, .unit = unit };
  const PlanNetwork *net = &self->net;
  const PlanValueSet kept = find_kept (net, keep);
  PlanValueSet wanted[PLAN_MAX_NODES]; /* behind each node */
  PlanValueSet behind = 0;
  for (guint i = net->n_nodes; i-- > 0;)
    {
      wanted[i] = kept | behind;
      behind |= net->nodes[i].is_lazy ? 0 : net->nodes[i].reads;
    }
  layer.live = plan_value_bit (PLAN_VALUE_X);
  for (guint i = 0; i < net->n_nodes; i++)
    {
      const PlanNode *node = &net->nodes[i];
      if (node->is_lazy)
        continue;
      if (node->kind == PLAN_NODE_LINEAR && self->transposes_weights
          && self->stack->transposes_forward)
        transpose_weight (&layer, node);
      node_forward (&layer, node);
      give (&layer, ~wanted[i]);
    }
  if (self->stack->transposes_forward)
    drop_transposes (&layer);
}

/* The nodes that must run so that these values are there: bits. */
static guint32
nodes_towards (const Layer *self, PlanValueSet values)
{
  guint32 nodes = 0;
  values &= ~self->live;
  for (guint i = self->net->n_nodes; i-- > 0 && values;)
    if (self->net->nodes[i].makes & values)
      {
        nodes |= 1u << i;
        values |= self->net->nodes[i].reads & ~self->live;
      }
  return nodes;
}

/* `needed`: what the backward pass of this node and of those before it reads. */
static void
run_again (Layer *self, guint32 nodes, PlanValueSet needed)
{
  const PlanNetwork *net = self->net;
  self->is_replay = TRUE;
  while (nodes)
    {
      PlanValueSet wanted = needed | plan_value_bit (PLAN_VALUE_X);
      node_forward (self, &net->nodes[__builtin_ctz (nodes)]);
      nodes &= nodes - 1;
      for (guint32 left = nodes; left; left &= left - 1)
        wanted |= net->nodes[__builtin_ctz (left)].reads;
      give (self, ~(wanted | (self->beside ? self->beside->reads : 0)));
    }
}

/* The last of the nodes that run again for a product, when it gathers what only the gradient of the
 * weights reads; NULL: it does something else. */
static const PlanNode *
gathers_beside (const Layer *self, const PlanNode *linear, guint32 again)
{
  if (!self->lower->stack->exchanges_beside || linear->kind != PLAN_NODE_LINEAR || !again)
    return NULL;
  const PlanNode *last = &self->net->nodes[31 - __builtin_clz (again)];
  return last->kind == PLAN_NODE_GATHER_SEQ && last->out == linear->kept ? last : NULL;
}

/* What checkpointing runs again around node `last`: the whole of its part, wanted or not. */
static guint32
checkpointed (const PlanNetwork *net, guint32 again, guint last)
{
  guint32 nodes = 0;
  if (again >> last & 1 && (last + 1 == net->n_nodes || !(again >> (last + 1) & 1)))
    for (guint i = last + 1; i-- > 0 && again >> i & 1;)
      nodes |= net->nodes[i].is_lazy ? 0 : 1u << i;
  return nodes;
}

/* Gradients. Passing one on makes another holder; the last one gives it back. */

static PlanRef
gradient (const Layer *self, PlanValueId id)
{
  g_assert (self->slot[id] >= 0);
  return self->gradients[self->slot[id]].ref;
}

static void
drop_gradient (Layer *self, PlanValueId id)
{
  const gint8 slot = self->slot[id];
  if (slot >= 0 && --self->gradients[slot].holders == 0)
    plan_lower_free (self->lower, self->gradients[slot].ref);
  self->slot[id] = -1;
}

static void
hold_gradient (Layer *self, PlanValueId id, PlanRef ref)
{
  self->slot[id] = (gint8)self->n_gradients;
  self->gradients[self->n_gradients].ref = ref;
  self->gradients[self->n_gradients++].holders = 1;
}

/* Where the shares of a gradient are added up; that of x is the gradient of the layer before's
 * output. */
static PlanRef
gradient_sum (const Layer *self, PlanValueId id)
{
  const gint32 array = self->lower->grad_sum[id];
  return id == PLAN_VALUE_X ? plan_lower_unit_ref (array, self->unit, 0) : plan_lower_ref (array);
}

/* Another share of a value's gradient, held in `share`: the first stays, later ones are added. */
static void
add_share (Layer *self, PlanValueId id, PlanRef share)
{
  PlanLower *lower = self->lower;
  const gint64 elements = (gint64)self->net->values[id].elements;
  if (self->slot[id] < 0)
    {
      hold_gradient (self, id, share);
      return;
    }
  const PlanRef total = gradient_sum (self, id);
  const PlanRef before = gradient (self, id);
  if (before.array == total.array)
    plan_lower_compute (lower, PLAN_OP_ACCUMULATE, PLAN_REFS (total, share), PLAN_DIMS (elements));
  else
    {
      plan_lower_alloc (lower, total);
      plan_lower_compute (lower, PLAN_OP_ADD, PLAN_REFS (total, before, share),
                          PLAN_DIMS (elements));
    }
  plan_lower_free (lower, share);
  if (before.array != total.array)
    {
      drop_gradient (self, id);
      hold_gradient (self, id, total);
    }
}

/* The gradient of `from` is that of `to` as well. */
static void
pass_gradient (Layer *self, PlanValueId from, PlanValueId to)
{
  const gint8 slot = self->slot[from];
  if (self->slot[to] >= 0)
    {
      /* A second share that others hold too: added, not given back. */
      const PlanRef total = gradient_sum (self, to);
      plan_lower_alloc (self->lower, total);
      plan_lower_compute (self->lower, PLAN_OP_ADD,
                          PLAN_REFS (total, gradient (self, to), gradient (self, from)),
                          PLAN_DIMS ((gint64)self->net->values[to].elements));
      drop_gradient (self, to);
      hold_gradient (self, to, total);
      return;
    }
  self->slot[to] = slot;
  self->gradients[slot].holders++;
}

/* A new buffer for a share of the gradient of `id`. */
static PlanRef
take_share (Layer *self, PlanValueId id)
{
  const PlanRef share = plan_lower_ref (self->lower->grad[id]);
  plan_lower_alloc (self->lower, share);
  return share;
}

/* The gradient of a product's output as its two products read it. */
static void
quantise_gradient (Layer *self, const PlanNode *node, PlanRef *out_row, PlanRef *out_col)
{
  PlanLower *lower = self->lower;
  const PlanRef dout = gradient (self, node->out);
  *out_row = *out_col = dout;
  if (!self->net->quantises)
    return;
  const PlanRef col = plan_lower_ref (lower->quantised_grad_col[node->out]);
  *out_row = plan_lower_ref (lower->quantised_grad[node->out]);
  *out_col = self->net->has_columns ? col : *out_row;
  plan_lower_alloc (lower, *out_row);
  if (self->net->has_columns)
    plan_lower_alloc (lower, col);
  plan_lower_quantise (lower, node->weight, PLAN_SITE_GRADIENT, self->unit,
                       PLAN_REFS (*out_row, self->net->has_columns ? col : PLAN_REF_NONE, dout),
                       node->rows, node->cols);
}

/* Between a split value and a whole one, the other way round: begun. */
static PlanRef
begin_exchange_backward (Layer *self, const PlanNode *node, PlanRef dout)
{
  const gboolean gathers = node->kind == PLAN_NODE_REDUCE_TP;
  const PlanRef din = take_share (self, node->in);
  plan_lower_begin_exchange (self->lower, gathers ? PLAN_OP_ALL_GATHER : PLAN_OP_REDUCE_SCATTER,
                             PLAN_REFS (din, dout), node->cols);
  return din;
}

static void
begin_sum_backward (Layer *self, PlanRef din)
{
  plan_lower_begin_exchange (self->lower, PLAN_OP_ALL_REDUCE, PLAN_REFS (din),
                             (gint64)self->net->values[PLAN_VALUE_X].elements);
}

/* What makes the input of a product whole within the tensor-parallel group, where its backward pass
 * can go on beside the gradient of the weights; NULL: nothing. */
static const PlanNode *
maker_beside (const Layer *self, const PlanNode *linear)
{
  if (!self->lower->stack->exchanges_beside || self->slot[linear->in] >= 0)
    return NULL;
  for (const PlanNode *node = self->net->nodes; node < linear; node++)
    if ((node->kind == PLAN_NODE_GATHER_SEQ || node->kind == PLAN_NODE_COPY_TP)
        && node->out == linear->in && !node->is_lazy)
      return node;
  return NULL;
}

static void
end_linear_backward (Layer *self, const PlanNode *node, const PlanNode *maker, PlanRef din,
                     PlanRef whole)
{
  if (maker)
    {
      plan_lower_await_exchange (self->lower);
      self->is_past |= 1u << (maker - self->net->nodes);
    }
  if (whole.array >= 0)
    plan_lower_free (self->lower, whole);
  add_share (self, whole.array >= 0 ? maker->in : node->in, din);
}

static void
linear_backward (Layer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanNode *maker = maker_beside (self, node);
  PlanRef row, col, whole = PLAN_REF_NONE;
  gint64 layout;
  quantise_gradient (self, node, &row, &col);
  const PlanRef weight = product_weight (self, node->weight, TRUE, &layout);
  PlanRef din = take_share (self, node->in);
  quantise_weight (self, node);
  plan_lower_compute (lower, PLAN_OP_GEMM, PLAN_REFS (din, row, weight, PLAN_REF_NONE),
                      PLAN_DIMS (node->rows, node->depth, node->cols, layout));
  drop_quantised_weight (self, node);
  if (self->net->has_columns)
    plan_lower_free (lower, row);
  if (self->beside)
    plan_lower_await_exchange (lower);
  self->beside = NULL;
  if (maker && maker->kind == PLAN_NODE_COPY_TP)
    begin_sum_backward (self, din);
  else if (maker)
    {
      whole = din;
      din = begin_exchange_backward (self, maker, whole);
    }
  plan_lower_weight_gradient (lower, node->weight, self->unit, col, value_ref (self, node->kept),
                              node->rows, node->cols, node->depth, self->net->has_columns ? 1 : 2);
  if (self->net->quantises)
    plan_lower_free (lower, col);
  if (node->bias != PLAN_N_TENSORS)
    {
      plan_lower_compute (lower, PLAN_OP_BIAS_BWD,
                          PLAN_REFS (plan_lower_raw_gradient (lower, node->bias, self->unit),
                                     gradient (self, node->out)),
                          PLAN_DIMS (node->rows, node->cols));
      plan_lower_put_gradient (lower, node->bias, self->unit, FALSE);
    }
  drop_gradient (self, node->out);
  end_linear_backward (self, node, maker, din, whole);
}

static void
attention_backward (Layer *self, const PlanNode *node)
{
  const PlanRef din = plan_lower_ref (self->lower->grad[node->in]);
  plan_lower_attention_backward (self->lower, din, gradient (self, node->out),
                                 value_ref (self, node->out), value_ref (self, node->stats),
                                 value_ref (self, node->in));
  drop_gradient (self, node->out);
  add_share (self, node->in, din);
}

static void
repeat_backward (Layer *self, const PlanNode *node)
{
  const PlanRef din = take_share (self, node->in);
  plan_lower_compute (self->lower, PLAN_OP_REPEAT_HEADS_BWD,
                      PLAN_REFS (din, gradient (self, node->out)), head_dims (self));
  drop_gradient (self, node->out);
  add_share (self, node->in, din);
}

static void
head_norm_backward (Layer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = take_share (self, node->in);
  plan_lower_compute (
      lower, PLAN_OP_HEAD_NORM_BWD,
      PLAN_REFS (din, plan_lower_raw_gradient (lower, PLAN_TENSOR_Q_NORM, self->unit),
                 plan_lower_raw_gradient (lower, PLAN_TENSOR_K_NORM, self->unit),
                 gradient (self, node->out), value_ref (self, node->in),
                 plan_lower_weight (lower, PLAN_TENSOR_Q_NORM, self->unit),
                 plan_lower_weight (lower, PLAN_TENSOR_K_NORM, self->unit),
                 value_ref (self, node->stats)),
      PLAN_DIMS (node->rows, self->net->heads, self->net->kv_heads, self->net->head_dim));
  plan_lower_put_gradient (lower, PLAN_TENSOR_Q_NORM, self->unit, FALSE);
  plan_lower_put_gradient (lower, PLAN_TENSOR_K_NORM, self->unit, FALSE);
  drop_gradient (self, node->out);
  add_share (self, node->in, din);
}

static void
activate_backward (Layer *self, const PlanNode *node)
{
  const PlanModel *m = self->lower->model;
  const PlanRef din = take_share (self, node->in);
  const PlanRef *refs = PLAN_REFS (din, gradient (self, node->out), value_ref (self, node->in));
  if (is_swiglu (m))
    plan_lower_compute (self->lower, PLAN_OP_SWIGLU_BWD, refs, PLAN_DIMS (node->rows, node->cols));
  else
    plan_lower_compute (self->lower, PLAN_OP_ACTIVATE_BWD, refs,
                        PLAN_DIMS (node->rows, node->cols, m->activation, m->gated));
  drop_gradient (self, node->out);
  add_share (self, node->in, din);
}

static void
exchange_backward (Layer *self, const PlanNode *node)
{
  const PlanRef din = begin_exchange_backward (self, node, gradient (self, node->out));
  plan_lower_await_exchange (self->lower);
  drop_gradient (self, node->out);
  add_share (self, node->in, din);
}

static void
norm_node_backward (Layer *self, const PlanNode *node)
{
  const PlanRef din = take_share (self, node->in);
  plan_lower_norm_backward (self->lower, din, gradient (self, node->out),
                            value_ref (self, node->in), value_ref (self, node->stats), node->weight,
                            node->bias, self->unit, node->rows);
  drop_gradient (self, node->out);
  add_share (self, node->in, din);
}

static void
add_backward (Layer *self, const PlanNode *node)
{
  pass_gradient (self, node->out, node->in);
  if (node->stats == PLAN_NO_VALUE)
    pass_gradient (self, node->out, node->other);
  else
    {
      const PlanRef share = take_share (self, node->other);
      plan_lower_compute (
          self->lower, PLAN_OP_DROPOUT_BWD,
          PLAN_REFS (share, gradient (self, node->out), value_ref (self, node->stats)),
          PLAN_DIMS (node->rows * node->cols));
      add_share (self, node->other, share);
    }
  drop_gradient (self, node->out);
}

static void
node_backward (Layer *self, const PlanNode *node)
{
  if (self->is_past >> (node - self->net->nodes) & 1)
    return;
  switch (node->kind)
    {
    case PLAN_NODE_NORM:
      norm_node_backward (self, node);
      return;
    case PLAN_NODE_TRANSPOSE:
      return;
    case PLAN_NODE_QUANTIZE:
      pass_gradient (self, node->out, node->in);
      drop_gradient (self, node->out);
      return;
    case PLAN_NODE_GATHER_SEQ:
      exchange_backward (self, node);
      return;
    case PLAN_NODE_COPY_TP:
      begin_sum_backward (self, gradient (self, node->in));
      plan_lower_await_exchange (self->lower);
      return;
    case PLAN_NODE_LINEAR:
      linear_backward (self, node);
      return;
    case PLAN_NODE_HEAD_NORM:
      head_norm_backward (self, node);
      return;
    case PLAN_NODE_ROPE:
      rope (self, gradient (self, node->in), 1);
      return;
    case PLAN_NODE_REPEAT:
      repeat_backward (self, node);
      return;
    case PLAN_NODE_ATTENTION:
      attention_backward (self, node);
      return;
    case PLAN_NODE_REDUCE_TP:
      if (node->in != node->out)
        exchange_backward (self, node);
      return;
    case PLAN_NODE_ACTIVATE:
      activate_backward (self, node);
      return;
    case PLAN_NODE_ADD:
      add_backward (self, node);
      return;
    }
}

static void
begin_backward (Layer *self, PlanLowerKeep keep)
{
  const PlanNetwork *net = self->net;
  memset (self->slot, -1, sizeof self->slot);
  self->live
      = (find_kept (net, keep) & ~plan_value_bit (PLAN_VALUE_OUT)) | plan_value_bit (PLAN_VALUE_X);
  hold_gradient (self, PLAN_VALUE_OUT,
                 plan_lower_unit_ref (self->lower->grad_sum[PLAN_VALUE_X], self->unit, 1));
  if (self->lower->transposes_weights)
    for (guint i = 0; i < net->n_nodes; i++)
      if (net->nodes[i].kind == PLAN_NODE_LINEAR)
        transpose_weight (self, &net->nodes[i]);
}

void
plan_lower_layer_backward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep)
{
  Layer layer = { .lower = self, .net = &self->net, .unit = unit };
  const PlanNetwork *net = &self->net;
  PlanValueSet needed[PLAN_MAX_NODES + 1] = { 0 }; /* by the nodes before each */
  for (guint i = 0; i < net->n_nodes; i++)
    {
      needed[i + 1] = needed[i] | net->nodes[i].needs;
      for (guint j = 0; j < i; j++)
        if (net->nodes[j].is_cheap && (net->nodes[j].makes & net->nodes[i].needs))
          needed[i + 1] |= net->nodes[j].reads;
    }
  begin_backward (&layer, keep);
  for (guint i = net->n_nodes; i-- > 0;)
    {
      const PlanNode *node = &net->nodes[i];
      const guint32 whole = self->stack->recomputes_outputs ? checkpointed (net, keep.again, i) : 0;
      const guint32 again = whole | nodes_towards (&layer, node->needs);
      layer.beside = gathers_beside (&layer, node, again);
      const PlanValueSet sent = layer.beside ? layer.beside->reads : 0;
      run_again (&layer, again, needed[i + 1]);
      if (!node->is_lazy)
        node_backward (&layer, node);
      give (&layer, (needed[i + 1] | sent) & ~needed[i]);
    }
  give (&layer, plan_value_bit (PLAN_VALUE_X));
  drop_transposes (&layer);
}
