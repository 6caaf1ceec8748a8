/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/graph/layer-builder.h"

#include <math.h>
#include <string.h>

#define NONE PLAN_N_TENSORS /* no weight */

const char *
plan_value_name (PlanValueId id)
{
  static const char *const names[] = {
#define X(id, name) name,
    PLAN_VALUE_LIST (X)
#undef X
  };
  return names[id];
}

#define HAS_MODULE(value, id) ((value)[PLAN_RECOMPUTE_MODULES] >> PLAN_RECOMPUTE_MODULES_##id & 1)

void
plan_layer_define (PlanLayerGraph *self, PlanValueId id, gint64 elements, PlanDtype dtype)
{
  self->values[id] = (PlanValue){ (guint64)elements, dtype };
}

PlanNode *
plan_layer_add (PlanLayerGraph *self, PlanNodeKind kind, PlanModule module, PlanValueId in,
                PlanValueId out)
{
  g_assert (self->n_nodes < PLAN_MAX_NODES);
  PlanNode *node = &self->nodes[self->n_nodes++];
  *node = (PlanNode){ .kind = kind,
                      .module = module,
                      .in = in,
                      .out = out,
                      .other = PLAN_NO_VALUE,
                      .stats = PLAN_NO_VALUE,
                      .col = PLAN_NO_VALUE,
                      .kept = PLAN_NO_VALUE,
                      .saved = PLAN_NO_VALUE,
                      .map = PLAN_NO_VALUE,
                      .places = PLAN_NO_VALUE,
                      .latent = PLAN_NO_VALUE,
                      .weight = NONE,
                      .bias = NONE,
                      .feeds = NONE };
  return node;
}

/* The role of a weight or bias if the model has it, else NONE. */
static PlanTensorRole
role (const PlanLayerBuilder *b, PlanTensorRole wanted)
{
  if (wanted == NONE)
    return NONE;
  return plan_model_tensor (b->model, wanted, b->model->vocab).rows > 0 ? wanted : NONE;
}

void
plan_layer_add_norm (PlanLayerBuilder *b, PlanModule module, PlanValueId in, PlanValueId out,
                     PlanValueId stats, PlanTensorRole weight, PlanTensorRole bias,
                     PlanTensorRole feeds)
{
  const gboolean fused = feeds != NONE && b->fuses_norms;
  const gint64 rows = b->sizes->split_rows, cols = b->model->hidden;
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_NORM, module, in, out);
  node->stats = stats;
  node->weight = weight;
  node->bias = role (b, bias);
  node->feeds = fused ? feeds : NONE;
  node->rows = rows;
  node->cols = cols;
  plan_layer_define (b->graph, out, rows * cols, fused ? b->sizes->linear : b->sizes->compute);
  plan_layer_define (b->graph, stats, b->model->norm == PLAN_NORM_LAYERNORM ? 2 * rows : rows,
                     PLAN_DTYPE_FP32);
}

PlanValueId
plan_layer_add_quantize (PlanLayerBuilder *b, PlanModule module, PlanValueId in, PlanValueId out,
                         PlanValueId col, PlanTensorRole feeds, gint64 rows, gint64 cols,
                         PlanValueId *out_kept)
{
  PlanLayerGraph *graph = b->graph;
  *out_kept = in;
  if (!b->sizes->quantises)
    return in;
  const gboolean is_done = graph->values[in].dtype == b->sizes->linear;
  *out_kept = is_done ? in : out;
  if (!is_done)
    {
      PlanNode *node = plan_layer_add (graph, PLAN_NODE_QUANTIZE, module, in, out);
      node->feeds = feeds;
      node->rows = rows;
      node->cols = cols;
      node->col = b->sizes->has_columns ? col : PLAN_NO_VALUE;
      node->is_cheap = b->quantises_on_use;
      plan_layer_define (graph, out, rows * cols, b->sizes->linear);
    }
  else if (b->sizes->has_columns)
    {
      PlanNode *node = plan_layer_add (graph, PLAN_NODE_TRANSPOSE, module, in, col);
      node->rows = rows;
      node->cols = cols;
    }
  if (b->sizes->has_columns)
    {
      plan_layer_define (graph, col, rows * cols, b->sizes->linear);
      *out_kept = col;
    }
  return is_done ? in : out;
}

