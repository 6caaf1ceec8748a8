/* SPDX-License-Identifier: Apache-2.0 */
/* State beside parameters. One buffer holds that of all layers, so that one reduction makes ranks
 * agree: of delayed scaling (fp8_delayed) scales, histories and this step's largest magnitudes; of
 * routers that balance by a bias the biases and this step's loads. Then a layer's weights as its
 * products read them: quantised and transposed copies, and when they are made. */
#include "config.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
#include "planner/lower/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

static gint32
buffer (PlanLower *self, const char *name, guint64 elements)
{
  return plan_schedule_add_buffer (self->schedule, name, 1, elements, PLAN_DTYPE_FP32,
                                   PLAN_CATEGORY_WORKSPACE);
}

static gint64
n_sites (const PlanLower *self)
{
  return self->stage.layers * plan_quantizers_of_layer (self->whole);
}

/* Whether this stage's routers balance by a bias. Of frameworks it is left out: some KiB, and one
 * reduction per step. */
static gboolean
balances (const PlanLower *self)
{
  return self->stage.layers > 0 && self->model->experts > 0 && self->model->router_bias
         && self->stack->layer.kernels == PLAN_KERNELS_OWN;
}

/* Declares the group of ranks that hold the same layers, which agree on largest magnitudes and on
 * loads of experts: the ranks of a stage (parallel_state.py get_amax_reduction_group and, for
 * biases, get_tensor_and_data_parallel_group: tensor and data parallel with context). */
void
plan_lower_declare_amax_group (PlanLower *self)
{
  const gint64 *value = self->plan->value;
  const guint stages = (guint)value[PLAN_PP];
  const guint of_stage = plan_schedule_ranks (self->schedule) / stages;
  const gboolean is_used = value[PLAN_COMPUTE] == PLAN_COMPUTE_FP8_DELAYED
                           || (value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE
                               && !plan_stack_scales_slices (self->stack, self->plan))
                           || balances (self);
  self->comm.amax = stages == 1 ? self->comm.world
                    : is_used && of_stage > 1
                        ? plan_schedule_add_group (self->schedule, "amax", of_stage, 1)
                        : -1;
}

void
plan_lower_share_magnitudes (PlanLower *self, PlanBucketKind kind, PlanRef amax, gint64 n)
{
  const gboolean is_of_experts = kind == PLAN_BUCKET_EXPERTS;
  const gboolean slices = is_of_experts || plan_stack_scales_slices (self->stack, self->plan);
  const gint8 groups[] = { is_of_experts ? self->bucket[kind].inner_group
                           : slices      ? self->comm.inner
                                         : self->comm.amax,
                           slices && self->policy.splits_shards ? self->comm.outer : -1 };
  if (!is_of_experts && self->place.ranks * self->place.replicas == 1)
    return;
  for (guint i = 0; i < G_N_ELEMENTS (groups); i++)
    if (groups[i] >= 0)
      {
        plan_lower_collective (self, PLAN_OP_ALL_REDUCE_MAX, PLAN_STREAM_REDUCE, groups[i],
                               PLAN_REFS (amax), n, PLAN_REF_NONE, ONE (event.exchanged));
        plan_lower_wait (self, ONE (event.exchanged));
      }
}

static void
declare_balance (PlanLower *self)
{
  const guint64 n = (guint64)(self->stage.layers * self->model->experts);
  self->experts.balance = self->experts.loads = -1;
  if (!balances (self))
    return;
  self->experts.balance = buffer (self, "router_bias", n);
  if (!self->policy.is_eval)
    self->experts.loads = buffer (self, "router_loads", n);
}

/* Whether ops find the largest magnitude of what they write where a scale is made of it next. With
 * delayed scaling it is known before, and other formats have scales by block. Frameworks read what
 * they quantise twice. */
static gboolean
has_largest (const PlanLower *self)
{
  const gint64 compute = self->plan->value[PLAN_COMPUTE];
  return self->stage.layers > 0 && self->stack->layer.kernels == PLAN_KERNELS_OWN
         && (compute == PLAN_COMPUTE_FP8_TENSORWISE || compute == PLAN_COMPUTE_NVFP4);
}

