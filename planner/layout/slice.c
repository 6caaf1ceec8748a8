/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/layout/slice.h"

static void
add_run (PlanSlice *self, guint64 *io_row, guint64 rows, guint64 tp, guint64 place)
{
  self->run[self->n].rows = rows / tp;
  self->run[self->n].first = *io_row + place * (rows / tp);
  self->n++;
  *io_row += rows;
}

/* Experts that are split by columns, or not at all, are one matrix. */
static PlanSlice
slice_of_experts (const PlanModel *model, const PlanTensor *whole, const PlanTensor *part,
                  const PlanBucketRule *rule, guint64 place)
{
  const guint64 etp = rule->etp, experts = whole->count / rule->ep;
  guint64 row = place / etp * experts * whole->rows;
  PlanSlice slice = { .cols = part->cols,
                      .first_col = part->cols < whole->cols ? place % etp * part->cols : 0,
                      .whole_cols = whole->cols };
  if (part->rows == whole->rows)
    {
      add_run (&slice, &row, experts * whole->rows, 1, 0);
      return slice;
    }
  slice.again = part->rows;
  slice.whole_again = whole->rows;
  for (guint half = 0; half < (model->gated ? 2 : 1); half++)
    add_run (&slice, &row, whole->rows / (model->gated ? 2 : 1), etp, place % etp);
  return slice;
}

PlanSlice
plan_slice_of (const PlanModel *model, PlanTensorRole role, const PlanBucketRule *rule,
               guint64 place)
{
  const PlanTensor whole = plan_model_tensor (model, role, rule->vocab);
  const PlanTensor part = plan_buckets_part (model, role, rule);
  const guint64 tp = rule->tp;
  const guint64 q = (guint64)(model->heads * model->head_dim);
  const guint64 kv = (guint64)(model->kv_heads * model->head_dim);
  PlanSlice slice = { .cols = part.cols,
                      .first_col = part.cols < whole.cols ? place * part.cols : 0,
                      .whole_cols = whole.cols };
  guint64 row = 0;
  if (whole.part == PLAN_PART_EXPERTS)
    return slice_of_experts (model, &whole, &part, rule, place);
  if (part.rows == whole.rows)
    {
      add_run (&slice, &row, whole.rows, 1, 0);
      return slice;
    }
  switch ((int)role)
    {
    case PLAN_TENSOR_QKV:
    case PLAN_TENSOR_QKV_BIAS:
      add_run (&slice, &row, q, tp, place);
      add_run (&slice, &row, kv, tp, place);
      add_run (&slice, &row, kv, tp, place);
      break;
    case PLAN_TENSOR_GATE_UP:
    case PLAN_TENSOR_GATE_UP_BIAS:
    case PLAN_TENSOR_SHARED_GATE_UP:
      for (guint half = 0; half < (model->gated ? 2 : 1); half++)
        add_run (&slice, &row, whole.rows / (model->gated ? 2 : 1), tp, place);
      break;
    default:
      add_run (&slice, &row, whole.rows, tp, place);
      break;
    }
  return slice;
}

guint64
plan_slice_run (const PlanSlice *self, guint64 at, guint64 *out_first)
{
  const guint64 col = at % self->cols;
  guint64 row = at / self->cols, before = 0;
  guint i = 0;
  if (self->again > 0)
    {
      before = row / self->again * self->whole_again;
      row %= self->again;
    }
  while (i + 1 < self->n && row >= self->run[i].rows)
    row -= self->run[i++].rows;
  *out_first = (before + self->run[i].first + row) * self->whole_cols + self->first_col + col;
  return self->cols < self->whole_cols ? self->cols - col
                                       : (self->run[i].rows - row) * self->cols - col;
}
