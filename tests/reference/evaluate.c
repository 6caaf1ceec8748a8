/* SPDX-License-Identifier: Apache-2.0 */
/* A training run as its plan declares it: gradients of one rank after another, their sums, the
 * update. */
#include "config.h"

#include "tests/reference/evaluate.h"

#include "exec/number/exact.h"
#include "exec/number/number.h"
#include "planner/base/error.h"
#include "planner/schedule/quantizers.h"
#include "planner/schedule/scratch.h"
#include "tests/reference/evaluate-context.h"
#include "tests/reference/evaluate-experts.h"
#include "tests/reference/evaluate-split.h"

#include <math.h>
#include <string.h>

ExecArray
exec_evaluator_array (ExecEvaluator *self, PlanDtype dtype, guint64 count)
{
  ExecArray array
      = { .data = g_malloc0 (MAX (plan_dtype_bytes (dtype, count), 1)), .dtype = dtype };

  g_ptr_array_add (self->owned, array.data);
  return array;
}

ExecArray
exec_evaluator_from (ExecArray array, guint64 element)
{
  array.data = (guint8 *)array.data + plan_dtype_bytes (array.dtype, element);
  return array;
}

void
exec_evaluator_run (ExecEvaluator *self, PlanOpKind kind, const ExecArray *operands,
                    const gint64 *dims)
{
  exec_evaluator_run_as (self, kind, operands, dims, NULL);
}

void
exec_evaluator_run_as (ExecEvaluator *self, PlanOpKind kind, const ExecArray *operands,
                       const gint64 *dims, const PlanManner *manner)
{
  PlanOp op = { .kind = kind };
  ExecArgs args
      = { .op = &op, .manner = manner, .constants = &self->constants, .turn = self->turn };
  /* A product that writes another format than it reads may need more scratch. */
  PlanDtype widest = kind == PLAN_OP_GEMM ? operands[0].dtype : self->compute;
  guint64 scratch = MAX (plan_scratch_elements (kind, dims, self->compute),
                         plan_scratch_elements (kind, dims, widest))
                    * sizeof (float);

  memcpy (op.dims, dims, plan_op_n_dims (kind) * sizeof *dims);
  if (scratch > self->scratch_bytes)
    {
      self->scratch = g_realloc (self->scratch, scratch);
      self->scratch_bytes = scratch;
    }
  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    if (plan_op_ref_access (kind, i) == 's')
      {
        args.ptr[i] = scratch > 0 ? self->scratch : NULL;
        args.dtype[i] = PLAN_DTYPE_FP32;
      }
    else
      {
        args.ptr[i] = operands[i].data;
        args.dtype[i] = operands[i].dtype;
        args.scale[i] = operands[i].scale;
      }
  exec_kernels_cpu.run[kind](&args);
}

float
exec_evaluator_get (ExecArray array, gint64 element)
{
  const ExecArray at = exec_evaluator_from (array, (guint64)element);
  float value;

  exec_number_widen (&value, at.data, at.dtype, 1);
  return value;
}

void
exec_evaluator_put (ExecArray array, gint64 element, float value)
{
  const ExecArray at = exec_evaluator_from (array, (guint64)element);

  exec_number_narrow (at.data, at.dtype, &value, 1);
}

static void
zero (ExecEvaluator *self, ExecArray out, guint64 count)
{
  exec_evaluator_run (self, PLAN_OP_ZERO, EXEC_OPERANDS (out), (gint64[]){ (gint64)count });
}

static void
cast (ExecEvaluator *self, ExecArray out, ExecArray in, guint64 count)
{
  exec_evaluator_run (self, PLAN_OP_CAST, EXEC_OPERANDS (out, in), (gint64[]){ (gint64)count });
}

guint64
exec_evaluator_offset (const ExecEvaluator *self, PlanTensorRole role, gint64 layer)
{
  return self->in_layer[layer].offset[role];
}

static guint64
table_size (const ExecEvaluator *self)
{
  return (guint64)(self->vocab * self->model->hidden);
}

/* Calls a function for each rank of the tensor-parallel group. */
#define EACH_PART(self, part, call) \
  for (guint p = 0; p < (self)->tp; p++) \
    { \
      ExecEvaluator *part = (self)->peer[p]; \
      call; \
    }

