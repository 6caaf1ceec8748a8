/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower/layer-graph.h"

#define NONE PLAN_N_TENSORS

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

/* What the backward pass of a node reads. */
static PlanValueSet
needs (const PlanNode *node)
{
  const PlanValueSet stats = plan_value_bit (node->stats);
  switch (node->kind)
    {
    case PLAN_NODE_NORM:
    case PLAN_NODE_HEAD_NORM:
    case PLAN_NODE_ACTIVATE:
      return plan_value_bit (node->in) | stats;
    case PLAN_NODE_ATTENTION:
      return plan_value_bit (node->in) | plan_value_bit (node->out) | plan_value_bit (node->col)
             | stats;
    case PLAN_NODE_LINEAR:
      return plan_value_bit (node->kept) | plan_value_bit (node->saved);
    case PLAN_NODE_ADD:
      return stats;
    case PLAN_NODE_QUANTIZE:
    case PLAN_NODE_TRANSPOSE:
    case PLAN_NODE_GATHER_SEQ:
    case PLAN_NODE_COPY_TP:
    case PLAN_NODE_ROPE:
    case PLAN_NODE_REPEAT:
    case PLAN_NODE_REDUCE_TP:
      return 0;
    }
  g_assert_not_reached ();
}

#define HAS_MODULE(value, id) ((value)[PLAN_RECOMPUTE_MODULES] >> PLAN_RECOMPUTE_MODULES_##id & 1)

gboolean
plan_node_is_again (const PlanLayerGraph *self, const PlanNode *node, const Plan *plan,
                    gboolean is_in_block)
{
  const gint64 *value = plan->value;
  const gboolean is_block = value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK;
  if (value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL)
    return !is_block || is_in_block;
  if (value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_SELECTIVE)
    return FALSE;
  return (node->module == PLAN_MODULE_MLP && HAS_MODULE (value, MLP))
         || (node->module == PLAN_MODULE_CORE_ATTN && HAS_MODULE (value, CORE_ATTN))
         || ((node->kind != PLAN_NODE_ATTENTION || self->repeats_attention)
             && node->kind != PLAN_NODE_REDUCE_TP && HAS_MODULE (value, OP_SAC));
}

static void
define (PlanLayerGraph *self, PlanValueId id, gint64 elements, PlanDtype dtype)
{
  self->values[id] = (PlanValue){ (guint64)elements, dtype };
}

static PlanNode *
add (PlanLayerGraph *self, PlanNodeKind kind, PlanModule module, PlanValueId in, PlanValueId out)
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
                      .weight = NONE,
                      .bias = NONE,
                      .feeds = NONE };
  return node;
}

/* What building a layer looks at. */
typedef struct
{
  PlanLayerGraph *net;
  const PlanModel *model;
  gint64 tp;
  gboolean splits;      /* sequence parallel */
  gboolean fuses_norms; /* norms write the format of products */
  gboolean drops;       /* a share of what branches add */
  gboolean keeps_gate, quantises_on_use, compiles, keeps_gathered, pairs_keys;
} Builder;

/* A weight's or bias's role where the model has it. */
static PlanTensorRole
role (const Builder *b, PlanTensorRole wanted)
{
  if (wanted == NONE)
    return NONE;
  return plan_model_tensor (b->model, wanted, b->model->vocab).rows > 0 ? wanted : NONE;
}

static void
add_norm (Builder *b, PlanModule module, PlanValueId in, PlanValueId out, PlanValueId stats,
          PlanTensorRole weight, PlanTensorRole bias, PlanTensorRole feeds)
{
  const gboolean fused = feeds != NONE && b->fuses_norms;
  const gint64 rows = b->net->split_rows, cols = b->model->hidden;
  PlanNode *node = add (b->net, PLAN_NODE_NORM, module, in, out);
  node->stats = stats;
  node->weight = weight;
  node->bias = role (b, bias);
  node->feeds = fused ? feeds : NONE;
  node->rows = rows;
  node->cols = cols;
  define (b->net, out, rows * cols, fused ? b->net->linear : b->net->compute);
  define (b->net, stats, b->model->norm == PLAN_NORM_LAYERNORM ? 2 * rows : rows, PLAN_DTYPE_FP32);
}

