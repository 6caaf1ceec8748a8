/* SPDX-License-Identifier: Apache-2.0 */
/* Experts, in either pass: the router, sending tokens to their experts and back, and the products
 * of experts (after Megatron-LM's moe_layer.py, router.py and token_dispatcher.py at d98e8a64).
 * Every rank is taken to get `expert_rows` rows: as many as the fullest rank gets. */
#include "config.h"

#include "planner/base/units.h"
#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-step.h"

#define REF(array) plan_lower_ref (lower->array)

/* DeepEP's buffers have channels of two SMs each. A channel has room for rows in flight from each
 * linked rank, and, each way, for rows of each node. A row is its bf16 values, 8 bytes of source,
 * and room for 128 expert indices, probabilities and scales (csrc/config.hpp,
 * Config::get_*_size_hint, and deep_ep/buffer.py, get_dispatch_config and get_combine_config). */
#define DEEPEP_CHANNELS 10
static const struct
{
  gint64 ranks;
  guint64 near, far; /* rows in flight */
} deepep_rows[] = { { 8, 256, 0 },     { 16, 288, 128 },  { 64, 288, 128 },        { 96, 480, 128 },
                    { 128, 560, 128 }, { 144, 720, 128 }, { G_MAXINT64, 720, 128 } };

static guint64
deepep_bytes (const PlanLower *self, gint64 linked)
{
  const gint64 ep = self->plan->value[PLAN_EP];
  const guint64 row
      = 2 * (guint64)plan_model_expert_width (self->model) + 8 + 128 * 8 + 128 * 4 + 128 * 4;
  guint i = 0;
  while (deepep_rows[i].ranks < ep)
    i++;
  const guint64 nodes = (guint64)((ep + linked - 1) / linked);
  return DEEPEP_CHANNELS * row
         * ((guint64)linked * deepep_rows[i].near
            + (nodes > 1 ? 2 * nodes * deepep_rows[i].far : 0));
}

/* HybridEP's buffers have room for all rows of the group (csrc/hybrid_ep/buffer/intranode.cu). */
static guint64
hybridep_bytes (const PlanLower *self, gint64 linked)
{
  const guint64 rows = (guint64)(self->sizes->split_rows * self->plan->value[PLAN_EP]);
  return rows
         * (2 * (guint64)plan_model_expert_width (self->model)
            + 4 * (guint64)(self->sizes->experts * linked));
}

guint64
plan_lower_dispatch_bytes (const PlanLower *self)
{
  const gint64 ep = self->plan->value[PLAN_EP];
  const gint64 linked = CLAMP (plan_cluster_linked_devices (self->cluster), 1, ep);
  switch (self->plan->value[PLAN_MOE_DISPATCHER])
    {
    case PLAN_MOE_DISPATCHER_DEEPEP:
      return deepep_bytes (self, linked);
    case PLAN_MOE_DISPATCHER_HYBRIDEP:
      return hybridep_bytes (self, linked);
    default:
      return 0;
    }
}

static gint32
buffer (PlanLower *self, const char *name, guint64 elements, PlanDtype dtype)
{
  return plan_schedule_add_buffer (self->schedule, name, 1, elements, dtype,
                                   PLAN_CATEGORY_ACTIVATIONS);
}

/* Transformer Engine keeps a workspace for each stream over which it spreads the products of
 * experts (cpp_extensions/gemm.py and csrc/extensions/pybind.cpp at d0067d0d; module/base.py since
 * PR #853). */
#define PRODUCT_STREAMS 4
static guint64
product_work_bytes (const PlanLower *self)
{
  if (self->stack->layer.kernels != PLAN_KERNELS_TRANSFORMER_ENGINE
      || self->cluster->kind != PLAN_DEVICE_GPU || plan_lower_is_sequential (self))
    return 0;
  return PRODUCT_STREAMS * (self->cluster->compute_capability >= 90 ? 32 : 4) * PLAN_MIB;
}