static void
begin_gradients (ExecEvaluator *self)
{
  for (guint rank = 0; rank < self->ranks; rank++)
    zero (self, self->kept[rank], self->parameters);
  for (guint replica = 0; replica < self->ranks / self->inner; replica++)
    zero (self, self->main_grad[replica], self->parameters);
}

static gboolean
compute_gradients (ExecEvaluator *self, gint64 step, GError **error)
{
  self->counted = 0;
  zero (self, self->sums, 2 * EXEC_EXACT_LIMBS);
  EACH_PART (self, part, begin_gradients (part));
  for (gint64 micro_batch = 0; micro_batch < self->micro_batches; micro_batch++)
    {
      for (guint rank = 0; rank < self->ranks; rank += self->together)
        {
          if (!exec_evaluator_load (self, rank, FALSE, step, micro_batch, error))
            return FALSE;
          self->counted += exec_evaluator_count (self);
          exec_evaluator_forward (self);
          exec_evaluator_backward (self);
          for (guint p = 0; p < self->together * self->tp; p++)
            exec_evaluator_keep (self->peer[p]);
        }
      exec_evaluator_reduce (self, FALSE);
    }
  exec_evaluator_reduce (self, TRUE);
  exec_evaluator_sum_alike (self);
  return TRUE;
}

/* The sum of losses of one evaluation batch. */
static gboolean
compute_batch_loss (ExecEvaluator *self, gint64 batch, double *out_loss, GError **error)
{
  zero (self, self->sums, 2 * EXEC_EXACT_LIMBS);
  for (gint64 micro_batch = 0; micro_batch < self->micro_batches; micro_batch++)
    for (guint rank = 0; rank < self->ranks; rank += self->together)
      {
        if (!exec_evaluator_load (self, rank, TRUE, batch, micro_batch, error))
          return FALSE;
        self->counted += exec_evaluator_count (self);
        exec_evaluator_forward (self);
      }
  *out_loss = exec_exact_value (self->sums.data);
  return TRUE;
}

static gboolean
compute_eval_loss (ExecEvaluator *self, double *out_loss, GError **error)
{
  const gint64 n = self->job->eval_batches > 0 ? self->job->eval_batches : 1;
  double sum = 0;
  self->counted = 0;
  for (gint64 batch = 0; batch < n; batch++)
    {
      double loss;
      if (!compute_batch_loss (self, batch, &loss, error))
        return FALSE;
      sum += loss;
    }
  *out_loss = sum / (double)self->counted;
  return TRUE;
}

/* The number of quantisers of delayed fp8 scaling. */
static gint64
n_sites (const ExecEvaluator *self)
{
  return self->model->layers * plan_quantizers_of_layer (self->model);
}

static void
update_part (ExecEvaluator *self, gint64 step)
{
  self->constants.step = step + 1;
  self->constants.lr = exec_evaluator_rate (self->job, step);
  exec_evaluator_step (self, self->main_grad[0]);
  cast (self, self->weights, self->main_params, self->parameters);
}

/* Moves the scales of quantisers by the largest magnitude in any tensor-parallel part. */
static void
rescale (ExecEvaluator *self)
{
  for (gint64 site = 0; site < n_sites (self); site++)
    {
      float most = 0;

      EACH_PART (self, part, most = MAX (most, exec_evaluator_get (part->amax, site)));
      EACH_PART (self, part, exec_evaluator_put (part->amax, site, most));
    }
  EACH_PART (self, part,
             exec_evaluator_run (part, PLAN_OP_RESCALE,
                                 EXEC_OPERANDS (part->scales, part->history, part->amax),
                                 (gint64[]){ n_sites (self), PLAN_QUANTIZER_HISTORY }));
}

static void
update (ExecEvaluator *self, gint64 step)
{
  if (self->is_delayed)
    rescale (self);

  EACH_PART (self, part, exec_evaluator_measure (part));
  exec_evaluator_run (self, PLAN_OP_CLIP, EXEC_OPERANDS (self->coef, self->sums),
                      (gint64[]){ 1, 1, MAX (self->counted, 1) });
  exec_evaluator_balance (self);
  EACH_PART (self, part, update_part (part, step));
}