void
plan_lower_declare_sites (PlanLower *self)
{
  const guint64 n = (guint64)n_sites (self);
  declare_balance (self);
  self->quantizer.scales = self->quantizer.history = self->quantizer.amax = -1;
  self->quantizer.largest = has_largest (self) ? buffer (self, "largest", 1) : -1;
  if (self->plan->value[PLAN_COMPUTE] != PLAN_COMPUTE_FP8_DELAYED)
    return;
  self->quantizer.scales = buffer (self, "site_scales", n);
  if (self->policy.is_eval)
    return;
  self->quantizer.history = buffer (self, "site_history", n * PLAN_QUANTIZER_HISTORY);
  self->quantizer.amax = buffer (self, "site_amax", n);
}

/* A layer's part of a buffer that holds those of all layers, from element `at` of the part on. */
static PlanRef
part_of (gint32 array, PlanLowerUnit unit, guint64 at)
{
  PlanRef ref = plan_lower_at (plan_lower_unit_ref (array, unit, 0), at);
  ref.modulus = 1;
  return ref;
}

PlanRef
plan_lower_of_layer (gint32 array, PlanLowerUnit unit)
{
  return array < 0 ? PLAN_REF_NONE : part_of (array, unit, 0);
}

PlanRef
plan_lower_site_scale (const PlanLower *self, PlanTensorRole weight, PlanQuantizer site,
                       PlanLowerUnit unit)
{
  if (self->quantizer.scales < 0 || weight == PLAN_N_TENSORS)
    return PLAN_REF_NONE;
  return part_of (self->quantizer.scales, unit, plan_quantizer_of (self->whole, weight, site));
}

PlanRef
plan_lower_site_amax (const PlanLower *self, PlanTensorRole weight, PlanQuantizer site,
                      PlanLowerUnit unit)
{
  if (self->quantizer.amax < 0 || weight == PLAN_N_TENSORS)
    return PLAN_REF_NONE;
  return part_of (self->quantizer.amax, unit, plan_quantizer_of (self->whole, weight, site));
}

PlanRef
plan_lower_layer_scales (const PlanLower *self, PlanLowerUnit unit)
{
  return plan_lower_of_layer (self->quantizer.scales, unit);
}

PlanRef
plan_lower_layer_amax (const PlanLower *self, PlanLowerUnit unit)
{
  return plan_lower_of_layer (self->quantizer.amax, unit);
}

/* An op that finds the largest magnitude of what it writes, and the operands for both. Gradients of
 * norms could, but in formats other than bf16 their kernel reads back what it wrote. */
typedef struct
{
  PlanOpKind kind;
  guint out, amax;
} Finder;

#define FINDER(kind, out) \
  { \
    PLAN_OP_##kind, PLAN_REF_##kind##_##out, PLAN_REF_##kind##_amax \
  }

static const Finder *
finder_of (PlanOpKind kind)
{
  static const Finder finders[]
      = { FINDER (RMSNORM, out),       FINDER (LAYERNORM, out),   FINDER (ADD_RMSNORM, out),
          FINDER (ADD_LAYERNORM, out), FINDER (SWIGLU, out),      FINDER (SWIGLU_BWD, din),
          FINDER (ACTIVATE, out),      FINDER (ACTIVATE_BWD, din) };
  for (guint i = 0; i < G_N_ELEMENTS (finders); i++)
    if (finders[i].kind == kind)
      return &finders[i];
  return NULL;
}

/* Whether an op writes to an array, or has the largest magnitude of another op's output. */
static gboolean
is_in_between (const PlanLower *self, const PlanOp *op, gint32 array)
{
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array == self->quantizer.largest
        || (op->refs[i].array == array && plan_op_ref_access (op->kind, i) != 'r'))
      return TRUE;
  return FALSE;
}

static gboolean
makes (const PlanOp *op, const Finder *finder, const PlanRef *ref, guint64 elements)
{
  return plan_ref_is_same (&op->refs[finder->out], ref)
         && plan_op_ref_elements (op, finder->out, 1) == elements;
}

#define FINDER_BEFORE 12 /* nodes that are looked at: allocations for the most part */

/* Has the op that made `in` find its largest magnitude, if it was issued just before and can.
 * Returns where that is then; none if it has to be looked for. */
