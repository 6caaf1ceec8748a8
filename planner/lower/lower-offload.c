/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading. Activations are copied to the host while the next layer runs, and back one chunk
 * ahead of the backward pass. A share of the optimizer's work is done by the host: gradients are
 * copied out, the host updates its moments and weights, the weights are copied back. Megatron-LM's
 * HybridDeviceOptimizer does that in fp32, with nothing beside; our own runtime in the formats of
 * the device, which does the rest meanwhile, so that shares change no result. Host memory is
 * allocated once and stays. */
#include "config.h"

#include "planner/lower/lower-offload.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-step.h"

#include <string.h>

#define ONE(array) plan_lower_ref (self->array)

/* Smaller tensors are not offloaded (Megatron-LM --min-offloaded-tensor-size). */
#define LEAST_ELEMENTS 1048576

#define N_FACTORS 4 /* that CLIP writes */

PlanValueSet
plan_lower_offload_takes (const PlanLayerGraph *net, gint64 modules)
{
  PlanValueSet taken = 0;
  for (guint i = 0; i < net->n_nodes && modules != 0; i++)
    {
      const PlanNode *node = &net->nodes[i];
      gint64 module = -1;
      if (node->kind == PLAN_NODE_NORM && node->weight == PLAN_TENSOR_ATTENTION_NORM)
        module = PLAN_OFFLOAD_MODULES_ATTN_NORM;
      else if (node->kind == PLAN_NODE_NORM && node->weight == PLAN_TENSOR_MLP_NORM)
        module = PLAN_OFFLOAD_MODULES_MLP_NORM;
      else if (node->kind == PLAN_NODE_ATTENTION)
        module = PLAN_OFFLOAD_MODULES_CORE_ATTN;
      else if (node->kind == PLAN_NODE_LINEAR && node->weight == PLAN_TENSOR_QKV)
        module = PLAN_OFFLOAD_MODULES_QKV_LINEAR;
      else if (node->kind == PLAN_NODE_LINEAR && node->weight == PLAN_TENSOR_PROJ)
        module = PLAN_OFFLOAD_MODULES_ATTN_PROJ;
      const PlanValueId input = node->kind == PLAN_NODE_LINEAR ? node->kept : node->in;
      if (module >= 0 && (modules >> module & 1) && net->values[input].elements >= LEAST_ELEMENTS)
        taken |= plan_value_bit (input);
    }
  return taken;
}

/* The values that a layer offloads. */
static PlanValueSet
find_outgoing (const PlanLower *self, gint64 layer)
{
  const gint64 *value = self->plan->value;
  if (self->policy.is_eval
      || (value[PLAN_OFFLOAD_LAYERS] <= layer && value[PLAN_OFFLOAD_MODULES] == 0))
    return 0;
  const PlanValueSet kept = plan_lower_kept (self, plan_lower_keep (self, layer));
  return kept & ~plan_value_bit (PLAN_VALUE_OUT)
         & (layer < value[PLAN_OFFLOAD_LAYERS]
                ? ~(PlanValueSet)0
                : plan_lower_offload_takes (self->graphs->of[plan_lower_kind (self, layer)],
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
  const gint64 layers = self->stage.layers;
  gint64 count[PLAN_N_VALUES] = { 0 };
  gboolean any = FALSE;
  for (gint64 layer = 0; layer < layers; layer++)
    for (PlanValueSet outgoing = find_outgoing (self, layer); outgoing; any = TRUE)
      count[plan_value_pop (&outgoing)] = layer + 1;
  for (PlanValueId id = 0; id < PLAN_N_VALUES; id++)
    {
      const PlanValue *value = &self->graphs->values[id];
      self->layer.host[id] = -1;
      if (count[id] == 0)
        continue;
      g_autofree char *name = g_strconcat ("host.", plan_value_name (id), NULL);
      self->layer.host[id]
          = plan_schedule_add_buffer (self->schedule, name, (guint32)count[id], value->elements,
                                      value->dtype, PLAN_CATEGORY_HOST);
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
copy (PlanLower *self, PlanRef out, PlanRef in, gint64 count, PlanRef record)
{
  plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, ONE (event.done));
  plan_lower_emit (self, PLAN_OP_COPY, PLAN_STREAM_COPY, PLAN_REFS (out, in), PLAN_DIMS (count),
                   PLAN_WAITS (ONE (event.done)), record);
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
      const PlanRef here = plan_lower_unit_ref (self->layer.value[id], unit, 0);
      const PlanRef there = plan_lower_unit_ref (self->layer.host[id], unit, 0);
      if (is_back)
        plan_lower_alloc (self, here);
      copy (self, is_back ? here : there, is_back ? there : here,
            (gint64)self->graphs->values[id].elements, record);
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
    plan_lower_free (self,
                     plan_lower_unit_ref (self->layer.value[plan_value_pop (&outgoing)], unit, 0));
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

/* Whether a host array is allocated bucket by bucket, as not every unit has a bucket of each kind.
 */
static gboolean
goes_by_bucket (const PlanLower *self, gint32 array)
{
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
      if (buffer->category != PLAN_CATEGORY_HOST || goes_by_bucket (self, (gint32)array))
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