void
plan_lower_declare_router (PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const guint64 tokens = (guint64)(sizes->split_rows * self->model->hidden);
  const guint64 scores = (guint64)(sizes->split_rows * self->model->experts);
  self->experts.scores = self->experts.dscores = self->experts.wide_tokens
      = self->experts.dwide_tokens = self->event.sent_rows = -1;
  self->experts.dgate = -1;
  self->experts.work = self->experts.counts = -1;
  self->experts.counted = 0;
  plan_lower_declare_joined_rows (self);
  plan_lower_declare_moves (self);
  if (self->model->experts == 0)
    return;
  if (product_work_bytes (self) > 0)
    self->experts.work = plan_schedule_add_buffer (self->schedule, "expert_product_work", 1,
                                                   product_work_bytes (self), PLAN_DTYPE_U8,
                                                   PLAN_CATEGORY_WORKSPACE);
  self->experts.scores = buffer (self, "scores", scores, sizes->router);
  self->experts.dscores = buffer (self, "d.scores", scores, sizes->router);
  if (sizes->router != sizes->compute)
    {
      self->experts.wide_tokens = buffer (self, "wide_tokens", tokens, sizes->router);
      self->experts.dwide_tokens = buffer (self, "d.wide_tokens", tokens, sizes->router);
    }
  if (self->comm.sequence >= 0)
    {
      self->experts.counts
          = buffer (self, "route.counts", (guint64)self->model->experts, PLAN_DTYPE_FP32);
      self->experts.counted
          = sizes->split_rows * self->plan->value[PLAN_TP] * self->plan->value[PLAN_CP];
    }
  if (self->model->shared_gate)
    self->experts.dgate
        = buffer (self, "d.shared.score", (guint64)sizes->split_rows, sizes->compute);
  const gboolean has_own_bias = plan_lower_adds_own_bias (self);
  self->experts.dprobs
      = has_own_bias ? buffer (self, "d.bias_shares", (guint64)sizes->expert_rows, PLAN_DTYPE_FP32)
                     : -1;
  plan_lower_declare_wide_rows (self);
  self->event.sent_rows = plan_schedule_add_event (self->schedule, "sent_rows", 1);
  if (self->combined.is_planned)
    self->combined.ready = plan_schedule_add_event (self->schedule, "ready", 2);
  if (self->combined.is_planned)
    self->combined.arrived = plan_schedule_add_event (self->schedule, "arrived", 2);
}

static PlanRef
value (const PlanLayer *self, PlanValueId id)
{
  return plan_layer_value (self, id);
}

/* Scores of all experts, and the best ones of each token. ROUTE saves what the gradient needs, so
 * the scores are freed. */
static void
route (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  plan_lower_alloc (lower, REF (experts.scores));
  plan_lower_compute (lower, PLAN_OP_GEMM,
                      PLAN_REFS (REF (experts.scores), value (self, node->in),
                                 plan_lower_weight (lower, node->weight, self->unit),
                                 plan_lower_weight (lower, node->bias, self->unit)),
                      PLAN_DIMS (node->rows, node->cols, node->depth, 1));
  plan_lower_compute (
      lower, PLAN_OP_ROUTE,
      PLAN_REFS (value (self, node->out), value (self, node->stats), value (self, node->col),
                 REF (experts.scores), plan_lower_of_layer (lower->experts.balance, self->unit),
                 plan_lower_of_layer (self->is_replay ? -1 : lower->experts.loads, self->unit)),
      PLAN_DIMS (node->rows, node->cols, lower->model->topk));
  plan_lower_free (lower, REF (experts.scores));
}

/* Counts the tokens of each expert, of all ranks that have parts of the same sequences, for the
 * auxiliary loss. */
static void
count_tokens (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef counts = REF (experts.counts);
  if (counts.array < 0)
    return;
  plan_lower_alloc (lower, counts);
  plan_lower_compute (lower, PLAN_OP_COUNT_ROUTES, PLAN_REFS (counts, value (self, node->col)),
                      PLAN_DIMS (node->rows, node->cols));
  plan_lower_collective (lower, PLAN_OP_ALL_REDUCE, PLAN_STREAM_TENSOR, lower->comm.sequence,
                         PLAN_REFS (counts), node->cols, PLAN_REF_NONE, REF (event.sent_rows));
  plan_lower_wait (lower, REF (event.sent_rows));
}