/* --- beginning and end -------------------------------------------------------------------- */

/* Lays out a layer's parameters from element `at` on, those of all experts as one tensor each.
 * Returns the element behind them. */
static guint64
place_layer (ExecEvaluatorTensors *self, const PlanModel *model, guint etp, gint64 layer,
             guint64 at)
{
  self->n = exec_evaluator_find_trained (model, layer, self->tensor);
  for (guint i = 0; i < self->n; i++)
    {
      self->tensor[i].rows *= self->tensor[i].count;
      if (exec_evaluator_splits_experts_of (self->tensor[i].role))
        self->tensor[i].rows *= etp;
      self->tensor[i].count = 1;
      self->offset[self->tensor[i].role] = at;
      at += plan_model_numel (&self->tensor[i]);
    }
  return at;
}

static void
lay_out (ExecEvaluator *self)
{
  guint64 at = 0;

  self->in_layer = g_new0 (ExecEvaluatorTensors, self->model->layers);
  g_ptr_array_add (self->owned, self->in_layer);
  self->n_outer = plan_model_outer_tensors (self->model, self->vocab, self->outer);
  for (guint i = 0; i < self->n_outer; i++)
    {
      for (gint64 layer = 0; layer < self->model->layers; layer++)
        self->in_layer[layer].offset[self->outer[i].role] = at;
      at += plan_model_numel (&self->outer[i]);
    }
  for (gint64 layer = 0; layer < self->model->layers; layer++)
    at = place_layer (&self->in_layer[layer], self->model, self->etp, layer, at);
  self->parameters = at;
}

static gboolean
init_tensor (ExecEvaluator *self, ExecArray all, ExecState state, const PlanTensor *tensor,
             gint64 layer, GError **error)
{
  ExecArray out = exec_evaluator_from (all, exec_evaluator_offset (self, tensor->role, layer));
  guint64 n = plan_model_numel (tensor);
  g_autofree float *values = g_new (float, n);

  if (!exec_evaluator_read (self, state, tensor, layer, 0, n, values, error))
    return FALSE;
  exec_number_narrow (out.data, out.dtype, values, n);
  return TRUE;
}

static gboolean
init_state (ExecEvaluator *self, ExecArray all, ExecState state, GError **error)
{
  for (guint i = 0; i < self->n_outer; i++)
    if (!init_tensor (self, all, state, &self->outer[i], 0, error))
      return FALSE;
  for (gint64 layer = 0; layer < self->model->layers; layer++)
    for (guint i = 0; i < self->in_layer[layer].n; i++)
      if (!init_tensor (self, all, state, &self->in_layer[layer].tensor[i], layer, error))
        return FALSE;
  return TRUE;
}

static gboolean
init_sites (ExecEvaluator *self, ExecState state, ExecArray all, guint64 each, GError **error)
{
  for (gint64 layer = 0; layer < self->model->layers; layer++)
    for (guint product = 0; product < plan_quantizer_products (self->model); product++)
      {
        PlanTensorRole role = plan_quantizer_weight (self->model, product);
        guint64 site = (guint64)layer * plan_quantizers_of_layer (self->model)
                       + plan_quantizer_of (self->model, role, 0);

        if (!exec_evaluator_state (self->job, state, role, layer, 0,
                                   PLAN_QUANTIZERS_OF_PRODUCT * each,
                                   (float *)all.data + site * each, error))
          return FALSE;
      }
  return TRUE;
}

/* Delayed fp8 scaling: scales, and magnitudes of earlier steps, as the run begins with them. */
static gboolean
init_delayed (ExecEvaluator *self, GError **error)
{
  guint64 n = (guint64)n_sites (self);

  self->scales = exec_evaluator_array (self, PLAN_DTYPE_FP32, n);
  self->history = exec_evaluator_array (self, PLAN_DTYPE_FP32, n * PLAN_QUANTIZER_HISTORY);
  self->amax = exec_evaluator_array (self, PLAN_DTYPE_FP32, n);
  return init_sites (self, EXEC_STATE_SCALES, self->scales, 1, error)
         && init_sites (self, EXEC_STATE_HISTORY, self->history, PLAN_QUANTIZER_HISTORY, error);
}

