/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of linear attention by the gated delta rule, as Megatron-LM runs it
 * (megatron/core/ssm/gated_delta_net/common.py and gdn.py at d98e8a64) by kernels of
 * flash-linear-attention (at bc3b101d), and what their backward passes read:
 *
 * - The convolution keeps a view of the projection, and so all of it; it makes what SiLU read
 *   again (fla/modules/conv/triton/ops.py).
 * - The L2 norm keeps what it makes (fla/modules/l2norm.py). Queries and keys are then repeated for
 *   the heads of values that share them, and values copied.
 * - The gate of the output is copied; decays, in fp32, and strengths are made of the projection.
 * - The rule keeps queries, keys, values, decays, strengths and the inverse of each chunk's
 *   triangle; other intermediates, the states between chunks among them, are made again
 *   (fla/ops/gated_delta_rule/chunk.py).
 * - The gated norm is a norm of Transformer Engine, which keeps its input, and a product with the
 *   gate, which keeps both factors. */
#include "config.h"

#include "planner/graph/layer-builder.h"

#define NONE PLAN_N_TENSORS /* no bias */

static void
define_wide (PlanLayerBuilder *b, PlanValueId id, gint64 cols)
{
  plan_layer_define (b->graph, id, b->sizes->rows * cols, PLAN_DTYPE_FP32);
}

static void
add_gates (PlanLayerBuilder *b)
{
  const PlanDelta *d = &b->sizes->delta;
  PlanNode *node
      = plan_layer_add_mixer (b, PLAN_NODE_DELTA_GATES, PLAN_VALUE_MIXER_IN, PLAN_VALUE_DELTA_GATE);
  node->col = PLAN_VALUE_DELTA_DECAY;
  node->stats = PLAN_VALUE_DELTA_STRENGTH;
  plan_layer_define_rows (b, PLAN_VALUE_DELTA_GATE, plan_delta_values (d));
  define_wide (b, PLAN_VALUE_DELTA_DECAY, d->value_heads);
  plan_layer_define_rows (b, PLAN_VALUE_DELTA_STRENGTH, d->value_heads);
}

/* Bytes that are taken beside, and given back with the call's return: w, u, the new values and a
 * state per chunk going forward (chunk.py, chunk_gated_delta_rule_fwd); backward these again, the
 * gradients of values on their way, of w and of the states, and a second share of keys'. */
static void
add_rule (PlanLayerBuilder *b, gint64 seq)
{
  const PlanDelta *d = &b->sizes->delta;
  const gint64 chunks = (seq + PLAN_DELTA_CHUNK - 1) / PLAN_DELTA_CHUNK * (b->sizes->rows / seq);
  const gint64 states = chunks * d->value_heads * d->key_dim * d->value_dim;
  const gint64 keys = b->sizes->rows * d->value_heads * d->key_dim;
  const gint64 values = b->sizes->rows * plan_delta_values (d);
  PlanNode *node
      = plan_layer_add_mixer (b, PLAN_NODE_DELTA_RULE, PLAN_VALUE_DELTA_QKV, PLAN_VALUE_MIXER_OUT);
  node->other = PLAN_VALUE_DELTA_DECAY;
  node->latent = PLAN_VALUE_DELTA_STRENGTH;
  node->stats = PLAN_VALUE_DELTA_INVERSE;
  node->col = PLAN_VALUE_MIXER_WORK;
  plan_layer_define_rows (b, PLAN_VALUE_MIXER_OUT, plan_delta_values (d));
  plan_layer_define_rows (b, PLAN_VALUE_DELTA_INVERSE, PLAN_DELTA_CHUNK * d->value_heads);
  plan_layer_define (b->graph, PLAN_VALUE_MIXER_WORK, keys + 2 * values + states,
                     b->sizes->compute);
  plan_layer_define (b->graph, PLAN_VALUE_MIXER_WORK_BACK, 3 * (keys + values) + 2 * states,
                     b->sizes->compute);
}

static void
add_gated_norm (PlanLayerBuilder *b)
{
  const PlanDelta *d = &b->sizes->delta;
  PlanNode *node = plan_layer_add_mixer (b, PLAN_NODE_DELTA_NORM, PLAN_VALUE_MIXER_OUT,
                                         PLAN_VALUE_MIXER_READY);
  node->other = PLAN_VALUE_DELTA_GATE;
  node->stats = PLAN_VALUE_MIXER_STATS;
  node->col = PLAN_VALUE_MIXER_UNGATED;
  plan_layer_define_rows (b, PLAN_VALUE_MIXER_READY, plan_delta_values (d));
  plan_layer_define_rows (b, PLAN_VALUE_MIXER_UNGATED, plan_delta_values (d));
  define_wide (b, PLAN_VALUE_MIXER_STATS, d->value_heads);
}

void
plan_layer_add_delta (PlanLayerBuilder *b, const PlanValueId *x, gint64 seq)
{
  const PlanDelta *d = &b->sizes->delta;
  PlanValueId kept;
  const PlanValueId read = plan_layer_add_product_input (
      b, PLAN_MODULE_OTHER, x[0], x, PLAN_TENSOR_DELTA_IN, b->model->hidden, &kept);
  plan_layer_add_linear (b, PLAN_MODULE_OTHER, read, kept, PLAN_VALUE_MIXER_IN,
                         PLAN_TENSOR_DELTA_IN, NONE, plan_delta_projected (d), b->model->hidden);
  plan_layer_add_mixer (b, PLAN_NODE_DELTA_CONV, PLAN_VALUE_MIXER_IN, PLAN_VALUE_MIXER_CONV)->weight
      = PLAN_TENSOR_DELTA_CONV;
  plan_layer_define_rows (b, PLAN_VALUE_MIXER_CONV, plan_delta_turned (d));
  PlanNode *node
      = plan_layer_add_mixer (b, PLAN_NODE_DELTA_KEYS, PLAN_VALUE_MIXER_CONV, PLAN_VALUE_DELTA_QKV);
  node->col = PLAN_VALUE_DELTA_KEYS;
  node->stats = PLAN_VALUE_DELTA_KEY_STATS;
  plan_layer_define_rows (b, PLAN_VALUE_DELTA_QKV,
                          d->value_heads * (2 * d->key_dim + d->value_dim));
  plan_layer_define_rows (b, PLAN_VALUE_DELTA_KEYS, 2 * plan_delta_keys (d));
  define_wide (b, PLAN_VALUE_DELTA_KEY_STATS, 2 * d->key_heads);
  add_gates (b);
  add_rule (b, seq);
  add_gated_norm (b);
  plan_layer_add_quantised_linear (b, PLAN_MODULE_OTHER, PLAN_VALUE_MIXER_READY,
                                   PLAN_VALUE_MIXER_READY_Q, PLAN_VALUE_MIXER_READY_COL,
                                   PLAN_VALUE_PROJ, PLAN_TENSOR_DELTA_OUT, b->model->hidden,
                                   plan_delta_values (d));
}
