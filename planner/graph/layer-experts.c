/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/graph/layer-builder.h"

#define NONE PLAN_N_TENSORS /* no weight */

/* Adds what the shared experts read: all tokens of the tensor-parallel group, since each rank has a
 * part of every shared expert. */
static void
add_shared_input (PlanLayerBuilder *b, PlanValueId norm)
{
  static const PlanValueId forms[] = { PLAN_VALUE_NORM2, PLAN_VALUE_NORM2_Q, PLAN_VALUE_NORM2_COL,
                                       PLAN_VALUE_NORM2_FULL, PLAN_VALUE_NORM2_FULL_COL };
  b->shared_in = plan_layer_add_product_input (b, PLAN_MODULE_SHARED, norm, forms,
                                               PLAN_TENSOR_SHARED_GATE_UP, b->model->hidden,
                                               &b->shared_in_kept);
}

static void
add_shared_up (PlanLayerBuilder *b)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 hidden = b->model->hidden, ffn = sizes->shared_ffn;
  plan_layer_add_linear (b, PLAN_MODULE_SHARED, b->shared_in, b->shared_in_kept,
                         PLAN_VALUE_SHARED_UP, PLAN_TENSOR_SHARED_GATE_UP, NONE,
                         b->model->gated ? 2 * ffn : ffn, hidden);
  plan_layer_save_product (b, PLAN_VALUE_SHARED_UP_SAVED,
                           (gint64[]){ ffn, b->model->gated ? ffn : 0, 0 });
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_ACTIVATE, PLAN_MODULE_SHARED,
                                   PLAN_VALUE_SHARED_UP, PLAN_VALUE_SHARED_ACT);
  node->rows = sizes->rows;
  node->cols = ffn;
  plan_layer_define (b->graph, PLAN_VALUE_SHARED_ACT, sizes->rows * ffn, sizes->compute);
}

static PlanValueId
add_shared_down (PlanLayerBuilder *b)
{
  plan_layer_add_quantised_linear (b, PLAN_MODULE_SHARED, PLAN_VALUE_SHARED_ACT,
                                   PLAN_VALUE_SHARED_ACT_Q, PLAN_VALUE_SHARED_ACT_COL,
                                   PLAN_VALUE_SHARED_DOWN, PLAN_TENSOR_SHARED_DOWN,
                                   b->model->hidden, b->sizes->shared_ffn);
  if (!b->compiles)
    plan_layer_save_whole_product (b);
  return plan_layer_add_branch_end (b, PLAN_MODULE_SHARED, PLAN_VALUE_SHARED_DOWN,
                                    PLAN_VALUE_DOWN_SUM, PLAN_NO_VALUE, PLAN_NO_VALUE, NONE);
}

/* Adds the gate that weights the shared experts' output per token. */
static PlanValueId
add_shared_gate (PlanLayerBuilder *b, PlanValueId shared, PlanValueId norm)
{
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_GATE, PLAN_MODULE_SHARED, shared,
                                   PLAN_VALUE_SHARED_GATED);
  node->other = norm;
  node->stats = PLAN_VALUE_SHARED_SCORE;
  node->weight = PLAN_TENSOR_SHARED_GATE;
  node->rows = b->sizes->split_rows;
  node->cols = b->model->hidden;
  plan_layer_define (b->graph, PLAN_VALUE_SHARED_SCORE, node->rows, b->sizes->compute);
  plan_layer_define (b->graph, PLAN_VALUE_SHARED_GATED, node->rows * node->cols, b->sizes->compute);
  return PLAN_VALUE_SHARED_GATED;
}

/* Whether rows that have come sorted by rank are then sorted by expert. Megatron-LM does so for a
 * single rank as well. Our kernels do only for several, whose rows come with gaps between ranks;
 * so does torchtitan (LocalTokenDispatcher). */
static gboolean
sorts_again (const PlanLayerBuilder *b)
{
  return b->has_own_kernels ? b->ep * b->etp > 1
         : b->is_autograd   ? b->ep > 1 || b->pads_rows
                            : b->sizes->experts > 1;
}

/* Whether the router's scores weigh rows that are back from their experts (torchtitan's
 * token_dispatcher.py, combine), and not within these. */
static gboolean
weighs_late (const PlanLayerBuilder *b)
{
  return b->is_autograd && !b->model->scores_on_input;
}

/* Whether rows that have come are moved in blocks of equally many, without a map. Our own kernels
 * move them by a map, which also has the rows of zeros that fill up an expert's to a multiple. */
static gboolean
moves_blocks (const PlanLayerBuilder *b)
{
  return b->sizes->pads && !b->has_own_kernels;
}

