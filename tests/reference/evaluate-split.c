/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor-parallel ranks: each is computed by itself, as a model with its share of the heads, of the
 * MLP's columns and of the vocabulary. What they exchange is exchanged here. */
#include "config.h"

#include "planner/plan/stack.h"
#include "tests/reference/evaluate-experts.h"
#include "tests/reference/evaluate-split.h"

#include <string.h>

void
exec_evaluator_split (ExecEvaluator *self, const PlanModel *whole, guint tp_rank)
{
  const Plan *plan = &self->job->of->plan;
  const gint64 tp = plan->value[PLAN_TP];

  self->untied = *whole;
  self->shares_table = whole->tied_embeddings && plan->value[PLAN_PP] > 1;
  self->untied.tied_embeddings = whole->tied_embeddings && !self->shares_table;
  self->whole = &self->untied;
  self->split = self->untied;
  self->split.heads /= tp;
  self->split.kv_heads /= tp;
  self->split.ffn /= tp;
  self->split.shared_ffn /= tp;
  self->split.expert_ffn /= self->etp;
  self->model = &self->split;
  self->tp = (guint)tp;
  self->tp_rank = tp_rank;
  self->splits_rows = plan->value[PLAN_SP] == PLAN_SP_ON;
  self->own_rows = self->splits_rows ? self->rows / tp : self->rows;
  self->first_row = self->splits_rows ? tp_rank * self->own_rows : 0;
  self->vocab = plan_stack_padded_vocab (self->job->of->stack, whole->vocab, tp) / tp;
}

/* Which row of the whole parameter a row of this rank's part is. The parameter has `n` blocks of
 * rows, each of which is split among the ranks; `widths` has how many rows of each block the part
 * has. */
static guint64
row_of (const ExecEvaluator *self, const gint64 *widths, guint n, guint64 row)
{
  guint64 before = 0;

  for (guint i = 0; i < n; i++)
    {
      guint64 width = (guint64)widths[i];

      if (row < width)
        return before + self->tp_rank * width + row;
      row -= width;
      before += self->tp * width;
    }
  g_assert_not_reached ();
}

static guint64
whole_row (const ExecEvaluator *self, const PlanTensor *part, guint64 row)
{
  const PlanModel *m = self->model;
  const gint64 qkv[]
      = { m->heads * m->head_dim, m->kv_heads * m->head_dim, m->kv_heads * m->head_dim };
  const gint64 halves[] = { m->ffn, m->ffn }, vocab[] = { self->vocab };
  const gint64 shared[] = { m->shared_ffn, m->shared_ffn }, heads[] = { m->heads };
  const gint64 all[] = { (gint64)part->rows }; /* head by head */

  switch ((int)part->role)
    {
    case PLAN_TENSOR_QKV:
    case PLAN_TENSOR_QKV_BIAS:
      return row_of (self, qkv, 3, row);
    case PLAN_TENSOR_GATE_UP:
    case PLAN_TENSOR_GATE_UP_BIAS:
      return row_of (self, halves, 2, row);
    case PLAN_TENSOR_SHARED_GATE_UP:
      return row_of (self, shared, 2, row);
    case PLAN_TENSOR_SINKS:
      return row_of (self, heads, 1, row);
    case PLAN_TENSOR_Q:
    case PLAN_TENSOR_Q_UP:
    case PLAN_TENSOR_KV_UP:
      return row_of (self, all, 1, row);
    case PLAN_TENSOR_EMBEDDING:
    case PLAN_TENSOR_OUTPUT:
      return row_of (self, vocab, 1, row);
    default:
      return row;
    }
}

gboolean
exec_evaluator_read (const ExecEvaluator *self, ExecState state, const PlanTensor *part,
                     gint64 layer, guint64 first, guint64 count, float *out, GError **error)
{
  const PlanTensor whole = plan_model_tensor (self->whole, part->role, self->vocab * self->tp);
  const guint64 n = plan_model_numel (&whole);
  const guint64 col = part->cols < whole.cols ? self->tp_rank * part->cols : 0;
  const gboolean is_copy = self->shares_table && part->role == PLAN_TENSOR_OUTPUT;
  const PlanTensorRole role = is_copy ? PLAN_TENSOR_EMBEDDING : part->role;
  g_autofree float *all = g_new (float, n);

  if (!exec_evaluator_state (self->job, state, role, layer, 0, n, all, error))
    return FALSE;
  for (guint64 i = 0; whole.part == PLAN_PART_EXPERTS && i < count; i++)
    out[i] = all[exec_evaluator_whole_element (self, &whole, first + i)];
  for (guint64 i = 0; whole.part != PLAN_PART_EXPERTS && i < count; i++)
    out[i] = all[whole_row (self, part, (first + i) / part->cols) * whole.cols + col
                 + (first + i) % part->cols];
  return TRUE;
}

