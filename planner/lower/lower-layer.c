/* SPDX-License-Identifier: Apache-2.0 */
/* Lowers one layer's graph. A value that the forward pass did not keep is recomputed when the
 * backward pass first needs it: the nodes that lead to it from kept values are run again, in their
 * order. */
#include "config.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"

#include <string.h>

#define ONE(array) plan_lower_ref (self->array)

gboolean
plan_lower_is_static (const PlanLower *self, PlanValueId id)
{
  const gboolean joins = self->plan->value[PLAN_MOE_DISPATCHER] == PLAN_MOE_DISPATCHER_ALLGATHER;
  return (id == PLAN_VALUE_JOINED && joins)
         || (self->stack->layer.sequences == PLAN_SEQUENCES_STATIC
             && (id == PLAN_VALUE_NORM1_FULL || id == PLAN_VALUE_NORM2_FULL));
}

PlanRef
plan_layer_value (const PlanLayer *self, PlanValueId id)
{
  if (id == PLAN_NO_VALUE)
    return PLAN_REF_NONE;
  if (plan_lower_is_static (self->lower, id))
    return plan_lower_ref (self->lower->layer.value[id]);
  const gboolean is_between = id == PLAN_VALUE_X || id == PLAN_VALUE_OUT;
  const gint32 behind
      = (id == PLAN_VALUE_OUT ? 1 : 0) + (is_between && self->unit.is_module ? 1 : 0);
  return plan_lower_in_row (self->lower,
                            plan_lower_unit_ref (self->lower->layer.value[id], self->unit, behind));
}

/* The values that the forward pass leaves: those that the backward pass reads, and those from which
 * it recomputes others. */
PlanValueSet
plan_lower_kept (const PlanLower *self, PlanLowerKeep keep)
{
  const PlanLayerGraph *net = self->graphs->of[keep.kind];
  const PlanValueSet kept = plan_value_bit (PLAN_VALUE_OUT)
                            | plan_layer_graph_kept (net, self->sizes, keep.again, net->n_nodes);
  const PlanValueSet input = plan_value_bit (PLAN_VALUE_X);
  return keep.drops_input ? kept & ~input : kept | input;
}

static gboolean
is_live (const PlanLayer *self, PlanValueId id)
{
  return (self->live & plan_value_bit (id)) != 0;
}

void
plan_layer_take (PlanLayer *self, PlanValueId id)
{
  if (id == PLAN_NO_VALUE || is_live (self, id))
    return;
  if (!plan_layer_take_each (self, id, FALSE))
    plan_lower_alloc (self->lower, plan_layer_value (self, id));
  self->live |= plan_value_bit (id);
}

void
plan_layer_give (PlanLayer *self, PlanValueSet values)
{
  for (values &= self->live; values;)
    {
      const PlanValueId id = plan_value_pop (&values);
      if (!plan_layer_take_each (self, id, TRUE))
        plan_lower_free (self->lower, plan_layer_value (self, id));
      self->live &= ~plan_value_bit (id);
    }
}

/* The columns of a product that are made now: when it is recomputed, the saved ones are left
 * out. */
static gint64
made_cols (const PlanLayer *self, const PlanNode *node)
{
  return node->cols - (self->is_replay ? node->saved_cols : 0);
}

/* The bias of a product. If the product is one summand of a sum over the tensor-parallel group, the
 * first rank alone adds the bias. */
static PlanRef
bias_of (const PlanLayer *self, const PlanNode *node)
{
  return node->bias != PLAN_N_TENSORS && self->lower->place.tensor_rank > 0
                 && plan_lower_is_replicated (self->lower, node->bias)
             ? PLAN_REF_NONE
             : plan_lower_weight (self->lower, node->bias, self->unit);
}

/* Returns that one of `nodes` which continues this node piece by piece (tp_overlap): the product of
 * what is gathered, or the sum of what a product makes. NULL: there is none. */
static const PlanNode *
goes_on (const PlanLayer *self, const PlanNode *node, PlanNodeKind kind, PlanNodeSet nodes)
{
  const PlanNode *first = self->net->nodes;
  for (const PlanNode *next = node + 1; next < first + self->net->n_nodes; next++)
    if (next->kind == kind && next->in == node->out && next->out != next->in
        && nodes >> (next - first) & 1)
      return plan_lower_has_pieces (self->lower)
                     && made_cols (self, kind == PLAN_NODE_LINEAR ? next : node) > 0
                 ? next
                 : NULL;
  return NULL;
}