/* Entries of a map that sorts rows, which each go to `slots` places, by expert. Transformer
 * Engine's maps have entries for each expert per row (pytorch/triton/permutation.py), torchtitan's
 * two indices of 8 bytes for each row: of its token, and of its score. */
static gint64
map_entries (const PlanLayerBuilder *b, gint64 in_rows, gint64 slots, gint64 out_rows,
             gint64 experts)
{
  if (b->has_own_kernels)
    return PLAN_ROW_MAP_HEAD + out_rows + in_rows * slots + experts;
  if (b->is_autograd)
    return 4 * out_rows;
  return in_rows * (2 * experts + 1);
}

/* Number of entries of the map that sorts the rows that this rank received. */
static gint64
sort_entries (const PlanLayerBuilder *b)
{
  const PlanSizes *sizes = b->sizes;
  return b->has_own_kernels
             ? map_entries (b, sizes->sent_rows * b->etp, 1, sizes->expert_rows, sizes->experts)
             : 2 * sizes->expert_rows;
}

/* Number of rows as which this rank's tokens are first sorted: as they are sent, or, by our own
 * kernels where nothing is sent, as experts read them. */
static gint64
first_rows (const PlanLayerBuilder *b)
{
  return b->has_own_kernels && !sorts_again (b) ? b->sizes->expert_rows : b->sizes->sent_rows;
}

/* Adds a product of this rank's own tokens alone, whose weight every tensor-parallel rank has whole
 * (Megatron-LM's moe_layer.py, fc1_latent_proj and fc2_latent_proj). `q` and `col` name the
 * quantised forms of `in`. */
static PlanValueId
add_own_product (PlanLayerBuilder *b, PlanValueId in, PlanValueId q, PlanValueId col,
                 PlanValueId out, PlanTensorRole weight, gint64 cols, gint64 depth)
{
  const gint64 rows = b->sizes->split_rows;
  PlanValueId kept;
  const PlanValueId read
      = plan_layer_add_quantize (b, PLAN_MODULE_EXPERTS, in, q, col, weight, rows, depth, &kept);
  plan_layer_add_linear (b, PLAN_MODULE_EXPERTS, read, kept, out, weight, NONE, cols, depth);
  b->graph->nodes[b->graph->n_nodes - 1].rows = rows;
  plan_layer_define (b->graph, out, rows * cols, b->sizes->compute);
  return out;
}

/* Adds a node that moves rows: in [in_rows] -> out [out_rows]. */
static PlanNode *
add_move (PlanLayerBuilder *b, PlanNodeKind kind, PlanValueId in, PlanValueId out, gint64 in_rows,
          gint64 out_rows, gint64 entries)
{
  PlanNode *node = plan_layer_add (b->graph, kind, PLAN_MODULE_EXPERTS, in, out);
  node->rows = in_rows;
  node->cols = plan_model_expert_width (b->model);
  node->depth = out_rows;
  node->entries = entries;
  plan_layer_define (b->graph, out, out_rows * node->cols, b->sizes->compute);
  return node;
}

/* Number of runs of received rows: one from each rank of the experts' group, for each expert. */
static gint64
pieces (const PlanLayerBuilder *b)
{
  return b->model->experts * b->etp;
}

/* Makes a node of our own kernels also send, unless experts are padded, how many rows are for each
 * expert: numbers that end the map by which tokens were sorted. */
static void
send_counts (PlanLayerBuilder *b, PlanNode *node, PlanValueId counts, gint64 n)
{
  const gint64 experts = b->model->experts;
  if (b->sizes->pads)
    return;
  node->stats = counts;
  node->map = PLAN_VALUE_ROW_MAP;
  node->entries
      = map_entries (b, b->sizes->split_rows, b->model->topk, b->sizes->sent_rows, experts);
  node->groups = experts;
  plan_layer_define (b->graph, counts, n, PLAN_DTYPE_I32);
}

/* Makes a node also send the rows' probabilities, and their numbers. */
static void
send_probs (PlanLayerBuilder *b, PlanNode *node)
{
  node->other = PLAN_VALUE_SENT_PROBS;
  node->col = PLAN_VALUE_CAME_PROBS;
  plan_layer_define (b->graph, PLAN_VALUE_CAME_PROBS, b->sizes->sent_rows, PLAN_DTYPE_FP32);
  send_counts (b, node, PLAN_VALUE_CAME_COUNTS, b->model->experts);
}

/* Adds the gathering of rows by the ranks that split an expert, with their probabilities and, by
 * our own kernels, their numbers. */
