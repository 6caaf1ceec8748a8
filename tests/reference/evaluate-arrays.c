/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays of a micro batch: none is shared or reused. */
#include "config.h"

#include "exec/number/exact.h"
#include "tests/reference/evaluate-experts.h"

/* Takes an array, and a scale, for what a norm writes and a product reads. */
static ExecArray
take_product_input (ExecEvaluator *self, guint64 count)
{
  ExecArray array
      = exec_evaluator_array (self, self->fuses_norms ? self->product : self->compute, count);

  array.scale = exec_evaluator_array (self, PLAN_DTYPE_FP32, 1).data;
  return array;
}

static void
take_layer (ExecEvaluator *self, ExecEvaluatorLayer *l)
{
  const PlanModel *m = self->model;
  PlanDtype c = self->compute;
  guint64 rows = (guint64)self->rows, wide = rows * (guint64)m->hidden;
  guint64 qkv = rows * (guint64)self->qkv_width, ffn = rows * (guint64)m->ffn;

  l->x = exec_evaluator_array (self, c, wide);
  l->normed1 = take_product_input (self, wide);
  l->stats1 = exec_evaluator_array (self, PLAN_DTYPE_FP32, 2 * rows);
  l->qkv = exec_evaluator_array (self, c, qkv);
  l->heads = exec_evaluator_has_head_norms (m) ? exec_evaluator_array (self, c, qkv) : l->qkv;
  l->head_stats
      = exec_evaluator_array (self, PLAN_DTYPE_FP32, rows * (guint64)(m->heads + m->kv_heads));
  l->attention = exec_evaluator_array (self, c, rows * (guint64)self->attention_width);
  l->lse = exec_evaluator_array (self, PLAN_DTYPE_FP32, rows * (guint64)m->heads);
  l->middle = exec_evaluator_array (self, c, wide);
  l->normed2 = self->model->experts > 0 ? exec_evaluator_array (self, self->compute, wide)
                                        : take_product_input (self, wide);
  l->stats2 = exec_evaluator_array (self, PLAN_DTYPE_FP32, 2 * rows);
  l->up = exec_evaluator_array (self, c, rows * (guint64)self->up_width);
  l->activated = exec_evaluator_array (self, c, ffn);
  if (m->kv_lora > 0)
    exec_evaluator_take_latent (self, l);
  if (!m->post_norms)
    return;
  l->proj = exec_evaluator_array (self, c, wide);
  l->down = exec_evaluator_array (self, c, wide);
  l->post1 = exec_evaluator_array (self, PLAN_DTYPE_FP32, 2 * rows);
  l->post2 = exec_evaluator_array (self, PLAN_DTYPE_FP32, 2 * rows);
}

/* Takes arrays for the quantised operands of products, large enough for those of any layer. */
static void
take_factors (ExecEvaluator *self)
{
  const PlanModel *m = self->model;
  const gint64 of_experts = 2 * MAX (m->expert_ffn, m->shared_ffn);
  const gint64 widest = MAX (MAX (self->qkv_width, self->up_width), MAX (m->hidden, of_experts));
  const gint64 tallest = MAX (MAX (self->rows, exec_evaluator_expert_rows (self)), widest);

  for (guint i = 0; i < G_N_ELEMENTS (self->factor); i++)
    {
      self->factor[i] = exec_evaluator_array (self, PLAN_DTYPE_BF16, (guint64)(tallest * widest));
      self->factor[i].scale = &self->factor_scale[i];
    }
}

void
exec_evaluator_take_activations (ExecEvaluator *self)
{
  const PlanModel *m = self->model;
  PlanDtype c = self->compute;
  guint64 rows = (guint64)self->rows, wide = rows * (guint64)m->hidden;
  guint64 qkv = rows * (guint64)self->qkv_width, vocab = rows * (guint64)self->vocab;

  self->numbers = exec_evaluator_array (self, PLAN_DTYPE_I64, rows).data;
  self->tokens = exec_evaluator_array (self, PLAN_DTYPE_I32, rows).data;
  self->targets = exec_evaluator_array (self, PLAN_DTYPE_I32, rows).data;
  if (self->job->of->plan.value[PLAN_DOC_TOKENS] > 0 || self->cp > 1)
    self->places = exec_evaluator_array (self, PLAN_DTYPE_I32, rows).data;
  self->layers = g_new0 (ExecEvaluatorLayer, m->layers);
  g_ptr_array_add (self->owned, self->layers);
  for (gint64 i = 0; i < m->layers; i++)
    take_layer (self, &self->layers[i]);
  if (self->product != self->compute)
    take_factors (self);
  self->x = exec_evaluator_array (self, c, wide);
  self->normed = exec_evaluator_array (self, c, wide);
  self->stats = exec_evaluator_array (self, PLAN_DTYPE_FP32, 2 * rows);
  self->logits = exec_evaluator_array (self, c, vocab);
  self->prob = exec_evaluator_array (self, PLAN_DTYPE_FP32, vocab);
  self->row_stats = exec_evaluator_array (self, PLAN_DTYPE_FP32, 3 * rows);
  self->branch = exec_evaluator_array (self, c, wide);
  self->dx = exec_evaluator_array (self, c, wide);
  self->ddropped = exec_evaluator_array (self, c, wide);
  self->dbranch = exec_evaluator_array (self, c, wide);
  self->embedded = exec_evaluator_array (self, c, wide);
  self->embedded_stats = exec_evaluator_array (self, PLAN_DTYPE_FP32, 2 * rows);
  self->dpost = exec_evaluator_array (self, c, wide);
  self->dshared = exec_evaluator_array (self, c, wide);
  self->dmiddle = exec_evaluator_array (self, c, wide);
  self->dactivated = exec_evaluator_array (self, c, rows * (guint64)m->ffn);
  self->dup = exec_evaluator_array (self, c, rows * (guint64)self->up_width);
  self->dattention = exec_evaluator_array (self, c, rows * (guint64)self->attention_width);
  self->dheads = exec_evaluator_array (self, c, qkv);
  self->dqkv
      = exec_evaluator_has_head_norms (m) ? exec_evaluator_array (self, c, qkv) : self->dheads;
  self->dlogits = exec_evaluator_array (self, c, vocab);
  if (m->experts > 0)
    exec_evaluator_take_experts (self);
  self->sums = exec_evaluator_array (self, PLAN_DTYPE_I64, 2 * EXEC_EXACT_LIMBS);
  self->coef = exec_evaluator_array (self, PLAN_DTYPE_FP32, 4);
}