/* `in` in the format of products as `out`, transposed as `col`; which of them the forward product
 * reads is returned, which the backward one is stored. */
static PlanValueId
add_quantize (Builder *b, PlanModule module, PlanValueId in, PlanValueId out, PlanValueId col,
              PlanTensorRole feeds, gint64 rows, gint64 cols, PlanValueId *out_kept)
{
  PlanLayerGraph *net = b->net;
  *out_kept = in;
  if (!net->quantises)
    return in;
  const gboolean is_done = net->values[in].dtype == net->linear;
  *out_kept = is_done ? in : out;
  if (!is_done)
    {
      PlanNode *node = add (net, PLAN_NODE_QUANTIZE, module, in, out);
      node->feeds = feeds;
      node->rows = rows;
      node->cols = cols;
      node->col = net->has_columns ? col : PLAN_NO_VALUE;
      node->is_cheap = b->quantises_on_use;
      define (net, out, rows * cols, net->linear);
    }
  else if (net->has_columns)
    {
      PlanNode *node = add (net, PLAN_NODE_TRANSPOSE, module, in, col);
      node->rows = rows;
      node->cols = cols;
    }
  if (net->has_columns)
    {
      define (net, col, rows * cols, net->linear);
      *out_kept = col;
    }
  return is_done ? in : out;
}

/* A norm, and what the products behind it read: all tokens of the tensor-parallel group. */
static PlanValueId
add_product_input (Builder *b, PlanModule module, PlanValueId in, const PlanValueId *v,
                   PlanTensorRole feeds, PlanValueId *out_kept)
{
  /* v: norm, its quantised forms, its whole forms */
  PlanLayerGraph *net = b->net;
  const gint64 hidden = b->model->hidden;
  PlanValueId kept,
      read = add_quantize (b, module, in, v[1], v[2], feeds, net->split_rows, hidden, &kept);
  if (b->tp > 1 && !b->splits)
    {
      add (net, PLAN_NODE_COPY_TP, module, read, read);
      *out_kept = kept;
      return read;
    }
  if (!b->splits)
    {
      *out_kept = kept;
      return read;
    }
  PlanNode *node = add (net, PLAN_NODE_GATHER_SEQ, module, read, v[3]);
  node->cols = net->split_rows * hidden;
  node->is_cheap = !b->keeps_gathered;
  define (net, v[3], net->rows * hidden, net->values[read].dtype);
  *out_kept = v[3];
  if (kept != read)
    {
      node = add (net, PLAN_NODE_GATHER_SEQ, module, kept, v[4]);
      node->cols = net->split_rows * hidden;
      node->is_cheap = node->is_lazy = TRUE;
      define (net, v[4], net->rows * hidden, net->values[kept].dtype);
      *out_kept = v[4];
    }
  return v[3];
}

static void
add_linear (Builder *b, PlanModule module, PlanValueId in, PlanValueId kept, PlanValueId out,
            PlanTensorRole weight, PlanTensorRole bias, gint64 cols, gint64 depth)
{
  PlanNode *node = add (b->net, PLAN_NODE_LINEAR, module, in, out);
  node->kept = kept;
  node->weight = weight;
  node->bias = role (b, bias);
  node->rows = b->net->rows;
  node->cols = cols;
  node->depth = depth;
  define (b->net, out, b->net->rows * cols, b->net->compute);
}

/* The sum over the tensor-parallel group, then the norm behind the branch where there is one. */
static PlanValueId
add_branch_end (Builder *b, PlanModule module, PlanValueId branch, PlanValueId sum,
                PlanValueId post, PlanValueId stats, PlanTensorRole weight)
{
  PlanLayerGraph *net = b->net;
  if (b->tp > 1 && !b->splits)
    add (net, PLAN_NODE_REDUCE_TP, module, branch, branch)->cols = net->rows * b->model->hidden;
  else if (b->tp > 1)
    {
      PlanNode *node = add (net, PLAN_NODE_REDUCE_TP, module, branch, sum);
      node->cols = net->split_rows * b->model->hidden;
      define (net, sum, node->cols, net->compute);
      branch = sum;
    }
  if (role (b, weight) == NONE)
    return branch;
  add_norm (b, PLAN_MODULE_OTHER, branch, post, stats, weight, NONE, NONE);
  return post;
}

