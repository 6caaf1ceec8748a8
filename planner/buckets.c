/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/buckets.h"

PlanTensor
plan_buckets_part (const PlanModel *model, PlanTensorRole role, gint64 vocab, guint64 tp)
{
  PlanTensor tensor = plan_model_tensor (model, role, vocab);
  switch ((int)role)
    {
    case PLAN_TENSOR_EMBEDDING:
    case PLAN_TENSOR_OUTPUT:
    case PLAN_TENSOR_QKV:
    case PLAN_TENSOR_QKV_BIAS:
    case PLAN_TENSOR_GATE_UP:
    case PLAN_TENSOR_GATE_UP_BIAS:
      tensor.rows /= tp;
      break;
    case PLAN_TENSOR_PROJ:
    case PLAN_TENSOR_DOWN:
      tensor.cols /= tp;
      break;
    default:
      break;
    }
  return tensor;
}

static guint
add_outer (PlanTensor *out, const PlanModel *model, const PlanBucketRule *rule,
           const PlanTensorRole *roles, guint n)
{
  guint found = 0;
  for (guint i = 0; i < n; i++)
    {
      const PlanTensor tensor = plan_buckets_part (model, roles[i], rule->vocab, rule->tp);
      if (tensor.rows > 0)
        out[found++] = tensor;
    }
  return found;
}

/* Parameters of a layer that are named one after the other everywhere. */
typedef enum
{
  INPUT_NORM,
  QKV, /* what attention reads, with what latent attention makes it of */
  HEAD_NORMS,
  PROJ,
  MLP_NORM,
  MLP,
  N_GROUPS
} Group;

static const Group namings[][N_GROUPS] = {
  [PLAN_NAMING_PROJ_FIRST] = { PROJ, INPUT_NORM, QKV, HEAD_NORMS, MLP_NORM, MLP },
  [PLAN_NAMING_BY_USE] = { INPUT_NORM, QKV, HEAD_NORMS, PROJ, MLP_NORM, MLP },
  [PLAN_NAMING_NORMS_LAST] = { QKV, PROJ, HEAD_NORMS, MLP, INPUT_NORM, MLP_NORM },
};

static Group
group_of (const PlanTensor *tensor)
{
  switch ((int)tensor->role)
    {
    case PLAN_TENSOR_ATTENTION_NORM:
    case PLAN_TENSOR_ATTENTION_NORM_BIAS:
      return INPUT_NORM;
    case PLAN_TENSOR_QKV_BIAS:
    case PLAN_TENSOR_Q_UP_NORM:
    case PLAN_TENSOR_KV_UP_NORM:
      return QKV;
    case PLAN_TENSOR_Q_NORM:
    case PLAN_TENSOR_K_NORM:
      return HEAD_NORMS;
    case PLAN_TENSOR_PROJ:
    case PLAN_TENSOR_PROJ_BIAS:
      return PROJ;
    case PLAN_TENSOR_ATTENTION_POST_NORM:
    case PLAN_TENSOR_MLP_NORM:
    case PLAN_TENSOR_MLP_NORM_BIAS:
      return MLP_NORM;
    default:
      return tensor->part == PLAN_PART_ATTENTION ? QKV : MLP;
    }
}

guint
plan_buckets_layer (const PlanModel *model, const PlanBucketRule *rule, PlanTensor *out_tensors)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const guint n = plan_model_layer_tensors (model, 0, tensors);
  guint found = 0;
  for (guint g = 0; g < N_GROUPS; g++)
    for (guint i = 0; i < n; i++)
      if (group_of (&tensors[i]) == namings[rule->naming][g])
        out_tensors[found++] = plan_buckets_part (model, tensors[i].role, rule->vocab, rule->tp);
  return found;
}

const PlanTensor *
plan_buckets_tensor (const PlanBuckets *self, guint at, gint64 *out_layer)
{
  const guint layers = self->n_layer * (guint)self->layers;
  *out_layer = -1;
  if (at < self->n_before)
    return &self->before[at];
  at -= self->n_before;
  if (at >= layers)
    return &self->after[at - layers];
  *out_layer = at / self->n_layer;
  return &self->layer[at % self->n_layer];
}

void
plan_buckets_init (PlanBuckets *self, const PlanModel *model, const PlanBucketRule *rule)
{
  static const PlanTensorRole before[] = { PLAN_TENSOR_EMBEDDING, PLAN_TENSOR_POSITIONS };
  static const PlanTensorRole after[]
      = { PLAN_TENSOR_FINAL_NORM, PLAN_TENSOR_FINAL_NORM_BIAS, PLAN_TENSOR_OUTPUT };
  *self = (PlanBuckets){ .layers = model->layers };
  self->n_before = add_outer (self->before, model, rule, before, G_N_ELEMENTS (before));
  self->n_after = add_outer (self->after, model, rule, after, G_N_ELEMENTS (after));
  self->n_layer = plan_buckets_layer (model, rule, self->layer);
  g_assert (self->n_layer <= PLAN_MAX_LAYER_TENSORS);
  const guint all = self->n_before + self->n_layer * (guint)self->layers + self->n_after;
  self->n_all = all;
  self->number = g_new (guint32, all);
  self->first = g_new (guint32, all);
  guint64 filled = 0;
  for (guint i = 0; i < all; i++)
    {
      const guint at = rule->is_backwards ? all - 1 - i : i;
      gint64 layer;
      const PlanTensor *tensor = plan_buckets_tensor (self, at, &layer);
      if (filled == 0 || rule->is_backwards)
        self->first[self->n] = at;
      self->number[at] = self->n;
      filled += tensor->rows * tensor->cols;
      if (filled < rule->closes_at
          && !(rule->parts_shared && model->tied_embeddings
               && tensor->role == PLAN_TENSOR_EMBEDDING))
        continue;
      filled = 0;
      self->n++;
    }
  self->n += filled > 0 ? 1 : 0;
}

void
plan_buckets_clear (PlanBuckets *self)
{
  g_clear_pointer (&self->number, g_free);
  g_clear_pointer (&self->first, g_free);
}

guint32
plan_buckets_of_layer (const PlanBuckets *self, gint64 layer, guint i)
{
  return self->number[self->n_before + (guint)layer * self->n_layer + i];
}

guint32
plan_buckets_before (const PlanBuckets *self, guint i)
{
  return self->number[i];
}

guint32
plan_buckets_after (const PlanBuckets *self, guint i)
{
  return self->number[self->n_all - self->n_after + i];
}

gboolean
plan_buckets_cut_layer (const PlanBuckets *self, guint i)
{
  for (gint64 layer = 0; i > 0 && layer < self->layers; layer++)
    if (plan_buckets_of_layer (self, layer, i) != plan_buckets_of_layer (self, layer, i - 1))
      return TRUE;
  return FALSE;
}