/* Backward pass of the router. Both GEMMs work on copies in the router's format, if that is wider
 * (moe_utils.py, RouterGatingLinear). */
static void
route_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const gint64 tokens = node->rows * node->depth;
  const PlanRef dprobs = REF (layer.grad[PLAN_VALUE_PROBS]),
                din = plan_layer_take_share (self, node->in);
  const gboolean is_wide = lower->experts.wide_tokens >= 0;
  const PlanRef in = value (self, node->in);
  const PlanRef weight = plan_lower_weight (lower, node->weight, self->unit);
  count_tokens (self, node);
  plan_lower_alloc (lower, REF (experts.dscores));
  plan_lower_compute (lower, PLAN_OP_ROUTE_BWD,
                      PLAN_REFS (REF (experts.dscores), dprobs, value (self, node->stats),
                                 value (self, node->col), REF (experts.counts)),
                      PLAN_DIMS (node->rows, node->cols, lower->model->topk));
  if (lower->experts.counts >= 0)
    plan_lower_free (lower, REF (experts.counts));
  plan_lower_free (lower, dprobs);
  if (is_wide)
    {
      plan_lower_alloc (lower, REF (experts.wide_tokens));
      plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (REF (experts.wide_tokens), in),
                          PLAN_DIMS (tokens));
      plan_lower_alloc (lower, REF (experts.dwide_tokens));
    }
  plan_lower_compute (lower, PLAN_OP_GEMM,
                      PLAN_REFS (is_wide ? REF (experts.dwide_tokens) : din, REF (experts.dscores),
                                 weight, PLAN_REF_NONE),
                      PLAN_DIMS (node->rows, node->depth, node->cols, 0));
  if (is_wide)
    {
      plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (din, REF (experts.dwide_tokens)),
                          PLAN_DIMS (tokens));
      plan_lower_free (lower, REF (experts.dwide_tokens));
    }
  plan_lower_weight_gradient (lower, node->weight, self->unit, REF (experts.dscores),
                              is_wide ? REF (experts.wide_tokens) : in, node->rows, node->cols,
                              node->depth, 2);
  if (is_wide)
    plan_lower_free (lower, REF (experts.wide_tokens));
  if (node->bias != PLAN_N_TENSORS)
    {
      plan_lower_compute (lower, PLAN_OP_BIAS_BWD,
                          PLAN_REFS (plan_lower_raw_gradient (lower, node->bias, self->unit),
                                     REF (experts.dscores)),
                          PLAN_DIMS (node->rows, node->cols));
      plan_lower_put_gradient (lower, node->bias, self->unit, FALSE);
    }
  plan_lower_free (lower, REF (experts.dscores));
  plan_layer_add_share (self, node->in, din);
}

static void
drop (PlanLayer *self, const PlanNode *node)
{
  plan_lower_compute (self->lower, PLAN_OP_DROP_TOKENS,
                      PLAN_REFS (value (self, node->out), value (self, node->stats),
                                 value (self, node->in), value (self, node->map)),
                      PLAN_DIMS (node->rows, node->cols, self->sizes->capacity));
}

/* Our own kernels leave 0 where a token was dropped. */
static void
drop_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = REF (layer.grad[node->in]), dout = REF (layer.grad[node->out]);
  plan_lower_alloc (lower, din);
  if (lower->stack->layer.kernels == PLAN_KERNELS_OWN)
    plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (din, dout),
                        PLAN_DIMS (node->rows * node->cols));
  else
    plan_lower_dropout (lower, PLAN_OP_DROPOUT_BWD,
                        PLAN_REFS (din, dout, value (self, node->stats)), PLAN_REF_NONE,
                        PLAN_DIMS (node->rows, node->cols, 0));
  plan_lower_free (lower, dout);
}

