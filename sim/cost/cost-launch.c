/* SPDX-License-Identifier: Apache-2.0 */
/* The host's time to issue ops. In the forward pass a framework calls modules one GEMM at a time,
 * in the backward pass the GEMMs of a module together, so it matters which GEMMs read gradients.
 * These are found by following the gradient of the loss, or the one that the next stage sends,
 * through the ops. */
#include "config.h"

#include "sim/cost/cost-private.h"

/* Whether an op reads a buffer that holds a gradient. A buffer that an op accumulates to or updates
 * is not marked by it: no GEMM reads main gradients, and weights that an optimizer updates from
 * gradients are not gradients themselves. */
static gboolean
reads_gradient (const SimGradients *self, const PlanOp *op)
{
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array >= 0 && self->holds[op->refs[i].array]
        && (plan_op_ref_access (op->kind, i) == 'r' || plan_op_ref_access (op->kind, i) == 'u'))
      return TRUE;
  return FALSE;
}

gboolean
sim_gradients_next (SimGradients *self, const PlanOp *op)
{
  if (op->kind >= PLAN_N_OPS || plan_op_class (op->kind) == PLAN_CLASS_MEMORY)
    return FALSE;
  const gboolean reads = reads_gradient (self, op);
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array >= 0 && plan_op_ref_access (op->kind, i) == 'w')
      self->holds[op->refs[i].array] = reads || op->kind == PLAN_OP_CROSS_ENTROPY_BWD;
  if (op->kind == PLAN_OP_TRADE && op->refs[PLAN_REF_TRADE_out].array >= 0)
    self->holds[op->refs[PLAN_REF_TRADE_out].array] = op->dims[PLAN_DIM_TRADE_gradient] != 0;
  if (op->kind == PLAN_OP_LOSS_GRAD) /* in place: the logits become a gradient, which GEMMs read */
    self->holds[op->refs[PLAN_REF_LOSS_GRAD_logits].array] = TRUE;
  return reads;
}

/* Whether an op is a further piece of a GEMM that overlaps its communication piece by piece. One
 * call issues all pieces: the first counts as a GEMM, and the others as kernels. */
static gboolean
is_piece (const PlanSchedule *schedule, const PlanOp *op)
{
  const gboolean is_collective = plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE;
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      const PlanRef *ref = &op->refs[i];
      if (ref->array >= 0 && plan_schedule_buffer (schedule, (guint)ref->array)->pieces > 1
          && (is_collective || ref->at > 0))
        return TRUE;
    }
  return FALSE;
}

PlanLaunch
sim_cost_launch (const PlanSchedule *schedule, const PlanOp *op, gboolean reads_gradient)
{
  if (is_piece (schedule, op))
    return PLAN_LAUNCH_KERNEL;
  if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
    return PLAN_LAUNCH_COLLECTIVE;
  if (plan_op_work (op->kind) == PLAN_WORK_ATTENTION && op->kind != PLAN_OP_ATTENTION_JOIN)
    return PLAN_LAUNCH_ATTENTION;
  if (plan_op_work (op->kind) != PLAN_WORK_GEMM)
    return PLAN_LAUNCH_KERNEL;
  const PlanDtype operand
      = plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_GEMM_a].array)->dtype;
  if (plan_dtype_bits (operand) < 16)
    return reads_gradient ? PLAN_LAUNCH_QUANTISED_GRADIENT : PLAN_LAUNCH_QUANTISED_PRODUCT;
  return reads_gradient ? PLAN_LAUNCH_GRADIENT : PLAN_LAUNCH_PRODUCT;
}

/* Host time of each kernel behind the first that one op starts: a library call from compiled
 * code. */
#define FURTHER_CALL_NS 4000

#define SORT_KERNELS 4    /* numbers from 0 on, a histogram, its sums, one pass of a digit */
#define PIECES_JOINED 128 /* pieces that one kernel joins (PyTorch's native/cuda/Shape.cu) */

/* Host time of each piece that is split off and joined again: 1.0 to 1.9 microseconds going forward
 * and 2.2 to 3.3 going backward for 32 to 256 pieces, by PyTorch 2.15 on one core of an EPYC, on
 * 2026-11-26, where adding two small tensors took 1.3. */
