/* SPDX-License-Identifier: Apache-2.0 */
/* What one expert makes of its rows. Ranks may split its matrices (etp): the first by rows, which
 * are columns of the activation, the second by columns. Each rank then makes a summand of the
 * output, and of the gradients of rows and of routing probabilities.
 *
 * Parameters of all experts lie rank by rank of the group that has each once: of a rank's experts
 * one after the other, of each the rank's part. The bias of the second product is not split. The
 * first of the ranks that split an expert adds it. */
#include "config.h"

#include "tests/reference/evaluate-experts.h"

#define RUN(kind, operands, ...) \
  exec_evaluator_run (self, PLAN_OP_##kind, operands, (gint64[]){ __VA_ARGS__ })

/* A rank's part of an expert, and the expert's rows. */
typedef struct
{
  gint64 layer, expert, first, n;
  guint number; /* of the part */
} Part;

/* Rows of a part's first weight. */
static gint64
up_width (const ExecEvaluator *self)
{
  return self->model->gated ? 2 * self->model->expert_ffn : self->model->expert_ffn;
}

/* An array of `cols` columns from the part's first row on. */
static ExecArray
rows_of (const Part *part, ExecArray array, gint64 cols)
{
  return exec_evaluator_from (array, (guint64)(part->first * cols));
}

/* The same of an array that has all rows for each part. */
static ExecArray
own_rows_of (const ExecEvaluator *self, const Part *part, ExecArray array, gint64 cols)
{
  const gint64 before = part->number * exec_evaluator_expert_rows (self);

  return exec_evaluator_from (array, (guint64)((before + part->first) * cols));
}

gboolean
exec_evaluator_splits_experts_of (PlanTensorRole role)
{
  return role == PLAN_TENSOR_EXPERT_GATE_UP || role == PLAN_TENSOR_EXPERT_GATE_UP_BIAS
         || role == PLAN_TENSOR_EXPERT_DOWN;
}

guint
exec_evaluator_place_of (const ExecEvaluator *self, PlanTensorRole role, gint64 piece)
{
  const gint64 each = self->model->experts / self->ep;

  return (guint)(piece / each) * (exec_evaluator_splits_experts_of (role) ? 1 : self->etp);
}

/* The number of the rank that has a part, in the group of ranks that has each once. */
static guint
owner_of (const ExecEvaluator *self, const Part *part)
{
  return (guint)(part->expert / (self->model->experts / self->ep)) * self->etp + part->number;
}

/* A part's weight, or its gradient, among those of all experts. */
static ExecArray
part_of (const ExecEvaluator *self, const Part *part, ExecArray all, PlanTensorRole role,
         gint64 outputs, gint64 inputs)
{
  const gint64 each = self->model->experts / self->ep;
  const gint64 piece = exec_evaluator_splits_experts_of (role)
                           ? owner_of (self, part) * each + part->expert % each
                           : part->expert;

  return exec_evaluator_from (all, (guint64)(piece * outputs * inputs));
}

PlanManner
exec_evaluator_activation_manner (const ExecEvaluator *self)
{
  return (PlanManner){
    { [PLAN_MANNER_LIMIT] = self->model->glu_limit, [PLAN_MANNER_OFFSET] = self->model->glu_offset }
  };
}

/* out += bias for each row of an expert, times the row's routing probability if `probs` has data.
 */
static void
add_bias (ExecEvaluator *self, const Part *part, PlanTensorRole role, gint64 outputs, ExecArray out,
          ExecArray probs)
{
  gint32 count = (gint32)part->n;
  ExecArray bias = exec_evaluator_weight (self, role, part->layer);

  if (bias.data != NULL)
    RUN (ADD_EXPERT_BIAS,
         EXEC_OPERANDS (out, part_of (self, part, bias, role, outputs, 1),
                        { &count, PLAN_DTYPE_I32, NULL }, probs),
         part->n, outputs, 1);
}

/* Multiplies an expert's rows by their routing probabilities before its first product, in models
 * that do so. */
static void
scale_rows (ExecEvaluator *self, const ExecEvaluatorLayer *l, const Part *part)
{
  const gint64 hidden = self->model->hidden;

  if (self->model->scores_on_input)
    RUN (SCALE_ROWS,
         EXEC_OPERANDS (rows_of (part, l->scaled, hidden), rows_of (part, l->rows, hidden),
                        rows_of (part, l->row_probs, 1)),
         part->n, hidden);
}

/* Turns the gradient of the scaled rows into that of the rows themselves, and makes that of their
 * probabilities. */
static void
scale_rows_bwd (ExecEvaluator *self, const ExecEvaluatorLayer *l, const Part *part)
{
  const gint64 hidden = self->model->hidden;
  const ExecArray drows = own_rows_of (self, part, self->row_parts, hidden);

  if (self->model->scores_on_input)
    RUN (SCALE_ROWS_BWD,
         EXEC_OPERANDS (drows, own_rows_of (self, part, self->dprobs_parts, 1), drows,
                        rows_of (part, l->rows, hidden), rows_of (part, l->row_probs, 1)),
         part->n, hidden);
}

/* The activation of an expert's rows, times their routing probabilities unless scale_rows has
 * multiplied by these already. */
static void
activate_rows (ExecEvaluator *self, const ExecEvaluatorLayer *l, const Part *part)
{
  const PlanModel *m = self->model;
  const PlanManner manner = exec_evaluator_activation_manner (self);
  const gint64 ffn = m->expert_ffn;
  const ExecArray out = own_rows_of (self, part, l->rows_activated, ffn),
                  in = own_rows_of (self, part, l->rows_up, up_width (self));

  if (m->scores_on_input)
    exec_evaluator_activate (self, out, in, part->n, ffn);
  else
    exec_evaluator_run_as (self, PLAN_OP_EXPERT_ACTIVATE,
                           EXEC_OPERANDS (out, in, rows_of (part, l->row_probs, 1)),
                           (gint64[]){ part->n, ffn, m->activation, m->gated }, &manner);
}

static void
activate_rows_bwd (ExecEvaluator *self, const ExecEvaluatorLayer *l, const Part *part)
{
  const PlanModel *m = self->model;
  const PlanManner manner = exec_evaluator_activation_manner (self);
  const gint64 ffn = m->expert_ffn, up = up_width (self);
  const ExecArray dup = rows_of (part, self->drows_up, up),
                  dout = rows_of (part, self->drows_activated, ffn),
                  in = own_rows_of (self, part, l->rows_up, up);

  if (m->scores_on_input)
    exec_evaluator_activate_bwd (self, dup, dout, in, part->n, ffn);
  else
    exec_evaluator_run_as (self, PLAN_OP_EXPERT_ACTIVATE_BWD,
                           EXEC_OPERANDS (dup, own_rows_of (self, part, self->dprobs_parts, 1),
                                          dout, in, rows_of (part, l->row_probs, 1)),
                           (gint64[]){ part->n, ffn, m->activation, m->gated }, &manner);
}

/* A part's weight as a factor. */
static ExecFactor
weight_of (const ExecEvaluator *self, const Part *part, PlanTensorRole role, gint64 outputs,
           gint64 inputs)
{
  const ExecArray all = exec_evaluator_weight (self, role, part->layer);

  return (ExecFactor){ part_of (self, part, all, role, outputs, inputs),
                       role,
                       PLAN_QUANTIZER_WEIGHT,
                       part->layer,
                       outputs,
                       inputs };
}

/* out = in * weight^T for the rows of one expert. An expert without rows computes nothing, but its
 * weight counts among the magnitudes by which scales are made. */
static void
multiply_rows (ExecEvaluator *self, ExecArray out, ExecArray in, const ExecFactor *weight, gint64 n)
{
  const ExecFactor input
      = { in, weight->role, PLAN_QUANTIZER_INPUT, weight->layer, n, weight->cols };
  const ExecArray b = exec_evaluator_narrow (self, 1, weight, FALSE);

  if (n > 0)
    RUN (GEMM, EXEC_OPERANDS (out, exec_evaluator_narrow (self, 0, &input, FALSE), b), n,
         weight->rows, weight->cols, 1);
}

/* out[first rows] = the sum over parts of `parts`, which is made in another format. */
static void
sum_parts (ExecEvaluator *self, const Part *part, ExecArray out, ExecArray parts, gint64 cols,
           PlanDtype dtype)
{
  const guint64 count = (guint64)(part->n * cols);
  const void *terms[EXEC_MAX_EXPERT_PARTS];
  ExecArray wide = { g_malloc (plan_dtype_bytes (dtype, self->etp * count)), dtype, NULL };

  for (guint i = 0; i < self->etp; i++)
    {
      const Part one = { .first = part->first, .number = i };
      const ExecArray term = exec_evaluator_from (wide, i * count);

      RUN (CAST, EXEC_OPERANDS (term, own_rows_of (self, &one, parts, cols)), (gint64)count);
      terms[i] = term.data;
    }
  exec_comm_sum (wide.data, terms, self->etp, count, dtype);
  RUN (CAST, EXEC_OPERANDS (rows_of (part, out, cols), wide), (gint64)count);
  g_free (wide.data);
}

static void
run_part (ExecEvaluator *self, const Part *part)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[part->layer];
  const gint64 up = up_width (self), ffn = m->expert_ffn, hidden = m->hidden;
  const ExecFactor gate_up = weight_of (self, part, PLAN_TENSOR_EXPERT_GATE_UP, up, hidden);
  const ExecFactor down = weight_of (self, part, PLAN_TENSOR_EXPERT_DOWN, hidden, ffn);
  const ExecArray made = own_rows_of (self, part, l->rows_up, up),
                  out = own_rows_of (self, part, self->row_parts, hidden);

  multiply_rows (self, made, rows_of (part, l->scaled, hidden), &gate_up, part->n);
  if (part->n > 0)
    {
      add_bias (self, part, PLAN_TENSOR_EXPERT_GATE_UP_BIAS, up, made, (ExecArray){ 0 });
      activate_rows (self, l, part);
    }
  multiply_rows (self, out, own_rows_of (self, part, l->rows_activated, ffn), &down, part->n);
  if (part->n > 0 && part->number == 0)
    add_bias (self, part, PLAN_TENSOR_EXPERT_DOWN_BIAS, hidden, out,
              rows_of (part, l->row_probs, 1));
}