static PlanValueId
add_gather (PlanLayerBuilder *b, PlanValueId at)
{
  const gint64 sent = b->sizes->sent_rows, rows = sent * b->etp;
  const gboolean has_come = b->has_own_kernels && b->ep > 1;
  PlanNode *node = add_move (b, PLAN_NODE_GATHER_ROWS, at, PLAN_VALUE_JOINED, sent, rows, 0);
  node->other = has_come ? PLAN_VALUE_CAME_PROBS : PLAN_VALUE_SENT_PROBS;
  node->col = b->has_own_kernels ? PLAN_VALUE_JOINED_PROBS : PLAN_VALUE_ROW_PROBS;
  plan_layer_define (b->graph, node->col, rows, PLAN_DTYPE_FP32);
  if (!b->has_own_kernels)
    return PLAN_VALUE_JOINED;
  send_counts (b, node, PLAN_VALUE_JOINED_COUNTS, b->model->experts * b->etp);
  if (has_come && !b->sizes->pads)
    {
      node->map = PLAN_VALUE_CAME_COUNTS;
      node->entries = node->groups;
    }
  return PLAN_VALUE_JOINED;
}

/* The value with the probabilities of the rows that this rank sends: the one that experts read,
 * where nothing is sent or gathered. */
static PlanValueId
probs_sent (const PlanLayerBuilder *b)
{
  const gboolean is_apart = b->etp > 1 || (b->has_own_kernels && b->ep > 1);
  return is_apart ? PLAN_VALUE_SENT_PROBS : PLAN_VALUE_ROW_PROBS;
}

/* Adds the sending of tokens to the ranks of their experts, or back. */
static PlanNode *
add_send (PlanLayerBuilder *b, PlanValueId in, PlanValueId out, gint64 in_rows, gint64 out_rows)
{
  PlanNode *node = add_move (b, PLAN_NODE_SEND_ROWS, in, out, in_rows, out_rows, 0);
  if (b->dispatcher == PLAN_MOE_DISPATCHER_ALLTOALL)
    {
      node->other = out == PLAN_VALUE_CAME && !weighs_late (b) ? probs_sent (b) : PLAN_NO_VALUE;
      if (b->has_own_kernels && out == PLAN_VALUE_CAME)
        send_probs (b, node);
    }
  else
    {
      node->near = b->sizes->near_rows;
      node->far = b->sizes->far_rows;
    }
  return node;
}

/* Defines the indices by which a node moves rows: one per row and, with `has_probs`, one per
 * probability. The latter are the first part of the order of all tokens' `scores` for all experts,
 * which stays whole in memory, unless experts are padded (Megatron-LM's moe_utils.py, permute). */
static void
move_by_indices (PlanLayerBuilder *b, PlanNode *node, gboolean has_probs)
{
  const gint64 scores = node->rows * node->groups;
  node->is_eager = TRUE;
  plan_layer_define (b->graph, node->stats, node->depth, PLAN_DTYPE_I64);
  if (!has_probs)
    return;
  node->places = PLAN_VALUE_PLACES;
  plan_layer_define (b->graph, node->places, b->sizes->pads ? node->depth : scores, PLAN_DTYPE_I64);
}

/* Adds the sorting of tokens by the experts that the router chose. */
static PlanNode *
add_first_permute (PlanLayerBuilder *b, PlanValueId in, PlanValueId out, gint64 in_rows,
                   gint64 experts)
{
  const gint64 rows = first_rows (b);
  const gint64 map = map_entries (b, in_rows, b->model->topk, rows, experts);
  PlanNode *node = add_move (b, PLAN_NODE_PERMUTE, in, out, in_rows, rows, map);
  node->groups = experts;
  node->other = b->probs;
  node->stats = PLAN_VALUE_ROW_MAP;
  node->col = probs_sent (b);
  node->map = b->routes;
  node->is_first_permute = TRUE;
  plan_layer_define (b->graph, node->col, rows, PLAN_DTYPE_FP32);
  if (b->moves_eagerly)
    move_by_indices (b, node, TRUE);
  else
    plan_layer_define (b->graph, PLAN_VALUE_ROW_MAP, map, PLAN_DTYPE_I32);
  return node;
}

/* Adds the dispatch of libraries that send each token once to a rank. DeepEP leaves sorting to the
 * receiver, HybridEP sorts on the way (Megatron-LM's token_dispatcher.py, _DeepepManager and
 * _HybridEPManager). */