/* The dims of an op that moves rows. Rows of zeros among those that experts read have no share. */
static const gint64 *
move_dims (const PlanLayer *self, const PlanNode *node, gboolean is_back, gint64 *out_dims)
{
  const gint64 sorted = is_back ? node->rows : node->depth;
  out_dims[0] = is_back ? node->depth : node->rows;
  out_dims[1] = sorted;
  out_dims[2] = node->cols;
  out_dims[3] = node->entries;
  out_dims[4] = sorted == self->sizes->expert_rows ? sorted - self->sizes->empty_rows : sorted;
  return out_dims;
}

/* Makes the host wait until it knows how many rows go where, before it can issue the ops that move
 * them. In combined passes it waits elsewhere (lower-combined.c); where op-sac keeps these numbers,
 * recompute has them. */
static void
wait_for_counts (PlanLayer *self, gboolean waits)
{
  const gboolean has_them = self->is_replay && (self->sizes->sac & PLAN_SAC_ROWS);
  if (waits && !has_them && !self->lower->combined.is_now)
    plan_lower_look (self->lower);
}

/* Moves blocks of equally many rows into another order. Their places are known, so there is no
 * map. */
static void
move_blocks (PlanLayer *self, const PlanNode *node, PlanRef out, PlanRef in)
{
  plan_lower_compute (self->lower, PLAN_OP_CAST, PLAN_REFS (out, in),
                      PLAN_DIMS (node->rows * node->cols));
}

static void
move_blocks_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanRef din = plan_layer_take_share (self, node->in);
  move_blocks (self, node, din, plan_layer_gradient (self, node->out));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

static gboolean
moves_eagerly (const PlanNode *node)
{
  return node->is_eager || node->pieces > 0;
}

/* The value that holds the probabilities of rows, which are permuted in place unless the node names
 * another value, if any are. */
static PlanValueId
shares_of (const PlanNode *node, PlanValueId said)
{
  return said == PLAN_NO_VALUE && !node->is_bare ? PLAN_VALUE_ROW_PROBS : said;
}

static void
permute (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef map = value (self, node->stats), from = value (self, node->map);
  const PlanRef routes = node->is_first_permute ? from : PLAN_REF_NONE;
  const gint64 ep = lower->plan->value[PLAN_EP], etp = lower->plan->value[PLAN_ETP];
  const gboolean is_read_by_experts = !node->is_first_permute || ep * etp == 1;
  gint64 dims[PLAN_N_DIMS_PERMUTE];
  if (moves_eagerly (node))
    {
      plan_layer_move_eagerly (self, node);
      wait_for_counts (self, node->waits);
      return;
    }
  if (node->stats == PLAN_NO_VALUE)
    {
      move_blocks (self, node, value (self, node->out), value (self, node->in));
      return;
    }
  if (node->waits_before)
    plan_lower_look (lower);
  if (self->sizes->row_multiple > 1 && is_read_by_experts)
    lower->now.multiple = self->sizes->row_multiple;
  if (self->sizes->pads)
    lower->now.capacity = self->sizes->capacity;
  plan_lower_compute (
      lower, PLAN_OP_ROW_MAP,
      PLAN_REFS (map, routes, node->is_first_permute ? PLAN_REF_NONE : from),
      PLAN_DIMS (node->rows, node->groups, node->is_first_permute ? ep : ep * etp, node->entries));
  lower->now.multiple = lower->now.capacity = 0;
  plan_lower_compute (lower, PLAN_OP_PERMUTE,
                      PLAN_REFS (value (self, node->out), value (self, node->in), map,
                                 value (self, shares_of (node, node->col)),
                                 value (self, shares_of (node, node->other))),
                      move_dims (self, node, FALSE, dims));
  wait_for_counts (self, node->waits);
}