static ExecArray *
take_arrays (ExecEvaluator *self, guint n, PlanDtype dtype)
{
  ExecArray *arrays = g_new0 (ExecArray, n);

  g_ptr_array_add (self->owned, arrays);
  for (guint i = 0; i < n; i++)
    arrays[i] = exec_evaluator_array (self, dtype, self->parameters);
  return arrays;
}

static gboolean
init_moments (ExecEvaluator *self, GError **error)
{
  return init_state (self, self->exp_avg, EXEC_STATE_EXP_AVG, error)
         && (self->is_sgd || init_state (self, self->exp_avg_sq, EXEC_STATE_EXP_AVG_SQ, error));
}

/* Takes arrays for the gradients of a micro batch. */
static void
take_raw (ExecEvaluator *self)
{
  self->raw = exec_evaluator_array (self, self->compute, self->parameters);
  if (self->fuses)
    self->product_raw = exec_evaluator_array (self, PLAN_DTYPE_FP32, self->parameters);
  self->output_raw = exec_evaluator_array (self, self->compute, table_size (self));
  if (self->chunks > 1)
    {
      self->output_product = exec_evaluator_array (self, PLAN_DTYPE_FP32, table_size (self));
      self->output_sum = exec_evaluator_array (self, PLAN_DTYPE_FP32, table_size (self));
    }
}

/* Ranks of an expert- or context-parallel group are computed side by side, each in arrays of its
 * own. */
static void
take_peers (ExecEvaluator *self)
{
  for (guint p = self->tp; p < self->together * self->tp; p++)
    {
      ExecEvaluator *peer = g_memdup2 (self->peer[p % self->tp], sizeof *self);

      g_ptr_array_add (self->owned, peer);
      peer->peer = &self->peer[p];
      peer->scratch = NULL;
      peer->scratch_bytes = 0;
      take_raw (peer);
      exec_evaluator_take_activations (peer);
      peer->sums = self->sums;
      self->peer[p] = peer;
    }
}

static gboolean
init_params (ExecEvaluator *self, GError **error)
{
  self->main_params = exec_evaluator_array (self, self->main_format, self->parameters);
  self->weights = exec_evaluator_array (self, self->compute, self->parameters);
  self->exp_avg = exec_evaluator_array (self, self->avg, self->parameters);
  self->exp_avg_sq = exec_evaluator_array (self, self->avg_sq, self->parameters);
  take_raw (self);
  self->main_grad = take_arrays (self, self->ranks / self->inner, self->grad);
  self->kept = take_arrays (self, self->ranks, self->grad);
  self->sent = take_arrays (self, self->ranks, self->wire);
  if (!init_state (self, self->main_params, EXEC_STATE_MAIN, error)
      || !(self->parts ? exec_evaluator_init_moments (self, error) : init_moments (self, error)))
    return FALSE;
  cast (self, self->weights, self->main_params, self->parameters);
  return exec_evaluator_init_balance (self, error)
         && (!self->is_delayed || init_delayed (self, error));
}

static gboolean
is_trained_in (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP32 || dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16;
}

/* Whether moments may be kept in a format: only they may be in eight bits. */
static gboolean
is_of_moments (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_E4M3 || is_trained_in (dtype);
}

static gboolean
refuse (PlanDtype dtype, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "the reference knows fp32, bf16 and fp16, not %s", plan_dtype_name (dtype));
  return FALSE;
}

static gboolean
check (const ExecEvaluator *self, GError **error)
{
  const PlanDtype trained[] = { self->compute, self->main_format, self->grad, self->wire };

  if (self->micro_batches * self->mbs * self->ranks / self->cp != self->gbs)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "gbs=%" G_GINT64_FORMAT " is not a multiple of mbs=%" G_GINT64_FORMAT
                   " times %u ranks",
                   self->gbs, self->mbs, self->ranks);
      return FALSE;
    }
  for (guint i = 0; i < G_N_ELEMENTS (trained); i++)
    if (!is_trained_in (trained[i]))
      return refuse (trained[i], error);
  if (!is_of_moments (self->avg) || !is_of_moments (self->avg_sq))
    return refuse (is_of_moments (self->avg) ? self->avg_sq : self->avg, error);
  if (self->parameters > G_MAXUINT / sizeof (float))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "model %s is too large for the reference", self->model->name);
      return FALSE;
    }
  return TRUE;
}

