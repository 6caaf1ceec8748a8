/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of a layer's nodes: adds up shares of gradients, frees gradients that nobody
 * holds any more, and recomputes what nodes need. */
#include "config.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-layer-private.h"

#include <string.h>

/* Gradients. Several values may hold one buffer, as a sum passes its gradient on unchanged. The
 * last one to drop it frees it. */

PlanRef
plan_layer_gradient (const PlanLayer *self, PlanValueId id)
{
  g_assert (self->slot[id] >= 0);
  return self->gradients[self->slot[id]].ref;
}

void
plan_layer_drop_gradient (PlanLayer *self, PlanValueId id)
{
  const gint8 slot = self->slot[id];
  if (slot >= 0 && --self->gradients[slot].holders == 0)
    plan_lower_free (self->lower, self->gradients[slot].ref);
  self->slot[id] = -1;
}

static void
hold_gradient (PlanLayer *self, PlanValueId id, PlanRef ref)
{
  self->slot[id] = (gint8)self->n_gradients;
  self->gradients[self->n_gradients].ref = ref;
  self->gradients[self->n_gradients++].holders = 1;
}

/* The buffer in which shares of a value's gradient are added up. For X it is the gradient of the
 * previous layer's output. */
static PlanRef
gradient_sum (const PlanLayer *self, PlanValueId id)
{
  return id == PLAN_VALUE_X ? plan_lower_layer_gradient (self->lower, self->unit, 0)
                            : plan_lower_ref (self->lower->layer.grad_sum[id]);
}

/* Gradients of the inputs of all layers are elements of one array, so offsets are compared, too. */
static gboolean
is_same (PlanRef a, PlanRef b)
{
  return a.array == b.array && a.offset == b.offset && a.loop == b.loop;
}

/* Awaits the exchange of one of two shares before they are added up: where there is a share
 * already, one of the two may still be on its way. */
static void
await_shares (PlanLayer *self, PlanValueId id)
{
  PlanLowerBeside *beside = &self->lower->beside;
  if (self->slot[id] < 0 || (!beside->is_away && !beside->is_begun))
    return;
  beside->is_begun = FALSE;
  plan_layer_meet_rows (self);
}

/* Adds a share to a value's gradient. The first share becomes the gradient, later ones are
 * added. */
void
plan_layer_add_share (PlanLayer *self, PlanValueId id, PlanRef share)
{
  PlanLower *lower = self->lower;
  const gint64 elements = (gint64)self->net->values[id].elements;
  if (self->slot[id] < 0)
    {
      hold_gradient (self, id, share);
      return;
    }
  await_shares (self, id);
  const PlanRef before = plan_layer_gradient (self, id);
  const PlanRef total = self->lower->layer.grad_sum[id] < 0 ? before : gradient_sum (self, id);
  if (is_same (before, total))
    plan_lower_compute (lower, PLAN_OP_ACCUMULATE, PLAN_REFS (total, share), PLAN_DIMS (elements));
  else
    {
      plan_lower_alloc (lower, total);
      plan_lower_compute (lower, PLAN_OP_ADD, PLAN_REFS (total, before, share),
                          PLAN_DIMS (elements));
    }
  plan_lower_free (lower, share);
  if (!is_same (before, total))
    {
      plan_layer_drop_gradient (self, id);
      hold_gradient (self, id, total);
    }
}