static void
permute_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  if (moves_eagerly (node))
    {
      plan_layer_move_eagerly_backward (self, node);
      return;
    }
  if (node->stats == PLAN_NO_VALUE)
    {
      move_blocks_backward (self, node);
      return;
    }
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef none = PLAN_REF_NONE;
  const PlanRef row_dprobs = node->is_bare ? none : REF (layer.grad[shares_of (node, node->col)]);
  const PlanRef dprobs = node->is_bare ? none : REF (layer.grad[shares_of (node, node->other)]);
  const gboolean is_in_place = dprobs.array == row_dprobs.array;
  gint64 dims[PLAN_N_DIMS_PERMUTE];
  if (!is_in_place)
    plan_lower_alloc (lower, dprobs);
  plan_lower_compute (lower, PLAN_OP_UNPERMUTE,
                      PLAN_REFS (din, plan_layer_gradient (self, node->out),
                                 value (self, node->stats), dprobs, row_dprobs),
                      move_dims (self, node, FALSE, dims));
  plan_layer_drop_gradient (self, node->out);
  if (!is_in_place)
    plan_lower_free (lower, row_dprobs);
  plan_layer_add_share (self, node->in, din);
}

static void
unpermute (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_N_DIMS_PERMUTE];
  if (moves_eagerly (node))
    {
      plan_layer_move_eagerly (self, node);
      wait_for_counts (self, node->waits);
      return;
    }
  if (node->map == PLAN_NO_VALUE)
    {
      move_blocks (self, node, value (self, node->out), value (self, node->in));
      return;
    }
  plan_lower_compute (self->lower, PLAN_OP_UNPERMUTE,
                      PLAN_REFS (value (self, node->out), value (self, node->in),
                                 value (self, node->map), PLAN_REF_NONE, PLAN_REF_NONE),
                      move_dims (self, node, TRUE, dims));
  wait_for_counts (self, node->waits);
}

