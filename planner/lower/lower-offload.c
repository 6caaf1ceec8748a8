/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading. A layer's activations are copied to the host while the next layer runs, and copied
 * back one chunk of layers before their backward pass. The last chunk of a pass comes back during
 * the pass before, if a pipeline has one between. Where the backward pass follows its forward pass
 * at once, the last chunk's modules keep their activations on the device (Megatron-LM's
 * fine_grained_activation_offload.py, should_bulk_offload). A share of the optimizer's work is done
 * by the host: gradients are copied out, the host updates its moments and weights, the weights are
 * copied back. Megatron-LM's HybridDeviceOptimizer does that in fp32, with nothing beside; our own
 * runtime in the formats of the device, which does the rest meanwhile, so that shares change no
 * result. Its host memory is allocated once and stays; that of activations is taken as they go, and
 * given back when they are back. */
#include "config.h"

#include "planner/lower/lower-offload.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-step.h"
#include "planner/plan/stages.h"

#include <string.h>

#define ONE(array) plan_lower_ref (self->array)

#define N_FACTORS 4 /* that CLIP writes */

/* Whether a weight is of a projection that makes queries, keys or values. */
static gboolean
is_before_attention (PlanTensorRole weight)
{
  return weight == PLAN_TENSOR_QKV || weight == PLAN_TENSOR_Q || weight == PLAN_TENSOR_Q_DOWN
         || weight == PLAN_TENSOR_Q_UP || weight == PLAN_TENSOR_KV_DOWN
         || weight == PLAN_TENSOR_KV_UP;
}

/* The module of offload_modules that a node belongs to, as Megatron-LM divides layers; -1: none.
 * Latent attention's projections, down and up, are all of qkv_linear. */
static gint
module_of (const PlanNode *node)
{
  switch ((int)node->kind)
    {
    case PLAN_NODE_NORM:
      return node->weight == PLAN_TENSOR_ATTENTION_NORM ? PLAN_OFFLOAD_MODULES_ATTN_NORM
             : node->weight == PLAN_TENSOR_MLP_NORM     ? PLAN_OFFLOAD_MODULES_MLP_NORM
             : node->module == PLAN_MODULE_LATENT_UP    ? PLAN_OFFLOAD_MODULES_QKV_LINEAR
                                                        : -1;
    case PLAN_NODE_LINEAR:
      return node->weight == PLAN_TENSOR_PROJ     ? PLAN_OFFLOAD_MODULES_ATTN_PROJ
             : is_before_attention (node->weight) ? PLAN_OFFLOAD_MODULES_QKV_LINEAR
                                                  : -1;
    case PLAN_NODE_ATTENTION:
    case PLAN_NODE_LATENT_ATTENTION:
      return PLAN_OFFLOAD_MODULES_CORE_ATTN;
    case PLAN_NODE_EXPERT_LINEAR:
      return node->weight == PLAN_TENSOR_EXPERT_GATE_UP ? PLAN_OFFLOAD_MODULES_EXPERT_FC1 : -1;
    case PLAN_NODE_EXPERT_ACTIVATE:
      return PLAN_OFFLOAD_MODULES_MOE_ACT;
    default:
      return -1;
    }
}

PlanValueSet
plan_lower_offload_takes (const PlanStack *stack, const PlanLayerGraph *net, gint64 modules)
{
  PlanValueSet taken = 0;
  for (guint i = 0; i < net->n_nodes && modules != 0; i++)
    {
      const PlanNode *node = &net->nodes[i];
      const gint module = module_of (node);
      if (module < 0 || !(modules >> module & 1))
        continue;
      const gboolean is_latent = node->kind == PLAN_NODE_LATENT_ATTENTION;
      PlanValueSet inputs
          = plan_value_bit (plan_node_is_product (node) ? node->kept : node->in)
            | (is_latent ? plan_value_bit (node->other) | plan_value_bit (node->latent) : 0);
      while (inputs)
        {
          const PlanValueId id = plan_value_pop (&inputs);
          if (net->values[id].elements >= stack->layer.least_offloaded)
            taken |= plan_value_bit (id);
        }
    }
  return taken;
}

/* The first unit of the last chunk of a virtual stage. */
static gint64
last_chunk (const PlanLower *self, const PlanStage *part)
{
  const gint64 beyond = (part->layers - 1) % self->policy.chunk;
  return part->first + part->layers - 1 - beyond;
}

/* Whether a layer's modules keep their activations on the device: the backward pass that follows at
 * once reads them first. */