PlanValueId
plan_layer_add_gathers (PlanLayerBuilder *b, PlanModule module, PlanValueId read, PlanValueId kept,
                        const PlanValueId *v, gint64 width, PlanValueId *out_kept)
{
  PlanLayerGraph *graph = b->graph;
  *out_kept = kept;
  if (!b->splits)
    return read;
  PlanNode *node = plan_layer_add (graph, PLAN_NODE_GATHER_SEQ, module, read, v[3]);
  node->cols = b->sizes->split_rows * width;
  node->is_cheap = !b->keeps_gathered;
  plan_layer_define (graph, v[3], b->sizes->rows * width, graph->values[read].dtype);
  *out_kept = v[3];
  if (kept != read)
    {
      node = plan_layer_add (graph, PLAN_NODE_GATHER_SEQ, module, kept, v[4]);
      node->cols = b->sizes->split_rows * width;
      node->is_cheap = node->is_lazy = TRUE;
      plan_layer_define (graph, v[4], b->sizes->rows * width, graph->values[kept].dtype);
      *out_kept = v[4];
    }
  return v[3];
}

/* Adds an all-gather of a split input, and a node that quantises the gathered one. Every rank
 * quantises all tokens, so scales are those of an unsplit layer. Only the split input is kept for
 * the backward pass. */
static PlanValueId
add_gathered_input (PlanLayerBuilder *b, PlanModule module, PlanValueId in, const PlanValueId *v,
                    PlanTensorRole feeds, gint64 width, PlanValueId *out_kept)
{
  PlanValueId whole;
  const PlanValueId read = plan_layer_add_gathers (b, module, in, in, v, width, &whole);
  const PlanValueId out = plan_layer_add_quantize (b, module, read, v[1], v[2], feeds,
                                                   b->sizes->rows, width, out_kept);
  PlanNode *node = &b->graph->nodes[b->graph->n_nodes - 1];
  node->is_cheap = node->is_col_lazy = TRUE;
  return out;
}

/* See layer-builder.h. With tensor parallelism the GEMMs read all tokens of the group. */
PlanValueId
plan_layer_add_product_input (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                              const PlanValueId *v, PlanTensorRole feeds, gint64 width,
                              PlanValueId *out_kept)
{
  PlanValueId kept;
  if (b->gathers_first)
    return add_gathered_input (b, module, in, v, feeds, width, out_kept);
  const PlanValueId read = plan_layer_add_quantize (b, module, in, v[1], v[2], feeds,
                                                    b->sizes->split_rows, width, &kept);
  if (b->tp > 1 && !b->splits)
    {
      plan_layer_add (b->graph, PLAN_NODE_COPY_TP, module, read, read);
      *out_kept = kept;
      return read;
    }
  return plan_layer_add_gathers (b, module, read, kept, v, width, out_kept);
}

void
plan_layer_add_linear (PlanLayerBuilder *b, PlanModule module, PlanValueId in, PlanValueId kept,
                       PlanValueId out, PlanTensorRole weight, PlanTensorRole bias, gint64 cols,
                       gint64 depth)
{
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_LINEAR, module, in, out);
  node->kept = kept;
  node->weight = weight;
  node->bias = role (b, bias);
  node->rows = b->sizes->rows;
  node->cols = cols;
  node->depth = depth;
  plan_layer_define (b->graph, out, b->sizes->rows * cols, b->sizes->compute);
}

PlanValueId
plan_layer_add_branch_end (PlanLayerBuilder *b, PlanModule module, PlanValueId branch,
                           PlanValueId sum, PlanValueId post, PlanValueId stats,
                           PlanTensorRole weight)
{
  PlanLayerGraph *graph = b->graph;
  if (b->tp > 1 && !b->splits)
    plan_layer_add (graph, PLAN_NODE_REDUCE_TP, module, branch, branch)->cols
        = b->sizes->rows * b->model->hidden;
  else if (b->tp > 1)
    {
      PlanNode *node = plan_layer_add (graph, PLAN_NODE_REDUCE_TP, module, branch, sum);
      node->cols = b->sizes->split_rows * b->model->hidden;
      plan_layer_define (graph, sum, node->cols, b->sizes->compute);
      branch = sum;
    }
  if (role (b, weight) == NONE)
    return branch;
  plan_layer_add_norm (b, PLAN_MODULE_OTHER, branch, post, stats, weight, NONE, NONE);
  return post;
}

static void
add_residual (PlanLayerBuilder *b, PlanValueId in, PlanValueId branch, PlanValueId mask,
              PlanValueId out)
{
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_ADD, PLAN_MODULE_OTHER, in, out);
  node->other = branch;
  node->rows = b->sizes->split_rows;
  node->cols = b->model->hidden;
  plan_layer_define (b->graph, out, b->sizes->split_rows * b->model->hidden, b->sizes->compute);
  node->drops = b->drops;
  if (!b->drops || !b->keeps_masks)
    return;
  node->stats = mask;
  plan_layer_define (b->graph, mask, b->sizes->split_rows * b->model->hidden, PLAN_DTYPE_U8);
}

void
plan_layer_add_quantised_linear (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                                 PlanValueId q, PlanValueId col, PlanValueId out,
                                 PlanTensorRole weight, gint64 cols, gint64 depth)
{
  PlanValueId kept;
  const PlanValueId read
      = plan_layer_add_quantize (b, module, in, q, col, weight, b->sizes->rows, depth, &kept);
  plan_layer_add_linear (b, module, read, kept, out, weight, NONE, cols, depth);
}