/* The transposed copy that a node makes now. */
static PlanValueId
made_col (const PlanLayer *self, const PlanNode *node)
{
  return node->is_col_lazy && !self->is_replay ? PLAN_NO_VALUE : node->col;
}

static PlanLowerProduct
forward_product (const PlanLayer *self, const PlanNode *node)
{
  PlanLowerProduct product = { .out = plan_layer_value (self, node->out),
                               .in = plan_layer_value (self, node->in),
                               .bias = bias_of (self, node),
                               .rows = node->rows,
                               .cols = made_cols (self, node),
                               .depth = node->depth };
  product.weight
      = plan_lower_product_weight (self->lower, node->weight, self->unit, FALSE, &product.layout);
  return product;
}

/* A gather and the product that reads it, piece by piece. */
static void
gathered_forward (PlanLayer *self, const PlanNode *gather, const PlanNode *linear)
{
  plan_layer_take (self, linear->out);
  const PlanLowerProduct product = forward_product (self, linear);
  const PlanRef own = plan_layer_value (self, gather->in);
  /* The gathered input stays for the gradient of the weights. */
  if (self->is_replay || !gather->is_cheap)
    {
      const guint64 at = plan_lower_own_part (self->lower, self->net->values[gather->out].elements);
      plan_lower_compute (self->lower, PLAN_OP_CAST,
                          PLAN_REFS (plan_lower_at (product.in, at), own),
                          PLAN_DIMS (gather->cols));
    }
  plan_lower_quantise_weight (self->lower, linear, self->unit);
  plan_lower_gathered_product (self->lower, &product, own);
  plan_lower_drop_quantised_weight (self->lower, linear);
  self->made |= plan_node_bit ((guint)(linear - self->net->nodes));
}

/* Returns the node that quantises what this one gathers for a product, if parts of it are quantised
 * before they are gathered, and all three are among `nodes`. NULL: there is none. */
static const PlanNode *
quantised_parts (const PlanLayer *self, const PlanNode *gather, PlanNodeSet nodes)
{
  const PlanNode *quantise
      = gather->kind == PLAN_NODE_GATHER_SEQ && plan_lower_quantises_parts (self->lower)
            ? goes_on (self, gather, PLAN_NODE_QUANTIZE, nodes)
            : NULL;
  return quantise && goes_on (self, quantise, PLAN_NODE_LINEAR, nodes) ? quantise : NULL;
}

/* This rank's part of an input, quantised, then its gather and the product that reads it, piece by
 * piece. Nothing is gathered unquantised. */
static void
quantised_parts_forward (PlanLayer *self, const PlanNode *gather, const PlanNode *quantise,
                         PlanNodeSet nodes)
{
  const PlanNode *linear = goes_on (self, quantise, PLAN_NODE_LINEAR, nodes);
  const PlanValueId col = made_col (self, quantise);
  plan_layer_take (self, quantise->out);
  plan_layer_take (self, col);
  plan_layer_take (self, linear->out);
  const PlanLowerProduct product = forward_product (self, linear);
  const PlanRef own = plan_lower_at (
      product.in, plan_lower_own_part (self->lower, self->net->values[quantise->out].elements));
  plan_lower_quantise (self->lower, quantise->feeds, PLAN_QUANTIZER_INPUT, self->unit,
                       PLAN_REFS (own, PLAN_REF_NONE, plan_layer_value (self, gather->in)),
                       self->sizes->split_rows, quantise->cols);
  plan_lower_gathered_product (self->lower, &product, own);
  if (col != PLAN_NO_VALUE)
    plan_lower_compute (self->lower, PLAN_OP_TRANSPOSE,
                        PLAN_REFS (plan_layer_value (self, col), product.in),
                        PLAN_DIMS (quantise->rows, quantise->cols));
  self->made |= plan_node_bit ((guint)(quantise - self->net->nodes))
                | plan_node_bit ((guint)(linear - self->net->nodes));
}

/* A product and the sum of its output, piece by piece. */
static void
summed_forward (PlanLayer *self, const PlanNode *linear, const PlanNode *sum)
{
  plan_layer_take (self, sum->out);
  const PlanLowerProduct product = forward_product (self, linear);
  plan_lower_quantise_weight (self->lower, linear, self->unit);
  plan_lower_reduced_product (self->lower, &product, plan_layer_value (self, sum->out));
  plan_lower_drop_quantised_weight (self->lower, linear);
  self->made |= plan_node_bit ((guint)(sum - self->net->nodes));
}