/* Passes the gradient of `from` on as a share of that of `to`, unchanged. */
static void
pass_gradient (PlanLayer *self, PlanValueId from, PlanValueId to)
{
  const gint8 slot = self->slot[from];
  await_shares (self, to);
  if (self->slot[to] >= 0
      /* Without a buffer for the sum, it is added to the first share in place. */
      && self->lower->layer.grad_sum[to] < 0)
    {
      plan_lower_compute (
          self->lower, PLAN_OP_ACCUMULATE,
          PLAN_REFS (plan_layer_gradient (self, to), plan_layer_gradient (self, from)),
          PLAN_DIMS ((gint64)self->net->values[to].elements));
      return;
    }
  if (self->slot[to] >= 0)
    {
      /* Other values hold this share too: it is added and not freed. */
      const PlanRef total = gradient_sum (self, to);
      plan_lower_alloc (self->lower, total);
      plan_lower_compute (
          self->lower, PLAN_OP_ADD,
          PLAN_REFS (total, plan_layer_gradient (self, to), plan_layer_gradient (self, from)),
          PLAN_DIMS ((gint64)self->net->values[to].elements));
      plan_layer_drop_gradient (self, to);
      hold_gradient (self, to, total);
      return;
    }
  self->slot[to] = slot;
  self->gradients[slot].holders++;
}

/* Allocates a buffer for a share of a value's gradient. */
PlanRef
plan_layer_take_share (PlanLayer *self, PlanValueId id)
{
  PlanRef share = plan_lower_ref (self->lower->layer.grad[id]);
  if (self->slot[id] >= 0 && plan_layer_gradient (self, id).array == share.array)
    share.offset = 1; /* the first share is in element 0, which becomes the sum */
  plan_lower_alloc (self->lower, share);
  return share;
}

void
plan_layer_quantise_gradient (PlanLayer *self, const PlanNode *node, PlanRef *out_row,
                              PlanRef *out_col)
{
  PlanLower *lower = self->lower;
  const gboolean is_ready = self->ready == node;
  const PlanRef dout = is_ready ? PLAN_REF_NONE : plan_layer_gradient (self, node->out);
  *out_row = *out_col = dout;
  if (!self->sizes->quantises)
    return;
  const PlanRef col = plan_lower_ref (lower->layer.quantised_grad_col[node->out]);
  *out_row = plan_lower_ref (lower->layer.quantised_grad[node->out]);
  *out_col = self->sizes->has_columns ? col : *out_row;
  self->ready = NULL;
  if (is_ready)
    return;
  plan_lower_alloc (lower, *out_row);
  if (self->sizes->has_columns)
    plan_lower_alloc (lower, col);
  plan_layer_quantise_rows (
      self, node, PLAN_REFS (*out_row, self->sizes->has_columns ? col : PLAN_REF_NONE, dout));
}

/* Begins the collective of a backward pass: an all-gather where the forward pass reduce-scatters,
 * and the other way round. */
static PlanRef
begin_exchange_backward (PlanLayer *self, const PlanNode *node, PlanRef dout)
{
  const gboolean gathers = node->kind == PLAN_NODE_REDUCE_TP;
  const PlanRef din = plan_layer_take_share (self, node->in);
  plan_lower_begin_exchange (self->lower, gathers ? PLAN_OP_ALL_GATHER : PLAN_OP_REDUCE_SCATTER,
                             PLAN_REFS (din, dout), node->cols);
  return din;
}

static void
begin_sum_backward (PlanLayer *self, PlanRef din)
{
  plan_lower_begin_exchange (self->lower, PLAN_OP_ALL_REDUCE, PLAN_REFS (din),
                             (gint64)self->net->values[PLAN_VALUE_X].elements);
}

/* The node that quantises a product's input, if our own kernels reduce the gradient of that piece
 * by piece. NULL: there is none. */
static const PlanNode *
quantiser_of (const PlanLayer *self, const PlanNode *linear)
{
  const gboolean looks = self->sizes->quantises && plan_lower_sums_gradient (self->lower);
  for (const PlanNode *node = self->net->nodes; looks && node < linear; node++)
    if (node->kind == PLAN_NODE_QUANTIZE && node->out == linear->in)
      return node;
  return NULL;
}

/* The node that makes a product's input whole within the tensor-parallel group, if its backward
 * pass can run beside the GEMM of the weight's gradient, or piece by piece beside that of the
 * input's. NULL: there is none. */
