/* SPDX-License-Identifier: Apache-2.0 */
/* Finds each parameter of a rank's main weights, which are laid out by buckets, among the
 * reference's parameters, which are laid out by tensors. */
#include "config.h"

#include "tests/prop/shards.h"

#include "planner/case/case.h"
#include "planner/plan/stages.h"
#include "tests/reference/evaluate-experts.h"

#include <string.h>

typedef struct
{
  const PlanLayout *layout;
  const PlanModel *model;
  guint64 part, expert_part; /* which part is the rank's: of buckets, of those of experts */
  guint64 of_experts, place; /* ranks that have each expert once, and the rank's place among them */
  guint64 etp;               /* ranks that split an expert */
  const float *own, *expected;    /* main weights of the rank; all of the reference's */
  guint64 own_length, n_expected; /* in floats */
} Shards;

/* Which of a bucket's `shards` parts a rank's main weights are. HFSDP cuts each shard of a replica
 * once more, between replicas. */
static guint64
part_of (const Plan *plan, guint64 shards, guint rank)
{
  const guint64 replicas = (guint64)plan->value[PLAN_DP_OUTER], inner = shards / replicas;
  if (plan->value[PLAN_OUTER_STRATEGY] != PLAN_OUTER_STRATEGY_OPTIM)
    return rank % shards;
  return rank % inner * replicas + rank / inner;
}

/* In a model with experts, layers without experts have kinds of buckets of their own. */
static gboolean
is_dense (PlanBucketKind kind)
{
  return kind == PLAN_BUCKET_DENSE || kind == PLAN_BUCKET_DENSE_PLAIN;
}

/* Whether a bucket of that kind has parameters of a layer. */
static gboolean
holds (const Shards *self, PlanBucketKind kind, gint64 layer)
{
  if (!plan_bucket_is_unit (kind) || plan_model_moe_layers (self->model) == 0)
    return plan_bucket_is_unit (kind);
  return is_dense (kind) != plan_model_is_moe_layer (self->model, layer);
}

/* Floats of a rank that lie before its part of a bucket: buckets of embedding and head come first,
 * then those of one layer after the other; in a model with experts, layers without experts last. */
static guint64
floats_before (const Shards *self, PlanBucketKind kind, gint64 layer)
{
  const gboolean is_unit = plan_bucket_is_unit (kind);
  guint64 before = 0;
  for (PlanBucketKind k = 0; k < PLAN_N_BUCKETS; k++)
    {
      const PlanBucket *bucket = &self->layout->buckets[k];
      gint64 n = 0;
      if (!plan_bucket_is_unit (k))
        n = is_unit || k < kind ? bucket->units : 0;
      for (gint64 l = 0; is_unit && l < self->model->layers; l++)
        n += holds (self, k, l)
             && (is_dense (k) == is_dense (kind) ? l < layer || (l == layer && k < kind)
                                                 : is_dense (kind));
      before += bucket->padded / bucket->shards * (guint64)n;
    }
  return before;
}

static const PlanSlot *
find_slot (const Shards *self, PlanTensorRole role, gint64 layer, PlanBucketKind *out_kind)
{
  const PlanLayout *layout = self->layout;
  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    for (guint i = 0; i < layout->buckets[kind].n_slots; i++)
      if (layout->slots[kind][i].tensor.role == role
          && (!plan_bucket_is_unit (kind) || holds (self, kind, layer)))
        {
          *out_kind = kind;
          return &layout->slots[kind][i];
        }
  g_assert_not_reached ();
}

/* Compares the rank's elements of a parameter (of a tensor-parallel rank: of its part of one);
 * `at` is where the parameter begins among the reference's. */
