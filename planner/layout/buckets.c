/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/layout/buckets.h"

#include <string.h>

PlanTensor
plan_buckets_part (const PlanModel *model, PlanTensorRole role, const PlanBucketRule *rule)
{
  PlanTensor tensor = plan_model_tensor (model, role, rule->vocab);
  switch ((int)role)
    {
    case PLAN_TENSOR_EMBEDDING:
    case PLAN_TENSOR_OUTPUT:
    case PLAN_TENSOR_QKV:
    case PLAN_TENSOR_QKV_BIAS:
    case PLAN_TENSOR_GATE_UP:
    case PLAN_TENSOR_GATE_UP_BIAS:
    case PLAN_TENSOR_SHARED_GATE_UP:
    case PLAN_TENSOR_Q:
    case PLAN_TENSOR_Q_UP:
    case PLAN_TENSOR_KV_UP:
    case PLAN_TENSOR_MTP_PROJ:
    case PLAN_TENSOR_DELTA_IN: /* gated_delta_net/common.py: heads are split */
    case PLAN_TENSOR_DELTA_CONV:
    case PLAN_TENSOR_DELTA_STEP:
    case PLAN_TENSOR_DELTA_DECAY:
    case PLAN_TENSOR_SSM_CONV: /* mamba_mixer.py: heads and groups are split */
    case PLAN_TENSOR_SSM_CONV_BIAS:
    case PLAN_TENSOR_SSM_STEP:
    case PLAN_TENSOR_SSM_DECAY:
    case PLAN_TENSOR_SSM_SKIP:
    case PLAN_TENSOR_SSM_IN:
    case PLAN_TENSOR_SSM_NORM:
    case PLAN_TENSOR_SINKS: /* Megatron-LM dot_product_attention.py, softmax_offset */
      tensor.rows /= rule->tp;
      break;
    case PLAN_TENSOR_PROJ:
    case PLAN_TENSOR_DELTA_OUT:
    case PLAN_TENSOR_SSM_OUT:
    case PLAN_TENSOR_DOWN:
    case PLAN_TENSOR_SHARED_DOWN:
      tensor.cols /= rule->tp;
      break;
    case PLAN_TENSOR_EXPERT_GATE_UP:
    case PLAN_TENSOR_EXPERT_GATE_UP_BIAS:
      tensor.rows /= rule->etp;
      break;
    case PLAN_TENSOR_EXPERT_DOWN:
      tensor.cols /= rule->etp;
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
      const PlanTensor tensor = plan_buckets_part (model, roles[i], rule);
      if (tensor.rows > 0)
        out[found++] = tensor;
    }
  return found;
}

/* Groups of parameters of a layer. Every framework names the members of a group one after the
 * other. */