static void
unpermute_backward (PlanLayer *self, const PlanNode *node)
{
  if (moves_eagerly (node))
    {
      plan_layer_move_eagerly_backward (self, node);
      return;
    }
  if (node->map == PLAN_NO_VALUE)
    {
      move_blocks_backward (self, node);
      return;
    }
  const PlanRef din = plan_layer_take_share (self, node->in);
  gint64 dims[PLAN_N_DIMS_PERMUTE];
  plan_lower_compute (self->lower, PLAN_OP_PERMUTE,
                      PLAN_REFS (din, plan_layer_gradient (self, node->out),
                                 value (self, node->map), PLAN_REF_NONE, PLAN_REF_NONE),
                      move_dims (self, node, TRUE, dims));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* An all-to-all over the ranks that hold different experts, which compute waits for. */
static void
exchange (PlanLower *lower, PlanRef out, PlanRef in, gint64 count)
{
  plan_lower_collective (lower, PLAN_OP_ALL_TO_ALL, PLAN_STREAM_TENSOR, lower->comm.expert,
                         PLAN_REFS (out, in), count / lower->plan->value[PLAN_EP], PLAN_REF_NONE,
                         REF (event.sent_rows));
  if (!lower->beside.is_begun)
    plan_lower_wait (lower, REF (event.sent_rows));
}

/* The exchange by a library that sends each row once to each rank (DeepEP, HybridEP). `is_back`:
 * rows return, node->depth of them, to node->rows rows. `refs`: out, in, and both sides'
 * probabilities. */
static void
send_tokens (PlanLayer *self, const PlanNode *node, gboolean is_back, const PlanRef *refs)
{
  PlanLower *lower = self->lower;
  const gint64 here = is_back ? node->depth : node->rows,
               there = is_back ? node->rows : node->depth;
  plan_lower_collective_of (lower, PLAN_OP_SEND_TOKENS, PLAN_STREAM_TENSOR, lower->comm.expert,
                            refs, PLAN_DIMS (there, here, node->cols, node->near, node->far),
                            PLAN_REF_NONE, REF (event.sent_rows));
  if (!lower->beside.is_begun)
    plan_lower_wait (lower, REF (event.sent_rows));
}

/* Sends rows, and with them their probabilities if they go to the experts. */
static void
send_rows (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  if (node->near + node->far > 0)
    {
      wait_for_counts (self, node->waits);
      send_tokens (self, node, FALSE,
                   PLAN_REFS (value (self, node->out), value (self, node->in),
                              value (self, node->col), value (self, node->other)));
      return;
    }
  const PlanRef probs = value (self, node->other);
  const gboolean is_in_place = node->col == PLAN_NO_VALUE;
  if (node->stats != PLAN_NO_VALUE)
    exchange (lower, value (self, node->stats),
              plan_lower_at (value (self, node->map), (guint64)(node->entries - node->groups)),
              node->groups);
  exchange (lower, value (self, node->out), value (self, node->in), node->rows * node->cols);
  if (probs.array >= 0)
    exchange (lower, is_in_place ? probs : value (self, node->col), probs, node->rows);
}

static void
send_rows_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  if (node->near + node->far > 0)
    {
      const PlanRef dprobs = REF (layer.grad[PLAN_VALUE_ROW_PROBS]);
      const gboolean has_probs = node->col != PLAN_NO_VALUE;
      const PlanRef none = PLAN_REF_NONE, here = has_probs ? REF (layer.grad[node->other]) : none;
      if (has_probs)
        plan_lower_alloc (lower, here);
      send_tokens (self, node, TRUE,
                   PLAN_REFS (din, plan_layer_gradient (self, node->out), has_probs ? here : none,
                              has_probs ? dprobs : none));
      if (has_probs)
        plan_lower_free (lower, dprobs);
      plan_layer_drop_gradient (self, node->out);
      plan_layer_add_share (self, node->in, din);
      return;
    }
  exchange (lower, din, plan_layer_gradient (self, node->out), node->rows * node->cols);
  if (node->other != PLAN_NO_VALUE && node->col == PLAN_NO_VALUE)
    exchange (lower, REF (layer.grad[node->other]), REF (layer.grad[node->other]), node->rows);
  else if (node->other != PLAN_NO_VALUE)
    {
      const PlanRef sent = REF (layer.grad[node->other]), came = REF (layer.grad[node->col]);
      plan_lower_alloc (lower, sent);
      exchange (lower, sent, came, node->rows);
      plan_lower_free (lower, came);
    }
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* The number of rows of each expert, at the end of the map, with rows of zeros where they begin at
 * multiples. None if each has equally many. */
static PlanRef
row_counts (const PlanLayer *self, const PlanNode *node)
{
  const PlanRef map = value (self, node->map);
  return plan_lower_at (map, map.array >= 0 ? (guint64)(node->entries - self->sizes->experts) : 0);
}

void
plan_layer_quantise_rows (PlanLayer *self, const PlanNode *node, const PlanRef *refs)
{
  const gboolean is_input = node->kind == PLAN_NODE_QUANTIZE;
  const PlanTensorRole weight = is_input ? node->feeds : node->weight;
  const PlanQuantizer site = is_input ? PLAN_QUANTIZER_INPUT : PLAN_QUANTIZER_GRADIENT;
  if (node->groups == 0)
    plan_lower_quantise (self->lower, weight, site, self->unit, refs, node->rows, node->cols);
  else
    plan_lower_compute (self->lower, PLAN_OP_GROUPED_QUANTIZE,
                        PLAN_REFS (refs[0], refs[1], refs[2], row_counts (self, node),
                                   plan_lower_site_scale (self->lower, weight, site, self->unit),
                                   plan_lower_site_amax (self->lower, weight, site, self->unit)),
                        PLAN_DIMS (node->rows, node->cols, node->groups));
}

static void
expert_linear (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  gint64 layout;
  if (plan_lower_is_sequential (lower))
    {
      plan_layer_sequential (self, node);
      return;
    }
  const PlanRef weight
      = plan_lower_product_weight (lower, node->weight, self->unit, FALSE, &layout);
  plan_lower_compute (
      lower, PLAN_OP_GROUPED_GEMM,
      PLAN_REFS (value (self, node->out), value (self, node->in), weight, row_counts (self, node)),
      PLAN_DIMS (node->rows, node->cols, node->depth, layout, lower->sizes->experts));
  plan_layer_add_expert_bias (self, node, row_counts (self, node));
}

void
plan_layer_weigh_experts (PlanLayer *self, const PlanNode *node, PlanRef of)
{
  PlanLower *lower = self->lower;
  const PlanSizes *sizes = lower->sizes;
  if (plan_layer_delays (self, node, of))
    return;
  plan_lower_expert_weight_gradient (
      lower, node, self->unit, PLAN_REFS (of, value (self, node->kept), row_counts (self, node)));
  if (sizes->quantises)
    plan_lower_free (lower, of);
  if (node->weight != PLAN_TENSOR_EXPERT_DOWN)
    plan_layer_expert_bias_backward (self, node, row_counts (self, node));
  plan_layer_drop_gradient (self, node->out);
}

static void
expert_linear_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanSizes *sizes = lower->sizes;
  PlanRef row, col;
  gint64 layout;
  if (plan_lower_is_sequential (lower))
    {
      plan_layer_sequential_backward (self, node);
      return;
    }
  if (node->weight == PLAN_TENSOR_EXPERT_DOWN)
    plan_layer_expert_bias_backward (self, node, row_counts (self, node));
  plan_layer_quantise_gradient (self, node, &row, &col);
  const PlanRef weight = plan_lower_product_weight (lower, node->weight, self->unit, TRUE, &layout);
  const PlanRef din = plan_layer_take_share (self, node->in);
  plan_lower_compute (lower, PLAN_OP_GROUPED_GEMM,
                      PLAN_REFS (din, row, weight, row_counts (self, node)),
                      PLAN_DIMS (node->rows, node->depth, node->cols, layout, sizes->experts));
  if (sizes->has_columns)
    plan_lower_free (lower, row);
  plan_layer_weigh_experts (self, node, col);
  plan_layer_add_share (self, node->in, din);
}