static const PlanNode *
maker_beside (const PlanLayer *self, const PlanNode *linear)
{
  if (!plan_layer_exchanges_beside (self) || self->slot[linear->in] >= 0)
    return NULL;
  const PlanNode *quantise = quantiser_of (self, linear);
  for (const PlanNode *node = self->net->nodes; node < linear; node++)
    if ((node->kind == PLAN_NODE_GATHER_SEQ || node->kind == PLAN_NODE_COPY_TP)
        && node->out == (quantise ? quantise->in : linear->in) && !node->is_lazy)
      return node;
  return NULL;
}

static void
end_linear_backward (PlanLayer *self, const PlanNode *node, const PlanNode *maker, PlanRef din,
                     PlanRef whole)
{
  const gboolean is_split = maker && maker->kind == PLAN_NODE_GATHER_SEQ;
  const PlanNode *quantise = maker ? quantiser_of (self, node) : NULL;
  if (maker)
    self->done_backward |= plan_node_bit ((guint)(maker - self->net->nodes));
  if (quantise)
    self->done_backward |= plan_node_bit ((guint)(quantise - self->net->nodes));
  if (maker && !plan_lower_sums_gradient (self->lower))
    plan_lower_await_exchange (self->lower);
  if (whole.array >= 0)
    plan_lower_free (self->lower, whole);
  plan_layer_add_share (self, is_split ? maker->in : node->in, din);
}

/* Puts this rank's part of the gradient of a product's output, in the format of products, where the
 * other ranks' parts are gathered beside it. Returns the whole buffer. */
static PlanRef
place_own_gradient (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const guint64 elements = (guint64)(node->rows * node->cols);
  const guint64 own = plan_lower_own_part (lower, elements);
  const gint64 rows = self->sizes->split_rows;
  const PlanRef part = plan_layer_gradient (self, self->summed->out);
  PlanRef whole;
  if (self->sizes->quantises)
    {
      whole = plan_lower_ref (lower->layer.quantised_grad[node->out]);
      plan_lower_alloc (lower, whole);
      plan_lower_quantise (lower, node->weight, PLAN_QUANTIZER_GRADIENT, self->unit,
                           PLAN_REFS (plan_lower_at (whole, own), PLAN_REF_NONE, part), rows,
                           node->cols);
    }
  else
    {
      whole = plan_layer_take_share (self, node->out);
      plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (plan_lower_at (whole, own), part),
                          PLAN_DIMS (rows * node->cols));
      plan_layer_add_share (self, node->out, whole);
    }
  plan_layer_drop_gradient (self, self->summed->out);
  return whole;
}

/* Transposes that gradient once all of it is there, for the GEMM of the weight's gradient. */
static PlanRef
transpose_gradient (PlanLayer *self, const PlanNode *node, PlanRef row)
{
  const PlanRef col = plan_lower_ref (self->lower->layer.quantised_grad_col[node->out]);
  if (!self->sizes->has_columns)
    return row;
  plan_lower_alloc (self->lower, col);
  plan_lower_compute (self->lower, PLAN_OP_TRANSPOSE, PLAN_REFS (col, row),
                      PLAN_DIMS (node->rows, node->cols));
  return col;
}

/* Makes the gradient of a product's input, reduced piece by piece to that of what `gather` reads.
 * Returns the latter. */
static PlanRef
sum_in_pieces (PlanLayer *self, const PlanLowerProduct *product, const PlanNode *gather)
{
  const PlanRef sum = plan_layer_take_share (self, gather->in);
  plan_lower_reduced_product (self->lower, product, sum);
  plan_lower_free (self->lower, product->out);
  return sum;
}

/* The gradient of a product's input, or of what `gather` made it from. `out_col`: the gradient of
 * its output as the GEMM of the weight's gradient reads it. */