static gboolean
parameter_equals (const Shards *self, PlanTensorRole role, gint64 layer, guint64 at)
{
  PlanBucketKind kind;
  const PlanSlot *slot = find_slot (self, role, layer, &kind);
  const guint64 size = self->layout->buckets[kind].padded / self->layout->buckets[kind].shards;
  const guint64 part = plan_bucket_is_of_experts (kind) ? self->expert_part : self->part;
  const guint64 before = floats_before (self, kind, layer);
  const guint64 count = slot->tensor.rows * slot->tensor.cols;
  const guint64 first = MAX (slot->offset, part * size);
  const guint64 end = MIN (slot->offset + count, (part + 1) * size);
  if (first >= end)
    return TRUE;
  if (plan_bucket_is_of_experts (kind))
    at += self->place / (exec_evaluator_splits_experts_of (role) ? 1 : self->etp) * count;
  g_assert (before + end - part * size <= self->own_length
            && at + end - slot->offset <= self->n_expected);
  return memcmp (self->own + before + (first - part * size),
                 self->expected + at + (first - slot->offset), (end - first) * sizeof (float))
         == 0;
}

/* Whether a pipeline stage has a parameter outside the layers. */
static gboolean
has_outer (const PlanStage *stage, const PlanTensor *tensor)
{
  switch ((int)tensor->role)
    {
    case PLAN_TENSOR_EMBEDDING:
    case PLAN_TENSOR_POSITIONS:
    case PLAN_TENSOR_EMBED_NORM:
    case PLAN_TENSOR_EMBED_NORM_BIAS:
      return stage->has_embedding;
    default:
      return stage->has_head;
    }
}

gboolean
shards_equal (const ExecJob *job, guint ranks, guint rank, const ExecResult *result,
              const ExecResult *expected)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const PlanCase *of = job->of;
  const guint tp = (guint)of->plan.value[PLAN_TP], place = rank % tp;
  const guint of_stage = ranks / (guint)of->plan.value[PLAN_PP], number = rank / of_stage;
  const PlanStage stage = plan_stage_of (of->model, of->stack, &of->plan, number);
  const PlanModel part_model = plan_stage_model (&stage, of->model);
  PlanModel whole = *of->model;
  g_autofree PlanLayout *layout = g_new0 (PlanLayout, 1);
  const gint64 vocab = of->layout.rule.vocab;
  const gsize length = expected->main_params->len / sizeof (float) / tp;
  Shards self = { .own = (const float *)(gpointer)result->main_params->data,
                  .own_length = result->main_params->len / sizeof (float),
                  .expected = (const float *)(gpointer)expected->main_params->data + place * length,
                  .n_expected = length };
  guint64 at = 0;
  gboolean equal = TRUE;
  plan_layout_init (layout, &part_model, of->stack, &of->plan, of_stage / tp);
  self.layout = layout;
  self.model = &part_model;
  self.part = part_of (&of->plan, self.layout->shards, rank % of_stage / tp);
  self.etp = (guint64)of->plan.value[PLAN_ETP];
  self.of_experts = (guint64)of->plan.value[PLAN_EP] * self.etp;
  self.place = rank % self.of_experts;
  self.expert_part = part_of (&of->plan, MAX (self.layout->buckets[PLAN_BUCKET_EXPERTS].shards, 1),
                              rank % of_stage / (guint)self.of_experts);
  /* Where stages are several, the last has a copy of a table that is embedding and output layer. */
  whole.tied_embeddings = whole.tied_embeddings && of_stage == ranks;
  for (guint i = 0, n = plan_model_outer_tensors (&whole, vocab, tensors); i < n; i++)
    {
      const PlanTensor part = plan_buckets_part (&whole, tensors[i].role, &of->layout.rule);
      equal = equal && (!has_outer (&stage, &part) || parameter_equals (&self, part.role, 0, at));
      at += plan_model_numel (&part);
    }
  for (gint64 layer = 0, here = 0; layer < whole.layers; layer++)
    {
      const gboolean has_layer
          = here < part_model.layers && plan_stage_layer (&stage, here) == layer;
      for (guint i = 0, n = exec_evaluator_find_trained (&whole, layer, tensors); i < n; i++)
        {
          const PlanTensor part = plan_buckets_part (&whole, tensors[i].role, &of->layout.rule);
          equal = equal && (!has_layer || parameter_equals (&self, part.role, here, at));
          at += plan_model_numel (part.part == PLAN_PART_EXPERTS ? &tensors[i] : &part);
        }
      here += has_layer;
    }
  return equal && at == self.n_expected;
}