PlanManner
exec_evaluator_vocabulary (const ExecEvaluator *self)
{
  PlanManner manner = { 0 };

  if (self->tp > 1)
    {
      manner.value[PLAN_MANNER_FIRST] = (double)(self->tp_rank * self->vocab);
      manner.value[PLAN_MANNER_WHOLE] = (double)self->whole->vocab;
    }
  return manner;
}

static void
fold (const ExecEvaluator *self, const ExecArray *parts, guint64 count, ExecCommFold reduce)
{
  g_autofree const void **terms = g_new (const void *, self->tp);

  for (guint p = 0; p < self->tp; p++)
    terms[p] = parts[p].data;
  reduce (parts[0].data, terms, self->tp, count, parts[0].dtype);
  for (guint p = 1; p < self->tp; p++)
    memcpy (parts[p].data, parts[0].data, plan_dtype_bytes (parts[0].dtype, count));
}

void
exec_evaluator_sum_parts (const ExecEvaluator *self, const ExecArray *parts, gint64 cols)
{
  if (self->tp > 1)
    fold (self, parts, (guint64)(self->rows * cols), exec_comm_sum);
}

void
exec_evaluator_join_rows (const ExecEvaluator *self, const ExecArray *parts, gint64 cols)
{
  const guint64 count = (guint64)(self->own_rows * cols);
  const gsize bytes = plan_dtype_bytes (parts[0].dtype, count);

  for (guint p = 0; self->splits_rows && p < self->tp; p++)
    for (guint to = 0; to < self->tp; to++)
      if (to != p)
        memcpy (exec_evaluator_from (parts[to], p * count).data,
                exec_evaluator_from (parts[p], p * count).data, bytes);
}

ExecArray
exec_evaluator_own (const ExecEvaluator *self, ExecArray array)
{
  return exec_evaluator_own_rows (self, array, self->model->hidden);
}

ExecArray
exec_evaluator_own_rows (const ExecEvaluator *self, ExecArray array, gint64 cols)
{
  return array.data ? exec_evaluator_from (array, (guint64)(self->first_row * cols)) : array;
}

void
exec_evaluator_product (ExecEvaluator *self, PlanTensorRole role, const ExecArray *operands,
                        gint64 cols, gint64 depth, gint64 layout, gboolean is_whole)
{
  const gboolean has_pieces = self->job->of->plan.value[PLAN_TP_OVERLAP] == PLAN_TP_OVERLAP_ASYNC
                              && role != PLAN_TENSOR_OUTPUT && !is_whole;
  const gint64 rows = has_pieces ? self->rows / self->tp : self->rows;

  for (gint64 row = 0; row < self->rows; row += rows)
    exec_evaluator_run (self, PLAN_OP_GEMM,
                        EXEC_OPERANDS (exec_evaluator_from (operands[0], (guint64)(row * cols)),
                                       exec_evaluator_from (operands[1], (guint64)(row * depth)),
                                       operands[2], operands[3]),
                        (gint64[]){ rows, cols, depth, layout });
}

/* Finds for each row, over all parts of the vocabulary, the largest logit, the sum of exponentials
 * and the target's logit. */