static void
expert_activate (PlanLayer *self, const PlanNode *node)
{
  const PlanModel *m = self->lower->model;
  if (node->other == PLAN_NO_VALUE)
    {
      plan_layer_activate (self, node);
      return;
    }
  if (plan_lower_is_sequential (self->lower))
    {
      plan_layer_sequential (self, node);
      return;
    }
  plan_lower_compute (
      self->lower, PLAN_OP_EXPERT_ACTIVATE,
      PLAN_REFS (value (self, node->out), value (self, node->in), value (self, node->other)),
      PLAN_DIMS (node->rows, node->cols, m->activation, m->gated));
}

static void
expert_activate_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanModel *m = lower->model;
  if (node->other == PLAN_NO_VALUE)
    {
      plan_layer_activate_backward (self, node);
      return;
    }
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef dprobs = REF (layer.grad[PLAN_VALUE_ROW_PROBS]);
  plan_lower_alloc (lower, dprobs);
  plan_lower_compute (lower, PLAN_OP_EXPERT_ACTIVATE_BWD,
                      PLAN_REFS (din, dprobs, plan_layer_gradient (self, node->out),
                                 value (self, node->in), value (self, node->other)),
                      PLAN_DIMS (node->rows, node->cols, m->activation, m->gated));
  if (plan_lower_adds_own_bias (lower) && lower->place.expert_part == 0)
    {
      plan_lower_compute (lower, PLAN_OP_ACCUMULATE, PLAN_REFS (dprobs, REF (experts.dprobs)),
                          PLAN_DIMS (node->rows));
      plan_lower_free (lower, REF (experts.dprobs));
    }
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* The gate of shared experts, by eager ops (shared_experts.py, SharedExpertMLP.forward). */
static void
gate (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef score = value (self, node->stats);
  plan_lower_compute (lower, PLAN_OP_GEMM,
                      PLAN_REFS (score, value (self, node->other),
                                 plan_lower_weight (lower, node->weight, self->unit),
                                 PLAN_REF_NONE),
                      PLAN_DIMS (node->rows, 1, node->cols, 1));
  plan_lower_compute (lower, PLAN_OP_GATE,
                      PLAN_REFS (value (self, node->out), score, value (self, node->in)),
                      PLAN_DIMS (node->rows, node->cols));
}

