/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's experts, one after the other. A row is one token's vector for one expert that it chose;
 * an expert computes the rows of all ranks of a group that has each expert once, in the arrays of
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

/* The number of ranks that together have each expert once. */
static guint
group_of (const ExecEvaluator *self)
{
  return self->ep * self->etp;
}

gint64
exec_evaluator_expert_rows (const ExecEvaluator *self)
{
  const gint64 experts = self->model->experts;

  return group_of (self)
             * (pads (self) ? capacity_of (self) * experts : self->own_rows * self->model->topk)
         + experts * (multiple_of_rows (self) - 1);
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

/* Which rank's rows come next: first those of all ranks that are the first to have a part of their
 * experts, then of those that are the second, and so on. */
static guint
peer_at (const ExecEvaluator *self, guint place)
{
  return place % self->ep * self->etp + place / self->ep;
}

/* Makes the rows of all tokens, sorted by expert. */
static void
send_rows (const ExecEvaluator *self, gint64 layer)
{
  const gint64 experts = self->model->experts;
  gint64 row = 0;

  for (gint64 expert = 0; expert < experts; expert++)
    {
      for (guint place = 0; place < group_of (self); place++)
        {
          const gint64 first = row;
          const guint peer = peer_at (self, place);

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

/* Calls a function for each expert and its rows. */
static void
each_expert (ExecEvaluator *self, gint64 layer,
             void (*visit) (ExecEvaluator *self, gint64 layer, gint64 expert, gint64 first,
                            gint64 n))
{
  for (gint64 expert = 0; expert < self->model->experts; expert++)
    {
      gint64 n;
      const gint64 first = find_rows (self, &self->layers[layer], expert, &n);

      visit (self, layer, expert, first, n);
    }
}

/* Runs the chosen experts for the group whose first rank `self` is. */
static void
run_group (ExecEvaluator *self, gint64 layer)
{
  send_rows (self, layer);
  each_expert (self, layer, exec_evaluator_run_expert);
  for (guint p = 0; p < group_of (self); p++)
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
  for (guint p = 0; p < self->together * self->tp; p += group_of (self))
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

/* How many tokens chose each expert, of the ranks that have parts of the same sequences. The caller
 * frees its data. */
static ExecArray
count_tokens (const ExecEvaluator *self, gint64 layer)
{
  const gint64 experts = self->model->experts;
  const guint of_sequence = self->tp * self->cp;
  ExecEvaluator **ranks = self->peer - (self->rank % self->cp * self->tp + self->tp_rank);
  float *counts = g_new0 (float, experts);

  for (guint p = 0; p < of_sequence; p++)
    for (gint64 i = 0; i < self->own_rows * experts; i++)
      counts[i % experts] += ((const guint8 *)ranks[p]->layers[layer].chosen.data)[i] != 0;
  return (ExecArray){ counts, PLAN_DTYPE_FP32, NULL };
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

  const gint64 aux_loss = self->job->of->plan.value[PLAN_MOE_AUX_LOSS];
  const PlanManner manner = { { [PLAN_MANNER_AUX_LOSS] = (double)aux_loss / 1e6,
                                [PLAN_MANNER_COUNTED] = (double)(rows * self->tp * self->cp) } };
  const ExecArray counts = count_tokens (self, layer);

  exec_evaluator_run_as (self, PLAN_OP_ROUTE_BWD,
                         EXEC_OPERANDS (self->scores, self->dprobs, l->saved, l->chosen, counts),
                         (gint64[]){ rows, m->experts, m->topk }, &manner);
  g_free (counts.data);
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
  each_expert (self, layer, exec_evaluator_expert_bwd);
  for (guint p = 0; p < group_of (self); p++)
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
  for (guint p = 0; p < self->together * self->tp; p += group_of (self))
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
  exec_evaluator_take_rows_of_parts (self, l);
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
  self->drows = exec_evaluator_array (self, c, rows * hidden);
  exec_evaluator_take_parts (self);
  self->shared_out = exec_evaluator_array (self, c, tokens * shared);
  self->dgate = exec_evaluator_array (self, c, tokens);
  self->dungated = exec_evaluator_array (self, c, tokens * hidden);
  self->dshared_up = exec_evaluator_array (self, c, tokens * 2 * shared);
}