/* Adds what weighs the result of attention that knows no sinks, from the logarithms of its sums
 * (torchtitan's gpt_oss/model.py, apply_attention_sink_rescale): autograd keeps both results. */
static PlanValueId
add_sinks (PlanLayerBuilder *b)
{
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_SINK, PLAN_MODULE_OTHER, PLAN_VALUE_ATTN,
                                   PLAN_VALUE_ATTN_GATED);
  node->other = PLAN_VALUE_LSE;
  node->weight = PLAN_TENSOR_SINKS;
  node->rows = b->sizes->rows * b->sizes->heads;
  node->cols = b->sizes->head_dim;
  plan_layer_define (b->graph, node->out, node->rows * node->cols, b->sizes->compute);
  return node->out;
}

static PlanValueId
add_attention (PlanLayerBuilder *b, PlanValueId qkv)
{
  PlanLayerGraph *graph = b->graph;
  const gint64 out_cols = b->sizes->heads * b->sizes->head_dim;
  const gint64 norms
      = b->model->qk_norm == PLAN_QK_NORM_FULL ? 2 : b->sizes->heads + b->sizes->kv_heads;
  const PlanQkL2 l2_norm = b->model->qk_l2_norm;
  const gboolean rotates = b->model->positions == PLAN_POSITIONS_ROPE && !b->is_nope;
  if (role (b, PLAN_TENSOR_Q_NORM) != NONE || l2_norm == PLAN_QK_L2_ALL
      || (l2_norm == PLAN_QK_L2_ROPE && rotates))
    {
      PlanNode *node
          = plan_layer_add (graph, PLAN_NODE_HEAD_NORM, PLAN_MODULE_OTHER, qkv, PLAN_VALUE_HEADS);
      node->stats = PLAN_VALUE_HEAD_STATS;
      node->rows = b->sizes->rows;
      node->cols = (b->sizes->heads + 2 * b->sizes->kv_heads) * b->sizes->head_dim;
      plan_layer_define (graph, PLAN_VALUE_HEADS, b->sizes->rows * node->cols, b->sizes->compute);
      plan_layer_define (graph, PLAN_VALUE_HEAD_STATS, b->sizes->rows * norms, PLAN_DTYPE_FP32);
      qkv = PLAN_VALUE_HEADS;
    }
  if (rotates)
    plan_layer_add (graph, PLAN_NODE_ROPE, PLAN_MODULE_OTHER, qkv, qkv);
  if (b->sizes->key_heads != b->sizes->kv_heads)
    {
      PlanNode *node = plan_layer_add (graph, PLAN_NODE_REPEAT, PLAN_MODULE_OTHER, qkv,
                                       PLAN_VALUE_KEYS_COPIED);
      node->rows = b->sizes->rows;
      plan_layer_define (graph, PLAN_VALUE_KEYS_COPIED, b->sizes->rows * 3 * out_cols,
                         b->sizes->compute);
      qkv = PLAN_VALUE_KEYS_COPIED;
    }
  PlanNode *node
      = plan_layer_add (graph, PLAN_NODE_ATTENTION, PLAN_MODULE_CORE_ATTN, qkv, PLAN_VALUE_ATTN);
  node->stats = PLAN_VALUE_LSE;
  node->rows = b->sizes->rows;
  node->cols = out_cols;
  plan_layer_define (graph, PLAN_VALUE_ATTN, b->sizes->rows * out_cols, b->sizes->compute);
  plan_layer_define (graph, PLAN_VALUE_LSE, b->sizes->rows * b->sizes->heads, PLAN_DTYPE_FP32);
  if (b->pairs_keys)
    {
      node->col = PLAN_VALUE_KEYS_COPIED;
      plan_layer_define (graph, PLAN_VALUE_KEYS_COPIED,
                         b->sizes->rows * 2 * b->sizes->kv_heads * b->sizes->head_dim,
                         b->sizes->compute);
    }
  return b->model->sinks && b->is_autograd ? add_sinks (b) : PLAN_VALUE_ATTN;
}

/* Parts queries, keys and values from the gate of attention's output, as copies (attention.py,
 * get_query_key_value_tensors: what SplitAlongDim gives is reshaped). */
static PlanValueId
add_split (PlanLayerBuilder *b)
{
  const PlanSizes *sizes = b->sizes;
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_SPLIT, PLAN_MODULE_OTHER,
                                   PLAN_VALUE_QKV_GATE, PLAN_VALUE_QKV);
  node->col = PLAN_VALUE_GATE_HEADS;
  node->rows = sizes->rows;
  node->cols = (sizes->heads + 2 * sizes->kv_heads) * sizes->head_dim;
  plan_layer_define (b->graph, PLAN_VALUE_QKV, sizes->rows * node->cols, sizes->compute);
  plan_layer_define (b->graph, PLAN_VALUE_GATE_HEADS, sizes->rows * sizes->heads * sizes->head_dim,
                     sizes->compute);
  return PLAN_VALUE_QKV;
}