/* The fewest data-parallel ranks that consist of whole context-parallel groups and of whole groups
 * of `of_experts` ranks that have each expert once. These take the ranks of a tensor-parallel group
 * first. */
static guint
count_together (guint cp, guint of_experts, guint tp)
{
  guint n = cp;

  while (n * tp % of_experts != 0)
    n += cp;
  return n;
}

static void
read_plan (ExecEvaluator *self, const Plan *plan)
{
  gint64 strategy = plan->value[PLAN_STRATEGY];
  gboolean shards_gradients;

  self->gbs = plan->value[PLAN_GBS];
  self->mbs = plan->value[PLAN_MBS];
  self->ep = (guint)plan->value[PLAN_EP];
  self->cp = (guint)plan->value[PLAN_CP];
  self->etp = (guint)plan->value[PLAN_ETP];
  self->together = count_together (self->cp, self->ep * self->etp, (guint)plan->value[PLAN_TP]);
  self->whole_seq = plan->value[PLAN_SEQ];
  self->seq = self->whole_seq / self->cp;
  self->inner = self->ranks / (guint)plan->value[PLAN_DP_OUTER];
  self->rows = self->mbs * self->seq;
  self->micro_batches = self->gbs * self->cp / (self->mbs * self->ranks);
  self->compute = plan_weights_dtype (plan);
  self->router
      = plan->value[PLAN_ROUTER_DTYPE] == PLAN_ROUTER_DTYPE_FP32 ? PLAN_DTYPE_FP32 : self->compute;
  self->product = plan_field_dtype (plan, PLAN_COMPUTE);
  self->is_delayed = plan->value[PLAN_COMPUTE] == PLAN_COMPUTE_FP8_DELAYED;
  self->product_weight = plan_weight_copies_dtype (plan);
  self->product_grad = self->product == self->compute ? self->compute : plan_grad_dtype (plan);
  self->main_format = plan_field_dtype (plan, PLAN_MAIN_PARAMS);
  self->grad = plan_field_dtype (plan, PLAN_MAIN_GRADS);
  self->avg = plan_field_dtype (plan, PLAN_EXP_AVG);
  self->avg_sq = plan_field_dtype (plan, PLAN_EXP_AVG_SQ);
  self->is_sgd = plan->value[PLAN_OPTIMIZER] == PLAN_OPTIMIZER_SGD;
  shards_gradients
      = strategy == PLAN_STRATEGY_OPTIM_GRADS || strategy == PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
  self->reduces_every_micro_batch = shards_gradients && self->inner > 1;
  self->reduces_experts
      = shards_gradients && self->inner * (guint)plan->value[PLAN_TP] > self->ep * self->etp;
  self->fuses = plan->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
  self->wire = plan_field_dtype (plan, PLAN_GRAD_COMM);
  self->chunks = plan->value[PLAN_LOSS_CHUNKS];
  self->sums_in_place
      = self->fuses
        && (self->reduces_every_micro_batch ? self->wire : self->grad) == PLAN_DTYPE_FP32;
  if (plan_scales_gradients (plan, self->inner))
    self->constants.grad_divisor = self->ranks;
}

static gboolean
init (ExecEvaluator *self, const ExecJob *job, guint ranks, guint tp_rank, GError **error)
{
  const PlanStack *stack = job->of->stack;
  const PlanModel *m;

  self->ranks = ranks;
  self->job = job;
  self->constants = job->constants;
  read_plan (self, &job->of->plan);
  exec_evaluator_split (self, job->of->model, tp_rank);
  m = self->model;
  self->qkv_width = (m->heads + 2 * m->kv_heads) * m->head_dim;
  self->attention_width = m->heads * (m->kv_lora > 0 ? m->v_dim : m->head_dim);
  self->up_width = m->gated ? 2 * m->ffn : m->ffn;
  self->fuses_norms
      = self->is_delayed && stack->weights.quantised != PLAN_QUANTISED_ON_USE && !self->splits_rows;
  if (tp_rank == 0)
    self->peer = g_new0 (ExecEvaluator *, self->together * self->tp);
  self->peer[0] = self;
  lay_out (self);
  if (self->avg == PLAN_DTYPE_E4M3 || self->avg_sq == PLAN_DTYPE_E4M3)
    exec_evaluator_find_parts (self);
  return check (self, error);
}