static PlanValueId
add_library_dispatch (PlanLayerBuilder *b, PlanValueId norm)
{
  const PlanSizes *sizes = b->sizes;
  PlanNode *node;
  if (b->overlaps_shared)
    {
      add_shared_input (b, norm);
      add_shared_up (b);
    }
  if (b->dispatcher == PLAN_MOE_DISPATCHER_DEEPEP)
    {
      node = add_send (b, norm, PLAN_VALUE_CAME, sizes->split_rows, sizes->came_rows);
      node->waits = TRUE;
      node->goes_beside = b->overlaps_shared;
      add_first_permute (b, PLAN_VALUE_CAME, PLAN_VALUE_ROWS, sizes->came_rows, sizes->experts);
      return PLAN_VALUE_ROWS;
    }
  node = add_send (b, norm, PLAN_VALUE_ROWS, sizes->split_rows, sizes->expert_rows);
  node->waits = !sizes->pads;
  node->goes_beside = b->overlaps_shared;
  node->other = b->probs;
  node->col = PLAN_VALUE_ROW_PROBS;
  plan_layer_define (b->graph, PLAN_VALUE_ROW_PROBS, sizes->expert_rows, PLAN_DTYPE_FP32);
  return PLAN_VALUE_ROWS;
}

static PlanValueId
add_alltoall_dispatch (PlanLayerBuilder *b, PlanValueId norm)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 rows = sizes->expert_rows, sent = sizes->sent_rows;
  PlanValueId at = PLAN_VALUE_SENT;
  if (b->overlaps_shared)
    add_shared_input (b, norm);
  PlanNode *node = add_first_permute (b, norm, at, sizes->split_rows, b->model->experts);
  node->waits = b->has_own_kernels ? b->waits_for_counts && !sorts_again (b) && !sizes->pads
                                   : b->ep * b->etp > 1 && sizes->capacity == 0;
  node->waits_before = !b->has_own_kernels && sizes->capacity > 0 && !sizes->pads;
  if (b->overlaps_shared)
    add_shared_up (b);
  if (b->ep > 1)
    {
      add_send (b, at, PLAN_VALUE_CAME, sent, sent)->goes_beside = b->overlaps_shared;
      at = PLAN_VALUE_CAME;
    }
  if (b->etp > 1)
    at = add_gather (b, at);
  if (sorts_again (b) && moves_blocks (b))
    {
      add_move (b, PLAN_NODE_PERMUTE, at, PLAN_VALUE_ROWS, rows, rows, 0);
      at = PLAN_VALUE_ROWS;
    }
  else if (sorts_again (b) && b->moves_eagerly)
    {
      node = add_move (b, PLAN_NODE_PERMUTE, at, PLAN_VALUE_ROWS, rows, rows, 0);
      node->pieces = pieces (b);
      node->waits_before = b->ep * b->etp == 1 && sizes->capacity == 0;
      at = PLAN_VALUE_ROWS;
    }
  else if (sorts_again (b))
    {
      node = add_move (b, PLAN_NODE_PERMUTE, at, PLAN_VALUE_ROWS, sent * b->etp, rows,
                       sort_entries (b));
      node->groups = b->has_own_kernels ? sizes->experts : 1;
      node->stats = PLAN_VALUE_SORT_MAP;
      if (b->has_own_kernels)
        {
          node->waits = b->waits_for_counts && !sizes->pads;
          node->map = sizes->pads  ? PLAN_NO_VALUE
                      : b->etp > 1 ? PLAN_VALUE_JOINED_COUNTS
                                   : PLAN_VALUE_CAME_COUNTS;
          node->other = b->etp > 1 ? PLAN_VALUE_JOINED_PROBS : PLAN_VALUE_CAME_PROBS;
          node->col = PLAN_VALUE_ROW_PROBS;
          plan_layer_define (b->graph, PLAN_VALUE_ROW_PROBS, rows, PLAN_DTYPE_FP32);
        }
      node->holds = b->is_autograd ? plan_value_bit (PLAN_VALUE_SENT) : 0;
      node->is_bare = weighs_late (b);
      plan_layer_define (b->graph, PLAN_VALUE_SORT_MAP, node->entries, PLAN_DTYPE_I32);
      at = PLAN_VALUE_ROWS;
    }
  return at;
}

/* The number of ranks whose tokens are gathered on each of them. */
static gint64
ranks_joined (const PlanLayerBuilder *b)
{
  return b->ep * b->etp;
}

/* Adds the all-gather of all ranks' tokens, from which each rank takes those for its experts
 * (Megatron-LM's token_dispatcher.py, MoEAllGatherTokenDispatcher). `probs` and `map` name what the
 * router made; on return what it made for this rank's experts. */