void
exec_evaluator_run_expert (ExecEvaluator *self, gint64 layer, gint64 expert, gint64 first, gint64 n)
{
  Part part = { layer, expert, first, n, 0 };

  if (n > 0)
    scale_rows (self, &self->layers[layer], &part);
  for (; part.number < self->etp; part.number++)
    run_part (self, &part);
  if (n > 0)
    sum_parts (self, &part, self->drows, self->row_parts, self->model->hidden, self->router);
}

/* --- backwards ---------------------------------------------------------------------------- */

/* dweight = dout^T * in of the expert's rows; 0 where it has none. */
static void
weight_bwd (ExecEvaluator *self, ExecArray dweight, ExecArray dout, ExecArray in,
            const ExecFactor *weight, gint64 n)
{
  const gint64 outputs = weight->rows, inputs = weight->cols, layer = weight->layer;
  const ExecFactor a = { dout, weight->role, PLAN_QUANTIZER_GRADIENT, layer, n, outputs },
                   b = { in, weight->role, PLAN_QUANTIZER_INPUT, layer, n, inputs };

  if (n > 0)
    RUN (GEMM,
         EXEC_OPERANDS (dweight, exec_evaluator_narrow (self, 0, &a, TRUE),
                        exec_evaluator_narrow (self, 1, &b, TRUE)),
         outputs, inputs, n, exec_evaluator_narrow_layout (self, 2));
  else
    RUN (ZERO, EXEC_OPERANDS (dweight), outputs * inputs);
}