static void
linear_forward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  gint64 layout;
  const gint64 cols = made_cols (self, node);
  const PlanRef weight
      = plan_lower_product_weight (lower, node->weight, self->unit, FALSE, &layout);
  if (cols == 0)
    return;
  plan_lower_quantise_weight (lower, node, self->unit);
  plan_lower_compute (lower, PLAN_OP_GEMM,
                      PLAN_REFS (plan_layer_value (self, node->out),
                                 plan_layer_value (self, node->in), weight, bias_of (self, node)),
                      PLAN_DIMS (node->rows, cols, node->depth, layout));
  plan_lower_drop_quantised_weight (lower, node);
}

void
plan_layer_rope (PlanLayer *self, PlanRef qkv, gint64 inverse)
{
  const PlanSizes *sizes = self->sizes;
  const gint64 *value = self->lower->plan->value;
  plan_lower_compute (self->lower, PLAN_OP_ROPE, PLAN_REFS (qkv, plan_lower_places (self->lower)),
                      PLAN_DIMS (sizes->rows, value[PLAN_SEQ] / value[PLAN_CP], sizes->heads,
                                 sizes->kv_heads, sizes->head_dim, inverse));
}

const gint64 *
plan_layer_head_dims (PlanLayer *self)
{
  const PlanSizes *sizes = self->sizes;
  const gint64 dims[] = { sizes->rows, sizes->heads, sizes->kv_heads, sizes->head_dim };
  memcpy (self->dims, dims, sizeof dims);
  return self->dims;
}

gboolean
plan_layer_is_swiglu (const PlanModel *model)
{
  return model->gated && model->activation == PLAN_ACTIVATION_SILU && model->glu_limit == 0
         && model->glu_offset == 0;
}

void
plan_layer_activate (PlanLayer *self, const PlanNode *node)
{
  const PlanModel *m = self->lower->model;
  const PlanRef out = plan_layer_value (self, node->out), in = plan_layer_value (self, node->in);
  const gint64 count = node->rows * node->cols;
  if (node->stats != PLAN_NO_VALUE) /* what kernels of their own make, like the activated gate */
    for (gint64 at = 0; at < (gint64)self->net->values[node->stats].elements; at += count)
      plan_lower_compute (
          self->lower, PLAN_OP_CAST,
          PLAN_REFS (plan_lower_at (plan_layer_value (self, node->stats), (guint64)at), in),
          PLAN_DIMS (count));
  if (plan_layer_is_swiglu (m))
    plan_lower_compute (self->lower, PLAN_OP_SWIGLU, PLAN_REFS (out, in, PLAN_REF_NONE),
                        PLAN_DIMS (node->rows, node->cols));
  else
    plan_lower_compute (self->lower, PLAN_OP_ACTIVATE, PLAN_REFS (out, in, PLAN_REF_NONE),
                        PLAN_DIMS (node->rows, node->cols, m->activation, m->gated));
}

/* Whether swiglu and its gradient are quantised as they are made: by scales known before, or of 128
 * elements. A GPU makes both copies from one reading; a processor would make each element for each
 * of them, and of mxfp8 GPUs have too few registers for that. */
gboolean
plan_layer_makes_quantised (const PlanLayer *self)
{
  const PlanLower *lower = self->lower;
  const gint64 compute = lower->plan->value[PLAN_COMPUTE];
  return lower->stack->layer.kernels == PLAN_KERNELS_OWN && lower->cluster->kind != PLAN_DEVICE_CPU
         && plan_layer_is_swiglu (lower->model) && self->sizes->compute == PLAN_DTYPE_BF16
         && self->sizes->ffn % 8 == 0
         && (compute == PLAN_COMPUTE_FP8_DELAYED || compute == PLAN_COMPUTE_FP8_BLOCKWISE);
}

/* Returns that one of `nodes` which quantises this activation, if it is quantised as it is made: if
 * nobody else reads it and it does not stay. NULL: there is none. */
