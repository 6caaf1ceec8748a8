/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of latent attention. */
#include "config.h"

#include "planner/graph/layer-builder.h"

#define NONE PLAN_N_TENSORS /* no bias */

/* Adds the norm of a latent vector, behind which `in` may have other columns. */
static void
add_latent_norm (PlanLayerBuilder *b, PlanValueId in, PlanValueId out, PlanValueId stats,
                 PlanTensorRole weight, gint64 cols)
{
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_NORM, PLAN_MODULE_LATENT_UP, in, out);
  node->stats = stats;
  node->weight = weight;
  node->rows = b->sizes->split_rows;
  node->cols = cols;
  plan_layer_define (b->graph, out, node->rows * cols, b->sizes->compute);
  plan_layer_define (b->graph, stats, node->rows, PLAN_DTYPE_FP32);
}

/* Adds a projection down to a latent vector. Every rank computes all of it, for its own tokens. */
static void
add_latent_down (PlanLayerBuilder *b, PlanValueId in, PlanValueId kept, PlanValueId out,
                 PlanTensorRole weight, gint64 cols)
{
  plan_layer_add_linear (b, PLAN_MODULE_OTHER, in, kept, out, weight, NONE, cols, b->model->hidden);
  plan_layer_save_whole_product (b);
  b->graph->nodes[b->graph->n_nodes - 1].rows = b->sizes->split_rows;
  plan_layer_define (b->graph, out, b->sizes->split_rows * cols, b->sizes->compute);
}

/* Adds a projection from a latent vector up to this rank's heads, for all ranks' tokens. */
static void
add_latent_up (PlanLayerBuilder *b, const PlanValueId *forms, PlanValueId out,
               PlanTensorRole weight, gint64 cols, gint64 depth)
{
  PlanValueId kept;
  const PlanValueId read = plan_layer_add_product_input (b, PLAN_MODULE_LATENT_UP, forms[0], forms,
                                                         weight, depth, &kept);
  plan_layer_add_linear (b, PLAN_MODULE_LATENT_UP, read, kept, out, weight, NONE, cols, depth);
  plan_layer_save_whole_product (b);
}

/* Adds the all-gather of the part that all key heads have in common, beside the latent vector. */
static PlanValueId
add_common_keys (PlanLayerBuilder *b)
{
  if (!b->splits)
    return PLAN_VALUE_KV_LATENT;
  PlanNode *node
      = plan_layer_add (b->graph, b->has_own_kernels ? PLAN_NODE_GATHER_KEYS : PLAN_NODE_GATHER_SEQ,
                        PLAN_MODULE_OTHER, PLAN_VALUE_KV_LATENT, PLAN_VALUE_KEYS_COMMON);
  node->cols = b->sizes->split_rows * b->model->rope_dim;
  plan_layer_define (b->graph, PLAN_VALUE_KEYS_COMMON, b->sizes->rows * b->model->rope_dim,
                     b->sizes->compute);
  return PLAN_VALUE_KEYS_COMMON;
}

/* Adds the queries' products: down to a latent vector and up from it; or, without one, a single
 * product, for which ranks that split heads gather the norm's output. Our own kernels gather it
 * before they quantise it, so that all ranks have one scale. `norm` is the input of products,
 * `kept` that of weight gradients. */