static PlanRef
input_gradient (PlanLayer *self, const PlanNode *node, const PlanNode *gather, PlanRef *out_col)
{
  PlanLower *lower = self->lower;
  const gboolean gathers = self->summed && self->summed->in == node->out;
  PlanLowerProduct product
      = { .bias = PLAN_REF_NONE, .rows = node->rows, .cols = node->depth, .depth = node->cols };
  if (gathers)
    product.in = place_own_gradient (self, node);
  else
    plan_layer_quantise_gradient (self, node, &product.in, out_col);
  product.weight
      = plan_lower_product_weight (lower, node->weight, self->unit, TRUE, &product.layout);
  product.out = plan_layer_take_share (self, node->in);
  plan_lower_quantise_weight (lower, node, self->unit);
  if (gathers)
    {
      const guint64 own = plan_lower_own_part (lower, (guint64)(node->rows * node->cols));
      plan_lower_gathered_product (lower, &product, plan_lower_at (product.in, own));
      *out_col = transpose_gradient (self, node, product.in);
      self->summed = NULL;
    }
  else if (gather)
    product.out = sum_in_pieces (self, &product, gather);
  else
    plan_lower_compute (lower, PLAN_OP_GEMM,
                        PLAN_REFS (product.out, product.in, product.weight, PLAN_REF_NONE),
                        PLAN_DIMS (product.rows, product.cols, product.depth, product.layout));
  plan_lower_drop_quantised_weight (lower, node);
  if (self->sizes->has_columns)
    plan_lower_free (lower, product.in);
  return product.out;
}

gboolean
plan_layer_delays (PlanLayer *self, const PlanNode *node, PlanRef of)
{
  const guint i = (guint)(node - self->net->nodes);
  if (!self->delays)
    return FALSE;
  self->delayed |= plan_node_bit (i);
  self->delayed_of[i] = of;
  self->held |= plan_value_bit (node->kept) | plan_value_bit (node->map);
  return TRUE;
}

/* The gradient of a product's bias. If a tensor-parallel group sums its ranks' products, every rank
 * has the whole gradient of the sum, and the first rank alone made use of the bias: where the group
 * sums gradients of biases, the others leave zeros. */
static void
bias_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef raw = plan_lower_raw_gradient (lower, node->bias, self->unit);
  if (lower->place.tensor_rank > 0 && plan_lower_sums (lower, node->bias))
    plan_lower_compute (lower, PLAN_OP_ZERO, PLAN_REFS (raw), PLAN_DIMS (node->cols));
  else
    plan_lower_compute (lower, PLAN_OP_BIAS_BWD,
                        PLAN_REFS (raw, plan_layer_gradient (self, node->out)),
                        PLAN_DIMS (node->rows, node->cols));
  plan_lower_put_gradient (lower, node->bias, self->unit, FALSE);
}

void
plan_layer_weigh (PlanLayer *self, const PlanNode *node, PlanRef of)
{
  PlanLower *lower = self->lower;
  if (plan_layer_delays (self, node, of))
    return;
  plan_lower_weight_gradient (lower, node->weight, self->unit, of,
                              plan_layer_value (self, node->kept), node->rows, node->cols,
                              node->depth, self->sizes->has_columns ? 1 : 2);
  if (self->sizes->quantises)
    plan_lower_free (lower, of);
  if (node->bias != PLAN_N_TENSORS)
    bias_backward (self, node);
  plan_layer_drop_gradient (self, node->out);
}

static void
linear_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanNode *maker = maker_beside (self, node);
  const PlanNode *gather = plan_lower_sums_gradient (lower) ? maker : NULL;
  PlanRef col, whole = PLAN_REF_NONE;
  PlanRef din = input_gradient (self, node, gather, &col);
  if (self->beside)
    plan_lower_await_exchange (lower);
  self->beside = NULL;
  if (maker && maker->kind == PLAN_NODE_COPY_TP)
    begin_sum_backward (self, din);
  else if (maker && !gather)
    {
      whole = din;
      din = begin_exchange_backward (self, maker, whole);
    }
  plan_layer_weigh (self, node, col);
  end_linear_backward (self, node, maker, din, whole);
}