static void
add_residual (Builder *b, PlanValueId in, PlanValueId branch, PlanValueId mask, PlanValueId out)
{
  PlanNode *node = add (b->net, PLAN_NODE_ADD, PLAN_MODULE_OTHER, in, out);
  node->other = branch;
  node->rows = b->net->split_rows;
  node->cols = b->model->hidden;
  define (b->net, out, b->net->split_rows * b->model->hidden, b->net->compute);
  if (!b->drops)
    return;
  node->stats = mask;
  define (b->net, mask, b->net->split_rows * b->model->hidden, PLAN_DTYPE_U8);
}

/* What per-op selective recomputing keeps of the product just added: a part, or its output. */
static void
save (Builder *b, PlanValueId saved, gint64 cols)
{
  PlanNode *node = &b->net->nodes[b->net->n_nodes - 1];
  if (!b->net->per_op || cols == 0)
    return;
  node->saved = cols == node->cols ? node->out : saved;
  node->saved_cols = cols;
  if (node->saved == saved)
    define (b->net, saved, b->net->rows * cols, b->net->compute);
}

static PlanValueId
add_attention (Builder *b, PlanValueId qkv)
{
  PlanLayerGraph *net = b->net;
  const gint64 heads = net->heads + net->kv_heads, out_cols = net->heads * net->head_dim;
  if (role (b, PLAN_TENSOR_Q_NORM) != NONE)
    {
      PlanNode *node = add (net, PLAN_NODE_HEAD_NORM, PLAN_MODULE_OTHER, qkv, PLAN_VALUE_HEADS);
      node->stats = PLAN_VALUE_HEAD_STATS;
      node->rows = net->rows;
      node->cols = (net->heads + 2 * net->kv_heads) * net->head_dim;
      define (net, PLAN_VALUE_HEADS, net->rows * node->cols, net->compute);
      define (net, PLAN_VALUE_HEAD_STATS, net->rows * heads, PLAN_DTYPE_FP32);
      qkv = PLAN_VALUE_HEADS;
    }
  if (b->model->positions == PLAN_POSITIONS_ROPE)
    add (net, PLAN_NODE_ROPE, PLAN_MODULE_OTHER, qkv, qkv);
  if (net->key_heads != net->kv_heads)
    {
      PlanNode *node = add (net, PLAN_NODE_REPEAT, PLAN_MODULE_OTHER, qkv, PLAN_VALUE_WIDE);
      node->rows = net->rows;
      define (net, PLAN_VALUE_WIDE, net->rows * 3 * out_cols, net->compute);
      qkv = PLAN_VALUE_WIDE;
    }
  PlanNode *node = add (net, PLAN_NODE_ATTENTION, PLAN_MODULE_CORE_ATTN, qkv, PLAN_VALUE_ATTN);
  node->stats = PLAN_VALUE_LSE;
  node->rows = net->rows;
  node->cols = out_cols;
  define (net, PLAN_VALUE_ATTN, net->rows * out_cols, net->compute);
  define (net, PLAN_VALUE_LSE, net->rows * net->heads, PLAN_DTYPE_FP32);
  if (b->pairs_keys)
    {
      node->col = PLAN_VALUE_PAIRS;
      define (net, PLAN_VALUE_PAIRS, net->rows * 2 * net->kv_heads * net->head_dim, net->compute);
    }
  return PLAN_VALUE_ATTN;
}