/* din = dout * weight for the rows of one expert. */
static void
multiply_rows_bwd (ExecEvaluator *self, ExecArray din, ExecArray dout, const ExecFactor *weight,
                   gint64 n)
{
  const ExecFactor gradient
      = { dout, weight->role, PLAN_QUANTIZER_GRADIENT, weight->layer, n, weight->rows };
  const ExecArray a = exec_evaluator_narrow (self, 0, &gradient, FALSE),
                  b = exec_evaluator_narrow (self, 1, weight, TRUE);

  RUN (GEMM, EXEC_OPERANDS (din, a, b), n, weight->cols, weight->rows,
       exec_evaluator_narrow_layout (self, 0));
}

/* Where the rank that has a part leaves the gradient of a parameter. */
static ExecArray
raw_of (ExecEvaluator *self, const Part *part, PlanTensorRole role, gint64 outputs, gint64 inputs)
{
  ExecEvaluator *owner = self->peer[owner_of (self, part)];

  return part_of (self, part, exec_evaluator_raw (owner, role, part->layer), role, outputs, inputs);
}

/* The gradient of a part's bias. Makes the bias's part of the gradient of routing probabilities if
 * `dprobs` has data. */
static void
bias_bwd (ExecEvaluator *self, const Part *part, PlanTensorRole role, gint64 outputs,
          ExecArray dout, ExecArray probs, ExecArray dprobs)
{
  gint32 count = (gint32)part->n;
  ExecArray bias = exec_evaluator_weight (self, role, part->layer);

  if (bias.data != NULL)
    RUN (ADD_EXPERT_BIAS_BWD,
         EXEC_OPERANDS (raw_of (self, part, role, outputs, 1), dout,
                        { &count, PLAN_DTYPE_I32, NULL }, probs,
                        part_of (self, part, bias, role, outputs, 1), dprobs),
         count, outputs, 1);
}