static gboolean
stays (const PlanLower *self, gint64 layer)
{
  const PlanStage last = plan_stage_virtual (&self->stage, self->stage.n_virtual - 1);
  return self->stage.has_loss && !plan_stage_is_afab (self->plan)
         && layer >= last_chunk (self, &last);
}

/* The values that a layer offloads. */
static PlanValueSet
find_outgoing (const PlanLower *self, gint64 layer)
{
  const gint64 *value = self->plan->value;
  if (self->policy.is_eval
      || (value[PLAN_OFFLOAD_LAYERS] <= layer
          && (value[PLAN_OFFLOAD_MODULES] == 0 || stays (self, layer))))
    return 0;
  const PlanValueSet kept = plan_lower_kept (self, plan_lower_keep (self, layer));
  return kept & ~plan_value_bit (PLAN_VALUE_OUT)
         & (layer < value[PLAN_OFFLOAD_LAYERS]
                ? ~(PlanValueSet)0
                : plan_lower_offload_takes (self->stack,
                                            self->graphs->of[plan_lower_kind (self, layer)],
                                            value[PLAN_OFFLOAD_MODULES]));
}

gboolean
plan_lower_offloads (const PlanLower *self, gint64 layer)
{
  return find_outgoing (self, layer) != 0;
}

/* Declares a host array for each value that is offloaded, up to the last layer that does so.
 * Returns whether there is any. */
static gboolean
declare_outgoing (PlanLower *self)
{
  const PlanStage here = self->now.here;
  gint64 count[PLAN_N_VALUES] = { 0 };
  gboolean any = FALSE;
  for (gint64 i = 0; i < self->stage.n_virtual; i++)
    {
      self->now.here = plan_stage_virtual (&self->stage, i);
      for (gint64 n = 0; n < self->now.here.layers; n++)
        for (PlanValueSet outgoing = find_outgoing (self, self->now.here.first + n); outgoing;
             any = TRUE)
          count[plan_value_pop (&outgoing)] = self->now.here.first + n + 1;
    }
  self->now.here = here;
  for (PlanValueId id = 0; id < PLAN_N_VALUES; id++)
    {
      const PlanValue *value = &self->graphs->values[id];
      self->layer.host[id] = -1;
      if (count[id] == 0)
        continue;
      g_autofree char *name = g_strconcat ("host.", plan_value_name (id), NULL);
      self->layer.host[id]
          = plan_schedule_add_buffer (self->schedule, name, (guint32)(self->rows * count[id]),
                                      value->elements, value->dtype, PLAN_CATEGORY_HOST);
    }
  return any;
}

void
plan_lower_declare_offload (PlanLower *self)
{
  const guint32 layers = (guint32)self->stage.layers;
  gboolean updates = FALSE;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    updates |= plan_lower_host_elements (self, kind) > 0;
  self->event.copied = updates ? plan_schedule_add_event (self->schedule, "copied", 1) : -1;
  self->event.updated = updates ? plan_schedule_add_event (self->schedule, "updated", 1) : -1;
  self->sums.host_coef = updates && self->stack->optimizer.host == PLAN_HOST_ALIKE
                             ? plan_schedule_add_buffer (self->schedule, "host.coef", 1, N_FACTORS,
                                                         PLAN_DTYPE_FP32, PLAN_CATEGORY_HOST)
                             : -1;
  const gboolean any = declare_outgoing (self);
  self->event.offloaded = any ? plan_schedule_add_event (self->schedule, "offloaded", layers) : -1;
  self->event.fetched = any ? plan_schedule_add_event (self->schedule, "fetched", layers) : -1;
}

/* Emits a copy that waits for all ops issued to the compute stream so far. */
static void
copy_on (PlanLower *self, PlanStream stream, PlanRef out, PlanRef in, gint64 count, PlanRef record)
{
  plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, ONE (event.done));
  plan_lower_emit (self, PLAN_OP_COPY, stream, PLAN_REFS (out, in), PLAN_DIMS (count),
                   PLAN_WAITS (ONE (event.done)), record);
}

static void
copy (PlanLower *self, PlanRef out, PlanRef in, gint64 count, PlanRef record)
{
  copy_on (self, PLAN_STREAM_COPY, out, in, count, record);
}

/* The micro batch's part of an array of activations, on the device or on the host. */
static PlanRef
activation (const PlanLower *self, gint32 array, PlanLowerUnit unit)
{
  return plan_lower_in_row (self, plan_lower_unit_ref (array, unit, 0));
}

