/* SPDX-License-Identifier: Apache-2.0 */
/* The update by AdamW or SGD, parameter by parameter. Moments in eight bits have a scale for every
 * part of a parameter that one rank updates; nothing else here depends on how the plan shards. */
#include "config.h"

#include "exec/number/number.h"
#include "planner/plan/stages.h"
#include "tests/reference/evaluate-experts.h"
#include "tests/reference/evaluate-split.h"

/* The slot of a parameter, and the kind of bucket it is in. In models with experts, layers without
 * experts have buckets of a kind of their own. */
static const PlanSlot *
find_slot (const ExecEvaluator *self, const PlanLayout *layout, PlanTensorRole role, gint64 layer,
           PlanBucketKind *out_kind)
{
  gboolean is_dense = self->model->experts > 0 && !plan_model_is_moe_layer (self->model, layer);

  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    for (guint i = 0; i < layout->buckets[kind].n_slots; i++)
      if (layout->slots[kind][i].tensor.role == role
          && (!plan_bucket_is_unit (kind)
              || (kind == PLAN_BUCKET_DENSE || kind == PLAN_BUCKET_DENSE_PLAIN) == is_dense))
        {
          *out_kind = kind;
          return &layout->slots[kind][i];
        }
  g_assert_not_reached ();
}

/* A stage of a pipeline: buckets as its ranks have them. */
typedef struct
{
  PlanStage stage;
  PlanModel model;
  PlanLayout layout;
} Stage;

/* Adds the parts into which ranks' shards of a bucket cut a parameter: a shard ends at each
 * multiple of `share`. Of experts each rank of a group that has each once has some, or parts. */
static void
add_parts (ExecEvaluator *self, const PlanLayout *layout, const PlanTensor *tensor, gint64 layer)
{
  PlanBucketKind kind;
  const PlanSlot *slot = find_slot (self, layout, tensor->role, layer, &kind);
  const PlanBucket *bucket = &layout->buckets[kind];
  guint64 whole = tensor->rows * tensor->cols, share = bucket->padded / bucket->shards;
  const guint etp = exec_evaluator_splits_experts_of (tensor->role) ? self->etp : 1;
  guint64 count = plan_bucket_is_of_experts (kind) ? whole / (self->ep * etp) : whole, n;

  for (guint64 first = 0; first < whole; first += n)
    {
      guint64 here = first % count;

      n = MIN (count - here, share - (slot->offset + here) % share);
      ExecEvaluatorPart part = { .role = tensor->role,
                                 .layer = layer,
                                 .first = first,
                                 .at = exec_evaluator_offset (self, tensor->role, layer) + first,
                                 .count = n,
                                 .scale = { 1, 1 } };
      g_array_append_val (self->parts, part);
    }
}

static gboolean
is_before_layers (PlanTensorRole role)
{
  return role == PLAN_TENSOR_EMBEDDING || role == PLAN_TENSOR_POSITIONS
         || role == PLAN_TENSOR_EMBED_NORM || role == PLAN_TENSOR_EMBED_NORM_BIAS;
}

static void
add_parts_of_stage (ExecEvaluator *self, const Stage *of)
{
  const PlanStage *stage = &of->stage;

  for (guint i = 0; i < self->n_outer; i++)
    if (is_before_layers (self->outer[i].role) ? stage->has_embedding : stage->has_head)
      add_parts (self, &of->layout, &self->outer[i], 0);
  for (gint64 here = 0; here < stage->layers; here++)
    {
      gint64 layer = plan_stage_layer (stage, here);

      for (guint i = 0; i < self->in_layer[layer].n; i++)
        add_parts (self, &of->layout, &self->in_layer[layer].tensor[i], layer);
    }
}

void
exec_evaluator_find_parts (ExecEvaluator *self)
{
  const PlanCase *of = self->job->of;

  g_assert (!of->layout.by_size); /* no stack that runs on CPUs has such buckets */
  self->parts = g_array_new (FALSE, FALSE, sizeof (ExecEvaluatorPart));
  for (gint64 number = 0; number < of->plan.value[PLAN_PP]; number++)
    {
      g_autofree Stage *stage = g_new0 (Stage, 1);

      stage->stage = plan_stage_of (of->model, of->stack, &of->plan, number);
      stage->model = plan_stage_model (&stage->stage, of->model);
      plan_layout_init (&stage->layout, &stage->model, of->stack, &of->plan, self->ranks);
      add_parts_of_stage (self, stage);
    }
}