/* Adds the gate of attention's output (attention.py, _apply_output_gate). */
static PlanValueId
add_output_gate (PlanLayerBuilder *b)
{
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_GATE_HEADS, PLAN_MODULE_OTHER,
                                   PLAN_VALUE_ATTN, PLAN_VALUE_ATTN_GATED);
  node->other = PLAN_VALUE_GATE_HEADS;
  node->rows = b->sizes->rows;
  node->cols = b->sizes->heads * b->sizes->head_dim;
  plan_layer_define (b->graph, PLAN_VALUE_ATTN_GATED, node->rows * node->cols, b->sizes->compute);
  return PLAN_VALUE_ATTN_GATED;
}

static PlanValueId
end_attention_branch (PlanLayerBuilder *b)
{
  return plan_layer_add_branch_end (b, PLAN_MODULE_OTHER, PLAN_VALUE_PROJ, PLAN_VALUE_PROJ_SUM,
                                    PLAN_VALUE_POST1, PLAN_VALUE_POST1_STATS,
                                    PLAN_TENSOR_ATTENTION_POST_NORM);
}

/* Adds the attention branch and returns its output. */
static PlanValueId
add_attention_branch (PlanLayerBuilder *b)
{
  static const PlanValueId forms[] = { PLAN_VALUE_NORM1, PLAN_VALUE_NORM1_Q, PLAN_VALUE_NORM1_COL,
                                       PLAN_VALUE_NORM1_FULL, PLAN_VALUE_NORM1_FULL_COL };
  PlanValueId kept;
  const gboolean is_latent = b->model->kv_lora > 0, is_gated = b->model->attn_gate;
  const gint64 attn_cols = b->sizes->heads * (is_latent ? b->model->v_dim : b->sizes->head_dim);
  const gint64 gates = is_gated ? attn_cols : 0;
  const gint64 q_cols = b->sizes->heads * b->sizes->head_dim,
               kv_cols = b->sizes->kv_heads * b->sizes->head_dim;
  const gint64 apart[] = { q_cols, kv_cols, kv_cols, 0 }, joined[] = { q_cols + 2 * kv_cols, 0 };
  const gboolean is_ssm = b->is_recurrent && b->model->ssm.heads > 0;
  plan_layer_add_norm (b, is_latent ? PLAN_MODULE_NORM : PLAN_MODULE_OTHER, PLAN_VALUE_X,
                       PLAN_VALUE_NORM1, PLAN_VALUE_STATS1, PLAN_TENSOR_ATTENTION_NORM,
                       PLAN_TENSOR_ATTENTION_NORM_BIAS,
                       is_ssm      ? PLAN_TENSOR_SSM_IN
                       : is_latent ? PLAN_TENSOR_KV_DOWN
                                   : PLAN_TENSOR_QKV);
  if (b->is_recurrent)
    {
      if (is_ssm)
        plan_layer_add_ssm (b, forms, b->seq);
      else
        plan_layer_add_delta (b, forms, b->seq);
      return end_attention_branch (b);
    }
  if (is_latent)
    {
      plan_layer_add_latent_attention (b, forms);
      plan_layer_add_quantised_linear (b, PLAN_MODULE_OTHER, PLAN_VALUE_ATTN, PLAN_VALUE_ATTN_Q,
                                       PLAN_VALUE_ATTN_COL, PLAN_VALUE_PROJ, PLAN_TENSOR_PROJ,
                                       b->model->hidden, attn_cols);
      plan_layer_save_whole_product (b);
      return end_attention_branch (b);
    }
  PlanValueId read = plan_layer_add_product_input (b, PLAN_MODULE_OTHER, PLAN_VALUE_NORM1, forms,
                                                   PLAN_TENSOR_QKV, b->model->hidden, &kept);
  b->norm_read = read;
  b->norm_kept = kept;
  plan_layer_add_linear (
      b, PLAN_MODULE_OTHER, read, kept, is_gated ? PLAN_VALUE_QKV_GATE : PLAN_VALUE_QKV,
      PLAN_TENSOR_QKV, PLAN_TENSOR_QKV_BIAS,
      gates + (b->sizes->heads + 2 * b->sizes->kv_heads) * b->sizes->head_dim, b->model->hidden);
  plan_layer_save_product (b, PLAN_VALUE_QKV_SAVED, b->joins_qkv ? joined : apart);
  const PlanValueId made = add_attention (b, is_gated ? add_split (b) : PLAN_VALUE_QKV);
  const PlanValueId out = is_gated ? add_output_gate (b) : made;
  read = plan_layer_add_quantize (b, PLAN_MODULE_OTHER, out, PLAN_VALUE_ATTN_Q, PLAN_VALUE_ATTN_COL,
                                  PLAN_TENSOR_PROJ, b->sizes->rows, attn_cols, &kept);
  plan_layer_add_linear (b, PLAN_MODULE_OTHER, read, kept, PLAN_VALUE_PROJ, PLAN_TENSOR_PROJ,
                         PLAN_TENSOR_PROJ_BIAS, b->model->hidden, attn_cols);
  plan_layer_save_whole_product (b);
  return end_attention_branch (b);
}