#define PIECE_NS 2000

/* Ops that turn queries, and as many keys, where no kernel does both, less one: cosines and sines
 * of three ops each, and those of traffic_of_turning (sim/cost/cost-compute.c). */
#define TURNING_FORWARD (2 * 12 - 1)
#define TURNING_BACKWARD (2 * 11 - 1)

/* Number of our own GPU kernels for all parameters of a unit (exec/cuda/kernels/param.cu): blocks
 * along rows, then along columns; scales of blocks, or of squares, then elements; and for nvfp4
 * before these the largest magnitude of each matrix, which begins as 0 and becomes a scale. */
static gint64
kernels_of_params (const SimCostInput *input, const PlanOp *op)
{
  const PlanRef *scales = &op->refs[PLAN_REF_PARAM_QUANTIZE_scales];
  if (!sim_cost_is_own_gpu (input))
    return 1;
  if (op->kind == PLAN_OP_PARAM_AMAX)
    return sim_cost_has_blocks (input, op) ? 2 : 1;
  if (scales->array < 0)
    return 1;
  const gint32 out = op->refs[PLAN_REF_PARAM_QUANTIZE_out].array;
  return plan_schedule_buffer (input->schedule, (guint)out)->dtype == PLAN_DTYPE_E2M1 ? 5 : 2;
}

gint64
sim_cost_calls (const SimCostInput *input, const PlanOp *op)
{
  switch ((int)op->kind)
    {
    case PLAN_OP_PARAM_AMAX:
    case PLAN_OP_PARAM_QUANTIZE:
      return kernels_of_params (input, op);
    case PLAN_OP_GROUPED_GEMM:
    case PLAN_OP_GROUPED_GEMM_ADD:
      return op->dims[PLAN_DIM_GROUPED_GEMM_groups];
    case PLAN_OP_GROUPED_QUANTIZE:
      return op->dims[PLAN_DIM_GROUPED_QUANTIZE_groups];
    case PLAN_OP_GROUPED_TRANSPOSE:
      return op->dims[PLAN_DIM_GROUPED_TRANSPOSE_groups];
    case PLAN_OP_SORT:
      return SORT_KERNELS;
    case PLAN_OP_JOIN_ROWS:
      return (op->dims[PLAN_DIM_JOIN_ROWS_pieces] + PIECES_JOINED - 1) / PIECES_JOINED;
    default:
      return 1;
    }
}

static gint64
ops_of (PlanStackOps ops, gboolean is_backward)
{
  return is_backward ? ops.backward : ops.forward;
}

/* Ops of the gated delta rule that are one here, less one, as counted in flash-linear-attention at
 * bc3b101d (ops/gated_delta_rule/chunk.py, modules/conv/triton/ops.py): sums of decays, triangles
 * and their inverses, w and u, states, outputs; backwards w, u and states again, then gradients of
 * values, of states, of queries and keys with two sums, of w and u, and sums of decays. Of a state
 * space the same in mamba_ssm at e9594ce1 (ops/triton/ssd_combined.py): what -exp (A) takes, sums
 * of decays, states, their passing, products of C and B, and the scan; backwards all but the last
 * again on a copy of the steps, then gradients of the gate, of states, their passing, of x, B and C
 * with their splits' sums, of products and what they are made of, of decays with four ops that sum
 * them in reverse and three that add them up, of the steps, and of -exp (A). */
static gint64
further_of_mixer (PlanOpKind kind)
{
  switch ((int)kind)
    {
    case PLAN_OP_DELTA_RULE:
      return 4;
    case PLAN_OP_DELTA_RULE_BWD:
      return 9;
    case PLAN_OP_SSM_SCAN:
      return 7;
    case PLAN_OP_SSM_SCAN_BWD:
      return 27;
    case PLAN_OP_SSM_CONV_BWD: /* a copy of its input's gradient */
      return 1;
    case PLAN_OP_DELTA_CONV_BWD: /* what silu read again, and the sum of parts of the weights' */
      return 2;
    default:
      return 0;
    }
}