static const PlanNode *
quantised_behind (const PlanLayer *self, const PlanNode *node, PlanNodeSet nodes)
{
  const PlanNode *next = node + 1, *first = self->net->nodes;
  const PlanValueSet out = plan_value_bit (node->out);
  if (node->kind != PLAN_NODE_ACTIVATE || node->stats != PLAN_NO_VALUE || node->saved_cols > 0
      || !plan_layer_makes_quantised (self) || (self->stays & out)
      || next == first + self->net->n_nodes || next->kind != PLAN_NODE_QUANTIZE
      || next->in != node->out || next->is_lazy || !(nodes >> (next - first) & 1))
    return NULL;
  for (guint i = 0; i < self->net->n_nodes; i++)
    if (&first[i] != next && ((first[i].reads | first[i].needs) & out))
      return NULL;
  return next;
}

static void
quantised_forward (PlanLayer *self, const PlanNode *node, const PlanNode *quantise)
{
  PlanLower *lower = self->lower;
  const PlanValueId col = made_col (self, quantise);
  plan_layer_take (self, quantise->out);
  plan_layer_take (self, col);
  plan_lower_compute (
      lower, PLAN_OP_SWIGLU_QUANTIZE,
      PLAN_REFS (plan_layer_value (self, quantise->out), plan_layer_value (self, col),
                 plan_layer_value (self, node->in),
                 plan_lower_site_scale (lower, quantise->feeds, PLAN_QUANTIZER_INPUT, self->unit),
                 plan_lower_site_amax (lower, quantise->feeds, PLAN_QUANTIZER_INPUT, self->unit)),
      PLAN_DIMS (node->rows, node->cols));
  self->made |= plan_node_bit ((guint)(quantise - self->net->nodes));
}

/* Returns that one of `nodes` which is the norm of this sum, if the norm's kernel makes the sum as
 * well. NULL: there is none. A sum with dropout has a kernel of its own. */
static const PlanNode *
norm_behind (const PlanLayer *self, const PlanNode *sum, PlanNodeSet nodes)
{
  const PlanNode *next = sum + 1, *first = self->net->nodes;
  const gboolean fits = self->lower->stack->layer.kernels == PLAN_KERNELS_OWN && !sum->drops
                        && next < first + self->net->n_nodes && nodes >> (next - first) & 1;
  return fits && next->kind == PLAN_NODE_NORM && next->in == sum->out ? next : NULL;
}

/* A sum and its norm in one kernel. */
static void
normed_sum_forward (PlanLayer *self, const PlanNode *sum, const PlanNode *norm)
{
  plan_layer_take (self, norm->out);
  plan_layer_take (self, norm->stats);
  plan_lower_add_norm (
      self->lower,
      PLAN_REFS (plan_layer_value (self, norm->out), plan_layer_value (self, norm->stats),
                 plan_layer_value (self, sum->out), plan_layer_value (self, sum->in),
                 plan_layer_value (self, sum->other)),
      norm, self->unit);
  self->made |= plan_node_bit ((guint)(norm - self->net->nodes));
}

/* Whether this node is a sum that the kernel of its norm made. Then the norm's output exists
 * already and must not be freed before the norm's turn. */
static gboolean
made_norm (const PlanLayer *self, const PlanNode *node)
{
  return node->kind == PLAN_NODE_ADD && self->made >> (node - self->net->nodes) >> 1 & 1;
}

static void
add_forward (PlanLayer *self, const PlanNode *node, PlanNodeSet nodes)
{
  const PlanNode *norm = norm_behind (self, node, nodes);
  const PlanRef out = plan_layer_value (self, node->out), in = plan_layer_value (self, node->in);
  const PlanRef branch = plan_layer_value (self, node->other),
                mask = plan_layer_value (self, node->stats);
  if (norm)
    normed_sum_forward (self, node, norm);
  else if (node->drops)
    plan_lower_dropout (self->lower, PLAN_OP_DROPOUT_ADD, PLAN_REFS (out, mask, in, branch),
                        plan_lower_random_key (self->lower, self->unit),
                        PLAN_DIMS (node->rows, node->cols, node->out == PLAN_VALUE_OUT));
  else
    plan_lower_compute (self->lower, PLAN_OP_ADD, PLAN_REFS (out, in, branch),
                        PLAN_DIMS (node->rows * node->cols));
}

static void
gather_sequence (PlanLayer *self, const PlanNode *node)
{
  plan_lower_begin_exchange (
      self->lower, PLAN_OP_ALL_GATHER,
      PLAN_REFS (plan_layer_value (self, node->out), plan_layer_value (self, node->in)),
      node->cols);
  if (node != self->beside)
    plan_lower_await_exchange (self->lower);
}

