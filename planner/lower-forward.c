/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower-private.h"

#define UNIT(array) lower_unit_ref (self->array, unit, 0)
#define ONE(array) lower_ref (self->array)

static const LowerUnit no_unit = { .loop = -1 };

static void
norm_forward (Lower *self, PlanRef out, PlanRef rstd, PlanRef in, PlanRef weight,
              const PlanRef *waits)
{
  lower_alloc (self, out);
  lower_alloc (self, rstd);
  lower_emit (self, PLAN_OP_RMSNORM, PLAN_STREAM_COMPUTE, LOWER_REFS (out, rstd, in, weight),
              LOWER_DIMS (self->rows, self->model->hidden), waits, PLAN_REF_NONE);
}

/* out[rows, cols] = in[rows, depth] * weight[cols, depth], transposed */
static void
linear_forward (Lower *self, PlanRef out, PlanRef in, PlanRef weight, gint64 cols, gint64 depth)
{
  lower_alloc (self, out);
  lower_compute (self, PLAN_OP_GEMM, LOWER_REFS (out, in, weight),
                 LOWER_DIMS (self->rows, cols, depth, 1));
}

/* out = in + branch, which is no longer needed */
static void
residual_forward (Lower *self, PlanRef out, PlanRef in, PlanRef record)
{
  lower_alloc (self, out);
  lower_emit (self, PLAN_OP_ADD, PLAN_STREAM_COMPUTE, LOWER_REFS (out, in, ONE (branch)),
              LOWER_DIMS (self->rows * self->model->hidden), NULL, record);
  lower_free (self, ONE (branch));
}

static void
attention_forward (Lower *self, LowerUnit unit)
{
  const PlanModel *m = self->model;
  const gint64 seq = self->plan->value[PLAN_SEQ], batch = self->plan->value[PLAN_MBS];
  linear_forward (self, UNIT (qkv), UNIT (norm1), lower_weight (self, PLAN_TENSOR_QKV, unit),
                  self->qkv_cols, m->hidden);
  lower_compute (self, PLAN_OP_ROPE, LOWER_REFS (UNIT (qkv)),
                 LOWER_DIMS (self->rows, seq, m->heads, m->kv_heads, m->head_dim, 0));
  lower_alloc (self, UNIT (attn));
  lower_alloc (self, UNIT (lse));
  lower_compute (self, PLAN_OP_ATTENTION, LOWER_REFS (UNIT (attn), UNIT (lse), UNIT (qkv)),
                 LOWER_DIMS (batch, seq, m->heads, m->kv_heads, m->head_dim));
  linear_forward (self, ONE (branch), UNIT (attn), lower_weight (self, PLAN_TENSOR_PROJ, unit),
                  m->hidden, self->attention_cols);
}

static void
layer_forward (Lower *self, LowerUnit unit)
{
  const PlanModel *m = self->model;
  const LowerBucket *b = &self->bucket[PLAN_BUCKET_LAYER];
  const PlanRef gathered = lower_unit_ref (b->gathered, unit, 0);

  norm_forward (self, UNIT (norm1), UNIT (rstd1), UNIT (x),
                lower_weight (self, PLAN_TENSOR_ATTENTION_NORM, unit), LOWER_WAITS (gathered));
  attention_forward (self, unit);
  residual_forward (self, UNIT (hidden2), UNIT (x), PLAN_REF_NONE);
  norm_forward (self, UNIT (norm2), UNIT (rstd2), UNIT (hidden2),
                lower_weight (self, PLAN_TENSOR_MLP_NORM, unit), NULL);
  linear_forward (self, UNIT (gate_up), UNIT (norm2),
                  lower_weight (self, PLAN_TENSOR_GATE_UP, unit), 2 * m->ffn, m->hidden);
  lower_alloc (self, UNIT (act));
  lower_compute (self, PLAN_OP_SWIGLU, LOWER_REFS (UNIT (act), UNIT (gate_up)),
                 LOWER_DIMS (self->rows, m->ffn));
  linear_forward (self, ONE (branch), UNIT (act), lower_weight (self, PLAN_TENSOR_DOWN, unit),
                  m->hidden, m->ffn);
  residual_forward (self, lower_unit_ref (self->x, unit, 1), UNIT (hidden2), ONE (done));
  if (self->shards_weights)
    lower_free (self, lower_unit_ref (b->weights, unit, 0));
}

/* A unit's hook asks for its own weights and those `prefetch` units ahead; what was asked for
 * before is there already. So the first unit asks for several, the next for one each, the last
 * for none. */
static void
layers_forward (Lower *self)
{
  const gint64 layers = self->model->layers, ahead = self->prefetch;
  gint64 asks = layers; /* units that ask for one more */
  if (self->shards_weights)
    {
      for (gint32 i = 0; i < ahead; i++)
        lower_gather (self, no_unit, i);
      asks = layers - ahead;
    }
  LowerUnit unit = lower_begin_units (self, 0, asks, 1);
  if (self->shards_weights)
    lower_gather (self, unit, (gint32)ahead);
  layer_forward (self, unit);
  lower_end_units (self, unit);
  if (asks == layers)
    return;
  unit = lower_begin_units (self, asks, layers - asks, 1);
  layer_forward (self, unit);
  lower_end_units (self, unit);
}

static void
head_forward (Lower *self)
{
  const PlanModel *m = self->model;
  const LowerBucket *head = &self->bucket[PLAN_BUCKET_HEAD];
  const LowerUnit last = { .loop = -1, .offset = (gint32)m->layers };
  const PlanRef output = lower_weight (
      self, m->tied_embeddings ? PLAN_TENSOR_EMBEDDING : PLAN_TENSOR_OUTPUT, no_unit);

  /* The hook of the output layer cannot know that the backward pass comes next. */
  if (self->shards_weights && self->stack->prefetches_past_head)
    for (gint32 i = 0; i < self->prefetch; i++)
      lower_gather (self, no_unit, i);
  norm_forward (self, ONE (norm_final), ONE (rstd_final), lower_unit_ref (self->x, last, 0),
                lower_weight (self, PLAN_TENSOR_FINAL_NORM, no_unit),
                LOWER_WAITS (lower_ref (head->gathered)));
  linear_forward (self, ONE (logits), ONE (norm_final), output, self->vocab, m->hidden);
  lower_alloc (self, ONE (prob));
  if (self->image >= 0)
    lower_alloc (self, ONE (image));
  lower_emit (self, PLAN_OP_CROSS_ENTROPY, PLAN_STREAM_COMPUTE,
              LOWER_REFS (ONE (sums), ONE (prob), ONE (logits), ONE (targets)),
              LOWER_DIMS (self->rows, self->vocab), NULL, ONE (done));
  if (self->image >= 0)
    lower_free (self, ONE (image));
  lower_free (self, ONE (logits));
}

void
lower_forward (Lower *self)
{
  const LowerBucket *embed = &self->bucket[PLAN_BUCKET_EMBEDDING];
  lower_compute (self, PLAN_OP_LOAD, LOWER_REFS (ONE (tokens), ONE (targets)),
                 LOWER_DIMS (self->rows));
  lower_alloc (self, lower_ref (self->x));
  lower_emit (self, PLAN_OP_EMBED, PLAN_STREAM_COMPUTE,
              LOWER_REFS (lower_ref (self->x), lower_weight (self, PLAN_TENSOR_EMBEDDING, no_unit),
                          ONE (tokens)),
              LOWER_DIMS (self->rows, self->model->hidden, self->vocab),
              LOWER_WAITS (lower_ref (embed->gathered)), ONE (done));
  layers_forward (self);
  head_forward (self);
}