/* Copies a unit's offloaded activations out, or back into new memory. `layer`: any layer that
 * offloads the same values. */
static void
move (PlanLower *self, PlanLowerUnit unit, gint64 layer, gboolean is_back)
{
  const PlanRef record
      = plan_lower_unit_ref (is_back ? self->event.fetched : self->event.offloaded, unit, 0);
  for (PlanValueSet outgoing = find_outgoing (self, layer); outgoing;)
    {
      const PlanValueId id = plan_value_pop (&outgoing);
      const PlanRef here = activation (self, self->layer.value[id], unit);
      const PlanRef there = activation (self, self->layer.host[id], unit);
      plan_lower_alloc (self, is_back ? here : there);
      copy_on (self, is_back ? PLAN_STREAM_FETCH : PLAN_STREAM_COPY, is_back ? here : there,
               is_back ? there : here, (gint64)self->graphs->values[id].elements, record);
    }
}

void
plan_lower_offload (PlanLower *self, PlanLowerUnit unit, gint64 layer)
{
  move (self, unit, layer, FALSE);
}

void
plan_lower_fetch (PlanLower *self, PlanLowerUnit unit, gint64 layer)
{
  move (self, unit, layer, TRUE);
}

void
plan_lower_drop_offloaded (PlanLower *self, PlanLowerUnit unit, gint64 layer)
{
  plan_lower_wait (self, plan_lower_unit_ref (self->event.offloaded, unit, 0));
  for (PlanValueSet outgoing = find_outgoing (self, layer); outgoing;)
    plan_lower_free (self, activation (self, self->layer.value[plan_value_pop (&outgoing)], unit));
}

void
plan_lower_await_fetched (PlanLower *self, PlanLowerUnit unit, gint64 layer)
{
  plan_lower_wait (self, plan_lower_unit_ref (self->event.fetched, unit, 0));
  for (PlanValueSet outgoing = find_outgoing (self, layer); outgoing;)
    plan_lower_free (self, activation (self, self->layer.host[plan_value_pop (&outgoing)], unit));
}

void
plan_lower_fetch_ahead (PlanLower *self)
{
  const gint64 first = self->now.here.first, end = first + self->now.here.layers;
  for (gint64 unit = end - 1; end > first && unit >= last_chunk (self, &self->now.here); unit--)
    if (find_outgoing (self, unit) != 0)
      plan_lower_fetch (self, (PlanLowerUnit){ .loop = -1, .offset = (gint32)unit }, unit);
}

/* The host's share of the optimizer. */

gint64
plan_lower_host_elements (const PlanLower *self, PlanBucketKind kind)
{
  /* a share in millionths */
  const gint64 share = self->plan->value[PLAN_OFFLOAD_OPTIMIZER];
  const gint64 own = plan_lower_own_elements (self, kind);
  return own / 1000000 * share + own % 1000000 * share / 1000000;
}

/* The format in which the host keeps what the device has in another one. */
static PlanDtype
host_dtype (const PlanLower *self, PlanBucketKind kind, PlanHostState state)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (self->stack->optimizer.host == PLAN_HOST_WIDE)
    return PLAN_DTYPE_FP32;
  switch (state)
    {
    case PLAN_HOST_MAIN:
      return b->main >= 0 ? self->dtype.main_params : b->dtype;
    case PLAN_HOST_EXP_AVG:
      return plan_field_dtype (self->plan, PLAN_EXP_AVG);
    case PLAN_HOST_EXP_AVG_SQ:
      return plan_field_dtype (self->plan, PLAN_EXP_AVG_SQ);
    case PLAN_HOST_GRADS:
      return self->dtype.main_grads;
    case PLAN_N_HOST_STATES:
      break;
    }
  g_assert_not_reached ();
}

void
plan_lower_declare_host_state (PlanLower *self, PlanBucketKind kind)
{
  static const char *const names[]
      = { "host.main", "host.exp_avg", "host.exp_avg_sq", "host.grads" };
  PlanLowerBucket *b = &self->bucket[kind];
  const gint64 count = plan_lower_host_elements (self, kind);
  for (guint i = 0; i < PLAN_N_HOST_STATES; i++)
    {
      g_autofree char *name = plan_layout_bucket_name (kind, names[i]);
      b->host[i] = count == 0 ? -1
                              : plan_schedule_add_buffer (
                                  self->schedule, name, (guint32)self->layout.buckets[kind].length,
                                  (guint64)count, host_dtype (self, kind, i), PLAN_CATEGORY_HOST);
    }
}

