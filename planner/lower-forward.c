/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower-private.h"

#define UNIT(array) plan_lower_unit_ref (self->array, unit, 0)
#define ONE(array) plan_lower_ref (self->array)

static const PlanLowerUnit no_unit = { .loop = -1 };

static void
norm_forward (PlanLower *self, PlanRef out, PlanRef rstd, PlanRef in, PlanRef weight,
              const PlanRef *waits)
{
  plan_lower_alloc (self, out);
  plan_lower_alloc (self, rstd);
  plan_lower_emit (self, PLAN_OP_RMSNORM, PLAN_STREAM_COMPUTE, PLAN_REFS (out, rstd, in, weight),
                   PLAN_DIMS (self->rows, self->model->hidden), waits, PLAN_REF_NONE);
}

/* out[rows, cols] = in[rows, depth] * weight[cols, depth], transposed */
static void
linear_forward (PlanLower *self, PlanRef out, PlanRef in, PlanRef weight, gint64 cols, gint64 depth)
{
  plan_lower_alloc (self, out);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (out, in, weight),
                      PLAN_DIMS (self->rows, cols, depth, 1));
}

/* out = in + branch, which is no longer needed */
static void
residual_forward (PlanLower *self, PlanRef out, PlanRef in, PlanRef record)
{
  plan_lower_alloc (self, out);
  plan_lower_emit (self, PLAN_OP_ADD, PLAN_STREAM_COMPUTE, PLAN_REFS (out, in, ONE (branch)),
                   PLAN_DIMS (self->rows * self->model->hidden), NULL, record);
  plan_lower_free (self, ONE (branch));
}

/* Something that only the backward pass would still want. */
static void
drop (PlanLower *self, gboolean keeps, PlanRef buffer)
{
  if (!keeps)
    plan_lower_free (self, buffer);
}

/* From x to hidden2. */
static void
attention_forward (PlanLower *self, PlanLowerUnit unit, gboolean keeps, PlanRef gathered)
{
  const PlanModel *m = self->model;
  const gint64 seq = self->plan->value[PLAN_SEQ], batch = self->plan->value[PLAN_MBS];
  norm_forward (self, UNIT (norm1), UNIT (rstd1), UNIT (x),
                plan_lower_weight (self, PLAN_TENSOR_ATTENTION_NORM, unit), PLAN_WAITS (gathered));
  drop (self, keeps, UNIT (rstd1));
  linear_forward (self, UNIT (qkv), UNIT (norm1), plan_lower_weight (self, PLAN_TENSOR_QKV, unit),
                  self->qkv_cols, m->hidden);
  drop (self, keeps, UNIT (norm1));
  plan_lower_compute (self, PLAN_OP_ROPE, PLAN_REFS (UNIT (qkv)),
                      PLAN_DIMS (self->rows, seq, m->heads, m->kv_heads, m->head_dim, 0));
  plan_lower_alloc (self, UNIT (attn));
  plan_lower_alloc (self, UNIT (lse));
  plan_lower_compute (self, PLAN_OP_ATTENTION, PLAN_REFS (UNIT (attn), UNIT (lse), UNIT (qkv)),
                      PLAN_DIMS (batch, seq, m->heads, m->kv_heads, m->head_dim));
  drop (self, keeps, UNIT (lse));
  drop (self, keeps, UNIT (qkv));
  linear_forward (self, ONE (branch), UNIT (attn), plan_lower_weight (self, PLAN_TENSOR_PROJ, unit),
                  m->hidden, self->attention_cols);
  drop (self, keeps, UNIT (attn));
  residual_forward (self, UNIT (hidden2), UNIT (x), PLAN_REF_NONE);
}

/* From hidden2 to the input of the last product. */
static void
mlp_forward (PlanLower *self, PlanLowerUnit unit, gboolean keeps, PlanRef gathered)
{
  const PlanModel *m = self->model;
  norm_forward (self, UNIT (norm2), UNIT (rstd2), UNIT (hidden2),
                plan_lower_weight (self, PLAN_TENSOR_MLP_NORM, unit), PLAN_WAITS (gathered));
  drop (self, keeps, UNIT (rstd2));
  linear_forward (self, UNIT (gate_up), UNIT (norm2),
                  plan_lower_weight (self, PLAN_TENSOR_GATE_UP, unit), 2 * m->ffn, m->hidden);
  drop (self, keeps, UNIT (norm2));
  plan_lower_alloc (self, UNIT (act));
  plan_lower_compute (self, PLAN_OP_SWIGLU, PLAN_REFS (UNIT (act), UNIT (gate_up)),
                      PLAN_DIMS (self->rows, m->ffn));
  drop (self, keeps, UNIT (gate_up));
}

/* The last product and the unit's output, x of the next. */
static void
output_forward (PlanLower *self, PlanLowerUnit unit)
{
  const PlanModel *m = self->model;
  linear_forward (self, ONE (branch), UNIT (act), plan_lower_weight (self, PLAN_TENSOR_DOWN, unit),
                  m->hidden, m->ffn);
  residual_forward (self, plan_lower_unit_ref (self->x, unit, 1), UNIT (hidden2), ONE (done));
}