/* From x to what the attention branch adds. */
static PlanValueId
add_attention_branch (Builder *b)
{
  static const PlanValueId forms[] = { PLAN_VALUE_NORM1, PLAN_VALUE_NORM1_Q, PLAN_VALUE_NORM1_COL,
                                       PLAN_VALUE_NORM1_FULL, PLAN_VALUE_NORM1_FULL_COL };
  PlanLayerGraph *net = b->net;
  PlanValueId kept;
  const gint64 attn_cols = net->heads * net->head_dim;
  add_norm (b, PLAN_MODULE_OTHER, PLAN_VALUE_X, PLAN_VALUE_NORM1, PLAN_VALUE_STATS1,
            PLAN_TENSOR_ATTENTION_NORM, PLAN_TENSOR_ATTENTION_NORM_BIAS, PLAN_TENSOR_QKV);
  PlanValueId read
      = add_product_input (b, PLAN_MODULE_OTHER, PLAN_VALUE_NORM1, forms, PLAN_TENSOR_QKV, &kept);
  add_linear (b, PLAN_MODULE_OTHER, read, kept, PLAN_VALUE_QKV, PLAN_TENSOR_QKV,
              PLAN_TENSOR_QKV_BIAS, (net->heads + 2 * net->kv_heads) * net->head_dim,
              b->model->hidden);
  save (b, PLAN_VALUE_QKV_SAVED, (net->heads + net->kv_heads) * net->head_dim);
  add_attention (b, PLAN_VALUE_QKV);
  read = add_quantize (b, PLAN_MODULE_OTHER, PLAN_VALUE_ATTN, PLAN_VALUE_ATTN_Q,
                       PLAN_VALUE_ATTN_COL, PLAN_TENSOR_PROJ, net->rows, attn_cols, &kept);
  add_linear (b, PLAN_MODULE_OTHER, read, kept, PLAN_VALUE_PROJ, PLAN_TENSOR_PROJ,
              PLAN_TENSOR_PROJ_BIAS, b->model->hidden, attn_cols);
  return add_branch_end (b, PLAN_MODULE_OTHER, PLAN_VALUE_PROJ, PLAN_VALUE_PROJ_SUM,
                         PLAN_VALUE_POST1, PLAN_VALUE_POST1_STATS, PLAN_TENSOR_ATTENTION_POST_NORM);
}

static PlanValueId
add_mlp_branch (Builder *b, PlanValueId in)
{
  static const PlanValueId forms[] = { PLAN_VALUE_NORM2, PLAN_VALUE_NORM2_Q, PLAN_VALUE_NORM2_COL,
                                       PLAN_VALUE_NORM2_FULL, PLAN_VALUE_NORM2_FULL_COL };
  PlanLayerGraph *net = b->net;
  PlanValueId kept;
  const gint64 up = b->model->gated ? 2 * net->ffn : net->ffn;
  add_norm (b, PLAN_MODULE_MLP, in, PLAN_VALUE_NORM2, PLAN_VALUE_STATS2, PLAN_TENSOR_MLP_NORM,
            PLAN_TENSOR_MLP_NORM_BIAS, PLAN_TENSOR_GATE_UP);
  PlanValueId read
      = add_product_input (b, PLAN_MODULE_MLP, PLAN_VALUE_NORM2, forms, PLAN_TENSOR_GATE_UP, &kept);
  add_linear (b, PLAN_MODULE_MLP, read, kept, PLAN_VALUE_UP, PLAN_TENSOR_GATE_UP,
              PLAN_TENSOR_GATE_UP_BIAS, up, b->model->hidden);
  save (b, PLAN_VALUE_UP_SAVED, net->ffn);
  PlanNode *node = add (net, PLAN_NODE_ACTIVATE, PLAN_MODULE_MLP, PLAN_VALUE_UP, PLAN_VALUE_ACT);
  node->rows = net->rows;
  node->cols = net->ffn;
  define (net, PLAN_VALUE_ACT, net->rows * net->ffn, net->compute);
  if (b->keeps_gate)
    {
      node->stats = PLAN_VALUE_GATE;
      define (net, PLAN_VALUE_GATE, net->rows * net->ffn, net->compute);
    }
  read = add_quantize (b, PLAN_MODULE_MLP, PLAN_VALUE_ACT, PLAN_VALUE_ACT_Q, PLAN_VALUE_ACT_COL,
                       PLAN_TENSOR_DOWN, net->rows, net->ffn, &kept);
  add_linear (b, PLAN_MODULE_MLP, read, kept, PLAN_VALUE_DOWN, PLAN_TENSOR_DOWN,
              PLAN_TENSOR_DOWN_BIAS, b->model->hidden, net->ffn);
  save (b, PLAN_VALUE_DOWN_SAVED, b->model->gated && !b->compiles ? b->model->hidden : 0);
  return add_branch_end (b, PLAN_MODULE_MLP, PLAN_VALUE_DOWN, PLAN_VALUE_DOWN_SUM, PLAN_VALUE_POST2,
                         PLAN_VALUE_POST2_STATS, PLAN_TENSOR_MLP_POST_NORM);
}