static PlanValueId
add_gathered_tokens (PlanLayerBuilder *b, PlanValueId at, PlanValueId *probs, PlanValueId *map)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 tokens = sizes->split_rows * ranks_joined (b), all = b->model->experts;
  PlanNode *node;
  if (ranks_joined (b) > 1)
    {
      node = add_move (b, PLAN_NODE_GATHER_TOKENS, at, PLAN_VALUE_JOINED, sizes->split_rows, tokens,
                       0);
      node->other = *probs;
      node->col = *probs = PLAN_VALUE_JOINED_PROBS;
      node->map = *map;
      node->stats = *map = PLAN_VALUE_JOINED_MAP;
      plan_layer_define (b->graph, *probs, tokens * all, sizes->router);
      plan_layer_define (b->graph, *map, tokens * all, PLAN_DTYPE_U8);
      at = PLAN_VALUE_JOINED;
    }
  if (sizes->experts < all)
    {
      node = plan_layer_add (b->graph, PLAN_NODE_OWN_EXPERTS, PLAN_MODULE_EXPERTS, *probs,
                             PLAN_VALUE_OWN_PROBS);
      node->map = *map;
      node->rows = tokens;
      *probs = PLAN_VALUE_OWN_PROBS;
      node->stats = *map = PLAN_VALUE_OWN_MAP;
      plan_layer_define (b->graph, *probs, tokens * sizes->experts, sizes->router);
      plan_layer_define (b->graph, *map, tokens * sizes->experts, PLAN_DTYPE_U8);
    }
  return at;
}

static PlanValueId
add_allgather_dispatch (PlanLayerBuilder *b, PlanValueId norm)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 tokens = sizes->split_rows * ranks_joined (b);
  PlanValueId probs = b->probs, map = b->routes;
  const PlanValueId from = add_gathered_tokens (b, norm, &probs, &map);
  PlanNode *node = add_move (b, PLAN_NODE_PERMUTE, from, PLAN_VALUE_ROWS, tokens,
                             sizes->expert_rows, tokens * (2 * sizes->experts + 1));
  node->groups = sizes->experts;
  node->other = probs;
  node->col = PLAN_VALUE_ROW_PROBS;
  node->map = map;
  node->stats = PLAN_VALUE_ROW_MAP;
  node->is_first_permute = node->selects_by_mask = TRUE;
  node->waits_before = node->waits = TRUE; /* the second time for the number of probabilities */
  if (b->moves_eagerly)
    move_by_indices (b, node, FALSE);
  else
    plan_layer_define (b->graph, PLAN_VALUE_ROW_MAP, node->entries, PLAN_DTYPE_I32);
  plan_layer_define (b->graph, PLAN_VALUE_ROW_PROBS, sizes->expert_rows, PLAN_DTYPE_FP32);
  return PLAN_VALUE_ROWS;
}

/* Adds dropping: tokens with the smallest probabilities leave experts that have no room for them
 * (router.py, apply_router_token_dropping). Where experts are padded, other tokens with a
 * probability of 0 take empty places. */
static void
add_drop (PlanLayerBuilder *b)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 scores = sizes->split_rows * b->model->experts;
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_DROP, PLAN_MODULE_EXPERTS, b->probs,
                                   PLAN_VALUE_LEFT_PROBS);
  node->map = b->routes;
  node->stats = PLAN_VALUE_LEFT_MAP;
  node->rows = sizes->split_rows;
  node->cols = b->model->experts;
  plan_layer_define (b->graph, PLAN_VALUE_LEFT_PROBS, scores, sizes->router);
  plan_layer_define (b->graph, PLAN_VALUE_LEFT_MAP, scores, PLAN_DTYPE_U8);
  b->probs = PLAN_VALUE_LEFT_PROBS;
  b->routes = PLAN_VALUE_LEFT_MAP;
}

/* Adds the router and the dispatch. Returns the rows that the experts read. */
static PlanValueId
add_dispatch (PlanLayerBuilder *b, PlanValueId norm)
{
  const PlanSizes *sizes = b->sizes;
  const PlanModel *m = b->model;
  const gint64 tokens = sizes->split_rows;
  PlanNode *node
      = plan_layer_add (b->graph, PLAN_NODE_ROUTE, PLAN_MODULE_EXPERTS, norm, PLAN_VALUE_PROBS);
  node->stats = PLAN_VALUE_ROUTE_SAVED;
  node->col = PLAN_VALUE_ROUTE_MAP;
  node->weight = PLAN_TENSOR_ROUTER;
  node->bias = m->expert_bias ? PLAN_TENSOR_ROUTER_BIASES : NONE;
  node->rows = tokens;
  node->cols = m->experts;
  node->depth = m->hidden;
  plan_layer_define (b->graph, PLAN_VALUE_PROBS, tokens * m->experts, sizes->router);
  plan_layer_define (b->graph, PLAN_VALUE_ROUTE_SAVED, tokens * m->experts, PLAN_DTYPE_FP32);
  plan_layer_define (b->graph, PLAN_VALUE_ROUTE_MAP, tokens * m->experts, PLAN_DTYPE_U8);
  /* The product of a router is always made again (force_recompute_mm_shapes_by_fqns), unless it
   * has a bias. */
  if (m->expert_bias && !b->hides_products && (sizes->sac & PLAN_SAC_BIASED))
    node->saved = PLAN_VALUE_ROUTE_SAVED;
  b->probs = PLAN_VALUE_PROBS;
  b->routes = PLAN_VALUE_ROUTE_MAP;
  if (sizes->capacity > 0)
    add_drop (b);
  const PlanValueId tokens_read
      = m->expert_hidden > 0 ? add_own_product (b, norm, PLAN_VALUE_NARROW_Q, PLAN_VALUE_NARROW_COL,
                                                PLAN_VALUE_NARROW, PLAN_TENSOR_EXPERT_IN,
                                                m->expert_hidden, m->hidden)
                             : norm;
  return b->dispatcher == PLAN_MOE_DISPATCHER_ALLTOALL    ? add_alltoall_dispatch (b, tokens_read)
         : b->dispatcher == PLAN_MOE_DISPATCHER_ALLGATHER ? add_allgather_dispatch (b, tokens_read)
                                                          : add_library_dispatch (b, tokens_read);
}