static void
attention_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanRef din = plan_lower_ref (self->lower->layer.grad[node->in]);
  plan_lower_attention_backward (
      self->lower,
      PLAN_REFS (din, plan_layer_gradient (self, node->out), plan_layer_value (self, node->out),
                 plan_layer_value (self, node->stats), plan_layer_value (self, node->in),
                 plan_lower_attention_key (self->lower, self->unit)),
      self->net->keys);
  plan_lower_sink_backward (self->lower, plan_layer_gradient (self, node->out),
                            plan_layer_value (self, node->out),
                            plan_layer_value (self, node->stats), self->unit);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

static void
repeat_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanRef din = plan_layer_take_share (self, node->in);
  plan_lower_compute (self->lower, PLAN_OP_REPEAT_HEADS_BWD,
                      PLAN_REFS (din, plan_layer_gradient (self, node->out)),
                      plan_layer_head_dims (self));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

static void
head_norm_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanTensorRole roles[] = { PLAN_TENSOR_Q_NORM, PLAN_TENSOR_K_NORM };
  const guint n = lower->model->qk_norm ? G_N_ELEMENTS (roles) : 0; /* else without weights */
  PlanRef raw[2] = { PLAN_REF_NONE, PLAN_REF_NONE }, weight[2] = { PLAN_REF_NONE, PLAN_REF_NONE };
  const PlanRef din = plan_layer_take_share (self, node->in);
  for (guint i = 0; i < n; i++)
    {
      raw[i] = plan_lower_raw_gradient (lower, roles[i], self->unit);
      weight[i] = plan_lower_weight (lower, roles[i], self->unit);
    }
  plan_lower_compute (lower, PLAN_OP_HEAD_NORM_BWD,
                      PLAN_REFS (din, raw[0], raw[1], plan_layer_gradient (self, node->out),
                                 plan_layer_value (self, node->in), weight[0], weight[1],
                                 plan_layer_value (self, node->stats)),
                      plan_layer_norm_dims (self));
  for (guint i = 0; i < n; i++)
    plan_lower_put_gradient (lower, roles[i], self->unit, FALSE);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* Returns the product whose output a node activates, if the gradient of that is quantised as it is
 * made: if nobody else reads it. NULL: there is none. */
static const PlanNode *
product_before (const PlanLayer *self, const PlanNode *node)
{
  const PlanNode *linear = node - 1;
  const gboolean fits = node > self->net->nodes && node->kind == PLAN_NODE_ACTIVATE
                        && plan_layer_makes_quantised (self) && self->slot[node->in] < 0
                        && linear->kind == PLAN_NODE_LINEAR && linear->out == node->in
                        && linear->bias == PLAN_N_TENSORS && !self->summed;
  return fits ? linear : NULL;
}

static void
activate_backward_quantised (PlanLayer *self, const PlanNode *node, const PlanNode *linear)
{
  PlanLower *lower = self->lower;
  const PlanRef row = plan_lower_ref (lower->layer.quantised_grad[linear->out]);
  const PlanRef col = self->sizes->has_columns
                          ? plan_lower_ref (lower->layer.quantised_grad_col[linear->out])
                          : PLAN_REF_NONE;
  const PlanTensorRole weight = linear->weight;
  plan_lower_alloc (lower, row);
  if (col.array >= 0)
    plan_lower_alloc (lower, col);
  plan_lower_compute (
      lower, PLAN_OP_SWIGLU_BWD_QUANTIZE,
      PLAN_REFS (row, col, plan_layer_value (self, node->in),
                 plan_lower_site_scale (lower, weight, PLAN_QUANTIZER_GRADIENT, self->unit),
                 plan_lower_site_amax (lower, weight, PLAN_QUANTIZER_GRADIENT, self->unit),
                 plan_layer_gradient (self, node->out)),
      PLAN_DIMS (node->rows, node->cols));
  plan_layer_drop_gradient (self, node->out);
  self->ready = linear;
}