/* Whether a host array is not allocated as a whole: activations come and go, and not every unit has
 * a bucket of each kind. */
static gboolean
goes_by_unit (const PlanLower *self, gint32 array)
{
  for (PlanValueId id = 0; id < PLAN_N_VALUES; id++)
    if (self->layer.host[id] == array)
      return TRUE;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    for (guint i = 0; i < PLAN_N_HOST_STATES; i++)
      if (self->bucket[kind].host[i] == array)
        return TRUE;
  return FALSE;
}

static void
bucket_memory (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
               void (*visit) (PlanLower *self, PlanRef buffer))
{
  for (guint i = 0; i < PLAN_N_HOST_STATES; i++)
    if (self->bucket[kind].host[i] >= 0)
      visit (self, plan_lower_unit_ref (self->bucket[kind].host[i], unit, 0));
}

static void
take_bucket_memory (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  bucket_memory (self, kind, unit, plan_lower_alloc);
}

static void
drop_bucket_memory (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  bucket_memory (self, kind, unit, plan_lower_free);
}

void
plan_lower_host_memory (PlanLower *self, gboolean takes)
{
  void (*const visit) (PlanLower * self, PlanRef buffer)
      = takes ? plan_lower_alloc : plan_lower_free;
  if (self->event.copied >= 0)
    plan_lower_each_bucket (self, takes ? take_bucket_memory : drop_bucket_memory);
  for (guint array = 0; array < plan_schedule_n_buffers (self->schedule); array++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (self->schedule, array);
      if (buffer->category != PLAN_CATEGORY_HOST || goes_by_unit (self, (gint32)array))
        continue;
      const PlanLowerUnit one = plan_lower_begin_repeat (self, "b", 0, buffer->count, 1);
      visit (self, plan_lower_unit_ref ((gint32)array, one, 0));
      plan_lower_end_units (self, one);
    }
}

void
plan_lower_host_init (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanRef main)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint64 count = plan_lower_host_elements (self, kind);
  if (count == 0)
    return;
  copy (self, plan_lower_unit_ref (b->host[PLAN_HOST_MAIN], unit, 0), main, count,
        ONE (event.copied));
  for (guint i = PLAN_HOST_EXP_AVG; i <= PLAN_HOST_EXP_AVG_SQ; i++)
    plan_lower_emit (self, PLAN_OP_ZERO, PLAN_STREAM_COPY,
                     PLAN_REFS (plan_lower_unit_ref (b->host[i], unit, 0)), PLAN_DIMS (count), NULL,
                     ONE (event.copied));
  /* If weights are updated in place they are gathered next, which must not overtake the copy. */
  plan_lower_wait (self, ONE (event.copied));
}

void
plan_lower_host_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const gint64 count = plan_lower_host_elements (self, kind);
  if (count > 0)
    copy (self, plan_lower_unit_ref (self->bucket[kind].host[PLAN_HOST_GRADS], unit, 0),
          plan_lower_optimizer_gradients (self, kind, unit), count, ONE (event.copied));
}

void
plan_lower_host_factors (PlanLower *self)
{
  if (self->sums.host_coef >= 0)
    copy (self, ONE (sums.host_coef), ONE (sums.coef), N_FACTORS, ONE (event.copied));
}

void
plan_lower_host_update (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const gint32 *host = self->bucket[kind].host;
  const gint64 count = plan_lower_host_elements (self, kind);
  if (count > 0)
    plan_lower_emit (self, PLAN_OP_ADAMW_HOST, PLAN_STREAM_HOST,
                     PLAN_REFS (plan_lower_unit_ref (host[PLAN_HOST_MAIN], unit, 0),
                                plan_lower_unit_ref (host[PLAN_HOST_EXP_AVG], unit, 0),
                                plan_lower_unit_ref (host[PLAN_HOST_EXP_AVG_SQ], unit, 0),
                                plan_lower_unit_ref (host[PLAN_HOST_GRADS], unit, 0),
                                self->sums.host_coef >= 0 ? ONE (sums.host_coef) : ONE (sums.coef)),
                     PLAN_DIMS (count), NULL, ONE (event.updated));
}

void
plan_lower_host_weights (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanRef main)
{
  const gint64 count = plan_lower_host_elements (self, kind);
  if (count > 0)
    copy (self, main, plan_lower_unit_ref (self->bucket[kind].host[PLAN_HOST_MAIN], unit, 0), count,
          ONE (event.copied));
}