gint64
sim_cost_further_ops (const SimCostInput *input, const PlanOp *op)
{
  const PlanStackRouting *routing = &input->stack->host.routing;
  const gboolean is_backward = op->kind == PLAN_OP_ROUTE_BWD;
  if (sim_cost_turns_by_ops (input, op))
    return op->dims[PLAN_DIM_ROPE_inverse] ? TURNING_BACKWARD : TURNING_FORWARD;
  if ((op->kind != PLAN_OP_ROUTE && !is_backward) || !input->model || !input->plan)
    return further_of_mixer (op->kind);
  const gint64 *plan = input->plan->value;
  const gboolean is_softmax = input->model->router_score == PLAN_ROUTER_SOFTMAX;
  gint64 ops = -1; /* the op itself */
  if (plan[PLAN_MOE_ROUTER_FUSION] == PLAN_MOE_ROUTER_FUSION_ON)
    ops += ops_of (routing->fused, is_backward);
  else
    {
      ops += ops_of (is_softmax ? routing->by_softmax : routing->by_sigmoid, is_backward);
      ops += input->model->router_groups > 0 ? ops_of (routing->groups, is_backward) : 0;
      if (plan[PLAN_MOE_DISPATCHER] == PLAN_MOE_DISPATCHER_DEEPEP)
        ops += ops_of (routing->lists, is_backward);
    }
  if (plan[PLAN_MOE_DISPATCHER] == PLAN_MOE_DISPATCHER_ALLTOALL)
    ops += ops_of (routing->counts, is_backward);
  return MAX (ops, 0);
}

/* The host's time to replay the graph of a part of a layer: a module is called, or autograd calls
 * its backward function, as for a product in either pass. Assumed: nobody measured it. */
static gint64
graph_ns (const gint64 *launch_ns, guint8 place)
{
  return place == PLAN_GRAPH_FORWARD    ? launch_ns[PLAN_LAUNCH_PRODUCT]
         : place == PLAN_GRAPH_BACKWARD ? launch_ns[PLAN_LAUNCH_GRADIENT]
                                        : 0;
}

gint64
sim_cost_host_ns (const SimCostInput *input, const PlanOp *op, PlanLaunch launch)
{
  if (op->kind == PLAN_OP_PREPARE)
    return input->stack->optimizer.tensor_ns * op->dims[PLAN_DIM_PREPARE_tensors];
  if (op->graph != PLAN_GRAPH_NONE)
    return graph_ns (input->stack->host.launch_ns, op->graph);
  const gint64 pieces = op->kind == PLAN_OP_JOIN_ROWS ? op->dims[PLAN_DIM_JOIN_ROWS_pieces] : 0;
  const gint64 *launch_ns = input->stack->host.launch_ns;
  const gint64 ns = launch_ns[launch] + (sim_cost_calls (input, op) - 1) * FURTHER_CALL_NS
                    + pieces * PIECE_NS
                    + sim_cost_further_ops (input, op) * launch_ns[PLAN_LAUNCH_KERNEL];
  return ns + input->stack->weights.piece_ns * sim_cost_pieces (input, op);
}

gint64
sim_cost_pieces (const SimCostInput *input, const PlanOp *op)
{
  const PlanStack *stack = input->stack;
  if (stack->weights.whole != PLAN_WHOLE_AT_ONCE || op->kind != PLAN_OP_ALL_GATHER
      || op->stream != PLAN_STREAM_GATHER)
    return 0;
  return plan_schedule_group_size (input->schedule, op)
         * (op->refs[PLAN_REF_ALL_GATHER_out].loop >= 0 ? stack->weights.unit_tensors : 1);
}

guint
sim_cost_kernels (const SimCostInput *input, const PlanOp *op, PlanLaunch launch)
{
  const PlanStack *stack = input->stack;
  const gboolean is_update = op->kind == PLAN_OP_ADAMW || op->kind == PLAN_OP_SGD;
  return (guint)sim_cost_calls (input, op)
             * MAX (1, is_update ? stack->optimizer.update_kernels : stack->host.kernels[launch])
         + (guint)sim_cost_further_ops (input, op);
}