void
plan_layer_activate_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanModel *m = self->lower->model;
  const PlanNode *linear = product_before (self, node);
  if (linear)
    {
      activate_backward_quantised (self, node, linear);
      return;
    }
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef *refs = PLAN_REFS (din, plan_layer_gradient (self, node->out),
                                   plan_layer_value (self, node->in), PLAN_REF_NONE);
  if (plan_layer_is_swiglu (m))
    plan_lower_compute (self->lower, PLAN_OP_SWIGLU_BWD, refs, PLAN_DIMS (node->rows, node->cols));
  else
    plan_lower_compute (self->lower, PLAN_OP_ACTIVATE_BWD, refs,
                        PLAN_DIMS (node->rows, node->cols, m->activation, m->gated));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* Whether the product before this sum gathers the sum's gradient by itself, piece by piece. */
static gboolean
leaves_gather (const PlanLayer *self, const PlanNode *node)
{
  for (const PlanNode *linear = self->net->nodes; linear < node; linear++)
    if (linear->kind == PLAN_NODE_LINEAR && linear->out == node->in)
      return plan_lower_gathers_gradient (self->lower, linear);
  return FALSE;
}

static void
exchange_backward (PlanLayer *self, const PlanNode *node)
{
  if (node->kind == PLAN_NODE_REDUCE_TP && leaves_gather (self, node))
    {
      self->summed = node;
      return;
    }
  const PlanRef din = begin_exchange_backward (self, node, plan_layer_gradient (self, node->out));
  plan_lower_await_exchange (self->lower);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* If a norm's input has a share of its gradient already, and kernels of norms can add, this kernel
 * adds its own share to it. */
static void
norm_node_backward (PlanLayer *self, const PlanNode *node)
{
  const gboolean adds
      = self->lower->stack->layer.kernels == PLAN_KERNELS_OWN && self->slot[node->in] >= 0;
  const PlanRef before = adds ? plan_layer_gradient (self, node->in) : PLAN_REF_NONE;
  const PlanRef total = !adds ? plan_layer_take_share (self, node->in)
                        : self->lower->layer.grad_sum[node->in] < 0 ? before
                                                                    : gradient_sum (self, node->in);
  if (adds && !is_same (before, total))
    plan_lower_alloc (self->lower, total);
  plan_lower_norm_backward_add (self->lower,
                                PLAN_REFS (total, plan_layer_gradient (self, node->out),
                                           plan_layer_value (self, node->in),
                                           plan_layer_value (self, node->stats), before),
                                node->weight, node->bias, self->unit, node->rows);
  plan_layer_drop_gradient (self, node->out);
  if (adds && !is_same (before, total))
    {
      plan_layer_drop_gradient (self, node->in);
      hold_gradient (self, node->in, total);
    }
  else if (!adds)
    plan_layer_add_share (self, node->in, total);
}

static void
add_backward (PlanLayer *self, const PlanNode *node)
{
  pass_gradient (self, node->out, node->in);
  if (!node->drops)
    pass_gradient (self, node->out, node->other);
  else
    {
      const PlanRef share = plan_layer_take_share (self, node->other);
      plan_lower_dropout (self->lower, PLAN_OP_DROPOUT_BWD,
                          PLAN_REFS (share, plan_layer_gradient (self, node->out),
                                     plan_layer_value (self, node->stats)),
                          plan_lower_random_key (self->lower, self->unit),
                          PLAN_DIMS (node->rows, node->cols, node->out == PLAN_VALUE_OUT));
      plan_layer_add_share (self, node->other, share);
    }
  plan_layer_drop_gradient (self, node->out);
}

static void
node_backward (PlanLayer *self, const PlanNode *node)
{
  if (self->done_backward >> (node - self->net->nodes) & 1)
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
      plan_layer_drop_gradient (self, node->out);
      return;
    case PLAN_NODE_GATHER_SEQ:
      exchange_backward (self, node);
      return;
    case PLAN_NODE_COPY_TP:
      begin_sum_backward (self, plan_layer_gradient (self, node->in));
      plan_lower_await_exchange (self->lower);
      return;
    case PLAN_NODE_LINEAR:
      linear_backward (self, node);
      return;
    case PLAN_NODE_HEAD_NORM:
      head_norm_backward (self, node);
      return;
    case PLAN_NODE_ROPE:
      plan_layer_rope (self, plan_layer_gradient (self, node->in), 1);
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
      plan_layer_activate_backward (self, node);
      return;
    case PLAN_NODE_ADD:
      add_backward (self, node);
      return;
    default: /* nodes of other mixers of tokens, and of experts */
      if (!plan_layer_mix_backward (self, node))
        plan_layer_experts_backward (self, node);
      return;
    }
}