/* The MLP's norm quantises its output in models without experts alone: the output has one format in
 * all layers, and the router of a layer with experts reads it unquantised. */
static PlanValueId
add_mlp_branch (PlanLayerBuilder *b, PlanValueId in)
{
  static const PlanValueId forms[] = { PLAN_VALUE_NORM2, PLAN_VALUE_NORM2_Q, PLAN_VALUE_NORM2_COL,
                                       PLAN_VALUE_NORM2_FULL, PLAN_VALUE_NORM2_FULL_COL };
  PlanLayerGraph *graph = b->graph;
  PlanValueId kept;
  const gint64 up = b->model->gated ? 2 * b->sizes->ffn : b->sizes->ffn;
  PlanValueId read = b->norm_read;
  kept = b->norm_kept;
  if (!b->model->shared_norm)
    {
      plan_layer_add_norm (b, PLAN_MODULE_MLP, in, PLAN_VALUE_NORM2, PLAN_VALUE_STATS2,
                           PLAN_TENSOR_MLP_NORM, PLAN_TENSOR_MLP_NORM_BIAS,
                           b->model->experts > 0 ? NONE : PLAN_TENSOR_GATE_UP);
      read = plan_layer_add_product_input (b, PLAN_MODULE_MLP, PLAN_VALUE_NORM2, forms,
                                           PLAN_TENSOR_GATE_UP, b->model->hidden, &kept);
    }
  plan_layer_add_linear (b, PLAN_MODULE_MLP, read, kept, PLAN_VALUE_UP, PLAN_TENSOR_GATE_UP,
                         PLAN_TENSOR_GATE_UP_BIAS, up, b->model->hidden);
  plan_layer_save_product (b, PLAN_VALUE_UP_SAVED,
                           (gint64[]){ b->sizes->ffn, up - b->sizes->ffn, 0 });
  PlanNode *node
      = plan_layer_add (graph, PLAN_NODE_ACTIVATE, PLAN_MODULE_MLP, PLAN_VALUE_UP, PLAN_VALUE_ACT);
  node->rows = b->sizes->rows;
  node->cols = b->sizes->ffn;
  plan_layer_define (graph, PLAN_VALUE_ACT, b->sizes->rows * b->sizes->ffn, b->sizes->compute);
  if (b->keeps_gate)
    {
      node->stats = PLAN_VALUE_GATE;
      plan_layer_define (graph, PLAN_VALUE_GATE, b->sizes->rows * b->sizes->ffn, b->sizes->compute);
    }
  read = plan_layer_add_quantize (b, PLAN_MODULE_MLP, PLAN_VALUE_ACT, PLAN_VALUE_ACT_Q,
                                  PLAN_VALUE_ACT_COL, PLAN_TENSOR_DOWN, b->sizes->rows,
                                  b->sizes->ffn, &kept);
  plan_layer_add_linear (b, PLAN_MODULE_MLP, read, kept, PLAN_VALUE_DOWN, PLAN_TENSOR_DOWN,
                         PLAN_TENSOR_DOWN_BIAS, b->model->hidden, b->sizes->ffn);
  if (!b->compiles)
    plan_layer_save_whole_product (b);
  return plan_layer_add_branch_end (b, PLAN_MODULE_MLP, PLAN_VALUE_DOWN, PLAN_VALUE_DOWN_SUM,
                                    PLAN_VALUE_POST2, PLAN_VALUE_POST2_STATS,
                                    PLAN_TENSOR_MLP_POST_NORM);
}

/* Twice the mean number of tokens that a query sees among s tokens (of a sequence or document).
 * With a window of w it sees w - w^2 / 2s on average, and without one s / 2; in chunks, half of
 * its chunk. */
static gint64
keys_of (const PlanModel *model, guint kind, gint64 s)
{
  const gboolean is_windowed = kind & PLAN_LAYER_WINDOWED && model->window < s;
  if (is_windowed && model->window_chunks)
    return plan_model_pairs_in_chunks (model, s) / s;
  return is_windowed ? 2 * model->window - model->window * model->window / s : s;
}