const gint64 *
plan_layer_norm_dims (PlanLayer *self)
{
  const PlanSizes *sizes = self->sizes;
  const gboolean is_full = self->lower->model->qk_norm == PLAN_QK_NORM_FULL;
  const gint64 of_q = is_full ? sizes->heads : 1, of_k = is_full ? sizes->kv_heads : 1;
  const gint64 dims[] = { sizes->rows, sizes->heads / of_q, sizes->kv_heads / of_k,
                          sizes->head_dim * of_q, sizes->head_dim * of_k };
  return memcpy (self->dims, dims, sizeof dims);
}

static void
norm_heads (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const gboolean has_weights = lower->model->qk_norm;
  const PlanTensorRole q = has_weights ? PLAN_TENSOR_Q_NORM : PLAN_N_TENSORS;
  const PlanTensorRole k = has_weights ? PLAN_TENSOR_K_NORM : PLAN_N_TENSORS;
  plan_lower_compute (
      lower, PLAN_OP_HEAD_NORM,
      PLAN_REFS (plan_layer_value (self, node->out), plan_layer_value (self, node->stats),
                 plan_layer_value (self, node->in), plan_lower_weight (lower, q, self->unit),
                 plan_lower_weight (lower, k, self->unit)),
      plan_layer_norm_dims (self));
}

/* Sums over the tensor-parallel group. If tokens are split, each rank gets its part of the sum. */
static void
reduce_sequence (PlanLayer *self, const PlanNode *node)
{
  const PlanRef in = plan_layer_value (self, node->in), out = plan_layer_value (self, node->out);
  if (node->in == node->out)
    plan_lower_exchange (self->lower, PLAN_OP_ALL_REDUCE, PLAN_REFS (in), node->cols);
  else
    plan_lower_exchange (self->lower, PLAN_OP_REDUCE_SCATTER, PLAN_REFS (out, in), node->cols);
}

/* Runs a gather or a product, together with the node that continues it piece by piece, if there is
 * one. */
static void
run_linear (PlanLayer *self, const PlanNode *node, PlanNodeSet nodes)
{
  const gboolean gathers = node->kind == PLAN_NODE_GATHER_SEQ;
  const PlanNode *next
      = goes_on (self, node, gathers ? PLAN_NODE_LINEAR : PLAN_NODE_REDUCE_TP, nodes);
  if (next && gathers)
    gathered_forward (self, node, next);
  else if (next)
    summed_forward (self, node, next);
  else if (gathers)
    gather_sequence (self, node);
  else
    linear_forward (self, node);
}

static void
run_node (PlanLayer *self, const PlanNode *node, PlanNodeSet nodes)
{
  PlanLower *lower = self->lower;
  const PlanRef in = plan_layer_value (self, node->in), out = plan_layer_value (self, node->out);
  switch (node->kind)
    {
    case PLAN_NODE_NORM:
      plan_lower_norm (lower, out, plan_layer_value (self, node->stats), in, node->weight,
                       node->bias, node->feeds, self->unit, node->rows);
      return;
    case PLAN_NODE_QUANTIZE:
      plan_layer_quantise_rows (
          self, node, PLAN_REFS (out, plan_layer_value (self, made_col (self, node)), in));
      return;
    case PLAN_NODE_TRANSPOSE:
      plan_lower_compute (lower, PLAN_OP_TRANSPOSE, PLAN_REFS (out, in),
                          PLAN_DIMS (node->rows, node->cols));
      return;
    case PLAN_NODE_GATHER_SEQ:
    case PLAN_NODE_LINEAR:
      run_linear (self, node, nodes);
      return;
    case PLAN_NODE_COPY_TP:
      return;
    case PLAN_NODE_HEAD_NORM:
      norm_heads (self, node);
      return;
    case PLAN_NODE_ROPE:
      plan_layer_rope (self, in, 0);
      return;
    case PLAN_NODE_REPEAT:
      plan_lower_compute (lower, PLAN_OP_REPEAT_HEADS, PLAN_REFS (out, in),
                          plan_layer_head_dims (self));
      return;
    case PLAN_NODE_ATTENTION:
      plan_lower_attention (lower,
                            PLAN_REFS (out, plan_layer_value (self, node->stats), in,
                                       plan_lower_attention_key (lower, self->unit)),
                            self->net->keys);
      plan_lower_sink (lower, out, plan_layer_value (self, node->stats), self->unit);
      return;
    case PLAN_NODE_REDUCE_TP:
      reduce_sequence (self, node);
      return;
    case PLAN_NODE_ACTIVATE:
      plan_layer_activate (self, node);
      return;
    case PLAN_NODE_ADD:
      add_forward (self, node, nodes);
      return;
    default: /* nodes of other mixers of tokens, and of experts */
      if (!plan_layer_mix (self, node))
        plan_layer_experts (self, node);
      return;
    }
}

