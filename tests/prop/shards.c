/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/prop/shards.h"

#include "planner/lower/case.h"

#include <string.h>

typedef struct
{
  const PlanLayout *layout;
  guint64 part;                   /* of every bucket, that is the rank's */
  const float *own, *expected;    /* of all parameters */
  guint64 own_length, n_expected; /* floats */
} Shards;

/* The part of every bucket that a rank's main weights are: HFSDP cuts the shards of a replica's
 * ranks once more, between replicas. */
static guint64
part_of (const Plan *plan, guint64 shards, guint rank)
{
  const guint64 replicas = (guint64)plan->value[PLAN_DP_OUTER], inner = shards / replicas;
  if (plan->value[PLAN_OUTER_STRATEGY] != PLAN_OUTER_STRATEGY_OPTIM)
    return rank % shards;
  return rank % inner * replicas + rank / inner;
}

/* Floats of every rank's share that lie before its part of a bucket: buckets around the layers come
 * first, then those of one layer after the other. */
static guint64
floats_before (const PlanLayout *layout, PlanBucketKind kind, gint64 unit)
{
  guint64 before = 0;
  for (PlanBucketKind k = 0; k < PLAN_N_BUCKETS; k++)
    {
      const guint64 part = layout->buckets[k].padded / layout->shards;
      const gboolean is_unit = plan_bucket_is_unit (k), is_earlier = k < kind;
      if (!is_unit && (plan_bucket_is_unit (kind) || is_earlier))
        before += part * (guint64)layout->buckets[k].units;
      else if (is_unit && plan_bucket_is_unit (kind))
        before += part * (guint64)(unit + is_earlier);
    }
  return before;
}

/* The elements of a parameter that the rank has; `at` is where the parameter begins among the
 * evaluator's. */
static gboolean
parameter_equals (const Shards *self, PlanTensorRole role, gint64 layer, guint64 at)
{
  PlanBucketKind kind;
  const PlanSlot *slot = plan_layout_slot (self->layout, role, &kind);
  const guint64 size = self->layout->buckets[kind].padded / self->layout->shards;
  const guint64 before = floats_before (self->layout, kind, layer);
  const guint64 count = slot->tensor.rows * slot->tensor.cols;
  const guint64 first = MAX (slot->offset, self->part * size);
  const guint64 end = MIN (slot->offset + count, (self->part + 1) * size);
  if (first >= end)
    return TRUE;
  g_assert (before + end - self->part * size <= self->own_length
            && at + end - slot->offset <= self->n_expected);
  return memcmp (self->own + before + (first - self->part * size),
                 self->expected + at + (first - slot->offset), (end - first) * sizeof (float))
         == 0;
}

gboolean
shards_equal (const ExecJob *job, guint ranks, guint rank, const ExecResult *result,
              const ExecResult *expected)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const PlanCase *of = job->of;
  const gint64 vocab = of->layout.rule.vocab;
  Shards self = { .own = (const float *)(gpointer)result->main_params->data,
                  .own_length = result->main_params->len / sizeof (float),
                  .expected = (const float *)(gpointer)expected->main_params->data,
                  .n_expected = expected->main_params->len / sizeof (float) };
  guint64 at = 0;
  gboolean equal = TRUE;
  self.layout = &of->layout;
  self.part = part_of (&of->plan, self.layout->shards, rank);
  for (guint i = 0, n = plan_model_outer_tensors (of->model, vocab, tensors); i < n; i++)
    {
      equal = equal && parameter_equals (&self, tensors[i].role, 0, at);
      at += tensors[i].rows * tensors[i].cols;
    }
  for (gint64 layer = 0; layer < of->model->layers; layer++)
    for (guint i = 0, n = plan_model_layer_tensors (of->model, 0, tensors); i < n; i++)
      {
        equal = equal && parameter_equals (&self, tensors[i].role, layer, at);
        at += tensors[i].rows * tensors[i].cols;
      }
  return equal && at == self.n_expected;
}