void
exec_evaluator_row_stats (ExecEvaluator *self)
{
  const guint64 rows = (guint64)self->rows;
  g_autofree ExecArray *parts = g_new (ExecArray, self->tp);

  for (guint stat = 0; self->tp > 1 && stat < 3; stat++)
    {
      for (guint p = 0; p < self->tp; p++)
        {
          ExecEvaluator *peer = self->peer[p];
          const PlanManner manner = exec_evaluator_vocabulary (peer);
          const ExecArray targets = { .data = peer->targets, .dtype = PLAN_DTYPE_I32 };

          parts[p] = exec_evaluator_from (peer->row_stats, stat * rows);
          exec_evaluator_run_as (peer, PLAN_OP_ROW_STAT,
                                 EXEC_OPERANDS (parts[p], peer->logits,
                                                stat == 1 ? peer->row_stats : (ExecArray){ 0 },
                                                stat == 2 ? targets : (ExecArray){ 0 }),
                                 (gint64[]){ self->rows, self->vocab }, &manner);
        }
      fold (self, parts, rows, stat == 0 ? exec_comm_max : exec_comm_sum);
    }
}

/* --- gradients ------------------------------------------------------------------------------- */

/* Each rank of the group has all experts here. */
static gboolean
is_split (const ExecEvaluator *self, const PlanTensor *part)
{
  if (part->part == PLAN_PART_EXPERTS)
    return FALSE;
  const PlanTensor whole = plan_model_tensor (self->whole, part->role, self->vocab * self->tp);

  return part->rows < whole.rows || part->cols < whole.cols;
}

static void
each_tensor (ExecEvaluator *self,
             void (*visit) (ExecEvaluator *self, const PlanTensor *part, guint64 at))
{
  for (guint i = 0; i < self->n_outer; i++)
    visit (self, &self->outer[i], exec_evaluator_offset (self, self->outer[i].role, 0));
  for (gint64 layer = 0; layer < self->model->layers; layer++)
    for (guint i = 0; i < self->in_layer[layer].n; i++)
      {
        const PlanTensor *part = &self->in_layer[layer].tensor[i];

        visit (self, part, exec_evaluator_offset (self, part->role, layer));
      }
}

void
exec_evaluator_sum_tables (ExecEvaluator *self)
{
  guint64 table = exec_evaluator_offset (self, PLAN_TENSOR_EMBEDDING, 0);
  guint64 copy = exec_evaluator_offset (self, PLAN_TENSOR_OUTPUT, 0);
  gint64 count[] = { self->vocab * self->model->hidden };

  for (guint rank = 0; self->shares_table && rank < self->ranks; rank++)
    {
      ExecArray one = exec_evaluator_from (self->kept[rank], table);
      ExecArray other = exec_evaluator_from (self->kept[rank], copy);

      exec_evaluator_run (self, PLAN_OP_ACCUMULATE, EXEC_OPERANDS (one, other), count);
      exec_evaluator_run (self, PLAN_OP_CAST, EXEC_OPERANDS (other, one), count);
    }
}

/* Sums the gradient of a parameter that all ranks have whole, if each saw only some of the tokens
 * or heads. Those of experts are sums over all ranks already. */
static void
sum_alike (ExecEvaluator *self, const PlanTensor *part, guint64 at)
{
  gboolean is_of_heads = part->role == PLAN_TENSOR_Q_NORM || part->role == PLAN_TENSOR_K_NORM;
  g_autofree ExecArray *parts = g_new (ExecArray, self->tp);

  if (is_split (self, part) || part->part == PLAN_PART_EXPERTS
      || !(self->splits_rows || is_of_heads))
    return;
  for (guint p = 0; p < self->tp; p++)
    parts[p] = exec_evaluator_from (self->peer[p]->main_grad[0], at);
  fold (self, parts, part->rows * part->cols, exec_comm_sum);
}

void
exec_evaluator_sum_alike (ExecEvaluator *self)
{
  if (self->tp > 1)
    each_tensor (self, sum_alike);
}

static void
measure (ExecEvaluator *self, const PlanTensor *part, guint64 at)
{
  if (self->shares_table && part->role == PLAN_TENSOR_OUTPUT)
    return; /* the embedding's is the same */
  if (self->tp_rank == 0 || is_split (self, part))
    exec_evaluator_run (self, PLAN_OP_NORM_SQ,
                        EXEC_OPERANDS (exec_evaluator_from (self->sums, PLAN_EXACT_LIMBS),
                                       exec_evaluator_from (self->main_grad[0], at)),
                        (gint64[]){ (gint64)(part->rows * part->cols) });
}

void
exec_evaluator_measure (ExecEvaluator *self)
{
  each_tensor (self, measure);
}
