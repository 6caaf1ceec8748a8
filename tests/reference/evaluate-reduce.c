/* SPDX-License-Identifier: Apache-2.0 */
/* Where the gradients of a micro batch go, and their sums over ranks. Gradients of a part of an
 * expert are summed over the ranks of a stage that have it, in whichever tensor-parallel group they
 * are: those at one place in their groups that have each expert once, which of rank r is r % (ep *
 * etp). */
#include "config.h"

#include "tests/reference/evaluate-experts.h"
#include "tests/reference/evaluate-split.h"

#include <string.h>

static gboolean
is_of_experts (const ExecEvaluator *self, PlanTensorRole role)
{
  return plan_model_tensor (self->model, role, self->vocab).part == PLAN_PART_EXPERTS;
}

static gboolean
reduces_every_micro_batch (const ExecEvaluator *self, PlanTensorRole role)
{
  return is_of_experts (self, role) ? self->reduces_experts : self->reduces_every_micro_batch;
}

ExecArray
exec_evaluator_raw (const ExecEvaluator *self, PlanTensorRole role, gint64 layer)
{
  gboolean is_tied = role == PLAN_TENSOR_OUTPUT && self->model->tied_embeddings;
  PlanTensorKind kind = plan_model_tensor (self->model, role, self->vocab).kind;
  PlanTensorRole home = is_tied ? PLAN_TENSOR_EMBEDDING : role;
  gboolean is_sent = reduces_every_micro_batch (self, role);

  gboolean is_product
      = kind == PLAN_TENSOR_KIND_LINEAR || role == PLAN_TENSOR_OUTPUT || role == PLAN_TENSOR_ROUTER;

  if (role == PLAN_TENSOR_OUTPUT && self->chunks > 1)
    {
      if (!self->sums_in_place)
        return self->output_sum;
      return exec_evaluator_from (is_sent ? self->sent[self->rank] : self->kept[self->rank],
                                  exec_evaluator_offset (self, home, layer));
    }
  if (self->fuses && is_product)
    return exec_evaluator_from (is_sent ? self->sent[self->rank] : self->product_raw,
                                exec_evaluator_offset (self, home, layer));
  if (is_tied)
    return self->output_raw;
  return exec_evaluator_from (self->raw, exec_evaluator_offset (self, role, layer));
}

/* --- gradients of a micro batch ------------------------------------------------------------- */

static void
cast (ExecEvaluator *self, ExecArray out, ExecArray in, guint64 count)
{
  exec_evaluator_run (self, PLAN_OP_CAST, EXEC_OPERANDS (out, in), (gint64[]){ (gint64)count });
}

static void
accumulate (ExecEvaluator *self, ExecArray out, ExecArray in, guint64 count)
{
  exec_evaluator_run (self, PLAN_OP_ACCUMULATE, EXEC_OPERANDS (out, in),
                      (gint64[]){ (gint64)count });
}

/* Casts a parameter's gradient to the format in which it is reduced, or adds it to the accumulated
 * ones, unless it is there already. */
static void
keep (ExecEvaluator *self, const PlanTensor *tensor, gint64 layer)
{
  guint64 offset = exec_evaluator_offset (self, tensor->role, layer);
  gboolean is_sent = reduces_every_micro_batch (self, tensor->role);
  ExecArray out
      = exec_evaluator_from (is_sent ? self->sent[self->rank] : self->kept[self->rank], offset);
  ExecArray in = exec_evaluator_raw (self, tensor->role, layer);

  if (in.data != out.data)
    (is_sent ? cast : accumulate) (self, out, in, plan_model_numel (tensor));
}