/* Makes a node of our own kernels read how many rows each expert has, from the map that sorted
 * them. Padded experts have equally many. */
static void
count_rows (const PlanLayerBuilder *b, PlanNode *node)
{
  if (!b->has_own_kernels)
    return;
  node->groups = b->sizes->experts;
  if (b->sizes->pads)
    return;
  node->map = sorts_again (b) ? PLAN_VALUE_SORT_MAP : PLAN_VALUE_ROW_MAP;
  node->entries = sorts_again (b) ? sort_entries (b)
                                  : map_entries (b, b->sizes->split_rows, b->model->topk,
                                                 first_rows (b), b->model->experts);
}

/* Adds the GEMMs of all experts. `q` and `col` name the quantised forms of `in`. */
static PlanNode *
add_expert_linear (PlanLayerBuilder *b, PlanModule of_input, PlanValueId in, PlanValueId q,
                   PlanValueId col, PlanValueId out, PlanTensorRole weight, gint64 cols,
                   gint64 depth)
{
  PlanValueId kept;
  const PlanValueId read = plan_layer_add_quantize (b, of_input, in, q, col, weight,
                                                    b->sizes->expert_rows, depth, &kept);
  if (read != in)
    count_rows (b, &b->graph->nodes[b->graph->n_nodes - 1]);
  PlanNode *node
      = plan_layer_add (b->graph, PLAN_NODE_EXPERT_LINEAR, PLAN_MODULE_EXPERTS, read, out);
  node->kept = kept;
  node->weight = weight;
  if (b->model->expert_bias && weight == PLAN_TENSOR_EXPERT_DOWN)
    node->other = PLAN_VALUE_ROW_PROBS;
  if (b->model->expert_bias)
    node->bias = weight == PLAN_TENSOR_EXPERT_DOWN ? PLAN_TENSOR_EXPERT_DOWN_BIAS
                                                   : PLAN_TENSOR_EXPERT_GATE_UP_BIAS;
  count_rows (b, node);
  node->rows = b->sizes->expert_rows;
  node->cols = cols;
  node->depth = depth;
  plan_layer_define (b->graph, out, node->rows * cols, b->sizes->compute);
  return node;
}

/* Keeps rows until the combine: frameworks hold references to what went to the experts until all
 * rows are back. `last` is the output of the experts' module. torchtitan holds what experts read
 * and made (moe.py, RoutedExperts.forward). */
static void
hold_rows (const PlanLayerBuilder *b, PlanNode *node, PlanValueId last)
{
  const PlanValueSet sent
      = plan_value_bit (PLAN_VALUE_SENT) | plan_value_bit (PLAN_VALUE_CAME) | plan_value_bit (last);
  node->holds = plan_value_bit (PLAN_VALUE_EXPERT_DOWN)
                | (b->is_autograd ? plan_value_bit (PLAN_VALUE_ROWS) : sent);
}

/* Adds what weighs rows by the router's scores, in fp32. Unless it is compiled, autograd keeps the
 * fp32 rows. */
static PlanValueId
add_weighed_rows (PlanLayerBuilder *b, PlanValueId rows, gint64 n)
{
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_SCALE_ROWS, PLAN_MODULE_EXPERTS, rows,
                                   PLAN_VALUE_ROWS_SCALED);
  node->other = PLAN_VALUE_ROW_PROBS;
  node->rows = n;
  node->cols = b->model->hidden;
  plan_layer_define (b->graph, node->out, n * node->cols, b->sizes->compute);
  if (b->compiles && !b->compiles_parts)
    return node->out;
  node->stats = PLAN_VALUE_WIDENED;
  plan_layer_define (b->graph, node->stats, n * node->cols, PLAN_DTYPE_FP32);
  return node->out;
}