/* Backward pass of one part: `drows` has the gradient of the expert's output. */
static void
part_bwd (ExecEvaluator *self, const Part *part)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[part->layer];
  const gint64 up = up_width (self), ffn = m->expert_ffn, hidden = m->hidden, n = part->n;
  const PlanTensorRole up_role = PLAN_TENSOR_EXPERT_GATE_UP, down_role = PLAN_TENSOR_EXPERT_DOWN;
  const ExecFactor gate_up = weight_of (self, part, up_role, up, hidden),
                   down = weight_of (self, part, down_role, hidden, ffn);
  const ExecArray dout = rows_of (part, self->drows, hidden),
                  dup = rows_of (part, self->drows_up, up),
                  dactivated = rows_of (part, self->drows_activated, ffn),
                  dprobs = own_rows_of (self, part, self->dprobs_parts, 1),
                  of_bias = rows_of (part, self->bias_dprobs, 1);

  if (part->number == 0)
    bias_bwd (self, part, PLAN_TENSOR_EXPERT_DOWN_BIAS, hidden, dout,
              rows_of (part, l->row_probs, 1), of_bias);
  weight_bwd (self, raw_of (self, part, down_role, hidden, ffn), dout,
              own_rows_of (self, part, l->rows_activated, ffn), &down, n);
  if (n > 0)
    {
      multiply_rows_bwd (self, dactivated, dout, &down, n);
      activate_rows_bwd (self, l, part);
      if (m->expert_bias && part->number == 0)
        RUN (ACCUMULATE, EXEC_OPERANDS (dprobs, of_bias), n);
      multiply_rows_bwd (self, own_rows_of (self, part, self->row_parts, hidden), dup, &gate_up, n);
      scale_rows_bwd (self, l, part);
    }
  weight_bwd (self, raw_of (self, part, up_role, up, hidden), dup,
              rows_of (part, l->scaled, hidden), &gate_up, n);
  bias_bwd (self, part, PLAN_TENSOR_EXPERT_GATE_UP_BIAS, up, dup, (ExecArray){ 0 },
            (ExecArray){ 0 });
}

void
exec_evaluator_expert_bwd (ExecEvaluator *self, gint64 layer, gint64 expert, gint64 first, gint64 n)
{
  Part part = { layer, expert, first, n, 0 };

  for (; part.number < self->etp; part.number++)
    part_bwd (self, &part);
  if (n == 0)
    return;
  sum_parts (self, &part, self->drows, self->row_parts, self->model->hidden, self->compute);
  sum_parts (self, &part, self->row_dprobs, self->dprobs_parts, 1, PLAN_DTYPE_FP32);
}

/* --- memory ------------------------------------------------------------------------------- */

void
exec_evaluator_take_rows_of_parts (ExecEvaluator *self, ExecEvaluatorLayer *l)
{
  const guint64 rows = self->etp * (guint64)exec_evaluator_expert_rows (self);

  l->rows_up = exec_evaluator_array (self, self->compute, rows * (guint64)up_width (self));
  l->rows_activated
      = exec_evaluator_array (self, self->compute, rows * (guint64)self->model->expert_ffn);
}

void
exec_evaluator_take_parts (ExecEvaluator *self)
{
  const guint64 rows = (guint64)exec_evaluator_expert_rows (self);
  const guint64 hidden = (guint64)self->model->hidden, ffn = (guint64)self->model->expert_ffn;
  const PlanDtype c = self->compute;

  g_assert (self->etp <= EXEC_MAX_EXPERT_PARTS);
  self->row_parts = exec_evaluator_array (self, c, self->etp * rows * hidden);
  self->dprobs_parts = exec_evaluator_array (self, PLAN_DTYPE_FP32, self->etp * rows);
  self->bias_dprobs = exec_evaluator_array (self, PLAN_DTYPE_FP32, rows);
  self->drows_up = exec_evaluator_array (self, c, rows * (guint64)up_width (self));
  self->drows_activated = exec_evaluator_array (self, c, rows * ffn);
}

/* Which element of the whole parameter an element of this layout is. */
guint64
exec_evaluator_whole_element (const ExecEvaluator *self, const PlanTensor *whole, guint64 element)
{
  const guint64 etp = exec_evaluator_splits_experts_of (whole->role) ? self->etp : 1;
  const gboolean is_down = whole->role == PLAN_TENSOR_EXPERT_DOWN;
  const guint64 each = (guint64)self->model->experts / self->ep;
  const guint64 cols = is_down ? whole->cols / etp : whole->cols;
  const guint64 rows = is_down ? whole->rows : whole->rows / etp;
  const guint64 piece = element / (rows * cols), number = piece / each % etp;
  const guint64 expert = piece / each / etp * each + piece % each;
  guint64 row = element / cols % rows, col = element % cols;

  if (is_down)
    col += number * cols;
  else if (etp > 1)
    {
      const guint64 halves = self->model->gated ? 2 : 1, half = rows / halves;

      row = row / half * (half * etp) + number * half + row % half;
    }
  return (expert * whole->rows + row) * whole->cols + col;
}