static void
begin_backward (PlanLayer *self, PlanLowerKeep keep)
{
  const PlanLayerGraph *net = self->net;
  memset (self->slot, -1, sizeof self->slot);
  self->live = (plan_lower_kept (self->lower, keep) & ~plan_value_bit (PLAN_VALUE_OUT))
               | plan_value_bit (PLAN_VALUE_X);
  hold_gradient (self, PLAN_VALUE_OUT, plan_lower_layer_gradient (self->lower, self->unit, 1));
  if (self->lower->policy.transposes_weights)
    for (guint i = 0; i < net->n_nodes; i++)
      if (plan_node_is_product (&net->nodes[i]))
        plan_lower_transpose_weight (self->lower, &net->nodes[i], self->unit);
}

/* The values that a node's backward pass needs. Where a cheap node makes one of them again, what it
 * reads is needed, too; and where that is recomputed in turn, what it is recomputed from. */
static PlanValueSet
needs_of (const PlanLayerGraph *net, guint node, PlanNodeSet again, PlanValueSet kept)
{
  PlanValueSet needs = net->nodes[node].needs, of_cheap = 0;
  for (guint j = node; j-- > 0;)
    if (net->nodes[j].is_cheap && (net->nodes[j].makes & (needs | of_cheap)))
      of_cheap |= net->nodes[j].reads;
  needs |= of_cheap;
  for (guint j = 0; of_cheap && j < node; j++)
    if ((again >> j & 1) && (net->nodes[j].makes & of_cheap))
      needs |= net->nodes[j].reads & kept;
  return needs;
}

void
plan_layer_begin_backward (PlanLayerPass *self, PlanLower *lower, PlanLowerUnit unit,
                           PlanLowerKeep keep)
{
  const PlanLayerGraph *net = lower->graphs->of[keep.kind];
  const PlanValueSet kept = plan_lower_kept (lower, keep);
  self->layer = (PlanLayer){ .lower = lower, .net = net, .sizes = lower->sizes, .unit = unit };
  self->keep = keep;
  self->at = net->n_nodes;
  self->needs[0] = 0;
  for (guint i = 0; i < net->n_nodes; i++)
    self->needs[i + 1]
        = self->needs[i] | needs_of (net, i, keep.again, kept)
          | (net->captured >> i & 1 ? net->outside & ~plan_value_bit (PLAN_VALUE_OUT) : 0);
  lower->now.kind = keep.kind;
  begin_backward (&self->layer, keep);
}

/* Whether recompute leaves out what nobody reads: a framework stops early, or a compiler does it.
 */
static gboolean
recomputes_what_is_read (const PlanLower *self)
{
  const PlanStackLayer *layer = &self->stack->layer;
  const gboolean is_compiled_whole
      = self->plan->value[PLAN_COMPILE] == PLAN_COMPILE_ON
        && !(layer->compiles_parts && (self->now.kind & PLAN_LAYER_EXPERTS));
  return layer->repeats != PLAN_REPEATS_OUTPUTS || is_compiled_whole;
}