/* The mean number of `groups` equal groups of experts in which a token's experts lie, if all
 * experts are equally likely. `chosen` experts per token may be a fraction. */
static double
groups_reached (const PlanModel *model, double chosen, gint64 groups)
{
  const double experts = (double)model->experts, own = experts / (double)groups;
  double none = 1;
  for (double i = 0; i < chosen; i++)
    {
      const double misses = MAX (experts - own - i, 0) / (experts - i);
      none *= chosen - i >= 1 ? misses : 1 - (chosen - i) * (1 - misses);
    }
  return (double)groups * (1 - none);
}

/* moe_utils.py, get_capacity */
static gint64
capacity_of (const PlanModel *model, const Plan *plan, gint64 tokens)
{
  const double mean
      = model->experts > 0 ? (double)(tokens * model->topk) / (double)model->experts : 0;
  return (gint64)ceil (mean * ((double)plan->value[PLAN_MOE_CAPACITY] / 1e6));
}

/* The mean number of experts that take a token. */
static double
experts_of_token (const PlanSizes *self, const PlanModel *model)
{
  const double room = (double)(self->capacity * model->experts) / (double)MAX (self->split_rows, 1);
  return self->pads           ? room
         : self->capacity > 0 ? MIN (room, (double)model->topk)
                              : (double)model->topk;
}

/* The imbalance of experts, limited to the case that every token goes to every expert of the
 * fullest rank. */
static double
imbalance_of (const PlanModel *model, const Plan *plan)
{
  const double most = model->topk > 0 ? (double)model->experts / (double)model->topk : 1;
  return MIN ((double)plan->value[PLAN_MOE_IMBALANCE] / 1e6,
              MIN (most, (double)plan->value[PLAN_EP]));
}

/* Counts rows where each token goes once to each node that has one of its experts, and there once
 * to each rank: rows that come to the fullest rank, and rows that a rank sends over links and
 * network. A router that chooses among groups of experts reaches at most as many nodes as it
 * chooses groups. */
static void
count_sent_rows (PlanSizes *self, const PlanModel *model, const Plan *plan,
                 const PlanCluster *cluster)
{
  const gint64 ep = plan->value[PLAN_EP];
  const gint64 linked = CLAMP (plan_cluster_linked_devices (cluster), 1, ep);
  const gint64 nodes = (ep + linked - 1) / linked;
  const double tokens = (double)self->split_rows * (self->pads ? 1 : imbalance_of (model, plan));
  const double chosen = experts_of_token (self, model);
  const double ranks = model->experts > 0 ? groups_reached (model, chosen, ep) : 0;
  double reached = model->experts > 0 ? groups_reached (model, chosen, nodes) : 0;
  if (model->router_group_topk > 0 && !self->pads)
    reached = MIN (reached, (double)model->router_group_topk);
  self->came_rows
      = MIN ((gint64)ceil (tokens * ranks), MIN (self->expert_rows, self->split_rows * ep));
  self->near_rows = (gint64)((double)self->came_rows * (double)(linked - 1) / (double)linked);
  self->far_rows = (gint64)(tokens * reached * (double)(nodes - 1) / (double)nodes);
}

/* The rows that a rank sends, equally many to each rank with other experts, and that the fullest
 * rank receives: at most all, or what its experts have room for. */
static gint64
sent_rows (const PlanSizes *self, const PlanModel *model, const Plan *plan)
{
  const gint64 ep = plan->value[PLAN_EP], rows = self->split_rows * model->topk;
  const gint64 wanted = ((gint64)((double)rows * imbalance_of (model, plan)) + ep - 1) / ep * ep;
  const gint64 room = self->capacity * model->experts;
  return self->pads ? room : self->capacity > 0 ? MIN (wanted, room) : wanted;
}

/* Rows of an expert that our own kernels quantise begin at whole blocks of scales, and at whole
 * tiles of these, so that cuBLASLt multiplies them: with one scale at 16 bytes of a column. */
#define ROWS_OF_TILES 128
#define ROWS_OF_BYTES 16

static gint64
round_up (gint64 rows, gint64 multiple)
{
  return (rows + multiple - 1) / multiple * multiple;
}

/* Counts the rows that experts read. Where rows of each begin at a multiple, all of them may end
 * just behind one. Padded experts have equally many, from all ranks that they take rows of. */
static void
count_expert_rows (PlanSizes *self, const Plan *plan, const PlanStack *stack)
{
  const gint64 rows = self->sent_rows * plan->value[PLAN_ETP];
  const gboolean is_aligned = stack->layer.kernels == PLAN_KERNELS_OWN && self->quantises;
  self->row_multiple = !is_aligned                           ? 1
                       : plan_dtype_block (self->linear) > 0 ? ROWS_OF_TILES
                                                             : ROWS_OF_BYTES;
  self->expert_rows = self->pads
                          ? self->experts * round_up (rows / self->experts, self->row_multiple)
                          : (rows + self->experts * (self->row_multiple - 1)) / self->row_multiple
                                * self->row_multiple;
  self->empty_rows = self->expert_rows - rows;
}