typedef enum
{
  INPUT_NORM,
  QKV, /* weights that make q, k and v, with all matrices of latent attention before them */
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
    case PLAN_TENSOR_DELTA_NORM:
    case PLAN_TENSOR_SSM_NORM:
      return QKV;
    case PLAN_TENSOR_Q_NORM:
    case PLAN_TENSOR_K_NORM:
      return HEAD_NORMS;
    case PLAN_TENSOR_PROJ:
    case PLAN_TENSOR_PROJ_BIAS:
    case PLAN_TENSOR_DELTA_STEP:
    case PLAN_TENSOR_DELTA_DECAY:
    case PLAN_TENSOR_SSM_CONV: /* of the module itself, before its parts' */
    case PLAN_TENSOR_SSM_CONV_BIAS:
    case PLAN_TENSOR_SSM_STEP:
    case PLAN_TENSOR_SSM_DECAY:
    case PLAN_TENSOR_SSM_SKIP:
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
plan_buckets_layer (const PlanModel *model, const PlanBucketRule *rule, gint64 layer,
                    PlanTensor *out_tensors)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const guint n = plan_model_layer_tensors (model, layer, tensors);
  guint found = 0;
  for (guint g = 0; g < N_GROUPS; g++)
    for (guint i = 0; i < n; i++)
      if (group_of (&tensors[i]) == namings[rule->naming][g]
          && tensors[i].kind != PLAN_TENSOR_KIND_STATE)
        {
          PlanTensor *out = &out_tensors[found++];
          *out = plan_buckets_part (model, tensors[i].role, rule);
          out->rows *= out->count / (out->part == PLAN_PART_EXPERTS ? rule->ep : 1);
          out->count = 1;
        }
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

gint64
plan_buckets_layer_of (const PlanBuckets *self, guint at)
{
  gint64 layer;
  plan_buckets_tensor (self, at, &layer);
  return layer >= 0 ? layer : at < self->n_before ? 0 : self->layers - 1;
}

static guint
find_in (const PlanTensor *tensors, guint n, PlanTensorRole role)
{
  guint i = 0;
  while (i < n && tensors[i].role != role)
    i++;
  return i;
}

guint
plan_buckets_find (const PlanBuckets *self, PlanTensorRole role, gint64 layer)
{
  guint i = find_in (self->layer, self->n_layer, role);
  if (i < self->n_layer)
    return self->n_before + (guint)layer * self->n_layer + i;
  i = find_in (self->before, self->n_before, role);
  return i < self->n_before
             ? i
             : self->n_all - self->n_after + find_in (self->after, self->n_after, role);
}

/* Whether a bucket ends behind the i-th parameter taken because that one or the next is shared
 * between stages: a shared parameter has a bucket of its own on each stage. */
static gboolean
parts_copy (const PlanBuckets *self, const PlanBucketRule *rule, guint i)
{
  for (guint k = i; k < MIN (i + 2, self->n_all); k++)
    {
      gint64 layer;
      const PlanTensor *tensor
          = plan_buckets_tensor (self, rule->is_backwards ? self->n_all - 1 - k : k, &layer);
      if (tensor->role == PLAN_TENSOR_EMBEDDING || tensor->role == PLAN_TENSOR_OUTPUT)
        return TRUE;
    }
  return FALSE;
}

/* The virtual stage of the i-th parameter taken. All parameters of a virtual stage other than the
 * first are one bucket. */
static gint64
virtual_stage_of (const PlanBuckets *self, const PlanModel *model, const PlanBucketRule *rule,
                  guint i)
{
  const guint at = rule->is_backwards ? self->n_all - 1 - i : i;
  gint64 layer;
  plan_buckets_tensor (self, at, &layer);
  if (layer >= 0 || model->cut.runs == 0)
    return plan_model_cut_run (&model->cut, layer);
  return at < self->n_before ? 0 : model->cut.runs - 1;
}

/* Whether the i-th parameter taken closes its bucket, which has `filled` elements with it. */
static gboolean
closes (const PlanBuckets *self, const PlanModel *model, const PlanBucketRule *rule, guint i,
        guint64 filled)
{
  const gint64 at = virtual_stage_of (self, model, rule, i);
  return (at == 0 && filled >= rule->closes_at)
         || (i + 1 < self->n_all && virtual_stage_of (self, model, rule, i + 1) != at);
}

/* Cuts all parameters into buckets. */
static void
cut (PlanBuckets *self, const PlanModel *model, const PlanBucketRule *rule)
{
  guint64 filled = 0;
  for (guint i = 0; i < self->n_all; i++)
    {
      const guint at = rule->is_backwards ? self->n_all - 1 - i : i;
      gint64 layer;
      const PlanTensor *tensor = plan_buckets_tensor (self, at, &layer);
      PlanBucketSpan *span = &self->spans[self->n];
      if (filled == 0 || rule->is_backwards)
        span->first = at;
      span->n++;
      self->number[at] = self->n;
      filled += tensor->rows * tensor->cols;
      if (!closes (self, model, rule, i, filled)
          && !(rule->parts_shared && model->tied_embeddings
               && tensor->role == PLAN_TENSOR_EMBEDDING)
          && !(model->cut.shares_embedding && parts_copy (self, rule, i)))
        continue;
      filled = 0;
      self->n++;
    }
  self->n += filled > 0 ? 1 : 0;
}

static gboolean
is_of_layers (const PlanBuckets *self, const PlanBucketSpan *span)
{
  return span->first >= self->n_before && span->first + span->n <= self->n_all - self->n_after;
}

/* Returns the first bucket that holds the same parameters of layers as bucket `number`: that one
 * itself where there is no earlier one. */
static guint
first_like (const PlanBuckets *self, guint number)
{
  const PlanBucketSpan *span = &self->spans[number];
  for (guint i = 0; i < number; i++)
    {
      const PlanBucketSpan *other = &self->spans[i];
      if (is_of_layers (self, other) && other->n == span->n
          && (other->first - self->n_before) % self->n_layer
                 == (span->first - self->n_before) % self->n_layer)
        return i;
    }
  return number;
}

static void
place (PlanBuckets *self, const PlanBucketRule *rule, const PlanBucketSpan *span)
{
  g_autofree const PlanTensor **tensors = g_new (const PlanTensor *, span->n);
  g_autofree guint64 *offsets = g_new (guint64, span->n);
  const gboolean is_backwards = rule->is_backwards;
  for (guint i = 0; i < span->n; i++)
    {
      gint64 layer;
      tensors[is_backwards ? span->n - 1 - i : i]
          = plan_buckets_tensor (self, span->first + i, &layer);
    }
  self->padded[span->kind] = plan_packing_place (&rule->packing, tensors, span->n, offsets);
  for (guint i = 0; i < span->n; i++)
    self->offset[span->first + i] = offsets[is_backwards ? span->n - 1 - i : i];
}

/* Finds which buckets are of one kind, and where their parameters lie. */
static void
sort_into_kinds (PlanBuckets *self, const PlanBucketRule *rule)
{
  guint units = 0, others = 0;
  for (guint number = 0; number < self->n; number++)
    {
      PlanBucketSpan *span = &self->spans[number];
      const gboolean is_unit = is_of_layers (self, span);
      const guint like = is_unit ? first_like (self, number) : number;
      if (is_unit)
        span->unit = (span->first - self->n_before) / self->n_layer;
      if (like < number)
        {
          span->kind = self->spans[like].kind;
          memcpy (&self->offset[span->first], &self->offset[self->spans[like].first],
                  span->n * sizeof *self->offset);
          continue;
        }
      if (is_unit)
        span->kind = units == 0 ? PLAN_BUCKET_LAYER : PLAN_BUCKET_PART + units - 1;
      else if (span->first == 0)
        span->kind = PLAN_BUCKET_EMBEDDING;
      else if (span->first + span->n == self->n_all)
        span->kind = PLAN_BUCKET_HEAD;
      else
        span->kind = PLAN_BUCKET_OUTER_PART + others++;
      units += is_unit ? 1 : 0;
      g_assert (!is_unit || plan_bucket_is_unit (span->kind));
      place (self, rule, span);
    }
}

void
plan_buckets_init (PlanBuckets *self, const PlanModel *model, const PlanBucketRule *rule)
{
  static const PlanTensorRole before[] = { PLAN_TENSOR_EMBEDDING, PLAN_TENSOR_POSITIONS,
                                           PLAN_TENSOR_EMBED_NORM, PLAN_TENSOR_EMBED_NORM_BIAS };
  static const PlanTensorRole after[]
      = { PLAN_TENSOR_FINAL_NORM, PLAN_TENSOR_FINAL_NORM_BIAS, PLAN_TENSOR_OUTPUT };
  G_STATIC_ASSERT (G_N_ELEMENTS (before) <= PLAN_MAX_OUTER);
  G_STATIC_ASSERT (G_N_ELEMENTS (after) <= PLAN_MAX_OUTER);
  *self = (PlanBuckets){ .layers = model->layers };
  self->n_before = add_outer (self->before, model, rule, before, G_N_ELEMENTS (before));
  self->n_after = add_outer (self->after, model, rule, after, G_N_ELEMENTS (after));
  self->n_layer = model->layers > 0 ? plan_buckets_layer (model, rule, 0, self->layer) : 0;
  g_assert (self->n_layer <= PLAN_MAX_LAYER_TENSORS);
  self->n_all = self->n_before + self->n_layer * (guint)self->layers + self->n_after;
  self->spans = g_new0 (PlanBucketSpan, self->n_all);
  self->number = g_new (guint32, self->n_all);
  self->offset = g_new (guint64, self->n_all);
  cut (self, model, rule);
  sort_into_kinds (self, rule);
}

void
plan_buckets_clear (PlanBuckets *self)
{
  g_clear_pointer (&self->spans, g_free);
  g_clear_pointer (&self->number, g_free);
  g_clear_pointer (&self->offset, g_free);
}

/* Finds the cycle in which kinds of buckets recur. Since the end of a bucket decides where all
 * later ones end, a sequence of kinds that recurs once goes on recurring. */
PlanBucketCycle
plan_buckets_cycle (const PlanBuckets *self)
{
  PlanBucketCycle cycle = { 0 };
  for (guint i = 0; i < self->n && cycle.n == 0; i++)
    for (guint j = i + 1; j < self->n && cycle.n == 0; j++)
      if (self->spans[i].kind == self->spans[j].kind)
        cycle = (PlanBucketCycle){ .from = i,
                                   .n = j - i,
                                   .step = self->spans[j].unit - self->spans[i].unit };
  guint end = cycle.from + cycle.n;
  while (cycle.n > 0 && end < self->n && self->spans[end].kind == self->spans[end - cycle.n].kind)
    end++;
  cycle.count = cycle.n > 0 ? (end - cycle.from) / cycle.n : 0;
  return cycle;
}