/* The same for a tied embedding: the output layer's part first, then the embedding's. */
static void
keep_table (ExecEvaluator *self, const PlanTensor *table)
{
  guint64 offset = exec_evaluator_offset (self, PLAN_TENSOR_EMBEDDING, 0);
  PlanTensor output = *table;
  gboolean is_sent = self->reduces_every_micro_batch;

  output.role = PLAN_TENSOR_OUTPUT;
  keep (self, &output, 0);
  accumulate (
      self, exec_evaluator_from (is_sent ? self->sent[self->rank] : self->kept[self->rank], offset),
      exec_evaluator_from (self->raw, offset), plan_model_numel (table));
}

void
exec_evaluator_keep (ExecEvaluator *self)
{
  for (guint i = 0; i < self->n_outer; i++)
    if (self->outer[i].role == PLAN_TENSOR_EMBEDDING && self->model->tied_embeddings)
      keep_table (self, &self->outer[i]);
    else
      keep (self, &self->outer[i], 0);
  for (gint64 layer = 0; layer < self->model->layers; layer++)
    for (guint i = 0; i < self->in_layer[layer].n; i++)
      keep (self, &self->in_layer[layer].tensor[i], layer);
}

/* --- sums over ranks ------------------------------------------------------------------------ */

/* Parameters that are summed over the same ranks: a whole tensor, or one rank's part of an expert's
 * matrix in a tensor of all experts. */
typedef struct
{
  guint64 at, count;
  gboolean is_expert, is_always; /* `is_always`: it is reduced in every micro batch */
  guint place; /* of the rank that has it, in its group that has each expert once */
} Range;

/* Finds the gradients of a range of all ranks of a replica; returns how many there are. */
static guint
find_terms (const ExecEvaluator *self, const Range *range, guint replica, gboolean is_sent,
            ExecArray *out)
{
  guint n = 0;

  for (guint rank = replica * self->inner; rank < (replica + 1) * self->inner; rank++)
    for (guint p = 0; p < (range->is_expert ? self->tp : 1); p++)
      if (!range->is_expert || (rank * self->tp + p) % (self->ep * self->etp) == range->place)
        out[n++] = exec_evaluator_from (
            is_sent ? self->peer[p]->sent[rank] : self->peer[p]->kept[rank], range->at);
  return n;
}

/* in[0] = the sum of `n` arrays. */
static void
sum (ExecEvaluator *self, const ExecArray *in, guint n, guint64 count)
{
  g_autofree const void **terms = g_new (const void *, n);

  (void)self;
  for (guint i = 0; i < n; i++)
    terms[i] = in[i].data;
  exec_comm_sum (in[0].data, terms, n, count, in[0].dtype);
}

static void
scale (ExecEvaluator *self, ExecArray array, guint64 count)
{
  if (self->constants.grad_divisor > 0)
    exec_evaluator_run (self, PLAN_OP_SCALE, EXEC_OPERANDS (array), (gint64[]){ (gint64)count });
}

/* in[0] = the sum over a replica's ranks, of terms that are scaled first where the plan says so. A
 * single term is not scaled here: reduce_step scales it after the sum over replicas. */
static void
sum_inside (ExecEvaluator *self, const ExecArray *in, guint n, guint64 count)
{
  for (guint i = 0; n > 1 && i < n; i++)
    scale (self, in[i], count);
  sum (self, in, n, count);
}

typedef void (*Sum) (ExecEvaluator *self, const ExecArray *in, guint n, guint64 count);

/* in[0] = the sum of `n` arrays in the format in which they are reduced, cast to `sent` and back
 * where that is another one. */
static void
sum_on_the_wire (ExecEvaluator *self, Sum sum_all, const ExecArray *in, const ExecArray *sent,
                 guint n, guint64 count)
{
  if (n == 1 || self->wire == self->grad)
    {
      sum_all (self, in, n, count);
      return;
    }
  for (guint i = 0; i < n; i++)
    cast (self, sent[i], in[i], count);
  sum_all (self, sent, n, count);
  cast (self, in[0], sent[0], count);
}