void
plan_layer_meet_rows (PlanLayer *self)
{
  PlanLower *lower = self->lower;
  PlanLowerBeside *beside = &lower->beside;
  beside->is_away = FALSE;
  plan_lower_wait (lower, plan_lower_ref (lower->event.sent_rows));
  for (guint i = 0; i < beside->n_owed; i++)
    plan_lower_free (lower, beside->owed[i]);
  beside->n_owed = 0;
}

/* Returns the exchange beside which the nodes of shared experts run, this node being their first;
 * NULL: none. */
static const PlanNode *
sent_beside (const PlanLayer *self, const PlanNode *node)
{
  const PlanNode *end = self->net->nodes + self->net->n_nodes;
  if (node->module != PLAN_MODULE_SHARED)
    return NULL;
  while (node < end && node->module == PLAN_MODULE_SHARED)
    node++;
  return node < end && node->goes_beside ? node : NULL;
}

static void node_forward (PlanLayer *self, const PlanNode *node, PlanNodeSet nodes);

/* Sends rows before the shared experts, which run beside the exchange, and waits for the rows
 * behind them. Megatron-LM runs shared experts on a stream of their own, ordered between the
 * exchange and compute's next op (token_dispatcher.py 699-716 and 860-907, shared_experts.py at
 * d98e8a64): as if compute ran them. */
static void
go_beside (PlanLayer *self, const PlanNode *node, PlanNodeSet nodes)
{
  PlanLowerBeside *beside = &self->lower->beside;
  const PlanNode *send = beside->is_away ? NULL : sent_beside (self, node);
  const PlanNodeSet bit = send ? plan_node_bit ((guint)(send - self->net->nodes)) : 0;
  if (beside->is_away && !beside->is_begun && node->module != PLAN_MODULE_SHARED)
    plan_layer_meet_rows (self);
  if (!(nodes & bit & ~self->made))
    return;
  beside->is_away = beside->is_begun = TRUE;
  node_forward (self, send, nodes);
  beside->is_begun = FALSE;
  self->made |= bit;
}

/* Runs one node. `nodes`: all nodes of the same run. */
static void
node_forward (PlanLayer *self, const PlanNode *node, PlanNodeSet nodes)
{
  go_beside (self, node, nodes);
  const PlanNodeSet bit = plan_node_bit ((guint)(node - self->net->nodes));
  const gboolean takes = node->kind == PLAN_NODE_PERMUTE && node->is_eager; /* op by op */
  const PlanNode *quantise = quantised_behind (self, node, nodes);
  if (quantise && !(self->made & bit))
    {
      quantised_forward (self, node, quantise);
      return;
    }
  const PlanNode *parts = quantised_parts (self, node, nodes);
  if (parts)
    {
      quantised_parts_forward (self, node, parts, nodes);
      return;
    }
  /* Both allocate their outputs themselves, REDUCE_ROWS once its buffers are free. */
  if (!takes && node->kind != PLAN_NODE_REDUCE_ROWS)
    plan_layer_take (self, node->out);
  if (!takes)
    {
      plan_layer_take (self, made_col (self, node));
      plan_layer_take (self, node->stats);
      plan_layer_take (self, node->saved);
    }
  if (!(self->made & bit))
    run_node (self, node, nodes);
  self->made &= ~bit;
}

void
plan_layer_begin_forward (PlanLayerPass *self, PlanLower *lower, PlanLowerUnit unit,
                          PlanLowerKeep keep)
{
  const PlanLayerGraph *net = lower->graphs->of[keep.kind];
  const PlanValueSet kept = plan_lower_kept (lower, keep);
  PlanValueSet behind = 0;
  self->layer = (PlanLayer){ .lower = lower, .net = net, .sizes = lower->sizes, .unit = unit };
  self->layer.stays = kept;
  self->layer.live = plan_value_bit (PLAN_VALUE_X);
  self->keep = keep;
  self->at = 0;
  for (guint i = net->n_nodes; i-- > 0;)
    {
      self->needs[i] = kept | behind;
      behind |= net->nodes[i].is_lazy ? 0 : net->nodes[i].reads;
      behind |= net->nodes[i].is_lazy || lower->combined.is_planned ? 0 : net->nodes[i].holds;
    }
}