/* Adds the way back to the tokens' ranks by the libraries that send each token once. */
static void
add_library_combine (PlanLayerBuilder *b)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 tokens = sizes->split_rows;
  const gboolean sorts = b->dispatcher == PLAN_MOE_DISPATCHER_HYBRIDEP;
  const gint64 rows = sorts ? sizes->expert_rows : sizes->came_rows;
  const PlanValueId made = weighs_late (b)
                               ? add_weighed_rows (b, PLAN_VALUE_EXPERT_DOWN, sizes->expert_rows)
                               : PLAN_VALUE_EXPERT_DOWN;
  PlanNode *node;
  if (!sorts)
    {
      node = add_move (b, PLAN_NODE_UNPERMUTE, made, PLAN_VALUE_UNSORTED, sizes->expert_rows, rows,
                       map_entries (b, rows, b->model->topk, first_rows (b), sizes->experts));
      node->map = PLAN_VALUE_ROW_MAP;
      node->is_eager = b->moves_eagerly;
    }
  if (b->overlaps_shared)
    b->shared_out = add_shared_down (b);
  node = add_send (b, sorts ? made : PLAN_VALUE_UNSORTED, PLAN_VALUE_COMBINED, rows, tokens);
  node->goes_beside = b->overlaps_shared;
  hold_rows (b, node, PLAN_VALUE_UNSORTED);
}

static void
add_allgather_combine (PlanLayerBuilder *b)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 tokens = sizes->split_rows, all = tokens * ranks_joined (b);
  const PlanValueId out = ranks_joined (b) > 1 ? PLAN_VALUE_UNSORTED : PLAN_VALUE_COMBINED;
  PlanNode *node = add_move (b, PLAN_NODE_UNPERMUTE, PLAN_VALUE_EXPERT_DOWN, out,
                             sizes->expert_rows, all, all * (2 * sizes->experts + 1));
  node->map = PLAN_VALUE_ROW_MAP;
  node->is_eager = b->moves_eagerly;
  if (ranks_joined (b) > 1)
    add_move (b, PLAN_NODE_REDUCE_ROWS, out, PLAN_VALUE_COMBINED, all, tokens, 0)->holds
        = plan_value_bit (PLAN_VALUE_JOINED_PROBS);
}

static void
add_alltoall_combine (PlanLayerBuilder *b)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 tokens = sizes->split_rows, rows = sizes->expert_rows, sent = sizes->sent_rows;
  PlanValueId at = PLAN_VALUE_EXPERT_DOWN;
  const gboolean joins = b->moves_eagerly && sorts_again (b) && !moves_blocks (b);
  PlanNode *node;
  if (sorts_again (b))
    {
      const gboolean has_map = !moves_blocks (b) && !joins;
      node = add_move (b, PLAN_NODE_UNPERMUTE, at, PLAN_VALUE_UNSORTED, rows, sent * b->etp,
                       has_map ? sort_entries (b) : 0);
      node->map = has_map ? PLAN_VALUE_SORT_MAP : PLAN_NO_VALUE;
      node->pieces = joins ? pieces (b) : 0;
      at = PLAN_VALUE_UNSORTED;
    }
  if (b->etp > 1)
    {
      add_move (b, PLAN_NODE_REDUCE_ROWS, at, PLAN_VALUE_REDUCED, sent * b->etp, sent, 0);
      at = PLAN_VALUE_REDUCED;
    }
  if (b->overlaps_shared)
    b->shared_out = add_shared_down (b);
  if (b->ep > 1)
    {
      add_send (b, at, PLAN_VALUE_RETURNED, sent, sent)->goes_beside = b->overlaps_shared;
      at = PLAN_VALUE_RETURNED;
    }
  if (weighs_late (b))
    at = add_weighed_rows (b, at, first_rows (b));
  node = add_move (b, PLAN_NODE_UNPERMUTE, at, PLAN_VALUE_COMBINED, first_rows (b), tokens,
                   map_entries (b, tokens, b->model->topk, first_rows (b), b->model->experts));
  node->map = PLAN_VALUE_ROW_MAP;
  node->is_eager = b->moves_eagerly;
  node->waits = b->ep * b->etp == 1 && !b->has_own_kernels && !b->is_autograd && !joins
                && sizes->capacity == 0;
  hold_rows (b, node, b->etp > 1 ? PLAN_VALUE_REDUCED : PLAN_VALUE_UNSORTED);
}

/* Adds what multiplies rows by their probabilities before experts read them. */
static PlanValueId
add_scaled_rows (PlanLayerBuilder *b, PlanValueId rows)
{
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_SCALE_ROWS, PLAN_MODULE_EXPERTS, rows,
                                   PLAN_VALUE_ROWS_SCALED);
  node->other = PLAN_VALUE_ROW_PROBS;
  node->rows = b->sizes->expert_rows;
  node->cols = plan_model_expert_width (b->model);
  plan_layer_define (b->graph, node->out, node->rows * node->cols, b->sizes->compute);
  return node->out;
}