static void
add_queries (PlanLayerBuilder *b, const PlanValueId *x, PlanValueId norm, PlanValueId kept)
{
  static const PlanValueId q[]
      = { PLAN_VALUE_Q_LATENT_NORM, PLAN_VALUE_Q_LATENT_Q, PLAN_VALUE_Q_LATENT_COL,
          PLAN_VALUE_Q_LATENT_FULL, PLAN_VALUE_Q_LATENT_FULL_COL };
  const PlanModel *m = b->model;
  const gint64 q_cols = b->sizes->heads * (m->nope_dim + m->rope_dim);
  PlanValueId kept_whole;
  if (m->q_lora > 0)
    {
      add_latent_down (b, norm, kept, PLAN_VALUE_Q_LATENT, PLAN_TENSOR_Q_DOWN, m->q_lora);
      add_latent_norm (b, PLAN_VALUE_Q_LATENT, PLAN_VALUE_Q_LATENT_NORM, PLAN_VALUE_Q_LATENT_STATS,
                       PLAN_TENSOR_Q_UP_NORM, m->q_lora);
      add_latent_up (b, q, PLAN_VALUE_Q, PLAN_TENSOR_Q_UP, q_cols, m->q_lora);
    }
  else
    {
      const PlanValueId gathered[] = { x[0], q[1], q[2], x[3], x[4] };
      const PlanValueId whole
          = b->gathers_first
                ? plan_layer_add_product_input (b, PLAN_MODULE_LATENT_UP, x[0], gathered,
                                                PLAN_TENSOR_KV_DOWN, m->hidden, &kept_whole)
                : plan_layer_add_gathers (b, PLAN_MODULE_LATENT_UP, norm, kept, x, m->hidden,
                                          &kept_whole);
      plan_layer_add_linear (b, PLAN_MODULE_LATENT_UP, whole, kept_whole, PLAN_VALUE_Q,
                             PLAN_TENSOR_Q, NONE, q_cols, m->hidden);
      plan_layer_save_whole_product (b);
    }
}

void
plan_layer_add_latent_attention (PlanLayerBuilder *b, const PlanValueId *x)
{
  static const PlanValueId kv[]
      = { PLAN_VALUE_KV_LATENT_NORM, PLAN_VALUE_KV_LATENT_Q, PLAN_VALUE_KV_LATENT_COL,
          PLAN_VALUE_KV_LATENT_FULL, PLAN_VALUE_KV_LATENT_FULL_COL };
  const PlanModel *m = b->model;
  const PlanSizes *sizes = b->sizes;
  const gint64 q_cols = sizes->heads * (m->nope_dim + m->rope_dim);
  const gint64 v_cols = sizes->heads * m->v_dim;
  PlanValueId kept, common = PLAN_NO_VALUE;
  /* Projections down are for the rank's own tokens; queries without a latent vector for all
   * tokens. */
  const PlanValueId norm
      = plan_layer_add_quantize (b, PLAN_MODULE_OTHER, x[0], x[1], x[2], PLAN_TENSOR_KV_DOWN,
                                 sizes->split_rows, m->hidden, &kept);
  add_queries (b, x, norm, kept);
  add_latent_down (b, norm, kept, PLAN_VALUE_KV_LATENT, PLAN_TENSOR_KV_DOWN,
                   m->kv_lora + m->rope_dim);
  /* Our kernel of the norm's backward pass adds to the gradient that the gather leaves, so that
   * the gather comes behind the norm. */
  if (!b->has_own_kernels)
    common = add_common_keys (b);
  add_latent_norm (b, PLAN_VALUE_KV_LATENT, PLAN_VALUE_KV_LATENT_NORM, PLAN_VALUE_KV_LATENT_STATS,
                   PLAN_TENSOR_KV_UP_NORM, m->kv_lora);
  if (b->has_own_kernels)
    common = add_common_keys (b);
  add_latent_up (b, kv, PLAN_VALUE_KV, PLAN_TENSOR_KV_UP, sizes->heads * (m->nope_dim + m->v_dim),
                 m->kv_lora);
  PlanNode *node = plan_layer_add (b->graph, PLAN_NODE_LATENT_ROPE, PLAN_MODULE_LATENT_UP,
                                   PLAN_VALUE_Q, PLAN_VALUE_K);
  node->other = PLAN_VALUE_KV;
  node->latent = common;
  node->col = PLAN_VALUE_V;
  plan_layer_define (b->graph, PLAN_VALUE_K, sizes->rows * q_cols, sizes->compute);
  plan_layer_define (b->graph, PLAN_VALUE_V, sizes->rows * v_cols, sizes->compute);
  node = plan_layer_add (b->graph, PLAN_NODE_LATENT_ATTENTION, PLAN_MODULE_CORE_ATTN, PLAN_VALUE_Q,
                         PLAN_VALUE_ATTN);
  node->other = PLAN_VALUE_K;
  node->latent = PLAN_VALUE_V;
  node->stats = PLAN_VALUE_LSE;
  plan_layer_define (b->graph, PLAN_VALUE_ATTN, sizes->rows * v_cols, sizes->compute);
  plan_layer_define (b->graph, PLAN_VALUE_LSE, sizes->rows * sizes->heads, PLAN_DTYPE_FP32);
}