void
plan_layer_go_forward (PlanLayerPass *self, guint end)
{
  PlanLayer *layer = &self->layer;
  PlanLower *lower = layer->lower;
  const PlanLayerGraph *net = layer->net;
  PlanNodeSet eager = 0;
  for (guint i = 0; i < net->n_nodes; i++)
    eager |= net->nodes[i].is_lazy ? 0 : plan_node_bit (i);
  lower->now.kind = self->keep.kind;
  for (; self->at < end; self->at++)
    {
      const PlanNode *node = &net->nodes[self->at];
      if (node->is_lazy)
        continue;
      plan_layer_enter (layer, self->at, FALSE);
      if (plan_node_is_product (node) && lower->policy.transposes_weights
          && lower->stack->weights.transposed != PLAN_TRANSPOSED_BACKWARD)
        plan_lower_transpose_weight (lower, node, layer->unit);
      node_forward (layer, node, eager);
      plan_layer_leave (layer, self->at, FALSE);
      if (!made_norm (layer, node))
        plan_layer_give (layer, ~self->needs[self->at]);
    }
}

void
plan_lower_layer_forward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep)
{
  const PlanLayerGraph *net = self->graphs->of[keep.kind];
  PlanLayerPass pass;
  plan_layer_begin_forward (&pass, self, unit, keep);
  plan_layer_go_forward (&pass, net->n_nodes);
  if (self->stack->weights.transposed != PLAN_TRANSPOSED_BACKWARD)
    plan_lower_drop_transposes (self, net);
}

PlanNodeSet
plan_layer_nodes_towards (const PlanLayer *self, PlanValueSet values)
{
  PlanNodeSet nodes = 0;
  values &= ~self->live;
  for (guint i = self->net->n_nodes; i-- > 0 && values;)
    if (self->net->nodes[i].makes & values)
      {
        nodes |= plan_node_bit (i);
        values |= self->net->nodes[i].reads & ~self->live;
      }
  return nodes;
}

void
plan_layer_run_again (PlanLayer *self, PlanNodeSet nodes, PlanValueSet needed)
{
  const PlanLayerGraph *net = self->net;
  const PlanNodeSet all = nodes;
  self->is_replay = TRUE;
  self->stays = needed;
  while (nodes)
    {
      PlanValueSet wanted = needed | plan_value_bit (PLAN_VALUE_X);
      const PlanNode *node = &net->nodes[__builtin_ctzll (nodes)];
      node_forward (self, node, all);
      nodes &= nodes - 1;
      if (made_norm (self, node))
        continue;
      for (PlanNodeSet left = nodes; left; left &= left - 1)
        wanted |= net->nodes[__builtin_ctzll (left)].reads;
      plan_layer_give (self, ~(wanted | (self->beside ? self->beside->reads : 0)));
    }
}

gboolean
plan_layer_exchanges_beside (const PlanLayer *self)
{
  return self->lower->stack->layer.exchanges_beside || plan_lower_sums_gradient (self->lower);
}

const PlanNode *
plan_layer_gathers_beside (const PlanLayer *self, const PlanNode *linear, PlanNodeSet again)
{
  if (!plan_layer_exchanges_beside (self) || linear->kind != PLAN_NODE_LINEAR || !again)
    return NULL;
  const PlanNode *last = &self->net->nodes[63 - __builtin_clzll (again)];
  return last->kind == PLAN_NODE_GATHER_SEQ && last->out == linear->kept ? last : NULL;
}

PlanNodeSet
plan_layer_checkpointed (const PlanLayerGraph *net, PlanNodeSet again, guint last)
{
  PlanNodeSet nodes = 0;
  if (again >> last & 1 && !plan_node_discards (&net->nodes[last])
      && (last + 1 == net->n_nodes || !(again >> (last + 1) & 1)))
    for (guint i = last + 1; i-- > 0 && again >> i & 1;)
      nodes |= net->nodes[i].is_lazy ? 0 : plan_node_bit (i);
  return nodes;
}

/* The pitch of a norm's input, where its rows are parts of wider rows: the latent vector of keys
 * and values has the common part of keys behind it. Else 0. */