/* Keeps what autograd saves of an activation beside its input: the activated gate or, where gates
 * are clamped, both factors, the sigmoid of one, and their product (torchtitan's gpt_oss/moe.py,
 * swiglu). */
static void
keep_gate (PlanLayerBuilder *b, PlanNode *node)
{
  const gint64 parts = b->model->glu_limit > 0 ? 4 : 1;
  if (!b->keeps_gate)
    return;
  node->stats = PLAN_VALUE_EXPERT_GATE;
  plan_layer_define (b->graph, node->stats, node->rows * node->cols * parts, b->sizes->compute);
}

PlanValueId
plan_layer_add_experts_branch (PlanLayerBuilder *b, PlanValueId in)
{
  const PlanSizes *sizes = b->sizes;
  const gint64 hidden = b->model->hidden, width = plan_model_expert_width (b->model);
  const gint64 ffn = sizes->expert_ffn;
  plan_layer_add_norm (b, PLAN_MODULE_NORM, in, PLAN_VALUE_NORM2, PLAN_VALUE_STATS2,
                       PLAN_TENSOR_MLP_NORM, PLAN_TENSOR_MLP_NORM_BIAS, NONE);
  b->shared_out = PLAN_NO_VALUE;
  if (sizes->shared_ffn > 0 && !b->overlaps_shared)
    {
      add_shared_input (b, PLAN_VALUE_NORM2);
      add_shared_up (b);
      b->shared_out = add_shared_down (b);
    }
  if (b->model->shared_gate && !b->overlaps_shared)
    b->shared_out = add_shared_gate (b, b->shared_out, PLAN_VALUE_NORM2);
  PlanValueId rows = add_dispatch (b, PLAN_VALUE_NORM2);
  if (b->model->scores_on_input)
    rows = add_scaled_rows (b, rows);
  add_expert_linear (b, PLAN_MODULE_EXPERTS, rows, PLAN_VALUE_ROWS_Q, PLAN_VALUE_ROWS_COL,
                     PLAN_VALUE_EXPERT_UP, PLAN_TENSOR_EXPERT_GATE_UP,
                     b->model->gated ? 2 * ffn : ffn, width);
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_EXPERT_ACTIVATE, PLAN_MODULE_EXPERT_ACT,
                                   PLAN_VALUE_EXPERT_UP, PLAN_VALUE_EXPERT_ACT);
  node->other = b->model->scores_on_input || weighs_late (b) ? PLAN_NO_VALUE : PLAN_VALUE_ROW_PROBS;
  node->rows = sizes->expert_rows;
  node->cols = ffn;
  keep_gate (b, node);
  plan_layer_define (b->graph, PLAN_VALUE_EXPERT_ACT, node->rows * ffn, sizes->compute);
  add_expert_linear (b, PLAN_MODULE_EXPERT_ACT, PLAN_VALUE_EXPERT_ACT, PLAN_VALUE_EXPERT_ACT_Q,
                     PLAN_VALUE_EXPERT_ACT_COL, PLAN_VALUE_EXPERT_DOWN, PLAN_TENSOR_EXPERT_DOWN,
                     width, ffn);
  if (b->dispatcher == PLAN_MOE_DISPATCHER_ALLTOALL)
    add_alltoall_combine (b);
  else if (b->dispatcher == PLAN_MOE_DISPATCHER_ALLGATHER)
    add_allgather_combine (b);
  else
    add_library_combine (b);
  const PlanValueId routed = b->model->expert_hidden > 0
                                 ? add_own_product (b, PLAN_VALUE_COMBINED, PLAN_VALUE_COMBINED_Q,
                                                    PLAN_VALUE_COMBINED_COL, PLAN_VALUE_WIDENED,
                                                    PLAN_TENSOR_EXPERT_OUT, hidden, width)
                                 : PLAN_VALUE_COMBINED;
  if (b->shared_out == PLAN_NO_VALUE)
    return routed;
  if (b->model->shared_gate && b->overlaps_shared)
    b->shared_out = add_shared_gate (b, b->shared_out, PLAN_VALUE_NORM2);
  node = plan_layer_add (b->graph, PLAN_NODE_ADD, PLAN_MODULE_EXPERTS, routed, PLAN_VALUE_MOE_OUT);
  node->other = b->shared_out;
  node->rows = sizes->split_rows;
  node->cols = hidden;
  plan_layer_define (b->graph, PLAN_VALUE_MOE_OUT, node->rows * hidden, sizes->compute);
  return PLAN_VALUE_MOE_OUT;
}