/* The delta rule's heads on one rank. */
static PlanDelta
delta_of (const PlanModel *model, gint64 tp)
{
  PlanDelta delta = model->delta;
  delta.key_heads /= tp;
  delta.value_heads /= tp;
  return delta;
}

/* Heads and groups of state spaces on one rank (mamba_mixer.py, nheads_local_tp). */
static PlanSsm
ssm_of (const PlanModel *model, gint64 tp)
{
  PlanSsm ssm = model->ssm;
  ssm.heads /= tp;
  ssm.groups /= tp;
  return ssm;
}

static void
init_sizes (PlanSizes *self, const PlanModel *model, const Plan *plan, const PlanStack *stack,
            const PlanCluster *cluster)
{
  const gint64 *value = plan->value;
  const gint64 tp = value[PLAN_TP], rows = value[PLAN_MBS] * value[PLAN_SEQ] / value[PLAN_CP];
  const gint64 recipe = value[PLAN_COMPUTE];
  /* With one scale per tensor, Blackwell multiplies a matrix in either orientation. */
  const gboolean per_tensor
      = recipe == PLAN_COMPUTE_FP8_DELAYED || recipe == PLAN_COMPUTE_FP8_TENSORWISE;
  *self = (PlanSizes){ .rows = rows,
                       .split_rows = value[PLAN_SP] == PLAN_SP_ON ? rows / tp : rows,
                       .heads = model->heads / tp,
                       .kv_heads = model->kv_heads / tp,
                       .head_dim = model->head_dim,
                       .delta = delta_of (model, tp),
                       .ssm = ssm_of (model, tp),
                       .ffn = model->ffn / tp,
                       .experts = model->experts / value[PLAN_EP],
                       .expert_ffn = model->expert_ffn / value[PLAN_ETP],
                       .shared_ffn = model->shared_ffn / tp,
                       .router = value[PLAN_ROUTER_DTYPE] == PLAN_ROUTER_DTYPE_FP32
                                     ? PLAN_DTYPE_FP32
                                     : plan_weights_dtype (plan),
                       .vocab = plan_stack_padded_vocab (stack, model->vocab, tp) / tp,
                       .compute = plan_weights_dtype (plan),
                       .linear = plan_field_dtype (plan, PLAN_COMPUTE),
                       .weights = plan_weight_copies_dtype (plan) };
  self->capacity = capacity_of (model, plan, self->split_rows);
  self->pads = value[PLAN_MOE_PAD_TO_CAPACITY] == PLAN_MOE_PAD_TO_CAPACITY_ON;
  self->sent_rows = sent_rows (self, model, plan);
  self->quantises = self->linear != self->compute;
  count_expert_rows (self, plan, stack);
  count_sent_rows (self, model, plan, cluster);
  self->key_heads = stack->layer.keys == PLAN_KEYS_REPEATED ? self->heads : self->kv_heads;
  self->has_columns = self->quantises && !(per_tensor && cluster->compute_capability >= 100);
  self->per_op = value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE
                 && value[PLAN_TASK] == PLAN_TASK_TRAIN && HAS_MODULE (value, OP_SAC);
  self->sac = self->per_op ? stack->layer.sac : 0;
  if (self->per_op && cluster->compute_capability < 100)
    self->sac |= PLAN_SAC_CUDNN;
  if ((self->sac & PLAN_SAC_SOME) && (model->kv_lora > 0 || model->sinks || model->scores_on_input))
    self->sac |= PLAN_SAC_ROWS;
}

static void
init_graph (PlanLayerGraph *self, const PlanLayerBuilder *common, guint kind, gint64 attended)
{
  const PlanModel *model = common->model;
  PlanLayerBuilder b = *common;
  b.graph = self;
  b.is_nope = (kind & PLAN_LAYER_NOPE) != 0;
  b.is_recurrent = (kind & PLAN_LAYER_RECURRENT) != 0;
  b.hides_products = b.compiles && b.compiles_parts && (kind & PLAN_LAYER_EXPERTS);
  self->keys = keys_of (model, kind, attended);
  plan_layer_define (self, PLAN_VALUE_X, b.sizes->split_rows * model->hidden, b.sizes->compute);
  const PlanValueId hidden
      = plan_layer_mixes (kind) && plan_layer_feeds (kind) ? PLAN_VALUE_HIDDEN2 : PLAN_VALUE_X;
  if (plan_layer_mixes (kind))
    add_residual (&b, PLAN_VALUE_X, add_attention_branch (&b), PLAN_VALUE_MASK1,
                  plan_layer_feeds (kind) ? PLAN_VALUE_HIDDEN2 : PLAN_VALUE_OUT);
  if (plan_layer_feeds (kind))
    {
      const PlanValueId before = model->parallel ? PLAN_VALUE_X : hidden;
      const PlanValueId mlp = kind & PLAN_LAYER_EXPERTS ? plan_layer_add_experts_branch (&b, before)
                                                        : add_mlp_branch (&b, before);
      add_residual (&b, hidden, mlp, PLAN_VALUE_MASK2, PLAN_VALUE_OUT);
    }
  plan_layer_list_values (self);
}