static gint64
pitch_of (const PlanModel *m, PlanTensorRole weight)
{
  return weight == PLAN_TENSOR_KV_UP_NORM ? m->kv_lora + m->rope_dim : 0;
}

void
plan_lower_norm (PlanLower *self, PlanRef out, PlanRef stats, PlanRef in, PlanTensorRole weight,
                 PlanTensorRole bias, PlanTensorRole feeds, PlanLowerUnit unit, gint64 rows)
{
  const gint64 cols = (gint64)plan_lower_tensor (self, weight).rows;
  const PlanRef scale = plan_lower_site_scale (self, feeds, PLAN_QUANTIZER_INPUT, unit);
  const PlanRef amax = plan_lower_site_amax (self, feeds, PLAN_QUANTIZER_INPUT, unit);
  const PlanRef gain = plan_lower_weight (self, weight, unit);
  self->now.pitch = pitch_of (self->model, weight);
  if (self->model->norm == PLAN_NORM_LAYERNORM)
    plan_lower_compute (
        self, PLAN_OP_LAYERNORM,
        PLAN_REFS (out, stats, in, gain, plan_lower_weight (self, bias, unit), scale, amax),
        PLAN_DIMS (rows, cols));
  else
    plan_lower_compute (self, PLAN_OP_RMSNORM, PLAN_REFS (out, stats, in, gain, scale, amax),
                        PLAN_DIMS (rows, cols));
}

void
plan_lower_add_norm (PlanLower *self, const PlanRef *refs, const PlanNode *norm, PlanLowerUnit unit)
{
  const PlanRef scale = plan_lower_site_scale (self, norm->feeds, PLAN_QUANTIZER_INPUT, unit);
  const PlanRef amax = plan_lower_site_amax (self, norm->feeds, PLAN_QUANTIZER_INPUT, unit);
  const PlanRef gain = plan_lower_weight (self, norm->weight, unit);
  const gint64 *dims = PLAN_DIMS (norm->rows, norm->cols);
  if (self->model->norm == PLAN_NORM_LAYERNORM)
    plan_lower_compute (self, PLAN_OP_ADD_LAYERNORM,
                        PLAN_REFS (refs[0], refs[1], refs[2], refs[3], refs[4], gain,
                                   plan_lower_weight (self, norm->bias, unit), scale, amax),
                        dims);
  else
    plan_lower_compute (self, PLAN_OP_ADD_RMSNORM,
                        PLAN_REFS (refs[0], refs[1], refs[2], refs[3], refs[4], gain, scale, amax),
                        dims);
}

void
plan_lower_norm_backward (PlanLower *self, PlanRef din, PlanRef dout, PlanRef in, PlanRef stats,
                          PlanTensorRole weight, PlanTensorRole bias, PlanLowerUnit unit,
                          gint64 rows)
{
  plan_lower_norm_backward_add (self, PLAN_REFS (din, dout, in, stats, PLAN_REF_NONE), weight, bias,
                                unit, rows);
}

void
plan_lower_norm_backward_add (PlanLower *self, const PlanRef *refs, PlanTensorRole weight,
                              PlanTensorRole bias, PlanLowerUnit unit, gint64 rows)
{
  const PlanRef din = refs[0], dout = refs[1], in = refs[2], stats = refs[3], add = refs[4];
  const PlanRef gain = plan_lower_weight (self, weight, unit);
  const PlanRef dgain = plan_lower_raw_gradient (self, weight, unit);
  const gboolean has_bias = bias != PLAN_N_TENSORS;
  const gint64 cols = (gint64)plan_lower_tensor (self, weight).rows;
  self->now.pitch = pitch_of (self->model, weight);
  if (self->model->norm == PLAN_NORM_LAYERNORM)
    plan_lower_compute (
        self, PLAN_OP_LAYERNORM_BWD,
        PLAN_REFS (din, dgain,
                   has_bias ? plan_lower_raw_gradient (self, bias, unit) : PLAN_REF_NONE, dout, in,
                   gain, stats, add, PLAN_REF_NONE),
        PLAN_DIMS (rows, cols));
  else
    plan_lower_compute (self, PLAN_OP_RMSNORM_BWD,
                        PLAN_REFS (din, dgain, dout, in, gain, stats, add, PLAN_REF_NONE),
                        PLAN_DIMS (rows, cols));
  plan_lower_put_gradient (self, weight, unit, FALSE);
  if (has_bias)
    plan_lower_put_gradient (self, bias, unit, FALSE);
}