static void
gate_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  plan_lower_alloc (lower, REF (experts.dgate));
  plan_lower_compute (lower, PLAN_OP_GATE_BWD,
                      PLAN_REFS (din, REF (experts.dgate), plan_layer_gradient (self, node->out),
                                 value (self, node->in), value (self, node->stats)),
                      PLAN_DIMS (node->rows, node->cols));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
  const PlanRef dother = plan_layer_take_share (self, node->other);
  plan_lower_compute (lower, PLAN_OP_GEMM,
                      PLAN_REFS (dother, REF (experts.dgate),
                                 plan_lower_weight (lower, node->weight, self->unit),
                                 PLAN_REF_NONE),
                      PLAN_DIMS (node->rows, node->cols, 1, 0));
  plan_lower_weight_gradient (lower, node->weight, self->unit, REF (experts.dgate),
                              value (self, node->other), node->rows, 1, node->cols, 2);
  plan_lower_free (lower, REF (experts.dgate));
  plan_layer_add_share (self, node->other, dother);
}

void
plan_layer_experts (PlanLayer *self, const PlanNode *node)
{
  switch (node->kind)
    {
    case PLAN_NODE_GATE:
      gate (self, node);
      return;
    case PLAN_NODE_ROUTE:
      route (self, node);
      return;
    case PLAN_NODE_DROP:
      drop (self, node);
      return;
    case PLAN_NODE_PERMUTE:
      permute (self, node);
      return;
    case PLAN_NODE_SEND_ROWS:
      send_rows (self, node);
      return;
    case PLAN_NODE_GATHER_ROWS:
    case PLAN_NODE_REDUCE_ROWS:
    case PLAN_NODE_GATHER_TOKENS:
    case PLAN_NODE_OWN_EXPERTS:
      plan_layer_joined_rows (self, node);
      return;
    case PLAN_NODE_EXPERT_LINEAR:
      expert_linear (self, node);
      return;
    case PLAN_NODE_SCALE_ROWS:
      plan_layer_scale_rows (self, node);
      return;
    case PLAN_NODE_EXPERT_ACTIVATE:
      expert_activate (self, node);
      return;
    case PLAN_NODE_UNPERMUTE:
      unpermute (self, node);
      return;
    default:
      g_assert_not_reached ();
    }
}

void
plan_layer_experts_backward (PlanLayer *self, const PlanNode *node)
{
  switch (node->kind)
    {
    case PLAN_NODE_GATE:
      gate_backward (self, node);
      return;
    case PLAN_NODE_ROUTE:
      route_backward (self, node);
      return;
    case PLAN_NODE_DROP:
      drop_backward (self, node);
      return;
    case PLAN_NODE_PERMUTE:
      permute_backward (self, node);
      return;
    case PLAN_NODE_SEND_ROWS:
      send_rows_backward (self, node);
      return;
    case PLAN_NODE_GATHER_ROWS:
    case PLAN_NODE_REDUCE_ROWS:
    case PLAN_NODE_GATHER_TOKENS:
    case PLAN_NODE_OWN_EXPERTS:
      plan_layer_joined_rows_backward (self, node);
      return;
    case PLAN_NODE_EXPERT_LINEAR:
      expert_linear_backward (self, node);
      return;
    case PLAN_NODE_SCALE_ROWS:
      plan_layer_scale_rows_backward (self, node);
      return;
    case PLAN_NODE_EXPERT_ACTIVATE:
      expert_activate_backward (self, node);
      return;
    case PLAN_NODE_UNPERMUTE:
      unpermute_backward (self, node);
      return;
    default:
      g_assert_not_reached ();
    }
}