static PlanRef
find_largest (PlanLower *self, const PlanRef *in, guint64 elements)
{
  const guint n = plan_schedule_n_nodes (self->schedule);
  const PlanRef largest = ONE (quantizer.largest);
  if (largest.array < 0 || self->combined.owed)
    return PLAN_REF_NONE;
  for (guint node = n; node > 0 && n - node < FINDER_BEFORE; node--)
    {
      const PlanOp *op = plan_schedule_node (self->schedule, node - 1);
      const Finder *finder = finder_of (op->kind);
      if (op->kind == PLAN_OP_ALLOC || op->kind == PLAN_OP_FREE)
        continue;
      if (op->kind >= PLAN_N_OPS || op->stream != PLAN_STREAM_COMPUTE
          || plan_op_class (op->kind) != PLAN_CLASS_COMPUTE)
        return PLAN_REF_NONE;
      if (finder && op->refs[finder->amax].array < 0 && makes (op, finder, in, elements))
        {
          plan_schedule_set_operand (self->schedule, node - 1, finder->amax, largest);
          return largest;
        }
      if (is_in_between (self, op, in->array))
        return PLAN_REF_NONE;
    }
  return PLAN_REF_NONE;
}

void
plan_lower_quantise (PlanLower *self, PlanTensorRole weight, PlanQuantizer site, PlanLowerUnit unit,
                     const PlanRef *refs, gint64 rows, gint64 cols)
{
  plan_lower_compute (self, PLAN_OP_QUANTIZE,
                      PLAN_REFS (refs[0], refs[1], refs[2],
                                 plan_lower_site_scale (self, weight, site, unit),
                                 plan_lower_site_amax (self, weight, site, unit),
                                 find_largest (self, &refs[2], (guint64)(rows * cols))),
                      PLAN_DIMS (rows, cols));
}

static void
forget_loads (PlanLower *self)
{
  plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (ONE (experts.loads)),
                      PLAN_DIMS (self->stage.layers * self->model->experts));
}

static void
init_balance (PlanLower *self)
{
  if (self->experts.balance < 0)
    return;
  plan_lower_compute (self, PLAN_OP_INIT_BALANCE, PLAN_REFS (ONE (experts.balance)),
                      PLAN_DIMS (self->stage.layers, self->model->experts));
  if (self->experts.loads >= 0)
    forget_loads (self);
}

/* Makes the keys of random numbers, those of the layers and the embedding's. */
static void
init_keys (PlanLower *self)
{
  if (self->input.keys < 0)
    return;
  const PlanLowerUnit unit = plan_lower_begin_repeat (self, "l", 0, self->stage.layers + 1, 1);
  plan_lower_compute (self, PLAN_OP_INIT_KEY, PLAN_REFS (plan_lower_random_key (self, unit)), NULL);
  plan_lower_end_units (self, unit);
}

void
plan_lower_init_sites (PlanLower *self)
{
  init_keys (self);
  init_balance (self);
  if (self->quantizer.largest >= 0)
    plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (ONE (quantizer.largest)), PLAN_DIMS (1));
  if (self->quantizer.scales < 0)
    return;
  plan_lower_compute (self, PLAN_OP_INIT_SCALES,
                      PLAN_REFS (ONE (quantizer.scales), ONE (quantizer.history)),
                      PLAN_DIMS (n_sites (self), PLAN_QUANTIZER_HISTORY));
  if (self->quantizer.amax >= 0)
    plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (ONE (quantizer.amax)),
                        PLAN_DIMS (n_sites (self)));
}

/* Moves the biases once per step, by the loads of all ranks and micro batches (Megatron-LM's
 * finalize_model_grads.py, _update_router_expert_bias). */
void
plan_lower_balance (PlanLower *self)
{
  if (self->experts.loads < 0)
    return;
  const gint64 layers = self->stage.layers, experts = self->model->experts;
  if (self->comm.amax >= 0)
    {
      plan_lower_collective (self, PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE, self->comm.amax,
                             PLAN_REFS (ONE (experts.loads)), layers * experts, PLAN_REF_NONE,
                             ONE (event.exchanged));
      plan_lower_wait (self, ONE (event.exchanged));
    }
  plan_lower_compute (self, PLAN_OP_BALANCE,
                      PLAN_REFS (ONE (experts.balance), ONE (experts.loads), ONE (sums.coef)),
                      PLAN_DIMS (layers, experts));
  forget_loads (self);
}