static gboolean
init_part (ExecEvaluator *self, ExecArray all, ExecState state, ExecEvaluatorPart *part,
           GError **error)
{
  const PlanTensor tensor = plan_model_tensor (self->model, part->role, self->vocab);
  ExecArray out = exec_evaluator_from (all, part->at);
  float *scale = &part->scale[state == EXEC_STATE_EXP_AVG_SQ];
  g_autofree float *values = g_new (float, part->count);

  if (!exec_evaluator_read (self, state, &tensor, part->layer, part->first, part->count, values,
                            error))
    return FALSE;
  if (out.dtype != PLAN_DTYPE_E4M3)
    exec_number_narrow (out.data, out.dtype, values, part->count);
  else
    {
      *scale = exec_number_scale (exec_number_largest (values, part->count));
      exec_number_narrow_scaled (out.data, PLAN_DTYPE_E4M3, values, *scale, part->count);
    }
  return TRUE;
}

gboolean
exec_evaluator_init_moments (ExecEvaluator *self, GError **error)
{
  for (guint i = 0; i < self->parts->len; i++)
    {
      ExecEvaluatorPart *part = &g_array_index (self->parts, ExecEvaluatorPart, i);

      if (!init_part (self, self->exp_avg, EXEC_STATE_EXP_AVG, part, error)
          || !init_part (self, self->exp_avg_sq, EXEC_STATE_EXP_AVG_SQ, part, error))
        return FALSE;
    }
  return TRUE;
}

/* Whether weight decay applies to a parameter: to all but norms, biases and sinks, also to a matrix
 * of one column. */
static gboolean
decays (const PlanTensor *tensor)
{
  return tensor->part != PLAN_PART_NORMS && !strstr (tensor->name, "_bias")
         && !g_str_equal (tensor->name, "sinks");
}

/* Updates a part of a parameter. */
static void
update_part (ExecEvaluator *self, ExecArray grad, const PlanTensor *tensor, guint64 at,
             guint64 count, float *scale)
{
  const double decay = self->constants.weight_decay;
  ExecArray main = exec_evaluator_from (self->main_params, at);
  ExecArray avg = exec_evaluator_from (self->exp_avg, at);
  gint64 dims[] = { (gint64)count };

  grad = exec_evaluator_from (grad, at);
  if (!decays (tensor) && !self->constants.decays_all)
    self->constants.weight_decay = 0;
  if (self->is_sgd)
    exec_evaluator_run (self, PLAN_OP_SGD, EXEC_OPERANDS (main, avg, grad, self->coef), dims);
  else
    {
      ExecArray avg_sq = exec_evaluator_from (self->exp_avg_sq, at);

      avg.scale = &scale[0];
      avg_sq.scale = &scale[1];
      exec_evaluator_run (self, PLAN_OP_ADAMW, EXEC_OPERANDS (main, avg, avg_sq, grad, self->coef),
                          dims);
    }
  self->constants.weight_decay = decay;
}

static void
update_tensor (ExecEvaluator *self, ExecArray grad, const PlanTensor *tensor, gint64 layer)
{
  float none[2] = { 1, 1 };

  if (self->parts == NULL)
    update_part (self, grad, tensor, exec_evaluator_offset (self, tensor->role, layer),
                 tensor->rows * tensor->cols, none);
  for (guint i = 0; self->parts != NULL && i < self->parts->len; i++)
    {
      ExecEvaluatorPart *part = &g_array_index (self->parts, ExecEvaluatorPart, i);

      if (part->role == tensor->role && part->layer == layer)
        update_part (self, grad, tensor, part->at, part->count, part->scale);
    }
}

void
exec_evaluator_step (ExecEvaluator *self, ExecArray grad)
{
  for (guint i = 0; i < self->n_outer; i++)
    update_tensor (self, grad, &self->outer[i], 0);
  for (gint64 layer = 0; layer < self->model->layers; layer++)
    for (guint i = 0; i < self->in_layer[layer].n; i++)
      update_tensor (self, grad, &self->in_layer[layer].tensor[i], layer);
}