/* Each replica adds the sum of a micro batch to its main gradients. */
static void
reduce_micro_batch (ExecEvaluator *self, const Range *range)
{
  g_autofree ExecArray *in = g_new (ExecArray, self->inner * self->tp);

  for (guint replica = 0; range->is_always && replica < self->ranks / self->inner; replica++)
    {
      guint n = find_terms (self, range, replica, TRUE, in);

      sum_inside (self, in, n, range->count);
      accumulate (self, exec_evaluator_from (self->main_grad[replica], range->at), in[0],
                  range->count);
    }
}

/* Sums gradients within replicas, unless each micro batch's were summed already, then between
 * replicas. */
static void
reduce_step (ExecEvaluator *self, const Range *range)
{
  const guint replicas = self->ranks / self->inner;
  /* Each rank of a replica has other experts, so that sum_inside had single terms. */
  const gboolean is_unscaled = range->is_expert && self->inner * self->tp == self->ep * self->etp;
  g_autofree ExecArray *in = g_new (ExecArray, self->ranks * self->tp);
  g_autofree ExecArray *sent = g_new (ExecArray, self->ranks * self->tp);

  for (guint replica = 0; !range->is_always && replica < replicas; replica++)
    {
      guint n = find_terms (self, range, replica, FALSE, in);

      find_terms (self, range, replica, TRUE, sent);
      sum_on_the_wire (self, sum_inside, in, sent, n, range->count);
      cast (self, exec_evaluator_from (self->main_grad[replica], range->at), in[0], range->count);
    }
  for (guint replica = 0; replica < replicas; replica++)
    {
      in[replica] = exec_evaluator_from (self->main_grad[replica], range->at);
      sent[replica] = exec_evaluator_from (self->sent[replica], range->at);
    }
  sum_on_the_wire (self, sum, in, sent, replicas, range->count);
  if (is_unscaled)
    scale (self, in[0], range->count);
  for (guint p = 1; range->is_expert && p < self->tp; p++)
    memcpy (exec_evaluator_from (self->peer[p]->main_grad[0], range->at).data, in[0].data,
            plan_dtype_bytes (in[0].dtype, range->count));
}

static void
reduce_range (ExecEvaluator *self, const Range *range, gboolean is_step)
{
  if (range->is_expert && self->tp_rank > 0)
    return; /* the first of the tensor-parallel group does it for all */
  if (is_step)
    reduce_step (self, range);
  else
    reduce_micro_batch (self, range);
}

static void
reduce_tensor (ExecEvaluator *self, const PlanTensor *tensor, gint64 layer, gboolean is_step)
{
  const gboolean is_expert = is_of_experts (self, tensor->role);
  const guint parts = is_expert && exec_evaluator_splits_experts_of (tensor->role) ? self->etp : 1;
  const guint n = is_expert ? (guint)self->model->experts * parts : 1;
  Range range = { .at = exec_evaluator_offset (self, tensor->role, layer),
                  .count = plan_model_numel (tensor) / n,
                  .is_expert = is_expert,
                  .is_always = reduces_every_micro_batch (self, tensor->role) };

  for (guint i = 0; i < n; i++)
    {
      if (is_expert)
        range.place = exec_evaluator_place_of (self, tensor->role, i);
      reduce_range (self, &range, is_step);
      range.at += range.count;
    }
}

static void
reduce_part (ExecEvaluator *self, gboolean is_step)
{
  if (is_step)
    exec_evaluator_sum_tables (self);
  for (guint i = 0; i < self->n_outer; i++)
    reduce_tensor (self, &self->outer[i], 0, is_step);
  for (gint64 layer = 0; layer < self->model->layers; layer++)
    for (guint i = 0; i < self->in_layer[layer].n; i++)
      reduce_tensor (self, &self->in_layer[layer].tensor[i], layer, is_step);
}

void
exec_evaluator_reduce (ExecEvaluator *self, gboolean is_step)
{
  for (guint p = 0; p < self->tp; p++)
    reduce_part (self->peer[p], is_step);
}