void
plan_lower_rescale (PlanLower *self)
{
  if (self->quantizer.amax < 0)
    return;
  if (self->comm.amax >= 0)
    {
      plan_lower_collective (self, PLAN_OP_ALL_REDUCE_MAX, PLAN_STREAM_REDUCE, self->comm.amax,
                             PLAN_REFS (ONE (quantizer.amax)), n_sites (self), PLAN_REF_NONE,
                             ONE (event.exchanged));
      plan_lower_wait (self, ONE (event.exchanged));
    }
  plan_lower_compute (
      self, PLAN_OP_RESCALE,
      PLAN_REFS (ONE (quantizer.scales), ONE (quantizer.history), ONE (quantizer.amax)),
      PLAN_DIMS (n_sites (self), PLAN_QUANTIZER_HISTORY));
}

PlanRef
plan_lower_product_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit,
                           gboolean is_backward, gint64 *out_layout)
{
  const gboolean columns = is_backward && self->sizes->has_columns;
  *out_layout = !is_backward || columns ? 1 : 0;
  if (!self->sizes->quantises)
    return plan_lower_weight (self, role, unit);
  if (self->policy.copies_weights && self->stack->weights.quantised == PLAN_QUANTISED_ON_USE)
    return plan_lower_ref (columns ? self->params.copy_col[role] : self->params.copy[role]);
  if (self->policy.copies_weights)
    return plan_lower_unit_ref (columns ? self->params.copy_col[role] : self->params.copy[role],
                                unit, 0);
  if (!columns)
    return plan_lower_weight (self, role, unit);
  if (self->policy.gathers_columns)
    return plan_lower_column (self, role, unit);
  return self->policy.keeps_transposes
             ? plan_lower_unit_ref (self->params.transposed[role], unit, 0)
             : plan_lower_ref (self->params.transposed[role]);
}

gint64
plan_lower_matrices (const PlanLower *self, const PlanNode *node)
{
  return node->kind == PLAN_NODE_EXPERT_LINEAR ? self->sizes->experts : 1;
}

void
plan_lower_transpose_weight (PlanLower *self, const PlanNode *node, PlanLowerUnit unit)
{
  gint64 layout;
  const gint64 matrices = plan_lower_matrices (self, node);
  const gboolean is_each
      = self->stack->layer.kernels == PLAN_KERNELS_OWN && node->kind == PLAN_NODE_EXPERT_LINEAR;
  const PlanRef out = plan_lower_product_weight (self, node->weight, unit, TRUE, &layout);
  if (!self->policy.keeps_transposes)
    plan_lower_alloc (self, out);
  plan_lower_compute (self, is_each ? PLAN_OP_GROUPED_TRANSPOSE : PLAN_OP_TRANSPOSE,
                      PLAN_REFS (out, plan_lower_weight (self, node->weight, unit)),
                      PLAN_DIMS (matrices * node->cols, node->depth, matrices));
}

void
plan_lower_drop_transposes (PlanLower *self, const PlanLayerGraph *net)
{
  if (self->policy.transposes_weights)
    for (guint i = 0; i < net->n_nodes; i++)
      if (plan_node_is_product (&net->nodes[i]))
        plan_lower_free (self, plan_lower_ref (self->params.transposed[net->nodes[i].weight]));
}

void
plan_lower_quantise_weight (PlanLower *self, const PlanNode *node, PlanLowerUnit unit)
{
  const PlanRef row = plan_lower_ref (self->params.copy[node->weight]);
  const PlanRef col = plan_lower_ref (self->params.copy_col[node->weight]);
  if (!self->policy.copies_weights || self->stack->weights.quantised != PLAN_QUANTISED_ON_USE)
    return;
  plan_lower_alloc (self, row);
  if (col.array >= 0)
    plan_lower_alloc (self, col);
  plan_lower_quantise (self, node->weight, PLAN_QUANTIZER_WEIGHT, unit,
                       PLAN_REFS (row, col, plan_lower_weight (self, node->weight, unit)),
                       node->cols, node->depth);
}

void
plan_lower_drop_quantised_weight (PlanLower *self, const PlanNode *node)
{
  if (!self->policy.copies_weights || self->stack->weights.quantised != PLAN_QUANTISED_ON_USE)
    return;
  plan_lower_free (self, plan_lower_ref (self->params.copy[node->weight]));
  if (self->params.copy_col[node->weight] >= 0)
    plan_lower_free (self, plan_lower_ref (self->params.copy_col[node->weight]));
}