/* The nodes that checkpointing runs again before the backward pass of a node, whatever that needs.
 * PyTorch's checkpoint runs all of a layer again, once its first tensor is asked for. */
static PlanNodeSet
repeated_at (const PlanLayer *self, PlanNodeSet again, guint node)
{
  const PlanLayerGraph *net = self->net;
  PlanNodeSet lazy = 0;
  PlanValueSet needed = 0;
  if (self->lower->stack->layer.kernels != PLAN_KERNELS_PYTORCH)
    return recomputes_what_is_read (self->lower) ? 0 : plan_layer_checkpointed (net, again, node);
  for (guint i = 0; i < net->n_nodes; i++)
    {
      lazy |= net->nodes[i].is_lazy ? plan_node_bit (i) : 0;
      needed |= net->nodes[i].needs;
    }
  return node + 1 < net->n_nodes || !again       ? 0
         : recomputes_what_is_read (self->lower) ? plan_layer_nodes_towards (self, needed) & ~lazy
                                                 : again & ~lazy;
}

void
plan_layer_go_backward (PlanLayerPass *self, guint end)
{
  PlanLayer *layer = &self->layer;
  PlanLower *lower = layer->lower;
  const PlanValueSet *needed = self->needs;
  lower->now.kind = self->keep.kind;
  for (; self->at > end; self->at--)
    {
      const guint i = self->at - 1;
      const PlanNode *node = &layer->net->nodes[i];
      const PlanNodeSet whole = repeated_at (layer, self->keep.again, i);
      const PlanValueSet needs = layer->done_backward >> i & 1 ? 0 : node->needs;
      const PlanNodeSet again = whole | plan_layer_nodes_towards (layer, needs);
      layer->beside = plan_layer_gathers_beside (layer, node, again);
      const PlanValueSet sent = layer->beside ? layer->beside->reads : 0;
      if (lower->beside.is_away && node->module != PLAN_MODULE_SHARED)
        plan_layer_meet_rows (layer);
      plan_layer_enter (layer, i, TRUE);
      plan_layer_run_again (layer, again, needed[i + 1] | layer->held);
      lower->beside.is_begun = node->goes_beside;
      if (!node->is_lazy)
        node_backward (layer, node);
      plan_layer_leave (layer, i, TRUE);
      plan_layer_give (layer, (needed[i + 1] | sent) & ~needed[i] & ~layer->held);
      lower->beside.is_away |= lower->beside.is_begun;
      lower->beside.is_begun = FALSE;
    }
}

void
plan_layer_catch_up (PlanLayerPass *self)
{
  PlanLayer *layer = &self->layer;
  layer->lower->now.kind = self->keep.kind;
  layer->delays = FALSE;
  if (layer->graph != PLAN_GRAPH_NONE) /* a graph of its own */
    layer->graph = PLAN_GRAPH_BACKWARD;
  for (guint i = layer->net->n_nodes; i-- > 0;)
    if (layer->delayed >> i & 1)
      {
        const PlanNode *node = &layer->net->nodes[i];
        plan_layer_enter (layer, i, TRUE);
        if (node->kind == PLAN_NODE_EXPERT_LINEAR)
          plan_layer_weigh_experts (layer, node, layer->delayed_of[i]);
        else
          plan_layer_weigh (layer, node, layer->delayed_of[i]);
        plan_layer_leave (layer, i, FALSE);
      }
  plan_layer_give (layer, layer->held & ~self->needs[self->at]);
  layer->delayed = layer->held = 0;
}

void
plan_layer_end_backward (PlanLayerPass *self)
{
  plan_layer_give (&self->layer, plan_value_bit (PLAN_VALUE_X));
  plan_lower_drop_transposes (self->layer.lower, self->layer.net);
}

void
plan_lower_layer_backward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep)
{
  PlanLayerPass pass;
  plan_layer_begin_backward (&pass, self, unit, keep);
  plan_layer_go_backward (&pass, 0);
  plan_layer_end_backward (&pass);
}