/* The main weights in fp32, of one tensor-parallel rank after the other. */
static GByteArray *
widened_params (const ExecEvaluator *self)
{
  GByteArray *out = g_byte_array_new ();

  g_byte_array_set_size (out, (guint)(self->tp * self->parameters * sizeof (float)));
  for (guint p = 0; p < self->tp; p++)
    exec_number_widen ((float *)(void *)out->data + p * self->parameters,
                       self->peer[p]->main_params.data, self->main_format, self->parameters);
  return out;
}

static void
clear (ExecEvaluator *self)
{
  const guint peers = self->together * self->tp;

  for (guint p = 1; self->peer != NULL && p < peers && self->peer[p] != NULL; p++)
    {
      g_free (self->peer[p]->scratch);
      if (p < self->tp && self->peer[p]->parts != NULL)
        g_array_unref (self->peer[p]->parts);
    }
  g_free (self->peer);
  g_ptr_array_unref (self->owned);
  g_free (self->scratch);
  if (self->parts != NULL)
    g_array_unref (self->parts);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecEvaluator, clear)

/* Makes an evaluator of each further rank of the tensor-parallel group. */
static gboolean
take_parts (ExecEvaluator *self, GError **error)
{
  for (guint p = 1; p < self->tp; p++)
    {
      ExecEvaluator *part = g_new0 (ExecEvaluator, 1);

      g_ptr_array_add (self->owned, part);
      part->owned = self->owned;
      self->peer[p] = part;
      part->peer = &self->peer[p];
      if (!init (part, self->job, self->ranks, p, error) || !init_params (part, error))
        return FALSE;
      exec_evaluator_take_activations (part);
      part->sums = self->sums;
      part->coef = self->coef;
      part->bias = self->bias;
      part->loads = self->loads;
    }
  return TRUE;
}

static gboolean
train_step (ExecEvaluator *self, gint64 i, ExecResult *result, GError **error)
{
  const ExecJob *job = self->job;
  const float *coef = self->coef.data;
  gint64 start_us = g_get_monotonic_time (), step = job->first_step + i;

  if (!compute_gradients (self, step, error))
    return FALSE;
  update (self, step);
  result->grad_norms[i] = (double)coef[1];
  result->losses[i] = (double)coef[2];
  result->step_ns[i] = 1000 * (g_get_monotonic_time () - start_us);
  result->eval_losses[i] = NAN;
  return job->eval_every == 0 || (step + 1) % job->eval_every != 0
         || compute_eval_loss (self, &result->eval_losses[i], error);
}

gboolean
exec_evaluate (const ExecJob *job, guint ranks, ExecResult *out_result, GError **error)
{
  g_auto (ExecEvaluator) self = { .owned = g_ptr_array_new_with_free_func (g_free) };
  g_auto (ExecResult) result = { 0 };

  const gint64 *value = job->of->plan.value;
  const guint same_tokens = (guint)(value[PLAN_TP] * value[PLAN_PP]); /* ranks that have them */

  if (!init (&self, job, ranks / same_tokens, 0, error) || !exec_kernels_cpu.open (error)
      || !init_params (&self, error))
    return FALSE;
  exec_evaluator_take_activations (&self);
  if (!take_parts (&self, error))
    return FALSE;
  take_peers (&self);
  result.losses = g_new0 (double, job->steps);
  result.grad_norms = g_new0 (double, job->steps);
  result.eval_losses = g_new0 (double, job->steps);
  result.step_ns = g_new0 (gint64, job->steps);
  for (gint64 i = 0; i < job->steps; i++)
    if (!train_step (&self, i, &result, error))
      return FALSE;
  result.main_params = widened_params (&self);
  *out_result = result;
  result = (ExecResult){ 0 };
  return TRUE;
}
