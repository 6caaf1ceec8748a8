/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's experts, one after the other. A row is one token's vector for one expert that it chose;
 * an expert computes the rows of all ranks of an expert-parallel group at once, in the arrays of
 * the group's first rank. In a tensor-parallel group each rank routes its own tokens only; shared
 * experts read the tokens of the whole group. */
#include "config.h"

#include "tests/reference/evaluate-experts.h"
#include "tests/reference/evaluate-split.h"

#include <math.h>
#include <string.h>

#define RUN(kind, operands, ...) \
  exec_evaluator_run (self, PLAN_OP_##kind, operands, (gint64[]){ __VA_ARGS__ })

static gboolean
is_quantised (const ExecEvaluator *self)
{
  return self->product != self->compute;
}

gint64
exec_evaluator_narrow_layout (const ExecEvaluator *self, gint64 layout)
{
  return is_quantised (self) ? 1 : layout;
}

/* The number of rows of an expert is a multiple of this: rows of zeros fill up the last block of
 * those that share a scale in a column, and make 16 bytes where all share one. */
static gint64
multiple_of_rows (const ExecEvaluator *self)
{
  return !is_quantised (self) ? 1 : self->product == PLAN_DTYPE_E4M3 ? 16 : 128;
}

/* How many tokens of a rank an expert takes at most; 0: all. */
static gint64
capacity_of (const ExecEvaluator *self)
{
  const double factor = (double)self->job->of->plan.value[PLAN_MOE_CAPACITY] / 1e6;
  const double mean = (double)(self->own_rows * self->model->topk) / (double)self->model->experts;

  return (gint64)ceil (mean * factor);
}

/* Whether an expert has as many rows of each rank as it takes at most, the last of them zeros. */
static gboolean
pads (const ExecEvaluator *self)
{
  return self->job->of->plan.value[PLAN_MOE_PAD_TO_CAPACITY] == PLAN_MOE_PAD_TO_CAPACITY_ON;
}

gint64
exec_evaluator_expert_rows (const ExecEvaluator *self)
{
  const gint64 experts = self->model->experts;

  return self->ep
             * (pads (self) ? capacity_of (self) * experts : self->own_rows * self->model->topk)
         + experts * (multiple_of_rows (self) - 1);
}

/* Rows of an expert's first weight. */
static gint64
up_width (const ExecEvaluator *self)
{
  return self->model->gated ? 2 * self->model->expert_ffn : self->model->expert_ffn;
}

/* An array of `cols` columns from its row `row` on. */
static ExecArray
row_of (ExecArray array, gint64 row, gint64 cols)
{
  return exec_evaluator_from (array, (guint64)(row * cols));
}

/* The rows of one expert: the first, and how many. */
static gint64
find_rows (const ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 expert, gint64 *out_n)
{
  gint64 first = 0, n = 0;

  for (gint64 row = 0; row < l->n_rows; row++)
    {
      first += l->expert[row] < expert;
      n += l->expert[row] == expert;
    }
  *out_n = n;
  return first;
}

/* Copies a token's vector to a row. */
static void
send_row (const ExecEvaluator *self, gint64 layer, guint peer, gint64 token, gint64 expert,
          gint64 row)
{
  const ExecEvaluatorLayer *to = &self->layers[layer], *from = &self->peer[peer]->layers[layer];
  const gint64 hidden = self->model->hidden;

  to->peer[row] = (gint32)peer;
  to->token[row] = (gint32)token;
  to->expert[row] = (gint32)expert;
  exec_evaluator_put (to->row_probs, row,
                      exec_evaluator_get (from->probs, token * self->model->experts + expert));
  memcpy (row_of (to->rows, row, hidden).data,
          row_of (exec_evaluator_own (self->peer[peer], from->normed2), token, hidden).data,
          plan_dtype_bytes (self->compute, (guint64)hidden));
}

/* Makes a row of zeros that is no token's. */
static void
fill_row (const ExecEvaluator *self, gint64 layer, gint64 expert, gint64 row)
{
  const ExecEvaluatorLayer *to = &self->layers[layer];
  const gint64 hidden = self->model->hidden;

  to->peer[row] = to->token[row] = -1;
  to->expert[row] = (gint32)expert;
  exec_evaluator_put (to->row_probs, row, 0);
  for (gint64 col = 0; col < hidden; col++)
    exec_evaluator_put (to->rows, row * hidden + col, 0);
}

/* Makes the rows of all tokens, sorted by expert. */
static void
send_rows (const ExecEvaluator *self, gint64 layer)
{
  const gint64 experts = self->model->experts;
  gint64 row = 0;

  for (gint64 expert = 0; expert < experts; expert++)
    {
      for (guint peer = 0; peer < self->ep; peer++)
        {
          const gint64 first = row;

          for (gint64 token = 0; token < self->own_rows; token++)
            {
              const guint8 *left = self->peer[peer]->layers[layer].left.data;

              if (left[token * experts + expert])
                send_row (self, layer, peer, token, expert, row++);
            }
          while (pads (self) && row < first + capacity_of (self))
            fill_row (self, layer, expert, row++);
        }
      while (row % multiple_of_rows (self) != 0)
        fill_row (self, layer, expert, row++);
    }
  self->layers[layer].n_rows = row;
}

/* Each token of a rank in `out` = the sum of the token's rows, in the order of their experts. */
static void
add_rows (const ExecEvaluator *self, const ExecEvaluatorLayer *l, guint peer, ExecArray out)
{
  const gint64 hidden = self->model->hidden;

  for (gint64 token = 0; token < self->own_rows; token++)
    for (gint64 col = 0; col < hidden; col++)
      {
        float sum = 0;

        for (gint64 row = 0; row < l->n_rows; row++)
          if (l->token[row] == token && l->peer[row] == (gint32)peer)
            sum += exec_evaluator_get (self->drows, row * hidden + col);
        exec_evaluator_put (out, token * hidden + col, sum);
      }
}

/* An expert's weight, or its gradient. */
static ExecArray
part_of (ExecArray all, gint64 expert, gint64 outputs, gint64 inputs)
{
  return exec_evaluator_from (all, (guint64)(expert * outputs * inputs));
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
add_bias (ExecEvaluator *self, gint64 layer, gint64 expert, PlanTensorRole role, gint64 outputs,
          ExecArray out, ExecArray probs, gint64 n)
{
  gint32 count = (gint32)n;
  ExecArray bias = exec_evaluator_weight (self, role, layer);

  if (bias.data != NULL)
    RUN (ADD_EXPERT_BIAS,
         EXEC_OPERANDS (out, part_of (bias, expert, outputs, 1), { &count, PLAN_DTYPE_I32, NULL },
                        probs),
         n, outputs, 1);
}

/* Multiplies an expert's rows by their routing probabilities before its first product, in models
 * that do so. */
static void
scale_rows (ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 first, gint64 n)
{
  const gint64 hidden = self->model->hidden;

  if (self->model->scores_on_input)
    RUN (SCALE_ROWS,
         EXEC_OPERANDS (row_of (l->scaled, first, hidden), row_of (l->rows, first, hidden),
                        row_of (l->row_probs, first, 1)),
         n, hidden);
}

/* Turns the gradient of the scaled rows, in `drows`, into that of the rows themselves, and adds up
 * that of their probabilities. */
static void
scale_rows_bwd (ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 first, gint64 n)
{
  const gint64 hidden = self->model->hidden;
  const ExecArray drows = row_of (self->drows, first, hidden);

  if (self->model->scores_on_input)
    RUN (SCALE_ROWS_BWD,
         EXEC_OPERANDS (drows, row_of (self->row_dprobs, first, 1), drows,
                        row_of (l->rows, first, hidden), row_of (l->row_probs, first, 1)),
         n, hidden);
}

/* The activation of an expert's rows, times their routing probabilities unless scale_rows has
 * multiplied by these already. */
static void
activate_rows (ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 first, gint64 n)
{
  const PlanModel *m = self->model;
  const PlanManner manner = exec_evaluator_activation_manner (self);
  const gint64 ffn = m->expert_ffn;
  const ExecArray out = row_of (l->rows_activated, first, ffn),
                  in = row_of (l->rows_up, first, up_width (self));

  if (m->scores_on_input)
    exec_evaluator_activate (self, out, in, n, ffn);
  else
    exec_evaluator_run_as (self, PLAN_OP_EXPERT_ACTIVATE,
                           EXEC_OPERANDS (out, in, row_of (l->row_probs, first, 1)),
                           (gint64[]){ n, ffn, m->activation, m->gated }, &manner);
}

static void
activate_rows_bwd (ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 first, gint64 n)
{
  const PlanModel *m = self->model;
  const PlanManner manner = exec_evaluator_activation_manner (self);
  const gint64 ffn = m->expert_ffn, up = up_width (self);
  const ExecArray dup = row_of (self->drows_up, first, up),
                  dout = row_of (self->drows_activated, first, ffn),
                  in = row_of (l->rows_up, first, up);

  if (m->scores_on_input)
    exec_evaluator_activate_bwd (self, dup, dout, in, n, ffn);
  else
    exec_evaluator_run_as (self, PLAN_OP_EXPERT_ACTIVATE_BWD,
                           EXEC_OPERANDS (dup, row_of (self->row_dprobs, first, 1), dout, in,
                                          row_of (l->row_probs, first, 1)),
                           (gint64[]){ n, ffn, m->activation, m->gated }, &manner);
}

/* The weight of one expert as a factor. */
static ExecFactor
weight_of (const ExecEvaluator *self, PlanTensorRole role, gint64 layer, gint64 expert,
           gint64 outputs, gint64 inputs)
{
  const ExecArray all = exec_evaluator_weight (self, role, layer);

  return (ExecFactor){
    part_of (all, expert, outputs, inputs), role, PLAN_QUANTIZER_WEIGHT, layer, outputs, inputs
  };
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

static void
run_expert (ExecEvaluator *self, gint64 layer, gint64 expert)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const gint64 up = up_width (self), ffn = m->expert_ffn, hidden = m->hidden;
  const ExecFactor gate_up
      = weight_of (self, PLAN_TENSOR_EXPERT_GATE_UP, layer, expert, up, hidden);
  const ExecFactor down = weight_of (self, PLAN_TENSOR_EXPERT_DOWN, layer, expert, hidden, ffn);
  gint64 n, first = find_rows (self, l, expert, &n);

  if (n > 0)
    scale_rows (self, l, first, n);
  multiply_rows (self, row_of (l->rows_up, first, up), row_of (l->scaled, first, hidden), &gate_up,
                 n);
  if (n > 0)
    {
      add_bias (self, layer, expert, PLAN_TENSOR_EXPERT_GATE_UP_BIAS, up,
                row_of (l->rows_up, first, up), (ExecArray){ 0 }, n);
      activate_rows (self, l, first, n);
    }
  multiply_rows (self, row_of (self->drows, first, hidden), row_of (l->rows_activated, first, ffn),
                 &down, n);
  if (n > 0)
    add_bias (self, layer, expert, PLAN_TENSOR_EXPERT_DOWN_BIAS, hidden,
              row_of (self->drows, first, hidden), row_of (l->row_probs, first, 1), n);
}

/* A layer's elements of an array of all layers; no array where the model has none. */
static ExecArray
of_layer (const ExecEvaluator *self, ExecArray all, gint64 layer)
{
  return all.data ? row_of (all, layer, self->model->experts) : all;
}

/* Whether as many tokens as an expert takes come before this one: those that it weighs more, and
 * earlier ones that it weighs as much; with moe_drop=position all earlier ones. */
static gboolean
has_no_room (const ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 token, gint64 expert)
{
  const gint64 *value = self->job->of->plan.value, experts = self->model->experts;
  const float prob = exec_evaluator_get (l->probs, token * experts + expert);
  const guint8 *chosen = l->chosen.data;
  gint64 before = 0;

  for (gint64 other = 0; other < self->own_rows; other++)
    {
      const float beside = exec_evaluator_get (l->probs, other * experts + expert);
      const gboolean is_before = value[PLAN_MOE_DROP] == PLAN_MOE_DROP_POSITION
                                     ? other < token
                                     : beside > prob || (beside == prob && other < token);

      before += chosen[other * experts + expert] && is_before;
    }
  return value[PLAN_MOE_CAPACITY] > 0 && before >= capacity_of (self);
}

/* Marks the tokens that are left when experts have dropped those beyond their capacity. */
static void
drop (const ExecEvaluator *self, const ExecEvaluatorLayer *l)
{
  const gint64 experts = self->model->experts;
  const guint8 *chosen = l->chosen.data;
  guint8 *left = l->left.data;

  for (gint64 i = 0; i < self->own_rows * experts; i++)
    left[i] = chosen[i] && !has_no_room (self, l, i / experts, i % experts);
}

static void
route (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const PlanManner manner
      = { { [PLAN_MANNER_GROUPS] = m->router_groups > 1 ? (double)m->router_groups : 0,
            [PLAN_MANNER_GROUP_TOPK] = (double)m->router_group_topk } };

  RUN (GEMM,
       EXEC_OPERANDS (self->scores, exec_evaluator_own (self, l->normed2),
                      exec_evaluator_weight (self, PLAN_TENSOR_ROUTER, layer),
                      exec_evaluator_weight (self, PLAN_TENSOR_ROUTER_BIASES, layer)),
       self->own_rows, m->experts, m->hidden, 1);
  exec_evaluator_run_as (
      self, PLAN_OP_ROUTE,
      EXEC_OPERANDS (l->probs, l->saved, l->chosen, self->scores,
                     of_layer (self, self->bias, layer),
                     self->is_eval ? (ExecArray){ 0 } : of_layer (self, self->loads, layer)),
      (gint64[]){ self->own_rows, m->experts, m->topk }, &manner);
  drop (self, l);
}

/* Runs the shared experts; the output is a partial sum of each tensor-parallel rank. */
static void
run_shared (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const gint64 up = m->gated ? 2 * m->shared_ffn : m->shared_ffn;

  exec_evaluator_linear (self, l->shared_up, l->normed2, PLAN_TENSOR_SHARED_GATE_UP, EXEC_NO_BIAS,
                         layer, up, m->hidden);
  exec_evaluator_activate (self, l->shared, l->shared_up, self->rows, m->shared_ffn);
  exec_evaluator_linear (self, self->shared_out, l->shared, PLAN_TENSOR_SHARED_DOWN, EXEC_NO_BIAS,
                         layer, m->hidden, m->shared_ffn);
}

/* Adds the output of shared experts to that of the chosen ones, which is in `combined`. */
static void
add_shared (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const ExecArray out = exec_evaluator_own (self, self->shared_out);

  if (m->shared_gate)
    {
      RUN (GEMM,
           EXEC_OPERANDS (l->gate, exec_evaluator_own (self, l->normed2),
                          exec_evaluator_weight (self, PLAN_TENSOR_SHARED_GATE, layer)),
           self->own_rows, 1, m->hidden, 1);
      memcpy (l->ungated.data, out.data,
              plan_dtype_bytes (self->compute, (guint64)(self->own_rows * m->hidden)));
      RUN (GATE, EXEC_OPERANDS (out, l->gate, l->ungated), self->own_rows, m->hidden);
    }
  RUN (ADD,
       EXEC_OPERANDS (exec_evaluator_own (self, self->branch),
                      exec_evaluator_own (self, self->combined), out),
       self->own_rows * m->hidden);
}

/* Runs the chosen experts for the expert-parallel group whose first rank `self` is. */
static void
run_group (ExecEvaluator *self, gint64 layer)
{
  send_rows (self, layer);
  for (gint64 expert = 0; expert < self->model->experts; expert++)
    run_expert (self, layer, expert);
  for (guint p = 0; p < self->ep; p++)
    {
      ExecEvaluator *peer = self->peer[p];
      ExecArray out = self->model->shared_ffn > 0 ? peer->combined : peer->branch;

      add_rows (self, &self->layers[layer], p, exec_evaluator_own (peer, out));
    }
}

void
exec_evaluator_experts (ExecEvaluator *self, gint64 layer)
{
  EXEC_EACH (self, peer, route (peer, layer));
  for (guint p = 0; p < self->together * self->tp; p += self->ep)
    run_group (self->peer[p], layer);
  if (self->model->shared_ffn == 0)
    return;
  EXEC_JOIN_ROWS (self, peer, peer->layers[layer].normed2);
  EXEC_EACH (self, peer, run_shared (peer, layer));
  EXEC_SUM_PARTS (self, peer, peer->shared_out);
  EXEC_EACH (self, peer, add_shared (peer, layer));
}

/* --- biases that routers choose by -------------------------------------------------------- */

guint
exec_evaluator_find_trained (const PlanModel *model, gint64 layer, PlanTensor *out_tensors)
{
  const guint all = plan_model_layer_tensors (model, layer, out_tensors);
  guint n = 0;

  for (guint i = 0; i < all; i++)
    if (out_tensors[i].kind != PLAN_TENSOR_KIND_STATE)
      out_tensors[n++] = out_tensors[i];
  return n;
}

gboolean
exec_evaluator_init_balance (ExecEvaluator *self, GError **error)
{
  const PlanModel *m = self->model;
  const guint64 experts = (guint64)m->experts, n = (guint64)m->layers * experts;

  if (!m->router_bias)
    return TRUE;
  self->bias = exec_evaluator_array (self, PLAN_DTYPE_FP32, n);
  self->loads = exec_evaluator_array (self, PLAN_DTYPE_FP32, n);
  for (gint64 layer = 0; layer < m->layers; layer++)
    if (plan_model_is_moe_layer (m, layer)
        && !exec_evaluator_state (self->job, EXEC_STATE_MAIN, PLAN_TENSOR_ROUTER_BIAS, layer, 0,
                                  experts, of_layer (self, self->bias, layer).data, error))
      return FALSE;
  return TRUE;
}

void
exec_evaluator_balance (ExecEvaluator *self)
{
  const PlanModel *m = self->model;

  if (!m->router_bias)
    return;
  RUN (BALANCE, EXEC_OPERANDS (self->bias, self->loads, self->coef), m->layers, m->experts);
  RUN (ZERO, EXEC_OPERANDS (self->loads), m->layers * m->experts);
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

/* Where a rank leaves the gradient of an expert's weight. */
static ExecArray
raw_of (ExecEvaluator *self, PlanTensorRole role, gint64 layer, gint64 expert, gint64 outputs,
        gint64 inputs)
{
  return part_of (exec_evaluator_raw (self, role, layer), expert, outputs, inputs);
}

/* The gradient of an expert's bias, in each rank's array: 0 in those of ranks that do not have the
 * expert. Adds the bias's part of the gradient of routing probabilities if `dprobs` has data. */
static void
bias_bwd (ExecEvaluator *self, gint64 layer, gint64 expert, PlanTensorRole role, gint64 outputs,
          ExecArray dout, ExecArray probs, ExecArray dprobs, gint64 n)
{
  const guint owner = (guint)(expert / (self->model->experts / self->ep));
  ExecArray bias = exec_evaluator_weight (self, role, layer);

  for (guint p = 0; bias.data != NULL && p < self->ep; p++)
    {
      gint32 count = p == owner ? (gint32)n : 0;
      const gboolean has_probs = dprobs.data != NULL && p == owner;

      RUN (ADD_EXPERT_BIAS_BWD,
           EXEC_OPERANDS (raw_of (self->peer[p], role, layer, expert, outputs, 1), dout,
                          { &count, PLAN_DTYPE_I32, NULL }, probs,
                          part_of (bias, expert, outputs, 1),
                          has_probs ? dprobs : (ExecArray){ 0 }),
           count, outputs, 1);
    }
}

/* Backward pass of one expert: `drows` has the gradient of its output, which becomes that of its
 * rows. Gradients of its weights are 0 in the arrays of ranks that do not have it. */
static void
expert_bwd (ExecEvaluator *self, gint64 layer, gint64 expert)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const gint64 up = up_width (self), ffn = m->expert_ffn, hidden = m->hidden;
  const PlanTensorRole up_role = PLAN_TENSOR_EXPERT_GATE_UP, down_role = PLAN_TENSOR_EXPERT_DOWN;
  const guint owner = (guint)(expert / (m->experts / self->ep));
  const ExecFactor gate_up = weight_of (self, up_role, layer, expert, up, hidden),
                   down = weight_of (self, down_role, layer, expert, hidden, ffn);
  gint64 n, first = find_rows (self, l, expert, &n);
  ExecArray dout = row_of (self->drows, first, hidden), dup = row_of (self->drows_up, first, up),
            dactivated = row_of (self->drows_activated, first, ffn);

  bias_bwd (self, layer, expert, PLAN_TENSOR_EXPERT_DOWN_BIAS, hidden, dout,
            row_of (l->row_probs, first, 1), row_of (self->bias_dprobs, first, 1), n);
  for (guint p = 0; p < self->ep; p++)
    weight_bwd (self, raw_of (self->peer[p], down_role, layer, expert, hidden, ffn), dout,
                row_of (l->rows_activated, first, ffn), &down, p == owner ? n : 0);
  if (n > 0)
    {
      multiply_rows_bwd (self, dactivated, dout, &down, n);
      activate_rows_bwd (self, l, first, n);
      if (m->expert_bias)
        RUN (ACCUMULATE,
             EXEC_OPERANDS (row_of (self->row_dprobs, first, 1),
                            row_of (self->bias_dprobs, first, 1)),
             n);
      multiply_rows_bwd (self, dout, dup, &gate_up, n);
      scale_rows_bwd (self, l, first, n);
    }
  for (guint p = 0; p < self->ep; p++)
    weight_bwd (self, raw_of (self->peer[p], up_role, layer, expert, up, hidden), dup,
                row_of (l->scaled, first, hidden), &gate_up, p == owner ? n : 0);
  bias_bwd (self, layer, expert, PLAN_TENSOR_EXPERT_GATE_UP_BIAS, up, dup, (ExecArray){ 0 },
            (ExecArray){ 0 }, n);
}

/* Backward pass of the router. It reads a copy of the tokens in the format of its scores where that
 * is not the compute format. */
static void
router_bwd (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const gint64 rows = self->own_rows, all = rows * m->hidden;
  ExecArray weight = exec_evaluator_weight (self, PLAN_TENSOR_ROUTER, layer);
  ExecArray din = self->combined, in = exec_evaluator_own (self, l->normed2);

  RUN (ROUTE_BWD, EXEC_OPERANDS (self->scores, self->dprobs, l->saved, l->chosen), rows, m->experts,
       m->topk);
  if (self->router != self->compute)
    {
      RUN (GEMM, EXEC_OPERANDS (self->wide, self->scores, weight), rows, m->hidden, m->experts, 0);
      RUN (CAST, EXEC_OPERANDS (din, self->wide), all);
      RUN (CAST, EXEC_OPERANDS (self->wide, in), all);
      in = self->wide;
    }
  else
    RUN (GEMM, EXEC_OPERANDS (din, self->scores, weight), rows, m->hidden, m->experts, 0);
  RUN (GEMM, EXEC_OPERANDS (exec_evaluator_raw (self, PLAN_TENSOR_ROUTER, layer), self->scores, in),
       m->experts, m->hidden, rows, 2);
  if (m->expert_bias)
    RUN (BIAS_BWD,
         EXEC_OPERANDS (exec_evaluator_raw (self, PLAN_TENSOR_ROUTER_BIASES, layer), self->scores),
         rows, m->experts);
  RUN (ACCUMULATE, EXEC_OPERANDS (exec_evaluator_own (self, self->branch), din), all);
}

/* Backward pass of the gate that multiplies the output of shared experts. */
static void
gate_bwd (ExecEvaluator *self, gint64 layer)
{
  const gint64 hidden = self->model->hidden, rows = self->own_rows;
  const ExecEvaluatorLayer *l = &self->layers[layer];

  RUN (GATE_BWD,
       EXEC_OPERANDS (exec_evaluator_own (self, self->dungated), self->dgate,
                      exec_evaluator_own (self, self->dout), l->ungated, l->gate),
       rows, hidden);
  RUN (GEMM,
       EXEC_OPERANDS (self->combined, self->dgate,
                      exec_evaluator_weight (self, PLAN_TENSOR_SHARED_GATE, layer)),
       rows, hidden, 1, 0);
  RUN (GEMM,
       EXEC_OPERANDS (exec_evaluator_raw (self, PLAN_TENSOR_SHARED_GATE, layer), self->dgate,
                      exec_evaluator_own (self, l->normed2)),
       1, hidden, rows, 2);
  RUN (ACCUMULATE, EXEC_OPERANDS (exec_evaluator_own (self, self->branch), self->combined),
       rows * hidden);
}

/* The gradient of what shared experts made. */
static ExecArray
shared_gradient (const ExecEvaluator *self)
{
  return self->model->shared_gate ? self->dungated : self->dout;
}

/* Backward pass of shared experts: `combined` gets a partial sum of each tensor-parallel rank. */
static void
shared_bwd (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const gint64 up = m->gated ? 2 * m->shared_ffn : m->shared_ffn;

  exec_evaluator_linear_bwd (self, self->shared_out, shared_gradient (self), l->shared,
                             PLAN_TENSOR_SHARED_DOWN, EXEC_NO_BIAS, layer, m->hidden,
                             m->shared_ffn);
  exec_evaluator_activate_bwd (self, self->dshared_up, self->shared_out, l->shared_up, self->rows,
                               m->shared_ffn);
  exec_evaluator_linear_bwd (self, self->combined, self->dshared_up, l->normed2,
                             PLAN_TENSOR_SHARED_GATE_UP, EXEC_NO_BIAS, layer, up, m->hidden);
}

static void
add_shared_bwd (ExecEvaluator *self)
{
  RUN (ACCUMULATE,
       EXEC_OPERANDS (exec_evaluator_own (self, self->branch),
                      exec_evaluator_own (self, self->combined)),
       self->own_rows * self->model->hidden);
}

static void
group_bwd (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];

  for (gint64 row = 0; row < l->n_rows; row++)
    {
      void *to = row_of (self->drows, row, m->hidden).data;
      const guint64 bytes = plan_dtype_bytes (self->compute, (guint64)m->hidden);

      if (l->peer[row] < 0)
        {
          memset (to, 0, bytes);
          continue;
        }
      const ExecEvaluator *peer = self->peer[l->peer[row]];
      memcpy (to, row_of (exec_evaluator_own (peer, peer->dout), l->token[row], m->hidden).data,
              bytes);
    }
  for (gint64 expert = 0; expert < m->experts; expert++)
    expert_bwd (self, layer, expert);
  for (guint p = 0; p < self->ep; p++)
    {
      ExecEvaluator *peer = self->peer[p];

      exec_evaluator_run (peer, PLAN_OP_ZERO, EXEC_OPERANDS (peer->dprobs),
                          (gint64[]){ self->own_rows * m->experts });
      for (gint64 row = 0; row < l->n_rows; row++)
        if (l->peer[row] == (gint32)p)
          exec_evaluator_put (peer->dprobs, l->token[row] * m->experts + l->expert[row],
                              exec_evaluator_get (self->row_dprobs, row));
      add_rows (self, l, p, exec_evaluator_own (peer, peer->branch));
      router_bwd (peer, layer);
    }
}

void
exec_evaluator_experts_bwd (ExecEvaluator *self, gint64 layer)
{
  for (guint p = 0; p < self->together * self->tp; p += self->ep)
    group_bwd (self->peer[p], layer);
  if (self->model->shared_ffn == 0)
    return;
  if (self->model->shared_gate)
    EXEC_EACH (self, peer, gate_bwd (peer, layer));
  EXEC_JOIN_ROWS (self, peer, shared_gradient (peer));
  EXEC_EACH (self, peer, shared_bwd (peer, layer));
  EXEC_SUM_PARTS (self, peer, peer->combined);
  EXEC_EACH (self, peer, add_shared_bwd (peer));
}

/* --- activations -------------------------------------------------------------------------- */

static void
take_layer (ExecEvaluator *self, ExecEvaluatorLayer *l)
{
  const PlanModel *m = self->model;
  const guint64 tokens = (guint64)self->rows, rows = (guint64)exec_evaluator_expert_rows (self);
  const guint64 probs = tokens * (guint64)m->experts;
  const PlanDtype c = self->compute;

  l->probs = exec_evaluator_array (self, self->router, probs);
  l->saved = exec_evaluator_array (self, PLAN_DTYPE_FP32, probs);
  l->chosen = exec_evaluator_array (self, PLAN_DTYPE_U8, probs);
  l->left = exec_evaluator_array (self, PLAN_DTYPE_U8, probs);
  l->rows = exec_evaluator_array (self, c, rows * (guint64)m->hidden);
  l->scaled
      = m->scores_on_input ? exec_evaluator_array (self, c, rows * (guint64)m->hidden) : l->rows;
  l->row_probs = exec_evaluator_array (self, PLAN_DTYPE_FP32, rows);
  l->rows_up = exec_evaluator_array (self, c, rows * (guint64)up_width (self));
  l->rows_activated = exec_evaluator_array (self, c, rows * (guint64)m->expert_ffn);
  l->shared_up = exec_evaluator_array (self, c, tokens * 2 * (guint64)m->shared_ffn);
  l->gate = exec_evaluator_array (self, c, tokens);
  l->ungated = exec_evaluator_array (self, c, tokens * (guint64)m->hidden);
  l->shared = exec_evaluator_array (self, c, tokens * (guint64)m->shared_ffn);
  l->peer = exec_evaluator_array (self, PLAN_DTYPE_I32, rows).data;
  l->token = exec_evaluator_array (self, PLAN_DTYPE_I32, rows).data;
  l->expert = exec_evaluator_array (self, PLAN_DTYPE_I32, rows).data;
}

void
exec_evaluator_take_experts (ExecEvaluator *self)
{
  const PlanModel *m = self->model;
  const guint64 tokens = (guint64)self->rows, rows = (guint64)exec_evaluator_expert_rows (self);
  const guint64 hidden = (guint64)m->hidden, shared = (guint64)MAX (m->shared_ffn, m->hidden);
  const PlanDtype c = self->compute;

  for (gint64 layer = 0; layer < m->layers; layer++)
    if (plan_model_is_moe_layer (m, layer))
      take_layer (self, &self->layers[layer]);
  self->scores = exec_evaluator_array (self, self->router, tokens * (guint64)m->experts);
  self->wide = exec_evaluator_array (self, PLAN_DTYPE_FP32, tokens * hidden);
  self->combined = exec_evaluator_array (self, c, tokens * hidden);
  self->dprobs = exec_evaluator_array (self, PLAN_DTYPE_FP32, tokens * (guint64)m->experts);
  self->row_dprobs = exec_evaluator_array (self, PLAN_DTYPE_FP32, rows);
  self->bias_dprobs = exec_evaluator_array (self, PLAN_DTYPE_FP32, rows);
  self->drows = exec_evaluator_array (self, c, rows * hidden);
  self->drows_up = exec_evaluator_array (self, c, rows * (guint64)up_width (self));
  self->drows_activated = exec_evaluator_array (self, c, rows * (guint64)m->expert_ffn);
  self->shared_out = exec_evaluator_array (self, c, tokens * shared);
  self->dgate = exec_evaluator_array (self, c, tokens);
  self->dungated = exec_evaluator_array (self, c, tokens * hidden);
  self->dshared_up = exec_evaluator_array (self, c, tokens * 2 * shared);
}