/* A window of w lets the queries of a sequence of s see w - w^2 / 2s tokens on average. */
static gint64
keys_of (const PlanModel *model, gint64 seq)
{
  if (model->window <= 0 || model->window >= seq)
    return seq;
  const gint64 seen = 2 * model->window - model->window * model->window / seq;
  const gint64 windowed
      = (model->layers - model->window_from + model->window_every - 1) / model->window_every;
  return (windowed * seen + (model->layers - windowed) * seq) / model->layers;
}

static void
set_sizes (PlanLayerGraph *self, const PlanModel *model, const Plan *plan, const PlanStack *stack)
{
  const gint64 *value = plan->value;
  const gint64 tp = value[PLAN_TP];
  self->rows = value[PLAN_MBS] * value[PLAN_SEQ] / value[PLAN_CP];
  self->split_rows = value[PLAN_SP] == PLAN_SP_ON ? self->rows / tp : self->rows;
  self->heads = model->heads / tp;
  self->kv_heads = model->kv_heads / tp;
  self->key_heads = stack->repeats_keys ? self->heads : self->kv_heads;
  self->head_dim = model->head_dim;
  self->keys = keys_of (model, value[PLAN_SEQ]);
  self->ffn = model->ffn / tp;
  self->vocab = plan_stack_padded_vocab (stack, model->vocab, tp) / tp;
}

static void
list_values (PlanLayerGraph *self)
{
  for (guint i = 0; i < self->n_nodes; i++)
    {
      PlanNode *node = &self->nodes[i];
      node->reads = plan_value_bit (node->in) | plan_value_bit (node->other);
      node->makes = plan_value_bit (node->out) | plan_value_bit (node->stats)
                    | plan_value_bit (node->col) | plan_value_bit (node->saved);
      node->needs = needs (node);
    }
}

void
plan_layer_graph_init (PlanLayerGraph *self, const PlanModel *model, const Plan *plan,
                       const PlanStack *stack, const PlanCluster *cluster)
{
  const gint64 recipe = plan->value[PLAN_COMPUTE];
  *self = (PlanLayerGraph){ .compute = plan_weights_dtype (plan),
                            .linear = plan_field_dtype (plan, PLAN_COMPUTE) };
  self->weights = plan_weight_copies_dtype (plan);
  self->quantises = self->linear != self->compute;
  /* One scale for a whole tensor: Blackwell multiplies it either way round. */
  const gboolean whole
      = recipe == PLAN_COMPUTE_FP8_DELAYED || recipe == PLAN_COMPUTE_FP8_TENSORWISE;
  self->has_columns = self->quantises && !(whole && cluster->compute_capability >= 100);
  self->per_op = plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE
                 && plan->value[PLAN_TASK] == PLAN_TASK_TRAIN && HAS_MODULE (plan->value, OP_SAC);
  self->repeats_attention = stack->repeats_cudnn_attention && cluster->compute_capability >= 100;
  set_sizes (self, model, plan, stack);
  Builder b = { .net = self,
                .model = model,
                .tp = plan->value[PLAN_TP],
                .splits = plan->value[PLAN_SP] == PLAN_SP_ON,
                .drops = plan_drops_hidden (plan),
                .fuses_norms = recipe == PLAN_COMPUTE_FP8_DELAYED && !stack->quantises_on_use,
                .keeps_gate = stack->separate_gate && model->gated
                              && plan->value[PLAN_COMPILE] == PLAN_COMPILE_OFF,
                .compiles = plan->value[PLAN_COMPILE] == PLAN_COMPILE_ON,
                .keeps_gathered = stack->keeps_gathered && !self->quantises,
                .pairs_keys = stack->pairs_keys,
                .quantises_on_use = stack->quantises_on_use };
  define (self, PLAN_VALUE_X, self->split_rows * model->hidden, self->compute);
  const PlanValueId attention = add_attention_branch (&b);
  add_residual (&b, PLAN_VALUE_X, attention, PLAN_VALUE_MASK1, PLAN_VALUE_HIDDEN2);
  const PlanValueId mlp = add_mlp_branch (&b, model->parallel ? PLAN_VALUE_X : PLAN_VALUE_HIDDEN2);
  add_residual (&b, PLAN_VALUE_HIDDEN2, mlp, PLAN_VALUE_MASK2, PLAN_VALUE_OUT);
  list_values (self);
}
