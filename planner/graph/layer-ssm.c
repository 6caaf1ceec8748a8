/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of a state space, Mamba-2, as Megatron-LM runs it (megatron/core/ssm/mamba_mixer.py at
 * d98e8a64, _ssm_training) by kernels of mamba_ssm (at e9594ce1), and what their backward passes
 * read:
 *
 * - The convolution, the scan and the gate are one function of autograd
 *   (ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn), which keeps the projection and
 *   the scan's output before the gate. x, B and C are convolved again, and so are all other
 *   intermediates made again, the states between chunks among them.
 * - The norm of each group's columns keeps its input (ops/triton/layernorm_gated.py). */
#include "config.h"

#include "planner/graph/layer-builder.h"

#define NONE PLAN_N_TENSORS /* no bias */

/* Memory that a call takes and gives back before it returns, in fp32 numbers.
 * Forward (_mamba_chunk_scan_combined_fwd): decays and steps; then the larger of the states of
 * chunks twice, less the outputs, which are taken only then, and of states in bf16 beside the
 * product of C and B of each chunk.
 * Backward (_mamba_chunk_scan_combined_bwd, at _state_passing_bwd): a copy of the steps; decays and
 * steps; the product of C and B; states and their gradients in fp32 and in bf16; the gradient of
 * the output before the gate. */
static void
define_work (PlanLayerBuilder *b, gint64 seq)
{
  const PlanSsm *m = &b->sizes->ssm;
  const gint64 rows = b->sizes->rows, inner = rows * plan_ssm_inner (m);
  const gint64 chunks = (seq + PLAN_SSM_CHUNK - 1) / PLAN_SSM_CHUNK * (rows / seq);
  const gint64 states = chunks * plan_ssm_inner (m) * m->state;
  const gint64 pairs = chunks * m->groups * PLAN_SSM_CHUNK * PLAN_SSM_CHUNK;
  const gint64 steps = 2 * rows * m->heads;
  const gint64 forward = steps + MAX (3 * states / 2 - inner, states / 2 + pairs);
  plan_layer_define (b->graph, PLAN_VALUE_MIXER_WORK, MAX (forward, 1), PLAN_DTYPE_FP32);
  plan_layer_define (b->graph, PLAN_VALUE_MIXER_WORK_BACK,
                     5 * steps / 4 + pairs + 3 * states + inner / 2, PLAN_DTYPE_FP32);
}

void
plan_layer_add_ssm (PlanLayerBuilder *b, const PlanValueId *x, gint64 seq)
{
  const PlanSsm *m = &b->sizes->ssm;
  const gint64 inner = plan_ssm_inner (m);
  PlanValueId kept;
  const PlanValueId read = plan_layer_add_product_input (
      b, PLAN_MODULE_OTHER, x[0], x, PLAN_TENSOR_SSM_IN, b->model->hidden, &kept);
  plan_layer_add_linear (b, PLAN_MODULE_OTHER, read, kept, PLAN_VALUE_MIXER_IN, PLAN_TENSOR_SSM_IN,
                         NONE, plan_ssm_projected (m), b->model->hidden);
  PlanNode *node
      = plan_layer_add_mixer (b, PLAN_NODE_SSM_CONV, PLAN_VALUE_MIXER_IN, PLAN_VALUE_MIXER_CONV);
  node->is_cheap = TRUE;
  plan_layer_define_rows (b, PLAN_VALUE_MIXER_CONV, plan_ssm_turned (m));
  node = plan_layer_add_mixer (b, PLAN_NODE_SSM_SCAN, PLAN_VALUE_MIXER_CONV, PLAN_VALUE_MIXER_OUT);
  node->other = PLAN_VALUE_MIXER_IN;
  node->stats = PLAN_VALUE_MIXER_UNGATED;
  node->col = PLAN_VALUE_MIXER_WORK;
  plan_layer_define_rows (b, PLAN_VALUE_MIXER_OUT, inner);
  plan_layer_define_rows (b, PLAN_VALUE_MIXER_UNGATED, inner);
  define_work (b, seq);
  node = plan_layer_add_mixer (b, PLAN_NODE_GROUP_NORM, PLAN_VALUE_MIXER_OUT,
                               PLAN_VALUE_MIXER_READY);
  node->stats = PLAN_VALUE_MIXER_STATS;
  plan_layer_define_rows (b, PLAN_VALUE_MIXER_READY, inner);
  plan_layer_define (b->graph, PLAN_VALUE_MIXER_STATS, b->sizes->rows * m->groups, PLAN_DTYPE_FP32);
  plan_layer_add_quantised_linear (b, PLAN_MODULE_OTHER, PLAN_VALUE_MIXER_READY,
                                   PLAN_VALUE_MIXER_READY_Q, PLAN_VALUE_MIXER_READY_COL,
                                   PLAN_VALUE_PROJ, PLAN_TENSOR_SSM_OUT, b->model->hidden, inner);
}
