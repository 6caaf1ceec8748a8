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

static PlanNode *
add (PlanLayerBuilder *b, PlanNodeKind kind, PlanValueId in, PlanValueId out)
{
  PlanNode *node = plan_layer_add (b->graph, kind, PLAN_MODULE_OTHER, in, out);
  node->rows = b->sizes->rows;
  return node;
}

static void
define (PlanLayerBuilder *b, PlanValueId id, gint64 cols)
{
  plan_layer_define (b->graph, id, b->sizes->rows * cols, b->sizes->compute);
}

/* What is taken beside, and given back with the call's return, in units of a wide number: going
 * forward decays and steps, then either the states of chunks twice, or the states as products read
 * them with C times B of each chunk (_mamba_chunk_scan_combined_fwd), less the outputs, which are
 * taken only then; backward a copy of the steps, decays and steps, C times B, states and their
 * gradients both wide and narrow, and the gradient of the output before the gate
 * (_mamba_chunk_scan_combined_bwd, at _state_passing_bwd). */
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
  PlanNode *node = add (b, PLAN_NODE_SSM_CONV, PLAN_VALUE_MIXER_IN, PLAN_VALUE_SSM_CONV);
  node->is_cheap = TRUE;
  define (b, PLAN_VALUE_SSM_CONV, plan_ssm_turned (m));
  node = add (b, PLAN_NODE_SSM_SCAN, PLAN_VALUE_SSM_CONV, PLAN_VALUE_MIXER_OUT);
  node->other = PLAN_VALUE_MIXER_IN;
  node->stats = PLAN_VALUE_SSM_UNGATED;
  node->col = PLAN_VALUE_MIXER_WORK;
  define (b, PLAN_VALUE_MIXER_OUT, inner);
  define (b, PLAN_VALUE_SSM_UNGATED, inner);
  define_work (b, seq);
  node = add (b, PLAN_NODE_GROUP_NORM, PLAN_VALUE_MIXER_OUT, PLAN_VALUE_MIXER_READY);
  node->stats = PLAN_VALUE_MIXER_STATS;
  define (b, PLAN_VALUE_MIXER_READY, inner);
  plan_layer_define (b->graph, PLAN_VALUE_MIXER_STATS, b->sizes->rows * m->groups, PLAN_DTYPE_FP32);
  plan_layer_add_quantised_linear (b, PLAN_MODULE_OTHER, PLAN_VALUE_MIXER_READY,
                                   PLAN_VALUE_MIXER_READY_Q, PLAN_VALUE_MIXER_READY_COL,
                                   PLAN_VALUE_PROJ, PLAN_TENSOR_SSM_OUT, b->model->hidden, inner);
}