/* What stands for the graph of layers that a model does not have. */
static const PlanLayerGraph no_layers = { .n_nodes = 0 };

/* Collects every value that any kind of layer has. */
static void
join_values (PlanLayerGraphs *self)
{
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    for (PlanValueId v = 0; v < PLAN_N_VALUES && self->layers[kind] > 0; v++)
      {
        const PlanValue *value = &self->of[kind]->values[v];
        g_assert (value->elements == 0 || self->values[v].elements == 0
                  || value->elements == self->values[v].elements);
        if (value->elements > 0)
          self->values[v] = *value;
      }
}

/* The dispatcher in use: a library has nothing to send where all experts are on one rank. */
static gint64
dispatcher_of (const Plan *plan)
{
  const gint64 said = plan->value[PLAN_MOE_DISPATCHER];
  return plan->value[PLAN_EP] > 1 || said == PLAN_MOE_DISPATCHER_ALLGATHER
             ? said
             : PLAN_MOE_DISPATCHER_ALLTOALL;
}

void
plan_layer_graphs_init (PlanLayerGraphs *self, const PlanModel *model, const Plan *plan,
                        const PlanStack *stack, const PlanCluster *cluster)
{
  const gint64 *value = plan->value;
  const gboolean compiles = value[PLAN_COMPILE] == PLAN_COMPILE_ON;
  const gboolean has_own_kernels = stack->layer.kernels == PLAN_KERNELS_OWN;
  memset (self->values, 0, sizeof self->values);
  init_sizes (&self->sizes, model, plan, stack, cluster);
  plan_model_count_kinds (model, value[PLAN_SEQ], self->layers);
  const PlanLayerBuilder b
      = { .sizes = &self->sizes,
          .model = model,
          .tp = value[PLAN_TP],
          .seq = value[PLAN_SEQ] / value[PLAN_CP],
          .ep = value[PLAN_EP],
          .etp = value[PLAN_ETP],
          .dispatcher = dispatcher_of (plan),
          .splits = value[PLAN_SP] == PLAN_SP_ON,
          .drops = plan_drops_hidden (plan),
          .keeps_masks = !has_own_kernels,
          .gathers_first = has_own_kernels && self->sizes.quantises && value[PLAN_SP] == PLAN_SP_ON,
          .fuses_norms = value[PLAN_COMPUTE] == PLAN_COMPUTE_FP8_DELAYED
                         && stack->weights.quantised != PLAN_QUANTISED_ON_USE
                         && !(has_own_kernels && value[PLAN_SP] == PLAN_SP_ON),
          .keeps_gate = stack->layer.kernels == PLAN_KERNELS_PYTORCH && model->gated && !compiles,
          .compiles = compiles,
          .compiles_parts = stack->layer.compiles_parts,
          .keeps_gathered = stack->layer.sequences == PLAN_SEQUENCES_KEPT && !self->sizes.quantises,
          .pairs_keys = stack->layer.keys == PLAN_KEYS_PAIRED,
          .joins_qkv = stack->layer.joins_qkv,
          .has_own_kernels = has_own_kernels,
          .is_autograd = stack->layer.kernels == PLAN_KERNELS_PYTORCH,
          .pads_rows = stack->layer.pads_rows,
          .waits_for_counts = has_own_kernels && cluster->kind == PLAN_DEVICE_GPU,
          .overlaps_shared = value[PLAN_MOE_SHARED_OVERLAP] == PLAN_MOE_SHARED_OVERLAP_ON,
          .moves_eagerly = value[PLAN_MOE_PERMUTE_FUSION] == PLAN_MOE_PERMUTE_FUSION_OFF,
          .quantises_on_use = stack->weights.quantised == PLAN_QUANTISED_ON_USE };
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    {
      self->of[kind] = &no_layers;
      if (self->layers[kind] > 0)
        {
          PlanLayerGraph *graph = g_new0 (PlanLayerGraph, 1);
          init_graph (graph, &b, kind, plan_attended_tokens (plan));
          plan_layer_find_captured (graph, kind, plan, model);
          self->of[kind] = graph;
        }
    }
  join_values (self);
}

void
plan_layer_graphs_clear (PlanLayerGraphs *self)
{
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    if (self->of[kind] != &no_layers)
      g_free ((gpointer)self->of[kind]);
}