static void
layer_forward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep)
{
  const PlanLowerBucket *b = &self->bucket[PLAN_BUCKET_LAYER];
  attention_forward (self, unit, keep != PLAN_KEEP_INPUT,
                     plan_lower_unit_ref (b->gathered, unit, 0));
  mlp_forward (self, unit, keep == PLAN_KEEP_ALL, PLAN_REF_NONE);
  output_forward (self, unit);
  drop (self, keep == PLAN_KEEP_ALL, UNIT (act));
  drop (self, keep != PLAN_KEEP_INPUT, UNIT (hidden2));
  if (self->shards_weights)
    plan_lower_free (self, plan_lower_unit_ref (b->weights, unit, 0));
}

void
plan_lower_recompute (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep, PlanRef gathered)
{
  if (keep == PLAN_KEEP_ALL)
    return;
  if (keep == PLAN_KEEP_INPUT)
    attention_forward (self, unit, TRUE, gathered);
  mlp_forward (self, unit, TRUE, keep == PLAN_KEEP_INPUT ? PLAN_REF_NONE : gathered);
  if (!self->stack->recomputes_outputs)
    return;
  output_forward (self, unit); /* checkpointing runs a module whole, wanted or not */
  plan_lower_free (self, plan_lower_unit_ref (self->x, unit, 1));
}

PlanLowerKeep
plan_lower_keep (const PlanLower *self, gint64 layer)
{
  const gint64 *value = self->plan->value;
  const gboolean is_block = value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK;
  if (value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE)
    return PLAN_KEEP_ATTENTION;
  if (value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL
      && (!is_block || layer < value[PLAN_RECOMPUTE_LAYERS]))
    return PLAN_KEEP_INPUT;
  return PLAN_KEEP_ALL;
}

/* A unit's hook asks for its own weights and those `prefetch` units ahead; what was asked for
 * before is there already. So the first unit asks for several, the next for one each, the last
 * for none. */
static void
layers_forward (PlanLower *self)
{
  const gint64 layers = self->model->layers, ahead = self->shards_weights ? self->prefetch : 0;
  const gint64 asks = layers - ahead; /* units that ask for one more */
  for (gint32 i = 0; i < ahead; i++)
    plan_lower_gather (self, no_unit, i);
  for (gint64 first = 0, end; first < layers; first = end)
    {
      const PlanLowerKeep keep = plan_lower_keep (self, first);
      for (end = first + 1;
           end < layers && plan_lower_keep (self, end) == keep && (first < asks) == (end < asks);)
        end++;
      const PlanLowerUnit unit = plan_lower_begin_units (self, first, end - first, 1);
      if (self->shards_weights && first < asks)
        plan_lower_gather (self, unit, (gint32)ahead);
      layer_forward (self, unit, keep);
      plan_lower_end_units (self, unit);
    }
}

static void
head_forward (PlanLower *self)
{
  const PlanModel *m = self->model;
  const PlanLowerBucket *head = &self->bucket[PLAN_BUCKET_HEAD];
  const PlanLowerUnit last = { .loop = -1, .offset = (gint32)m->layers };
  const PlanRef output = plan_lower_weight (
      self, m->tied_embeddings ? PLAN_TENSOR_EMBEDDING : PLAN_TENSOR_OUTPUT, no_unit);

  /* The hook of the output layer cannot know that the backward pass comes next. */
  if (self->shards_weights && self->stack->prefetches_past_head)
    for (gint32 i = 0; i < self->prefetch; i++)
      plan_lower_gather (self, no_unit, i);
  norm_forward (self, ONE (norm_final), ONE (rstd_final), plan_lower_unit_ref (self->x, last, 0),
                plan_lower_weight (self, PLAN_TENSOR_FINAL_NORM, no_unit),
                PLAN_WAITS (plan_lower_ref (head->gathered)));
  linear_forward (self, ONE (logits), ONE (norm_final), output, self->vocab, m->hidden);
  plan_lower_alloc (self, ONE (prob));
  if (self->image >= 0)
    plan_lower_alloc (self, ONE (image));
  plan_lower_emit (self, PLAN_OP_CROSS_ENTROPY, PLAN_STREAM_COMPUTE,
                   PLAN_REFS (ONE (sums), ONE (prob), ONE (logits), ONE (targets)),
                   PLAN_DIMS (self->rows, self->vocab), NULL, ONE (done));
  if (self->image >= 0)
    plan_lower_free (self, ONE (image));
  plan_lower_free (self, ONE (logits));
}

void
plan_lower_forward (PlanLower *self)
{
  const PlanLowerBucket *embed = &self->bucket[PLAN_BUCKET_EMBEDDING];
  plan_lower_compute (self, PLAN_OP_LOAD, PLAN_REFS (ONE (tokens), ONE (targets)),
                      PLAN_DIMS (self->rows));
  plan_lower_alloc (self, plan_lower_ref (self->x));
  plan_lower_emit (self, PLAN_OP_EMBED, PLAN_STREAM_COMPUTE,
                   PLAN_REFS (plan_lower_ref (self->x),
                              plan_lower_weight (self, PLAN_TENSOR_EMBEDDING, no_unit),
                              ONE (tokens)),
                   PLAN_DIMS (self->rows, self->model->hidden, self->vocab),
                   PLAN_WAITS (plan_lower_ref (embed->gathered)), ONE (done));
  layers_forward (self);
  head_forward (self);
}
